/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by tests of the search for peaks: detectors of a few panels, and a comparison of all
 * instruction sets with the restatement of the algorithm.
 */
#ifndef GK_PEAK_RIG_H
#define GK_PEAK_RIG_H

#include "gk_peak_naive.h"
#include "gk_rig.h"

/* A detector: a map with its memory, a search for each instruction set, the restatement. */
struct peak_rig {
	struct gk_peak_map map;
	uint64_t pixels;
	uint16_t *bin;
	struct gk_peak_panel panel[GK_PEAK_PANELS_MAX];
	struct gk_peak_finder *finder[GK_ISAS]; /* NULL: not supported by this CPU */
	struct naive *naive;
	int16_t *photons;
	float *image;
	struct gk_peaks *found, *expected;
};

/* A panel as in the geometry files of the oracles. */
struct peak_rig_panel {
	uint32_t fs, ss, width, height;
	double corner_x, corner_y, fs_x, fs_y, ss_x, ss_y;
	float max_adu;
};

static inline void
peak_rig_open(struct peak_rig *r, uint32_t rows, uint32_t cols)
{
	memset(r, 0, sizeof(*r));
	r->pixels = (uint64_t)rows * cols;
	r->bin = malloc(r->pixels * sizeof(*r->bin));
	r->photons = calloc(r->pixels, sizeof(*r->photons));
	r->image = calloc(r->pixels, sizeof(*r->image));
	r->found = malloc(GK_PEAKS_SIZE);
	r->expected = malloc(GK_PEAKS_SIZE);
	if (r->bin == NULL || r->photons == NULL || r->image == NULL || r->found == NULL ||
		r->expected == NULL)
		abort();
	for (uint64_t i = 0; i < r->pixels; i++)
		r->bin[i] = GK_PEAK_MASKED;
	r->map = (struct gk_peak_map){rows, cols, r->bin, r->panel, 0};
}

static inline void
peak_rig_panel(
	struct peak_rig *r, const struct peak_rig_panel *p, uint32_t min_res, uint32_t max_res)
{
	r->panel[r->map.nb_panels++] =
		(struct gk_peak_panel){p->fs, p->ss, p->width, p->height, p->max_adu};
	for (uint32_t ss = 0; ss < p->height; ss++)
		for (uint32_t fs = 0; fs < p->width; fs++)
			r->bin[(uint64_t)(p->ss + ss) * r->map.cols + p->fs + fs] = gk_peak_bin(
				p->corner_x + fs * p->fs_x + ss * p->ss_x,
				p->corner_y + fs * p->fs_y + ss * p->ss_y, min_res, max_res);
}

/* Call it when the map is complete. */
static inline void
peak_rig_ready(struct peak_rig *r)
{
	char why[160] = "";

	if (gk_peak_map_check(&r->map, why, sizeof(why)) != 0)
		fail_msg("map: %s", why);
	for (enum gk_isa isa = GK_ISA_PLAIN; isa < GK_ISAS; isa++)
		if (gk_isa_choose(isa) == (int)isa)
			assert_int_equal(gk_peak_finder_create(&r->map, isa, &r->finder[isa]), 0);
	r->naive = naive_open(&r->map);
}

static inline void
peak_rig_close(struct peak_rig *r)
{
	for (enum gk_isa isa = GK_ISA_PLAIN; isa < GK_ISAS; isa++)
		gk_peak_finder_destroy(r->finder[isa]);
	if (r->naive != NULL)
		naive_close(r->naive);
	free(r->bin);
	free(r->photons);
	free(r->image);
	free(r->found);
	free(r->expected);
}

static inline void
peak_rig_same(const struct gk_peaks *found, const struct gk_peaks *expected, const char *isa,
	const char *what)
{
	for (uint32_t i = 0; i < expected->count && i < found->count; i++) {
		const struct gk_peak *a = &found->peak[i], *b = &expected->peak[i];

		if (memcmp(a, b, sizeof(*a)) != 0)
			fail_msg(
				"%s, %s: peak %u: panel %u fs %.9g ss %.9g intensity %.9g snr %.9g "
				"background %.9g pixels %u bin %u, expected panel %u fs %.9g ss "
				"%.9g intensity %.9g snr %.9g background %.9g pixels %u bin %u",
				what, isa, i, a->panel, a->fs, a->ss, a->intensity, a->snr,
				a->background, a->pixels, a->bin, b->panel, b->fs, b->ss,
				b->intensity, b->snr, b->background, b->pixels, b->bin);
	}
	if (memcmp(found, expected, sizeof(*found)) != 0)
		fail_msg("%s, %s: %u peaks, %u found, %u in shell 0, expected %u, %u, %u", what,
			isa, found->count, found->found, found->shell[0], expected->count,
			expected->found, expected->shell[0]);
}

/* Find the peaks of r->photons with all sets. @return those of the restatement */
static inline const struct gk_peaks *
peak_rig_check(struct peak_rig *r, const struct gk_peak_params *params, const char *what)
{
	char why[160];

	if (gk_peak_params_check(params, why, sizeof(why)) != 0)
		fail_msg("%s: %s", what, why);
	naive_from_i16(r->image, r->photons, r->pixels);
	naive_find(r->naive, params, r->image, NAIVE_EXACT, r->expected);
	for (enum gk_isa isa = GK_ISA_PLAIN; isa < GK_ISAS; isa++) {
		if (r->finder[isa] == NULL)
			continue;
		memset(r->found, RIG_GUARD, GK_PEAKS_SIZE);
		gk_peaks_find(r->finder[isa], params, r->photons, r->found);
		peak_rig_same(r->found, r->expected, gk_isa_name(isa), what);
	}
	return r->expected;
}

/* The same for r->image, which is not rounded. */
static inline const struct gk_peaks *
peak_rig_check_f32(struct peak_rig *r, const struct gk_peak_params *params, const char *what)
{
	naive_find(r->naive, params, r->image, NAIVE_SEQUENTIAL, r->expected);
	memset(r->found, RIG_GUARD, GK_PEAKS_SIZE);
	gk_peaks_find_f32(r->finder[GK_ISA_PLAIN], params, r->image, r->found);
	peak_rig_same(r->found, r->expected, "f32", what);
	return r->expected;
}

#endif /* GK_PEAK_RIG_H */
