/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests that EAL's interrupt thread runs no callbacks after eal_block_interrupts() or eal_end().
 * EAL can end only once in a process, so each case has a separate process.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rte_alarm.h>
#include <rte_common.h>
#include <rte_eal.h>
#include <rte_interrupts.h>
#include <rte_malloc.h>

#include "eal/end.h"

#define ENDS 5

static uint32_t *memory; /* allocated by EAL */
static atomic_uint calls;
static atomic_bool busy;

/* Like the alarms of drivers: uses memory of EAL and sets itself again. */
static void
again(void *arg)
{
	(*memory)++;
	atomic_fetch_add(&calls, 1);
	rte_eal_alarm_set(1, again, NULL);
}

static void
dawdle(void *arg)
{
	atomic_store(&busy, true);
	for (unsigned int i = 0; i < 400; i++) {
		(*memory)++;
		usleep(10000);
	}
}

static void
on_signal(int number)
{
}

static void
begin(void)
{
	static char name[] = "eal_end", no_huge[] = "--no-huge", m[] = "-m", amount[] = "32",
		    no_pci[] = "--no-pci", no_conf[] = "--no-shconf", no_tel[] = "--no-telemetry";
	char *argv[] = {name, no_huge, m, amount, no_pci, no_conf, no_tel};

	alarm(60);
	if (rte_eal_init(RTE_DIM(argv), argv) < 0)
		_exit(1);
	memory = rte_zmalloc("memory", sizeof(*memory), 0);
	if (!memory)
		_exit(2);
}

static int
ends_with_callbacks(void)
{
	const struct sigaction action = {.sa_handler = on_signal};
	const struct itimerval often = {{0, 500}, {0, 500}};
	unsigned int before;

	begin();
	rte_eal_alarm_set(1, again, NULL);
	while (atomic_load(&calls) < 10)
		;
	/* interrupt waits by signals: an interrupted wait must go on */
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	if (!eal_block_interrupts())
		return 3;
	before = atomic_load(&calls);
	for (unsigned int i = 0; i < 1000; i++)
		usleep(20);
	if (atomic_load(&calls) != before)
		return 4;
	eal_end();
	for (unsigned int i = 0; i < 1000; i++)
		usleep(20);
	return atomic_load(&calls) == before ? 0 : 5;
}

static int
ends_beside_a_busy_one(void)
{
	begin();
	rte_eal_alarm_set(1, dawdle, NULL);
	while (!atomic_load(&busy))
		;
	eal_end();
	/* the callback is still running: the memory that it uses must be there */
	(*memory)++;
	usleep(50000);
	return 0;
}

static bool refuse_callbacks;

int __real_rte_intr_callback_register(
	const struct rte_intr_handle *handle, rte_intr_callback_fn fn, void *arg);
int __wrap_rte_intr_callback_register(
	const struct rte_intr_handle *handle, rte_intr_callback_fn fn, void *arg);

int
__wrap_rte_intr_callback_register(
	const struct rte_intr_handle *handle, rte_intr_callback_fn fn, void *arg)
{
	return refuse_callbacks ? -ENOMEM : __real_rte_intr_callback_register(handle, fn, arg);
}

/* The lowest number of a descriptor that is free. */
static int
free_descriptor(void)
{
	const int fd = dup(STDIN_FILENO);

	close(fd);
	return fd;
}

static int
ends_without_a_callback(void)
{
	int fd;

	begin();
	refuse_callbacks = true;
	fd = free_descriptor();
	if (eal_block_interrupts())
		return 3;
	if (free_descriptor() != fd)
		return 4;
	/* the next attempt can succeed */
	refuse_callbacks = false;
	return eal_block_interrupts() ? 0 : 5;
}

/* Run fn in a child process. @return its exit status, or minus the signal that killed it */
static int
run(int (*fn)(void))
{
	pid_t child;
	int status;

	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		exit(fn());
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void
test_callbacks(void **state)
{
	for (unsigned int i = 0; i < ENDS; i++)
		assert_int_equal(run(ends_with_callbacks), 0);
}

static void
test_busy(void **state)
{
	assert_int_equal(run(ends_beside_a_busy_one), 0);
}

/* No descriptor is left open if the thread cannot be blocked. */
static void
test_no_callback(void **state)
{
	assert_int_equal(run(ends_without_a_callback), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_callbacks),
		cmocka_unit_test(test_busy),
		cmocka_unit_test(test_no_callback),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
