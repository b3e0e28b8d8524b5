/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Radial profile of a frame on the host.
 *
 * A pass adds the photons of valid pixels to counters of 32 bits, which are added to those of 64
 * bits before they can overflow. It notes pixels that are not valid, because there are few of them:
 * counts and norms of bins are those of the map without these pixels.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gk_radial_pass.h"
#include "gk_reason.h"

/* Pixels of a run that plain C tests together. */
#define RUN 32

struct gk_radial {
	struct gk_radial_map map;
	const struct gk_radial_ops *ops;
	struct gk_radial_sums sums;
	uint32_t pixels;  /* added to sums.part so far */
	uint32_t *used;	  /* [nb_bins + 1], pixels of the map */
	uint64_t *weight; /* [nb_bins + 1], their weights */
	int64_t *sum;	  /* [nb_bins + 1] */
};

int
gk_radial_map_check(const struct gk_radial_map *map, char *why, size_t size)
{
	const struct reason reason = {why, size};
	const uint64_t pixels = (uint64_t)map->rows * map->cols;

	if (map->rows == 0 || map->cols == 0 || map->cols % 32 != 0 || pixels > UINT32_MAX)
		return refuse(&reason,
			"%u rows of %u pixels, expected at least one row, a multiple of 32 pixels, "
			"and less than 2^32 in all",
			map->rows, map->cols);
	if (map->nb_bins == 0 || map->nb_bins > GK_RADIAL_BINS_MAX)
		return refuse(
			&reason, "%u bins, expected 1 to %d", map->nb_bins, GK_RADIAL_BINS_MAX);
	for (uint64_t i = 0; i < pixels; i++)
		if (map->bin[i] > map->nb_bins)
			return refuse(&reason,
				"bin %u at column %u, row %u, expected at most %u, which is that "
				"of unused pixels",
				map->bin[i], (uint32_t)(i % map->cols), (uint32_t)(i / map->cols),
				map->nb_bins);
	return 0;
}

static void *
line_alloc(uint64_t count, uint64_t size)
{
	const uint64_t bytes = (count * size + 63) / 64 * 64;
	void *memory = aligned_alloc(64, bytes);

	if (memory != NULL)
		memset(memory, 0, bytes);
	return memory;
}

void
gk_radial_destroy(struct gk_radial *r)
{
	if (r == NULL)
		return;
	free(r->sums.part);
	free(r->sums.invalid);
	free(r->sums.lost);
	free(r->used);
	free(r->weight);
	free(r->sum);
	free(r);
}

uint64_t
gk_radial_memory(uint32_t nb_bins)
{
	/* counters, and lines that the six arrays do not fill */
	return sizeof(struct gk_radial) + 6 * 64 +
		(nb_bins + UINT64_C(1)) *
		(GK_RADIAL_WAYS * sizeof(int32_t) + 2 * sizeof(uint32_t) + 3 * sizeof(uint64_t));
}

static int
radial_alloc(struct gk_radial *r)
{
	const uint64_t pixels = (uint64_t)r->map.rows * r->map.cols;
	const uint32_t n = r->map.nb_bins + 1;

	r->sums.part = line_alloc((uint64_t)n * GK_RADIAL_WAYS, sizeof(*r->sums.part));
	r->sums.invalid = line_alloc(n, sizeof(*r->sums.invalid));
	r->sums.lost = line_alloc(n, sizeof(*r->sums.lost));
	r->used = line_alloc(n, sizeof(*r->used));
	r->weight = line_alloc(n, sizeof(*r->weight));
	r->sum = line_alloc(n, sizeof(*r->sum));
	if (r->sums.part == NULL || r->sums.invalid == NULL || r->sums.lost == NULL ||
		r->used == NULL || r->weight == NULL || r->sum == NULL)
		return -ENOMEM;
	for (uint64_t i = 0; i < pixels; i++) {
		r->used[r->map.bin[i]]++;
		r->weight[r->map.bin[i]] +=
			r->map.weight != NULL ? r->map.weight[i] : GK_RADIAL_ONE;
	}
	return 0;
}

int
gk_radial_create(const struct gk_radial_map *map, enum gk_isa isa, struct gk_radial **to)
{
	const struct gk_radial_ops *ops = gk_radial_choose(isa);
	struct gk_radial *r;
	int ret;

	ret = gk_radial_map_check(map, NULL, 0);
	if (ret != 0)
		return ret;
	if (ops == NULL)
		return -ENOTSUP;
	r = calloc(1, sizeof(*r));
	if (r == NULL)
		return -ENOMEM;
	r->map = *map;
	r->ops = ops;
	ret = radial_alloc(r);
	if (ret != 0) {
		gk_radial_destroy(r);
		return ret;
	}
	*to = r;
	return 0;
}

static void
add_plain(struct gk_radial_sums *s, const int16_t *photons, const uint16_t *bin,
	const uint32_t *weight, uint32_t n)
{
	for (uint32_t at = 0; at < n; at += RUN) {
		const int16_t *x = photons + at;
		const uint16_t *b = bin + at;
		uint16_t lost = 0;
		int16_t valid[RUN];

		/* no branches, and masks of the size of pixels, so that compilers vectorise */
		for (uint32_t i = 0; i < RUN; i++) {
			const uint16_t bad = gk_radial_is_valid(x[i]) ? 0 : 0xFFFF;

			lost |= bad;
			valid[i] = (int16_t)(x[i] & ~bad);
		}
		for (uint32_t i = 0; i < RUN; i++)
			s->part[b[i] * GK_RADIAL_WAYS + i % GK_RADIAL_WAYS] += valid[i];
		for (uint32_t i = 0; lost != 0 && i < RUN; i++)
			if (!gk_radial_is_valid(x[i]))
				gk_radial_add_invalid(s, b[i], weight, at + i);
	}
}

const struct gk_radial_ops gk_radial_plain = {add_plain};

void
gk_radial_begin(struct gk_radial *r)
{
	const uint32_t n = r->map.nb_bins + 1;

	memset(r->sums.part, 0, (uint64_t)n * GK_RADIAL_WAYS * sizeof(*r->sums.part));
	memset(r->sums.invalid, 0, n * sizeof(*r->sums.invalid));
	memset(r->sums.lost, 0, n * sizeof(*r->sums.lost));
	memset(r->sum, 0, n * sizeof(*r->sum));
	r->pixels = 0;
}

/* Add the sums of 32 bits to those of 64 bits. */
static void
widen(struct gk_radial *r)
{
	int32_t *part = r->sums.part;

	for (uint32_t b = 0; b < r->map.nb_bins; b++, part += GK_RADIAL_WAYS)
		for (uint32_t k = 0; k < GK_RADIAL_WAYS; k++)
			r->sum[b] += part[k];
	memset(r->sums.part, 0,
		(uint64_t)(r->map.nb_bins + 1) * GK_RADIAL_WAYS * sizeof(*r->sums.part));
	r->pixels = 0;
}

void
gk_radial_add(struct gk_radial *r, uint32_t row, uint32_t nb_rows, const int16_t *photons)
{
	const uint32_t cols = r->map.cols;

	for (uint32_t end = row + nb_rows; row < end; row++) {
		for (uint32_t at = 0; at < cols; at += GK_RADIAL_STRIP) {
			const uint32_t n =
				cols - at < GK_RADIAL_STRIP ? cols - at : GK_RADIAL_STRIP;
			const uint64_t pixel = (uint64_t)row * cols + at;

			if (r->pixels + n > GK_RADIAL_PART)
				widen(r);
			r->pixels += n;
			r->ops->add(&r->sums, photons + at, r->map.bin + pixel,
				r->map.weight != NULL ? r->map.weight + pixel : NULL, n);
		}
		photons += cols;
	}
}

/* @param scale  units of sums in those of gk_radial_bin.sum */
static void
put_bins(const struct gk_radial *r, int64_t scale, struct gk_radial_bin *out)
{
	for (uint32_t b = 0; b < r->map.nb_bins; b++) {
		struct gk_radial_bin *o = &out[b];
		const uint64_t lost = r->map.weight != NULL
			? r->sums.lost[b]
			: (uint64_t)r->sums.invalid[b] * GK_RADIAL_ONE;

		o->sum = r->sum[b] * scale;
		o->norm = r->weight[b] - lost;
		o->count = r->used[b] - r->sums.invalid[b];
		o->mean = gk_radial_mean(o->sum, o->norm);
	}
}

void
gk_radial_end(struct gk_radial *r, struct gk_radial_bin *out)
{
	widen(r);
	put_bins(r, GK_SUM_SCALE, out);
}

void
gk_radial_end_sums(struct gk_radial *r, int64_t *sum, uint32_t *count)
{
	widen(r);
	memcpy(sum, r->sum, r->map.nb_bins * sizeof(*sum));
	for (uint32_t b = 0; b < r->map.nb_bins; b++)
		count[b] = r->used[b] - r->sums.invalid[b];
}

void
gk_radial_profile(struct gk_radial *r, const int16_t *photons, struct gk_radial_bin *out)
{
	gk_radial_begin(r);
	gk_radial_add(r, 0, r->map.rows, photons);
	gk_radial_end(r, out);
}

void
gk_radial_profile_f32(struct gk_radial *r, const float *photons, struct gk_radial_bin *out)
{
	const uint64_t pixels = (uint64_t)r->map.rows * r->map.cols;

	gk_radial_begin(r);
	for (uint64_t i = 0; i < pixels; i++) {
		const uint16_t b = r->map.bin[i];

		if (gk_radial_is_valid_f32(photons[i]))
			r->sum[b] += gk_sum_q8(photons[i]);
		else
			gk_radial_add_invalid(
				&r->sums, b, r->map.weight != NULL ? &r->map.weight[i] : NULL, 0);
	}
	put_bins(r, 1, out);
}
