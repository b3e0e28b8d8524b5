/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Numbers of command lines. They have digits only: strtoull() also accepts signs and blanks.
 */
#ifndef OPTION_NUMBER_H
#define OPTION_NUMBER_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/** Read a number at the start of a text. @return the text behind it; NULL: there is no number */
static inline const char *
option_number_read(const char *text, uint64_t *value)
{
	char *end;

	if (*text < '0' || *text > '9')
		return NULL;
	errno = 0;
	*value = strtoull(text, &end, 10);
	return errno == 0 ? end : NULL;
}

/** Read a text that is a number. @return false: it is none, or is out of range */
static inline bool
option_number(const char *text, uint64_t least, uint64_t most, uint64_t *value)
{
	const char *end = option_number_read(text, value);

	return end != NULL && *end == '\0' && *value >= least && *value <= most;
}

#endif /* OPTION_NUMBER_H */
