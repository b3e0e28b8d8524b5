/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef STORE_CONNECTION_RINGS_H
#define STORE_CONNECTION_RINGS_H

/**
 * @file The memory that a connection grants to its receiver, and the batches written to it. Used by
 * server/connection.c.
 */

#include <rte_log.h>

#include "server/connection.h"

extern int store_connection_logtype;

#define CONN_LOG(level, c, fmt, ...)                                                          \
	rte_log(RTE_LOG_##level, store_connection_logtype, "store: connection %u: " fmt "\n", \
		(c)->index, ##__VA_ARGS__)

/**
 * Compute how many bodies of the proposed size fit into the memory, and the bytes that they need.
 * @return false: a single body is too large
 */
bool store_connection_plan_rings(struct store_connection *c);

/**
 * Allocate and register the rings. The receiver may write to them from here on.
 * @return XFER_REASON_NONE, or the reason of the failure. In both cases
 *         store_connection_close_rings() frees the allocated memory
 */
enum xfer_reason store_connection_open_rings(struct store_connection *c);

/** Send the addresses and keys of the rings to the receiver. @return whether they could be sent */
bool store_connection_grant(struct store_connection *c);

/** Process a batch that was written to a slot: callback of xfer_qp_ops. */
void store_connection_written(void *arg, uint32_t index);

/** Free the rings after the queue pair is closed. @return false: still in use, call again */
bool store_connection_close_rings(struct store_connection *c);

#endif /* STORE_CONNECTION_RINGS_H */
