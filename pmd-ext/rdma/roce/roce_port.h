/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_PORT_H
#define ROCE_PORT_H

/**
 * @file
 * The ethdev port of a device.
 */

#include "roce.h"

/** Find, configure and start, or check, the port. dev->port, queue, nb_lanes, handover are set. */
int roce_port_open(struct roce_dev *dev);
void roce_port_close(struct roce_dev *dev);

/** Make memory known to EAL and the port where it needs that. @return as roce_pages_hold() */
int roce_port_map(struct roce_dev *dev, void *addr, uint64_t length);

#endif
