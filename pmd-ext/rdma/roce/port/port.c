/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_devargs.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_spinlock.h>

#include <ethdev_driver.h>

#include "engine/frame.h"
#include "engine/engine.h"
#include "engine/pages.h"
#include "ethdev_conf.h"
#include "port/port.h"
#include "rdma_roce.h"

#define DESCRIPTORS 1024
#define POOL_SPARE  1023 /* frames held by the control lcore */
#define POOL_CACHE  256
/* Poll groups free copies from the control pool but never allocate from it. Mbufs that stay in
 * their caches are unusable, so the pool is larger by the capacity of all caches. */
#define CONTROL_CACHE	   32
#define CONTROL_CACHE_MOST 48 /* a cache is flushed above one and a half times its size */

/** Open devices. The ethdev callback of a removed port runs in an EAL thread or in the thread that
 * removes the port. */
static TAILQ_HEAD(, roce_dev) devices = TAILQ_HEAD_INITIALIZER(devices);
static rte_spinlock_t devices_lock = RTE_SPINLOCK_INITIALIZER;

/** Callback of ethdev: a port is being removed, or was removed. */
static int
port_event(uint16_t port, enum rte_eth_event_type type, void *arg, void *ret)
{
	struct roce_dev *dev;

	rte_spinlock_lock(&devices_lock);
	TAILQ_FOREACH(dev, &devices, next)
		if (dev->port == port)
			atomic_store_explicit(&dev->port_state,
				type == RTE_ETH_EVENT_DESTROY ? ROCE_PORT_GONE : ROCE_PORT_GOING,
				memory_order_release);
	rte_spinlock_unlock(&devices_lock);
	return 0;
}

/** Register for all ports, permanently: a callback cannot be unregistered from a removed port. */
static int
register_port_events(void)
{
	static bool done;
	int ret = 0;

	if (!done)
		ret = rte_eth_dev_callback_register(
			RTE_ETH_ALL, RTE_ETH_EVENT_INTR_RMV, port_event, NULL);
	if (!done && ret == 0)
		ret = rte_eth_dev_callback_register(
			RTE_ETH_ALL, RTE_ETH_EVENT_DESTROY, port_event, NULL);
	done = ret == 0;
	return ret;
}

const struct roce_dev *
roce_port_next(const struct roce_port *port, const struct roce_dev *dev)
{
	do
		dev = dev ? TAILQ_NEXT(dev, next) : TAILQ_FIRST(&devices);
	while (dev && dev->shared != port);
	return dev;
}

static void
queues_set(struct roce_dev *dev, bool taken)
{
	uint16_t i, q;

	for (i = 0; i < dev->nb_poll_groups; i++) {
		q = dev->queue + i;
		if (taken)
			dev->shared->taken[q / 64] |= RTE_BIT64(q % 64);
		else
			dev->shared->taken[q / 64] &= ~RTE_BIT64(q % 64);
	}
}

/**
 * Return true if queues of the device are in use by another device, or out of the range of queue
 * ids.
 */
static bool
queues_taken(const struct roce_dev *dev, const struct roce_port *port)
{
	uint16_t i, q;

	if (dev->queue + dev->nb_poll_groups > RTE_MAX_QUEUES_PER_PORT)
		return true;
	for (i = 0; i < dev->nb_poll_groups; i++) {
		q = dev->queue + i;
		if (port->taken[q / 64] & RTE_BIT64(q % 64))
			return true;
	}
	return false;
}

/** Share the port with the devices that already use it. @return 0; -EBUSY, -ENOMEM */
static int
port_share(struct roce_dev *dev)
{
	struct roce_port *port = NULL;
	struct roce_dev *other;

	/* skip devices of a removed port that had the same id */
	TAILQ_FOREACH(other, &devices, next)
		if (other->port == dev->port && other->port_state != ROCE_PORT_GONE)
			port = other->shared;
	if (!port)
		port = rte_zmalloc("roce_port", sizeof(*port), RTE_CACHE_LINE_SIZE);
	if (!port)
		return -ENOMEM;
	if (queues_taken(dev, port) || port->nb_devices == ROCE_SIBLINGS_MAX) {
		if (port->nb_devices == 0)
			rte_free(port);
		return -EBUSY;
	}
	port->id = dev->port;
	port->nb_devices++;
	dev->shared = port;
	queues_set(dev, true);
	rte_spinlock_lock(&devices_lock);
	TAILQ_INSERT_TAIL(&devices, dev, next);
	rte_spinlock_unlock(&devices_lock);
	return 0;
}

static bool
is_virtual(uint16_t port)
{
	struct rte_eth_dev_info info;

	if (rte_eth_dev_info_get(port, &info) < 0 || !info.device)
		return true;
	return strcmp(rte_bus_name(rte_dev_bus(info.device)), "vdev") == 0;
}

/** Largest path MTU that fits the port's MTU. @return 0: none */
static uint16_t
path_mtu(uint16_t port_mtu)
{
	uint16_t mtu;

	for (mtu = 4096; mtu >= 256; mtu /= 2)
		if (mtu + RDMA_ROCE_OVERHEAD <= port_mtu)
			return mtu;
	return 0;
}

/** Create a pool of n mbufs, each with room for a frame of the port. */
static struct rte_mempool *
pool_make(struct roce_dev *dev, const char *what, uint16_t port_mtu, unsigned int n,
	unsigned int cache)
{
	/* net_af_packet requires the size of its ring's frames, independent of the MTU */
	const unsigned int room = RTE_ALIGN(
		RTE_MAX(port_mtu + RTE_ETHER_HDR_LEN + RTE_VLAN_HLEN, RTE_MBUF_DEFAULT_DATAROOM),
		64);

	return roce_pool_make(dev, what, n, cache, RTE_PKTMBUF_HEADROOM + room);
}

/**
 * Return true if the port is the client of a memif. It starts only if the server's process runs;
 * otherwise the error is EPERM.
 * @param socket  out: path of the socket
 */
static bool
is_client_of_socket(const struct rte_eth_dev_info *info, char *socket, size_t size)
{
	static const char key[] = ",socket=";
	const struct rte_devargs *devargs = info->device->devargs;
	char args[256];
	const char *path;

	if (strcmp(info->driver_name, "net_memif") != 0 || devargs == NULL || devargs->args == NULL)
		return false;
	snprintf(args, sizeof(args), ",%s,", devargs->args);
	path = strstr(args, key);
	if (path == NULL || strstr(args, ",role=client,") == NULL)
		return false;
	path += strlen(key);
	snprintf(socket, size, "%.*s", (int)strcspn(path, ","), path);
	return true;
}

/** Configure and start a port that the application has not configured. */
static int
port_start(struct roce_dev *dev, const struct rte_eth_dev_info *info)
{
	const uint64_t rss = info->flow_type_rss_offloads &
		(RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV6_UDP);
	const uint16_t queues = dev->queue + dev->nb_poll_groups;
	struct roce_port *port = dev->shared;
	const uint16_t mtu = RTE_MAX(dev->mtu + RDMA_ROCE_OVERHEAD, RTE_ETHER_MTU);
	struct rte_eth_conf conf = ethdev_conf(info, mtu);
	uint16_t q, rxd = DESCRIPTORS, txd = DESCRIPTORS;
	char socket[128];
	int ret;

	conf.txmode.offloads = info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	if (queues > 1 && !dev->handover && rss) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = rss;
	}
	port->ours = true;
	ret = rte_eth_dev_configure(dev->port, queues, queues, &conf);
	if (ret == 0)
		ret = rte_eth_dev_adjust_nb_rx_tx_desc(dev->port, &rxd, &txd);
	if (ret == 0) {
		port->pool = pool_make(
			dev, "rx", mtu, POOL_SPARE + queues * (rxd + 2 * POOL_CACHE), POOL_CACHE);
		ret = port->pool ? 0 : -ENOMEM;
	}
	for (q = 0; ret == 0 && q < queues; q++) {
		ret = rte_eth_rx_queue_setup(dev->port, q, rxd, dev->numa_node, NULL, port->pool);
		if (ret == 0)
			ret = rte_eth_tx_queue_setup(dev->port, q, txd, dev->numa_node, NULL);
	}
	if (ret == 0)
		ret = rte_eth_dev_start(dev->port);
	if (ret < 0 && is_client_of_socket(info, socket, sizeof(socket))) {
		RDMA_LOG(ERR, "port %u: no process listens on %s; start the memif's server first",
			dev->port, socket);
		return -ECONNREFUSED;
	}
	if (ret < 0)
		RDMA_LOG(ERR, "port %u: cannot start with %u queues and MTU %u: %s", dev->port,
			queues, conf.rxmode.mtu, rte_strerror(-ret));
	return ret;
}

/** Return true if the port, or a queue of the device, assumes that all mbufs are from one pool. */
static bool
has_fast_free(const struct roce_dev *dev)
{
	uint64_t offloads = rte_eth_devices[dev->port].data->dev_conf.txmode.offloads;
	struct rte_eth_txq_info info;
	uint16_t i;

	for (i = 0; i < dev->nb_poll_groups; i++)
		if (rte_eth_tx_queue_info_get(dev->port, dev->queue + i, &info) == 0)
			offloads |= info.conf.offloads;
	return offloads & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
}

static bool
is_mlx5(const struct rte_eth_dev_info *info)
{
	return strncmp(info->driver_name, "mlx5", 4) == 0;
}

/** Return true if the port can be made to free transmitted mbufs. See roce_poll_group_reclaim(). */
static bool
can_reclaim(const struct roce_dev *dev, const struct rte_eth_dev_info *info)
{
	return rte_eth_tx_done_cleanup(dev->port, dev->queue, 0) != -ENOTSUP || is_mlx5(info);
}

int
roce_port_open(struct roce_dev *dev)
{
	const struct rte_eth_dev_data *data = rte_eth_devices[dev->port].data;
	struct rte_eth_dev_info info;
	uint16_t port_mtu = 0, fits, segments;
	int ret;

	ret = rte_eth_dev_info_get(dev->port, &info);
	if (ret == 0)
		ret = register_port_events();
	if (ret < 0)
		return ret;
	ret = port_share(dev);
	if (ret == -EBUSY)
		RDMA_LOG(ERR,
			"port %u: queues %u to %u are used by another device, or the port has %u "
			"devices, the limit",
			dev->port, dev->queue, dev->queue + dev->nb_poll_groups - 1,
			ROCE_SIBLINGS_MAX);
	if (ret < 0)
		return ret;
	dev->numa_node = rte_eth_dev_socket_id(dev->port);
	if (!data->dev_started && dev->shared->nb_devices == 1) {
		ret = port_start(dev, &info);
	} else if (dev->queue + dev->nb_poll_groups >
		RTE_MIN(info.nb_rx_queues, info.nb_tx_queues)) {
		RDMA_LOG(ERR, "port %u: started with %u RX and %u TX queues, expected at least %u",
			dev->port, info.nb_rx_queues, info.nb_tx_queues,
			dev->queue + dev->nb_poll_groups);
		ret = -EINVAL;
	}
	if (ret == 0 && has_fast_free(dev)) {
		RDMA_LOG(ERR,
			"port %u: MBUF_FAST_FREE requires mbufs of one pool; configure the "
			"port without it",
			dev->port);
		ret = -ENOTSUP;
	}
	if (ret == 0)
		ret = rte_eth_dev_get_mtu(dev->port, &port_mtu);
	if (ret == 0)
		ret = rte_eth_macaddr_get(dev->port, &dev->mac);
	if (ret == 0) {
		dev->pool = pool_make(dev, "control", port_mtu,
			POOL_SPARE + CONTROL_CACHE_MOST * rte_lcore_count(), CONTROL_CACHE);
		ret = dev->pool ? 0 : -ENOMEM;
	}
	if (ret < 0)
		goto fail;
	/* net_ring has no MAC address and accepts all frames. Neighbors need an address that
	 * identifies the device. */
	if (rte_is_zero_ether_addr(&dev->mac))
		rte_eth_random_addr(dev->mac.addr_bytes);
	fits = path_mtu(port_mtu);
	/* this driver reports 1500 for buffers of any size, and accepts longer frames */
	if (fits < dev->mtu && strcmp(info.driver_name, "net_memif") == 0) {
		RDMA_LOG(NOTICE,
			"port %u: driver %s reports an MTU of %u, path MTU %u as requested",
			dev->port, info.driver_name, port_mtu, dev->mtu);
		fits = dev->mtu;
	}
	if (fits < dev->mtu || fits == 0) {
		RDMA_LOG(ERR, "port %u: MTU %u, expected %u for a path MTU of %u", dev->port,
			port_mtu, (dev->mtu ? dev->mtu : 256) + RDMA_ROCE_OVERHEAD,
			dev->mtu ? dev->mtu : 256);
		ret = -ENOTSUP;
		goto fail;
	}
	if (!dev->mtu)
		dev->mtu = fits;
	dev->max_sge = RDMA_SGE_MAX;
	segments = info.tx_desc_lim.nb_mtu_seg_max;
	if (!(data->dev_conf.txmode.offloads & RTE_ETH_TX_OFFLOAD_MULTI_SEGS)) {
		dev->copy = true;
		RDMA_LOG(NOTICE, "port %u cannot send chained mbufs: payload is copied", dev->port);
	} else if (rte_eal_iova_mode() == RTE_IOVA_PA && !is_virtual(dev->port)) {
		dev->copy = true;
		RDMA_LOG(NOTICE,
			"port %u: payload is copied because IOVA are physical addresses; start "
			"with --iova-mode=va if there is an IOMMU",
			dev->port);
	} else if (!is_virtual(dev->port) && !can_reclaim(dev, &info)) {
		dev->copy = true;
		RDMA_LOG(NOTICE,
			"port %u: driver %s frees sent mbufs only when it sends others: payload "
			"is copied",
			dev->port, info.driver_name);
	} else if (segments && segments < ROCE_FRAME_SEGMENTS) {
		dev->copy = segments <= ROCE_FRAME_SEGMENTS - RDMA_SGE_MAX;
		dev->max_sge -= dev->copy ? 0 : ROCE_FRAME_SEGMENTS - segments;
		RDMA_LOG(NOTICE, "port %u sends at most %u mbufs per frame: lists of %u entries%s",
			dev->port, segments, dev->max_sge, dev->copy ? ", copied" : "");
	}
	/* mlx5 requests a completion once per MLX5_TX_COMP_THRESH = 32 mbufs, and frees none of the
	 * mbufs after the last one that has a completion. */
	dev->copy_sends = !dev->copy && is_mlx5(&info);
	return 0;
fail:
	roce_port_stop(dev);
	roce_port_close(dev);
	return ret;
}

void
roce_port_stop(struct roce_dev *dev)
{
	if (dev->shared->ours && dev->shared->nb_devices == 1 &&
		dev->port_state != ROCE_PORT_GONE && rte_eth_devices[dev->port].data->dev_started)
		rte_eth_dev_stop(dev->port);
}

void
roce_port_close(struct roce_dev *dev)
{
	struct roce_port *port = dev->shared;

	rte_spinlock_lock(&devices_lock);
	TAILQ_REMOVE(&devices, dev, next);
	rte_spinlock_unlock(&devices_lock);
	queues_set(dev, false);
	roce_pool_free(dev, dev->pool);
	if (--port->nb_devices > 0)
		return;
	roce_pool_free(dev, port->pool);
	rte_free(port);
}

int
roce_port_map(struct roce_dev *dev, void *addr, uint64_t length)
{
	/* virtual ports and copy mode need no mapping */
	if (dev->copy || is_virtual(dev->port))
		return 0;
	return roce_pages_hold(dev->port, addr, length);
}
