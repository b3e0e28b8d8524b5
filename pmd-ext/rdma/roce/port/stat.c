/* SPDX-License-Identifier: BSD-3-Clause */
/* Extended statistics of a device. */
#include <rte_common.h>

#include "port/device.h"
#include "engine/engine.h"

/** Names, in the order of enum roce_stat. */
static const char *const name[ROCE_STATS] = {
	[ROCE_RX_PACKETS] = "rx_packets",
	[ROCE_RX_BYTES] = "rx_message_bytes",
	[ROCE_TX_PACKETS] = "tx_packets",
	[ROCE_TX_BYTES] = "tx_message_bytes",
	[ROCE_RX_CONTROL] = "rx_control_frames",
	[ROCE_RX_CONTROL_FULL] = "rx_control_ring_full",
	[ROCE_RX_HANDOVER] = "rx_handed_over",
	[ROCE_RX_HANDOVER_FULL] = "rx_handover_ring_full",
	[ROCE_RX_GIVEN] = "rx_to_other_device",
	[ROCE_RX_GIVEN_FULL] = "rx_other_device_ring_full",
	[ROCE_RX_TAKEN] = "rx_from_other_device",
	[ROCE_RX_OTHER] = "rx_not_for_us",
	[ROCE_RX_VLAN] = "rx_other_vlan",
	[ROCE_RX_MALFORMED] = "rx_malformed",
	[ROCE_RX_ICRC] = "rx_icrc_errors",
	[ROCE_RX_OPCODE] = "rx_bad_opcode",
	[ROCE_RX_QPN] = "rx_unknown_qpn",
	[ROCE_RX_STATE] = "rx_bad_state",
	[ROCE_RX_ADDRESS] = "rx_bad_address",
	[ROCE_RX_PKEY] = "rx_bad_pkey",
	[ROCE_RX_QKEY] = "rx_bad_qkey",
	[ROCE_RX_ACCESS] = "rx_access_refused",
	[ROCE_RX_INVALID] = "rx_invalid_requests",
	[ROCE_RX_DUPLICATE] = "rx_duplicates",
	[ROCE_RX_GAP] = "rx_out_of_sequence",
	[ROCE_RX_STALE] = "rx_stale_responses",
	[ROCE_RX_RNR] = "rx_no_receive_posted",
	[ROCE_RX_UC_DROP] = "rx_uc_dropped",
	[ROCE_RX_UC_BEGUN] = "rx_uc_in_progress",
	[ROCE_RX_MESSAGES_FULL] = "rx_message_ring_full",
	[ROCE_RX_MESSAGES_PAUSED] = "rx_message_ring_pauses",
	[ROCE_RX_TOO_LONG] = "rx_ud_too_long",
	[ROCE_RX_NAK_SEQUENCE] = "rx_nak_sequence",
	[ROCE_RX_NAK_RNR] = "rx_nak_rnr",
	[ROCE_RX_NAK_FATAL] = "rx_nak_fatal",
	[ROCE_TX_NAK_SEQUENCE] = "tx_nak_sequence",
	[ROCE_TX_NAK_RNR] = "tx_nak_rnr",
	[ROCE_TX_NAK_FATAL] = "tx_nak_fatal",
	[ROCE_TX_ACK] = "tx_acks",
	[ROCE_TX_RETRANSMIT] = "tx_retransmits",
	[ROCE_TX_TIMEOUT] = "ack_timeouts",
	[ROCE_TX_PROBE] = "tx_probes",
	[ROCE_TX_KEEPALIVE] = "tx_keepalives",
	[ROCE_RX_NOMBUF] = "rx_no_mbuf",
	[ROCE_TX_NOMBUF] = "tx_no_mbuf",
	[ROCE_TX_STALLED] = "tx_port_stalled",
	[ROCE_TX_CNP] = "tx_cnps",
	[ROCE_RX_CNP] = "rx_cnps",
	[ROCE_RX_CE] = "rx_congestion_marks",
	[ROCE_TX_CONTROL] = "tx_control_frames",
	[ROCE_TX_CONTROL_FULL] = "tx_control_ring_full",
	[ROCE_CQ_OVERRUN] = "cq_overrun",
	[ROCE_QP_ERRORS] = "qp_errors",
	[ROCE_NOTES_LOST] = "qp_events_lost",
};

int
roce_xstats_get(const struct rdma_dev *base, struct rdma_xstat *x, unsigned int n)
{
	const struct roce_dev *dev = (const struct roce_dev *)base;
	unsigned int i;
	uint16_t pg;

	for (i = 0; i < RTE_MIN(n, (unsigned int)ROCE_STATS); i++) {
		x[i].name = name[i];
		x[i].value = i == ROCE_TX_CONTROL_FULL ? counter_get(&dev->control_full) : 0;
		for (pg = 0; pg < dev->nb_poll_groups; pg++)
			x[i].value += counter_get(&dev->poll_groups[pg]->stats[i]);
	}
	i = RTE_MIN(n, (unsigned int)ROCE_STATS);
	return ROCE_STATS + roce_control_xstats_get(dev, x + i, n - i);
}
