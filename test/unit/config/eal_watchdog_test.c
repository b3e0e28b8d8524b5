/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The watchdog of a process whose end takes long. The test is the service manager: it reads the
 * messages, and decides whether the lcores poll and whether the end makes progress.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "eal/watchdog.h"

#define PATIENCE 30 /* s */

static const char ready[] = "READY=1", alive[] = "WATCHDOG=1", stopping[] = "STOPPING=1",
		  extend[] = "EXTEND_TIMEOUT_USEC=30000000";

static int manager = -1;
static char path[64];
static bool polls;	  /* atomic */
static uint64_t progress; /* atomic */
static int signalled;	  /* atomic */

static bool
works(void *arg)
{
	return __atomic_load_n(&polls, __ATOMIC_ACQUIRE);
}

static uint64_t
get_progress(void *arg)
{
	return __atomic_load_n(&progress, __ATOMIC_ACQUIRE);
}

static struct watchdog *
begin(void)
{
	const struct watchdog_config config = {works, get_progress, NULL, &signalled};
	struct watchdog *w;

	alarm(PATIENCE);
	polls = false;
	progress = 0;
	signalled = 0;
	w = watchdog_start(&config);
	assert_non_null(w);
	return w;
}

/* Wait for the next message. */
static void
read_message(char text[128])
{
	const ssize_t n = recv(manager, text, 127, 0);

	assert_true(n > 0);
	text[n] = '\0';
}

/* Wait for a message. @return whether the process was alive before it */
static bool
wait_for(const char *wanted)
{
	bool was_alive = false;
	char text[128];

	for (read_message(text); strcmp(text, wanted) != 0; read_message(text)) {
		assert_string_equal(text, alive);
		was_alive = true;
	}
	return was_alive;
}

/* No message but this one until the next checks have passed, which the status marks. */
static void
expect_only(struct watchdog *w, const char *message)
{
	unsigned int nb = 0;
	char text[128];

	for (unsigned int i = 0; i < 3; i++) {
		watchdog_status(w, "mark");
		for (read_message(text); strcmp(text, "STATUS=mark") != 0; read_message(text)) {
			assert_non_null(message);
			assert_string_equal(text, message);
			nb++;
		}
	}
	assert_int_equal(nb, message != NULL);
}

/* More time is asked for at the signal, and then only after progress. */
static void
test_progress(void **state)
{
	struct watchdog *w = begin();

	__atomic_store_n(&polls, true, __ATOMIC_RELEASE);
	assert_false(wait_for(ready));
	(void)wait_for(alive);
	__atomic_store_n(&polls, false, __ATOMIC_RELEASE);
	__atomic_store_n(&signalled, 15, __ATOMIC_RELEASE);
	(void)wait_for(extend);
	expect_only(w, NULL);
	for (uint64_t i = 1; i < 4; i++) {
		__atomic_store_n(&progress, i, __ATOMIC_RELEASE);
		expect_only(w, extend);
	}
	expect_only(w, NULL);
	watchdog_end(w);
	assert_false(wait_for(stopping));
	watchdog_stop(w);
}

/* Without a signal: lcores that do not poll any more are no fault once the process ends. */
static void
test_end_without_signal(void **state)
{
	struct watchdog *w = begin();

	__atomic_store_n(&polls, true, __ATOMIC_RELEASE);
	(void)wait_for(ready);
	__atomic_store_n(&polls, false, __ATOMIC_RELEASE);
	watchdog_end(w);
	(void)wait_for(stopping);
	assert_false(wait_for(extend));
	__atomic_store_n(&polls, true, __ATOMIC_RELEASE);
	__atomic_store_n(&progress, 1, __ATOMIC_RELEASE);
	expect_only(w, extend);
	watchdog_stop(w);
}

/* A process that ends before its lcores poll is never ready. */
static void
test_end_before_ready(void **state)
{
	struct watchdog *w = begin();

	watchdog_stop(w);
	assert_false(wait_for(stopping));
	assert_false(wait_for(extend));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_progress),
		cmocka_unit_test(test_end_without_signal),
		cmocka_unit_test(test_end_before_ready),
	};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int ret;

	snprintf(path, sizeof(path), "/tmp/braggline-watchdog-%d", getpid());
	strcpy(address.sun_path, path);
	manager = socket(AF_UNIX, SOCK_DGRAM, 0);
	if (manager < 0 || bind(manager, (const struct sockaddr *)&address, sizeof(address)) != 0)
		return 1;
	setenv("NOTIFY_SOCKET", path, 1);
	setenv("WATCHDOG_USEC", "20000", 1);
	unsetenv("WATCHDOG_PID");
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	close(manager);
	unlink(path);
	return ret;
}
