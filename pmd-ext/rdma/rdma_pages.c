/* SPDX-License-Identifier: BSD-3-Clause */
/* Maps huge pages on a NUMA node, and faults them in with several threads. */
#include <errno.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_errno.h>
#include <rte_lcore.h>

#include "rdma_pages.h"

#ifndef MAP_HUGE_2MB
#define MAP_HUGE_2MB (21 << 26)
#endif
#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

#define HUGE	    (UINT64_C(2) << 20)
#define THREADS_MAX 16

static void *
map_anonymous(uint64_t length, int flags)
{
	void *addr = mmap(
		NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	return addr == MAP_FAILED ? NULL : addr;
}

/** Map memory without hugetlbfs, aligned to a huge page. */
static void *
map_aligned(uint64_t length)
{
	uint8_t *addr = map_anonymous(length + HUGE, 0), *first;

	if (!addr)
		return NULL;
	first = RTE_PTR_ALIGN_CEIL(addr, HUGE);
	if (first > addr)
		munmap(addr, first - addr);
	munmap(first + length, addr + HUGE - first);
	return first;
}

void *
rdma_pages_map(uint64_t *length, int node, enum rdma_pages_kind *kind)
{
	void *addr = NULL;

	*length = RTE_ALIGN_CEIL(*length, HUGE);
	if (*kind == RDMA_PAGES_HUGETLB) {
		addr = map_anonymous(*length, MAP_HUGETLB | MAP_HUGE_2MB);
		if (!addr)
			*kind = RDMA_PAGES_TRANSPARENT;
	}
	if (!addr) {
		addr = map_aligned(*length);
		if (!addr) {
			rte_errno = ENOMEM;
			return NULL;
		}
		if (*kind == RDMA_PAGES_TRANSPARENT && madvise(addr, *length, MADV_HUGEPAGE) != 0)
			*kind = RDMA_PAGES_SMALL;
		if (*kind == RDMA_PAGES_SMALL)
			madvise(addr, *length, MADV_NOHUGEPAGE);
	}
	if (node >= 0 && node < 1024) {
		unsigned long mask[1024 / (8 * sizeof(long))] = {0};

		mask[node / (8 * sizeof(long))] = 1ul << node % (8 * sizeof(long));
		/* MPOL_PREFERRED, not MPOL_BIND: the first touch must not raise a signal if the
		 * node is full. The error of a kernel without NUMA support is ignored. */
		syscall(SYS_mbind, addr, *length, MPOL_PREFERRED, mask, 1024ul, 0);
	}
	return addr;
}

void
rdma_pages_unmap(void *addr, uint64_t length)
{
	munmap(addr, length);
}

/* ---- threads -------------------------------------------------------------------------------- */

/** The CPUs of all lcores of EAL. The calling lcore's affinity has only its own CPU. */
static void
lcore_cpus(cpu_set_t *cpus)
{
	unsigned int lcore;

	CPU_ZERO(cpus);
	RTE_LCORE_FOREACH(lcore) {
		rte_cpuset_t of = rte_lcore_cpuset(lcore);

		CPU_OR(cpus, cpus, &of);
	}
}

unsigned int
rdma_pages_threads(unsigned int threads)
{
	cpu_set_t cpus;

	if (threads == 0) {
		lcore_cpus(&cpus);
		threads = CPU_COUNT(&cpus);
	}
	return RTE_MAX(1u, RTE_MIN(threads, THREADS_MAX));
}

struct worker {
	void (*run)(void *arg, unsigned int number);
	void *arg;
	unsigned int number;
	pthread_t thread;
	bool started;
};

static void *
worker_main(void *arg)
{
	struct worker *worker = arg;

	worker->run(worker->arg, worker->number);
	return NULL;
}

void
rdma_pages_parallel(unsigned int threads, void (*run)(void *arg, unsigned int number), void *arg)
{
	struct worker worker[THREADS_MAX];
	pthread_attr_t attr;
	cpu_set_t cpus;
	unsigned int i;

	threads = rdma_pages_threads(threads);
	lcore_cpus(&cpus);
	pthread_attr_init(&attr);
	pthread_attr_setaffinity_np(&attr, sizeof(cpus), &cpus);
	for (i = 1; i < threads; i++) {
		worker[i] = (struct worker){.run = run, .arg = arg, .number = i};
		worker[i].started =
			pthread_create(&worker[i].thread, &attr, worker_main, &worker[i]) == 0;
	}
	run(arg, 0);
	for (i = 1; i < threads; i++) {
		if (worker[i].started)
			pthread_join(worker[i].thread, NULL);
		else
			run(arg, i);
	}
	pthread_attr_destroy(&attr);
}

struct prefault {
	uint8_t *addr;
	uint64_t length;
	atomic_uint_fast64_t next;
	atomic_int error;
};

/** Fault in parts of 32 huge pages, so that a slow thread does not delay the others. */
static void
prefault_pieces(void *arg, unsigned int number)
{
	const uint64_t piece = 32 * HUGE;
	struct prefault *p = arg;
	uint64_t at, size;

	while ((at = atomic_fetch_add(&p->next, piece)) < p->length) {
		size = RTE_MIN(piece, p->length - at);
		if (madvise(p->addr + at, size, MADV_POPULATE_WRITE) == 0)
			continue;
		if (errno != EINVAL) {
			atomic_store(&p->error, errno);
			return;
		}
		/* The kernel has no MADV_POPULATE_WRITE: write to each page. */
		for (; size; at += 4096, size -= 4096)
			((volatile uint8_t *)p->addr)[at] = 0;
	}
}

int
rdma_pages_prefault(void *addr, uint64_t length, unsigned int threads)
{
	struct prefault p = {.addr = addr, .length = length};

	rdma_pages_parallel(threads, prefault_pieces, &p);
	return atomic_load(&p.error) ? -ENOMEM : 0;
}
