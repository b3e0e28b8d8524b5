/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse images as pictures show them: pixels of missing packets, and pixels that the calibration
 * masks. ARROW_WRITE is the program that writes the files.
 */

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "arrow/crc32c.h"
#include "geometry/array.h"
#include "scan/dead_pixels.h"
#include "scan/images.h"
#include "scan/list.h"
#include "../io/failing_readdir.h"

#define ROWS   4u
#define COLS   8u
#define PIXELS (ROWS * COLS)
#define PAGE   4096

static char dir[] = "/tmp/images_test.XXXXXX";

static void
test_pixels_of_missing_packets_have_no_value(void **state)
{
	uint64_t start, end, pixels, sparse = 0, lost = 0;
	struct scan_list list = {0};
	struct scan_images b;
	struct scan_run run;
	uint16_t *words;
	float *plane;

	assert_int_equal(scan_list_add(&list, dir), 0);
	assert_int_equal(scan_run_open(&run, &list.run[0]), 0);
	pixels = (uint64_t)run.rows * run.cols;
	plane = malloc(pixels * sizeof(*plane));
	words = malloc(pixels * sizeof(*words));
	const struct arrow_reader *r = &run.set[0].file[ARROW_IMAGES].reader;
	for (size_t batch = 0; batch < r->nb_batches; batch++) {
		assert_int_equal(scan_images_open(r, batch, &b), 0);
		for (uint64_t row = 0; row < r->batches[batch].rows; row++) {
			const uint16_t *col;
			const uint32_t *row_ptr;
			const uint8_t *bits;

			if (((const uint8_t *)b.kind.data)[row] != GK_KIND_CSR)
				continue;
			assert_int_equal(scan_images_expand(&run, &b, row, plane, words), 0);
			sparse++;
			arrow_column_range(&b.row_ptr, row, &start, &end);
			row_ptr = (const uint32_t *)b.row_ptr.data + start;
			arrow_column_range(&b.col, row, &start, &end);
			col = (const uint16_t *)b.col.data + start;
			arrow_column_range(&b.missing, row, &start, &end);
			bits = (const uint8_t *)b.missing.data + start;
			for (uint32_t y = 0; y < run.rows; y++) {
				const uint32_t packet = y / (run.rows / run.packets);
				const bool missing = (bits[packet / 8] >> packet % 8 & 1) != 0;
				uint32_t i = row_ptr[y];

				lost += missing;
				for (uint32_t x = 0; x < run.cols; x++) {
					if (i < row_ptr[y + 1] && col[i] == x)
						i++; /* its value */
					else if (missing)
						assert_true(isnan(plane[y * run.cols + x]));
					else
						assert_true(plane[y * run.cols + x] == 0);
				}
			}
		}
	}
	assert_true(sparse > 0 && lost > 0);
	free(plane);
	free(words);
	scan_run_close(&run);
	scan_list_free(&list);
}

static void
test_another_format_is_refused(void **state)
{
	static const char key[] = "braggline.format\0\0\0\0\1\0\0\0";
	struct scan_list list = {0};
	struct scan_run run;
	char path[64];
	uint8_t *data, *at;
	size_t size;
	FILE *f;

	snprintf(path, sizeof(path), "%s/g_frames.arrow", dir);
	f = fopen(path, "r+b");
	assert_non_null(f);
	assert_int_equal(fseek(f, 0, SEEK_END), 0);
	size = ftell(f);
	data = malloc(size);
	rewind(f);
	assert_int_equal(fread(data, 1, size, f), size);
	/* in the header and its copy */
	for (at = data; (at = memmem(at, data + size - at, key, sizeof(key) - 1)) != NULL;) {
		at += sizeof(key) - 1;
		assert_int_equal(*at, '1');
		*at = '3';
	}
	rewind(f);
	assert_int_equal(fwrite(data, 1, size, f), size);
	fclose(f);
	free(data);
	assert_int_equal(scan_list_add(&list, dir), 0);
	assert_int_equal(scan_run_open(&run, &list.run[0]), -EBADMSG);
	scan_run_close(&run);
	scan_list_free(&list);
}

/* A calibration whose pixel i has no photons in the stages of bits `stages[i]`. */
static size_t
make_calibration(uint8_t *to, const uint8_t stages[PIXELS], char digest[32])
{
	size_t at = PAGE, head = sprintf((char *)to, "braggline calibration 1\n");
	uint32_t crc, all = 0;

	memset(to + head, 0, PAGE - head);
	for (unsigned int g = 0; g < 3; g++, at += PAGE) {
		float plane[PIXELS];

		for (unsigned int i = 0; i < PIXELS; i++)
			plane[i] = (stages[i] >> g & 1) != 0 ? NAN : 0.5f;
		memcpy(to + at, plane, sizeof(plane));
		crc = arrow_crc32c(0, to + at, sizeof(plane));
		all = arrow_crc32c_combine(all, crc, sizeof(plane));
		head += sprintf((char *)to + head,
			"plane photons_per_adu_g%u float32 %u %u at %zu crc32c %08x\n", g, ROWS,
			COLS, at, crc);
	}
	sprintf((char *)to + head, "end\n");
	sprintf(digest, "crc32c:%08x", all);
	return at;
}

static void
test_dead_pixels_have_no_stage(void **state)
{
	static uint8_t file[4 * PAGE];
	uint8_t stages[PIXELS] = {[3] = 7, [4] = 6, [5] = 1, [31] = 7};
	uint32_t mask[PIXELS] = {[7] = ARRAY_USER};
	char digest[32];
	const char *why;
	const size_t size = make_calibration(file, stages, digest);

	assert_int_equal(dead_pixels_add(file, size, digest, ROWS, COLS, mask, &why), 0);
	for (unsigned int i = 0; i < PIXELS; i++)
		assert_int_equal(mask[i], i == 3 || i == 31 ? ARRAY_DEAD : i == 7 ? ARRAY_USER : 0);
	assert_int_equal(dead_pixels_add(file, size, NULL, ROWS, COLS, mask, &why), 0);
	/* another run, another size, a flipped bit */
	assert_int_equal(
		dead_pixels_add(file, size, "crc32c:00000000", ROWS, COLS, mask, &why), -EBADMSG);
	assert_non_null(strstr(why, "another run"));
	assert_int_equal(dead_pixels_add(file, size, digest, ROWS, 2 * COLS, mask, &why), -EBADMSG);
	assert_non_null(strstr(why, "this size"));
	file[2 * PAGE] ^= 1;
	assert_int_equal(dead_pixels_add(file, size, digest, ROWS, COLS, mask, &why), -EBADMSG);
	assert_int_equal(dead_pixels_add(file, 3 * PAGE, digest, ROWS, COLS, mask, &why), -EBADMSG);
}

/* A store has a directory for each run. Those in a directory that has runs itself are not read. */
static void
test_a_store_has_the_runs_of_its_subfolders(void **state)
{
	char message[SCAN_LIST_MESSAGE_LEN], store[] = "/tmp/images_test.XXXXXX";
	char command[512], expected[64];
	struct scan_list list = {0};
	unsigned int i;

	assert_non_null(mkdtemp(store));
	snprintf(command, sizeof(command),
		"cd %s && mkdir b a none .hidden && touch b/x_000002_frames.arrow "
		"b/x_000001_images.arrow a/y_frames.arrow .hidden/z_frames.arrow && "
		"ln -s a latest && mkdir lost+found && touch lost+found/v_frames.arrow",
		store);
	assert_int_equal(system(command), 0);
	/* also with a run that was added before */
	for (i = 0; i < 2; i++) {
		assert_int_equal(scan_list_try(&list, store, message), 0);
		assert_int_equal(list.nb, 2);
		snprintf(expected, sizeof(expected), "%s/a/y", store);
		assert_string_equal(list.run[0].path, expected);
		snprintf(expected, sizeof(expected), "%s/b/x", store);
		assert_string_equal(list.run[1].path, expected);
		assert_int_equal(list.run[1].nb, 2);
		assert_non_null(strstr(list.run[1].stem[0], "/b/x_000001"));
	}
	scan_list_free(&list);
	list = (struct scan_list){0};
	snprintf(command, sizeof(command), "touch %s/w_frames.arrow", store);
	assert_int_equal(system(command), 0);
	assert_int_equal(scan_list_try(&list, store, message), 0);
	assert_int_equal(list.nb, 1);
	scan_list_free(&list);
	snprintf(command, sizeof(command), "rm -r %s", store);
	assert_int_equal(system(command), 0);
}

/* A directory that cannot be read is no directory without runs. */
static void
test_a_directory_that_cannot_be_read_is_an_error(void **state)
{
	char message[SCAN_LIST_MESSAGE_LEN], empty[] = "/tmp/images_test.XXXXXX";
	struct scan_list list = {0};

	assert_non_null(mkdtemp(empty));
	assert_false(scan_list_has(empty));
	assert_int_equal(scan_list_try(&list, empty, message), -ENODATA);
	readdir_fails = true;
	assert_true(scan_list_has(empty));
	assert_int_equal(scan_list_try(&list, empty, message), -EIO);
	readdir_fails = false;
	assert_non_null(strstr(message, strerror(EIO)));
	scan_list_free(&list);
	rmdir(empty);
}

static int
setup(void **state)
{
	char command[512];

	if (mkdtemp(dir) == NULL)
		return -1;
	snprintf(
		command, sizeof(command), "'%s' '%s' g float32 1 60 5", getenv("ARROW_WRITE"), dir);
	return system(command);
}

static int
teardown(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r '%s'", dir);
	return system(command);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pixels_of_missing_packets_have_no_value),
		cmocka_unit_test(test_dead_pixels_have_no_stage),
		cmocka_unit_test(test_another_format_is_refused),
		cmocka_unit_test(test_a_store_has_the_runs_of_its_subfolders),
		cmocka_unit_test(test_a_directory_that_cannot_be_read_is_an_error),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
