/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Colours of values in images. The position of a value v in the colour scale is
 * (log(1 + v) / log(1 + top)) ^ 0.7, so that both single photons and strong peaks are visible. Any
 * thread.
 */
#ifndef COLOURS_H
#define COLOURS_H

#include <stddef.h>
#include <stdint.h>

#include "picture/ticks.h"

/* Colours are 0xRRGGBB. None of these three is in the colour scale. */
#define COLOURS_NO_VALUE  0x3058A0u /**< a pixel that is masked, invalid or missing: NaN */
#define COLOURS_SATURATED 0x00E060u /**< infinity */
#define COLOURS_NO_SENSOR 0x8C9094u /**< a gap between panels */

/**
 * Upper end of the colour scale: the largest finite value after the largest 0.1 % of the positive
 * values, so that a hot pixel does not make all other pixels dark. At least 1.
 */
float colours_top(const float *cells, size_t nb_cells);

/** Position of a value in the scale. @return 0 to 1; 0 for NaN and for values below 0 */
double colours_place(double value, double top);

/** Colour of a position in the scale, from dark to light with uniform steps in lightness. */
uint32_t colours_at(double place);

/** Colour of a value of a pixel. */
uint32_t colours_of(float value, float top);

/**
 * Choose ticks of the scale: 0, and 1, 2 and 5 times powers of ten, or fewer.
 * @param apart  minimum difference of two positions
 */
void colours_ticks(struct ticks *t, double top, double apart);

#endif /* COLOURS_H */
