/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_REFERENCE_H
#define ROCE_REFERENCE_H

/**
 * @file
 * Messages by reference (rdma_roce.h): the part of a UC responder that chains the payload of a
 * message's packets, and the ring of complete messages of a poll group.
 */

#include <rte_mbuf.h>

#include "engine/engine.h"
#include "engine/packet.h"
#include "rdma_roce.h"

#define ROCE_MESSAGES 1024 /* of a poll group, complete and not taken by the application */

/** An entry of the ring. */
struct roce_message {
	struct rdma_roce_message message;
	const struct roce_qp *qp;
};

/** State of a queue pair by reference. */
struct roce_reference {
	struct rdma_roce_reference attr;
	struct rte_mbuf *m;    /**< payload of the message that is being received; NULL: none */
	struct rte_mbuf *last; /**< its last segment */
};

/**
 * Create the state of a queue pair, and the ring of its poll group. *Control.*
 * @return NULL with rte_errno EINVAL: logged; ENOMEM
 */
struct roce_reference *roce_reference_create(
	struct roce_poll_group *pg, const struct rdma_roce_reference *attr);

/**
 * Take a packet that continues the current message, or begins one.
 * @return true: the mbuf was passed on; false: the message has no bytes, or was refused and counted
 */
bool roce_reference_take(struct roce_qp *qp, const struct roce_packet *pkt);

/** Free the payload of the message that is being received. */
void roce_reference_drop(struct roce_reference *reference);

/** Free all messages of a queue pair, also complete ones. */
void roce_reference_forget(struct roce_qp *qp);

/** True if the ring has room for the messages of a burst of packets. */
static inline bool
roce_reference_has_room(const struct roce_poll_group *pg)
{
	return pg->messages_head - pg->messages_tail <= ROCE_MESSAGES - ROCE_BURST;
}

#endif
