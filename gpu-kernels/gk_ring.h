/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The builder's end of the gang rings: single producer (builder), single consumer (gang).
 *
 * Counters run freely and wrap at 2^32; only differences are used. There is one gk_ring per gang,
 * private to the builder's thread. The shared state is struct gk_channel.
 */
#ifndef GK_RING_H
#define GK_RING_H

#include <stddef.h>

#include "gk_abi.h"

struct gk_ring {
	struct gk_channel *channel;
	uint32_t gang;
	uint32_t head;	    /**< batches handed over */
	uint32_t raw_tail;  /**< batches whose packets were returned */
	uint32_t done_tail; /**< batches collected */
	/** last value read from gk_done.done; avoids cache misses on the shared line */
	uint32_t done_cache;
};

/** Initialise a ring without batches in flight: a zeroed one, or one of stopped gangs. */
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

/** Return the number of batches handed over and not collected. */
static inline uint32_t
gk_ring_pending(const struct gk_ring *r)
{
	return r->head - r->done_tail;
}

/**
 * Return the descriptor for the next gk_ring_submit(). Fill it completely.
 * @return NULL: GK_RING_SIZE batches are in flight
 */
static inline struct gk_work *
gk_ring_next(struct gk_ring *r)
{
	if (gk_ring_pending(r) == GK_RING_SIZE)
		return NULL;
	return &r->channel->work[r->gang][r->head & (GK_RING_SIZE - 1)];
}

/** Hand the descriptor over and ring the doorbell. @return the batch's number in this ring */
static inline uint32_t
gk_ring_submit(struct gk_ring *r)
{
	uint32_t batch = r->head++;

	__atomic_store_n(&r->channel->bell.head[r->gang], r->head, __ATOMIC_RELEASE);
	return batch;
}

/** Return the descriptor of a batch that was handed over and is not collected yet. */
static inline const struct gk_work *
gk_ring_work(const struct gk_ring *r, uint32_t batch)
{
	return &r->channel->work[r->gang][batch & (GK_RING_SIZE - 1)];
}

/** Get the next batch whose packets the gang has released, in order. @return 0: there is none */
static inline int
gk_ring_take_raw(struct gk_ring *r, uint32_t *batch)
{
	if (r->raw_tail == r->head ||
		r->raw_tail == __atomic_load_n(&r->channel->done[r->gang].raw, __ATOMIC_ACQUIRE))
		return 0;
	*batch = r->raw_tail++;
	return 1;
}

/** Return non-zero if a batch is complete, so that its results and outputs may be read. */
static inline int
gk_ring_is_done(struct gk_ring *r, uint32_t batch)
{
	if ((int32_t)(r->done_cache - batch) <= 0)
		r->done_cache = __atomic_load_n(&r->channel->done[r->gang].done, __ATOMIC_ACQUIRE);
	return (int32_t)(r->done_cache - batch) > 0;
}

/**
 * Return the oldest descriptor to the ring, after reading the batch's results. Call
 * gk_ring_take_raw() for the batch first if its packets are needed: the descriptor that lists them
 * is reused.
 */
static inline void
gk_ring_collect(struct gk_ring *r)
{
	r->done_tail++;
}

/**
 * Return 0, or the reason why the gang failed: a negative errno. gk_work_check() of the oldest
 * batch gives details.
 */
static inline int
gk_ring_error(const struct gk_ring *r)
{
	return (int)__atomic_load_n(&r->channel->done[r->gang].error, __ATOMIC_ACQUIRE);
}

#endif /* GK_RING_H */
