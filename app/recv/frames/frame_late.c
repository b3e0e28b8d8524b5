/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames without a row: all packets that named them were dropped, as late, as outliers or refused.
 * RX roles report the frames of such packets. The builder records here which frames have a row, and
 * keeps the set of the others.
 */

#include <rte_hash_crc.h>
#include <rte_malloc.h>

#include "frames/frame_table_private.h"

/** Intervals of frames with a row: one for each window that does not continue an earlier one. */
#define INTERVALS 256
/** Blocks of 64 frames without a row; a power of 2. */
#define BLOCKS 4096

/** Frames low ... end - 1. */
struct interval {
	uint64_t low, end;
};

/** Element of a hash table with open addressing. */
struct block {
	uint64_t key;  /**< frame / 64 + 1, 0 = unused */
	uint64_t bits; /**< a bit per frame without a row */
};

/** Private to the builder. */
struct frame_late {
	struct interval rows[INTERVALS];
	uint32_t nb_rows;    /**< free-running index: the oldest interval is overwritten */
	uint32_t nb_blocks;  /**< blocks in use; never more than 3/4 */
	uint64_t nb_numbers; /**< bits set in `blocks` */
	struct block blocks[BLOCKS];
};

struct frame_late *
frame_late_create(int socket)
{
	return rte_zmalloc_socket(
		"frame_late", sizeof(struct frame_late), RTE_CACHE_LINE_SIZE, socket);
}

void
frame_late_begin(struct frame_table *ft)
{
	struct frame_late *late = ft->builder->late;

	/* reports from before the run do not belong to it */
	for (uint32_t i = 0; i < ft->config.nb_rx; i++)
		ft->rx[i].nb_drops_read = __atomic_load_n(&ft->rx[i].nb_drops, __ATOMIC_ACQUIRE);
	memset(late, 0, sizeof(*late));
	ft->builder->late_frames = 0;
}

/** The interval of rows that a frame is in. @return NULL: it has no row */
static struct interval *
rows_of(struct frame_late *late, uint64_t frame)
{
	for (uint32_t i = 0; i < RTE_MIN(late->nb_rows, (uint32_t)INTERVALS); i++)
		if (frame >= late->rows[i].low && frame < late->rows[i].end)
			return &late->rows[i];
	return NULL;
}

/** Find the block of a frame, or add it if `make`. @return NULL: not found, or no room */
static struct block *
block_of(struct frame_late *late, uint64_t frame, bool make)
{
	const uint64_t key = frame / 64 + 1;

	for (uint32_t i = rte_hash_crc_8byte(key, 0);; i++) {
		struct block *b = &late->blocks[i % BLOCKS];

		if (b->key == key)
			return b;
		if (b->key != 0)
			continue;
		if (!make || late->nb_blocks >= BLOCKS / 4 * 3)
			return NULL;
		late->nb_blocks++;
		b->key = key;
		return b;
	}
}

void
frame_late_row(struct frame_table *ft, uint64_t frame)
{
	struct frame_late *late = ft->builder->late;
	struct interval *last = &late->rows[(late->nb_rows - 1) % INTERVALS];
	struct block *b;

	if (likely(late->nb_rows > 0 && frame == last->end)) {
		last->end = frame + 1;
	} else if (rows_of(late, frame) == NULL) {
		last = &late->rows[late->nb_rows++ % INTERVALS];
		*last = (struct interval){.low = frame, .end = frame + 1};
	}
	if (likely(late->nb_numbers == 0))
		return;
	b = block_of(late, frame, false);
	if (b == NULL || (b->bits >> frame % 64 & 1) == 0)
		return;
	b->bits ^= UINT64_C(1) << frame % 64;
	late->nb_numbers--;
	ft->builder->late_frames--;
}

/** Is a frame refused and not closed yet? Then it gets a row, unless no packet waited for it. */
static bool
will_have_row(const struct frame_table *ft, uint64_t frame)
{
	const struct frame_builder *b = ft->builder;

	return frame >= b->next_close && frame < b->next_open && frame >= b->unnamed &&
		ft->entry[frame & ft->entry_mask] ==
		((frame + 1) << FRAME_TAG_SLOT_BITS | FRAME_TAG_REFUSED);
}

/** Count a frame that packets named, unless it has a row or was counted. */
static void
add(struct frame_table *ft, uint64_t frame)
{
	struct frame_late *late = ft->builder->late;
	struct block *b;

	if (frame < ft->run_first || frame >= ft->window.end || rows_of(late, frame) != NULL ||
		will_have_row(ft, frame))
		return;
	b = block_of(late, frame, true);
	if (b != NULL && (b->bits >> frame % 64 & 1) != 0)
		return;
	ft->builder->late_frames++;
	if (b == NULL)
		return;
	b->bits |= UINT64_C(1) << frame % 64;
	late->nb_numbers++;
}

void
frame_late_collect(struct frame_table *ft)
{
	for (uint32_t i = 0; i < ft->config.nb_rx; i++) {
		struct frame_rx *frx = &ft->rx[i];
		const uint64_t end = __atomic_load_n(&frx->nb_drops, __ATOMIC_ACQUIRE);
		uint64_t at = frx->nb_drops_read;

		if (likely(at == end))
			continue;
		for (; at != end; at++)
			add(ft, frx->drops[at % FRAME_DROPS]);
		__atomic_store_n(&frx->nb_drops_read, at, __ATOMIC_RELEASE);
	}
}
