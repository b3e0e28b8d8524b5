/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies of tiles that their sender may overwrite at any time (GK_FRAME_TRAILER). A gang reads them
 * as a seqlock: trailer, pixels, and the trailer again or the leader. The number in the trailer is
 * written after the pixels, so they are all there if it is this frame's. The leader is written
 * before the pixels, so none was overwritten if it still is this frame's.
 *
 * Pixels are read several times (statistics, samples, outputs after the verdict), and each pass
 * must see the same words. So only the copy function reads the original, and all else reads the
 * copy. The copy is in memory of the gang: the tiles of a batch are adjacent, so that they are in
 * L2 when they are counted.
 *
 * Ordering: the first load of the trailer acquires, so no pixel is loaded before it. The fence
 * orders the loads of pixels before the last load. On x86-64 both are free, because
 * loads are not reordered.
 *
 * Memory traffic for a pixel of a frame, in bytes: 2 to read it, as without trailers, and for the
 * copy up to 2 to fetch its line and 2 to write it back, unless it stays in the caches.
 */

#include "gk_host.h"

/* Mark a tile without a usable copy as missing, for all further steps. */
static void
mark_missing(struct gang_frame *f, uint32_t tile)
{
	f->taken[tile] = 0;
	/* relaxed: gang.finished orders it */
	__atomic_fetch_or(&f->missing[tile / 64], UINT64_C(1) << tile % 64, __ATOMIC_RELAXED);
}

void
gk_host_take(const struct gk *gk, struct gang *g, const struct gk_tile *t, uint32_t tile)
{
	uint8_t *copies = g->copies + (uint64_t)tile * GK_BATCH_MAX * gk->copy_stride;
	const uint64_t words = gk->tile_pixels / (sizeof(uint64_t) / sizeof(uint16_t));

	for (uint32_t i = 0; i < g->batch.nb_frames; i++) {
		struct gang_frame *f = &g->batch.frame[i];
		const uint64_t *from;
		uint8_t *to;

		if (f->taken == NULL)
			continue;
		from = (const uint64_t *)(uintptr_t)f->source[tile];
		to = copies + i * gk->copy_stride;
		if (from == NULL) {
			mark_missing(f, tile);
			continue;
		}
		if (__atomic_load_n(from + words, __ATOMIC_ACQUIRE) != f->trailer) {
			mark_missing(f, tile);
			atomic_fetch_add_explicit(&g->sums[i].missing_overrun, UINT64_C(1) << 32,
				memory_order_relaxed);
			continue;
		}
		gk->tile_ops->take(t, (const uint16_t *)from, (uint16_t *)to);
		atomic_thread_fence(memory_order_acquire);
		from += f->flags & GK_FRAME_LEADER ? -1 : (int64_t)words;
		if (__atomic_load_n(from, __ATOMIC_RELAXED) != f->trailer) {
			mark_missing(f, tile);
			atomic_fetch_add_explicit(
				&g->sums[i].missing_overrun, 1, memory_order_relaxed);
			continue;
		}
		f->taken[tile] = (uintptr_t)to;
	}
}
