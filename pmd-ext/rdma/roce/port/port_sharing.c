/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>

#include <rte_ip.h>

#include "port/port.h"
#include "port/port_sharing.h"

enum addressee {
	NO_DEVICE, /* a type that no device handles */
	ONE_DEVICE,
	ALL_DEVICES,
};

/**
 * Which devices a frame is for.
 * @param dst out: destination; not set for frames without an IP header
 */
static enum addressee
addressee(const struct roce_packet *pkt, struct roce_gid *dst)
{
	rte_be32_t addr;

	switch (pkt->l3[-2] << 8 | pkt->l3[-1]) {
	case RTE_ETHER_TYPE_ARP:
		/*
		 * conflicts and changed MAC addresses concern all devices, not only the one with
		 * the target address
		 */
		return ALL_DEVICES;
	case RTE_ETHER_TYPE_IPV4:
		memcpy(&addr, pkt->l3 + offsetof(struct rte_ipv4_hdr, dst_addr), sizeof(addr));
		*dst = roce_gid_v4(addr);
		break;
	case RTE_ETHER_TYPE_IPV6:
		memcpy(dst, pkt->l3 + offsetof(struct rte_ipv6_hdr, dst_addr), sizeof(*dst));
		break;
	default:
		return NO_DEVICE;
	}
	return roce_gid_is_multicast(dst) ? ALL_DEVICES : ONE_DEVICE;
}

static bool
has_groups(const struct roce_dev *dev)
{
	uint16_t i;

	for (i = 0; i < dev->nb_poll_groups; i++)
		if (__atomic_load_n(&dev->poll_groups[i]->nb_groups, __ATOMIC_RELAXED))
			return true;
	return false;
}

/**
 * Pass a frame to another device on the port.
 *
 * @param m NULL: the allocation of a copy has failed
 * @return false: not passed on, and counted; the caller still owns the mbuf
 */
static bool
pass_on(struct roce_poll_group *pg, struct roce_dev *to, struct rte_mbuf *m)
{
	if (unlikely(!m)) {
		roce_count(pg, ROCE_RX_NOMBUF);
		return false;
	}
	if (rte_ring_mp_enqueue(to->given, m) < 0) {
		roce_count(pg, ROCE_RX_GIVEN_FULL);
		return false;
	}
	roce_count(pg, ROCE_RX_GIVEN);
	return true;
}

enum roce_given
roce_sibling_give(
	struct roce_poll_group *pg, const struct roce_packet *pkt, enum roce_packet_kind kind)
{
	struct roce_dev *const own = pg->dev, *to;
	const struct roce_gid *gid;
	enum addressee who = NO_DEVICE;
	struct rte_mbuf *copy;
	struct roce_gid dst;
	unsigned int i, n = 0;

	for (i = 0; i < ROCE_SIBLINGS_MAX; i++) {
		to = atomic_load_explicit(&own->shared->siblings[i], memory_order_acquire);
		if (!to)
			break;
		if (to == own || (to->vlan_tci & ROCE_VLAN_ID) != pkt->vlan)
			continue;
		if (who == NO_DEVICE)
			who = addressee(pkt, &dst);
		if (who == NO_DEVICE)
			break;
		if (who == ONE_DEVICE) {
			gid = roce_dev_source(to, &dst);
			if (!gid || !roce_gid_equal(gid, &dst))
				continue;
			if (!pass_on(pg, to, pkt->m))
				rte_pktmbuf_free(pkt->m);
			return ROCE_GIVEN_AWAY;
		}
		if (kind == ROCE_PACKET_DATA && !has_groups(to))
			continue;
		copy = rte_pktmbuf_copy(pkt->m, own->pool, 0, UINT32_MAX);
		if (!pass_on(pg, to, copy))
			rte_pktmbuf_free(copy);
		n++;
	}
	return n ? ROCE_GIVEN_COPIES : ROCE_GIVEN_TO_NONE;
}

void
roce_sibling_join(struct roce_dev *dev)
{
	unsigned int i = 0;

	/* roce_port_open() limits the number of devices to ROCE_SIBLINGS_MAX */
	while (dev->shared->siblings[i])
		i++;
	atomic_store_explicit(&dev->shared->siblings[i], dev, memory_order_release);
}

void
roce_sibling_leave(struct roce_dev *dev)
{
	struct roce_dev *_Atomic *all = dev->shared->siblings;
	unsigned int i, last = 0;

	for (i = 0; i < ROCE_SIBLINGS_MAX && all[i] != dev; i++)
		;
	if (i == ROCE_SIBLINGS_MAX)
		return;
	/* the last entry moves: a poll group may read it twice, but never misses it */
	while (last + 1 < ROCE_SIBLINGS_MAX && all[last + 1])
		last++;
	atomic_store_explicit(&all[i], all[last], memory_order_release);
	atomic_store_explicit(&all[last], NULL, memory_order_release);
	for (i = 0; i < last; i++)
		roce_dev_quiesce(all[i]);
}

int
roce_sibling_open(struct roce_dev *dev)
{
	char name[RTE_RING_NAMESIZE];

	snprintf(name, sizeof(name), "roce%u_given", dev->number);
	/* producers: poll groups of any device; consumer: poll group 0 */
	dev->given = rte_ring_create(name, ROCE_RING_SLOTS, dev->numa_node, RING_F_SC_DEQ);
	return dev->given ? 0 : -ENOMEM;
}

void
roce_sibling_close(struct roce_dev *dev)
{
	struct rte_mbuf *m;

	while (dev->given && rte_ring_dequeue(dev->given, (void **)&m) == 0)
		rte_pktmbuf_free(m);
	rte_ring_free(dev->given);
}
