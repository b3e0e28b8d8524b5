/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Counters that one thread writes, and others read at any time: relaxed atomics, which on x86 cost
 * what plain words do.
 */
#ifndef COUNTER_H
#define COUNTER_H

#include <stddef.h>
#include <stdint.h>

/** Count by n. The one that writes it only. */
static inline void
counter_add(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

/** Set what is no sum. The one that writes it only. */
static inline void
counter_set(uint64_t *counter, uint64_t value)
{
	__atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

/** Anybody, at any time. */
static inline uint64_t
counter_get(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

/** Copy a structure of counters, each in one piece. @param size  a multiple of 8 */
static inline void
counters_get(void *to, const void *from, size_t size)
{
	for (size_t i = 0; i < size / sizeof(uint64_t); i++)
		((uint64_t *)to)[i] = counter_get((const uint64_t *)from + i);
}

#endif /* COUNTER_H */
