/* SPDX-License-Identifier: BSD-3-Clause */
/* Work of a host gang on one tile, and on a frame when its last tile is counted. */

#include <stdbool.h>
#include <string.h>

#include "gk_host.h"
#include "gk_pixel.h"

/*
 * Bits of about 8,000 pixels, twice a JUNGFRAU packet: up to this size lists are made from bits in
 * L1
 */
#define NEAR_WORDS 256

/* Lists with less than one pixel in this number are fetched by line, others as streams */
#define SPARSE_PIXELS 256

struct gk_tile
gk_host_tile(const struct gk *gk, const struct gang *g, uint32_t tile)
{
	const uint64_t first = (uint64_t)tile * gk->tile_pixels;
	struct gk_tile t = {
		.rows = gk->config.geometry.tile_rows,
		.cols = gk->config.geometry.cols,
		.strong_threshold = g->batch.params.strong_threshold,
		.csr_threshold = g->batch.params.csr_threshold,
	};

	for (int i = 0; i < 3; i++) {
		t.p[i] = g->batch.p[i] + first;
		t.r[i] = g->batch.r[i] + first;
	}
	return t;
}

/* Return the bits of the pixels at or above csr_threshold of one tile. */
static uint32_t *
tile_bits(const struct gk *gk, const struct gang_frame *f, uint32_t tile)
{
	return f->bits + (uint64_t)tile * gk->tile_bits;
}

/* Return the address of the tile's values in a full image. */
static void *
image_of(const struct gk *gk, const struct gang_frame *f, uint32_t tile)
{
	const struct gk_layout *l = &gk->config.layout;

	return f->out + l->value + (uint64_t)tile * gk->tile_pixels * l->value_size;
}

static void
add_counts(struct gang_sums *sums, const struct gk_tile_counts *c)
{
	const uint64_t strong_nnz = (uint64_t)c->bragg << 32 | c->nnz,
		       saturated_invalid = (uint64_t)c->saturated << 32 | c->invalid;

	/* relaxed: gang.finished orders it; zero is not added */
	atomic_fetch_add_explicit(&sums->sum, c->sum, memory_order_relaxed);
	if (strong_nnz != 0)
		atomic_fetch_add_explicit(&sums->strong_nnz, strong_nnz, memory_order_relaxed);
	if (saturated_invalid != 0)
		atomic_fetch_add_explicit(
			&sums->saturated_invalid, saturated_invalid, memory_order_relaxed);
}

/* Process the tile of the dark frames. */
static void
add_dark(const struct gk *gk, const struct gang *g, const struct gk_tile *t, uint32_t tile)
{
	const uint16_t *raw[GK_BATCH_MAX];
	uint32_t n = 0;

	for (uint32_t i = 0; i < g->batch.nb_frames; i++) {
		const struct gang_frame *f = &g->batch.frame[i];

		if ((f->flags & GK_FRAME_DARK) && f->packet[tile] != 0)
			raw[n++] = (const uint16_t *)(uintptr_t)f->packet[tile];
	}
	/* A tile belongs to one thread of a gang: only other gangs share its cells. */
	if (n > 0)
		gk->tile_ops->dark(t, n, raw, g->batch.cells + (uint64_t)tile * gk->tile_pixels,
			gk->config.gangs > 1);
}

void
gk_host_tile_update(const struct gk *gk, struct gang *g, uint32_t tile)
{
	const uint64_t first = (uint64_t)tile * gk->tile_pixels;
	uint64_t *cells = g->batch.cells + first;
	struct gk_update u = {0};
	struct gk_tile t;

	if (g->batch.p_to == NULL) {
		memset(cells, 0, gk->tile_pixels * sizeof(*cells));
		return;
	}
	t = gk_host_tile(gk, g, tile);
	gk->tile_ops->update(&t, cells, g->batch.params.dark_min, g->batch.params.dark_alpha,
		g->batch.p_to + first, &u);
	/* relaxed: gang.finished orders it */
	atomic_fetch_add_explicit(&g->update.samples, u.samples, memory_order_relaxed);
	atomic_fetch_add_explicit(&g->update.drift, u.drift, memory_order_relaxed);
	atomic_fetch_add_explicit(&g->update.updated, u.updated, memory_order_relaxed);
}

void
gk_host_update_done(const struct gk *gk, struct gang *g)
{
	if (g->batch.p_to == NULL)
		return;
	*g->batch.update = (struct gk_update){
		.samples = atomic_load_explicit(&g->update.samples, memory_order_relaxed),
		.drift = atomic_load_explicit(&g->update.drift, memory_order_relaxed),
		.updated = atomic_load_explicit(&g->update.updated, memory_order_relaxed),
		.from = g->batch.coef_version,
		.to = g->batch.version_to,
	};
}

static uint32_t
output_kind(
	const struct gang_frame *f, const struct gk_params *params, uint32_t verdict, uint32_t nnz)
{
	if (f->out == NULL || (verdict != GK_VERDICT_HIT && !(f->flags & GK_FRAME_KEEP)))
		return GK_KIND_NONE;
	if (verdict == GK_VERDICT_REJECT && (f->flags & GK_FRAME_KIND_RAW))
		return GK_KIND_RAW;
	if (params->kind == GK_KIND_CSR && nnz > params->nnz_max)
		return GK_KIND_IMAGE;
	return params->kind;
}

void
gk_host_verdict(const struct gk *gk, struct gang *g, uint32_t index)
{
	const struct gk_params *params = &g->batch.params;
	struct gang_frame *f = &g->batch.frame[index];
	struct gang_sums *sums = &g->sums[index];
	const uint64_t strong_nnz = atomic_load_explicit(&sums->strong_nnz, memory_order_relaxed);
	const uint64_t saturated_invalid =
		atomic_load_explicit(&sums->saturated_invalid, memory_order_relaxed);
	const uint64_t missing_overrun =
		atomic_load_explicit(&sums->missing_overrun, memory_order_relaxed);
	const uint32_t bragg = (uint32_t)(strong_nnz >> 32), nnz = (uint32_t)strong_nnz;
	const bool hit =
		gang_is_strong(params, bragg) && (params->search == GK_SEARCH_NONE || f->has_peaks);
	uint32_t *row_ptr;

	f->kind = output_kind(f, params, hit ? GK_VERDICT_HIT : GK_VERDICT_REJECT, nnz);
	f->left = f->kind;
	if (f->kind == f->early && atomic_load_explicit(&sums->unplaced, memory_order_relaxed) == 0)
		f->left = GK_KIND_NONE;
	/* also if it was begun as another kind because of a wrong prediction */
	if (gang_is_chunk(g, f, f->left))
		gk_host_chunk_begin(gk, f->chunk);
	*f->result = (struct gk_result){
		.frame = f->number,
		.sum = atomic_load_explicit(&sums->sum, memory_order_relaxed),
		.verdict = hit ? GK_VERDICT_HIT : GK_VERDICT_REJECT,
		.kind = f->kind,
		.strong_count = bragg,
		.saturated = (uint32_t)(saturated_invalid >> 32),
		.invalid = (uint32_t)saturated_invalid,
		.nnz = nnz,
		.params = params->version,
		.coef = g->batch.coef_version,
		.missing = (uint32_t)(missing_overrun >> 32),
		.overrun = (uint32_t)missing_overrun,
		.peaks = f->peaks,
		.peaks_found = f->peaks_found,
	};
	if (f->kind != GK_KIND_CSR)
		return;
	row_ptr = (uint32_t *)(f->out + gk->config.layout.row_ptr);
	row_ptr[0] = 0;
	for (uint32_t row = 0; row < gk->rows; row++)
		row_ptr[row + 1] = row_ptr[row] + f->row_nnz[row];
}

/* Fill a missing tile of a full image. */
static void
fill_missing(enum gk_value type, void *value, uint64_t n)
{
	if (type == GK_VALUE_I16) {
		for (uint64_t i = 0; i < n; i++)
			((int16_t *)value)[i] = GK_I16_INVALID;
	} else {
		for (uint64_t i = 0; i < n; i++)
			((float *)value)[i] = gk_nan();
	}
}

/*
 * Return the position of the tile's list: index into the scratch buffer, GANG_NOT_PACKED or
 * GANG_PLACED
 */
static uint32_t
packed_at(const struct gang_frame *f, uint32_t tile)
{
	return f->early == GK_KIND_CSR ? f->packed[tile] : GANG_NOT_PACKED;
}

/* Prefetch the lines of n pixels of the lists from `at` on, for writing. */
static void
fetch_lists(const struct gk_layout *l, uint8_t *out, uint64_t at, uint64_t n)
{
	const uint64_t end = at + n;

	for (uint64_t i = at * sizeof(uint16_t); i < end * sizeof(uint16_t); i += 64)
		__builtin_prefetch(out + l->col + i, 1);
	for (uint64_t i = at * l->value_size; i < end * l->value_size; i += 64)
		__builtin_prefetch(out + l->value + i, 1);
}

/*
 * Mark the tile as counted. If the start of its lists is known, this gives the start in the next
 * tile, and in following tiles that were counted earlier. This thread sets all of these.
 */
static bool
place(const struct gk *gk, struct gang *g, uint32_t tile, uint32_t n, const uint32_t frame[],
	const struct gk_tile_counts counts[])
{
	const uint32_t tiles = gk->config.geometry.tiles;
	struct gang_place *at = &g->place[tile], *next;

	memset(at->nnz, 0, sizeof(at->nnz));
	for (uint32_t i = 0; i < n; i++)
		at->nnz[frame[i]] = counts[i].nnz;
	if (!(atomic_fetch_or_explicit(&at->state, GANG_PLACE_COUNTED, memory_order_acq_rel) &
		    GANG_PLACE_KNOWN))
		return false;
	for (; ++tile < tiles; at = next) {
		next = at + 1;
		for (uint32_t i = 0; i < GK_BATCH_MAX; i++)
			next->start[i] = at->start[i] + at->nnz[i];
		if (!(atomic_fetch_or_explicit(
			      &next->state, GANG_PLACE_KNOWN, memory_order_acq_rel) &
			    GANG_PLACE_COUNTED))
			break;
	}
	return true;
}

/*
 * Write the lists of the tile to a scratch buffer, because their position depends on earlier tiles
 * that other threads are counting. The second pass copies them.
 */
static void
pack(const struct gk *gk, struct gang *g, const struct gk_tile *t, uint32_t tile,
	struct gang_frame *f, uint32_t nnz, uint32_t *bits)
{
	/* relaxed: gang.finished orders the content */
	const uint64_t at = atomic_fetch_add_explicit(&g->nb_packed, nnz, memory_order_relaxed);

	if (at + nnz <= gk->packed_cap) {
		f->packed[tile] = (uint32_t)at;
		gk->tile_ops->csr(t, (const uint16_t *)(uintptr_t)f->packet[tile], bits,
			gk->config.value, g->packed_col + at,
			g->packed_value + at * gk->config.layout.value_size);
		return;
	}
	f->packed[tile] = GANG_NOT_PACKED;
	if (bits != tile_bits(gk, f, tile))
		memcpy(tile_bits(gk, f, tile), bits, gk->tile_bits * sizeof(*bits));
}

/* Write the lists of the tile, which is in L2, of frames that are predicted to be lists. */
static void
early_lists(const struct gk *gk, struct gang *g, const struct gk_tile *t, uint32_t tile, uint32_t n,
	const uint32_t frame[], const struct gk_tile_counts counts[], uint32_t *const bits[])
{
	const struct gk_layout *l = &gk->config.layout;
	const bool known = place(gk, g, tile, n, frame, counts);

	for (uint32_t i = 0; i < n; i++) {
		struct gang_frame *f = &g->batch.frame[frame[i]];
		const uint32_t nnz = counts[i].nnz;
		uint64_t at;

		if (f->early != GK_KIND_CSR)
			continue;
		if (!known) {
			atomic_store_explicit(&g->sums[frame[i]].unplaced, 1, memory_order_relaxed);
			pack(gk, g, t, tile, f, nnz, bits[i]);
			continue;
		}
		f->packed[tile] = GANG_PLACED;
		at = g->place[tile].start[frame[i]];
		if (at + nnz > l->nnz_cap)
			continue; /* the frame becomes an image */
		gk->tile_ops->csr(t, (const uint16_t *)(uintptr_t)f->packet[tile], bits[i],
			gk->config.value, (uint16_t *)(f->out + l->col) + at,
			f->out + l->value + at * l->value_size);
		/* prefetch for the next tile, assuming as many entries */
		fetch_lists(l, f->out, at + nnz, nnz);
	}
}

static void
csr_output(const struct gk *gk, const struct gang *g, const struct gang_frame *f,
	const struct gk_tile *t, uint32_t tile)
{
	const struct gk_layout *l = &gk->config.layout;
	const uint32_t *row_ptr = (const uint32_t *)(f->out + l->row_ptr) + tile * t->rows;
	const uint64_t at = row_ptr[0], n = row_ptr[t->rows] - at;
	uint16_t *col = (uint16_t *)(f->out + l->col) + at;
	uint8_t *value = f->out + l->value + at * l->value_size;
	const uint32_t packed = packed_at(f, tile);

	if (f->packet[tile] == 0 || packed == GANG_PLACED)
		return;
	if (packed != GANG_NOT_PACKED) {
		memcpy(col, g->packed_col + packed, n * sizeof(*col));
		memcpy(value, g->packed_value + (uint64_t)packed * l->value_size,
			n * l->value_size);
	} else {
		gk->tile_ops->csr(t, (const uint16_t *)(uintptr_t)f->packet[tile],
			tile_bits(gk, f, tile), gk->config.value, col, value);
	}
}

static void
raw_output(const struct gk *gk, const struct gang_frame *f, const struct gk_tile *t, uint32_t tile)
{
	const uint16_t *raw = (const uint16_t *)(uintptr_t)f->packet[tile];
	uint16_t *to =
		(uint16_t *)(f->out + gk->config.layout.raw) + (uint64_t)tile * gk->tile_pixels;

	if (raw != NULL)
		gk->tile_ops->copy(t, raw, to);
	else
		memset(to, 0xFF, gk->tile_pixels * sizeof(*to));
}

/* Return true if the frame's lists are still to be made and leave most of its lines untouched. */
static bool
is_sparse(const struct gk *gk, const struct gang_frame *f)
{
	return f->left == GK_KIND_CSR &&
		f->result->nnz < gk_pixels(&gk->config.geometry) / SPARSE_PIXELS;
}

/*
 * Prefetch for lists of sparse frames, for several tiles at once, because they touch too few lines
 * to fetch one tile while another is listed: first all bits, then all pixels that they select.
 */
static void
fetch_sparse(const struct gk *gk, const struct gang *g, uint32_t first, uint32_t end)
{
	for (int pass = 0; pass < 2; pass++) {
		for (uint32_t i = 0; i < g->batch.nb_frames; i++) {
			const struct gang_frame *f = &g->batch.frame[i];

			if (gk->tile_ops->fetch == NULL || !is_sparse(gk, f))
				continue;
			for (uint32_t tile = first; tile < end; tile++) {
				const struct gk_tile t = gk_host_tile(gk, g, tile);

				if (f->packet[tile] == 0 || packed_at(f, tile) != GANG_NOT_PACKED)
					continue;
				if (pass == 0)
					__builtin_prefetch(tile_bits(gk, f, tile));
				else
					gk->tile_ops->fetch(&t,
						(const uint16_t *)(uintptr_t)f->packet[tile], 1,
						tile_bits(gk, f, tile));
			}
		}
	}
}

/* Prefetch what tile_output() will read, during other work. */
static void
fetch(const struct gk *gk, const struct gang *g, const struct gang_frame *f, uint32_t tile)
{
	const struct gk_layout *l = &gk->config.layout;
	struct gk_tile t;
	uint32_t packed;
	uint64_t at;

	if (f->left == GK_KIND_NONE || gk->tile_ops->fetch == NULL ||
		tile == gk->config.geometry.tiles || f->packet[tile] == 0)
		return;
	t = gk_host_tile(gk, g, tile);
	packed = packed_at(f, tile);
	if (f->kind != GK_KIND_CSR || (packed == GANG_NOT_PACKED && !is_sparse(gk, f)))
		gk->tile_ops->fetch(&t, (const uint16_t *)(uintptr_t)f->packet[tile],
			f->kind != GK_KIND_RAW, NULL);
	if (f->kind != GK_KIND_CSR || packed == GANG_PLACED)
		return;
	at = ((const uint32_t *)(f->out + l->row_ptr))[tile * t.rows];
	fetch_lists(
		l, f->out, at, ((const uint32_t *)(f->out + l->row_ptr))[(tile + 1) * t.rows] - at);
}

/*
 * Write the output of one tile of every frame.
 * @param early  true: while counting, predicted raw data and missing tiles; false: the remaining
 *   output
 */
static void
tile_output(const struct gk *gk, const struct gang *g, const struct gk_tile *t, uint32_t tile,
	bool early)
{
	const uint16_t *raw[GK_BATCH_MAX];
	void *value[GK_BATCH_MAX];
	uint32_t n = 0;

	for (uint32_t i = 0; i < g->batch.nb_frames; i++) {
		const struct gang_frame *f = &g->batch.frame[i];
		const uint32_t kind = early ? f->early : f->left;

		if (gang_is_chunk(g, f, kind)) {
			gk_host_chunk(gk, g, f, kind, tile);
			continue;
		}
		switch (kind) {
		case GK_KIND_CSR:
			if (early)
				break; /* early_lists() */
			if (i + 1 < g->batch.nb_frames)
				fetch(gk, g, f + 1, tile);
			else
				fetch(gk, g, &g->batch.frame[0], tile + 1);
			csr_output(gk, g, f, t, tile);
			break;
		case GK_KIND_IMAGE:
			raw[n] = (const uint16_t *)(uintptr_t)f->packet[tile];
			value[n] = image_of(gk, f, tile);
			if (raw[n] == NULL)
				fill_missing(gk->config.value, value[n], gk->tile_pixels);
			else if (!early)
				n++; /* otherwise it was written with the statistics */
			break;
		case GK_KIND_RAW:
			raw_output(gk, f, t, tile);
			break;
		default: /* GK_KIND_NONE */
			break;
		}
	}
	if (n > 0)
		gk->tile_ops->image(t, n, raw, gk->config.value, value);
	if (gk->tile_ops->drain != NULL)
		gk->tile_ops->drain();
}

void
gk_host_output(const struct gk *gk, const struct gang *g, uint32_t first, uint32_t end)
{
	fetch_sparse(gk, g, first, end);
	for (uint32_t tile = first; tile < end; tile++) {
		const struct gk_tile t = gk_host_tile(gk, g, tile);

		for (uint32_t i = 0; i < g->batch.nb_frames; i++)
			if (g->batch.frame[i].kind != GK_KIND_CSR)
				fetch(gk, g, &g->batch.frame[i], tile + 1);
		tile_output(gk, g, &t, tile, false);
	}
}

/* @param sums  of each frame of the batch, added to */
static void
tile_stats(const struct gk *gk, struct gang *g, uint32_t tile, bool go_on,
	struct gk_tile_counts sums[])
{
	const uint32_t tile_rows = gk->config.geometry.tile_rows;
	const struct gk_tile t = gk_host_tile(gk, g, tile);
	struct gk_tile_counts counts[GK_BATCH_MAX];
	const uint16_t *raw[GK_BATCH_MAX], *ahead[GK_BATCH_MAX];
	uint16_t *row_nnz[GK_BATCH_MAX];
	uint32_t *bits[GK_BATCH_MAX], near[GK_BATCH_MAX][NEAR_WORDS];
	uint32_t frame[GK_BATCH_MAX];
	void *image[GK_BATCH_MAX];
	uint32_t n = 0;

	if (g->batch.trailers > 0)
		gk_host_take(gk, g, &t, tile);
	for (uint32_t i = 0; i < g->batch.nb_frames; i++) {
		const struct gang_frame *f = &g->batch.frame[i];
		uint16_t *rows = f->row_nnz + tile * tile_rows;

		if (f->packet[tile] == 0) {
			memset(rows, 0, tile_rows * sizeof(rows[0]));
			sums[i].invalid += gk->tile_pixels;
			continue;
		}
		raw[n] = (const uint16_t *)(uintptr_t)f->packet[tile];
		ahead[n] = go_on ? (const uint16_t *)(uintptr_t)f->source[tile + 1] : NULL;
		row_nnz[n] = rows;
		bits[n] = f->bits != NULL ? tile_bits(gk, f, tile) : NULL;
		if (f->early == GK_KIND_CSR && gk->tile_bits <= NEAR_WORDS)
			bits[n] = near[n];
		/* the values of a chunk are made again, in L1 */
		image[n] = f->early == GK_KIND_IMAGE && !gang_is_chunk(g, f, GK_KIND_IMAGE)
			? image_of(gk, f, tile)
			: NULL;
		frame[n++] = i;
	}
	if (n > 0)
		gk->tile_ops->stats(
			&t, n, raw, ahead, counts, row_nnz, bits, gk->config.value, image);
	for (uint32_t i = 0; i < n; i++) {
		struct gk_tile_counts *to = &sums[frame[i]];

		to->sum += counts[i].sum;
		to->bragg += counts[i].bragg;
		to->nnz += counts[i].nnz;
		to->saturated += counts[i].saturated;
		to->invalid += counts[i].invalid;
	}
	if (g->batch.params.kind == GK_KIND_CSR && g->likely)
		early_lists(gk, g, &t, tile, n, frame, counts, bits);
	if (n > 0 && g->batch.dark_frames > 0)
		add_dark(gk, g, &t, tile);
	tile_output(gk, g, &t, tile, true);
}

void
gk_host_stats(const struct gk *gk, struct gang *g, uint32_t first, uint32_t end)
{
	/* nothing is fetched for other threads' tiles */
	const uint32_t last = gk->config.workers > 1 ? end : gk->config.geometry.tiles;
	struct gk_tile_counts sums[GK_BATCH_MAX];

	/* All threads of the gang add to one line per frame, which moves between their caches. */
	memset(sums, 0, g->batch.nb_frames * sizeof(sums[0]));
	for (uint32_t tile = first; tile < end; tile++)
		tile_stats(gk, g, tile, tile + 1 < last, sums);
	for (uint32_t i = 0; i < g->batch.nb_frames; i++)
		add_counts(&g->sums[i], &sums[i]);
}
