/* SPDX-License-Identifier: BSD-3-Clause */
/* A data file that grows: which images other programs read after an error. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "data_file.h"
#include "gk_abi.h"
#include "gk_bitshuffle.h"
#include "growing_file.h"
#include "scan/record.h"

#define IMAGES 8
#define ROWS   16
#define COLS   16
#define CHUNK  100

static char dir[] = "/tmp/growing_file_test.XXXXXX";
static uint8_t chunks[IMAGES][CHUNK];
static int32_t offsets[IMAGES + 1];
static uint8_t kinds[IMAGES];
static struct selection_image images[IMAGES];
static struct arrow_read_batch batch;
static struct scan_set set;
static struct scan_record record;
static size_t missing; /* the only image whose batch cannot be read */

static int
load(void *arg, size_t image, struct scan_record **out)
{
	struct export *e = arg;

	if (image == missing) {
		snprintf(e->message, sizeof(e->message), "image %zu is missing", image);
		return -ENODATA;
	}
	*out = scan_record_ref(&record);
	return 0;
}

/* Raw images, each of which is a chunk with a header and other bytes. */
static int
make_images(void **state)
{
	uint32_t header[GK_BITSHUFFLE_HEADER / 4];

	gk_bitshuffle_header(header, ROWS * COLS);
	for (unsigned int i = 0; i < IMAGES; i++) {
		memset(chunks[i], i + 1, CHUNK);
		memcpy(chunks[i], header, sizeof(header));
		offsets[i + 1] = (i + 1) * CHUNK;
		kinds[i] = GK_KIND_RAW;
		images[i].image =
			(struct selection_row){.frame = 100 + i, .row = i, .kind = GK_KIND_RAW};
	}
	/* never freed */
	record.refs = 1;
	record.has_images = true;
	record.images.kind.data = kinds;
	record.images.raw.offsets = offsets;
	record.images.raw.data = chunks;
	set.file[ARROW_IMAGES].reader.batches = &batch;
	return mkdtemp(dir) != NULL ? 0 : -1;
}

static struct export new_export(void)
{
	struct export e = {.per_file = IMAGES, .threads = 1, .raw = true, .load = load};

	e.run.rows = ROWS;
	e.run.cols = COLS;
	e.run.set = &set;
	e.run.nb_sets = 1;
	e.images.image = images;
	e.images.nb = IMAGES;
	snprintf(e.stem, sizeof(e.stem), "%s/run", dir);
	return e;
}

/* The file has these images, with their frame numbers. */
static void
check_file(const struct export *e, size_t nb)
{
	uint64_t frame[IMAGES] = {0};
	uint8_t chunk[CHUNK];
	char path[PATH_MAX];
	uint32_t filters;
	hsize_t dims[3], size;
	hid_t data, frames, space;
	struct h5 h;

	data_file_path(e, 0, path);
	h5_open(&h, path);
	assert_false(h.failed);
	data = H5Dopen2(h.file, "/entry/data/data", H5P_DEFAULT);
	space = H5Dget_space(data);
	assert_int_equal(H5Sget_simple_extent_dims(space, dims, NULL), 3);
	assert_int_equal(dims[0], nb);
	for (hsize_t i = 0; i < nb; i++) {
		const hsize_t place[] = {i, 0, 0};

		assert_true(H5Dget_chunk_storage_size(data, place, &size) >= 0);
		assert_int_equal(size, CHUNK);
		assert_true(H5Dread_chunk(data, H5P_DEFAULT, place, &filters, chunk) >= 0);
		assert_memory_equal(chunk, chunks[i], CHUNK);
	}
	H5Sclose(space);
	frames = H5Dopen2(h.file, "/entry/frames/frame", H5P_DEFAULT);
	space = H5Dget_space(frames);
	assert_int_equal(H5Sget_simple_extent_dims(space, dims, NULL), 1);
	assert_int_equal(dims[0], nb);
	assert_true(H5Dread(frames, H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, frame) >= 0);
	for (size_t i = 0; i < nb; i++)
		assert_int_equal(frame[i], 100 + i);
	H5Sclose(space);
	H5Dclose(frames);
	H5Dclose(data);
	assert_int_equal(h5_close(&h), 0);
	assert_int_equal(unlink(path), 0);
}

/* Adds images in one or two calls, of which the last one fails. */
static void
check_error(size_t before, size_t at)
{
	struct export e = new_export();
	struct growing_file g;

	missing = at;
	e.load_arg = &e;
	assert_int_equal(growing_file_open(&g, &e, 0), 0);
	if (before > 0)
		assert_int_equal(growing_file_add(&g, &e, before), 0);
	assert_int_equal(growing_file_add(&g, &e, IMAGES - before), -ENODATA);
	assert_non_null(strstr(e.message, "is missing"));
	assert_int_equal(g.nb, at);
	assert_int_equal(growing_file_close(&g, &e), 0);
	if (at > 0)
		check_file(&e, at);
}

static void
test_an_error_at_first_keeps_the_images_before_it(void **state)
{
	check_error(0, 5);
	check_error(0, 1);
}

static void
test_a_later_error_keeps_the_images_before_it(void **state)
{
	check_error(3, 5);
	check_error(3, 3);
}

static void
test_without_images_there_is_no_file(void **state)
{
	char path[PATH_MAX];
	struct export e = new_export();

	check_error(0, 0);
	data_file_path(&e, 0, path);
	assert_int_equal(access(path, F_OK), -1);
}

static void
test_all_images_are_read(void **state)
{
	struct export e = new_export();
	struct growing_file g;

	missing = IMAGES;
	e.load_arg = &e;
	assert_int_equal(growing_file_open(&g, &e, 0), 0);
	assert_int_equal(growing_file_add(&g, &e, 3), 0);
	assert_int_equal(growing_file_add(&g, &e, IMAGES - 3), 0);
	assert_int_equal(growing_file_close(&g, &e), 0);
	check_file(&e, IMAGES);
}

/* No file is left, also not an incomplete one. */
static int
remove_dir(void **state)
{
	return rmdir(dir);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_images_are_read),
		cmocka_unit_test(test_an_error_at_first_keeps_the_images_before_it),
		cmocka_unit_test(test_a_later_error_keeps_the_images_before_it),
		cmocka_unit_test(test_without_images_there_is_no_file),
	};

	return cmocka_run_group_tests(tests, make_images, remove_dir);
}
