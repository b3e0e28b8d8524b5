/* SPDX-License-Identifier: BSD-3-Clause */
/* Medians over rounds. */
#ifndef BENCH_MEDIAN_H
#define BENCH_MEDIAN_H

#include <stdlib.h>
#include <string.h>

#define BENCH_ROUNDS_MAX 100

static inline int
bench_by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Median of any number of values; sorts them. */
static inline double
bench_sort(double *values, unsigned int nb)
{
	qsort(values, nb, sizeof(values[0]), bench_by_value);
	return nb % 2 ? values[nb / 2] : (values[nb / 2 - 1] + values[nb / 2]) / 2;
}

/* Median of at most BENCH_ROUNDS_MAX values, which are not changed. */
static inline double
bench_median(const double *values, unsigned int nb)
{
	double sorted[BENCH_ROUNDS_MAX];

	memcpy(sorted, values, nb * sizeof(sorted[0]));
	return bench_sort(sorted, nb);
}

/* Median of the ratios of values of the same round. */
static inline double
bench_median_ratio(const double *a, const double *b, unsigned int nb)
{
	double ratio[BENCH_ROUNDS_MAX];

	for (unsigned int i = 0; i < nb; i++)
		ratio[i] = a[i] / b[i];
	return bench_sort(ratio, nb);
}

#endif /* BENCH_MEDIAN_H */
