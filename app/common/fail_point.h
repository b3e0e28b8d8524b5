/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Places at which a test may have a process killed.
 *
 * BRAGGLINE_FAIL_POINT=NAME[:COUNT] in the environment, read at the start: the process is killed
 * when it comes to that place for the COUNTth time (1: the first), after a line on stderr.
 * Without it a place is one load and a branch that is never taken. Names: xfer/README.rst.
 *
 * Any thread; places that several threads come to may count one too few.
 */
#ifndef FAIL_POINT_H
#define FAIL_POINT_H

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fail_point {
	const char *name; /**< NULL: none */
	size_t length;	  /**< of the name */
	unsigned long left;
};

/* one in a program, whoever includes this */
extern struct fail_point fail_point;
__attribute__((weak)) struct fail_point fail_point;

static __attribute__((constructor)) void
fail_point_read(void)
{
	const char *text = getenv("BRAGGLINE_FAIL_POINT"), *colon;

	if (text == NULL || text[0] == '\0')
		return;
	colon = strchr(text, ':');
	fail_point.length = colon != NULL ? (size_t)(colon - text) : strlen(text);
	fail_point.left = colon != NULL ? strtoul(colon + 1, NULL, 10) : 1;
	fail_point.name = text;
}

static inline void
fail_point_come(const char *name)
{
	static const char said[] = "fail point: ";

	if (strlen(name) != fail_point.length ||
		memcmp(name, fail_point.name, fail_point.length) != 0 || fail_point.left == 0 ||
		--fail_point.left > 0)
		return;
	if (write(STDERR_FILENO, said, sizeof(said) - 1) > 0 &&
		write(STDERR_FILENO, name, strlen(name)) > 0)
		(void)!write(STDERR_FILENO, "\n", 1);
	(void)raise(SIGKILL);
}

/** Here a process may be killed. */
#define FAIL_POINT(place)                                         \
	do {                                                      \
		if (__builtin_expect(fail_point.name != NULL, 0)) \
			fail_point_come(place);                   \
	} while (0)

#endif /* FAIL_POINT_H */
