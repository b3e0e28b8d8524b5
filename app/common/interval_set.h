/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Sets of sequence numbers, stored as ascending intervals: for example, the batches that a store
 * has.
 *
 * Adding a number above all others takes one comparison. Other numbers take a binary search and a
 * memmove(). Adjacent intervals are merged. UINT64_MAX cannot be a member. One thread per set.
 */
#ifndef INTERVAL_SET_H
#define INTERVAL_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct interval {
	uint64_t first;
	uint64_t last; /**< included */
};

/** Zero-initialized: empty. */
struct interval_set {
	struct interval *at;
	size_t nb;
	size_t room;
};

/** Free the memory of a set. The set is empty then, and may be used again. */
void interval_set_free(struct interval_set *s);

/**
 * Add the numbers from first to last.
 * @return 0; -ENOMEM: nothing was added; -EINVAL: last < first, or last is UINT64_MAX
 */
int interval_set_add(struct interval_set *s, uint64_t first, uint64_t last);

/** Add the numbers from first to last that the set `of` has. @return as interval_set_add() */
int interval_set_add_common(
	struct interval_set *s, const struct interval_set *of, uint64_t first, uint64_t last);

/** Remove the members from first to last. @return as interval_set_add() */
int interval_set_remove(struct interval_set *s, uint64_t first, uint64_t last);

/** Add all members of another set. @return as interval_set_add() */
int interval_set_add_all(struct interval_set *s, const struct interval_set *what);

/** Remove all members of another set. @return as interval_set_add() */
int interval_set_remove_all(struct interval_set *s, const struct interval_set *what);

/** Whether n is a member. UINT64_MAX never is. */
bool interval_set_has(const struct interval_set *s, uint64_t n);

/** Whether any number from first to last is a member. */
bool interval_set_meets(const struct interval_set *s, uint64_t first, uint64_t last);

/** @return the lowest number that both sets have; UINT64_MAX: none */
uint64_t interval_set_first_common(const struct interval_set *a, const struct interval_set *b);

/** @return number of members */
uint64_t interval_set_count(const struct interval_set *s);

#endif /* INTERVAL_SET_H */
