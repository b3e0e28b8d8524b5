/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_PAGES_H
#define RDMA_PAGES_H

/**
 * @file
 * Memory that is cheap to register: on huge pages, of one NUMA node, there before it is used. What
 * a registration costs is page faults first - 2.3 s for a GiB of cold 4 KiB pages, 27 ms when they
 * are there - and pages second: 1.3 ms for a GiB of huge ones (test/bench/results/rdma_mr.rst).
 */

#include <stdint.h>
#include <stddef.h>

/** Where the pages come from, best first. */
enum rdma_pages_kind {
	RDMA_PAGES_HUGETLB,	/**< reserved by the administrator */
	RDMA_PAGES_TRANSPARENT, /**< the kernel's, as far as it has them */
	RDMA_PAGES_SMALL,
};

/**
 * Map memory, not touched yet.
 *
 * @param length rounded up to 2 MiB, and so returned
 * @param node NUMA node, -1: any
 * @param kind the best to be tried, and what it came to
 * @return NULL with rte_errno ENOMEM
 */
void *rdma_pages_map(uint64_t *length, int node, enum rdma_pages_kind *kind);

void rdma_pages_unmap(void *addr, uint64_t length);

/**
 * Make all pages be there, by several threads on the CPUs of EAL's lcores.
 *
 * @param threads 0: one a CPU, at most 16
 * @return 0; -ENOMEM: not so many pages are free
 */
int rdma_pages_prefault(void *addr, uint64_t length, unsigned int threads);

/** Run a function in several such threads, with numbers from 0; returns when all are done. */
void rdma_pages_parallel(
	unsigned int threads, void (*run)(void *arg, unsigned int number), void *arg);

/** How many threads 0 stands for. */
unsigned int rdma_pages_threads(unsigned int threads);

#endif
