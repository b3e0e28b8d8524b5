/* SPDX-License-Identifier: BSD-3-Clause */

#include "sim/model_random.h"

#include <math.h>

/* Below this mean, Poisson numbers are drawn by inversion, with one multiplication per count. */
#define INVERSION_LIMIT 64.0

double
model_exp_minus(double x)
{
	double term = 1.0, sum = 1.0;
	unsigned int halvings = 0;

	while (x > 0.5) {
		x *= 0.5;
		halvings++;
	}
	/* 0.5^16 / 16! is below the last bit of the sum */
	for (int n = 1; n <= 16; n++) {
		term *= -x / n;
		sum += term;
	}
	while (halvings-- > 0)
		sum *= sum;
	return sum;
}

double
model_minus_log(double x)
{
	const double ln2 = 0x1.62e42fefa39efp-1;
	double s, s2, power, sum;
	unsigned int doublings = 0;

	while (x < 0.5) {
		x *= 2.0;
		doublings++;
	}
	/* ln x = 2 atanh((x - 1) / (x + 1)), argument in [-1/3, 0]: 1/3^35 is below the last bit */
	s = (1.0 - x) / (1.0 + x);
	s2 = s * s;
	power = s;
	sum = 0.0;
	for (int n = 1; n <= 35; n += 2) {
		sum += power / n;
		power *= s2;
	}
	return doublings * ln2 + 2.0 * sum;
}

double
model_cosine(double x)
{
	double term = 1.0, sum = 1.0;

	/* pi^34 / 34! is below the last bit */
	for (int n = 2; n <= 34; n += 2) {
		term *= -x * x / (n * (n - 1));
		sum += term;
	}
	return sum;
}

/* Inverse of the normal distribution for 0 < p <= 1/2: P. J. Acklam's rational approximation,
 * relative error 1.15e-9. */
static double
normal_quantile(double p)
{
	static const double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,
		-2.759285104469687e+02, 1.383577518672690e+02, -3.066479806614716e+01,
		2.506628277459239e+00};
	static const double b[] = {-5.447609879822406e+01, 1.615858368580409e+02,
		-1.556989798598866e+02, 6.680131188771972e+01, -1.328068155288572e+01};
	static const double c[] = {-7.784894002430293e-03, -3.223964580411365e-01,
		-2.400758277161838e+00, -2.549732539343734e+00, 4.374664141464968e+00,
		2.938163982698783e+00};
	static const double d[] = {7.784695709041462e-03, 3.224671290700398e-01,
		2.445134137142996e+00, 3.754408661907416e+00};
	double q, r, numerator, denominator;

	if (p < 0.02425) {
		q = sqrt(2.0 * model_minus_log(p));
		numerator = ((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5];
		denominator = (((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1.0;
		return numerator / denominator;
	}
	q = p - 0.5;
	r = q * q;
	numerator = (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q;
	denominator = ((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1.0;
	return numerator / denominator;
}

void
model_normal_table(float table[MODEL_NORMALS])
{
	/* mirrored, so that the mean is exactly 0 */
	for (int i = 0; i < MODEL_NORMALS / 2; i++) {
		table[i] = (float)normal_quantile((i + 0.5) / MODEL_NORMALS);
		table[MODEL_NORMALS - 1 - i] = -table[i];
	}
}

double
model_random_exponential(struct model_random *random)
{
	return model_minus_log(1.0 - model_random_uniform(random));
}

uint32_t
model_random_poisson(struct model_random *random, double lambda, const float normal[MODEL_NORMALS])
{
	double uniform, probability, value;
	uint32_t n = 0;

	if (lambda <= 0.0)
		return 0;
	if (lambda > INVERSION_LIMIT) {
		value = lambda +
			sqrt(lambda) * (double)normal[model_random_below(random, MODEL_NORMALS)];
		return (uint32_t)(value + 0.5);
	}
	uniform = model_random_uniform(random);
	probability = model_exp_minus(lambda);
	while (uniform >= probability && n < 1000) {
		uniform -= probability;
		n++;
		probability *= lambda / n;
	}
	return n;
}
