/* SPDX-License-Identifier: BSD-3-Clause */

#include <stdio.h>
#include <stdlib.h>

#include "bench_rows.h"

static FILE *out;

void
bench_rows_to(const char *path)
{
	if (path == NULL)
		return;
	out = fopen(path, "w");
	if (out == NULL) {
		perror(path);
		exit(1);
	}
}

static const char *
or_nothing(const char *text)
{
	return text != NULL ? text : "";
}

/* FIELDS of bench.py, in the same order. */
static void
put(const struct bench_row *r, double ratio, const char *missing)
{
	static const char *const roles[] = {
		[BENCH_PEER] = "peer", [BENCH_FLOOR] = "floor", [BENCH_CEILING] = "ceiling"};

	if (out == NULL)
		return;
	fprintf(out, "%s\t%s\t%.6g\t%s\t%s\t%.6g\t%.4g\t%s\t%.6g\t%d\t%s\t%s\t%s\n", r->stage,
		r->what, r->value, or_nothing(r->unit), or_nothing(r->against), r->other, ratio,
		or_nothing(r->goal), r->bytes, r->ratio != 0, roles[r->role], or_nothing(r->notes),
		missing);
	fflush(out);
}

void
bench_row(const struct bench_row *r)
{
	put(r, r->ratio != 0 ? r->ratio : r->other != 0 ? r->value / r->other : 0, "");
}

void
bench_row_missing(const char *stage, const char *what, const char *why)
{
	put(&(struct bench_row){.stage = stage, .what = what}, 0, why);
}
