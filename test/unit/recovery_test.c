/* SPDX-License-Identifier: BSD-3-Clause */
/* What is found after a power failure at any moment, and what recovery makes of it.
 * RECOVERY_SEED and RECOVERY_SEEDS choose what is lost. */

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "arrow_disk.h"
#include "arrow_file.h"
#include "arrow_recovery.h"
#include "arrow_sample.h"

#define BATCHES_MAX 256

/* What was written, as it should be found. */
struct written {
	struct arrow_file file;
	uint64_t header;
	uint8_t *bytes; /* header and batches */
	uint64_t size;
	struct {
		uint64_t end;
		uint64_t rows; /* with those before */
	} batch[BATCHES_MAX];
	size_t nb;
};

static struct written run[ARROW_TABLES];

static uint64_t
environment(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text != NULL ? strtoull(text, NULL, 0) : otherwise;
}

static void
keep(struct written *w, const void *data, uint64_t size)
{
	w->bytes = realloc(w->bytes, w->size + size);
	assert_non_null(w->bytes);
	memcpy(w->bytes + w->size, data, size);
	w->size += size;
}

static void
emit(void *arg, const struct batch *b)
{
	struct written *w = &run[b->table];
	unsigned int i;

	assert_int_equal(arrow_file_append(&w->file, b), 0);
	keep(w, b->metadata, b->metadata_size);
	for (i = 0; i < b->nb_body; i++)
		keep(w, b->body[i].iov_base, b->body[i].iov_len);
	assert_true(w->nb < BATCHES_MAX);
	w->batch[w->nb].end = w->size;
	w->batch[w->nb].rows = b->rows + (w->nb > 0 ? w->batch[w->nb - 1].rows : 0);
	w->nb++;
}

static void
reclaim(void *arg, enum arrow_table table, unsigned int set)
{
	arrow_file_wait(&run[table].file, UINT64_MAX);
}

/* Rows that are held to be durable: frames in the upper half. */
static uint64_t
claim(void *arg)
{
	return run[ARROW_FRAMES].file.rows_durable << 32 | run[ARROW_IMAGES].file.rows_durable;
}

/* Write some frames to the disk in memory. */
static void
write_run(uint64_t seed, unsigned int frames)
{
	const struct arrow_slices_config config = {
		.io = &disk_io,
		.slice = 16384,
		.depth = 4,
		.sync_bytes = 100000,
		.ahead = 1 << 20,
	};
	struct batch_builder_config c;
	struct batch_builder *b;
	struct arrow_tables t;
	struct sample s;
	uint8_t *header;
	unsigned int i;
	size_t size;

	memset(run, 0, sizeof(run));
	disk = disk_new(seed);
	disk->claim = claim;
	sample_init(&s, seed, GK_VALUE_I16, 1);
	assert_int_equal(sample_tables(&s, &t), 0);
	for (i = 0; i < ARROW_TABLES; i++) {
		assert_int_equal(arrow_file_create(&run[i].file, &config, "/nowhere",
					 arrow_table_name(i), &t.schema[i]),
			0);
		assert_int_equal(arrow_header_build(&t.schema[i], &header, &size), 0);
		keep(&run[i], header, size);
		run[i].header = size;
		free(header);
	}
	c = sample_builder_config(&s, &t);
	c.frames_interval = 8;
	c.images_interval = 4;
	c.emit = emit;
	c.reclaim = reclaim;
	c.sets = 2;
	assert_int_equal(batch_builder_create(&b, &c), 0);
	for (i = 0; i < frames; i++) {
		sample_next(&s, 1, 3);
		assert_int_equal(batch_builder_add(b, &s.record), 0);
		for (size = 0; size < ARROW_TABLES; size++)
			assert_int_equal(arrow_file_poll(&run[size].file), 0);
	}
	batch_builder_flush(b);
	for (i = 0; i < ARROW_TABLES; i++) {
		assert_int_equal(arrow_file_close(&run[i].file), 0);
		assert_true(run[i].file.complete);
		assert_int_equal(run[i].file.rows_durable, run[i].batch[run[i].nb - 1].rows);
	}
	/* the last word */
	disk_log(disk, DISK_SYNC_DIR, NULL);
	batch_builder_destroy(b);
	arrow_tables_free(&t);
	sample_free(&s);
}

static void
free_run(void)
{
	unsigned int i;

	disk_free(disk);
	for (i = 0; i < ARROW_TABLES; i++)
		free(run[i].bytes);
}

/* Batches of which everything is there, before any of which something is not. */
static size_t
count_whole(const struct written *w, const struct disk_file *f)
{
	uint64_t begin = 0, end = w->header;
	size_t n;

	for (n = 0; end <= f->size && memcmp(f->data + begin, w->bytes + begin, end - begin) == 0;
		n++) {
		if (n == w->nb)
			return n;
		begin = end;
		end = w->batch[n].end;
	}
	return n > 0 ? n - 1 : 0;
}

/* A file that is complete, with exactly these batches. */
static void
check_complete(const struct written *w, const struct disk_file *f, size_t nb)
{
	const uint64_t end = nb > 0 ? w->batch[nb - 1].end : w->header;
	const char *problem = NULL;
	struct arrow_reader r;

	assert_int_equal(arrow_reader_open_memory(&r, f->data, f->size, &problem), 0);
	assert_true(r.complete);
	assert_int_equal(r.nb_batches, nb);
	assert_memory_equal(f->data, w->bytes, end);
	arrow_reader_close(&r);
}

static void
recover(struct disk *d, const char *part, struct arrow_recovery *report)
{
	disk = d;
	(void)arrow_recover_file(&disk_io, part, report);
}

/* The power fails again, while the first recovery goes on; the second one ends where that would. */
static void
crash_again(struct disk *d, const struct written *w, const char *part, const char *name, size_t nb,
	uint64_t seed)
{
	struct arrow_recovery report;
	struct disk *again;
	uint64_t at;

	for (at = 0; at <= d->now; at++) {
		again = disk_crash(d, at, seed + at);
		recover(again, part, &report);
		if (disk_find(again, name) == NULL)
			print_message("%s\n", report.message);
		assert_non_null(disk_find(again, name));
		check_complete(w, disk_find(again, name), nb);
		disk_free(again);
	}
}

static void
check_crash(const struct disk *original, uint64_t at, uint64_t seed, uint64_t *states)
{
	const uint64_t claims = disk_claim(original, at);
	const uint64_t claimed[ARROW_TABLES] = {claims >> 32, claims & UINT32_MAX};
	struct arrow_recovery report;
	struct disk *d = disk_crash(original, at, seed);
	char part[64], name[32];
	const struct written *w;
	struct disk_file *f;
	unsigned int i;
	uint64_t rows;
	size_t nb;

	for (i = 0; i < ARROW_TABLES; i++) {
		w = &run[i];
		snprintf(name, sizeof(name), "%s.arrow", arrow_table_name(i));
		snprintf(part, sizeof(part), "%s.part", name);
		f = disk_find(d, name);
		if (f != NULL) {
			/* it got its name, so it was whole */
			check_complete(w, f, w->nb);
			continue;
		}
		f = disk_find(d, part);
		if (f == NULL) {
			assert_int_equal(claimed[i], 0);
			continue;
		}
		nb = count_whole(w, f);
		rows = nb > 0 ? w->batch[nb - 1].rows : 0;
		assert_true(rows >= claimed[i]);
		recover(d, part, &report);
		states[report.state]++;
		if (report.state != ARROW_RECOVERY_DONE) {
			assert_int_equal(nb, 0);
			assert_true(report.state == ARROW_RECOVERY_FAILED
					? disk_find(d, part) != NULL
					: disk_find(d, part) == NULL);
			continue;
		}
		assert_int_equal(report.batches, nb);
		assert_int_equal(report.rows, rows);
		assert_string_equal(report.path, name);
		assert_null(disk_find(d, part));
		check_complete(w, disk_find(d, name), nb);
		if (seed % 8 == 0)
			crash_again(d, w, part, name, nb, seed);
	}
	disk_free(d);
}

/* Every moment of a recorded log, several outcomes of each. */
static void
every_prefix(void **state)
{
	const uint64_t seed = environment("RECOVERY_SEED", time(NULL));
	const unsigned int seeds = environment("RECOVERY_SEEDS", 4);
	uint64_t states[4] = {0};
	struct disk *original;
	unsigned int i;
	uint64_t at;

	print_message("RECOVERY_SEED=%llu\n", (unsigned long long)seed);
	write_run(seed, 200);
	original = disk;
	for (at = 0; at <= original->now; at++) {
		for (i = 0; i < seeds; i++)
			check_crash(original, at, seed + at * seeds + i, states);
	}
	print_message("%llu moments: %llu files completed, %llu removed, %llu without a header\n",
		(unsigned long long)at, (unsigned long long)states[ARROW_RECOVERY_DONE],
		(unsigned long long)states[ARROW_RECOVERY_REMOVED],
		(unsigned long long)states[ARROW_RECOVERY_FAILED]);
	assert_true(states[ARROW_RECOVERY_DONE] > 0);
	disk = original;
	free_run();
}

/* Recovery on a disk that fails: the file is as recoverable as before. */
static void
failing_recovery(void **state)
{
	struct arrow_recovery report;
	struct disk *original, *d;
	uint64_t at, call;
	size_t nb;

	write_run(5, 100);
	original = disk;
	for (at = original->now / 3; at < original->now; at += original->now / 7) {
		for (call = 0; call < 12; call++) {
			d = disk_crash(original, at, at);
			if (disk_find(d, "images.arrow.part") == NULL) {
				disk_free(d);
				continue;
			}
			nb = count_whole(&run[ARROW_IMAGES], disk_find(d, "images.arrow.part"));
			d->fail_from = call;
			d->fail_until = call + 1;
			d->fail_error = call % 2 ? -EIO : -ENOSPC;
			recover(d, "images.arrow.part", &report);
			if (report.state != ARROW_RECOVERY_DONE) {
				assert_true(report.error < 0);
				assert_string_not_equal(report.message, "");
				recover(d, "images.arrow.part", &report);
			}
			if (disk_find(d, "images.arrow") == NULL) {
				assert_int_equal(nb, 0);
			} else {
				check_complete(
					&run[ARROW_IMAGES], disk_find(d, "images.arrow"), nb);
			}
			disk_free(d);
		}
	}
	disk = original;
	free_run();
}

static char dir[64];

static int
make_dir(void **state)
{
	strcpy(dir, "/tmp/recovery_XXXXXX");
	assert_non_null(mkdtemp(dir));
	return 0;
}

static int
remove_dir(void **state)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

static void
put_file(const char *name, const void *data, size_t size)
{
	char path[PATH_MAX];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, size, f), size);
	assert_int_equal(fclose(f), 0);
}

static bool
is_there(const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return access(path, F_OK) == 0;
}

static void
note_report(void *arg, const struct arrow_recovery *report)
{
	unsigned int *states = arg;

	print_message("  %s: %s\n", report->path, report->message);
	states[report->state]++;
}

/* A directory with all that may lie there. */
static void
directory(void **state)
{
	unsigned int states[4] = {0};
	const uint8_t zeros[8192] = {0};
	char path[PATH_MAX];
	uint8_t *damaged;
	int fd;

	write_run(7, 40);
	put_file("whole_frames.arrow.part", run[0].bytes, run[0].size);
	damaged = malloc(run[0].size);
	memcpy(damaged, run[0].bytes, run[0].size);
	damaged[run[0].batch[0].end - 4000] ^= 1;
	put_file("body_frames.arrow.part", damaged, run[0].size);
	put_file("taken_images.arrow.part", run[1].bytes, run[1].size);
	put_file("taken_images.arrow", "something", 9);
	put_file("empty_images.arrow.part", zeros, 0);
	put_file("room_images.arrow.part", zeros, sizeof(zeros));
	put_file("other_images.arrow.part", "not ours", 8);
	put_file("busy_images.arrow.part", run[1].bytes, run[1].size);
	put_file("run_calibration.bin.part", zeros, 100);
	put_file("notes.part", "notes", 5);
	snprintf(path, sizeof(path), "%s/busy_images.arrow.part", dir);
	fd = open(path, O_RDWR);
	assert_int_equal(flock(fd, LOCK_EX), 0);

	assert_int_equal(arrow_recover_dir(NULL, dir, note_report, states), 2);
	assert_int_equal(states[ARROW_RECOVERY_DONE], 2);
	assert_int_equal(states[ARROW_RECOVERY_REMOVED], 2);
	assert_int_equal(states[ARROW_RECOVERY_BUSY], 1);
	assert_int_equal(states[ARROW_RECOVERY_FAILED], 2);
	assert_true(is_there("whole_frames.arrow"));
	assert_false(is_there("whole_frames.arrow.part"));
	assert_true(is_there("body_frames.arrow"));
	assert_true(is_there("taken_images.arrow.part"));
	assert_false(is_there("empty_images.arrow.part"));
	assert_false(is_there("room_images.arrow.part"));
	assert_true(is_there("other_images.arrow.part"));
	assert_true(is_there("busy_images.arrow.part"));
	assert_false(is_there("run_calibration.bin.part"));
	assert_true(is_there("notes.part"));

	/* nobody writes it any more */
	close(fd);
	assert_int_equal(arrow_recover_dir(NULL, dir, note_report, states), 2);
	assert_true(is_there("busy_images.arrow"));
	assert_int_equal(arrow_recover_dir(NULL, "/nowhere/at/all", NULL, NULL), 0);
	free(damaged);
	free_run();
}

/* A program that writes until it is killed. */
static void
write_for_ever(uint64_t seed)
{
	/* small, so that much is under way */
	const struct arrow_slices_config config = {.slice = 8192, .sync_ms = 1, .depth = 3};
	struct batch_builder_config c;
	struct batch_builder *b;
	struct arrow_tables t;
	struct sample s;
	unsigned int i;

	sample_init(&s, seed, GK_VALUE_F32, 1);
	if (sample_tables(&s, &t) < 0)
		_exit(1);
	memset(run, 0, sizeof(run));
	for (i = 0; i < ARROW_TABLES; i++) {
		if (arrow_file_create(
			    &run[i].file, &config, dir, arrow_table_name(i), &t.schema[i]) < 0)
			_exit(1);
	}
	c = sample_builder_config(&s, &t);
	c.frames_interval = 8;
	c.images_interval = 4;
	c.emit = emit;
	c.reclaim = reclaim;
	c.sets = 2;
	if (batch_builder_create(&b, &c) < 0)
		_exit(1);
	/* `emit` keeps a copy of so many batches */
	for (i = 0; run[0].nb < BATCHES_MAX - 1 && run[1].nb < BATCHES_MAX - 1; i++) {
		sample_next(&s, 1, 3);
		batch_builder_add(b, &s.record);
	}
	pause();
}

/* kill -9, again and again: what is found is a prefix of what was written. */
static void
killed(void **state)
{
	const uint64_t seed = environment("RECOVERY_SEED", time(NULL));
	unsigned int states[4] = {0}, i, k;
	struct arrow_reader r;
	char path[PATH_MAX];
	const char *problem;
	uint64_t rows = 0;
	pid_t child;
	size_t b;

	for (i = 0; i < 20; i++) {
		child = fork();
		assert_true(child >= 0);
		if (child == 0)
			write_for_ever(seed + i);
		usleep(1000 + (seed * 7919 + i * 104729) % 60000);
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		assert_int_equal(arrow_recover_dir(NULL, dir, NULL, states), 0);
		for (k = 0; k < ARROW_TABLES; k++) {
			snprintf(path, sizeof(path), "%s/%s.arrow", dir, arrow_table_name(k));
			if (access(path, F_OK) < 0)
				continue;
			assert_int_equal(arrow_reader_open(&r, path, &problem), 0);
			assert_true(r.complete);
			for (b = 0; b < r.nb_batches; b++) {
				assert_int_equal(arrow_reader_crc(&r, b), 1);
				assert_int_equal(strtoull(r.batches[b].sequence, NULL, 16), b);
				rows += r.batches[b].rows;
			}
			arrow_reader_close(&r);
			unlink(path);
		}
	}
	print_message("%llu rows survived\n", (unsigned long long)rows);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_prefix),
		cmocka_unit_test(failing_recovery),
		cmocka_unit_test_setup_teardown(directory, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(killed, make_dir, remove_dir),
	};

	return cmocka_run_group_tests_name("recovery", tests, NULL, NULL);
}
