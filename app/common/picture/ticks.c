/* SPDX-License-Identifier: BSD-3-Clause */

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "picture/ticks.h"

/* The smallest of 1, 2 and 5 times a power of ten that is not below `least`. */
static double
round_step(double least)
{
	const double power = pow(10, floor(log10(least)));
	const double rest = least / power;

	return power * (rest <= 1 ? 1 : rest <= 2 ? 2 : rest <= 5 ? 5 : 10);
}

void
ticks_choose(struct ticks *t, double first, double last, unsigned int most, double least_step)
{
	const double span = last > first ? last - first : 0;
	double step, start;

	t->nb = 0;
	most = most < 1 ? 1 : most > TICKS_MAX ? TICKS_MAX : most;
	step = fmax(least_step, span > 0 ? round_step(span / most) : 0);
	if (!(step > 0)) {
		t->value[t->nb++] = first;
		return;
	}
	start = ceil(first / step);
	/* counted, because adding a step to a large value may not change it */
	for (unsigned int i = 0; i <= most && t->nb < most; i++) {
		const double value = (start + i) * step;

		if (value > last)
			break;
		if (t->nb == 0 || value > t->value[t->nb - 1])
			t->value[t->nb++] = value + 0.0; /* no negative zero */
	}
}

void
ticks_text(char text[TICKS_TEXT_LEN], double value)
{
	char *e;

	if (fabs(value) < 1e15 && value == rint(value)) {
		snprintf(text, TICKS_TEXT_LEN, "%.0f", value);
		return;
	}
	snprintf(text, TICKS_TEXT_LEN, "%.6g", value);
	/* 1e+06 is 1e6 */
	e = strstr(text, "e+");
	if (e != NULL) {
		const size_t zero = e[2] == '0' ? 3 : 2;

		memmove(e + 1, e + zero, strlen(e + zero) + 1);
	}
}
