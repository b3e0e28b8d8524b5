/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Section [radial]: radial profiles of all frames, and the map of the detector's pixels for them.
 * The section is fixed while the process runs.
 */
#ifndef RADIAL_SETTINGS_H
#define RADIAL_SETTINGS_H

#include "geometry/profile.h"
#include "geometry_settings.h"

struct config;

struct radial_settings {
	uint32_t bins; /**< 0: no profiles */
	enum profile_unit unit;
};

/** Read the section. Mistakes are logged. */
void radial_settings_read(struct radial_settings *s, struct config *c,
	const struct geometry_settings *geometry, const struct detector *detector);

/** Return true if bins of two geometries are the same. */
bool radial_settings_same_map(const struct geometry *a, const struct geometry *b);

#endif /* RADIAL_SETTINGS_H */
