/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Reasons of checks. The library writes no log: the reason of an error goes to the caller's buffer.
 * Internal to the library.
 */
#ifndef GK_REASON_H
#define GK_REASON_H

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/** Where a reason is written. */
struct reason {
	char *text; /**< NULL: nowhere */
	size_t size;
};

/** Write a reason. @return -EINVAL */
static inline int __attribute__((format(printf, 2, 3)))
refuse(const struct reason *why, const char *format, ...)
{
	va_list args;

	if (why->text != NULL && why->size > 0) {
		va_start(args, format);
		vsnprintf(why->text, why->size, format, args);
		va_end(args);
	}
	return -EINVAL;
}

#endif /* GK_REASON_H */
