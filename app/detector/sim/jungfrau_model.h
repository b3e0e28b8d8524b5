/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A seeded model of JUNGFRAU modules in serial crystallography: raw pixels with their truth.
 *
 * A module is 512 x 1024 pixels of u16: bits 15-14 gain stage (00 G0, 01 G1, 11 G2), 13-0 ADC
 * value. README.rst describes the model and the sources of its numbers. A frame is a function of
 * the seed and the frame number only.
 */
#ifndef JUNGFRAU_MODEL_H
#define JUNGFRAU_MODEL_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "geometry/geometry.h"

#define JUNGFRAU_ROWS	     512
#define JUNGFRAU_COLUMNS     1024
#define JUNGFRAU_PIXELS	     (JUNGFRAU_ROWS * JUNGFRAU_COLUMNS)
#define JUNGFRAU_GAINS	     3
#define JUNGFRAU_MODULES_MAX 32

/** Maximum number of peaks of a frame; larger random numbers are limited to it. */
#define JUNGFRAU_PEAKS_MAX 512

/** Largest mean number of peaks that leaves room for fluctuations below JUNGFRAU_PEAKS_MAX. */
#define JUNGFRAU_MEAN_PEAKS_MAX 300

/** Largest mean background, photons per pixel. */
#define JUNGFRAU_BACKGROUND_MAX 5.0

/** A dark run records pedestals of one gain stage, into which the pixels are forced. */
enum jungfrau_dark_run {
	JUNGFRAU_DARK_RUN_NONE,
	JUNGFRAU_DARK_RUN_G0, /* not forced: without light pixels are in G0 */
	JUNGFRAU_DARK_RUN_G1,
	JUNGFRAU_DARK_RUN_G2
};

struct jungfrau_model_config {
	uint32_t modules;	 /**< 1 ... JUNGFRAU_MODULES_MAX */
	uint32_t column_modules; /**< modules in one column of the stack, 1 ... modules */
	uint32_t rows;		 /**< read out per module: 8 ... 512 in steps of 8, centred */
	uint64_t seed;
	double hit_fraction; /**< share of the frames that are not dark, 0 ... 1 */
	uint32_t peaks;	     /**< mean number of Bragg peaks of a hit, whole detector */
	double energy;	     /**< of a photon, keV */
	double background;   /**< mean over the whole detector, photons per pixel */
	double noise;	     /**< electronic noise in G0, keV rms */
	uint64_t dark_every; /**< frames whose number is a multiple of it are dark; 0: none */
	enum jungfrau_dark_run dark_run;

	double cell[6];	 /**< of the crystals: angstrom and degrees */
	double distance; /**< of the sample, mm; 0: the diagonal of the stack */
	/** x, y in the picture, pixels (geometry/layout.h); below 0: middle of the stack */
	double beam[2];
	double drift; /**< of the G0 pedestals, ADU/s */
	double rate;  /**< frames per second: frame n is at n / rate seconds */
	/** instead of the stack and `beam`, at `distance`; NULL: none */
	const struct geometry *geometry;
};

static_assert(sizeof(enum jungfrau_dark_run) == sizeof(uint32_t), "an option sets it");

/** One Bragg peak: a Moffat profile (1 + r^2 / width^2)^-3 in a window of 7 x 7 pixels. */
struct jungfrau_peak {
	uint32_t module;
	float row, column; /**< centre; pixel centres are at whole numbers */
	float photons;	   /**< expected photons of the whole profile */
	float width;	   /**< pixels */
	/** h, k, l of a right-handed basis in the frame of geometry/geometry.h; 0, 0, 0: stray */
	int32_t index[3];
};

/** Contents of a frame, before it is drawn. */
struct jungfrau_frame {
	/** number of the pulse: continues when the detector restarts its own count */
	uint64_t number;
	bool hit;
	bool dark;
	uint32_t peaks;	   /**< Bragg peaks of a hit, 0 otherwise */
	uint32_t nb_peaks; /**< entries of peak[]: Bragg peaks, or the stray peaks of a non-hit */
	struct jungfrau_peak peak[JUNGFRAU_PEAKS_MAX];
};

/** Calibration of one module: exactly the values that its pixels are made with (drift: at 0 s). */
struct jungfrau_calibration {
	double gain[JUNGFRAU_GAINS][JUNGFRAU_PIXELS];	 /**< ADU/keV */
	float pedestal[JUNGFRAU_GAINS][JUNGFRAU_PIXELS]; /**< ADU */
	uint8_t mask[JUNGFRAU_PIXELS];			 /**< 1: masked */
};

/** Pixel statistics that a receiver with that calibration computes. */
struct jungfrau_pixel_counts {
	uint32_t strong;    /**< unmasked pixels >= threshold, including saturated ones */
	uint32_t saturated; /**< unmasked pixels of raw 0xC000 */
	uint32_t switched;  /**< unmasked pixels in G1 or G2 */
};

struct jungfrau_model;

/** First of the rows that are read out, if `rows` are. */
static inline uint32_t
jungfrau_first_row(uint32_t rows)
{
	return (JUNGFRAU_ROWS - rows) / 2;
}

/**
 * Check a configuration and create the constants of all modules (10 bytes per pixel, 14 with
 * drift).
 * @return 0; -EINVAL: a value is out of range; -ENOMEM
 */
int jungfrau_model_create(
	const struct jungfrau_model_config *config, struct jungfrau_model **model);

/** NULL is allowed. */
void jungfrau_model_destroy(struct jungfrau_model *model);

/** Determine the contents of frame `number`. */
void jungfrau_model_plan(
	const struct jungfrau_model *model, uint64_t number, struct jungfrau_frame *frame);

/**
 * Draw the pixels of one module; rows that are not read out are 0xffff.
 * Any number of threads may draw from one model.
 */
void jungfrau_model_draw(const struct jungfrau_model *model, const struct jungfrau_frame *frame,
	uint32_t module, uint16_t raw[JUNGFRAU_PIXELS]);

void jungfrau_model_calibration(const struct jungfrau_model *model, uint32_t module,
	struct jungfrau_calibration *calibration);

/** Expected photons of a peak on pixels of its panel that are read out and not masked. */
double jungfrau_model_peak_photons(
	const struct jungfrau_model *model, const struct jungfrau_peak *peak);

/** Write the name of the panel of a peak. @return text */
const char *jungfrau_model_peak_panel(const struct jungfrau_model *model,
	const struct jungfrau_peak *peak, char text[GEOMETRY_NAME_LEN]);

/**
 * Convert pixels as defined in gpu-kernels/gk_pixel.h, with the pedestals at the frame's time, and
 * count those that are read out; adds to `pixel_counts`.
 * @param threshold photons
 */
void jungfrau_model_pixel_counts(const struct jungfrau_model *model,
	const struct jungfrau_frame *frame, uint32_t module, const uint16_t raw[JUNGFRAU_PIXELS],
	double threshold, struct jungfrau_pixel_counts *pixel_counts);

#endif /* JUNGFRAU_MODEL_H */
