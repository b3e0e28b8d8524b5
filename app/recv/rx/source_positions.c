/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks the positions that modules announce in their headers, to find swapped cables.
 *
 * A header has the row and column of its module in the detector. Modules are numbered down a
 * column, then down the next column. With `positions = N` (modules in a column), the position of
 * each stream follows from its number, and a stream must announce it.
 *
 * With `auto`, the stack is searched that fits most of the announced positions: the number of
 * modules in a column, and the number of this receiver's first module in the detector. Streams are
 * misplaced only if they announce each other's positions in this stack, as swapped cables do: two
 * streams, or more in a cycle. Therefore a single stream with a wrong or forged position never
 * makes another one misplaced. If swapped cables do not explain the positions, nothing is checked:
 *  - Two streams announce the same position, or a stream announces a position outside the stack, or
 *    that of a module that is not there.
 *  - Two different stacks fit equally well.
 *  - Half of the streams or more would be misplaced. The detector is then rather configured in
 *    another order. Exception: a single pair of streams is found in a detector of two to four
 *    streams if these announce all positions of the detector.
 *
 * Of two streams, either may be the wrong one. They count as swapped if they announce each other's
 * positions and are the only two of a detector.
 */

#include "rx/sources.h"

/** Largest number of modules in a column that is tried. */
#define COLUMN_MAX 64

/** Arrangement of modules in the detector. */
struct stack {
	uint32_t column; /**< modules in a column */
	uint32_t first;	 /**< number of this receiver's first module in the detector */
};

/** Streams that have announced a position. */
struct announced {
	const struct detector *detector;
	uint32_t position[DETECTOR_STREAMS_MAX]; /**< by stream */
	uint32_t stream[DETECTOR_STREAMS_MAX];	 /**< [n] streams with a position */
	uint32_t n;
};

/** How streams fit into a stack. */
struct fit {
	struct stack stack;
	uint32_t good;	/**< streams that announce their own position */
	uint64_t moved; /**< bits of streams that announce another stream's position */
	uint64_t to;	/**< bits of these other streams */
};

static uint32_t
stack_position(const struct stack *stack, const struct detector *d, uint32_t stream)
{
	const uint32_t module = stack->first + detector_stream_module(d, stream);
	const uint32_t row = module % stack->column * d->interfaces + stream % d->interfaces;

	return module / stack->column << 16 | row;
}

/** Module number of a position, in the detector. */
static uint32_t
stack_module(uint32_t column, const struct detector *d, uint32_t position)
{
	return (position >> 16) * column + (position & UINT16_MAX) / d->interfaces;
}

/** Stream of a position; d->streams: none. */
static uint32_t
stack_stream(const struct stack *stack, const struct detector *d, uint32_t position)
{
	const uint32_t row = position & UINT16_MAX;
	const uint32_t module = stack_module(stack->column, d, position);
	uint64_t stream;

	if (row / d->interfaces >= stack->column || module < stack->first)
		return d->streams;
	stream = (uint64_t)(module - stack->first) * d->interfaces + row % d->interfaces;
	return RTE_MIN(stream, d->streams);
}

/** Compare the announced positions with a stack. @return false: a position is outside the stack */
static bool
fit(struct fit *f, const struct announced *a, const struct stack *stack)
{
	*f = (struct fit){.stack = *stack};
	for (uint32_t i = 0; i < a->n; i++) {
		const uint32_t s = a->stream[i];
		const uint32_t to = stack_stream(stack, a->detector, a->position[s]);

		if (to >= a->detector->streams)
			return false;
		if (to == s) {
			f->good++;
			continue;
		}
		f->moved |= UINT64_C(1) << s;
		f->to |= UINT64_C(1) << to;
	}
	return true;
}

static bool
is_different(const struct announced *a, const struct stack *one, const struct stack *other)
{
	for (uint32_t i = 0; i < a->n; i++)
		if (stack_position(one, a->detector, a->stream[i]) !=
			stack_position(other, a->detector, a->stream[i]))
			return true;
	return false;
}

/** Search for the stack that fits best. */
struct search {
	struct fit best;    /**< best stack so far */
	bool any, is_clear; /**< `best` is valid; no different stack fits as well */
	/** most correct streams of any stack, even if others are outside the stack */
	uint32_t most;
};

static void
try_stack(struct search *search, const struct announced *a, const struct stack *stack)
{
	struct fit f;

	if (!fit(&f, a, stack) || (search->any && f.good < search->best.good))
		return;
	if (!search->any || f.good > search->best.good) {
		search->best = f;
		search->any = true;
		search->is_clear = true;
	} else if (is_different(a, &f.stack, &search->best.stack)) {
		search->is_clear = false;
	}
}

/**
 * Try all stacks with this number of modules in a column in which some stream is correct, and the
 * stack that begins at the detector's first module.
 */
static void
try_column(struct search *search, const struct announced *a, uint32_t column)
{
	const struct detector *d = a->detector;
	uint32_t first[DETECTOR_STREAMS_MAX], good[DETECTOR_STREAMS_MAX], n = 0;
	struct stack stack = {.column = column};

	try_stack(search, a, &stack);
	for (uint32_t i = 0; i < a->n; i++) {
		const uint32_t s = a->stream[i], p = a->position[s];
		const uint32_t row = p & UINT16_MAX, own = detector_stream_module(d, s);
		const uint32_t module = stack_module(column, d, p);
		uint32_t k = 0;

		if (row / d->interfaces >= column || row % d->interfaces != s % d->interfaces ||
			module < own)
			continue;
		while (k < n && first[k] != module - own)
			k++;
		if (k == n) {
			first[n] = module - own;
			good[n++] = 0;
		}
		good[k]++;
	}
	for (uint32_t k = 0; k < n; k++) {
		search->most = RTE_MAX(search->most, good[k]);
		stack.first = first[k];
		if (good[k] == search->most)
			try_stack(search, a, &stack);
	}
}

/**
 * Read the announced positions.
 * @param same  out: all streams announce the same position
 * @return false: two streams announce the same position
 */
static bool
read_announced(struct announced *a, const struct sources *all, bool *same)
{
	uint32_t sorted[DETECTOR_STREAMS_MAX], n_same = 0;

	*a = (struct announced){.detector = all->detector};
	for (uint32_t s = 0; s < all->detector->streams; s++) {
		const uint32_t p = __atomic_load_n(&all->stream[s].position, __ATOMIC_RELAXED);
		uint32_t at = a->n;

		if (p == SOURCE_POSITION_UNKNOWN)
			continue;
		for (; at > 0 && sorted[at - 1] > p; at--)
			sorted[at] = sorted[at - 1];
		n_same += at > 0 && sorted[at - 1] == p;
		sorted[at] = p;
		a->position[s] = p;
		a->stream[a->n++] = s;
	}
	*same = a->n > 1 && n_same == a->n - 1;
	return n_same == 0;
}

static enum source_order
find_order(const struct announced *a, struct stack *stack)
{
	const struct detector *d = a->detector;
	struct search search = {0};
	const struct fit *best = &search.best;
	bool is_whole;
	uint32_t wrong;

	for (uint32_t column = 1; column <= COLUMN_MAX; column++)
		try_column(&search, a, column);
	if (!search.any || !search.is_clear || best->moved != best->to)
		return SOURCE_ORDER_ODD;
	is_whole = a->n == d->streams && best->stack.first == 0;
	if (best->good < search.most && !(is_whole && d->streams == 2))
		return SOURCE_ORDER_ODD;
	*stack = best->stack;
	wrong = a->n - best->good;
	if (wrong == 0)
		return SOURCE_ORDER_GOOD;
	return 2 * wrong < a->n || (wrong == 2 && is_whole) ? SOURCE_ORDER_SWAPPED
							    : SOURCE_ORDER_ODD;
}

uint32_t
sources_column(const struct sources *all)
{
	const struct detector *d = all->detector;
	struct announced a;
	struct stack stack;
	bool same;

	/* with fewer streams, several stacks may fit */
	if (!read_announced(&a, all, &same) || a.n != d->streams ||
		find_order(&a, &stack) != SOURCE_ORDER_GOOD || stack.first != 0)
		return 0;
	return RTE_MIN(stack.column, d->modules);
}

enum source_order
sources_expected(const struct sources *all, uint32_t position[DETECTOR_STREAMS_MAX])
{
	const struct detector *d = all->detector;
	enum source_order order = SOURCE_ORDER_GOOD;
	struct stack stack = {.column = all->settings->positions};
	struct announced a;
	bool same;

	for (uint32_t s = 0; s < d->streams; s++)
		position[s] = SOURCE_POSITION_UNKNOWN;
	if (all->settings->positions == SOURCE_POSITIONS_OFF)
		return SOURCE_ORDER_OFF;
	if (all->settings->positions == SOURCE_POSITIONS_AUTO) {
		if (!read_announced(&a, all, &same))
			return same ? SOURCE_ORDER_SAME : SOURCE_ORDER_ODD;
		if (a.n == 0)
			return SOURCE_ORDER_OFF;
		order = find_order(&a, &stack);
		if (order == SOURCE_ORDER_ODD)
			return order;
	}
	for (uint32_t s = 0; s < d->streams; s++)
		position[s] = stack_position(&stack, d, s);
	return order;
}
