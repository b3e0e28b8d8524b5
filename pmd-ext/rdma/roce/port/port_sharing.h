/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_SIBLING_H
#define ROCE_SIBLING_H

/**
 * @file Devices on one port. A port brings frames to any of its queues - by RSS, or by what it does
 * with broadcast ones: a poll group that receives what is another device's gives it to that one,
 * whose poll group 0 takes it in as if it had received it.
 */

#include "engine/engine.h"
#include "engine/packet.h"

/** What became of a frame. */
enum roce_given {
	ROCE_GIVEN_TO_NONE,
	ROCE_GIVEN_COPIES, /**< it is for several: the mbuf stays the caller's */
	ROCE_GIVEN_AWAY,   /**< another device's, or dropped and counted as its ring was full */
};

/** @return 0; -ENOMEM */
int roce_sibling_open(struct roce_dev *dev);
void roce_sibling_close(struct roce_dev *dev);

/** Be found by the others, when all of the device is there. */
void roce_sibling_join(struct roce_dev *dev);
/** Be found no more: waits until no poll group of theirs is about to give something. */
void roce_sibling_leave(struct roce_dev *dev);

/**
 * Give a frame that came from the port to whom it is for. *The poll group's lcore.*
 * @param kind ROCE_PACKET_DATA or ROCE_PACKET_CONTROL; pkt as roce_packet_parse() left it
 */
enum roce_given roce_sibling_give(
	struct roce_poll_group *pg, const struct roce_packet *pkt, enum roce_packet_kind kind);

#endif
