/* SPDX-License-Identifier: BSD-3-Clause */

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <rte_common.h>

#include <rdma.h>

#include "port/refused.h"

#define XSTATS_MAX 128 /* counters of a device */

/** Counters of a RoCE device that are drops of a port. */
static const struct {
	const char *name;
	enum port_drop drop;
	/** Fault of the packets; NULL: the sender has made no mistake. */
	const char *found;
	const char *check;
} counters[] = {
	{"rx_no_mbuf", PORT_NO_MBUF, NULL, NULL},
	{"rx_handover_ring_full", PORT_RING_FULL, NULL, NULL},
	{"rx_message_ring_full", PORT_RING_FULL, NULL, NULL},
	{"rx_icrc_errors", PORT_ICRC, "have a wrong ICRC",
		"check the byte order of the ICRC (little-endian), and which bytes it covers"},
	{"rx_uc_dropped", PORT_INCOMPLETE, "belong to messages with a missing packet",
		"check that the packets of a message are consecutive, that their PSNs increase by "
		"1, and the path MTU"},
	{"rx_duplicates", PORT_REPEATED, "have the PSN of an earlier packet",
		"check that the PSN increases by 1 with each packet of a stream"},
	{"rx_malformed", PORT_REFUSED, "have a wrong length, BTH version or pad count",
		"check the lengths of IPv4 and UDP, and byte 1 of the BTH"},
	{"rx_bad_opcode", PORT_REFUSED, "have an opcode that UC does not have",
		"check the opcode of the BTH, and [detector] transport"},
	{"rx_unknown_qpn", PORT_REFUSED, "are for queue pairs that no stream has",
		"check that the detector's card is that of this start, or set [ingest] qpn"},
	{"rx_bad_state", PORT_REFUSED, "are for queue pairs that are not connected",
		"check that the detector connects to [ingest] service before it sends"},
	{"rx_bad_address", PORT_REFUSED, "have another source address than the stream's",
		"check the detector's address, and [detector] source"},
	{"rx_bad_pkey", PORT_REFUSED, "have another partition key than 0xffff",
		"check bytes 2 and 3 of the BTH"},
	{"rx_access_refused", PORT_REFUSED, "have a key, address or operation that is refused",
		"check rkey, base, slots and slot_bytes of the detector's card, which must be that "
		"of this start, and [detector] transport"},
	{"rx_invalid_requests", PORT_REFUSED, "are out of order in their message, or too long",
		"check the length in the RETH, the order of opcodes, and the path MTU"},
	{"rx_not_for_us", PORT_REFUSED, "have another destination address, or are not RoCEv2",
		"check that the detector sends to ip= of [port N] device and UDP port 4791, and "
		"[detector] transport"},
	{"rx_other_vlan", PORT_REFUSED, "have another VLAN",
		"check the VLAN of the detector and of the switch, and vlan= of [port N] device"},
};
static_assert(RTE_DIM(counters) == PORT_REFUSED_COUNTERS, "one element for each counter");

void
port_refused_add(const struct rdma_dev *dev, struct port_refused *r)
{
	struct rdma_xstat x[XSTATS_MAX];
	const int n = RTE_MIN(rdma_xstats_get(dev, x, XSTATS_MAX), XSTATS_MAX);

	for (int i = 0; i < n; i++)
		for (unsigned int c = 0; c < RTE_DIM(counters); c++)
			if (strcmp(x[i].name, counters[c].name) == 0)
				r->n[c] += x[i].value;
}

void
port_refused_drops(const struct rdma_dev *dev, uint64_t drops[PORT_DROPS])
{
	struct port_refused r = {0};

	port_refused_add(dev, &r);
	for (unsigned int c = 0; c < RTE_DIM(counters); c++)
		drops[counters[c].drop] += r.n[c];
}

void
port_refused_since(struct port_refused *r, const struct port_refused *before)
{
	for (unsigned int c = 0; c < RTE_DIM(counters); c++)
		r->n[c] -= before->n[c];
}

/** Return true if packets are dropped because of their content, and not only because of loss. */
static bool
is_refusal(unsigned int c)
{
	return counters[c].drop == PORT_REFUSED || counters[c].drop == PORT_ICRC;
}

uint64_t
port_refused_sum(const struct port_refused *r, bool all)
{
	uint64_t sum = 0;

	for (unsigned int c = 0; c < RTE_DIM(counters); c++)
		if (counters[c].found != NULL && (all || is_refusal(c)))
			sum += r->n[c];
	return sum;
}

bool
port_refused_explain(const struct port_refused *r, char *text, size_t size)
{
	unsigned int most = 0;
	bool any = false;

	/* the rest of a refused message counts as incomplete, which is not a cause */
	for (unsigned int c = 0; c < RTE_DIM(counters); c++) {
		if (counters[c].found == NULL || r->n[c] == 0)
			continue;
		if (!any || (is_refusal(c) && !is_refusal(most)) ||
			(r->n[c] > r->n[most] && is_refusal(c) == is_refusal(most)))
			most = c;
		any = true;
	}
	if (any)
		snprintf(text, size, "%" PRIu64 " %s (%s); %s", r->n[most], counters[most].found,
			counters[most].name, counters[most].check);
	return any;
}
