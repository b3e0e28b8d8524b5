/* SPDX-License-Identifier: BSD-3-Clause */
/* Allocator of address ranges with segregated free lists, see rdma_extent.h. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include <rte_common.h>

#include "rdma_extent.h"

/* Size classes of free ranges: one coarse class per power of two, divided into 8 fine classes. */
#define FINE_BITS  3
#define FINE	   (1u << FINE_BITS)
#define COARSE	   48
#define NONE	   UINT32_MAX
#define SEARCH_MAX 64
#define BYTES_MAX  (UINT64_C(1) << 52)

/** A range. The ranges of a span form a list in the order of their addresses. */
struct node {
	uint64_t addr, length;
	uint32_t before, after; /**< neighbours in the span, NONE at its ends */
	/** Neighbours in the list of its class, if free; class_next: also of the unused nodes */
	uint32_t class_before, class_next;
	uint32_t span;
	uint8_t state;
};

enum {
	UNUSED,
	FREE,
	TAKEN
};

struct rdma_extents {
	uint32_t nb_nodes, unused; /**< unused: first unused node */
	uint32_t nb_taken, most, nb_spans, most_spans;
	uint64_t coarse;	     /**< bitmap: coarse classes with a free range */
	uint8_t fine[COARSE];	     /**< bitmap: fine classes with a free range */
	uint32_t head[COARSE][FINE]; /**< list of the free ranges of a class, unordered */
	struct node node[];
};

struct rdma_extents *
rdma_extents_create(uint32_t most, uint32_t spans)
{
	/* At most one free range lies between two used ones and at each end of a span. */
	const uint64_t nodes = 2 * (uint64_t)most + 2 * (uint64_t)spans;
	struct rdma_extents *x;
	uint32_t i;

	if (nodes >= NONE)
		return NULL;
	x = calloc(1, sizeof(*x) + nodes * sizeof(x->node[0]));
	if (!x)
		return NULL;
	x->nb_nodes = nodes;
	x->most = most;
	x->most_spans = spans;
	for (i = 0; i < nodes; i++)
		x->node[i].class_next = i + 1 < nodes ? i + 1 : NONE;
	for (i = 0; i < COARSE * FINE; i++)
		x->head[i / FINE][i % FINE] = NONE;
	return x;
}

void
rdma_extents_destroy(struct rdma_extents *x)
{
	free(x);
}

/** The class of a length. */
static void
class_of(uint64_t length, uint32_t *coarse, uint32_t *fine)
{
	const uint64_t units = length / RDMA_EXTENT_UNIT;
	const uint32_t top = 63 - __builtin_clzll(units | 1);

	if (top < FINE_BITS) {
		*coarse = 0;
		*fine = units;
	} else {
		*coarse = top - FINE_BITS + 1;
		*fine = (units >> (top - FINE_BITS)) & (FINE - 1);
	}
}

static void
class_put(struct rdma_extents *x, uint32_t id)
{
	struct node *node = &x->node[id];
	uint32_t c, f;

	class_of(node->length, &c, &f);
	node->state = FREE;
	node->class_before = NONE;
	node->class_next = x->head[c][f];
	if (node->class_next != NONE)
		x->node[node->class_next].class_before = id;
	x->head[c][f] = id;
	x->fine[c] |= 1u << f;
	x->coarse |= UINT64_C(1) << c;
}

static void
class_take(struct rdma_extents *x, uint32_t id)
{
	struct node *node = &x->node[id];
	uint32_t c, f;

	class_of(node->length, &c, &f);
	if (node->class_before != NONE)
		x->node[node->class_before].class_next = node->class_next;
	else
		x->head[c][f] = node->class_next;
	if (node->class_next != NONE)
		x->node[node->class_next].class_before = node->class_before;
	if (x->head[c][f] == NONE) {
		x->fine[c] &= ~(1u << f);
		if (!x->fine[c])
			x->coarse &= ~(UINT64_C(1) << c);
	}
}

/** Find the first non-empty class at or above a class. @return its first range; NONE: none */
static uint32_t
class_find(const struct rdma_extents *x, uint32_t c, uint32_t f)
{
	uint32_t fine;
	uint64_t coarse;

	if (c >= COARSE)
		return NONE;
	fine = x->fine[c] & (UINT8_MAX << f) & UINT8_MAX;
	if (!fine) {
		coarse = c + 1 < 64 ? x->coarse & (UINT64_MAX << (c + 1)) : 0;
		if (!coarse)
			return NONE;
		c = __builtin_ctzll(coarse);
		fine = x->fine[c];
	}
	return x->head[c][__builtin_ctz(fine)];
}

/** Find a free range of at least this length. @return NONE: none found */
static uint32_t
find(const struct rdma_extents *x, uint64_t length)
{
	uint32_t c, f, id, looks;

	class_of(length, &c, &f);
	/* All ranges of the next class are long enough. The ranges of the length's own class must
	 * be checked, at most SEARCH_MAX of them. */
	id = class_find(x, f + 1 < FINE ? c : c + 1, f + 1 < FINE ? f + 1 : 0);
	if (id != NONE)
		return id;
	id = x->head[c][f];
	for (looks = 0; id != NONE && looks < SEARCH_MAX; looks++) {
		if (x->node[id].length >= length)
			return id;
		id = x->node[id].class_next;
	}
	return NONE;
}

static uint32_t
node_new(struct rdma_extents *x)
{
	const uint32_t id = x->unused;

	if (id != NONE)
		x->unused = x->node[id].class_next;
	return id;
}

static void
node_drop(struct rdma_extents *x, uint32_t id)
{
	x->node[id].state = UNUSED;
	x->node[id].class_next = x->unused;
	x->unused = id;
}

int
rdma_extents_add(
	struct rdma_extents *x, uint64_t addr, uint64_t length, uint32_t span, uint32_t *id)
{
	if (x->nb_spans == x->most_spans)
		return -ENOSPC;
	*id = node_new(x);
	x->nb_spans++;
	x->node[*id] = (struct node){
		.addr = addr, .length = length, .before = NONE, .after = NONE, .span = span};
	class_put(x, *id);
	return 0;
}

int
rdma_extents_remove(struct rdma_extents *x, uint32_t id)
{
	/* The first range of a span keeps its node: split() and merge_next() change only the ones
	 * after it. */
	if (x->node[id].state != FREE || x->node[id].after != NONE)
		return -EBUSY;
	class_take(x, id);
	node_drop(x, id);
	x->nb_spans--;
	return 0;
}

/** Split a node at `length`. @return the new second node, which is in no class yet */
static uint32_t
split(struct rdma_extents *x, uint32_t id, uint64_t length)
{
	const uint32_t rest = node_new(x);
	struct node *node = &x->node[id], *other = &x->node[rest];

	*other = *node;
	other->addr += length;
	other->length -= length;
	other->before = id;
	node->length = length;
	node->after = rest;
	if (other->after != NONE)
		x->node[other->after].before = rest;
	return rest;
}

int
rdma_extents_alloc(
	struct rdma_extents *x, uint64_t length, uint64_t align, struct rdma_extent *extent)
{
	uint64_t skip;
	uint32_t id;

	align = RTE_MAX(align, (uint64_t)RDMA_EXTENT_UNIT);
	if (length == 0 || length > BYTES_MAX || align > BYTES_MAX)
		return -ENOMEM;
	if (x->nb_taken == x->most)
		return -ENOSPC;
	length = RTE_ALIGN_CEIL(length, (uint64_t)RDMA_EXTENT_UNIT);
	id = find(x, length + align - RDMA_EXTENT_UNIT);
	if (id == NONE && align > RDMA_EXTENT_UNIT) {
		/* Try a shorter range that happens to be aligned. */
		id = find(x, length);
		if (id != NONE && x->node[id].addr % align)
			id = NONE;
	}
	if (id == NONE)
		return -ENOMEM;
	class_take(x, id);
	skip = RTE_ALIGN_CEIL(x->node[id].addr, align) - x->node[id].addr;
	if (skip) {
		const uint32_t front = id;

		id = split(x, front, skip);
		class_put(x, front);
	}
	if (x->node[id].length > length)
		class_put(x, split(x, id, length));
	x->node[id].state = TAKEN;
	x->nb_taken++;
	*extent = (struct rdma_extent){x->node[id].addr, length, x->node[id].span, id};
	return 0;
}

/** Merge a node with the node after it. */
static void
merge_next(struct rdma_extents *x, uint32_t id)
{
	struct node *node = &x->node[id];
	const uint32_t after = node->after;

	node->length += x->node[after].length;
	node->after = x->node[after].after;
	if (node->after != NONE)
		x->node[node->after].before = id;
	node_drop(x, after);
}

int
rdma_extents_free(struct rdma_extents *x, uint32_t id, uint64_t addr)
{
	struct node *node;

	if (id >= x->nb_nodes || x->node[id].state != TAKEN || x->node[id].addr != addr)
		return -EINVAL;
	node = &x->node[id];
	x->nb_taken--;
	if (node->after != NONE && x->node[node->after].state == FREE) {
		class_take(x, node->after);
		merge_next(x, id);
	}
	if (node->before != NONE && x->node[node->before].state == FREE) {
		id = node->before;
		class_take(x, id);
		merge_next(x, id);
	}
	class_put(x, id);
	return 0;
}
