/* SPDX-License-Identifier: BSD-3-Clause */
/* Compares interval sets with a bitmap. XFER_SEED repeats a run. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "interval_set.h"

#define NUMBERS 200

static uint64_t seed;

static uint32_t
random_number(void)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return seed >> 33;
}

static void
compare(const struct interval_set *s, const bool *in)
{
	uint64_t n, count = 0;
	size_t i;

	for (n = 0; n < NUMBERS; n++) {
		assert_int_equal(interval_set_has(s, n), in[n]);
		count += in[n];
	}
	assert_int_equal(interval_set_count(s), count);
	for (i = 0; i < s->nb; i++) {
		assert_true(s->at[i].first <= s->at[i].last);
		assert_true(i == 0 || s->at[i].first > s->at[i - 1].last + 1);
	}
}

static void
test_random(void **state)
{
	struct interval_set s = {0}, some = {0};
	bool in[NUMBERS] = {false}, meets, common[NUMBERS];
	uint64_t first, last, n;
	int step;

	for (step = 0; step < 20000; step++) {
		first = random_number() % NUMBERS;
		last = first + random_number() % (step % 5 == 0 ? 40 : 3);
		if (last >= NUMBERS)
			last = NUMBERS - 1;
		for (n = first, meets = false; n <= last; n++)
			meets |= in[n];
		assert_int_equal(interval_set_meets(&s, first, last), meets);
		memset(common, 0, sizeof(common));
		memcpy(common + first, in + first, last - first + 1);
		assert_int_equal(interval_set_add_common(&some, &s, first, last), 0);
		compare(&some, common);
		interval_set_free(&some);
		if (random_number() % 2) {
			assert_int_equal(interval_set_add(&s, first, last), 0);
			memset(in + first, true, last - first + 1);
		} else {
			assert_int_equal(interval_set_remove(&s, first, last), 0);
			memset(in + first, false, last - first + 1);
		}
		compare(&s, in);
	}
	interval_set_free(&s);
}

static void
test_ends(void **state)
{
	struct interval_set s = {0};

	assert_false(interval_set_has(&s, 0));
	assert_int_equal(interval_set_add(&s, UINT64_MAX, UINT64_MAX), -EINVAL);
	assert_int_equal(interval_set_add(&s, 2, 1), -EINVAL);
	assert_int_equal(interval_set_remove(&s, 0, UINT64_MAX), -EINVAL);
	assert_int_equal(interval_set_add_common(&s, &s, 2, 1), -EINVAL);
	assert_int_equal(interval_set_add_common(&s, &s, 0, UINT64_MAX), -EINVAL);
	assert_int_equal(interval_set_add(&s, 0, 0), 0);
	assert_int_equal(interval_set_add(&s, UINT64_MAX - 1, UINT64_MAX - 1), 0);
	assert_int_equal(interval_set_add(&s, UINT64_MAX - 2, UINT64_MAX - 2), 0);
	assert_int_equal(s.nb, 2);
	assert_int_equal(interval_set_count(&s), 3);
	assert_true(interval_set_has(&s, UINT64_MAX - 2));
	assert_false(interval_set_has(&s, UINT64_MAX));
	assert_int_equal(interval_set_remove(&s, 0, UINT64_MAX - 1), 0);
	assert_int_equal(s.nb, 0);
	interval_set_free(&s);
}

int
main(void)
{
	const char *text = getenv("XFER_SEED");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_ends),
	};

	seed = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)getpid();
	printf("XFER_SEED=%llu\n", (unsigned long long)seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
