/* SPDX-License-Identifier: BSD-3-Clause */

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "bench_disk.h"

#define LOOK_US	   20000
#define QUIET	   10 /* consecutive checks without activity */
#define LOOKS_MOST 250

/* Documentation/block/stat.rst: completed reads, writes and discards, and requests in flight */
struct activity {
	unsigned long long ended;
	unsigned long long in_flight;
};

static bool
look(const char *path, struct activity *a)
{
	unsigned long long n[12] = {0};
	FILE *f = fopen(path, "re");
	unsigned int i = 0;

	if (f == NULL)
		return false;
	while (i < 12 && fscanf(f, "%llu", &n[i]) == 1)
		i++;
	fclose(f);
	/* reads belong to other programs, and leave no work behind */
	a->ended = n[4] + n[11];
	a->in_flight = n[8];
	return i >= 9;
}

void
bench_disk_settle(const char *dir)
{
	struct activity before = {0}, now;
	unsigned int looks, quiet = 0;
	char path[PATH_MAX];
	struct stat st;
	int fd;

	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return;
	(void)syncfs(fd);
	/* file systems without a disk have their own device number, without statistics */
	snprintf(path, sizeof(path), "/dev/null");
	if (fstat(fd, &st) == 0)
		snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/stat", major(st.st_dev),
			minor(st.st_dev));
	close(fd);
	for (looks = 0; looks < LOOKS_MOST && quiet < QUIET && look(path, &now); looks++) {
		quiet = now.ended == before.ended && now.in_flight == 0 ? quiet + 1 : 0;
		before = now;
		usleep(LOOK_US);
	}
}
