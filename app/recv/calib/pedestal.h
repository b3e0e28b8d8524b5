/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Dark runs: computes pedestals, noise and masks from raw dark frames. The rules are those of PSI's
 * Jungfraujoch (PedestalCalcCPU.cpp), so that the results are comparable.
 *
 * For each pixel and gain stage, over the frames in which the module is complete:
 *   the first W frames: S += adu, S2 += adu^2, with any gain code;
 *   later frames with the gain code of the stage: S += adu - S / W, S2 += adu^2 - S2 / W;
 *   mean = S / W, rms = sqrt(S2 / W - mean^2), in f64;
 *   samples with another gain code are counted from the first frame on.
 * Bits of the mask:
 *   1, 2, 4 << 1  G0, G1, G2: fewer than W frames, or more than wrong_max samples of another gain
 *   1, 2, 4 << 4  G0, G1, G2: rms > rms_max
 * A masked pixel has pedestal 16383.5 in that stage, which calibration_load() treats as unusable.
 *
 * One thread at a time may call these functions. It need not be an lcore.
 */
#ifndef PEDESTAL_H
#define PEDESTAL_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "frames/detector.h"

#define PEDESTAL_STAGES	 3
#define PEDESTAL_MASKED	 16383.5f
#define PEDESTAL_WINDOW	 128
#define PEDESTAL_RMS_MAX 100
/** A warning is due if more than 1/5 of the pixels are masked. Good modules have below 1 %. */
#define PEDESTAL_MASKED_SHARE 5

/** Mask bits of a gain stage. @{ */
#define PEDESTAL_MASK_GAIN(stage) (1u << ((stage) + 1))
#define PEDESTAL_MASK_RMS(stage)  (1u << ((stage) + 4))
/** @} */

struct pedestal_params {
	uint32_t window;		     /**< W, at least 1 */
	uint32_t wrong_max[PEDESTAL_STAGES]; /**< maximum of samples with another gain code */
	double rms_max;			     /**< ADU */
};

/** W = 128; 2 wrong samples in G0, none in the forced stages; 100 ADU. */
extern const struct pedestal_params pedestal_defaults;

/** Frames by outcome. The values only grow. */
struct pedestal_stats {
	uint64_t frames[PEDESTAL_STAGES]; /**< frames of which at least one module was added */
	uint64_t incomplete;		  /**< modules skipped because packets were missing */
	uint64_t unknown; /**< frames skipped because they were forced to both G1 and G2 */
};

/**
 * Masked pixels of a module and stage, by cause, of those that are read out. A pixel may have two
 * causes.
 */
struct pedestal_masked {
	uint64_t frames;
	uint64_t gain;
	uint64_t rms;
	uint64_t pixels;   /**< total */
	uint64_t read_out; /**< pixels read out, masked or not */
};

struct pedestal_output {
	const char *dir;	    /**< the directory must exist */
	const char *run;	    /**< prefix of the file names */
	const uint32_t *module_ids; /**< [modules] as in packets; NULL: unknown */
	int64_t time;		    /**< seconds since 1970 (UTC); 0: now */
};

struct pedestal;

/**
 * Reserve address space for the sums of all modules and stages: 20 bytes per pixel and stage.
 * Memory is used when it is first written.
 * @param params  NULL: pedestal_defaults
 * @return NULL with rte_errno: ENOMEM, EINVAL (logged)
 */
struct pedestal *pedestal_create(const struct detector *d, const struct pedestal_params *params);
void pedestal_destroy(struct pedestal *p);

/**
 * Return the gain stage of a dark frame, from the detector's status word (detSpec3 of a JUNGFRAU:
 * bit 12 forced to G1, bit 13 forced to G2).
 * @return 0, 1, 2; -EINVAL: both bits are set
 */
int pedestal_stage(uint32_t detector_status);

/**
 * Add a dark frame to its stage. For reproducible sums, add frames in frame order.
 * @param raw      u16 [modules][rows][cols] as sent by the detector: output of GK_KIND_RAW
 * @param missing  number of missing packets of each module (frame_record.missing); NULL: none.
 *   Modules with missing packets are skipped, the others are added
 * @param detector_status  frame_record.detector_status
 * @return number of modules added; -EINVAL: the stage is unknown, the frame was counted and skipped
 */
int pedestal_add(
	struct pedestal *p, const uint16_t *raw, const uint16_t *missing, uint32_t detector_status);

/** Return the number of frames of a module and stage. */
uint64_t pedestal_frames(const struct pedestal *p, uint32_t stage, uint32_t module);

/** Return the counters. Only for the thread that adds frames. */
const struct pedestal_stats *pedestal_stats(const struct pedestal *p);

/**
 * Compute the current maps of a module and stage.
 * @param mean  f32 [rows][cols] ADU, PEDESTAL_MASKED if masked
 * @param rms   f32 [rows][cols] ADU, NaN if there were fewer than W frames
 * @param mask  u8 [rows][cols]: the bits of this stage are added
 */
void pedestal_maps(const struct pedestal *p, uint32_t stage, uint32_t module, float *mean,
	float *rms, uint8_t *mask, struct pedestal_masked *masked);

/** Kinds of files that a dark run may write, one file for each module. */
#define PEDESTAL_MAPS (2 * PEDESTAL_STAGES + 1)

/**
 * Build the path of a map.
 * @param map  0 ... PEDESTAL_MAPS - 1: the pedestals of each stage, then their noise, then the mask
 * @return 0; -ENAMETOOLONG, logged
 */
int pedestal_map_path(
	char path[PATH_MAX], const char *dir, const char *run, uint32_t map, uint32_t module);

/**
 * Find a file that a dark run would overwrite: a map or a sidecar.
 * @param path  out
 * @return whether there is one
 */
bool pedestal_find_existing(
	const struct detector *d, const char *dir, const char *run, char path[PATH_MAX]);

/**
 * Write the files of every stage that has at least W frames, for each module m:
 *   DIR/RUN_pedestal_gG_mM.bin  f32 [rows][cols], with its sidecar .ini (pedestal_file.h)
 *   DIR/RUN_rms_gG_mM.bin       f32 [rows][cols]
 *   DIR/RUN_dark_mask_mM.bin    u8 [rows][cols], bits of all stages. Used as [calibration] mask, it
 *                               masks a pixel in all stages if it is bad in one; pedestals alone
 *                               mask by stage
 * A sidecar is written after its map, so it never describes a missing map. Frames may be added
 * afterwards.
 * @param masked  out: [PEDESTAL_STAGES], the sums over modules; may be NULL
 * @return 0; -ENODATA: no frame was added; -ERANGE: a module has fewer than W frames of a stage,
 *   which is not written; -ENOMEM; -errno of the file system (all logged)
 */
int pedestal_write(const struct pedestal *p, const struct pedestal_output *out,
	struct pedestal_masked masked[]);

#endif /* PEDESTAL_H */
