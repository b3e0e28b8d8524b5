/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Record batches of a growing file: when a batch is whole, what is damage, and what is left
 * without pixels. A batch whose place is known. ARROW_WRITE is the program that writes the files.
 */

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "arrow/batch.h"
#include "arrow/crc32c.h"
#include "arrow/format.h"
#include "scan/memory.h"
#include "scan/record.h"

#define BATCHES_MAX 64

static char dir[] = "/tmp/record_test.XXXXXX";
static uint8_t *file; /* of images */
static uint64_t size;
static uint64_t at[BATCHES_MAX], nb; /* offsets of the batches, and the end of the last one */

/* A file that begins like the whole one. */
static int
prefix(uint64_t length)
{
	const int fd = memfd_create("record_test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, file, length), length);
	return fd;
}

static const char *problem; /* of a header */

static struct scan_header *
header_of(int fd)
{
	struct scan_header *header = NULL;

	assert_int_equal(
		scan_header_read(&header, fd, "g_images.arrow", ARROW_IMAGES, &problem), 0);
	return header;
}

static enum scan_record_state
state_of(struct scan_header *header, int fd, uint64_t offset)
{
	struct scan_record *record = NULL;
	uint64_t length;
	const enum scan_record_state state = scan_record_read(&record, header, fd, offset, &length);

	assert_int_equal(record != NULL, state == SCAN_RECORD_WHOLE);
	scan_record_drop(record);
	return state;
}

static void
flip(int fd, uint64_t offset)
{
	uint8_t byte;

	assert_int_equal(pread(fd, &byte, 1, offset), 1);
	byte ^= 1;
	assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
}

static void
test_a_header_is_whole_or_absent(void **state)
{
	struct scan_header *header = NULL;
	int fd = prefix(0);

	assert_int_equal(
		scan_header_read(&header, fd, "g_images.arrow", ARROW_IMAGES, &problem), -ENODATA);
	close(fd);
	fd = prefix(at[0] - 1);
	assert_int_equal(
		scan_header_read(&header, fd, "g_images.arrow", ARROW_IMAGES, &problem), -ENODATA);
	close(fd);
	fd = prefix(at[0]);
	scan_header_drop(header_of(fd));
	assert_int_equal(
		scan_header_read(&header, fd, "g_frames.arrow", ARROW_FRAMES, &problem), -EBADMSG);
	close(fd);
}

static void
test_a_header_of_another_format_is_refused(void **state)
{
	static const char format[] = "braggline.format\0\0\0\0\1\0\0\0";
	static const char code[] = "braggline.header_crc32c\0\10\0\0\0";
	const size_t half = at[0] / 2; /* the header, and its copy */
	struct scan_header *header = NULL;
	char *data = malloc(half), digits[9], *value;
	int fd = prefix(at[0]);

	assert_non_null(data);
	assert_int_equal(pread(fd, data, half, 0), half);
	value = memmem(data, half, format, sizeof(format) - 1);
	assert_non_null(value);
	value[sizeof(format) - 1] = '3';
	value = memmem(data, half, code, sizeof(code) - 1);
	assert_non_null(value);
	value += sizeof(code) - 1;
	memset(value, '0', 8);
	snprintf(digits, sizeof(digits), "%08x", arrow_crc32c(0, data, half));
	memcpy(value, digits, 8);
	assert_int_equal(pwrite(fd, data, half, 0), half);
	assert_int_equal(pwrite(fd, data, half, half), half);
	problem = NULL;
	assert_int_equal(
		scan_header_read(&header, fd, "g_images.arrow", ARROW_IMAGES, &problem), -EBADMSG);
	assert_non_null(strstr(problem, "braggline.format is none of those"));
	free(data);
	close(fd);
}

static void
test_a_batch_is_whole_with_its_last_block(void **state)
{
	for (uint64_t i = 0; i < nb; i++) {
		const uint64_t before = at[i + 1] - ARROW_BLOCK;
		const int fd = prefix(before);
		struct scan_header *header = header_of(fd);

		assert_int_equal(state_of(header, fd, at[i]), SCAN_RECORD_PARTIAL);
		assert_int_equal(state_of(header, fd, at[i + 1]), SCAN_RECORD_NONE);
		/* allocated, and not written */
		assert_int_equal(ftruncate(fd, size), 0);
		assert_int_equal(state_of(header, fd, at[i]), SCAN_RECORD_PARTIAL);
		assert_int_equal(state_of(header, fd, at[i + 1]), SCAN_RECORD_NONE);
		assert_int_equal(pwrite(fd, file + before, ARROW_BLOCK, before), ARROW_BLOCK);
		assert_int_equal(state_of(header, fd, at[i]), SCAN_RECORD_WHOLE);
		scan_header_drop(header);
		close(fd);
	}
}

static void
test_truncation_and_damage_are_states(void **state)
{
	const int fd = prefix(size);
	struct scan_header *header = header_of(fd);
	uint64_t found = at[1];

	assert_int_equal(state_of(header, fd, at[nb]), SCAN_RECORD_END);
	flip(fd, at[2] - ARROW_BLOCK);
	assert_int_equal(state_of(header, fd, at[1]), SCAN_RECORD_PARTIAL);
	flip(fd, at[1] + ARROW_PREFIX + 20);
	assert_int_equal(state_of(header, fd, at[1]), SCAN_RECORD_WRONG);
	assert_int_equal(scan_record_search(header, fd, &found, 2), 0);
	assert_int_equal(found, at[1] + 2 * ARROW_BLOCK);
	assert_int_equal(scan_record_search(header, fd, &found, UINT64_MAX), 1);
	assert_int_equal(found, at[2]);
	assert_int_equal(ftruncate(fd, at[2]), 0);
	assert_int_equal(state_of(header, fd, at[2]), SCAN_RECORD_NONE);
	assert_int_equal(scan_record_search(header, fd, &found, UINT64_MAX), -ENODATA);
	scan_header_drop(header);
	close(fd);
}

static void
test_peaks_stay_without_pixels(void **state)
{
	const int fd = prefix(size);
	struct scan_header *header = header_of(fd);
	struct scan_record *record = NULL, *copy;
	struct scan_images images;
	uint64_t length, a[SCAN_PEAK_LISTS], b[SCAN_PEAK_LISTS];

	assert_int_equal(scan_record_read(&record, header, fd, at[0], &length), SCAN_RECORD_WHOLE);
	scan_header_drop(header);
	assert_true(record->has_peaks && record->has_images && record->images.is_i16);
	assert_true(scan_peaks_row(&record->peaks, 0, a) >= 0);
	copy = scan_record_without_pixels(record);
	assert_non_null(copy);
	assert_true(copy->has_peaks && !copy->has_images);
	assert_int_equal(scan_images_open(&copy->reader, 0, &images), -EBADMSG);
	assert_in_range(copy->reader.size, record->batch.metadata_size, length / 2);
	assert_memory_equal(copy->data, record->data, record->batch.metadata_size);
	assert_string_equal(copy->batch.sequence, record->batch.sequence);
	assert_int_equal(copy->batch.rows, record->batch.rows);
	for (uint64_t row = 0; row < record->batch.rows; row++) {
		assert_int_equal(scan_peaks_row(&copy->peaks, row, b),
			scan_peaks_row(&record->peaks, row, a));
		assert_memory_equal(a, b, sizeof(a));
	}
	for (unsigned int i = 0; i < SCAN_PEAK_LISTS; i++) {
		const struct arrow_column *list = &record->peaks.list[i];

		assert_true(list->items > 0);
		assert_int_equal(copy->peaks.list[i].items, list->items);
		assert_memory_equal(copy->peaks.list[i].data, list->data,
			list->items * arrow_type_width(list->field->item));
	}
	scan_record_drop(record);
	scan_record_drop(copy);
	close(fd);
}

static void
test_a_batch_is_loaded_as_it_is_in_the_file(void **state)
{
	const int fd = prefix(size);
	struct scan_record *record = NULL;
	struct arrow_reader r;

	assert_int_equal(arrow_reader_open_memory(&r, file, size, &problem), 0);
	assert_int_equal(r.nb_batches, nb);
	for (uint64_t i = 0; i < nb; i++) {
		const struct arrow_read_batch *b = &r.batches[i];

		assert_int_equal(scan_record_load(&record, &r, b, ARROW_IMAGES, fd, 0), 0);
		assert_int_equal(record->reader.size, at[i + 1] - at[i]);
		assert_memory_equal(record->data, file + at[i], at[i + 1] - at[i]);
		assert_string_equal(record->batch.sequence, b->sequence);
		assert_true(record->has_images && record->has_peaks);
		scan_record_drop(record);
	}
	flip(fd, at[2] - ARROW_BLOCK);
	assert_int_equal(
		scan_record_load(&record, &r, &r.batches[1], ARROW_IMAGES, fd, 0), -EBADMSG);
	/* another batch in its place */
	assert_int_equal(pwrite(fd, file + at[1], at[2] - at[1], at[0]), at[2] - at[1]);
	assert_int_equal(
		scan_record_load(&record, &r, &r.batches[0], ARROW_IMAGES, fd, 0), -EBADMSG);
	assert_int_equal(ftruncate(fd, at[3] - ARROW_BLOCK), 0);
	assert_int_equal(
		scan_record_load(&record, &r, &r.batches[2], ARROW_IMAGES, fd, 0), -ENODATA);
	arrow_reader_close(&r);
	close(fd);
}

/* ---- large chunks ---------------------------------------------------------------------------- */

#define LARGE_ROWS   512
#define LARGE_COLS   1024
#define LARGE_CHUNKS 5 /* of the batch */

/* A file of one batch of raw images that do not compress. */
static struct {
	int fd;
	uint64_t begin, size;
} large;

static void
append(const void *bytes, uint64_t n)
{
	assert_int_equal(pwrite(large.fd, bytes, n, large.size), n);
	large.size += n;
}

static void
on_large(void *arg, const struct batch *b)
{
	if (b->table != ARROW_IMAGES)
		return;
	append(b->metadata, b->metadata_size);
	for (unsigned int i = 0; i < b->nb_body; i++)
		append(b->body[i].iov_base, b->body[i].iov_len);
}

static void
write_large(void)
{
	const struct gk_geometry geometry = {
		.tiles = 8, .tile_rows = LARGE_ROWS / 8, .cols = LARGE_COLS};
	const struct arrow_tables_config t = {
		.modules = 1, .rows = LARGE_ROWS, .cols = LARGE_COLS, .packets = 8};
	struct frame_record record = {.receive_time = 1, .verdict = FRAME_HIT, .kind = GK_KIND_RAW};
	struct batch_builder_config c = {.geometry = geometry,
		.receiver_id = 1,
		.run = 1,
		.incarnation = 1,
		.nb_outputs = 1,
		.emit = on_large};
	struct batch_builder *builder;
	struct arrow_tables tables;
	uint8_t *outputs, *header;
	uint32_t word = 1;
	size_t length;

	assert_int_equal(arrow_tables_init(&tables, &t), 0);
	c.tables = &tables;
	gk_layout_init(&c.layout, &geometry, c.value, 16);
	outputs = calloc(1, c.layout.stride);
	c.outputs = outputs;
	assert_non_null(outputs);
	assert_int_equal(batch_builder_create(&builder, &c), 0);
	large.fd = memfd_create("record_test", MFD_CLOEXEC);
	assert_int_equal(arrow_header_build(&tables.schema[ARROW_IMAGES], &header, &length), 0);
	append(header, length);
	large.begin = length;
	for (record.frame = 0; record.frame < LARGE_CHUNKS; record.frame++) {
		for (uint64_t i = 0; i < LARGE_ROWS * LARGE_COLS; i++) {
			word = word * 1664525 + 1013904223;
			/* other frames have chunks of other sizes */
			((uint16_t *)(outputs + c.layout.raw))[i] = word >> (16 + record.frame);
		}
		assert_int_equal(batch_builder_add(builder, &record), 0);
	}
	batch_builder_flush(builder);
	batch_builder_destroy(builder);
	arrow_tables_free(&tables);
	free(header);
	free(outputs);
}

/* Each chunk is at a page, and all columns are as in the file. */
static void
check_large(const struct scan_record *record, const struct arrow_reader *r)
{
	const uint8_t *a, *b;
	struct scan_images images;
	uint64_t i, n;

	assert_true(record->has_images);
	assert_int_equal(scan_images_open(r, 0, &images), 0);
	assert_int_equal(record->batch.rows, LARGE_CHUNKS);
	for (i = 0; i < LARGE_CHUNKS; i++) {
		n = scan_images_chunk(&images, i, &a);
		assert_true(n > 64 << 10);
		assert_int_equal(scan_images_chunk(&record->images, i, &b), n);
		assert_int_equal((uintptr_t)b % ARROW_BLOCK, 0);
		assert_memory_equal(a, b, n);
	}
	assert_memory_equal(record->images.frame.data, images.frame.data, i * sizeof(uint64_t));
	assert_memory_equal(record->images.kind.data, images.kind.data, i);
	assert_int_equal(record->images.missing.items, images.missing.items);
	assert_memory_equal(record->images.missing.data, images.missing.data, images.missing.items);
}

static void
test_large_chunks_are_at_pages(void **state)
{
	struct scan_record *record, *copy;
	struct scan_header *header;
	struct scan_images images;
	struct arrow_reader r;
	uint64_t length, place;
	uint8_t *data;

	write_large();
	data = malloc(large.size);
	assert_int_equal(pread(large.fd, data, large.size, 0), large.size);
	assert_int_equal(arrow_reader_open_memory(&r, data, large.size, &problem), 0);
	assert_int_equal(r.nb_batches, 1);
	header = header_of(large.fd);
	assert_int_equal(scan_record_read(&record, header, large.fd, large.begin, &length),
		SCAN_RECORD_WHOLE);
	assert_int_equal(length, large.size - large.begin);
	check_large(record, &r);
	copy = scan_record_without_pixels(record);
	assert_non_null(copy);
	scan_record_drop(copy);
	scan_record_drop(record);
	/* the memory has the size that was asked for */
	assert_int_equal(
		scan_record_load(&record, &r, r.batches, ARROW_IMAGES, large.fd, 3 * large.size),
		0);
	assert_true(scan_memory_size(record->data) >= 3 * large.size);
	check_large(record, &r);
	scan_record_drop(record);
	/* a wrong bit in a chunk, in an offset, and so that offsets descend */
	assert_int_equal(scan_images_open(&r, 0, &images), 0);
	const uint64_t wrong[] = {(const uint8_t *)images.raw.data + 700001 - data,
		(const uint8_t *)&images.raw.offsets[2] - data,
		(const uint8_t *)&images.raw.offsets[2] + 3 - data};

	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		place = wrong[i];
		flip(large.fd, place);
		assert_int_equal(state_of(header, large.fd, large.begin), SCAN_RECORD_PARTIAL);
		assert_int_equal(
			scan_record_load(&record, &r, r.batches, ARROW_IMAGES, large.fd, 0),
			-EBADMSG);
		flip(large.fd, place);
	}
	assert_int_equal(state_of(header, large.fd, large.begin), SCAN_RECORD_WHOLE);
	scan_header_drop(header);
	arrow_reader_close(&r);
	free(data);
	close(large.fd);
}

static int
find_batches(void)
{
	const int fd = prefix(size);
	struct scan_header *header = header_of(fd);
	uint64_t length;

	at[0] = header->reader.begin;
	while (nb + 1 < BATCHES_MAX &&
		scan_record_peek(header, fd, at[nb], &length) == SCAN_RECORD_PARTIAL) {
		at[nb + 1] = at[nb] + length;
		nb++;
	}
	scan_header_drop(header);
	close(fd);
	return nb >= 3 ? 0 : -1;
}

static int
setup(void **state)
{
	const char *writer = getenv("ARROW_WRITE");
	char command[1024];
	FILE *in;

	if (writer == NULL || mkdtemp(dir) == NULL)
		return -1;
	snprintf(command, sizeof(command), "'%s' '%s' g int16+peaks 4 60 5", writer, dir);
	if (system(command) != 0)
		return -1;
	snprintf(command, sizeof(command), "%s/g_images.arrow", dir);
	in = fopen(command, "r");
	if (in == NULL)
		return -1;
	fseek(in, 0, SEEK_END);
	size = ftell(in);
	rewind(in);
	file = malloc(size);
	if (file == NULL || fread(file, 1, size, in) != size)
		return -1;
	fclose(in);
	return find_batches();
}

static int
teardown(void **state)
{
	char command[64];

	free(file);
	scan_memory_trim();
	snprintf(command, sizeof(command), "rm -r '%s'", dir);
	return system(command);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_header_is_whole_or_absent),
		cmocka_unit_test(test_a_header_of_another_format_is_refused),
		cmocka_unit_test(test_a_batch_is_whole_with_its_last_block),
		cmocka_unit_test(test_truncation_and_damage_are_states),
		cmocka_unit_test(test_peaks_stay_without_pixels),
		cmocka_unit_test(test_a_batch_is_loaded_as_it_is_in_the_file),
		cmocka_unit_test(test_large_chunks_are_at_pages),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
