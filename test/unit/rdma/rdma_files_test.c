/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests files that a member makes from the packets of braggline-rdma push. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "arrow/crc32c.h"
#include "files/incoming.h"
#include "files/record.h"

static char dir[64];
static struct incoming in;

static int
setup(void **state)
{
	snprintf(dir, sizeof(dir), "/dev/shm/braggline-files-test-XXXXXX");
	assert_non_null(mkdtemp(dir));
	assert_int_equal(incoming_open(&in, dir), 0);
	return 0;
}

static const char *
path_of(const char *name)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

/* Number of entries of the directory, and remove them. */
static unsigned int
empty_directory(void)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	unsigned int n = 0;

	assert_non_null(d);
	while ((e = readdir(d)) != NULL)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
			n++;
			if (unlink(path_of(e->d_name)) < 0)
				rmdir(path_of(e->d_name));
		}
	closedir(d);
	return n;
}

static int
teardown(void **state)
{
	incoming_close(&in);
	empty_directory();
	rmdir(dir);
	return 0;
}

static int
take(enum record_type type, uint32_t file, uint64_t offset, uint32_t crc, const char *text)
{
	const struct record r = {
		.type = (uint16_t)type, .file = file, .offset = offset, .crc = crc};
	uint8_t packet[512];

	record_encode(&r, packet);
	memcpy(packet + sizeof(r), text, strlen(text));
	return incoming_take(&in, packet, sizeof(r) + strlen(text));
}

static int
take_file(uint32_t number, const char *name, const char *text)
{
	const uint32_t crc = arrow_crc32c(0, text, strlen(text));
	int ret = take(RECORD_BEGIN, number, strlen(text), 0, name);

	if (ret == 0 && text[0] != '\0')
		ret = take(RECORD_DATA, number, 0, 0, text);
	return ret == 0 ? take(RECORD_END, number, strlen(text), crc, "") : ret;
}

static void
expect_file(const char *name, const char *text)
{
	char found[64] = "";
	FILE *f = fopen(path_of(name), "r");

	assert_non_null(f);
	assert_int_equal(fread(found, 1, sizeof(found) - 1, f), strlen(text));
	fclose(f);
	assert_string_equal(found, text);
}

static void
files_are_made_in_order(void **state)
{
	assert_int_equal(take_file(0, "gain", "12345"), 0);
	assert_int_equal(take(RECORD_BEGIN, 1, 6, 0, "mask"), 0);
	assert_int_equal(access(path_of(".mask.part"), F_OK), 0);
	assert_int_equal(take(RECORD_DATA, 1, 0, 0, "abc"), 0);
	assert_int_equal(take(RECORD_DATA, 1, 3, 0, "def"), 0);
	assert_int_equal(access(path_of("mask"), F_OK), -1);
	assert_int_equal(take(RECORD_END, 1, 6, arrow_crc32c(0, "abcdef", 6), ""), 0);
	assert_int_equal(take_file(2, "empty", ""), 0);
	assert_false(in.done);
	assert_int_equal(take(RECORD_DONE, 3, 0, 0, ""), 0);
	assert_true(in.done);
	assert_int_equal(in.files, 3);
	assert_true(in.bytes == 11);
	expect_file("gain", "12345");
	expect_file("mask", "abcdef");
	expect_file("empty", "");
	/* after the end */
	assert_int_equal(take(RECORD_BEGIN, 3, 1, 0, "more"), -EPROTO);
	assert_int_equal(take(RECORD_DONE, 3, 0, 0, ""), -EPROTO);
	assert_int_equal(empty_directory(), 3);
}

static void
records_out_of_order_are_refused(void **state)
{
	assert_int_equal(take(RECORD_DATA, 0, 0, 0, "x"), -EPROTO);
	assert_int_equal(take(RECORD_END, 0, 0, 0, ""), -EPROTO);
	assert_int_equal(take(RECORD_BEGIN, 1, 1, 0, "a"), -EPROTO);
	assert_int_equal(take(RECORD_DONE, 1, 0, 0, ""), -EPROTO);
	assert_int_equal(take(RECORD_BEGIN, 0, 4, 0, "a"), 0);
	assert_int_equal(take(RECORD_BEGIN, 0, 4, 0, "a"), -EPROTO);
	assert_int_equal(take(RECORD_DONE, 0, 0, 0, ""), -EPROTO);
	assert_int_equal(take(RECORD_DATA, 0, 1, 0, "x"), -EPROTO);
	assert_int_equal(take(RECORD_DATA, 1, 0, 0, "x"), -EPROTO);
	/* longer than the file */
	assert_int_equal(take(RECORD_DATA, 0, 0, 0, "12345"), -EPROTO);
	assert_int_equal(take(RECORD_DATA, 0, 0, 0, "123"), 0);
	assert_int_equal(take(RECORD_END, 0, 4, 0, ""), -EPROTO);
	assert_int_equal(take(RECORD_END, 0, 3, 0, ""), -EPROTO);
	assert_non_null(strstr(in.message, "expected more of file 0"));
	incoming_close(&in);
	assert_int_equal(empty_directory(), 0);
}

static void
a_wrong_crc_makes_no_file(void **state)
{
	assert_int_equal(take_file(0, "a", "old"), 0);
	incoming_restart(&in);
	assert_int_equal(take(RECORD_BEGIN, 0, 3, 0, "a"), 0);
	assert_int_equal(take(RECORD_DATA, 0, 0, 0, "new"), 0);
	assert_int_equal(take(RECORD_END, 0, 3, 1, ""), -EILSEQ);
	expect_file("a", "old");
	/* the sender begins again */
	incoming_restart(&in);
	assert_int_equal(take_file(0, "a", "new"), 0);
	expect_file("a", "new");
	assert_int_equal(empty_directory(), 1);
}

/* The first packet of a file, at its place in a run. */
static int
place_first(uint64_t run, uint64_t sequence, uint64_t lost)
{
	const int ret = incoming_place(&in, run, sequence, lost);

	if (ret == 1)
		assert_int_equal(take(RECORD_BEGIN, 0, 3, 0, "a"), 0);
	return ret;
}

/* A loss ends a run, but the sender may have been started again. */
static void
a_new_run_follows_a_loss(void **state)
{
	assert_int_equal(incoming_lost(&in, 1), 0);
	assert_int_equal(place_first(1, 0, 0), 1);
	assert_int_equal(incoming_lost(&in, 1), 0);
	assert_int_equal(incoming_place(&in, 1, 2, 1), 0);
	assert_int_equal(incoming_place(&in, 1, 3, 0), 0);
	assert_int_equal(incoming_place(&in, 1, 9, 5), 0);
	assert_int_equal(incoming_lost(&in, 1), -EIO);
	assert_non_null(strstr(in.message, "6 packets are lost permanently"));
	/* the membership has a new run, whose packets come later */
	assert_int_equal(incoming_lost(&in, 2), 0);
	assert_int_equal(place_first(2, 0, 0), 1);
	assert_int_equal(incoming_lost(&in, 2), 0);
	assert_int_equal(incoming_place(&in, 2, 1, 0), 1);
	assert_int_equal(take(RECORD_DATA, 0, 0, 0, "new"), 0);
	assert_int_equal(take(RECORD_END, 0, 3, arrow_crc32c(0, "new", 3), ""), 0);
	expect_file("a", "new");
	/* the first packets of a run are lost; it is joined too late */
	assert_int_equal(place_first(3, 4, 4), 0);
	assert_int_equal(incoming_lost(&in, 3), -EIO);
	assert_int_equal(place_first(4, 4, 3), -ESTALE);
	assert_non_null(strstr(in.message, "joined after the first file had begun"));
	assert_int_equal(empty_directory(), 1);
}

static void
names_stay_in_the_directory(void **state)
{
	static const char *const bad[] = {
		"", ".", "..", ".hidden", "a/b", "/a", "../a", "a\nb", "\x7f"};
	char longest[RECORD_NAME_MAX + 2];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(take(RECORD_BEGIN, 0, 1, 0, bad[i]), -EPROTO);
	memset(longest, 'a', sizeof(longest));
	longest[RECORD_NAME_MAX + 1] = '\0';
	assert_int_equal(take(RECORD_BEGIN, 0, 1, 0, longest), -EPROTO);
	/* a zero byte ends the name for the kernel, but not here */
	assert_false(record_name_check("a\0b", 3));
	longest[RECORD_NAME_MAX] = '\0';
	assert_int_equal(take_file(0, longest, "x"), 0);
	assert_int_equal(take_file(1, "caf\xc3\xa9 1.bin", "x"), 0);
	assert_int_equal(empty_directory(), 2);
}

static void
only_regular_files_are_replaced(void **state)
{
	char target[512];

	snprintf(target, sizeof(target), "%s", path_of("target"));
	assert_int_equal(symlink(target, path_of("link")), 0);
	assert_int_equal(mkdir(path_of("folder"), 0755), 0);
	assert_int_equal(mkfifo(path_of("fifo"), 0600), 0);
	assert_int_equal(take(RECORD_BEGIN, 0, 1, 0, "link"), -EEXIST);
	assert_int_equal(take(RECORD_BEGIN, 0, 1, 0, "folder"), -EEXIST);
	assert_int_equal(take(RECORD_BEGIN, 0, 1, 0, "fifo"), -EEXIST);
	assert_non_null(strstr(in.message, "fifo: exists and is not a regular file"));
	/* it appears meanwhile */
	assert_int_equal(take(RECORD_BEGIN, 0, 1, 0, "late"), 0);
	assert_int_equal(take(RECORD_DATA, 0, 0, 0, "x"), 0);
	assert_int_equal(symlink(target, path_of("late")), 0);
	assert_int_equal(take(RECORD_END, 0, 1, arrow_crc32c(0, "x", 1), ""), -EEXIST);
	incoming_restart(&in);
	/* a link with the name of an incomplete file is not followed */
	assert_int_equal(symlink(target, path_of(".a.part")), 0);
	assert_int_equal(take_file(0, "a", "x"), 0);
	assert_int_equal(access(target, F_OK), -1);
	assert_int_equal(empty_directory(), 5);
}

static void
impossible_sizes_are_refused(void **state)
{
	assert_true(take(RECORD_BEGIN, 0, UINT64_MAX, 0, "a") < 0);
	incoming_restart(&in);
	assert_true(take(RECORD_BEGIN, 0, INT64_MAX, 0, "a") < 0);
	incoming_restart(&in);
	assert_int_equal(empty_directory(), 0);
}

static void
one_process_uses_a_directory(void **state)
{
	struct incoming other;

	assert_int_equal(incoming_open(&other, dir), -EBUSY);
	assert_non_null(strstr(other.message, "another process fetches into it"));
	incoming_close(&other);
	assert_true(incoming_open(&other, "/dev/shm/braggline-none/none") < 0);
	incoming_close(&other);
}

static void
other_packets_are_refused(void **state)
{
	const struct record r = {.type = RECORD_BEGIN, .offset = 1};
	uint8_t packet[sizeof(r) + 1];

	record_encode(&r, packet);
	packet[sizeof(r)] = 'a';
	for (size_t length = 0; length < sizeof(packet); length++)
		assert_int_equal(incoming_take(&in, packet, length), -EPROTO);
	for (size_t i = 0; i < 8; i++) {
		packet[i] ^= 0x40;
		assert_int_equal(incoming_take(&in, packet, sizeof(packet)), -EPROTO);
		packet[i] ^= 0x40;
	}
	assert_int_equal(incoming_take(&in, packet, sizeof(packet)), 0);
	/* data without bytes; an end and a last record with some */
	assert_int_equal(take(RECORD_DATA, 0, 0, 0, ""), -EPROTO);
	assert_int_equal(take(RECORD_END, 0, 1, 0, "x"), -EPROTO);
	assert_int_equal(take(RECORD_DONE, 0, 0, 0, "x"), -EPROTO);
}

int
main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(files_are_made_in_order),
		TEST(records_out_of_order_are_refused),
		TEST(a_wrong_crc_makes_no_file),
		TEST(a_new_run_follows_a_loss),
		TEST(names_stay_in_the_directory),
		TEST(only_regular_files_are_replaced),
		TEST(impossible_sizes_are_refused),
		TEST(one_process_uses_a_directory),
		TEST(other_packets_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
