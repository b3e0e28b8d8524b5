/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A queue pair that carries messages of the transfer protocol in both directions, and WRITEs or
 * READs in one direction. Both ends use it. The lcore that owns the poll group makes all calls,
 * except for the functions marked *control*: the control lcore of the device calls these, as in
 * rdma.h.
 *
 * A received message is in memory that only the device writes. Its handler reads it in place; the
 * receive is posted again after the handler has returned.
 */
#ifndef XFER_QP_H
#define XFER_QP_H

#include <stdbool.h>

#include "rdma/rdma.h"
#include "xfer/auth.h"
#include "xfer/seal.h"

#define XFER_QP_SENDS 32 /**< maximum number of messages in flight */
/** a longer interval between two polls means that the poller was delayed */
#define XFER_QP_AWAY_MS 50

struct xfer_qp_ops {
	/** A message was received. `message` is aligned to 8. */
	void (*message)(void *arg, const void *message, uint32_t size);
	/** A message with a wrong MAC was received. The connection must end. */
	void (*forged)(void *arg);
	/** A WRITE_WITH_IMM, and all WRITEs before it, have arrived. NULL: not expected. */
	void (*written)(void *arg, uint32_t imm);
	/**
	 * A local WRITE with an immediate, or one of xfer_qp_place() or xfer_qp_read(), and all
	 * before it, have completed successfully. NULL: ignored.
	 */
	void (*done)(void *arg, uint64_t wr_id);
};

struct xfer_qp_config {
	struct rdma_dev *dev;
	struct rdma_pd *pd;
	uint16_t poll_group;
	/** receives for WRITE_WITH_IMM, in addition to XFER_RECEIVES; posted by xfer_qp_extend() */
	uint32_t receives;
	uint32_t writes; /**< maximum number of WRITEs and READs in flight */
	uint32_t extra;	 /**< bytes of registered memory for the owner */
	uint16_t sge;	 /**< maximum entries of a WRITE's scatter-gather list (0: 2) */
	const struct xfer_qp_ops *ops;
	void *arg;
};

struct xfer_qp {
	struct xfer_qp_config config;
	struct rdma_cq *cq;
	struct rdma_qp *qp;
	struct rdma_mr *mr;
	/** XFER_RECEIVES receives and the sends, XFER_SEND_MAX bytes each; then `extra` */
	uint8_t *memory;
	uint64_t size;
	struct rdma_mr *more_mr;
	uint8_t *more; /**< memory of the other receives; NULL: not allocated yet */
	uint8_t *extra;
	uint32_t nb_receives;
	uint32_t free_send[XFER_QP_SENDS];
	uint32_t nb_free_sends;
	uint32_t qpn;
	bool sealed;		  /**< messages have MACs, except the first of each direction */
	struct xfer_seal send;	  /**< of messages and descriptors that this end sends */
	struct xfer_seal receive; /**< of those of the peer */
	uint64_t nb_sent;	  /**< messages */
	uint64_t nb_received;
	uint64_t listened; /**< xfer_qp_clock() at the last xfer_qp_absence(), ms */
	bool broken;	   /**< the queue pair is in error */
	enum rdma_wc_status why;
};

/**
 * Allocate memory and create a queue pair in RDMA_QP_INIT with XFER_RECEIVES receives posted. The
 * memory is less than 256 KiB plus `extra`. *Control.* @return 0 or -errno
 */
int xfer_qp_open(struct xfer_qp *l, const struct xfer_qp_config *config);

/**
 * Allocate and post the other receives, once the peer is authenticated. *Control.* @return 0 or
 * -errno
 */
int xfer_qp_extend(struct xfer_qp *l);

/**
 * Use MACs for all messages from here on, except the first one of each direction. *Control.*
 * @param h  handshake whose xfer_auth_session() may be called
 * @return 0; -ENOMEM; -EIO (libcrypto)
 */
int xfer_qp_seal(struct xfer_qp *l, const struct xfer_auth *h);

/**
 * As xfer_qp_seal(), with the keys of another handshake. *Control.*
 * @param send, receive  keys of what this end sends, and of what the peer sends
 */
int xfer_qp_seal_keys(struct xfer_qp *l, const uint8_t send[XFER_MAC_BYTES],
	const uint8_t receive[XFER_MAC_BYTES]);

/**
 * Free everything. The connection must have been destroyed. *Control.*
 * @return 0; -EBUSY: still in use, call again
 */
int xfer_qp_close(struct xfer_qp *l);

/** Get a buffer for a message of up to XFER_MSG_MAX bytes. @return NULL: none available now */
void *xfer_qp_room(struct xfer_qp *l);

/**
 * Send the message in the buffer that xfer_qp_room() returned last, with its MAC.
 * @return 0; -EPIPE: broken
 */
int xfer_qp_send(struct xfer_qp *l, uint32_t size);

/**
 * Post a WRITE. Completions are reported only for WRITEs with an immediate and for those of
 * xfer_qp_place(), so one of these must follow.
 * @param wr_id  passed to xfer_qp_ops.done
 * @param nb_sge 0 (no bytes) to config.sge
 * @param imm    NULL: none
 * @return 0; -EPIPE: broken; -EAGAIN: too many in flight
 */
int xfer_qp_write(struct xfer_qp *l, uint64_t wr_id, const struct rdma_sge *sg, uint16_t nb_sge,
	uint64_t remote_addr, uint32_t rkey, const uint32_t *imm);

/**
 * As xfer_qp_write() without an immediate, but the completion is reported: the bytes, and those of
 * all WRITEs before it, are then in the peer's memory. The peer gets no completion.
 */
int xfer_qp_place(struct xfer_qp *l, uint64_t wr_id, const struct rdma_sge *sg, uint16_t nb_sge,
	uint64_t remote_addr, uint32_t rkey);

/**
 * Post a READ. Its completion is reported, in the order of these calls.
 * @return 0; -EPIPE: broken; -EAGAIN: too many in flight
 */
int xfer_qp_read(struct xfer_qp *l, uint64_t wr_id, const struct rdma_sge *sg, uint64_t remote_addr,
	uint32_t rkey);

/** Process completions. @return their number */
unsigned int xfer_qp_poll(struct xfer_qp *l);

/**
 * Time since the last call, in ms, if the poller was delayed (by a disk, or because it had no CPU);
 * otherwise 0. This time must not count as silence of the peer, whose messages may be waiting.
 * @param now  xfer_qp_clock()
 */
uint64_t xfer_qp_absence(struct xfer_qp *l, uint64_t now);

/** Move the queue pair to the error state. */
void xfer_qp_break(struct xfer_qp *l);

/** Get the address of an end as IPv6, or as an IPv4-mapped address. The port is not included. */
void xfer_qp_address(const struct sockaddr_storage *from, uint8_t to[16]);

/** Monotonic clock, ms. */
uint64_t xfer_qp_clock(void);

#endif /* XFER_QP_H */
