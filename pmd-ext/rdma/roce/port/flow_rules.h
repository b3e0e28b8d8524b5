/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_FLOW_RULES_H
#define ROCE_FLOW_RULES_H

/**
 * @file
 * rte_flow rules of a device that does not own all queues of its port. They steer RoCEv2, ICMP, ARP
 * requests and neighbor solicitations to the device's addresses into its queues. Other traffic is
 * left alone, as the rest of the port may belong to the application. Frames that the rules do not
 * steer are handled by port/port_sharing.h.
 */

struct roce_dev;

/** Create the rules. A refusal by the port is logged. *Control.* */
void roce_flow_rules_open(struct roce_dev *dev);
/** Destroy the rules. *Control.* */
void roce_flow_rules_close(struct roce_dev *dev);

#endif
