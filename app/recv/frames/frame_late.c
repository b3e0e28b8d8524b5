/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames without a row: numbers that packets named which were all dropped, as late or as outliers.
 * RX roles report numbers; here is which of them have a row, and a set of the others.
 */

#include <rte_hash_crc.h>
#include <rte_malloc.h>

#include "frames/frame_table_private.h"

/** Intervals of numbers with a row: one for each window that does not go on where another was. */
#define INTERVALS 256
/** Blocks of 64 numbers without a row; a power of 2. */
#define BLOCKS 4096

struct interval {
	uint64_t low, end;
};

struct block {
	uint64_t key; /**< number / 64 + 1, 0 = not used */
	uint64_t bits;
};

struct frame_late {
	struct interval rows[INTERVALS];
	uint32_t nb_rows; /**< index runs free: the oldest is overwritten */
	uint32_t nb_blocks;
	uint64_t nb_numbers; /**< bits that are set */
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
	struct frame_late *late = ft->builder.late;

	/* what RX roles report from before the run was not its own */
	for (uint32_t i = 0; i < ft->config.nb_rx; i++)
		ft->rx[i].nb_drops_read = __atomic_load_n(&ft->rx[i].nb_drops, __ATOMIC_ACQUIRE);
	memset(late, 0, sizeof(*late));
	ft->builder.late_frames = 0;
}

static struct interval *
rows_of(struct frame_late *late, uint64_t frame)
{
	for (uint32_t i = 0; i < RTE_MIN(late->nb_rows, (uint32_t)INTERVALS); i++)
		if (frame >= late->rows[i].low && frame < late->rows[i].end)
			return &late->rows[i];
	return NULL;
}

/** The block of a number; with `make` one that is not there is made. @return NULL: no room */
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
	struct frame_late *late = ft->builder.late;
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
	ft->builder.late_frames--;
}

static void
add(struct frame_table *ft, uint64_t frame)
{
	struct frame_late *late = ft->builder.late;
	struct block *b;

	if (frame < ft->run_first || frame >= ft->window.end || rows_of(late, frame) != NULL)
		return;
	b = block_of(late, frame, true);
	if (b != NULL && (b->bits >> frame % 64 & 1) != 0)
		return;
	ft->builder.late_frames++;
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
