/* SPDX-License-Identifier: BSD-3-Clause */
/** @file Names and strings in SQL statements that the programs make. */
#ifndef SQL_QUOTED_H
#define SQL_QUOTED_H

#include <stdio.h>

/**
 * Write a name or a string in quotes; quotes within it are doubled.
 * @param quote  '"' for a name, '\'' for a string
 */
static inline void
sql_put_quoted(FILE *out, const char *text, char quote)
{
	putc(quote, out);
	for (; *text != '\0'; text++) {
		if (*text == quote)
			putc(quote, out);
		putc(*text, out);
	}
	putc(quote, out);
}

#endif /* SQL_QUOTED_H */
