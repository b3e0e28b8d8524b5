/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include <rte_arp.h>
#include <rte_common.h>

#include "net/arp.h"

static_assert(sizeof(struct rte_arp_hdr) == ROCE_ARP_BYTES, "as RFC 826 has it");

int
roce_arp_decode(const uint8_t *wire, unsigned int length, struct roce_arp *arp)
{
	struct rte_arp_hdr h;

	if (length < sizeof(h))
		return -EPROTO;
	memcpy(&h, wire, sizeof(h));
	*arp = (struct roce_arp){
		.op = rte_be_to_cpu_16(h.arp_opcode),
		.sender_mac = h.arp_data.arp_sha,
		.target_mac = h.arp_data.arp_tha,
		.sender_ip = h.arp_data.arp_sip,
		.target_ip = h.arp_data.arp_tip,
	};
	if (h.arp_hardware != RTE_BE16(RTE_ARP_HRD_ETHER) ||
		h.arp_protocol != RTE_BE16(RTE_ETHER_TYPE_IPV4) ||
		h.arp_hlen != RTE_ETHER_ADDR_LEN || h.arp_plen != sizeof(rte_be32_t) ||
		(arp->op != ROCE_ARP_REQUEST && arp->op != ROCE_ARP_REPLY))
		return -EPROTO;
	return 0;
}

void
roce_arp_encode(const struct roce_arp *arp, uint8_t wire[ROCE_ARP_BYTES])
{
	const struct rte_arp_hdr h = {
		.arp_hardware = RTE_BE16(RTE_ARP_HRD_ETHER),
		.arp_protocol = RTE_BE16(RTE_ETHER_TYPE_IPV4),
		.arp_hlen = RTE_ETHER_ADDR_LEN,
		.arp_plen = sizeof(rte_be32_t),
		.arp_opcode = rte_cpu_to_be_16(arp->op),
		.arp_data =
			{
				.arp_sha = arp->sender_mac,
				.arp_sip = arp->sender_ip,
				.arp_tha = arp->target_mac,
				.arp_tip = arp->target_ip,
			},
	};

	memcpy(wire, &h, sizeof(h));
}
