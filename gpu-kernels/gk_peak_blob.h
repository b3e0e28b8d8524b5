/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Definition of the arithmetic of peaks: limits of a radial bin, fill of a blob, its ring, its
 * measures.
 *
 * This is the only definition. Host and CUDA implementations compile this header. All numbers are
 * f32 unless a type says otherwise. Every operation is rounded once and none is fused, as in
 * gk_pixel.h, and sums are in the order in which peakfinder8 adds.
 */
#ifndef GK_PEAK_BLOB_H
#define GK_PEAK_BLOB_H

#include <float.h>

#include "gk_peaks.h"
#include "gk_pixel.h"

/** clipping rounds; all are executed, even if the limits no longer change */
#define GK_PEAK_ROUNDS 5

/** Square root, rounded once. */
GK_FN float
gk_sqrt(float a)
{
#ifdef __CUDA_ARCH__
	return __fsqrt_rn(a);
#else
	return sqrtf(a);
#endif
}

/** @return a / |b| in f64, rounded to f32 */
GK_FN float
gk_peak_quotient(float a, float b)
{
#ifdef __CUDA_ARCH__
	return __double2float_rn(__ddiv_rn((double)a, fabs((double)b)));
#else
	return (float)((double)a / fabs((double)b));
#endif
}

/** Pixels of a radial bin between two limits. */
struct gk_peak_sums {
	int64_t n;
	int64_t sum;
	int64_t squares;
};

/** Limits of a radial bin: background is lower < photons < upper; above `upper` is a hit. */
struct gk_peak_limits {
	float offset; /**< mean of the background */
	float upper;
	float lower;
};

/** Limits before the first round. */
GK_FN struct gk_peak_limits
gk_peak_first_limits(void)
{
	const struct gk_peak_limits first = {0.0f, 1e9f, -1e9f};

	return first;
}

/**
 * Limits after a round.
 * @param n            pixels that were between the previous limits
 * @param sum,squares  of their photons
 */
GK_FN struct gk_peak_limits
gk_peak_clip(int64_t n, float sum, float squares, const struct gk_peak_params *params)
{
	/* An empty bin: no hit, and all positive pixels are background in the next round. */
	struct gk_peak_limits l = {0.0f, FLT_MAX, FLT_MIN};
	float variance, sigma;

	if (n == 0)
		return l;
	l.offset = gk_div(sum, (float)n);
	variance = gk_sub(gk_div(squares, (float)n), gk_mul(l.offset, l.offset));
	/* a negative variance, from rounding, stays unchanged */
	sigma = variance >= 0 ? gk_sqrt(variance) : variance;
	sigma = gk_mul(params->min_snr, sigma);
	l.upper = gk_add(l.offset, sigma);
	l.upper = l.upper > params->threshold ? l.upper : params->threshold;
	l.lower = gk_sub(l.offset, sigma);
	return l;
}

/**
 * Return 1 if the peaks of a frame meet the limits of the veto.
 * @param shell  peaks by resolution shell
 */
GK_FN int
gk_peaks_are_hit(const struct gk_params *params, uint32_t peaks, const uint32_t *shell)
{
	uint32_t n = 0;

	if (params->peaks_shells == 0)
		return peaks >= params->peaks_min && peaks <= params->peaks_max;
	for (uint32_t i = 0; i < GK_PEAK_SHELLS_MAX; i++)
		n += (params->peaks_shells >> i & 1) != 0 ? shell[i] : 0;
	return n >= params->peaks_min && n <= params->peaks_max;
}

/** A range of integers; empty if first > last. */
struct gk_peak_range {
	int32_t first, last;
};

/** Integers of 16 bits between the limits of a bin. */
GK_FN struct gk_peak_range
gk_peak_between(const struct gk_peak_limits *l)
{
	struct gk_peak_range r = {INT16_MIN, INT16_MAX};

	if (l->lower >= (float)INT16_MAX)
		r.first = INT16_MAX + 1;
	else if (l->lower >= (float)INT16_MIN)
		r.first = (int32_t)floorf(l->lower) + 1;
	if (l->upper <= (float)INT16_MIN)
		r.last = INT16_MIN - 1;
	else if (l->upper <= (float)INT16_MAX)
		r.last = (int32_t)ceilf(l->upper) - 1;
	return r;
}

/** Input of the search of a frame. */
struct gk_peak_frame {
	const int16_t *photons;	  /**< [rows][cols] */
	const float *photons_f32; /**< instead of `photons`; NULL: none */
	const uint16_t *bin;	  /**< gk_peak_map.bin */
	uint32_t cols;
	const float *offset; /**< of the GK_PEAK_BIN_MASK + 1 possible bins; without pixels: 0 */
	const float *upper;
};

/**
 * Hits: a bit for each pixel, bit fs % 32 of word fs / 32 of its row. A hit is a pixel that is
 * above `upper` of its bin. Bits are cleared when a blob takes the pixel. There are 2 more words
 * before the first row and after the last one.
 */
struct gk_peak_hits {
	uint32_t *word;
	uint32_t row_words;
};

/** Photons of a pixel; NaN, for which every comparison is false: not used. */
GK_FN float
gk_peak_photons(const struct gk_peak_frame *f, uint64_t at)
{
	float photons;

	if (f->bin[at] & GK_PEAK_MASKED)
		return gk_nan();
	if (f->photons_f32 == NULL)
		return f->photons[at] == INT16_MIN ? gk_nan() : (float)f->photons[at];
	photons = f->photons_f32[at];
	if (fabsf(photons) <= FLT_MAX)
		return photons;
	return photons > 0 ? (float)INT16_MAX : gk_nan();
}

/** A pixel of a blob: row << 16 | column, within the panel. @{ */
GK_FN uint32_t
gk_peak_position(uint32_t fs, uint32_t ss)
{
	return ss << 16 | fs;
}

GK_FN uint32_t
gk_peak_fs(uint32_t position)
{
	return position & 0xFFFF;
}

GK_FN uint32_t
gk_peak_ss(uint32_t position)
{
	return position >> 16;
}
/** @} */

/** Index of a pixel of a panel in the frame. */
GK_FN uint64_t
gk_peak_at(
	const struct gk_peak_frame *f, const struct gk_peak_panel *panel, uint32_t fs, uint32_t ss)
{
	return (uint64_t)(panel->ss + ss) * f->cols + panel->fs + fs;
}

/** The hits among 3 pixels of a row, of which `fs` is the middle one, in the panel. */
GK_FN uint32_t
gk_peak_three(const struct gk_peak_hits *hits, const struct gk_peak_panel *panel, uint32_t fs,
	uint32_t ss)
{
	const int64_t first = (int64_t)panel->fs + fs - 1;
	const uint32_t *word = hits->word + (int64_t)(panel->ss + ss) * hits->row_words +
		(first >> 5); /* -1: the word before the row */
	const uint64_t two = word[0] | (uint64_t)word[1] << 32;
	uint32_t three = (uint32_t)(two >> (first & 31)) & 7;

	three &= fs == 0 ? 6 : 7;
	return three & (fs + 1 == panel->width ? 3 : 7);
}

/**
 * Clear a hit. The words are shared with other blobs, which other threads of a GPU may fill; all
 * neighbouring hits belong to the same blob.
 */
GK_FN void
gk_peak_take(const struct gk_peak_hits *hits, const struct gk_peak_panel *panel, uint32_t fs,
	uint32_t ss)
{
	const uint32_t column = panel->fs + fs;
	uint32_t *word = hits->word + (uint64_t)(panel->ss + ss) * hits->row_words + column / 32;

#ifdef __CUDA_ARCH__
	atomicAnd(word, ~(1u << column % 32));
#else
	*word &= ~(1u << column % 32);
#endif
}

/**
 * Take the blob of a seed: breadth first, neighbours in raster order.
 * @param blob  receives positions in fill order; room for all pixels of the blob
 * @return number of pixels
 */
GK_FN uint32_t
gk_peak_fill(const struct gk_peak_hits *hits, const struct gk_peak_panel *panel, uint32_t seed,
	uint32_t *blob)
{
	uint32_t n = 1;

	blob[0] = seed;
	gk_peak_take(hits, panel, gk_peak_fs(seed), gk_peak_ss(seed));
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t fs = gk_peak_fs(blob[i]), ss = gk_peak_ss(blob[i]);
		/* bits 0 to 8: 3 x 3 pixels in raster order; the middle one is taken already */
		uint32_t nine = gk_peak_three(hits, panel, fs, ss) << 3;

		if (ss > 0)
			nine |= gk_peak_three(hits, panel, fs, ss - 1);
		if (ss + 1 < panel->height)
			nine |= gk_peak_three(hits, panel, fs, ss + 1) << 6;
		while (nine != 0) {
#ifdef __CUDA_ARCH__
			const uint32_t bit = (uint32_t)__ffs((int)nine) - 1;
#else
			const uint32_t bit = (uint32_t)__builtin_ctz(nine);
#endif
			const uint32_t to_fs = fs + bit % 3 - 1, to_ss = ss + bit / 3 - 1;

			nine &= nine - 1;
			gk_peak_take(hits, panel, to_fs, to_ss);
			blob[n++] = gk_peak_position(to_fs, to_ss);
		}
	}
	return n;
}

/** Background around a peak. */
struct gk_peak_ring {
	float mean, sigma, max;
};

/** Pixels of a disc that are in a panel, row by row. */
struct gk_peak_disc {
	uint64_t origin;     /* index of the panel's first pixel */
	int32_t fs, ss;	     /* centre, in the panel */
	int32_t radius;	     /* the last row and column are missing, as in CrystFEL */
	int32_t first, end;  /* rows, relative to the centre */
	int32_t left, right; /* columns, likewise */
};

GK_FN struct gk_peak_disc
gk_peak_disc(const struct gk_peak_frame *f, const struct gk_peak_panel *panel, int32_t fs,
	int32_t ss, uint32_t bg_radius)
{
	const int32_t radius = 2 * (int32_t)bg_radius;
	const int32_t height = (int32_t)panel->height, width = (int32_t)panel->width;
	const struct gk_peak_disc d = {gk_peak_at(f, panel, 0, 0), fs, ss, radius,
		ss > radius ? -radius : -ss, ss + radius < height ? radius : height - ss,
		fs > radius ? -radius : -fs, fs + radius < width ? radius : width - fs};

	return d;
}

/**
 * Columns of a row of a disc.
 * @param half  half the width of the previous row that was asked for; 0 at first
 */
GK_FN struct gk_peak_range
gk_peak_disc_row(const struct gk_peak_disc *d, int32_t row, int32_t *half)
{
	const int32_t rest = d->radius * d->radius - row * row;
	struct gk_peak_range r;

	while ((*half + 1) * (*half + 1) <= rest)
		++*half;
	while (*half * *half > rest)
		--*half;
	r.first = d->left > -*half ? d->left : -*half;
	r.last = d->right - 1 < *half ? d->right - 1 : *half;
	return r;
}

/** Background of a disc, as sums whose additions are rounded. */
struct gk_peak_background {
	uint32_t n;
	float sum, squares, max;
};

/** Add a pixel of the background. Pixels of a disc are added in raster order. */
GK_FN void
gk_peak_background_add(struct gk_peak_background *b, float photons)
{
	b->n++;
	b->sum = gk_add(b->sum, photons);
	b->squares = gk_add(b->squares, gk_mul(photons, photons));
	b->max = photons > b->max ? photons : b->max;
}

GK_FN struct gk_peak_background
gk_peak_disc_rounded(const struct gk_peak_frame *f, const struct gk_peak_disc *d)
{
	struct gk_peak_background b = {0, 0.0f, 0.0f, 0.0f};
	int32_t half = 0;

	for (int32_t i = d->first; i < d->end; i++) {
		const struct gk_peak_range r = gk_peak_disc_row(d, i, &half);
		const uint64_t row = d->origin + (uint64_t)(d->ss + i) * f->cols;

		for (int32_t k = r.first; k <= r.last; k++) {
			const uint64_t at = row + (uint32_t)(d->fs + k);
			const float photons = gk_peak_photons(f, at);

			if (photons < f->upper[f->bin[at] & GK_PEAK_BIN_MASK])
				gk_peak_background_add(&b, photons);
		}
	}
	return b;
}

/** The same in integers, which are exact. */
GK_FN struct gk_peak_sums
gk_peak_disc_exact(const struct gk_peak_frame *f, const struct gk_peak_disc *d, int32_t *highest)
{
	const float *upper = f->upper;
	struct gk_peak_sums s;
	int64_t squares = 0;
	int32_t n = 0, sum = 0, max = 0, half = 0;

	for (int32_t i = d->first; i < d->end; i++) {
		const struct gk_peak_range r = gk_peak_disc_row(d, i, &half);
		const uint64_t at = d->origin + (uint64_t)(d->ss + i) * f->cols + (uint32_t)d->fs;
		const int16_t *x = f->photons + at + r.first;
		const uint16_t *b = f->bin + at + r.first;

		for (int32_t k = r.last - r.first; k >= 0; k--, x++, b++) {
			const int32_t photons = *x;

			if (*b & GK_PEAK_MASKED || photons == INT16_MIN ||
				!((float)photons < upper[*b]))
				continue;
			n++;
			sum += photons;
			squares += photons * photons;
			max = photons > max ? photons : max;
		}
	}
	s.n = n;
	s.sum = sum;
	s.squares = squares;
	*highest = max;
	return s;
}

/** Whether exact sums are those of gk_peak_disc_rounded(): integers up to 2^24 are not rounded. */
GK_FN int
gk_peak_is_exact(const struct gk_peak_sums *exact)
{
	return exact->squares <= 1 << 24;
}

GK_FN struct gk_peak_background
gk_peak_background_from(const struct gk_peak_sums *exact, int32_t highest)
{
	const struct gk_peak_background b = {
		(uint32_t)exact->n, (float)exact->sum, (float)exact->squares, (float)highest};

	return b;
}

GK_FN struct gk_peak_ring
gk_peak_ring_from(const struct gk_peak_frame *f, const struct gk_peak_disc *d,
	const struct gk_peak_background *b)
{
	struct gk_peak_ring ring = {0.0f, 0.01f, b->max};
	const float n = (float)b->n;
	float variance;

	if (b->n == 0) {
		const uint64_t at = d->origin + (uint64_t)d->ss * f->cols + (uint32_t)d->fs;

		ring.mean = f->offset[f->bin[at] & GK_PEAK_BIN_MASK];
		return ring;
	}
	ring.mean = gk_div(b->sum, n);
	variance = gk_sub(gk_div(b->squares, n), gk_mul(ring.mean, ring.mean));
	if (variance >= 0)
		ring.sigma = gk_sqrt(variance);
	return ring;
}

/**
 * Background of the pixels around (fs, ss). Pixels of blobs are hits, so they are not counted as
 * background.
 */
GK_FN struct gk_peak_ring
gk_peak_ring(const struct gk_peak_frame *f, const struct gk_peak_panel *panel, int32_t fs,
	int32_t ss, uint32_t bg_radius)
{
	const struct gk_peak_disc d = gk_peak_disc(f, panel, fs, ss, bg_radius);
	struct gk_peak_sums exact = {0, 0, INT64_MAX};
	struct gk_peak_background b;
	int32_t highest = 0;

	if (f->photons_f32 == NULL)
		exact = gk_peak_disc_exact(f, &d, &highest);
	b = gk_peak_is_exact(&exact) ? gk_peak_background_from(&exact, highest)
				     : gk_peak_disc_rounded(f, &d);
	return gk_peak_ring_from(f, &d, &b);
}

/** Outcome of a blob. */
enum gk_peak_verdict {
	GK_PEAK_DROPPED,   /**< no peak */
	GK_PEAK_FOUND,	   /**< a peak */
	GK_PEAK_SATURATED, /**< a peak that is left out, but takes a place of the list */
};

/** Sums of a blob for its first centre. Pixels are added in fill order. */
struct gk_peak_centre {
	float total, fs, ss;
};

/** Weight of a pixel: distance to the bin's background. */
GK_FN float
gk_peak_weight(const struct gk_peak_frame *f, uint64_t at)
{
	return fabsf(gk_sub(gk_peak_photons(f, at), f->offset[f->bin[at]]));
}

GK_FN void
gk_peak_centre_add(struct gk_peak_centre *c, uint32_t position, float weight)
{
	c->total = gk_add(c->total, weight);
	c->fs = gk_add(c->fs, gk_mul(weight, (float)gk_peak_fs(position)));
	c->ss = gk_add(c->ss, gk_mul(weight, (float)gk_peak_ss(position)));
}

/** The pixel nearest to the centre. @return 0: the blob has no weight */
GK_FN int
gk_peak_centre_pixel(
	const struct gk_peak_centre *c, const struct gk_peak_panel *panel, int32_t *fs, int32_t *ss)
{
	if ((double)c->total < 1e-10)
		return 0;
	*fs = (int32_t)rintf(gk_div(c->fs, c->total));
	*ss = (int32_t)rintf(gk_div(c->ss, c->total));
	/* sums over very large blobs may round to a place outside the panel */
	*fs = *fs < (int32_t)panel->width ? *fs : (int32_t)panel->width - 1;
	*ss = *ss < (int32_t)panel->height ? *ss : (int32_t)panel->height - 1;
	return 1;
}

GK_FN int
gk_peak_first_centre(const struct gk_peak_frame *f, const struct gk_peak_panel *panel,
	const uint32_t *blob, uint32_t n, int32_t *fs, int32_t *ss)
{
	struct gk_peak_centre c = {0.0f, 0.0f, 0.0f};

	for (uint32_t i = 0; i < n; i++)
		gk_peak_centre_add(&c, blob[i],
			gk_peak_weight(
				f, gk_peak_at(f, panel, gk_peak_fs(blob[i]), gk_peak_ss(blob[i]))));
	return gk_peak_centre_pixel(&c, panel, fs, ss);
}

/** Sums of a blob of a known background. Pixels are added in fill order. */
struct gk_peak_above {
	float intensity, raw, max, fs, ss;
};

GK_FN void
gk_peak_above_add(struct gk_peak_above *s, uint32_t position, float photons, float mean)
{
	const float net = gk_sub(photons, mean);

	s->intensity = gk_add(s->intensity, net);
	s->raw = gk_add(s->raw, photons);
	s->max = net > s->max ? net : s->max;
	s->fs = gk_add(s->fs, gk_mul(photons, (float)gk_peak_fs(position)));
	s->ss = gk_add(s->ss, gk_mul(photons, (float)gk_peak_ss(position)));
}

/**
 * Measure a blob of a known background by its sums.
 * @param bin   of its seed
 * @param n     number of pixels
 * @param peak  set unless the blob is dropped
 */
GK_FN enum gk_peak_verdict
gk_peak_measure_sums(const struct gk_peak_panel *panel, const struct gk_peak_params *params,
	uint32_t bin, uint32_t n, const struct gk_peak_ring *ring, const struct gk_peak_above *s,
	struct gk_peak *peak)
{
	if (fabs((double)s->raw) < 1e-10)
		return GK_PEAK_DROPPED;
	peak->fs = gk_peak_quotient(s->fs, s->raw);
	peak->ss = gk_peak_quotient(s->ss, s->raw);
	peak->intensity = s->intensity;
	peak->snr = fabs((double)ring->sigma) > 1e-10 ? gk_div(s->intensity, ring->sigma) : 0.0f;
	peak->background = ring->mean;
	peak->pixels = n;
	peak->bin = bin;
	if (!(peak->snr >= params->min_snr) || !(s->max >= gk_sub(ring->max, ring->mean)) ||
		!(peak->fs >= 0 && peak->fs <= (float)(panel->width - 1)) ||
		!(peak->ss >= 0 && peak->ss <= (float)(panel->height - 1)))
		return GK_PEAK_DROPPED;
	return params->saturated == 0 && s->max > panel->max_adu ? GK_PEAK_SATURATED
								 : GK_PEAK_FOUND;
}

/** Measure a blob. @param blob  n positions in fill order. Others as gk_peak_measure_sums() */
GK_FN enum gk_peak_verdict
gk_peak_measure(const struct gk_peak_frame *f, const struct gk_peak_panel *panel,
	const struct gk_peak_params *params, const uint32_t *blob, uint32_t n, struct gk_peak *peak)
{
	struct gk_peak_above sums = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
	struct gk_peak_ring ring;
	int32_t fs, ss;

	if (n < params->min_pixels || n > params->max_pixels ||
		!gk_peak_first_centre(f, panel, blob, n, &fs, &ss))
		return GK_PEAK_DROPPED;
	ring = gk_peak_ring(f, panel, fs, ss, params->bg_radius);
	for (uint32_t i = 0; i < n; i++)
		gk_peak_above_add(&sums, blob[i],
			gk_peak_photons(
				f, gk_peak_at(f, panel, gk_peak_fs(blob[i]), gk_peak_ss(blob[i]))),
			ring.mean);
	return gk_peak_measure_sums(panel, params,
		f->bin[gk_peak_at(f, panel, gk_peak_fs(blob[0]), gk_peak_ss(blob[0]))], n, &ring,
		&sums, peak);
}

/** Add a peak to the list. @return 0: the list is full, and the search ends */
GK_FN int
gk_peak_append(struct gk_peaks *out, const struct gk_peak_params *params, uint32_t panel,
	enum gk_peak_verdict verdict, const struct gk_peak *peak)
{
	struct gk_peak *to = &out->peak[out->count];

	if (verdict == GK_PEAK_DROPPED)
		return 1;
	if (out->found++ == GK_PEAKS_MAX)
		return 0;
	if (verdict == GK_PEAK_SATURATED)
		return 1;
	*to = *peak;
	to->panel = panel;
	out->count++;
	for (uint32_t i = 0; i < params->shells; i++)
		if (peak->bin >= params->shell[i] && peak->bin < params->shell[i + 1])
			out->shell[i]++;
	return 1;
}

#endif /* GK_PEAK_BLOB_H */
