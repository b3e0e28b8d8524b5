/* SPDX-License-Identifier: BSD-3-Clause */
/* Slots of the frame table: create, open, refuse, release and recycle them. */

#include <errno.h>
#include <inttypes.h>

#include <rte_errno.h>
#include <rte_malloc.h>

#include "frames/frame_table_private.h"
#include "log.h"

LOG_REGISTER("frames", "frames");

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
	if (!in_range("number of RX lcores", c->nb_rx, 1, FRAME_RX_MAX) ||
		!in_range("number of frame slots", c->slots, 2, FRAME_SLOTS_MAX) ||
		!in_range("max_skew_frames", c->max_skew_frames, 1, c->slots - 1) ||
		!in_range("resync_packets", c->resync_packets, 1, UINT32_MAX) ||
		!in_range("max_gap_frames", c->max_gap_frames, c->slots, FRAME_NUMBER_MAX / 2) ||
		!in_range("first frame", c->run.first_frame, 0, FRAME_NUMBER_MAX) ||
		!in_range("frames of a run", c->run.nb_frames, 0, FRAME_NUMBER_MAX))
		return false;
	for (uint32_t s = 0; s < c->detector->streams; s++)
		if (!in_range("owner of a stream", c->owner[s], 0, c->nb_rx - 1))
			return false;
	return true;
}

struct frame_table *
frame_table_create(const struct frame_table_config *config)
{
	const struct detector *d = config->detector;
	const uint64_t entries = rte_align64pow2((uint64_t)config->slots * 2);
	struct frame_builder *b;
	struct frame_table *ft;

	if (!config_valid(config))
		return NULL;
	ft = rte_zmalloc_socket("frame_table", sizeof(*ft), RTE_CACHE_LINE_SIZE, config->socket);
	if (ft == NULL)
		goto no_memory;
	b = rte_zmalloc_socket("frame_builder", sizeof(*b), RTE_CACHE_LINE_SIZE, config->socket);
	if (b == NULL)
		goto no_memory;
	ft->builder = b;
	ft->config = *config;
	ft->detector = *d;
	ft->config.detector = &ft->detector;
	ft->frames = config->frames;
	ft->frame_stride = gk_frame_stride(
		&(struct gk_geometry){.tiles = d->tiles * d->parts, .tile_rows = 1, .cols = 1});
	ft->entry_mask = entries - 1;
	ft->deaf_cycles =
		RTE_MIN(rte_get_tsc_hz() / 1000 * FRAME_DEAF_MS, config->stall_cycles / 8);
	ft->entry = rte_zmalloc_socket(
		"frame_entries", entries * sizeof(*ft->entry), RTE_CACHE_LINE_SIZE, config->socket);
	ft->streams = rte_zmalloc_socket("frame_streams",
		(size_t)config->slots * d->streams * sizeof(*ft->streams), RTE_CACHE_LINE_SIZE,
		config->socket);
	ft->mbufs = rte_zmalloc_socket("frame_mbufs",
		(size_t)config->slots * d->tiles * sizeof(*ft->mbufs), RTE_CACHE_LINE_SIZE,
		config->socket);
	ft->rx = rte_zmalloc_socket(
		"frame_rx", config->nb_rx * sizeof(*ft->rx), RTE_CACHE_LINE_SIZE, config->socket);
	b->slot_of = rte_zmalloc_socket("frame_slot_of", entries * sizeof(*b->slot_of),
		RTE_CACHE_LINE_SIZE, config->socket);
	b->free_slots = rte_zmalloc_socket("frame_free", config->slots * sizeof(*b->free_slots),
		RTE_CACHE_LINE_SIZE, config->socket);
	b->present = rte_zmalloc_socket("frame_present", config->slots * sizeof(*b->present),
		RTE_CACHE_LINE_SIZE, config->socket);
	b->released = rte_zmalloc_socket("frame_released", config->slots * sizeof(*b->released),
		RTE_CACHE_LINE_SIZE, config->socket);
	b->recycled = rte_zmalloc_socket("frame_recycled", entries * sizeof(*b->recycled),
		RTE_CACHE_LINE_SIZE, config->socket);
	ft->releases = rte_zmalloc_socket("frame_releases", entries * sizeof(*ft->releases),
		RTE_CACHE_LINE_SIZE, config->socket);
	ft->qsbr = rte_zmalloc_socket("frame_qsbr", rte_rcu_qsbr_get_memsize(config->nb_rx),
		RTE_CACHE_LINE_SIZE, config->socket);
	b->late = frame_late_create(config->socket);
	if (ft->entry == NULL || ft->streams == NULL || ft->mbufs == NULL || ft->rx == NULL ||
		b->slot_of == NULL || b->free_slots == NULL || b->released == NULL ||
		b->present == NULL || b->recycled == NULL || ft->releases == NULL ||
		ft->qsbr == NULL || b->late == NULL ||
		rte_rcu_qsbr_init(ft->qsbr, config->nb_rx) != 0)
		goto no_memory;
	for (uint64_t i = 0; i < entries; i++)
		ft->entry[i] = FRAME_TAG_EMPTY;
	for (uint32_t i = 0; i < config->nb_rx; i++) {
		struct frame_rx *frx = &ft->rx[i];

		frx->id = i;
		frx->count = rte_zmalloc_socket("frame_rx_count",
			config->slots * sizeof(*frx->count), RTE_CACHE_LINE_SIZE, config->socket);
		frx->done = rte_zmalloc_socket("frame_rx_done", entries * sizeof(*frx->done),
			RTE_CACHE_LINE_SIZE, config->socket);
		if (frx->count == NULL || frx->done == NULL)
			goto no_memory;
		for (uint32_t s = 0; s < d->streams; s++)
			frx->expected += config->owner[s] == i ? detector_stream_expected(d, s) : 0;
		rte_rcu_qsbr_thread_register(ft->qsbr, i);
		rte_rcu_qsbr_thread_online(ft->qsbr, i);
	}
	for (uint32_t i = 0; i < config->slots; i++)
		b->free_slots[i] = config->slots - 1 - i;
	b->nb_free = config->slots;
	ft->window.stride = 1;
	if (!config->no_run) {
		frame_table_begin(ft, &config->run);
		/* no RX role is polled yet, so none has to acknowledge */
		ft->window.generation = 0;
		frame_window_begin_run(ft);
	}
	return ft;

no_memory:
	LOG(ERR, "cannot allocate %u frame slots of %u packets on socket %d\n", config->slots,
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
	for (uint32_t i = 0; ft->rx != NULL && i < ft->config.nb_rx; i++) {
		rte_free(ft->rx[i].count);
		rte_free(ft->rx[i].done);
	}
	rte_free(ft->entry);
	rte_free(ft->streams);
	rte_free(ft->mbufs);
	rte_free(ft->rx);
	rte_free(ft->releases);
	rte_free(ft->qsbr);
	if (ft->builder != NULL) {
		rte_free(ft->builder->slot_of);
		rte_free(ft->builder->free_slots);
		rte_free(ft->builder->released);
		rte_free(ft->builder->present);
		rte_free(ft->builder->recycled);
		frame_late_free(ft->builder->late);
		rte_free(ft->builder);
	}
	rte_free(ft);
}

/** Refuse the frames that RX roles wait for, because no slot is free. */
static uint32_t
refuse_frames(struct frame_table *ft)
{
	struct frame_builder *b = ft->builder;
	uint64_t wanted = 0, lowest = UINT64_MAX;
	uint32_t refused = 0;

	for (uint32_t i = 0; i < ft->config.nb_rx; i++) {
		const struct frame_rx *frx = &ft->rx[i];
		uint64_t at = __atomic_load_n(&frx->waits_for, __ATOMIC_ACQUIRE);

		/* a frame that is not among the next ones counts only if nothing else can come */
		if (at > b->next_open + ft->config.max_skew_frames)
			at = __atomic_load_n(&frx->blocked, __ATOMIC_ACQUIRE);
		wanted = RTE_MAX(wanted, at);
		if (at != 0)
			lowest = RTE_MIN(lowest, at - 1);
	}
	/* the window begins before the requested frame: its first frames may not exist */
	if (b->next_open < b->requested && lowest != UINT64_MAX &&
		(b->unnamed == 0 || b->unnamed >= b->next_open))
		__atomic_store_n(&b->unnamed, RTE_MIN(b->requested, lowest), __ATOMIC_RELAXED);
	wanted = RTE_MIN(wanted, ft->window.end);
	while (b->next_open < wanted && b->next_open - b->next_close < ft->config.slots) {
		frame_entry_set(ft, b->next_open++, FRAME_TAG_REFUSED);
		refused++;
	}
	if (refused > 0)
		b->short_behind = b->held ? b->behind : 0;
	return refused;
}

/** Free the recycled slots whose mbufs every RX role has freed. */
static void
take_recycled(struct frame_table *ft)
{
	struct frame_builder *b = ft->builder;
	uint64_t passed = UINT64_MAX;

	if (b->recycled_first == b->recycled_end)
		return;
	for (uint32_t i = 0; i < ft->config.nb_rx; i++)
		passed = RTE_MIN(passed, __atomic_load_n(&ft->rx[i].reclaimed, __ATOMIC_ACQUIRE));
	for (; b->recycled_first != b->recycled_end; b->recycled_first++) {
		const uint32_t slot = b->recycled[b->recycled_first & ft->entry_mask];

		if (b->released[slot] > passed)
			break;
		b->free_slots[b->nb_free++] = slot;
	}
}

uint32_t
frame_table_open(struct frame_table *ft)
{
	struct frame_builder *b = ft->builder;
	uint32_t opened = 0;

	take_recycled(ft);
	if (!frame_window_ready(ft))
		return 0;
	while (b->nb_free > 0 && b->next_open < ft->window.end &&
		b->next_open <= FRAME_NUMBER_MAX &&
		b->next_open - b->next_close <= ft->entry_mask) {
		const uint32_t slot = b->free_slots[--b->nb_free];

		b->slot_of[b->next_open & ft->entry_mask] = slot;
		frame_entry_set(ft, b->next_open++, slot);
		opened++;
	}
	if (ft->config.refuse && b->nb_free == 0)
		opened += refuse_frames(ft);
	if (opened > 0) {
		__atomic_store_n(&ft->window.next, b->next_open, __ATOMIC_RELAXED);
		frame_window_changed(ft);
	}
	return opened;
}

uint64_t
frame_table_next(const struct frame_table *ft)
{
	return ft->builder->fresh ? 0 : frame_table_number(ft, ft->builder->next_close);
}

uint64_t
frame_table_late_frames(const struct frame_table *ft)
{
	return ft->builder->late_frames;
}

uint64_t
frame_table_last_number(const struct frame_table *ft, uint32_t stream)
{
	const uint64_t progress = frame_stream_progress(ft, stream);

	return progress == 0 ? 0 : frame_table_number(ft, progress - 1);
}

uint32_t
frame_table_stream_packets(const struct frame_table *ft, uint32_t slot, uint32_t stream)
{
	const struct frame_stream *st = frame_table_stream(ft, slot, stream);

	if ((ft->builder->present[slot] >> stream & 1) == 0)
		return 0;
	return __builtin_popcountll(st->seen[0]) + __builtin_popcountll(st->seen[1]);
}

void
frame_table_lose(struct frame_table *ft, struct frame_closed *closed, const uint64_t map[])
{
	const struct detector *d = &ft->detector;

	closed->packets = 0;
	for (uint32_t s = 0; s < d->streams; s++) {
		struct frame_stream *st = frame_table_stream(ft, closed->slot, s);
		const uint32_t first = detector_stream_tile(d, s);

		if (frame_table_stream_packets(ft, closed->slot, s) == 0)
			continue;
		for (uint32_t p = d->expect_from[s]; p < d->expect_to[s]; p++)
			if ((map[(first + p) / 64] >> (first + p) % 64 & 1) != 0)
				st->seen[p >> 6] &= ~(UINT64_C(1) << (p & 63));
		closed->packets += frame_table_stream_packets(ft, closed->slot, s);
	}
	closed->missing = d->expected - closed->packets;
}

void
frame_table_release(struct frame_table *ft, uint32_t slot)
{
	const uint64_t nb = ft->builder->nb_releases++;

	ft->builder->released[slot] = nb + 1;
	__atomic_store_n(&ft->releases[nb & ft->entry_mask], (nb + 1) << FRAME_TAG_SLOT_BITS | slot,
		__ATOMIC_RELEASE);
}

void
frame_table_recycle(struct frame_table *ft, uint32_t slot)
{
	struct frame_builder *b = ft->builder;

	b->recycled[b->recycled_end++ & ft->entry_mask] = slot;
	take_recycled(ft);
}

void
frame_table_flush(struct frame_table *ft)
{
	struct frame_builder *b = ft->builder;

	for (uint64_t f = b->next_close; f < b->next_open; f++)
		if ((ft->entry[f & ft->entry_mask] & FRAME_TAG_SLOT_MASK) != FRAME_TAG_REFUSED)
			frame_entry_set(ft, f, FRAME_TAG_CLOSED);
	frame_window_changed(ft);
	b->flushing = true;
	b->flush_graced = false;
	b->closing = false;
	b->grace = rte_rcu_qsbr_start(ft->qsbr);
}

bool
frame_table_flushed(const struct frame_table *ft)
{
	return ft->builder->flushing && ft->builder->next_close == ft->builder->next_open;
}

bool
frame_table_ended(const struct frame_table *ft)
{
	return ft->window.state == FRAME_WINDOW_CLOSED ||
		(ft->window.state == FRAME_WINDOW_OPEN &&
			ft->builder->next_close >= ft->window.end);
}
