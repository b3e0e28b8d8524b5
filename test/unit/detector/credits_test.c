/* SPDX-License-Identifier: BSD-3-Clause */
/* A detector never laps the ring of its receiver, even if the receiver writes wrong credits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <rte_byteorder.h>

#include "transmit/credits.h"

#define SLOTS 4

static uint64_t word;
static struct transmit_credit credit;

static void
begin(void)
{
	word = TRANSMIT_CREDIT_NONE;
	credit = (struct transmit_credit){.word = &word, .slots = SLOTS};
}

static void
set_word(uint64_t value)
{
	word = rte_cpu_to_le_64(value);
}

/* Begin frames from `number` on, until one must wait. @return how many */
static uint32_t
take(uint64_t pulse, uint64_t number)
{
	uint32_t n = 0;

	while (n < 100 && transmit_credit_take(&credit, pulse + n, number + n))
		n++;
	return n;
}

static void
waits_for_the_first_credit(void **state)
{
	begin();
	assert_int_equal(take(0, 1000), 0);
	/* a receiver that had another detector before has another number */
	set_word(7);
	assert_int_equal(take(0, 1000), SLOTS);
	(void)state;
}

static void
slots_become_free(void **state)
{
	begin();
	set_word(0);
	assert_int_equal(take(1, 1), SLOTS);
	/* the frame has begun: its other packets, and delayed ones, do not wait */
	assert_true(transmit_credit_take(&credit, SLOTS, SLOTS));
	assert_true(transmit_credit_take(&credit, 1, 1));
	set_word(2);
	assert_int_equal(take(5, 5), 1);
	set_word(6);
	assert_int_equal(take(6, 6), SLOTS);
	(void)state;
}

static void
hostile_credits_are_ignored(void **state)
{
	static const uint64_t words[] = {0, 1, 12, 100, UINT64_MAX - 1, UINT64_MAX, 1ull << 63, 9};

	begin();
	set_word(0);
	assert_int_equal(take(1, 1), SLOTS);
	set_word(3);
	assert_int_equal(take(5, 5), 2);
	for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		set_word(words[i]);
		assert_int_equal(take(7, 7), 0);
	}
	set_word(7); /* frame 6 is free, too */
	assert_int_equal(take(7, 7), SLOTS);
	(void)state;
}

static void
numbers_go_on_when_all_is_free(void **state)
{
	begin();
	set_word(0);
	assert_int_equal(take(1, 1), SLOTS);
	set_word(4);
	/* back, and forward over more than the ring */
	assert_int_equal(take(5, 1), 0);
	assert_int_equal(take(5, 1000), 0);
	set_word(5);
	assert_int_equal(take(5, 1000), SLOTS);
	assert_int_equal(take(9, 1), 0);
	set_word(1004);
	assert_int_equal(take(9, 1), SLOTS);
	/* the credit of before the restart stays in the word for a while */
	assert_int_equal(take(13, 5), 0);
	set_word(2);
	assert_int_equal(take(13, 5), 1);
	(void)state;
}

static void
a_silent_stream_is_not_stuck(void **state)
{
	begin();
	set_word(0);
	assert_int_equal(take(1, 1), SLOTS);
	set_word(5);
	/* frames 5 to 999 are not sent: the receiver does not report them */
	assert_int_equal(take(1000, 1000), SLOTS);
	(void)state;
}

static void
without_credits_nothing_waits(void **state)
{
	credit = (struct transmit_credit){0};
	assert_int_equal(take(0, 0), 100);
	(void)state;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(waits_for_the_first_credit),
		cmocka_unit_test(slots_become_free),
		cmocka_unit_test(hostile_credits_are_ignored),
		cmocka_unit_test(numbers_go_on_when_all_is_free),
		cmocka_unit_test(a_silent_stream_is_not_stuck),
		cmocka_unit_test(without_credits_nothing_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
