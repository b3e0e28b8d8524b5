/* SPDX-License-Identifier: BSD-3-Clause */

#include "geometry/pixels.h"
#include "picture/rings.h"

void
rings_choose(struct rings *r, const struct geometry *g, double farthest, double apart)
{
	static const double round[] = {
		0.8, 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 7, 10, 15, 20, 30, 50, 70, 100, 200, 500, 1000};
	double last = farthest + apart;

	r->nb = 0;
	for (unsigned int i = 0; i < sizeof(round) / sizeof(round[0]); i++) {
		const double radius = pixels_radius_of(g, round[i]);

		/* NaN: not in forward direction */
		if (!(radius < farthest && radius <= last - apart && radius >= apart))
			continue;
		if (r->nb == RINGS_MAX)
			break;
		r->d[r->nb] = round[i];
		r->radius[r->nb++] = radius;
		last = radius;
	}
}
