/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_EXPIRY_H
#define ROCE_EXPIRY_H

/** @file A timer of the control lcore and its callback. */

#include "engine/timer.h"

struct roce_control;

struct roce_expiry {
	struct roce_timer timer;
	void (*expired)(struct roce_control *c, struct roce_expiry *timer);
	bool due; /**< expired, callback not called yet */
};

/** Start or restart a timer. It expires in `ms` milliseconds. */
void roce_expiry_start(struct roce_control *c, struct roce_expiry *timer, uint32_t ms);

/** Stop a timer. Its memory may be freed afterwards. */
void roce_expiry_stop(struct roce_control *c, struct roce_expiry *timer);

#endif
