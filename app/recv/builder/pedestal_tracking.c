/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The builder role: pedestal intervals and dark frames (gk_abi.h, struct gk_dark).
 *
 * Frames are cut into pedestal intervals by their number. Darks of pedestal interval e are added up
 * in set e % 2 and take effect from pedestal interval e + 2 on: while frames of pedestal interval e
 * + 1 are given to gangs, and all of pedestal interval e have retired, the update of pedestal
 * interval e + 2 is handed out; frames of e + 2 are held until it is done. So the update runs
 * beside the frames, and a frame waits only if the pedestal interval is shorter than the pipeline.
 * Versions of coefficients take turns in places 0 and 1 of gk_channel.coef.
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

/** Hand out a task that is not about frames. @return false if no gang can take it now */
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

/** Begin with this pedestal interval: what was added up before counts no more. */
static void
begin_at(struct builder *b, uint64_t interval)
{
	/* nothing else is out: two tasks find room */
	if (b->retire != b->dispatch || b->nb_tasks > 0)
		return;
	for (uint32_t set = 0; set < GK_DARK_MAX; set++)
		hand_out(b, GK_OP_CLEAR, set, 0);
	b->clearing = true;
	b->interval_known = true;
	b->interval = interval;
	b->interval_first = interval;
	/* the first two pedestal intervals have the coefficients that are there */
	b->interval_ready = interval + 1;
}

bool
builder_interval_enter(struct builder *b, uint64_t frame)
{
	const uint64_t interval = builder_interval_of(b, frame);

	if (!builder_is_tracking(b))
		return true;
	/* the run begins, or the detector counts anew */
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

/** Is every frame of this pedestal interval, and of those before, retired? */
static bool
interval_has_retired(struct builder *b, uint64_t interval)
{
	if (b->retire == b->close)
		return true;
	return builder_interval_of(b, place_at(b, b->retire)->record->frame) > interval;
}

/**
 * Update the coefficients for the pedestal interval after the one in force, once it can be done.
 */
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

/** What an update that is done has found. */
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
