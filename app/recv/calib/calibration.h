/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Calibration files to conversion coefficients.
 *
 * Files are those of PSI, one set a module, little-endian, [rows][cols] in raster order:
 *   gain      f64 [3][rows][cols]          ADU/keV in order G0, G1, G2; 0 in G0 = the pixel is
 *                                          masked. With gain_maps = 6 the file has HG0, HG1 and
 *                                          HG2 as well, which are not read
 *   pedestal  f32 [rows][cols]             ADU, one file a gain stage; 0 or >= 16383 = unusable
 *   mask      u8  [rows][cols]             non-zero = the pixel is masked
 * A file of any other size is refused.
 * A path holds `%d` where the module number goes. Coefficients are encoded as gk_pixel.h says:
 * p = pedestal, r = f32(1 / (gain x energy)), NaN where a pixel is unusable.
 *
 * Values that cannot be (enum calibration_suspicion) make a pixel unusable in their stage and are
 * counted; a file with many of them is refused: it is of another kind or of another detector. So is
 * a pedestal file whose sidecar (pedestal_file.h) names another detector, module or stage, or
 * another content. What is possible but unlikely for a whole module (struct calibration_module) is
 * a warning.
 *
 * Control lcore only.
 */
#ifndef CALIBRATION_H
#define CALIBRATION_H

#include <stdint.h>

#include <gk_abi.h>

#include "frames/detector.h"

#define CALIBRATION_STAGES 3

/** Factor between a gain and the nominal one. Wide: some files hold gain x energy (energy = 1). */
#define CALIBRATION_GAIN_LIMIT 16.0
/** Share of a module's pixels that may be suspicious in one way before its file is refused. */
#define CALIBRATION_SUSPICIOUS_MAX 0.1

/** What is wrong with a value; counted by pixel. Marks of masked pixels are none of these. */
enum calibration_suspicion {
	CALIBRATION_GAIN_NAN,	    /**< gain is NaN or infinite */
	CALIBRATION_GAIN_SIGN,	    /**< gain has the other sign than the nominal one */
	CALIBRATION_GAIN_SIZE,	    /**< gain is not within gain_limit of the nominal one */
	CALIBRATION_PEDESTAL_NAN,   /**< pedestal is NaN or infinite */
	CALIBRATION_PEDESTAL_RANGE, /**< pedestal is negative */
	CALIBRATION_SUSPICIONS
};

/** Zero is a default everywhere but in nominal_gain and energy. */
struct calibration_files {
	const char *gain;			  /**< NULL: nominal gain everywhere */
	const char *pedestal[CALIBRATION_STAGES]; /**< NULL: 0 everywhere */
	const char *mask;			  /**< NULL: nothing masked */
	double nominal_gain[CALIBRATION_STAGES];  /**< ADU/keV; 0: sign and size are not checked */
	double energy;				  /**< keV of a photon */
	double gain_limit;			  /**< 0: CALIBRATION_GAIN_LIMIT */
	double suspicious_max;			  /**< 0: CALIBRATION_SUSPICIOUS_MAX; 1: all */
	uint32_t gain_maps;			  /**< of the gain file, 3 or 6; 0: 3 */
	double max_age_hours;	    /**< warn of pedestals older than this; 0: never */
	const uint32_t *module_ids; /**< [modules] as packets carry them; NULL: not known */
	int64_t now;		    /**< seconds since 1970 (UTC); 0: ask the clock */
};

/** What the maps of a module come to. */
struct calibration_module {
	uint64_t live;				   /**< pixels with a photon value in G0 */
	float pedestal_median[CALIBRATION_STAGES]; /**< ADU; 0: no file, or no pixel has one */
	double gain_median[CALIBRATION_STAGES];	   /**< ADU/keV; 0: no pixel has one */
	uint32_t warnings;			   /**< about this module */
	char warning[256]; /**< the first of them, "module 3: ..."; "": none */
};

struct calibration {
	float *p[CALIBRATION_STAGES]; /**< [pixels], the caller's memory */
	float *r[CALIBRATION_STAGES];
	uint64_t masked;		       /**< pixels masked altogether */
	uint64_t user_masked;		       /**< of these, by the mask files */
	uint64_t unusable[CALIBRATION_STAGES]; /**< pixels unusable in one stage, not masked */
	/** Suspicious values by kind, in masked pixels too. */
	uint64_t suspicious[CALIBRATION_SUSPICIONS][CALIBRATION_STAGES];
	uint32_t sidecars;   /**< pedestal files that a sidecar vouches for */
	uint32_t old;	     /**< pedestal files older than max_age_hours */
	double oldest_hours; /**< age of the oldest pedestal file; 0 without any */
	uint32_t digest;     /**< CRC-32C of all coefficients: names this calibration in files */
	/** CRC-32C of the maps in files, module by module, G0 before G1 and G2; 0: no file. @{ */
	uint32_t pedestal_digest;
	uint32_t gain_digest;
	uint32_t mask_digest;
	/** @} */
	struct calibration_module module[DETECTOR_MODULES_MAX];
	uint32_t warnings; /**< implausible modules' findings, all logged */
	char why[1024];	   /**< calibration_load() failed: the reason that it logged */
};

/** Bytes that the six planes of a detector need. */
uint64_t calibration_size(const struct detector *d);

/** What a suspicion means, "gains that are NaN or infinite". */
const char *calibration_suspicion_text(enum calibration_suspicion kind);

/** The first warning about a module, "module 3: ..."; "" if there is none. */
const char *calibration_warning(const struct calibration *c);

/**
 * Read and check the files and compute the coefficients. What is suspicious, but not enough to
 * refuse it, and what is old is logged as a warning.
 * @param c       receives them; p and r point into `memory`
 * @param memory  calibration_size() bytes, 64-byte aligned
 * @return 0; -ENOENT, -EIO, ...: a file cannot be read; -EINVAL: its size or its content is wrong,
 *         or it belongs to another detector; -ENOMEM (all logged, c->why says the same)
 */
int calibration_load(struct calibration *c, void *memory, const struct calibration_files *files,
	const struct detector *d);

#endif /* CALIBRATION_H */
