/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The memory that a builder and its gangs share: descriptor rings, frame slots, results, outputs.
 *
 * One layout for both implementations of gk_ops (host threads, persistent CUDA kernel), so every
 * structure here has a fixed size on every compiler, asserted below. All addresses are *device*
 * addresses: rte_gpu_mem_register() gives host memory the same address on both sides, and the
 * memory of `gpu_host` is host memory.
 *
 * Roles and ordering:
 *  - the *builder* is one thread; it alone writes frame headers, descriptors and the doorbell line;
 *  - a *gang* (group of host threads or thread blocks) alone writes its gk_done line, the results
 *    and the outputs of the frames that it was given;
 *  - a batch is handed over by a release store of the gang's doorbell and taken by an acquire
 *    load; it comes back the same way through gk_done. Nothing else orders anything.
 *  - flow control is free slots: the builder never has more than GK_RING_SIZE batches out per gang.
 *
 * A GPU polls host memory from one warp only, and all it needs to poll is one 64-byte line,
 * struct gk_doorbell (measured: polling from every block takes the bus from 55 to 7 GB/s).
 */
#ifndef GK_ABI_H
#define GK_ABI_H

#include <stdint.h>

#ifdef __cplusplus
#define GK_STATIC_ASSERT(cond, text) static_assert(cond, text)
#define GK_ALIGNED(n)		     alignas(n)
#else
#define GK_STATIC_ASSERT(cond, text) _Static_assert(cond, text)
#define GK_ALIGNED(n)		     _Alignas(n)
#endif

#define GK_ABI_VERSION 1

#define GK_GANGS_MAX  12    /**< gangs that fit into one doorbell line */
#define GK_RING_SIZE  64    /**< descriptors of one gang's ring; a power of two */
#define GK_BATCH_MAX  16    /**< frames of one batch */
#define GK_PARAMS_MAX 16    /**< parameter sets that may be in force at the same time */
#define GK_COEF_MAX   4	    /**< coefficient versions: epochs e, e+1, e+2 and one being written */
#define GK_COLS_MAX   65504 /**< pixels of a row: `col` and row counts are u16 */
#define GK_NO_OUT     UINT32_MAX

/** What a frame's output slot holds; the values are those of the `kind` column of `images`. */
enum gk_kind {
	GK_KIND_CSR = 0,   /**< pixels >= csr_threshold and saturated ones, by row */
	GK_KIND_IMAGE = 1, /**< every pixel */
	GK_KIND_RAW = 2,   /**< u16 as sent, 0xFFFF where a packet is missing */
	GK_KIND_NONE = 255 /**< nothing: the frame was vetoed */
};

/** Type of the `value` column, fixed for a run. */
enum gk_value {
	GK_VALUE_F32 = 0, /**< photons; NaN (GK_NAN_BITS) = masked, invalid or missing; +Inf =
			     saturated */
	GK_VALUE_I16 =
		1 /**< rounded half away from zero; INT16_MIN and INT16_MAX as special values */
};

enum gk_verdict {
	GK_VERDICT_REJECT = 0,
	GK_VERDICT_HIT = 1, /**< bragg_min <= Bragg count <= bragg_max */
};

/** What a gang shall do with one frame; set by the builder. */
#define GK_FRAME_KEEP	  (1u << 0) /**< make the output whatever the verdict (audit, dry run) */
#define GK_FRAME_KIND_RAW (1u << 1) /**< output is GK_KIND_RAW, not the kind of the parameters */
#define GK_FRAME_DARK	  (1u << 2) /**< add the G0 samples to the epoch's dark accumulators */

/**
 * Header of a frame slot, followed by the pointer table: `tiles` device addresses, one a packet,
 * in canonical packet order, each 64-byte aligned; 0 = the packet is missing. Slots lie
 * `gk_frame_stride()` apart.
 * Entries of the pointer table are written by the RX lcore that owns the packet's stream, the
 * header by the builder.
 */
struct gk_frame {
	uint64_t frame;	  /**< frame number, echoed in the result */
	uint32_t flags;	  /**< GK_FRAME_* */
	uint32_t out;	  /**< output slot, or GK_NO_OUT: then no output can be made */
	uint32_t missing; /**< packets missing */
	uint32_t reserved[11];
	uint64_t packet[];
};
GK_STATIC_ASSERT(sizeof(struct gk_frame) == 64, "pointer tables start on a cache line");

/** What a gang found in one frame: the only thing that comes back for a vetoed one. */
struct gk_result {
	uint64_t frame;	      /**< echo of gk_frame.frame */
	int64_t sum;	      /**< photons in 1/256, valid unsaturated pixels (gk_sum_q8()) */
	uint32_t verdict;     /**< enum gk_verdict */
	uint32_t kind;	      /**< enum gk_kind: what the output slot holds */
	uint32_t bragg_count; /**< pixels >= bragg_threshold, saturated ones included */
	uint32_t saturated;   /**< pixels that are +Inf */
	uint32_t invalid;     /**< pixels that are NaN: masked, invalid or missing */
	uint32_t nnz;	      /**< pixels >= csr_threshold, saturated ones included */
	uint32_t params;      /**< gk_params.version in force */
	uint32_t coef;	      /**< gk_coef.version in force */
	uint32_t reserved[4];
};
GK_STATIC_ASSERT(sizeof(struct gk_result) == 64, "one result is one cache line");

/** One batch: frames that one gang processes together, all with the same parameters. */
struct gk_work {
	uint32_t nb_frames; /**< 1 ... GK_BATCH_MAX */
	uint32_t params;    /**< index into gk_channel.params */
	uint32_t coef;	    /**< index into gk_channel.coef; a batch never spans epochs */
	uint32_t reserved[13];
	uint32_t slot[GK_BATCH_MAX]; /**< frame slots, in frame order */
};
GK_STATIC_ASSERT(sizeof(struct gk_work) == 128, "one descriptor is two cache lines");

/** The one line that a dispatcher polls. Written by the builder (quit: by whoever stops). */
struct gk_doorbell {
	uint32_t head[GK_GANGS_MAX]; /**< batches handed to each gang since start (wraps) */
	uint32_t quit;		     /**< non-zero: finish what was handed over, then end */
	uint32_t watchdog;	     /**< the host increments it; a silent host ends a kernel */
	uint32_t reserved[2];
};
GK_STATIC_ASSERT(sizeof(struct gk_doorbell) == 64, "the doorbell is one cache line");

/**
 * Written by one gang; cleared by start(), but for the counters, which go on where they stand.
 * `raw` never falls behind `done`. A gang gives up on a descriptor that gk_work_check() refuses:
 * it is the one at `done`, and stays as it is until the gangs are stopped.
 */
struct gk_done {
	uint32_t raw;	/**< batches whose packets will not be read again: mbufs may be freed */
	uint32_t done;	/**< batches whose results and outputs are complete */
	uint32_t error; /**< 0, or why the gang gave up (negative errno as unsigned) */
	uint32_t reserved[13];
};
GK_STATIC_ASSERT(sizeof(struct gk_done) == 64, "one line, one writer");

/** Thresholds of a run; changed by taking another index at a frame-number boundary. */
struct gk_params {
	uint32_t version;      /**< what `frames` records */
	uint32_t kind;	       /**< enum gk_kind of hits */
	float bragg_threshold; /**< photons */
	float csr_threshold;   /**< photons */
	uint32_t bragg_min;    /**< hit if at least so many pixels are >= bragg_threshold */
	uint32_t bragg_max;    /**< ... and at most so many */
	uint32_t nnz_max;      /**< a CSR frame with more pixels becomes a full image */
	uint32_t reserved[9];
};
GK_STATIC_ASSERT(sizeof(struct gk_params) == 64, "one parameter set is one cache line");

/**
 * One version of the conversion coefficients: planes of f32 in raster order, by gain stage.
 * p = pedestal in ADU, r = f32(1 / (gain x energy)) in photons per ADU.
 * gk_pixel.h says how invalid and masked pixels are encoded in them.
 */
struct gk_coef {
	uint64_t p[3]; /**< device addresses */
	uint64_t r[3];
	uint32_t version;
	uint32_t reserved[3];
};
GK_STATIC_ASSERT(sizeof(struct gk_coef) == 64, "one coefficient version is one cache line");

/** Everything that is shared but frame slots, results and outputs. Zeroed before start. */
struct gk_channel {
	GK_ALIGNED(64) struct gk_doorbell bell;
	struct gk_done done[GK_GANGS_MAX];
	struct gk_params params[GK_PARAMS_MAX];
	struct gk_coef coef[GK_COEF_MAX];
	struct gk_work work[GK_GANGS_MAX][GK_RING_SIZE];
};
GK_STATIC_ASSERT(sizeof(struct gk_channel) ==
		64 + GK_GANGS_MAX * 64 + GK_PARAMS_MAX * 64 + GK_COEF_MAX * 64 +
			GK_GANGS_MAX * GK_RING_SIZE * 128,
	"no padding between the parts of a channel");

/**
 * The raster and how packets tile it: packet t carries rows [t x tile_rows, (t + 1) x tile_rows)
 * of the canonical stack of modules, full width. JUNGFRAU: 128 packets a module of 4 rows of
 * 1,024 pixels (detectors.md 3.2).
 */
struct gk_geometry {
	uint32_t tiles;	    /**< packets of a frame */
	uint32_t tile_rows; /**< rows of a packet */
	uint32_t cols;	    /**< pixels of a row; a multiple of 32, at most GK_COLS_MAX */
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

/** Distance of frame slots in bytes: header and pointer table, in whole cache lines. */
static inline uint64_t
gk_frame_stride(const struct gk_geometry *g)
{
	return sizeof(struct gk_frame) + (((uint64_t)g->tiles * 8 + 63) & ~(uint64_t)63);
}

/**
 * Where things are in an output slot. `row_ptr` has rows + 1 entries from 0; `col` and `value`
 * have nnz entries; a full image and raw data start at `value` and at `raw`. Offsets are
 * multiples of 64, the stride of 4096.
 */
struct gk_layout {
	uint64_t row_ptr; /**< u32[rows + 1] */
	uint64_t col;	  /**< u16[nnz_cap] */
	uint64_t value;	  /**< f32 or i16: [nnz_cap], or [rows x cols] for a full image */
	uint64_t raw;	  /**< u16[rows x cols] */
	uint64_t stride;  /**< bytes from one output slot to the next */
	uint32_t value_size;
	uint32_t nnz_cap; /**< the most pixels that fit as CSR; gk_params.nnz_max is not larger */
};

/**
 * Compute the layout of output slots: CSR of up to nnz_cap pixels, a full image or raw data.
 * `col` lies before `value`, so that a full image may use all that follows; raw data share the
 * place of `value`.
 */
static inline void
gk_layout_init(
	struct gk_layout *l, const struct gk_geometry *g, enum gk_value value, uint32_t nnz_cap)
{
	const uint64_t pixels = gk_pixels(g);

	if (nnz_cap > pixels)
		nnz_cap = (uint32_t)pixels;
	l->nnz_cap = nnz_cap;
	l->value_size = value == GK_VALUE_I16 ? 2 : 4;
	l->row_ptr = 0;
	l->col = ((uint64_t)(gk_rows(g) + 1) * 4 + 63) & ~(uint64_t)63;
	l->value = (l->col + (uint64_t)nnz_cap * 2 + 63) & ~(uint64_t)63;
	l->raw = l->value;
	l->stride = (l->value + pixels * l->value_size + 4095) & ~(uint64_t)4095;
}

#endif /* GK_ABI_H */
