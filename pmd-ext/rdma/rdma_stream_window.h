/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_STREAM_WINDOW_H
#define RDMA_STREAM_WINDOW_H

/**
 * @file
 * The window of a stream's receiver: which packets have arrived, which are missing and must be
 * repaired, and which are lost. It does not depend on queue pairs. Only the owner lcore uses it.
 *
 *     deliver <= next <= seen <= deliver + size
 */

#include <stdbool.h>
#include <stdint.h>

#include "counter.h"

#define STREAM_NO_BUFFER UINT32_MAX

enum entry_state {
	ENTRY_MISSING,
	ENTRY_READING, /**< a READ is in flight */
	ENTRY_HERE,
	ENTRY_LOST,
};

/** A packet of the window. */
struct stream_entry {
	uint32_t buffer;
	uint8_t state; /**< enum entry_state */
};

/** A range of missing packets. */
struct stream_range {
	uint64_t first, end;
	uint64_t due; /**< TSC: the range is requested at this time or later */
};

/**
 * Rings of ranges. The ranges of a ring have the same delay, so that they are due in order.
 */
enum range_ring {
	RANGE_NEW,
	RANGE_AGAIN, /**< requested, but not received */
	RANGE_RINGS,
};

struct stream_ranges {
	struct stream_range *at;
	uint32_t head, tail;
};

struct stream_window {
	struct stream_entry *entries;
	uint32_t size;	  /**< a power of two */
	uint32_t slots;	  /**< of the sender's ring */
	uint64_t deliver; /**< next packet for the application */
	uint64_t next;	  /**< all packets before this one have arrived or are lost */
	uint64_t seen;	  /**< all packets before this one are known to exist */
	struct stream_ranges ranges[RANGE_RINGS];
	bool rescan;	 /**< a range did not fit into its ring */
	bool repair;	 /**< false: missing packets are lost */
	uint64_t gather; /**< TSC cycles that a new range waits */
	uint64_t now;	 /**< TSC of this poll */
	uint64_t *lost;	 /**< counts packets that are lost permanently */
};

/** @param size  a power of two. @return 0; -ENOMEM */
int stream_window_init(struct stream_window *w, uint32_t size);

void stream_window_free(struct stream_window *w);

static inline struct stream_entry *
stream_entry(const struct stream_window *w, uint64_t sequence)
{
	return &w->entries[sequence & (w->size - 1)];
}

/** A packet has arrived. */
static inline void
stream_entry_fill(struct stream_entry *e, uint32_t buffer)
{
	e->buffer = buffer;
	e->state = ENTRY_HERE;
}

/** A packet is lost permanently. */
static inline void
stream_entry_lose(struct stream_window *w, struct stream_entry *e)
{
	e->state = ENTRY_LOST;
	counter_add(w->lost, 1);
}

/** Note that packets before `end` exist. Those beyond `seen` become missing. */
void stream_window_see(struct stream_window *w, uint64_t end);

/** Advance `next` over packets that have arrived or are lost. */
void stream_window_advance(struct stream_window *w);

/** The sender has overwritten all packets before `floor`: missing ones are lost. */
void stream_window_skip(struct stream_window *w, uint64_t floor);

/** All missing packets are lost: the membership has ended. */
void stream_window_give_up(struct stream_window *w);

/** Return true if no range waits for repair. */
static inline bool
stream_window_is_repaired(const struct stream_window *w)
{
	return w->ranges[RANGE_NEW].head == w->ranges[RANGE_NEW].tail &&
		w->ranges[RANGE_AGAIN].head == w->ranges[RANGE_AGAIN].tail;
}

/**
 * Take the next missing packets that are adjacent in the sender's ring, at most `most`.
 * @return their number
 */
uint16_t stream_window_take(struct stream_window *w, uint16_t most, uint64_t *first);

/** Request packets again that were requested and not received. @param wait TSC cycles */
void stream_window_again(struct stream_window *w, uint64_t first, uint64_t end, uint64_t wait);

/** Search for missing packets that are no longer in a range. */
void stream_window_rescan(struct stream_window *w);

#endif
