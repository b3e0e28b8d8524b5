/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_QP_H
#define ROCE_QP_H

/**
 * @file A queue pair: its poll group's alone but for the head, which control fills in before it is
 * published.
 *
 * Send queue: [una, begun) have PSNs, [una, current] are on the wire or being put there, up to head
 * posted. Indexes count on, the ring is a power of two.
 */

#include "engine/cq.h"
#include "engine/frame.h"
#include "engine/engine.h"
#include "engine/packet.h"
#include "engine/rate.h"
#include "engine/timer.h"

/**
 * Most packets of a queue pair that are not acknowledged, and the least after losses. Bytes: what
 * the peer's lcore reads is in a cache still when frames pass by reference, and 100 Gb/s over 40 us
 * have no more on their way.
 */
#define ROCE_WINDOW	  256
#define ROCE_WINDOW_BYTES (512 * 1024)
#define ROCE_WINDOW_MIN	  8
/** Packets of a long message between two that ask for an acknowledgement. */
#define ROCE_ACK_EVERY 32

/** A send request. */
struct roce_wqe {
	uint64_t wr_id;
	uint8_t op;	/**< enum rdma_op */
	uint8_t flags;	/**< enum rdma_send_flag */
	uint8_t status; /**< not success: refused when its turn comes */
	uint8_t nb_segments;
	uint32_t imm;
	uint32_t length;    /**< bytes of the message */
	uint32_t first_psn; /**< of a begun one */
	uint32_t nb_psn;
	uint32_t answered;   /**< READ, atomics: PSNs answered */
	uint32_t rkey;	     /**< UD: Q_Key */
	uint32_t remote_qpn; /**< UD */
	uint64_t remote_addr;
	uint64_t compare, swap_add;
	struct roce_ah *ah;		      /**< UD */
	struct rte_mbuf_ext_shared_info info; /**< UC, UD: mbufs that refer to its memory */
	struct roce_segment segment[];	      /**< or inline bytes */
};

/** A receive request. */
struct roce_rqe {
	uint64_t wr_id;
	uint32_t length; /**< room */
	uint8_t nb_segments;
	uint8_t status; /**< not success: list refused */
	struct roce_segment segment[];
};

/** A READ or atomic that the peer asked for, kept so that it can be answered again. */
struct roce_resp_resource {
	uint64_t va;
	uint64_t value; /**< atomic: the old one */
	uint32_t rkey;
	uint32_t length;
	uint32_t first_psn, nb_psn;
	uint32_t msn;
	bool atomic;
};

/** Answering it, from a PSN of it on. */
struct roce_job {
	uint32_t answer; /**< index */
	uint32_t start;	 /**< PSNs of it that were not asked for */
	uint32_t sent;	 /**< PSNs of it that are done, from start on */
	uint32_t end;	 /**< bytes of it, from its begin, up to where it was asked for */
	bool again;	 /**< it was answered before */
};

/** Progress of a message that comes in. */
enum roce_inbound {
	ROCE_IN_NONE,
	ROCE_IN_SEND,
	ROCE_IN_WRITE,
	ROCE_IN_SKIP, /**< UC: until the next message begins */
};

/** What a responder has to say. */
enum roce_ack_action {
	ROCE_ACK_ACTION_NONE,
	ROCE_ACK_ACTION_ACK,
	ROCE_ACK_ACTION_NAK, /**< sequence */
	ROCE_ACK_ACTION_RNR,
	ROCE_ACK_ACTION_FATAL, /**< then the queue pair is in error */
};

/** Why a requester's timer runs. */
enum roce_wait {
	ROCE_WAIT_NONE,
	ROCE_WAIT_ACK,
	ROCE_WAIT_RNR, /**< nothing is sent meanwhile */
};

struct roce_requester {
	uint32_t head, una, current, begun; /**< of the send queue */
	uint32_t mask;
	uint32_t offset;       /**< bytes of the current request sent */
	struct roce_cursor at; /**< the same in its list */
	uint32_t next_psn, una_psn,
		max_psn;     /**< to send, oldest not acknowledged, never sent yet */
	uint32_t window_max; /**< packets, of the path MTU */
	uint32_t window;     /**< packets: halved by a loss, as go-back-N repeats all of it */
	uint32_t unasked;    /**< packets since the last AckReq */
	uint32_t rd_out;     /**< READs and atomics from una to current */
	uint32_t rnr_cap;    /**< messages in flight after an RNR NAK; 0: no limit */
	uint32_t rnr_good;   /**< acknowledged at this cap */
	uint8_t rnr_backoff; /**< the wait is doubled so many times */
	uint8_t wait;	     /**< enum roce_wait */
	bool asked_again;    /**< answers were lost, and asked for again since */
	bool probe;	     /**< one packet only until something is acknowledged */
	uint8_t retries, rnr_retries; /**< left */
	uint8_t retry_count, rnr_retry;
	uint8_t rd_atom;
	uint8_t put_off;       /**< time-outs since next_psn was paced_psn */
	uint32_t asked_psn;    /**< behind the last packet that asked for an acknowledgement */
	uint32_t paced_psn;    /**< next_psn when a time-out was last put off */
	uint64_t ack_cycles;   /**< local acknowledge time-out */
	uint64_t ack_deadline; /**< when it is over; 0: nothing is outstanding, or all is new */
	/* round trip, TSC: an early probe finds what was lost at the end of a burst */
	uint64_t rtt, rtt_var, rtt_start;
	uint32_t rtt_psn;
	uint8_t probes; /**< since something was acknowledged */
	uint64_t retransmits, rnr_naks;
	uint8_t *ring; /**< of struct roce_wqe */
	uint32_t stride;
	struct roce_timer timer;
};

struct roce_responder {
	uint32_t head, tail, mask; /**< of the receive queue */
	uint32_t expected_psn;
	uint32_t msn;
	uint8_t inbound;  /**< enum roce_inbound */
	uint8_t say;	  /**< enum roce_ack_action */
	uint8_t syndrome; /**< of a NAK */
	bool gap;	  /**< a NAK said so already */
	bool dead;	  /**< a fatal NAK waits for its turn: nothing is taken any more */
	uint8_t min_rnr_timer;
	uint8_t rd_atom;
	uint32_t say_psn; /**< of a NAK */
	/* the message that comes in */
	struct roce_cursor at; /**< SEND */
	uint64_t va;	       /**< WRITE: where the next byte goes */
	uint32_t rkey;
	uint32_t left; /**< WRITE: bytes to come */
	uint32_t received;
	/* READs and atomics of late, [head - size, head), and what to answer, in order */
	struct roce_resp_resource *answers;
	struct roce_job *jobs;
	uint32_t answer_head, answer_mask;
	uint32_t job_head, job_tail, job_mask;
	uint32_t unanswered; /**< jobs that were never done */
	uint8_t *ring;	     /**< of struct roce_rqe */
	uint32_t stride;
};

/** What was heard of the peer when it was last looked for signs of life. */
struct roce_life {
	uint32_t una_psn, expected_psn;
	bool answered; /**< an acknowledgement of nothing new came: it may be that of a keepalive */
};

struct roce_qp {
	struct rdma_qp base;
	struct roce_dev *dev;
	struct roce_poll_group *poll_group;
	struct roce_cq *send_cq, *recv_cq;
	_Atomic uint8_t state; /**< enum rdma_qp_state */
	uint8_t type;
	bool active; /**< in pg->active */
	bool noted;  /**< ROCE_NOTE_FIRST_PACKET is out */
	bool trust;
	bool signal_all;
	bool cnp_due; /**< the peer is to be told of congestion */
	bool overrun; /**< its completion queue ran over: to error when its turn comes */
	uint16_t mtu;
	uint16_t udp_port; /**< UD: source port */
	uint32_t peer_qpn;
	uint32_t qkey;
	TAILQ_ENTRY(roce_qp) next;
	struct roce_gid peer_gid; /**< packets come from there */
	struct roce_path path;
	struct roce_rate rate; /**< of data, asked for or answered */
	uint64_t cnp_at;       /**< TSC: no congestion notification before */
	struct roce_requester req;
	struct roce_responder resp;
	struct roce_life life;
};

static inline struct roce_wqe *
roce_wqe(const struct roce_qp *qp, uint32_t i)
{
	return (struct roce_wqe *)(qp->req.ring + (size_t)(i & qp->req.mask) * qp->req.stride);
}

static inline struct roce_rqe *
roce_rqe(const struct roce_qp *qp, uint32_t i)
{
	return (struct roce_rqe *)(qp->resp.ring + (size_t)(i & qp->resp.mask) * qp->resp.stride);
}

static inline enum rdma_qp_state
roce_state(const struct roce_qp *qp)
{
	return atomic_load_explicit(&qp->state, memory_order_relaxed);
}

/** The queue pair of a number, NULL: none. Poll groups. */
static inline struct roce_qp *
roce_qp_lookup(const struct roce_dev *dev, uint32_t qpn)
{
	struct roce_qp *qp =
		atomic_load_explicit(&dev->qps[qpn & dev->qp_mask], memory_order_acquire);

	return qp && qp->base.qpn == qpn ? qp : NULL;
}

/** It has something to send. */
static inline void
roce_qp_activate(struct roce_qp *qp)
{
	if (!qp->active) {
		qp->active = true;
		TAILQ_INSERT_TAIL(&qp->poll_group->active, qp, next);
	}
}

/* ---- engine/qp.c: control -------------------- */

struct rdma_qp *roce_qp_create(struct rdma_pd *pd, const struct rdma_qp_attr *attr);
int roce_qp_destroy(struct rdma_qp *qp);
int roce_qp_connect(struct rdma_qp *qp, const struct rdma_qp_peer *peer);
int roce_qp_error(struct rdma_qp *qp);
/** The way to a peer. @return 0; -EINVAL, -EAGAIN, -EHOSTUNREACH */
int roce_qp_path(struct roce_qp *qp, const struct sockaddr *addr, struct roce_path *path);
int roce_qp_info_get(const struct rdma_qp *qp, struct rdma_qp_info *info);

/* ---- engine/post.c -------------------- */

uint16_t roce_post_send(struct rdma_qp *qp, const struct rdma_send_wr *wr, uint16_t n);
uint16_t roce_post_recv(struct rdma_qp *qp, const struct rdma_recv_wr *wr, uint16_t n);

/* ---- engine/complete.c -------------------- */

/** End the oldest send request. */
void roce_complete_send(struct roce_qp *qp, enum rdma_wc_status status);
/** End the oldest receive request. @param wc op, flags, byte_len, imm, src_qpn, status are set */
void roce_complete_recv(struct roce_qp *qp, struct rdma_wc *wc);
/** Flush what is posted. @return false: memory is still being sent from, the rest later */
bool roce_flush_sends(struct roce_qp *qp);
void roce_flush_recvs(struct roce_qp *qp);
/** To RDMA_QP_ERROR: the oldest send ends with `status` (success: flushed), all else is flushed. */
void roce_qp_fail(struct roce_qp *qp, enum rdma_wc_status status, bool fault);

/* ---- engine/requester.c, engine/ack.c -------------------- */

/** Send what may be sent, at most ROCE_QUANTUM packets. @return true: there is more */
bool roce_requester_run(struct roce_qp *qp);
/** An ACK, NAK, READ response or atomic acknowledgement came. */
void roce_requester_response(struct roce_qp *qp, const struct roce_packet *pkt);
/** Its timer expired. */
void roce_requester_timeout(struct roce_qp *qp);
/** Go back, or on, to a PSN: the next packet sent is that. */
void roce_requester_rewind(struct roce_qp *qp, uint32_t psn);
/** Time-out that begins now, when something is outstanding. */
void roce_requester_arm(struct roce_qp *qp);

/* ---- engine/responder.c, engine/resp_resource.c -------------------- */

/** A request came. */
void roce_responder_request(struct roce_qp *qp, const struct roce_packet *pkt);
/** A datagram came. @param length of `pkt`; GRH is made from its IP header */
void roce_responder_datagram(struct roce_qp *qp, const struct roce_packet *pkt);
/** Send answers and acknowledgements. @return true: there is more */
bool roce_responder_run(struct roce_qp *qp);

/** engine/dcqcn.c: a packet came with a congestion mark. */
void roce_congestion_mark(struct roce_qp *qp);
/** A congestion notification came from the peer. */
void roce_congestion_notified(struct roce_qp *qp);
/** Send one that is due. @return true: no room, later */
bool roce_congestion_run(struct roce_qp *qp);

/** The peer asks for a READ or an atomic. @return false: refused, NAK is set */
bool roce_resp_resource_new(struct roce_qp *qp, const struct roce_packet *pkt);
/** ... for one that it asked for before. */
void roce_resp_resource_retry(struct roce_qp *qp, const struct roce_packet *pkt);
/** Send answers, as far as there is room. @return true: all sent */
bool roce_resp_resource_run(struct roce_qp *qp);
/** A NAK that ends the queue pair. */
void roce_responder_fatal(struct roce_qp *qp, uint32_t psn, enum roce_nak nak);

#endif
