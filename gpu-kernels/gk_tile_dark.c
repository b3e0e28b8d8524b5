/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dark samples and pedestal updates of a tile, in C that compilers vectorise. Built once for each
 * instruction set.
 */

#include <stdbool.h>
#include <string.h>

#include "gk_pixel.h"
#include "gk_tile_set.h"

/* Pixels whose dark samples are summed on the stack; divides gk_geometry.cols */
#define DARK_STRIP 32

/*
 * Sum the samples of a strip in two 32-bit sums, then convert them to cells. A batch then needs one
 * addition per pixel to memory that other gangs may share.
 */
void
GK_TILE_SET(gk_tile_dark)(const struct gk_tile *t, uint32_t n, const uint16_t *const raw[],
	uint64_t *cells, int shared)
{
	const uint64_t pixels = (uint64_t)t->rows * t->cols;
	uint32_t sum[DARK_STRIP];
	uint16_t samples[DARK_STRIP];
	uint64_t add[DARK_STRIP];

	for (uint64_t first = 0; first < pixels; first += DARK_STRIP) {
		const float *r0 = t->r[0] + first;

		memset(samples, 0, sizeof(samples));
		memset(sum, 0, sizeof(sum));
		for (uint32_t f = 0; f < n; f++) {
			const uint16_t *raw_strip = raw[f] + first;

			/* the halves of gk_dark_sample(), in lanes of their own widths */
			for (int i = 0; i < DARK_STRIP; i++) {
				const uint16_t w = raw_strip[i];
				const bool is_g0 = (w & GK_RAW_GAIN_MASK) == 0;

				samples[i] += is_g0;
				sum[i] += is_g0 ? w : 0;
			}
		}
		for (int i = 0; i < DARK_STRIP; i++) {
			const uint64_t cell = (uint64_t)samples[i] << 32 | sum[i];

			add[i] = r0[i] == r0[i] ? cell : 0;
		}
		if (!shared) {
			for (int i = 0; i < DARK_STRIP; i++)
				cells[first + i] += add[i];
			continue;
		}
		for (int i = 0; i < DARK_STRIP; i++)
			if (add[i] != 0)
				__atomic_fetch_add(&cells[first + i], add[i], __ATOMIC_RELAXED);
	}
}

void
GK_TILE_SET(gk_tile_update)(const struct gk_tile *t, uint64_t *cells, uint32_t n_min, float alpha,
	float *p_out, struct gk_update *u)
{
	const uint64_t pixels = (uint64_t)t->rows * t->cols;
	uint64_t samples = 0;
	uint32_t updated = 0;
	int64_t drift = 0;

	for (uint64_t x = 0; x < pixels; x++) {
		const float before = t->p[0][x],
			    after = gk_dark_update(before, cells[x], n_min, alpha);

		samples += cells[x] >> 32;
		updated += (uint32_t)(cells[x] >> 32) >= n_min;
		drift += gk_drift_q8(before, after);
		p_out[x] = after;
		cells[x] = 0;
	}
	u->samples = samples;
	u->updated = updated;
	u->drift = drift;
}
