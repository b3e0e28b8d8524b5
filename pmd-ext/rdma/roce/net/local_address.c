/* SPDX-License-Identifier: BSD-3-Clause */
/* The device's own addresses: announcement, conflict detection and defence (RFC 5227; RFC 4862
 * 5.4). */
#include <errno.h>

#include <rte_ethdev.h>

#include "net/arp.h"
#include "port/ctl_plane.h"
#include "net/nd.h"

#define CONFLICT_MS 10000 /* RFC 5227, DEFEND_INTERVAL */

/** Announce an own address to all stations. */
static void
announce(struct roce_control *c, bool v4)
{
	const struct roce_dev *dev = c->dev;

	if (v4) {
		const struct roce_arp arp = {
			.op = ROCE_ARP_REQUEST,
			.sender_mac = dev->mac,
			.sender_ip = roce_gid_to_v4(&dev->ip4),
			.target_ip = roce_gid_to_v4(&dev->ip4),
		};

		roce_arp_send(c, &arp, &roce_broadcast);
	} else {
		const struct roce_nd nd = {
			.type = ROCE_ND_ADVERT,
			.flags = ROCE_ND_OVERRIDE,
			.target = dev->ip6,
			.has_mac = true,
			.mac = dev->mac,
		};
		const struct roce_gid all = {{0xff, 0x02, [15] = 1}};
		const struct rte_ether_addr mac = roce_gid_multicast_mac(&all);

		roce_nd_send(c, &nd, &dev->ip6, &all, &mac);
	}
}

/** Probe for other stations that use an own address: a reply is a conflict. */
static void
probe_own(struct roce_control *c, bool v4)
{
	const struct roce_dev *dev = c->dev;

	if (v4) {
		const struct roce_arp arp = {
			.op = ROCE_ARP_REQUEST,
			.sender_mac = dev->mac,
			.target_ip = roce_gid_to_v4(&dev->ip4),
		};

		roce_arp_send(c, &arp, &roce_broadcast);
	} else {
		const struct roce_nd nd = {.type = ROCE_ND_SOLICIT, .target = dev->ip6};
		const struct roce_gid group = roce_nd_group(&dev->ip6), none = {{0}};
		const struct rte_ether_addr mac = roce_gid_multicast_mac(&group);

		roce_nd_send(c, &nd, &none, &group, &mac);
	}
}

/* Two probes, then two announcements. The addresses are in use meanwhile: the administrator of a
 * manually configured network needs a report of a conflict, but no delay. The sequence is repeated
 * each time the link has been down: a switch may have been replaced, or a guest started. */
#define PROBE_STEPS    2
#define ANNOUNCE_STEPS 2
#define STEP_MS	       500
#define LINK_MS	       1000

static bool
link_is_up(uint16_t port)
{
	struct rte_eth_link link;

	/* ports that do not report a link state count as up */
	return rte_eth_link_get_nowait(port, &link) < 0 || link.link_status;
}

void
roce_own_announce(struct roce_control *c, struct roce_expiry *timer)
{
	struct roce_neighbors *all = &c->neighbors;
	void (*step)(struct roce_control *, bool) =
		all->announced < PROBE_STEPS ? probe_own : announce;

	if (!link_is_up(c->dev->port)) {
		all->announced = 0;
	} else if (all->announced < PROBE_STEPS + ANNOUNCE_STEPS) {
		all->announced++;
		if (c->dev->has_ip4)
			step(c, true);
		if (c->dev->has_ip6)
			step(c, false);
		roce_expiry_start(c, timer, STEP_MS);
		return;
	}
	roce_expiry_start(c, timer, LINK_MS);
}

void
roce_own_conflict(
	struct roce_control *c, const struct roce_gid *gid, const struct rte_ether_addr *mac)
{
	char text[INET6_ADDRSTRLEN];
	struct rdma_event *event;

	roce_control_count(c, ROCE_ADDR_CONFLICTS);
	if (c->now < c->neighbors.conflict)
		return;
	c->neighbors.conflict = c->now + c->hz / 1000 * CONFLICT_MS;
	RDMA_LOG(WARNING, "device %s: address %s is also used by " RTE_ETHER_ADDR_PRT_FMT,
		c->dev->base.name, roce_gid_text(gid, text, sizeof(text)),
		RTE_ETHER_ADDR_BYTES(mac));
	announce(c, roce_gid_is_v4(gid));
	event = roce_control_event(c, RDMA_EVENT_ADDR_CONFLICT, NULL, -EADDRINUSE);
	if (event)
		roce_gid_to_sockaddr(gid, 0, &event->peer);
}
