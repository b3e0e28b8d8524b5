/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Delay before a failed operation is retried. Each further failure doubles the delay. The caller
 * chooses the clock and its unit.
 */
#ifndef BACKOFF_H
#define BACKOFF_H

#include <stdint.h>

/** All zero: no failure. */
struct backoff {
	uint64_t delay;
	uint64_t retry_at; /**< time of the next attempt */
};

/** Note a failure. @param min, max  first delay, longest delay */
static inline void
backoff_extend(struct backoff *b, uint64_t now, uint64_t min, uint64_t max)
{
	b->delay = b->delay == 0 ? min : 2 * b->delay;
	if (b->delay > max)
		b->delay = max;
	b->retry_at = now + b->delay;
}

#endif /* BACKOFF_H */
