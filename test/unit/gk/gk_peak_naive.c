/* SPDX-License-Identifier: BSD-3-Clause */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gk_peak_naive.h"

struct naive {
	struct gk_peak_map map;
	uint32_t nb_bins;
	const float *image;
	bool *taken;
	uint32_t *x, *y; /* of a blob, in its panel */
	float *up, *lo, *off;
	float *s, *q;
	double *exact_s, *exact_q;
	uint64_t *count;
};

struct naive *
naive_open(const struct gk_peak_map *map)
{
	const uint64_t pixels = (uint64_t)map->rows * map->cols;
	struct naive *n = calloc(1, sizeof(*n));

	if (n == NULL)
		abort();
	n->map = *map;
	for (uint64_t i = 0; i < pixels; i++)
		if ((uint32_t)(map->bin[i] & GK_PEAK_BIN_MASK) >= n->nb_bins)
			n->nb_bins = (uint32_t)(map->bin[i] & GK_PEAK_BIN_MASK) + 1;
	n->taken = calloc(pixels, sizeof(*n->taken));
	n->x = calloc(pixels, sizeof(*n->x));
	n->y = calloc(pixels, sizeof(*n->y));
	n->up = calloc(n->nb_bins, sizeof(*n->up));
	n->lo = calloc(n->nb_bins, sizeof(*n->lo));
	n->off = calloc(n->nb_bins, sizeof(*n->off));
	n->s = calloc(n->nb_bins, sizeof(*n->s));
	n->q = calloc(n->nb_bins, sizeof(*n->q));
	n->exact_s = calloc(n->nb_bins, sizeof(*n->exact_s));
	n->exact_q = calloc(n->nb_bins, sizeof(*n->exact_q));
	n->count = calloc(n->nb_bins, sizeof(*n->count));
	if (n->taken == NULL || n->x == NULL || n->y == NULL || n->up == NULL || n->lo == NULL ||
		n->off == NULL || n->s == NULL || n->q == NULL || n->exact_s == NULL ||
		n->exact_q == NULL || n->count == NULL)
		abort();
	return n;
}

void
naive_close(struct naive *n)
{
	free(n->taken);
	free(n->x);
	free(n->y);
	free(n->up);
	free(n->lo);
	free(n->off);
	free(n->s);
	free(n->q);
	free(n->exact_s);
	free(n->exact_q);
	free(n->count);
	free(n);
}

void
naive_from_i16(float *to, const int16_t *photons, uint64_t pixels)
{
	for (uint64_t i = 0; i < pixels; i++)
		to[i] = photons[i] == INT16_MIN ? NAN : (float)photons[i];
}

static uint64_t
pixel_at(const struct naive *n, const struct gk_peak_panel *p, int64_t fs, int64_t ss)
{
	return (uint64_t)(p->ss + ss) * n->map.cols + (uint64_t)(p->fs + fs);
}

static uint32_t
bin_at(const struct naive *n, uint64_t at)
{
	return n->map.bin[at] & GK_PEAK_BIN_MASK;
}

static bool
is_good(const struct naive *n, uint64_t at)
{
	return !(n->map.bin[at] & GK_PEAK_MASKED);
}

static bool
is_hit(const struct naive *n, uint64_t at)
{
	return is_good(n, at) && n->image[at] > n->up[bin_at(n, at)];
}

static void
sum_panel(struct naive *n, const struct gk_peak_panel *p, enum naive_sums sums)
{
	for (uint32_t ss = 0; ss < p->height; ss++) {
		for (uint32_t fs = 0; fs < p->width; fs++) {
			const uint64_t at = pixel_at(n, p, fs, ss);
			const uint32_t b = bin_at(n, at);
			const float v = n->image[at];

			if (!is_good(n, at) || !(v < n->up[b] && v > n->lo[b]))
				continue;
			n->count[b]++;
			if (sums == NAIVE_EXACT) {
				n->exact_s[b] += (double)v;
				n->exact_q[b] += (double)v * (double)v;
			} else {
				n->s[b] += v;
				n->q[b] += v * v;
			}
		}
	}
}

static void
clip(struct naive *n, const struct gk_peak_params *params, enum naive_sums sums)
{
	for (uint32_t b = 0; b < n->nb_bins; b++) {
		n->up[b] = 1e9f;
		n->lo[b] = -1e9f;
	}
	for (int round = 0; round < 5; round++) {
		memset(n->count, 0, n->nb_bins * sizeof(*n->count));
		memset(n->s, 0, n->nb_bins * sizeof(*n->s));
		memset(n->q, 0, n->nb_bins * sizeof(*n->q));
		memset(n->exact_s, 0, n->nb_bins * sizeof(*n->exact_s));
		memset(n->exact_q, 0, n->nb_bins * sizeof(*n->exact_q));
		for (uint32_t i = 0; i < n->map.nb_panels; i++)
			sum_panel(n, &n->map.panel[i], sums);
		for (uint32_t b = 0; b < n->nb_bins; b++) {
			const float count = (float)n->count[b];
			float mean, variance, sigma, part;

			if (n->count[b] == 0) {
				n->off[b] = 0;
				n->up[b] = FLT_MAX;
				n->lo[b] = FLT_MIN;
				continue;
			}
			if (sums == NAIVE_EXACT) {
				n->s[b] = (float)n->exact_s[b];
				n->q[b] = (float)n->exact_q[b];
			}
			mean = n->s[b] / count;
			part = n->q[b] / count;
			variance = part - mean * mean;
			sigma = variance;
			if (variance >= 0)
				sigma = sqrtf(variance);
			n->off[b] = mean;
			n->up[b] = fmaxf(mean + params->min_snr * sigma, params->threshold);
			n->lo[b] = mean - params->min_snr * sigma;
		}
	}
}

static uint32_t
fill(struct naive *n, const struct gk_peak_panel *p, uint32_t fs, uint32_t ss)
{
	static const int step_fs[8] = {-1, 0, 1, -1, 1, -1, 0, 1};
	static const int step_ss[8] = {-1, -1, -1, 0, 0, 1, 1, 1};
	uint32_t pixels = 1;

	n->x[0] = fs;
	n->y[0] = ss;
	n->taken[pixel_at(n, p, fs, ss)] = true;
	for (uint32_t i = 0; i < pixels; i++) {
		for (int k = 0; k < 8; k++) {
			const int64_t x = (int64_t)n->x[i] + step_fs[k];
			const int64_t y = (int64_t)n->y[i] + step_ss[k];

			if (x < 0 || y < 0 || x >= p->width || y >= p->height)
				continue;
			if (n->taken[pixel_at(n, p, x, y)] || !is_hit(n, pixel_at(n, p, x, y)))
				continue;
			n->taken[pixel_at(n, p, x, y)] = true;
			n->x[pixels] = (uint32_t)x;
			n->y[pixels] = (uint32_t)y;
			pixels++;
		}
	}
	return pixels;
}

/* @return 0: no peak; 1: a peak; 2: a peak above max_adu */
static int
measure(const struct naive *n, const struct gk_peak_panel *p, const struct gk_peak_params *params,
	uint32_t pixels, struct gk_peak *peak)
{
	const int radius = 2 * (int)params->bg_radius;
	float w_sum = 0, w_fs = 0, w_ss = 0, sum = 0, squares = 0, largest = 0, mean, sigma;
	float intensity = 0, raw = 0, highest = 0, fs = 0, ss = 0;
	uint32_t count = 0;
	int64_t cx, cy;

	if (pixels < params->min_pixels || pixels > params->max_pixels)
		return 0;
	for (uint32_t i = 0; i < pixels; i++) {
		const uint64_t at = pixel_at(n, p, n->x[i], n->y[i]);
		const float w = fabsf(n->image[at] - n->off[bin_at(n, at)]);

		w_sum += w;
		w_fs += w * (float)n->x[i];
		w_ss += w * (float)n->y[i];
	}
	if ((double)w_sum < 1e-10)
		return 0;
	cx = lrintf(w_fs / w_sum);
	cy = lrintf(w_ss / w_sum);
	cx = cx >= p->width ? p->width - 1 : cx;
	cy = cy >= p->height ? p->height - 1 : cy;
	for (int dy = -radius; dy < radius; dy++) {
		for (int dx = -radius; dx < radius; dx++) {
			const int64_t x = cx + dx, y = cy + dy;
			uint64_t at;
			float v;

			if (x < 0 || y < 0 || x >= p->width || y >= p->height ||
				sqrt((double)(dx * dx + dy * dy)) > radius)
				continue;
			at = pixel_at(n, p, x, y);
			v = n->image[at];
			if (!is_good(n, at) || n->taken[at] || !(v < n->up[bin_at(n, at)]))
				continue;
			count++;
			sum += v;
			squares += v * v;
			if (v > largest)
				largest = v;
		}
	}
	mean = n->off[bin_at(n, pixel_at(n, p, cx, cy))];
	sigma = 0.01f;
	if (count > 0) {
		float variance;

		mean = sum / (float)count;
		variance = squares / (float)count - mean * mean;
		sigma = variance >= 0 ? sqrtf(variance) : 0.01f;
	}
	for (uint32_t i = 0; i < pixels; i++) {
		const float v = n->image[pixel_at(n, p, n->x[i], n->y[i])];

		intensity += v - mean;
		raw += v;
		if (v - mean > highest)
			highest = v - mean;
		fs += v * (float)n->x[i];
		ss += v * (float)n->y[i];
	}
	if (fabs((double)raw) < 1e-10)
		return 0;
	fs = (float)((double)fs / fabs((double)raw));
	ss = (float)((double)ss / fabs((double)raw));
	*peak = (struct gk_peak){.fs = fs,
		.ss = ss,
		.intensity = intensity,
		.snr = fabs((double)sigma) > 1e-10 ? intensity / sigma : 0,
		.background = mean,
		.pixels = pixels,
		.panel = (uint32_t)(p - n->map.panel),
		.bin = bin_at(n, pixel_at(n, p, n->x[0], n->y[0]))};
	if (!(peak->snr >= params->min_snr) || highest < largest - mean || fs < 0 || ss < 0 ||
		fs > (float)(p->width - 1) || ss > (float)(p->height - 1))
		return 0;
	return highest > p->max_adu ? 2 : 1;
}

void
naive_find(struct naive *n, const struct gk_peak_params *params, const float *photons,
	enum naive_sums sums, struct gk_peaks *out)
{
	memset(out, 0, sizeof(*out));
	memset(n->taken, 0, (uint64_t)n->map.rows * n->map.cols * sizeof(*n->taken));
	n->image = photons;
	clip(n, params, sums);
	for (uint32_t i = 0; i < n->map.nb_panels; i++) {
		const struct gk_peak_panel *p = &n->map.panel[i];

		for (uint32_t ss = 1; ss + 1 < p->height; ss++) {
			for (uint32_t fs = 1; fs + 1 < p->width; fs++) {
				const uint64_t at = pixel_at(n, p, fs, ss);
				struct gk_peak peak;
				int found;

				if (n->taken[at] || !is_hit(n, at))
					continue;
				found = measure(n, p, params, fill(n, p, fs, ss), &peak);
				if (found == 0)
					continue;
				if (++out->found > GK_PEAKS_MAX)
					return;
				if (found == 2 && !params->saturated)
					continue;
				out->peak[out->count++] = peak;
				for (uint32_t k = 0; k < params->shells; k++)
					out->shell[k] += peak.bin >= params->shell[k] &&
						peak.bin < params->shell[k + 1];
			}
		}
	}
}
