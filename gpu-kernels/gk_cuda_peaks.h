/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Memory of the search for peaks on a GPU, which host and kernel share.
 *
 * The raster is divided into *tiles*, in the order of their smallest radial bins. Each block of a
 * gang counts neighbouring tiles of this order, so that the bins of a block are few and its table
 * of values fits into shared memory.
 */
#ifndef GK_CUDA_PEAKS_H
#define GK_CUDA_PEAKS_H

#include "gk_peak_blob.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GK_CUDA_PEAK_FRAMES 16 /**< frames of a batch */
#define GK_CUDA_PEAK_COLS   64 /**< of a tile */
#define GK_CUDA_PEAK_ROWS   16 /**< of a tile */
/**
 * Photons that are counted by value, INT16_MIN at the last entry. Others are listed. @{
 */
#define GK_CUDA_PEAK_MIN     (-16)
#define GK_CUDA_PEAK_VALUES  128
#define GK_CUDA_PEAK_INVALID (GK_CUDA_PEAK_VALUES - 1)
/** @} */

struct gk_cuda_peak_tile {
	uint32_t at;   /**< index of the first pixel */
	uint16_t bin;  /**< smallest bin of a pixel that is used */
	uint16_t end;  /**< largest one + 1 */
	uint16_t cols; /**< 32 in the last tile of some rows */
	uint16_t rows; /**< fewer in the last tiles of some frames */
};
GK_STATIC_ASSERT(sizeof(struct gk_cuda_peak_tile) == 12, "tiles have no padding");

/** A blob's seed, and the place of its positions. */
struct gk_cuda_peak_seed {
	GK_ALIGNED(8) uint32_t at;
	uint32_t position;
};

/** A peak that was found. */
struct gk_cuda_peak_record {
	struct gk_peak peak;
	uint32_t key;	  /**< place of the seed among all pixels of all panels, in search order */
	uint16_t verdict; /**< enum gk_peak_verdict; GK_PEAK_DROPPED: nothing else is set */
	uint16_t frame;	  /**< of the batch */
};
GK_STATIC_ASSERT(sizeof(struct gk_cuda_peak_record) == 40, "records have no padding");

/** Counters of a frame. */
struct gk_cuda_peak_counters {
	uint32_t records; /**< peaks that were found, unless by labels */
	/** the frame is searched by labels: a blob is larger than a warp's window, or the queue has
	 * no room for all pixels that may be seeds */
	uint32_t heavy;
	uint32_t count; /**< peaks in the list */
	uint32_t shell[GK_PEAK_SHELLS_MAX];
	uint32_t seeds;	    /**< search by labels */
	uint32_t positions; /**< search by labels: pixels of the blobs of all seeds */
	uint32_t by_labels; /**< search by labels: peaks that were found */
	uint32_t queued;    /**< of the batch's first frame: pixels that were put into the queue */
	uint32_t reserved[17];
};
GK_STATIC_ASSERT(sizeof(struct gk_cuda_peak_counters) == 128, "one line of the L2 cache");

/** Sizes; the kernel does not use more than `peaks`. */
struct gk_cuda_peak_shape {
	uint32_t rows, cols;
	uint32_t pixels;
	uint32_t words;	    /**< of 32 pixels */
	uint32_t hit_words; /**< distance of two frames' words */
	uint32_t nb_panels;
	uint32_t nb_bins;
	uint32_t nb_tiles;
	/**
	 * Keys in use: a bit for each key, the number of each 1,024 keys, the number of each 32,768
	 * keys. All in one array, twice: peaks that were found, and those that are not left out.
	 * @{
	 */
	uint32_t at_hundreds;
	uint32_t at_thousands;
	uint32_t nb_thousands;
	uint32_t key_words; /**< u32 of one of the two; a multiple of 4 */
	/** @} */
	uint32_t seeds_max; /**< no frame has more blobs with seeds */
};

/** Constant memory of the kernel. Arrays marked (s) never change; the others have one part a slot.
 * Slots: gang x GK_CUDA_PEAK_FRAMES + frame of the batch. */
struct gk_cuda_peaks {
	struct gk_cuda_peak_shape s;
	/** (s) @{ */
	uint16_t *bin;	    /**< gk_peak_map.bin */
	uint16_t *panel_of; /**< [pixels], undefined outside panels */
	struct gk_peak_panel *panel;
	uint32_t *first_key; /**< [nb_panels] */
	uint32_t *used;	     /**< [nb_bins], pixels that are used */
	uint32_t *start;     /**< [nb_bins], place of the bin's list in `rest` */
	struct gk_cuda_peak_tile *tile;
	uint32_t *inner; /**< [words], a bit for each pixel that can be a seed */
	/** [words], pixels at the rim of panels: another panel's pixel may precede them */
	uint32_t *rim;
	/** @} */
	int16_t *photons; /**< [slots][pixels] */
	uint32_t *values; /**< [slots][nb_bins][GK_CUDA_PEAK_VALUES], 0 between batches */
	uint32_t *listed; /**< [slots][nb_bins], likewise */
	int16_t *rest;	  /**< [slots][pixels], photons that are not in `values`, by bin */
	float *offset;	  /**< [slots][GK_PEAK_BIN_MASK + 1] */
	float *upper;	  /**< likewise */
	uint32_t *hits;	  /**< [slots][hit_words], gk_peak_hits.word - 4 */
	uint32_t *keys;	  /**< [slots][2][key_words] */
	struct gk_cuda_peak_counters *counters;
	struct gk_peak *list; /**< [slots][GK_PEAKS_MAX], the peaks of the frame */
	/** one part a gang: search by labels @{ */
	uint32_t *parent;		/**< [pixels] */
	uint32_t *size;			/**< [pixels] */
	uint32_t *smallest;		/**< [pixels] */
	uint32_t *position;		/**< [pixels], of blobs */
	struct gk_cuda_peak_seed *seed; /**< [seeds_max]; before: queue of pixels and frames */
	/** @} */
	/** one part a gang, [seeds_max]: of each entry of the queue; then of each seed */
	struct gk_cuda_peak_record *record;
};

/**
 * Compute sizes. @param map  accepted by gk_peak_map_check()
 * @return 0; -E2BIG: more than 2^31 pixels
 */
int gk_cuda_peaks_shape(const struct gk_peak_map *map, struct gk_cuda_peak_shape *s);

/** Largest shape of any map of these pixels. */
void gk_cuda_peaks_most(uint32_t rows, uint32_t cols, struct gk_cuda_peak_shape *s);

/**
 * Place all arrays in one memory.
 * @param a         `s` is set; receives the addresses
 * @param base      of the memory; NULL: only the sizes are of interest
 * @param constant  receives the size of the arrays that never change, which come first
 * @return size of the memory; it must be zeroed, except the arrays that never change
 */
uint64_t gk_cuda_peaks_place(
	struct gk_cuda_peaks *a, uint32_t gangs, uint8_t *base, uint64_t *constant);

/**
 * Fill the arrays that never change.
 * @param a  placed in host memory
 */
void gk_cuda_peaks_fill(const struct gk_peak_map *map, const struct gk_cuda_peaks *a);

/**
 * Make the arrays that never change, in memory that the caller frees.
 * @param a     `s` is set; its addresses are changed
 * @param size  receives the size
 * @return NULL: no memory
 */
void *gk_cuda_peaks_make(
	const struct gk_peak_map *map, struct gk_cuda_peaks *a, uint32_t gangs, uint64_t *size);

#ifdef __cplusplus
}
#endif

#endif /* GK_CUDA_PEAKS_H */
