/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rows of the one table of `make bench`: what bench.py reads of each benchmark, one line a row,
 * fields between tabs. The tables that people read are printed beside them.
 */
#ifndef BENCH_ROWS_H
#define BENCH_ROWS_H

#include <stdint.h>

struct bench_row {
	const char *stage;   /* which of the house's stages */
	const char *what;    /* and what it did */
	double value;	     /* what it reached */
	const char *unit;    /* of both values */
	const char *against; /* peer or ceiling of the same run; NULL: none */
	double other;	     /* what that reached */
	double ratio;	     /* median of neighbours; 0: value / other */
	/* "ratio >= 0.7", "value <= 0", ...; NULL: only reported */
	const char *goal;
	double bytes; /* of memory that a 4M frame moves at least, for the roofline; 0: not there */
};

/* Rows go to this file from now on; NULL: nowhere. Exits when it cannot be written. */
void bench_rows_to(const char *path);

void bench_row(const struct bench_row *row);

#endif /* BENCH_ROWS_H */
