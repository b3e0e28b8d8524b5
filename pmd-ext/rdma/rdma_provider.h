/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_PROVIDER_H
#define RDMA_PROVIDER_H

/**
 * @file
 * Interface between rdma.h and its providers. A provider is one const table of operations. The
 * functions of rdma.h do the checks that are common to all providers (references, ranges, names)
 * and call the table. The objects of a provider start with the base structures below. A new
 * provider needs its own folder and one line in meson.build of this folder.
 */

#include <sys/queue.h>

#include <rte_common.h>
#include <rte_log.h>

#include "rdma.h"

struct rdma_ops;

/** Base of a device. Only the control lcore reads and writes the reference counts. */
struct rdma_dev {
	const struct rdma_ops *ops;
	char name[RDMA_NAME_MAX];
	uint32_t nb_pds, nb_cqs, nb_conns;
	struct rdma_registrations registrations; /**< any thread reads */
};

struct rdma_pd {
	struct rdma_dev *dev;
	uint32_t nb_mrs, nb_qps, nb_ahs;
};

struct rdma_mr {
	struct rdma_pd *pd;
	struct rdma_mr_attr attr;
	uint32_t lkey, rkey;
};

struct rdma_cq {
	struct rdma_dev *dev;
	uint32_t depth;
	uint32_t nb_qps; /**< a queue pair that uses it for both queues counts twice */
	uint16_t poll_group;
};

struct rdma_qp {
	struct rdma_pd *pd;
	struct rdma_qp_attr attr; /**< defaults filled in */
	uint32_t qpn;
	uint32_t nb_conns; /**< connection and multicast memberships */
};

struct rdma_ah {
	struct rdma_pd *pd;
};

/** A connection, connection request, listener or multicast membership. */
struct rdma_conn {
	struct rdma_dev *dev;
	struct rdma_qp *qp; /**< NULL: listener, or request not accepted yet */
	void *context;
};

/**
 * Operations of a provider. Arguments are already checked as documented in rdma.h. Return values
 * are those of the function of the same name in rdma.h. A constructor allocates a zeroed object and
 * returns its base; the caller fills in the common fields.
 */
struct rdma_ops {
	const char *provider; /**< the part of a device name before the colon */
	bool mr_reg_parallel; /**< mr_reg() may run in several threads at once, lcores or not */
	bool reference;	      /**< rdma_qp_attr.reference is supported */

	struct rdma_dev *(*dev_open)(const char *args);
	int (*dev_close)(struct rdma_dev *dev);
	int (*dev_info_get)(const struct rdma_dev *dev, struct rdma_dev_info *info);
	/** NULL: the provider does not know the routes */
	int (*dev_route_check)(
		const struct rdma_dev *dev, const struct sockaddr *dst, char why[RDMA_ROUTE_TEXT]);
	unsigned int (*progress)(struct rdma_dev *dev, uint16_t poll_group);
	int (*xstats_get)(const struct rdma_dev *dev, struct rdma_xstat *x, unsigned int n);

	struct rdma_pd *(*pd_alloc)(struct rdma_dev *dev);
	int (*pd_free)(struct rdma_pd *pd);
	struct rdma_mr *(*mr_reg)(struct rdma_pd *pd, const struct rdma_mr_attr *attr);
	int (*mr_dereg)(struct rdma_mr *mr);

	struct rdma_cq *(*cq_create)(struct rdma_dev *dev, uint32_t depth, uint16_t poll_group);
	int (*cq_destroy)(struct rdma_cq *cq);
	uint16_t (*poll_cq)(struct rdma_cq *cq, struct rdma_wc *wc, uint16_t n);

	struct rdma_qp *(*qp_create)(struct rdma_pd *pd, const struct rdma_qp_attr *attr);
	int (*qp_destroy)(struct rdma_qp *qp);
	int (*qp_connect)(struct rdma_qp *qp, const struct rdma_qp_peer *peer);
	int (*qp_error)(struct rdma_qp *qp);
	int (*qp_info_get)(const struct rdma_qp *qp, struct rdma_qp_info *info);
	uint16_t (*post_send)(struct rdma_qp *qp, const struct rdma_send_wr *wr, uint16_t n);
	uint16_t (*post_recv)(struct rdma_qp *qp, const struct rdma_recv_wr *wr, uint16_t n);

	struct rdma_conn *(*conn_connect)(
		struct rdma_qp *qp, const struct sockaddr *dst, const struct rdma_conn_attr *attr);
	struct rdma_conn *(*conn_listen)(
		struct rdma_dev *dev, enum rdma_qp_type type, uint16_t port, uint16_t backlog);
	int (*conn_accept)(
		struct rdma_conn *conn, struct rdma_qp *qp, const struct rdma_conn_attr *attr);
	int (*conn_reject)(struct rdma_conn *conn, const void *private_data, uint16_t private_len);
	int (*conn_disconnect)(struct rdma_conn *conn);
	int (*conn_destroy)(struct rdma_conn *conn);
	uint16_t (*poll_cm)(struct rdma_dev *dev, struct rdma_event *event, uint16_t n);

	struct rdma_ah *(*ah_create)(struct rdma_pd *pd, const struct sockaddr *dst,
		uint8_t traffic_class, uint8_t hop_limit);
	int (*ah_destroy)(struct rdma_ah *ah);
	struct rdma_conn *(*multicast_join)(struct rdma_qp *qp, const struct sockaddr *group);
};

/** Add to the registrations of a device. The control lcore. */
void rdma_registrations_count(struct rdma_dev *dev, uint64_t regions, uint64_t bytes, uint64_t ns);

/** Add a provider to the list that rdma_dev_open() searches. Call it before main(). */
void rdma_provider_register(const struct rdma_ops *ops);

#define RDMA_REGISTER_PROVIDER(name, table)       \
	RTE_INIT(rdma_provider_init_##name)       \
	{                                         \
		rdma_provider_register(&(table)); \
	}

extern int rdma_logtype;

#define RDMA_LOG(level, fmt, ...) \
	rte_log(RTE_LOG_##level, rdma_logtype, "RDMA: " fmt "\n", ##__VA_ARGS__)

#endif
