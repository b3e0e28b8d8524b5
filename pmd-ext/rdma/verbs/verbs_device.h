/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef VERBS_DEVICE_H
#define VERBS_DEVICE_H

/**
 * @file
 * The objects of the verbs provider. They implement the objects of rdma.h with libibverbs and
 * librdmacm.
 */

#include <sys/queue.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <rte_errno.h>

#include "../rdma_provider.h"

/*
 * Maximum bytes of a region (3.5 GiB), because writes to larger regions are slower. On mlx5 with 4
 * KiB pages and 100 GbE: 6.0 GB/s to a region of more than 4 GiB, 9.3 GB/s to slices of 3.5 GiB
 * (LMCache, pull request 4432).
 */
#define VERBS_MR_BYTES_MAX (UINT64_C(7) << 29)

/* Table of queue pairs by number (24 bits): two levels of 12 bits. The second level is allocated on
 * demand. */
#define VERBS_QPN_BITS 12
#define VERBS_QPN_LEAF (1u << VERBS_QPN_BITS)

/** Counters of the device. Any thread may increment those of completions and regions. */
struct verbs_stats {
	uint64_t wc_error[RDMA_WC_GENERAL_ERR + 1]; /**< by status; [0] stays 0 */
	uint64_t wc_stale;			    /**< completions of destroyed queue pairs */
	uint64_t cq_overrun;
	uint64_t async_events;
	uint64_t mr_registered, mr_bytes, mr_dmabuf, mr_peermem, mr_busy;
	uint64_t cm_requests, cm_established, cm_rejected, cm_unreachable, cm_disconnected;
	uint64_t cm_timed_out; /**< part of cm_unreachable: timeout detected by this provider */
};

/** A counter of the kernel driver: a file in hw_counters. */
struct verbs_hw_counter {
	char name[48];
	char path[192];
};

struct verbs_dev {
	struct rdma_dev base;
	struct ibv_context *context;
	struct rdma_event_channel *channel; /**< non-blocking */
	struct ibv_device_attr attr;
	struct ibv_port_attr port_attr;
	struct sockaddr_storage addr;
	uint8_t port;
	uint8_t gid_index;
	uint16_t max_inline;
	uint32_t rate_max_kbps; /**< largest rate limit of a queue pair; 0: not supported */
	uint32_t rate_types;	/**< bitmap of enum ibv_qp_type that support a rate limit */
	int16_t numa_node;
	bool dmabuf;  /**< the kernel driver registers dma-bufs */
	bool peermem; /**< nvidia-peermem is loaded */
	bool removed;
	bool qp_broken; /**< a queue pair failed; verbs_poll_cm() reports it; atomic */
	LIST_HEAD(, verbs_qp) qps;
	LIST_HEAD(, verbs_conn) conns;
	struct verbs_qp **qpn[VERBS_QPN_LEAF];
	struct verbs_stats stats;
	unsigned int nb_hw_counters;
	struct verbs_hw_counter *hw_counter;
};

struct verbs_pd {
	struct rdma_pd base;
	struct ibv_pd *pd;
};

struct verbs_mr {
	struct rdma_mr base;
	struct ibv_mr *mr;
};

struct verbs_cq {
	struct rdma_cq base;
	struct verbs_dev *dev;
	struct ibv_cq *cq;
};

/** A posted request. Its completion or that of a later request frees the slot. */
struct verbs_slot {
	uint64_t wr_id;
	uint8_t op; /**< enum rdma_wc_op */
	uint8_t nb_sge;
	uint32_t lkey[RDMA_SGE_MAX]; /**< lets rdma_mr_dereg() find regions in use */
};

/** One queue of a queue pair. Only the owner lcore writes; any lcore may read. */
struct verbs_queue {
	struct verbs_slot *slot;
	uint32_t depth; /**< as requested */
	uint32_t mask;	/**< depth rounded up to a power of two, less one */
	uint32_t posted, freed;
};

struct verbs_qp {
	struct rdma_qp base;
	LIST_ENTRY(verbs_qp) next;
	struct ibv_qp *qp;
	struct verbs_dev *dev;
	uint8_t state;	     /**< enum rdma_qp_state, atomic */
	bool broken;	     /**< a fatal completion was seen, atomic */
	bool error_reported; /**< RDMA_EVENT_QP_ERROR was reported; control lcore */
	uint16_t mtu;	     /**< of the path, bytes */
	uint32_t max_message;
	struct rdma_qp_attr attr;
	struct verbs_queue send, recv;
};

struct verbs_ah {
	struct rdma_ah base;
	struct ibv_ah *ah;
};

enum verbs_conn_state {
	VERBS_RESOLVING_ADDRESS,
	VERBS_RESOLVING_ROUTE,
	VERBS_CONNECTING,
	VERBS_LISTENING,
	VERBS_REQUESTED,
	VERBS_ACCEPTED,
	VERBS_ESTABLISHED,
	VERBS_JOINING,
	VERBS_JOINED,
	VERBS_OVER, /**< disconnected, rejected, failed, or UD: resolved or accepted */
};

struct verbs_conn {
	struct rdma_conn base;
	LIST_ENTRY(verbs_conn) next;
	struct verbs_dev *dev;
	struct rdma_cm_id *id;
	struct verbs_qp *qp;
	enum rdma_qp_type type;
	enum verbs_conn_state state;
	bool disconnecting;	  /**< verbs_conn_disconnect() was called */
	bool established_pending; /**< UD: accepted, RDMA_EVENT_ESTABLISHED not yet reported */
	uint64_t deadline;	  /**< TSC; for the states before RDMA_EVENT_ESTABLISHED */
	uint8_t rd_atom;	  /**< request: maximum READs and atomics the peer will start */
	uint8_t responder_rd_atom;
	uint32_t remote_qpn; /**< RC, UC */
	uint16_t private_len;
	uint8_t private_data[RDMA_PRIVATE_MAX]; /**< of a REQ not sent yet */
	struct sockaddr_storage group;		/**< multicast */
	union ibv_gid mgid;
	bool attached;
	struct verbs_ah *ah; /**< for UD and multicast events */
};

#define VERBS_DEV(d)  container_of(d, struct verbs_dev, base)
#define VERBS_PD(p)   container_of(p, struct verbs_pd, base)
#define VERBS_MR(m)   container_of(m, struct verbs_mr, base)
#define VERBS_CQ(c)   container_of(c, struct verbs_cq, base)
#define VERBS_QP(q)   container_of(q, struct verbs_qp, base)
#define VERBS_AH(a)   container_of(a, struct verbs_ah, base)
#define VERBS_CONN(c) container_of(c, struct verbs_conn, base)

/** Set rte_errno and return NULL, for a constructor that fails. */
static inline void *
verbs_refuse(int error)
{
	rte_errno = error;
	return NULL;
}

static inline void
verbs_count(uint64_t *counter)
{
	__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/** Find a queue pair by number. Any lcore. @return NULL: none of this device */
static inline struct verbs_qp *
verbs_qp_find(const struct verbs_dev *dev, uint32_t qpn)
{
	struct verbs_qp **leaf = __atomic_load_n(
		&dev->qpn[(qpn >> VERBS_QPN_BITS) % VERBS_QPN_LEAF], __ATOMIC_ACQUIRE);

	return leaf ? __atomic_load_n(&leaf[qpn % VERBS_QPN_LEAF], __ATOMIC_ACQUIRE) : NULL;
}

/* Conversion between an MTU in bytes and the code of verbs and the CM. */
static inline uint16_t
verbs_mtu_bytes(enum ibv_mtu mtu)
{
	return 128u << mtu;
}

enum ibv_mtu verbs_mtu_code(uint16_t bytes);
bool verbs_mr_in_use(struct verbs_dev *dev, uint32_t lkey);

/* verbs_memory.c */
bool verbs_dmabuf_supported(struct ibv_context *context);
struct rdma_mr *verbs_mr_reg(struct rdma_pd *pd, const struct rdma_mr_attr *attr);
int verbs_mr_dereg(struct rdma_mr *mr);

/* verbs_completion.c */
struct rdma_cq *verbs_cq_create(struct rdma_dev *dev, uint32_t depth, uint16_t poll_group);
int verbs_cq_destroy(struct rdma_cq *cq);
uint16_t verbs_poll_cq(struct rdma_cq *cq, struct rdma_wc *wc, uint16_t n);

/* verbs_queue_pair.c */
struct rdma_qp *verbs_qp_create(struct rdma_pd *pd, const struct rdma_qp_attr *attr);
int verbs_qp_destroy(struct rdma_qp *qp);
int verbs_qp_connect(struct rdma_qp *qp, const struct rdma_qp_peer *peer);
int verbs_qp_error(struct rdma_qp *qp);
int verbs_qp_info_get(const struct rdma_qp *qp, struct rdma_qp_info *info);
/** Move a queue pair to RTR and RTS with the values negotiated by the CM; UD: id is unused. */
int verbs_qp_ready(
	struct verbs_qp *qp, struct rdma_cm_id *id, uint8_t rd_atom, uint8_t responder_rd_atom);

/* verbs_post.c */
uint16_t verbs_post_send(struct rdma_qp *qp, const struct rdma_send_wr *wr, uint16_t n);
uint16_t verbs_post_recv(struct rdma_qp *qp, const struct rdma_recv_wr *wr, uint16_t n);

/* verbs_connection.c */
struct rdma_conn *verbs_conn_connect(
	struct rdma_qp *qp, const struct sockaddr *dst, const struct rdma_conn_attr *attr);
struct rdma_conn *verbs_conn_listen(
	struct rdma_dev *dev, enum rdma_qp_type type, uint16_t port, uint16_t backlog);
int verbs_conn_accept(
	struct rdma_conn *conn, struct rdma_qp *qp, const struct rdma_conn_attr *attr);
int verbs_conn_reject(struct rdma_conn *conn, const void *private_data, uint16_t private_len);
int verbs_conn_disconnect(struct rdma_conn *conn);
int verbs_conn_destroy(struct rdma_conn *conn);
struct rdma_conn *verbs_multicast_join(struct rdma_qp *qp, const struct sockaddr *group);

/* verbs_event.c */
uint16_t verbs_poll_cm(struct rdma_dev *dev, struct rdma_event *event, uint16_t n);

/* verbs_address.c */
struct rdma_ah *verbs_ah_create(
	struct rdma_pd *pd, const struct sockaddr *dst, uint8_t traffic_class, uint8_t hop_limit);
int verbs_ah_destroy(struct rdma_ah *ah);
/** Create an address handle. @param attr for example from a CM event @return NULL with rte_errno */
struct verbs_ah *verbs_ah_make(struct ibv_pd *pd, struct ibv_ah_attr *attr);
void verbs_ah_free(struct verbs_ah *ah);
/** The GID of an IP address. @return false: not an IP address */
bool verbs_gid_of(const struct sockaddr *addr, union ibv_gid *gid);
/** The IP address of a GID. */
void verbs_address_of(const union ibv_gid *gid, uint32_t ifindex, struct sockaddr_storage *addr);
/** Format an address as "10.0.0.1 port 80", without the port if it is 0. */
const char *verbs_address_text(const struct sockaddr *addr, char *text, size_t size);
socklen_t verbs_address_size(const struct sockaddr *addr);

#endif
