/* SPDX-License-Identifier: BSD-3-Clause */
/* Arrow files: written and read back, on a disk that is full, cut short, damaged. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "arrow_file.h"
#include "arrow_read.h"
#include "arrow_sample.h"
#include "bitshuffle.h"

/* A file in memory: what arrow_file writes, with an error at a chosen write. */
struct memory_file {
	uint8_t *bytes;
	size_t size;
	int writes_left; /* then ENOSPC; negative: never */
	int published;
};

static struct memory_file disk[ARROW_TABLES];
static int disk_next;

static int
disk_open(void **handle, const char *path)
{
	*handle = &disk[disk_next++ % ARROW_TABLES];
	return 0;
}

static int
disk_write(void *handle, const struct iovec *iov, unsigned int nb, uint64_t offset)
{
	struct memory_file *f = handle;
	unsigned int i;

	assert_int_equal(offset % ARROW_BLOCK, 0);
	assert_int_equal(offset, f->size);
	if (f->writes_left == 0)
		return -ENOSPC;
	f->writes_left -= f->writes_left > 0;
	for (i = 0; i < nb; i++) {
		f->bytes = realloc(f->bytes, f->size + iov[i].iov_len);
		assert_non_null(f->bytes);
		memcpy(f->bytes + f->size, iov[i].iov_base, iov[i].iov_len);
		f->size += iov[i].iov_len;
	}
	assert_int_equal(f->size % ARROW_BLOCK, 0);
	return 0;
}

static int
disk_truncate(void *handle, uint64_t size)
{
	((struct memory_file *)handle)->size = size;
	return 0;
}

static int
disk_sync(void *handle)
{
	return 0;
}

static int
disk_publish(const char *part, const char *path)
{
	disk[(disk_next - 1) % ARROW_TABLES].published = 1;
	return 0;
}

static int
disk_remove(const char *part)
{
	return 0;
}

static const struct arrow_io_ops disk_io = {
	.open = disk_open,
	.write = disk_write,
	.truncate = disk_truncate,
	.sync = disk_sync,
	.close = disk_sync,
	.publish = disk_publish,
	.remove = disk_remove,
};

static void
disk_clear(void)
{
	unsigned int i;

	for (i = 0; i < ARROW_TABLES; i++) {
		free(disk[i].bytes);
		disk[i] = (struct memory_file){.writes_left = -1};
	}
	disk_next = 0;
}

/* What the builder emits goes into two files. */
struct sink {
	struct arrow_file file[ARROW_TABLES];
};

static struct sink sink;

static void
sink_emit(void *arg, const struct batch *b)
{
	struct arrow_file *f = &sink.file[b->table];

	if (f->io != NULL)
		arrow_file_append(
			f, b->metadata, b->metadata_size, b->body, b->nb_body, b->body_length);
}

static void
sink_open(const struct arrow_tables *t)
{
	unsigned int i;

	disk_clear();
	memset(&sink, 0, sizeof(sink));
	for (i = 0; i < ARROW_TABLES; i++)
		assert_int_equal(arrow_file_create(&sink.file[i], &disk_io, "/nowhere",
					 arrow_table_name(i), &t->schema[i]),
			0);
}

static void
sink_close(void)
{
	unsigned int i;

	for (i = 0; i < ARROW_TABLES; i++)
		assert_int_equal(arrow_file_close(&sink.file[i]), 0);
}

static const void *
cell(const struct arrow_column *c, uint64_t row, size_t width)
{
	return (const uint8_t *)c->data + row * width;
}

static void
check_list(const struct arrow_column *c, uint64_t row, const void *items, uint64_t nb, size_t width)
{
	uint64_t start, end;

	arrow_column_range(c, row, &start, &end);
	assert_int_equal(end - start, nb);
	assert_memory_equal(cell(c, start, width), items, nb * width);
}

static void
check_frame_row(const struct arrow_reader *r, size_t batch, uint64_t row, const struct sample *s)
{
	const struct frame_record *rec = &s->record;
	const uint8_t verdict = rec->verdict, kind = rec->kind;
	const struct {
		const void *value;
		size_t size;
	} want[FRAMES_COLUMNS] = {
		{&rec->frame, 8},
		{&rec->bunch_id, 8},
		{&rec->detector_time, 8},
		{&rec->receive_time, 8},
		{&rec->exposure, 4},
		{&rec->detector_status, 4},
		{&rec->flags, 4},
		{rec->missing, 2 * s->modules},
		{&rec->bragg_count, 4},
		{&rec->sum, 8},
		{&rec->saturated, 4},
		{&rec->invalid, 4},
		{&rec->nnz, 4},
		{&verdict, 1},
		{&kind, 1},
		{&rec->veto_version, 4},
		{&rec->pedestal_version, 4},
	};
	struct arrow_column c;
	unsigned int i;

	for (i = 0; i < FRAMES_COLUMNS; i++) {
		assert_int_equal(arrow_reader_column(r, batch, i, &c), 0);
		assert_null(c.validity);
		assert_memory_equal(cell(&c, row, want[i].size), want[i].value, want[i].size);
	}
}

static void
check_image_row(const struct arrow_reader *r, size_t batch, uint64_t row, const struct sample *s)
{
	const struct frame_record *rec = &s->record;
	const struct gk_layout *l = &s->layout;
	const uint64_t pixels = gk_pixels(&s->geometry);
	const bool csr = rec->kind == GK_KIND_CSR;
	struct arrow_column c[IMAGES_COLUMNS];
	uint64_t start, end;
	uint16_t *plain;
	unsigned int i;

	for (i = 0; i < IMAGES_COLUMNS; i++)
		assert_int_equal(arrow_reader_column(r, batch, i, &c[i]), 0);
	assert_memory_equal(cell(&c[IMAGES_FRAME], row, 8), &rec->frame, 8);
	assert_int_equal(*(const uint8_t *)cell(&c[IMAGES_KIND], row, 1), rec->kind);
	check_list(&c[IMAGES_ROW_PTR], row, s->outputs + l->row_ptr,
		csr ? gk_rows(&s->geometry) + 1 : 0, 4);
	check_list(&c[IMAGES_COL], row, s->outputs + l->col, csr ? rec->nnz : 0, 2);
	check_list(&c[IMAGES_VALUE], row, s->outputs + l->value,
		csr				     ? rec->nnz
			: rec->kind == GK_KIND_IMAGE ? pixels
						     : 0,
		l->value_size);
	check_list(&c[IMAGES_MISSING], row, rec->missing_map, (s->geometry.tiles + 7) / 8, 1);
	assert_int_equal(arrow_column_is_null(&c[IMAGES_RAW], row), rec->kind != GK_KIND_RAW);
	arrow_column_range(&c[IMAGES_RAW], row, &start, &end);
	if (rec->kind != GK_KIND_RAW) {
		assert_int_equal(start, end);
		return;
	}
	plain = malloc(pixels * 2);
	assert_int_equal(
		bitshuffle_decompress(cell(&c[IMAGES_RAW], start, 1), end - start, plain, pixels),
		0);
	assert_memory_equal(plain, s->outputs + l->raw, pixels * 2);
	free(plain);
}

static void
check_layout(const struct arrow_reader *r, enum arrow_table table)
{
	const size_t align = table == ARROW_IMAGES ? ARROW_BLOCK : 64;
	struct arrow_buffer b;
	size_t i;
	unsigned int k;

	assert_true(r->complete);
	assert_int_equal(r->size % ARROW_BLOCK, 0);
	for (i = 0; i < r->nb_batches; i++) {
		assert_int_equal(r->batches[i].offset % ARROW_BLOCK, 0);
		assert_int_equal(r->batches[i].metadata_size, ARROW_BLOCK);
		assert_int_equal(r->batches[i].body_length % ARROW_BLOCK, 0);
		assert_int_equal(arrow_reader_crc(r, i), 1);
		assert_int_equal(strtoull(r->batches[i].sequence, NULL, 16), i);
		for (k = 0; k < r->nb_buffers; k++) {
			memcpy(&b, r->batches[i].buffers + k * sizeof(b), sizeof(b));
			assert_int_equal(b.offset % align, 0);
		}
	}
}

/* Random frames through builder and file, read back value by value. */
static void
round_trip(uint64_t seed, enum gk_value value, uint32_t modules, unsigned int frames)
{
	struct sample s;
	struct arrow_tables t;
	struct batch_builder_config c;
	struct batch_builder *b;
	struct arrow_reader r[ARROW_TABLES];
	const char *problem;
	size_t batch[ARROW_TABLES] = {0};
	uint64_t row[ARROW_TABLES] = {0};
	unsigned int i, k;

	sample_init(&s, seed, value, modules);
	assert_int_equal(sample_tables(&s, &t), 0);
	sink_open(&t);
	c = sample_builder_config(&s, &t);
	c.frames_interval = 100;
	c.images_interval = 16;
	c.emit = sink_emit;
	assert_int_equal(batch_builder_create(&b, &c), 0);
	for (i = 0; i < frames; i++) {
		sample_next(&s, 1 + (i % 50 == 0) * 30, 5);
		assert_int_equal(batch_builder_add(b, &s.record), 0);
	}
	batch_builder_flush(b);
	sink_close();
	batch_builder_destroy(b);

	for (i = 0; i < ARROW_TABLES; i++) {
		assert_int_equal(
			arrow_reader_open_memory(&r[i], disk[i].bytes, disk[i].size, &problem), 0);
		check_layout(&r[i], i);
		assert_string_equal(
			arrow_reader_meta(&r[i], ARROW_META_TABLE), arrow_table_name(i));
		assert_string_equal(arrow_reader_meta(&r[i], ARROW_META_RUN), "sample");
	}
	assert_int_equal(arrow_reader_find(&r[ARROW_FRAMES], "sum", ARROW_FLOAT64, 0), FRAMES_SUM);
	assert_int_equal(arrow_reader_find(&r[ARROW_IMAGES], "value", ARROW_LIST,
				 value == GK_VALUE_I16 ? ARROW_INT16 : ARROW_FLOAT32),
		IMAGES_VALUE);

	/* the same frames again, against what was written */
	sample_free(&s);
	sample_init(&s, seed, value, modules);
	for (i = 0; i < frames; i++) {
		sample_next(&s, 1 + (i % 50 == 0) * 30, 5);
		for (k = 0; k < ARROW_TABLES; k++) {
			if (k == ARROW_IMAGES && !frame_verdict_is_kept(s.record.verdict))
				continue;
			if (row[k] == r[k].batches[batch[k]].rows) {
				batch[k]++;
				row[k] = 0;
			}
			assert_true(batch[k] < r[k].nb_batches);
			if (k == ARROW_FRAMES)
				check_frame_row(&r[k], batch[k], row[k], &s);
			else
				check_image_row(&r[k], batch[k], row[k], &s);
			row[k]++;
		}
	}
	for (k = 0; k < ARROW_TABLES; k++) {
		assert_int_equal(batch[k] + 1, r[k].nb_batches);
		assert_int_equal(row[k], r[k].batches[batch[k]].rows);
		arrow_reader_close(&r[k]);
	}
	arrow_tables_free(&t);
	sample_free(&s);
}

static void
round_trip_f32(void **state)
{
	const uint64_t seed = time(NULL);

	print_message("seed %llu\n", (unsigned long long)seed);
	round_trip(seed, GK_VALUE_F32, 1, 350);
}

static void
round_trip_i16(void **state)
{
	const uint64_t seed = time(NULL) + 1;

	print_message("seed %llu\n", (unsigned long long)seed);
	round_trip(seed, GK_VALUE_I16, 3, 200);
}

/* An empty run is two complete files without a batch. */
static void
empty_run(void **state)
{
	struct arrow_tables t;
	struct arrow_reader r;
	struct sample s;
	const char *problem;
	unsigned int i;

	sample_init(&s, 1, GK_VALUE_F32, 1);
	assert_int_equal(sample_tables(&s, &t), 0);
	sink_open(&t);
	sink_close();
	for (i = 0; i < ARROW_TABLES; i++) {
		assert_int_equal(
			arrow_reader_open_memory(&r, disk[i].bytes, disk[i].size, &problem), 0);
		assert_true(r.complete);
		assert_int_equal(r.nb_batches, 0);
		arrow_reader_close(&r);
	}
	assert_true(disk[ARROW_IMAGES].published);
	arrow_tables_free(&t);
	sample_free(&s);
}

/* A disk that is full: what was whole stays, nothing follows, and it says so. */
static void
disk_full(void **state)
{
	struct sample s;
	struct arrow_tables t;
	struct batch_builder_config c;
	struct batch_builder *b;
	struct arrow_reader r;
	const char *problem;
	unsigned int i;

	sample_init(&s, 9, GK_VALUE_F32, 1);
	assert_int_equal(sample_tables(&s, &t), 0);
	sink_open(&t);
	disk[ARROW_FRAMES].writes_left = 3;
	c = sample_builder_config(&s, &t);
	c.frames_interval = 10;
	c.emit = sink_emit;
	assert_int_equal(batch_builder_create(&b, &c), 0);
	for (i = 0; i < 100; i++) {
		sample_next(&s, 1, 1);
		assert_int_equal(batch_builder_add(b, &s.record), 0);
	}
	batch_builder_flush(b);
	assert_int_equal(sink.file[ARROW_FRAMES].error, -ENOSPC);
	assert_non_null(strstr(sink.file[ARROW_FRAMES].message, "/nowhere/frames.arrow.part"));
	assert_non_null(strstr(sink.file[ARROW_FRAMES].message, "No space left"));
	assert_int_equal(arrow_file_close(&sink.file[ARROW_FRAMES]), -ENOSPC);
	assert_false(disk[ARROW_FRAMES].published);
	assert_int_equal(arrow_reader_open_memory(&r, disk[0].bytes, disk[0].size, &problem), 0);
	assert_int_equal(r.nb_batches, 3);
	assert_false(r.complete);
	arrow_reader_close(&r);
	/* the other file is none the worse */
	assert_int_equal(arrow_file_close(&sink.file[ARROW_IMAGES]), 0);
	batch_builder_destroy(b);
	arrow_tables_free(&t);
	sample_free(&s);
}

static void
read_all(const uint8_t *bytes, size_t size)
{
	/* of its exact size, so that a sanitizer sees every step beyond */
	uint8_t *copy = malloc(size + 1);
	struct arrow_reader r;
	struct arrow_column c;
	const char *problem;
	volatile uint8_t seen = 0;
	unsigned int k;
	size_t i;

	memcpy(copy, bytes, size);
	copy = realloc(copy, size > 0 ? size : 1);
	if (arrow_reader_open_memory(&r, copy, size, &problem) == 0) {
		for (i = 0; i < r.nb_batches; i++) {
			arrow_reader_crc(&r, i);
			for (k = 0; k < r.schema.nb_fields; k++) {
				if (arrow_reader_column(&r, i, k, &c) < 0 || c.items == 0)
					continue;
				seen ^= *(const uint8_t *)c.data;
				if (c.field->type < ARROW_BINARY)
					seen ^= *(const uint8_t *)cell(
						&c, c.items - 1, arrow_type_width(c.field->type));
			}
		}
		arrow_reader_meta(&r, "nothing");
		arrow_reader_close(&r);
	} else {
		assert_non_null(problem);
	}
	free(copy);
}

/* Cut anywhere and with any bytes changed, a file is read or refused, and nothing else. */
static void
hostile_files(void **state)
{
	const uint64_t seed = time(NULL);
	struct sample s = {.seed = seed};
	struct arrow_reader r;
	const char *problem;
	uint8_t *copy;
	size_t at, size, whole;
	unsigned int i, k, n;

	print_message("seed %llu\n", (unsigned long long)seed);
	round_trip(11, GK_VALUE_F32, 1, 40);
	for (k = 0; k < ARROW_TABLES; k++) {
		size = disk[k].size;
		assert_int_equal(arrow_reader_open_memory(&r, disk[k].bytes, size, &problem), 0);
		whole = r.nb_batches;
		arrow_reader_close(&r);
		for (at = 0; at < size; at += 512) {
			read_all(disk[k].bytes, at);
			if (at < ARROW_BLOCK)
				continue;
			assert_int_equal(
				arrow_reader_open_memory(&r, disk[k].bytes, at, &problem), 0);
			assert_false(r.complete);
			assert_true(r.nb_batches <= whole);
			assert_true(r.valid <= at);
			arrow_reader_close(&r);
		}
		copy = malloc(size);
		for (i = 0; i < 2000; i++) {
			memcpy(copy, disk[k].bytes, size);
			for (n = 1 + sample_random(&s) % 8; n > 0; n--) {
				/* metadata more often than pixels */
				at = sample_random(&s) % 4 == 0
					? sample_random(&s) % size
					: sample_random(&s) % (size / ARROW_BLOCK) * ARROW_BLOCK +
						sample_random(&s) % 1600;
				copy[at] = sample_random(&s) % 3 ? sample_random(&s)
					: sample_random(&s) % 2	 ? 0xFF
								 : 0;
			}
			/* the first message: damage there is refused at once, so less often */
			if (i % 4)
				memcpy(copy, disk[k].bytes, ARROW_BLOCK);
			read_all(copy, size);
		}
		free(copy);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip_f32),
		cmocka_unit_test(round_trip_i16),
		cmocka_unit_test(empty_run),
		cmocka_unit_test(disk_full),
		cmocka_unit_test(hostile_files),
	};
	int rc;

	rc = cmocka_run_group_tests_name("arrow_file", tests, NULL, NULL);
	disk_clear();
	return rc;
}
