/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef STORE_CONNECTION_PRIVATE_H
#define STORE_CONNECTION_PRIVATE_H

/**
 * @file What the parts of a connection share: server/connection.c (its states, and what both ends
 * say) and server/connection_rings.c (the places that the receiver writes batches to).
 */

#include <rte_log.h>

#include "server/connection.h"

extern int store_connection_logtype;

#define CONN_LOG(level, c, fmt, ...)                                                          \
	rte_log(RTE_LOG_##level, store_connection_logtype, "store: connection %u: " fmt "\n", \
		(c)->index, ##__VA_ARGS__)

/**
 * Places for the bodies that the receiver has proposed, as many as the memory gives: how many, and
 * how many bytes that are. @return false: one body is too large
 */
bool store_connection_plan_rings(struct store_connection *c);

/**
 * With memory for bodies: their rings, which the receiver may write to from here on.
 *
 * @return XFER_REASON_NONE; else what has failed. In any case what is there goes with
 *         store_connection_close_rings()
 */
enum xfer_reason store_connection_open_rings(struct store_connection *c);

/** Tell the receiver where they are. @return whether that could be sent */
bool store_connection_grant(struct store_connection *c);

/** A batch has come to a place: xfer_qp_ops. */
void store_connection_written(void *arg, uint32_t index);

/** The link is closed: give up the rings. @return false: something still holds them, call again */
bool store_connection_close_rings(struct store_connection *c);

#endif /* STORE_CONNECTION_PRIVATE_H */
