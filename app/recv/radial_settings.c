/* SPDX-License-Identifier: BSD-3-Clause */

#include <stdlib.h>
#include <string.h>

#include <gk_abi.h>

#include "config/config.h"
#include "radial_settings.h"

static void
check_geometry(const struct radial_settings *s, struct config *c,
	const struct geometry_settings *settings, const struct detector *detector)
{
	char message[GEOMETRY_MESSAGE_LEN];
	struct geometry *g;

	if (settings->wrong)
		return;
	if (!settings->known) {
		config_complain(c, "radial", "bins",
			"needs the section [geometry]: set its file, or beam_x, beam_y and "
			"distance_mm");
		return;
	}
	/* a mistake in the geometry was reported with its section */
	if (geometry_settings_make(settings, detector, &g, message) != 0)
		return;
	if (g->distance_metres <= 0)
		config_complain(
			c, "radial", "bins", "needs the distance: set [geometry] distance_mm");
	else if (s->unit != PROFILE_TWO_THETA && geometry_wavelength(g) <= 0)
		config_complain(c, "radial", "unit",
			"q and d need the photon energy: set [geometry] energy_kev, or use 2theta");
	free(g);
}

void
radial_settings_read(struct radial_settings *s, struct config *c,
	const struct geometry_settings *geometry, const struct detector *detector)
{
	const char *names[PROFILE_UNITS + 1] = {NULL};

	memcpy(names, profile_unit_names, sizeof(profile_unit_names));
	s->bins = config_uint_word(c, "radial", "bins", "none", 0, 1, GK_PROFILE_BINS_MAX);
	s->unit = config_choice(c, "radial", "unit", PROFILE_Q, names);
	if (s->bins > 0)
		check_geometry(s, c, geometry, detector);
}

bool
radial_settings_same_map(const struct geometry *a, const struct geometry *b)
{
	return a->nb_panels == b->nb_panels && a->nb_bad == b->nb_bad &&
		a->distance_metres == b->distance_metres && a->pixel_metres == b->pixel_metres &&
		geometry_wavelength(a) == geometry_wavelength(b) &&
		memcmp(a->panel, b->panel, sizeof(a->panel)) == 0 &&
		memcmp(a->bad, b->bad, sizeof(a->bad)) == 0;
}
