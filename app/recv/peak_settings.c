/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "geometry/pixels.h"
#include "peak_settings.h"

/** Read limits of shells, such as `50,10,4`. @return number of limits; 0: none, or a mistake */
static unsigned int
read_limits(struct config *c, double limit[GK_PEAK_SHELLS_MAX + 1])
{
	const char *text = config_text(c, "peaks", "shells", NULL);
	unsigned int n = 0;
	char *end;

	if (text == NULL)
		return 0;
	for (const char *at = text; n <= GK_PEAK_SHELLS_MAX; at = end + 1) {
		limit[n] = strtod(at, &end);
		if (end == at || !(limit[n] > 0) || (n > 0 && limit[n] >= limit[n - 1]))
			break;
		n++;
		if (*end == '\0' && n > 1)
			return n;
		if (*end != ',')
			break;
	}
	config_complain(c, "peaks", "shells",
		"must be none, or 2 to 9 falling limits in angstrom, such as 50,10,4");
	return 0;
}

/** Convert the limits of shells to bins. @return NULL, or what is wrong */
static const char *
make_shells(const struct peak_settings *s, struct gk_peak_params *p, const struct geometry *g)
{
	switch (pixels_shells(g, s->shell, s->nb_shells + 1, p->shell)) {
	case 0:
		break;
	case -ENODATA:
		return "needs the distance and the photon energy of [geometry]";
	default:
		return "has a limit that is not in forward direction";
	}
	for (uint32_t i = 0; i < s->nb_shells; i++)
		if (p->shell[i] >= p->shell[i + 1])
			return "has limits with the same radius in pixels; remove one of them";
	p->shells = s->nb_shells;
	return NULL;
}

/** Check the settings that need a geometry. */
static void
check_geometry(const struct peak_settings *s, struct gk_peak_params *p, struct config *c,
	const struct geometry_settings *settings, const struct detector *detector)
{
	char message[GEOMETRY_MESSAGE_LEN];
	const char *what = NULL;
	struct geometry *g;

	if (settings->wrong)
		return;
	if (!settings->known) {
		config_complain(c, "peaks", "search",
			"needs the section [geometry]: set its file, or beam_x, beam_y and "
			"distance_mm");
		return;
	}
	/* a mistake in the geometry was reported with its section */
	if (geometry_settings_make(settings, detector, &g, message) != 0)
		return;
	if (s->nb_shells > 0)
		what = make_shells(s, p, g);
	if (what != NULL)
		config_complain(c, "peaks", "shells", what);
	free(g);
}

static void
read_shells(struct peak_settings *s, struct gk_params *veto, struct config *c)
{
	uint32_t list[GK_PEAK_SHELLS_MAX];
	unsigned int n = read_limits(c, s->shell);

	s->nb_shells = n > 0 ? n - 1 : 0;
	n = config_list(
		c, "peaks", "veto_shells", "all", list, GK_PEAK_SHELLS_MAX, GK_PEAK_SHELLS_MAX - 1);
	for (unsigned int i = 0; i < n; i++) {
		veto->peaks_shells |= UINT32_C(1) << list[i];
		if (list[i] >= s->nb_shells)
			config_complain(c, "peaks", "veto_shells",
				"must be all, or shells of [peaks] shells, the first of which is "
				"0");
	}
}

void
peak_settings_read(struct peak_settings *s, struct builder_veto *veto, struct config *c,
	const struct geometry_settings *geometry, const struct detector *detector)
{
	static const char *const searches[] = {"no", "hits", "all", NULL};
	struct gk_peak_params *p = &veto->peak;
	struct gk_params *v = &veto->params;
	uint64_t peaks_max = UINT32_MAX;

	memset(s, 0, sizeof(*s));
	v->search = config_choice(c, "peaks", "search", GK_SEARCH_NONE, searches);
	s->known = v->search != GK_SEARCH_NONE;
	p->threshold = config_real(c, "peaks", "threshold", 800, -32768, 32767);
	p->min_snr = config_real(c, "peaks", "min_snr", 5, 0, 1e6);
	p->min_pixels = config_uint(c, "peaks", "min_pix_count", 2, 0, UINT32_MAX);
	p->max_pixels = config_uint(c, "peaks", "max_pix_count", 200, 1, UINT32_MAX);
	p->bg_radius = config_uint(c, "peaks", "local_bg_radius", 3, 0, GK_PEAK_RADIUS_MAX);
	p->saturated = config_bool(c, "peaks", "use_saturated", true);
	s->min_res = config_uint(c, "peaks", "min_res", 0, 0, GK_PEAK_BINS_MAX);
	s->max_res = config_uint_word(c, "peaks", "max_res", "none", 0, 1, GK_PEAK_BINS_MAX);
	v->peaks_min = config_uint(c, "peaks", "peaks_min", 10, 0, GK_PEAKS_MAX);
	config_uint_or(c, "peaks", "peaks_max", "none", &peaks_max, 0, UINT32_MAX);
	v->peaks_max = peaks_max;
	s->max = config_uint(c, "peaks", "max", GK_PEAKS_MAX, 1, GK_PEAKS_MAX);
	read_shells(s, v, c);
	if (p->min_pixels > p->max_pixels)
		config_complain(c, "peaks", "max_pix_count", "must not be less than min_pix_count");
	if (v->peaks_min > v->peaks_max)
		config_complain(c, "peaks", "peaks_max", "must not be less than peaks_min");
	if (s->known)
		check_geometry(s, p, c, geometry, detector);
}

int
peak_settings_map(const struct peak_settings *s, const struct geometry *g, uint16_t *bin,
	struct gk_peak_panel *panel, uint32_t *nb_bins)
{
	uint32_t all_bins;
	int ret;

	/* masks; bins are made again, because those of masked pixels are needed, too */
	ret = pixels_bins(g, bin, &all_bins);
	if (ret != 0)
		return ret;
	*nb_bins = 0;
	for (uint32_t i = 0; i < g->nb_panels; i++) {
		const struct geometry_panel *p = &g->panel[i];

		panel[i] = (struct gk_peak_panel){
			p->fs_min, p->ss_min, p->width, p->height, (float)p->max_adu};
		for (uint32_t ss = 0; ss < p->height; ss++) {
			uint16_t *row = bin + (uint64_t)(p->ss_min + ss) * g->cols + p->fs_min;

			for (uint32_t fs = 0; fs < p->width; fs++) {
				const uint16_t masked =
					row[fs] == GEOMETRY_MASKED ? GK_PEAK_MASKED : 0;

				row[fs] = gk_peak_bin(p->corner_x + fs * p->fs_x + ss * p->ss_x,
						  p->corner_y + fs * p->fs_y + ss * p->ss_y,
						  s->min_res, s->max_res) |
					masked;
				if (!(row[fs] & GK_PEAK_MASKED) && row[fs] >= *nb_bins)
					*nb_bins = row[fs] + 1u;
			}
		}
	}
	return 0;
}

bool
peak_settings_same_map(const struct geometry *a, const struct geometry *b)
{
	return a->nb_panels == b->nb_panels && a->nb_bad == b->nb_bad &&
		memcmp(a->panel, b->panel, sizeof(a->panel)) == 0 &&
		memcmp(a->bad, b->bad, sizeof(a->bad)) == 0;
}
