/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Whole numbers of command lines, settings and files. They have digits only: strtoull() also
 * accepts signs and white space.
 */
#ifndef WHOLE_NUMBER_H
#define WHOLE_NUMBER_H

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/**
 * Read a number at the start of a text. Leading zeros have no meaning.
 * @param base  10, or 16 without "0x"
 * @return the text after the number; NULL: there is no number, or it is above UINT64_MAX
 */
static inline const char *
whole_number_read(const char *text, int base, uint64_t *value)
{
	const unsigned char first = *text;
	char *end;

	if (base == 16 ? !isxdigit(first) || (first == '0' && (text[1] | 0x20) == 'x')
		       : !isdigit(first))
		return NULL;
	errno = 0;
	*value = strtoull(text, &end, base);
	return errno == 0 ? end : NULL;
}

/**
 * Read a number at the start of a text: decimal, or hexadecimal after "0x". Leading zeros have no
 * meaning, so 0100 is one hundred, as run numbers and frame numbers are written.
 * @return as whole_number_read()
 */
static inline const char *
whole_number_or_hex(const char *text, uint64_t *value)
{
	const bool hex = text[0] == '0' && (text[1] | 0x20) == 'x';

	return whole_number_read(hex ? text + 2 : text, hex ? 16 : 10, value);
}

/** Read a text that is a decimal number. @return false: it is not, or the number is out of range */
static inline bool
whole_number(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
	const char *end = whole_number_read(text, 10, value);

	return end != NULL && *end == '\0' && *value >= min && *value <= max;
}

#endif /* WHOLE_NUMBER_H */
