/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_MEMBERSHIP_H
#define ROCE_MEMBERSHIP_H

/**
 * @file
 * Groups that the device is a member of: reported to routers and snooping switches (IGMP, MLD),
 * queries answered, the port's filter of Ethernet addresses told.
 */

#include "engine/expiry.h"
#include "net/ip.h"

struct roce_control;

#define ROCE_MEMBERSHIPS_MAX 256

struct roce_membership {
	struct roce_expiry timer; /**< until a report is due */
	struct roce_gid group;
	uint32_t refs;	      /**< 0 with reports_left: leaving */
	uint8_t reports_left; /**< of this change (robustness) */
	uint8_t record;	      /**< enum roce_group_record that these say */
	bool silent;	      /**< never reported: all systems, all nodes */
};

struct roce_memberships {
	struct roce_membership *entries;
	uint32_t nb_entries;
	uint64_t old_until4, old_until6; /**< TSC: IGMPv2, MLDv1 spoken until then */
};

/** @return 0; -ENOMEM */
int roce_memberships_open(struct roce_control *c);
void roce_memberships_close(struct roce_control *c);

/** Their Ethernet addresses, with duplicates. @return how many, at most ROCE_MEMBERSHIPS_MAX */
unsigned int roce_memberships_macs(const struct roce_memberships *all, struct rte_ether_addr *mac);

/** Join, or one more reference. @return 0; -ENOSPC */
int roce_membership_join(struct roce_control *c, const struct roce_gid *group);

/** One reference less; the last one leaves. */
void roce_membership_leave(struct roce_control *c, const struct roce_gid *group);

/** An IGMP or ICMPv6 message that roce_group_decode() may know came. @return 0; its errors */
int roce_membership_message(
	struct roce_control *c, const struct roce_ip *ip, const uint8_t *payload);

#endif
