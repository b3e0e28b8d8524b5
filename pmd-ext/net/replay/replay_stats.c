/* SPDX-License-Identifier: BSD-3-Clause */
/* The polling lcores write the counters. A reset leaves them and remembers where they were. */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include <rte_string_fns.h>

#include "replay.h"

static struct replay_rx_counters
counters_since_reset(const struct replay_rxq *rxq)
{
	struct replay_rx_counters count = rxq->count;

	count.packets -= rxq->base.packets;
	count.bytes -= rxq->base.bytes;
	count.by_reference -= rxq->base.by_reference;
	count.copied -= rxq->base.copied;
	count.no_mbuf -= rxq->base.no_mbuf;
	count.oversize -= rxq->base.oversize;
	count.missed -= rxq->base.missed;
	for (unsigned int i = 0; i < REPLAY_FAULTS; i++)
		count.fault[i] -= rxq->base.fault[i];
	for (unsigned int i = 0; i < REPLAY_LATE_BINS; i++)
		count.late[i] -= rxq->base.late[i];
	return count;
}

/* There are queues, and each that any packet goes to has come to the end of its last loop. */
bool
replay_is_done(const struct rte_eth_dev *dev)
{
	for (uint16_t q = 0; q < dev->data->nb_rx_queues; q++) {
		const struct replay_rxq *rxq = dev->data->rx_queues[q];

		if (rxq == NULL || (!rxq->done && rxq->nb_mine != 0))
			return false;
	}
	return dev->data->nb_rx_queues != 0;
}

/* Loops that every queue has completed. */
static uint64_t
loops_done(const struct rte_eth_dev *dev)
{
	const struct replay_dev *replay = dev->data->dev_private;
	uint64_t loops = UINT64_MAX;

	for (uint16_t q = 0; q < dev->data->nb_rx_queues; q++) {
		const struct replay_rxq *rxq = dev->data->rx_queues[q];

		if (rxq == NULL || rxq->nb_mine == 0)
			continue;
		loops = RTE_MIN(loops,
			__atomic_load_n(&rxq->place, __ATOMIC_RELAXED) /
				replay->capture->nb_packets);
	}
	return loops == UINT64_MAX ? 0 : loops;
}

int
replay_stats_get(struct rte_eth_dev *dev, struct rte_eth_stats *stats COMPAT_QUEUE_STATS(qstats))
{
	COMPAT_QUEUE_STATS_FROM(stats, qstats);

	for (uint16_t q = 0; q < dev->data->nb_rx_queues; q++) {
		const struct replay_rxq *rxq = dev->data->rx_queues[q];
		struct replay_rx_counters count;

		if (rxq == NULL)
			continue;
		count = counters_since_reset(rxq);
		stats->ipackets += count.packets;
		stats->ibytes += count.bytes;
		stats->imissed += count.missed;
		stats->ierrors += count.oversize;
		stats->rx_nombuf += count.no_mbuf;
		if (qstats != NULL && q < RTE_ETHDEV_QUEUE_STAT_CNTRS) {
			qstats->q_ipackets[q] = count.packets;
			qstats->q_ibytes[q] = count.bytes;
			qstats->q_errors[q] = count.oversize;
		}
	}
	for (uint16_t q = 0; q < dev->data->nb_tx_queues; q++) {
		const struct replay_txq *txq = dev->data->tx_queues[q];

		if (txq == NULL)
			continue;
		stats->opackets += txq->count.packets - txq->base.packets;
		stats->obytes += txq->count.bytes - txq->base.bytes;
		stats->oerrors += txq->count.dropped - txq->base.dropped;
		if (qstats != NULL && q < RTE_ETHDEV_QUEUE_STAT_CNTRS) {
			qstats->q_opackets[q] = txq->count.packets - txq->base.packets;
			qstats->q_obytes[q] = txq->count.bytes - txq->base.bytes;
		}
	}
	return 0;
}

int
replay_stats_reset(struct rte_eth_dev *dev)
{
	struct replay_dev *replay = dev->data->dev_private;

	for (uint16_t q = 0; q < dev->data->nb_rx_queues; q++) {
		struct replay_rxq *rxq = dev->data->rx_queues[q];

		if (rxq == NULL)
			continue;
		rxq->base = rxq->count;
		/* a maximum begins anew; whoever polls meanwhile may bring the old one back */
		rxq->count.most_waiting = 0;
	}
	for (uint16_t q = 0; q < dev->data->nb_tx_queues; q++) {
		struct replay_txq *txq = dev->data->tx_queues[q];

		if (txq != NULL)
			txq->base = txq->count;
	}
	replay->flow_dropped_base = replay_flow_dropped(dev);
	return 0;
}

static const char *const xstat_names[] = {
	"replay_done",
	"replay_loops_done",
	"replay_references_outstanding",
	"replay_capture_packets",
	"replay_capture_bytes",
	"replay_capture_truncated_records",
	"replay_capture_empty_records",
	"rx_by_reference_packets",
	"rx_copied_packets",
	"rx_oversize_dropped_packets",
	"rx_flow_dropped_packets",
	"rx_most_waiting_packets",
	"rx_fault_lost_packets",
	"rx_fault_burst_lost_packets",
	"rx_fault_reordered_packets",
	"rx_fault_duplicated_packets",
	"rx_fault_corrupted_packets",
	"rx_fault_truncated_packets",
	"rx_late_under_64ns_packets",
	"rx_late_under_256ns_packets",
	"rx_late_under_1024ns_packets",
	"rx_late_under_4096ns_packets",
	"rx_late_under_16384ns_packets",
	"rx_late_under_65536ns_packets",
	"rx_late_under_262144ns_packets",
	"rx_late_under_1048576ns_packets",
	"rx_late_under_4194304ns_packets",
	"rx_late_more_packets",
};

static struct replay_rx_counters
counters_of_port(const struct rte_eth_dev *dev)
{
	struct replay_rx_counters sum = {0};

	for (uint16_t q = 0; q < dev->data->nb_rx_queues; q++) {
		const struct replay_rxq *rxq = dev->data->rx_queues[q];
		struct replay_rx_counters count;

		if (rxq == NULL)
			continue;
		count = counters_since_reset(rxq);
		sum.by_reference += count.by_reference;
		sum.copied += count.copied;
		sum.oversize += count.oversize;
		sum.most_waiting = RTE_MAX(sum.most_waiting, count.most_waiting);
		for (unsigned int i = 0; i < REPLAY_FAULTS; i++)
			sum.fault[i] += count.fault[i];
		for (unsigned int i = 0; i < REPLAY_LATE_BINS; i++)
			sum.late[i] += count.late[i];
	}
	return sum;
}

int
replay_xstats_get(struct rte_eth_dev *dev, struct rte_eth_xstat *xstats, unsigned int n)
{
	const struct replay_dev *replay = dev->data->dev_private;
	const struct replay_capture *capture = replay->capture;
	const struct replay_rx_counters sum = counters_of_port(dev);

	if (xstats == NULL || n < RTE_DIM(xstat_names))
		return RTE_DIM(xstat_names);
	/* in the order of xstat_names */
	const uint64_t values[] = {
		replay_is_done(dev),
		loops_done(dev),
		replay_capture_references(capture),
		capture->nb_packets,
		capture->bytes,
		capture->truncated,
		capture->empty,
		sum.by_reference,
		sum.copied,
		sum.oversize,
		replay_flow_dropped(dev) - replay->flow_dropped_base,
		sum.most_waiting,
		sum.fault[REPLAY_LOSS],
		sum.fault[REPLAY_BURST_LOSS],
		sum.fault[REPLAY_REORDER],
		sum.fault[REPLAY_DUPLICATE],
		sum.fault[REPLAY_CORRUPT],
		sum.fault[REPLAY_TRUNCATE],
		sum.late[0],
		sum.late[1],
		sum.late[2],
		sum.late[3],
		sum.late[4],
		sum.late[5],
		sum.late[6],
		sum.late[7],
		sum.late[8],
		sum.late[9],
	};
	static_assert(REPLAY_FAULTS == 6 && REPLAY_LATE_BINS == 10, "as many are listed");
	static_assert(RTE_DIM(values) == RTE_DIM(xstat_names), "a value for each name");

	for (unsigned int i = 0; i < RTE_DIM(values); i++) {
		xstats[i].id = i;
		xstats[i].value = values[i];
	}
	return RTE_DIM(values);
}

int
replay_xstats_get_names(struct rte_eth_dev *dev, struct rte_eth_xstat_name *names, unsigned int n)
{
	if (names == NULL || n < RTE_DIM(xstat_names))
		return RTE_DIM(xstat_names);
	for (unsigned int i = 0; i < RTE_DIM(xstat_names); i++)
		rte_strscpy(names[i].name, xstat_names[i], sizeof(names[i].name));
	return RTE_DIM(xstat_names);
}
