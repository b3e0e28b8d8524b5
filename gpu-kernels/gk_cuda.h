/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * What the host side and the kernel of the cuda row share: arguments and memory of the device.
 *
 * A frame is cut into *chunks*: up to 256 neighbouring pixels of one row, 8 by each thread of a
 * warp (one 16-byte load of raw data). Each block of a gang owns a range of chunks for good: what
 * it stages, counts and keeps of them is nobody else's, and its share of the coefficients comes
 * from the same part of the L2 cache every time.
 */
#ifndef GK_CUDA_H
#define GK_CUDA_H

#include "gk.h"

#define GK_CUDA_WARPS	8 /**< of a block */
#define GK_CUDA_THREADS (GK_CUDA_WARPS * 32)
#define GK_CUDA_BLOCKS	2    /**< on one multiprocessor: 128 registers a thread, none spilled */
#define GK_CUDA_CHUNK	256  /**< pixels */
#define GK_CUDA_LANE	8    /**< pixels of a chunk that one thread sees */
#define GK_CUDA_DEPTH	8    /**< places for words on their way to a warp, of one frame each */
#define GK_CUDA_KEPT	2064 /**< place for coefficients on their way, of one chunk */
/** Shared memory of a block, besides what the kernel declares; two of them fit. */
#define GK_CUDA_SHARED (GK_CUDA_WARPS * (GK_CUDA_DEPTH * 512 + 2 * GK_CUDA_KEPT))

/**
 * Coefficients of one version as the kernel reads them, an array of this by chunk. G0 comes first,
 * p and r of a thread's pixels in four rows of 16 bytes a thread; a pixel that is NaN in G0 holds
 * p = GK_CUDA_NO_R (r is NaN) or GK_CUDA_NO_P (p is) and r = 0 there, so that it is converted to 0,
 * counts nowhere, and makes no exception on the way.
 */
struct gk_cuda_coef {
	float g0[4][32][4];	    /**< p of pixels 0-3 and 4-7, r of 0-3 and 4-7; by thread */
	float g1[GK_CUDA_CHUNK][2]; /**< p, r as they are */
	float g2[GK_CUDA_CHUNK][2];
	uint32_t unusable; /**< pixels that are NaN in G0 */
	uint32_t wild;	   /**< threads, a bit each, that may see 2^14 photons or more in G0 */
	uint32_t reserved[30];
};
GK_STATIC_ASSERT(sizeof(struct gk_cuda_coef) == 6272, "rows stay on lines of 128 bytes");
#define GK_CUDA_NO_R 3.402823466e38f
#define GK_CUDA_NO_P (-3.402823466e38f)

struct gk_cuda_frame {
	uint64_t number;
	uint64_t out;	 /**< output slot, 0 = none */
	uint64_t result; /**< where the result is wanted */
	uint32_t flags;
	uint32_t direct; /**< enum gk_kind that is sure before anything is counted, or NONE */
};

struct gk_cuda_sums {
	unsigned long long sum;
	unsigned long long bragg_nnz;	      /**< bragg << 32 | nnz */
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
	uint32_t quick; /**< both thresholds are above 0 */
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
	uint32_t row_chunks;
	uint32_t chunks;
	uint32_t staged; /**< packets lie in host memory: keep a copy for outputs */
	uint32_t once;	 /**< end when what was handed over is done, as if quit were set */
	uint32_t first[GK_GANGS_MAX]; /**< gk_done.done at the launch */
	uint64_t watchdog_ns;
	struct gk_cuda_control *control;
	struct gk_cuda_coef *coef; /**< [GK_COEF_MAX][chunks] */
	uint64_t *tables;	   /**< pointer tables: [gangs][2][tiles][GK_BATCH_MAX] */
	uint32_t *counts;	   /**< pixels >= csr_threshold: [gangs][chunks][GK_BATCH_MAX] */
	uint32_t *block_nnz;	   /**< the same by block: [gangs][2][GK_BATCH_MAX][blocks] */
	uint16_t *copy; /**< staged raw data: [gangs][GK_BATCH_MAX][chunks][GK_CUDA_CHUNK] */
};

/** In the embedded fatbin: the kernel, which has no parameters, and its struct gk_cuda_args. */
#define GK_CUDA_KERNEL "gk_cuda_serve"
#define GK_CUDA_ARGS   "args"

#endif /* GK_CUDA_H */
