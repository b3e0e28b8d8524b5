/* SPDX-License-Identifier: BSD-3-Clause */
/* Set of address intervals, a treap. See rdma_interval.h. */
#include <stdbool.h>
#include <stddef.h>

#include "rdma_interval.h"

/** xorshift64* (Marsaglia 2003, Vigna 2016) */
static uint32_t
next_random(uint64_t *state)
{
	uint64_t x = *state ? *state : UINT64_C(0x9e3779b97f4a7c15);

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return (x * UINT64_C(0x2545f4914f6cdd1d)) >> 32;
}

/** Order by start; intervals with equal starts by their address in memory. */
static bool
before(const struct rdma_interval *a, const struct rdma_interval *b)
{
	return a->start != b->start ? a->start < b->start : (uintptr_t)a < (uintptr_t)b;
}

static uint64_t
end_of(const struct rdma_interval *tree)
{
	return tree ? tree->end_max : 0;
}

static struct rdma_interval *
updated(struct rdma_interval *node)
{
	const uint64_t left = end_of(node->left), right = end_of(node->right);
	const uint64_t below = left > right ? left : right;

	node->end_max = node->end > below ? node->end : below;
	return node;
}

/** Split a tree into the nodes before `at` and the rest. */
static void
split(struct rdma_interval *tree, const struct rdma_interval *at, struct rdma_interval **low,
	struct rdma_interval **high)
{
	if (!tree) {
		*low = NULL;
		*high = NULL;
	} else if (before(tree, at)) {
		split(tree->right, at, &tree->right, high);
		*low = updated(tree);
	} else {
		split(tree->left, at, low, &tree->left);
		*high = updated(tree);
	}
}

static struct rdma_interval *
insert(struct rdma_interval *tree, struct rdma_interval *node)
{
	if (!tree || tree->priority < node->priority) {
		split(tree, node, &node->left, &node->right);
		return updated(node);
	}
	if (before(node, tree))
		tree->left = insert(tree->left, node);
	else
		tree->right = insert(tree->right, node);
	return updated(tree);
}

/** Join two trees. All nodes of the first are before all nodes of the second. */
static struct rdma_interval *
join(struct rdma_interval *low, struct rdma_interval *high)
{
	if (!low || !high)
		return low ? low : high;
	if (low->priority >= high->priority) {
		low->right = join(low->right, high);
		return updated(low);
	}
	high->left = join(low, high->left);
	return updated(high);
}

static struct rdma_interval *
remove_from(struct rdma_interval *tree, const struct rdma_interval *node)
{
	if (tree == node)
		return join(tree->left, tree->right);
	if (before(node, tree))
		tree->left = remove_from(tree->left, node);
	else
		tree->right = remove_from(tree->right, node);
	return updated(tree);
}

void
rdma_interval_insert(struct rdma_interval_set *set, struct rdma_interval *interval)
{
	interval->priority = next_random(&set->random);
	set->root = insert(set->root, interval);
}

void
rdma_interval_remove(struct rdma_interval_set *set, struct rdma_interval *interval)
{
	set->root = remove_from(set->root, interval);
}

struct rdma_interval *
rdma_interval_holding(const struct rdma_interval_set *set, uint64_t start, uint64_t end)
{
	struct rdma_interval *at = set->root, *early = NULL;

	/* All nodes of the left subtree start early enough, too: remember the last left subtree
	 * that has an end late enough. */
	while (at) {
		if (at->start > start) {
			at = at->left;
			continue;
		}
		if (at->end >= end)
			return at;
		if (end_of(at->left) >= end)
			early = at->left;
		at = at->right;
	}
	/* All nodes of that subtree start early enough, and at least one ends late enough. */
	while (early && early->end < end)
		early = end_of(early->left) >= end ? early->left : early->right;
	return early;
}

struct rdma_interval *
rdma_interval_touching(const struct rdma_interval_set *set, uint64_t start, uint64_t end)
{
	struct rdma_interval *at = set->root;

	/* If a node on the left ends after `start` and does not overlap, no other node does. */
	while (at && !(at->start < end && at->end > start))
		at = end_of(at->left) > start ? at->left : at->right;
	return at;
}

struct rdma_interval *
rdma_interval_next(
	const struct rdma_interval_set *set, uint64_t start, const struct rdma_interval *than)
{
	struct rdma_interval *at = set->root, *found = NULL;

	while (at) {
		const bool behind =
			at->start != start ? at->start > start : (uintptr_t)at > (uintptr_t)than;

		if (behind)
			found = at;
		at = behind ? at->left : at->right;
	}
	return found;
}
