/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>

#include <rte_random.h>

#include "port/ctl_plane.h"
#include "mcast/filter.h"
#include "mcast/group.h"
#include "net/nd.h"

#define ROBUSTNESS     2      /* reports per change of membership (RFC 3376, 8.1) */
#define INTERVAL_MS    1000   /* interval between them (8.11) */
#define OLD_QUERIER_MS 260000 /* Older Version Querier Present timeout: 2 x 125 s + 10 s (8.12) */

/** True if a router on the link uses an older version of IGMP or MLD. */
static bool
has_old_querier(const struct roce_control *c, bool v4)
{
	return c->now < (v4 ? c->memberships.old_until4 : c->memberships.old_until6);
}

/**
 * Source of MLD messages: routers and snooping switches discard those whose source is not
 * link-local (RFC 2710, 3; RFC 3810, 5.2.13). A device with a global address uses the one formed
 * from its MAC address (RFC 4291, appendix A).
 */
static struct roce_gid
mld_source(const struct roce_dev *dev)
{
	const uint8_t *m = dev->mac.addr_bytes;

	if (roce_gid_is_link_local(&dev->ip6))
		return dev->ip6;
	return (struct roce_gid){{0xfe, 0x80, [8] = m[0] ^ RTE_ETHER_LOCAL_ADMIN_ADDR, m[1], m[2],
		0xff, 0xfe, m[3], m[4], m[5]}};
}

static void
report(struct roce_control *c, const struct roce_membership *m, enum roce_group_record record)
{
	const bool v4 = roce_gid_is_v4(&m->group);
	struct roce_group_msg msg = {
		.type = ROCE_GROUP_REPORT, .record = record, .group = m->group};
	struct roce_ip ip = {.src = v4 ? c->dev->ip4 : mld_source(c->dev)};
	uint8_t payload[ROCE_GROUP_BYTES_MAX];
	struct rte_ether_addr mac;

	if (has_old_querier(c, v4))
		msg.type =
			record == ROCE_GROUP_LEAVES ? ROCE_GROUP_OLD_LEAVE : ROCE_GROUP_OLD_REPORT;
	roce_group_encode(&msg, &ip, payload);
	mac = roce_gid_multicast_mac(&ip.dst);
	roce_control_count(c, ROCE_GROUP_REPORTS);
	roce_control_send_ip(c, &mac, &ip, payload);
}

static void
membership_expired(struct roce_control *c, struct roce_expiry *timer)
{
	struct roce_membership *m = (struct roce_membership *)timer;

	report(c, m, m->record);
	if (m->reports_left > 0)
		m->reports_left--;
	m->record = m->reports_left ? m->record : ROCE_GROUP_IS_MEMBER;
	if (m->reports_left)
		roce_expiry_start(c, timer, INTERVAL_MS / 2 + rte_rand_max(INTERVAL_MS / 2));
}

/** Report a change of membership at once, and repeat the report. */
static void
membership_report_change(
	struct roce_control *c, struct roce_membership *m, enum roce_group_record record)
{
	if (m->silent)
		return;
	m->record = record;
	m->reports_left = ROBUSTNESS;
	membership_expired(c, &m->timer);
}

static struct roce_membership *
membership_find(struct roce_control *c, const struct roce_gid *group)
{
	struct roce_memberships *all = &c->memberships;
	uint32_t i;

	for (i = 0; i < all->nb_entries; i++)
		if (roce_gid_equal(&all->entries[i].group, group))
			return &all->entries[i];
	return NULL;
}

/** Allocate an entry: a new one, or one of a group that was left. */
static struct roce_membership *
membership_place(struct roce_control *c)
{
	struct roce_memberships *all = &c->memberships;
	uint32_t i;

	for (i = 0; i < all->nb_entries; i++)
		if (all->entries[i].refs == 0 && all->entries[i].reports_left == 0)
			return &all->entries[i];
	return all->nb_entries < ROCE_MEMBERSHIPS_MAX ? &all->entries[all->nb_entries++] : NULL;
}

/** Join a group. @param silent no reports are sent, because every station is a member */
static int
join(struct roce_control *c, const struct roce_gid *group, bool silent)
{
	struct roce_membership *m = membership_find(c, group);

	if (m && m->refs > 0) {
		m->refs++;
		return 0;
	}
	if (!m) {
		m = membership_place(c);
		if (!m)
			return -ENOSPC;
		roce_expiry_stop(c, &m->timer);
	}
	m->group = *group;
	m->timer.expired = membership_expired;
	m->silent = silent;
	m->refs = 1;
	roce_filter_set(c);
	membership_report_change(c, m, ROCE_GROUP_JOINS);
	return 0;
}

int
roce_membership_join(struct roce_control *c, const struct roce_gid *group)
{
	static const struct roce_gid all_systems = {
		{[10] = 0xff, [11] = 0xff, [12] = 224, [15] = 1}};
	const bool first4 = roce_gid_is_v4(group) && !membership_find(c, &all_systems);
	int ret;

	roce_control_time(c);
	/* queries are sent to 224.0.0.1 */
	ret = first4 ? join(c, &all_systems, true) : 0;
	return ret < 0 ? ret : join(c, group, false);
}

void
roce_membership_leave(struct roce_control *c, const struct roce_gid *group)
{
	struct roce_membership *m = membership_find(c, group);

	if (!m || m->refs == 0 || --m->refs > 0)
		return;
	roce_control_time(c);
	roce_filter_set(c);
	membership_report_change(c, m, ROCE_GROUP_LEAVES);
}

static void
query(struct roce_control *c, const struct roce_ip *ip, const struct roce_group_msg *msg)
{
	const bool v4 = roce_gid_is_v4(&ip->src);
	struct roce_memberships *all = &c->memberships;
	uint64_t pending;
	uint32_t i, ms;

	roce_control_count(c, ROCE_GROUP_QUERIES);
	if (v4 && msg->version < 3)
		all->old_until4 = c->now + c->hz / 1000 * OLD_QUERIER_MS;
	if (!v4 && msg->version < 2)
		all->old_until6 = c->now + c->hz / 1000 * OLD_QUERIER_MS;
	for (i = 0; i < all->nb_entries; i++) {
		struct roce_membership *m = &all->entries[i];

		if (m->refs == 0 || m->silent || m->reports_left ||
			roce_gid_is_v4(&m->group) != v4 ||
			(!roce_gid_is_none(&msg->group) && !roce_gid_equal(&m->group, &msg->group)))
			continue;
		/* Reply at a random time within the limit of the query, so that stations do not all
		 * reply at once. A pending reply that is due earlier also answers this query (RFC
		 * 3376, 5.2). */
		ms = rte_rand_max(msg->response_ms + 1);
		pending = m->timer.timer.deadline;
		if (pending && pending <= c->now + c->hz / 1000 * ms)
			continue;
		m->record = ROCE_GROUP_IS_MEMBER;
		roce_expiry_start(c, &m->timer, ms);
	}
}

int
roce_membership_message(struct roce_control *c, const struct roce_ip *ip, const uint8_t *payload)
{
	struct roce_group_msg msg;
	int ret = roce_group_decode(ip, payload, &msg);

	if (ret < 0)
		return ret;
	/* Only from this link: TTL 1. RFC 3376, 9.1 would accept other values, but they should not
	 * occur. */
	if (ip->hop_limit != 1)
		return -EPROTO;
	if (msg.type != ROCE_GROUP_QUERY)
		return 0; /* reports of other members are ignored: all members report (v3) */
	/* RFC 3810, 5.1.14: a query from beyond the link must not change the version or elicit
	 * reports */
	if (!roce_gid_is_v4(&ip->src) && !roce_gid_is_link_local(&ip->src))
		return -EPROTO;
	query(c, ip, &msg);
	return 0;
}

unsigned int
roce_memberships_macs(const struct roce_memberships *all, struct rte_ether_addr *mac)
{
	unsigned int i, n = 0;

	for (i = 0; i < all->nb_entries; i++)
		if (all->entries[i].refs > 0)
			mac[n++] = roce_gid_multicast_mac(&all->entries[i].group);
	return n;
}

int
roce_memberships_open(struct roce_control *c)
{
	static const struct roce_gid all_nodes = {{0xff, 0x02, [15] = 1}};
	struct roce_gid solicited;
	int ret;

	c->memberships.entries = calloc(ROCE_MEMBERSHIPS_MAX, sizeof(*c->memberships.entries));
	if (!c->memberships.entries)
		return -ENOMEM;
	if (!c->dev->has_ip6)
		return 0;
	solicited = roce_nd_group(&c->dev->ip6);
	ret = join(c, &all_nodes, true);
	return ret < 0 ? ret : join(c, &solicited, false);
}

void
roce_memberships_close(struct roce_control *c)
{
	uint32_t i;

	/* report the leave once, without repetition: no timer will run again */
	for (i = 0; i < c->memberships.nb_entries; i++)
		if (c->memberships.entries[i].refs > 0 && !c->memberships.entries[i].silent)
			report(c, &c->memberships.entries[i], ROCE_GROUP_LEAVES);
	c->memberships.nb_entries = 0;
	roce_filter_set(c);
	free(c->memberships.entries);
}
