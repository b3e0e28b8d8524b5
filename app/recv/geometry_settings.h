/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Section [geometry]: where the pixels of the detector are. The section is read and checked with
 * all others. The geometry itself is large, so it is created only where it is needed.
 */
#ifndef GEOMETRY_SETTINGS_H
#define GEOMETRY_SETTINGS_H

#include <stdbool.h>

#include "frames/detector.h"
#include "geometry/geometry.h"

struct config;

struct geometry_settings {
	bool known;	       /**< there is a geometry */
	bool wrong;	       /**< the section has mistakes, which were reported */
	const char *file;      /**< NULL: computed from the detector's layout */
	double beam_x, beam_y; /**< without a file: in the picture, pixels; 0: outer edge */
	double distance_mm;    /**< 0: that of the file */
	double energy_kev;     /**< of a photon; 0: that of the file */
	/** [calibration] energy_kev, if neither the section nor the file has an energy */
	double calibration_kev;
	uint32_t column_modules;       /**< modules in a column of the picture */
	double chip_gap, gap_x, gap_y; /**< pixels */
};

/**
 * Read the section, and make the geometry once to check it. Mistakes are logged.
 * @param column           modules in a column by [detector] positions; 0: not known
 * @param calibration_kev  [calibration] energy_kev
 */
void geometry_settings_read(struct geometry_settings *s, struct config *c,
	const struct detector *detector, uint32_t column, double calibration_kev);

/**
 * Make the geometry.
 * @param g        out: to be freed with free(); NULL: there is none, or an error
 * @param message  out: the error
 * @return 0; -EINVAL, -ENOMEM, -errno of reading the file
 */
int geometry_settings_make(const struct geometry_settings *s, const struct detector *detector,
	struct geometry **g, char message[GEOMETRY_MESSAGE_LEN]);

#endif /* GEOMETRY_SETTINGS_H */
