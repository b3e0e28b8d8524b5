/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Record of a finished frame: its row of `frames` and, if the frame is kept, the position of its
 * image. The builder passes records to the writer in the order of frame numbers. The writer's
 * batches go to files or to stores. The writer returns a record through the free ring once it has
 * copied the columns.
 */
#ifndef FRAME_RECORD_H
#define FRAME_RECORD_H

#include <stdint.h>

#define FRAME_MODULES_MAX 32
#define FRAME_PACKETS_MAX (FRAME_MODULES_MAX * 128)
#define FRAME_SHELLS_MAX  8
#define FRAME_NO_SEARCH	  UINT32_MAX /**< frame_record.peaks: peaks were not searched */
#define FRAME_NO_PROFILE  UINT32_MAX /**< frame_record.profile: no gang made one */

/** `verdict` column of `frames`: the one outcome of a frame. */
enum frame_verdict {
	FRAME_VETOED = 0,    /**< rejected by the veto */
	FRAME_HIT = 1,	     /**< kept: strong pixels, and peaks if searched, within limits */
	FRAME_PRESCALED = 2, /**< rejected by the veto, but kept by the prescale */
	/** kept although the veto rejects it in a dry run, or a frame of a dark run */
	FRAME_DRY_RUN = 3,
	FRAME_INCOMPLETE = 4, /**< packets missing, dropped by policy */
	FRAME_LOST = 5,	      /**< no packet of it arrived */
	FRAME_REFUSED = 6,    /**< no free frame slot when it had to be opened */
	FRAME_ABORTED = 7,    /**< the run was aborted before a gang received it */
	FRAME_VERDICTS
};

/** @return non-zero if a frame with this verdict has a row in `images`. */
static inline int
frame_verdict_is_kept(enum frame_verdict v)
{
	return v == FRAME_HIT || v == FRAME_PRESCALED || v == FRAME_DRY_RUN;
}

/** `flags` column of `frames`. */
#define FRAME_FLAG_INCOMPLETE (1u << 0) /**< some packets are missing */
#define FRAME_FLAG_DENSE      (1u << 1) /**< nnz > nnz_max: stored as full image instead of CSR */
#define FRAME_FLAG_DARK	      (1u << 2) /**< a dark frame by the configured rule */
#define FRAME_FLAG_TIMEOUT    (1u << 3) /**< closed by time: a module stalled */
/** Modules disagree on storage cell or gain mode, or these are not as configured. */
#define FRAME_FLAG_STATUS (1u << 4)
/** Kept, but without an image: it was refused (journal or disk full) or could not be created. */
#define FRAME_FLAG_NO_IMAGE (1u << 5)
/** Modules disagree on the bunch id: their packets may belong to different exposures. */
#define FRAME_FLAG_BUNCH (1u << 6)

/** One frame. Times of the detector are in its own ticks (JUNGFRAU: 100 ns). */
struct frame_record {
	uint64_t frame;		/**< frame number */
	uint64_t bunch_id;	/**< detSpec1 */
	uint64_t detector_time; /**< ticks of 100 ns since start of measurement */
	int64_t receive_time;	/**< ns since 1970 (UTC) when the first packet was seen; 0 = none */
	double sum;		/**< photons: valid, unsaturated pixels */
	/** bytes of the chunk (gk_bitshuffle.h) that the output is, 0: plain values */
	uint64_t chunk_bytes;
	uint32_t chunk_crc32c;	  /**< of these bytes (gk_details); 0: not computed */
	uint32_t exposure;	  /**< ticks of 100 ns */
	uint32_t detector_status; /**< detSpec3 (JUNGFRAU: DAQ info) */
	uint32_t flags;		  /**< FRAME_FLAG_* */
	uint32_t strong_count;
	uint32_t saturated;
	uint32_t invalid; /**< masked, invalid or missing pixels */
	uint32_t nnz;	  /**< pixels >= csr_threshold */
	uint32_t veto_version;
	uint32_t pedestal_version;
	uint32_t verdict; /**< enum frame_verdict */
	uint32_t kind;	  /**< enum gk_kind of the output, GK_KIND_NONE if there is none */
	uint32_t out;	  /**< output slot, GK_NO_OUT if there is none */
	uint32_t peaks;	  /**< Bragg peaks, or FRAME_NO_SEARCH */
	uint32_t shells;  /**< number of resolution shells; 0: none, or not searched */
	uint32_t shell_peaks[FRAME_SHELLS_MAX];
	uint32_t profile; /**< area of the radial profile (gk_abi.h), or FRAME_NO_PROFILE */
	uint16_t missing[FRAME_MODULES_MAX]; /**< packets missing, by module */
	/** Bit per packet in canonical order, 1 = missing; least significant bit first. */
	uint8_t missing_map[FRAME_PACKETS_MAX / 8];
};

#endif /* FRAME_RECORD_H */
