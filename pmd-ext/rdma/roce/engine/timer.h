/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_TIMER_H
#define ROCE_TIMER_H

/**
 * @file Timer wheel of a poll group. A timer that is put off - as each acknowledgement does - only
 * stores its new deadline; it moves when the wheel comes by its old one. One that is stopped does
 * the same.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#define ROCE_WHEEL_SLOTS 512

struct roce_timer {
	TAILQ_ENTRY(roce_timer) next;
	uint64_t deadline; /**< TSC; 0: stopped */
	uint64_t tick;	   /**< where in the wheel; 0: not in it */
};

TAILQ_HEAD(roce_timer_list, roce_timer);

struct roce_wheel {
	uint64_t tick;	     /**< all slots before are done */
	unsigned int shift;  /**< TSC cycles of a tick, as a power of two */
	unsigned int timers; /**< in the wheel */
	struct roce_timer_list slot[ROCE_WHEEL_SLOTS];
};

/** @param hz of the TSC; a tick is about 8 microseconds */
void roce_wheel_init(struct roce_wheel *wheel, uint64_t hz, uint64_t now);

void roce_wheel_insert(struct roce_wheel *wheel, struct roce_timer *timer);

/** Start, or move, a timer. */
static inline void
roce_timer_start(struct roce_wheel *wheel, struct roce_timer *timer, uint64_t deadline)
{
	timer->deadline = deadline;
	if (timer->tick == 0 || deadline >> wheel->shift < timer->tick)
		roce_wheel_insert(wheel, timer);
}

static inline void
roce_timer_stop(struct roce_timer *timer)
{
	timer->deadline = 0;
}

/** Take a timer out for good: before its memory goes. */
void roce_wheel_remove(struct roce_wheel *wheel, struct roce_timer *timer);

/** Move on to now; timers that have expired, stopped, are added to `expired` by their `next`. */
void roce_wheel_run(struct roce_wheel *wheel, uint64_t now, struct roce_timer_list *expired);

/** Is there anything to do? */
static inline bool
roce_wheel_due(const struct roce_wheel *wheel, uint64_t now)
{
	return now >> wheel->shift > wheel->tick;
}

#endif
