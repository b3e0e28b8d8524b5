/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests a clock that follows another one, whose rate differs from the nominal one. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "utc_clock.h"

#define BEGIN INT64_C(1790000000000000000)
#define HZ    2.45e9 /* nominal rate, as EAL reports it */

static double true_hz;
static int64_t set_by; /* ns */

static int64_t
truth(uint64_t tsc)
{
	return BEGIN + (int64_t)((double)tsc / true_hz * 1e9) + set_by;
}

/* Read the clock at random times. The system clock is read slightly late at random. */
static void
run_for(struct utc_clock *c, uint64_t *tsc, double seconds, int64_t most)
{
	const uint64_t end = *tsc + (uint64_t)(seconds * true_hz);
	int64_t last = 0, now;

	while (*tsc < end) {
		*tsc += (uint64_t)(rand() % 5000000);
		if ((int64_t)(*tsc - c->next) >= 0)
			utc_clock_adjust(c, *tsc, truth(*tsc) + rand() % 200);
		now = utc_clock_ns(c, *tsc);
		assert_true(now > last - 1);
		last = now;
		assert_in_range(llabs(now - truth(*tsc)), 0, most);
	}
}

static void
test_rates(void **state)
{
	static const double wrong[] = {0, 1.9e-3, -1.9e-3, 2e-5, -2e-5};
	struct utc_clock c;
	uint64_t tsc;

	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		true_hz = HZ * (1 + wrong[i]);
		set_by = 0;
		tsc = 12345;
		utc_clock_set(&c, HZ, tsc, truth(tsc));
		run_for(&c, &tsc, 2, 50000);
		run_for(&c, &tsc, 3600, 2000);
	}
}

/* NTP slews the clock by up to 500 ppm; an operator sets the time. */
static void
test_changes(void **state)
{
	struct utc_clock c;
	uint64_t tsc = 1;

	true_hz = HZ * 1.001;
	set_by = 0;
	utc_clock_set(&c, HZ, tsc, truth(tsc));
	run_for(&c, &tsc, 10, 50000);
	for (int i = 0; i < 100; i++) {
		set_by += 500000 / 10;
		run_for(&c, &tsc, 0.1, 600000);
	}
	run_for(&c, &tsc, 5, 600000);
	run_for(&c, &tsc, 5, 2000);
	set_by -= INT64_C(3600000000000);
	utc_clock_adjust(&c, tsc, truth(tsc));
	run_for(&c, &tsc, 2, 50000);
	run_for(&c, &tsc, 60, 2000);
}

/* Follow the system clock. */
static void
test_follows(void **state)
{
	struct utc_clock c;
	struct timespec now;

	utc_clock_begin(&c);
	utc_clock_follow(&c);
	clock_gettime(CLOCK_REALTIME, &now);
	assert_in_range(now.tv_sec - c.ns / 1000000000, 0, 60);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rates),
		cmocka_unit_test(test_changes),
		cmocka_unit_test(test_follows),
	};

	srand(1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
