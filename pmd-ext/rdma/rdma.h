/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_H
#define RDMA_H

/**
 * @file
 * Poll-mode RDMA for DPDK applications: one interface, two providers.
 *
 * - `verbs`: adapters with a kernel driver, such as ConnectX, through rdma-core.
 * - `roce`: RoCEv2 in software on any ethdev port.
 *
 * Terms and semantics are those of verbs (InfiniBand Architecture Specification 1.4, chapters 9 to
 * 12, annex A17 RoCEv2; rdma-core's ibv_*(3) and rdma_cm(7)). Function names put the object first
 * because librdmacm already defines rdma_connect() and similar names.
 *
 * Life cycle: rdma_dev_open() -> rdma_pd_alloc() -> rdma_mr_reg(), rdma_cq_create(),
 * rdma_qp_create() -> rdma_conn_connect(), or rdma_conn_listen() and rdma_conn_accept() ->
 * rdma_post_send(), rdma_post_recv(), rdma_poll_cq() -> rdma_conn_disconnect(). Then destroy the
 * objects in reverse order. Destroying an object that another object still refers to fails with
 * -EBUSY.
 *
 * Threads. The library creates no threads. Three poll functions do all the work:
 *
 * - rdma_poll_cq() returns completions and never makes a system call. Only the lcore that owns the
 *   completion queue may call it.
 * - rdma_progress() runs a poll group of the `roce` provider: it receives, acknowledges,
 *   retransmits and runs timers. One lcore calls it for a poll group, always the same one. The
 *   `verbs` provider has no work there and returns 0.
 * - rdma_poll_cm() runs connection management and address resolution. Only the control lcore may
 *   call it.
 *
 * The lcore that calls rdma_progress() for a poll group owns the queue pairs of that poll group and
 * their completion queues. Only this lcore may post to these queue pairs and poll these completion
 * queues.
 *
 * All functions marked *Control.* belong to one lcore at a time for all devices: the control lcore.
 * It may also own a poll group. A control function may wait until a poll group has executed a
 * request. Another lcore that owns this poll group must keep calling rdma_progress() meanwhile. If
 * the calling lcore itself owns the poll group, the function executes the request directly.
 *
 * Only lcores may call these functions, because other threads must not use mempools. The functions
 * that any thread may call say so.
 *
 * Errors. Functions return 0 or a count on success and a negative errno on failure. Functions that
 * return a pointer return NULL and set rte_errno. Each failure is also logged as one line
 * (`braggline.rdma`) with the object, the value found and the value expected, except by the three
 * poll functions and the two post functions.
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
struct rdma_roce_reference;

#define RDMA_NAME_MAX	 256 /**< size of a device name, including the terminating NUL */
#define RDMA_SGE_MAX	 16  /**< maximum entries of a scatter-gather list, any provider */
#define RDMA_INLINE_MAX	 256 /**< maximum inline bytes, any provider */
#define RDMA_PRIVATE_MAX 196 /**< maximum private data of an event (that of a REP) */
#define RDMA_GRH_BYTES	 40  /**< precede each received UD message; IPv4 uses the last 20 bytes */

/* ---- devices -------------------------------------------------------------------------------- */

/** Capabilities of a device. Counts are limits. */
struct rdma_dev_info {
	char name[RDMA_NAME_MAX];     /**< the name passed to rdma_dev_open() */
	const char *provider;	      /**< "roce" or "verbs" */
	struct sockaddr_storage addr; /**< own IP address, port 0 */
	uint32_t link_mbps;	      /**< 0: unknown */
	uint32_t max_qp;
	uint32_t max_wr;  /**< of one queue of a queue pair */
	uint32_t max_cqe; /**< of one completion queue */
	uint32_t max_mr;
	/** Maximum bytes of one memory region; register longer buffers in slices (rdma_mr_reg()) */
	uint64_t max_mr_bytes;
	uint64_t max_msg_bytes; /**< of one message, 2^31 at most */
	uint16_t max_sge;
	uint16_t max_inline;	 /**< bytes */
	uint16_t max_rd_atom;	 /**< READs and atomics in flight, as responder and as requester */
	uint16_t mtu;		 /**< largest path MTU: 256, 512, 1024, 2048 or 4096 bytes */
	uint16_t nb_poll_groups; /**< that need rdma_progress(); 0: none (`verbs`) */
	int16_t numa_node;	 /**< of the port or adapter; -1: unknown */
	bool gpu_memory;	 /**< rdma_mr_reg() may accept GPU memory */
};

/**
 * Open a device by name. *Control.*
 *
 * - `roce:port=0,ip=10.0.0.1/24[,KEY=VALUE]...`: software RoCEv2 on ethdev port 0 (a number or a
 *   port name). Keys, with defaults in parentheses:
 *   - `queue=N`: first RX and TX queue (0).
 *   - `poll_groups=N`: number of poll groups (1). Each uses its own queue, starting from `queue`.
 *   - `ip=`: may be given twice, for IPv4 and IPv6; `gateway=IP`; `vlan=ID[:PCP]`.
 *   - `mtu=N`: largest path MTU (the largest that fits the port's MTU).
 *   - `qps=N`, `mrs=N`: sizes of the queue pair and memory region tables (4096, 65536).
 *   - `cc=dcqcn|none`: congestion control, the reaction to ECN marks (none).
 *   - `handover=1`: only poll group 0 receives from the port. Without it each poll group does. In
 *     both cases a packet is forwarded to the poll group of its queue pair, so RSS may distribute
 *     packets in any way.
 *   - `poll=0`: no poll group receives from the port. The application receives from a shared queue
 *     and forwards packets with rdma_roce_rx() (rdma_roce.h).
 *   - `steer=auto|no`: on a port with more queues, request rte_flow rules for the device's traffic
 *     (auto). Use `no` if the application creates its own rules.
 *   If several `roce` devices share a port, a packet that another device receives is forwarded to
 *   poll group 0 of the device it is addressed to. The provider configures and starts a port that
 *   is not configured yet, and stops it when the last device on it closes. On a port that is
 *   already started, the named queues must exist.
 * - `verbs:mlx5_0[,port=1][,gid=3]`: an adapter known to rdma-core. The default `gid` is the RoCEv2
 *   GID of an IPv4 address with the lowest index.
 *
 * @return the device; NULL with rte_errno
 *   - EINVAL: unknown provider or key, malformed value
 *   - ENODEV: no such port or adapter
 *   - ENOTSUP: provider not built in, or port unsuitable (the log gives the reason: IOVA mode, MTU,
 *     offloads)
 *   - ENOMEM
 *   - EBUSY: a queue is already used by another device
 */
struct rdma_dev *rdma_dev_open(const char *name);

/**
 * Close a device. *Control.* Poll groups of other `roce` devices on the port must be polled
 * meanwhile.
 * @return 0; -EBUSY: protection domains, completion queues, connections or listeners remain
 */
int rdma_dev_close(struct rdma_dev *dev);

/** Get the capabilities and the address of a device. Any lcore. @return 0 */
int rdma_dev_info_get(const struct rdma_dev *dev, struct rdma_dev_info *info);

#define RDMA_ROUTE_TEXT 256 /**< bytes of the text of rdma_dev_route_check() */

/**
 * Check that the configuration of a device has a route to an IP address. Nothing is sent. Any
 * lcore.
 * `roce`: the address must be in a subnet of the device (`ip=`), or the device must have a gateway
 * for its family. `verbs`: the routes of the kernel are not checked.
 * @param why  out, on error: the address, the subnets of the device, what is missing
 * @return 0; -EAFNOSUPPORT: the device has no address of this family; -EHOSTUNREACH: no route
 */
int rdma_dev_route_check(
	const struct rdma_dev *dev, const struct sockaddr *dst, char why[RDMA_ROUTE_TEXT]);

/**
 * Run a poll group: receive a burst, run responders and requesters, retransmit, transmit. Call it
 * in a loop, with no pause longer than the local ACK timeout of the peers.
 *
 * @param poll_group 0 to rdma_dev_info.nb_poll_groups - 1
 * @return packets received and sent; 0: idle
 */
unsigned int rdma_progress(struct rdma_dev *dev, uint16_t poll_group);

/**
 * A counter. Names are stable, in lower case with underscores. A name ends with the unit unless the
 * value is a count.
 */
struct rdma_xstat {
	const char *name; /**< valid until the device is closed */
	uint64_t value;
};

/**
 * Get the counters of a device. They are never reset. Any thread, lcore or not: the function only
 * reads.
 *
 * @param n size of `x`; 0 returns only the number of counters
 * @return number of counters; the first `n` of them are stored in `x`
 */
int rdma_xstats_get(const struct rdma_dev *dev, struct rdma_xstat *x, unsigned int n);

/** Registrations of a device since it was opened. */
struct rdma_registrations {
	uint64_t regions;
	uint64_t bytes;
	uint64_t ns; /**< time that they took, without faulting in the pages of pools */
};

/** Get the registrations of a device. They are counters of rdma_xstats_get(), too. Any thread. */
void rdma_registrations_get(const struct rdma_dev *dev, struct rdma_registrations *r);

/* ---- memory --------------------------------------------------------------------------------- */

/** Allocate a protection domain. *Control.* @return NULL with rte_errno ENOMEM */
struct rdma_pd *rdma_pd_alloc(struct rdma_dev *dev);

/**
 * Free a protection domain. *Control.*
 * @return 0; -EBUSY: memory regions, queue pairs or address handles remain
 */
int rdma_pd_free(struct rdma_pd *pd);

/** Access rights in addition to local read, which every region has (ibv_reg_mr(3)). */
enum rdma_access {
	/** Target of receives, READs and atomics; required by remote write and remote atomic */
	RDMA_ACCESS_LOCAL_WRITE = 1 << 0,
	RDMA_ACCESS_REMOTE_WRITE = 1 << 1,
	RDMA_ACCESS_REMOTE_READ = 1 << 2,
	RDMA_ACCESS_REMOTE_ATOMIC = 1 << 3,
	/** Bytes may be written in any order, even across messages. Only a completion shows that
	 *  the data is in memory. A flag word written by a plain WRITE does not: use
	 *  RDMA_OP_WRITE_IMM. `roce` ignores this flag. */
	RDMA_ACCESS_RELAXED_ORDERING = 1 << 4,
};

/** Memory to register. */
struct rdma_mr_attr {
	void *addr;	 /**< host or GPU virtual address; need not be aligned */
	uint64_t length; /**< bytes, at least 1 */
	uint32_t access; /**< of enum rdma_access */
	/** gpudev that the memory was allocated from; -1: host memory. `verbs` registers GPU memory
	 *  through its dma-buf or, if this fails, through nvidia-peermem. `roce` accepts only
	 *  memory that the CPU can read. */
	int16_t gpu;
};

/**
 * Register memory. *Control.* The time grows with the number of pages: register once, at start.
 * rdma_pool.h allocates buffers from a few large regions.
 *
 * @return the region; NULL with rte_errno
 *   - EINVAL: length 0, the range wraps around, or remote write without local write
 *   - E2BIG: longer than rdma_dev_info.max_mr_bytes: register slices
 *   - ENOTSUP: the provider cannot access this memory (roce: not CPU-accessible; verbs: neither
 *     dma-buf nor nvidia-peermem)
 *   - ENOMEM
 *   - EPERM: RLIMIT_MEMLOCK exceeded
 */
struct rdma_mr *rdma_mr_reg(struct rdma_pd *pd, const struct rdma_mr_attr *attr);

/**
 * Deregister a region. *Control.* After it returned 0, no byte is read or written through the
 * region.
 * @return 0; -EBUSY: outstanding sends or receives still refer to it. Keep polling and try again. A
 *   queue pair in error releases the region after its work requests are flushed.
 */
int rdma_mr_dereg(struct rdma_mr *mr);

/** The key for local scatter-gather lists. */
uint32_t rdma_mr_lkey(const struct rdma_mr *mr);

/** The key for the peer. With `roce` it is random, and not reused soon. */
uint32_t rdma_mr_rkey(const struct rdma_mr *mr);

/* ---- completion queues ---------------------------------------------------------------------- */

/** Status of a completed work request (ibv_wc_status). */
enum rdma_wc_status {
	RDMA_WC_SUCCESS,
	RDMA_WC_LOC_LEN_ERR,	   /**< message longer than the receive buffer, or than allowed */
	RDMA_WC_LOC_QP_OP_ERR,	   /**< operation not possible on this queue pair */
	RDMA_WC_LOC_PROT_ERR,	   /**< local list outside its region, or without the right */
	RDMA_WC_WR_FLUSH_ERR,	   /**< queue pair was in error before the request was executed */
	RDMA_WC_LOC_ACCESS_ERR,	   /**< remote access to local memory refused (responder) */
	RDMA_WC_REM_INV_REQ_ERR,   /**< NAK 0x61 */
	RDMA_WC_REM_ACCESS_ERR,	   /**< NAK 0x62 */
	RDMA_WC_REM_OP_ERR,	   /**< NAK 0x63 */
	RDMA_WC_RETRY_EXC_ERR,	   /**< no response after all retries */
	RDMA_WC_RNR_RETRY_EXC_ERR, /**< receiver not ready (RNR NAK) after all retries */
	RDMA_WC_GENERAL_ERR,
};

/** Name of a status, for messages. */
const char *rdma_wc_status_name(enum rdma_wc_status status);

/** Operation of a completion. */
enum rdma_wc_op {
	RDMA_WC_SEND,
	RDMA_WC_WRITE,
	RDMA_WC_READ,
	RDMA_WC_CMP_SWAP,
	RDMA_WC_FETCH_ADD,
	RDMA_WC_RECV, /**< a SEND was received */
	/** A WRITE with immediate was received: its data and that of all earlier messages is in
	 *  memory */
	RDMA_WC_RECV_WRITE_IMM,
};

enum rdma_wc_flag {
	RDMA_WC_WITH_IMM = 1 << 0,
	RDMA_WC_GRH = 1 << 1, /**< UD: the first RDMA_GRH_BYTES of the buffer hold a GRH */
};

/**
 * A completion. If the status is not success, only wr_id, status, qp and qp_context are valid
 * (ibv_poll_cq(3)).
 */
struct rdma_wc {
	uint64_t wr_id;
	struct rdma_qp *qp;
	void *qp_context;  /**< rdma_qp_attr.context */
	uint32_t byte_len; /**< bytes received, read, or written by the WRITE with immediate */
	uint32_t imm;	   /**< CPU byte order */
	uint32_t src_qpn;  /**< UD */
	uint8_t status;	   /**< enum rdma_wc_status */
	uint8_t op;	   /**< enum rdma_wc_op */
	uint8_t flags;	   /**< of enum rdma_wc_flag */
};

/**
 * Create a completion queue. *Control.*
 *
 * @param depth at least the number of signalled sends and of receives that can be outstanding. An
 *   overrun moves the queue pairs to the error state and is counted (`cq_overrun`).
 * @param poll_group of the queue pairs that will use it
 * @return NULL with rte_errno EINVAL, ENOMEM
 */
struct rdma_cq *rdma_cq_create(struct rdma_dev *dev, uint32_t depth, uint16_t poll_group);

/** Destroy a completion queue. *Control.* @return 0; -EBUSY: queue pairs remain */
int rdma_cq_destroy(struct rdma_cq *cq);

/** Get completions, oldest first. Owner lcore. Makes no system call. @return how many, 0 to n */
uint16_t rdma_poll_cq(struct rdma_cq *cq, struct rdma_wc *wc, uint16_t n);

/* ---- queue pairs ---------------------------------------------------------------------------- */

enum rdma_qp_type {
	RDMA_QP_RC,
	RDMA_QP_UC,
	RDMA_QP_UD
};

enum rdma_qp_state {
	RDMA_QP_INIT,  /**< receives may be posted */
	RDMA_QP_RTR,   /**< ready to receive */
	RDMA_QP_RTS,   /**< ready to receive and to send */
	RDMA_QP_ERROR, /**< outstanding and newly posted work requests are flushed */
};

/** Attributes of a new queue pair. Zero selects the default, if one is given in parentheses. */
struct rdma_qp_attr {
	enum rdma_qp_type type;
	uint16_t poll_group;	 /**< its lcore owns the queue pair */
	struct rdma_cq *send_cq; /**< both of this poll group; may be the same */
	struct rdma_cq *recv_cq;
	void *context;	       /**< returned with completions and events */
	uint32_t max_send_wr;  /**< send queue, requests (128) */
	uint32_t max_recv_wr;  /**< receive queue, requests (128) */
	uint16_t max_send_sge; /**< (4, or the device's limit if that is less) */
	uint16_t max_recv_sge; /**< (1) */
	uint16_t max_inline;   /**< bytes (0) */
	uint16_t max_mtu;      /**< bytes (the device's) */
	uint8_t max_rd_atom;   /**< READs and atomics in flight, each way (16 or the device's) */
	/** Local ACK timeout: 4.096 us x 2^n, 1 to 31 (14: 67 ms). librdmacm uses 19: 2.1 s */
	uint8_t ack_timeout;
	uint8_t retry_count;   /**< 0 to 7 timeouts and sequence errors, then RETRY_EXC; 0xff: 7 */
	uint8_t rnr_retry;     /**< 0 to 6; 7: no limit; 0xff: 7 */
	uint8_t min_rnr_timer; /**< code of IBTA table 45, 1 to 31 (12: 0.64 ms) */
	uint8_t traffic_class; /**< IP TOS or traffic class; the two low bits are ECN (0) */
	uint8_t hop_limit;     /**< (64) */
	uint32_t rate_mbps;    /**< static rate limit of this queue pair (0: none) */
	/** UD (that of RDMA_UDP, 0x01234567). The top bit must be 0: it marks privileged Q_Keys */
	uint32_t qkey;
	bool signal_all; /**< every send is signalled */
	bool trust_icrc; /**< `roce`: do not check received ICRCs; for trusted links only */
	/**
	 * `roce`, UC: the queue pair only receives. rdma_qp_connect() then needs no reply of the
	 * peer: its MAC address is not resolved, and the state is RDMA_QP_RTR. `peer.addr` is the
	 * source address of packets that are accepted; family AF_UNSPEC: any source
	 */
	bool receive_only;
	/** `roce`, UC: deliver messages by reference (rdma_roce.h); copied. NULL: no */
	const struct rdma_roce_reference *reference;
};

/**
 * Create a queue pair in RDMA_QP_INIT. *Control.*
 * @return NULL with rte_errno EINVAL, ENOMEM, ENOSPC; EBUSY: its fixed number is in use (`roce`)
 */
struct rdma_qp *rdma_qp_create(struct rdma_pd *pd, const struct rdma_qp_attr *attr);

/**
 * Destroy a queue pair. *Control.* Outstanding work requests produce no completions.
 * @return 0; -EBUSY: a connection or multicast membership remains, or the port still holds frames
 *   of the queue pair after a time limit
 */
int rdma_qp_destroy(struct rdma_qp *qp);

/** The remote end of a queue pair that is connected without the CM. */
struct rdma_qp_peer {
	struct sockaddr_storage addr; /**< its IP address; UD: not needed */
	uint32_t qpn;
	uint32_t psn;		   /**< first PSN of the peer, 24 bits */
	uint32_t local_psn;	   /**< first local PSN; random values are safer */
	uint16_t mtu;		   /**< path MTU in bytes; the same at both ends */
	uint8_t rd_atom;	   /**< READs and atomics that this end may have in flight */
	uint8_t responder_rd_atom; /**< READs and atomics that the peer may have in flight */
};

/**
 * Move a queue pair to RDMA_QP_RTS without the CM, with queue pair numbers and PSNs exchanged by
 * the application. *Control.* UD: peer is NULL. A queue pair that only receives (rdma_roce.h) moves
 * to RDMA_QP_RTR; of `peer`, only addr, psn and mtu are used.
 * @return 0; -EAGAIN: the address is being resolved, call rdma_poll_cm() and try again;
 *   -EHOSTUNREACH; -EINVAL
 */
int rdma_qp_connect(struct rdma_qp *qp, const struct rdma_qp_peer *peer);

/**
 * Move a queue pair to RDMA_QP_ERROR: outstanding work requests are flushed in order. Owner lcore
 * or control lcore. @return 0
 */
int rdma_qp_error(struct rdma_qp *qp);

/** State and counters of a queue pair. */
struct rdma_qp_info {
	enum rdma_qp_state state;
	uint32_t qpn;
	uint32_t send_queued; /**< requests posted and not completed */
	uint32_t recv_queued;
	uint16_t mtu;
	uint64_t retransmits; /**< packets retransmitted */
	uint64_t rnr_naks;    /**< received */
};

/**
 * Get the state and the counters of a queue pair. Any lcore. The values of a queue pair in use are
 * not a consistent snapshot. @return 0
 */
int rdma_qp_info_get(const struct rdma_qp *qp, struct rdma_qp_info *info);

/** An entry of a scatter-gather list. */
struct rdma_sge {
	uint64_t addr;	 /**< virtual address, host or GPU */
	uint32_t length; /**< bytes; 0 is allowed */
	uint32_t lkey;	 /**< of the region that contains it; unused with RDMA_SEND_INLINE */
};

enum rdma_op {
	RDMA_OP_SEND,
	RDMA_OP_SEND_IMM,
	RDMA_OP_WRITE,
	RDMA_OP_WRITE_IMM,
	RDMA_OP_READ,
	RDMA_OP_CMP_SWAP,  /**< 8 bytes; the old value is stored in the list */
	RDMA_OP_FETCH_ADD, /**< 8 bytes; the old value is stored in the list */
};

enum rdma_send_flag {
	RDMA_SEND_SIGNALED = 1 << 0,
	RDMA_SEND_FENCE = 1 << 1, /**< starts after earlier READs and atomics have completed */
	RDMA_SEND_SOLICITED = 1 << 2,
	RDMA_SEND_INLINE = 1 << 3, /**< the data is copied when it is posted */
};

/** A send request. */
struct rdma_send_wr {
	uint64_t wr_id;
	const struct rdma_sge *sg; /**< copied when posted */
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
			/** If the top bit is set, the queue pair's own Q_Key is sent instead */
			uint32_t remote_qkey;
		} ud;
	};
};

/** A receive request. UD: the first RDMA_GRH_BYTES are for the GRH. */
struct rdma_recv_wr {
	uint64_t wr_id;
	const struct rdma_sge *sg; /**< copied when posted */
	uint16_t nb_sge;
};

/**
 * Post send requests. Owner lcore. A send completes when it is acknowledged (UC, UD: when it is
 * sent). Until then the application must not modify or free its memory. An unsignalled request
 * keeps its entry of the send queue until the next signalled one completes.
 *
 * @return number of requests posted; if fewer than n, rte_errno has the reason why the next one was
 *   not posted
 *   - ENOMEM: send queue full
 *   - EINVAL: operation, list or lengths not possible on this queue pair
 *   - ENOTCONN: the queue pair has not reached RDMA_QP_RTS
 */
uint16_t rdma_post_send(struct rdma_qp *qp, const struct rdma_send_wr *wr, uint16_t n);

/**
 * Post receive requests, from RDMA_QP_INIT on. Owner lcore.
 * @return as rdma_post_send(); rte_errno ENOMEM, EINVAL
 */
uint16_t rdma_post_recv(struct rdma_qp *qp, const struct rdma_recv_wr *wr, uint16_t n);

/* ---- connections (IB CM, chapter 12; private data as in rdma_cm(7)) -------------------------- */

enum rdma_event_type {
	/** On a listener; call rdma_conn_accept() or rdma_conn_reject() */
	RDMA_EVENT_CONNECT_REQUEST,
	/** The connection is open in both directions; UD: has the service's ah, qpn and qkey */
	RDMA_EVENT_ESTABLISHED,
	/** By the peer: status is the REJ reason (UD: SIDR status). On a connection that was not
	 *  accepted yet: the peer has withdrawn its request */
	RDMA_EVENT_REJECTED,
	RDMA_EVENT_UNREACHABLE,	  /**< no ARP or CM response: status is a negative errno */
	RDMA_EVENT_DISCONNECTED,  /**< by either end; the queue pair is in error */
	RDMA_EVENT_TIMEWAIT_EXIT, /**< no packet of this connection is in the network any more */
	RDMA_EVENT_MULTICAST_JOINED,
	RDMA_EVENT_MULTICAST_ERROR,
	RDMA_EVENT_QP_ERROR,	  /**< fatal error; the completions give the reason */
	RDMA_EVENT_ADDR_CONFLICT, /**< another station uses the device's address */
	/**
	 * The adapter or port was removed or has failed permanently (`roce`: its ethdev raised
	 * RTE_ETH_EVENT_INTR_RMV or RTE_ETH_EVENT_DESTROY). `roce`: all queue pairs are in error,
	 * posted requests are flushed, and each connection ends with its own event, status -ENODEV.
	 * `verbs`: the adapter's driver defines what happens. Destroy all objects and close the
	 * device; no other call is useful. An application that removes a port must first stop the
	 * lcores that poll it, or make the ethdev raise the event.
	 */
	RDMA_EVENT_DEVICE_REMOVED,
};

/** Name of an event, for messages. */
const char *rdma_event_name(enum rdma_event_type type);

#define RDMA_ADDRESS_LEN 46 /**< INET6_ADDRSTRLEN */

/** Format an IP address, such as "10.0.0.1", without its port. Any thread. @return text */
const char *rdma_address_text(const struct sockaddr *addr, char text[RDMA_ADDRESS_LEN]);

/** A CM event. */
struct rdma_event {
	enum rdma_event_type type;
	int status;
	struct rdma_conn *conn;	    /**< request: the new connection; NULL: event of the device */
	struct rdma_conn *listener; /**< of a request */
	struct rdma_qp *qp;	    /**< of the connection or the error; may be NULL */
	struct sockaddr_storage peer;
	uint8_t rd_atom;	   /**< request: maximum READs and atomics the peer will start */
	uint8_t responder_rd_atom; /**< request: maximum READs and atomics this end may start */
	struct rdma_ah *ah;	   /**< UD, multicast: belongs to the connection */
	/** Queue pair of the peer: in a request (not UD) and in RDMA_EVENT_ESTABLISHED */
	uint32_t remote_qpn;
	uint32_t remote_qkey;
	/** bytes; the CM pads private data to the size of its field in the message */
	uint16_t private_len;
	uint8_t private_data[RDMA_PRIVATE_MAX];
};

/** Parameters of a connection. Zero selects the default, if one is given in parentheses. */
struct rdma_conn_attr {
	const void *private_data;
	/** bytes; RC, UC: REQ 56, REP 196, REJ 148; UD: SIDR_REQ 180, SIDR_REP 136 */
	uint16_t private_len;
	void *context;	      /**< rdma_conn_context() */
	uint16_t mtu;	      /**< bytes (the queue pair's) */
	uint8_t cm_retries;   /**< of REQ, REP, DREQ (15) */
	uint32_t timeout_ms;  /**< total time for address resolution, REQ and retries (10,000) */
	uint16_t source_port; /**< of the RDMA_CM header (ephemeral) */
	/** RC, `roce`: after this time without a packet of the peer, probes are sent. After twice
	 *  this time without a response the event RDMA_EVENT_DISCONNECTED with -ETIMEDOUT follows.
	 *  Without keepalive, the loss of a peer is detected only when something is sent to it.
	 *  (0: never) */
	uint32_t keepalive_ms;
};

/**
 * Connect a queue pair. *Control.* Returns immediately. The result is an event:
 * RDMA_EVENT_ESTABLISHED (the queue pair is in RTS), RDMA_EVENT_REJECTED or RDMA_EVENT_UNREACHABLE.
 * For a UD queue pair, SIDR resolves the service.
 *
 * @param qp in RDMA_QP_INIT, of the same device
 * @param dst IP address and port. Port space of RC: RDMA_PS_TCP; UC: RDMA_PS_IB, the only one in
 *   which librdmacm supports UC; UD: RDMA_PS_UDP
 * @param attr NULL: all defaults
 * @return NULL with rte_errno EINVAL, ENOMEM, EAFNOSUPPORT, ENODEV (device removed)
 */
struct rdma_conn *rdma_conn_connect(
	struct rdma_qp *qp, const struct sockaddr *dst, const struct rdma_conn_attr *attr);

/**
 * Listen for connection requests. *Control.*
 *
 * @param type of queue pairs: each type has its own port space (rdma_conn_connect())
 * @param port service, CPU byte order
 * @param backlog maximum number of unanswered requests, at least 1; further requests are dropped
 *   and counted
 * @return NULL with rte_errno EADDRINUSE, ENOMEM, ENODEV (device removed)
 */
struct rdma_conn *rdma_conn_listen(struct rdma_dev *dev, enum rdma_qp_type type, uint16_t port,
	uint16_t backlog, void *context);

/**
 * Accept a request with a queue pair in RDMA_QP_INIT. *Control.* RDMA_EVENT_ESTABLISHED follows.
 * UD: it follows immediately, and the connection is finished: destroy it.
 * @param attr NULL: all defaults
 * @return 0; -EINVAL; -ENOTCONN: the peer has withdrawn its request
 */
int rdma_conn_accept(struct rdma_conn *conn, struct rdma_qp *qp, const struct rdma_conn_attr *attr);

/**
 * Reject a request with reason 28 (consumer reject) and private data. *Control.* On success the
 * connection is freed.
 * @return 0; -EINVAL: already accepted, or private data too long
 */
int rdma_conn_reject(struct rdma_conn *conn, const void *private_data, uint16_t private_len);

/**
 * Disconnect: move the queue pair to error and send a DREQ. *Control.*
 * @return 0; -ENOTCONN
 */
int rdma_conn_disconnect(struct rdma_conn *conn);

/**
 * Destroy a connection, listener or multicast membership. *Control.* A live connection is
 * disconnected first; its queue pair number stays in time-wait. @return 0
 */
int rdma_conn_destroy(struct rdma_conn *conn);

/** rdma_conn_attr.context of the connection; before it is accepted, that of the listener. */
void *rdma_conn_context(const struct rdma_conn *conn);

/**
 * Run the CM - messages, timeouts, address resolution - and get events. Control lcore.
 *
 * @return number of events, 0 to n
 */
uint16_t rdma_poll_cm(struct rdma_dev *dev, struct rdma_event *event, uint16_t n);

/* ---- datagrams ------------------------------------------------------------------------------ */

/**
 * Create an address handle for UD. *Control.*
 * @param dst IP address
 * @param hop_limit 0: 64
 * @return NULL with rte_errno EAGAIN (the address is being resolved: call rdma_poll_cm() and try
 *   again), EHOSTUNREACH, ENOMEM
 */
struct rdma_ah *rdma_ah_create(
	struct rdma_pd *pd, const struct sockaddr *dst, uint8_t traffic_class, uint8_t hop_limit);

/** Destroy an address handle. *Control.* @return 0; -EBUSY: outstanding sends refer to it */
int rdma_ah_destroy(struct rdma_ah *ah);

/**
 * Join a multicast group with a UD queue pair, to receive and to send. *Control.* The event
 * RDMA_EVENT_MULTICAST_JOINED has the address handle, queue pair number 0xFFFFFF and the Q_Key.
 * rdma_conn_destroy() leaves the group.
 * @return NULL with rte_errno EINVAL (not a multicast address), EEXIST (already a member), ENOMEM,
 *   ENOSPC
 */
struct rdma_conn *rdma_multicast_join(
	struct rdma_qp *qp, const struct sockaddr *group, void *context);

#ifdef __cplusplus
}
#endif

#endif
