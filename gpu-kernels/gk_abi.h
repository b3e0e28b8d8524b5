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
 *  - the *builder* is one thread; it alone writes frame headers, descriptors and the heads of the
 *    doorbell line, in which stop() writes `quit`, and a thread of the cuda row `watchdog`;
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

#define GK_GANGS_MAX  12    /**< gangs that fit into one doorbell line */
#define GK_RING_SIZE  64    /**< descriptors of one gang's ring; a power of two */
#define GK_BATCH_MAX  16    /**< frames of one batch */
#define GK_PARAMS_MAX 16    /**< parameter sets that may be in force at the same time */
#define GK_COEF_MAX   4	    /**< coefficient versions: two rotate, see struct gk_dark */
#define GK_DARK_MAX   2	    /**< dark accumulator sets: see struct gk_dark */
#define GK_COLS_MAX   65504 /**< pixels of a row: `col` and row counts are u16 */
#define GK_NO_OUT     UINT32_MAX

/** What addresses of packets are multiples of: a GPU copies 16 bytes at a time, or traps. */
#define GK_PACKET_ALIGN 16

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
	GK_VERDICT_HIT = 1, /**< strong_min <= strong pixel count <= strong_max */
};

/** What a descriptor asks for. */
enum gk_op {
	GK_OP_FRAMES = 0, /**< process a batch of frames */
	GK_OP_UPDATE = 1, /**< dark update: coef -> coef_to with set `dark`, which is cleared */
	GK_OP_CLEAR =
		2 /**< clear set `dark` (a run begins, or a pedestal interval is thrown away) */
};

/**
 * What a gang shall do with one frame; set by the builder. A dark frame is a frame like others: it
 * has statistics and a verdict, and may have an output.
 */
#define GK_FRAME_KEEP	  (1u << 0) /**< make the output whatever the verdict (audit, dry run) */
#define GK_FRAME_KIND_RAW (1u << 1) /**< a rejected frame that is kept is kept as GK_KIND_RAW */
#define GK_FRAME_DARK	  (1u << 2) /**< add the G0 samples to the accumulators gk_work.dark */

/**
 * Header of a frame slot, followed by the pointer table: `tiles` device addresses, one a packet,
 * in canonical packet order, each a multiple of 64 to be quick; 0 = the packet is missing. CUDA
 * gangs refuse what is no multiple of GK_PACKET_ALIGN. Slots lie `gk_frame_stride()` apart.
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
	uint64_t frame;	       /**< echo of gk_frame.frame */
	int64_t sum;	       /**< photons in 1/256, valid unsaturated pixels (gk_sum_q8()) */
	uint32_t verdict;      /**< enum gk_verdict */
	uint32_t kind;	       /**< enum gk_kind: what the output slot holds */
	uint32_t strong_count; /**< pixels >= strong_threshold, saturated ones included */
	uint32_t saturated;    /**< pixels that are +Inf */
	uint32_t invalid;      /**< pixels that are NaN: masked, invalid or missing */
	uint32_t nnz;	       /**< pixels >= csr_threshold, saturated ones included */
	uint32_t params;       /**< gk_params.version in force */
	uint32_t coef;	       /**< gk_coef.version in force */
	uint32_t reserved[4];
};
GK_STATIC_ASSERT(sizeof(struct gk_result) == 64, "one result is one cache line");

/**
 * One descriptor: a batch of frames that one gang processes together, all with the same parameters,
 * or a task between pedestal intervals (struct gk_dark says when each may be handed over).
 */
struct gk_work {
	uint32_t nb_frames; /**< 1 ... GK_BATCH_MAX; GK_OP_UPDATE and GK_OP_CLEAR: 0 */
	uint32_t params;    /**< index into gk_channel.params; not looked at by GK_OP_CLEAR */
	uint32_t coef;	  /**< index into gk_channel.coef; a batch never spans pedestal intervals */
	uint32_t op;	  /**< enum gk_op */
	uint32_t dark;	  /**< index into gk_channel.dark; a batch without GK_FRAME_DARK: any */
	uint32_t coef_to; /**< GK_OP_UPDATE: index of the version that it computes */
	uint32_t reserved[10];
	uint32_t slot[GK_BATCH_MAX]; /**< frame slots, in frame order */
};
GK_STATIC_ASSERT(sizeof(struct gk_work) == 128, "one descriptor is two cache lines");

/** The one line that a dispatcher polls. Words of it have one writer each, the line has three. */
struct gk_doorbell {
	uint32_t head[GK_GANGS_MAX]; /**< by the builder: batches handed to each gang since start
					(wraps) */
	uint32_t quit;	   /**< cuda, by start() and stop(): non-zero: finish what was handed
			      over, then end */
	uint32_t watchdog; /**< cuda: a thread of start() increments it; silence ends a kernel */
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
	uint32_t version;	/**< what `frames` records */
	uint32_t kind;		/**< enum gk_kind of hits */
	float strong_threshold; /**< photons */
	float csr_threshold;	/**< photons */
	uint32_t strong_min;	/**< hit if at least so many pixels are >= strong_threshold */
	uint32_t strong_max;	/**< ... and at most so many */
	uint32_t nnz_max;	/**< a CSR frame with more pixels becomes a full image */
	uint32_t dark_min;	/**< GK_OP_UPDATE: n_min, pixels with fewer samples stay */
	float dark_alpha;	/**< GK_OP_UPDATE: alpha, more than 0, at most 1 */
	uint32_t reserved[7];
};
GK_STATIC_ASSERT(sizeof(struct gk_params) == 64, "one parameter set is one cache line");

/**
 * One version of the conversion coefficients: planes of f32 in raster order, by gain stage.
 * p = pedestal in ADU, r = f32(1 / (gain x energy)) in photons per ADU.
 * gk_pixel.h says how invalid and masked pixels are encoded in them.
 * Gangs may keep a copy from the first batch on that names a version: planes that change between
 * start() and stop(), other than by GK_OP_UPDATE, are given another `version`.
 */
struct gk_coef {
	uint64_t p[3]; /**< device addresses */
	uint64_t r[3];
	uint32_t version;
	uint32_t reserved[3];
};
GK_STATIC_ASSERT(sizeof(struct gk_coef) == 64, "one coefficient version is one cache line");

/**
 * One set of dark accumulators: a cell per pixel in raster order, samples << 32 | sum of their ADC
 * values. A sample is a word of a frame with GK_FRAME_DARK whose packet is there, whose gain code
 * is G0, of a pixel that is usable in G0 (gk_coef.r[0] is not NaN). Both halves of a cell grow by
 * one integer addition, so the order of frames, gangs and threads does not matter.
 *
 * Rotation. Darks of pedestal interval e take effect from pedestal interval e + 2 on: pedestal
 * interval e accumulates into set e % 2 while set (e - 1) % 2 waits for its update, and the version
 * of pedestal interval e + 2 is computed from the one in force in pedestal interval e + 1, into the
 * planes of the one that was in force in pedestal interval e. So two sets and two versions of p[0]
 * suffice; p[1], p[2] and r[] are the same planes in both versions, and the other entries of
 * gk_channel.coef are free to prepare the next run's calibration.
 *
 * The builder's duty, as gangs know nothing of pedestal intervals and of each other:
 *  - GK_OP_UPDATE (or GK_OP_CLEAR) of a set is handed over when every batch that adds to the set,
 *    and every batch that uses coef_to, is done (gk_done.done, acquired);
 *  - a batch that adds to the set, or uses coef_to, is handed over when the update is done;
 *  - at most GK_DARK_FRAMES_MAX frames are added to a set between updates.
 * Different gangs may add to one set at the same time.
 */
struct gk_dark {
	uint64_t cells; /**< device address: u64[pixels], zeroed before start; 0 = no darks */
	uint32_t reserved[14];
};
GK_STATIC_ASSERT(sizeof(struct gk_dark) == 64, "one accumulator set is one cache line");

/** 2^18 samples of 14 bits fit into the 32 bits of a cell's sum. */
#define GK_DARK_FRAMES_MAX 262144

/** What the last GK_OP_UPDATE of a set did; written by its gang, to be read when it is done. */
struct gk_update {
	uint64_t samples; /**< of all pixels */
	int64_t drift;	  /**< sum of P' - P of all updated pixels, in 1/256 ADU (gk_drift_q8()) */
	uint32_t updated; /**< pixels with dark_min samples or more: their pedestal has moved */
	uint32_t from;	  /**< gk_coef.version it started from */
	uint32_t to;	  /**< gk_coef.version it computed */
	uint32_t reserved[9];
};
GK_STATIC_ASSERT(sizeof(struct gk_update) == 64, "one update is one cache line");

/** Everything that is shared but frame slots, results and outputs. Zeroed before start. */
struct gk_channel {
	GK_ALIGNED(64) struct gk_doorbell bell;
	struct gk_done done[GK_GANGS_MAX];
	struct gk_params params[GK_PARAMS_MAX];
	struct gk_coef coef[GK_COEF_MAX];
	struct gk_dark dark[GK_DARK_MAX];
	struct gk_update update[GK_DARK_MAX];
	struct gk_work work[GK_GANGS_MAX][GK_RING_SIZE];
};
GK_STATIC_ASSERT(sizeof(struct gk_channel) ==
		64 + GK_GANGS_MAX * 64 + GK_PARAMS_MAX * 64 + GK_COEF_MAX * 64 + GK_DARK_MAX * 128 +
			GK_GANGS_MAX * GK_RING_SIZE * 128,
	"no padding between the parts of a channel");

/**
 * The raster and how packets tile it: packet t carries rows [t x tile_rows, (t + 1) x tile_rows)
 * of the canonical stack of modules, full width. JUNGFRAU: 128 packets a module of 4 rows of
 * 1,024 pixels (app/recv/frames/jungfrau.c).
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

/** Bytes of one set of dark accumulators. */
static inline uint64_t
gk_dark_size(const struct gk_geometry *g)
{
	return gk_pixels(g) * sizeof(uint64_t);
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
