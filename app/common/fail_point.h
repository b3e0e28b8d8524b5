/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Points at which a test can have a process killed. They exist only in builds with tests
 * (BRAGGLINE_FAIL_POINTS, set by meson); in other builds FAIL_POINT() is empty.
 *
 * With BRAGGLINE_FAIL_POINT=NAME[:COUNT] in the environment at start, the process prints a line on
 * stderr and kills itself when it reaches the point NAME for the COUNTth time (default: 1). Without
 * it, a point costs one load and a branch that is never taken. xfer/README.rst lists the names.
 *
 * Any thread. A point that several threads reach at the same time may be counted once.
 */
#ifndef FAIL_POINT_H
#define FAIL_POINT_H

#ifdef BRAGGLINE_FAIL_POINTS

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fail_point {
	const char *name; /**< NULL: none is selected */
	size_t length;	  /**< of the name */
	unsigned long left;
};

/* all files of a program that include this share one definition */
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
fail_point_reach(const char *name)
{
	static const char prefix[] = "fail point: ";

	if (strlen(name) != fail_point.length ||
		memcmp(name, fail_point.name, fail_point.length) != 0 || fail_point.left == 0 ||
		--fail_point.left > 0)
		return;
	if (write(STDERR_FILENO, prefix, sizeof(prefix) - 1) > 0 &&
		write(STDERR_FILENO, name, strlen(name)) > 0)
		(void)!write(STDERR_FILENO, "\n", 1);
	(void)raise(SIGKILL);
}

/** A test can have the process killed here. */
#define FAIL_POINT(point)                                         \
	do {                                                      \
		if (__builtin_expect(fail_point.name != NULL, 0)) \
			fail_point_reach(point);                  \
	} while (0)

#else

#define FAIL_POINT(point) \
	do {              \
	} while (0)

#endif /* BRAGGLINE_FAIL_POINTS */

#endif /* FAIL_POINT_H */
