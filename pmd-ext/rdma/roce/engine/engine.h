/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_ENGINE_H
#define ROCE_ENGINE_H

/**
 * @file
 * A poll group: one protocol engine, owned by one lcore. See roce.h.
 */

#include <sys/queue.h>

#include <rte_branch_prediction.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include "counter.h"
#include "roce.h"
#include "engine/copy.h"
#include "engine/prefetch.h"
#include "engine/timer.h"

#define ROCE_BURST	32  /* packets received at once */
#define ROCE_TX_PENDING 128 /* packets built and not yet accepted by the port */
/*
 * A port that accepts no packet for this time will send none: its peer has exited, or its link is
 * down without an event. Pending packets would refer to their memory forever.
 */
#define ROCE_TX_STALL_MS 1000
#define ROCE_QUANTUM	 16 /* maximum packets of one queue pair before the next one is served */
#define ROCE_SPARE_MBUFS 256
#define ROCE_SPARE_AHEAD 12   /* an mbuf is prefetched this many mbufs, or four packets, ahead */
#define ROCE_RING_SLOTS	 1024 /* of each ring between lcores */
#define ROCE_COPY_MAX	 256  /* payload up to this many bytes is copied after the headers */
#define ROCE_GROUPS_MAX	 64   /* multicast memberships of a poll group's queue pairs */
/* Headers, copied payload, pad and ICRC. */
#define ROCE_FRAME_ROOM (RTE_PKTMBUF_HEADROOM + ROCE_HEADER_MAX + ROCE_COPY_MAX + 8)

TAILQ_HEAD(roce_qp_list, roce_qp);

struct roce_message;

struct roce_group {
	struct roce_gid gid;
	struct roce_qp *qp;
};

struct roce_poll_group {
	struct roce_dev *dev;
	uint16_t index;
	uint16_t port, queue;
	_Atomic uint32_t owner;	    /**< lcore; ROCE_OWNER_NONE, ROCE_OWNER_CALL */
	uint64_t now;		    /**< TSC at the start of this poll */
	struct roce_qp_list active; /**< queue pairs with something to send */

	struct rte_mempool *pool;		  /**< frames to send */
	struct rte_mbuf *spare[ROCE_SPARE_MBUFS]; /**< raw mbufs, reset when used */
	unsigned int nb_spare;
	struct rte_mbuf *tx[ROCE_TX_PENDING];
	unsigned int tx_end; /**< number of pending packets */
	uint64_t tx_stalled; /**< TSC since when pending packets wait for the port; 0: none do */

	struct roce_group groups[ROCE_GROUPS_MAX];
	unsigned int nb_groups;
	bool held;	    /**< a queue pair waits until the port frees sent frames */
	bool reads_payload; /**< the CRC of the last packet of a queue pair was checked */
	uint64_t checked;   /**< bytes of the packets of this burst whose CRC was checked */
	struct roce_prefetch prefetch; /**< of payloads that are read */
	bool streamed; /**< payload was written with non-temporal stores, without a fence since */

	struct rte_ring *calls;	     /**< control -> poll group: struct roce_call */
	struct rte_ring *to_pg;	     /**< control -> poll group: frames */
	struct rte_ring *to_control; /**< poll group -> control: frames */
	struct rte_ring *notes;	     /**< poll group -> control: struct roce_note */
	struct rte_ring
		*handover[ROCE_POLL_GROUPS_MAX]; /**< other poll group -> poll group: frames */

	/* Messages by reference: [tail, head) are not taken yet. Indexes are not wrapped. */
	uint32_t messages_head, messages_tail;
	struct roce_message *messages; /**< ROCE_MESSAGES; NULL: no such queue pair yet */

	struct roce_wheel wheel;
	uint64_t stats[ROCE_STATS];
} __rte_cache_aligned;

#define ROCE_OWNER_NONE UINT32_MAX
#define ROCE_OWNER_CALL (UINT32_MAX - 1) /* the control lcore executes calls, no lcore polls */

/** Create a poll group. @return 0; -ENOMEM */
int roce_poll_group_open(struct roce_dev *dev, uint16_t index);
/** Send the last frames of the control lcore, such as DREQs, before the device closes. */
void roce_poll_group_finish(struct roce_poll_group *pg);
void roce_poll_group_close(struct roce_poll_group *pg);

/**
 * Create a pool of frames.
 * @param room bytes of a frame, including headroom
 * @return NULL: no memory
 */
struct rte_mempool *roce_pool_make(const struct roce_dev *dev, const char *what, unsigned int n,
	unsigned int cache, unsigned int room);

/**
 * Free a pool if all its mbufs have been returned. Otherwise log this and free it when a later pool
 * is created.
 */
void roce_pool_free(struct roce_dev *dev, struct rte_mempool *pool);

unsigned int roce_poll_group_progress(struct rdma_dev *dev, uint16_t pg);

/**
 * Source of a frame. Frames from another device are not forwarded to devices again. Multicast
 * frames from another poll group are not forwarded at all.
 */
enum roce_from {
	ROCE_FROM_PORT,
	ROCE_FROM_DEVICE,     /**< another device on the port */
	ROCE_FROM_POLL_GROUP, /**< another poll group of the device */
};

/** Process received frames from any source: engine/rx.c. */
void roce_poll_group_rx(
	struct roce_poll_group *pg, struct rte_mbuf **m, unsigned int n, enum roce_from from);

/**
 * Make the calling lcore the owner of the poll group. @return false: the control lcore is executing
 * calls at the moment
 */
bool roce_poll_group_take(struct roce_poll_group *pg);

/**
 * Must be called before the calling lcore works on the poll group. @return false: not possible now,
 * as roce_poll_group_take()
 */
static inline bool
roce_poll_group_enter(struct roce_poll_group *pg)
{
	return likely(atomic_load_explicit(&pg->owner, memory_order_relaxed) == rte_lcore_id()) ||
		roce_poll_group_take(pg);
}

/** Transmit the pending packets, or drop them if the port has accepted none for some time. */
void roce_poll_group_flush(struct roce_poll_group *pg);

/**
 * Make the port free frames that it has sent, if the driver supports it. May be passed to
 * roce_poll_group_call().
 */
int roce_poll_group_reclaim(struct roce_poll_group *pg, void *arg);

/** Send an event to the control lcore. */
void roce_poll_group_note(struct roce_poll_group *pg, enum roce_note_type type, uint32_t qpn);

/**
 * Make all payload written so far visible before later stores. Call it before the next message,
 * before frames are transmitted and before the application can read completions. Calling it late
 * costs little, because most of the stores are finished by then.
 */
static inline void
roce_poll_group_settle(struct roce_poll_group *pg)
{
	if (pg->streamed)
		roce_copy_fence();
	pg->streamed = false;
}

/** Note that a packet is written with non-temporal stores. @return stream */
static inline bool
roce_poll_group_streams(struct roce_poll_group *pg, bool stream)
{
	pg->streamed |= stream;
	return stream;
}

/** Add n to a counter. Only the poll group's lcore writes; any thread may read. */
static inline void
roce_count_n(struct roce_poll_group *pg, enum roce_stat stat, uint64_t n)
{
	counter_add(&pg->stats[stat], n);
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

/** Get more mbufs. They are stored below the ones that are already prefetched. */
void roce_poll_group_refill(struct roce_poll_group *pg);

/** Make at least n spare mbufs available. @return false: the pool is empty, counted */
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
