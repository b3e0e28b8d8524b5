/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Search for peaks and radial profiles by host gangs, between statistics and outputs.
 *
 * A frame is searched by one thread at a time, which converts and counts a few tiles in a quantum,
 * as in other phases, because other roles share the thread. The same pass over the pixels makes the
 * frame's profile. The state of the search stays in a
 * struct gang_search, from which any thread of the gang continues.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gk_host.h"
#include "gk_peak_blob.h"

/* Tiles of one frame in a quantum */
#define SEARCH_TILES 8

/* Photons of a frame: in huge pages where the system has them */
#define PHOTONS_ALIGN (UINT64_C(1) << 21)

/* Of the gangs' threads, of which at most one works on a frame */
static uint32_t
count_searches(const struct gk_config *c)
{
	if (c->workers == 0)
		return 1;
	return c->workers < GK_BATCH_MAX ? c->workers : GK_BATCH_MAX;
}

static uint64_t
photons_size(uint32_t rows, uint32_t cols)
{
	const uint64_t bytes = (uint64_t)rows * cols * sizeof(int16_t);

	return (bytes + PHOTONS_ALIGN - 1) / PHOTONS_ALIGN * PHOTONS_ALIGN;
}

uint64_t
gk_host_search_memory(const struct gk_config *config, uint32_t peak_bins, uint32_t profile_bins)
{
	const uint32_t rows = gk_rows(&config->geometry), cols = config->geometry.cols;
	uint64_t bytes = sizeof(struct gang_search);

	if (peak_bins > 0)
		bytes += photons_size(rows, cols) + GK_PEAKS_SIZE +
			gk_peak_finder_memory(rows, cols, peak_bins);
	else
		bytes += photons_size(config->geometry.tile_rows, cols);
	if (profile_bins > 0)
		bytes += gk_radial_memory(profile_bins);
	return count_searches(config) * config->gangs * bytes;
}

/* The maps of the channel; `bin` NULL: none. */
struct maps {
	struct gk_peak_map peaks;
	struct gk_radial_map radial;
};

static int
search_create(struct gang_search *s, const struct gk_config *c, const struct maps *maps)
{
	const bool finds = maps->peaks.bin != NULL;
	const uint64_t size = photons_size(
		finds ? gk_rows(&c->geometry) : c->geometry.tile_rows, c->geometry.cols);
	int ret = 0;

	s->photons = aligned_alloc(PHOTONS_ALIGN, size);
	if (s->photons == NULL)
		return -ENOMEM;
	madvise(s->photons, size, MADV_HUGEPAGE);
	if (finds) {
		s->found = malloc(GK_PEAKS_SIZE);
		ret = s->found != NULL ? gk_peak_finder_create(&maps->peaks, c->isa, &s->finder)
				       : -ENOMEM;
	}
	if (ret == 0 && maps->radial.bin != NULL)
		ret = gk_radial_create(&maps->radial, c->isa, &s->radial);
	return ret;
}

int
gk_host_search_create(struct gk *gk, char *why, size_t size)
{
	const struct gk_peak_pixels *pixels = &gk->config.channel->pixels;
	const struct gk_radial_pixels *radial = &gk->config.channel->radial;
	const struct maps maps = {
		.peaks =
			{
				.rows = gk->rows,
				.cols = gk->config.geometry.cols,
				.bin = (const uint16_t *)(uintptr_t)pixels->bin,
				.panel = (const struct gk_peak_panel *)(uintptr_t)pixels->panel,
				.nb_panels = pixels->nb_panels,
			},
		.radial =
			{
				.rows = gk->rows,
				.cols = gk->config.geometry.cols,
				.nb_bins = radial->nb_bins,
				.bin = (const uint16_t *)(uintptr_t)radial->bin,
			},
	};
	const uint32_t n = count_searches(&gk->config), all = n * gk->config.gangs;
	int ret = 0;

	if (maps.peaks.bin != NULL)
		ret = gk_peak_map_check(&maps.peaks, why, size);
	if (ret == 0 && maps.radial.bin != NULL)
		ret = gk_radial_map_check(&maps.radial, why, size);
	if (ret == -EINVAL)
		return ret;
	gk->searches = aligned_alloc(64, all * sizeof(*gk->searches));
	if (ret != 0 || gk->searches == NULL)
		goto no_memory;
	memset(gk->searches, 0, all * sizeof(*gk->searches));
	for (uint32_t i = 0; i < gk->config.gangs; i++) {
		gk->gang[i].search = gk->searches + i * n;
		gk->gang[i].nb_searches = n;
	}
	gk->nb_searches = all;
	for (uint32_t i = 0; i < all; i++)
		if (search_create(&gk->searches[i], &gk->config, &maps) != 0)
			goto no_memory;
	return 0;
no_memory:
	snprintf(why, size, "no memory for %u searches for peaks or radial profiles", all);
	return -ENOMEM;
}

void
gk_host_search_destroy(struct gk *gk)
{
	for (uint32_t i = 0; i < gk->nb_searches; i++) {
		gk_peak_finder_destroy(gk->searches[i].finder);
		gk_radial_destroy(gk->searches[i].radial);
		free(gk->searches[i].photons);
		free(gk->searches[i].found);
	}
	free(gk->searches);
}

uint32_t
gk_host_search_begin(struct gang *g, uint32_t done)
{
	const struct gk_params *params = &g->batch.params;
	uint32_t n = 0;

	for (uint32_t i = 0; i < g->batch.nb_frames; i++) {
		struct gang_frame *f = &g->batch.frame[i];

		f->is_searched = params->search == GK_SEARCH_ALL ||
			(params->search == GK_SEARCH_STRONG &&
				gang_is_strong(params, gang_strong_count(&g->sums[i])));
		if (f->is_searched || f->profile != NULL)
			g->searched[n++] = (uint8_t)i;
	}
	g->nb_searched = n;
	/* the claim word, which is written next, orders this */
	atomic_store_explicit(&g->unsearched, (uint64_t)done << 32 | n, memory_order_relaxed);
	return n;
}

/*
 * Claim a frame of batch `done`. A thread that comes late, when the gang works on another batch,
 * finds another number there.
 */
static bool
claim_frame(struct gang *g, struct gang_search *s, uint32_t done)
{
	uint64_t left = atomic_load_explicit(&g->unsearched, memory_order_relaxed);

	do {
		if (left >> 32 != done || (uint32_t)left == 0)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(
		&g->unsearched, &left, left - 1, memory_order_relaxed, memory_order_relaxed));
	s->frame = &g->batch.frame[g->searched[g->nb_searched - (uint32_t)left]];
	s->tile = 0;
	if (s->frame->is_searched)
		gk_peaks_begin(s->finder, &g->batch.peak);
	if (s->radial != NULL)
		gk_radial_begin(s->radial);
	return true;
}

static void
add_tile(const struct gk *gk, const struct gang *g, const struct gang_search *s, uint32_t tile)
{
	const struct gk_tile t = gk_host_tile(gk, g, tile);
	const uint16_t *raw = (const uint16_t *)(uintptr_t)s->frame->packet[tile];
	/* only a search reads the pixels of other tiles again */
	int16_t *photons =
		s->photons + (s->frame->is_searched ? (uint64_t)tile * gk->tile_pixels : 0);

	if (raw != NULL)
		gk->tile_ops->photons(&t, raw, photons);
	else
		for (uint32_t i = 0; i < gk->tile_pixels; i++)
			photons[i] = GK_I16_INVALID;
	if (s->frame->is_searched)
		gk_peaks_add(s->finder, tile * t.rows, t.rows, photons);
	if (s->radial != NULL)
		gk_radial_add(s->radial, tile * t.rows, t.rows, photons);
}

static void
end_search(const struct gk *gk, const struct gang *g, struct gang_search *s)
{
	const struct gk_layout *l = &gk->config.layout;
	struct gang_frame *f = s->frame;
	const struct gk_peaks *found = s->found;
	uint32_t listed;

	gk_peaks_end(s->finder, s->photons, s->found);
	f->peaks = found->count;
	f->peaks_found = found->found;
	f->has_peaks = gk_peaks_are_hit(&g->batch.params, found->count, found->shell);
	if (f->details != NULL)
		memcpy(f->details->shell_peaks, found->shell, sizeof(f->details->shell_peaks));
	listed = found->count < l->peaks_cap ? found->count : l->peaks_cap;
	if (f->out != NULL)
		memcpy(f->out + l->peaks, found->peak, listed * sizeof(found->peak[0]));
}

/* All tiles of a frame are added. */
static void
end_frame(const struct gk *gk, const struct gang *g, struct gang_search *s)
{
	uint8_t *profile = s->frame->profile;

	if (s->frame->is_searched)
		end_search(gk, g, s);
	if (s->radial != NULL)
		gk_radial_end_sums(s->radial, (int64_t *)profile,
			(uint32_t *)(profile +
				gk_profile_count_at(gk->config.channel->radial.nb_bins)));
	s->frame = NULL;
}

/* Work on one frame, which this thread owns. @return true: its search is complete */
static bool
search_some(const struct gk *gk, const struct gang *g, struct gang_search *s)
{
	const uint32_t tiles = gk->config.geometry.tiles;
	const uint32_t end = tiles - s->tile < SEARCH_TILES ? tiles : s->tile + SEARCH_TILES;

	for (; s->tile < end; s->tile++)
		add_tile(gk, g, s, s->tile);
	if (s->tile < tiles)
		return false;
	end_frame(gk, g, s);
	return true;
}

enum gang_searched
gk_host_search(const struct gk *gk, struct gang *g, uint32_t done, uint32_t worker)
{
	for (uint32_t i = 0; i < g->nb_searches; i++) {
		struct gang_search *s = &g->search[(worker + i) % g->nb_searches];
		uint32_t nb_searched;
		bool complete;

		if (atomic_load_explicit(&s->busy, memory_order_relaxed) != 0 ||
			atomic_exchange_explicit(&s->busy, 1, memory_order_acquire) != 0)
			continue;
		if (s->frame == NULL && !claim_frame(g, s, done)) {
			atomic_store_explicit(&s->busy, 0, memory_order_release);
			continue;
		}
		/* the phase cannot change before this frame is complete */
		nb_searched = g->nb_searched;
		complete = search_some(gk, g, s);
		atomic_store_explicit(&s->busy, 0, memory_order_release);
		if (!complete)
			return GANG_SEARCHED_SOME;
		/* acquire: the last thread sees the results of all others */
		return atomic_fetch_add_explicit(&g->finished, 1, memory_order_acq_rel) + 1 ==
				nb_searched
			? GANG_SEARCHED_ALL
			: GANG_SEARCHED_SOME;
	}
	return GANG_SEARCHED_NONE;
}
