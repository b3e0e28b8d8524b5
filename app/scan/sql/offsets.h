/* SPDX-License-Identifier: BSD-3-Clause */
/** @file Offsets of lists and binary columns of a mapped file, which another process may change. */
#ifndef SQL_OFFSETS_H
#define SQL_OFFSETS_H

#include <stdbool.h>
#include <stdint.h>

/**
 * Get the items of a row. Each offset is read once, so that what is checked is what is used.
 * @param items  of the column
 * @param start  out, with `end`: as those of arrow_column_range()
 * @return false: the offsets are not valid
 */
static inline bool
offsets_range(const int32_t *offsets, uint64_t row, uint64_t items, uint64_t *start, uint64_t *end)
{
	const int32_t from = __atomic_load_n(&offsets[row], __ATOMIC_RELAXED);
	const int32_t to = __atomic_load_n(&offsets[row + 1], __ATOMIC_RELAXED);

	*start = (uint64_t)from;
	*end = (uint64_t)to;
	return from >= 0 && to >= from && *end <= items;
}

#endif /* SQL_OFFSETS_H */
