/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A file that is followed while it is written, damaged, truncated or written again. ARROW_WRITE is
 * the program that writes the files.
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

#include "arrow/format.h"
#include "follow_file.h"
#include "scan/memory.h"

static char dir[] = "/tmp/follow_file_test.XXXXXX";
static char part[64], whole[64];
static struct arrow_reader all; /* the complete file */
static struct scan_run run;
static struct scan_file file;
static struct follow_file g;
static int fd; /* of the writer */

static uint64_t
end_of(size_t batch)
{
	const struct arrow_read_batch *b = &all.batches[batch];

	return b->offset + b->metadata_size + b->body_length;
}

static void
write_at(uint64_t at, uint64_t end)
{
	assert_int_equal(pwrite(fd, all.data + at, end - at, at), end - at);
}

/* Begins a file with some batches, and opens it. */
static int
begin(void **state)
{
	memset(&run, 0, sizeof(run));
	memset(&file, 0, sizeof(file));
	snprintf(file.path, sizeof(file.path), "%s", part);
	unlink(whole);
	fd = open(part, O_RDWR | O_CREAT | O_TRUNC, 0644);
	assert_true(fd >= 0);
	write_at(0, all.begin);
	return follow_file_open(&g, &run, &file, ARROW_IMAGES);
}

static int
end(void **state)
{
	follow_file_close(&g);
	assert_false(file.present);
	close(fd);
	unlink(part);
	return 0;
}

static void
read_batches(size_t first, size_t to)
{
	for (size_t i = first; i < to; i++) {
		assert_int_equal(follow_file_next(&g), 0);
		write_at(i == 0 ? all.begin : end_of(i - 1), end_of(i));
		assert_int_equal(follow_file_next(&g), 1);
		assert_int_equal(file.reader.nb_batches, i + 1);
	}
	assert_int_equal(follow_file_next(&g), 0);
}

/* The body that is loaded is that of the file. */
static void
same_body(size_t batch, size_t as)
{
	const struct arrow_read_batch *b = &file.reader.batches[batch];

	assert_int_equal(b->body_length, all.batches[as].body_length);
	assert_memory_equal(b->body, all.batches[as].body, b->body_length);
}

/* Lists of peaks can be read, with pixels or without. */
static void
same_peaks(size_t batch)
{
	struct scan_peaks a, b;

	assert_int_equal(scan_peaks_open(&file.reader, batch, &a), 0);
	assert_int_equal(scan_peaks_open(&all, batch, &b), 0);
	assert_int_equal(a.list[0].items, b.list[0].items);
	assert_memory_equal(a.list[0].data, b.list[0].data, 4 * a.list[0].items);
}

static void
test_a_file_without_schema_is_not_open(void **state)
{
	end(NULL);
	fd = open(part, O_RDWR | O_CREAT | O_TRUNC, 0644);
	assert_int_equal(follow_file_open(&g, &run, &file, ARROW_IMAGES), -EAGAIN);
	write_at(0, all.begin - 1);
	assert_int_equal(follow_file_open(&g, &run, &file, ARROW_IMAGES), -EAGAIN);
	write_at(0, all.begin);
	assert_int_equal(follow_file_open(&g, &run, &file, ARROW_FRAMES), -EBADMSG);
	assert_int_equal(follow_file_open(&g, &run, &file, ARROW_IMAGES), 0);
}

static void
test_batches_come_when_they_are_whole(void **state)
{
	read_batches(0, all.nb_batches);
	for (size_t i = 0; i < all.nb_batches; i++)
		same_peaks(i);
	same_body(all.nb_batches - 1, all.nb_batches - 1);
	write_at(end_of(all.nb_batches - 1), all.size);
	assert_int_equal(follow_file_next(&g), 0);
	assert_false(follow_file_ended(&g));
	assert_int_equal(rename(part, whole), 0);
	assert_int_equal(follow_file_next(&g), 0);
	assert_true(follow_file_ended(&g));
	assert_string_equal(file.path, whole);
	assert_int_equal(file.damaged, 0);
}

static void
test_pixels_are_loaded_again(void **state)
{
	read_batches(0, 3);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(follow_file_load(&g, i), 0);
		same_body(i, i);
	}
	assert_int_equal(follow_file_load(&g, 0), 0);
	assert_int_equal(follow_file_load(&g, 0), 0);
	follow_file_forget(&g);
	same_peaks(0);
	/* bytes that have changed are not the batch any more */
	assert_int_equal(pwrite(fd, "changed", 7, end_of(0) - ARROW_BLOCK), 7);
	assert_int_equal(follow_file_load(&g, 0), -ENODATA);
	same_peaks(0);
}

/* A store gives batches back that another store has, and writes others. */
static void
test_a_truncated_file_is_followed(void **state)
{
	size_t longer = 2;
	uint64_t length;

	/* longer than the batch that is replaced */
	while (end_of(longer) - end_of(longer - 1) <= end_of(1) - end_of(0))
		assert_true(++longer < all.nb_batches);
	length = end_of(longer) - end_of(longer - 1);
	read_batches(0, 3);
	assert_int_equal(ftruncate(fd, end_of(0)), 0);
	assert_int_equal(follow_file_next(&g), 0);
	same_peaks(1);
	same_peaks(2);
	assert_int_equal(follow_file_load(&g, 1), -ENODATA);
	assert_int_equal(follow_file_load(&g, 0), 0);
	assert_int_equal(pwrite(fd, all.data + end_of(longer - 1), length, end_of(0)), length);
	assert_int_equal(follow_file_next(&g), 1);
	assert_int_equal(file.reader.nb_batches, 4);
	same_body(3, longer);
	/* another batch is in its place */
	assert_int_equal(follow_file_load(&g, 1), -ENODATA);
	assert_int_equal(follow_file_load(&g, 3), 0);
	/* its end is lost: the file still has the end of the first batch only */
	assert_int_equal(ftruncate(fd, end_of(0) + length - ARROW_BLOCK), 0);
	assert_int_equal(follow_file_next(&g), 0);
	assert_int_equal(pwrite(fd, all.data + end_of(longer) - ARROW_BLOCK, ARROW_BLOCK,
				 end_of(0) + length - ARROW_BLOCK),
		ARROW_BLOCK);
	assert_int_equal(follow_file_next(&g), 1);
	same_body(4, longer);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(follow_file_next(&g), 0);
	assert_int_equal(follow_file_load(&g, 0), -ENODATA);
	same_peaks(0);
}

static void
test_damage_loses_one_batch(void **state)
{
	const uint64_t body = end_of(0) - ARROW_BLOCK;
	const uint64_t announcement = all.batches[2].offset + ARROW_PREFIX + 20;

	write_at(0, all.size);
	assert_int_equal(pwrite(fd, "damaged", 7, body), 7);
	assert_int_equal(pwrite(fd, "damaged", 7, announcement), 7);
	assert_int_equal(follow_file_next(&g), 0);
	assert_int_equal(rename(part, whole), 0);
	assert_int_equal(follow_file_next(&g), -EBADMSG);
	assert_int_equal(follow_file_next(&g), 1);
	same_body(0, 1);
	assert_int_equal(follow_file_next(&g), -EBADMSG);
	for (size_t i = 3; i < all.nb_batches; i++) {
		assert_int_equal(follow_file_next(&g), 1);
		same_body(i - 2, i);
	}
	assert_int_equal(follow_file_next(&g), 0);
	assert_true(follow_file_ended(&g));
	assert_int_equal(file.damaged, 2);
}

/* A file that was renamed though it is torn, or whose writer has gone. */
static void
test_a_torn_end_is_left_out_once(void **state)
{
	write_at(0, end_of(2) - ARROW_BLOCK);
	assert_int_equal(follow_file_next(&g), 1);
	assert_int_equal(follow_file_next(&g), 1);
	assert_int_equal(follow_file_next(&g), 0);
	assert_int_equal(unlink(part), 0);
	/* it may be the start of a copy */
	assert_int_equal(follow_file_next(&g), 0);
	assert_false(follow_file_ended(&g));
	g.change.seen_ns -= SCAN_SETTLED_MS * INT64_C(1000000);
	assert_int_equal(follow_file_next(&g), -EBADMSG);
	assert_true(follow_file_ended(&g));
	for (int i = 0; i < 3; i++)
		assert_int_equal(follow_file_next(&g), 0);
	assert_int_equal(file.damaged, 1);
}

/* As cp and rsync --inplace do it: the name is there first. */
static void
test_a_copy_grows_under_its_name(void **state)
{
	const uint64_t step = 3 * ARROW_BLOCK;
	uint64_t at = all.begin;
	size_t nb = 0;
	int ret;

	assert_int_equal(rename(part, whole), 0);
	for (; at < all.size; at += step) {
		write_at(at, at + step < all.size ? at + step : all.size);
		while ((ret = follow_file_next(&g)) == 1)
			nb++;
		assert_int_equal(ret, 0);
	}
	assert_int_equal(nb, all.nb_batches);
	assert_true(follow_file_ended(&g));
	assert_int_equal(file.damaged, 0);
}

static void
test_a_copy_without_its_end_is_damaged(void **state)
{
	assert_int_equal(rename(part, whole), 0);
	write_at(0, end_of(1));
	assert_int_equal(follow_file_next(&g), 1);
	assert_int_equal(follow_file_next(&g), 1);
	assert_int_equal(follow_file_next(&g), 0);
	g.change.seen_ns -= SCAN_SETTLED_MS * INT64_C(1000000);
	assert_int_equal(follow_file_next(&g), -EBADMSG);
	assert_int_equal(follow_file_next(&g), 0);
	assert_true(follow_file_ended(&g));
	assert_int_equal(file.damaged, 1);
}

/* After a signal, a file that grows for ever ends. */
static void
test_a_stop_ends_at_what_is_there(void **state)
{
	write_at(0, end_of(1) - ARROW_BLOCK);
	follow_file_stop(&g);
	write_at(0, all.size);
	assert_int_equal(follow_file_next(&g), 1);
	assert_int_equal(follow_file_next(&g), 1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(follow_file_next(&g), 0);
	/* a named file should have its end */
	assert_int_equal(rename(part, whole), 0);
	assert_int_equal(follow_file_next(&g), -EBADMSG);
	assert_int_equal(follow_file_next(&g), 0);
	assert_true(follow_file_ended(&g));
}

static int
setup(void **state)
{
	const char *writer = getenv("ARROW_WRITE"), *problem;
	char command[1024];

	if (writer == NULL || mkdtemp(dir) == NULL)
		return -1;
	snprintf(command, sizeof(command), "'%s' '%s' all int16+peaks 1 200 5", writer, dir);
	if (system(command) != 0)
		return -1;
	snprintf(part, sizeof(part), "%s/g_images.arrow.part", dir);
	snprintf(whole, sizeof(whole), "%s/g_images.arrow", dir);
	snprintf(command, sizeof(command), "%s/all_images.arrow", dir);
	return arrow_reader_open(&all, command, &problem) == 0 && all.nb_batches > 3 ? 0 : -1;
}

static int
teardown(void **state)
{
	char command[64];

	arrow_reader_close(&all);
	scan_memory_trim();
	snprintf(command, sizeof(command), "rm -r '%s'", dir);
	return system(command);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_file_without_schema_is_not_open, begin, end),
		cmocka_unit_test_setup_teardown(test_batches_come_when_they_are_whole, begin, end),
		cmocka_unit_test_setup_teardown(test_pixels_are_loaded_again, begin, end),
		cmocka_unit_test_setup_teardown(test_a_truncated_file_is_followed, begin, end),
		cmocka_unit_test_setup_teardown(test_damage_loses_one_batch, begin, end),
		cmocka_unit_test_setup_teardown(test_a_torn_end_is_left_out_once, begin, end),
		cmocka_unit_test_setup_teardown(test_a_copy_grows_under_its_name, begin, end),
		cmocka_unit_test_setup_teardown(test_a_copy_without_its_end_is_damaged, begin, end),
		cmocka_unit_test_setup_teardown(test_a_stop_ends_at_what_is_there, begin, end),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
