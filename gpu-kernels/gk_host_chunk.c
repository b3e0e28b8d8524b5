/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chunks of compressed raw data and int16 images (gk_bitshuffle.h) by host gangs.
 *
 * The place of a block in the chunk is known when all blocks before it are compressed. A thread
 * whose block is the next one, the *front*, compresses it into the output slot. All other blocks
 * are compressed into memory of the gang, at a fixed distance, and are copied to their places when
 * the frame is complete. With one thread there are none of these.
 */

#include <string.h>

#include "gk_bitshuffle_block.h"
#include "gk_host.h"
#include "gk_pixel.h"

/* Flag of a size: the block is in the output slot. */
#define SIZE_PLACED (1u << 31)

_Static_assert(GK_BITSHUFFLE_LENGTH + GK_BITSHUFFLE_BYTES + 1 + (GK_BITSHUFFLE_BYTES + 240) / 255 +
			GK_BITSHUFFLE_MORE <=
		GANG_BLOCK_STRIDE,
	"a block of incompressible values fits");

static uint64_t
front_of(uint32_t block, uint32_t at)
{
	return (uint64_t)block << 32 | at;
}

void
gk_host_chunk_begin(const struct gk *gk, struct gang_chunk *c)
{
	uint32_t header[GK_BITSHUFFLE_HEADER / 4], crc = 0;

	if (gk->crc != NULL) {
		gk_bitshuffle_header(header, gk_pixels(&gk->config.geometry));
		crc = gk_host_crc32c_part(gk->crc, gk->config.crc32c(0, header, sizeof(header)),
			GK_BITSHUFFLE_HEADER);
	}
	atomic_store_explicit(&c->crc_sum, crc, memory_order_relaxed);
	atomic_store_explicit(&c->front, front_of(0, GK_BITSHUFFLE_HEADER), memory_order_relaxed);
	atomic_store_explicit(&c->scattered, 0, memory_order_relaxed);
	for (uint32_t i = 0; i < gk->blocks; i++)
		atomic_store_explicit(&c->size[i], 0, memory_order_relaxed);
}

/* First block that begins in a tile. */
static uint32_t
first_block(const struct gk *gk, uint32_t tile)
{
	return (uint32_t)(((uint64_t)tile * gk->tile_pixels + GK_BITSHUFFLE_BLOCK - 1) /
		GK_BITSHUFFLE_BLOCK);
}

/* Convert n words to photons. Both numbers are multiples of 32, as the pixels of a row are. */
static void
photons_of(const struct gk *gk, const struct gang *g, uint64_t first, uint32_t n,
	const uint16_t *raw, uint16_t *to)
{
	struct gk_tile t = {.rows = 1, .cols = n};

	for (int i = 0; i < 3; i++) {
		t.p[i] = g->batch.p[i] + first;
		t.r[i] = g->batch.r[i] + first;
	}
	/* only the bits count */
	gk->tile_ops->photons(&t, raw, (int16_t *)to);
}

/*
 * Values of a block of an output of this kind. @return where they are: in a packet, or in
 * `gathered`
 */
static const uint16_t *
values_of(const struct gk *gk, const struct gang *g, const struct gang_frame *f, uint32_t kind,
	uint64_t first, uint32_t v, uint16_t gathered[GK_BITSHUFFLE_BLOCK])
{
	const uint16_t none = kind == GK_KIND_RAW ? 0xFFFF : (uint16_t)GK_I16_INVALID;
	uint32_t tile = (uint32_t)(first / gk->tile_pixels), n;
	uint64_t at = first % gk->tile_pixels;

	if (kind == GK_KIND_RAW && at + v <= gk->tile_pixels && f->packet[tile] != 0)
		return (const uint16_t *)(uintptr_t)f->packet[tile] + at;
	for (uint32_t i = 0; i < v; i += n, tile++, at = 0) {
		const uint16_t *raw = (const uint16_t *)(uintptr_t)f->packet[tile];

		n = gk->tile_pixels - at < v - i ? (uint32_t)(gk->tile_pixels - at) : v - i;
		if (raw == NULL)
			for (uint32_t k = 0; k < n; k++)
				gathered[i + k] = none;
		else if (kind == GK_KIND_RAW)
			memcpy(gathered + i, raw + at, n * sizeof(*raw));
		else
			photons_of(gk, g, first + i, n, raw + at, gathered + i);
	}
	return gathered;
}

/*
 * Move the front past all blocks that are compressed. The thread that compresses a block and the
 * one that moves the front to it may both find the block compressed. The sizes and the front are
 * sequentially consistent, so at least one of them does. Only one moves the front past it.
 */
static void
advance(const struct gk *gk, struct gang_chunk *c)
{
	uint64_t front = atomic_load(&c->front);

	for (;;) {
		const uint32_t block = (uint32_t)(front >> 32), at = (uint32_t)front;
		uint32_t size;

		if (block == gk->blocks)
			return;
		size = atomic_load(&c->size[block]) & ~SIZE_PLACED;
		if (size == 0)
			return;
		if (!atomic_compare_exchange_strong(
			    &c->front, &front, front_of(block + 1, at + size)))
			continue;
		c->at[block] = at;
		if (gk->crc != NULL)
			atomic_fetch_xor_explicit(&c->crc_sum,
				gk_host_crc32c_part(gk->crc, c->crc[block], at + size),
				memory_order_relaxed);
		front = front_of(block + 1, at + size);
	}
}

static void
compress(const struct gk *gk, const struct gang *g, const struct gang_frame *f, uint32_t kind,
	uint32_t block)
{
	const uint64_t first = (uint64_t)block * GK_BITSHUFFLE_BLOCK;
	const uint64_t left = gk_pixels(&gk->config.geometry) - first;
	const uint32_t v = left < GK_BITSHUFFLE_BLOCK ? (uint32_t)left : GK_BITSHUFFLE_BLOCK;
	struct gang_chunk *c = f->chunk;
	const uint64_t front = atomic_load(&c->front);
	const bool is_next = front >> 32 == block;
	_Alignas(64) uint16_t gathered[GK_BITSHUFFLE_BLOCK];
	uint32_t size, length;
	uint8_t *to;

	/* only this thread can move the front over the block */
	to = is_next ? f->out + gk->config.layout.raw + (uint32_t)front
		     : c->blocks + (uint64_t)block * GANG_BLOCK_STRIDE;
	size = gk->bitshuffle->block(
		values_of(gk, g, f, kind, first, v, gathered), v, to + GK_BITSHUFFLE_LENGTH);
	length = gk_big_endian(size);
	memcpy(to, &length, sizeof(length));
	size += GK_BITSHUFFLE_LENGTH;
	if (gk->crc != NULL)
		c->crc[block] = gk->config.crc32c(0, to, size);
	if (!is_next)
		atomic_store_explicit(&c->scattered, 1, memory_order_relaxed);
	atomic_store(&c->size[block], is_next ? size | SIZE_PLACED : size);
	advance(gk, c);
}

void
gk_host_chunk(const struct gk *gk, const struct gang *g, const struct gang_frame *f, uint32_t kind,
	uint32_t tile)
{
	const uint32_t end = first_block(gk, tile + 1);

	for (uint32_t block = first_block(gk, tile); block < end; block++)
		compress(gk, g, f, kind, block);
}

bool
gk_host_chunk_end(const struct gk *gk, struct gang *g)
{
	bool scattered = false;

	for (uint32_t i = 0; i < g->batch.nb_frames; i++) {
		struct gang_frame *f = &g->batch.frame[i];
		uint32_t header[GK_BITSHUFFLE_HEADER / 4];

		f->details->chunk_bytes = 0;
		f->details->chunk_crc32c = 0;
		if (!gang_is_chunk(g, f, f->kind))
			continue;
		f->details->chunk_bytes =
			(uint32_t)atomic_load_explicit(&f->chunk->front, memory_order_relaxed);
		if (gk->crc != NULL)
			f->details->chunk_crc32c = gk_host_crc32c_sum(
				atomic_load_explicit(&f->chunk->crc_sum, memory_order_relaxed),
				f->details->chunk_bytes);
		gk_bitshuffle_header(header, gk_pixels(&gk->config.geometry));
		memcpy(f->out + gk->config.layout.raw, header, sizeof(header));
		scattered |= atomic_load_explicit(&f->chunk->scattered, memory_order_relaxed) != 0;
	}
	return scattered;
}

void
gk_host_chunk_place(const struct gk *gk, const struct gang *g, uint32_t tile)
{
	const uint32_t end = first_block(gk, tile + 1);

	for (uint32_t i = 0; i < g->batch.nb_frames; i++) {
		const struct gang_frame *f = &g->batch.frame[i];
		const struct gang_chunk *c = f->chunk;

		if (!gang_is_chunk(g, f, f->kind))
			continue;
		for (uint32_t block = first_block(gk, tile); block < end; block++) {
			const uint32_t size =
				atomic_load_explicit(&c->size[block], memory_order_relaxed);

			if (!(size & SIZE_PLACED))
				memcpy(f->out + gk->config.layout.raw + c->at[block],
					c->blocks + (uint64_t)block * GANG_BLOCK_STRIDE, size);
		}
	}
}
