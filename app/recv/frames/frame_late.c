/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames without a row: all packets with their numbers were dropped, as late, as outliers or
 * refused. RX roles report the frames of such packets. The builder records here which frames have a
 * row, and keeps the set of the others.
 */

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_malloc.h>

#include "frames/frame_table_private.h"

/** Intervals of frames with a row: one for each window that does not continue an earlier one. */
#define INTERVALS 256
/** Blocks of 64 frames without a row. */
#define BLOCKS 4096
static_assert(2 * FRAME_SLOTS_MAX / 64 + 1 < BLOCKS, "the ring of entries has fewer blocks");

/** Frames low ... end - 1. */
struct interval {
	uint64_t low, end;
};

/** Private to the builder. */
struct frame_late {
	struct interval rows[INTERVALS];
	uint32_t nb_rows;	 /**< free-running index: the oldest interval is overwritten */
	uint64_t nb_numbers;	 /**< bits set in `bits` */
	struct rte_hash *blocks; /**< frame / 64 -> index into `bits`; blocks with a bit only */
	uint64_t bits[BLOCKS];	 /**< a bit per frame without a row */
	uint64_t key[BLOCKS];	 /**< frame / 64 */
	uint32_t nb_forgotten;	 /**< free-running index: the block to forget next */
};

struct frame_late *
frame_late_create(int socket)
{
	char name[RTE_HASH_NAMESIZE];
	struct rte_hash_parameters params = {
		.name = name,
		.entries = BLOCKS,
		.key_len = sizeof(uint64_t),
		.hash_func = rte_hash_crc,
		.socket_id = socket,
		/* guarantees room for every entry, for any numbers */
		.extra_flag = RTE_HASH_EXTRA_FLAGS_EXT_TABLE,
	};
	struct frame_late *late = rte_zmalloc_socket(
		"frame_late", sizeof(struct frame_late), RTE_CACHE_LINE_SIZE, socket);

	if (late == NULL)
		return NULL;
	/* hash names are shared by all processes */
	snprintf(name, sizeof(name), "late_%d_%" PRIxPTR, getpid(), (uintptr_t)late);
	late->blocks = rte_hash_create(&params);
	if (late->blocks == NULL) {
		rte_free(late);
		return NULL;
	}
	return late;
}

void
frame_late_free(struct frame_late *late)
{
	if (late != NULL)
		rte_hash_free(late->blocks);
	rte_free(late);
}

void
frame_late_begin(struct frame_table *ft)
{
	struct frame_late *late = ft->builder->late;

	/* reports from before the run do not belong to it */
	for (uint32_t i = 0; i < ft->config.nb_rx; i++)
		ft->rx[i].nb_drops_read = __atomic_load_n(&ft->rx[i].nb_drops, __ATOMIC_ACQUIRE);
	late->nb_rows = 0;
	late->nb_numbers = 0;
	late->nb_forgotten = 0;
	rte_hash_reset(late->blocks);
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

/** @return bits of the block of a frame; NULL: it has none */
static uint64_t *
bits_of(struct frame_late *late, uint64_t frame)
{
	const uint64_t key = frame / 64;
	const int32_t index = rte_hash_lookup(late->blocks, &key);

	return index < 0 ? NULL : &late->bits[index];
}

/**
 * Make room for a block: forget one whose frames are not in the ring of entries. They stay counted,
 * and count again if RX roles report them again.
 */
static void
forget_block(const struct frame_table *ft, struct frame_late *late)
{
	const uint64_t low = ft->builder->next_close / 64;
	const uint64_t end = (ft->builder->next_close + ft->entry_mask) / 64;
	uint32_t i;

	do
		i = late->nb_forgotten++ % BLOCKS;
	while (late->key[i] >= low && late->key[i] <= end);
	late->nb_numbers -= __builtin_popcountll(late->bits[i]);
	(void)rte_hash_del_key(late->blocks, &late->key[i]);
}

/** As bits_of(), for a block that may be new. */
static uint64_t *
add_bits(const struct frame_table *ft, struct frame_late *late, uint64_t frame)
{
	const uint64_t key = frame / 64;
	uint64_t *bits = bits_of(late, frame);
	int32_t index;

	if (bits != NULL)
		return bits;
	if (rte_hash_count(late->blocks) == BLOCKS)
		forget_block(ft, late);
	index = rte_hash_add_key(late->blocks, &key);
	RTE_VERIFY(index >= 0 && index < BLOCKS);
	late->key[index] = key;
	late->bits[index] = 0;
	return &late->bits[index];
}

void
frame_late_row(struct frame_table *ft, uint64_t frame)
{
	struct frame_late *late = ft->builder->late;
	struct interval *last = &late->rows[(late->nb_rows - 1) % INTERVALS];
	uint64_t *bits;

	if (likely(late->nb_rows > 0 && frame == last->end)) {
		last->end = frame + 1;
	} else if (rows_of(late, frame) == NULL) {
		last = &late->rows[late->nb_rows++ % INTERVALS];
		*last = (struct interval){.low = frame, .end = frame + 1};
	}
	if (likely(late->nb_numbers == 0))
		return;
	bits = bits_of(late, frame);
	if (bits == NULL || (*bits >> frame % 64 & 1) == 0)
		return;
	*bits ^= UINT64_C(1) << frame % 64;
	if (*bits == 0)
		(void)rte_hash_del_key(late->blocks, &(uint64_t){frame / 64});
	late->nb_numbers--;
	ft->builder->late_frames--;
}

/** Count a frame whose number occurred in packets, unless it has a row or was counted. */
static void
add(struct frame_table *ft, uint64_t frame)
{
	struct frame_late *late = ft->builder->late;
	uint64_t *bits;

	if (frame < ft->run_first || frame >= ft->window.end || rows_of(late, frame) != NULL)
		return;
	bits = add_bits(ft, late, frame);
	if ((*bits >> frame % 64 & 1) != 0)
		return;
	ft->builder->late_frames++;
	*bits |= UINT64_C(1) << frame % 64;
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
