/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_PORT_SHARING_H
#define ROCE_PORT_SHARING_H

/**
 * @file
 * Devices on one port. The port may deliver a frame to any of its queues, by RSS or by its handling
 * of broadcast frames. A poll group that receives a frame of another device forwards it to that
 * device, whose poll group 0 handles it as if received from the port.
 */

#include "engine/engine.h"
#include "engine/packet.h"

/** Result of forwarding a frame. */
enum roce_given {
	ROCE_GIVEN_TO_NONE,
	ROCE_GIVEN_COPIES, /**< copies went to several devices: the caller keeps the mbuf */
	/** forwarded to another device, or dropped and counted because its ring was full */
	ROCE_GIVEN_AWAY,
};

/** @return 0; -ENOMEM */
int roce_sibling_open(struct roce_dev *dev);
void roce_sibling_close(struct roce_dev *dev);

/** Make the device visible to the others. Call it when the device is completely set up. */
void roce_sibling_join(struct roce_dev *dev);
/** Hide the device from the others. Waits until no poll group of theirs can still forward to it. */
void roce_sibling_leave(struct roce_dev *dev);

/**
 * Forward a frame received from the port to the device to which it is addressed. *The poll group's
 * lcore.*
 * @param kind ROCE_PACKET_DATA or ROCE_PACKET_CONTROL; pkt as set by roce_packet_parse()
 */
enum roce_given roce_sibling_give(
	struct roce_poll_group *pg, const struct roce_packet *pkt, enum roce_packet_kind kind);

#endif
