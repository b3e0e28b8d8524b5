/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The live file: the newest kept frame of a run at full resolution, and the maximum and the sum of
 * its kept frames. A receiver keeps it in memory (tmpfs), and other processes read it with pread(2)
 * at any rate. Readers write nothing, so they cannot delay the receiver.
 *
 * Numbers are little-endian, as all machines are that braggline supports. Offsets are multiples of
 * 4,096. The file has struct live_file_head at 0 and then, at the offsets that it names:
 *
 *   slot 0, slot 1  struct live_file_frame, and at LIVE_FILE_DATA the frame as it was kept: an
 *                   output slot of gk_abi.h (struct gk_layout) without its list of peaks
 *   maximum         f32[rows][cols]; -Inf: no value. CSR frames have no value below their threshold
 *   sum             f64[rows][cols] of the values above, +Inf if a pixel was ever saturated
 *   mask            u8[rows][cols], 1: the pixel has no photon value in G0 (masked, or not usable)
 *   geometry        text of a .geom file; geometry_size 0: the geometry is not known
 *
 * Consistency:
 * - A frame is complete if `begin` and `end` of its slot were the same number before and after it
 *   was read. Frame n is in slot n % 2, so it stays unchanged for at least one period.
 * - Maximum and sum change while they are read. Different pixels may be from different times.
 * - `generation` is odd while a run begins and everything changes. It differs between runs. A
 *   receiver that starts, and a run with another geometry, create another file (rename(2)).
 */
#ifndef LIVE_FILE_H
#define LIVE_FILE_H

#include <assert.h>
#include <stdint.h>

#include "frame_record.h"

#define LIVE_FILE_MAGIC "BRGLIVE1" /**< 8 bytes; the digit is the version */
#define LIVE_FILE_SLOTS 2
#define LIVE_FILE_ALIGN 4096
#define LIVE_FILE_PEAKS 2048 /**< GK_PEAKS_MAX */
/** Offset of the pixels in a slot. */
#define LIVE_FILE_DATA 36864

/** A peak: position in the raster, 0 is the centre of the first pixel. */
struct live_file_peak {
	float col, row;
	float intensity; /**< photons above background */
	float snr;
};
static_assert(sizeof(struct live_file_peak) == 16, "an array without padding");

/** A frame. Fields without comment are those of struct frame_record. */
struct live_file_frame {
	uint64_t begin; /**< sequence number, written before the rest; 0: the slot is empty */
	uint64_t end;	/**< the same number, written after the rest */
	uint64_t frame;
	uint64_t bunch_id;
	int64_t receive_time;
	double sum;
	uint32_t kind;
	uint32_t nnz;
	uint32_t strong_count;
	uint32_t saturated;
	uint32_t invalid;
	uint32_t verdict;
	uint32_t flags;
	uint32_t veto_version;
	uint32_t pedestal_version;
	uint32_t peaks;	   /**< number of peaks found, or FRAME_NO_SEARCH */
	uint32_t nb_peaks; /**< number of elements of `peak` */
	uint32_t reserved[3];
	uint8_t missing_map[FRAME_PACKETS_MAX / 8];
	struct live_file_peak peak[LIVE_FILE_PEAKS];
};
static_assert(sizeof(struct live_file_frame) <= LIVE_FILE_DATA, "pixels follow");

struct live_file_head {
	char magic[8];
	uint64_t size; /**< of the file, bytes */
	uint64_t id;   /**< random number of the file */
	uint32_t rows, cols;
	uint32_t packets;     /**< of a frame, in the order of the raster */
	uint32_t packet_rows; /**< rows of a packet, over the full width */
	uint32_t value;	      /**< enum gk_value: 0: f32, 1: i16 */
	uint32_t nnz_cap;     /**< greatest nnz of a CSR frame */
	/**
	 * offsets in the pixels of a slot, in this order and without overlap: u32[rows + 1],
	 * u16[nnz], values of CSR data or of all pixels
	 */
	uint64_t row_ptr, col, values;
	uint64_t slot[LIVE_FILE_SLOTS];
	uint64_t maximum, sum, mask, geometry;
	uint64_t geometry_size;
	/* the fields below change */
	uint64_t generation; /**< of the run; odd: it is being changed */
	uint64_t sequence;   /**< of the newest frame, over all runs of the file; 0: none yet */
	uint64_t frames;     /**< in maximum and sum */
	uint64_t sparse;     /**< CSR frames among them */
	uint64_t skipped;    /**< kept frames of the run that are not in them */
	uint64_t active;     /**< 1: the run is in progress */
	float csr_threshold; /**< photons, when the run began */
	uint32_t reserved;
	char run[256]; /**< name, UTF-8, with a 0 at the end */
	/** frames in maximum and sum that lack a packet, by packet */
	uint32_t missing_frames[FRAME_PACKETS_MAX];
};

#endif /* LIVE_FILE_H */
