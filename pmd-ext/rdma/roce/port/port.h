/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_PORT_H
#define ROCE_PORT_H

/**
 * @file
 * The ethdev port of a device.
 */

#include "roce.h"
#include "mcast/filter.h"

#define ROCE_SIBLINGS_MAX 64

/** State shared by the devices on one port. Owned by the control lcore unless noted. */
struct roce_port {
	uint16_t id;
	uint16_t nb_devices;
	bool ours; /**< configured and started by one of the devices: the last one stops it */
	struct rte_mempool *pool;		      /**< RX mbufs, if `ours` */
	uint64_t taken[RTE_MAX_QUEUES_PER_PORT / 64]; /**< queues used by the devices */
	struct roce_filter filter;
	/** Filled from index 0 without gaps. Written by control (release), read by poll groups. */
	struct roce_dev *_Atomic siblings[ROCE_SIBLINGS_MAX];
};

/**
 * Find the port; configure and start it, or check its configuration. dev->port, queue,
 * nb_poll_groups and handover must be set.
 */
int roce_port_open(struct roce_dev *dev);

/** Stop the port if it is `ours` and no other device uses it. Frames of poll groups are released
 * then. */
void roce_port_stop(struct roce_dev *dev);

/** Leave the port. Frees dev->pool; the last device also frees the port's pool. */
void roce_port_close(struct roce_dev *dev);

/**
 * Iterate over the devices on a port, in the order of opening.
 * @param dev NULL: return the first
 * @return NULL: none
 */
const struct roce_dev *roce_port_next(const struct roce_port *port, const struct roce_dev *dev);

/** Register memory with EAL and the port if the port requires that. @return as roce_pages_hold() */
int roce_port_map(struct roce_dev *dev, void *addr, uint64_t length);

#endif
