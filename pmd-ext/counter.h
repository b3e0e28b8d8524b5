/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Counters that one thread writes and any thread reads. They are relaxed atomics, which are as fast
 * as plain variables on x86.
 */
#ifndef COUNTER_H
#define COUNTER_H

#include <stddef.h>
#include <stdint.h>

/** Add n to a counter. Only its writer may call this. */
static inline void
counter_add(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

/** Set a value that is not a sum. Only its writer may call this. */
static inline void
counter_set(uint64_t *counter, uint64_t value)
{
	__atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

/** Subtract n from a counter of something that exists now. Only its writer may call this. */
static inline void
counter_sub(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter - n, __ATOMIC_RELAXED);
}

/** As counter_set(), for a member of any other size. */
#define COUNTER_SET(member, value) __atomic_store_n(&(member), (value), __ATOMIC_RELAXED)

/** Get a counter. Any thread. */
static inline uint64_t
counter_get(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

/**
 * Copy a structure of counters and values of at most 8 bytes, with atomic loads of 8 bytes.
 * @param size  a multiple of 8
 */
static inline void
counters_get(void *to, const void *from, size_t size)
{
	typedef uint64_t __attribute__((may_alias)) word;

	for (size_t i = 0; i < size / sizeof(word); i++)
		((word *)to)[i] = __atomic_load_n((const word *)from + i, __ATOMIC_RELAXED);
}

#endif /* COUNTER_H */
