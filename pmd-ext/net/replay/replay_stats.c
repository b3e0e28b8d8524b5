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
	return count;
}

/* Every queue that any packet goes to has come to the end of its last loop. */
bool
replay_is_done(const struct rte_eth_dev *dev)
{
	const struct replay_dev *replay = dev->data->dev_private;

	for (uint16_t q = 0; q < dev->data->nb_rx_queues; q++) {
		const struct replay_rxq *rxq = dev->data->rx_queues[q];

		if (rxq != NULL && !rxq->done && replay->packets_of[q] != 0)
			return false;
	}
	return true;
}

/* Loops that every queue has completed. */
static uint64_t
loops_done(const struct rte_eth_dev *dev)
{
	const struct replay_dev *replay = dev->data->dev_private;
	uint64_t loops = UINT64_MAX;

	for (uint16_t q = 0; q < dev->data->nb_rx_queues; q++) {
		const struct replay_rxq *rxq = dev->data->rx_queues[q];

		if (rxq != NULL && replay->packets_of[q] != 0)
			loops = RTE_MIN(loops, rxq->loop);
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
		stats->opackets += txq->packets - txq->base_packets;
		stats->obytes += txq->bytes - txq->base_bytes;
		if (qstats != NULL && q < RTE_ETHDEV_QUEUE_STAT_CNTRS) {
			qstats->q_opackets[q] = txq->packets - txq->base_packets;
			qstats->q_obytes[q] = txq->bytes - txq->base_bytes;
		}
	}
	return 0;
}

int
replay_stats_reset(struct rte_eth_dev *dev)
{
	for (uint16_t q = 0; q < dev->data->nb_rx_queues; q++) {
		struct replay_rxq *rxq = dev->data->rx_queues[q];

		if (rxq != NULL)
			rxq->base = rxq->count;
	}
	for (uint16_t q = 0; q < dev->data->nb_tx_queues; q++) {
		struct replay_txq *txq = dev->data->tx_queues[q];

		if (txq == NULL)
			continue;
		txq->base_packets = txq->packets;
		txq->base_bytes = txq->bytes;
	}
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
};

int
replay_xstats_get(struct rte_eth_dev *dev, struct rte_eth_xstat *xstats, unsigned int n)
{
	const struct replay_dev *replay = dev->data->dev_private;
	const struct replay_capture *capture = replay->capture;
	uint64_t by_reference = 0, copied = 0, oversize = 0;

	if (xstats == NULL || n < RTE_DIM(xstat_names))
		return RTE_DIM(xstat_names);
	for (uint16_t q = 0; q < dev->data->nb_rx_queues; q++) {
		const struct replay_rxq *rxq = dev->data->rx_queues[q];
		struct replay_rx_counters count;

		if (rxq == NULL)
			continue;
		count = counters_since_reset(rxq);
		by_reference += count.by_reference;
		copied += count.copied;
		oversize += count.oversize;
	}
	/* in the order of xstat_names */
	const uint64_t values[] = {
		replay_is_done(dev),
		loops_done(dev),
		replay_capture_references(capture),
		capture->nb_packets,
		capture->bytes,
		capture->truncated,
		capture->empty,
		by_reference,
		copied,
		oversize,
	};
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
