/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The builder role: epochs and dark frames (gk_abi.h, struct gk_dark).
 *
 * Frames are cut into epochs by their number. Darks of epoch e are added up in set e % 2 and take
 * effect from epoch e + 2 on: while frames of epoch e + 1 are given to gangs, and all of epoch e
 * have retired, the update of epoch e + 2 is handed out; frames of e + 2 are held until it is done.
 * So the update runs beside the frames, and a frame waits only if the epoch is shorter than the
 * pipeline. Versions of coefficients take turns in places 0 and 1 of gk_channel.coef.
 */

#include "builder_private.h"

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
builder_epoch_begin(struct builder *b, const struct builder_dark *dark)
{
	b->dark = *dark;
	b->epoch = 0;
	b->epoch_ready = 0;
	b->clearing = false;
	b->epoch_known = false;
	b->coef = 0;
}

/** Begin with this epoch: what was added up before counts no more. */
static void
begin_at(struct builder *b, uint64_t epoch)
{
	/* nothing else is out: two tasks find room */
	if (b->retire != b->dispatch || b->nb_tasks > 0)
		return;
	for (uint32_t set = 0; set < GK_DARK_MAX; set++)
		hand_out(b, GK_OP_CLEAR, set, 0);
	b->clearing = true;
	b->epoch_known = true;
	b->epoch = epoch;
	b->epoch_first = epoch;
	/* the first two epochs have the coefficients that are there */
	b->epoch_ready = epoch + 1;
}

bool
builder_epoch_enter(struct builder *b, uint64_t frame)
{
	const uint64_t epoch = builder_epoch_of(b, frame);

	if (!builder_is_tracking(b))
		return true;
	/* the run begins, or the detector counts anew */
	if (!b->epoch_known || epoch < b->epoch || epoch > b->epoch + 1) {
		begin_at(b, epoch);
		return false;
	}
	if (b->clearing)
		return false;
	if (epoch == b->epoch)
		return true;
	if (epoch > b->epoch_ready)
		return false;
	if (epoch >= b->epoch_first + 2)
		b->coef ^= 1;
	b->epoch = epoch;
	return true;
}

/** Is every frame of this epoch, and of those before, retired? */
static bool
epoch_has_retired(struct builder *b, uint64_t epoch)
{
	if (b->retire == b->close)
		return true;
	return builder_epoch_of(b, place_at(b, b->retire)->record->frame) > epoch;
}

/** Update the coefficients for the epoch after the one in force, once it can be done. */
static uint32_t
update(struct builder *b)
{
	const uint64_t next = b->epoch + 1;
	const uint32_t to = b->coef ^ 1;
	struct gk_coef *coef = b->config.channel->coef;

	if (!b->epoch_known || b->nb_tasks > 0 || b->epoch_ready >= next || !b->running ||
		!epoch_has_retired(b, next - 2))
		return 0;
	coef[to].version = coef[b->coef].version + 1;
	if (!hand_out(b, GK_OP_UPDATE, next % GK_DARK_MAX, to))
		return 0;
	b->task_epoch = next;
	return 1;
}

/** What an update that is done has found. */
static void
note_update(struct builder *b)
{
	const struct gk_update *u = &b->config.channel->update[b->task_epoch % GK_DARK_MAX];

	b->epoch_ready = b->task_epoch;
	counter_add(&b->stats.updates, 1);
	counter_add(&b->stats.update_samples, u->samples);
	__atomic_store_n(&b->stats.update_pixels, u->updated, __ATOMIC_RELAXED);
	__atomic_store_n(&b->stats.update_drift_q8, u->drift, __ATOMIC_RELAXED);
	__atomic_store_n(&b->stats.pedestal_version, u->to, __ATOMIC_RELAXED);
}

uint32_t
builder_epoch_poll(struct builder *b)
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
