/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Memory that a builder and its gangs share: descriptor rings, frame slots, results, outputs.
 *
 * Both implementations of gk_ops (host threads, persistent CUDA kernel) use the same layout. Every
 * structure here therefore has a fixed size with every compiler, which is asserted below. All
 * addresses are *device* addresses. rte_gpu_mem_register() gives host memory the same address on
 * both sides, and the memory of `gpu_host` is host memory.
 *
 * Roles and ordering:
 * - The *builder* is one thread. It alone writes frame headers, descriptors and the heads in the
 *   doorbell. stop() writes `quit` there, and a thread of the cuda implementation writes
 *   `watchdog`.
 * - A *gang* (group of host threads or thread blocks) alone writes its struct gk_done, and the
 *   results and outputs of the frames that it was given.
 * - The builder hands a batch over with a release store to the gang's doorbell; the gang takes it
 *   with an acquire load. The batch is returned the same way through gk_done. There is no other
 *   ordering.
 * - Free slots provide flow control: at most GK_RING_SIZE batches per gang are in flight.
 *
 * A GPU polls host memory from one warp only, and polls only one 64-byte line, struct gk_doorbell.
 * Measured: polling from every block reduces the bus bandwidth from 55 to 7 GB/s.
 */
#ifndef GK_ABI_H
#define GK_ABI_H

#include <stdint.h>

#include "gk_bitshuffle_size.h"

#ifdef __cplusplus
#define GK_STATIC_ASSERT(cond, text) static_assert(cond, text)
#define GK_ALIGNED(n)		     alignas(n)
#else
#define GK_STATIC_ASSERT(cond, text) _Static_assert(cond, text)
#define GK_ALIGNED(n)		     _Alignas(n)
#endif

#define GK_GANGS_MAX  12    /**< gangs that fit into one doorbell cache line */
#define GK_RING_SIZE  64    /**< descriptors of a gang's ring; a power of two */
#define GK_BATCH_MAX  16    /**< maximum number of frames in a batch */
#define GK_PARAMS_MAX 16    /**< parameter sets that may be in use at the same time */
#define GK_COEF_MAX   4	    /**< coefficient versions; two alternate, see struct gk_dark */
#define GK_DARK_MAX   2	    /**< dark accumulator sets, see struct gk_dark */
#define GK_COLS_MAX   65504 /**< maximum pixels of a row: `col` and row counts are u16 */
#define GK_NO_OUT     UINT32_MAX

#define GK_PEAKS_MAX	   2048	 /**< peaks of a frame; the first ones are kept, as in CrystFEL */
#define GK_PEAK_PANELS_MAX 512	 /**< panels: 64 modules of 8 chips */
#define GK_PEAK_PANEL_MAX  65535 /**< columns or rows of a panel */
#define GK_PEAK_BINS_MAX   16384 /**< radial bins */
#define GK_PEAK_RADIUS_MAX 15	 /**< gk_peak_params.bg_radius */
#define GK_PEAK_SHELLS_MAX 8	 /**< resolution shells whose peaks are counted */
/**
 * Flag of an entry of the map: the pixel is never used. The bin remains in the other bits, because
 * the centre of a peak may be such a pixel.
 */
#define GK_PEAK_MASKED	 0x8000
#define GK_PEAK_BIN_MASK 0x7FFF

#define GK_PROFILE_BINS_MAX 4096 /**< bins of a radial profile, in shared memory of a GPU */

/**
 * Alignment of packet addresses. A GPU copies 16 bytes at a time and traps on unaligned addresses.
 */
#define GK_PACKET_ALIGN 16

/** Content of a frame's output slot. The values are those of the `kind` column of `images`. */
enum gk_kind {
	GK_KIND_CSR = 0, /**< pixels >= csr_threshold and saturated ones, by row */
	/** all pixels; with GK_VALUE_I16 a chunk if gk_params.chunks selects it */
	GK_KIND_IMAGE = 1,
	/** u16 as sent, 0xFFFF where a packet is missing; a chunk if gk_params.chunks selects it */
	GK_KIND_RAW = 2,
	GK_KIND_NONE = 255 /**< empty: the frame was vetoed */
};

/** Type of the `value` column; fixed for a run. */
enum gk_value {
	/** photons; NaN (GK_NAN_BITS): masked, invalid or missing; +Inf: saturated */
	GK_VALUE_F32 = 0,
	GK_VALUE_I16 =
		/** rounded half away from zero; INT16_MIN and INT16_MAX are the special values */
		1
};

enum gk_verdict {
	GK_VERDICT_REJECT = 0,
	/**
	 * strong_min <= strong pixel count <= strong_max, and, if peaks are searched, peaks_min <=
	 * peaks <= peaks_max
	 */
	GK_VERDICT_HIT = 1,
};

/** Frames whose peaks are searched (gk_peaks.h). */
enum gk_search {
	GK_SEARCH_NONE = 0, /**< no frames: peaks do not affect the verdict */
	/** frames with strong_min <= strong pixel count <= strong_max; the others are rejected */
	GK_SEARCH_STRONG = 1,
	GK_SEARCH_ALL = 2 /**< all frames */
};

/** gk_result.peaks_found of a frame that was not searched. */
#define GK_NOT_SEARCHED UINT32_MAX

/** Operation of a descriptor. */
enum gk_op {
	GK_OP_FRAMES = 0, /**< process a batch of frames */
	/** dark update: computes coef_to from coef and set `dark`, and clears the set */
	GK_OP_UPDATE = 1,
	GK_OP_CLEAR = 2 /**< clear set `dark` (a run begins, or a pedestal interval is discarded) */
};

/**
 * Flags of a frame, set by the builder. A dark frame is processed like any other: it has statistics
 * and a verdict, and may have an output.
 */
#define GK_FRAME_KEEP	  (1u << 0) /**< write the output for any verdict (prescale, dry run) */
#define GK_FRAME_KIND_RAW (1u << 1) /**< write a rejected frame that is kept as GK_KIND_RAW */
#define GK_FRAME_DARK	  (1u << 2) /**< add the G0 samples to the accumulators gk_work.dark */
/**
 * The pixels may be overwritten by their sender at any time, and each packet has a *trailer* after
 * its pixels, whose first 8 bytes are the number of the frame that they belong to (little-endian,
 * gk_frame.trailer). A gang reads this number before and after it reads the pixels. If either is
 * another number, the packet is treated exactly as a missing one, in all outputs, and its bit is
 * set in the slot's map of missing packets (gk_missing_map()). As with a seqlock, no pixel of
 * another frame is ever used.
 */
#define GK_FRAME_TRAILER (1u << 3)
/**
 * With GK_FRAME_TRAILER: the same number is also in the 8 bytes directly before the pixels (the
 * *leader*), and the sender writes it before the pixels. After the pixels a gang then reads the
 * leader instead of the trailer. Without a leader a sender must write another number into the
 * trailer before it overwrites pixels. Otherwise new pixels whose trailer is in flight or lost
 * precede the trailer of the previous frame, and are used as pixels of that frame.
 */
#define GK_FRAME_LEADER (1u << 4)

/**
 * Header of a frame slot. The pointer table follows: `tiles` device addresses, one per packet, in
 * canonical packet order; 0: the packet is missing. Addresses should be multiples of 64 for speed.
 * CUDA gangs refuse addresses that are not multiples of GK_PACKET_ALIGN. Slots have a distance of
 * `gk_frame_stride()`. The RX lcore that owns the packet's stream writes the entry of the pointer
 * table; the builder writes the header.
 */
struct gk_frame {
	uint64_t frame;	  /**< frame number, copied to the result */
	uint32_t flags;	  /**< GK_FRAME_* */
	uint32_t out;	  /**< output slot, or GK_NO_OUT: no output can be written */
	uint32_t missing; /**< number of missing packets */
	uint32_t profile; /**< area of the radial profile; not read if none are made */
	uint64_t trailer; /**< GK_FRAME_TRAILER: number that the trailers of the frame have */
	uint32_t reserved2[8];
	uint64_t packet[];
};
GK_STATIC_ASSERT(sizeof(struct gk_frame) == 64, "pointer tables start on a cache line");

/** Result of one frame. For a vetoed frame it is the only data that is returned. */
struct gk_result {
	uint64_t frame; /**< copy of gk_frame.frame */
	/** sum of photons of valid unsaturated pixels, in 1/256 (gk_sum_q8()) */
	int64_t sum;
	uint32_t verdict;      /**< enum gk_verdict */
	uint32_t kind;	       /**< enum gk_kind: content of the output slot */
	uint32_t strong_count; /**< pixels >= strong_threshold, including saturated ones */
	uint32_t saturated;    /**< pixels with +Inf */
	uint32_t invalid;      /**< pixels with NaN: masked, invalid or missing */
	uint32_t nnz;	       /**< pixels >= csr_threshold, including saturated ones */
	uint32_t params;       /**< gk_params.version used */
	uint32_t coef;	       /**< gk_coef.version used */
	/** frames with trailers: packets with another trailer before the pixels were read */
	uint32_t missing;
	/** frames with trailers: packets whose trailer changed while the pixels were read */
	uint32_t overrun;
	/** peaks, at most GK_PEAKS_MAX; 0 if the frame was not searched */
	uint32_t peaks;
	/**
	 * peaks that were found, with the saturated ones that are left out; GK_PEAKS_MAX + 1: there
	 * are more than GK_PEAKS_MAX; GK_NOT_SEARCHED: the frame was not searched
	 */
	uint32_t peaks_found;
};
GK_STATIC_ASSERT(sizeof(struct gk_result) == 64, "one result is one cache line");

/** A panel: a rectangle of the raster. */
struct gk_peak_panel {
	uint32_t fs, ss;	/**< first column and row */
	uint32_t width, height; /**< in pixels */
	float max_adu; /**< with `saturated` 0: peaks whose maximum above background is greater are
			* left out */
};
GK_STATIC_ASSERT(sizeof(struct gk_peak_panel) == 20, "panels are an array without padding");

/** Options, with the names and defaults of indexamajig in parentheses. */
struct gk_peak_params {
	float threshold;     /**< --threshold, in photons (800) */
	float min_snr;	     /**< --min-snr (5) */
	uint32_t min_pixels; /**< --min-pix-count (2) */
	uint32_t max_pixels; /**< --max-pix-count (200) */
	uint32_t bg_radius;  /**< --local-bg-radius, in pixels (3), at most GK_PEAK_RADIUS_MAX */
	uint32_t saturated;  /**< 0: --no-use-saturated; 1: saturated peaks are kept (1) */
	uint32_t shells;     /**< number of shells, at most GK_PEAK_SHELLS_MAX */
	/** first bins of the shells, ascending; the last entry is the end of the last shell */
	uint32_t shell[GK_PEAK_SHELLS_MAX + 1];
};
GK_STATIC_ASSERT(sizeof(struct gk_peak_params) == 64, "options are one cache line");

/**
 * A peak. Positions are indices in the panel: 0 is the centre of its first pixel, as in CXI lists.
 * indexamajig prints them + 0.5, which it adds in double precision.
 */
struct gk_peak {
	float fs, ss;	  /**< centre of mass */
	float intensity;  /**< sum above background, in photons, summed in fill order */
	float snr;	  /**< intensity / standard deviation of the background */
	float background; /**< mean of the ring around the peak */
	uint32_t pixels;
	uint32_t panel;
	uint32_t bin; /**< of the peak's first pixel, which gives its resolution */
};
GK_STATIC_ASSERT(sizeof(struct gk_peak) == 32, "two peaks are one cache line");

/**
 * Further results of one frame, in addition to struct gk_result: the parts that its parameters
 * select.
 */
struct gk_details {
	/** peaks by resolution shell, 0 after the last one; written if the frame was searched */
	uint32_t shell_peaks[GK_PEAK_SHELLS_MAX];
	/**
	 * size of the chunk in the output slot, 0: the slot does not hold one; written if
	 * gk_config.chunks is not 0
	 */
	uint64_t chunk_bytes;
	/** CRC-32C (RFC 3720) of these bytes; 0: not computed; written with them */
	uint32_t chunk_crc32c;
	uint32_t reserved[5];
};
GK_STATIC_ASSERT(sizeof(struct gk_details) == 64, "details of a frame are one cache line");

/**
 * The pixels of the detector as used by the search for peaks: struct gk_peak_map without its shape,
 * which is that of the frames. It is in host memory, which is registered for CUDA gangs. It is set
 * before create() and does not change until destroy().
 */
struct gk_peak_pixels {
	uint64_t bin;	/**< device address of gk_peak_map.bin; 0: no peaks can be searched */
	uint64_t panel; /**< device address of gk_peak_map.panel */
	uint32_t nb_panels;
	uint32_t nb_bins; /**< 1 + the largest bin of a used pixel */
	uint32_t reserved[10];
};
GK_STATIC_ASSERT(sizeof(struct gk_peak_pixels) == 64, "the map is one cache line");

/**
 * Bins of the detector's pixels for radial profiles: struct gk_radial_map (gk_radial.h) without its
 * shape, which is that of the frames, and without weights. It is in host memory, which is
 * registered for CUDA gangs. It is set before create() and does not change until destroy().
 *
 * Gangs write a profile for each frame, for any verdict, to area gk_frame.profile of
 * gk_config.profiles. It has the sum of the photons of the valid pixels of each bin, and the number
 * of these pixels. Photons are those of GK_VALUE_I16 for any type of `value`, so that sums are
 * integers, and do not depend on the order of pixels, threads and thread blocks.
 * gk_radial_is_valid() defines which pixels are valid. Bytes of an area beyond sums and counts are
 * not written.
 */
struct gk_radial_pixels {
	uint64_t bin;	  /**< device address of gk_radial_map.bin; 0: no profiles are made */
	uint32_t nb_bins; /**< 1 ... GK_PROFILE_BINS_MAX */
	uint32_t reserved[13];
};
GK_STATIC_ASSERT(sizeof(struct gk_radial_pixels) == 64, "the map is one cache line");

/** Offset of the counts in an area: i64 sum[nb_bins], in photons, then u32 count[nb_bins]. */
static inline uint64_t
gk_profile_count_at(uint32_t nb_bins)
{
	return ((uint64_t)nb_bins * 8 + 63) & ~(uint64_t)63;
}

/** Distance of areas of profiles in bytes. */
static inline uint64_t
gk_profile_stride(uint32_t nb_bins)
{
	return (gk_profile_count_at(nb_bins) + (uint64_t)nb_bins * 4 + 63) & ~(uint64_t)63;
}

/**
 * Descriptor: a batch of frames that one gang processes together with the same parameters, or a
 * task between pedestal intervals (struct gk_dark defines when a task may be handed over).
 */
struct gk_work {
	uint32_t nb_frames; /**< 1 ... GK_BATCH_MAX; GK_OP_UPDATE and GK_OP_CLEAR: 0 */
	uint32_t params;    /**< index into gk_channel.params; ignored by GK_OP_CLEAR */
	/** index into gk_channel.coef; all frames of a batch are in the same pedestal interval */
	uint32_t coef;
	uint32_t op; /**< enum gk_op */
	/** index into gk_channel.dark; ignored for a batch without GK_FRAME_DARK */
	uint32_t dark;
	uint32_t coef_to; /**< GK_OP_UPDATE: index of the version to compute */
	uint32_t reserved[10];
	uint32_t slot[GK_BATCH_MAX]; /**< frame slots, in frame order */
};
GK_STATIC_ASSERT(sizeof(struct gk_work) == 128, "one descriptor is two cache lines");

/**
 * The only cache line that a dispatcher polls. It has three writers, and each word has exactly one.
 */
struct gk_doorbell {
	/** written by the builder: batches handed to each gang since start (wraps) */
	uint32_t head[GK_GANGS_MAX];
	/**
	 * cuda, written by start() and stop(): non-zero: finish the batches handed over, then end
	 */
	uint32_t quit;
	/** cuda: a thread of start() increments it; if it stops, the kernel ends */
	uint32_t watchdog;
	uint32_t reserved[2];
};
GK_STATIC_ASSERT(sizeof(struct gk_doorbell) == 64, "the doorbell is one cache line");

/**
 * Written by one gang. start() clears it except for the counters, which continue. `raw` is never
 * less than `done`. A gang fails on a descriptor that gk_work_check() refuses. That descriptor is
 * the one at `done`, and it remains unchanged until the gangs are stopped.
 */
struct gk_done {
	uint32_t raw;	/**< batches whose packets are not read again: their mbufs may be freed */
	uint32_t done;	/**< batches whose results and outputs are complete */
	uint32_t error; /**< 0, or the reason why the gang failed (negative errno as unsigned) */
	uint32_t reserved[13];
};
GK_STATIC_ASSERT(sizeof(struct gk_done) == 64, "one line, one writer");

/** Thresholds of a run. They change at a frame number, by using another index. */
struct gk_params {
	uint32_t version;	/**< version recorded in `frames` */
	uint32_t kind;		/**< enum gk_kind of hits */
	float strong_threshold; /**< in photons */
	float csr_threshold;	/**< in photons */
	uint32_t strong_min;	/**< minimum number of pixels >= strong_threshold of a hit */
	uint32_t strong_max;	/**< maximum number of pixels >= strong_threshold of a hit */
	/** maximum pixels of a CSR frame; with more it becomes a full image */
	uint32_t nnz_max;
	/** GK_OP_UPDATE: n_min; pixels with fewer samples are not updated */
	uint32_t dark_min;
	float dark_alpha; /**< GK_OP_UPDATE: alpha, 0 < alpha <= 1 */
	/** enum gk_search; the options are the entry of gk_channel.peak with the same index */
	uint32_t search;
	uint32_t peaks_min; /**< minimum number of peaks of a hit */
	uint32_t peaks_max; /**< maximum number of peaks of a hit */
	/**
	 * shells whose peaks peaks_min and peaks_max refer to, bit i for shell i; 0: all peaks,
	 * also those outside the shells
	 */
	uint32_t peaks_shells;
	/**
	 * kinds whose output is one compressed HDF5 chunk (gk_bitshuffle.h), bit 1 << kind; the
	 * others are plain. Only GK_KIND_RAW can be one, and GK_KIND_IMAGE of GK_VALUE_I16.
	 * gk_config.chunks must be set
	 */
	uint32_t chunks;
	uint32_t reserved[2];
};
GK_STATIC_ASSERT(sizeof(struct gk_params) == 64, "one parameter set is one cache line");

/**
 * One version of the conversion coefficients: planes of f32 in raster order, by gain stage. p is
 * the pedestal in ADU, r = f32(1 / (gain x energy)) in photons per ADU. gk_pixel.h defines the
 * encoding of invalid and masked pixels. Gangs may keep a copy of a version from the first batch
 * that uses it. Planes that change between start() and stop() other than by GK_OP_UPDATE need
 * another `version`.
 */
struct gk_coef {
	uint64_t p[3]; /**< device addresses */
	uint64_t r[3];
	uint32_t version;
	uint32_t reserved[3];
};
GK_STATIC_ASSERT(sizeof(struct gk_coef) == 64, "one coefficient version is one cache line");

/**
 * One set of dark accumulators: one cell per pixel in raster order, samples << 32 | sum of their
 * ADC values. A sample is a word of a frame with GK_FRAME_DARK if its packet is present, its gain
 * code is G0, and its pixel is usable in G0 (gk_coef.r[0] is not NaN). One integer addition
 * increases both halves of a cell, so the result does not depend on the order of frames, gangs and
 * threads.
 *
 * Rotation: dark frames of pedestal interval e take effect from interval e + 2 on. Interval e
 * accumulates into set e % 2 while set (e - 1) % 2 waits for its update. The version of interval e
 * + 2 is computed from the version of interval e + 1, and replaces the planes of the version of
 * interval e. Two sets and two versions of p[0] are therefore enough. p[1], p[2] and r[] are the
 * same planes in both versions. The other entries of gk_channel.coef are free for the calibration
 * of the next run.
 *
 * Gangs know neither pedestal intervals nor other gangs. The builder must therefore ensure:
 * - GK_OP_UPDATE (or GK_OP_CLEAR) of a set is handed over only when every batch that adds to the
 *   set and every batch that uses coef_to is done (gk_done.done, acquired);
 * - a batch that adds to the set, or uses coef_to, is handed over only when the update is done;
 * - at most GK_DARK_FRAMES_MAX frames are added to a set between updates.
 * Different gangs may add to one set at the same time.
 */
struct gk_dark {
	uint64_t cells; /**< device address: u64[pixels], zeroed before start; 0: no dark frames */
	uint32_t reserved[14];
};
GK_STATIC_ASSERT(sizeof(struct gk_dark) == 64, "one accumulator set is one cache line");

/** 2^18 samples of 14 bits fit into the 32 bits of a cell's sum. */
#define GK_DARK_FRAMES_MAX 262144

/**
 * Result of the last GK_OP_UPDATE of a set. Its gang writes it; read it when the update is done.
 */
struct gk_update {
	uint64_t samples; /**< samples of all pixels */
	int64_t drift;	  /**< sum of P' - P of all updated pixels, in 1/256 ADU (gk_drift_q8()) */
	uint32_t updated; /**< pixels with at least dark_min samples, whose pedestal was updated */
	uint32_t from;	  /**< gk_coef.version of the input */
	uint32_t to;	  /**< gk_coef.version of the result */
	uint32_t reserved[9];
};
GK_STATIC_ASSERT(sizeof(struct gk_update) == 64, "one update is one cache line");

/** All shared memory except frame slots, results and outputs. Zeroed before start. */
struct gk_channel {
	GK_ALIGNED(64) struct gk_doorbell bell;
	struct gk_done done[GK_GANGS_MAX];
	struct gk_params params[GK_PARAMS_MAX];
	struct gk_coef coef[GK_COEF_MAX];
	struct gk_dark dark[GK_DARK_MAX];
	struct gk_update update[GK_DARK_MAX];
	struct gk_peak_pixels pixels;
	struct gk_radial_pixels radial;
	struct gk_peak_params peak[GK_PARAMS_MAX]; /**< options of the entry of `params` */
	struct gk_work work[GK_GANGS_MAX][GK_RING_SIZE];
};
GK_STATIC_ASSERT(sizeof(struct gk_channel) ==
		64 + GK_GANGS_MAX * 64 + GK_PARAMS_MAX * 64 + GK_COEF_MAX * 64 + GK_DARK_MAX * 128 +
			64 + 64 + GK_PARAMS_MAX * 64 + GK_GANGS_MAX * GK_RING_SIZE * 128,
	"no padding between the parts of a channel");

/**
 * The raster and its division into packets. Packet t carries rows [t x tile_rows, (t + 1) x
 * tile_rows) of the canonical stack of modules, over the full width. JUNGFRAU: 128 packets per
 * module, each with 4 rows of 1,024 pixels (app/recv/frames/jungfrau.c).
 */
struct gk_geometry {
	uint32_t tiles;	    /**< packets per frame */
	uint32_t tile_rows; /**< rows per packet */
	uint32_t cols;	    /**< pixels per row; a multiple of 32, at most GK_COLS_MAX */
};

static inline uint32_t
gk_rows(const struct gk_geometry *g)
{
	return g->tiles * g->tile_rows;
}

static inline uint64_t
gk_pixels(const struct gk_geometry *g)
{
	return (uint64_t)gk_rows(g) * g->cols;
}

/** Size of one set of dark accumulators in bytes. */
static inline uint64_t
gk_dark_size(const struct gk_geometry *g)
{
	return gk_pixels(g) * sizeof(uint64_t);
}

/** Bytes of a slot's pointer table, rounded up to cache lines. */
static inline uint64_t
gk_packets_size(const struct gk_geometry *g)
{
	return ((uint64_t)g->tiles * 8 + 63) & ~(uint64_t)63;
}

/** Bytes of a slot's map of missing packets, rounded up to cache lines. */
static inline uint64_t
gk_missing_size(const struct gk_geometry *g)
{
	return (((uint64_t)g->tiles + 63) / 64 * 8 + 63) & ~(uint64_t)63;
}

/** Distance of frame slots in bytes: header, pointer table, map of missing packets. */
static inline uint64_t
gk_frame_stride(const struct gk_geometry *g)
{
	return sizeof(struct gk_frame) + gk_packets_size(g) + gk_missing_size(g);
}

/**
 * Map of missing packets of a frame with GK_FRAME_TRAILER: bit t % 64 of word t / 64 is packet t.
 * The gang writes all words before the batch is done. Bits of packets that the builder gave as
 * missing (address 0) are set, too.
 */
static inline uint64_t *
gk_missing_map(const struct gk_geometry *g, struct gk_frame *frame)
{
	return (uint64_t *)((uint8_t *)frame + sizeof(*frame) + gk_packets_size(g));
}

/**
 * Offsets in an output slot. `row_ptr` has rows + 1 entries, the first one is 0. `col` and `value`
 * have nnz entries. A plain full image starts at `value`, plain raw data and chunks of
 * gk_details.chunk_bytes at `raw`; the bytes after a chunk up to `peaks` are undefined. Peaks of
 * a frame that was searched and is kept (its kind is not GK_KIND_NONE) are at `peaks`: the first
 * gk_result.peaks ones, at most peaks_cap. In other frames these bytes are undefined. Offsets are
 * multiples of 64, the stride is a multiple of 4096.
 */
struct gk_layout {
	uint64_t row_ptr; /**< u32[rows + 1] */
	uint64_t col;	  /**< u16[nnz_cap] */
	uint64_t value;	  /**< f32 or i16: [nnz_cap], or [rows x cols] for a full image */
	uint64_t raw;	  /**< u16[rows x cols], or any chunk: gk_bitshuffle_bound() bytes */
	uint64_t peaks;	  /**< struct gk_peak[peaks_cap] */
	uint64_t stride;  /**< distance of output slots in bytes */
	uint32_t value_size;
	uint32_t nnz_cap;   /**< maximum pixels of CSR output; gk_params.nnz_max is at most this */
	uint32_t peaks_cap; /**< maximum peaks of a list; 0: no lists are written */
	uint32_t reserved;
};

/**
 * Compute the layout of output slots for CSR of up to nnz_cap pixels, a full image or raw data.
 * `col` is before `value`, so that a full image may use the rest of the slot. Raw data use the same
 * space as `value`, which is never too small for a chunk of incompressible data.
 */
static inline void
gk_layout_init(
	struct gk_layout *l, const struct gk_geometry *g, enum gk_value value, uint32_t nnz_cap)
{
	const uint64_t pixels = gk_pixels(g), chunk = gk_bitshuffle_bound(pixels);
	uint64_t values;

	if (nnz_cap > pixels)
		nnz_cap = (uint32_t)pixels;
	l->nnz_cap = nnz_cap;
	l->value_size = value == GK_VALUE_I16 ? 2 : 4;
	l->row_ptr = 0;
	l->col = ((uint64_t)(gk_rows(g) + 1) * 4 + 63) & ~(uint64_t)63;
	l->value = (l->col + (uint64_t)nnz_cap * 2 + 63) & ~(uint64_t)63;
	l->raw = l->value;
	values = pixels * l->value_size;
	l->peaks = (l->value + (values > chunk ? values : chunk) + 63) & ~(uint64_t)63;
	l->peaks_cap = 0;
	l->reserved = 0;
	l->stride = (l->peaks + 4095) & ~(uint64_t)4095;
}

/** Add room for lists of up to peaks_cap peaks, at most GK_PEAKS_MAX, to a layout without. */
static inline void
gk_layout_add_peaks(struct gk_layout *l, uint32_t peaks_cap)
{
	l->peaks_cap = peaks_cap < GK_PEAKS_MAX ? peaks_cap : GK_PEAKS_MAX;
	l->stride = (l->peaks + l->peaks_cap * sizeof(struct gk_peak) + 4095) & ~(uint64_t)4095;
}

#endif /* GK_ABI_H */
