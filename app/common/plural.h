/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Words of messages that depend on a number.
 */
#ifndef PLURAL_H
#define PLURAL_H

#include <stdint.h>

/** @return `one` if n is 1, else `many`: the two forms of a word, or its ending */
static inline const char *
plural(uint64_t n, const char *one, const char *many)
{
	return n == 1 ? one : many;
}

#endif /* PLURAL_H */
