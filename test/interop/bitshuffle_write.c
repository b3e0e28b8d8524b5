/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compresses a file of u16 values to a chunk (gk_bitshuffle.h). Exits with 77 if the CPU lacks the
 * instruction set.
 *
 * usage: bitshuffle_write ISA VALUES CHUNK
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gk_bitshuffle.h"

#define VALUES_MAX (4 << 20)

int
main(int argc, char **argv)
{
	uint16_t *values = malloc(VALUES_MAX * sizeof(*values));
	struct gk_bitshuffle_job job;
	int isa = GK_ISAS - 1;
	uint8_t *chunk;
	FILE *in, *out;
	size_t n;

	if (argc != 4 || values == NULL)
		return 2;
	while (isa > 0 && strcmp(gk_isa_name((enum gk_isa)isa), argv[1]) != 0)
		isa--;
	in = fopen(argv[2], "rb");
	out = fopen(argv[3], "wb");
	if (in == NULL || out == NULL) {
		perror("bitshuffle_write");
		return 2;
	}
	n = fread(values, sizeof(*values), VALUES_MAX, in);
	chunk = malloc(gk_bitshuffle_bound(n));
	if (chunk == NULL)
		return 2;
	if (gk_bitshuffle_begin(&job, (enum gk_isa)isa, values, n, chunk) != 0)
		return 77;
	gk_bitshuffle_continue(&job, SIZE_MAX);
	if (fwrite(chunk, 1, job.written, out) != job.written || fclose(out) != 0)
		return 2;
	fclose(in);
	free(values);
	free(chunk);
	return 0;
}
