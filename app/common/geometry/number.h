/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Numbers as text.
 */
#ifndef NUMBER_H
#define NUMBER_H

#include <stdio.h>
#include <stdlib.h>

#define NUMBER_LEN 32

/** Convert to the shortest text that gives the same number when it is read. @return text */
static inline const char *
number_text(double value, char text[NUMBER_LEN])
{
	for (int digits = 6; digits <= 17; digits++) {
		snprintf(text, NUMBER_LEN, "%.*g", digits, value);
		if (strtod(text, NULL) == value)
			break;
	}
	return text;
}

#endif /* NUMBER_H */
