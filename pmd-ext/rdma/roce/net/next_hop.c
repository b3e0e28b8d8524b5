/* SPDX-License-Identifier: BSD-3-Clause */
/* Users of a next hop: connections, queue pairs (also those that the application connected itself)
 * and address handles. */
#include "cm/conn.h"
#include "port/ctl_plane.h"
#include "engine/qp.h"

/** Return true if `hop` is the next hop to an address. */
static bool
is_via_hop(const struct roce_control *c, const struct roce_gid *hop, const struct roce_gid *dst)
{
	const struct roce_gid *to =
		roce_gid_is_multicast(dst) ? NULL : roce_neighbor_next_hop(c->dev, dst);

	return to && roce_gid_equal(to, hop);
}

/** The queue pair of a slot. @return NULL: none, or the hop is not its next hop */
static struct roce_qp *
qp_via_hop(const struct roce_control *c, uint32_t slot, const struct roce_gid *hop)
{
	struct roce_qp *qp = atomic_load_explicit(&c->dev->qps[slot], memory_order_relaxed);

	/* a queue pair that only receives has no path */
	if (!qp || qp->type == RDMA_QP_UD || qp->path.length == 0)
		return NULL;
	switch (roce_state(qp)) {
	case RDMA_QP_RTR:
	case RDMA_QP_RTS:
		return is_via_hop(c, hop, &qp->path.dst) ? qp : NULL;
	default:
		return NULL;
	}
}

const struct rte_ether_addr *
roce_hop_mac(const struct roce_control *c, const struct roce_gid *hop)
{
	struct roce_ah *ah;
	struct roce_qp *qp;
	uint32_t i;

	for (i = 0; i <= c->dev->qp_mask; i++) {
		qp = qp_via_hop(c, i, hop);
		if (qp)
			return roce_path_mac(&qp->path);
	}
	TAILQ_FOREACH(ah, &c->ahs, next)
		if (is_via_hop(c, hop, &roce_ah_path(ah)->dst))
			return roce_path_mac(&ah->paths[ah->current]);
	return NULL;
}

/** Poll groups may be reading a handle's path. A handle has two paths: write the unused one, then
 * switch. */
static void
ahs_update_mac(struct roce_control *c, const struct roce_gid *hop, const struct rte_ether_addr *mac)
{
	struct roce_path *old, *new;
	bool quiet = false;
	struct roce_ah *ah;

	TAILQ_FOREACH(ah, &c->ahs, next) {
		old = &ah->paths[ah->current];
		if (!is_via_hop(c, hop, &old->dst) ||
			rte_is_same_ether_addr(roce_path_mac(old), mac))
			continue;
		/* a poll group may still be reading the path that the previous change replaced */
		if (!quiet)
			roce_dev_quiesce(c->dev);
		quiet = true;
		new = &ah->paths[!ah->current];
		*new = *old;
		*roce_path_mac(new) = *mac;
		atomic_store_explicit(&ah->current, !ah->current, memory_order_release);
	}
}

void
roce_hop_moved(struct roce_control *c, const struct roce_gid *hop, const struct rte_ether_addr *mac)
{
	struct roce_conn *conn;
	struct roce_qp *qp;
	uint32_t i;

	TAILQ_FOREACH(conn, &c->conns.all, next)
		if (conn->state >= ROCE_CONN_REQ_SENT && conn->state <= ROCE_CONN_DREQ_SENT &&
			is_via_hop(c, hop, &conn->peer))
			conn->mac = *mac;
	for (i = 0; i <= c->dev->qp_mask; i++) {
		struct roce_qp_modify modify;
		struct roce_path path;

		qp = qp_via_hop(c, i, hop);
		if (!qp)
			continue;
		path = qp->path;
		if (rte_is_same_ether_addr(roce_path_mac(&path), mac))
			continue;
		*roce_path_mac(&path) = *mac;
		modify = (struct roce_qp_modify){.state = roce_state(qp), .path = &path};
		roce_qp_modify(&qp->base, &modify);
	}
	ahs_update_mac(c, hop, mac);
}
