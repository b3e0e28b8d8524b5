/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests the evidence that lcores poll, which the service manager's watchdog depends on, and their
 * load.
 */

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <rte_cycles.h>
#include <rte_per_lcore.h>

#include "lcores.h"

#define YIELD_CYCLES 100000

static struct lcores lcores;
static uint64_t seen[RTE_MAX_LCORE];
static uint64_t yield_cycles; /* of all calls */

/* in place of libc's: another thread has the CPU for a while */
int
sched_yield(void)
{
	const uint64_t begin = rte_rdtsc();

	while (rte_rdtsc() - begin < YIELD_CYCLES)
		;
	yield_cycles += rte_rdtsc() - begin;
	return 0;
}

/* finds something in every 20th poll, and ends the loop after 1,000 polls */
static int
poll_sometimes(void *arg)
{
	uint32_t *polls = arg;

	lcores.stop = ++*polls == 1000;
	return *polls % 20 == 0;
}

static int
clear(void **state)
{
	memset(&lcores, 0, sizeof(lcores));
	memset(seen, 0, sizeof(seen));
	return 0;
}

static void
test_all_must_poll(void **state)
{
	lcores.lcore[1].nb_roles = 2;
	lcores.lcore[RTE_MAX_LCORE - 1].nb_roles = 1;
	assert_false(lcores_have_polled(&lcores, seen));
	lcores.lcore[1].rounds = 7;
	assert_false(lcores_have_polled(&lcores, seen));
	lcores.lcore[RTE_MAX_LCORE - 1].rounds = 1;
	assert_true(lcores_have_polled(&lcores, seen));
	/* one of them hangs */
	lcores.lcore[1].rounds = 8;
	assert_false(lcores_have_polled(&lcores, seen));
	lcores.lcore[1].rounds = 1000;
	assert_false(lcores_have_polled(&lcores, seen));
	/* rounds since it last returned true, not since the last call */
	lcores.lcore[RTE_MAX_LCORE - 1].rounds = 2;
	assert_true(lcores_have_polled(&lcores, seen));
	assert_false(lcores_have_polled(&lcores, seen));
}

static void
test_lcores_without_roles(void **state)
{
	/* the main lcore sleeps if it has no role */
	lcores.lcore[3].nb_roles = 1;
	lcores.lcore[3].rounds = 1;
	assert_true(lcores_have_polled(&lcores, seen));
}

static void
test_yields_are_idle(void **state)
{
	uint32_t polls = 0;
	const struct lcore *lc = &lcores.lcore[0];
	uint64_t begin;

	RTE_PER_LCORE(_lcore_id) = 0;
	lcores.lcore[0].nb_roles = 1;
	lcores.lcore[0].idle = IDLE_YIELD;
	lcores.lcore[0].roles[0] = (struct role){.poll = poll_sometimes, .arg = &polls};
	begin = rte_rdtsc();
	assert_int_equal(lcores_run(&lcores), 0);
	assert_true(lc->busy_cycles + lc->idle_cycles <= rte_rdtsc() - begin);
	assert_int_equal(lc->rounds, 1000);
	assert_true(yield_cycles > 0);
	assert_true(lc->idle_cycles >= yield_cycles);
	assert_true(lc->busy_cycles > 0);
	assert_true(lc->roles[0].busy_cycles <= lc->busy_cycles);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_all_must_poll, clear),
		cmocka_unit_test_setup(test_lcores_without_roles, clear),
		cmocka_unit_test_setup(test_yields_are_idle, clear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
