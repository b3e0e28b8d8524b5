/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_QP_H
#define ROCE_QP_H

/**
 * @file A queue pair. Only the lcore of its poll group accesses it, except for the base, which the
 * control lcore fills in before it publishes the queue pair.
 *
 * Send queue: requests [una, begun) have PSNs, [una, current] are sent or being sent, [una, head)
 * are posted. Indexes are not wrapped; the length of the ring is a power of two.
 */

#include "counter.h"
#include "engine/cq.h"
#include "engine/frame.h"
#include "engine/engine.h"
#include "engine/packet.h"
#include "engine/rate.h"
#include "engine/timer.h"
#include "rdma_roce.h"

/**
 * PSN window: maximum unacknowledged packets of a queue pair, and its lower limit after losses. The
 * window is also limited in bytes. When frames are passed by reference, the payload is then still
 * in a cache when the peer's lcore reads it. 512 KiB suffice for 100 Gb/s with a round trip of 40
 * us.
 */
#define ROCE_WINDOW	  256
#define ROCE_WINDOW_BYTES (512 * 1024)
#define ROCE_WINDOW_MIN	  8
/** In a long message, at least every n-th packet requests an acknowledgement. */
#define ROCE_ACK_EVERY 32

/** A send request. */
struct roce_wqe {
	uint64_t wr_id;
	uint8_t op;	/**< enum rdma_op */
	uint8_t flags;	/**< enum rdma_send_flag */
	uint8_t status; /**< not success: fails when it is the oldest request */
	uint8_t nb_segments;
	uint32_t imm;
	uint32_t length;    /**< bytes of the message */
	uint32_t first_psn; /**< valid once the request has PSNs */
	uint32_t nb_psn;
	uint32_t answered;   /**< READ, atomics: PSNs for which the response was received */
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
	uint32_t length; /**< size of the buffer in bytes */
	uint8_t nb_segments;
	uint8_t status; /**< not success: invalid list */
	struct roce_segment segment[];
};

/** Responder resource: a READ or atomic request of the peer, kept to answer duplicates. */
struct roce_resp_resource {
	uint64_t va;
	uint64_t value; /**< atomic: the old value */
	uint32_t rkey;
	uint32_t length;
	uint32_t first_psn, nb_psn;
	uint32_t msn;
	bool atomic;
};

/** A response to be sent: all or part of the response of a responder resource. */
struct roce_job {
	uint32_t answer; /**< index of the responder resource */
	uint32_t start;	 /**< first PSN to send, counted from first_psn */
	uint32_t sent;	 /**< PSNs already sent, counted from start */
	uint32_t end;	 /**< end of the requested data, bytes from va of the resource */
	bool again;	 /**< response to a duplicate request */
};

/** State of the inbound message. */
enum roce_inbound {
	ROCE_IN_NONE,
	ROCE_IN_SEND,
	ROCE_IN_WRITE,
	ROCE_IN_SKIP, /**< UC: drop packets until the next message begins */
};

/** Acknowledgement that a responder has to send. */
enum roce_ack_action {
	ROCE_ACK_ACTION_NONE,
	ROCE_ACK_ACTION_ACK,
	ROCE_ACK_ACTION_NAK, /**< NAK: PSN sequence error */
	ROCE_ACK_ACTION_RNR,
	ROCE_ACK_ACTION_FATAL, /**< fatal NAK; after it the queue pair goes to error */
};

/** Reason for which the timer of a requester runs. */
enum roce_wait {
	ROCE_WAIT_NONE,
	ROCE_WAIT_ACK,
	ROCE_WAIT_RNR, /**< RNR timer: nothing is sent until it expires */
};

/** PSNs of responses of one READ to request again. */
struct roce_read_range {
	uint32_t psn, end;
};

/** Responses that are tracked after a lost one; a power of two, in PSNs */
#define ROCE_READ_AHEAD 512

/** READ responses that arrived after a lost one, see read_repair.c. */
struct roce_read_repair {
	uint64_t placed[ROCE_READ_AHEAD / 64]; /**< bit of PSN modulo ROCE_READ_AHEAD */
	uint64_t first_at; /**< TSC when the first missing range was requested again */
	uint32_t seen_psn; /**< PSN after the last response placed ahead */
	uint32_t head, tail;
	struct roce_read_range range[8]; /**< to be requested again */
};

struct roce_requester {
	uint32_t head, una, current, begun; /**< indexes of the send queue, see above */
	uint32_t mask;
	uint32_t offset;       /**< bytes of the current request already sent */
	struct roce_cursor at; /**< the same position in its list */
	/** Next PSN to send, oldest unacknowledged PSN, first PSN never sent */
	uint32_t next_psn, una_psn, max_psn;
	uint32_t window_max; /**< largest window, packets of the path MTU */
	uint32_t window;     /**< packets; losses shrink it, because go-back-N resends all of it */
	uint32_t since_ack_request; /**< packets since the last AckReq */
	uint32_t rd_out;	    /**< READs and atomics from una to current */
	uint32_t rnr_cap;	    /**< maximum messages in flight after an RNR NAK; 0: no limit */
	uint32_t rnr_good;	    /**< messages acknowledged at this limit */
	uint8_t rnr_backoff;	    /**< number of times that the RNR timer is doubled */
	uint8_t wait;		    /**< enum roce_wait */
	bool gap_requested; /**< the responses of the current gap have been requested again */
	bool probe;	    /**< send one packet only until something is acknowledged */
	uint8_t retries, rnr_retries; /**< left */
	uint8_t retry_count, rnr_retry;
	uint8_t rd_atom;
	uint8_t early_timeouts; /**< timeouts ignored while next_psn equals paced_psn */
	uint32_t
		ack_request_psn; /**< PSN after the last packet that requested an acknowledgement */
	uint32_t paced_psn;	 /**< next_psn when a timeout was last ignored */
	uint64_t ack_cycles;	 /**< local ACK timeout, TSC cycles */
	uint64_t ack_deadline;	 /**< TSC; 0: not running, roce_requester_arm() starts it */
	/* Round-trip time in TSC cycles. It sets the time of an early retransmission, which detects
	 * the loss of the last packets of a burst. */
	uint64_t rtt, rtt_var, rtt_start;
	uint32_t rtt_psn;
	uint8_t probes; /**< early retransmissions since the last acknowledgement */
	struct roce_read_repair read;
	uint64_t retransmits, rnr_naks;
	uint8_t *ring; /**< of struct roce_wqe */
	uint32_t stride;
	struct roce_timer timer;
};

struct roce_responder {
	uint32_t head, tail, mask; /**< indexes and mask of the receive queue */
	uint32_t expected_psn;
	uint32_t msn;
	uint8_t inbound;  /**< enum roce_inbound */
	uint8_t reply;	  /**< enum roce_ack_action */
	uint8_t syndrome; /**< of a NAK */
	bool gap;	  /**< a NAK for the expected PSN was already queued */
	bool dead;	  /**< a fatal NAK is queued: all further requests are dropped */
	uint8_t min_rnr_timer;
	uint8_t rd_atom;
	uint32_t response_psn; /**< PSN of a NAK */
	/** UC: length of the latest run of packets behind the expected PSN, and the PSN after it */
	uint32_t behind, behind_psn;
	uint64_t received_at; /**< UC: TSC of the latest packet; 0: none yet */
	/* the inbound message */
	struct roce_cursor at; /**< SEND */
	uint64_t va;	       /**< WRITE: address of the next byte */
	uint32_t rkey;
	uint32_t left; /**< WRITE: bytes that are missing */
	uint32_t received;
	bool stream;	       /**< the message is written with non-temporal stores */
	struct roce_turn turn; /**< memory that consecutive messages fill */
	/* Responder resources: the latest READs and atomics, [head - size, head). Jobs: responses
	 * to be sent, in order. */
	struct roce_resp_resource *answers;
	struct roce_job *jobs;
	uint32_t answer_head, answer_mask;
	uint32_t job_head, job_tail, job_mask;
	uint32_t unanswered; /**< unfinished jobs that do not answer a duplicate request */
	uint8_t *ring;	     /**< of struct roce_rqe */
	uint32_t stride;
};

/** State at the last keepalive check, see roce_qp_alive(). */
struct roce_life {
	uint32_t una_psn, expected_psn;
	bool answered; /**< a response to no outstanding request was received; maybe to a probe */
};

struct roce_qp {
	struct rdma_qp base;
	struct roce_dev *dev;
	struct roce_poll_group *poll_group;
	struct roce_cq *send_cq, *recv_cq;
	_Atomic uint8_t state; /**< enum rdma_qp_state */
	uint8_t type;
	bool active;		 /**< in pg->active */
	bool first_packet_noted; /**< ROCE_NOTE_FIRST_PACKET has been sent */
	bool trust;		 /**< do not check the ICRC */
	bool any_source;	 /**< do not check the source address */
	bool signal_all;
	bool cnp_due; /**< a CNP is to be sent to the peer */
	bool overrun; /**< completion queue overrun: goes to error when it is served next */
	uint16_t mtu;
	uint16_t udp_port; /**< UD: source port */
	uint32_t peer_qpn;
	uint32_t qkey;
	struct roce_reference *reference; /**< UC, messages by reference; NULL: none */
	TAILQ_ENTRY(roce_qp) next;
	struct roce_gid peer_gid; /**< expected source of packets */
	struct roce_path path;	  /**< length 0: the queue pair only receives */
	struct roce_rate rate;	  /**< of SENDs, WRITEs and READ responses */
	uint64_t cnp_at;	  /**< TSC: earliest time of the next CNP */
	struct roce_requester req;
	struct roce_responder resp;
	struct roce_life life;
	struct rdma_roce_uc_info uc; /**< UC; any thread reads it */
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

/** Find a queue pair by number. Poll groups. @return NULL: none */
static inline struct roce_qp *
roce_qp_lookup(const struct roce_dev *dev, uint32_t qpn)
{
	struct roce_qp *qp =
		atomic_load_explicit(&dev->qps[qpn & dev->qp_mask], memory_order_acquire);

	return qp && qp->base.qpn == qpn ? qp : NULL;
}

/** Add a queue pair to the list of those that have something to send. */
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
/** Build the path to a peer. @return 0; -EINVAL, -EAGAIN, -EHOSTUNREACH */
int roce_qp_path(struct roce_qp *qp, const struct sockaddr *addr, struct roce_path *path);
int roce_qp_info_get(const struct rdma_qp *qp, struct rdma_qp_info *info);

/* ---- engine/post.c -------------------- */

uint16_t roce_post_send(struct rdma_qp *qp, const struct rdma_send_wr *wr, uint16_t n);
uint16_t roce_post_recv(struct rdma_qp *qp, const struct rdma_recv_wr *wr, uint16_t n);

/* ---- engine/complete.c -------------------- */

/** Complete the oldest send request. */
void roce_complete_send(struct roce_qp *qp, enum rdma_wc_status status);
/**
 * Complete the oldest receive request.
 * @param wc op, flags, byte_len, imm, src_qpn and status are set by the caller
 */
void roce_complete_recv(struct roce_qp *qp, struct rdma_wc *wc);
/** Flush posted sends. @return false: the port still uses the memory; the rest is flushed later */
bool roce_flush_sends(struct roce_qp *qp);
/** Flush posted receives. */
void roce_flush_recvs(struct roce_qp *qp);
/**
 * Move a queue pair to RDMA_QP_ERROR and flush all work requests.
 * @param status of the oldest send; RDMA_WC_SUCCESS: it is flushed, too
 * @param fault true: count the error and send ROCE_NOTE_QP_ERROR
 */
void roce_qp_fail(struct roce_qp *qp, enum rdma_wc_status status, bool fault);

/* ---- engine/requester.c, engine/ack.c -------------------- */

/** Send requests, at most ROCE_QUANTUM packets. @return true: there is more to send */
bool roce_requester_run(struct roce_qp *qp);
/** Process an ACK, NAK, READ response or atomic acknowledgement. */
void roce_requester_response(struct roce_qp *qp, const struct roce_packet *pkt);
/** Process the expiry of the requester's timer. */
void roce_requester_timeout(struct roce_qp *qp);
/** Continue sending at a PSN, which may be before or after next_psn. */
void roce_requester_rewind(struct roce_qp *qp, uint32_t psn);
/** Start the ACK timer if packets are outstanding, otherwise stop it. */
void roce_requester_arm(struct roce_qp *qp);
/** Packets were lost: shrink the window. */
void roce_requester_shrink(struct roce_requester *r);
/** Send a READ request for packets of its response. @param from  first one */
void roce_requester_send_read(
	struct roce_qp *qp, const struct roce_wqe *wqe, uint32_t from, uint32_t packets);

/** Copy a response to the memory of its request. @return false: of a wrong length; counted */
bool roce_read_place(struct roce_qp *qp, const struct roce_wqe *wqe, const struct roce_packet *pkt);
/**
 * Place a response that came after a lost one, and request the lost ones again.
 * @return false: it cannot be placed, the requester has to rewind
 */
bool roce_read_place_ahead(struct roce_qp *qp, const struct roce_packet *pkt);
/** Add the responses placed ahead to those in order. @return PSN up to which all are answered */
uint32_t roce_read_absorb(struct roce_qp *qp);
/** Request the first missing range again. @return false: none is known */
bool roce_read_request_first(struct roce_qp *qp);
/** Send requests for missing ranges. @return true: some are left */
bool roce_read_repair_run(struct roce_qp *qp);

/* ---- engine/responder.c, engine/resp_resource.c -------------------- */

/** Process a request of an RC or UC queue pair. @return true: the mbuf was passed on */
bool roce_responder_request(struct roce_qp *qp, const struct roce_packet *pkt);
/** Process a datagram. Its GRH is built from the IP header of `pkt`. */
void roce_responder_datagram(struct roce_qp *qp, const struct roce_packet *pkt);
/** Send responses and acknowledgements. @return true: there is more to send */
bool roce_responder_run(struct roce_qp *qp);

/** engine/dcqcn.c: process a packet with a congestion mark. */
void roce_congestion_mark(struct roce_qp *qp);
/** Process a CNP from the peer. */
void roce_congestion_notified(struct roce_qp *qp);
/** Send a CNP if one is due. @return true: no room, try again later */
bool roce_congestion_run(struct roce_qp *qp);

/** Process a new READ or atomic request. @return false: refused; a fatal NAK is set, or dropped */
bool roce_resp_resource_new(struct roce_qp *qp, const struct roce_packet *pkt);
/** Process a duplicate READ or atomic request. */
void roce_resp_resource_retry(struct roce_qp *qp, const struct roce_packet *pkt);
/** Send READ and atomic responses while there is room. @return true: all sent */
bool roce_resp_resource_run(struct roce_qp *qp);
/** Send a fatal NAK, then move the queue pair to error. UC: skip the message instead. */
void roce_responder_fatal(struct roce_qp *qp, uint32_t psn, enum roce_nak nak);

/**
 * UC: drop the current message, and skip the rest of it.
 * @param more packets of it that are not taken, to be counted
 */
void roce_uc_abandon(struct roce_qp *qp, uint32_t more);

#endif
