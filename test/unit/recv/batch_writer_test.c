/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests the file writer with its rings as the receiver uses it: on a real file system, and on a
 * disk in memory that fails.
 */

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <rte_ring.h>

#include "arrow/crc32c.h"
#include "../arrow/arrow_disk.h"
#include "arrow/reader.h"
#include "clock.h"
#include "recovery/recovery.h"
#include "../arrow/arrow_rows.h"
#include "../arrow/arrow_sample.h"
#include "builder/compressor.h"
#include "gk_bitshuffle.h"
#include "io/direct_io.h"
#include "output/batch_writer.h"

#define RECORDS 32

static struct sample sample;
static struct frame_record records[RECORDS];
static struct rte_ring *to_writer, *from_writer, *spare;
static char dir[64];

static struct rte_ring *
make_ring(void)
{
	struct rte_ring *r = aligned_alloc(64, RTE_ALIGN(rte_ring_get_memsize(64), 64));

	/* in normal memory, since there is no EAL */
	assert_int_equal(rte_ring_init(r, "test", 64, RING_F_SP_ENQ | RING_F_SC_DEQ), 0);
	return r;
}

static int
setup(void **state)
{
	unsigned int i;

	strcpy(dir, "/tmp/batch_writer_XXXXXX");
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
	char command[96];

	snprintf(command, sizeof(command), "rm -r %s", dir);
	assert_int_equal(system(command), 0);
	free(to_writer);
	free(from_writer);
	free(spare);
	sample_free(&sample);
	return 0;
}

static struct batch_writer_config
config(void)
{
	return (struct batch_writer_config){
		.dir = dir,
		.run = "run",
		.records = to_writer,
		.returns = from_writer,
		.geometry = sample.geometry,
		.layout = sample.layout,
		.value = sample.value,
		.chunks = sample.chunks,
		.modules = sample.modules,
		.outputs = sample.outputs,
		.nb_outputs = 1,
		.frames_interval = 16,
		.images_interval = 16,
	};
}

/* Send one frame, and wait for its record: there is only one output slot. */
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

static struct batch_writer *
create(const struct batch_writer_config *c)
{
	struct batch_writer *w;
	char message[PATH_MAX];
	int ret;

	ret = batch_writer_create(&w, c, message);
	if (ret < 0)
		print_message("%s\n", message);
	assert_int_equal(ret, 0);
	return w;
}

static struct batch_writer *
start(const struct batch_writer_config *c)
{
	struct batch_writer *w = create(c);

	assert_int_equal(batch_writer_start(w), 0);
	return w;
}

static void
writes_a_run(void **state)
{
	struct batch_writer_config c = config();
	struct batch_writer_stats s;
	struct batch_writer *w, *second;
	struct run_files_status status;
	struct arrow_reader r;
	char message[PATH_MAX];
	const char *problem;
	unsigned int i;

	assert_int_equal(batch_writer_create(&w, &c, message), 0);
	/* the files of the run exist */
	assert_int_equal(batch_writer_create(&second, &c, message), -EEXIST);
	assert_non_null(strstr(message, "run_frames.arrow.part"));
	assert_int_equal(batch_writer_start(w), 0);
	for (i = 0; i < 200; i++)
		send_frame();
	assert_int_equal(batch_writer_stop(w, true), 0);
	batch_writer_stats_get(w, &s);
	assert_int_equal(s.records, 200);
	assert_true(s.kept > 0);
	assert_int_equal(s.frames_unwritten, 0);
	assert_int_equal(s.table[ARROW_FRAMES].rows, 200);
	assert_int_equal(s.table[ARROW_IMAGES].rows, s.kept);
	for (i = 0; i < ARROW_TABLES; i++) {
		assert_int_equal(s.table[i].complete, 1);
		assert_int_equal(s.table[i].files, 1);
		assert_int_equal(s.table[i].state, RUN_FILES_CLOSED);
		batch_writer_status(w, i, &status);
		/* a reason is given exactly if the mode is not the fastest */
		assert_int_equal(s.table[i].mode == ARROW_IO_DIRECT_URING, status.why[0] == '\0');
		print_message("%s: %s %s\n", status.path, arrow_io_mode_name(s.table[i].mode),
			status.why);
		assert_int_equal(arrow_reader_open(&r, batch_writer_path(w, i), &problem), 0);
		assert_int_equal(count_rows(&r), s.table[i].rows);
		assert_true(r.complete);
		assert_int_equal(r.size, s.table[i].bytes);
		assert_int_equal(r.nb_batches, s.table[i].batches);
		arrow_reader_close(&r);
		assert_string_equal(batch_writer_error(w, i), "");
	}
	batch_writer_destroy(w);
	assert_int_equal(batch_writer_create(&second, &c, message), -EEXIST);
	assert_non_null(strstr(message, "run_frames.arrow already exists"));
}

/* Stopping the writer drains its ring. */
static void
stop_drains(void **state)
{
	struct batch_writer_config c = config();
	struct batch_writer_stats s;
	struct batch_writer *w;
	char message[PATH_MAX];
	unsigned int i;

	assert_int_equal(batch_writer_create(&w, &c, message), 0);
	for (i = 0; i < RECORDS; i++) {
		sample_next(&sample, 1, 0);
		records[i] = sample.record;
		assert_int_equal(rte_ring_enqueue(to_writer, &records[i]), 0);
	}
	assert_int_equal(batch_writer_start(w), 0);
	assert_int_equal(batch_writer_stop(w, true), 0);
	batch_writer_stats_get(w, &s);
	assert_int_equal(s.table[ARROW_FRAMES].rows, RECORDS);
	assert_int_equal(rte_ring_count(from_writer), RECORDS);
	batch_writer_destroy(w);
}

/* A writer that was not started leaves no files; a missing directory is named in the message. */
static void
creates_and_destroys(void **state)
{
	struct batch_writer_config c = config();
	struct batch_writer *w;
	char message[PATH_MAX];

	assert_int_equal(batch_writer_create(&w, &c, message), 0);
	batch_writer_destroy(w);
	c.dir = "/nowhere/at/all";
	assert_int_equal(batch_writer_create(&w, &c, message), -ENOENT);
	assert_non_null(strstr(message, "/nowhere/at/all/run_frames.arrow.part"));
	assert_non_null(strstr(message, "No such file"));
	c = config();
	c.run = "a/b";
	assert_int_equal(batch_writer_create(&w, &c, message), -EINVAL);
}

/* Records of kept frames, mostly raw ones, each with its own output slot. */
#define PACKED_SLOTS 24

static void
write_packed_run(const char *run, uint8_t *slots, struct compressor *compressor)
{
	struct batch_writer_config c = config();
	struct batch_writer_stats s;
	struct batch_writer *w;
	void *back;

	c.run = run;
	c.outputs = slots;
	c.nb_outputs = PACKED_SLOTS;
	c.compressor = compressor;
	for (unsigned int i = 0; i < PACKED_SLOTS; i++)
		assert_int_equal(rte_ring_enqueue(to_writer, &records[i]), 0);
	w = start(&c);
	assert_int_equal(batch_writer_stop(w, true), 0);
	batch_writer_stats_get(w, &s);
	assert_int_equal(s.table[ARROW_IMAGES].rows, PACKED_SLOTS);
	assert_int_equal(s.bad_records, 0);
	batch_writer_destroy(w);
	for (unsigned int i = 0; i < PACKED_SLOTS; i++) /* in the same order */
		assert_true(rte_ring_dequeue(from_writer, &back) == 0 && back == &records[i]);
}

static bool helper_stops;

static void *
help(void *compressor)
{
	while (!__atomic_load_n(&helper_stops, __ATOMIC_ACQUIRE))
		compressor_poll(compressor);
	return NULL;
}

/* Replace the outputs of raw frames and images by chunks, as gangs do. */
static void
make_chunks(uint8_t *slots)
{
	uint8_t *chunk = malloc(gk_bitshuffle_bound(gk_pixels(&sample.geometry)));

	assert_non_null(chunk);
	for (unsigned int i = 0; i < PACKED_SLOTS; i++) {
		uint8_t *raw = slots + i * sample.layout.stride + sample.layout.raw;

		if (records[i].kind == GK_KIND_CSR)
			continue;
		records[i].chunk_bytes = gk_bitshuffle_compress(
			(const uint16_t *)raw, gk_pixels(&sample.geometry), chunk);
		memcpy(raw, chunk, records[i].chunk_bytes);
	}
	free(chunk);
}

/*
 * The files are the same if the writer compresses alone, in jobs without helpers, with two helpers,
 * and if the outputs are chunks already.
 */
static void
compressed_by_others(void **state)
{
	const struct sample before = sample;
	unsigned int raw = 0, images = 0;
	struct compressor *c;
	char command[256];
	pthread_t helper[2];
	uint8_t *slots;

	sample_init(&sample, 4, GK_VALUE_I16, 1);
	sample.chunks = true;
	slots = aligned_alloc(4096, PACKED_SLOTS * sample.layout.stride);
	c = compressor_create(3, gk_pixels(&sample.geometry));
	assert_true(slots != NULL && c != NULL);
	for (unsigned int n = 0; n < PACKED_SLOTS;) {
		sample_next(&sample, 1, 1);
		if (!frame_verdict_is_kept(sample.record.verdict) ||
			(sample.record.kind != GK_KIND_RAW && n % 4 != 0))
			continue;
		memcpy(slots + n * sample.layout.stride, sample.outputs, sample.layout.stride);
		records[n] = sample.record;
		raw += records[n].kind == GK_KIND_RAW;
		images += records[n].kind == GK_KIND_IMAGE;
		records[n].out = n;
		n++;
	}
	assert_true(raw > PACKED_SLOTS / 2 && images > 0);
	write_packed_run("alone", slots, NULL);
	write_packed_run("jobs", slots, c);
	for (unsigned int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&helper[i], NULL, help, c), 0);
	write_packed_run("helped", slots, c);
	__atomic_store_n(&helper_stops, true, __ATOMIC_RELEASE);
	for (unsigned int i = 0; i < 2; i++)
		pthread_join(helper[i], NULL);
	make_chunks(slots);
	write_packed_run("chunks", slots, c);
	snprintf(command, sizeof(command),
		"cd %s && cmp alone_images.arrow jobs_images.arrow && "
		"cmp alone_images.arrow helped_images.arrow && "
		"cmp alone_images.arrow chunks_images.arrow && "
		"cmp alone_frames.arrow helped_frames.arrow",
		dir);
	assert_int_equal(system(command), 0);
	compressor_destroy(c);
	free(slots);
	sample_free(&sample);
	sample = before;
}

/* Output slots that cannot be accessed directly. The sample's slot is slot 2 of these. */
#define FAR_SLOTS 3
static uint8_t *far;
static uint64_t far_bytes;
static int far_fails;

static int
fetch_far(void *arg, void *to, const void *from, size_t size)
{
	const uint64_t at = (const uint8_t *)from - far - 2 * sample.layout.stride;

	assert_ptr_equal(arg, &far);
	assert_true(at < sample.layout.stride && size <= sample.layout.stride - at);
	far_bytes += size;
	if (far_fails > 0 && --far_fails == 0)
		return -EIO;
	memcpy(to, sample.outputs + at, size);
	return 0;
}

/* Bytes of the output slot that a record of this format uses. */
static uint64_t
bytes_of(const struct frame_record *r)
{
	const uint64_t pixels = gk_pixels(&sample.geometry), rows = gk_rows(&sample.geometry);

	switch (r->kind) {
	case GK_KIND_CSR:
		return (rows + 1) * 4 + r->nnz * (2 + (uint64_t)sample.layout.value_size);
	case GK_KIND_IMAGE:
		return pixels * sample.layout.value_size;
	case GK_KIND_RAW:
		return r->chunk_bytes > 0 ? r->chunk_bytes : pixels * 2;
	default:
		return 0;
	}
}

/* Replace the raw output of the sample by a chunk. */
static void
make_chunk(void)
{
	const uint64_t pixels = gk_pixels(&sample.geometry);
	uint8_t *chunk = malloc(gk_bitshuffle_bound(pixels));
	uint8_t *raw = sample.outputs + sample.layout.raw;

	assert_non_null(chunk);
	sample.record.chunk_bytes = gk_bitshuffle_compress((const uint16_t *)raw, pixels, chunk);
	memcpy(raw, chunk, sample.record.chunk_bytes);
	free(chunk);
}

static uint64_t
write_far_run(const struct batch_writer_config *c, uint32_t slot, struct batch_writer_stats *stats)
{
	struct batch_writer *w = start(c);
	uint64_t bytes = 0;
	void *back;

	sample.seed = 5;
	sample.record.frame = 0;
	for (unsigned int i = 0; i < 120; i++) {
		sample_next(&sample, 1, 4);
		if (sample.record.kind == GK_KIND_RAW && i % 2 == 0)
			make_chunk();
		records[0] = sample.record;
		sample.record.chunk_bytes = 0;
		if (frame_verdict_is_kept(records[0].verdict))
			records[0].out = slot;
		bytes += bytes_of(&records[0]);
		assert_int_equal(rte_ring_enqueue(to_writer, &records[0]), 0);
		while (rte_ring_dequeue(from_writer, &back) < 0)
			usleep(10);
		/* the record is returned unchanged */
		if (frame_verdict_is_kept(records[0].verdict))
			assert_int_equal(records[0].out, slot);
	}
	assert_int_equal(batch_writer_stop(w, true), 0);
	batch_writer_stats_get(w, stats);
	batch_writer_destroy(w);
	return bytes;
}

static void
outputs_are_fetched(void **state)
{
	struct batch_writer_config c = config();
	struct batch_writer_stats near_stats, stats;
	char command[256];
	uint64_t bytes;

	write_far_run(&c, 0, &near_stats);
	far = mmap(NULL, FAR_SLOTS * sample.layout.stride, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
		-1, 0);
	assert_ptr_not_equal(far, MAP_FAILED);
	c.run = "far";
	c.outputs = far;
	c.nb_outputs = FAR_SLOTS;
	c.staging = aligned_alloc(4096, sample.layout.stride);
	memset(c.staging, 0xA5, sample.layout.stride);
	c.fetch = fetch_far;
	c.fetch_arg = &far;
	far_bytes = 0;
	bytes = write_far_run(&c, 2, &stats);
	assert_true(bytes > 0);
	assert_int_equal(far_bytes, bytes);
	assert_int_equal(stats.kept, near_stats.kept);
	assert_int_equal(stats.bad_records, 0);
	for (unsigned int t = 0; t < 2; t++) {
		const char *name = t == 0 ? "frames" : "images";

		snprintf(command, sizeof(command), "cmp %s/run_%s.arrow %s/far_%s.arrow", dir, name,
			dir, name);
		assert_int_equal(system(command), 0);
	}

	/* a failed copy or a wrong slot number loses the image, and is counted */
	c.run = "broken";
	far_fails = 3;
	write_far_run(&c, 2, &stats);
	assert_int_equal(stats.bad_records, 1);
	assert_int_equal(stats.table[ARROW_FRAMES].rows, 120);
	assert_int_equal(stats.table[ARROW_IMAGES].rows, near_stats.kept - 1);
	c.run = "beyond";
	write_far_run(&c, FAR_SLOTS, &stats);
	assert_int_equal(stats.bad_records, near_stats.kept);
	munmap(far, FAR_SLOTS * sample.layout.stride);
	free(c.staging);
}

/* Count the rows and batches in all files of a table on the disk in memory. */
static void
check_disk(enum arrow_table table, const struct run_files_stats *s)
{
	const char *problem, *end;
	struct arrow_reader r;
	struct arrow_column c;
	uint64_t rows = 0, batches = 0, last = 0, sequence, next = 0, row;
	unsigned int i;
	size_t b;

	for (i = 0; i < disk->nb_files; i++) {
		if (strstr(disk->file[i].name, arrow_table_name(table)) == NULL)
			continue;
		end = strstr(disk->file[i].name, ".part");
		assert_int_equal(arrow_reader_open_memory(
					 &r, disk->file[i].data, disk->file[i].size, &problem),
			0);
		assert_true(r.complete || end != NULL);
		if (end != NULL)
			assert_int_equal(arrow_recovery_scan(&r), 0);
		rows += count_rows(&r);
		batches += r.nb_batches;
		for (b = 0; b < r.nb_batches; b++) {
			sequence = strtoull(r.batches[b].sequence, NULL, 16);
			assert_true(sequence >= next);
			next = sequence + 1;
			assert_int_equal(arrow_reader_column(&r, b, 0, &c), 0);
			for (row = 0; row < c.rows; row++) {
				assert_true(((const uint64_t *)c.data)[row] > last);
				last = ((const uint64_t *)c.data)[row];
			}
		}
		arrow_reader_close(&r);
	}
	/* a file that could not be completed may have more than the durable rows */
	if (s->complete == s->files) {
		assert_int_equal(rows, s->rows);
		assert_int_equal(batches, s->batches);
	} else {
		assert_true(rows >= s->rows);
	}
}

static void
check_sums(const struct batch_writer_stats *s, uint64_t frames)
{
	unsigned int i;

	assert_int_equal(s->records, frames);
	assert_int_equal(s->table[ARROW_FRAMES].rows + s->table[ARROW_FRAMES].unwritten, frames);
	assert_int_equal(s->table[ARROW_IMAGES].rows + s->table[ARROW_IMAGES].unwritten, s->kept);
	assert_int_equal(s->frames_unwritten,
		s->table[ARROW_FRAMES].unwritten + s->table[ARROW_IMAGES].unwritten);
	for (i = 0; i < ARROW_TABLES; i++)
		assert_int_equal(s->table[i].unwritten,
			s->table[i].unwritten_full + s->table[i].unwritten_error +
				s->table[i].unwritten_bad);
}

static struct batch_writer_config
disk_config(void)
{
	struct batch_writer_config c = config();

	c.dir = "/nowhere";
	c.slices = (struct async_writer_config){
		.io = &disk_io,
		.slice = 65536,
		.depth = 3,
		.sync_bytes = 200000,
		.ahead = 65536,
	};
	c.retry_ms = 1;
	c.retry_max_ms = 4;
	c.resume_bytes = 65536;
	return c;
}

/* The disk is full, and later has room again: every row is in a file or counted. */
static void
full_and_resumed(void **state)
{
	struct batch_writer_config c = disk_config();
	struct batch_writer_stats s;
	struct run_files_status status;
	struct batch_writer *w;
	char message[PATH_MAX];
	unsigned int i;

	disk = disk_new(1);
	disk->capacity = 4096;
	assert_int_equal(batch_writer_create(&w, &c, message), -ENOSPC);
	assert_non_null(strstr(message, "No space left"));
	assert_null(disk_find(disk, "run_frames.arrow.part"));

	disk->capacity = 2 << 20;
	w = start(&c);
	for (i = 0; i < 1000; i++)
		send_frame();
	batch_writer_stats_get(w, &s);
	assert_int_equal(s.table[ARROW_IMAGES].state, RUN_FILES_FULL);
	assert_int_equal(s.table[ARROW_IMAGES].error, -ENOSPC);
	assert_true(s.table[ARROW_IMAGES].outages > 0);
	assert_true(s.table[ARROW_IMAGES].unwritten_full > 0);
	batch_writer_status(w, ARROW_IMAGES, &status);
	assert_non_null(strstr(status.error, "images.arrow.part at byte"));
	assert_non_null(strstr(status.error, "No space left"));

	pthread_mutex_lock(&disk->lock);
	disk->capacity = 0;
	pthread_mutex_unlock(&disk->lock);
	for (i = 0; i < 1000; i++)
		send_frame();
	batch_writer_stats_get(w, &s);
	assert_int_equal(s.table[ARROW_IMAGES].state, RUN_FILES_WRITING);
	assert_int_equal(s.table[ARROW_IMAGES].error, 0);
	assert_true(s.table[ARROW_IMAGES].resumes > 0);
	assert_int_equal(batch_writer_stop(w, true), -ENOSPC);
	batch_writer_stats_get(w, &s);
	check_sums(&s, 2000);
	for (i = 0; i < ARROW_TABLES; i++) {
		assert_int_equal(s.table[i].files, s.table[i].complete);
		check_disk(i, &s.table[i]);
	}
	assert_non_null(disk_find(disk, "run_images.arrow"));
	assert_non_null(disk_find(disk, "run_000002_images.arrow"));
	batch_writer_destroy(w);
	disk_free(disk);
}

static struct {
	atomic_bool open; /* the disk creates no file ... */
	atomic_bool reap; /* ... or completes nothing that is waited for */
} held;

static int
held_open(void **handle, const struct arrow_io_open *how)
{
	while (atomic_load(&held.open))
		usleep(100);
	return disk_io.open(handle, how);
}

static int
held_reap(void *handle, bool wait, struct arrow_io_done *done)
{
	while (wait && atomic_load(&held.reap))
		usleep(100);
	return disk_io.reap(handle, wait, done);
}

/* Watch the disk until a table is stalled, or is not any more. */
static void
watch(struct batch_writer *w, enum arrow_table table, bool stalled, unsigned int stalls)
{
	struct batch_writer_stats s;
	unsigned int ms;

	for (ms = 0; ms < 20000; ms++) {
		batch_writer_watch(w);
		batch_writer_stats_get(w, &s);
		if ((s.table[table].stalled != 0) == stalled)
			break;
		usleep(1000);
	}
	assert_int_equal(s.table[table].stalled, stalled);
	assert_int_equal(s.table[table].stalls, stalls);
}

static void *
send_frames(void *arg)
{
	unsigned int i;

	for (i = 0; i < 64; i++)
		send_frame();
	return NULL;
}

static void *
stop_writer(void *arg)
{
	(void)batch_writer_stop(arg, true);
	return NULL;
}

/*
 * A disk that creates no file of the next set, or completes nothing while the files are closed: the
 * writer waits for it, and another thread reports it.
 */
static void
stalls_are_reported(void **state)
{
	struct batch_writer_config c = disk_config();
	struct arrow_io_ops io = disk_io;
	struct batch_writer_stats s;
	struct batch_writer *w;
	pthread_t thread;
	unsigned int ms;

	disk = disk_new(1);
	io.open = held_open;
	io.reap = held_reap;
	c.slices.io = &io;
	c.slices.stall_ms = 100;
	c.frames_interval = c.images_interval = 32;
	c.roll_frames = 32;
	w = start(&c);
	atomic_store(&held.open, true);
	assert_int_equal(pthread_create(&thread, NULL, send_frames, NULL), 0);
	watch(w, ARROW_FRAMES, true, 1);
	atomic_store(&held.open, false);
	watch(w, ARROW_FRAMES, false, 1);
	assert_int_equal(pthread_join(thread, NULL), 0);

	pthread_mutex_lock(&disk->lock);
	disk->stuck = true;
	pthread_mutex_unlock(&disk->lock);
	atomic_store(&held.reap, true);
	assert_int_equal(pthread_create(&thread, NULL, stop_writer, w), 0);
	for (ms = 0; ms < 20000; ms++) {
		batch_writer_stats_get(w, &s);
		if (s.table[ARROW_IMAGES].stalled != 0)
			break;
		usleep(1000);
	}
	assert_int_equal(s.table[ARROW_IMAGES].stalled, 1);
	atomic_store(&held.reap, false);
	assert_int_equal(pthread_join(thread, NULL), 0);
	batch_writer_stats_get(w, &s);
	assert_int_equal(s.table[ARROW_IMAGES].stalled, 0);
	assert_int_equal(s.table[ARROW_FRAMES].stalled, 0);
	batch_writer_destroy(w);
	disk_free(disk);
}

/* The same if calls on the disk fail, one or several in a row. */
static void
each_call_fails(void **state)
{
	struct batch_writer_config c = disk_config();
	struct batch_writer_stats s;
	struct batch_writer *w;
	uint64_t outages = 0, resumes = 0;
	unsigned int call, i, frames;

	for (call = 0; call < 400; call += 1 + call / 10) {
		disk = disk_new(call);
		w = start(&c);
		pthread_mutex_lock(&disk->lock);
		disk->fail_from = disk->calls + call / 2;
		disk->fail_until = disk->fail_from + (call % 4 == 0 ? 1 : call % 4 * 5);
		disk->fail_error = call % 2 ? -EIO : -ENOSPC;
		pthread_mutex_unlock(&disk->lock);
		for (frames = 0; frames < 400; frames++) {
			send_frame();
			if (frames % 100 == 0)
				usleep(2000);
		}
		(void)batch_writer_stop(w, true);
		batch_writer_stats_get(w, &s);
		check_sums(&s, frames);
		for (i = 0; i < ARROW_TABLES; i++) {
			check_disk(i, &s.table[i]);
			outages += s.table[i].outages;
			resumes += s.table[i].resumes;
		}
		batch_writer_destroy(w);
		disk_free(disk);
		sample.record.frame = 0;
	}
	print_message("%u outages, %u resumed\n", (unsigned int)outages, (unsigned int)resumes);
	assert_true(outages > 20 && resumes > 10);
}

/* Note the images on a disk by frame number. */
static void
note_images(struct disk *d, uint8_t *has, uint64_t most)
{
	struct arrow_reader r;
	struct arrow_column c;
	const char *problem;
	unsigned int i;
	uint64_t row;
	size_t b;

	for (i = 0; i < d->nb_files; i++) {
		if (strstr(d->file[i].name, "_images") == NULL || d->file[i].size == 0 ||
			arrow_reader_open_memory(&r, d->file[i].data, d->file[i].size, &problem) !=
				0)
			continue;
		assert_int_equal(arrow_recovery_scan(&r), 0);
		for (b = 0; b < r.nb_batches; b++) {
			assert_int_equal(arrow_reader_column(&r, b, IMAGES_FRAME, &c), 0);
			for (row = 0; row < c.rows; row++) {
				assert_true(((const uint64_t *)c.data)[row] < most);
				has[((const uint64_t *)c.data)[row]] = 1;
			}
		}
		arrow_reader_close(&r);
	}
}

/* Each kept row has its image on the disk. @return number of kept rows */
static uint64_t
check_rows(struct disk *d, const uint8_t *has)
{
	struct arrow_column frame, verdict, flags;
	struct arrow_reader r;
	const char *problem;
	uint64_t row, kept = 0;
	unsigned int i;
	size_t b;

	for (i = 0; i < d->nb_files; i++) {
		if (strstr(d->file[i].name, "_frames") == NULL || d->file[i].size == 0 ||
			arrow_reader_open_memory(&r, d->file[i].data, d->file[i].size, &problem) !=
				0)
			continue;
		assert_int_equal(arrow_recovery_scan(&r), 0);
		for (b = 0; b < r.nb_batches; b++) {
			assert_int_equal(arrow_reader_column(&r, b, FRAMES_FRAME, &frame), 0);
			assert_int_equal(arrow_reader_column(&r, b, FRAMES_VERDICT, &verdict), 0);
			assert_int_equal(arrow_reader_column(&r, b, FRAMES_FLAGS, &flags), 0);
			for (row = 0; row < frame.rows; row++) {
				if (!frame_verdict_is_kept(((const uint8_t *)verdict.data)[row]) ||
					(((const uint32_t *)flags.data)[row] &
						FRAME_FLAG_NO_IMAGE) != 0)
					continue;
				kept++;
				assert_true(has[((const uint64_t *)frame.data)[row]]);
			}
		}
		arrow_reader_close(&r);
	}
	return kept;
}

/* After a power failure at any moment, every row of a kept frame on the disk has its image. */
static void
rows_imply_images(void **state)
{
	struct batch_writer_config c = disk_config();
	struct batch_writer_stats s;
	struct batch_writer *w;
	struct disk *found;
	uint8_t has[1000];
	uint64_t seen = 0;
	unsigned int i;

	disk = disk_new(time(NULL));
	print_message("seed %llu\n", (unsigned long long)disk->seed);
	/* small, so that many operations are in flight */
	c.slices.sync_ms = 5;
	c.roll_frames = 200;
	sample.record.frame = 0;
	w = start(&c);
	for (i = 0; i < 600; i++) {
		send_frame();
		if (i % 50 == 0)
			usleep(2000);
	}
	assert_int_equal(batch_writer_stop(w, true), 0);
	batch_writer_stats_get(w, &s);
	assert_int_equal(s.frames_unwritten, 0);
	batch_writer_destroy(w);
	for (i = 0; i < 300; i++) {
		found = disk_crash(disk, disk->now * i / 300 + 1, i);
		memset(has, 0, sizeof(has));
		note_images(found, has, sizeof(has));
		seen += check_rows(found, has);
		disk_free(found);
	}
	assert_true(seen > 1000);
	disk_free(disk);
	sample.record.frame = 0;
}

static uint64_t
now_ms(void)
{
	return monotonic_ns() / 1000000;
}

/* Batches become durable within batch_ms + sync_ms even if no frame follows. */
static void
time_ends_batches(void **state)
{
	struct batch_writer_config c = disk_config();
	struct batch_writer_stats s;
	struct batch_writer *w;
	uint64_t begun, took;
	unsigned int i;

	disk = disk_new(7);
	c.frames_interval = 1024;
	c.images_interval = 64;
	c.slices.sync_ms = 100;
	c.batch_ms = 100;
	w = start(&c);
	begun = now_ms();
	for (i = 0; i < 10; i++)
		send_frame();
	do {
		usleep(1000);
		batch_writer_stats_get(w, &s);
		took = now_ms() - begun;
		/* the machine may be busy */
		assert_true(took < 5000);
	} while (s.table[ARROW_FRAMES].rows < 10);
	assert_int_equal(s.table[ARROW_IMAGES].rows, s.kept);
	print_message("durable after %llu ms\n", (unsigned long long)took);
	assert_true(took >= 100);
	/* Frames sent later are in other batches: one batch, unless sending them takes batch_ms. */
	for (i = 0; i < 10; i++)
		send_frame();
	assert_int_equal(batch_writer_stop(w, true), 0);
	batch_writer_stats_get(w, &s);
	assert_in_range(s.table[ARROW_FRAMES].batches, 2, 11);
	check_sums(&s, 20);
	check_disk(ARROW_FRAMES, &s.table[ARROW_FRAMES]);
	batch_writer_destroy(w);
	disk_free(disk);
}

/* Rotated files: both tables rotate at the same frame number, and nothing else changes. */
static void
rolled(const struct batch_writer_config *c, uint64_t step)
{
	struct batch_writer_stats s;
	struct batch_writer *w;
	struct arrow_reader r;
	uint64_t rows[ARROW_TABLES] = {0}, sequence[ARROW_TABLES] = {0}, last[2] = {0};
	uint64_t first, begin = 0;
	struct arrow_column column;
	char path[PATH_MAX];
	const char *problem;
	unsigned int i, set;
	size_t b;

	sample.record.frame = 0;
	w = start(c);
	for (i = 0; i < 500; i++) {
		send_frame();
		if (i % 100 == 0)
			usleep(3000);
	}
	assert_int_equal(batch_writer_stop(w, true), 0);
	batch_writer_stats_get(w, &s);
	check_sums(&s, 500);
	assert_int_equal(s.frames_unwritten, 0);
	for (set = 1;; set++) {
		for (i = 0; i < ARROW_TABLES; i++) {
			snprintf(path, sizeof(path), "%s/run_%06u_%s.arrow", dir, set,
				arrow_table_name(i));
			if (arrow_reader_open(&r, path, &problem) < 0)
				break;
			assert_true(r.complete);
			rows[i] += count_rows(&r);
			for (b = 0; b < r.nb_batches; b++) {
				assert_int_equal(
					strtoull(r.batches[b].sequence, NULL, 16), sequence[i]++);
				assert_int_equal(arrow_reader_column(&r, b, 0, &column), 0);
				first = ((const uint64_t *)column.data)[0];
				/*
				 * no frame is missing, so every segment begins at a multiple of the
				 * step
				 */
				if (i == ARROW_FRAMES && b == 0) {
					assert_true(set == 1 || first % step == 0);
					begin = first;
				}
				assert_true(first >= begin);
				last[i] = ((const uint64_t *)column.data)[column.rows - 1];
			}
			arrow_reader_close(&r);
			unlink(path);
		}
		if (i < ARROW_TABLES)
			break;
		/* rows of images belong to frames of the same segment */
		assert_true(last[ARROW_IMAGES] <= last[ARROW_FRAMES]);
	}
	assert_true(set > 3);
	for (i = 0; i < ARROW_TABLES; i++) {
		assert_int_equal(s.table[i].files, set - 1);
		assert_int_equal(s.table[i].complete, set - 1);
		assert_int_equal(rows[i], s.table[i].rows);
		assert_int_equal(sequence[i], s.table[i].batches);
		/* the status names the last set, although an earlier one is closed after it */
		snprintf(path, sizeof(path), "%s/run_%06u_%s.arrow", dir, set - 1,
			arrow_table_name(i));
		assert_string_equal(batch_writer_path(w, i), path);
	}
	print_message("%u sets\n", set - 1);
	batch_writer_destroy(w);
}

static int
slow_rename(const char *from, const char *to)
{
	if (strstr(to, "_000002_") != NULL)
		usleep(200000);
	return direct_io.rename(from, to);
}

static void
new_files_at_each_limit(void **state)
{
	struct batch_writer_config c = config();
	struct arrow_io_ops slow = direct_io;
	struct batch_writer *w;
	char message[PATH_MAX];

	slow.rename = slow_rename;
	c.slices.io = &slow;
	c.images_interval = 24;
	c.roll_frames = 90;
	rolled(&c, 96);
	c.roll_frames = 0;
	c.roll_bytes = 1000000;
	rolled(&c, 48);
	c.roll_bytes = 0;
	c.roll_ms = 2;
	rolled(&c, 48);

	/* a first segment with either kind of name prevents a run of the same name */
	w = create(&c);
	c.roll_ms = 0;
	assert_int_equal(batch_writer_create(&w, &c, message), -EEXIST);
	assert_non_null(strstr(message, "run_000001_frames.arrow.part already exists"));
	batch_writer_destroy(w);
}

/* Acquisitions that are shorter than the batch intervals, and number from the same frame. */
static void
new_files_at_a_restart(void **state)
{
	struct batch_writer_config c = config();
	struct batch_writer_stats s;
	struct batch_writer *w;
	struct arrow_reader r;
	char path[PATH_MAX];
	const char *problem;
	unsigned int i;

	c.roll_frames = 40;
	w = start(&c);
	for (i = 0; i < 150; i++) {
		if (i % 15 == 0)
			sample.record.frame = 0;
		send_frame();
	}
	assert_int_equal(batch_writer_stop(w, true), 0);
	batch_writer_stats_get(w, &s);
	/* 3 acquisitions have 45 frames */
	assert_int_equal(s.table[ARROW_FRAMES].files, 4);
	check_sums(&s, 150);
	for (i = 1; i <= 4; i++) {
		snprintf(path, sizeof(path), "%s/run_%06u_frames.arrow", dir, i);
		assert_int_equal(arrow_reader_open(&r, path, &problem), 0);
		assert_int_equal(count_rows(&r), i < 4 ? 45 : 15);
		assert_int_equal(r.nb_batches, i < 4 ? 3 : 1);
		arrow_reader_close(&r);
	}
	batch_writer_destroy(w);
	sample.record.frame = 0;
}

/* A receiver that was killed starts its run again: the same calibration file is accepted. */
static void
comes_back(struct batch_writer_config *c, const char *path)
{
	float *gain = (float *)(uintptr_t)c->planes[0].data;
	char message[PATH_MAX], command[96];
	struct batch_writer *w;

	snprintf(command, sizeof(command), "rm %s/*.arrow", dir);
	assert_int_equal(system(command), 0);
	w = create(c);
	batch_writer_destroy(w);
	assert_int_equal(access(path, F_OK), 0);
	gain[5]++;
	assert_int_equal(batch_writer_create(&w, c, message), -EEXIST);
	assert_non_null(strstr(message, "run_calibration.bin belongs to another calibration"));
}

/* The file with the run's calibration maps, and its digest in the schemas. */
static void
calibration(void **state)
{
	float gain[3][700], pedestal[40];
	const struct arrow_plane planes[] = {
		{"gain", gain[0], 3, 700},
		{"pedestal_g0", pedestal, 4, 10},
	};
	struct batch_writer_config c = config();
	uint8_t bytes[5 * 4096];
	struct batch_writer *w;
	struct arrow_reader r;
	char path[PATH_MAX], text[200];
	const char *problem;
	unsigned int i;
	FILE *f;

	for (i = 0; i < 2100; i++)
		gain[i / 700][i % 700] = (float)i;
	for (i = 0; i < 40; i++)
		pedestal[i] = -(float)i;
	c.planes = planes;
	c.nb_planes = 2;
	w = create(&c);
	snprintf(path, sizeof(path), "%s/run_calibration.bin", dir);
	assert_int_equal(access(path, F_OK), 0);
	batch_writer_destroy(w);
	/* removed, as the run was not started */
	assert_int_equal(access(path, F_OK), -1);

	w = start(&c);
	send_frame();
	assert_int_equal(batch_writer_stop(w, true), 0);
	f = fopen(path, "r");
	assert_int_equal(fread(bytes, 1, sizeof(bytes), f), sizeof(bytes));
	assert_int_equal(fgetc(f), EOF);
	fclose(f);
	snprintf(text, sizeof(text),
		"braggline calibration 1\nplane gain float32 3 700 at 4096 crc32c %08x\n"
		"plane pedestal_g0 float32 4 10 at 16384 crc32c %08x\nend\n",
		arrow_crc32c(0, gain, sizeof(gain)), arrow_crc32c(0, pedestal, sizeof(pedestal)));
	assert_string_equal((char *)bytes, text);
	assert_memory_equal(bytes + 4096, gain, sizeof(gain));
	assert_memory_equal(bytes + 16384, pedestal, sizeof(pedestal));
	for (i = 0; i < ARROW_TABLES; i++) {
		assert_int_equal(arrow_reader_open(&r, batch_writer_path(w, i), &problem), 0);
		assert_string_equal(
			arrow_reader_meta(&r, ARROW_META_CALIBRATION_FILE), "run_calibration.bin");
		snprintf(text, sizeof(text), "crc32c:%08x", calibration_file_digest(planes, 2));
		assert_string_equal(arrow_reader_meta(&r, ARROW_META_CALIBRATION), text);
		arrow_reader_close(&r);
	}
	batch_writer_destroy(w);
	comes_back(&c, path);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(writes_a_run, setup, teardown),
		cmocka_unit_test_setup_teardown(stop_drains, setup, teardown),
		cmocka_unit_test_setup_teardown(creates_and_destroys, setup, teardown),
		cmocka_unit_test_setup_teardown(compressed_by_others, setup, teardown),
		cmocka_unit_test_setup_teardown(outputs_are_fetched, setup, teardown),
		cmocka_unit_test_setup_teardown(full_and_resumed, setup, teardown),
		cmocka_unit_test_setup_teardown(stalls_are_reported, setup, teardown),
		cmocka_unit_test_setup_teardown(each_call_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(rows_imply_images, setup, teardown),
		cmocka_unit_test_setup_teardown(time_ends_batches, setup, teardown),
		cmocka_unit_test_setup_teardown(new_files_at_each_limit, setup, teardown),
		cmocka_unit_test_setup_teardown(new_files_at_a_restart, setup, teardown),
		cmocka_unit_test_setup_teardown(calibration, setup, teardown),
	};

	return cmocka_run_group_tests_name("batch_writer", tests, NULL, NULL);
}
