/* SPDX-License-Identifier: BSD-3-Clause */
/* Timer wheel. */
#include <rte_common.h>

#include "engine/timer.h"

void
roce_wheel_init(struct roce_wheel *wheel, uint64_t hz, uint64_t now)
{
	unsigned int i;

	wheel->shift = rte_log2_u64(RTE_MAX(hz / 125000, 1));
	wheel->tick = now >> wheel->shift;
	wheel->timers = 0;
	for (i = 0; i < ROCE_WHEEL_SLOTS; i++)
		TAILQ_INIT(&wheel->slot[i]);
}

void
roce_wheel_remove(struct roce_wheel *wheel, struct roce_timer *timer)
{
	if (timer->tick) {
		TAILQ_REMOVE(&wheel->slot[timer->tick % ROCE_WHEEL_SLOTS], timer, next);
		wheel->timers--;
	}
	timer->tick = 0;
	timer->deadline = 0;
}

void
roce_wheel_insert(struct roce_wheel *wheel, struct roce_timer *timer)
{
	const uint64_t deadline = timer->deadline;
	/* A deadline beyond the wheel's range is checked again when its last slot is reached. */
	uint64_t tick = RTE_MIN((deadline >> wheel->shift) + 1, wheel->tick + ROCE_WHEEL_SLOTS - 1);

	roce_wheel_remove(wheel, timer);
	timer->deadline = deadline;
	timer->tick = RTE_MAX(tick, wheel->tick + 1);
	TAILQ_INSERT_TAIL(&wheel->slot[timer->tick % ROCE_WHEEL_SLOTS], timer, next);
	wheel->timers++;
}

void
roce_wheel_run(struct roce_wheel *wheel, uint64_t now, struct roce_timer_list *expired)
{
	const uint64_t end = now >> wheel->shift;
	struct roce_timer_list due;
	struct roce_timer *timer;

	if (wheel->timers == 0 || end - wheel->tick > ROCE_WHEEL_SLOTS)
		wheel->tick =
			RTE_MAX(wheel->tick, wheel->timers == 0 ? end : end - ROCE_WHEEL_SLOTS);
	while (wheel->tick < end) {
		wheel->tick++;
		TAILQ_INIT(&due);
		TAILQ_CONCAT(&due, &wheel->slot[wheel->tick % ROCE_WHEEL_SLOTS], next);
		while ((timer = TAILQ_FIRST(&due))) {
			TAILQ_REMOVE(&due, timer, next);
			wheel->timers--;
			timer->tick = 0;
			if (timer->deadline == 0)
				continue;
			if (timer->deadline > now) {
				roce_wheel_insert(wheel, timer);
				continue;
			}
			timer->deadline = 0;
			TAILQ_INSERT_TAIL(expired, timer, next);
		}
	}
}
