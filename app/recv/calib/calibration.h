/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Reads calibration files and computes conversion coefficients.
 *
 * The files have PSI's formats, one set of files per module, little-endian, [rows][cols] in raster
 * order:
 *   gain      f64 [3][rows][cols]          ADU/keV in order G0, G1, G2; 0 in G0 = the pixel is
 *                                          masked. With gain_maps = 6 the file also has HG0, HG1
 *                                          and HG2, which are not read
 *   pedestal  f32 [rows][cols]             ADU, one file per gain stage; 0 or >= 16383 = unusable
 *   mask      u8  [rows][cols]             non-zero = the pixel is masked
 * A file of any other size is refused. In a path, `%d` is replaced by the module number.
 * Coefficients are encoded as in gk_pixel.h: p = pedestal, r = f32(1 / (gain x energy)), NaN for an
 * unusable pixel.
 *
 * Impossible values (enum calibration_suspicion) make a pixel unusable in their stage and are
 * counted. A file with many of them is refused, because it is of another kind or belongs to another
 * detector. A pedestal file is also refused if its sidecar (pedestal_file.h) names another
 * detector, module or stage, or has another digest. Values that are possible but implausible for a
 * whole module (struct calibration_module) cause a warning.
 *
 * Control lcore only.
 */
#ifndef CALIBRATION_H
#define CALIBRATION_H

#include <stdbool.h>
#include <stdint.h>

#include <gk_abi.h>

#include "frames/detector.h"

#define CALIBRATION_STAGES 3

/**
 * Maximum factor between a gain and the nominal one. It is large because some files contain gain x
 * energy (energy = 1).
 */
#define CALIBRATION_GAIN_LIMIT 16.0
/**
 * Maximum share of a module's pixels with the same kind of suspicious value. Beyond it, the file is
 * refused.
 */
#define CALIBRATION_SUSPICIOUS_MAX 0.1

/**
 * Kinds of impossible values, counted per pixel. The values that mark masked pixels are not
 * included.
 */
enum calibration_suspicion {
	CALIBRATION_GAIN_NAN,	    /**< gain is NaN or infinite */
	CALIBRATION_GAIN_SIGN,	    /**< gain and nominal gain have different signs */
	CALIBRATION_GAIN_SIZE,	    /**< gain is not within gain_limit of the nominal one */
	CALIBRATION_PEDESTAL_NAN,   /**< pedestal is NaN or infinite */
	CALIBRATION_PEDESTAL_RANGE, /**< pedestal is negative */
	CALIBRATION_SUSPICIONS
};

/** 0 selects a default, except in nominal_gain and energy. */
struct calibration_files {
	const char *gain;			  /**< NULL: the nominal gain for all pixels */
	const char *pedestal[CALIBRATION_STAGES]; /**< NULL: 0 for all pixels */
	const char *mask;			  /**< NULL: no pixel is masked */
	double nominal_gain[CALIBRATION_STAGES];  /**< ADU/keV; 0: sign and size are not checked */
	double energy;				  /**< photon energy, keV */
	double gain_limit;			  /**< 0: CALIBRATION_GAIN_LIMIT */
	double suspicious_max;			  /**< 0: CALIBRATION_SUSPICIOUS_MAX; 1: all */
	uint32_t gain_maps;			  /**< maps in the gain file, 3 or 6; 0: 3 */
	double max_age_hours;			  /**< warn about older pedestals; 0: never */
	const uint32_t *module_ids;		  /**< [modules] as in packets; NULL: unknown */
	bool dark_run; /**< no warning about absent files: the run makes pedestals */
	int64_t now;   /**< seconds since 1970 (UTC); 0: the current time */
};

/** Statistics of a module's maps. */
struct calibration_module {
	uint64_t read_out;			   /**< pixels that the detector sends */
	uint64_t live;				   /**< of these, those with a photon value in G0 */
	float pedestal_median[CALIBRATION_STAGES]; /**< ADU; 0: no file, or no usable pixel */
	double gain_median[CALIBRATION_STAGES];	   /**< ADU/keV; 0: no usable pixel */
	uint32_t warnings;			   /**< number of warnings */
	char warning[256]; /**< the first warning, "module 3: ..."; "": none */
};

struct calibration {
	float *p[CALIBRATION_STAGES]; /**< [pixels], in the caller's memory */
	float *r[CALIBRATION_STAGES];
	uint64_t masked;		       /**< pixels masked in all stages */
	uint64_t user_masked;		       /**< number of these masked by mask files */
	uint64_t unusable[CALIBRATION_STAGES]; /**< pixels unusable in this stage, but not masked */
	/** Suspicious values by kind, including those of masked pixels. */
	uint64_t suspicious[CALIBRATION_SUSPICIONS][CALIBRATION_STAGES];
	uint32_t sidecars;   /**< pedestal files with a matching sidecar */
	uint32_t old;	     /**< pedestal files older than max_age_hours */
	double oldest_hours; /**< age of the oldest pedestal file; 0: no files */
	uint32_t digest;     /**< CRC-32C of all coefficients; identifies them in files */
	/** CRC-32C of the maps in files, module by module, G0 before G1 and G2; 0: no file. @{ */
	uint32_t pedestal_digest;
	uint32_t gain_digest;
	uint32_t mask_digest;
	/** @} */
	struct calibration_module module[DETECTOR_MODULES_MAX];
	char missing[200]; /**< warning about gain stages without a pedestal file; "": none */
	uint32_t warnings; /**< warnings about all modules, and `missing`; all were logged */
	char why[1024];	   /**< reason logged by a failed calibration_load() */
};

/** Return the size in bytes of a detector's six planes. */
uint64_t calibration_size(const struct detector *d);

/** Describe a kind, e.g. "gains that are NaN or infinite". */
const char *calibration_suspicion_text(enum calibration_suspicion kind);

/** Return the first warning about a module, "module 3: ...", or `missing`; "": there is none. */
const char *calibration_warning(const struct calibration *c);

/**
 * Read and check the files, and compute the coefficients. Suspicious values below the limits, and
 * old files, are logged as warnings.
 * @param c       out; p and r point into `memory`
 * @param memory  calibration_size() bytes, 64-byte aligned
 * @return 0; -ENOENT, -EIO, ...: a file cannot be read; -EINVAL: its size or its content is wrong,
 *   or it belongs to another detector; -ENOMEM. The reason is logged and stored in c->why
 */
int calibration_load(struct calibration *c, void *memory, const struct calibration_files *files,
	const struct detector *d);

#endif /* CALIBRATION_H */
