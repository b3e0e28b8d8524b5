/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_LANE_H
#define ROCE_LANE_H

/**
 * @file
 * A poll group: one engine, all of it one lcore's. See roce.h.
 */

#include <sys/queue.h>

#include <rte_branch_prediction.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include "roce.h"
#include "engine/copy.h"
#include "engine/timer.h"

#define ROCE_BURST	 32  /* packets received at once */
#define ROCE_TX_PENDING	 128 /* packets made and not yet taken by the port */
#define ROCE_QUANTUM	 16  /* packets of one queue pair before others have their turn */
#define ROCE_SPARE_MBUFS 256
#define ROCE_SPARE_AHEAD 12   /* mbufs are asked for so many ahead of their use: of four packets */
#define ROCE_RING_SLOTS	 1024 /* of each ring between lcores */
#define ROCE_COPY_MAX	 256  /* payload up to this many bytes is copied behind the headers */
#define ROCE_GROUPS_MAX	 64   /* memberships of a poll group's queue pairs */
/* headers, payload that is copied, pad and ICRC */
#define ROCE_FRAME_ROOM (RTE_PKTMBUF_HEADROOM + ROCE_HEADER_MAX + ROCE_COPY_MAX + 8)

TAILQ_HEAD(roce_qp_list, roce_qp);

struct roce_group {
	struct roce_gid gid;
	struct roce_qp *qp;
};

struct roce_poll_group {
	struct roce_dev *dev;
	uint16_t index;
	uint16_t port, queue;
	_Atomic uint32_t owner;	    /**< lcore; ROCE_OWNER_NONE, ROCE_OWNER_CALL */
	uint64_t now;		    /**< TSC at the begin of this poll */
	struct roce_qp_list active; /**< queue pairs with something to send */

	struct rte_mempool *pool;		  /**< of frames to send */
	struct rte_mbuf *spare[ROCE_SPARE_MBUFS]; /**< raw: reset when one is used */
	unsigned int nb_spare;
	struct rte_mbuf *tx[ROCE_TX_PENDING];
	unsigned int tx_end; /**< how many are pending */

	struct roce_group groups[ROCE_GROUPS_MAX];
	unsigned int nb_groups;
	bool held;     /**< a queue pair waits until the port lets go of frames */
	bool streamed; /**< payload was written past the caches, and not fenced since */

	struct rte_ring *calls;	     /**< control -> poll group: struct roce_call */
	struct rte_ring *to_pg;	     /**< control -> poll group: frames */
	struct rte_ring *to_control; /**< poll group -> control: frames */
	struct rte_ring *notes;	     /**< poll group -> control: struct roce_note */
	struct rte_ring
		*handover[ROCE_POLL_GROUPS_MAX]; /**< other poll group -> poll group: frames */

	struct roce_wheel wheel;
	uint64_t stats[ROCE_STATS];
} __rte_cache_aligned;

#define ROCE_OWNER_NONE UINT32_MAX
#define ROCE_OWNER_CALL (UINT32_MAX - 1) /* the control lcore runs calls in an owner's absence */

/** @return 0; -ENOMEM */
int roce_poll_group_open(struct roce_dev *dev, uint16_t index);
/** Send what the control lcore said last: good-byes. */
void roce_poll_group_finish(struct roce_poll_group *pg);
void roce_poll_group_close(struct roce_poll_group *pg);

/** A pool of frames. @param room bytes of one, headroom included @return NULL: no memory */
struct rte_mempool *roce_pool_make(const struct roce_dev *dev, const char *what, unsigned int n,
	unsigned int cache, unsigned int room);

/** Free a pool when all of it is back; else it stays for now, and the log says so. */
void roce_pool_free(struct roce_dev *dev, struct rte_mempool *pool);

unsigned int roce_poll_group_progress(struct rdma_dev *dev, uint16_t pg);

/** Where a frame comes from: who has seen it before passes it on no more. */
enum roce_from {
	ROCE_FROM_PORT,
	ROCE_FROM_DEVICE, /**< another one on the port */
	ROCE_FROM_LANE,	  /**< another one of the device */
};

/** Take frames in, whoever received them: engine/rx.c. */
void roce_poll_group_rx(
	struct roce_poll_group *pg, struct rte_mbuf **m, unsigned int n, enum roce_from from);

/**
 * The poll group is polled by another lcore than before. @return false: calls are being run just
 * now
 */
bool roce_poll_group_take(struct roce_poll_group *pg);

/**
 * The calling lcore is about to work on the poll group. @return false: not now, as
 * roce_poll_group_take()
 */
static inline bool
roce_poll_group_enter(struct roce_poll_group *pg)
{
	return likely(atomic_load_explicit(&pg->owner, memory_order_relaxed) == rte_lcore_id()) ||
		roce_poll_group_take(pg);
}

/** Hand what is pending to the port. */
void roce_poll_group_flush(struct roce_poll_group *pg);

/**
 * Have the port let go of frames that it has sent, where it can. As a call of
 * roce_poll_group_call().
 */
int roce_poll_group_reclaim(struct roce_poll_group *pg, void *arg);

/** Tell the control lcore. */
void roce_poll_group_note(struct roce_poll_group *pg, enum roce_note_type type, uint32_t qpn);

/**
 * All payload that was placed is visible before anything that is written later: before the next
 * message, before frames leave, before completions can be looked at. Late: by then the stores are
 * mostly through, and nothing waits.
 */
static inline void
roce_poll_group_settle(struct roce_poll_group *pg)
{
	if (pg->streamed)
		roce_copy_fence();
	pg->streamed = false;
}

/** Is a message of that length placed past the caches? */
static inline bool
roce_poll_group_streams(struct roce_poll_group *pg, uint64_t length)
{
	const bool stream = length >= ROCE_STREAM_MIN;

	pg->streamed |= stream;
	return stream;
}

/** Count by n. The poll group's lcore alone writes; anybody may read meanwhile. */
static inline void
roce_count_n(struct roce_poll_group *pg, enum roce_stat stat, uint64_t n)
{
	__atomic_store_n(&pg->stats[stat], pg->stats[stat] + n, __ATOMIC_RELAXED);
}

static inline void
roce_count(struct roce_poll_group *pg, enum roce_stat stat)
{
	roce_count_n(pg, stat, 1);
}

static inline unsigned int
roce_poll_group_tx_room(const struct roce_poll_group *pg)
{
	return ROCE_TX_PENDING - pg->tx_end;
}

static inline void
roce_poll_group_tx(struct roce_poll_group *pg, struct rte_mbuf *m)
{
	pg->tx[pg->tx_end++] = m;
	roce_count(pg, ROCE_TX_PACKETS);
}

/** Get more mbufs: below those that have been asked for. */
void roce_poll_group_refill(struct roce_poll_group *pg);

/** Have so many mbufs at hand. @return false: the pool is empty, counted */
static inline bool
roce_poll_group_spare(struct roce_poll_group *pg, unsigned int n)
{
	if (unlikely(pg->nb_spare < n + ROCE_SPARE_AHEAD))
		roce_poll_group_refill(pg);
	if (likely(pg->nb_spare >= n))
		return true;
	roce_count(pg, ROCE_TX_NOMBUF);
	return false;
}

#endif
