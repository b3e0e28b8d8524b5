/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Sets of sequence numbers as ascending intervals: what a store has, what went elsewhere.
 *
 * Numbers that come in order cost one comparison; others a binary search and a move. None touches
 * the next: two that would are one. UINT64_MAX is no member of any set. One thread per set.
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

/** All zero: empty. */
struct interval_set {
	struct interval *at;
	size_t nb;
	size_t room;
};

/** It is empty then, and may be used again. */
void interval_set_free(struct interval_set *s);

/**
 * Add first to last.
 * @return 0; -ENOMEM: nothing was added; -EINVAL: last < first, or UINT64_MAX
 */
int interval_set_add(struct interval_set *s, uint64_t first, uint64_t last);

/** Add those of first to last that another set has. @return as interval_set_add() */
int interval_set_add_common(
	struct interval_set *s, const struct interval_set *of, uint64_t first, uint64_t last);

/** Take first to last out, as far as they are in. @return as interval_set_add() */
int interval_set_remove(struct interval_set *s, uint64_t first, uint64_t last);

/** Add all that another one has. @return as interval_set_add() */
int interval_set_add_all(struct interval_set *s, const struct interval_set *what);

/** Take all out that another one has, as far as it is in. @return as interval_set_add() */
int interval_set_remove_all(struct interval_set *s, const struct interval_set *what);

/** Whether n is in; UINT64_MAX never is. */
bool interval_set_has(const struct interval_set *s, uint64_t n);

/** Whether any of first to last is in. */
bool interval_set_meets(const struct interval_set *s, uint64_t first, uint64_t last);

/** The lowest number that both have; UINT64_MAX: none. */
uint64_t interval_set_first_common(const struct interval_set *a, const struct interval_set *b);

/** How many numbers it has. */
uint64_t interval_set_count(const struct interval_set *s);

#endif /* INTERVAL_SET_H */
