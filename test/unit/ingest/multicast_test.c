/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests the header of fragments of multicast streams. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ingest/multicast.h"

#define MAX	4032 /* bytes of a message in a fragment, path MTU 4,096 */
#define MESSAGE 8256

static const struct ingest_fragment last = {
	.stream = 0x0102,
	.frame = 0x1122334455667788,
	.tile = 127,
	.offset = 2 * MAX,
	.message = MESSAGE,
	.tiles = 128,
};

/* @return that of ingest_fragment_decode() of a header and as many bytes */
static int
decode(const struct ingest_fragment *f, uint32_t bytes, struct ingest_fragment *out)
{
	uint8_t packet[sizeof(*f) + MESSAGE] = {0};

	ingest_fragment_encode(f, packet);
	return ingest_fragment_decode(packet, sizeof(*f) + bytes, MAX, out);
}

static void
fields_are_little_endian(void **state)
{
	static const uint8_t expected[32] = {'B', 'L', 'M', 'F', 1, 0, 0x02, 0x01, 0x88, 0x77, 0x66,
		0x55, 0x44, 0x33, 0x22, 0x11, 127, 0, 0, 0, 0x80, 0x1F, 0, 0, 0x40, 0x20, 0, 0, 128,
		0, 0, 0};
	uint8_t packet[sizeof(struct ingest_fragment)];
	struct ingest_fragment out;

	ingest_fragment_encode(&last, packet);
	assert_memory_equal(packet, expected, sizeof(expected));
	assert_int_equal(decode(&last, MESSAGE - 2 * MAX, &out), 0);
	assert_int_equal(out.magic, INGEST_FRAGMENT_MAGIC);
	assert_int_equal(out.version, INGEST_FRAGMENT_VERSION);
	assert_int_equal(out.stream, last.stream);
	assert_true(out.frame == last.frame);
	assert_int_equal(out.tile, last.tile);
	assert_int_equal(out.offset, last.offset);
	assert_int_equal(out.message, last.message);
	assert_int_equal(out.tiles, last.tiles);
}

static void
fragments_fill_the_mtu_with_whole_lines(void **state)
{
	assert_int_equal(ingest_fragment_max(4096 - 32), MAX);
	assert_int_equal(ingest_fragment_max(1024 - 32), 960);
	assert_int_equal(ingest_fragment_max(256 - 32), 192);
}

static void
offset_and_length_agree_with_the_message(void **state)
{
	static const struct {
		uint32_t offset, message, bytes;
		int expected;
	} cases[] = {
		{0, MESSAGE, MAX, 0},
		{MAX, MESSAGE, MAX, 0},
		{2 * MAX, MESSAGE, 192, 0},
		{0, 1, 1, 0},
		{0, MAX, MAX, 0},
		/* no data; more than fits */
		{0, MESSAGE, 0, -EINVAL},
		{0, MESSAGE, MAX + 1, -EINVAL},
		/* short, and not the last one */
		{0, MESSAGE, MAX - 1, -EINVAL},
		{MAX, MESSAGE, 192, -EINVAL},
		/* not at the beginning of a fragment */
		{1, MESSAGE, MAX, -EINVAL},
		{MAX - 64, MESSAGE, MAX, -EINVAL},
		/* after the message */
		{2 * MAX, MESSAGE, 191, -EINVAL},
		{2 * MAX, MESSAGE, 193, -EINVAL},
		{3 * MAX, MESSAGE, 1, -EINVAL},
		{0, 0, 1, -EINVAL},
		/* sums that do not fit 32 bits */
		{UINT32_MAX / MAX * MAX, UINT32_MAX, MAX, -EINVAL},
		{UINT32_MAX / MAX * MAX, MAX, MAX, -EINVAL},
	};
	struct ingest_fragment f = last, out;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		f.offset = cases[i].offset;
		f.message = cases[i].message;
		if (decode(&f, cases[i].bytes, &out) != cases[i].expected)
			fail_msg("case %zu", i);
	}
}

static void
events_have_no_data(void **state)
{
	struct ingest_fragment f = {.frame = 7, .tile = INGEST_EVENT, .tiles = 128}, out;

	assert_int_equal(decode(&f, 0, &out), 0);
	assert_true(out.tile == INGEST_EVENT && out.frame == 7);
	assert_int_equal(decode(&f, 1, &out), -EINVAL);
	f.message = 1;
	assert_int_equal(decode(&f, 0, &out), -EINVAL);
	f.message = 0;
	f.offset = MAX;
	assert_int_equal(decode(&f, 0, &out), -EINVAL);
}

static void
other_packets_are_refused(void **state)
{
	uint8_t packet[sizeof(struct ingest_fragment) + 192] = {0};
	struct ingest_fragment out;

	ingest_fragment_encode(&last, packet);
	for (size_t length = 0; length < sizeof(packet); length++)
		assert_int_equal(ingest_fragment_decode(packet, length, MAX, &out), -EINVAL);
	assert_int_equal(ingest_fragment_decode(packet, sizeof(packet), MAX, &out), 0);
	/* magic and version */
	for (size_t i = 0; i < 6; i++) {
		packet[i] ^= 1;
		assert_int_equal(
			ingest_fragment_decode(packet, sizeof(packet), MAX, &out), -EINVAL);
		packet[i] ^= 1;
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields_are_little_endian),
		cmocka_unit_test(fragments_fill_the_mtu_with_whole_lines),
		cmocka_unit_test(offset_and_length_agree_with_the_message),
		cmocka_unit_test(events_have_no_data),
		cmocka_unit_test(other_packets_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
