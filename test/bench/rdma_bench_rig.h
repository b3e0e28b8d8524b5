/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_BENCH_RIG_H
#define RDMA_BENCH_RIG_H

/**
 * @file Two `roce` devices in one process, connected by rings that pass packets by reference. The
 * requester runs on a worker lcore, the responder and all control on the main lcore; or all run on
 * the main lcore. The wire can lose packets.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <rte_common.h>

#include "rdma.h"

#define RIG_MTU	     4096
#define RIG_MORE_MAX 3

struct rte_ring;

/** One end, on cache lines that the other end's lcore does not use. */
struct rig_side {
	struct rdma_dev *dev;
	struct rdma_pd *pd;
	struct rdma_mr *mr;
	uint8_t *memory;
	struct rdma_cq *send_cq, *recv_cq;
	struct rdma_qp *qp;
	uint64_t recv_at;   /**< receives posted: position of the next one */
	uint64_t busy;	    /**< TSC cycles of polls that found work */
	unsigned int lcore; /**< of rig.more */
} __rte_cache_aligned;

struct rig {
	struct rig_side a, b;		    /**< requester: worker lcore; responder: main lcore */
	size_t memory_size;		    /**< of each end */
	struct rig_side more[RIG_MORE_MAX]; /**< rig_open_group(): devices on their own lcores */
	unsigned int nb_more;
	bool alone;			 /**< the main lcore is also the worker */
	void (*meanwhile)(struct rig *); /**< then: the responder's work in each iteration */
	unsigned int worker;
	struct rte_ring *wire[2];	     /**< without a switch: what end 0 and end 1 receive */
	_Atomic(void (*)(struct rig *)) job; /**< for the worker; NULL: done */
	_Atomic bool quit;
	_Atomic bool resting;
	_Atomic uint32_t loss; /**< chance of each packet to be lost in either direction, of 2^32 */
	_Atomic uint64_t lost;
	uint64_t seed;
};

/** Create rings, devices, and memory larger than the caches. Exits if something is missing. */
void rig_open(struct rig *rig, size_t memory_size, bool alone);
/**
 * The same with ports that cannot send chained mbufs: a frame is one mbuf, as one that an adapter
 * has received.
 */
void rig_open_whole(struct rig *rig, size_t memory_size);
/**
 * The same with more devices, 10.0.0.3 and following, and a switch between all of them: its lcore
 * passes frames to the address in them, or to all others. The caller polls the additional devices
 * with rig_poll_side() on the lcores `more[i].lcore`. One lcore for each device and one for the
 * switch are needed.
 * @param lose_all  for each frame to a group that the switch has received: is it lost for all?
 */
void rig_open_group(
	struct rig *rig, size_t memory_size, unsigned int nb_more, bool (*lose_all)(void));
void rig_poll_side(struct rig_side *side);
void rig_close(struct rig *rig);

/** Create and connect a pair of queue pairs; `attr` has no completion queues. */
void rig_connect(struct rig *rig, const struct rdma_qp_attr *attr);
/** The same with different attributes. */
void rig_connect_two(
	struct rig *rig, const struct rdma_qp_attr *of_a, const struct rdma_qp_attr *of_b);
void rig_disconnect(struct rig *rig);

/** Create and connect more pairs that remain unused. @return handle for rig_idle_close() */
struct rdma_qp **rig_idle(struct rig *rig, unsigned int n);
void rig_idle_close(struct rig *rig, struct rdma_qp **idle, unsigned int n);

/**
 * Run a job on the worker while the main lcore does the responder's work. @param meanwhile called
 * by the main lcore in each iteration, may be NULL
 */
void rig_run(struct rig *rig, void (*job)(struct rig *), void (*meanwhile)(struct rig *));

/**
 * One iteration of a job: the requester's work, and all other work if the main lcore runs the job.
 */
void rig_turn(struct rig *rig);

/**
 * Have the worker sleep, so that its CPU is free for others, or wake it. While it sleeps there is
 * no job and no connection.
 */
void rig_rest(struct rig *rig, bool rest);

/** Read a counter of one end. */
uint64_t rig_stat(const struct rig_side *side, const char *name);

/** Print text to stderr and exit with status 1. */
void rig_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
