/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * What the host side and the kernel of the cuda row share: arguments and memory of the device.
 *
 * A frame is cut into *chunks*: up to 512 neighbouring pixels of one row, 16 by each thread of a
 * warp. Each block of a gang owns a range of chunks for good: what it stages, counts and keeps of
 * them is nobody else's, and its share of the coefficients comes from the same part of the L2 cache
 * every time.
 */
#ifndef GK_CUDA_H
#define GK_CUDA_H

#include <stddef.h>

#include "gk.h"

#define GK_CUDA_WARPS	8 /**< of a block */
#define GK_CUDA_THREADS (GK_CUDA_WARPS * 32)
#define GK_CUDA_BLOCKS	2   /**< on one multiprocessor: 128 registers a thread, none spilled */
#define GK_CUDA_CHUNK	512 /**< pixels */
#define GK_CUDA_LANE	16  /**< pixels of a chunk that one thread sees */
#define GK_CUDA_WORDS	(GK_CUDA_CHUNK * 2) /**< bytes of a chunk's words */
/**
 * Coefficients of one version and chunk as the kernel reads them. What comes first is for the quick
 * path, in raster order and scaled for it (gk_cuda_pixel.cuh); a pixel that is NaN in G0 (*hole*),
 * or that the quick path cannot do (*wild*), converts to 0 photons and reaches no threshold there.
 * Thresholds are words: the smallest of G0 that reaches the threshold, 0x4000 if none does, with
 * the sign bit set; those of other batches than the last are not kept.
 */
struct gk_cuda_coef {
	float p[GK_CUDA_CHUNK];
	float r[GK_CUDA_CHUNK];
	uint16_t bragg[GK_CUDA_CHUNK];
	uint16_t csr[GK_CUDA_CHUNK];
	uint32_t holes; /**< how many, within the row */
	uint32_t wild;
	uint32_t reserved[30];
	uint32_t hole_bits[GK_CUDA_CHUNK / 32]; /**< a bit each, in raster order */
	uint32_t wild_bits[GK_CUDA_CHUNK / 32];
	float plane[3][GK_CUDA_CHUNK][2]; /**< p and r by gain stage, as they are */
};
GK_STATIC_ASSERT(sizeof(struct gk_cuda_coef) == 18688, "chunks stay on lines of 128 bytes");
GK_STATIC_ASSERT(offsetof(struct gk_cuda_coef, holes) == 6144, "what is copied comes first");

/**
 * Shared memory of a warp, by offsets: places for the words of GK_CUDA_DEPTH frames on their way,
 * then coefficients of a chunk: counting has all of one, outputs have two of p and r. @{
 */
#define GK_CUDA_DEPTH	 4
#define GK_CUDA_AT_KEPT	 (GK_CUDA_DEPTH * GK_CUDA_WORDS)
#define GK_CUDA_AT_FIRST (GK_CUDA_AT_KEPT + 9216) /**< `holes` and `wild`, twice */
#define GK_CUDA_AT_LIST	 (GK_CUDA_AT_FIRST + 32)  /**< addresses of frames, of two chunks */
#define GK_CUDA_AREA	 (GK_CUDA_AT_LIST + 2 * GK_BATCH_MAX * 8)
/** @} */
/** Shared memory of a block, besides what the kernel declares; two of them fit. */
#define GK_CUDA_SHARED (GK_CUDA_WARPS * GK_CUDA_AREA)
/** What it declares, at most. */
#define GK_CUDA_DECLARED 4352

/** Division by a number that is known at the launch. */
struct gk_cuda_divisor {
	uint32_t by;
	uint32_t inverse; /**< 2^32 / by, rounded down; at most 2^32 - 1 */
};

struct gk_cuda_frame {
	uint64_t number;
	uint64_t out;	 /**< output slot, 0 = none */
	uint64_t result; /**< where the result is wanted */
	uint32_t flags;
	uint32_t direct; /**< enum gk_kind that is sure before anything is counted, or NONE */
};

struct gk_cuda_sums {
	unsigned long long sum;
	unsigned long long strong_nnz;	      /**< bragg << 32 | nnz */
	unsigned long long saturated_invalid; /**< saturated << 32 | invalid */
};

/** A batch as the dispatcher's block hands it to the blocks of a gang. */
struct gk_cuda_batch {
	GK_ALIGNED(16) uint32_t op;
	uint32_t nb_frames;
	uint32_t dark;	 /**< frames with GK_FRAME_DARK, a bit each */
	uint32_t direct; /**< frames whose kind is sure and not NONE, a bit each */
	uint32_t coef;	 /**< index of the version */
	uint32_t coef_to;
	uint32_t pack;	/**< the version has to be read from the planes first */
	uint32_t share; /**< update: all planes but p[0] are those of `coef` */
	uint32_t aim;	/**< thresholds of the version have to be found first */
	uint32_t reserved;
	uint64_t cells;
	uint64_t update; /**< struct gk_update, written when done */
	struct gk_params params;
	struct gk_coef plane;
	struct gk_coef plane_to;
	struct gk_cuda_frame frame[GK_BATCH_MAX];
	struct gk_cuda_sums sums[GK_BATCH_MAX]; /**< added to by the blocks of the gang */
	unsigned long long samples;		/**< update: likewise */
	unsigned long long drift;
	unsigned long long updated;
};

/**
 * One gang. Batches are numbered from the launch on here; the next but one is set up when a
 * batch is done, so two of everything suffice.
 */
struct gk_cuda_gang {
	GK_ALIGNED(128) uint32_t ready;	      /**< batches set up; by the dispatcher's block */
	uint32_t end;			      /**< no more will be; then `ready` is final */
	GK_ALIGNED(128) uint32_t counted;     /**< blocks that have counted, of all batches */
	GK_ALIGNED(128) uint32_t finished[2]; /**< blocks that are through with a batch */
	GK_ALIGNED(128) uint32_t done;	      /**< batches done; by the last block of one */
	GK_ALIGNED(128) struct gk_cuda_batch batch[2]; /**< by parity of the batch number */
};

/** What start() clears. */
struct gk_cuda_control {
	GK_ALIGNED(128) uint32_t killed; /**< the watchdog has ended everything */
	struct gk_cuda_gang gang[GK_GANGS_MAX];
};

/** Constant memory of the kernel: shapes and addresses, not rewritten during a launch. */
struct gk_cuda_args {
	struct gk_channel *channel;
	uint8_t *frames;
	struct gk_result *results;
	uint8_t *outputs;
	uint64_t frame_stride;
	struct gk_geometry geometry;
	struct gk_layout layout;
	uint32_t value;
	uint32_t nb_frames;
	uint32_t nb_outputs;
	uint32_t gangs;
	uint32_t blocks; /**< of a gang; one more block dispatches */
	uint32_t rows;
	uint32_t chunks;
	struct gk_cuda_divisor row_chunks; /**< chunks of a row */
	struct gk_cuda_divisor tile_rows;
	uint32_t staged; /**< packets lie in host memory: keep a copy for outputs */
	uint32_t once;	 /**< end when what was handed over is done, as if quit were set */
	uint32_t first[GK_GANGS_MAX]; /**< gk_done.done at the launch */
	uint64_t watchdog_ns;
	struct gk_cuda_control *control;
	struct gk_cuda_coef *coef; /**< [GK_COEF_MAX][chunks] */
	uint64_t *tables;	   /**< pointer tables: [gangs][2][tiles][GK_BATCH_MAX] */
	uint32_t *counts;	   /**< pixels >= csr_threshold: [gangs][chunks][GK_BATCH_MAX] */
	uint32_t *block_nnz;	   /**< the same by block: [gangs][2][GK_BATCH_MAX][blocks] */
	uint16_t *nothing;	   /**< words of a chunk, for packets that are missing: zeros */
	uint16_t *copy; /**< staged raw data: [gangs][GK_BATCH_MAX][chunks][GK_CUDA_CHUNK] */
};

/** In the embedded fatbin: the kernel, which has no parameters, and its struct gk_cuda_args. */
#define GK_CUDA_KERNEL "gk_cuda_serve"
#define GK_CUDA_ARGS   "args"

#endif /* GK_CUDA_H */
