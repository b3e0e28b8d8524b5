/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_INTERVAL_H
#define RDMA_INTERVAL_H

/**
 * @file
 * A set of address intervals, which may overlap. It is a treap (Seidel and Aragon, 1996) ordered by
 * start; each node also has the largest end of its subtree. Nodes are embedded in the objects of
 * the set. All operations take logarithmic expected time.
 */

#include <stdint.h>

struct rdma_interval {
	uint64_t start, end; /**< [start, end) */
	/* internal */
	uint64_t end_max; /**< largest end of the node's subtree */
	uint32_t priority;
	struct rdma_interval *left, *right;
};

struct rdma_interval_set {
	struct rdma_interval *root;
	uint64_t random; /**< state of the random priorities; any seed is valid */
};

/** Add an interval. The caller has set its start and end. */
void rdma_interval_insert(struct rdma_interval_set *set, struct rdma_interval *interval);

/** Remove an interval that is in the set. */
void rdma_interval_remove(struct rdma_interval_set *set, struct rdma_interval *interval);

/** Find an interval that contains all of [start, end). @return NULL: none */
struct rdma_interval *rdma_interval_holding(
	const struct rdma_interval_set *set, uint64_t start, uint64_t end);

/** Find an interval that overlaps with [start, end). @return NULL: none */
struct rdma_interval *rdma_interval_touching(
	const struct rdma_interval_set *set, uint64_t start, uint64_t end);

/**
 * Find the next interval in the order of starts.
 * @param start start of `than`, or the lowest start to find
 * @param than the previous interval; it may have been removed from the set. NULL: find the first
 *   interval that starts at `start` or after it
 */
struct rdma_interval *rdma_interval_next(
	const struct rdma_interval_set *set, uint64_t start, const struct rdma_interval *than);

#endif
