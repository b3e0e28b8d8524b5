/* SPDX-License-Identifier: BSD-3-Clause */

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench_fio.h"

/* terse format 3: KiB/s of reads and writes */
#define FIELD_READ  7
#define FIELD_WRITE 48

static const char *memory;
static bool there; /* fio has run */

static double
run(const struct bench_fio *f)
{
	const unsigned int wanted = f->writing ? FIELD_WRITE : FIELD_READ;
	char command[PATH_MAX + 512], rest[96] = "", line[8192], *field;
	unsigned int i;
	double kib = 0;
	FILE *fio;

	if (f->writing)
		snprintf(rest, sizeof(rest),
			"--fallocate=native --end_fsync=1 --fdatasync=%" PRIu64,
			f->sync_bytes / f->slice);
	snprintf(command, sizeof(command),
		"fio --minimal --name=bench --filename='%s' --rw=%s --direct=1 --unlink=1 "
		"--ioengine=io_uring --iodepth=%u --bs=%uk --size=%" PRIu64 " --mem=%s %s 2>&1",
		f->path, f->writing ? "write" : "read", f->depth, f->slice / 1024, f->bytes, memory,
		rest);
	fio = popen(command, "r");
	if (fio == NULL)
		return 0;
	while (fgets(line, sizeof(line), fio) != NULL) {
		if (strncmp(line, "3;", 2) != 0)
			continue;
		field = line;
		for (i = 1; i < wanted && field != NULL; i++)
			field = strchr(field, ';') != NULL ? strchr(field, ';') + 1 : NULL;
		if (field != NULL)
			kib = strtod(field, NULL);
	}
	return pclose(fio) == 0 ? kib * 1024 : 0;
}

double
bench_fio(const struct bench_fio *f)
{
	double rate;

	memory = "mmaphuge";
	rate = run(f);
	/* without enough huge pages it exits immediately */
	if (rate == 0) {
		memory = "malloc";
		rate = run(f);
	}
	there = rate > 0;
	(void)unlink(f->path);
	return rate;
}

bool
bench_fio_huge(void)
{
	return there && strcmp(memory, "mmaphuge") == 0;
}

const char *
bench_fio_memory(void)
{
	if (!there)
		return "nothing: no fio, or it cannot write here";
	return bench_fio_huge() ? "huge pages" : "pages of 4 KiB: vm.nr_hugepages is too low";
}
