/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_STEER_H
#define ROCE_STEER_H

/**
 * @file
 * A device that has not all queues of its port asks it, by rte_flow, for what is its own: RoCEv2,
 * ICMP, and the questions of ARP and neighbour discovery, to its addresses. Nothing else, as the
 * rest of the port may be the application's. What is not brought to it is port/port_sharing.h's.
 */

struct roce_dev;

/** Ask. A port that refuses is told of in the log. *Control.* */
void roce_steer_open(struct roce_dev *dev);
/** No more of it. *Control.* */
void roce_steer_close(struct roce_dev *dev);

#endif
