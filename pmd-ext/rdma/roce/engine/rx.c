/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reception: parses and checks frames, and forwards them to queue pairs, other poll groups, other
 * devices on the port, or the control lcore.
 */
#include <rte_cycles.h>
#include <rte_ip.h>
#include <rte_prefetch.h>

#include "engine/engine.h"
#include "engine/packet.h"
#include "engine/qp.h"
#include "port/port_sharing.h"

/** Forward a frame to the control lcore. @return true: the mbuf was passed on */
static bool
to_control(struct roce_poll_group *pg, struct rte_mbuf *m)
{
	struct rte_mbuf *copy = m;

	/* A frame may be queued there for a while. It must not point into a peer's memory. */
	if (m->nb_segs > 1 || RTE_MBUF_CLONED(m) || RTE_MBUF_HAS_EXTBUF(m)) {
		copy = rte_pktmbuf_copy(m, pg->dev->pool, 0, UINT32_MAX);
		if (!copy || copy->nb_segs > 1) {
			rte_pktmbuf_free(copy);
			roce_count(pg, ROCE_RX_NOMBUF);
			return false;
		}
		copy->l2_len = m->l2_len;
		copy->l3_len = m->l3_len;
	}
	if (rte_ring_sp_enqueue(pg->to_control, copy) < 0) {
		roce_count(pg, ROCE_RX_CONTROL_FULL);
		if (copy != m)
			rte_pktmbuf_free(copy);
		return false;
	}
	roce_count(pg, ROCE_RX_CONTROL);
	return copy == m;
}

/** True if the packet is addressed to this device. Multicast is checked later. */
static bool
is_for_us(const struct roce_dev *dev, const struct roce_packet *pkt)
{
	if (pkt->l3_len == sizeof(struct rte_ipv4_hdr))
		return roce_packet_to(pkt, &dev->ip4);
	return dev->has_ip6 && roce_packet_to(pkt, &dev->ip6);
}

/** True for the default partition, the only one supported, with full or limited membership. */
static bool
is_of_partition(const struct roce_packet *pkt)
{
	return (rte_be_to_cpu_16(pkt->bth->pkey) & ROCE_PKEY_BASE) == ROCE_PKEY_BASE;
}

/** Forward a CM MAD. Its ICRC is checked here; its contents are untrusted. */
static bool
rx_mad(struct roce_poll_group *pg, const struct roce_packet *pkt)
{
	if (pkt->opcode != ROCE_UD + ROCE_SEND_ONLY || pkt->length != ROCE_MAD_BYTES) {
		roce_count(pg, ROCE_RX_OPCODE);
		return false;
	}
	if (!is_of_partition(pkt)) {
		roce_count(pg, ROCE_RX_PKEY);
		return false;
	}
	if (!roce_packet_check(pkt)) {
		roce_count(pg, ROCE_RX_ICRC);
		return false;
	}
	return to_control(pg, pkt->m);
}

/** Forward a frame to another poll group. @return true: the mbuf was passed on */
static bool
hand_over(struct roce_poll_group *pg, struct roce_poll_group *to, struct rte_mbuf *m)
{
	if (rte_ring_sp_enqueue(to->handover[pg->index], m) < 0) {
		roce_count(pg, ROCE_RX_HANDOVER_FULL);
		return false;
	}
	roce_count(pg, ROCE_RX_HANDOVER);
	return true;
}

/** True if a queue pair in this state receives. */
static bool
state_receives(enum rdma_qp_state state)
{
	return state == RDMA_QP_RTR || state == RDMA_QP_RTS;
}

/**
 * Forward copies of a multicast packet to the other poll groups that have members of any group.
 * @return number of these poll groups
 */
static unsigned int
copy_to_poll_groups(struct roce_poll_group *pg, struct rte_mbuf *m)
{
	struct roce_dev *dev = pg->dev;
	struct rte_mbuf *copy;
	unsigned int i, n = 0;

	for (i = 0; i < dev->nb_poll_groups; i++) {
		if (i == pg->index ||
			!__atomic_load_n(&dev->poll_groups[i]->nb_groups, __ATOMIC_RELAXED))
			continue;
		n++;
		copy = rte_pktmbuf_copy(m, dev->pool, 0, UINT32_MAX);
		if (!copy)
			roce_count(pg, ROCE_RX_NOMBUF);
		else if (!hand_over(pg, dev->poll_groups[i], copy))
			rte_pktmbuf_free(copy);
	}
	return n;
}

static void
rx_multicast(struct roce_poll_group *pg, const struct roce_packet *pkt, enum roce_from from)
{
	const struct roce_gid dst = roce_packet_dst(pkt);
	unsigned int i, members = 0, poll_groups = 0;
	bool others = false;

	if (!is_of_partition(pkt)) {
		roce_count(pg, ROCE_RX_PKEY);
		return;
	}
	/* Check before the packet is copied. Another poll group has already done these checks. */
	if (from != ROCE_FROM_POLL_GROUP) {
		if (!roce_gid_is_multicast(&dst)) {
			roce_count(pg, ROCE_RX_OTHER);
			return;
		}
		if (!roce_packet_check(pkt)) {
			roce_count(pg, ROCE_RX_ICRC);
			return;
		}
		poll_groups = copy_to_poll_groups(pg, pkt->m);
	}
	if (from == ROCE_FROM_PORT)
		others = roce_sibling_give(pg, pkt, ROCE_PACKET_DATA) != ROCE_GIVEN_TO_NONE;

	for (i = 0; i < pg->nb_groups; i++) {
		if (!roce_gid_equal(&pg->groups[i].gid, &dst))
			continue;
		members++;
		if (state_receives(roce_state(pg->groups[i].qp)))
			roce_responder_datagram(pg->groups[i].qp, pkt);
		else
			roce_count(pg, ROCE_RX_STATE);
	}
	if (!members && !poll_groups && !others)
		roce_count(pg, ROCE_RX_OTHER);
	/* Count a packet once per device. */
	if (unlikely(pkt->ecn == 3) && from != ROCE_FROM_POLL_GROUP && (members || poll_groups))
		roce_count(pg, ROCE_RX_CE);
}

/** True if the opcode is valid for the queue pair. */
static bool
opcode_is_valid(const struct roce_qp *qp, const struct roce_packet *pkt)
{
	static const uint8_t transport[] = {
		[RDMA_QP_RC] = ROCE_RC,
		[RDMA_QP_UC] = ROCE_UC,
		[RDMA_QP_UD] = ROCE_UD,
	};

	/* A CNP must have the BECN bit set. Datagrams have no rate control. */
	if (unlikely(pkt->flags & ROCE_F_CNP))
		return qp->type != RDMA_QP_UD && (pkt->bth->ecn & ROCE_BTH_BECN);
	return (pkt->opcode & ~ROCE_OPERATION) == transport[qp->type];
}

/** Check a packet of a queue pair, except for its sequence. @return false: refused and counted */
static bool
packet_is_valid(struct roce_poll_group *pg, const struct roce_qp *qp, const struct roce_packet *pkt)
{
	if (!opcode_is_valid(qp, pkt)) {
		roce_count(pg, ROCE_RX_OPCODE);
		return false;
	}
	if (!state_receives(roce_state(qp))) {
		roce_count(pg, ROCE_RX_STATE);
		return false;
	}
	if (!is_of_partition(pkt)) {
		roce_count(pg, ROCE_RX_PKEY);
		return false;
	}
	if (qp->type != RDMA_QP_UD && !roce_packet_from(pkt, &qp->peer_gid) && !qp->any_source) {
		roce_count(pg, ROCE_RX_ADDRESS);
		return false;
	}
	pg->reads_payload = !qp->trust;
	pg->checked += !qp->trust ? pkt->m->pkt_len : 0;
	if (!qp->trust && !roce_packet_check(pkt)) {
		roce_count(pg, ROCE_RX_ICRC);
		return false;
	}
	return true;
}

/**
 * A packet with another address or VLAN: forward it to another device on the port, or count it.
 * @return true: the mbuf was passed on
 */
static bool
rx_foreign(struct roce_poll_group *pg, const struct roce_packet *pkt, enum roce_packet_kind kind,
	enum roce_from from, enum roce_stat why)
{
	enum roce_given given = ROCE_GIVEN_TO_NONE;

	if (from == ROCE_FROM_PORT && (kind == ROCE_PACKET_DATA || kind == ROCE_PACKET_CONTROL))
		given = roce_sibling_give(pg, pkt, kind);
	if (given == ROCE_GIVEN_TO_NONE)
		roce_count(pg, why);
	return given == ROCE_GIVEN_AWAY;
}

/** Process a frame for the control plane. @return true: the mbuf was passed on */
static bool
rx_control(struct roce_poll_group *pg, const struct roce_packet *pkt, enum roce_from from)
{
	if (from == ROCE_FROM_PORT &&
		roce_sibling_give(pg, pkt, ROCE_PACKET_CONTROL) == ROCE_GIVEN_AWAY)
		return true;
	return to_control(pg, pkt->m);
}

/** Process a RoCEv2 packet. @return true: the mbuf was passed on */
static bool
rx_data(struct roce_poll_group *pg, const struct roce_packet *pkt, enum roce_from from)
{
	struct roce_qp *qp;

	if (pkt->qpn == ROCE_QPN_MULTICAST && (pkt->opcode & ~ROCE_OPERATION) == ROCE_UD) {
		rx_multicast(pg, pkt, from);
		return false;
	}
	if (!is_for_us(pg->dev, pkt))
		return rx_foreign(pg, pkt, ROCE_PACKET_DATA, from, ROCE_RX_OTHER);
	if (pkt->qpn == ROCE_QPN_CM)
		return rx_mad(pg, pkt);
	qp = roce_qp_lookup(pg->dev, pkt->qpn);
	if (!qp) {
		roce_count(pg, ROCE_RX_QPN);
		return false;
	}
	if (qp->poll_group != pg)
		return hand_over(pg, qp->poll_group, pkt->m);
	if (!packet_is_valid(pg, qp, pkt))
		return false;
	if (unlikely(pkt->flags & ROCE_F_CNP)) {
		roce_congestion_notified(qp);
		return false;
	}
	if (unlikely(pkt->ecn == 3))
		roce_congestion_mark(qp);
	if (pkt->flags & ROCE_F_RESPONSE)
		roce_requester_response(qp, pkt);
	else if (pkt->flags & ROCE_F_DETH)
		roce_responder_datagram(qp, pkt);
	else
		return roce_responder_request(qp, pkt);
	return false;
}

/**
 * Prefetch a payload. One that was sent by reference is in another core's cache. One that follows
 * its headers in the mbuf is read here only if its CRC is checked, which is expected if that of the
 * last packet was; prefetch.h decides then.
 */
static void
prefetch_payload(const struct roce_poll_group *pg, const struct rte_mbuf *m)
{
	uint32_t i = 0;

	if (m->nb_segs > 1)
		m = m->next;
	else if (pg->reads_payload && !pg->prefetch.off)
		i = RTE_CACHE_LINE_SIZE;
	else
		return;
	for (; i < m->data_len; i += RTE_CACHE_LINE_SIZE)
		rte_prefetch0(rte_pktmbuf_mtod_offset(m, const void *, i));
}

/** Prefetch an mbuf for writing, because it is freed here. */
static void
prefetch_mbuf(const struct rte_mbuf *m)
{
	rte_prefetch0_write(m);
	rte_prefetch0_write(&m->next);
}

/**
 * Prefetch what another core wrote, one segment of all chains at a time: first the mbufs, then
 * their data, then the next mbufs.
 */
static void
prefetch(struct rte_mbuf **m, unsigned int n)
{
	struct rte_mbuf *link[ROCE_BURST];
	unsigned int i, chained = 0;

	for (i = 0; i < n; i++)
		prefetch_mbuf(m[i]);
	for (i = 0; i < n; i++) {
		rte_prefetch0(rte_pktmbuf_mtod(m[i], const void *));
		if (m[i]->nb_segs > 1) {
			prefetch_mbuf(m[i]->next);
			link[chained++] = m[i]->next;
		}
	}
	while (chained) {
		for (i = 0, n = chained, chained = 0; i < n; i++) {
			rte_prefetch0(rte_pktmbuf_mtod(link[i], const void *));
			if (link[i]->next) {
				prefetch_mbuf(link[i]->next);
				link[chained++] = link[i]->next;
			}
		}
	}
}

void
roce_poll_group_rx(
	struct roce_poll_group *pg, struct rte_mbuf **m, unsigned int n, enum roce_from from)
{
	const uint16_t vlan = pg->dev->vlan_tci & ROCE_VLAN_ID;
	enum roce_packet_kind kind;
	struct roce_packet pkt;
	unsigned int i, done = 0;
	uint64_t begin, bytes = 0;
	bool taken, chained = false;

	if (n == 0)
		return;
	begin = rte_rdtsc();
	pg->checked = 0;
	prefetch(m, n);
	prefetch_payload(pg, m[0]);
	for (i = 0; i < n; i++) {
		taken = false;
		if (i + 1 < n)
			prefetch_payload(pg, m[i + 1]);
		bytes += m[i]->pkt_len;
		chained |= m[i]->nb_segs > 1;
		kind = roce_packet_parse(m[i], &pkt);
		if (unlikely(pkt.vlan != vlan)) {
			taken = rx_foreign(pg, &pkt, kind, from, ROCE_RX_VLAN);
			kind = ROCE_PACKET_VLAN;
		}
		switch (kind) {
		case ROCE_PACKET_DATA:
			taken = rx_data(pg, &pkt, from);
			break;
		case ROCE_PACKET_CONTROL:
			taken = rx_control(pg, &pkt, from);
			break;
		case ROCE_PACKET_OTHER:
			roce_count(pg, ROCE_RX_OTHER);
			break;
		case ROCE_PACKET_OPCODE:
			roce_count(pg, ROCE_RX_OPCODE);
			break;
		case ROCE_PACKET_MALFORMED:
			roce_count(pg, ROCE_RX_MALFORMED);
			break;
		case ROCE_PACKET_VLAN:
			break;
		}
		if (!taken)
			m[done++] = m[i];
	}
	rte_pktmbuf_free_bulk(m, done);
	/* payloads of chains are always prefetched; others may not have been read */
	if (pg->checked == bytes && !chained)
		roce_prefetch_update(&pg->prefetch, rte_rdtsc() - begin, bytes);
}
