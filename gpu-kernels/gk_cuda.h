/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Arguments and device memory that the host side and the kernel of the cuda implementation share.
 *
 * A frame is divided into *chunks*: up to 512 neighbouring pixels of one row, 16 for each thread of
 * a warp. Each block of a gang owns a fixed range of chunks. No other block uses the data that it
 * stages, counts and keeps for them, and its share of the coefficients always comes from the same
 * part of the L2 cache.
 */
#ifndef GK_CUDA_H
#define GK_CUDA_H

#include <stddef.h>

#include "gk.h"
#include "gk_cuda_crc.h"

#define GK_CUDA_WARPS	8 /**< of a block */
#define GK_CUDA_THREADS (GK_CUDA_WARPS * 32)
/** blocks per multiprocessor: 128 registers per thread without spilling */
#define GK_CUDA_BLOCKS 2
#define GK_CUDA_CHUNK  512		   /**< pixels */
#define GK_CUDA_LANE   16		   /**< pixels of a chunk that one thread processes */
#define GK_CUDA_WORDS  (GK_CUDA_CHUNK * 2) /**< bytes of the words of a chunk */
/**
 * Coefficients of one version and chunk, as the kernel reads them. The first fields are for the
 * fast path, in raster order and scaled for it (gk_cuda_pixel.cuh). A pixel that is NaN in G0
 * (*hole*), or that the fast path cannot process (*wild*), converts to 0 photons there and reaches
 * no threshold. Thresholds are words: the smallest G0 word that reaches the threshold, or 0x4000 if
 * none does, with the sign bit set. Only the thresholds of the last batch are kept.
 */
struct gk_cuda_coef {
	float p[GK_CUDA_CHUNK];
	float r[GK_CUDA_CHUNK];
	uint16_t bragg[GK_CUDA_CHUNK];
	uint16_t csr[GK_CUDA_CHUNK];
	uint32_t holes; /**< number of holes within the row */
	uint32_t wild;
	uint32_t reserved[30];
	uint32_t hole_bits[GK_CUDA_CHUNK / 32]; /**< bit mask in raster order */
	uint32_t wild_bits[GK_CUDA_CHUNK / 32];
	float plane[3][GK_CUDA_CHUNK][2]; /**< p and r by gain stage, unscaled */
};
GK_STATIC_ASSERT(sizeof(struct gk_cuda_coef) == 18688, "chunks stay on lines of 128 bytes");
GK_STATIC_ASSERT(offsetof(struct gk_cuda_coef, holes) == 6144, "what is copied comes first");

/**
 * Shared memory of a warp, by offsets: buffers for the words of GK_CUDA_DEPTH frames being copied,
 * then coefficients of a chunk. Counting stores all coefficients of one chunk, output stores p and
 * r of two chunks. @{
 */
#define GK_CUDA_DEPTH	 4
#define GK_CUDA_AT_KEPT	 (GK_CUDA_DEPTH * GK_CUDA_WORDS)
#define GK_CUDA_AT_FIRST (GK_CUDA_AT_KEPT + 9216) /**< `holes` and `wild`, twice */
#define GK_CUDA_AT_LIST	 (GK_CUDA_AT_FIRST + 32)  /**< addresses of frames, for two chunks */
#define GK_CUDA_AT_MORE	 (GK_CUDA_AT_LIST + 2 * GK_BATCH_MAX * 8) /**< counts of odd pixels */
#define GK_CUDA_AT_FOUND (GK_CUDA_AT_MORE + 2 * GK_BATCH_MAX * 4) /**< chunks that have some */
#define GK_CUDA_AREA	 (GK_CUDA_AT_FOUND + 16)
/** @} */
/** Dynamic shared memory of a block. Two blocks fit on a multiprocessor. */
#define GK_CUDA_SHARED (GK_CUDA_WARPS * GK_CUDA_AREA)
/** Maximum shared memory that the kernel declares statically. */
#define GK_CUDA_DECLARED 4608

/** In gk_cuda_args.counts: the fast path could not count all pixels. */
#define GK_CUDA_HAS_ODD 0x80000000u

/** Maximum number of gangs that read packets from host memory in turns, if they write chunks. */
#define GK_CUDA_TURNS 4

/** Divisor that is known at the launch. */
struct gk_cuda_divisor {
	uint32_t by;
	uint32_t inverse; /**< 2^32 / divisor, rounded down; at most 2^32 - 1 */
};

struct gk_cuda_frame {
	uint64_t number;
	uint64_t out;	 /**< output slot, 0: none */
	uint64_t result; /**< address of the result */
	uint32_t flags;
	uint32_t direct; /**< enum gk_kind if it is certain before counting, otherwise NONE */
};

struct gk_cuda_sums {
	unsigned long long sum;
	unsigned long long strong_nnz;	      /**< strong count << 32 | nnz */
	unsigned long long saturated_invalid; /**< saturated << 32 | invalid */
};

/** A batch as the dispatcher block hands it to the blocks of a gang. */
struct gk_cuda_batch {
	GK_ALIGNED(16) uint32_t op;
	uint32_t nb_frames;
	uint32_t dark;	 /**< bit mask of frames with GK_FRAME_DARK */
	uint32_t direct; /**< bit mask of frames whose kind is certain and not NONE */
	uint32_t coef;	 /**< index of the version */
	uint32_t coef_to;
	uint32_t pack;		 /**< the version must first be read from the planes */
	uint32_t share;		 /**< update: all planes except p[0] are shared with `coef` */
	uint32_t set_thresholds; /**< threshold words of the version must first be computed */
	uint32_t trailers;	 /**< bit mask of frames with GK_FRAME_TRAILER */
	uint32_t turn;		 /**< to read packets: number of the batch, 0: at any time */
	uint32_t one_pass; /**< all frames become raw chunks, written while they are counted */
	uint64_t cells;
	uint64_t update; /**< address of struct gk_update, written at the end */
	struct gk_params params;
	struct gk_coef plane;
	struct gk_coef plane_to;
	struct gk_cuda_frame frame[GK_BATCH_MAX];
	struct gk_cuda_sums sums[GK_BATCH_MAX]; /**< sums over the blocks of the gang */
	unsigned long long samples;		/**< update: sum over the blocks of the gang */
	unsigned long long drift;
	unsigned long long updated;
};

/** Sums of a bin of a frame's radial profile, over the blocks of the gang. */
struct gk_cuda_profile_sum {
	GK_ALIGNED(16) unsigned long long sum; /**< photons, two's complement */
	uint32_t lost;			       /**< pixels that are not valid */
	uint32_t reserved;
};

/**
 * List of the chunks of a block that have odd pixels, which blocks of the gang may take. 0 between
 * batches.
 */
struct gk_cuda_odd {
	GK_ALIGNED(8) uint32_t listed; /**< written by the block, when the list is complete */
	uint32_t taken;		       /**< may exceed `listed` */
};

/** Frames with GK_FRAME_TRAILER of a batch. */
struct gk_cuda_trailers {
	uint64_t number[GK_BATCH_MAX];	       /**< expected number in the trailers */
	uint64_t map[GK_BATCH_MAX];	       /**< address of the map of missing packets */
	unsigned long long lost[GK_BATCH_MAX]; /**< missing << 32 | overrun */
};

/**
 * State of one gang. Batches are numbered from the launch on. A batch is set up when the batch two
 * before it is done, so two copies of everything are enough.
 */
struct gk_cuda_gang {
	/** batches set up; written by the dispatcher block */
	GK_ALIGNED(128) uint32_t ready;
	uint32_t end; /**< no more batches follow; `ready` is then final */
	/** blocks that have counted, summed over all batches */
	GK_ALIGNED(128) uint32_t counted;
	/** blocks that have copied packets with trailers, summed over all batches that have some */
	GK_ALIGNED(128) uint32_t taken;
	/** blocks that have arrived at a barrier of a peak search, summed over all barriers */
	GK_ALIGNED(128) uint32_t arrived;
	/** blocks that have compressed copies of packets, summed over all batches with some */
	uint32_t compressed;
	GK_ALIGNED(128) uint32_t finished[2]; /**< blocks that have finished a batch */
	/** batches done; written by the last block of a batch */
	GK_ALIGNED(128) uint32_t done;
	GK_ALIGNED(128) struct gk_cuda_batch batch[2]; /**< indexed by parity of the batch number */
	struct gk_cuda_trailers trailers[2];
	struct gk_peak_params peak[2]; /**< if peaks are searched */
	/** addresses of the areas of radial profiles */
	uint64_t profile[2][GK_BATCH_MAX];
};

/** Control data that start() clears. */
struct gk_cuda_control {
	GK_ALIGNED(128) uint32_t killed; /**< the watchdog has ended the kernel */
	/** batches with a turn whose packets are read */
	GK_ALIGNED(128) uint32_t turns;
	struct gk_cuda_gang gang[GK_GANGS_MAX];
};

/** Constant memory of the kernel: shapes and addresses. Not rewritten during a launch. */
struct gk_cuda_args {
	struct gk_channel *channel;
	uint8_t *frames;
	struct gk_result *results;
	struct gk_details *details; /**< NULL: none are written */
	uint8_t *outputs;
	uint64_t frame_stride;
	struct gk_geometry geometry;
	struct gk_layout layout;
	uint32_t value;
	uint32_t nb_frames;
	uint32_t nb_outputs;
	uint32_t gangs;
	uint32_t blocks; /**< blocks of a gang; one additional block dispatches */
	uint32_t rows;
	uint32_t chunks;
	uint32_t block_chunks;		   /**< no block has more */
	struct gk_cuda_divisor row_chunks; /**< chunks per row */
	struct gk_cuda_divisor tile_rows;
	uint32_t staged;   /**< packets are in host memory: keep a copy for outputs */
	uint32_t trailers; /**< frames may have GK_FRAME_TRAILER */
	uint32_t searches; /**< peaks may be searched; otherwise struct gk_cuda_peaks is not used */
	uint32_t map_words; /**< u32 words of a slot's map of missing packets */
	uint64_t map_at;    /**< its offset in the slot */
	uint32_t once;	    /**< end when all batches handed over are done, as if `quit` were set */
	uint32_t first[GK_GANGS_MAX]; /**< gk_done.done at the launch */
	uint64_t watchdog_ns;
	struct gk_cuda_control *control;
	struct gk_cuda_coef *coef; /**< [GK_COEF_MAX][chunks] */
	uint64_t *tables;	   /**< pointer tables: [gangs][2][tiles][GK_BATCH_MAX] */
	/**
	 * number of pixels >= csr_threshold, with GK_CUDA_HAS_ODD until odd pixels are counted:
	 * [gangs][chunks][GK_BATCH_MAX]
	 */
	uint32_t *counts;
	uint32_t *odd_lanes; /**< as `counts`: bit mask of the threads that have odd pixels */
	/** `counts` by block: [gangs][2][GK_BATCH_MAX][blocks]; 0 between batches of frames */
	uint32_t *block_nnz;
	struct gk_cuda_odd *odd; /**< [gangs][blocks] */
	/** chunks with odd pixels: [gangs][blocks][block_chunks] */
	uint32_t *odd_chunks;
	uint16_t *nothing; /**< words of a chunk for missing packets: zeros */
	uint8_t *profiles; /**< areas; NULL: no radial profiles are made */
	uint32_t nb_profiles;
	uint32_t bins; /**< of profiles */
	uint64_t profile_stride;
	uint64_t profile_count_at;
	/** of the pixels of a chunk: [chunks][GK_CUDA_CHUNK]; `bins`: in no bin, or no pixel */
	uint16_t *bin;
	uint32_t *bin_pixels; /**< pixels of each bin */
	/** of frames, and of all together: [gangs][2][GK_BATCH_MAX + 1][bins]; 0 between batches */
	struct gk_cuda_profile_sum *profile_sums;
	/** raw data, staged or with trailers: [gangs][GK_BATCH_MAX][chunks][GK_CUDA_CHUNK] */
	uint16_t *copy;
	/** gk_config.chunks @{ */
	uint32_t chunked;
	uint32_t readers; /**< gangs that read packets at the same time, 0: any number */
	struct gk_cuda_divisor cols;
	uint32_t chunk_blocks;		    /**< blocks of a chunk */
	struct gk_cuda_divisor tile_blocks; /**< of a tile; 0: tiles are not whole blocks */
	/** ends of compressed blocks: [gangs][2][GK_BATCH_MAX][blocks of a chunk] */
	uint64_t *chunk_ends;
	/** of their CRCs, the sum over the blocks of a chunk: [gangs][2][GK_BATCH_MAX] */
	uint32_t *chunk_crc;
	uint32_t *chunk_next;	 /**< blocks of chunks that warps have taken: [gangs][2] */
	struct gk_cuda_crc *crc; /**< tables */
				 /** @} */
};

/**
 * Names in the embedded fatbin: the kernel, which has no parameters, and its struct gk_cuda_args.
 */
#define GK_CUDA_KERNEL "gk_cuda_serve"
#define GK_CUDA_ARGS   "args"
/** Name of its struct gk_cuda_peaks. */
#define GK_CUDA_PEAK_ARGS "peak_args"

#endif /* GK_CUDA_H */
