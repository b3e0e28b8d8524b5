/* SPDX-License-Identifier: BSD-3-Clause */
/* The host implementation of gk_ops: create, start, stop. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gk_bitshuffle_block.h"
#include "gk_host.h"

/* Copies of tiles: in huge pages where the system has them */
#define COPY_ALIGN (UINT64_C(1) << 21)
#define COPY_MORE  576 /* bytes: an odd number of lines */

static uint64_t
round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

/* Reason of this thread's last failure. */
static _Thread_local char reason[160];

static const char *
host_why(void)
{
	return reason;
}

static void
host_destroy(struct gk *gk)
{
	if (gk == NULL)
		return;
	gk_host_search_destroy(gk);
	free(gk->crc);
	free(gk->block);
	free(gk->block_crc);
	free(gk->block_at);
	free(gk->block_size);
	free(gk->copies);
	free(gk->taken);
	free(gk->packed_value);
	free(gk->packed_col);
	free(gk->packed);
	free(gk->place);
	free(gk->bits);
	free(gk->row_nnz);
	free(gk->gang);
	free(gk);
}

/*
 * Memory for the copies of tiles with trailers. The pages that batches use are allocated when they
 * are written first.
 */
static int
allocate_copies(struct gk *gk)
{
	const uint32_t gangs = gk->config.gangs, tiles = gk->config.geometry.tiles;
	const uint64_t gang_tiles = round_up((uint64_t)GK_BATCH_MAX * tiles, 16);
	uint64_t gang_bytes;

	/* Tiles of a batch must not begin at the same offset in a page: they use the same sets. */
	gk->copy_stride = gk->tile_pixels * sizeof(uint16_t) + COPY_MORE;
	gang_bytes = round_up(GK_BATCH_MAX * tiles * gk->copy_stride, COPY_ALIGN);
	gk->taken = calloc(gangs * gang_tiles, sizeof(*gk->taken));
	gk->copies = aligned_alloc(COPY_ALIGN, gangs * gang_bytes);
	if (gk->taken == NULL || gk->copies == NULL)
		return -ENOMEM;
	madvise(gk->copies, gangs * gang_bytes, MADV_HUGEPAGE);
	for (uint32_t i = 0; i < gangs; i++) {
		gk->gang[i].taken = gk->taken + i * gang_tiles;
		gk->gang[i].copies = gk->copies + i * gang_bytes;
	}
	return 0;
}

/* Memory for compressed blocks. The pages that batches use are allocated when they are written. */
static int
allocate_blocks(struct gk *gk)
{
	const uint32_t gangs = gk->config.gangs;
	const uint64_t n = round_up(gk->blocks, 16), all = gangs * GK_BATCH_MAX * n;
	const uint64_t frame_bytes = round_up(n * GANG_BLOCK_STRIDE, COPY_ALIGN);
	const uint64_t bytes = gangs * GK_BATCH_MAX * frame_bytes;

	gk->bitshuffle = gk_bitshuffle_choose(gk->config.isa);
	gk->block_size = aligned_alloc(64, all * sizeof(*gk->block_size));
	gk->block_at = aligned_alloc(64, all * sizeof(*gk->block_at));
	gk->block = aligned_alloc(COPY_ALIGN, bytes);
	if (gk->block_size == NULL || gk->block_at == NULL || gk->block == NULL)
		return -ENOMEM;
	if (gk->config.crc32c != NULL) {
		gk->block_crc = aligned_alloc(64, all * sizeof(*gk->block_crc));
		gk->crc =
			gk_host_crc32c_create(gk_bitshuffle_bound(gk_pixels(&gk->config.geometry)));
		if (gk->block_crc == NULL || gk->crc == NULL)
			return -ENOMEM;
	}
	madvise(gk->block, bytes, MADV_HUGEPAGE);
	for (uint32_t i = 0; i < gangs * GK_BATCH_MAX; i++) {
		struct gang_chunk *c = &gk->gang[i / GK_BATCH_MAX].chunk[i % GK_BATCH_MAX];

		c->size = gk->block_size + i * n;
		c->at = gk->block_at + i * n;
		c->crc = gk->block_crc != NULL ? gk->block_crc + i * n : NULL;
		c->blocks = gk->block + i * frame_bytes;
	}
	return 0;
}

static int
host_create(const struct gk_config *config, struct gk **out)
{
	uint64_t gang_rows, gang_bits, gang_tiles;
	struct gk *gk;
	int ret;

	ret = gk_config_check(config, reason, sizeof(reason));
	if (ret != 0)
		return ret;
	if (gk_tile_choose(config->isa) == NULL) {
		snprintf(reason, sizeof(reason),
			"isa %s is not supported by this CPU; auto selects one that is",
			gk_isa_name(config->isa));
		return -ENOTSUP;
	}

	gk = calloc(1, sizeof(*gk));
	if (gk == NULL)
		return -ENOMEM;
	gk->config = *config;
	gk->tile_ops = gk_tile_choose(config->isa);
	gk->frame_stride = gk_frame_stride(&config->geometry);
	gk->rows = gk_rows(&config->geometry);
	gk->tile_pixels = config->geometry.tile_rows * config->geometry.cols;
	gk->blocks = (uint32_t)gk_bitshuffle_blocks(gk_pixels(&config->geometry));
	gk->tile_bits = (uint32_t)round_up(
		gk_tile_bits(config->geometry.tile_rows, config->geometry.cols), 16);

	/* whole cache lines per gang: 32 counts of 2 bytes */
	gang_rows = round_up((uint64_t)GK_BATCH_MAX * gk->rows, 32);
	gang_bits = (uint64_t)GK_BATCH_MAX * config->geometry.tiles * gk->tile_bits;
	gk->gang = aligned_alloc(64, config->gangs * sizeof(*gk->gang));
	gk->row_nnz = aligned_alloc(64, config->gangs * gang_rows * sizeof(*gk->row_nnz));
	gk->bits = aligned_alloc(64, config->gangs * gang_bits * sizeof(*gk->bits));
	/* A batch with more than 1 in 16 pixels listed is read twice. */
	gk->packed_cap = config->layout.nnz_cap < gk_pixels(&config->geometry) / GK_BATCH_MAX
		? config->layout.nnz_cap * GK_BATCH_MAX
		: (uint32_t)gk_pixels(&config->geometry);
	gk->place = aligned_alloc(
		64, (uint64_t)config->gangs * config->geometry.tiles * sizeof(*gk->place));
	gang_tiles = round_up((uint64_t)GK_BATCH_MAX * config->geometry.tiles, 16);
	gk->packed = calloc(config->gangs * gang_tiles, sizeof(*gk->packed));
	gk->packed_col = calloc((uint64_t)config->gangs * gk->packed_cap, sizeof(*gk->packed_col));
	gk->packed_value =
		calloc((uint64_t)config->gangs * gk->packed_cap, config->layout.value_size);
	if (gk->gang == NULL || gk->row_nnz == NULL || gk->bits == NULL || gk->place == NULL ||
		gk->packed == NULL || gk->packed_col == NULL || gk->packed_value == NULL) {
		host_destroy(gk);
		snprintf(reason, sizeof(reason), "no memory");
		return -ENOMEM;
	}
	memset(gk->gang, 0, config->gangs * sizeof(*gk->gang));
	for (uint32_t i = 0; i < config->gangs; i++) {
		gk->gang[i].row_nnz = gk->row_nnz + i * gang_rows;
		gk->gang[i].bits = gk->bits + i * gang_bits;
		gk->gang[i].place = gk->place + (uint64_t)i * config->geometry.tiles;
		gk->gang[i].packed = gk->packed + i * gang_tiles;
		gk->gang[i].packed_col = gk->packed_col + (uint64_t)i * gk->packed_cap;
		gk->gang[i].packed_value =
			gk->packed_value + (uint64_t)i * gk->packed_cap * config->layout.value_size;
		atomic_init(&gk->gang[i].claim, gang_claim(0, GANG_STOPPED));
	}
	if (config->trailers && allocate_copies(gk) != 0) {
		host_destroy(gk);
		snprintf(reason, sizeof(reason), "no memory for copies of packets with trailers");
		return -ENOMEM;
	}
	if (config->chunks && allocate_blocks(gk) != 0) {
		host_destroy(gk);
		snprintf(reason, sizeof(reason), "no memory for compressed blocks");
		return -ENOMEM;
	}
	if (config->channel->pixels.bin != 0 || config->channel->radial.bin != 0) {
		ret = gk_host_search_create(gk, reason, sizeof(reason));
		if (ret != 0) {
			host_destroy(gk);
			return ret;
		}
	}
	*out = gk;
	return 0;
}

static int
host_start(struct gk *gk)
{
	struct gk_channel *channel = gk->config.channel;
	enum gang_phase phase;
	uint32_t i;
	int ret;

	for (i = 0; i < gk->config.gangs; i++) {
		phase = gang_claim_phase(
			atomic_load_explicit(&gk->gang[i].claim, memory_order_acquire));
		if (phase != GANG_STOPPED && phase != GANG_FAILED) {
			snprintf(reason, sizeof(reason), "gang %u is running", i);
			return -EBUSY;
		}
	}
	ret = gk_start_check(&gk->config, reason, sizeof(reason));
	if (ret != 0)
		return ret;
	for (i = 0; i < gk->config.gangs; i++) {
		__atomic_store_n(&channel->done[i].error, 0, __ATOMIC_RELEASE);
		atomic_store_explicit(&gk->gang[i].claim,
			gang_claim(channel->done[i].done, GANG_IDLE), memory_order_release);
	}
	return 0;
}

static int
host_stop(struct gk *gk)
{
	struct gk_channel *channel = gk->config.channel;
	int ret = 0;

	for (uint32_t i = 0; i < gk->config.gangs; i++) {
		_Atomic uint64_t *word = &gk->gang[i].claim;
		uint64_t claim = atomic_load_explicit(word, memory_order_acquire);
		const uint32_t done = gang_claim_done(claim);

		switch (gang_claim_phase(claim)) {
		case GANG_STOPPED:
			continue;
		case GANG_FAILED:
			if (ret == 0) {
				ret = (int)__atomic_load_n(
					&channel->done[i].error, __ATOMIC_ACQUIRE);
				snprintf(reason, sizeof(reason), "gang %u failed on batch %u", i,
					done);
			}
			continue;
		case GANG_IDLE:
			if (__atomic_load_n(&channel->bell.head[i], __ATOMIC_ACQUIRE) == done &&
				atomic_compare_exchange_strong_explicit(word, &claim,
					gang_claim(done, GANG_STOPPED), memory_order_acq_rel,
					memory_order_relaxed))
				continue;
			break;
		case GANG_SETUP:
		case GANG_STATS:
		case GANG_PEAKS:
		case GANG_OUTPUT:
		case GANG_PLACE:
		case GANG_UPDATE:
			break;
		}
		snprintf(reason, sizeof(reason), "gang %u has unfinished batches", i);
		return -EBUSY;
	}
	return ret;
}

const struct gk_ops gk_host_ops = {
	.name = "host",
	.create = host_create,
	.start = host_start,
	.poll = gk_host_poll,
	.stop = host_stop,
	.destroy = host_destroy,
	.why = host_why,
};
