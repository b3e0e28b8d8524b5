/* SPDX-License-Identifier: BSD-3-Clause */
/* Which messages are written with non-temporal stores, and that these write the right bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/copy.h"

#define KIB 1024
#define MIB (1024 * KIB)

/* Messages that go through a ring. @return how many of the second half are streamed */
static unsigned int
go_through(uint64_t ring, uint32_t length, uint32_t step)
{
	struct roce_turn t = {0};
	const unsigned int turns = 4;
	unsigned int streamed = 0;

	for (unsigned int i = 0; i < turns; i++)
		for (uint64_t at = 0; at + step <= ring; at += step)
			streamed += roce_turn_next(&t, 4096 + at, length) && i >= turns / 2;
	return streamed;
}

static void
test_ring(void **state)
{
	/* what fits into a cache stays there */
	assert_int_equal(go_through(4 * KIB, 4 * KIB, 4 * KIB), 0);
	assert_int_equal(go_through(MIB, 4 * KIB, 4 * KIB), 0);
	/* from the second turn on, all messages of a longer ring are streamed */
	assert_int_equal(go_through(2 * MIB, 4 * KIB, 4 * KIB), 2 * 512);
	assert_int_equal(go_through(2 * MIB, KIB, KIB), 2 * 2048);
	/* bytes count, not the room between them */
	assert_int_equal(go_through(2 * MIB, KIB, 4 * KIB), 0);
	/* small messages never, long ones always */
	assert_int_equal(go_through(8 * MIB, KIB - 1, KIB), 0);
	assert_int_equal(go_through(64 * KIB, 32 * KIB, 32 * KIB), 2 * 2);
}

static void
test_changed_ring(void **state)
{
	struct roce_turn t = {0};

	for (uint64_t at = 1; at < 4 * MIB; at += 4 * KIB)
		roce_turn_next(&t, at, 4 * KIB);
	assert_true(roce_turn_next(&t, 4 * MIB, 4 * KIB));
	/* two messages at one address: the turn between them is short, and so was the last one */
	assert_true(roce_turn_next(&t, 4 * KIB, 4 * KIB));
	assert_false(roce_turn_next(&t, 4 * KIB, 4 * KIB));
}

/* All alignments of both ends, lengths around the limits of the copy. */
static void
test_bytes(void **state)
{
	static const size_t lengths[] = {0, 1, 63, 255, 256, 257, 319, 1024, 4095, 4096};
	uint8_t from[4096 + 64], to[4096 + 192], wanted[sizeof(to)];

	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (uint8_t)rand();
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		for (size_t a = 0; a < 64; a += 3)
			for (size_t b = 0; b < 64; b += 7) {
				memset(to, 0x5a, sizeof(to));
				memset(wanted, 0x5a, sizeof(wanted));
				memcpy(wanted + 64 + a, from + b, lengths[i]);
				roce_copy_stream(to + 64 + a, from + b, lengths[i]);
				roce_copy_fence();
				assert_memory_equal(to, wanted, sizeof(to));
			}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ring),
		cmocka_unit_test(test_changed_ring),
		cmocka_unit_test(test_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
