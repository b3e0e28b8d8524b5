/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_PAGES_H
#define RDMA_PAGES_H

/**
 * @file
 * Memory that is cheap to register: huge pages of one NUMA node, faulted in before use. The time of
 * a registration depends on page faults and on the number of pages
 * (test/bench/results/rdma_mr.rst). For 1 GiB:
 *
 * - 4 KiB pages that are not present: 2.3 s
 * - 4 KiB pages that are present: 27 ms
 * - huge pages that are present: 1.3 ms
 */

#include <stdint.h>
#include <stddef.h>

/** Kinds of pages, best first. */
enum rdma_pages_kind {
	RDMA_PAGES_HUGETLB,	/**< hugetlbfs, reserved by the administrator */
	RDMA_PAGES_TRANSPARENT, /**< transparent huge pages, where the kernel provides them */
	RDMA_PAGES_SMALL,	/**< base pages, no huge pages */
};

/**
 * Map memory without faulting it in.
 *
 * @param length in: bytes; out: rounded up to 2 MiB
 * @param node preferred NUMA node; -1: any
 * @param kind in: best kind to try; out: kind obtained
 * @return NULL with rte_errno ENOMEM
 */
void *rdma_pages_map(uint64_t *length, int node, enum rdma_pages_kind *kind);

void rdma_pages_unmap(void *addr, uint64_t length);

/**
 * Fault in all pages, with several threads on the CPUs of EAL's lcores.
 *
 * @param threads 0: one per CPU, at most 16
 * @return 0; -ENOMEM: not enough free pages
 */
int rdma_pages_prefault(void *addr, uint64_t length, unsigned int threads);

/** Run a function in several such threads, numbered from 0. Returns when all have finished. */
void rdma_pages_parallel(
	unsigned int threads, void (*run)(void *arg, unsigned int number), void *arg);

/** Number of threads actually used; resolves 0 and applies the limit of 16. */
unsigned int rdma_pages_threads(unsigned int threads);

#endif
