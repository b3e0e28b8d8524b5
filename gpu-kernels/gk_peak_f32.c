/* SPDX-License-Identifier: BSD-3-Clause */
/* Search for peaks in photons that are not rounded to integers, pass by pass as in CrystFEL. */

#include <string.h>

#include "gk_peak_finder.h"

static void
sum_panel(struct gk_peak_finder *f, const struct gk_peak_frame *frame,
	const struct gk_peak_panel *panel)
{
	for (uint32_t ss = 0; ss < panel->height; ss++) {
		const uint64_t row = gk_peak_at(frame, panel, 0, ss);

		for (uint64_t at = row; at < row + panel->width; at++) {
			const float photons = gk_peak_photons(frame, at);
			struct gk_peak_round *r;

			if (photons != photons)
				continue;
			r = &f->round[frame->bin[at]];
			if (!(photons > r->lower && photons < r->upper))
				continue;
			r->n++;
			r->sum = gk_add(r->sum, photons);
			r->squares = gk_add(r->squares, gk_mul(photons, photons));
		}
	}
}

static void
clip_bins(struct gk_peak_finder *f, const struct gk_peak_frame *frame)
{
	const struct gk_peak_limits first = gk_peak_first_limits();

	for (uint32_t b = 0; b < f->nb_bins; b++)
		f->round[b] = (struct gk_peak_round){first.lower, first.upper, 0, 0, 0};
	for (uint32_t i = 0; i < GK_PEAK_ROUNDS; i++) {
		for (uint32_t k = 0; k < f->map.nb_panels; k++)
			sum_panel(f, frame, &f->map.panel[k]);
		for (uint32_t b = 0; b < f->nb_bins; b++) {
			struct gk_peak_round *r = &f->round[b];
			const struct gk_peak_limits l =
				gk_peak_clip(r->n, r->sum, r->squares, &f->params);

			*r = (struct gk_peak_round){l.lower, l.upper, 0, 0, 0};
			f->offset[b] = l.offset;
			f->upper[b] = l.upper;
		}
	}
}

static void
mark_hits(struct gk_peak_finder *f, const struct gk_peak_frame *frame)
{
	uint64_t at = 0;

	memset(f->strips, 0, (uint64_t)f->map.rows * f->nb_strips * sizeof(*f->strips));
	for (uint32_t row = 0; row < f->map.rows; row++) {
		uint32_t *word = f->hits.word + (uint64_t)row * f->hits.row_words;
		uint32_t *strip = f->strips + (uint64_t)row * f->nb_strips;

		for (uint32_t w = 0; w < f->hits.row_words; w++) {
			word[w] = 0;
			for (uint32_t i = 0; i < 32; i++, at++)
				word[w] |= (uint32_t)(gk_peak_photons(frame, at) >
						   f->upper[f->map.bin[at] & GK_PEAK_BIN_MASK])
					<< i;
			strip[w / 32] |= (uint32_t)(word[w] != 0) << w % 32;
		}
	}
}

void
gk_peaks_find_f32(struct gk_peak_finder *f, const struct gk_peak_params *params,
	const float *photons, struct gk_peaks *out)
{
	const struct gk_peak_frame frame = {
		NULL, photons, f->map.bin, f->map.cols, f->offset, f->upper};

	f->params = *params;
	clip_bins(f, &frame);
	mark_hits(f, &frame);
	gk_peak_search(f, &frame, out);
}
