/* SPDX-License-Identifier: BSD-3-Clause */
/* Names and values of the control plane's counters. */
#include "port/ctl_plane.h"

static const char *const names[ROCE_CONTROL_STATS] = {
	[ROCE_CTL_MALFORMED] = "control_malformed",
	[ROCE_CTL_OTHER] = "control_other",
	[ROCE_CTL_NOMBUF] = "control_nombuf",
	[ROCE_CTL_EVENTS_LOST] = "control_events_lost",
	[ROCE_ARP_RX] = "arp_rx",
	[ROCE_ARP_TX] = "arp_tx",
	[ROCE_ND_RX] = "nd_rx",
	[ROCE_ND_TX] = "nd_tx",
	[ROCE_NEIGHBORS_FULL] = "neighbors_full",
	[ROCE_NEIGHBORS_FAILED] = "neighbors_failed",
	[ROCE_NEIGHBORS_MOVED] = "neighbors_moved",
	[ROCE_NEIGHBORS_DISPUTED] = "neighbors_disputed",
	[ROCE_ADDR_CONFLICTS] = "addr_conflicts",
	[ROCE_ECHO_REPLIES] = "echo_replies",
	[ROCE_ECHO_LIMITED] = "echo_limited",
	[ROCE_GROUP_QUERIES] = "group_queries",
	[ROCE_GROUP_REPORTS] = "group_reports",
	[ROCE_GROUP_REFUSED] = "group_lists_refused",
	[ROCE_MAD_MALFORMED] = "mad_malformed",
	[ROCE_MAD_UNSUPPORTED] = "mad_unsupported",
	[ROCE_MAD_QKEY] = "mad_qkey",
	[ROCE_CM_RX] = "cm_rx",
	[ROCE_CM_TX] = "cm_tx",
	[ROCE_CM_RETRANSMITS] = "cm_retransmits",
	[ROCE_CM_DUPLICATES] = "cm_duplicates",
	[ROCE_CM_UNMATCHED] = "cm_unmatched",
	[ROCE_CM_UNEXPECTED] = "cm_unexpected",
	[ROCE_CM_NO_LISTENER] = "cm_no_listener",
	[ROCE_CM_BACKLOG_FULL] = "cm_backlog_full",
	[ROCE_CM_TABLE_FULL] = "cm_table_full",
	[ROCE_CM_STALE] = "cm_stale",
	[ROCE_CM_BAD_REQUEST] = "cm_bad_request",
	[ROCE_CM_BAD_MTU] = "cm_bad_mtu",
	[ROCE_CM_REJECTS_RX] = "cm_rejects_rx",
	[ROCE_CM_REJECTS_TX] = "cm_rejects_tx",
	[ROCE_CM_TIMEOUTS] = "cm_timeouts",
	[ROCE_CM_CONNECTED] = "cm_connected",
	[ROCE_CM_DISCONNECTED] = "cm_disconnected",
	[ROCE_CM_FIRST_PACKETS] = "cm_first_packets",
	[ROCE_SIDR_ANSWERED] = "sidr_answered",
};

int
roce_control_xstats_get(const struct roce_dev *dev, struct rdma_xstat *x, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < RTE_MIN(n, (unsigned int)ROCE_CONTROL_STATS); i++)
		x[i] = (struct rdma_xstat){names[i], counter_get(&dev->control->stats[i])};
	return ROCE_CONTROL_STATS;
}
