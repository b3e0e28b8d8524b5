/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_EXPIRY_H
#define ROCE_EXPIRY_H

/** @file A timer of the control lcore and what happens when it expires. */

#include "engine/timer.h"

struct roce_control;

struct roce_expiry {
	struct roce_timer timer;
	void (*expired)(struct roce_control *c, struct roce_expiry *timer);
	bool due; /**< expired, its function not yet called */
};

/** Start or move a timer: it expires in so many milliseconds. */
void roce_expiry_start(struct roce_control *c, struct roce_expiry *timer, uint32_t ms);

/** Stop a timer; its memory may go. */
void roce_expiry_stop(struct roce_control *c, struct roce_expiry *timer);

#endif
