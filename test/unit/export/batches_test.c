/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Batches of two files of a run, whose images alternate: each image has its batch, and a batch is
 * read once. ARROW_WRITE is the program that writes the files.
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
#include <unistd.h>

#include <cmocka.h>

#include "batches.h"
#include "scan/memory.h"
#include "scan/record.h"

#define IMAGES_MAX 1000

static char dir[] = "/tmp/batches_test.XXXXXX";
static struct scan_set sets[2];
static struct selection_image images[IMAGES_MAX];
static struct export e;
static struct batches *batches;

/* Images of both files, in turns. */
static void
select_images(void)
{
	size_t batch[2] = {0}, row[2] = {0};

	e.images = (struct selection){.image = images};
	for (unsigned int k = 0; e.images.nb < IMAGES_MAX; k ^= 1) {
		const struct arrow_reader *r = &sets[k].file[ARROW_IMAGES].reader;

		if (batch[k] == r->nb_batches)
			break;
		images[e.images.nb].image = (struct selection_row){
			.frame = e.images.nb, .set = k, .batch = batch[k], .row = row[k]};
		e.images.nb++;
		if (++row[k] == r->batches[batch[k]].rows) {
			row[k] = 0;
			batch[k]++;
		}
	}
}

static int
begin(void **state)
{
	e = (struct export){.run = {.set = sets, .nb_sets = 2}};
	select_images();
	return batches_open(&batches, &e);
}

static int
end(void **state)
{
	batches_close(batches);
	return 0;
}

static void
same_batch(size_t image)
{
	const struct selection_row *row = &images[image].image;
	const struct arrow_reader *r = &sets[row->set].file[ARROW_IMAGES].reader;
	const struct arrow_read_batch *b = &r->batches[row->batch];
	struct scan_record *record = NULL;

	assert_int_equal(e.load(e.load_arg, image, &record), 0);
	assert_int_equal(record->reader.size, b->metadata_size + b->body_length);
	assert_memory_equal(record->data, r->data + b->offset, record->reader.size);
	scan_record_drop(record);
}

static void
test_each_image_has_its_batch(void **state)
{
	/* sparse frames are read twice */
	for (unsigned int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < e.images.nb; i++)
			same_batch(i);
	assert_int_equal(batches_check(batches), 0);
}

/* A batch in memory is not read again, whatever its file has become. */
static void
test_a_batch_is_read_once(void **state)
{
	struct scan_file *f = &sets[0].file[ARROW_IMAGES];
	const uint64_t rows = f->reader.batches[0].rows;
	struct scan_record *record = NULL, *again = NULL;

	assert_true(rows > 2);
	assert_int_equal(e.load(e.load_arg, 0, &record), 0);
	assert_int_equal(e.load(e.load_arg, 2, &again), 0);
	assert_ptr_equal(record, again);
	scan_record_drop(again);
	/* the reference stays valid without the run */
	batches_close(batches);
	batches = NULL;
	assert_int_equal(record->batch.rows, rows);
	scan_record_drop(record);
}

static void
flip(const struct scan_file *f, uint64_t at)
{
	const int fd = open(f->path, O_RDWR);
	uint8_t byte;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 1;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

static void
test_damage_is_found_with_its_image(void **state)
{
	const struct scan_file *f = &sets[1].file[ARROW_IMAGES];
	const struct arrow_read_batch *b = &f->reader.batches[1];
	const uint64_t at = b->offset + b->metadata_size + b->body_length - ARROW_BLOCK;
	struct scan_record *record = NULL;
	size_t i;

	flip(f, at);
	for (i = 0; i < e.images.nb; i++) {
		if (images[i].image.set == 1 && images[i].image.batch == 1)
			break;
		same_batch(i);
	}
	assert_true(i > 0 && i < e.images.nb);
	assert_int_equal(e.load(e.load_arg, i, &record), -EUCLEAN);
	/* of images that are in files already */
	batches_close(batches);
	assert_int_equal(begin(NULL), 0);
	assert_int_equal(batches_check(batches), -EUCLEAN);
	/* the file has changed since all batches were checked */
	e.checked = true;
	assert_int_equal(batches_check(batches), -EIO);
	assert_non_null(strstr(e.message, "has changed"));
	flip(f, at);
	assert_int_equal(batches_check(batches), 0);
}

static void
test_a_file_that_is_gone_is_reported(void **state)
{
	struct scan_file *f = &sets[0].file[ARROW_IMAGES];
	struct scan_record *record = NULL;
	char path[PATH_MAX];

	memcpy(path, f->path, sizeof(path));
	strcat(f->path, ".none");
	assert_int_equal(e.load(e.load_arg, 0, &record), -ENOENT);
	assert_non_null(strstr(e.message, ".none: frame "));
	memcpy(f->path, path, sizeof(path));
}

static int
setup(void **state)
{
	const char *writer = getenv("ARROW_WRITE"), *problem;
	char command[1024];

	if (writer == NULL || mkdtemp(dir) == NULL)
		return -1;
	for (unsigned int k = 0; k < 2; k++) {
		struct scan_file *f = &sets[k].file[ARROW_IMAGES];

		snprintf(command, sizeof(command), "'%s' '%s' s%u int16+peaks 1 100 %u", writer,
			dir, k, k + 1);
		snprintf(f->path, sizeof(f->path), "%s/s%u_images.arrow", dir, k);
		if (system(command) != 0 || arrow_reader_open(&f->reader, f->path, &problem) < 0 ||
			f->reader.nb_batches < 3)
			return -1;
	}
	return 0;
}

static int
teardown(void **state)
{
	char command[64];

	for (unsigned int k = 0; k < 2; k++)
		arrow_reader_close(&sets[k].file[ARROW_IMAGES].reader);
	scan_memory_trim();
	snprintf(command, sizeof(command), "rm -r '%s'", dir);
	return system(command);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_each_image_has_its_batch, begin, end),
		cmocka_unit_test_setup_teardown(test_a_batch_is_read_once, begin, end),
		cmocka_unit_test_setup_teardown(test_damage_is_found_with_its_image, begin, end),
		cmocka_unit_test_setup_teardown(test_a_file_that_is_gone_is_reported, begin, end),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
