/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests the evidence that lcores poll, which the service manager's watchdog depends on. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "rx/lcores.h"

static struct lcores lcores;
static uint64_t seen[RTE_MAX_LCORE];

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

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_all_must_poll, clear),
		cmocka_unit_test_setup(test_lcores_without_roles, clear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
