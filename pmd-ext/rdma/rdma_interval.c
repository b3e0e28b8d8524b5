/* SPDX-License-Identifier: BSD-3-Clause */
#include <stddef.h>

#include "rdma_interval.h"

/** xorshift64*, Marsaglia 2003, Vigna 2016 */
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

/** Cuts a tree in two: what starts before `at`, and the rest. */
static void
split(struct rdma_interval *tree, uint64_t at, struct rdma_interval **below,
	struct rdma_interval **above)
{
	while (tree) {
		if (tree->start < at) {
			*below = tree;
			below = &tree->right;
			tree = tree->right;
		} else {
			*above = tree;
			above = &tree->left;
			tree = tree->left;
		}
	}
	*below = NULL;
	*above = NULL;
}

void
rdma_interval_insert(struct rdma_interval_set *set, struct rdma_interval *interval)
{
	struct rdma_interval **at = &set->root;

	interval->priority = next_random(&set->random);
	while (*at && (*at)->priority >= interval->priority)
		at = interval->start < (*at)->start ? &(*at)->left : &(*at)->right;
	split(*at, interval->start, &interval->left, &interval->right);
	*at = interval;
}

void
rdma_interval_remove(struct rdma_interval_set *set, struct rdma_interval *interval)
{
	struct rdma_interval **at = &set->root, *low = interval->left, *high = interval->right;

	while (*at != interval)
		at = interval->start < (*at)->start ? &(*at)->left : &(*at)->right;
	/* its two subtrees become one, the higher priority on top */
	while (low && high) {
		if (low->priority >= high->priority) {
			*at = low;
			at = &low->right;
			low = low->right;
		} else {
			*at = high;
			at = &high->left;
			high = high->left;
		}
	}
	*at = low ? low : high;
}

struct rdma_interval *
rdma_interval_find(const struct rdma_interval_set *set, uint64_t start, uint64_t end)
{
	struct rdma_interval *at = set->root, *found = NULL;

	while (at) {
		if (at->end <= start) {
			at = at->right;
		} else {
			/* ends behind the start: this one, or one before it */
			found = at;
			at = at->left;
		}
	}
	return found && found->start < end ? found : NULL;
}
