/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_log.h>
#include <rte_malloc.h>

#include "frame_table.h"

RTE_LOG_REGISTER(frame_table_logtype, braggline.frames, NOTICE);

#define LOG(level, ...) rte_log(RTE_LOG_##level, frame_table_logtype, "frames: " __VA_ARGS__)

/** Between two looks at the lanes' progress while the head is held back. */
#define LOOK_US 20

/** A builder that has not looked for so long was not running. */
#define DEAF_MS 50

static bool
in_range(const char *name, uint64_t value, uint64_t low, uint64_t high)
{
	if (value >= low && value <= high)
		return true;
	LOG(ERR, "%s is %" PRIu64 ", must be %" PRIu64 " ... %" PRIu64 "\n", name, value, low,
		high);
	rte_errno = EINVAL;
	return false;
}

static bool
config_valid(const struct frame_table_config *c)
{
	if (!in_range("number of RX lcores", c->lanes, 1, FRAME_LANES_MAX) ||
		!in_range("number of frame slots", c->slots, 2, FRAME_SLOTS_MAX) ||
		!in_range("give_up", c->give_up, 1, c->slots - 1) ||
		!in_range("agree", c->agree, 1, UINT32_MAX) ||
		!in_range("jump", c->jump, c->slots, FRAME_NUMBER_MAX / 2) ||
		!in_range("first frame", c->run.first_frame, 0, FRAME_NUMBER_MAX) ||
		!in_range("frames of a run", c->run.nb_frames, 0, FRAME_NUMBER_MAX))
		return false;
	for (uint32_t s = 0; s < c->detector->streams; s++)
		if (!in_range("owner of a stream", c->owner[s], 0, c->lanes - 1))
			return false;
	return true;
}

static void begin_run(struct frame_table *ft);
static uint64_t stream_progress(const struct frame_table *ft, uint32_t stream);

struct frame_table *
frame_table_create(const struct frame_table_config *config)
{
	const struct detector *d = config->detector;
	const uint64_t entries = rte_align64pow2((uint64_t)config->slots * 2);
	struct frame_table *ft;

	if (!config_valid(config))
		return NULL;
	ft = rte_zmalloc_socket("frame_table", sizeof(*ft), RTE_CACHE_LINE_SIZE, config->socket);
	if (ft == NULL)
		goto no_memory;
	ft->config = *config;
	ft->detector = *d;
	ft->config.detector = &ft->detector;
	ft->frames = config->frames;
	ft->frame_stride = gk_frame_stride(
		&(struct gk_geometry){.tiles = d->tiles, .tile_rows = 1, .cols = 1});
	ft->entry_mask = entries - 1;
	ft->entry = rte_zmalloc_socket(
		"frame_entries", entries * sizeof(*ft->entry), RTE_CACHE_LINE_SIZE, config->socket);
	ft->streams = rte_zmalloc_socket("frame_streams",
		(size_t)config->slots * d->streams * sizeof(*ft->streams), RTE_CACHE_LINE_SIZE,
		config->socket);
	ft->mbufs = rte_zmalloc_socket("frame_mbufs",
		(size_t)config->slots * d->tiles * sizeof(*ft->mbufs), RTE_CACHE_LINE_SIZE,
		config->socket);
	ft->lanes = rte_zmalloc_socket("frame_lanes", config->lanes * sizeof(*ft->lanes),
		RTE_CACHE_LINE_SIZE, config->socket);
	ft->builder.slot_of = rte_zmalloc_socket("frame_slot_of",
		entries * sizeof(*ft->builder.slot_of), RTE_CACHE_LINE_SIZE, config->socket);
	ft->builder.free_slots =
		rte_zmalloc_socket("frame_free", config->slots * sizeof(*ft->builder.free_slots),
			RTE_CACHE_LINE_SIZE, config->socket);
	ft->qsbr = rte_zmalloc_socket("frame_qsbr", rte_rcu_qsbr_get_memsize(config->lanes),
		RTE_CACHE_LINE_SIZE, config->socket);
	if (ft->entry == NULL || ft->streams == NULL || ft->mbufs == NULL || ft->lanes == NULL ||
		ft->builder.slot_of == NULL || ft->builder.free_slots == NULL || ft->qsbr == NULL ||
		rte_rcu_qsbr_init(ft->qsbr, config->lanes) != 0)
		goto no_memory;
	for (uint64_t i = 0; i < entries; i++)
		ft->entry[i] = FRAME_TAG_EMPTY;
	for (uint32_t i = 0; i < config->lanes; i++) {
		struct frame_lane *lane = &ft->lanes[i];

		lane->id = i;
		lane->count = rte_zmalloc_socket("frame_lane_count",
			config->slots * sizeof(*lane->count), RTE_CACHE_LINE_SIZE, config->socket);
		lane->done = rte_zmalloc_socket("frame_lane_done", entries * sizeof(*lane->done),
			RTE_CACHE_LINE_SIZE, config->socket);
		if (lane->count == NULL || lane->done == NULL)
			goto no_memory;
		for (uint32_t s = 0; s < d->streams; s++)
			lane->expected +=
				config->owner[s] == i ? detector_stream_expected(d, s) : 0;
		rte_rcu_qsbr_thread_register(ft->qsbr, i);
		rte_rcu_qsbr_thread_online(ft->qsbr, i);
	}
	for (uint32_t i = 0; i < config->slots; i++)
		ft->builder.free_slots[i] = config->slots - 1 - i;
	ft->builder.nb_free = config->slots;
	ft->window.stride = 1;
	if (!config->no_run) {
		frame_table_begin(ft, &config->run);
		/* nobody is at work yet: lanes need not be asked */
		ft->window.generation = 0;
		begin_run(ft);
	}
	return ft;

no_memory:
	LOG(ERR, "no memory for %u frame slots of %u packets on socket %d\n", config->slots,
		d->tiles, config->socket);
	frame_table_destroy(ft);
	rte_errno = ENOMEM;
	return NULL;
}

void
frame_table_destroy(struct frame_table *ft)
{
	if (ft == NULL)
		return;
	for (uint32_t i = 0; ft->lanes != NULL && i < ft->config.lanes; i++) {
		rte_free(ft->lanes[i].count);
		rte_free(ft->lanes[i].done);
	}
	rte_free(ft->entry);
	rte_free(ft->streams);
	rte_free(ft->mbufs);
	rte_free(ft->lanes);
	rte_free(ft->builder.slot_of);
	rte_free(ft->builder.free_slots);
	rte_free(ft->qsbr);
	rte_free(ft);
}

/* ---- RX lcores ---- */

void
frame_lane_move(struct frame_table *ft, struct frame_lane *lane, uint32_t generation)
{
	const struct detector *d = &ft->detector;

	for (uint32_t s = 0; s < d->streams; s++) {
		if (ft->config.owner[s] != lane->id)
			continue;
		lane->progress[s] = 0;
		lane->leap[s] = 0;
		/* numbers may come again after a restart, and in the same slots */
		for (uint32_t slot = 0; slot < ft->config.slots; slot++)
			frame_table_stream(ft, slot, s)->tag = 0;
	}
	memset(lane->count, 0, ft->config.slots * sizeof(*lane->count));
	memset(lane->done, 0, (ft->entry_mask + 1) * sizeof(*lane->done));
	lane->votes = 0;
	lane->ahead = 0;
	lane->agreed = 0;
	lane->wanted = 0;
	lane->blocked = 0;
	lane->generation = generation;
	__atomic_store_n(&lane->acknowledged, generation, __ATOMIC_RELEASE);
}

/** Count a number. @return true once `agree` in a row lie within `slots` frames */
static bool
agree_on(const struct frame_table *ft, struct frame_lane *lane, uint64_t frame)
{
	const uint64_t span = ft->config.slots;

	if (frame > FRAME_NUMBER_MAX)
		return false;
	if (lane->votes == 0 || frame + span < lane->vote_highest ||
		frame > lane->vote_lowest + span) {
		lane->votes = 0;
		lane->vote_lowest = frame;
		lane->vote_highest = frame;
	}
	lane->vote_lowest = RTE_MIN(lane->vote_lowest, frame);
	lane->vote_highest = RTE_MAX(lane->vote_highest, frame);
	if (lane->votes < ft->config.agree)
		lane->votes++;
	return lane->votes == ft->config.agree;
}

static void
vote(const struct frame_table *ft, struct frame_lane *lane, uint64_t frame)
{
	if (lane->agreed == 0 && agree_on(ft, lane, frame))
		__atomic_store_n(&lane->agreed, lane->vote_lowest + 1, __ATOMIC_RELEASE);
}

/** Once this lane has said where the window should be, nothing from there is dropped. */
static bool
is_agreed(const struct frame_table *ft, const struct frame_lane *lane, uint64_t frame)
{
	return lane->agreed != 0 && frame + 1 >= lane->agreed &&
		frame + 1 - lane->agreed < ft->config.slots;
}

void
frame_lane_vote(struct frame_table *ft, struct frame_lane *lane, uint64_t frame)
{
	vote(ft, lane, frame);
}

void
frame_lane_advance(struct frame_lane *lane, uint32_t stream, uint64_t frame)
{
	const uint64_t progress = lane->progress[stream], leap = lane->leap[stream];

	if (progress != 0 && frame > progress && frame != leap && frame + 1 != leap) {
		lane->leap[stream] = frame + 1;
		return;
	}
	__atomic_store_n(&lane->progress[stream], frame + 1, __ATOMIC_RELEASE);
}

/** There is no run. Its frame is remembered: the next run would only get the rest of it. */
static enum frame_place
drop_unused(struct frame_lane *lane, uint64_t frame)
{
	if (lane->passed != frame + 1)
		__atomic_store_n(&lane->passed, frame + 1, __ATOMIC_RELEASE);
	return FRAME_PLACE_NO_RUN;
}

enum frame_place
frame_lane_late(struct frame_table *ft, struct frame_lane *lane, uint32_t stream, uint64_t frame)
{
	if (frame > FRAME_NUMBER_MAX)
		return FRAME_PLACE_OUTLIER;
	if (__atomic_load_n(&ft->window.state, __ATOMIC_ACQUIRE) == FRAME_WINDOW_CLOSED)
		return drop_unused(lane, frame);
	if (frame >= __atomic_load_n(&ft->window.end, __ATOMIC_RELAXED))
		return FRAME_PLACE_BEYOND;
	/*
	 * What comes late, even after a long silence, is near behind what came of its own stream
	 * before. If it is, the stream has begun anew.
	 */
	if (lane->progress[stream] != 0 &&
		frame + 1 + ft->config.give_up >= lane->progress[stream]) {
		lane->votes = 0;
		return FRAME_PLACE_LATE;
	}
	/* before the first frame of a run that waits for it, numbers mean nothing */
	if (__atomic_load_n(&ft->window.base, __ATOMIC_RELAXED) <= ft->run_first)
		return FRAME_PLACE_LATE;
	vote(ft, lane, frame);
	return is_agreed(ft, lane, frame) ? FRAME_PLACE_WAIT : FRAME_PLACE_LATE;
}

enum frame_place
frame_lane_miss(struct frame_table *ft, struct frame_lane *lane, uint32_t stream, uint64_t frame)
{
	const struct frame_window *w = &ft->window;
	uint64_t base, horizon, end;
	bool near, old;
	uint32_t state;

	if (frame > FRAME_NUMBER_MAX)
		return FRAME_PLACE_OUTLIER;
	state = __atomic_load_n(&w->state, __ATOMIC_ACQUIRE);
	if (state == FRAME_WINDOW_CLOSED)
		return drop_unused(lane, frame);
	if (state != FRAME_WINDOW_OPEN ||
		__atomic_load_n(&w->generation, __ATOMIC_ACQUIRE) != lane->generation)
		return FRAME_PLACE_WAIT;
	base = __atomic_load_n(&w->base, __ATOMIC_RELAXED);
	horizon = __atomic_load_n(&w->horizon, __ATOMIC_RELAXED);
	end = __atomic_load_n(&w->end, __ATOMIC_RELAXED);

	if (frame >= end && (frame < horizon || base >= end))
		return FRAME_PLACE_BEYOND;
	/* open and refused frames reach twice the slots, and some may be lost after them */
	near = frame >= base && frame - base <= 2 * ft->entry_mask;
	old = frame >= __atomic_load_n(&w->old_low, __ATOMIC_RELAXED) &&
		frame < __atomic_load_n(&w->old_end, __ATOMIC_RELAXED);
	if (old && !near)
		return FRAME_PLACE_LATE;
	if (frame < base)
		return frame_lane_late(ft, lane, stream, frame);
	if (frame < horizon) {
		/* a corrupt number must not make the window run after it */
		if (!near && frame >= lane->ahead) {
			if (!agree_on(ft, lane, frame))
				return FRAME_PLACE_OUTLIER;
			lane->ahead = lane->vote_lowest + 1 + ft->config.slots;
		}
		return FRAME_PLACE_WAIT;
	}
	vote(ft, lane, frame);
	return is_agreed(ft, lane, frame) ? FRAME_PLACE_WAIT : FRAME_PLACE_OUTLIER;
}

/* ---- builder ---- */

static void
publish_window(struct frame_table *ft)
{
	__atomic_store_n(&ft->window.base, ft->builder.next_close, __ATOMIC_RELAXED);
	__atomic_store_n(&ft->window.horizon,
		RTE_MIN(ft->builder.next_close + ft->config.jump, FRAME_NUMBER_MAX),
		__ATOMIC_RELAXED);
}

static void
set_entry(struct frame_table *ft, uint64_t frame, uint32_t slot)
{
	__atomic_store_n(&ft->entry[frame & ft->entry_mask],
		(frame + 1) << FRAME_TAG_SLOT_BITS | slot, __ATOMIC_RELEASE);
}

/** Lowest agreement of all lanes, frame + 1; with `waiting` what a lane waits for counts too. */
static uint64_t
lanes_agreed(const struct frame_table *ft, bool waiting)
{
	uint64_t lowest = 0;

	for (uint32_t i = 0; i < ft->config.lanes; i++) {
		uint64_t at = __atomic_load_n(&ft->lanes[i].agreed, __ATOMIC_ACQUIRE);

		if (at == 0 && waiting)
			at = __atomic_load_n(&ft->lanes[i].wanted, __ATOMIC_ACQUIRE);
		if (at != 0 && (lowest == 0 || at < lowest))
			lowest = at;
	}
	return lowest;
}

static bool
lanes_acknowledged(const struct frame_table *ft)
{
	for (uint32_t i = 0; i < ft->config.lanes; i++)
		if (__atomic_load_n(&ft->lanes[i].acknowledged, __ATOMIC_ACQUIRE) !=
			ft->window.generation)
			return false;
	return true;
}

static void
set_state(struct frame_table *ft, enum frame_window_state state)
{
	__atomic_store_n(&ft->window.state, state, __ATOMIC_RELEASE);
}

/**
 * A run that begins while the detector sends begins with a whole frame: not with one of which
 * packets were dropped before. `at` and the result are frame + 1.
 */
static uint64_t
first_whole(const struct frame_table *ft, uint64_t at)
{
	const struct frame_window *w = &ft->window;
	uint64_t first = at;

	for (uint32_t i = 0; i < ft->config.lanes && ft->builder.fresh; i++) {
		const uint64_t passed = __atomic_load_n(&ft->lanes[i].passed, __ATOMIC_ACQUIRE);
		uint64_t next;

		if (passed <= w->offset)
			continue;
		/* the first of our frames after the one with number passed - 1, + 1 */
		next = (passed - 1 - w->offset) / w->stride + 2;
		if (next > first && next - at <= ft->config.slots)
			first = next;
	}
	return first;
}

/** Look for a window when there is none. Without agreement, what waits for long is believed. */
static void
find_window(struct frame_table *ft)
{
	struct frame_builder *b = &ft->builder;
	uint64_t at = lanes_agreed(ft, false);

	if (at == 0 && lanes_agreed(ft, true) != 0) {
		if (b->asked_at == 0)
			b->asked_at = rte_rdtsc();
		else if (rte_rdtsc() - b->asked_at > ft->config.stall_cycles)
			at = lanes_agreed(ft, true);
	}
	if (at == 0)
		return;
	b->move_to = first_whole(ft, at);
	if (b->move_to != at)
		ft->run_first = b->move_to - 1; /* the rest of the frame before is late */
	/*
	 * Other lanes may have seen somewhat older packets: begin earlier, silently. But when the
	 * frames of the run are counted, they count from the first one that was agreed on.
	 */
	if (b->move_to == at && ft->config.run.nb_frames == 0)
		b->move_to = at > ft->config.give_up ? at - ft->config.give_up : 1;
	set_state(ft, FRAME_WINDOW_MOVING);
}

/** Lanes go on looking them up: each in one piece. */
static void
clear_entries(struct frame_table *ft)
{
	for (uint64_t i = 0; i <= ft->entry_mask; i++)
		__atomic_store_n(&ft->entry[i], FRAME_TAG_EMPTY, __ATOMIC_RELAXED);
}

/** Two steps: a new generation, which every lane acknowledges; then the window. */
static void
move_window(struct frame_table *ft)
{
	struct frame_builder *b = &ft->builder;

	if (!b->moving) {
		clear_entries(ft);
		__atomic_store_n(
			&ft->window.generation, ft->window.generation + 1, __ATOMIC_RELEASE);
		b->moving = true;
	}
	if (!lanes_acknowledged(ft))
		return;
	if (!b->fresh) {
		const uint64_t behind = ft->entry_mask + 1, ahead = ft->config.slots;

		ft->window.old_low = b->next_close > behind ? b->next_close - behind : 0;
		ft->window.old_end = b->next_open + ahead;
		b->moved_at = rte_rdtsc();
	}
	b->next_close = b->next_open = b->move_to - 1;
	b->started = ft->config.run.first_known && b->fresh;
	if (!b->fresh)
		ft->run_first = 0;
	b->fresh = false;
	if (ft->config.run.nb_frames != 0)
		ft->window.end = b->next_close + ft->config.run.nb_frames -
			RTE_MIN(b->reported, ft->config.run.nb_frames);
	b->move_to = 0;
	b->asked_at = 0;
	b->moving = false;
	b->flushing = false;
	b->held_since = 0;
	memset(b->stalled_at, 0, sizeof(b->stalled_at));
	publish_window(ft);
	set_state(ft, FRAME_WINDOW_OPEN);
	LOG(DEBUG, "window begins at frame %" PRIu64 "\n", b->next_open);
}

/** After a while nothing of an earlier window is on its way any more. */
static void
forget_old_window(struct frame_table *ft)
{
	struct frame_builder *b = &ft->builder;

	if (rte_rdtsc() - b->moved_at < ft->config.stall_cycles)
		return;
	__atomic_store_n(&ft->window.old_end, 0, __ATOMIC_RELAXED);
	b->moved_at = 0;
}

/** Answer lanes that wait for frames which no slot is free for. */
static uint32_t
refuse_frames(struct frame_table *ft)
{
	struct frame_builder *b = &ft->builder;
	uint64_t wanted = 0;
	uint32_t refused = 0;

	for (uint32_t i = 0; i < ft->config.lanes; i++)
		wanted = RTE_MAX(wanted, __atomic_load_n(&ft->lanes[i].wanted, __ATOMIC_ACQUIRE));
	wanted = RTE_MIN(wanted, ft->window.end);
	while (b->next_open < wanted && b->next_open - b->next_close < ft->config.slots) {
		set_entry(ft, b->next_open++, FRAME_TAG_REFUSED);
		refused++;
	}
	return refused;
}

int
frame_table_begin(struct frame_table *ft, const struct frame_run *run)
{
	const uint64_t stride = RTE_MAX(run->stride, 1u);
	struct frame_builder *b = &ft->builder;

	if (ft->window.state != FRAME_WINDOW_CLOSED || b->beginning ||
		b->next_close != b->next_open)
		return -EBUSY;
	ft->config.run = *run;
	b->reported = 0;
	b->flushing = false;
	b->beginning = true;
	b->stopping = false;
	b->fresh = true;
	b->asked_at = 0;
	b->moved_at = 0;
	/* lanes may be looking: in one piece each, what they make of it is dropped or waits */
	__atomic_store_n(&ft->window.stride, stride, __ATOMIC_RELAXED);
	__atomic_store_n(&ft->window.offset, stride == 1 ? 0 : run->offset, __ATOMIC_RELAXED);
	__atomic_store_n(&ft->window.old_end, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&ft->window.end, UINT64_MAX, __ATOMIC_RELAXED);
	/* entries of the last run are closed: the same numbers may come again */
	clear_entries(ft);
	/* packets wait from now on; lanes forget what those of earlier runs made them think */
	set_state(ft, FRAME_WINDOW_MOVING);
	__atomic_store_n(&ft->window.generation, ft->window.generation + 1, __ATOMIC_RELEASE);
	return 0;
}

/** Once all lanes are ready for it, look for the run's window, or go where it is to be. */
static void
begin_run(struct frame_table *ft)
{
	const struct frame_run *run = &ft->config.run;
	const struct frame_window *w = &ft->window;
	struct frame_builder *b = &ft->builder;

	if (!lanes_acknowledged(ft))
		return;
	b->beginning = false;
	ft->run_first = 0;
	if (!run->first_known) {
		set_state(ft, FRAME_WINDOW_SEARCHED);
		return;
	}
	if (run->first_frame > w->offset)
		ft->run_first = (run->first_frame - w->offset + w->stride - 1) / w->stride;
	b->move_to = ft->run_first + 1;
	set_state(ft, FRAME_WINDOW_MOVING);
}

void
frame_table_stop(struct frame_table *ft)
{
	struct frame_builder *b = &ft->builder;
	uint64_t end = b->next_close;

	if (ft->window.state != FRAME_WINDOW_OPEN || b->flushing) {
		frame_table_end(ft);
		return;
	}
	b->stopping = true;
	for (uint32_t s = 0; s < ft->detector.streams; s++)
		end = RTE_MAX(end, stream_progress(ft, s));
	end = RTE_MIN(end, ft->window.end);
	__atomic_store_n(&ft->window.end, end, __ATOMIC_RELEASE);
	for (uint64_t f = RTE_MAX(end, b->next_close); f < b->next_open; f++)
		if ((ft->entry[f & ft->entry_mask] & FRAME_TAG_SLOT_MASK) != FRAME_TAG_REFUSED)
			set_entry(ft, f, FRAME_TAG_CLOSED);
}

void
frame_table_end(struct frame_table *ft)
{
	ft->builder.beginning = false;
	ft->builder.moving = false;
	ft->builder.move_to = 0;
	set_state(ft, FRAME_WINDOW_CLOSED);
	frame_table_flush(ft);
}

uint32_t
frame_table_open(struct frame_table *ft)
{
	struct frame_builder *b = &ft->builder;
	uint32_t opened = 0;

	if (b->beginning)
		begin_run(ft);
	if (b->beginning)
		return 0;
	if (ft->window.state == FRAME_WINDOW_SEARCHED)
		find_window(ft);
	/* a move waits until everything of the old window was given out */
	if (ft->window.state == FRAME_WINDOW_MOVING && (!b->flushing || frame_table_flushed(ft)))
		move_window(ft);
	if (ft->window.state != FRAME_WINDOW_OPEN)
		return 0;
	if (b->flushing)
		return 0;
	if (unlikely(b->moved_at != 0))
		forget_old_window(ft);
	if (unlikely(lanes_agreed(ft, false) != 0) && b->stopping) {
		/* frames from another beginning are not this run's: what had begun is its end */
		frame_table_end(ft);
		return 0;
	}
	if (unlikely(lanes_agreed(ft, false) != 0)) {
		LOG(NOTICE, "detector restarted: frame %" PRIu64 " after frame %" PRIu64 "\n",
			frame_table_number(ft, lanes_agreed(ft, false) - 1),
			frame_table_number(ft, b->next_close));
		frame_table_flush(ft);
		find_window(ft);
		return 0;
	}
	while (b->nb_free > 0 && b->next_open < ft->window.end &&
		b->next_open <= FRAME_NUMBER_MAX &&
		b->next_open - b->next_close <= ft->entry_mask) {
		const uint32_t slot = b->free_slots[--b->nb_free];

		b->slot_of[b->next_open & ft->entry_mask] = slot;
		set_entry(ft, b->next_open++, slot);
		opened++;
	}
	if (ft->config.refuse && b->nb_free == 0)
		opened += refuse_frames(ft);
	return opened;
}

static bool
lanes_complete(const struct frame_table *ft, uint64_t frame)
{
	for (uint32_t i = 0; i < ft->config.lanes; i++) {
		const struct frame_lane *lane = &ft->lanes[i];

		if (lane->expected != 0 &&
			__atomic_load_n(&lane->done[frame & ft->entry_mask], __ATOMIC_ACQUIRE) !=
				frame + 1)
			return false;
	}
	return true;
}

static uint64_t
stream_progress(const struct frame_table *ft, uint32_t stream)
{
	return __atomic_load_n(
		&ft->lanes[ft->config.owner[stream]].progress[stream], __ATOMIC_ACQUIRE);
}

/**
 * The same, for what a closed head needs: when all slots are open, a lane that is full of packets
 * for later frames waits for this very head.
 */
static uint64_t
stream_reach(const struct frame_table *ft, uint32_t stream)
{
	const struct frame_builder *b = &ft->builder;
	const uint64_t progress = stream_progress(ft, stream);
	uint64_t blocked;

	if (b->next_open - b->next_close < ft->config.slots)
		return progress;
	blocked = __atomic_load_n(&ft->lanes[ft->config.owner[stream]].blocked, __ATOMIC_ACQUIRE);
	return blocked > b->next_open ? RTE_MAX(progress, blocked) : progress;
}

/** Has the head begun, or any frame after it? */
static bool
head_begun(const struct frame_table *ft)
{
	uint64_t highest = 0;

	for (uint32_t s = 0; s < ft->detector.streams; s++)
		highest = RTE_MAX(highest, stream_progress(ft, s));
	for (uint32_t i = 0; i < ft->config.lanes; i++)
		highest = RTE_MAX(highest, __atomic_load_n(&ft->lanes[i].wanted, __ATOMIC_ACQUIRE));
	return highest > ft->builder.next_close;
}

/**
 * Silence counts only while we listen: not while the builder did not run (stopped, preempted), and
 * not while an RX lcore did not poll, as may be on shared CPUs.
 */
static void
discount_idleness(struct frame_table *ft, uint64_t now)
{
	struct frame_builder *b = &ft->builder;
	const uint64_t gap = now - b->looked_at;
	bool listened = gap < rte_get_tsc_hz() / 1000 * DEAF_MS;

	for (uint32_t i = 0; i < ft->config.lanes; i++) {
		const uint64_t polls = __atomic_load_n(&ft->lanes[i].polls, __ATOMIC_RELAXED);

		listened &= polls != b->polls[i];
		b->polls[i] = polls;
	}
	if (!listened && b->held_since != 0 && b->looked_at != 0)
		b->held_since += gap;
}

/**
 * May the head, which is not complete, be closed? Yes when every live stream is `give_up` frames
 * ahead, or by time: then the streams that hold it back are not live any more. When no stream is
 * live, everything that has begun may close.
 */
static bool
head_given_up(struct frame_table *ft)
{
	struct frame_builder *b = &ft->builder;
	const uint64_t passed = b->next_close + 1 + ft->config.give_up;
	const uint64_t now = rte_rdtsc();
	uint32_t behind = 0;

	if (now - b->looked_at < LOOK_US * rte_get_tsc_hz() / 1000000)
		return false;
	discount_idleness(ft, now);
	b->looked_at = now;
	for (uint32_t s = 0; s < ft->detector.streams; s++) {
		const uint64_t at = stream_progress(ft, s);

		if (b->stalled_at[s] != at + 1)
			b->stalled_at[s] = 0; /* it speaks (again) */
		if (b->stalled_at[s] == 0 && at < passed && stream_reach(ft, s) < passed &&
			detector_stream_expected(&ft->detector, s) != 0)
			behind++;
	}
	if (!head_begun(ft)) {
		b->held_since = 0; /* nothing of this frame or a later one: the line is idle */
		return false;
	}
	if (behind == 0)
		return true;
	if (b->held_since == 0)
		b->held_since = now;
	if (now - b->held_since < ft->config.stall_cycles)
		return false;
	for (uint32_t s = 0; s < ft->detector.streams; s++) {
		const uint64_t at = stream_progress(ft, s);

		if (at < passed)
			b->stalled_at[s] = at + 1;
	}
	b->timeout = true;
	return true;
}

uint32_t
frame_table_stream_packets(const struct frame_table *ft, uint32_t slot, uint32_t stream)
{
	const struct frame_stream *st = frame_table_stream(ft, slot, stream);
	const uint64_t number = frame_table_frame(ft, slot)->frame;
	const uint64_t frame = (number - ft->window.offset) / ft->window.stride;

	if (st->tag != ((frame + 1) << FRAME_TAG_SLOT_BITS | slot))
		return 0;
	return __builtin_popcountll(st->seen[0]) + __builtin_popcountll(st->seen[1]);
}

/** Fill the slot's header; blank what is missing. @return packets present */
static uint32_t
seal(struct frame_table *ft, uint64_t frame, uint32_t slot, bool complete)
{
	struct gk_frame *f = frame_table_frame(ft, slot);
	const struct detector *d = &ft->detector;
	uint32_t packets = 0;

	f->frame = frame_table_number(ft, frame);
	f->flags = 0;
	f->out = GK_NO_OUT;
	f->missing = 0;
	if (complete)
		return d->expected;
	for (uint32_t s = 0; s < d->streams; s++) {
		const struct frame_stream *st = frame_table_stream(ft, slot, s);
		const uint32_t present = frame_table_stream_packets(ft, slot, s);
		const uint32_t tile = detector_stream_tile(d, s);

		packets += present;
		if (present == detector_stream_expected(d, s))
			continue;
		/* what never comes (absent streams, rows not read out) was never written */
		for (uint32_t p = d->expect_from[s]; p < d->expect_to[s]; p++) {
			if (present != 0 && (st->seen[p >> 6] >> (p & 63) & 1) != 0)
				continue;
			f->packet[tile + p] = 0;
			frame_table_mbufs(ft, slot)[tile + p] = NULL;
		}
	}
	f->missing = d->expected - packets;
	return packets;
}

/** Frame + 1 of the last open one that had begun. All are closed, and no lane is at them. */
static uint64_t
last_begun(const struct frame_table *ft)
{
	const struct frame_builder *b = &ft->builder;

	for (uint64_t f = b->next_open; f-- > b->next_close;) {
		const uint32_t slot = b->slot_of[f & ft->entry_mask];
		const uint64_t tag = (f + 1) << FRAME_TAG_SLOT_BITS | slot;

		if ((ft->entry[f & ft->entry_mask] & FRAME_TAG_SLOT_MASK) == FRAME_TAG_REFUSED)
			return f + 1;
		for (uint32_t s = 0; s < ft->detector.streams; s++)
			if (frame_table_stream(ft, slot, s)->tag == tag)
				return f + 1;
	}
	return 0;
}

/** The head is closed: report it and go on. @return false if there is nothing to report */
static bool
pass_head(struct frame_table *ft, bool complete, struct frame_closed *closed)
{
	struct frame_builder *b = &ft->builder;
	const uint64_t frame = b->next_close++;
	const uint64_t tag = ft->entry[frame & ft->entry_mask];
	bool report;

	*closed = (struct frame_closed){
		.frame = frame_table_number(ft, frame), .timeout = b->timeout};
	if ((tag & FRAME_TAG_SLOT_MASK) == FRAME_TAG_REFUSED) {
		closed->refused = true;
	} else {
		closed->slot = b->slot_of[frame & ft->entry_mask];
		closed->packets = seal(ft, frame, closed->slot, complete);
		if (closed->packets == 0)
			b->free_slots[b->nb_free++] = closed->slot;
		set_entry(ft, frame, FRAME_TAG_CLOSED);
	}
	closed->missing = ft->detector.expected - closed->packets;
	report = closed->packets > 0 || closed->refused ||
		(b->started && (!b->flushing || frame < b->flush_end));
	b->started |= report;
	b->reported += report;
	b->closing = false;
	b->timeout = false;
	b->held_since = 0;
	publish_window(ft);
	return report;
}

/** Take the head away from the lanes and begin to wait until none of them is at it. */
static void
begin_closing(struct frame_table *ft)
{
	set_entry(ft, ft->builder.next_close, FRAME_TAG_CLOSED);
	ft->builder.closing = true;
	ft->builder.grace = rte_rcu_qsbr_start(ft->qsbr);
}

bool
frame_table_close(struct frame_table *ft, struct frame_closed *closed)
{
	struct frame_builder *b = &ft->builder;

	/* what is open behind the run's end is never closed but by a flush */
	while (b->next_close <
		(b->flushing ? b->next_open : RTE_MIN(b->next_open, ft->window.end))) {
		const uint64_t tag = ft->entry[b->next_close & ft->entry_mask];
		bool complete = false;

		if (b->flushing) {
			if (!b->flush_graced && rte_rcu_qsbr_check(ft->qsbr, b->grace, false) == 0)
				return false;
			if (!b->flush_graced)
				b->flush_end = last_begun(ft);
			b->flush_graced = true;
		} else if (b->closing) {
			if (rte_rcu_qsbr_check(ft->qsbr, b->grace, false) == 0)
				return false;
		} else if ((tag & FRAME_TAG_SLOT_MASK) != FRAME_TAG_REFUSED) {
			complete = lanes_complete(ft, b->next_close);
			if (!complete && !head_given_up(ft))
				return false;
			if (!complete) {
				begin_closing(ft);
				continue;
			}
		}
		if (pass_head(ft, complete, closed))
			return true;
	}
	return false;
}

void
frame_table_recycle(struct frame_table *ft, uint32_t slot)
{
	ft->builder.free_slots[ft->builder.nb_free++] = slot;
}

void
frame_table_flush(struct frame_table *ft)
{
	struct frame_builder *b = &ft->builder;

	for (uint64_t f = b->next_close; f < b->next_open; f++)
		if ((ft->entry[f & ft->entry_mask] & FRAME_TAG_SLOT_MASK) != FRAME_TAG_REFUSED)
			set_entry(ft, f, FRAME_TAG_CLOSED);
	b->flushing = true;
	b->flush_graced = false;
	b->closing = false;
	b->grace = rte_rcu_qsbr_start(ft->qsbr);
}

bool
frame_table_flushed(const struct frame_table *ft)
{
	return ft->builder.flushing && ft->builder.next_close == ft->builder.next_open;
}

bool
frame_table_ended(const struct frame_table *ft)
{
	return ft->window.state == FRAME_WINDOW_CLOSED ||
		(ft->window.state == FRAME_WINDOW_OPEN && ft->builder.next_close >= ft->window.end);
}
