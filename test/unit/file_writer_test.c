/* SPDX-License-Identifier: BSD-3-Clause */
/* The file writer as the receiver uses it: rings in, rings out, files on a real file system. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <rte_ring.h>

#include "arrow_read.h"
#include "arrow_sample.h"
#include "file_writer.h"

#define RECORDS 32

static struct sample sample;
static struct frame_record records[RECORDS];
static struct rte_ring *to_writer, *from_writer, *spare;
static char dir[64];

static struct rte_ring *
make_ring(void)
{
	struct rte_ring *r = aligned_alloc(64, RTE_ALIGN(rte_ring_get_memsize(64), 64));

	/* in plain memory: no EAL needed */
	assert_int_equal(rte_ring_init(r, "test", 64, RING_F_SP_ENQ | RING_F_SC_DEQ), 0);
	return r;
}

static int
setup(void **state)
{
	unsigned int i;

	strcpy(dir, "/tmp/file_writer_XXXXXX");
	assert_non_null(mkdtemp(dir));
	sample_init(&sample, 4, GK_VALUE_F32, 1);
	to_writer = make_ring();
	from_writer = make_ring();
	spare = make_ring();
	for (i = 0; i < RECORDS; i++)
		rte_ring_enqueue(spare, &records[i]);
	return 0;
}

static int
teardown(void **state)
{
	static const char *const names[] = {"run_frames.arrow", "run_images.arrow",
		"run_frames.arrow.part", "run_images.arrow.part"};
	char path[128];
	unsigned int i;

	for (i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		unlink(path);
	}
	assert_int_equal(rmdir(dir), 0);
	free(to_writer);
	free(from_writer);
	free(spare);
	sample_free(&sample);
	return 0;
}

static struct file_writer_config
config(void)
{
	return (struct file_writer_config){
		.dir = dir,
		.run = "run",
		.records = to_writer,
		.returns = from_writer,
		.geometry = sample.geometry,
		.layout = sample.layout,
		.value = sample.value,
		.modules = sample.modules,
		.outputs = sample.outputs,
		.nb_outputs = 1,
		.frames_interval = 16,
		.images_interval = 16,
	};
}

/* One frame; with the one output slot, it must come back before the next is made. */
static void
send_frame(void)
{
	struct frame_record *r;
	void *back;

	assert_int_equal(rte_ring_dequeue(spare, &back), 0);
	r = back;
	sample_next(&sample, 1, 4);
	*r = sample.record;
	assert_int_equal(rte_ring_enqueue(to_writer, r), 0);
	while (rte_ring_dequeue(from_writer, &back) < 0)
		usleep(10);
	assert_ptr_equal(back, r);
	rte_ring_enqueue(spare, back);
}

static void
count_rows(const char *path, struct arrow_reader *r, uint64_t want)
{
	const char *problem;
	uint64_t rows = 0;
	size_t i;

	assert_int_equal(arrow_reader_open(r, path, &problem), 0);
	for (i = 0; i < r->nb_batches; i++) {
		assert_int_equal(arrow_reader_crc(r, i), 1);
		rows += r->batches[i].rows;
	}
	assert_int_equal(rows, want);
}

static void
writes_a_run(void **state)
{
	struct file_writer_config c = config();
	struct file_writer_stats s;
	struct file_writer *w, *second;
	struct arrow_reader r;
	char message[PATH_MAX];
	unsigned int i;

	assert_int_equal(file_writer_create(&w, &c, message), 0);
	/* the run's files are taken */
	assert_int_equal(file_writer_create(&second, &c, message), -EEXIST);
	assert_non_null(strstr(message, "run_frames.arrow.part"));
	assert_int_equal(file_writer_start(w), 0);
	for (i = 0; i < 200; i++)
		send_frame();
	assert_int_equal(file_writer_stop(w, true), 0);
	file_writer_stats_get(w, &s);
	assert_int_equal(s.records, 200);
	assert_true(s.kept > 0);
	assert_int_equal(s.frames_unwritten, 0);
	assert_int_equal(s.table[ARROW_FRAMES].rows, 200);
	assert_int_equal(s.table[ARROW_IMAGES].rows, s.kept);
	for (i = 0; i < ARROW_TABLES; i++) {
		assert_true(s.table[i].complete);
		count_rows(file_writer_path(w, i), &r, s.table[i].rows);
		assert_true(r.complete);
		assert_int_equal(r.size, s.table[i].bytes);
		assert_int_equal(r.nb_batches, s.table[i].batches);
		arrow_reader_close(&r);
		assert_string_equal(file_writer_error(w, i), "");
	}
	file_writer_destroy(w);
	assert_int_equal(file_writer_create(&second, &c, message), -EEXIST);
	assert_non_null(strstr(message, "run_frames.arrow is already there"));
}

/* Stop takes what is in the ring with it. */
static void
stop_drains(void **state)
{
	struct file_writer_config c = config();
	struct file_writer_stats s;
	struct file_writer *w;
	char message[PATH_MAX];
	unsigned int i;

	assert_int_equal(file_writer_create(&w, &c, message), 0);
	for (i = 0; i < RECORDS; i++) {
		sample_next(&sample, 1, 0);
		records[i] = sample.record;
		assert_int_equal(rte_ring_enqueue(to_writer, &records[i]), 0);
	}
	assert_int_equal(file_writer_start(w), 0);
	assert_int_equal(file_writer_stop(w, true), 0);
	file_writer_stats_get(w, &s);
	assert_int_equal(s.table[ARROW_FRAMES].rows, RECORDS);
	assert_int_equal(rte_ring_count(from_writer), RECORDS);
	file_writer_destroy(w);
}

/* Nothing started, nothing left behind; a directory that is not there is named. */
static void
creates_and_destroys(void **state)
{
	struct file_writer_config c = config();
	struct file_writer *w;
	char message[PATH_MAX];

	assert_int_equal(file_writer_create(&w, &c, message), 0);
	file_writer_destroy(w);
	c.dir = "/nowhere/at/all";
	assert_int_equal(file_writer_create(&w, &c, message), -ENOENT);
	assert_non_null(strstr(message, "/nowhere/at/all/run_frames.arrow.part"));
	assert_non_null(strstr(message, "No such file"));
	c = config();
	c.run = "a/b";
	assert_int_equal(file_writer_create(&w, &c, message), -EINVAL);
}

/* A disk with room for so many blocks, for both files together. */
static uint64_t disk_room;

static int
small_write(void *handle, const struct iovec *iov, unsigned int nb, uint64_t offset)
{
	uint64_t size = 0;
	unsigned int i;

	for (i = 0; i < nb; i++)
		size += iov[i].iov_len;
	if (size > disk_room)
		return -ENOSPC;
	disk_room -= size;
	return arrow_io_posix.write(handle, iov, nb, offset);
}

/* The disk is full: records go on coming back, every row is accounted for. */
static void
disk_full(void **state)
{
	struct arrow_io_ops io = arrow_io_posix;
	struct file_writer_config c = config();
	struct file_writer_stats s;
	struct file_writer *w;
	struct arrow_reader r;
	char message[PATH_MAX];
	unsigned int i;

	io.write = small_write;
	c.io = &io;
	disk_room = 4096;
	assert_int_equal(file_writer_create(&w, &c, message), -ENOSPC);
	assert_non_null(strstr(message, "No space left"));

	disk_room = 2 << 20;
	assert_int_equal(file_writer_create(&w, &c, message), 0);
	assert_int_equal(file_writer_start(w), 0);
	for (i = 0; i < 1000; i++)
		send_frame();
	assert_int_equal(file_writer_stop(w, true), -ENOSPC);
	file_writer_stats_get(w, &s);
	assert_int_equal(s.records, 1000);
	assert_int_equal(s.table[ARROW_IMAGES].error, -ENOSPC);
	assert_false(s.table[ARROW_IMAGES].complete);
	assert_true(s.table[ARROW_IMAGES].rows > 0);
	assert_int_equal(s.table[ARROW_FRAMES].rows + s.table[ARROW_FRAMES].unwritten, 1000);
	assert_int_equal(s.table[ARROW_IMAGES].rows + s.table[ARROW_IMAGES].unwritten, s.kept);
	assert_int_equal(s.frames_unwritten,
		s.table[ARROW_FRAMES].unwritten + s.table[ARROW_IMAGES].unwritten);
	assert_non_null(strstr(file_writer_error(w, ARROW_IMAGES), "run_images.arrow.part"));
	/* the part that was complete is readable to its end */
	count_rows(file_writer_path(w, ARROW_IMAGES), &r, s.table[ARROW_IMAGES].rows);
	assert_int_equal(r.valid, r.size);
	assert_false(r.complete);
	arrow_reader_close(&r);
	file_writer_destroy(w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(writes_a_run, setup, teardown),
		cmocka_unit_test_setup_teardown(stop_drains, setup, teardown),
		cmocka_unit_test_setup_teardown(creates_and_destroys, setup, teardown),
		cmocka_unit_test_setup_teardown(disk_full, setup, teardown),
	};

	return cmocka_run_group_tests_name("file_writer", tests, NULL, NULL);
}
