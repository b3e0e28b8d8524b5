/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Error messages of command-line options.
 */
#ifndef OPTION_REFUSE_H
#define OPTION_REFUSE_H

#include <errno.h>
#include <stddef.h>
#include <stdio.h>

/**
 * Refuse the value of an option.
 * @param message   out, `size` bytes; at most 200 characters of the value
 * @param expected  allowed values
 * @return -EINVAL
 */
static inline int
option_refuse(
	char *message, size_t size, const char *option, const char *found, const char *expected)
{
	snprintf(message, size, "%s %.200s: expected %s", option, found, expected);
	return -EINVAL;
}

/**
 * Print where options are described, after getopt_long() has reported a wrong one.
 * @param program  its name, with that of the command if it has commands
 */
static inline void
option_try_help(const char *program)
{
	fprintf(stderr, "Try '%s --help'.\n", program);
}

#endif /* OPTION_REFUSE_H */
