/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include "mcast/group.h"

/* IGMP and ICMPv6 types */
#define IGMP_QUERY     0x11
#define IGMP_V1_REPORT 0x12
#define IGMP_V2_REPORT 0x16
#define IGMP_LEAVE     0x17
#define IGMP_V3_REPORT 0x22
#define MLD_QUERY      130
#define MLD_V1_REPORT  131
#define MLD_V1_DONE    132
#define MLD_V2_REPORT  143

#define IGMP_BYTES    8
#define IGMP_QUERY3   12 /* shortest v3 query */
#define MLD_BYTES     24
#define MLD_QUERY2    28
#define REPORT_HEADER 8 /* of v3 and MLDv2, without the records */
#define IGMP_RECORD   8
#define MLD_RECORD    20

static uint16_t
be16(const uint8_t *p)
{
	return p[0] << 8 | p[1];
}

/** Floating-point codes of response times (RFC 3376 4.1.1; RFC 3810 5.1.3 has wider ones). */
static uint32_t
code_value(uint32_t code, unsigned int mantissa_bits)
{
	const uint32_t top = 1u << (mantissa_bits + 3);

	if (code < top)
		return code;
	return ((code & ((1u << mantissa_bits) - 1)) | 1u << mantissa_bits)
		<< ((code >> mantissa_bits & 7) + 3);
}

/** Decode the first record of a v3 or MLDv2 report. */
static int
record_decode(const uint8_t *payload, unsigned int length, unsigned int record,
	struct roce_group_msg *msg)
{
	const uint8_t *r = payload + REPORT_HEADER;

	if (length < REPORT_HEADER || (be16(payload + 6) > 0 && length < REPORT_HEADER + record))
		return -EPROTO;
	/* one group, no source list, no auxiliary data */
	if (be16(payload + 6) != 1 || be16(r + 2) != 0 || r[1] != 0)
		return -ENOTSUP;
	msg->type = ROCE_GROUP_REPORT;
	msg->record = r[0];
	if (record == IGMP_RECORD) {
		rte_be32_t group;

		memcpy(&group, r + 4, sizeof(group));
		msg->group = roce_gid_v4(group);
	} else {
		msg->group = roce_gid_v6(r + 4);
	}
	return 0;
}

static int
igmp_decode(const uint8_t *payload, unsigned int length, struct roce_group_msg *msg)
{
	rte_be32_t group;

	if (length < IGMP_BYTES)
		return -EPROTO;
	memcpy(&group, payload + 4, sizeof(group));
	msg->group = roce_gid_v4(group);
	switch (payload[0]) {
	case IGMP_QUERY:
		msg->type = ROCE_GROUP_QUERY;
		if (length > IGMP_BYTES && length < IGMP_QUERY3)
			return -EPROTO;
		msg->version = length > IGMP_BYTES ? 3 : 2;
		/* the field is in tenths of a second; 0 is IGMPv1, which means ten seconds */
		msg->response_ms = 100 *
			(msg->version == 3	     ? code_value(payload[1], 4)
					: payload[1] ? payload[1]
						     : 100);
		return 0;
	case IGMP_V1_REPORT:
	case IGMP_V2_REPORT:
		msg->type = ROCE_GROUP_OLD_REPORT;
		return 0;
	case IGMP_LEAVE:
		msg->type = ROCE_GROUP_OLD_LEAVE;
		return 0;
	case IGMP_V3_REPORT:
		return record_decode(payload, length, IGMP_RECORD, msg);
	}
	return -ENOTSUP;
}

static int
mld_decode(const uint8_t *payload, unsigned int length, struct roce_group_msg *msg)
{
	switch (payload[0]) {
	case MLD_QUERY:
	case MLD_V1_REPORT:
	case MLD_V1_DONE:
		if (length < MLD_BYTES || (length > MLD_BYTES && length < MLD_QUERY2))
			return -EPROTO;
		msg->group = roce_gid_v6(payload + 8);
		break;
	case MLD_V2_REPORT:
		return record_decode(payload, length, MLD_RECORD, msg);
	default:
		return -ENOTSUP;
	}
	if (payload[0] == MLD_QUERY) {
		msg->type = ROCE_GROUP_QUERY;
		msg->version = length > MLD_BYTES ? 2 : 1;
		msg->response_ms =
			msg->version == 2 ? code_value(be16(payload + 4), 12) : be16(payload + 4);
	} else {
		msg->type =
			payload[0] == MLD_V1_REPORT ? ROCE_GROUP_OLD_REPORT : ROCE_GROUP_OLD_LEAVE;
	}
	return 0;
}

int
roce_group_decode(const struct roce_ip *ip, const uint8_t *payload, struct roce_group_msg *msg)
{
	const unsigned int length = ip->payload_len;

	*msg = (struct roce_group_msg){0};
	if (length < IGMP_BYTES || roce_ip_payload_cksum(ip, payload) != 0)
		return -EPROTO;
	return roce_gid_is_v4(&ip->src) ? igmp_decode(payload, length, msg)
					: mld_decode(payload, length, msg);
}

/** An IPv6 group of link-local scope, from its last byte: ff02::16 and so on. */
static struct roce_gid
link_group(uint8_t last)
{
	return (struct roce_gid){{0xff, 0x02, [15] = last}};
}

/** Encode IGMP: type, destination and body. @return length */
static unsigned int
igmp_encode(const struct roce_group_msg *msg, struct roce_ip *ip, uint8_t *payload)
{
	const rte_be32_t group = roce_gid_to_v4(&msg->group);

	ip->proto = IPPROTO_IGMP;
	switch (msg->type) {
	case ROCE_GROUP_REPORT:
		ip->dst = roce_gid_v4(RTE_BE32(0xe0000016)); /* 224.0.0.22 */
		payload[0] = IGMP_V3_REPORT;
		payload[7] = 1;
		payload[8] = msg->record;
		memcpy(payload + 12, &group, sizeof(group));
		return REPORT_HEADER + IGMP_RECORD;
	case ROCE_GROUP_OLD_REPORT:
		ip->dst = msg->group;
		payload[0] = IGMP_V2_REPORT;
		break;
	default:
		ip->dst = roce_gid_v4(RTE_BE32(0xe0000002)); /* all routers */
		payload[0] = IGMP_LEAVE;
	}
	memcpy(payload + 4, &group, sizeof(group));
	return IGMP_BYTES;
}

static unsigned int
mld_encode(const struct roce_group_msg *msg, struct roce_ip *ip, uint8_t *payload)
{
	ip->proto = IPPROTO_ICMPV6;
	switch (msg->type) {
	case ROCE_GROUP_REPORT:
		ip->dst = link_group(0x16);
		payload[0] = MLD_V2_REPORT;
		payload[7] = 1;
		payload[8] = msg->record;
		memcpy(payload + 12, msg->group.raw, sizeof(msg->group));
		return REPORT_HEADER + MLD_RECORD;
	case ROCE_GROUP_OLD_REPORT:
		ip->dst = msg->group;
		payload[0] = MLD_V1_REPORT;
		break;
	default:
		ip->dst = link_group(2); /* all routers */
		payload[0] = MLD_V1_DONE;
	}
	memcpy(payload + 8, msg->group.raw, sizeof(msg->group));
	return MLD_BYTES;
}

unsigned int
roce_group_encode(const struct roce_group_msg *msg, struct roce_ip *ip, uint8_t *payload)
{
	const bool v4 = roce_gid_is_v4(&msg->group);
	rte_be16_t sum;

	memset(payload, 0, ROCE_GROUP_BYTES_MAX);
	ip->payload_len = v4 ? igmp_encode(msg, ip, payload) : mld_encode(msg, ip, payload);
	ip->hop_limit = 1;
	ip->router_alert = true;
	if (v4) {
		ip->traffic_class = 0xc0; /* as for routing protocols (RFC 3376, 4) */
		ip->dont_fragment = true;
	}
	sum = roce_ip_payload_cksum(ip, payload);
	memcpy(payload + 2, &sum, sizeof(sum));
	return ip->payload_len;
}
