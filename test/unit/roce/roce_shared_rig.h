/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_SHARED_RIG_H
#define ROCE_SHARED_RIG_H

/*
 * Several roce devices on one port. The port is net_ring with fake capabilities and configuration
 * calls.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <ethdev_driver.h>
#include <rte_mempool.h>
#include <rte_ring.h>

#include "rdma.h"

#define QUEUES	  5
#define ADDRESSES 2048

/* A port, its capabilities, and its configuration. */
struct nic {
	uint16_t id;
	struct rte_ring *rx[QUEUES], *tx[QUEUES];
	struct eth_dev_ops ops;
	const struct eth_dev_ops *true_ops;
	struct rte_mempool *pool; /* pool of the last RX queue that was set up */
	unsigned int room;	  /* maximum number of addresses in its list */
	unsigned int lists;	  /* number of calls that set the list */
	struct rte_ether_addr list[ADDRESSES];
	unsigned int nb_list;
};
extern struct nic nic;

/* Devices, named by their queue: queue 0 has 10.0.0.1 and fd00::1. */
struct station {
	struct rdma_dev *dev;
	struct rdma_pd *pd;
	struct rdma_cq *cq;
	struct rdma_qp *qp;
};
extern struct station station[QUEUES];

/* @param started the application has configured and started it, with all queues */
void port_make(bool started);
void port_free(void);
bool port_runs(void);

/*
 * Free the content of a ring.
 * @return number of mbufs
 */
unsigned int drain(struct rte_ring *ring);
void rings_free(struct rte_ring *rx[QUEUES], struct rte_ring *tx[QUEUES]);

/*
 * @param family "10.0.0." or "fd00::"
 * @param options begin with a comma
 */
void station_open_as(unsigned int queue, const char *family, const char *options);
void station_open(unsigned int queue, const char *family);
void station_close(unsigned int queue);

/* The station at this queue answers frames. */
void assert_answers(unsigned int queue);

uint64_t station_stat(unsigned int queue, const char *name);

struct rdma_conn *station_join(unsigned int queue, const char *group);
void station_leave(struct rdma_conn *member);

#endif
