/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests Arrow files: written and read back, on a disk that is full, truncated, and damaged. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "arrow_disk.h"
#include "arrow/file.h"
#include "arrow/reader.h"
#include "recovery/recovery.h"
#include "arrow_rows.h"
#include "arrow_sample.h"
#include "arrow/bitshuffle.h"

/* The file of a table on the disk. */
static const struct disk_file *
on_disk(enum arrow_table table)
{
	char name[32];
	const struct disk_file *f;

	snprintf(name, sizeof(name), "%s.arrow.part", arrow_table_name(table));
	f = disk_find(disk, name);
	if (f != NULL)
		return f;
	*strrchr(name, '.') = '\0';
	f = disk_find(disk, name);
	assert_non_null(f);
	return f;
}

static void
disk_clear(void)
{
	if (disk != NULL)
		disk_free(disk);
	disk = disk_new(time(NULL));
}

/* The files that take the builder's batches, one for each table. */
struct sink {
	struct arrow_file file[ARROW_TABLES];
};

static struct sink sink;

static void
xfer_emit(void *arg, const struct batch *b)
{
	if (sink.file[b->table].out.handle != NULL)
		arrow_file_append(&sink.file[b->table], b);
}

static void
xfer_open(const struct arrow_tables *t)
{
	const struct async_writer_config config = {.io = &disk_io, .slice = 65536, .depth = 3};
	unsigned int i;

	disk_clear();
	memset(&sink, 0, sizeof(sink));
	for (i = 0; i < ARROW_TABLES; i++)
		assert_int_equal(arrow_file_create(&sink.file[i], &config, "/nowhere",
					 arrow_table_name(i), &t->schema[i]),
			0);
}

static void
xfer_close(void)
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

/* @param column  first one of profiles */
static void
check_profile(const struct arrow_reader *r, size_t batch, uint64_t row, const struct sample *s,
	unsigned int column)
{
	const uint8_t *area = s->profiles + s->record.profile * gk_profile_stride(s->bins);
	const bool none = s->record.profile == FRAME_NO_PROFILE;
	struct arrow_column c;

	assert_int_equal(arrow_reader_find(r, "radial_sum", ARROW_FIXED_LIST, ARROW_INT64), column);
	assert_int_equal(
		arrow_reader_find(r, "radial_count", ARROW_FIXED_LIST, ARROW_UINT32), column + 1);
	for (unsigned int i = 0; i < 2; i++) {
		const size_t size = s->bins * (i == 0 ? 8 : 4);

		assert_int_equal(arrow_reader_column(r, batch, column + i, &c), 0);
		assert_int_equal(c.field->list_size, s->bins);
		assert_int_equal(arrow_column_is_null(&c, row), none);
		if (!none)
			assert_memory_equal(cell(&c, row, size),
				area + (i == 0 ? 0 : gk_profile_count_at(s->bins)), size);
	}
}

static void
check_frame_row(const struct arrow_reader *r, size_t batch, uint64_t row, const struct sample *s)
{
	const struct frame_record *rec = &s->record;
	const uint8_t verdict = rec->verdict, kind = rec->kind;
	const struct {
		const void *value;
		size_t size;
	} want[FRAMES_PEAKS] = {
		{&rec->frame, 8},
		{&rec->bunch_id, 8},
		{&rec->detector_time, 8},
		{&rec->receive_time, 8},
		{&rec->exposure, 4},
		{&rec->detector_status, 4},
		{&rec->flags, 4},
		{rec->missing, 2 * s->modules},
		{&rec->strong_count, 4},
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

	for (i = 0; i < FRAMES_PEAKS; i++) {
		assert_int_equal(arrow_reader_column(r, batch, i, &c), 0);
		assert_null(c.validity);
		assert_memory_equal(cell(&c, row, want[i].size), want[i].value, want[i].size);
	}
	i = s->layout.peaks_cap > 0 ? FRAMES_RADIAL_SUM : FRAMES_PEAKS;
	assert_int_equal(r->schema.nb_fields, i + (s->bins > 0 ? 2 : 0));
	if (s->bins > 0)
		check_profile(r, batch, row, s, i);
	if (s->layout.peaks_cap == 0)
		return;
	assert_int_equal(arrow_reader_column(r, batch, FRAMES_PEAKS, &c), 0);
	assert_int_equal(arrow_column_is_null(&c, row), rec->peaks == FRAME_NO_SEARCH);
	if (rec->peaks != FRAME_NO_SEARCH)
		assert_memory_equal(cell(&c, row, 4), &rec->peaks, 4);
	assert_int_equal(arrow_reader_column(r, batch, FRAMES_SHELL_PEAKS, &c), 0);
	check_list(&c, row, rec->shell_peaks, rec->peaks != FRAME_NO_SEARCH ? rec->shells : 0, 4);
}

/* Peaks of a kept frame: the first ones, at their place in the raster. */
static void
check_peaks(const struct arrow_column *c, uint64_t row, const struct sample *s)
{
	const struct gk_peak *peak = (const struct gk_peak *)(s->outputs + s->layout.peaks);
	const uint32_t all = s->record.peaks != FRAME_NO_SEARCH ? s->record.peaks : 0;
	const uint32_t n = all < s->layout.peaks_cap ? all : s->layout.peaks_cap;
	uint64_t start, end;

	for (unsigned int i = IMAGES_PEAK_FS; i < IMAGES_COLUMNS; i++) {
		arrow_column_range(&c[i], row, &start, &end);
		assert_int_equal(end - start, n);
	}
	for (uint32_t i = 0; i < n; i++) {
		const struct gk_peak *p = &peak[i];
		const struct gk_peak_panel *panel = &s->panel[p->panel];
		const float fs = (float)panel->fs + p->fs, ss = (float)panel->ss + p->ss;
		const uint16_t number = p->panel;

		arrow_column_range(&c[IMAGES_PEAK_FS], row, &start, &end);
		start += i;
		assert_memory_equal(cell(&c[IMAGES_PEAK_FS], start, 4), &fs, 4);
		assert_memory_equal(cell(&c[IMAGES_PEAK_SS], start, 4), &ss, 4);
		assert_memory_equal(cell(&c[IMAGES_PEAK_INTENSITY], start, 4), &p->intensity, 4);
		assert_memory_equal(cell(&c[IMAGES_PEAK_SNR], start, 4), &p->snr, 4);
		assert_memory_equal(cell(&c[IMAGES_PEAK_BACKGROUND], start, 4), &p->background, 4);
		assert_memory_equal(cell(&c[IMAGES_PEAK_PIXELS], start, 4), &p->pixels, 4);
		assert_memory_equal(cell(&c[IMAGES_PEAK_PANEL], start, 2), &number, 2);
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

	for (i = 0; i < r->schema.nb_fields; i++)
		assert_int_equal(arrow_reader_column(r, batch, i, &c[i]), 0);
	assert_int_equal(i, s->layout.peaks_cap > 0 ? IMAGES_COLUMNS : IMAGES_PEAK_FS);
	if (s->layout.peaks_cap > 0)
		check_peaks(c, row, s);
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

/* Write random frames through builder and file, and compare every value that is read back. */
static void
round_trip(uint64_t seed, enum gk_value value, uint32_t modules, unsigned int frames, bool peaks,
	uint32_t bins)
{
	void (*const init)(struct sample *, uint64_t, enum gk_value, uint32_t) =
		peaks ? sample_init_peaks : sample_init;
	struct sample s;
	struct arrow_tables t;
	struct batch_builder_config c;
	struct batch_builder *b;
	struct arrow_reader r[ARROW_TABLES];
	const char *problem;
	size_t batch[ARROW_TABLES] = {0};
	uint64_t row[ARROW_TABLES] = {0};
	unsigned int i, k;

	init(&s, seed, value, modules);
	s.bins = bins;
	assert_int_equal(sample_tables(&s, &t), 0);
	xfer_open(&t);
	c = sample_builder_config(&s, &t);
	c.frames_interval = 100;
	c.images_interval = 16;
	c.emit = xfer_emit;
	assert_int_equal(batch_builder_create(&b, &c), 0);
	for (i = 0; i < frames; i++) {
		sample_next(&s, 1 + (i % 50 == 0) * 30, 5);
		assert_int_equal(batch_builder_add(b, &s.record), 0);
	}
	batch_builder_flush(b);
	xfer_close();
	batch_builder_destroy(b);

	for (i = 0; i < ARROW_TABLES; i++) {
		assert_int_equal(arrow_reader_open_memory(
					 &r[i], on_disk(i)->data, on_disk(i)->size, &problem),
			0);
		check_layout(&r[i], i);
		assert_string_equal(
			arrow_reader_meta(&r[i], ARROW_META_TABLE), arrow_table_name(i));
		assert_string_equal(arrow_reader_meta(&r[i], ARROW_META_RUN), "sample");
	}
	assert_int_equal(arrow_reader_find(&r[ARROW_FRAMES], "sum", ARROW_FLOAT64, 0), FRAMES_SUM);
	assert_int_equal(arrow_reader_find(&r[ARROW_IMAGES], "value", ARROW_LIST,
				 value == GK_VALUE_I16 ? ARROW_INT16 : ARROW_FLOAT32),
		IMAGES_VALUE);

	/* make the same frames again and compare them with the files */
	sample_free(&s);
	init(&s, seed, value, modules);
	s.bins = bins;
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
	round_trip(seed, GK_VALUE_F32, 1, 350, false, 0);
	round_trip(seed, GK_VALUE_F32, 1, 350, true, 0);
	round_trip(seed, GK_VALUE_F32, 1, 350, false, 9);
	round_trip(seed, GK_VALUE_F32, 1, 350, true, 64);
}

static void
round_trip_i16(void **state)
{
	const uint64_t seed = time(NULL) + 1;

	print_message("seed %llu\n", (unsigned long long)seed);
	round_trip(seed, GK_VALUE_I16, 3, 200, false, 0);
	round_trip(seed, GK_VALUE_I16, 3, 200, true, 17);
}

/* An empty run leaves two complete files without batches. */
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
	xfer_open(&t);
	xfer_close();
	for (i = 0; i < ARROW_TABLES; i++) {
		assert_int_equal(
			arrow_reader_open_memory(&r, on_disk(i)->data, on_disk(i)->size, &problem),
			0);
		assert_true(r.complete);
		assert_int_equal(r.nb_batches, 0);
		arrow_reader_close(&r);
	}
	assert_true(sink.file[ARROW_IMAGES].complete);
	arrow_tables_free(&t);
	sample_free(&s);
}

/*
 * One call on the disk fails, or all calls from one on: the durable rows stay, no rows follow, and
 * the error is reported. The file is complete if the disk permits.
 */
static void
failing_disk(uint64_t from, uint64_t until, int error, bool *failed)
{
	const char *text = error == -ENOSPC ? "No space left" : "Input/output error";
	struct sample s;
	struct arrow_tables t;
	struct batch_builder_config c;
	struct batch_builder *b;
	struct arrow_reader r;
	const struct arrow_file *f;
	const char *problem;
	unsigned int i;

	sample_init(&s, 9, GK_VALUE_F32, 1);
	assert_int_equal(sample_tables(&s, &t), 0);
	xfer_open(&t);
	disk->fail_from = disk->calls + from;
	disk->fail_until = disk->calls + until;
	disk->fail_error = error;
	/* often, so that more calls can fail */
	sink.file[ARROW_FRAMES].out.config.sync_bytes = 32768;
	sink.file[ARROW_IMAGES].out.config.sync_bytes = 131072;
	c = sample_builder_config(&s, &t);
	c.frames_interval = 10;
	c.images_interval = 4;
	c.emit = xfer_emit;
	assert_int_equal(batch_builder_create(&b, &c), 0);
	for (i = 0; i < 100; i++) {
		sample_next(&s, 1, 1);
		assert_int_equal(batch_builder_add(b, &s.record), 0);
	}
	batch_builder_flush(b);
	*failed = false;
	for (i = 0; i < ARROW_TABLES; i++) {
		f = &sink.file[i];
		arrow_file_close(&sink.file[i]);
		*failed |= f->error != 0;
		if (f->error != 0) {
			assert_int_equal(f->error, error);
			assert_non_null(strstr(f->message, arrow_table_name(i)));
			assert_non_null(strstr(f->message, text));
		} else {
			assert_true(f->complete);
		}
		assert_int_equal(f->rows, f->rows_durable);
		assert_int_equal(
			arrow_reader_open_memory(&r, on_disk(i)->data, on_disk(i)->size, &problem),
			0);
		if (f->complete) {
			assert_true(r.complete);
			assert_int_equal(count_rows(&r), f->rows);
		} else {
			/* after the durable rows there may be more, complete or not */
			assert_int_equal(arrow_recovery_scan(&r), 0);
			assert_true(count_rows(&r) >= f->rows);
		}
		arrow_reader_close(&r);
	}
	batch_builder_destroy(b);
	arrow_tables_free(&t);
	sample_free(&s);
}

static void
each_call_fails(void **state)
{
	static const int errors[] = {-ENOSPC, -EIO};
	unsigned int i, failures = 0;
	uint64_t call;
	bool failed;

	for (i = 0; i < 2; i++) {
		for (call = 0;; call++) {
			failing_disk(call, call + 1, errors[i], &failed);
			failures += failed;
			if (disk->calls < disk->fail_from)
				break;
			failing_disk(call, UINT32_MAX, errors[i], &failed);
			/* the last calls may be allocations, whose failure is no error */
			assert_true(failed || disk->calls < disk->fail_from + 3);
		}
	}
	print_message("%u failures of %u calls\n", failures, (unsigned int)call * 2);
	assert_true(failures > 20);
}

/* A disk whose first sync completes after a write that was begun later. Both fail. */
static struct {
	struct arrow_io_done sync;
	bool holds; /* the sync has completed, but is not reported yet */
	bool failed;
} late;

static int
late_reap(void *handle, bool wait, struct arrow_io_done *done)
{
	int ret;

	if (late.holds && late.failed) {
		late.holds = false;
		*done = late.sync;
		done->error = -EIO;
		return 1;
	}
	ret = disk_io.reap(handle, wait, done);
	if (ret <= 0 || late.failed)
		return ret;
	if (done->tag == UINT64_MAX) {
		late.sync = *done;
		late.holds = true;
		return late_reap(handle, wait, done);
	}
	if (late.holds) {
		late.failed = true;
		done->error = -EIO;
	}
	return ret;
}

/*
 * Data covered by the failed sync may be lost, and no later sync reports that: no row may be
 * durable.
 */
static void
sync_fails_late(void **state)
{
	struct arrow_io_ops io = disk_io;
	struct arrow_file *f = &sink.file[ARROW_IMAGES];
	struct batch_builder_config c;
	struct batch_builder *b;
	struct arrow_tables t;
	struct sample s;
	unsigned int i;

	sample_init(&s, 9, GK_VALUE_F32, 1);
	assert_int_equal(sample_tables(&s, &t), 0);
	xfer_open(&t);
	memset(&late, 0, sizeof(late));
	/*
	 * a fixed seed decides what completes first; sync_ms is so long that no slow machine begins
	 * another sync
	 */
	disk->seed = 9;
	io.reap = late_reap;
	f->out.config.io = &io;
	f->out.config.sync_bytes = 131072;
	f->out.config.sync_ms = 1000000;
	c = sample_builder_config(&s, &t);
	c.images_interval = 4;
	c.emit = xfer_emit;
	assert_int_equal(batch_builder_create(&b, &c), 0);
	for (i = 0; i < 100; i++) {
		sample_next(&s, 1, 1);
		assert_int_equal(batch_builder_add(b, &s.record), 0);
	}
	batch_builder_flush(b);
	assert_int_equal(arrow_file_close(f), -EIO);
	assert_true(late.failed);
	assert_false(late.holds);
	assert_int_equal(f->rows, 0);
	assert_int_equal(f->rows_durable, 0);
	assert_int_equal(arrow_file_close(&sink.file[ARROW_FRAMES]), 0);
	batch_builder_destroy(b);
	arrow_tables_free(&t);
	sample_free(&s);
}

/* The disk has no room for all batches: those that fit make a complete file. */
static void
disk_full(void **state)
{
	struct sample s;
	struct arrow_tables t;
	struct batch_builder_config c;
	struct batch_builder *b;
	struct arrow_reader r;
	struct arrow_file *f = &sink.file[ARROW_IMAGES];
	const char *problem;
	unsigned int i;

	sample_init(&s, 9, GK_VALUE_F32, 1);
	assert_int_equal(sample_tables(&s, &t), 0);
	xfer_open(&t);
	disk->capacity = 1 << 20;
	c = sample_builder_config(&s, &t);
	c.images_interval = 4;
	c.emit = xfer_emit;
	assert_int_equal(batch_builder_create(&b, &c), 0);
	for (i = 0; i < 300; i++) {
		sample_next(&s, 1, 8);
		assert_int_equal(batch_builder_add(b, &s.record), 0);
	}
	batch_builder_flush(b);
	assert_int_equal(f->error, -ENOSPC);
	assert_int_equal(arrow_file_close(f), -ENOSPC);
	assert_true(f->complete);
	assert_int_equal(
		arrow_reader_open_memory(&r, on_disk(1)->data, on_disk(1)->size, &problem), 0);
	assert_true(r.complete);
	assert_true(r.nb_batches > 2);
	assert_int_equal(count_rows(&r), f->rows);
	assert_int_equal(f->rows, f->rows_durable);
	arrow_reader_close(&r);
	/* the other file is not affected */
	assert_int_equal(arrow_file_close(&sink.file[ARROW_FRAMES]), 0);
	batch_builder_destroy(b);
	arrow_tables_free(&t);
	sample_free(&s);
}

static volatile uint8_t seen;

static void
read_all(const uint8_t *bytes, size_t size)
{
	/* of the exact size, so that a sanitizer detects every access beyond it */
	uint8_t *copy = malloc(size + 1);
	struct arrow_reader r;
	struct arrow_column c;
	const char *problem;
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

/*
 * A file that is truncated anywhere or has any bytes changed is read or refused, without a crash.
 */
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
	round_trip(11, GK_VALUE_F32, 1, 40, false, 0);
	for (k = 0; k < ARROW_TABLES; k++) {
		size = on_disk(k)->size;
		assert_int_equal(arrow_reader_open_memory(&r, on_disk(k)->data, size, &problem), 0);
		whole = r.nb_batches;
		arrow_reader_close(&r);
		for (at = 0; at < size; at += 512) {
			read_all(on_disk(k)->data, at);
			/* the file has two copies of the schema */
			if (at < 2 * ARROW_BLOCK)
				continue;
			assert_int_equal(
				arrow_reader_open_memory(&r, on_disk(k)->data, at, &problem), 0);
			assert_false(r.complete);
			assert_true(r.nb_batches <= whole);
			assert_true(r.valid <= at);
			arrow_reader_close(&r);
		}
		copy = malloc(size);
		for (i = 0; i < 2000; i++) {
			memcpy(copy, on_disk(k)->data, size);
			for (n = 1 + sample_random(&s) % 8; n > 0; n--) {
				/* damage metadata more often than pixels */
				at = sample_random(&s) % 4 == 0
					? sample_random(&s) % size
					: sample_random(&s) % (size / ARROW_BLOCK) * ARROW_BLOCK +
						sample_random(&s) % 1600;
				copy[at] = sample_random(&s) % 3 ? sample_random(&s)
					: sample_random(&s) % 2	 ? 0xFF
								 : 0;
			}
			/*
			 * damage in the first message is refused at once: keep it intact in most
			 * rounds
			 */
			if (i % 4)
				memcpy(copy, on_disk(k)->data, ARROW_BLOCK);
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
		cmocka_unit_test(each_call_fails),
		cmocka_unit_test(sync_fails_late),
		cmocka_unit_test(hostile_files),
	};
	int ret;

	ret = cmocka_run_group_tests_name("arrow_file", tests, NULL, NULL);
	disk_free(disk);
	return ret;
}
