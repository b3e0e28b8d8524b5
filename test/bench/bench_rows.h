/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rows of the one table of `make bench`: what bench.py reads of each benchmark, one line a row,
 * fields between tabs. The tables that people read are printed beside them.
 */
#ifndef BENCH_ROWS_H
#define BENCH_ROWS_H

#include <stdint.h>

/* What a row is to the roofline. */
enum bench_role {
	BENCH_PEER = 0, /* `other` is somebody else's work, or a limit of another kind */
	BENCH_FLOOR,	/* `other` is a pass that moves the same bytes and does nothing else */
	BENCH_CEILING,	/* `value` is the same arithmetic on what the caches hold */
};

struct bench_row {
	const char *stage;   /* which of the house's stages */
	const char *what;    /* and what it did */
	double value;	     /* what it reached */
	const char *unit;    /* of both values */
	const char *against; /* peer or ceiling of the same run; NULL: none */
	double other;	     /* what that reached */
	/* median of the ratios of neighbours; 0: value / other, and the table marks it as that */
	double ratio;
	/* "ratio >= 0.7", "value <= 0", ...; NULL: only reported */
	const char *goal;
	double bytes; /* of memory that a 4M frame moves at least, for the roofline; 0: not there */
	enum bench_role role;
	const char *notes; /* what it depends on: instruction set, batch, pages, ...; NULL: none */
};

/* Rows go to this file from now on; NULL: nowhere. Exits when it cannot be written. */
void bench_rows_to(const char *path);

void bench_row(const struct bench_row *row);

/* A row that has no figure here, and why: a program, a device or a CPU is not there. */
void bench_row_missing(const char *stage, const char *what, const char *why);

#endif /* BENCH_ROWS_H */
