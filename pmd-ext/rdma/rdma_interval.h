/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_INTERVAL_H
#define RDMA_INTERVAL_H

/**
 * @file
 * An ordered set of intervals of addresses that do not overlap: a treap (Seidel and Aragon, 1996),
 * whose nodes live in the objects of the set. All steps take logarithmic time.
 */

#include <stdint.h>

struct rdma_interval {
	uint64_t start, end; /**< [start, end) */
	uint32_t priority;
	struct rdma_interval *left, *right;
};

struct rdma_interval_set {
	struct rdma_interval *root;
	uint64_t random; /**< of the priorities; any seed will do */
};

/** Start and end are set and overlap with nothing in the set. */
void rdma_interval_insert(struct rdma_interval_set *set, struct rdma_interval *interval);

void rdma_interval_remove(struct rdma_interval_set *set, struct rdma_interval *interval);

/** The first that overlaps with [start, end), NULL: none. */
struct rdma_interval *rdma_interval_find(
	const struct rdma_interval_set *set, uint64_t start, uint64_t end);

#endif
