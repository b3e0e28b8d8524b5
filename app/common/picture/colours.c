/* SPDX-License-Identifier: BSD-3-Clause */

#include <math.h>
#include <string.h>

#include "picture/colours.h"

/*
 * Positive floats have the order of their bit patterns. Radix selection over the lower 31 bits, in
 * three digits.
 */
#define DIGITS	   3
#define DIGIT_BITS 11
#define DIGIT_SIZE (1u << DIGIT_BITS)

#define POWER 0.7 /* makes the lower half of the scale brighter */
#define STEPS 255 /* colours of the scale; more are not visible, and make files larger */

static uint32_t
bits_of(float v)
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof(bits));
	return bits;
}

/* @return the n-th largest finite positive value; n starts at 0 and is below their number */
static float
largest(const float *cells, size_t nb_cells, size_t n)
{
	uint32_t count[DIGIT_SIZE], known = 0, mask = 0, digit, bits;
	unsigned int shift;
	float v;
	size_t i;

	for (shift = (DIGITS - 1) * DIGIT_BITS;; shift -= DIGIT_BITS) {
		memset(count, 0, sizeof(count));
		for (i = 0; i < nb_cells; i++) {
			bits = bits_of(cells[i]);
			if (cells[i] > 0 && cells[i] < INFINITY && (bits & mask) == known)
				count[bits >> shift & (DIGIT_SIZE - 1)]++;
		}
		for (digit = DIGIT_SIZE - 1; digit > 0 && n >= count[digit]; digit--)
			n -= count[digit];
		known |= digit << shift;
		mask |= (DIGIT_SIZE - 1) << shift;
		if (shift == 0)
			break;
	}
	memcpy(&v, &known, sizeof(v));
	return v;
}

float
colours_top(const float *cells, size_t nb_cells)
{
	size_t i, nb = 0;
	float top;

	for (i = 0; i < nb_cells; i++)
		nb += cells[i] > 0 && cells[i] < INFINITY;
	if (nb == 0)
		return 1.0f;
	top = largest(cells, nb_cells, nb / 1000);
	return top > 1.0f ? top : 1.0f;
}

double
colours_place(double value, double top)
{
	const double place = value > 0 ? pow(log1p(value) / log1p(top), POWER) : 0;

	return place < 1 ? place : 1;
}

uint32_t
colours_at(double place)
{
	static const uint8_t map[][3] = {{0, 0, 8}, {30, 12, 68}, {84, 15, 109}, {136, 34, 106},
		{187, 55, 84}, {227, 89, 51}, {249, 140, 10}, {249, 201, 50}, {252, 255, 200}};
	const int last = sizeof(map) / sizeof(map[0]) - 1;
	const double x = rint((place > 0 ? place < 1 ? place : 1 : 0) * STEPS) / STEPS * last;
	const int i = x >= last ? last - 1 : (int)x;
	uint32_t colour = 0;

	for (int k = 0; k < 3; k++)
		colour = colour << 8 |
			(uint32_t)lrint(map[i][k] + (map[i + 1][k] - map[i][k]) * (x - i));
	return colour;
}

uint32_t
colours_of(float value, float top)
{
	return value != value	    ? COLOURS_NO_VALUE
		: value == INFINITY ? COLOURS_SATURATED
				    : colours_at(colours_place(value, top));
}

void
colours_ticks(struct ticks *t, double top, double apart)
{
	static const unsigned int digits[] = {1, 2, 5};
	/* length of the last decade, which is the shortest */
	const double decade = 1 - pow(1 - fmin(1, log(10) / log1p(top)), POWER);
	const unsigned int nb = decade * log10(2) >= apart ? 3 : 1;
	const int stride = decade >= apart ? 1 : (int)ceil(apart / decade);
	double last = 0;

	t->nb = 0;
	t->value[t->nb++] = 0;
	for (int power = 0; power < 39; power += stride) {
		for (unsigned int i = 0; i < nb; i++) {
			const double value = digits[i] * pow(10, power);
			const double place = colours_place(value, top);

			if (value > top || t->nb == TICKS_MAX)
				return;
			if (place - last < apart)
				continue;
			t->value[t->nb++] = value;
			last = place;
		}
	}
}
