/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The builder role: pedestal intervals and dark frames (gk_abi.h, struct gk_dark).
 *
 * The frame number determines the pedestal interval. Dark frames of interval e are summed in set e
 * % 2 and take effect from interval e + 2 on. The update for interval e + 2 is handed out while
 * frames of interval e + 1 go to gangs and after all frames of interval e have retired. Frames of
 * interval e + 2 wait until the update is done. The update therefore runs in parallel to the
 * frames, and a frame waits only if the interval is shorter than the pipeline. The coefficient
 * versions alternate between entries 0 and 1 of gk_channel.coef.
 */

#include "builder/builder_private.h"

bool
builder_is_dark(const struct builder *b, const struct frame_record *r)
{
	const struct builder_dark *d = &b->dark;

	switch (d->select) {
	case BUILDER_DARK_STATUS:
		return (r->detector_status & d->mask) == d->value;
	case BUILDER_DARK_BUNCH:
		return r->bunch_id % d->every == d->phase;
	case BUILDER_DARK_FRAME:
		return r->frame % d->every == d->phase;
	case BUILDER_DARK_NONE:
	default:
		return false;
	}
}

/** Hand out a task that does not process frames. @return false if no gang can take it now */
static bool
hand_out(struct builder *b, enum gk_op op, uint32_t set, uint32_t coef_to)
{
	struct gk_ring *ring = builder_idlest_gang(b);
	struct builder_task *task;
	struct gk_work *work;

	if (ring == NULL || b->nb_tasks == GK_DARK_MAX)
		return false;
	work = gk_ring_next(ring);
	work->nb_frames = 0;
	work->op = op;
	work->params = b->veto;
	work->coef = b->coef;
	work->dark = set;
	work->coef_to = coef_to;
	task = &b->tasks[b->nb_tasks++];
	task->gang = ring->gang;
	task->batch = gk_ring_submit(ring);
	return true;
}

void
builder_interval_begin(struct builder *b, const struct builder_dark *dark)
{
	b->dark = *dark;
	b->interval = 0;
	b->interval_ready = 0;
	b->clearing = false;
	b->interval_known = false;
	b->coef = 0;
}

/** Start with this pedestal interval and discard earlier sums. */
static void
begin_at(struct builder *b, uint64_t interval)
{
	/* nothing else is in flight, so there is room for two tasks */
	if (b->retire != b->dispatch || b->nb_tasks > 0)
		return;
	for (uint32_t set = 0; set < GK_DARK_MAX; set++)
		hand_out(b, GK_OP_CLEAR, set, 0);
	b->clearing = true;
	b->interval_known = true;
	b->interval = interval;
	b->interval_first = interval;
	/* the first two pedestal intervals use the existing coefficients */
	b->interval_ready = interval + 1;
}

bool
builder_interval_enter(struct builder *b, uint64_t frame)
{
	const uint64_t interval = builder_interval_of(b, frame);

	if (!builder_is_tracking(b))
		return true;
	/* the run begins, or the detector restarted its frame numbers */
	if (!b->interval_known || interval < b->interval || interval > b->interval + 1) {
		begin_at(b, interval);
		return false;
	}
	if (b->clearing)
		return false;
	if (interval == b->interval)
		return true;
	if (interval > b->interval_ready)
		return false;
	if (interval >= b->interval_first + 2)
		b->coef ^= 1;
	b->interval = interval;
	return true;
}

/** Return true if all frames up to the end of this pedestal interval are retired. */
static bool
interval_has_retired(struct builder *b, uint64_t interval)
{
	if (b->retire == b->close)
		return true;
	return builder_interval_of(b, place_at(b, b->retire)->record->frame) > interval;
}

/** Start the update for the pedestal interval after the one in force, as soon as it is possible. */
static uint32_t
update(struct builder *b)
{
	const uint64_t next = b->interval + 1;
	const uint32_t to = b->coef ^ 1;
	struct gk_coef *coef = b->config.channel->coef;

	if (!b->interval_known || b->nb_tasks > 0 || b->interval_ready >= next || !b->running ||
		!interval_has_retired(b, next - 2))
		return 0;
	coef[to].version = coef[b->coef].version + 1;
	if (!hand_out(b, GK_OP_UPDATE, next % GK_DARK_MAX, to))
		return 0;
	b->task_interval = next;
	return 1;
}

/** Count the result of a completed update. */
static void
note_update(struct builder *b)
{
	const struct gk_update *u = &b->config.channel->update[b->task_interval % GK_DARK_MAX];

	b->interval_ready = b->task_interval;
	counter_add(&b->stats.updates, 1);
	counter_add(&b->stats.update_samples, u->samples);
	__atomic_store_n(&b->stats.update_pixels, u->updated, __ATOMIC_RELAXED);
	__atomic_store_n(&b->stats.update_drift_q8, u->drift, __ATOMIC_RELAXED);
	__atomic_store_n(&b->stats.pedestal_version, u->to, __ATOMIC_RELAXED);
}

uint32_t
builder_interval_poll(struct builder *b)
{
	uint32_t done = 0;

	for (uint32_t i = 0; i < b->nb_tasks;) {
		struct gk_ring *ring = &b->rings[b->tasks[i].gang];

		if (!gk_ring_is_done(ring, b->tasks[i].batch) ||
			(int32_t)(ring->raw_tail - b->tasks[i].batch) <= 0) {
			i++;
			continue;
		}
		gk_ring_collect(ring);
		b->tasks[i] = b->tasks[--b->nb_tasks];
		if (!b->clearing)
			note_update(b);
		done++;
	}
	if (b->nb_tasks == 0)
		b->clearing = false;
	if (builder_is_tracking(b))
		done += update(b);
	return done;
}
