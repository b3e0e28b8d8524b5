/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Private state of host gangs.
 *
 * A gang is whoever calls poll() for it. Its state is one 64-bit claim word: batches done, phase,
 * next tile. A thread claims a few tiles of whatever batch and phase the word says by adding their
 * number to it, works on them and says so in `finished`; the thread that finishes the last one,
 * alone then, moves the gang on. Nobody waits for anybody, so roles may share threads and threads
 * may be preempted.
 */
#ifndef GK_HOST_H
#define GK_HOST_H

#include <stdalign.h>
#include <stdatomic.h>

#include "gk.h"
#include "gk_tile.h"

enum gang_phase {
	GANG_STOPPED, /**< poll() does nothing */
	GANG_IDLE,    /**< waits for the doorbell */
	GANG_SETUP,   /**< one thread reads the descriptor */
	GANG_STATS,   /**< tiles: statistics of all frames */
	GANG_OUTPUT,  /**< tiles: outputs of the frames that are kept */
	GANG_UPDATE,  /**< tiles: dark update, or clearing of accumulators */
	GANG_FAILED,  /**< gave up on a descriptor; gk_done.error says why */
};

/** Statistics of one frame, added to by all threads of a gang. Two counts a word: fewer atomics. */
struct gang_sums {
	alignas(64) _Atomic int64_t sum;
	_Atomic uint64_t strong_nnz;	    /**< bragg << 32 | nnz */
	_Atomic uint64_t saturated_invalid; /**< saturated << 32 | invalid */
	_Atomic uint32_t unplaced;	    /**< a likely list is not in the output slot yet */
};
_Static_assert(sizeof(struct gang_sums) == 64, "frames share no line");

/** What a dark update found, added to by all threads of a gang. */
struct gang_update {
	alignas(64) _Atomic uint64_t samples;
	_Atomic int64_t drift;
	_Atomic uint32_t updated;
};

/** One frame of the batch. `kind` is GK_KIND_NONE until the verdict. */
struct gang_frame {
	const uint64_t *packet;
	uint8_t *out; /**< output slot; NULL = none */
	struct gk_result *result;
	uint16_t *row_nnz; /**< pixels >= csr_threshold by row */
	uint32_t *bits;	   /**< which ones, tile_bits apart; NULL = it cannot become CSR */
	uint64_t number;
	uint32_t flags;
	uint32_t kind;
	uint32_t left;	  /**< after the verdict: kind of what is not in the slot yet, or NONE */
	uint32_t early;	  /**< kind that is sure or likely, made while counting; or NONE */
	uint32_t *packed; /**< [tiles], set while counting if early is CSR and the packet is there:
			   * index into gang.packed_*, or one of the next */
};

#define GANG_NOT_PACKED UINT32_MAX	 /**< not in the scratch, which was full */
#define GANG_PLACED	(UINT32_MAX - 1) /**< in the output slot */

/**
 * Where a tile's lists begin, in every frame of the batch. It is known when all tiles before are
 * counted. Whoever sets the second bit of `state` goes on to the next tile.
 */
struct gang_place {
	alignas(64) uint32_t start[GK_BATCH_MAX];
	uint32_t nnz[GK_BATCH_MAX];
	_Atomic uint32_t state; /**< GANG_PLACE_* */
};
#define GANG_PLACE_KNOWN   1u /**< `start` is written */
#define GANG_PLACE_COUNTED 2u /**< `nnz` is written */

/** Written by the one thread that moves the gang on; read by those who claimed a tile after. */
struct gang_batch {
	alignas(64) uint32_t nb_frames;
	struct gk_params params;
	const float *p[3];
	const float *r[3];
	uint32_t coef_version;
	uint32_t dark_frames; /**< frames with GK_FRAME_DARK */
	uint64_t *cells; /**< dark accumulators; valid if there are dark frames, or no frames */
	float *p_to;	 /**< update: plane that it computes; NULL = clear only */
	struct gk_update *update; /**< where what was found is wanted */
	uint32_t version_to;
	struct gang_frame frame[GK_BATCH_MAX];
};

struct gang {
	alignas(64) _Atomic uint64_t claim;
	alignas(64) _Atomic uint32_t finished; /**< tiles of this phase */
	struct gang_batch batch;
	struct gang_sums sums[GK_BATCH_MAX];
	struct gang_update update;
	uint16_t *row_nnz; /**< [GK_BATCH_MAX][rows] */
	uint32_t *bits;	   /**< [GK_BATCH_MAX][tiles][tile_bits] */
	uint32_t likely;   /**< enough of the last batch was kept, and as the kind asked for */
	struct gang_place *place; /**< [tiles] */
	/** Scratch of lists that are made before their places are known: tiles as they come. @{ */
	alignas(64) _Atomic uint64_t nb_packed;
	uint32_t *packed; /**< [GK_BATCH_MAX][tiles], gang_frame.packed */
	uint16_t *packed_col;
	uint8_t *packed_value;
	/** @} */
};

struct gk {
	struct gk_config config;
	const struct gk_tile_ops *tile_ops;
	uint64_t frame_stride;
	uint32_t rows;
	uint32_t tile_pixels;
	uint32_t tile_bits; /**< words that a tile's bits may take, whole cache lines */
	struct gang *gang;
	uint16_t *row_nnz;
	uint32_t *bits;
	struct gang_place *place;
	uint32_t packed_cap; /**< pixels that fit into the scratch of a gang */
	uint32_t *packed;
	uint16_t *packed_col;
	uint8_t *packed_value;
};

/** Claim word: batches done << 32 | phase << 28 | next tile. @{ */
#define GANG_TILE_BITS 28
#define GANG_TILE_MASK ((UINT32_C(1) << GANG_TILE_BITS) - 1)

static inline uint64_t
gang_claim(uint32_t done, enum gang_phase phase)
{
	return (uint64_t)done << 32 | (uint32_t)phase << GANG_TILE_BITS;
}

static inline uint32_t
gang_claim_done(uint64_t claim)
{
	return (uint32_t)(claim >> 32);
}

static inline enum gang_phase
gang_claim_phase(uint64_t claim)
{
	return (enum gang_phase)((uint32_t)claim >> GANG_TILE_BITS);
}

static inline uint32_t
gang_claim_tile(uint64_t claim)
{
	return (uint32_t)claim & GANG_TILE_MASK;
}
/** @} */

/** One quantum of one gang, gk_ops.poll(). */
int gk_host_poll(struct gk *gk, uint32_t gang, uint32_t worker);

/**
 * Statistics of tiles first ... end - 1 of every frame of the batch, the dark samples of dark ones,
 * and the output of those whose kind is sure or likely: a tile is in L2 then.
 */
void gk_host_stats(const struct gk *gk, struct gang *gang, uint32_t first, uint32_t end);

/** Turn the sums of a frame into its result, and row counts into row_ptr if it becomes CSR. */
void gk_host_verdict(const struct gk *gk, struct gang *gang, uint32_t index);

/** Output of tiles first ... end - 1 of every frame of the batch that is kept. */
void gk_host_output(const struct gk *gk, const struct gang *gang, uint32_t first, uint32_t end);

/** Dark update, or clearing, of one tile. */
void gk_host_tile_update(const struct gk *gk, struct gang *gang, uint32_t tile);

/** All tiles of an update are done: say what it found. */
void gk_host_update_done(const struct gk *gk, struct gang *gang);

#endif /* GK_HOST_H */
