/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Dark runs: raw dark frames to pedestals, noise and masks, by the rules of PSI's Jungfraujoch
 * (PedestalCalcCPU.cpp), so that its users find the numbers that they know.
 *
 * Per pixel and gain stage, over the frames whose module came complete:
 *   the first W frames: S += adu, S2 += adu^2, whatever their gain code;
 *   later ones, if the gain code is the stage's: S += adu - S / W, S2 += adu^2 - S2 / W;
 *   mean = S / W, rms = sqrt(S2 / W - mean^2), in f64;
 *   samples of another gain code are counted from the first frame on.
 * The bits of the mask:
 *   1, 2, 4 << 1  G0, G1, G2: fewer than W frames, or more than wrong_max samples of another gain
 *   1, 2, 4 << 4  G0, G1, G2: rms > rms_max
 * A masked pixel has pedestal 16383.5 in that stage, which calibration_load() takes for unusable.
 *
 * One thread at a time; it may be any thread, and need not be an lcore.
 */
#ifndef PEDESTAL_H
#define PEDESTAL_H

#include <stdint.h>

#include "frames/detector.h"

#define PEDESTAL_STAGES	 3
#define PEDESTAL_MASKED	 16383.5f
#define PEDESTAL_WINDOW	 128
#define PEDESTAL_RMS_MAX 100

/** Mask bits of a gain stage. @{ */
#define PEDESTAL_MASK_GAIN(stage) (1u << ((stage) + 1))
#define PEDESTAL_MASK_RMS(stage)  (1u << ((stage) + 4))
/** @} */

struct pedestal_params {
	uint32_t window;		     /**< W, at least 1 */
	uint32_t wrong_max[PEDESTAL_STAGES]; /**< samples of another gain that are forgiven */
	double rms_max;			     /**< ADU */
};

/** W = 128; 2 wrong samples in G0, none in the forced stages; 100 ADU. */
extern const struct pedestal_params pedestal_defaults;

/** Frames by what became of them. Only grow. */
struct pedestal_stats {
	uint64_t frames[PEDESTAL_STAGES]; /**< added, at least one module of them */
	uint64_t incomplete;		  /**< modules of frames skipped: packets missing */
	uint64_t unknown; /**< frames skipped: forced to G1 and to G2 at the same time */
};

/** Pixels of one module and stage that are masked, by cause; a pixel may have two. */
struct pedestal_masked {
	uint64_t frames;
	uint64_t gain;
	uint64_t rms;
	uint64_t pixels; /**< all together */
};

struct pedestal_output {
	const char *dir;	    /**< must exist */
	const char *run;	    /**< begins the file names */
	const uint32_t *module_ids; /**< [modules] as packets carry them; NULL: not known */
	int64_t time;		    /**< seconds since 1970 (UTC); 0: now */
};

struct pedestal;

/**
 * Reserve the sums of all modules and stages: 20 bytes a pixel and stage, used when touched.
 * @param params  NULL: pedestal_defaults
 * @return NULL with rte_errno: ENOMEM, EINVAL (logged)
 */
struct pedestal *pedestal_create(const struct detector *d, const struct pedestal_params *params);
void pedestal_destroy(struct pedestal *p);

/**
 * The gain stage that a dark frame belongs to, from the detector's status word (detSpec3 of a
 * JUNGFRAU: bit 12 forced to G1, bit 13 forced to G2).
 * @return 0, 1, 2; -EINVAL: both
 */
int pedestal_stage(uint32_t detector_status);

/**
 * Add a dark frame to its stage. Frames must come in frame order for the sums to be the same again.
 * @param raw      u16 [modules][rows][cols] as sent: output of GK_KIND_RAW
 * @param missing  packets missing of each module (frame_record.missing); NULL: none. A module with
 *                 missing packets is skipped, the others are added
 * @param detector_status  frame_record.detector_status
 * @return modules added; -EINVAL: the stage is unknown, the frame was counted and skipped
 */
int pedestal_add(
	struct pedestal *p, const uint16_t *raw, const uint16_t *missing, uint32_t detector_status);

/** Frames of one module and stage. */
uint64_t pedestal_frames(const struct pedestal *p, uint32_t stage, uint32_t module);

/** Counters; read by the thread that adds. */
const struct pedestal_stats *pedestal_stats(const struct pedestal *p);

/**
 * Maps of one module and stage as they stand.
 * @param mean  f32 [rows][cols] ADU, PEDESTAL_MASKED where masked
 * @param rms   f32 [rows][cols] ADU, NaN where there were fewer than W frames
 * @param mask  u8 [rows][cols]: this stage's bits are added
 */
void pedestal_maps(const struct pedestal *p, uint32_t stage, uint32_t module, float *mean,
	float *rms, uint8_t *mask, struct pedestal_masked *masked);

/**
 * Write the files of every stage that has W frames and more, for each module m:
 *   DIR/RUN_pedestal_gG_mM.bin  f32 [rows][cols], with its sidecar .ini (pedestal_file.h)
 *   DIR/RUN_rms_gG_mM.bin       f32 [rows][cols]
 *   DIR/RUN_dark_mask_mM.bin    u8 [rows][cols], bits of all stages. As a [calibration] mask it
 *                               masks a pixel in all stages when it is bad in one; pedestals alone
 *                               mask by stage
 * A sidecar is written last, so that it never speaks of a map that is not there. More frames may be
 * added after.
 * @param masked  [PEDESTAL_STAGES], receives the sums over modules; may be NULL
 * @return 0; -ENODATA: no frame was added; -ERANGE: a module has fewer than W frames of a stage,
 *   which is not written; -ENOMEM; -errno of the file system (all logged)
 */
int pedestal_write(const struct pedestal *p, const struct pedestal_output *out,
	struct pedestal_masked masked[]);

#endif /* PEDESTAL_H */
