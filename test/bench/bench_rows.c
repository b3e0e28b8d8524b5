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

void
bench_row(const struct bench_row *r)
{
	const double ratio = r->ratio != 0 ? r->ratio : r->other != 0 ? r->value / r->other : 0;

	if (out == NULL)
		return;
	fprintf(out, "%s\t%s\t%.6g\t%s\t%s\t%.6g\t%.4g\t%s\t%.6g\n", r->stage, r->what, r->value,
		r->unit, r->against != NULL ? r->against : "", r->other, ratio,
		r->goal != NULL ? r->goal : "", r->bytes);
	fflush(out);
}
