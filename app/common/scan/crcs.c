/* SPDX-License-Identifier: BSD-3-Clause */

#include <pthread.h>
#include <sched.h>

#include "scan/crcs.h"

#define THREADS_MAX 8
#define SHARE	    (UINT64_C(8) << 20) /* bytes for which a thread is worth its start */

/* Threads take batches from `next`, and write only to those. */
struct work {
	struct arrow_reader *r;
	size_t next, absent;
};

static void *
check(void *arg)
{
	struct work *w = arg;
	size_t i;
	int ret;

	for (;;) {
		i = __atomic_fetch_add(&w->next, 1, __ATOMIC_RELAXED);
		if (i >= w->r->nb_batches)
			return NULL;
		ret = arrow_reader_crc(w->r, i);
		if (ret < 0)
			w->r->batches[i].fault = "a batch with a wrong CRC-32C";
		else if (ret == 0)
			__atomic_fetch_add(&w->absent, 1, __ATOMIC_RELAXED);
	}
}

static unsigned int
nb_threads(const struct arrow_reader *r)
{
	unsigned int nb = r->size / SHARE;
	cpu_set_t cpus;

	if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0)
		return 1;
	nb = nb < THREADS_MAX ? nb : THREADS_MAX;
	return nb < (unsigned int)CPU_COUNT(&cpus) ? nb : (unsigned int)CPU_COUNT(&cpus);
}

size_t
scan_crcs(struct arrow_reader *r)
{
	struct work w = {.r = r};
	pthread_t thread[THREADS_MAX];
	const unsigned int most = nb_threads(r);
	unsigned int nb = 0;

	/* this thread is one of them */
	while (nb + 1 < most && pthread_create(&thread[nb], NULL, check, &w) == 0)
		nb++;
	check(&w);
	while (nb > 0)
		pthread_join(thread[--nb], NULL);
	return w.absent;
}
