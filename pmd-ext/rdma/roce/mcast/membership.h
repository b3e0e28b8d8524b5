/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_MEMBERSHIP_H
#define ROCE_MEMBERSHIP_H

/**
 * @file
 * Multicast memberships of the device: reports to routers and snooping switches (IGMP, MLD),
 * replies
 * to queries, updates of the port's Ethernet filter.
 */

#include "engine/expiry.h"
#include "net/ip.h"

struct roce_control;

#define ROCE_MEMBERSHIPS_MAX 256

struct roce_membership {
	struct roce_expiry timer; /**< runs until a report is due */
	struct roce_gid group;
	uint32_t refs;	      /**< 0 with reports_left > 0: leaving */
	uint8_t reports_left; /**< remaining reports of this change (robustness) */
	uint8_t record;	      /**< enum roce_group_record of these reports */
	bool silent;	      /**< never reported: all systems, all nodes */
};

struct roce_memberships {
	struct roce_membership *entries;
	uint32_t nb_entries;
	uint64_t old_until4, old_until6; /**< TSC: IGMPv2 or MLDv1 is used until then */
};

/** @return 0; -ENOMEM */
int roce_memberships_open(struct roce_control *c);
void roce_memberships_close(struct roce_control *c);

/**
 * Ethernet addresses of the groups, with duplicates.
 * @return their number, at most ROCE_MEMBERSHIPS_MAX
 */
unsigned int roce_memberships_macs(const struct roce_memberships *all, struct rte_ether_addr *mac);

/** Join a group, or add a reference. @return 0; -ENOSPC */
int roce_membership_join(struct roce_control *c, const struct roce_gid *group);

/** Drop a reference; the last one leaves the group. */
void roce_membership_leave(struct roce_control *c, const struct roce_gid *group);

/**
 * Handle a received IGMP or ICMPv6 message.
 * @return 0; errors of roce_group_decode(); -EPROTO also: hop limit other than 1, MLD query whose
 *   source is not link-local
 */
int roce_membership_message(
	struct roce_control *c, const struct roce_ip *ip, const uint8_t *payload);

#endif
