/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_INTERVAL_H
#define RDMA_INTERVAL_H

/**
 * @file
 * A set of intervals of addresses, which may overlap: a treap (Seidel and Aragon, 1996) ordered by
 * start, each node with the largest end below it. Nodes live in the objects of the set. All steps
 * take logarithmic time, by expectation.
 */

#include <stdint.h>

struct rdma_interval {
	uint64_t start, end; /**< [start, end) */
	/* the set's own */
	uint64_t end_max; /**< of the node and all below it */
	uint32_t priority;
	struct rdma_interval *left, *right;
};

struct rdma_interval_set {
	struct rdma_interval *root;
	uint64_t random; /**< of the priorities; any seed will do */
};

/** Start and end are set. */
void rdma_interval_insert(struct rdma_interval_set *set, struct rdma_interval *interval);

/** An interval that is in the set. */
void rdma_interval_remove(struct rdma_interval_set *set, struct rdma_interval *interval);

/** One that holds all of [start, end), NULL: none. */
struct rdma_interval *rdma_interval_holding(
	const struct rdma_interval_set *set, uint64_t start, uint64_t end);

/** One that overlaps with [start, end), NULL: none. */
struct rdma_interval *rdma_interval_touching(
	const struct rdma_interval_set *set, uint64_t start, uint64_t end);

/**
 * The next in the order of starts.
 * @param than one of the set, which need not be in it any more; NULL: the first that starts at
 *   `start` or behind
 */
struct rdma_interval *rdma_interval_next(
	const struct rdma_interval_set *set, uint64_t start, const struct rdma_interval *than);

#endif
