/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests the recovery of files of a receiver and of a store after a power failure at any moment, and
 * after bits were flipped and blocks were zeroed, torn and swapped. RECOVERY_SEED and
 * RECOVERY_SEEDS choose the losses.
 */

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../arrow/arrow_disk.h"
#include "arrow/file.h"
#include "io/file_lock.h"
#include "recovery/damage.h"
#include "recovery/recovery.h"
#include "../arrow/arrow_sample.h"
#include "../xfer/xfer_sample.h"
#include "stream/writer.h"

#define BATCHES_MAX 256
#define NAME_BYTES  48

/* What was written to a file, as recovery should find it. */
struct written {
	struct arrow_file file;
	char name[NAME_BYTES]; /* of the complete file */
	uint64_t rows_durable; /* for the files of a store; a receiver's file has its own count */
	uint64_t header;
	uint8_t *bytes; /* header and batches */
	uint64_t size;
	const uint8_t *trailer; /* in the memory of the disk */
	struct {
		uint64_t end;
		uint64_t rows; /* including all earlier batches */
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

static uint64_t
rows_durable(const struct written *w)
{
	return w->rows_durable > 0 ? w->rows_durable : w->file.rows_durable;
}

/* Rows reported durable; those of `frames` in the upper half. */
static uint64_t
claim(void *arg)
{
	return rows_durable(&run[ARROW_FRAMES]) << 32 | rows_durable(&run[ARROW_IMAGES]);
}

static void
keep_header(struct written *w, const struct arrow_schema *schema)
{
	uint8_t *header;
	size_t size;

	assert_int_equal(arrow_header_build(schema, &header, &size), 0);
	keep(w, header, size);
	w->header = size;
	free(header);
}

/* Write some frames to the disk in memory. */
static void
write_run(uint64_t seed, unsigned int frames)
{
	const struct async_writer_config config = {
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
		keep_header(&run[i], &t.schema[i]);
		snprintf(run[i].name, sizeof(run[i].name), "%s.arrow", arrow_table_name(i));
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
	/* the final state is an event, too */
	disk_log(disk, DISK_SYNC_DIR, NULL);
	batch_builder_destroy(b);
	arrow_tables_free(&t);
	sample_free(&s);
}

static void
take_result(void *arg, uint64_t tag, uint64_t sequence, enum xfer_result_status status)
{
	struct written *w = arg;

	assert_int_equal(status, XFER_DURABLE);
	w->rows_durable = w->batch[tag].rows;
}

static void
append_sample(struct written *w, struct stream_writer *to, const struct xfer_sample_batch *from)
{
	const struct stream_batch b = {from->batch, from->metadata, from->body, w->nb};

	keep(w, from->metadata, XFER_BLOCK);
	keep(w, from->body, from->batch.body_bytes);
	w->batch[w->nb].end = w->size;
	w->batch[w->nb].rows = from->batch.rows + (w->nb > 0 ? w->batch[w->nb - 1].rows : 0);
	w->nb++;
	stream_writer_append(to, &b);
	stream_writer_poll(to);
}

/* Write the files of a store. */
static void
write_store(uint64_t seed, unsigned int frames)
{
	struct stream_writer_config c = {
		.dir = "/nowhere",
		.run = "r",
		.slices = {.io = &disk_io,
			.slice = 16384,
			.depth = 4,
			.sync_ms = 1000000,
			.sync_bytes = 60000,
			.ahead = 1 << 17},
		.result = take_result,
	};
	struct stream_writer *w[ARROW_TABLES];
	struct xfer_sample s;
	unsigned int i, k;

	memset(run, 0, sizeof(run));
	disk = disk_new(seed);
	disk->claim = claim;
	xfer_sample_init(&s, seed, frames);
	for (i = 0; i < ARROW_TABLES; i++) {
		c.identity = xfer_sample_identity(i);
		c.schema = &s.tables.schema[i];
		c.arg = &run[i];
		assert_int_equal(stream_writer_open(&w[i], &c), 0);
		keep_header(&run[i], &s.tables.schema[i]);
		snprintf(run[i].name, sizeof(run[i].name), "r_fedcba9876543210_000001_%s.arrow",
			arrow_table_name(i));
	}
	for (k = 0; k < XFER_SAMPLE_BATCHES; k++)
		for (i = 0; i < ARROW_TABLES; i++)
			if (k < s.nb[i])
				append_sample(&run[i], w[i], &s.batch[i][k]);
	for (i = 0; i < ARROW_TABLES; i++) {
		assert_int_equal(stream_writer_finish(w[i]), 0);
		stream_writer_close(w[i]);
		assert_int_equal(run[i].rows_durable, run[i].batch[run[i].nb - 1].rows);
	}
	disk_log(disk, DISK_SYNC_DIR, NULL);
	xfer_sample_free(&s);
}

static void
free_run(void)
{
	unsigned int i;

	disk_free(disk);
	for (i = 0; i < ARROW_TABLES; i++)
		free(run[i].bytes);
}

static uint64_t
batch_begin(const struct written *w, size_t i)
{
	return i > 0 ? w->batch[i - 1].end : w->header;
}

/* Whether batch i is complete and unchanged. */
static bool
is_whole(const struct written *w, const uint8_t *data, uint64_t size, size_t i)
{
	const uint64_t begin = batch_begin(w, i), end = w->batch[i].end;

	return end <= size && memcmp(data + begin, w->bytes + begin, end - begin) == 0;
}

/* Whether both copies of the schema are unchanged. */
static bool
header_is_whole(const struct written *w, const uint8_t *data, uint64_t size)
{
	return w->header <= size && memcmp(data, w->bytes, w->header) == 0;
}

/* Whether at least one copy of the schema is unchanged. */
static bool
header_is_there(const struct written *w, const uint8_t *data, uint64_t size)
{
	const uint64_t half = w->header / 2;

	return w->header <= size &&
		(memcmp(data, w->bytes, half) == 0 || memcmp(data + half, w->bytes, half) == 0);
}

/*
 * Whether swapped blocks made a complete batch at another place. Such a batch is as valid as one at
 * its own place, and their order may be right.
 */
static bool
has_moved(const struct written *w, const uint8_t *data, uint64_t size)
{
	uint64_t at, begin, bytes;
	size_t i;

	for (i = 0; i < w->nb; i++) {
		begin = batch_begin(w, i);
		bytes = w->batch[i].end - begin;
		for (at = w->header; at + bytes <= size; at += ARROW_BLOCK) {
			if (at != begin && memcmp(data + at, w->bytes + begin, bytes) == 0)
				return true;
		}
	}
	return false;
}

/* The contents of a file before its recovery. */
struct found {
	uint8_t *data;
	uint64_t size;
	size_t whole;	  /* number of complete batches */
	size_t behind;	  /* number of the last complete one, from 1; 0 if there is none */
	uint64_t rows;	  /* of the complete batches */
	bool header;	  /* a copy of the schema is valid; `data` then has both */
	uint64_t trailer; /* offset of a valid trailer; UINT64_MAX if there is none */
};

static void
look(struct found *found, const struct written *w, const struct disk_file *f)
{
	const char *problem;
	struct arrow_reader r;
	size_t i;

	*found =
		(struct found){.data = malloc(f->size + 1), .size = f->size, .trailer = UINT64_MAX};
	if (f->size > 0)
		memcpy(found->data, f->data, f->size);
	found->header = header_is_there(w, f->data, f->size);
	if (found->header)
		memcpy(found->data, w->bytes, w->header);
	for (i = 0; i < w->nb; i++) {
		if (!is_whole(w, f->data, f->size, i))
			continue;
		found->whole++;
		found->behind = i + 1;
		found->rows += w->batch[i].rows - (i > 0 ? w->batch[i - 1].rows : 0);
	}
	if (arrow_reader_open_memory(&r, f->data, f->size, &problem) < 0)
		return;
	if (r.complete)
		found->trailer = r.end;
	arrow_reader_close(&r);
}

/* Number of batches up to the end of the recovered file. With a valid footer no batch is torn. */
static size_t
batches_kept(const struct written *w, const struct found *found)
{
	return found->trailer != UINT64_MAX ? w->nb : found->behind;
}

static uint64_t
end_kept(const struct written *w, const struct found *found)
{
	const size_t nb = batches_kept(w, found);

	return nb > 0 ? w->batch[nb - 1].end : w->header;
}

/* The reader finds exactly the complete batches. */
static void
check_batches(
	const struct written *w, const struct arrow_reader *r, const uint8_t *data, uint64_t size)
{
	size_t i, k = 0;

	for (i = 0; i < w->nb; i++) {
		if (!is_whole(w, data, size, i))
			continue;
		assert_true(k < r->nb_batches);
		assert_int_equal(r->batches[k++].offset, batch_begin(w, i));
	}
	assert_int_equal(k, r->nb_batches);
}

/* The file is complete, with exactly the batches that were complete before, at the same places. */
static void
check_complete(const struct written *w, const struct disk_file *f, const struct found *found)
{
	const uint64_t end = end_kept(w, found);
	const char *problem = NULL;
	struct arrow_reader r;

	assert_int_equal(arrow_reader_open_memory(&r, f->data, f->size, &problem), 0);
	assert_true(r.complete);
	check_batches(w, &r, found->data, found->size);
	assert_int_equal(r.nb_batches, found->whole);
	/* a scan of every byte finds no more batches than the footer lists */
	assert_int_equal(arrow_recovery_scan(&r), 0);
	assert_int_equal(r.nb_batches, found->whole);
	assert_int_equal(r.nb_damage == 0, found->whole == batches_kept(w, found));
	assert_int_equal(r.end, end);
	assert_memory_equal(f->data, found->data, end);
	arrow_reader_close(&r);
}

/*
 * A closed file that was damaged later: the damaged batches are reported, the others can be read.
 */
static void
check_closed(const struct written *w, const struct disk_file *f)
{
	const char *problem;
	struct arrow_reader r;
	bool same = true;
	size_t i;

	if (arrow_reader_open_memory(&r, f->data, f->size, &problem) < 0) {
		assert_false(header_is_there(w, f->data, f->size));
		return;
	}
	assert_int_equal(header_is_whole(w, f->data, f->size),
		arrow_recovery_frame_fault(&r) == NULL ||
			strstr(arrow_recovery_frame_fault(&r), "footer") != NULL);
	assert_int_equal(arrow_recovery_scan(&r), 0);
	if (!header_is_there(w, f->data, f->size) || has_moved(w, f->data, f->size)) {
		arrow_reader_close(&r);
		return;
	}
	check_batches(w, &r, f->data, f->size);
	for (i = 0; i < w->nb; i++)
		same &= is_whole(w, f->data, f->size, i);
	assert_int_equal(same, r.nb_batches == w->nb);
	if (same && r.complete && arrow_recovery_frame_fault(&r) == NULL)
		assert_memory_equal(f->data + w->size, w->trailer, f->size - w->size);
	arrow_reader_close(&r);
}

static void
recover(struct disk *d, const char *part, struct arrow_recovery *report)
{
	disk = d;
	(void)arrow_recover_file(&disk_io, part, report);
}

/* The nth quarantine file of a file. */
static const struct disk_file *
quarantine_of(struct disk *d, const struct written *w, unsigned int n)
{
	char name[64];

	snprintf(name, sizeof(name), n > 1 ? "%s.quarantine.%u" : "%s.quarantine", w->name, n);
	return disk_find(d, name);
}

/*
 * Every byte of the file before is still at its place or in a quarantine file, except for the
 * trailer.
 */
static void
check_bytes(struct disk *d, const struct written *w, const struct disk_file *f,
	const struct found *found)
{
	const uint64_t end = end_kept(w, found);
	const struct disk_file *q;
	unsigned int n;
	uint64_t at, in;

	for (at = 0; at < found->size && at < found->trailer; at++) {
		if (found->data[at] == 0 || (at < f->size && f->data[at] == found->data[at]))
			continue;
		assert_true(at >= end);
		in = w->header + at - end;
		for (n = 1; (q = quarantine_of(d, w, n)) != NULL; n++) {
			if (in < q->size && q->data[in] == found->data[at])
				break;
		}
		assert_non_null(q);
	}
}

static void
check_same(const struct disk_file *a, const struct disk_file *b)
{
	assert_int_equal(a == NULL, b == NULL);
	if (a == NULL)
		return;
	assert_int_equal(a->size, b->size);
	assert_memory_equal(a->data, b->data, a->size);
}

/* The files of a table are the same on both disks. */
static void
check_same_files(struct disk *a, struct disk *b, const struct written *w)
{
	unsigned int n;

	check_same(disk_find(a, w->name), disk_find(b, w->name));
	for (n = 1; quarantine_of(a, w, n) != NULL; n++)
		check_same(quarantine_of(a, w, n), quarantine_of(b, w, n));
	assert_null(quarantine_of(b, w, n));
}

/* The power fails again during the first recovery: the second recovery makes the same files. */
static void
crash_again(struct disk *d, const struct written *w, const char *part, uint64_t seed)
{
	struct arrow_recovery report;
	struct disk *again;
	uint64_t at;

	for (at = 0; at <= d->now; at++) {
		again = disk_crash(d, at, seed + at);
		recover(again, part, &report);
		if (disk_find(again, w->name) == NULL)
			print_message("%s\n", report.message);
		check_same_files(d, again, w);
		disk_free(again);
	}
}

/* Recovering a recovered file changes nothing. */
static void
recover_again(struct disk *d, const struct written *w, const char *part)
{
	struct disk *before = disk_crash(d, d->now, 0);
	struct arrow_recovery report;

	disk = d;
	assert_int_equal(disk_rename(w->name, part), 0);
	recover(d, part, &report);
	assert_int_equal(report.state, ARROW_RECOVERY_DONE);
	assert_int_equal(report.cut + report.quarantined, 0);
	check_same_files(before, d, w);
	disk_free(before);
}

static void
swap(uint8_t *a, uint8_t *b, uint64_t size)
{
	for (; size > 0; size--, a++, b++) {
		const uint8_t byte = *a;

		*a = *b;
		*b = byte;
	}
}

/* Damage a file as a disk, a bus or memory may do. */
static void
spoil(struct disk *d, const struct written *w, struct disk_file *f)
{
	const uint64_t unit = disk_random(d) % 2 ? ARROW_BLOCK : DISK_SECTOR;
	const uint64_t at = disk_random(d) % f->size, of = at / unit * unit;
	const uint64_t other = disk_random(d) % f->size / unit * unit;
	const size_t batch = disk_random(d) % w->nb;
	uint64_t begin = batch_begin(w, batch), bytes = w->batch[batch].end - begin;

	switch (disk_random(d) % 9) {
	case 0: /* the first block */
		f->data[disk_random(d) % (w->header < f->size ? w->header : f->size)] ^= 1u
			<< disk_random(d) % 8;
		break;
	case 1: /* the last block */
		f->data[f->size - 1 -
			disk_random(d) % (ARROW_BLOCK < f->size ? ARROW_BLOCK : f->size)] ^= 1u
			<< disk_random(d) % 8;
		break;
	case 2:
	case 3: /* metadata, or a body */
		begin += disk_random(d) % 2 ? disk_random(d) % 1600
					    : ARROW_BLOCK + disk_random(d) % (bytes - ARROW_BLOCK);
		if (begin < f->size)
			f->data[begin] ^= 1u << disk_random(d) % 8;
		break;
	case 4:
		if (of + unit <= f->size)
			memset(f->data + of, 0, unit);
		break;
	case 5:
		if (of + unit <= f->size && other + unit <= f->size && of != other)
			swap(f->data + of, f->data + other, unit);
		break;
	case 6: /* a torn block: its rest has other contents */
		if (of + unit <= f->size)
			memset(f->data + at, disk_random(d), of + unit - at);
		break;
	default:
		f->data[at] ^= 1u << disk_random(d) % 8;
	}
}

/* Make the present contents durable, as after a restart. */
static void
settle(struct disk_file *f)
{
	free(f->base);
	f->base = malloc(f->size + 1);
	if (f->size > 0)
		memcpy(f->base, f->data, f->size);
	f->base_size = f->size;
}

/* The file with the plan of the recovery is removed. */
static void
check_nothing_left(struct disk *d, const struct written *w)
{
	char name[64];

	snprintf(name, sizeof(name), ".%s.recovery", w->name);
	assert_null(disk_find(d, name));
}

static void
check_file(struct disk *d, const struct written *w, uint64_t claimed, bool spoilt, uint64_t seed,
	uint64_t *states)
{
	struct arrow_recovery report;
	char part[64];
	struct found found;
	struct disk_file *f;
	unsigned int n;
	size_t i;

	snprintf(part, sizeof(part), "%s.part", w->name);
	f = disk_find(d, w->name);
	if (f == NULL)
		f = disk_find(d, part);
	if (f == NULL) {
		assert_int_equal(claimed, 0);
		return;
	}
	/* rows reported durable are there if only the power failed */
	for (i = 0; i < w->nb && w->batch[i].rows <= claimed; i++)
		assert_true(is_whole(w, f->data, f->size, i));
	if (spoilt && f->size > 0) {
		for (n = 1 + disk_random(d) % 4; n > 0; n--)
			spoil(d, w, f);
		settle(f);
	}
	if (disk_find(d, w->name) != NULL) {
		check_closed(w, f);
		return;
	}
	look(&found, w, f);
	recover(d, part, &report);
	states[report.state]++;
	if (report.state != ARROW_RECOVERY_DONE) {
		/*
		 * without the schema nothing can be recovered: the file is kept as it is, or
		 * removed if it has only zeros
		 */
		assert_false(found.header);
		assert_true(report.state == ARROW_RECOVERY_FAILED ? disk_find(d, part) != NULL
								  : disk_find(d, part) == NULL);
		if (report.state == ARROW_RECOVERY_FAILED) {
			assert_int_equal(f->size, found.size);
			assert_memory_equal(f->data, found.data, f->size);
		} else {
			for (i = 0; i < found.size; i++)
				assert_int_equal(found.data[i], 0);
		}
		free(found.data);
		return;
	}
	assert_string_equal(report.path, w->name);
	assert_null(disk_find(d, part));
	check_nothing_left(d, w);
	if (has_moved(w, found.data, found.size)) {
		/* misplaced batches may be in order, too */
		assert_true(report.batches >= found.whole);
		crash_again(d, w, part, seed);
		recover_again(d, w, part);
		free(found.data);
		return;
	}
	assert_int_equal(report.batches, found.whole);
	assert_int_equal(report.rows, found.rows);
	assert_int_equal(report.damaged > 0, found.whole < batches_kept(w, &found));
	assert_int_equal(report.quarantined > 0, quarantine_of(d, w, 1) != NULL);
	check_complete(w, disk_find(d, w->name), &found);
	check_bytes(d, w, disk_find(d, w->name), &found);
	states[4] += report.damaged > 0;
	states[5] += report.quarantined > 0;
	if (seed % 8 == 0)
		crash_again(d, w, part, seed);
	if (seed % 4 == 0)
		recover_again(d, w, part);
	free(found.data);
}

static void
check_crash(const struct disk *original, uint64_t at, uint64_t seed, uint64_t *states)
{
	const uint64_t claims = disk_claim(original, at);
	const uint64_t claimed[ARROW_TABLES] = {claims >> 32, claims & UINT32_MAX};
	struct disk *d = disk_crash(original, at, seed);
	unsigned int i;

	for (i = 0; i < ARROW_TABLES; i++)
		check_file(d, &run[i], claimed[i], seed / 8 % 2, seed, states);
	disk_free(d);
}

static void
note_trailers(void)
{
	unsigned int i;

	for (i = 0; i < ARROW_TABLES; i++)
		run[i].trailer = disk_find(disk, run[i].name)->data + run[i].size;
}

static uint64_t
begin_seed(void)
{
	const uint64_t seed = environment("RECOVERY_SEED", time(NULL));

	print_message("RECOVERY_SEED=%llu\n", (unsigned long long)seed);
	return seed;
}

/* Recover the disk as of each event of the log, with several random losses each. */
static void
check_log(uint64_t seed)
{
	const unsigned int seeds = environment("RECOVERY_SEEDS", 2);
	struct disk *original = disk;
	uint64_t states[6] = {0};
	unsigned int i;
	uint64_t at;

	note_trailers();
	for (at = 0; at <= original->now; at++) {
		for (i = 0; i < seeds; i++)
			check_crash(original, at, seed + at * seeds + i, states);
	}
	print_message("%llu moments: %llu files completed (%llu with damage in place, %llu with a "
		      "quarantine file), %llu removed, %llu without a header\n",
		(unsigned long long)at, (unsigned long long)states[ARROW_RECOVERY_DONE],
		(unsigned long long)states[4], (unsigned long long)states[5],
		(unsigned long long)states[ARROW_RECOVERY_REMOVED],
		(unsigned long long)states[ARROW_RECOVERY_FAILED]);
	assert_true(states[ARROW_RECOVERY_DONE] > 0 && states[4] > 0 && states[5] > 0);
	disk = original;
	free_run();
}

static void
every_prefix(void **state)
{
	const uint64_t seed = begin_seed();

	write_run(seed, 100);
	check_log(seed);
}

/* A seed with which a second recovery once made other files than the first one. */
static void
every_prefix_once_more(void **state)
{
	write_run(1795495367, 100);
	check_log(1795495367);
}

static void
every_prefix_of_a_store(void **state)
{
	const uint64_t seed = begin_seed();

	write_store(seed, 100);
	check_log(seed);
}

/* A call on the disk fails during recovery: the file can still be recovered as before. */
static void
failing_recovery(void **state)
{
	const struct written *w = &run[ARROW_IMAGES];
	struct arrow_recovery report;
	struct disk *original, *d;
	struct disk_file *f;
	struct found found;
	uint64_t at, call;

	write_run(5, 100);
	original = disk;
	for (at = original->now / 3; at < original->now; at += original->now / 7) {
		for (call = 0; call < 24; call++) {
			d = disk_crash(original, at, at);
			f = disk_find(d, "images.arrow.part");
			if (f == NULL) {
				disk_free(d);
				continue;
			}
			if (f->size > 3 * ARROW_BLOCK)
				f->data[f->size / 2] ^= 1;
			if (f->size >= w->header && call % 4 > 1)
				f->data[call % 8 > 3 ? 100 : w->header / 2 + 100] ^= 1;
			look(&found, w, f);
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
				assert_false(found.header);
			} else {
				check_complete(w, disk_find(d, "images.arrow"), &found);
				check_bytes(d, w, disk_find(d, "images.arrow"), &found);
			}
			free(found.data);
			disk_free(d);
		}
	}
	disk = original;
	free_run();
}

/* Put a file on a disk in memory. */
static struct disk_file *
put_on_disk(struct disk *d, const char *name, const uint8_t *data, uint64_t size)
{
	struct disk_file *f = &d->file[d->nb_files++];

	snprintf(f->name, sizeof(f->name), "%s", name);
	memcpy(f->first, f->name, sizeof(f->first));
	assert_int_equal(disk_resize(d, f, size), 0);
	memcpy(f->data, data, size);
	settle(f);
	return f;
}

/*
 * arrow_cut_file() keeps the first batches of a file, damaged or not. If the schema is damaged, so
 * that the file could not be recovered afterwards, it is left unchanged.
 */
static void
cut_of_damaged(void **state)
{
	const struct written *w = &run[ARROW_IMAGES];
	const struct disk_file *whole;
	struct arrow_recovery report;
	struct disk *original, *d;
	struct disk_file *f;
	unsigned int i;

	write_run(5, 100);
	original = disk;
	whole = disk_find(original, w->name);
	for (i = 0; i < 4; i++) {
		d = disk_new(1);
		f = put_on_disk(d, w->name, whole->data, whole->size);
		disk = d;
		switch (i) {
		case 0: /* both copies of the schema */
			f->data[100] ^= 1;
			f->data[w->header / 2 + 200] ^= 1;
			break;
		case 1: /* a batch that stays */
			f->data[batch_begin(w, 1) + ARROW_BLOCK + 9] ^= 1;
			break;
		case 2: /* a batch that is cut off: it is put into a quarantine file */
			f->data[batch_begin(w, 4) + ARROW_BLOCK + 9] ^= 1;
			break;
		}
		settle(f);
		if (i < 1) {
			assert_int_equal(arrow_cut_file(&disk_io, w->name, 3, &report), -EBADMSG);
			assert_int_equal(d->nb_events, 0);
			assert_ptr_equal(disk_find(d, w->name), f);
			assert_int_equal(f->size, whole->size);
		} else {
			assert_int_equal(arrow_cut_file(&disk_io, w->name, 3, &report), 0);
			/* a damaged batch that is to stay does, and is no error */
			assert_int_equal(report.batches, i == 1 ? 2 : 3);
			assert_int_equal(report.damaged, i == 1);
			assert_int_equal(report.cut, w->size - w->batch[2].end);
			if (i != 1)
				assert_memory_equal(f->data, w->bytes, w->batch[2].end);
			assert_int_equal(report.quarantined > 0, i == 2);
			assert_int_equal(quarantine_of(d, w, 1) != NULL, i == 2);
		}
		disk_free(d);
	}
	disk = original;
	free_run();
}

/* The second batch of a file comes before the first: the scan reports one of them as damaged. */
static void
first_out_of_order(void **state)
{
	const struct written *w = &run[ARROW_IMAGES];
	struct arrow_recovery report;
	struct disk *original, *d;
	struct arrow_reader r;
	const char *problem;
	struct disk_file *f;

	write_run(5, 100);
	original = disk;
	d = disk_new(1);
	f = put_on_disk(d, "images.arrow.part", w->bytes, w->size);
	memcpy(f->data + batch_begin(w, 0), w->bytes + batch_begin(w, 1),
		w->batch[1].end - batch_begin(w, 1));
	memcpy(f->data + batch_begin(w, 0) + w->batch[1].end - batch_begin(w, 1),
		w->bytes + batch_begin(w, 0), w->batch[0].end - batch_begin(w, 0));
	settle(f);
	assert_int_equal(arrow_reader_open_memory(&r, f->data, f->size, &problem), 0);
	assert_int_equal(r.nb_batches, w->nb);
	assert_int_equal(arrow_recovery_scan(&r), 0);
	assert_int_equal(r.nb_batches, w->nb - 1);
	assert_int_equal(r.nb_damage, 1);
	assert_true(r.damage[0].announced && r.damage[0].offset < w->batch[1].end);
	arrow_reader_close(&r);
	recover(d, "images.arrow.part", &report);
	assert_int_equal(report.state, ARROW_RECOVERY_DONE);
	assert_int_equal(report.batches, w->nb - 1);
	assert_int_equal(report.damaged, 1);
	disk_free(d);
	disk = original;
	free_run();
}

/*
 * The announcement of a batch is overwritten by that of another one: the number of the damage is
 * that of the lost batch, which the neighbours give.
 */
static void
announced_twice(void **state)
{
	const struct written *w = &run[ARROW_IMAGES];
	struct arrow_recovery report;
	struct disk *original, *d;
	struct arrow_reader r;
	const char *problem;
	uint64_t first, last;
	struct disk_file *f;
	size_t i;

	write_run(5, 100);
	original = disk;
	d = disk_new(1);
	f = put_on_disk(d, "images.arrow.part", w->bytes, w->size);
	memcpy(f->data + batch_begin(w, 2), w->bytes + batch_begin(w, 0), ARROW_BLOCK);
	recover(d, "images.arrow.part", &report);
	assert_int_equal(report.batches, w->nb - 1);
	assert_int_equal(arrow_reader_open_memory(&r, f->data, f->size, &problem), 0);
	assert_true(r.nb_damage > 0 && r.damage[0].announced);
	for (i = 0; i < r.nb_damage; i++) {
		assert_true(arrow_damage_sequences(&r, i, &first, &last));
		assert_int_equal(first, 2);
		assert_int_equal(last, 2);
	}
	arrow_reader_close(&r);
	disk_free(d);
	disk = original;
	free_run();
}

/*
 * The name of a file gives its stream. Valid batches of another stream, which a receiver can put
 * into the body of one of its own, are no batches of the file.
 */
static void
batches_of_another(void **state)
{
	static const struct {
		bool is_other;
		const char *format;
		unsigned int receiver, run, incarnation; /* added to the numbers of the batches */
	} names[] = {
		{true, "/x/s-%016lx-%016lx/s_%016lx_000001_frames.arrow.part", 0, 0, 0},
		{true, "/x/s-%016lx-%016lx/s_%016lx_000001_images.arrow.part", 1, 0, 0},
		{true, "/x/s-%016lx-%016lx/s_%016lx_000001_images.arrow", 0, 1, 0},
		{true, "s-%016lx-%016lx/s_%016lx_000001_images.arrow", 0, 0, 1},
		{false, "/x/a.b-c-%016lx-%016lx/a_b_%016lx_000001_images.arrow", 0, 0, 0},
		{false, "s-%016lx-%016lx/s.arrow_%016lx_12_images.arrow.quarantine", 0, 0, 0},
		/* not names of a store's file: any batch */
		{false, "/x/%016lx%016lx/s_%016lx_000001_images.arrow", 1, 1, 1},
		{false, "/x/s-%016lx-%016lx/s_%016lx_x_images.arrow", 1, 1, 1},
		{false, "/x/s-%016lx-%016lx/s_%016lx_000001_images", 1, 1, 1},
	};
	const struct arrow_identity id = xfer_sample_identity(ARROW_IMAGES);
	const struct written *w = &run[ARROW_IMAGES];
	char path[PATH_MAX];
	struct arrow_reader r;
	const char *problem;
	unsigned int i;

	write_run(5, 100);
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), names[i].format, id.receiver_id + names[i].receiver,
			id.run + names[i].run, id.incarnation + names[i].incarnation);
		assert_int_equal(arrow_reader_open_memory(&r, w->bytes, w->size, &problem), 0);
		arrow_reader_only(&r, path);
		assert_int_equal(arrow_recovery_scan(&r), 0);
		assert_int_equal(r.nb_batches, names[i].is_other ? 0 : w->nb);
		arrow_reader_close(&r);
	}
	free_run();
}

/*
 * One bit of the first batch is flipped: all other batches stay, and so do the bytes of the first.
 */
static void
one_bit(void **state)
{
	const struct written *w = &run[ARROW_IMAGES];
	struct arrow_recovery report;
	struct disk *original, *d;
	struct arrow_reader r;
	const char *problem;
	struct disk_file *f;

	write_run(5, 100);
	original = disk;
	d = disk_new(1);
	f = put_on_disk(d, "images.arrow.part", w->bytes, w->size);
	f->data[w->header + ARROW_BLOCK + 17] ^= 2;
	recover(d, "images.arrow.part", &report);
	assert_int_equal(report.state, ARROW_RECOVERY_DONE);
	assert_int_equal(report.batches, w->nb - 1);
	assert_int_equal(report.damaged, 1);
	assert_int_equal(report.cut + report.quarantined, 0);
	assert_int_equal(arrow_reader_open_memory(&r, f->data, f->size, &problem), 0);
	assert_int_equal(r.nb_damage, 1);
	assert_true(r.damage[0].announced);
	assert_string_equal(r.damage[0].batch.sequence, "0000000000000000");
	arrow_reader_close(&r);
	disk_free(d);
	disk = original;
	free_run();
}

/* Damage a copy of the schema in one of several ways. */
static void
spoil_copy(const struct written *w, struct disk_file *f, unsigned int copy, unsigned int how)
{
	const uint64_t half = w->header / 2;
	uint8_t *data = f->data + copy * half;

	switch (how) {
	case 0: /* the magic */
		data[0] ^= 1;
		break;
	case 1: /* the length of the message */
		data[13] ^= 1;
		break;
	case 2: /* a sector of the metadata */
		memset(data + DISK_SECTOR, 0, DISK_SECTOR);
		break;
	case 3:
		data[1000] ^= 4;
		break;
	case 4:
		memset(data, 0, half);
		break;
	default: /* the zeros after the message */
		data[half - 1] ^= 0x80;
	}
}

/*
 * A file has two copies of the schema: if either one is damaged, nothing is lost, and recovery
 * rewrites it. In a complete file the damage is reported, and the file can be read.
 */
static void
one_schema(void **state)
{
	const struct written *w = &run[ARROW_IMAGES];
	const struct disk_file *whole;
	struct arrow_recovery report;
	struct disk *original, *d;
	struct arrow_reader r;
	const char *problem;
	struct disk_file *f;
	unsigned int i;

	write_run(5, 100);
	original = disk;
	whole = disk_find(original, w->name);
	for (i = 0; i < 2 * 6; i++) {
		d = disk_new(1);
		f = put_on_disk(d, "images.arrow.part", w->bytes, w->size);
		spoil_copy(w, f, i % 2, i / 2);
		recover(d, "images.arrow.part", &report);
		assert_int_equal(report.state, ARROW_RECOVERY_DONE);
		assert_true(report.repaired);
		assert_int_equal(report.batches, w->nb);
		assert_int_equal(report.damaged, 0);
		assert_int_equal(f->size, whole->size);
		assert_memory_equal(f->data, whole->data, whole->size);
		disk_free(d);

		d = disk_new(1);
		f = put_on_disk(d, w->name, whole->data, whole->size);
		spoil_copy(w, f, i % 2, i / 2);
		assert_int_equal(arrow_reader_open_memory(&r, f->data, f->size, &problem), 0);
		assert_true(r.complete);
		assert_int_equal(r.nb_batches, w->nb);
		assert_string_equal(arrow_recovery_frame_fault(&r), ARROW_ONE_SCHEMA);
		arrow_reader_close(&r);
		disk_free(d);

		d = disk_new(1);
		f = put_on_disk(d, "images.arrow.part", w->bytes, w->size);
		spoil_copy(w, f, 0, i % 6);
		spoil_copy(w, f, 1, (i + 1 + i / 6) % 6);
		recover(d, "images.arrow.part", &report);
		assert_int_equal(report.state, ARROW_RECOVERY_FAILED);
		assert_int_equal(report.error, -EBADMSG);
		assert_int_equal(d->nb_events, 0);
		disk_free(d);
	}
	disk = original;
	free_run();
}

/* A valid batch at a wrong place does not affect the other batches. */
static void
misplaced(void **state)
{
	const struct written *w = &run[ARROW_IMAGES];
	struct arrow_recovery report;
	struct disk *original, *d;
	struct disk_file *f;
	uint64_t begin, size;
	unsigned int i;
	char part[64];

	write_run(5, 100);
	original = disk;
	for (i = 0; i < 2; i++) {
		d = disk_new(1);
		snprintf(part, sizeof(part), "%s.part", w->name);
		f = put_on_disk(d, part, w->bytes, w->size);
		/* the last batch first, or the first batch last */
		begin = batch_begin(w, i == 0 ? w->nb - 1 : 0);
		size = w->batch[i == 0 ? w->nb - 1 : 0].end - begin;
		if (i == 0) {
			memcpy(f->data + w->header, w->bytes + begin, size);
			memcpy(f->data + w->header + size, w->bytes + w->header, begin - w->header);
		} else {
			memcpy(f->data + w->header, w->bytes + begin + size,
				w->size - begin - size);
			memcpy(f->data + w->size - size, w->bytes + begin, size);
		}
		settle(f);
		recover(d, part, &report);
		assert_int_equal(report.state, ARROW_RECOVERY_DONE);
		assert_int_equal(report.batches, w->nb - 1);
		assert_int_equal(report.damaged, 1);
		assert_int_equal(report.cut + report.quarantined, 0);
		recover_again(d, w, part);
		disk_free(d);
	}
	disk = original;
	free_run();
}

/* The metadata of the last batch are damaged: the footer shows that the batch was there. */
static void
footer_is_right(void **state)
{
	const struct written *w = &run[ARROW_IMAGES];
	const struct disk_file *whole;
	struct arrow_recovery report;
	struct disk *original, *d;
	struct disk_file *f;
	uint8_t *before;
	char part[64];

	write_run(5, 100);
	original = disk;
	whole = disk_find(original, w->name);
	d = disk_new(1);
	snprintf(part, sizeof(part), "%s.part", w->name);
	f = put_on_disk(d, part, whole->data, whole->size);
	f->data[batch_begin(w, w->nb - 1) + 20] ^= 4;
	settle(f);
	before = malloc(f->size);
	memcpy(before, f->data, f->size);
	recover(d, part, &report);
	assert_int_equal(report.state, ARROW_RECOVERY_DONE);
	assert_string_equal(f->name, w->name);
	assert_int_equal(report.batches, w->nb - 1);
	assert_int_equal(report.damaged, 1);
	assert_int_equal(report.cut + report.quarantined, 0);
	assert_null(quarantine_of(d, w, 1));
	assert_int_equal(f->size, whole->size);
	assert_memory_equal(f->data, before, f->size);
	free(before);
	disk_free(d);
	disk = original;
	free_run();
}

/* Forge the metadata of a batch: set the length of the body, and repair the CRC. */
static void
announce(uint8_t *at, uint64_t digits, uint64_t body)
{
	char text[9];

	/* the length of the body, see app/common/README.rst, "Byte layout" */
	memcpy(at + 40, &body, sizeof(body));
	memset(at + digits, '0', 8);
	snprintf(text, sizeof(text), "%08x", arrow_metadata_crc(at, ARROW_BLOCK, digits));
	memcpy(at + digits, text, 8);
}

/*
 * Every block claims to begin a batch that extends to the end of the file: recovery ends with an
 * error before it reads all of them.
 */
static void
forged(void **state)
{
	const uint64_t blocks = 4096;
	const struct written *w = &run[ARROW_IMAGES];
	struct arrow_recovery report;
	struct disk *original, *d;
	struct arrow_reader r;
	const char *problem;
	uint64_t i, digits, size;
	struct disk_file *f;
	uint8_t *data;
	char part[64];

	write_run(5, 100);
	original = disk;
	assert_int_equal(arrow_reader_open_memory(&r, w->bytes, w->size, &problem), 0);
	digits = (const uint8_t *)r.batches[0].metadata_crc32c - w->bytes - r.batches[0].offset;
	arrow_reader_close(&r);
	size = w->header + blocks * ARROW_BLOCK;
	data = calloc(1, size);
	memcpy(data, w->bytes, w->header);
	for (i = 0; i < blocks; i++) {
		memcpy(data + w->header + i * ARROW_BLOCK, w->bytes + w->header, ARROW_BLOCK);
		announce(
			data + w->header + i * ARROW_BLOCK, digits, (blocks - i - 1) * ARROW_BLOCK);
	}
	d = disk_new(1);
	snprintf(part, sizeof(part), "%s.part", w->name);
	f = put_on_disk(d, part, data, size);
	recover(d, part, &report);
	assert_int_equal(report.state, ARROW_RECOVERY_FAILED);
	assert_int_equal(report.error, -EFBIG);
	assert_non_null(strstr(report.message, "announced batches overlap"));
	assert_true(report.looked <= 2 * arrow_recovery_limit(size));
	assert_int_equal(f->size, size);
	assert_memory_equal(f->data, data, size);
	assert_string_equal(f->name, part);
	free(data);
	disk_free(d);
	disk = original;
	free_run();
}

/*
 * A sector that the disk cannot read makes a damaged batch that stays in place: it may be readable
 * later.
 */
static void
unreadable_sector(void **state)
{
	const struct written *w = &run[ARROW_IMAGES];
	struct arrow_recovery report;
	struct disk *original, *d;
	struct disk_file *f;
	unsigned int i;
	char part[64];
	size_t batch;

	write_run(5, 100);
	original = disk;
	snprintf(part, sizeof(part), "%s.part", w->name);
	/* a body, metadata, the last body, the schema */
	for (i = 0; i < 4; i++) {
		batch = i < 2 ? 2 : w->nb - 1;
		d = disk_new(1);
		f = put_on_disk(d, part, w->bytes, w->size);
		d->bad_from = i == 3 ? 100 : batch_begin(w, batch) + (i != 1 ? ARROW_BLOCK : 0);
		d->bad_until = d->bad_from + 1;
		recover(d, part, &report);
		if (i == 3) {
			assert_int_equal(report.state, ARROW_RECOVERY_FAILED);
			assert_int_equal(report.error, -EIO);
			assert_int_equal(f->size, w->size);
		} else {
			assert_int_equal(report.state, ARROW_RECOVERY_DONE);
			assert_int_equal(report.batches, w->nb - 1);
			assert_int_equal(report.damaged, 1);
			assert_int_equal(report.cut + report.quarantined, 0);
			assert_non_null(strstr(report.message, "read error of the disk"));
			assert_memory_equal(f->data, w->bytes, w->size);
		}
		disk_free(d);
	}
	disk = original;
	free_run();
}

/* Unused preallocated room is reported as such. */
static void
unused_room(void **state)
{
	const struct written *w = &run[ARROW_IMAGES];
	struct arrow_recovery report;
	struct disk *original, *d;
	struct arrow_reader r;
	const char *problem;
	struct disk_file *f;

	write_run(5, 100);
	original = disk;
	d = disk_new(1);
	f = put_on_disk(d, "images.arrow.part", w->bytes, w->size);
	assert_int_equal(disk_resize(d, f, w->size + 100 * ARROW_BLOCK), 0);
	settle(f);
	assert_int_equal(arrow_reader_open_memory(&r, f->data, f->size, &problem), 0);
	assert_non_null(strstr(r.problem, "unused preallocated"));
	arrow_reader_close(&r);
	recover(d, "images.arrow.part", &report);
	assert_int_equal(report.state, ARROW_RECOVERY_DONE);
	assert_int_equal(report.cut, 0);
	assert_int_equal(report.room, 100 * ARROW_BLOCK);
	assert_non_null(strstr(report.message, "released 409600 unused"));
	assert_null(strstr(report.message, "cut"));
	disk_free(d);
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

/* A directory with every kind of file that recovery may meet. */
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
	assert_int_equal(file_lock(fd, 0), 0);

	assert_int_equal(arrow_recover_dir(NULL, dir, note_report, states), 2);
	assert_int_equal(states[ARROW_RECOVERY_DONE], 2);
	assert_int_equal(states[ARROW_RECOVERY_REMOVED], 2);
	assert_int_equal(states[ARROW_RECOVERY_BUSY], 1);
	assert_int_equal(states[ARROW_RECOVERY_FAILED], 2);
	assert_true(is_there("whole_frames.arrow"));
	assert_false(is_there("whole_frames.arrow.part"));
	assert_true(is_there("body_frames.arrow"));
	assert_false(is_there("whole_frames.arrow.quarantine"));
	assert_false(is_there("body_frames.arrow.quarantine"));
	assert_true(is_there("taken_images.arrow.part"));
	assert_false(is_there("empty_images.arrow.part"));
	assert_false(is_there("room_images.arrow.part"));
	assert_true(is_there("other_images.arrow.part"));
	assert_true(is_there("busy_images.arrow.part"));
	assert_false(is_there("run_calibration.bin.part"));
	assert_true(is_there("notes.part"));

	/* the writer has released its lock */
	close(fd);
	assert_int_equal(arrow_recover_dir(NULL, dir, note_report, states), 2);
	assert_true(is_there("busy_images.arrow"));
	assert_int_equal(arrow_recover_dir(NULL, "/nowhere/at/all", NULL, NULL), 0);
	free(damaged);
	free_run();
}

static bool stop_recovery;

/* Stop after the first file. */
static void
stop_after_one(void *arg, const struct arrow_recovery *report)
{
	note_report(arg, report);
	__atomic_store_n(&stop_recovery, true, __ATOMIC_RELAXED);
}

/* A stopped recovery leaves the files behind the current one unchanged; the next call continues. */
static void
directory_stops(void **state)
{
	unsigned int states[4] = {0};

	write_run(7, 40);
	put_file("a_frames.arrow.part", run[0].bytes, run[0].size);
	put_file("b_frames.arrow.part", run[0].bytes, run[0].size);
	stop_recovery = false;
	assert_int_equal(arrow_recover_dir_until(NULL, dir, &stop_recovery, stop_after_one, states),
		-ECANCELED);
	assert_int_equal(states[ARROW_RECOVERY_DONE], 1);
	assert_int_equal(states[ARROW_RECOVERY_FAILED], 0);
	assert_true(is_there("a_frames.arrow"));
	assert_true(is_there("b_frames.arrow.part"));
	assert_int_equal(arrow_recover_dir_until(NULL, dir, &stop_recovery, note_report, states),
		-ECANCELED);
	assert_true(is_there("b_frames.arrow.part"));
	stop_recovery = false;
	assert_int_equal(
		arrow_recover_dir_until(NULL, dir, &stop_recovery, note_report, states), 0);
	assert_true(is_there("b_frames.arrow"));
	free_run();
}

/* A sparse file is refused: reading through its holes would take too long. */
static void
sparse_files_are_refused(void **state)
{
	struct arrow_recovery report;
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/holes_frames.arrow.part", dir);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "x", 1, INT64_C(4) << 40), 1);
	close(fd);
	assert_int_equal(arrow_recover_file(NULL, path, &report), -EFBIG);
	assert_int_equal(report.state, ARROW_RECOVERY_FAILED);
	assert_non_null(strstr(report.message, "are allocated"));
}

/*
 * Files of another user, links, and files that others can write to are not recovered. Nor are files
 * in a folder that others can write to.
 */
static void
folders_of_others_are_refused(void **state)
{
	unsigned int states[4] = {0};
	char path[PATH_MAX], to[PATH_MAX];

	if (geteuid() != 0)
		skip();
	write_run(7, 40);
	put_file("ours_frames.arrow.part", run[0].bytes, run[0].size);
	put_file("theirs_frames.arrow.part", run[0].bytes, run[0].size);
	put_file("named_frames.arrow.part", run[0].bytes, run[0].size);
	put_file("open_frames.arrow.part", run[0].bytes, run[0].size);
	put_file("theirs_calibration.bin.part", "", 0);
	snprintf(path, sizeof(path), "%s/theirs_frames.arrow.part", dir);
	assert_int_equal(chown(path, 65534, 65534), 0);
	snprintf(path, sizeof(path), "%s/theirs_calibration.bin.part", dir);
	assert_int_equal(chown(path, 65534, 65534), 0);
	snprintf(path, sizeof(path), "%s/open_frames.arrow.part", dir);
	assert_int_equal(chmod(path, 0622), 0);
	snprintf(to, sizeof(to), "%s/link_frames.arrow.part", dir);
	assert_int_equal(symlink(path, to), 0);
	snprintf(path, sizeof(path), "%s/named_frames.arrow.part", dir);
	snprintf(to, sizeof(to), "%s/named", dir);
	assert_int_equal(link(path, to), 0);
	assert_int_equal(arrow_recover_dir(NULL, dir, note_report, states), 4);
	assert_int_equal(states[ARROW_RECOVERY_DONE], 1);
	assert_int_equal(states[ARROW_RECOVERY_FAILED], 4);
	assert_true(is_there("ours_frames.arrow"));
	assert_true(is_there("theirs_frames.arrow.part"));
	assert_true(is_there("theirs_calibration.bin.part"));
	assert_true(is_there("named_frames.arrow.part"));
	assert_true(is_there("open_frames.arrow.part"));
	assert_true(is_there("link_frames.arrow.part"));
	put_file("more_frames.arrow.part", run[0].bytes, run[0].size);
	assert_int_equal(chmod(dir, 0777), 0);
	assert_int_equal(arrow_recover_dir(NULL, dir, note_report, states), -EPERM);
	assert_true(is_there("more_frames.arrow.part"));
	assert_int_equal(states[ARROW_RECOVERY_FAILED], 5);
	assert_int_equal(chmod(dir, 01777), 0);
	assert_int_equal(arrow_recover_dir(NULL, dir, note_report, states), 4);
	assert_true(is_there("more_frames.arrow"));
	assert_int_equal(chmod(dir, 0700), 0);
	free_run();
}

/* A child process that writes until it is killed. */
static void
write_for_ever(uint64_t seed)
{
	/* small, so that many operations are in flight */
	const struct async_writer_config config = {.slice = 8192, .sync_ms = 1, .depth = 3};
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
	/* `emit` can keep a copy of this many batches */
	for (i = 0; run[0].nb < BATCHES_MAX - 1 && run[1].nb < BATCHES_MAX - 1; i++) {
		sample_next(&s, 1, 3);
		batch_builder_add(b, &s.record);
	}
	pause();
}

/* After kill -9, repeated many times, the recovered file is a prefix of what was written. */
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
		cmocka_unit_test(every_prefix_once_more),
		cmocka_unit_test(every_prefix_of_a_store),
		cmocka_unit_test(failing_recovery),
		cmocka_unit_test(cut_of_damaged),
		cmocka_unit_test(first_out_of_order),
		cmocka_unit_test(announced_twice),
		cmocka_unit_test(batches_of_another),
		cmocka_unit_test(one_bit),
		cmocka_unit_test(one_schema),
		cmocka_unit_test(misplaced),
		cmocka_unit_test(footer_is_right),
		cmocka_unit_test(forged),
		cmocka_unit_test(unreadable_sector),
		cmocka_unit_test(unused_room),
		cmocka_unit_test_setup_teardown(sparse_files_are_refused, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(directory, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(directory_stops, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(
			folders_of_others_are_refused, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(killed, make_dir, remove_dir),
	};

	return cmocka_run_group_tests_name("recovery", tests, NULL, NULL);
}
