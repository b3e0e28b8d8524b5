/* SPDX-License-Identifier: BSD-3-Clause */

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "bench_alone.h"

bool
bench_alone_begin(void)
{
	const struct sched_param p = {.sched_priority = 1};

	return sched_setscheduler(0, SCHED_FIFO, &p) == 0;
}

void
bench_alone_end(void)
{
	const struct sched_param p = {0};

	(void)sched_setscheduler(0, SCHED_OTHER, &p);
}

bool
bench_alone_process(bool alone)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	bool done = tasks != NULL;

	while (tasks != NULL && (task = readdir(tasks)) != NULL) {
		const pid_t tid = (pid_t)strtol(task->d_name, NULL, 10);
		const struct sched_param p = {.sched_priority = !alone ? 0
				: tid == gettid()		       ? 2
								       : 1};

		if (tid > 0)
			done &= sched_setscheduler(tid, alone ? SCHED_FIFO : SCHED_OTHER, &p) == 0;
	}
	if (tasks != NULL)
		closedir(tasks);
	return done;
}

bool
bench_huge_pages(unsigned int mib)
{
	unsigned long free = 0, kib = 0;
	char line[128];
	FILE *f;

	f = fopen("/proc/meminfo", "r");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		sscanf(line, "HugePages_Free: %lu", &free);
		sscanf(line, "Hugepagesize: %lu kB", &kib);
	}
	if (f != NULL)
		fclose(f);
	return free * kib >= mib * 1024ul;
}

void
bench_alone_rest(void)
{
	const struct timespec t = {.tv_nsec = 450 * 1000 * 1000};

	nanosleep(&t, NULL);
}
