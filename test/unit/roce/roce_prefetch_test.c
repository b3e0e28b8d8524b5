/* SPDX-License-Identifier: BSD-3-Clause */
/* When payloads are prefetched whose CRC is checked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/prefetch.h"

#define BURST (16u * 4096)

/* Cycles of a burst, with prefetches and without. */
struct cost {
	uint64_t on, off;
};

/* Bursts of one size. Each fifth is interrupted. @return how many were prefetched */
static unsigned int
receive(struct roce_prefetch *p, struct cost cost, uint64_t bytes, unsigned int bursts)
{
	unsigned int on = 0;

	for (unsigned int i = 0; i < bursts; i++) {
		const uint64_t cycles = p->off ? cost.off : cost.on;

		on += !p->off;
		roce_prefetch_update(p, cycles + (i % 5 == 0 ? 1000000000 : 0), bytes);
	}
	return on;
}

static void
test_choice(void **state)
{
	struct roce_prefetch p = {0};

	/* until it is known, they are prefetched in every second burst */
	assert_int_equal(receive(&p, (struct cost){9000, 8000}, BURST, ROCE_PREFETCH_TRIALS),
		ROCE_PREFETCH_TRIALS / 2);
	assert_int_equal(receive(&p, (struct cost){9000, 8000}, BURST, 1000), 0);
	p = (struct roce_prefetch){0};
	receive(&p, (struct cost){8000, 9000}, BURST, ROCE_PREFETCH_TRIALS);
	assert_int_equal(receive(&p, (struct cost){8000, 9000}, BURST, 1000), 1000);
	/* equal: prefetched */
	p = (struct roce_prefetch){0};
	receive(&p, (struct cost){8000, 8000}, BURST, ROCE_PREFETCH_TRIALS);
	assert_int_equal(receive(&p, (struct cost){8000, 8000}, BURST, 1000), 1000);
}

/* The payloads are elsewhere later. */
static void
test_change(void **state)
{
	struct roce_prefetch p = {0};

	receive(&p, (struct cost){9000, 8000}, BURST, ROCE_PREFETCH_PERIOD);
	assert_true(p.off);
	receive(&p, (struct cost){9000, 12000}, BURST, ROCE_PREFETCH_TRIALS);
	assert_int_equal(receive(&p, (struct cost){9000, 12000}, BURST, 1000), 1000);
}

/* Short bursts take as long as their headers. */
static void
test_short(void **state)
{
	struct roce_prefetch p = {0};

	assert_int_equal(receive(&p, (struct cost){900, 1}, ROCE_PREFETCH_MIN - 1, 100000), 100000);
	assert_int_equal(p.burst, 0);
	/* they neither count nor end a trial */
	receive(&p, (struct cost){9000, 8000}, BURST, ROCE_PREFETCH_TRIALS);
	receive(&p, (struct cost){1, 900}, ROCE_PREFETCH_MIN - 1, 100000);
	assert_true(p.off);
	assert_int_equal(p.burst, ROCE_PREFETCH_TRIALS);
}

/* A clock that stands still, or a burst of hours. */
static void
test_extremes(void **state)
{
	struct roce_prefetch p = {0};

	receive(&p, (struct cost){UINT64_MAX / 8192, 0}, BURST, ROCE_PREFETCH_TRIALS);
	assert_true(p.off);
	p = (struct roce_prefetch){0};
	receive(&p, (struct cost){0, UINT64_MAX / 8192}, BURST, ROCE_PREFETCH_TRIALS);
	assert_false(p.off);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_choice),
		cmocka_unit_test(test_change),
		cmocka_unit_test(test_short),
		cmocka_unit_test(test_extremes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
