/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_GROUP_H
#define ROCE_GROUP_H

/**
 * @file
 * Membership messages of multicast groups, decoded and encoded: IGMPv2 and v3 (RFC 2236, 3376),
 * MLDv1 and v2 (RFC 2710, 3810). Source lists are not supported.
 */

#include "net/ip.h"

#define ROCE_GROUP_BYTES_MAX 28 /**< of a transmitted message: a report with one group */

enum roce_group_type {
	ROCE_GROUP_QUERY,
	ROCE_GROUP_REPORT,     /**< IGMPv3, MLDv2 */
	ROCE_GROUP_OLD_REPORT, /**< IGMPv2, MLDv1 */
	ROCE_GROUP_OLD_LEAVE,
};

/** Record type of a group in a report (RFC 3376, 4.2.12). */
enum roce_group_record {
	ROCE_GROUP_IS_MEMBER = 2, /**< MODE_IS_EXCLUDE {}: reply to a query */
	ROCE_GROUP_LEAVES = 3,	  /**< CHANGE_TO_INCLUDE {} */
	ROCE_GROUP_JOINS = 4,	  /**< CHANGE_TO_EXCLUDE {} */
};

struct roce_group_msg {
	enum roce_group_type type;
	struct roce_gid group; /**< of a query: none if the query is general */
	uint8_t version;       /**< of a query: 2 or 3 for IGMP (1 counts as 2), 1 or 2 for MLD */
	uint8_t record;	       /**< of a report: enum roce_group_record */
	uint32_t response_ms;  /**< of a query: maximum response time */
};

/**
 * @param payload of the IP packet `ip`, IGMP or ICMPv6
 * @return 0; -EPROTO: malformed, wrong checksum; -ENOTSUP: other message, source list, report of
 *   several groups
 */
int roce_group_decode(const struct roce_ip *ip, const uint8_t *payload, struct roce_group_msg *msg);

/**
 * Encode a report or leave message. The caller sets src and id of `ip`; the other fields are filled
 * in.
 * @return length
 */
unsigned int roce_group_encode(
	const struct roce_group_msg *msg, struct roce_ip *ip, uint8_t *payload);

#endif
