/* SPDX-License-Identifier: BSD-3-Clause */
/* A function in a child process: its result, and its end. */

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "child_process.h"

struct sum {
	int a, b, result;
	pid_t pid;
};

static void
add(void *state)
{
	struct sum *s = state;

	s->result = s->a + s->b;
	s->pid = getpid();
}

static void
end_by_signal(void *state)
{
	struct sum *s = state;

	s->result = 1;
	raise(s->a);
}

static void
end_by_status(void *state)
{
	_exit(3);
}

static void
test_a_result_comes_back(void **state)
{
	struct sum s = {.a = 40, .b = 2};

	assert_int_equal(child_process_call(add, &s, sizeof(s)), 0);
	assert_int_equal(s.result, 42);
	assert_int_not_equal(s.pid, getpid());
}

static void
test_an_early_end_is_an_error(void **state)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGKILL, SIGXCPU};
	struct sum s = {0};

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		s.a = signals[i];
		assert_int_equal(child_process_call(end_by_signal, &s, sizeof(s)), -EFAULT);
		/* nothing of it counts */
		assert_int_equal(s.result, 0);
	}
	assert_int_equal(child_process_call(end_by_status, &s, sizeof(s)), -EFAULT);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_result_comes_back),
		cmocka_unit_test(test_an_early_end_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
