/* SPDX-License-Identifier: BSD-3-Clause */
/* The builder role: commands, runs, and thresholds that change during a run. */

#include <errno.h>

#include "builder/builder_private.h"

bool
builder_veto_differs(const struct builder *b, uint64_t frame)
{
	return b->veto != b->veto_newest && frame >= b->veto_from[(b->veto + 1) % GK_PARAMS_MAX];
}

void
builder_set_versions(struct builder *b, struct frame_record *r)
{
	while (builder_veto_differs(b, r->frame))
		b->veto = (b->veto + 1) % GK_PARAMS_MAX;
	r->veto_version = b->vetoes[b->veto].params.version;
	r->pedestal_version = b->config.channel->coef[b->coef].version;
}

/** Return the veto that applies to the next frame. */
static uint32_t
take_veto(struct builder *b, const struct builder_veto *veto, uint64_t from)
{
	const uint32_t next = (b->veto_newest + 1) % GK_PARAMS_MAX;

	b->vetoes[next] = *veto;
	b->veto_from[next] = from;
	b->config.channel->params[next] = veto->params;
	b->veto_newest = next;
	return next;
}

static int
change_veto(struct builder *b, const struct builder_command *c)
{
	const struct frame_table *ft = b->config.table;
	/*
	 * Closed frames that wait keep the veto that was in force when they arrived. The first
	 * frame number of a run that has received nothing is unknown.
	 */
	const uint64_t earliest =
		ft->builder.fresh ? 0 : frame_table_number(ft, ft->builder.next_close);

	if (!b->running || b->ending || (b->veto_newest + 2) % GK_PARAMS_MAX == b->veto_retired)
		return -EBUSY;
	b->effective = RTE_MAX(c->from_frame, earliest);
	/* Vetoes apply in the order in which they were posted, whichever is in force. */
	if (b->veto != b->veto_newest)
		b->effective = RTE_MAX(b->effective, b->veto_from[b->veto_newest]);
	take_veto(b, &c->veto, b->effective);
	return 0;
}

static void
forget_streams(struct builder *b)
{
	uint64_t *words = (uint64_t *)b->stats.stream;

	for (uint32_t i = 0; i < sizeof(b->stats.stream) / (sizeof(uint64_t)); i++)
		counter_set(&words[i], 0);
	counter_set(&b->stats.complete, 0);
	b->any_absent = false;
}

static int
begin_run(struct builder *b, const struct builder_command *c)
{
	int ret;

	if (b->running)
		return -EBUSY;
	ret = frame_table_begin(b->config.table, &c->run);
	if (ret != 0)
		return ret;
	b->veto = take_veto(b, &c->veto, 0);
	b->veto_retired = b->veto;
	b->packets_min = c->packets_min;
	builder_interval_begin(b, &c->dark);
	b->run_closed = b->stats.closed;
	forget_streams(b);
	b->run_late = b->stats.late_frames;
	counter_set(&b->stats.first_frame, 0);
	counter_set(&b->stats.last_frame, 0);
	b->running = true;
	b->ending = false;
	b->aborting = false;
	b->ended = false;
	__atomic_store_n(&b->idle, false, __ATOMIC_RELEASE);
	return 0;
}

/** Discard closed frames that no gang has. */
static void
abort_waiting(struct builder *b)
{
	for (; b->dispatch != b->close; b->dispatch++) {
		struct place *place = place_at(b, b->dispatch);

		builder_set_versions(b, place->record);
		if (place->state != PLACE_CLOSED)
			continue;
		frame_table_release(b->config.table, place->slot);
		frame_table_recycle(b->config.table, place->slot);
		place->record->verdict = FRAME_ABORTED;
		place->state = PLACE_READY;
	}
}

static int
end_run(struct builder *b, bool aborting)
{
	if (!b->running)
		return -EBUSY;
	if (aborting) {
		frame_table_end(b->config.table);
		abort_waiting(b);
	} else if (!b->ending) {
		frame_table_stop(b->config.table);
	}
	b->ending = true;
	b->aborting |= aborting;
	return 0;
}

void
builder_carry_out(struct builder *b)
{
	const struct builder_command *c = &b->command;
	uint32_t posted = BUILDER_COMMAND_POSTED;

	if (!__atomic_compare_exchange_n(&b->order, &posted, BUILDER_COMMAND_TAKEN, false,
		    __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return;
	switch (c->order) {
	case BUILDER_BEGIN:
		b->result = begin_run(b, c);
		break;
	case BUILDER_END:
	case BUILDER_ABORT:
		b->result = end_run(b, c->order == BUILDER_ABORT);
		break;
	case BUILDER_VETO:
		b->result = change_veto(b, c);
		break;
	}
	__atomic_store_n(&b->order, BUILDER_COMMAND_DONE, __ATOMIC_RELEASE);
}

void
builder_check_run(struct builder *b)
{
	if (!b->running || b->retire != b->close || b->nb_tasks > 0)
		return;
	if (!b->ending && frame_table_ended(b->config.table))
		__atomic_store_n(&b->ended, true, __ATOMIC_RELEASE);
	if (b->ending && frame_table_ended(b->config.table) &&
		b->config.table->window.state != FRAME_WINDOW_CLOSED)
		frame_table_end(b->config.table);
	if (b->ending && frame_table_flushed(b->config.table) &&
		b->nb_free_records == BUILDER_RECORDS) {
		b->running = false;
		__atomic_store_n(&b->idle, true, __ATOMIC_RELEASE);
	}
}

int
builder_post(struct builder *b, const struct builder_command *command)
{
	const uint32_t order = __atomic_load_n(&b->order, __ATOMIC_ACQUIRE);

	if (order == BUILDER_COMMAND_POSTED || order == BUILDER_COMMAND_TAKEN)
		return -EBUSY;
	b->command = *command;
	__atomic_store_n(&b->order, BUILDER_COMMAND_POSTED, __ATOMIC_RELEASE);
	return 0;
}

bool
builder_cancel(struct builder *b)
{
	uint32_t posted = BUILDER_COMMAND_POSTED;

	return __atomic_compare_exchange_n(&b->order, &posted, BUILDER_COMMAND_NONE, false,
		__ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

int
builder_result(const struct builder *b, uint64_t *effective)
{
	if (__atomic_load_n(&b->order, __ATOMIC_ACQUIRE) != BUILDER_COMMAND_DONE)
		return -EINPROGRESS;
	if (effective != NULL)
		*effective = b->effective;
	return b->result;
}

bool
builder_is_idle(const struct builder *b)
{
	return __atomic_load_n(&b->idle, __ATOMIC_ACQUIRE);
}

bool
builder_has_ended(const struct builder *b)
{
	return __atomic_load_n(&b->ended, __ATOMIC_ACQUIRE);
}
