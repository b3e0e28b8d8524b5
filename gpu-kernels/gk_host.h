/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Private state of host gangs.
 *
 * Any thread that calls poll() for a gang works for it. The state of a gang is one 64-bit claim
 * word: batches done, phase, next tile. A thread claims a few tiles of the current batch and phase
 * by adding their number to the word, processes them, and adds them to `finished`. The thread that
 * finishes the last tile then has exclusive access, and advances the gang. Peaks are searched by
 * frame, see struct gang_search. No thread waits for another, so roles may share threads and
 * threads may be preempted.
 */
#ifndef GK_HOST_H
#define GK_HOST_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "gk_peaks.h"
#include "gk_radial.h"
#include "gk_tile.h"

enum gang_phase {
	GANG_STOPPED, /**< poll() does nothing */
	GANG_IDLE,    /**< waits for the doorbell */
	GANG_SETUP,   /**< one thread reads the descriptor */
	GANG_STATS,   /**< tiles: statistics of all frames */
	GANG_PEAKS,   /**< frames: peaks of those that are searched, and radial profiles */
	GANG_OUTPUT,  /**< tiles: outputs of the frames that are kept */
	GANG_PLACE,   /**< tiles: move compressed blocks to their places in chunks */
	GANG_UPDATE,  /**< tiles: dark update, or clearing of accumulators */
	GANG_FAILED,  /**< a descriptor was invalid; gk_done.error has the reason */
};

/**
 * Statistics of one frame, summed over all threads of a gang. A word holds two counts, to save
 * atomic operations.
 */
struct gang_sums {
	alignas(64) _Atomic int64_t sum;
	_Atomic uint64_t strong_nnz;	    /**< strong count << 32 | nnz */
	_Atomic uint64_t saturated_invalid; /**< saturated << 32 | invalid */
	/** a list made in advance is not in the output slot yet */
	_Atomic uint32_t unplaced;
	_Atomic uint64_t
		missing_overrun; /**< tiles with another trailer: missing << 32 | overrun */
};
_Static_assert(sizeof(struct gang_sums) == 64, "frames share no line");

/** Result of a dark update, summed over all threads of a gang. */
struct gang_update {
	alignas(64) _Atomic uint64_t samples;
	_Atomic int64_t drift;
	_Atomic uint32_t updated;
};

/** Distance of compressed blocks that are not in their places yet, bytes. */
#define GANG_BLOCK_STRIDE 8320

/** The chunk of a frame (gk_host_chunk.c). */
struct gang_chunk {
	/** block << 32 | its place in the chunk: those before it are compressed */
	alignas(64) _Atomic uint64_t front;
	_Atomic uint32_t scattered; /**< some blocks are not in their places */
	/** gk_host_crc32c_part() of the header and of the blocks that the front has passed */
	_Atomic uint32_t crc_sum;
	/** [blocks]: bytes with the length before it, 0: not compressed yet; and a flag */
	_Atomic uint32_t *size;
	uint32_t *at;	 /**< [blocks]: place in the chunk, when the front has passed it */
	uint32_t *crc;	 /**< [blocks]: CRC-32C, if there is a size */
	uint8_t *blocks; /**< [blocks][GANG_BLOCK_STRIDE] */
};

/** One frame of the batch. `kind` is GK_KIND_NONE until the verdict. */
struct gang_frame {
	const uint64_t *packet; /**< tiles to process, 0: missing; with trailers: copies */
	const uint64_t *source; /**< tiles as the builder gave them */
	uint8_t *out;		/**< output slot; NULL: none */
	struct gk_result *result;
	uint16_t *row_nnz; /**< pixels >= csr_threshold by row */
	/**
	 * bit masks of these pixels, at a distance of tile_bits; NULL: the frame cannot become CSR
	 */
	uint32_t *bits;
	uint64_t number;
	uint32_t flags;
	uint32_t kind;
	/** after the verdict: kind of the output that is still to be written, or NONE */
	uint32_t left;
	uint32_t early; /**< kind that is certain or predicted, written while counting; or NONE */
	/**
	 * [tiles], set while counting if `early` is CSR and the packet is present: index into
	 * gang.packed_*, or one of the values below
	 */
	uint32_t *packed;
	/** GK_FRAME_TRAILER, otherwise NULL: [tiles], same as `packet`, set while counting */
	uint64_t *taken;
	uint64_t *missing;	    /**< map of missing tiles of the frame's slot */
	uint64_t trailer;	    /**< expected trailer, in the byte order of memory */
	struct gk_details *details; /**< NULL: none */
	struct gang_chunk *chunk;   /**< NULL: all outputs are plain; see gang_is_chunk() */
	uint8_t *profile;	    /**< area; NULL: no profiles are made */
	bool is_searched;	    /**< peaks are searched */
	uint32_t peaks;
	uint32_t peaks_found; /**< GK_NOT_SEARCHED until the search is complete */
	bool has_peaks;	      /**< the peaks meet the limits of the veto */
};

/**
 * Search of a frame, and its radial profile, with the memory for it. The thread that has set `busy`
 * owns it, and leaves it after a few tiles.
 */
struct gang_search {
	alignas(64) _Atomic uint32_t busy;
	uint32_t tile;		       /**< next tile */
	struct gang_frame *frame;      /**< NULL: none */
	struct gk_peak_finder *finder; /**< NULL: the channel has no map for peaks */
	int16_t *photons;	       /**< [rows][cols]; without a finder: of a tile */
	struct gk_peaks *found;
	struct gk_radial *radial; /**< NULL: the channel has no map for profiles */
};

#define GANG_NOT_PACKED UINT32_MAX	 /**< not in the scratch buffer, which was full */
#define GANG_PLACED	(UINT32_MAX - 1) /**< in the output slot */

/**
 * Start of a tile's lists in every frame of the batch. It is known when all previous tiles are
 * counted. The thread that sets the second bit of `state` continues with the next tile.
 */
struct gang_place {
	alignas(64) uint32_t start[GK_BATCH_MAX];
	uint32_t nnz[GK_BATCH_MAX];
	_Atomic uint32_t state; /**< GANG_PLACE_* */
};
#define GANG_PLACE_KNOWN   1u /**< `start` is written */
#define GANG_PLACE_COUNTED 2u /**< `nnz` is written */

/**
 * Written by the one thread that advances the gang, and read by threads that claim a tile
 * afterwards.
 */
struct gang_batch {
	alignas(64) uint32_t nb_frames;
	struct gk_params params;
	struct gk_peak_params peak; /**< if peaks are searched */
	const float *p[3];
	const float *r[3];
	uint32_t coef_version;
	uint32_t dark_frames; /**< number of frames with GK_FRAME_DARK */
	uint32_t trailers;    /**< number of frames with GK_FRAME_TRAILER */
	/** dark accumulators; valid if there are dark frames, or no frames at all */
	uint64_t *cells;
	float *p_to;		  /**< update: plane to compute; NULL: clear only */
	struct gk_update *update; /**< address for the result of the update */
	uint32_t version_to;
	struct gang_frame frame[GK_BATCH_MAX];
};

struct gang {
	alignas(64) _Atomic uint64_t claim;
	alignas(64) _Atomic uint32_t finished; /**< finished tiles of this phase */
	struct gang_batch batch;
	struct gang_sums sums[GK_BATCH_MAX];
	struct gang_update update;
	uint16_t *row_nnz; /**< [GK_BATCH_MAX][rows] */
	uint32_t *bits;	   /**< [GK_BATCH_MAX][tiles][tile_bits] */
	/** enough frames of the last batch were kept, with the requested kind */
	uint32_t likely;
	struct gang_place *place; /**< [tiles] */
	/**
	 * Scratch buffer for lists that are made before their position is known, in order of
	 * completion. @{
	 */
	alignas(64) _Atomic uint64_t nb_packed;
	uint32_t *packed; /**< [GK_BATCH_MAX][tiles], gang_frame.packed */
	uint16_t *packed_col;
	uint8_t *packed_value;
	/** @} */
	uint64_t *taken; /**< [GK_BATCH_MAX][tiles], gang_frame.taken */
	uint8_t *copies; /**< [tiles][GK_BATCH_MAX] copies of tiles, at a distance of copy_stride */
	struct gang_chunk chunk[GK_BATCH_MAX];
	struct gang_search *search; /**< [nb_searches]; NULL: the channel has no map */
	uint32_t nb_searches;
	/** frames of the batch with a search or a profile, as indices */
	uint8_t searched[GK_BATCH_MAX];
	uint32_t nb_searched;
	/** batch that they belong to << 32 | number of them that no thread has claimed yet */
	alignas(64) _Atomic uint64_t unsearched;
};

struct gk {
	struct gk_config config;
	const struct gk_tile_ops *tile_ops;
	uint64_t frame_stride;
	uint32_t rows;
	uint32_t tile_pixels;
	uint32_t tile_bits; /**< words for the bits of a tile, in whole cache lines */
	struct gang *gang;
	uint16_t *row_nnz;
	uint32_t *bits;
	struct gang_place *place;
	uint32_t packed_cap; /**< pixels that fit into a gang's scratch buffer */
	uint32_t *packed;
	uint16_t *packed_col;
	uint8_t *packed_value;
	const struct gk_bitshuffle_ops *bitshuffle;
	uint32_t blocks; /**< of a chunk */
	/** of all gangs and frames of a batch: struct gang_chunk; NULL: there are no chunks @{ */
	_Atomic uint32_t *block_size;
	uint32_t *block_at;
	uint32_t *block_crc;
	uint8_t *block;
	struct gk_crc32c *crc; /**< NULL: no CRCs are computed */
	/** @} */
	uint64_t copy_stride; /**< bytes of the copy of a tile */
	uint64_t *taken;      /**< NULL: frames have no trailers */
	uint8_t *copies;
	struct gang_search *searches; /**< of all gangs */
	uint32_t nb_searches;
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

/** Return the number of strong pixels of a frame whose tiles are all counted. */
static inline uint32_t
gang_strong_count(const struct gang_sums *sums)
{
	return (uint32_t)(atomic_load_explicit(&sums->strong_nnz, memory_order_relaxed) >> 32);
}

/** Return true if the number of strong pixels is that of a hit. */
static inline bool
gang_is_strong(const struct gk_params *params, uint32_t strong)
{
	return strong >= params->strong_min && strong <= params->strong_max;
}

/** Return true if the output of this kind is a chunk. */
static inline bool
gang_is_chunk(const struct gang *gang, const struct gang_frame *f, uint32_t kind)
{
	return f->chunk != NULL && kind != GK_KIND_NONE && (gang->batch.params.chunks >> kind & 1);
}

/** Return the coefficients and thresholds of a tile. */
struct gk_tile gk_host_tile(const struct gk *gk, const struct gang *gang, uint32_t tile);

/** Execute one quantum of one gang; implements gk_ops.poll(). */
int gk_host_poll(struct gk *gk, uint32_t gang, uint32_t worker);

/**
 * Compute the statistics of tiles first ... end - 1 of every frame of the batch, the samples of
 * dark frames, and the output of frames whose kind is certain or predicted, because the tile is in
 * L2 at that time.
 */
void gk_host_stats(const struct gk *gk, struct gang *gang, uint32_t first, uint32_t end);

/** Copy a tile of every frame with trailers, and check its trailer before and after. */
void gk_host_take(const struct gk *gk, struct gang *gang, const struct gk_tile *t, uint32_t tile);

/**
 * Allocate the memory of searches for peaks and of radial profiles.
 * @param why   receives the error
 * @param size  size of why
 * @return 0; -EINVAL: a map of pixels is invalid; -ENOMEM. gk_host_search_destroy() is needed
 *   after any of them
 */
int gk_host_search_create(struct gk *gk, char *why, size_t size);
void gk_host_search_destroy(struct gk *gk);

/**
 * Select the frames of the batch whose peaks are searched; with profiles, all of them. Only the
 * thread that advances the gang may call this.
 * @param done  batches done
 * @return number of frames
 */
uint32_t gk_host_search_begin(struct gang *gang, uint32_t done);

enum gang_searched {
	GANG_SEARCHED_NONE, /**< there is no frame that this thread can work on */
	GANG_SEARCHED_SOME,
	GANG_SEARCHED_ALL, /**< the last frame is complete; the caller advances the gang */
};

/**
 * Work on a frame in GANG_PEAKS: a few tiles, or with the last ones also the search itself.
 * @param done  batches done, from a claim word that was acquired
 */
enum gang_searched gk_host_search(
	const struct gk *gk, struct gang *gang, uint32_t done, uint32_t worker);

/** Convert the sums of a frame into its result, and row counts into row_ptr if it becomes CSR. */
void gk_host_verdict(const struct gk *gk, struct gang *gang, uint32_t index);

/** Write the output of tiles first ... end - 1 of every kept frame of the batch. */
void gk_host_output(const struct gk *gk, const struct gang *gang, uint32_t first, uint32_t end);

/**
 * Create the table for CRCs of chunks.
 * @param size  maximum size of a chunk, bytes
 * @return to be released with free(); NULL: no memory
 */
struct gk_crc32c *gk_host_crc32c_create(uint64_t size);

/**
 * @param crc  CRC-32C of a part of a chunk
 * @param end  offset of the end of the part in the chunk
 * @return what is added to the sum of the chunk: with XOR, in any order
 */
uint32_t gk_host_crc32c_part(const struct gk_crc32c *c, uint32_t crc, uint64_t end);

/** @return CRC-32C of a chunk of `size` bytes from the sum of all its parts */
uint32_t gk_host_crc32c_sum(uint32_t sum, uint64_t size);

/** Begin the chunk of a frame. Only the thread that advances the gang may call this. */
void gk_host_chunk_begin(const struct gk *gk, struct gang_chunk *c);

/**
 * Compress the blocks of a frame that begin in a tile. The packets they need must be final.
 * @param kind  GK_KIND_RAW: words; GK_KIND_IMAGE: photons as of GK_VALUE_I16
 */
void gk_host_chunk(const struct gk *gk, const struct gang *gang, const struct gang_frame *f,
	uint32_t kind, uint32_t tile);

/**
 * Write the sizes of chunks of the batch, whose blocks are all compressed. Only the thread that
 * advances the gang may call this.
 * @return true: gk_host_chunk_place() must be called for all tiles
 */
bool gk_host_chunk_end(const struct gk *gk, struct gang *g);

/** Copy the blocks that begin in a tile to their places, of all chunks of the batch. */
void gk_host_chunk_place(const struct gk *gk, const struct gang *g, uint32_t tile);

/** Update the pedestals of one tile, or clear its accumulators. */
void gk_host_tile_update(const struct gk *gk, struct gang *gang, uint32_t tile);

/** Write the result of an update whose tiles are all done. */
void gk_host_update_done(const struct gk *gk, struct gang *gang);

#endif /* GK_HOST_H */
