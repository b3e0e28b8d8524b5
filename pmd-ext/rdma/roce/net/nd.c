/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include "net/nd.h"

#define HEADER	    24 /* type, code, checksum, flags, target */
#define OPTION_UNIT 8
#define OPT_SOURCE  1
#define OPT_TARGET  2
#define OPT_NONCE   14

int
roce_nd_decode(const struct roce_ip *ip, const uint8_t *payload, struct roce_nd *nd)
{
	const unsigned int length = ip->payload_len;
	unsigned int at, size;

	if (length < HEADER || ip->hop_limit != ROCE_ND_HOP_LIMIT || payload[1] != 0 ||
		roce_ip_payload_cksum(ip, payload) != 0)
		return -EPROTO;
	*nd = (struct roce_nd){
		.type = payload[0],
		.flags = payload[4],
		.target = roce_gid_v6(payload + 8),
	};
	if (nd->target.raw[0] == 0xff)
		return -EPROTO;
	/* RFC 4861, 7.1.2: what is sent to a group answers nobody's question */
	if (nd->type == ROCE_ND_ADVERT && nd->flags & ROCE_ND_SOLICITED && ip->dst.raw[0] == 0xff)
		return -EPROTO;
	for (at = HEADER; at < length; at += size) {
		const uint8_t *option = payload + at;
		const uint8_t wanted = nd->type == ROCE_ND_SOLICIT ? OPT_SOURCE : OPT_TARGET;

		if (length - at < OPTION_UNIT || option[1] == 0)
			return -EPROTO;
		size = option[1] * OPTION_UNIT;
		if (size > length - at)
			return -EPROTO;
		if (option[0] == wanted && size == OPTION_UNIT) {
			nd->has_mac = true;
			memcpy(&nd->mac, option + 2, sizeof(nd->mac));
		} else if (option[0] == OPT_NONCE && size == OPTION_UNIT) {
			nd->has_nonce = true;
			memcpy(nd->nonce, option + 2, sizeof(nd->nonce));
		}
	}
	return 0;
}

static unsigned int
option_put(uint8_t *option, uint8_t type, const void *value)
{
	option[0] = type;
	option[1] = 1;
	memcpy(option + 2, value, OPTION_UNIT - 2);
	return OPTION_UNIT;
}

unsigned int
roce_nd_encode(const struct roce_nd *nd, struct roce_ip *ip, uint8_t *payload)
{
	unsigned int length = HEADER;
	rte_be16_t sum;

	memset(payload, 0, HEADER);
	payload[0] = nd->type;
	payload[4] = nd->flags;
	memcpy(payload + 8, nd->target.raw, sizeof(nd->target));
	if (nd->has_mac)
		length += option_put(payload + length,
			nd->type == ROCE_ND_SOLICIT ? OPT_SOURCE : OPT_TARGET, &nd->mac);
	if (nd->has_nonce)
		length += option_put(payload + length, OPT_NONCE, nd->nonce);
	ip->payload_len = length;
	sum = roce_ip_payload_cksum(ip, payload);
	memcpy(payload + 2, &sum, sizeof(sum));
	return length;
}
