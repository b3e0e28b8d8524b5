/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include <rte_jhash.h>

#include "cm/conn.h"
#include "port/ctl_plane.h"

/* in addition to the queue pairs' connections: requests, queries and connections in time-wait */
#define EXTRA_CONNS 1024

int
roce_conns_open(struct roce_control *c)
{
	struct roce_conns *all = &c->conns;
	char name[RTE_HASH_NAMESIZE];
	struct rte_hash_parameters parameters = {
		.name = name,
		.key_len = sizeof(struct roce_conn_key),
		.hash_func = rte_jhash,
		/* remote stations choose some of the keys: use a random seed */
		.hash_func_init_val = roce_random(32),
		.socket_id = SOCKET_ID_ANY,
	};

	TAILQ_INIT(&all->all);
	TAILQ_INIT(&all->listeners);
	TAILQ_INIT(&all->resolving);
	TAILQ_INIT(&all->dead);
	all->max = 2 * c->dev->max_qps + EXTRA_CONNS;
	/* up to four keys per connection, plus slack so that no insertion fails */
	parameters.entries = all->max * 6;
	snprintf(name, sizeof(name), "roce%u_cm", c->dev->number);
	all->hash = rte_hash_create(&parameters);
	return all->hash ? 0 : -ENOMEM;
}

void
roce_conns_close(struct roce_control *c)
{
	struct roce_conn *conn;

	/*
	 * connections that wait for a time-out; the application has closed all others
	 * (rdma_dev_close())
	 */
	while ((conn = TAILQ_FIRST(&c->conns.all))) {
		conn->held = false;
		roce_conn_close(conn, "device closed");
	}
	roce_conns_free_closed(c);
	rte_hash_free(c->conns.hash);
}

static struct roce_conn_key
conn_key(enum roce_conn_index index, const struct roce_gid *gid, uint32_t number)
{
	struct roce_conn_key key = {.number = number, .index = index};

	if (gid)
		key.gid = *gid;
	return key;
}

struct roce_conn *
roce_conn_find(struct roce_control *c, enum roce_conn_index index, const struct roce_gid *gid,
	uint32_t number)
{
	const struct roce_conn_key key = conn_key(index, gid, number);
	void *conn;

	return rte_hash_lookup_data(c->conns.hash, &key, &conn) < 0 ? NULL : conn;
}

int
roce_conn_index(struct roce_control *c, enum roce_conn_index index, const struct roce_gid *gid,
	uint32_t number, struct roce_conn *conn)
{
	const struct roce_conn_key key = conn_key(index, gid, number);
	const struct roce_conn *old = roce_conn_find(c, index, gid, number);

	if (old)
		return old == conn ? 0 : -EEXIST;
	return rte_hash_add_key_data(c->conns.hash, &key, conn);
}

void
roce_conn_unindex(struct roce_control *c, enum roce_conn_index index, const struct roce_gid *gid,
	uint32_t number, const struct roce_conn *conn)
{
	const struct roce_conn_key key = conn_key(index, gid, number);

	if (roce_conn_find(c, index, gid, number) == conn)
		rte_hash_del_key(c->conns.hash, &key);
}
