/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file A queue pair that carries messages of the transfer protocol both ways, and WRITEs one way:
 * what both ends need of RDMA. Who calls the link is the lcore that owns its lane, and the control
 * lcore of the device: for the control functions of rdma.h, marked *control*.
 *
 * A message that comes lies in memory that only the device writes, and only for the next receive;
 * so it is looked at where it is, and its receive is posted again when the handler has returned.
 */
#ifndef XFER_QP_H
#define XFER_QP_H

#include <stdbool.h>

#include "rdma/rdma.h"
#include "xfer/proto.h"

#define XFER_QP_SENDS	32 /**< messages on their way, at most */
#define XFER_QP_AWAY_MS 50 /**< between polls: longer, and the poller was somewhere else */

struct xfer_qp_ops {
	/** A message has come. `message` is aligned to 8. */
	void (*message)(void *arg, const void *message, uint32_t size);
	/** A WRITE_WITH_IMM has come, and all WRITEs before it. NULL: not expected. */
	void (*written)(void *arg, uint32_t imm);
	/** A WRITE of ours with an immediate has ended well, and all before it. NULL: nobody waits
	 * for that. */
	void (*done)(void *arg, uint64_t wr_id);
};

struct xfer_qp_config {
	struct rdma_dev *dev;
	struct rdma_pd *pd;
	uint16_t lane;
	uint32_t receives; /**< beside XFER_RECEIVES: WRITE_WITH_IMMs that may come at a time, from
			      xfer_qp_extend() on */
	uint32_t writes;   /**< WRITEs on their way, at most */
	uint32_t extra;	   /**< bytes of registered memory for the owner */
	const struct xfer_qp_ops *ops;
	void *arg;
};

struct xfer_qp {
	struct xfer_qp_config config;
	struct rdma_cq *cq;
	struct rdma_qp *qp;
	struct rdma_mr *mr;
	uint8_t *memory; /**< XFER_RECEIVES, sends, extra; XFER_MSG_MAX each */
	uint64_t size;
	struct rdma_mr *more_mr;
	uint8_t *more; /**< other receives; NULL: not yet */
	uint8_t *extra;
	uint32_t nb_receives;
	uint32_t free_send[XFER_QP_SENDS];
	uint32_t nb_free_sends;
	uint32_t qpn;
	uint64_t listened; /**< ms of xfer_qp_clock(): of the last xfer_qp_absence() */
	bool broken;	   /**< nothing goes over any more */
	enum rdma_wc_status why;
};

/**
 * Memory and a queue pair in RDMA_QP_INIT with XFER_RECEIVES receives posted: less than 256 KiB
 * without what is extra. *Control.* @return -errno
 */
int xfer_qp_open(struct xfer_qp *l, const struct xfer_qp_config *config);

/** The peer is known: memory for the other receives, which are posted. *Control.* @return -errno */
int xfer_qp_extend(struct xfer_qp *l);

/**
 * Free all of it; its connection has been destroyed. *Control.*
 * @return 0; -EBUSY: not all has let go of it yet, to be called again
 */
int xfer_qp_close(struct xfer_qp *l);

/** Room for a message of XFER_MSG_MAX bytes. @return NULL: none now */
void *xfer_qp_room(struct xfer_qp *l);

/** Send what was put into the last room. @return 0; -EPIPE: broken */
int xfer_qp_send(struct xfer_qp *l, uint32_t size);

/**
 * Write. That it has ended is only said of one with an immediate, which must follow.
 * @param wr_id  of xfer_qp_ops.done
 * @param nb_sge 1 or 2
 * @param imm    NULL: without
 * @return 0; -EPIPE: broken; -EAGAIN: too many on their way
 */
int xfer_qp_write(struct xfer_qp *l, uint64_t wr_id, const struct rdma_sge *sg, uint16_t nb_sge,
	uint64_t remote_addr, uint32_t rkey, const uint32_t *imm);

/** Take what has come. @return completions */
unsigned int xfer_qp_poll(struct xfer_qp *l);

/**
 * Ms since the last call in which nobody listened: the poller was waiting for a disk or a CPU. They
 * say nothing about the peer, whose messages may lie there.
 * @param now  of xfer_qp_clock()
 */
uint64_t xfer_qp_absence(struct xfer_qp *l, uint64_t now);

/** Give it up: the queue pair goes to error. */
void xfer_qp_break(struct xfer_qp *l);

/** Address of an end: IPv6, or IPv4 mapped into it; port and others are left out. */
void xfer_qp_address(const struct sockaddr_storage *from, uint8_t to[16]);

/** Monotonic, in ms. */
uint64_t xfer_qp_clock(void);

#endif /* XFER_QP_H */
