/* SPDX-License-Identifier: BSD-3-Clause */

#include <pthread.h>

#include <rte_lcore.h>

#include "eal/process_cpus.h"

static cpu_set_t cpus;

/* Record the CPUs of the process. Runs before main(), because EAL changes the affinity. */
static void __attribute__((constructor)) note_cpus(void)
{
	if (sched_getaffinity(0, sizeof(cpus), &cpus) < 0)
		CPU_ZERO(&cpus);
}

void
process_cpus_others(cpu_set_t *others)
{
	cpu_set_t lcore;
	unsigned int i;

	*others = cpus;
	RTE_LCORE_FOREACH(i) {
		lcore = rte_lcore_cpuset(i);
		for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
			if (CPU_ISSET(cpu, &lcore))
				CPU_CLR(cpu, others);
	}
}

void
process_cpus_take(void)
{
	cpu_set_t others;

	process_cpus_others(&others);
	if (CPU_COUNT(&others) == 0)
		others = cpus;
	if (CPU_COUNT(&others) > 0)
		(void)pthread_setaffinity_np(pthread_self(), sizeof(others), &others);
}
