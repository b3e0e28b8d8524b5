/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>

#include <rte_jhash.h>

#include "net/arp.h"
#include "cm/conn.h"
#include "port/ctl_plane.h"
#include "net/nd.h"

#define SOLICIT_MS   250
#define SOLICITS_MAX 12 /* 3 s, as in Linux */
#define PROBE_MS     1000
#define PROBES	     3
#define REACHABLE_MS 30000
#define STALE_MS     600000 /* unused entries are removed after this time */
#define FAILED_MS    1000
/* Questions about an address that is disputed, every SOLICIT_MS. Its owner may lose one of them. */
#define DISPUTE_SOLICITS 2
/* Minimum time between the end of a dispute and the next one. A question goes to all stations, and
 * a change updates all queue pairs whose next hop it is. */
#define LOCK_MS 1000
/* Limit of entries learned from requests of other stations. The rest of the table is reserved for
 * own requests. */
#define LEARNED_MAX (ROCE_NEIGHBORS_MAX * 3 / 4)

const struct rte_ether_addr roce_broadcast = {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};

static const char *const state_names[] = {
	"free", "incomplete", "reachable", "stale", "probe", "disputed", "failed"};

static void
neighbor_enter(struct roce_neighbor *n, enum roce_neighbor_state state)
{
	char text[INET6_ADDRSTRLEN];

	if (n->state != state)
		RDMA_LOG(DEBUG, "neighbor %s: %s -> %s", roce_gid_text(&n->gid, text, sizeof(text)),
			state_names[n->state], state_names[state]);
	n->state = state;
}

void
roce_arp_send(struct roce_control *c, const struct roce_arp *arp, const struct rte_ether_addr *dst)
{
	struct rte_mbuf *m;
	uint8_t *l3;

	m = roce_control_frame(c, dst, RTE_ETHER_TYPE_ARP, ROCE_ARP_BYTES, &l3);
	if (!m)
		return;
	roce_arp_encode(arp, l3);
	roce_control_count(c, ROCE_ARP_TX);
	roce_control_tx(c->dev, 0, m);
}

void
roce_nd_send(struct roce_control *c, const struct roce_nd *nd, const struct roce_gid *src,
	const struct roce_gid *dst, const struct rte_ether_addr *mac)
{
	struct roce_ip ip = {
		.src = *src,
		.dst = *dst,
		.proto = IPPROTO_ICMPV6,
		.hop_limit = ROCE_ND_HOP_LIMIT,
	};
	uint8_t payload[ROCE_ND_BYTES_MAX];

	roce_nd_encode(nd, &ip, payload);
	roce_control_count(c, ROCE_ND_TX);
	roce_control_send_ip(c, mac, &ip, payload);
}

/** Ask which station has an address. @param mac NULL: all stations */
static void
send_solicit(struct roce_control *c, const struct roce_gid *gid, const struct rte_ether_addr *mac)
{
	const struct roce_dev *dev = c->dev;

	if (roce_gid_is_v4(gid)) {
		const struct roce_arp arp = {
			.op = ROCE_ARP_REQUEST,
			.sender_mac = dev->mac,
			.sender_ip = roce_gid_to_v4(&dev->ip4),
			.target_ip = roce_gid_to_v4(gid),
		};

		roce_arp_send(c, &arp, mac ? mac : &roce_broadcast);
	} else {
		const struct roce_nd nd = {
			.type = ROCE_ND_SOLICIT,
			.target = *gid,
			.has_mac = true,
			.mac = dev->mac,
		};
		const struct roce_gid group = roce_nd_group(gid);
		const struct rte_ether_addr group_mac = roce_gid_multicast_mac(&group);

		roce_nd_send(c, &nd, &dev->ip6, mac ? gid : &group, mac ? mac : &group_mac);
	}
}

/* ---- the cache ------------------------------------------------------------------------------ */

/** Aligned key: rte_jhash() reads 32-bit words. */
struct neighbor_key {
	struct roce_gid gid;
} __rte_aligned(sizeof(uint32_t));

static struct roce_neighbor *
neighbor_find(struct roce_control *c, const struct roce_gid *gid)
{
	const struct neighbor_key key = {*gid};
	void *n;

	return rte_hash_lookup_data(c->neighbors.hash, &key, &n) < 0 ? NULL : n;
}

static void
neighbor_drop(struct roce_control *c, struct roce_neighbor *n)
{
	const struct neighbor_key key = {n->gid};

	neighbor_enter(n, ROCE_NEIGHBOR_FREE);
	rte_hash_del_key(c->neighbors.hash, &key);
	roce_expiry_stop(c, &n->timer);
	c->neighbors.nb_entries--;
}

static void neighbor_expired(struct roce_control *c, struct roce_expiry *timer);

/**
 * Allocate an entry. If the cache is full, it replaces a stale or failed one.
 * @return NULL: all in use
 */
static struct roce_neighbor *
neighbor_add(struct roce_control *c, const struct roce_gid *gid)
{
	struct roce_neighbors *all = &c->neighbors;
	const struct neighbor_key key = {*gid};
	struct roce_neighbor *n = NULL;
	unsigned int i;

	for (i = 0; i < ROCE_NEIGHBORS_MAX && !n; i++) {
		struct roce_neighbor *at = &all->entries[all->next_replaced++ % ROCE_NEIGHBORS_MAX];

		if (at->state == ROCE_NEIGHBOR_FREE)
			n = at;
		else if (all->nb_entries == ROCE_NEIGHBORS_MAX &&
			(at->state == ROCE_NEIGHBOR_STALE || at->state == ROCE_NEIGHBOR_FAILED)) {
			neighbor_drop(c, at);
			n = at;
		}
	}
	if (!n || rte_hash_add_key_data(all->hash, &key, n) < 0) {
		roce_control_count(c, ROCE_NEIGHBORS_FULL);
		return NULL;
	}
	*n = (struct roce_neighbor){.gid = *gid, .timer.expired = neighbor_expired};
	all->nb_entries++;
	return n;
}

/** The address can be used. @param state REACHABLE or STALE */
static void
neighbor_usable(struct roce_control *c, struct roce_neighbor *n, enum roce_neighbor_state state)
{
	neighbor_enter(n, state);
	roce_expiry_start(c, &n->timer, state == ROCE_NEIGHBOR_REACHABLE ? REACHABLE_MS : STALE_MS);
}

/** The station has this MAC address from now on. @param state REACHABLE or STALE */
static void
neighbor_adopt(struct roce_control *c, struct roce_neighbor *n, const struct rte_ether_addr *mac,
	enum roce_neighbor_state state)
{
	n->mac = *mac;
	neighbor_usable(c, n, state);
	/* also of a new entry: the MAC address may have changed since an earlier one was removed */
	roce_hop_moved(c, &n->gid, mac);
}

static void
neighbor_lock(const struct roce_control *c, struct roce_neighbor *n)
{
	n->locked = c->now + c->hz / 1000 * LOCK_MS;
}

/**
 * A station with another MAC address claims the address. Anybody can send that, so everyone is
 * asked. If the owner answers, its MAC address stays in use. After a failover only the new owner
 * answers.
 */
static void
neighbor_dispute(struct roce_control *c, struct roce_neighbor *n)
{
	neighbor_enter(n, ROCE_NEIGHBOR_DISPUTED);
	n->solicits = 0;
	n->claimant = (struct rte_ether_addr){0};
	if (c->now < n->locked)
		roce_expiry_start(c, &n->timer, (n->locked - c->now) * 1000 / c->hz + 1);
	else
		neighbor_expired(c, &n->timer);
}

/** The owner of a disputed address has not answered. */
static void
neighbor_settle(struct roce_control *c, struct roce_neighbor *n)
{
	neighbor_lock(c, n);
	if (rte_is_zero_ether_addr(&n->claimant)) {
		neighbor_usable(c, n, ROCE_NEIGHBOR_STALE);
		return;
	}
	roce_control_count(c, ROCE_NEIGHBORS_MOVED);
	neighbor_adopt(c, n, &n->claimant, ROCE_NEIGHBOR_REACHABLE);
}

static void
neighbor_expired(struct roce_control *c, struct roce_expiry *timer)
{
	struct roce_neighbor *n = (struct roce_neighbor *)timer;

	switch ((enum roce_neighbor_state)n->state) {
	case ROCE_NEIGHBOR_INCOMPLETE:
		if (n->solicits < SOLICITS_MAX) {
			n->solicits++;
			send_solicit(c, &n->gid, NULL);
			roce_expiry_start(c, timer, SOLICIT_MS);
			return;
		}
		roce_control_count(c, ROCE_NEIGHBORS_FAILED);
		neighbor_enter(n, ROCE_NEIGHBOR_FAILED);
		roce_expiry_start(c, timer, FAILED_MS);
		roce_conns_resolved(c);
		return;
	case ROCE_NEIGHBOR_REACHABLE:
		neighbor_usable(c, n, ROCE_NEIGHBOR_STALE);
		return;
	case ROCE_NEIGHBOR_PROBE:
		if (n->solicits < PROBES) {
			n->solicits++;
			send_solicit(c, &n->gid, &n->mac);
			roce_expiry_start(c, timer, PROBE_MS);
			return;
		}
		neighbor_drop(c, n);
		return;
	case ROCE_NEIGHBOR_DISPUTED:
		if (n->solicits < DISPUTE_SOLICITS) {
			n->solicits++;
			send_solicit(c, &n->gid, NULL);
			roce_expiry_start(c, timer, SOLICIT_MS);
			return;
		}
		neighbor_settle(c, n);
		return;
	case ROCE_NEIGHBOR_STALE:
		/* Data is sent to this hop without a lookup. Keep the entry, so that a change of
		 * the hop's MAC address is noticed. */
		if (roce_hop_mac(c, &n->gid)) {
			roce_expiry_start(c, timer, STALE_MS);
			return;
		}
		/* fall through */
	case ROCE_NEIGHBOR_FAILED:
		neighbor_drop(c, n);
		return;
	case ROCE_NEIGHBOR_FREE:
		return;
	}
}

/**
 * A station has announced its address.
 * @param answer it is, as far as can be determined, a reply to our request
 */
static void
neighbor_update(struct roce_control *c, struct roce_neighbor *n, const struct rte_ether_addr *mac,
	bool answer)
{
	/* an answer that comes during a lock is one to an earlier question */
	const bool asked = n->state != ROCE_NEIGHBOR_DISPUTED || n->solicits > 0;

	if (n->state == ROCE_NEIGHBOR_FREE) {
		neighbor_adopt(c, n, mac, ROCE_NEIGHBOR_STALE);
	} else if (n->state == ROCE_NEIGHBOR_INCOMPLETE || n->state == ROCE_NEIGHBOR_FAILED) {
		neighbor_adopt(c, n, mac, ROCE_NEIGHBOR_REACHABLE);
		roce_conns_resolved(c);
	} else if (!rte_is_same_ether_addr(&n->mac, mac)) {
		roce_control_count(c, ROCE_NEIGHBORS_DISPUTED);
		if (n->state != ROCE_NEIGHBOR_DISPUTED)
			neighbor_dispute(c, n);
		else if (answer && asked)
			n->claimant = *mac;
	} else if (answer && asked) {
		if (n->state == ROCE_NEIGHBOR_DISPUTED)
			neighbor_lock(c, n);
		neighbor_usable(c, n, ROCE_NEIGHBOR_REACHABLE);
	}
}

/** Return true if the first `bits` bits are equal. */
static bool
same_prefix(const struct roce_gid *a, const struct roce_gid *b, unsigned int bits)
{
	const uint8_t mask = 0xff00 >> bits % 8;

	return memcmp(a->raw, b->raw, bits / 8) == 0 &&
		(bits % 8 == 0 || ((a->raw[bits / 8] ^ b->raw[bits / 8]) & mask) == 0);
}

static bool
on_link(const struct roce_dev *dev, const struct roce_gid *gid)
{
	if (roce_gid_is_v4(gid))
		return dev->has_ip4 && same_prefix(gid, &dev->ip4, 96 + dev->prefix4);
	/* fe80::/10 is on every link */
	return dev->has_ip6 &&
		(roce_gid_is_link_local(gid) || same_prefix(gid, &dev->ip6, dev->prefix6));
}

const struct roce_gid *
roce_neighbor_next_hop(const struct roce_dev *dev, const struct roce_gid *dst)
{
	if (on_link(dev, dst))
		return dst;
	if (roce_gid_is_v4(dst))
		return dev->has_ip4 && dev->has_gateway4 ? &dev->gateway4 : NULL;
	return dev->has_ip6 && dev->has_gateway6 ? &dev->gateway6 : NULL;
}

int
roce_dev_route_check(
	const struct rdma_dev *base, const struct sockaddr *dst, char why[RDMA_ROUTE_TEXT])
{
	const struct roce_dev *dev = (const struct roce_dev *)base;
	char to[INET6_ADDRSTRLEN], own[INET6_ADDRSTRLEN];
	const struct roce_gid *source;
	struct roce_gid gid;

	if (roce_gid_from_sockaddr(&gid, dst) < 0) {
		snprintf(why, RDMA_ROUTE_TEXT, "address of family %d, expected IP", dst->sa_family);
		return -EAFNOSUPPORT;
	}
	roce_gid_text(&gid, to, sizeof(to));
	source = roce_dev_source(dev, &gid);
	if (!source) {
		snprintf(why, RDMA_ROUTE_TEXT, "%s: the device has no ip= of this family", to);
		return -EAFNOSUPPORT;
	}
	if (roce_neighbor_next_hop(dev, &gid))
		return 0;
	snprintf(why, RDMA_ROUTE_TEXT, "%s is not in %s/%u of the device, and gateway= is not set",
		to, roce_gid_text(source, own, sizeof(own)),
		roce_gid_is_v4(source) ? dev->prefix4 : dev->prefix6);
	return -EHOSTUNREACH;
}

int
roce_control_resolve(struct roce_dev *dev, const struct roce_gid *dst, struct rte_ether_addr *mac)
{
	struct roce_control *c = dev->control;
	const struct roce_gid *hop, *own = roce_dev_source(dev, dst);
	struct roce_neighbor *n;

	if (!own || roce_gid_is_none(dst) || c->removed)
		return -EHOSTUNREACH;
	if (roce_gid_is_multicast(dst)) {
		*mac = roce_gid_multicast_mac(dst);
		return 0;
	}
	if (roce_gid_equal(own, dst)) {
		*mac = dev->mac;
		return 0;
	}
	hop = roce_neighbor_next_hop(dev, dst);
	if (!hop)
		return -EHOSTUNREACH;
	roce_control_time(c);
	n = neighbor_find(c, hop);
	if (!n) {
		n = neighbor_add(c, hop);
		if (!n)
			return -EHOSTUNREACH;
		neighbor_enter(n, ROCE_NEIGHBOR_INCOMPLETE);
		neighbor_expired(c, &n->timer);
		return -EAGAIN;
	}
	switch ((enum roce_neighbor_state)n->state) {
	case ROCE_NEIGHBOR_STALE:
		neighbor_enter(n, ROCE_NEIGHBOR_PROBE);
		n->solicits = 0;
		neighbor_expired(c, &n->timer);
		/* fall through */
	case ROCE_NEIGHBOR_REACHABLE:
	case ROCE_NEIGHBOR_PROBE:
	case ROCE_NEIGHBOR_DISPUTED:
		*mac = n->mac;
		return 0;
	case ROCE_NEIGHBOR_INCOMPLETE:
		return -EAGAIN;
	case ROCE_NEIGHBOR_FAILED:
	case ROCE_NEIGHBOR_FREE:
		break;
	}
	return -EHOSTUNREACH;
}

/** A station that is not in the cache asked for our address: it will soon need a reply. */
static void
neighbor_learn(struct roce_control *c, const struct roce_gid *gid, const struct rte_ether_addr *mac)
{
	const struct rte_ether_addr *used;
	struct roce_neighbor *n;

	if (roce_gid_is_none(gid) || !on_link(c->dev, gid))
		return;
	if (c->neighbors.nb_entries >= LEARNED_MAX) {
		roce_control_count(c, ROCE_NEIGHBORS_FULL);
		return;
	}
	n = neighbor_add(c, gid);
	if (!n)
		return;
	/* The peer may have been connected without an entry, or its entry was removed. */
	used = roce_hop_mac(c, gid);
	if (used) {
		n->mac = *used;
		neighbor_usable(c, n, ROCE_NEIGHBOR_STALE);
	}
	neighbor_update(c, n, mac, false);
}

/* ---- packets -------------------------------------------------------------------------------- */

static void
arp_answer(struct roce_control *c, const struct roce_arp *request)
{
	const struct roce_arp reply = {
		.op = ROCE_ARP_REPLY,
		.sender_mac = c->dev->mac,
		.sender_ip = request->target_ip,
		.target_mac = request->sender_mac,
		.target_ip = request->sender_ip,
	};

	roce_arp_send(c, &reply, &request->sender_mac);
}

void
roce_neighbor_arp(struct roce_control *c, const uint8_t *packet, unsigned int length)
{
	const struct roce_dev *dev = c->dev;
	struct roce_neighbor *n;
	struct roce_gid sender;
	struct roce_arp arp;
	bool for_us;

	roce_control_count(c, ROCE_ARP_RX);
	if (roce_arp_decode(packet, length, &arp) < 0 ||
		!rte_is_valid_assigned_ether_addr(&arp.sender_mac)) {
		roce_control_count(c, ROCE_CTL_MALFORMED);
		return;
	}
	if (!dev->has_ip4 || rte_is_same_ether_addr(&arp.sender_mac, &dev->mac))
		return;
	sender = roce_gid_v4(arp.sender_ip);
	if (roce_gid_equal(&sender, &dev->ip4)) {
		roce_own_conflict(c, &sender, &arp.sender_mac);
		return;
	}
	for_us = arp.target_ip == roce_gid_to_v4(&dev->ip4);
	n = neighbor_find(c, &sender);
	if (n)
		neighbor_update(c, n, &arp.sender_mac, for_us && arp.op == ROCE_ARP_REPLY);
	else if (for_us && arp.op == ROCE_ARP_REQUEST)
		neighbor_learn(c, &sender, &arp.sender_mac);
	if (for_us && arp.op == ROCE_ARP_REQUEST)
		arp_answer(c, &arp);
}

static void
nd_answer(struct roce_control *c, const struct roce_ip *ip, const struct roce_nd *solicit)
{
	const struct roce_gid all = {{0xff, 0x02, [15] = 1}};
	const bool probe = roce_gid_is_none(&ip->src);
	const struct roce_nd nd = {
		.type = ROCE_ND_ADVERT,
		.flags = ROCE_ND_OVERRIDE | (probe ? 0 : ROCE_ND_SOLICITED),
		.target = solicit->target,
		.has_mac = true,
		.mac = c->dev->mac,
	};
	struct rte_ether_addr mac;

	if (probe) {
		mac = roce_gid_multicast_mac(&all);
	} else if (solicit->has_mac) {
		mac = solicit->mac;
	} else if (!neighbor_find(c, &ip->src) && c->neighbors.nb_entries >= LEARNED_MAX) {
		/* requests of other stations must not fill the part of the table reserved for own
		 * requests */
		roce_control_count(c, ROCE_NEIGHBORS_FULL);
		return;
	} else if (roce_control_resolve(c->dev, &ip->src, &mac) < 0) {
		return; /* the station retransmits its request */
	}
	roce_nd_send(c, &nd, &c->dev->ip6, probe ? &all : &ip->src, &mac);
}

void
roce_neighbor_nd(struct roce_control *c, const struct roce_ip *ip, const uint8_t *payload)
{
	const struct roce_dev *dev = c->dev;
	const struct roce_gid *sender;
	struct roce_neighbor *n;
	struct roce_nd nd;

	roce_control_count(c, ROCE_ND_RX);
	if (roce_nd_decode(ip, payload, &nd) < 0 ||
		(nd.has_mac && !rte_is_valid_assigned_ether_addr(&nd.mac))) {
		roce_control_count(c, ROCE_CTL_MALFORMED);
		return;
	}
	if (!dev->has_ip6 || (nd.has_mac && rte_is_same_ether_addr(&nd.mac, &dev->mac)))
		return;
	if (nd.type == ROCE_ND_ADVERT && roce_gid_equal(&nd.target, &dev->ip6)) {
		roce_own_conflict(c, &nd.target, &nd.mac);
		return;
	}
	sender = nd.type == ROCE_ND_ADVERT ? &nd.target : &ip->src;
	n = nd.has_mac ? neighbor_find(c, sender) : NULL;
	/* an advertisement without override, for example of a proxy, must not change a known
	 * address */
	if (n &&
		(nd.type == ROCE_ND_SOLICIT || nd.flags & ROCE_ND_OVERRIDE ||
			n->state == ROCE_NEIGHBOR_INCOMPLETE ||
			rte_is_same_ether_addr(&n->mac, &nd.mac)))
		neighbor_update(
			c, n, &nd.mac, nd.type == ROCE_ND_ADVERT && nd.flags & ROCE_ND_SOLICITED);
	if (nd.type != ROCE_ND_SOLICIT || !roce_gid_equal(&nd.target, &dev->ip6))
		return;
	if (!n && nd.has_mac)
		neighbor_learn(c, sender, &nd.mac);
	nd_answer(c, ip, &nd);
}

/* ---- open and close -------------------------------------------------------------------------- */

int
roce_neighbors_open(struct roce_control *c)
{
	struct roce_neighbors *all = &c->neighbors;
	char name[RTE_HASH_NAMESIZE];
	const struct rte_hash_parameters parameters = {
		.name = name,
		/* cuckoo hash: slack, so that no insertion fails */
		.entries = ROCE_NEIGHBORS_MAX * 2,
		.key_len = sizeof(struct roce_gid),
		.hash_func = rte_jhash,
		/* remote stations choose the keys: use a random seed */
		.hash_func_init_val = roce_random(32),
		.socket_id = SOCKET_ID_ANY,
	};

	snprintf(name, sizeof(name), "roce%u_nb", c->dev->number);
	all->hash = rte_hash_create(&parameters);
	all->entries = calloc(ROCE_NEIGHBORS_MAX, sizeof(*all->entries));
	if (!all->hash || !all->entries)
		return -ENOMEM;
	all->announce.expired = roce_own_announce;
	roce_expiry_start(c, &all->announce, 0);
	return 0;
}

void
roce_neighbors_close(struct roce_control *c)
{
	rte_hash_free(c->neighbors.hash);
	free(c->neighbors.entries);
}
