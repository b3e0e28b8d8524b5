/* SPDX-License-Identifier: BSD-3-Clause */
/* Statistics. The polling lcores write the counters; a reset only stores their current values. */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include <rte_string_fns.h>

#include "replay.h"

static_assert(sizeof(struct replay_rx_counters) % sizeof(uint64_t) == 0, "counters and no more");

/* Adds up all counters; most_waiting is a maximum. */
static void
add_rx(struct replay_rx_counters *sum, const struct replay_rx_counters *count,
	const struct replay_rx_counters *base)
{
	const uint64_t waiting = counter_get(&count->most_waiting);
	const uint64_t most = RTE_MAX(sum->most_waiting, waiting);

	for (size_t i = 0; i < sizeof(*sum) / sizeof(uint64_t); i++)
		((uint64_t *)sum)[i] +=
			counter_get((const uint64_t *)count + i) - ((const uint64_t *)base)[i];
	sum->most_waiting = most;
}

static void
add_tx(struct replay_tx_counters *sum, const struct replay_txq *txq)
{
	sum->packets += counter_get(&txq->count.packets) - txq->base.packets;
	sum->bytes += counter_get(&txq->count.bytes) - txq->base.bytes;
	sum->dropped += counter_get(&txq->count.dropped) - txq->base.dropped;
}

void
replay_stats_keep_rx(struct replay_rxq *rxq)
{
	add_rx(&rxq->dev->removed_rx, &rxq->count, &rxq->base);
}

void
replay_stats_keep_tx(struct replay_txq *txq)
{
	add_tx(&txq->dev->removed_tx, txq);
}

/* True if there are queues, and each queue that has packets has completed its last loop. */
bool
replay_is_done(const struct rte_eth_dev *dev)
{
	for (uint16_t q = 0; q < dev->data->nb_rx_queues; q++) {
		const struct replay_rxq *rxq = dev->data->rx_queues[q];

		if (rxq == NULL ||
			(!__atomic_load_n(&rxq->done, __ATOMIC_ACQUIRE) && rxq->nb_mine != 0))
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

static struct replay_rx_counters
counters_of_port(const struct rte_eth_dev *dev)
{
	const struct replay_dev *replay = dev->data->dev_private;
	struct replay_rx_counters sum = replay->removed_rx;

	for (uint16_t q = 0; q < dev->data->nb_rx_queues; q++) {
		const struct replay_rxq *rxq = dev->data->rx_queues[q];

		if (rxq != NULL)
			add_rx(&sum, &rxq->count, &rxq->base);
	}
	return sum;
}

static uint64_t
all_waits(const struct replay_rx_counters *count)
{
	uint64_t waits = 0;

	for (unsigned int i = 0; i < REPLAY_WAITS; i++)
		waits += count->wait[i];
	return waits;
}

int
replay_stats_get(struct rte_eth_dev *dev, struct rte_eth_stats *stats COMPAT_QUEUE_STATS(qstats))
{
	const struct replay_dev *replay = dev->data->dev_private;
	const struct replay_rx_counters rx = counters_of_port(dev);
	struct replay_tx_counters tx = replay->removed_tx;
	COMPAT_QUEUE_STATS_FROM(stats, qstats);

	stats->ipackets = rx.packets;
	stats->ibytes = rx.bytes;
	stats->imissed = rx.missed;
	stats->ierrors = rx.oversize;
	stats->rx_nombuf = all_waits(&rx);
	for (uint16_t q = 0; q < dev->data->nb_rx_queues; q++) {
		const struct replay_rxq *rxq = dev->data->rx_queues[q];

		if (rxq == NULL || qstats == NULL || q >= RTE_ETHDEV_QUEUE_STAT_CNTRS)
			continue;
		qstats->q_ipackets[q] = counter_get(&rxq->count.packets) - rxq->base.packets;
		qstats->q_ibytes[q] = counter_get(&rxq->count.bytes) - rxq->base.bytes;
		qstats->q_errors[q] = counter_get(&rxq->count.oversize) - rxq->base.oversize;
	}
	for (uint16_t q = 0; q < dev->data->nb_tx_queues; q++) {
		const struct replay_txq *txq = dev->data->tx_queues[q];

		if (txq == NULL)
			continue;
		add_tx(&tx, txq);
		if (qstats != NULL && q < RTE_ETHDEV_QUEUE_STAT_CNTRS) {
			qstats->q_opackets[q] =
				counter_get(&txq->count.packets) - txq->base.packets;
			qstats->q_obytes[q] = counter_get(&txq->count.bytes) - txq->base.bytes;
		}
	}
	stats->opackets = tx.packets;
	stats->obytes = tx.bytes;
	stats->oerrors = tx.dropped;
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
		counters_get(&rxq->base, &rxq->count, sizeof(rxq->count));
		/* reset the maximum; a concurrent poll may restore the old value */
		counter_set(&rxq->count.most_waiting, 0);
	}
	for (uint16_t q = 0; q < dev->data->nb_tx_queues; q++) {
		struct replay_txq *txq = dev->data->tx_queues[q];

		if (txq != NULL)
			counters_get(&txq->base, &txq->count, sizeof(txq->count));
	}
	replay->removed_rx = (struct replay_rx_counters){0};
	replay->removed_tx = (struct replay_tx_counters){0};
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
	"rx_no_mbuf_bursts",
	"rx_references_full_bursts",
	"rx_no_spare_bursts",
	"rx_copy_failed_bursts",
	"rx_earlier_loop_bursts",
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
		sum.wait[REPLAY_WAIT_MBUF],
		sum.wait[REPLAY_WAIT_REFERENCE],
		sum.wait[REPLAY_WAIT_SPARE],
		sum.wait[REPLAY_WAIT_COPY],
		sum.wait[REPLAY_WAIT_LOOP],
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
	static_assert(REPLAY_FAULTS == 6 && REPLAY_LATE_BINS == 10 && REPLAY_WAITS == 5,
		"as many are listed");
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
