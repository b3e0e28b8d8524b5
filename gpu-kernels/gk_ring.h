/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The builder's end of the gang rings: single producer (builder), single consumer (gang).
 *
 * Counters run free and wrap at 2^32; differences are what counts. One gk_ring per gang, private
 * to the builder's thread; what is shared is struct gk_channel.
 */
#ifndef GK_RING_H
#define GK_RING_H

#include <stddef.h>

#include "gk_abi.h"

struct gk_ring {
	struct gk_channel *channel;
	uint32_t gang;
	uint32_t head;	     /**< batches handed over */
	uint32_t raw_tail;   /**< batches whose packets were given back */
	uint32_t done_tail;  /**< batches collected */
	uint32_t done_cache; /**< last gk_done.done seen: saves a miss on the shared line */
};

/** Take up a ring of which nothing is out: a zeroed one, or where it stood when gangs stopped. */
static inline void
gk_ring_init(struct gk_ring *r, struct gk_channel *channel, uint32_t gang)
{
	const uint32_t head = channel->bell.head[gang];

	r->channel = channel;
	r->gang = gang;
	r->head = head;
	r->raw_tail = head;
	r->done_tail = head;
	r->done_cache = head;
}

/** Batches handed over and not collected. */
static inline uint32_t
gk_ring_pending(const struct gk_ring *r)
{
	return r->head - r->done_tail;
}

/**
 * The descriptor that the next gk_ring_submit() hands over; fill it completely.
 * @return NULL when GK_RING_SIZE batches are out
 */
static inline struct gk_work *
gk_ring_next(struct gk_ring *r)
{
	if (gk_ring_pending(r) == GK_RING_SIZE)
		return NULL;
	return &r->channel->work[r->gang][r->head & (GK_RING_SIZE - 1)];
}

/** Hand the descriptor over and ring the bell. @return the batch's number in this ring */
static inline uint32_t
gk_ring_submit(struct gk_ring *r)
{
	uint32_t batch = r->head++;

	__atomic_store_n(&r->channel->bell.head[r->gang], r->head, __ATOMIC_RELEASE);
	return batch;
}

/** A batch that was handed over and is not collected yet. */
static inline const struct gk_work *
gk_ring_work(const struct gk_ring *r, uint32_t batch)
{
	return &r->channel->work[r->gang][batch & (GK_RING_SIZE - 1)];
}

/** The next batch whose packets the gang has let go of, in order. @return 0 if there is none */
static inline int
gk_ring_take_raw(struct gk_ring *r, uint32_t *batch)
{
	if (r->raw_tail == r->head ||
		r->raw_tail == __atomic_load_n(&r->channel->done[r->gang].raw, __ATOMIC_ACQUIRE))
		return 0;
	*batch = r->raw_tail++;
	return 1;
}

/** Is this batch complete: may its results and outputs be read? */
static inline int
gk_ring_is_done(struct gk_ring *r, uint32_t batch)
{
	if ((int32_t)(r->done_cache - batch) <= 0)
		r->done_cache = __atomic_load_n(&r->channel->done[r->gang].done, __ATOMIC_ACQUIRE);
	return (int32_t)(r->done_cache - batch) > 0;
}

/**
 * Give the oldest descriptor back, after its results were read. Take its packets first
 * (gk_ring_take_raw()) if they are wanted: the descriptor that names them is reused.
 */
static inline void
gk_ring_collect(struct gk_ring *r)
{
	r->done_tail++;
}

/** 0, or why the gang gave up: negative errno; gk_work_check() of the oldest batch says more. */
static inline int
gk_ring_error(const struct gk_ring *r)
{
	return (int)__atomic_load_n(&r->channel->done[r->gang].error, __ATOMIC_ACQUIRE);
}

#endif /* GK_RING_H */
