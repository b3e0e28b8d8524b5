/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tile arithmetic in plain C. gcc and clang vectorise every loop of the common path (check with
 * -fopt-info-vec): no early exits, selections instead of branches, integer sums.
 *
 * Pixels pass through a strip of photons in L1. The conversion branches by gain once per run; later
 * steps process floats only.
 */

#include <stdbool.h>
#include <string.h>

#include "gk_pixel.h"
#include "gk_tile_set.h"

/* Pixels whose gains are checked together: a cache line of raw data; divides gk_geometry.cols */
#define RUN 32
/* Photons on the stack: 4 KiB, an eighth of the smallest L1; a row of a JUNGFRAU module */
#define STRIP GK_TILE_STRIP

static inline bool
run_is_g0(const uint16_t *raw)
{
	uint16_t gains = 0;

	for (int i = 0; i < RUN; i++)
		gains |= raw[i];
	return (gains & GK_RAW_GAIN_MASK) == 0;
}

/* Compute the photons of n pixels (a multiple of RUN) from pixel `first` of the tile on. */
static inline void
convert(const struct gk_tile *t, uint64_t first, uint32_t n, const uint16_t *raw, float *photons)
{
	for (uint32_t at = 0; at < n; at += RUN) {
		const uint16_t *w = raw + first + at;
		float *out = photons + at;

		if (__builtin_expect(run_is_g0(w), 1)) {
			const float *p = t->p[0] + first + at, *r = t->r[0] + first + at;

			for (int i = 0; i < RUN; i++)
				out[i] = gk_photons_linear(w[i], p[i], r[i]);
			continue;
		}
		for (int i = 0; i < RUN; i++) {
			const uint64_t x = first + at + i;
			const float p[3] = {t->p[0][x], t->p[1][x], t->p[2][x]};
			const float r[3] = {t->r[0][x], t->r[1][x], t->r[2][x]};

			out[i] = gk_photons(w[i], p, r);
		}
	}
}

/*
 * Statistics of a strip without large values, which is the most frequent case and takes half the
 * time. The sums fit into 32 bits, no value needs clamping, and none is +Inf.
 * @return false if there is a large value; nothing is then counted
 */
static inline bool
count_small(const struct gk_tile *t, const float *photons, uint32_t n, struct gk_tile_counts *c)
{
	/* 2^12 photons x 2^8 x STRIP = 2^30; G1 of a JUNGFRAU ends near 10^3 */
	const float small_limit = 4096.0f;
	const float strong_threshold = t->strong_threshold, csr_threshold = t->csr_threshold;
	uint32_t bragg = 0, nnz = 0, small = 0, invalid = 0;
	int32_t sum = 0;

	for (uint32_t i = 0; i < n; i++) {
		const float x = photons[i];
		const bool is_small = fabsf(x) < small_limit; /* false for NaN, too */

		bragg += x >= strong_threshold;
		nnz += x >= csr_threshold;
		invalid += x != x;
		small += is_small;
		/* gk_sum_q8() for small values */
		sum += (int32_t)rintf(gk_mul(is_small ? x : 0.0f, (float)GK_SUM_SCALE));
	}
	if (small + invalid != n)
		return false;
	c->sum += sum;
	c->bragg += bragg;
	c->nnz += nnz;
	c->invalid += invalid;
	return true;
}

static inline void
count_any(const struct gk_tile *t, const float *photons, uint32_t n, struct gk_tile_counts *c)
{
	const float strong_threshold = t->strong_threshold, csr_threshold = t->csr_threshold;
	uint32_t bragg = 0, nnz = 0, finite = 0, invalid = 0, low = 0;
	int32_t high = 0;

	for (uint32_t i = 0; i < n; i++) {
		const float x = photons[i];
		const int32_t q = gk_sum_q8(x);

		bragg += x >= strong_threshold;
		nnz += x >= csr_threshold;
		invalid += x != x;
		finite += x < INFINITY;
		low += (uint32_t)q;
		high += q >> 16;
	}
	/*
	 * A 64-bit sum in two 32-bit lanes. It is at least high x 2^16, and less than n x 2^16
	 * above that, n <= STRIP. The sum modulo 2^32 therefore determines it.
	 */
	c->sum += (int64_t)high * 65536 + (low - ((uint32_t)high << 16));
	c->bragg += bragg;
	c->nnz += nnz;
	c->invalid += invalid;
	c->saturated += n - finite - invalid;
}

/* Write the bits of a strip, see gk_tile_ops.stats(). @return position of the next strip's bits */
static inline uint32_t *
put_bits(uint32_t *to, const float *photons, uint32_t n, float threshold)
{
	uint32_t *used = to++;

	*used = 0;
	for (uint32_t at = 0; at < n; at += RUN) {
		uint32_t word = 0;

		for (int i = 0; i < RUN; i++)
			word |= (uint32_t)(photons[at + i] >= threshold) << i;
		if (word == 0)
			continue;
		*used |= UINT32_C(1) << at / RUN;
		*to++ = word;
	}
	return to;
}

static inline void
store_values(const float *photons, uint32_t n, enum gk_value type, void *value, uint64_t at)
{
	if (type == GK_VALUE_I16) {
		int16_t *out = (int16_t *)value + at;

		for (uint32_t i = 0; i < n; i++)
			out[i] = gk_value_i16(photons[i]);
	} else {
		float *out = (float *)value + at;

		for (uint32_t i = 0; i < n; i++)
			out[i] = gk_value_f32(photons[i]);
	}
}

static void
plain_stats(const struct gk_tile *t, uint32_t n, const uint16_t *const raw[],
	const uint16_t *const ahead[], struct gk_tile_counts counts[], uint16_t *const row_nnz[],
	uint32_t *const bits[], enum gk_value type, void *const image[])
{
	_Alignas(64) float photons[STRIP];
	uint32_t *to[GK_BATCH_MAX];

	memcpy(to, bits, n * sizeof(to[0]));
	memset(counts, 0, n * sizeof(counts[0]));
	for (uint32_t row = 0; row < t->rows; row++) {
		for (uint32_t f = 0; f < n; f++)
			row_nnz[f][row] = 0;
		for (uint32_t col = 0; col < t->cols; col += STRIP) {
			const uint64_t first = (uint64_t)row * t->cols + col;
			const uint32_t len = t->cols - col < STRIP ? t->cols - col : STRIP;

			/*
			 * Frames are the innermost loop, so that the strip's coefficients stay in
			 * L1.
			 */
			for (uint32_t f = 0; f < n; f++) {
				const uint32_t before = counts[f].nnz;

				convert(t, first, len, raw[f], photons);
				if (!count_small(t, photons, len, &counts[f]))
					count_any(t, photons, len, &counts[f]);
				row_nnz[f][row] += counts[f].nnz - before;
				if (to[f] != NULL)
					to[f] = put_bits(to[f], photons, len, t->csr_threshold);
				if (image[f] != NULL)
					store_values(photons, len, type, image[f], first);
			}
		}
	}
}

/* Write one pixel of a list. */
static inline void
put_value(const struct gk_tile *t, uint64_t x, const uint16_t *raw, enum gk_value type, void *value,
	uint64_t at)
{
	const float p[3] = {t->p[0][x], t->p[1][x], t->p[2][x]};
	const float r[3] = {t->r[0][x], t->r[1][x], t->r[2][x]};
	const float photons = gk_photons(raw[x], p, r);

	store_values(&photons, 1, type, value, at);
}

static void
plain_csr(const struct gk_tile *t, const uint16_t *raw, const uint32_t *bits, enum gk_value type,
	uint16_t *col, void *value)
{
	uint64_t out = 0;

	for (uint32_t row = 0; row < t->rows; row++) {
		for (uint32_t col0 = 0; col0 < t->cols; col0 += STRIP) {
			for (uint32_t used = *bits++; used != 0; used &= used - 1) {
				const uint32_t first = col0 + (uint32_t)__builtin_ctz(used) * RUN;

				for (uint32_t left = *bits++; left != 0; left &= left - 1) {
					const uint32_t c = first + (uint32_t)__builtin_ctz(left);

					col[out] = (uint16_t)c;
					put_value(t, (uint64_t)row * t->cols + c, raw, type, value,
						out++);
				}
			}
		}
	}
}

static void
plain_image(const struct gk_tile *t, uint32_t n, const uint16_t *const raw[], enum gk_value type,
	void *const value[])
{
	const uint64_t pixels = (uint64_t)t->rows * t->cols;
	_Alignas(64) float photons[STRIP];

	for (uint64_t first = 0; first < pixels; first += STRIP) {
		const uint32_t len = pixels - first < STRIP ? (uint32_t)(pixels - first) : STRIP;

		for (uint32_t f = 0; f < n; f++) {
			convert(t, first, len, raw[f], photons);
			store_values(photons, len, type, value[f], first);
		}
	}
}

static void
plain_photons(const struct gk_tile *t, const uint16_t *raw, int16_t *to)
{
	void *const value[1] = {to};

	plain_image(t, 1, &raw, GK_VALUE_I16, value);
}

static void
plain_copy(const struct gk_tile *t, const uint16_t *raw, uint16_t *to)
{
	memcpy(to, raw, (uint64_t)t->rows * t->cols * sizeof(*raw));
}

/* Volatile loads, because memcpy() may load words twice or by a string instruction. */
static void
plain_take(const struct gk_tile *t, const uint16_t *raw, uint16_t *to)
{
	typedef uint64_t words __attribute__((vector_size(16), may_alias));
	const uint64_t n = (uint64_t)t->rows * t->cols * sizeof(*raw) / sizeof(words);
	const volatile words *from = (const volatile words *)raw;

	for (uint64_t i = 0; i < n; i++)
		((words *)to)[i] = from[i];
}

const struct gk_tile_ops gk_tile_plain = {
	.name = "plain",
	.stats = plain_stats,
	.csr = plain_csr,
	.image = plain_image,
	.photons = plain_photons,
	.copy = plain_copy,
	.take = plain_take,
	.dark = gk_tile_dark_plain,
	.update = gk_tile_update_plain,
};
