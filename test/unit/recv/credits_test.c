/* SPDX-License-Identifier: BSD-3-Clause */
/* Which slots of a ring are free: those of frames whose events were taken and that nobody uses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <rte_common.h>

#include "rx/credits.h"

#define SLOTS 8

static uint64_t slots[SLOTS];
static struct frame_use use;
static struct rx_credit credit;

static void
begin(void)
{
	memset(slots, 0, sizeof(slots));
	use = (struct frame_use){.mask = SLOTS - 1, .slot = slots};
	rx_credit_begin(&credit, 8, 1);
}

static uint64_t
advance(uint64_t last)
{
	rx_credit_advance(&credit, &use, last);
	return credit.free;
}

static void
frames_become_free(void **state)
{
	begin();
	assert_int_equal(advance(0), 0);
	for (uint64_t f = 1; f <= 4; f++)
		frame_use_take(&use, f);
	assert_int_equal(advance(5), 1);
	frame_use_place(&use, 1);
	frame_use_free(&use, 2); /* dropped; 1 is still in use */
	assert_int_equal(advance(5), 1);
	frame_use_free(&use, 1);
	assert_int_equal(advance(5), 3);
	frame_use_free(&use, 3);
	frame_use_free(&use, 4);
	/* what has had no event is not free */
	assert_int_equal(advance(5), 5);
	assert_int_equal(use.count, 0);
	(void)state;
}

static void
first_credit_waits_for_earlier_connections(void **state)
{
	begin();
	frame_use_take(&use, 1000);
	frame_use_place(&use, 1000);
	advance(1001);
	assert_false(credit.known);
	frame_use_free(&use, 1000);
	assert_int_equal(advance(1001), 1001);
	assert_true(credit.known);
	(void)state;
}

static void
numbers_may_jump(void **state)
{
	begin();
	advance(0);
	frame_use_take(&use, 5);
	assert_int_equal(advance(6), 5);
	frame_use_free(&use, 5);
	frame_use_take(&use, 1000000);
	assert_int_equal(advance(1000001), 1000000);
	frame_use_free(&use, 1000000);
	frame_use_take(&use, 3);
	assert_int_equal(advance(4), 3);
	(void)state;
}

static void
an_overwritten_frame_is_discarded(void **state)
{
	begin();
	advance(0);
	frame_use_take(&use, 1);
	frame_use_place(&use, 1);
	frame_use_take(&use, 1); /* its event came again */
	assert_true(frame_use_is_placed(&use, 1));
	assert_int_equal(use.count, 1);
	frame_use_take(&use, 1 + SLOTS);
	assert_int_equal(use.count, 1);
	frame_use_free(&use, 1);
	assert_true(frame_use_has(&use, 1 + SLOTS));
	assert_int_equal(advance(2 + SLOTS), 1 + SLOTS);
	(void)state;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_become_free),
		cmocka_unit_test(first_credit_waits_for_earlier_connections),
		cmocka_unit_test(numbers_may_jump),
		cmocka_unit_test(an_overwritten_frame_is_discarded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
