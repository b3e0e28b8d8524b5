/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rows of the table of `make bench`. bench.py reads them from each benchmark: one line per row,
 * with tabs between fields. The benchmarks also print tables for people.
 */
#ifndef BENCH_ROWS_H
#define BENCH_ROWS_H

#include <stdint.h>

/* Meaning of `other` for the roofline. */
enum bench_role {
	BENCH_PEER = 0, /* `other` is another implementation, or a limit of another kind */
	BENCH_FLOOR,	/* `other` is a pass that only moves the same bytes */
	BENCH_CEILING,	/* `value` is the same arithmetic on data in the caches */
};

struct bench_row {
	const char *stage;   /* stage of the data path */
	const char *what;    /* variant of it */
	double value;	     /* result */
	const char *unit;    /* of both values */
	const char *against; /* peer or ceiling measured in the same run; NULL: none */
	double other;	     /* its result */
	/* median of the ratios of each round; 0: value / other, which the table marks */
	double ratio;
	/* "ratio >= 0.7", "value <= 0", ...; NULL: only reported */
	const char *goal;
	double bytes; /* least memory traffic of a 4M frame, bytes, for the roofline; 0: none */
	enum bench_role role;
	const char *notes; /* parameters: instruction set, batch, pages, ...; NULL: none */
};

/* Write rows to this file from now on; NULL: nowhere. Exits if it cannot be written. */
void bench_rows_to(const char *path);

void bench_row(const struct bench_row *row);

/* A row without a result on this machine, and the reason: a missing program, device or CPU. */
void bench_row_missing(const char *stage, const char *what, const char *why);

#endif /* BENCH_ROWS_H */
