/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_H
#define RDMA_H

/**
 * @file
 * Poll-mode RDMA for DPDK applications: one interface, two providers.
 *
 * - `verbs`: rdma-core, that is ConnectX and all else with a kernel driver.
 * - `roce`: RoCEv2 in software on any ethdev port.
 *
 * Terms and semantics are those of verbs (InfiniBand Architecture Specification 1.4, chapters 9 to
 * 12, annex A17 RoCEv2; rdma-core's ibv_*(3) and rdma_cm(7)); names put the object first,
 * as librdmacm owns rdma_connect() and its like.
 *
 * Life: rdma_dev_open() -> rdma_pd_alloc() -> rdma_mr_reg(), rdma_cq_create(), rdma_qp_create() ->
 * rdma_conn_connect() or rdma_conn_listen() and rdma_conn_accept() -> rdma_post_send(),
 * rdma_post_recv(), rdma_poll_cq() -> rdma_conn_disconnect() -> the same overload levels down. An
 * object that others still refer to is not destroyed: -EBUSY.
 *
 * Threads. There are none inside; three polls drive everything:
 *
 * - rdma_poll_cq(): completions. Never a system call. The lcore that owns the completion queue.
 * - rdma_progress(): the work of the `roce` engine - receive, acknowledge, retransmit, timers. One
 *   lcore a poll group, always the same. `verbs` has nothing to do there and returns 0.
 * - rdma_poll_cm(): connection management and address resolution. The control lcore.
 *
 * A queue pair belongs to one lcore - the one that calls rdma_progress() for its poll group - and
 * so do its completion queues; only that lcore posts to it and polls them. All functions that are
 * marked *control* belong to one lcore at a time, whatever the device: the control lcore; it may be
 * the same as an engine's. Control functions may wait until the poll group has taken note: that
 * poll group must be polled meanwhile, unless it is the calling lcore's own, which the function
 * then polls itself. Nothing here may be called from a thread that is no lcore (architecture: such
 * threads never touch mempools).
 *
 * Errors: functions return 0 or a count, and a negative errno otherwise; functions that return a
 * pointer return NULL and set rte_errno. Each also logs one line (`braggline.rdma`) that names the
 * object, the value found and the value wanted, except the three polls and the two posts.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rdma_dev;
struct rdma_pd;
struct rdma_mr;
struct rdma_cq;
struct rdma_qp;
struct rdma_ah;
struct rdma_conn;

#define RDMA_NAME_MAX	 256 /**< longest name of a device, with its end */
#define RDMA_SGE_MAX	 16  /**< most entries of a scatter-gather list, any provider */
#define RDMA_INLINE_MAX	 256 /**< most inline bytes, any provider */
#define RDMA_PRIVATE_MAX 196 /**< most private data of an event (that of a REP) */
#define RDMA_GRH_BYTES	 40  /**< before every UD message received; IPv4 in its last 20 bytes */

/* ---- devices -------------------------------------------------------------------------------- */

/** What a device can do. Counts are limits. */
struct rdma_dev_info {
	char name[RDMA_NAME_MAX];     /**< as opened */
	const char *provider;	      /**< "roce" or "verbs" */
	struct sockaddr_storage addr; /**< own IP address, port 0 */
	uint32_t link_mbps;	      /**< 0: not known */
	uint32_t max_qp;
	uint32_t max_wr;  /**< of one queue of a queue pair */
	uint32_t max_cqe; /**< of one completion queue */
	uint32_t max_mr;
	uint64_t max_mr_bytes; /**< of one registration: `verbs` slices above (see rdma_mr_reg()) */
	uint64_t max_msg_bytes; /**< of one message, 2^31 at most */
	uint16_t max_sge;
	uint16_t max_inline;	 /**< bytes */
	uint16_t max_rd_atom;	 /**< READs and atomics in flight, as responder and as requester */
	uint16_t mtu;		 /**< largest path MTU: 256, 512, 1024, 2048 or 4096 bytes */
	uint16_t nb_poll_groups; /**< that need rdma_progress(); 0: none does (`verbs`) */
	int16_t numa_node;	 /**< of the port or adapter; -1: not known */
	bool gpu_memory;	 /**< rdma_mr_reg() may take GPU memory */
};

/**
 * Open a device by name. *Control.*
 *
 * - `roce:port=0,ip=10.0.0.1/24[,KEY=VALUE]...`: software RoCEv2 on ethdev port 0 (a number or a
 *   port's name). Keys, with defaults in parentheses:
 *   - `queue=N`: first RX and TX queue (0).
 *   - `poll_groups=N`: number of poll groups (1). Each has a queue of its own, from `queue` on.
 *   - `ip=`: given twice for IPv4 and IPv6; `gateway=IP`; `vlan=ID[:PCP]`.
 *   - `mtu=N`: largest path MTU (the largest that fits the port's MTU).
 *   - `qps=N`, `mrs=N`: sizes of the tables (4096, 65536).
 *   - `cc=dcqcn|none`: reaction to congestion marks (none).
 *   - `handover=1`: only poll group 0 receives from the port. Without it each poll group does. In
 *     both cases a packet is forwarded to the poll group of its queue pair, so RSS may distribute
 *     packets in any way.
 *   - `poll=0`: no poll group receives from the port. Another poller of a shared queue passes
 *     packets on with rdma_roce.h.
 *   - `steer=auto|no`: request rte_flow rules for the device's traffic from a port with more
 *     queues (auto). Use `no` if the application has rules of its own.
 *   Packets of this device that other devices on the port receive arrive at its poll group 0. The
 *   provider configures and starts a port that is not configured yet, and stops it when the last
 *   device on it closes. On a started port the named queues must exist.
 * - `verbs:mlx5_0[,port=1][,gid=3]`: an adapter known to rdma-core; without `gid` its RoCEv2 GID of
 *   an IPv4 address, lowest index first.
 *
 * @return the device; NULL with rte_errno
 *   - EINVAL: unknown provider or key, malformed value
 *   - ENODEV: no such port or adapter
 *   - ENOTSUP: provider not built in, or port unfit (the log says how: IOVA mode, MTU, offloads)
 *   - ENOMEM, EBUSY (queue already taken by another device)
 */
struct rdma_dev *rdma_dev_open(const char *name);

/**
 * Close. *Control.* Poll groups of other `roce` devices on the port are to be polled meanwhile,
 * too.
 * @return 0; -EBUSY: protection domains, completion queues, listeners remain.
 */
int rdma_dev_close(struct rdma_dev *dev);

/** What the device can do and how it is addressed. Any lcore. @return 0 */
int rdma_dev_info_get(const struct rdma_dev *dev, struct rdma_dev_info *info);

/**
 * Do a poll group's work: receive a burst, run responders and requesters, retransmit, transmit.
 * Call it in a loop, with no pause longer than the acknowledge time-out of the peers.
 *
 * @param poll group 0 to rdma_dev_info.nb_poll_groups - 1
 * @return packets received and sent, 0 when idle (for the caller's idle policy)
 */
unsigned int rdma_progress(struct rdma_dev *dev, uint16_t poll_group);

/** One counter. Names are stable, lower case with underscores, unit at the end unless a count. */
struct rdma_xstat {
	const char *name; /**< lives as long as the device */
	uint64_t value;
};

/**
 * Counters of the device, never reset. Any thread (it only reads).
 *
 * @param n room in `x`, 0 to ask
 * @return how many there are; `x` is filled up to `n`
 */
int rdma_xstats_get(const struct rdma_dev *dev, struct rdma_xstat *x, unsigned int n);

/* ---- memory --------------------------------------------------------------------------------- */

/** A protection domain. *Control.* @return NULL with rte_errno ENOMEM */
struct rdma_pd *rdma_pd_alloc(struct rdma_dev *dev);

/** @return 0; -EBUSY: memory regions, queue pairs or address handles remain. *Control.* */
int rdma_pd_free(struct rdma_pd *pd);

/** Rights beside local reading, which every region has (ibv_reg_mr(3)). */
enum rdma_access {
	RDMA_ACCESS_LOCAL_WRITE = 1
		<< 0, /**< target of receives, READs and atomics; remote writing needs it */
	RDMA_ACCESS_REMOTE_WRITE = 1 << 1,
	RDMA_ACCESS_REMOTE_READ = 1 << 2,
	RDMA_ACCESS_REMOTE_ATOMIC = 1 << 3,
	/** Bytes may land in any order, also across messages; only a completion tells. A flag word
	 *  written by a plain WRITE is then no signal: use WRITE_WITH_IMM. `roce` ignores it. */
	RDMA_ACCESS_RELAXED_ORDERING = 1 << 4,
};

/** What to register. */
struct rdma_mr_attr {
	void *addr;	 /**< host or GPU virtual address; need not be aligned */
	uint64_t length; /**< bytes, at least 1 */
	uint32_t access; /**< of enum rdma_access */
	/** gpudev that the memory was allocated from, -1: host memory. GPU memory is registered
	 *  through its dma-buf, then through nvidia-peermem; `roce` takes only what the CPU can
	 *  read. */
	int16_t gpu;
};

/**
 * Register memory. *Control.* Costs time in proportion to pages: register once, at start
 * (rdma_pool.h cuts buffers from few large regions, rdma_cache.h keeps foreign memory registered).
 *
 * @return the region; NULL with rte_errno
 *   - EINVAL: length 0, wraps around, or remote writing without local writing
 *   - E2BIG: longer than rdma_dev_info.max_mr_bytes: register slices
 *   - ENOTSUP: memory that this provider can't reach (roce: not CPU-accessible; verbs: neither
 *     dma-buf nor nvidia-peermem)
 *   - ENOMEM, EPERM (RLIMIT_MEMLOCK)
 */
struct rdma_mr *rdma_mr_reg(struct rdma_pd *pd, const struct rdma_mr_attr *attr);

/**
 * End a registration: when it returns 0 no byte will be read or written through it any more.
 * *Control.*
 * @return 0; -EBUSY: unfinished transmissions or receives still refer to it (poll on and try again;
 *   a queue pair in error lets go of it when it has drained)
 */
int rdma_mr_dereg(struct rdma_mr *mr);

uint32_t rdma_mr_lkey(const struct rdma_mr *mr); /**< for own scatter-gather lists */
uint32_t rdma_mr_rkey(
	const struct rdma_mr *mr); /**< for the peer; random with `roce`, never reused soon */

/* ---- completion queues ---------------------------------------------------------------------- */

/** How a work request ended (ibv_wc_status). */
enum rdma_wc_status {
	RDMA_WC_SUCCESS,
	RDMA_WC_LOC_LEN_ERR,	   /**< message longer than the receive buffer, or than allowed */
	RDMA_WC_LOC_QP_OP_ERR,	   /**< not possible on this queue pair */
	RDMA_WC_LOC_PROT_ERR,	   /**< own list outside its region, or without the right */
	RDMA_WC_WR_FLUSH_ERR,	   /**< queue pair in error before this began */
	RDMA_WC_LOC_ACCESS_ERR,	   /**< remote access to own memory refused (responder) */
	RDMA_WC_REM_INV_REQ_ERR,   /**< NAK 0x61 */
	RDMA_WC_REM_ACCESS_ERR,	   /**< NAK 0x62 */
	RDMA_WC_REM_OP_ERR,	   /**< NAK 0x63 */
	RDMA_WC_RETRY_EXC_ERR,	   /**< no answer after all retries */
	RDMA_WC_RNR_RETRY_EXC_ERR, /**< receiver never ready */
	RDMA_WC_GENERAL_ERR,
};

/** Name of a status, for messages. */
const char *rdma_wc_status_name(enum rdma_wc_status status);

/** What ended. */
enum rdma_wc_op {
	RDMA_WC_SEND,
	RDMA_WC_WRITE,
	RDMA_WC_READ,
	RDMA_WC_CMP_SWAP,
	RDMA_WC_FETCH_ADD,
	RDMA_WC_RECV,		/**< a SEND came */
	RDMA_WC_RECV_WRITE_IMM, /**< a WRITE_WITH_IMM came: it and all before is placed */
};

enum rdma_wc_flag {
	RDMA_WC_WITH_IMM = 1 << 0,
	RDMA_WC_GRH = 1 << 1, /**< UD: the first RDMA_GRH_BYTES of the buffer hold a GRH */
};

/** A completion. Of a failed one only wr_id, status, qp, qp_context are valid (ibv_poll_cq(3)). */
struct rdma_wc {
	uint64_t wr_id;
	struct rdma_qp *qp;
	void *qp_context;  /**< rdma_qp_attr.context */
	uint32_t byte_len; /**< received, READ, or written by the WRITE_WITH_IMM */
	uint32_t imm;	   /**< CPU byte order */
	uint32_t src_qpn;  /**< UD */
	uint8_t status;	   /**< enum rdma_wc_status */
	uint8_t op;	   /**< enum rdma_wc_op */
	uint8_t flags;	   /**< of enum rdma_wc_flag */
};

/**
 * Create a completion queue. *Control.*
 *
 * @param depth at least the sum of the signalled sends and receives that can be outstanding: an
 *   overrun puts the queue pairs into error and is counted (`cq_overrun`)
 * @param poll group of the queue pairs that will use it
 * @return NULL with rte_errno EINVAL, ENOMEM
 */
struct rdma_cq *rdma_cq_create(struct rdma_dev *dev, uint32_t depth, uint16_t poll_group);

/** @return 0; -EBUSY: queue pairs remain. *Control.* */
int rdma_cq_destroy(struct rdma_cq *cq);

/** Take completions, oldest first; never a system call. Owner lcore. @return how many, 0 to n */
uint16_t rdma_poll_cq(struct rdma_cq *cq, struct rdma_wc *wc, uint16_t n);

/* ---- queue pairs ---------------------------------------------------------------------------- */

enum rdma_qp_type {
	RDMA_QP_RC,
	RDMA_QP_UC,
	RDMA_QP_UD
};

enum rdma_qp_state {
	RDMA_QP_INIT,  /**< receives may be posted */
	RDMA_QP_RTR,   /**< receives */
	RDMA_QP_RTS,   /**< receives and sends */
	RDMA_QP_ERROR, /**< all outstanding work is flushed, posts are flushed too */
};

/** How a queue pair is made. Zero means the default where one is named. */
struct rdma_qp_attr {
	enum rdma_qp_type type;
	uint16_t poll_group;	 /**< its owner is who polls this poll group */
	struct rdma_cq *send_cq; /**< may be the same; both of this poll group */
	struct rdma_cq *recv_cq;
	void *context;	       /**< comes back with completions and events */
	uint32_t max_send_wr;  /**< send queue, requests (128) */
	uint32_t max_recv_wr;  /**< receive queue, requests (128) */
	uint16_t max_send_sge; /**< (4, or the device's) */
	uint16_t max_recv_sge; /**< (1) */
	uint16_t max_inline;   /**< bytes (0) */
	uint16_t max_mtu;      /**< bytes (the device's) */
	uint8_t max_rd_atom;   /**< READs and atomics in flight, each way (16) */
	uint8_t ack_timeout; /**< 4.096 us x 2^n, 1 to 31 (14: 67 ms); librdmacm's 19 waits 2.1 s */
	uint8_t retry_count; /**< time-outs and sequence errors before RETRY_EXC, 0 to 7; 0xff: 7 */
	uint8_t rnr_retry;   /**< 0 to 6, 7: for ever; 0xff: 7 */
	uint8_t min_rnr_timer; /**< code of IBTA table 45, 1 to 31 (12: 0.64 ms) */
	uint8_t traffic_class; /**< IP TOS or traffic class; its two low bits are ECN (0) */
	uint8_t hop_limit;     /**< (64) */
	uint32_t rate_mbps;    /**< static rate limit of this queue pair (0: none) */
	uint32_t qkey;	 /**< UD (that of RDMA_UDP, 0x01234567); the top bit is not for programs */
	bool signal_all; /**< every send is signalled */
	bool trust_icrc; /**< `roce`: don't check received ICRCs: trusted links only */
};

/** Create one in RDMA_QP_INIT. *Control.* @return NULL with rte_errno EINVAL, ENOMEM, ENOSPC */
struct rdma_qp *rdma_qp_create(struct rdma_pd *pd, const struct rdma_qp_attr *attr);

/**
 * Destroy; outstanding work gets no completions. *Control.*
 * @return 0; -EBUSY: has a connection, or the port holds frames of it for too long
 */
int rdma_qp_destroy(struct rdma_qp *qp);

/** What is known of the other end, for queue pairs that are connected without the CM. */
struct rdma_qp_peer {
	struct sockaddr_storage addr; /**< its IP address; UD: not needed */
	uint32_t qpn;
	uint32_t psn;		   /**< first of the peer, 24 bits */
	uint32_t local_psn;	   /**< first of ours; random ones are safer */
	uint16_t mtu;		   /**< of the path, bytes; both ends the same */
	uint8_t rd_atom;	   /**< READs and atomics that we may start */
	uint8_t responder_rd_atom; /**< READs and atomics that the peer may start */
};

/**
 * Bring a queue pair to RDMA_QP_RTS by hand: numbers went another way. *Control.* UD: peer NULL.
 * @return 0; -EAGAIN: address is being resolved, poll the CM and try again; -EHOSTUNREACH; -EINVAL
 */
int rdma_qp_connect(struct rdma_qp *qp, const struct rdma_qp_peer *peer);

/** Put it into error: outstanding work is flushed, in order. Owner lcore or control. @return 0 */
int rdma_qp_error(struct rdma_qp *qp);

/** A queue pair's state and what it did. */
struct rdma_qp_info {
	enum rdma_qp_state state;
	uint32_t qpn;
	uint32_t send_queued; /**< requests posted and not completed */
	uint32_t recv_queued;
	uint16_t mtu;
	uint64_t retransmits; /**< packets sent again */
	uint64_t rnr_naks;    /**< received */
};

/** Any lcore; counters of a queue pair in motion are of about now. @return 0 */
int rdma_qp_info_get(const struct rdma_qp *qp, struct rdma_qp_info *info);

/** An entry of a scatter-gather list. */
struct rdma_sge {
	uint64_t addr;	 /**< virtual address, host or GPU */
	uint32_t length; /**< bytes; 0 is allowed */
	uint32_t lkey;	 /**< of the region that holds it; unused with RDMA_SEND_INLINE */
};

enum rdma_op {
	RDMA_OP_SEND,
	RDMA_OP_SEND_IMM,
	RDMA_OP_WRITE,
	RDMA_OP_WRITE_IMM,
	RDMA_OP_READ,
	RDMA_OP_CMP_SWAP,  /**< 8 bytes, the old value lands in the list */
	RDMA_OP_FETCH_ADD, /**< 8 bytes, the old value lands in the list */
};

enum rdma_send_flag {
	RDMA_SEND_SIGNALED = 1 << 0,
	RDMA_SEND_FENCE = 1 << 1, /**< begins after the READs and atomics before it */
	RDMA_SEND_SOLICITED = 1 << 2,
	RDMA_SEND_INLINE = 1 << 3, /**< the bytes are copied now */
};

/** A send request. */
struct rdma_send_wr {
	uint64_t wr_id;
	const struct rdma_sge *sg; /**< copied at post */
	uint16_t nb_sge;
	uint8_t op;    /**< enum rdma_op */
	uint8_t flags; /**< of enum rdma_send_flag */
	uint32_t imm;  /**< CPU byte order */
	union {
		struct {
			uint64_t remote_addr;
			uint64_t compare; /**< CMP_SWAP */
			uint64_t swap_add;
			uint32_t rkey;
		};
		struct {
			struct rdma_ah *ah; /**< of the queue pair's protection domain */
			uint32_t remote_qpn;
			/** With the top bit set that of the own queue pair is sent */
			uint32_t remote_qkey;
		} ud;
	};
};

/** A receive request. UD: the first RDMA_GRH_BYTES are for the GRH. */
struct rdma_recv_wr {
	uint64_t wr_id;
	const struct rdma_sge *sg; /**< copied at post */
	uint16_t nb_sge;
};

/**
 * Post sends. Owner lcore. A send completes when it is acknowledged (UC, UD: sent); until then its
 * memory is the queue pair's. An unsignalled one frees its place with the next signalled one.
 *
 * @return how many were posted; fewer than n with rte_errno for the first that was not
 *   - ENOMEM: send queue full
 *   - EINVAL: operation, list or lengths not possible on this queue pair
 *   - ENOTCONN: not yet RDMA_QP_RTS
 */
uint16_t rdma_post_send(struct rdma_qp *qp, const struct rdma_send_wr *wr, uint16_t n);

/** Post receives, from RDMA_QP_INIT on. Owner lcore. @return as rdma_post_send(), ENOMEM, EINVAL */
uint16_t rdma_post_recv(struct rdma_qp *qp, const struct rdma_recv_wr *wr, uint16_t n);

/* ---- connections (IB CM, chapter 12; rdma_cm(7)'s use of private data) ----------------------- */

enum rdma_event_type {
	RDMA_EVENT_CONNECT_REQUEST, /**< on a listener; answer: rdma_conn_accept(), _reject() */
	RDMA_EVENT_ESTABLISHED,	    /**< both ways open; UD: the service's ah, qpn and qkey */
	/** by the peer: status is the REJ reason (UD: SIDR status); of a request: it gave up */
	RDMA_EVENT_REJECTED,
	RDMA_EVENT_UNREACHABLE,	  /**< no ARP or CM answer: status is a negative errno */
	RDMA_EVENT_DISCONNECTED,  /**< by the peer, or by us; the queue pair is in error */
	RDMA_EVENT_TIMEWAIT_EXIT, /**< nothing of this connection is in the network any more */
	RDMA_EVENT_MULTICAST_JOINED,
	RDMA_EVENT_MULTICAST_ERROR,
	RDMA_EVENT_QP_ERROR,	  /**< fatal; its completions tell why */
	RDMA_EVENT_ADDR_CONFLICT, /**< another station claims our address */
	/**
	 * The adapter or port is gone, or failed for good (`roce`: its ethdev said
	 * RTE_ETH_EVENT_INTR_RMV or _DESTROY). `roce`: every queue pair is in error, what was
	 * posted is flushed, and each connection ends with an event of its own, status -ENODEV;
	 * `verbs`: as the adapter's driver has it. Destroy all and close the device; nothing else
	 * is of use. Whoever takes a port away stops the lcores that poll it first, or has it tell.
	 */
	RDMA_EVENT_DEVICE_REMOVED,
};

/** Name of an event, for messages. */
const char *rdma_event_name(enum rdma_event_type type);

/** A CM event. */
struct rdma_event {
	enum rdma_event_type type;
	int status;
	struct rdma_conn *conn;	    /**< the new connection on a request; NULL: the device's */
	struct rdma_conn *listener; /**< of a request */
	struct rdma_qp *qp;	    /**< of the connection or the error, where there is one */
	struct sockaddr_storage peer;
	uint8_t rd_atom;	   /**< request: what the peer starts at most */
	uint8_t responder_rd_atom; /**< request: what the peer allows us to start */
	struct rdma_ah *ah;	   /**< UD, multicast: belongs to the connection */
	/** the peer's queue pair: request (not UD) and what answers ours, RDMA_EVENT_ESTABLISHED */
	uint32_t remote_qpn;
	uint32_t remote_qkey;
	uint16_t private_len; /**< bytes; padded by the CM to the message's whole room */
	uint8_t private_data[RDMA_PRIVATE_MAX];
};

/** What a connection is offered with. */
struct rdma_conn_attr {
	const void *private_data;
	/** bytes; RC, UC: REQ 56, REP 196, REJ 148; UD: SIDR_REQ 180, SIDR_REP 136 */
	uint16_t private_len;
	void *context;	      /**< rdma_conn_context() */
	uint16_t mtu;	      /**< bytes (the queue pair's) */
	uint8_t cm_retries;   /**< of REQ, REP, DREQ (15) */
	uint32_t timeout_ms;  /**< for all: address, REQ and its retries (10,000) */
	uint16_t source_port; /**< of the RDMA_CM header (ephemeral) */
	/** RC, `roce`: a peer that says nothing for so long is asked for a sign of life, and is
	 *  RDMA_EVENT_DISCONNECTED with -ETIMEDOUT when it gave none for twice as long. Else one
	 *  that vanished is noticed only when something is sent to it. (0: never) */
	uint32_t keepalive_ms;
};

/**
 * Connect. *Control.* Returns at once: the answer is an event, RDMA_EVENT_ESTABLISHED (the queue
 * pair is in RTS), _REJECTED or _UNREACHABLE. For a UD queue pair SIDR looks up the service.
 *
 * @param qp in RDMA_QP_INIT, of the same device
 * @param dst IP address and port (RC: RDMA_PS_TCP; UC: RDMA_PS_IB, as librdmacm has UC nowhere
 *   else; UD: RDMA_PS_UDP)
 * @return NULL with rte_errno EINVAL, ENOMEM, EAFNOSUPPORT, ENODEV (device removed)
 */
struct rdma_conn *rdma_conn_connect(
	struct rdma_qp *qp, const struct sockaddr *dst, const struct rdma_conn_attr *attr);

/**
 * Listen. *Control.*
 *
 * @param type of queue pairs: each has a port space of its own (rdma_conn_connect())
 * @param port service, CPU byte order
 * @param backlog requests that are not answered yet, at least 1; more are dropped and counted
 * @return NULL with rte_errno EADDRINUSE, ENOMEM, ENODEV (device removed)
 */
struct rdma_conn *rdma_conn_listen(struct rdma_dev *dev, enum rdma_qp_type type, uint16_t port,
	uint16_t backlog, void *context);

/**
 * Accept a request with a queue pair in RDMA_QP_INIT. *Control.* RDMA_EVENT_ESTABLISHED follows
 * (UD: at once, and the connection is over: destroy it).
 * @return 0; -EINVAL, -ENOTCONN (peer gave up)
 */
int rdma_conn_accept(struct rdma_conn *conn, struct rdma_qp *qp, const struct rdma_conn_attr *attr);

/**
 * Reject with consumer's reason 28 and private data. *Control.* It is gone then.
 * @return 0; -EINVAL: accepted already, or more private data than there is room for
 */
int rdma_conn_reject(struct rdma_conn *conn, const void *private_data, uint16_t private_len);

/** Disconnect: the queue pair goes to error, DREQ goes out. *Control.* @return 0; -ENOTCONN */
int rdma_conn_disconnect(struct rdma_conn *conn);

/**
 * Forget a connection, listener or multicast membership. *Control.* A live connection is
 * disconnected first; its number stays in time-wait. @return 0
 */
int rdma_conn_destroy(struct rdma_conn *conn);

/** rdma_conn_attr.context of the connection, of the listener until accepted. */
void *rdma_conn_context(const struct rdma_conn *conn);

/**
 * Do the CM's work - messages, time-outs, address resolution - and take events. The control lcore.
 *
 * @return how many events, 0 to n
 */
uint16_t rdma_poll_cm(struct rdma_dev *dev, struct rdma_event *event, uint16_t n);

/* ---- datagrams ------------------------------------------------------------------------------ */

/**
 * An address handle for UD. *Control.*
 * @param dst IP address
 * @return NULL with rte_errno EAGAIN (address is being resolved: poll the CM, try again),
 *   EHOSTUNREACH, ENOMEM
 */
struct rdma_ah *rdma_ah_create(
	struct rdma_pd *pd, const struct sockaddr *dst, uint8_t traffic_class, uint8_t hop_limit);

/** @return 0; -EBUSY: unfinished sends refer to it. *Control.* */
int rdma_ah_destroy(struct rdma_ah *ah);

/**
 * Join a multicast group with a UD queue pair, for receiving and sending. *Control.* The event
 * RDMA_EVENT_MULTICAST_JOINED brings address handle, queue pair number 0xFFFFFF and Q_Key;
 * rdma_conn_destroy() leaves.
 * @return NULL with rte_errno EINVAL (no multicast address), EEXIST (is a member), ENOMEM, ENOSPC
 */
struct rdma_conn *rdma_multicast_join(
	struct rdma_qp *qp, const struct sockaddr *group, void *context);

#ifdef __cplusplus
}
#endif

#endif
