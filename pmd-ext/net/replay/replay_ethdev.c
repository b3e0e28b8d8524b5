/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net_replay: an Ethernet device that receives the packets of a capture file. It replaces an RNIC:
 * buffer split, payloads by reference, flow rules, several queues.
 */
#include <pthread.h>
#include <errno.h>
#include <inttypes.h>

#include <ethdev_vdev.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_ether.h>
#include <rte_flow_driver.h>

#include "replay.h"

RTE_LOG_REGISTER_SUFFIX(replay_logtype, replay, NOTICE);

#define REPLAY_RX_OFFLOADS                                                     \
	(RTE_ETH_RX_OFFLOAD_SCATTER | RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT |        \
		RTE_ETH_RX_OFFLOAD_TIMESTAMP | RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | \
		RTE_ETH_RX_OFFLOAD_UDP_CKSUM)

static int
replay_configure(struct rte_eth_dev *dev)
{
	int queue = replay_flow_queue_max(dev->data->dev_private);

	if (queue >= dev->data->nb_rx_queues) {
		REPLAY_LOG(ERR, "%s: a flow rule uses Rx queue %d, only %u are configured",
			dev->data->name, queue, dev->data->nb_rx_queues);
		return -EINVAL;
	}
	return 0;
}

/*
 * Aligns the attached payloads to cache lines. The arena is laid out for the byte at which queues
 * split, which is only known at the start. Without split, it is laid out for align_at.
 */
static int
lay_out_capture(struct rte_eth_dev *dev)
{
	struct replay_dev *replay = dev->data->dev_private;
	const struct replay_rxq *first = NULL;
	uint32_t align_at = replay->args.align_at;
	bool lend = false;
	int ret;

	for (uint16_t q = 0; q < dev->data->nb_rx_queues; q++) {
		const struct replay_rxq *rxq = dev->data->rx_queues[q];

		lend |= rxq->mode != REPLAY_COPY;
		if (rxq->mode != REPLAY_REFERENCE_SPLIT)
			continue;
		if (first == NULL) {
			first = rxq;
			align_at = rxq->first_room;
		} else if ((rxq->first_room - first->first_room) % REPLAY_LINE != 0) {
			REPLAY_LOG(ERR,
				"%s: queue %u splits at byte %u, queue %u at byte %u; payloads "
				"by reference start on %u-byte lines only if all queues split at "
				"the same byte",
				dev->data->name, first->id, first->first_room, rxq->id,
				rxq->first_room, REPLAY_LINE);
			return -ENOTSUP;
		}
	}
	if (!lend)
		return 0; /* copies are placed by their mbuf */
	ret = replay_capture_align(replay->capture, align_at);
	if (ret == -EBUSY)
		REPLAY_LOG(ERR,
			"%s: cannot align the capture at byte %u (now at %u): %" PRIu64 " "
			"references to its packets are in use",
			dev->data->name, align_at % REPLAY_LINE, replay->capture->align,
			replay_capture_references(replay->capture));
	if (ret == 0 && first != NULL && replay->memory.copy != NULL)
		ret = replay_capture_place(replay->capture, dev->data->name, &replay->memory);
	replay->capture->lent |= ret == 0;
	return ret;
}

static int
check_queues(const struct rte_eth_dev *dev, const char *way, void **queues, uint16_t n)
{
	for (uint16_t q = 0; q < n; q++) {
		if (queues[q] != NULL)
			continue;
		REPLAY_LOG(ERR, "%s: %s queue %u of %u is not set up", dev->data->name, way, q, n);
		return -EINVAL;
	}
	return 0;
}

/* Set the status of the link, which other threads read and set at any time. */
static void
set_link(struct rte_eth_dev *dev, uint16_t status)
{
	const struct rte_eth_link link = {
		.link_speed = RTE_ETH_SPEED_NUM_UNKNOWN,
		.link_duplex = RTE_ETH_LINK_FULL_DUPLEX,
		.link_autoneg = RTE_ETH_LINK_FIXED,
		.link_status = status,
	};

	(void)rte_eth_linkstatus_set(dev, &link);
}

static int
replay_start(struct rte_eth_dev *dev)
{
	struct replay_dev *replay = dev->data->dev_private;
	int ret;

	ret = check_queues(dev, "Rx", dev->data->rx_queues, dev->data->nb_rx_queues);
	if (ret == 0)
		ret = check_queues(dev, "Tx", dev->data->tx_queues, dev->data->nb_tx_queues);
	if (ret == 0)
		ret = lay_out_capture(dev);
	if (ret < 0)
		return ret;
	replay->clock = 0;
	for (uint16_t q = 0; q < dev->data->nb_rx_queues; q++) {
		struct replay_rxq *rxq = dev->data->rx_queues[q];

		__atomic_store_n(&rxq->place, 0, __ATOMIC_RELAXED);
		rxq->loop = 0;
		rxq->next = 0;
		rxq->clock = 0;
		rxq->done = false;
		rxq->again = false;
		rxq->burst = (struct replay_burst){0};
		rxq->window.number = UINT64_MAX;
		dev->data->rx_queue_state[q] = RTE_ETH_QUEUE_STATE_STARTED;
	}
	replay_flow_restart(dev);
	for (uint16_t q = 0; q < dev->data->nb_tx_queues; q++)
		dev->data->tx_queue_state[q] = RTE_ETH_QUEUE_STATE_STARTED;
	set_link(dev, RTE_ETH_LINK_UP);
	return 0;
}

static int
replay_stop(struct rte_eth_dev *dev)
{
	replay_flow_settle(dev);
	for (uint16_t q = 0; q < dev->data->nb_rx_queues; q++)
		dev->data->rx_queue_state[q] = RTE_ETH_QUEUE_STATE_STOPPED;
	for (uint16_t q = 0; q < dev->data->nb_tx_queues; q++)
		dev->data->tx_queue_state[q] = RTE_ETH_QUEUE_STATE_STOPPED;
	set_link(dev, RTE_ETH_LINK_DOWN);
	replay_tx_flush(dev->data->dev_private);
	return 0;
}

/*
 * ethdev calls drivers without a lock. Its telemetry thread requests statistics and the link status
 * also while a port is closed or a queue is set up again. Both are derived from the queues, so
 * queues are released under this lock. It is not part of the port, because the port is released,
 * too.
 */
static pthread_mutex_t queues_lock = PTHREAD_MUTEX_INITIALIZER;

static int
replay_locked_stats_get(struct rte_eth_dev *dev, struct rte_eth_stats *stats)
{
	int ret = -ENODEV;

	pthread_mutex_lock(&queues_lock);
	if (dev->data->dev_private != NULL)
		ret = replay_stats_get(dev, stats);
	pthread_mutex_unlock(&queues_lock);
	return ret;
}

static int
replay_locked_stats_reset(struct rte_eth_dev *dev)
{
	int ret = -ENODEV;

	pthread_mutex_lock(&queues_lock);
	if (dev->data->dev_private != NULL)
		ret = replay_stats_reset(dev);
	pthread_mutex_unlock(&queues_lock);
	return ret;
}

static int
replay_locked_xstats_get(struct rte_eth_dev *dev, struct rte_eth_xstat *xstats, unsigned int n)
{
	int ret = -ENODEV;

	pthread_mutex_lock(&queues_lock);
	if (dev->data->dev_private != NULL)
		ret = replay_xstats_get(dev, xstats, n);
	pthread_mutex_unlock(&queues_lock);
	return ret;
}

static void
replay_locked_rx_queue_release(struct rte_eth_dev *dev, uint16_t queue)
{
	pthread_mutex_lock(&queues_lock);
	replay_rx_queue_release(dev, queue);
	pthread_mutex_unlock(&queues_lock);
}

static void
replay_locked_tx_queue_release(struct rte_eth_dev *dev, uint16_t queue)
{
	pthread_mutex_lock(&queues_lock);
	replay_tx_queue_release(dev, queue);
	pthread_mutex_unlock(&queues_lock);
}

static void
free_port(struct rte_eth_dev *dev)
{
	struct replay_dev *replay = dev->data->dev_private;

	for (uint16_t q = 0; q < dev->data->nb_rx_queues; q++)
		replay_rx_queue_release(dev, q);
	for (uint16_t q = 0; q < dev->data->nb_tx_queues; q++)
		replay_tx_queue_release(dev, q);
	replay_tx_close(replay);
	replay_flow_fini(replay);
	replay_pace_fini(&replay->pace);
	replay_capture_release(replay->capture, dev->data->name);
	replay->capture = NULL;
	replay_devargs_free(&replay->args);
	dev->data->mac_addrs = NULL; /* part of dev_private, must not be freed alone */
	/* cleared here, not by ethdev: threads that wait for the lock must see it */
	dev->data->dev_private = NULL;
	rte_free(replay);
}

static int
replay_close(struct rte_eth_dev *dev)
{
	if (rte_eal_process_type() != RTE_PROC_PRIMARY)
		return 0;
	pthread_mutex_lock(&queues_lock);
	free_port(dev);
	pthread_mutex_unlock(&queues_lock);
	return 0;
}

static int
replay_infos_get(struct rte_eth_dev *dev, struct rte_eth_dev_info *info)
{
	const struct replay_dev *replay = dev->data->dev_private;

	info->max_mac_addrs = 1;
	info->max_rx_pktlen = REPLAY_FRAME_MAX;
	info->max_mtu = REPLAY_FRAME_MAX - RTE_ETHER_HDR_LEN - RTE_ETHER_CRC_LEN;
	info->min_rx_bufsize = 0; /* a pool without room receives references */
	info->max_rx_queues = replay->args.queues;
	info->max_tx_queues = replay->args.queues;
	info->rx_offload_capa = info->rx_queue_offload_capa = REPLAY_RX_OFFLOADS;
	info->tx_offload_capa = info->tx_queue_offload_capa = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	info->dev_capa = RTE_ETH_DEV_CAPA_FLOW_RULE_KEEP;
	info->rx_seg_capa.multi_pools = 1;
	info->rx_seg_capa.offset_allowed = 1;
	info->rx_seg_capa.offset_align_log2 = 0;
	info->rx_seg_capa.max_nseg = 2;
	info->default_rxportconf.burst_size = 64;
	info->default_rxportconf.ring_size = 512;
	info->default_rxportconf.nb_queues = 1;
	info->default_txportconf = info->default_rxportconf;
	return 0;
}

static const uint32_t replay_ptypes[] = {
	RTE_PTYPE_L2_ETHER,
	RTE_PTYPE_L3_IPV4,
	RTE_PTYPE_L3_IPV4_EXT,
	RTE_PTYPE_L4_FRAG,
	RTE_PTYPE_L4_UDP,
	RTE_PTYPE_UNKNOWN,
};

static const uint32_t *
replay_ptypes_get(struct rte_eth_dev *dev COMPAT_PTYPES_COUNT(count))
{
	COMPAT_PTYPES_RETURN(replay_ptypes, count);
}

/* The link goes down when the last packet has been received. Without Rx queues it stays up. */
static int
replay_locked_link_update(struct rte_eth_dev *dev, int wait_to_complete)
{
	int ret = -ENODEV;
	bool up;

	pthread_mutex_lock(&queues_lock);
	if (dev->data->dev_private != NULL) {
		up = dev->data->dev_started && !replay_is_done(dev);
		set_link(dev, up ? RTE_ETH_LINK_UP : RTE_ETH_LINK_DOWN);
		ret = 0;
	}
	pthread_mutex_unlock(&queues_lock);
	return ret;
}

/* Packets are delivered unchanged: the port's address, mode and MTU have no effect. */
static int
replay_accept(struct rte_eth_dev *dev)
{
	return 0;
}

static int
replay_mtu_set(struct rte_eth_dev *dev, uint16_t mtu)
{
	return 0;
}

static int
replay_mac_addr_set(struct rte_eth_dev *dev, struct rte_ether_addr *addr)
{
	return 0;
}

/* Clock of the time stamps: the TSC. */
static int
replay_read_clock(struct rte_eth_dev *dev, uint64_t *clock)
{
	*clock = rte_rdtsc();
	return 0;
}

static int
replay_flow_ops_get(struct rte_eth_dev *dev, const struct rte_flow_ops **ops)
{
	*ops = &replay_flow_ops;
	return 0;
}

const struct eth_dev_ops replay_ops = {
	.dev_configure = replay_configure,
	.dev_start = replay_start,
	.dev_stop = replay_stop,
	.dev_close = replay_close,
	.dev_infos_get = replay_infos_get,
	.dev_supported_ptypes_get = replay_ptypes_get,
	.link_update = replay_locked_link_update,
	.promiscuous_enable = replay_accept,
	.promiscuous_disable = replay_accept,
	.allmulticast_enable = replay_accept,
	.allmulticast_disable = replay_accept,
	.mac_addr_set = replay_mac_addr_set,
	.mtu_set = replay_mtu_set,
	.rx_queue_setup = replay_rx_queue_setup,
	.rx_queue_release = replay_locked_rx_queue_release,
	.tx_queue_setup = replay_tx_queue_setup,
	.tx_queue_release = replay_locked_tx_queue_release,
	.rxq_info_get = replay_rxq_info_get,
	.txq_info_get = replay_txq_info_get,
	.rx_burst_mode_get = replay_rx_burst_mode_get,
	.stats_get = replay_locked_stats_get,
	.stats_reset = replay_locked_stats_reset,
	.xstats_get = replay_locked_xstats_get,
	.xstats_get_names = replay_xstats_get_names,
	.xstats_reset = replay_locked_stats_reset,
	.read_clock = replay_read_clock,
	.flow_ops_get = replay_flow_ops_get,
};

static int
replay_create(struct rte_vdev_device *vdev, struct replay_devargs *args)
{
	const int socket = vdev->device.numa_node;
	struct rte_eth_dev *dev;
	struct replay_dev *replay;
	int ret;

	dev = rte_eth_vdev_allocate(vdev, sizeof(*replay));
	if (dev == NULL) {
		REPLAY_LOG(ERR, "%s: cannot allocate an ethdev port", args->name);
		return -ENOMEM;
	}
	replay = dev->data->dev_private;
	replay->socket = socket;
	replay->ns_per_cycle = (1000000000ull << 32) / rte_get_tsc_hz();
	ret = replay_capture_load(&replay->capture, args, socket);
	if (ret < 0)
		goto release_port;
	replay->args = *args;
	ret = replay_pace_init(&replay->pace, args, replay->capture, socket);
	if (ret < 0)
		goto release_capture;
	ret = replay_flow_init(replay);
	if (ret < 0)
		goto release_pace;
	ret = replay_tx_open(replay);
	if (ret < 0)
		goto release_flows;
	*args = (struct replay_devargs){0}; /* now owned by the port */

	rte_eth_random_addr(replay->mac.addr_bytes);
	dev->data->mac_addrs = &replay->mac;
	set_link(dev, RTE_ETH_LINK_DOWN);
	dev->data->promiscuous = 1;
	dev->data->all_multicast = 1;
	dev->data->dev_flags |= RTE_ETH_DEV_AUTOFILL_QUEUE_XSTATS;
	dev->dev_ops = &replay_ops;
	dev->rx_pkt_burst = replay_rx_burst;
	dev->tx_pkt_burst = replay_tx_burst;
	dev->rx_queue_count = replay_rx_queue_count;
	REPLAY_LOG(INFO, "%s: %s%s, %u packets, %" PRIu64 " bytes", dev->data->name,
		replay->args.files[0], replay->args.nb_files > 1 ? " and others" : "",
		replay->capture->nb_packets, replay->capture->bytes);
	rte_eth_dev_probing_finish(dev);
	return 0;

release_flows:
	replay_flow_fini(replay);
release_pace:
	replay_pace_fini(&replay->pace);
release_capture:
	replay_capture_release(replay->capture, dev->data->name);
release_port:
	rte_eth_dev_release_port(dev);
	return ret;
}

static int
replay_probe(struct rte_vdev_device *vdev)
{
	const char *name = rte_vdev_device_name(vdev);
	struct replay_devargs args;
	int ret;

	if (rte_eal_process_type() != RTE_PROC_PRIMARY) {
		/* the file name and the pool caches belong to the primary process */
		REPLAY_LOG(ERR, "%s: a replay port is available in the primary process only", name);
		return -ENOTSUP;
	}
	ret = replay_devargs_parse(&args, name, rte_vdev_device_args(vdev));
	if (ret < 0)
		return ret;
	ret = replay_create(vdev, &args);
	replay_devargs_free(&args);
	return ret;
}

static int
replay_remove(struct rte_vdev_device *vdev)
{
	struct rte_eth_dev *dev = rte_eth_dev_allocated(rte_vdev_device_name(vdev));

	if (dev == NULL)
		return 0; /* already closed */
	/* a poll that begins later receives nothing */
	if (dev->data->dev_started)
		(void)rte_eth_dev_stop(dev->data->port_id);
	replay_close(dev);
	return rte_eth_dev_release_port(dev);
}

/* No mapping needed: the arena is ordinary EAL memory, and other memory is accessed through
 * net_replay_place(). */
static int
replay_dma_map(struct rte_vdev_device *vdev, void *addr, uint64_t iova, size_t len)
{
	return 0;
}

static struct rte_vdev_driver replay_driver = {
	.probe = replay_probe,
	.remove = replay_remove,
	.dma_map = replay_dma_map,
	.dma_unmap = replay_dma_map,
	/* a packet may cross a page boundary: it is contiguous for a device only with virtual
	 * addresses */
	.drv_flags = RTE_VDEV_DRV_NEED_IOVA_AS_VA,
};

RTE_PMD_REGISTER_VDEV(net_replay, replay_driver);
RTE_PMD_REGISTER_PARAM_STRING(net_replay,
	"file=<path> "
	"loops=<int> "
	"rate=<packets per second> "
	"bps=<bits per second> "
	"speed=<factor> "
	"burst=<packets>:<ns> "
	"queues=<int> "
	"align_at=<int> "
	"rewrite=<offset>:<length>:le|be:<step> "
	"roce=<step>[:<slots>:<slot bytes>[:<leader>]] "
	"seed=<int> "
	"loss=<probability> "
	"burst_loss=<probability>:<packets> "
	"reorder=<probability>:<window> "
	"duplicate=<probability> "
	"corrupt=<probability> "
	"truncate=<probability> "
	"overrun=wait|drop "
	"timestamp=arrival|captured "
	"tx=count|drop|file:<path>");
