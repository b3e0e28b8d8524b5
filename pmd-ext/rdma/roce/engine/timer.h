/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_TIMER_H
#define ROCE_TIMER_H

/**
 * @file Timer wheel. Postponing a timer, as each acknowledgement does, only stores the new
 * deadline. The timer moves to its new slot when the wheel reaches the old one. Stopping a timer
 * works in the same way.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#define ROCE_WHEEL_SLOTS 512

struct roce_timer {
	TAILQ_ENTRY(roce_timer) next;
	uint64_t deadline; /**< TSC; 0: stopped */
	uint64_t tick;	   /**< position in the wheel; 0: not in it */
};

TAILQ_HEAD(roce_timer_list, roce_timer);

struct roce_wheel {
	uint64_t tick;	     /**< last tick processed */
	unsigned int shift;  /**< base-2 logarithm of the TSC cycles per tick */
	unsigned int timers; /**< in the wheel */
	struct roce_timer_list slot[ROCE_WHEEL_SLOTS];
};

/** Initialize a wheel. @param hz of the TSC; a tick is about 8 microseconds */
void roce_wheel_init(struct roce_wheel *wheel, uint64_t hz, uint64_t now);

/** Put a timer into the slot of its deadline. */
void roce_wheel_insert(struct roce_wheel *wheel, struct roce_timer *timer);

/** Start or restart a timer. */
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

/** Remove a timer from the wheel. Required before its memory is freed. */
void roce_wheel_remove(struct roce_wheel *wheel, struct roce_timer *timer);

/** Advance the wheel to `now`. Expired timers are stopped and added to the list `expired`. */
void roce_wheel_run(struct roce_wheel *wheel, uint64_t now, struct roce_timer_list *expired);

/** True if roce_wheel_run() has to be called. */
static inline bool
roce_wheel_due(const struct roce_wheel *wheel, uint64_t now)
{
	return now >> wheel->shift > wheel->tick;
}

#endif
