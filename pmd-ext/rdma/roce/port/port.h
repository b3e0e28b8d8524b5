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

/** What devices on the same port share. The control lcore's, but for what says otherwise. */
struct roce_port {
	uint16_t id;
	uint16_t nb_devices;
	bool ours; /**< configured and started by one of them: the last one stops it */
	struct rte_mempool *pool;		      /**< RX where it is ours */
	uint64_t taken[RTE_MAX_QUEUES_PER_PORT / 64]; /**< queues that devices have */
	struct roce_filter filter;
	/** From the front, no gaps. Written by control (release), read by poll groups. */
	struct roce_dev *_Atomic siblings[ROCE_SIBLINGS_MAX];
};

/**
 * Find, configure and start, or check, the port. dev->port, queue, nb_poll_groups, handover are
 * set.
 */
int roce_port_open(struct roce_dev *dev);

/** Stop the port where it is ours and no other device's. Frames of poll groups come back. */
void roce_port_stop(struct roce_dev *dev);

/** Leave the port. dev->pool goes, and with the last device the port's own. */
void roce_port_close(struct roce_dev *dev);

/** The device on a port that was opened after one. @param dev NULL: the first @return NULL: none */
const struct roce_dev *roce_port_next(const struct roce_port *port, const struct roce_dev *dev);

/** Make memory known to EAL and the port where it needs that. @return as roce_pages_hold() */
int roce_port_map(struct roce_dev *dev, void *addr, uint64_t length);

#endif
