/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_CONN_TABLE_H
#define ROCE_CONN_TABLE_H

/**
 * @file
 * Connections of a device and the table that finds the connection of a message: by our
 * communication
 * id, by the peer's, by the peer's queue pair or by our queue pair.
 */

#include <sys/queue.h>

#include <rte_hash.h>

#include "engine/path.h"

struct roce_conn;
struct roce_control;
struct rte_hash;

/** Kinds of keys. The first two are our own numbers: communication id and queue pair. */
enum roce_conn_index {
	ROCE_CONN_BY_ID,
	ROCE_CONN_BY_QPN,
	ROCE_CONN_BY_PEER,	   /**< peer's address and communication id */
	ROCE_CONN_BY_PEER_SERVICE, /**< peer's address and SIDR request id */
	ROCE_CONN_BY_PEER_QPN,	   /**< peer's address and queue pair */
	ROCE_CONN_INDEXES,
};

struct roce_conn_key {
	struct roce_gid gid; /**< none: the number is ours */
	uint32_t number;
	uint32_t index; /**< enum roce_conn_index */
};

TAILQ_HEAD(roce_conn_list, roce_conn);

struct roce_conns {
	struct rte_hash *hash; /**< keys of all kinds */
	/** limit of simultaneous connections, including those in time-wait */
	uint32_t max;
	uint32_t nb_conns;
	struct roce_conn_list all;
	struct roce_conn_list listeners;
	struct roce_conn_list resolving; /**< wait for address resolution */
	struct roce_conn_list dead;	 /**< to be freed at the end of this poll */
};

/** @return 0; -ENOMEM */
int roce_conns_open(struct roce_control *c);
void roce_conns_close(struct roce_control *c);

/** @param gid NULL: the number is ours @return NULL: none */
struct roce_conn *roce_conn_find(struct roce_control *c, enum roce_conn_index index,
	const struct roce_gid *gid, uint32_t number);

/** Add a key for a connection. @return 0; -EEXIST, -ENOSPC */
int roce_conn_index(struct roce_control *c, enum roce_conn_index index, const struct roce_gid *gid,
	uint32_t number, struct roce_conn *conn);

/** Remove a key. Does nothing if the key belongs to another connection. */
void roce_conn_unindex(struct roce_control *c, enum roce_conn_index index,
	const struct roce_gid *gid, uint32_t number, const struct roce_conn *conn);

#endif
