/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Section [peaks]: the search for Bragg peaks, and the map of the detector's pixels that it needs.
 * The thresholds are part of struct builder_veto, because they change at a frame number.
 */
#ifndef PEAK_SETTINGS_H
#define PEAK_SETTINGS_H

#include <gk_peaks.h>

#include "builder/veto.h"
#include "geometry_settings.h"

struct config;

/** The part that is fixed while the process runs. */
struct peak_settings {
	bool known;   /**< the process can search */
	uint32_t max; /**< peaks in the lists of a frame */
	/** limits of the distance to the beam in pixels; max_res 0: none @{ */
	uint32_t min_res, max_res;
	/** @} */
	uint32_t nb_shells;
	double shell[GK_PEAK_SHELLS_MAX + 1]; /**< limits in angstrom, falling */
};

/**
 * Read the section. Mistakes are logged.
 * @param veto  receives the thresholds
 */
void peak_settings_read(struct peak_settings *s, struct builder_veto *veto, struct config *c,
	const struct geometry_settings *geometry, const struct detector *detector);

/**
 * Fill the map of the detector's pixels.
 * @param bin      out: [rows][cols]
 * @param panel    out: g->nb_panels
 * @param nb_bins  out: 1 + the largest bin of a used pixel
 * @return 0; -ERANGE: the largest distance to the beam is GEOMETRY_MASKED - 1 pixels or more
 */
int peak_settings_map(const struct peak_settings *s, const struct geometry *g, uint16_t *bin,
	struct gk_peak_panel *panel, uint32_t *nb_bins);

/** Return true if panels and masks, and therefore the map, are the same. */
bool peak_settings_same_map(const struct geometry *a, const struct geometry *b);

#endif /* PEAK_SETTINGS_H */
