/* SPDX-License-Identifier: BSD-3-Clause */

#include "sim/crystal_lattice.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>

#define RADIANS 0x1.1df46a2529d39p-6 /* radians per degree */

static double
dot(const double a[3], const double b[3])
{
	return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

int
crystal_lattice_init(struct crystal_lattice *lattice, const double cell[6])
{
	double ca = model_cosine(cell[3] * RADIANS);
	double cb = model_cosine(cell[4] * RADIANS);
	double cg = model_cosine(cell[5] * RADIANS);
	double sg2 = 1.0 - cg * cg;
	double square = 1.0 - ca * ca - cb * cb - cg * cg + 2.0 * ca * cb * cg;
	double sg, bx, by, cx, cy, cz;

	if (!(sg2 > 0.0) || !(square > 1e-6))
		return -EINVAL;
	sg = sqrt(sg2);
	for (int i = 0; i < 3; i++)
		lattice->edge[i] = cell[i];
	lattice->volume = cell[0] * cell[1] * cell[2] * sqrt(square);
	/* a along x, b in the x-y plane; the reciprocal basis is the inverse of this triangular
	 * matrix */
	bx = cell[1] * cg;
	by = cell[1] * sg;
	cx = cell[2] * cb;
	cy = cell[2] * (ca - cb * cg) / sg;
	cz = lattice->volume / (cell[0] * by);
	lattice->reciprocal[0][0] = 1.0 / cell[0];
	lattice->reciprocal[0][1] = -bx / (cell[0] * by);
	lattice->reciprocal[0][2] = (bx * cy - cx * by) / (cell[0] * by * cz);
	lattice->reciprocal[1][0] = 0.0;
	lattice->reciprocal[1][1] = 1.0 / by;
	lattice->reciprocal[1][2] = -cy / (by * cz);
	lattice->reciprocal[2][0] = lattice->reciprocal[2][1] = 0.0;
	lattice->reciprocal[2][2] = 1.0 / cz;
	return 0;
}

void
crystal_lattice_turn(const struct crystal_lattice *lattice, struct model_random *random,
	struct crystal_lattice *turned)
{
	double q[4], norm, w, x, y, z;

	/* the projection of a point in the four-dimensional unit ball is a uniform rotation */
	do {
		norm = 0.0;
		for (int i = 0; i < 4; i++) {
			q[i] = 2.0 * model_random_uniform(random) - 1.0;
			norm += q[i] * q[i];
		}
	} while (norm > 1.0 || norm < 0.01);
	norm = 1.0 / sqrt(norm);
	w = q[0] * norm;
	x = q[1] * norm;
	y = q[2] * norm;
	z = q[3] * norm;

	const double rotation[3][3] = {
		{1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)},
		{2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)},
		{2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)},
	};
	*turned = *lattice;
	for (int i = 0; i < 3; i++)
		for (int j = 0; j < 3; j++)
			turned->reciprocal[i][j] = dot(rotation[j], lattice->reciprocal[i]);
}

/* Intersect a line of lattice points p + l s with a sphere around the origin: range of l inside it.
 */
static bool
chord(const double p[3], const double s[3], double ss, double radius, double *from, double *to)
{
	double half = dot(p, s) / ss;
	double square = half * half - (dot(p, p) - radius * radius) / ss;

	if (square < 0.0)
		return false;
	square = sqrt(square);
	*from = -half - square;
	*to = -half + square;
	return true;
}

/* Visits the points of one line that are in the shell. k is the scattered beam of the line's point
 * 0. */
static void
visit_line(const struct crystal_lattice *lattice, struct crystal_reflection *reflection,
	const double k[3], double wavelength, double q_max, double tolerance, crystal_visitor visit,
	void *context)
{
	const double *s = lattice->reciprocal[2];
	double radius = 1.0 / wavelength, ss = dot(s, s);
	double from, to, inner_from = 0.0, inner_to = 0.0;
	bool pierced;

	if (!chord(k, s, ss, radius + tolerance, &from, &to))
		return;
	pierced = radius > tolerance && chord(k, s, ss, radius - tolerance, &inner_from, &inner_to);
	for (int32_t l = (int32_t)ceil(from); l <= to; l++) {
		double q2 = 0.0;

		if (pierced && l > inner_from && l < inner_to)
			l = (int32_t)ceil(inner_to);
		if (l > to)
			break;
		for (int i = 0; i < 3; i++) {
			reflection->direction[i] = k[i] + l * s[i];
			q2 += (reflection->direction[i] - (i == 2 ? radius : 0.0)) *
				(reflection->direction[i] - (i == 2 ? radius : 0.0));
		}
		reflection->index[2] = l;
		if (q2 > q_max * q_max ||
			(reflection->index[0] == 0 && reflection->index[1] == 0 && l == 0))
			continue;
		reflection->error =
			sqrt(dot(reflection->direction, reflection->direction)) - radius;
		visit(context, reflection);
	}
}

void
crystal_lattice_reflections(const struct crystal_lattice *lattice, double wavelength, double q_max,
	double tolerance, crystal_visitor visit, void *context)
{
	/* |h| = |q . a| <= |q| |a| */
	int32_t h_max = (int32_t)(q_max * lattice->edge[0]);
	int32_t k_max = (int32_t)(q_max * lattice->edge[1]);
	struct crystal_reflection reflection;

	for (int32_t h = -h_max; h <= h_max; h++) {
		for (int32_t k = -k_max; k <= k_max; k++) {
			double start[3];

			for (int i = 0; i < 3; i++)
				start[i] = h * lattice->reciprocal[0][i] +
					k * lattice->reciprocal[1][i] +
					(i == 2 ? 1.0 / wavelength : 0.0);
			reflection.index[0] = h;
			reflection.index[1] = k;
			visit_line(lattice, &reflection, start, wavelength, q_max, tolerance, visit,
				context);
		}
	}
}
