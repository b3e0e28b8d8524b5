/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * peakfinder8 restated as directly as possible: every rule in its order, passes over all pixels, no
 * tables, no code of gpu-kernels. The tests, the fuzz target and the benchmark compare with it.
 */
#ifndef GK_PEAK_NAIVE_H
#define GK_PEAK_NAIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "gk_peaks.h"

enum naive_sums {
	NAIVE_EXACT,	  /* sums over bins are rounded once */
	NAIVE_SEQUENTIAL, /* rounded after each addition, in raster order, panel by panel */
};

struct naive;

/* Memory for frames of a map. */
struct naive *naive_open(const struct gk_peak_map *map);
void naive_close(struct naive *n);

/* @param photons  [rows][cols]; NaN: not used */
void naive_find(struct naive *n, const struct gk_peak_params *params, const float *photons,
	enum naive_sums sums, struct gk_peaks *out);

/* Photons as in int16 images. */
void naive_from_i16(float *to, const int16_t *photons, uint64_t pixels);

#endif /* GK_PEAK_NAIVE_H */
