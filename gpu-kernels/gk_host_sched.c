/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Scheduling of a gang: its claim word (gk_host.h).
 *
 *   STOPPED --start()--> IDLE --doorbell--> SETUP --> STATS --> PEAKS --> OUTPUT --> IDLE
 *                         |                  | |        | |     |   |       ^        ^ ^
 *                         +-stop()-> STOPPED | |        | +-----|---|-------+        | |
 *                                            | |        +-------+---nothing is kept--+ |
 *                                            | +------> UPDATE ------------------------+
 *                                            +--refused--> FAILED
 *
 * If blocks of chunks are not in their places, PLACE comes before IDLE, with or without OUTPUT.
 *
 * A thread leaves IDLE by compare-and-swap, because several threads may see the doorbell. In every
 * other state only one thread may change the state: the one that entered SETUP, or the one that
 * finished the last tile. These transitions are plain release stores, which overwrite what late
 * claims have added.
 *
 * A claim is a fetch-and-add. It claims the state that the operation returns, not the one read
 * before: in between, the gang may have advanced by any number of phases and batches. Reading the
 * word first limits the growth of the tile field: it exceeds the number of tiles by at most one
 * quantum per thread. PEAKS has no tiles: a claim that comes late is without effect there.
 */

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "gk_host.h"

/*
 * Maximum number of consecutive tiles that a thread processes. For a batch of 8 JUNGFRAU frames
 * they take about 25 us. Their pointers occupy one cache line per frame, as do the counts of their
 * rows.
 */
#define QUANTUM_TILES 8

static void
enter(struct gang *g, uint32_t done, enum gang_phase phase)
{
	/* the release below orders this before the claims of the new phase */
	atomic_store_explicit(&g->finished, 0, memory_order_relaxed);
	atomic_store_explicit(&g->claim, gang_claim(done, phase), memory_order_release);
}

/* Report batch `done`: all its results and outputs are written. */
static void
complete(const struct gk *gk, struct gang *g, uint32_t gang, uint32_t done)
{
	struct gk_done *line = &gk->config.channel->done[gang];

	/*
	 * `raw` first, because it is never less than `done`. The claim word last, because the
	 * thread that starts the next batch writes this line after it.
	 */
	__atomic_store_n(&line->raw, done + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&line->done, done + 1, __ATOMIC_RELEASE);
	enter(g, done + 1, GANG_IDLE);
}

/*
 * Output format to produce while counting. It is certain if all frames are hits or this one is
 * kept; only lists may become too long. Otherwise it is predicted from the last batch. If the
 * prediction is wrong, the output is discarded.
 */
static uint32_t
early_kind(const struct gk *gk, const struct gang *g, const struct gang_frame *f,
	const struct gk_params *params)
{
	const bool hit = params->strong_min == 0 && params->strong_max == UINT32_MAX &&
		params->search == GK_SEARCH_NONE;
	const bool kept = (f->flags & GK_FRAME_KEEP) && !(f->flags & GK_FRAME_KIND_RAW);

	if (f->out == NULL)
		return GK_KIND_NONE;
	/* blocks with values of two tiles are made when both are counted */
	if (gang_is_chunk(g, f, params->kind) && gk->tile_pixels % GK_BITSHUFFLE_BLOCK != 0)
		return GK_KIND_NONE;
	if (g->likely || ((hit || kept) && params->kind != GK_KIND_CSR))
		return params->kind;
	return GK_KIND_NONE;
}

static void
setup_frame(const struct gk *gk, struct gang *g, uint32_t index, uint32_t slot)
{
	const struct gk_config *c = &gk->config;
	struct gang_frame *f = &g->batch.frame[index];
	struct gk_frame *frame = (struct gk_frame *)(c->frames + slot * gk->frame_stride);

	f->packet = f->source = frame->packet;
	f->taken = NULL;
	f->out = frame->out == GK_NO_OUT ? NULL : c->outputs + frame->out * c->layout.stride;
	f->result = &c->results[slot];
	f->row_nnz = g->row_nnz + (uint64_t)index * gk->rows;
	f->bits = f->out == NULL || g->batch.params.kind != GK_KIND_CSR
		? NULL
		: g->bits + (uint64_t)index * c->geometry.tiles * gk->tile_bits;
	f->number = frame->frame;
	f->flags = frame->flags;
	f->details = c->details == NULL ? NULL : &c->details[slot];
	f->profile = c->channel->radial.bin == 0
		? NULL
		: c->profiles + frame->profile * gk_profile_stride(c->channel->radial.nb_bins);
	f->is_searched = false;
	f->peaks = 0;
	f->peaks_found = GK_NOT_SEARCHED;
	f->has_peaks = false;
	f->kind = GK_KIND_NONE;
	f->chunk = f->out != NULL && g->batch.params.chunks != 0 ? &g->chunk[index] : NULL;
	f->early = early_kind(gk, g, f, &g->batch.params);
	if (gang_is_chunk(g, f, f->early))
		gk_host_chunk_begin(gk, f->chunk);
	f->packed = g->packed + (uint64_t)index * c->geometry.tiles;
	atomic_store_explicit(&g->sums[index].sum, 0, memory_order_relaxed);
	atomic_store_explicit(&g->sums[index].strong_nnz, 0, memory_order_relaxed);
	atomic_store_explicit(&g->sums[index].saturated_invalid, 0, memory_order_relaxed);
	atomic_store_explicit(&g->sums[index].unplaced, 0, memory_order_relaxed);
	atomic_store_explicit(&g->sums[index].missing_overrun, 0, memory_order_relaxed);
	if (!(frame->flags & GK_FRAME_TRAILER))
		return;
	f->taken = g->taken + (uint64_t)index * c->geometry.tiles;
	f->packet = f->taken;
	f->trailer = htole64(frame->trailer);
	f->missing = gk_missing_map(&c->geometry, frame);
	memset(f->missing, 0, gk_missing_size(&c->geometry));
	g->batch.trailers++;
}

/*
 * Predicted lists begin at 0 in the first tile. The start in other tiles is known during counting.
 */
static void
setup_places(const struct gk *gk, struct gang *g)
{
	for (uint32_t tile = 0; tile < gk->config.geometry.tiles; tile++)
		atomic_store_explicit(&g->place[tile].state, tile == 0 ? GANG_PLACE_KNOWN : 0,
			memory_order_relaxed);
	memset(g->place[0].start, 0, sizeof(g->place[0].start));
}

/* Prepare an update or a clearing. Only an update has coefficients and parameters. */
static void
setup_update(const struct gk *gk, struct gang *g, const struct gk_work *work)
{
	struct gk_channel *channel = gk->config.channel;
	const struct gk_coef *to = &channel->coef[work->coef_to];

	g->batch.cells = (uint64_t *)(uintptr_t)channel->dark[work->dark].cells;
	g->batch.p_to = NULL;
	if (work->op == GK_OP_CLEAR)
		return;
	g->batch.p_to = (float *)(uintptr_t)to->p[0];
	g->batch.version_to = to->version;
	g->batch.update = &channel->update[work->dark];
	atomic_store_explicit(&g->update.samples, 0, memory_order_relaxed);
	atomic_store_explicit(&g->update.drift, 0, memory_order_relaxed);
	atomic_store_explicit(&g->update.updated, 0, memory_order_relaxed);
}

static void
setup_coef(struct gang *g, const struct gk_coef *coef, const struct gk_params *params)
{
	for (int i = 0; i < 3; i++) {
		g->batch.p[i] = (const float *)(uintptr_t)coef->p[i];
		g->batch.r[i] = (const float *)(uintptr_t)coef->r[i];
	}
	g->batch.coef_version = coef->version;
	g->batch.params = *params;
}

/* Only one thread is in SETUP. */
static void
setup(const struct gk *gk, struct gang *g, uint32_t gang, uint32_t done)
{
	struct gk_channel *channel = gk->config.channel;
	const struct gk_work *work = &channel->work[gang][done & (GK_RING_SIZE - 1)];
	int ret;

	ret = gk_descriptor_check(&gk->config, work, NULL, 0);
	if (ret != 0) {
		__atomic_store_n(&channel->done[gang].error, (uint32_t)ret, __ATOMIC_RELEASE);
		enter(g, done, GANG_FAILED);
		return;
	}
	if (work->op != GK_OP_CLEAR)
		setup_coef(g, &channel->coef[work->coef], &channel->params[work->params]);
	if (work->op == GK_OP_FRAMES && g->batch.params.search != GK_SEARCH_NONE)
		g->batch.peak = channel->peak[work->params];
	if (work->op != GK_OP_FRAMES) {
		setup_update(gk, g, work);
		enter(g, done, GANG_UPDATE);
		return;
	}
	g->batch.nb_frames = work->nb_frames;
	g->batch.dark_frames = g->batch.trailers = 0;
	atomic_store_explicit(&g->nb_packed, 0, memory_order_relaxed);
	if (g->likely && g->batch.params.kind == GK_KIND_CSR)
		setup_places(gk, g);
	for (uint32_t i = 0; i < work->nb_frames; i++) {
		setup_frame(gk, g, i, work->slot[i]);
		g->batch.dark_frames += (g->batch.frame[i].flags & GK_FRAME_DARK) != 0;
	}
	if (g->batch.dark_frames > 0)
		g->batch.cells = (uint64_t *)(uintptr_t)channel->dark[work->dark].cells;
	enter(g, done, GANG_STATS);
}

/*
 * Check for a new batch in the doorbell. `quit` is not checked here: a thread that has read it, and
 * continues after the gangs were stopped and started again, would find the same claim word and stop
 * them again. stop() handles it.
 */
static int
idle(const struct gk *gk, struct gang *g, uint32_t gang, uint64_t claim)
{
	const uint32_t done = gang_claim_done(claim);
	const uint32_t head =
		__atomic_load_n(&gk->config.channel->bell.head[gang], __ATOMIC_ACQUIRE);

	/* The batch count in the claim word prevents a match with a later idle state. */
	if (head == done ||
		!atomic_compare_exchange_strong_explicit(&g->claim, &claim,
			gang_claim(done, GANG_SETUP), memory_order_acq_rel, memory_order_relaxed))
		return 0;
	setup(gk, g, gang, done);
	return 1;
}

/* All outputs are made, but blocks of chunks may not be in their places. */
static void
end_output(const struct gk *gk, struct gang *g, uint32_t gang, uint32_t done)
{
	if (gk->config.chunks && gk_host_chunk_end(gk, g))
		enter(g, done, GANG_PLACE);
	else
		complete(gk, g, gang, done);
}

/* All frames are counted and searched; only this thread advances the gang. */
static void
decide(const struct gk *gk, struct gang *g, uint32_t gang, uint32_t done)
{
	struct gk_done *line = &gk->config.channel->done[gang];
	uint32_t left = 0, reads = 0, outs = 0, as_asked = 0;

	for (uint32_t i = 0; i < g->batch.nb_frames; i++) {
		const struct gang_frame *f = &g->batch.frame[i];

		gk_host_verdict(gk, g, i);
		left += f->left != GK_KIND_NONE;
		reads += f->left != GK_KIND_NONE && f->taken == NULL;
		outs += f->out != NULL;
		as_asked += f->out != NULL && f->kind == g->batch.params.kind;
	}
	/*
	 * One third: below this, wasted f32 images (the most expensive ones) cost more than second
	 * passes.
	 */
	if (outs > 0)
		g->likely = 3 * as_asked > outs;
	/* outputs are made from the copies of tiles with trailers */
	if (reads == 0)
		__atomic_store_n(&line->raw, done + 1, __ATOMIC_RELEASE);
	if (left == 0)
		end_output(gk, g, gang, done);
	else
		enter(g, done, GANG_OUTPUT);
}

/* The last tile of STATS is finished. */
static void
end_stats(const struct gk *gk, struct gang *g, uint32_t gang, uint32_t done)
{
	if (gk_host_search_begin(g, done) > 0)
		enter(g, done, GANG_PEAKS);
	else
		decide(gk, g, gang, done);
}

static int
search(const struct gk *gk, struct gang *g, uint32_t gang, uint32_t done, uint32_t worker)
{
	const enum gang_searched searched = gk_host_search(gk, g, done, worker);

	if (searched == GANG_SEARCHED_ALL)
		decide(gk, g, gang, done);
	return searched != GANG_SEARCHED_NONE;
}

static bool
has_tiles(enum gang_phase phase)
{
	return phase == GANG_STATS || phase == GANG_OUTPUT || phase == GANG_PLACE ||
		phase == GANG_UPDATE;
}

/*
 * Number of tiles to claim. They are neighbours, because the prefetch is for the next tile. Few,
 * because other roles share the thread, and fewer at the end, so that all threads finish together.
 */
static uint32_t
quantum(const struct gk *gk, uint32_t left)
{
	const uint32_t threads = gk->config.workers > 0 ? gk->config.workers : 1;
	const uint32_t share = left / (4 * threads);

	return share < 1 ? 1 : share < QUANTUM_TILES ? share : QUANTUM_TILES;
}

static void
do_tiles(const struct gk *gk, struct gang *g, enum gang_phase phase, uint32_t first, uint32_t end)
{
	if (phase == GANG_STATS)
		gk_host_stats(gk, g, first, end);
	else if (phase == GANG_OUTPUT)
		gk_host_output(gk, g, first, end);
	else if (phase == GANG_PLACE)
		for (uint32_t tile = first; tile < end; tile++)
			gk_host_chunk_place(gk, g, tile);
	else
		for (uint32_t tile = first; tile < end; tile++)
			gk_host_tile_update(gk, g, tile);
}

int
gk_host_poll(struct gk *gk, uint32_t gang, uint32_t worker)
{
	const uint32_t tiles = gk->config.geometry.tiles;
	struct gang *g = &gk->gang[gang];
	uint32_t first, end, n;
	enum gang_phase phase;
	uint64_t claim;

	assert(gang < gk->config.gangs);
	claim = atomic_load_explicit(&g->claim, memory_order_acquire);
	phase = gang_claim_phase(claim);
	if (phase == GANG_IDLE)
		return idle(gk, g, gang, claim);
	if (phase == GANG_PEAKS)
		return search(gk, g, gang, gang_claim_done(claim), worker);
	if (!has_tiles(phase) || gang_claim_tile(claim) >= tiles)
		return 0;

	n = quantum(gk, tiles - gang_claim_tile(claim));
	claim = atomic_fetch_add_explicit(&g->claim, n, memory_order_acq_rel);
	phase = gang_claim_phase(claim);
	first = gang_claim_tile(claim);
	if (!has_tiles(phase) || first >= tiles)
		return 0; /* too late: these tiles do not exist */
	end = n < tiles - first ? first + n : tiles;

	/* the phase cannot change before these tiles are finished */
	do_tiles(gk, g, phase, first, end);
	/* acquire: the last thread sees the results of all others */
	n = end - first;
	if (atomic_fetch_add_explicit(&g->finished, n, memory_order_acq_rel) + n < tiles)
		return 1;

	if (phase == GANG_STATS) {
		end_stats(gk, g, gang, gang_claim_done(claim));
		return 1;
	}
	if (phase == GANG_OUTPUT) {
		end_output(gk, g, gang, gang_claim_done(claim));
		return 1;
	}
	if (phase == GANG_UPDATE)
		gk_host_update_done(gk, g);
	complete(gk, g, gang, gang_claim_done(claim));
	return 1;
}
