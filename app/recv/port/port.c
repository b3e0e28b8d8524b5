/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_devargs.h>
#include <rte_ethdev.h>
#include <rte_gpudev.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_string_fns.h>

#include <net_replay.h>

#include <rdma.h>

#include "ethdev_conf.h"
#include "ethdev_find.h"
#include "log.h"
#include "port/memory.h"
#include "port/pools.h"
#include "port/port.h"
#include "port/refused.h"
#include "port/steering.h"
#include "settings.h"

LOG_REGISTER("port", "port");

/** Descriptors of a TX queue of a RoCE device, which sends ARP replies and CM messages. */
#define PORT_TX_DESCRIPTORS 512

/** GPU page size; also the alignment of address and length that rte_extmem_register() needs. */
#define EXTERNAL_PAGE 65536

bool
port_can_split(uint16_t id, const struct rte_eth_dev_info *info)
{
	/* a device that splits after a protocol header (ice) accepts no length */
	return rte_eth_buffer_split_get_supported_hdr_ptypes(id, NULL, 0) <= 0 &&
		(info->rx_offload_capa & RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT) != 0 &&
		info->rx_seg_capa.multi_pools && info->rx_seg_capa.max_nseg >= 2;
}

bool
port_is_real(const struct rte_eth_dev_info *info)
{
	const struct rte_bus *bus = info->device != NULL ? rte_dev_bus(info->device) : NULL;

	return bus != NULL && strcmp(rte_bus_name(bus), "pci") == 0;
}

const char *
port_start_hint(const struct rte_eth_dev_info *info)
{
	return info->driver_name != NULL && strcmp(info->driver_name, "net_memif") == 0
		? "; if the memif is a client, start the process with its server first"
		: "";
}

bool
port_is_replay(const struct rte_eth_dev_info *info)
{
	return info->driver_name != NULL && strcmp(info->driver_name, "net_replay") == 0;
}

bool
port_replays(const struct port_settings *s)
{
	struct rte_eth_dev_info info;
	uint16_t id;

	return ethdev_find(s->device, &id) == 0 && rte_eth_dev_info_get(id, &info) == 0 &&
		port_is_replay(&info);
}

uint32_t
port_mtu(const struct port_settings *s, const struct rte_eth_dev_info *info)
{
	return RTE_MIN(s->mtu, ethdev_mtu_max(info));
}

static bool
is_virtual(const char *device)
{
	return strncmp(device, "net_", strlen("net_")) == 0;
}

/**
 * Find an Ethernet device of the EAL options that was not created: this one, or else a virtual one.
 * @return NULL: none
 */
static const char *
failed_device(const char *device)
{
	const char *failed = NULL;
	struct rte_devargs *args;
	uint16_t id;

	RTE_EAL_DEVARGS_FOREACH(NULL, args)
	{
		if (strcmp(args->name, device) == 0)
			return args->name;
		if (is_virtual(args->name) && rte_eth_dev_get_port_by_name(args->name, &id) != 0)
			failed = args->name;
	}
	return failed;
}

/**
 * Return what a device that was not found means.
 * @return -ENODEV: a NIC is not there, which may change before the next start, or a device of the
 *   EAL options failed; -EINVAL: the EAL options have no virtual device of this name
 */
static int
missing_device(const char *device)
{
	return failed_device(device) == NULL && is_virtual(device) ? -EINVAL : -ENODEV;
}

/** @return 0, or as missing_device() (logged) */
static int
find_device(struct port *p)
{
	char names[ETHDEV_NAMES_SIZE];
	const char *failed;

	if (ethdev_find(p->settings->device, &p->id) != 0) {
		failed = failed_device(p->settings->device);
		if (failed != NULL)
			LOG(ERR, "no Ethernet device '%s': %s could not be created, see above\n",
				p->settings->device, failed);
		else
			LOG(ERR,
				"no Ethernet device '%s'; EAL has %s. Allow a NIC with -a, or "
				"create a virtual device with --vdev\n",
				p->settings->device, ethdev_names(names));
		return missing_device(p->settings->device);
	}
	rte_eth_dev_get_name_by_port(p->id, p->name);
	return 0;
}

/**
 * Register GPU memory with EAL and map it for DMA of the port. @return 0 or -errno, with the reason
 */
static int
map_for_dma(uint16_t id, void *address, size_t size, const char **what)
{
	struct rte_eth_dev_info info;
	int ret;

	*what = "EAL cannot register the GPU memory";
	if (rte_extmem_register(address, size, NULL, 0, EXTERNAL_PAGE) != 0)
		return -rte_errno;
	*what = "the device cannot map the GPU memory for DMA";
	ret = rte_eth_dev_info_get(id, &info);
	if (ret == 0 && rte_dev_dma_map(info.device, address, RTE_BAD_IOVA, size) != 0)
		ret = rte_errno != 0 ? -rte_errno : -ENOTSUP;
	if (ret != 0)
		rte_extmem_unregister(address, size);
	return ret;
}

static void
unmap_for_dma(uint16_t id, void *address, size_t size)
{
	struct rte_eth_dev_info info;

	if (rte_eth_dev_info_get(id, &info) == 0)
		rte_dev_dma_unmap(info.device, address, RTE_BAD_IOVA, size);
	rte_extmem_unregister(address, size);
}

int
port_reaches_gpu(
	const struct port_settings *s, int gpu, const char *gpu_name, char *why, size_t size)
{
	struct rte_eth_dev_info info;
	char name[RTE_ETH_NAME_MAX_LEN];
	const char *what = NULL;
	void *address;
	uint16_t id;
	int ret;

	rte_strscpy(name, s->device, sizeof(name));
	if (ethdev_find(s->device, &id) != 0) {
		snprintf(why, size, "%s: no such port", name);
		return missing_device(name);
	}
	rte_eth_dev_get_name_by_port(id, name);
	if (rte_eth_dev_info_get(id, &info) != 0)
		what = "the driver reports no device information";
	else if (!port_can_split(id, &info))
		what = "it cannot split buffers, and headers must be in host memory";
	else if (s->mode == RX_MODE_SINGLE)
		what = "mode = single, but headers must be in host memory";
	else if (s->payload == PAYLOAD_REFERENCE && !port_is_replay(&info))
		what = "with payload = reference the driver chooses the buffers";
	if (what != NULL) {
		snprintf(why, size, "%s: %s", name, what);
		return -EINVAL;
	}
	address = rte_gpu_mem_alloc(gpu, EXTERNAL_PAGE, EXTERNAL_PAGE);
	if (address == NULL) {
		snprintf(why, size, "cannot allocate memory of %s: %s", gpu_name,
			rte_strerror(rte_errno));
		return -ENOMEM;
	}
	ret = map_for_dma(id, address, EXTERNAL_PAGE, &what);
	if (ret == 0) {
		unmap_for_dma(id, address, EXTERNAL_PAGE);
		/* the builder calls it before every batch */
		ret = rte_gpu_wmb(gpu);
		what = "rte_gpu_wmb(), which orders the writes to GPU memory, fails";
	}
	if (ret != 0)
		snprintf(why, size, "%s and %s: %s: %s", name, gpu_name, what, rte_strerror(-ret));
	rte_gpu_mem_free(gpu, address);
	return ret == 0 ? 0 : -EIO;
}

const char *const port_drop_names[PORT_DROPS] = {
	[PORT_RING_FULL] = "ring_full",
	[PORT_NO_MBUF] = "no_mbuf",
	[PORT_ERRORS] = "errors",
	[PORT_ICRC] = "bad_icrc",
	[PORT_INCOMPLETE] = "incomplete_message",
	[PORT_REPEATED] = "repeated",
	[PORT_REFUSED] = "refused",
	[PORT_REPAIRED] = "repaired",
	[PORT_LOST_FOR_GOOD] = "lost_for_good",
};

#define XSTATS_MAX 128 /* counters of a device */

void
port_drops_add(const struct port *p, uint64_t drops[PORT_DROPS])
{
	struct rte_eth_stats stats;

	if (!p->started || rte_eth_stats_get(p->id, &stats) != 0)
		return;
	drops[PORT_RING_FULL] += stats.imissed;
	/* a replay without mbufs waits, and counts how often */
	if (!p->replay)
		drops[PORT_NO_MBUF] += stats.rx_nombuf;
	drops[PORT_ERRORS] += stats.ierrors;
	if (p->dev != NULL)
		port_refused_drops(p->dev, drops);
}

uint64_t
port_unfinished(const struct port *p)
{
	struct rdma_xstat x[XSTATS_MAX];
	const int n =
		p->dev != NULL ? RTE_MIN(rdma_xstats_get(p->dev, x, XSTATS_MAX), XSTATS_MAX) : 0;

	for (int i = 0; i < n; i++)
		if (strcmp(x[i].name, "rx_uc_in_progress") == 0)
			return x[i].value;
	return 0;
}

static int
choose_mode(struct port *p, const struct rte_eth_dev_info *info)
{
	/* a RoCE packet has 54 or 70 bytes of headers, which a NIC does not split */
	const bool can_split = port_can_split(p->id, info) && !p->rdma;

	if (p->settings->mode == RX_MODE_SPLIT && !can_split) {
		LOG(ERR, "%s cannot split buffers: use mode = single (or auto)\n", p->name);
		return -ENOTSUP;
	}
	p->split = p->settings->mode != RX_MODE_SINGLE && can_split;
	p->reference = p->settings->payload == PAYLOAD_REFERENCE ||
		(p->settings->payload == PAYLOAD_AUTO && port_is_replay(info));
	return 0;
}

/** Assign a queue to each RX lcore that owns streams of this port, in lcore order. */
static void
assign_queues(struct port *p, const uint8_t *owner, bool flows)
{
	bool seen[FRAME_RX_MAX] = {false};

	p->nb_queues = 0;
	for (uint32_t i = 0; i < p->settings->nb_streams; i++)
		seen[owner[p->settings->streams[i]]] = true;
	for (uint32_t frx = 0; frx < FRAME_RX_MAX; frx++)
		if (seen[frx] && (flows || p->nb_queues == 0))
			p->queue_rx[p->nb_queues++] = frx;
	p->flows = flows;
}

/** Allocate GPU memory to which the port writes; a replay uses a copy instead of a DMA engine. */
static void *
map_device_memory(struct port *p, const char *name, size_t size, struct memory *memory)
{
	void *address = memory_device(memory, name, size);
	const char *what;
	int ret;

	if (address == NULL)
		return NULL;
	ret = map_for_dma(p->id, address, size, &what);
	if (ret != 0) {
		LOG(ERR, "%s: cannot allocate %zu MiB of %s for pixels: %s: %s\n", p->name,
			size >> 20, memory->gpu_name, what, rte_strerror(-ret));
		rte_errno = -ret;
		return NULL;
	}
	p->extmem = address;
	p->extmem_size = size;
	return address;
}

/**
 * Create payload elements in memory that the GPU can access: pinned host memory or GPU memory. In
 * single-segment mode a driver writes the frame at buf_addr + RTE_PKTMBUF_HEADROOM. The buffers are
 * therefore placed so that pixels begin on a cache line.
 */
static struct rte_mempool *
create_memory_pool(struct port *p, const char *name, uint32_t n, const struct settings *s,
	struct memory *memory)
{
	const uint32_t before = port_element_lead(s, p->split);
	const uint32_t skew =
		(RTE_CACHE_LINE_SIZE - before % RTE_CACHE_LINE_SIZE) % RTE_CACHE_LINE_SIZE;
	struct rte_pktmbuf_extmem extmem = {.buf_iova = RTE_BAD_IOVA};
	uint8_t *address;
	size_t size;

	extmem.elt_size = port_element_bytes(s, p->split);
	size = RTE_ALIGN_CEIL((size_t)n * extmem.elt_size + skew, EXTERNAL_PAGE);
	address = p->device ? map_device_memory(p, name, size, memory)
			    : memory_host(memory, name, size);
	if (address == NULL)
		return NULL;
	extmem.buf_ptr = address + skew;
	if (!p->device)
		extmem.buf_iova = rte_mem_virt2iova(address);
	if (extmem.buf_iova != RTE_BAD_IOVA)
		extmem.buf_iova += skew;
	extmem.buf_len = size - skew;
	return rte_pktmbuf_pool_create_extbuf(
		name, n, PORT_MEMPOOL_CACHE, 0, extmem.elt_size, memory->socket, &extmem, 1);
}

static void *
replay_alloc(void *arg, size_t size)
{
	return memory_device(arg, "replayed packets", size);
}

static int
replay_copy(void *arg, void *to, const void *from, size_t size)
{
	return memory_copy(arg, to, from, size);
}

/** Set up a replay that stands in for a NIC that writes to GPU memory. */
static int
place_replay(struct port *p, struct memory *memory)
{
	const struct net_replay_memory placed = {replay_alloc, replay_copy, memory};
	const int ret = net_replay_place(p->id, &placed);

	if (ret != 0)
		LOG(ERR, "%s: cannot place its packets into %s: %s\n", p->name, memory->gpu_name,
			rte_strerror(-ret));
	return ret;
}

static int
create_pools(struct port *p, const struct settings *s, const struct port_demand *demand,
	struct memory *memory)
{
	const struct port_mbufs n =
		port_count_mbufs(p->nb_queues, p->settings->descriptors, demand);
	char name[RTE_MEMPOOL_NAMESIZE];

	LOG(INFO,
		"%s: %u payload mbufs = %u RX descriptors + %u in frame slots + %u in caches + %u "
		"in bursts and handoff rings + %u held until the window moves\n",
		p->name, n.payload, n.rings, n.frames, n.caches, n.bursts, n.held);
	snprintf(name, sizeof(name), "payload_%u", p->id);
	if (p->reference)
		p->payload_pool = rte_pktmbuf_pool_create_by_ops(name, n.payload,
			PORT_MEMPOOL_CACHE, 0, p->split ? 0 : RTE_PKTMBUF_HEADROOM, memory->socket,
			PORT_REFERENCE_OPS);
	else
		p->payload_pool = create_memory_pool(p, name, n.payload, s, memory);
	if (p->payload_pool == NULL)
		goto short_of;
	if (!p->split)
		return 0;
	snprintf(name, sizeof(name), "header_%u", p->id);
	p->header_pool = rte_pktmbuf_pool_create(name, n.header, PORT_MEMPOOL_CACHE, 0,
		RTE_PKTMBUF_HEADROOM + RTE_ALIGN_CEIL(port_header_bytes(s), 64), memory->socket);
	if (p->header_pool != NULL)
		return 0;
short_of:
	LOG(ERR,
		"%s: cannot create pool %s: %s. %u mbufs are required: reduce [frames] slots or "
		"descriptors, or give EAL more memory\n",
		p->name, name, rte_strerror(rte_errno), n.payload);
	return -ENOMEM;
}

static int
setup_queues(struct port *p, const struct settings *s, const struct rte_eth_dev_info *info)
{
	const uint64_t split = RTE_ETH_RX_OFFLOAD_SCATTER | RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT;
	struct rte_eth_conf conf = ethdev_conf(info, p->settings->mtu);
	union rte_eth_rxseg segments[2] = {0};
	struct rte_eth_rxconf rx = info->default_rxconf;
	const unsigned int socket = rte_eth_dev_socket_id(p->id); /* -1: any */
	uint16_t descriptors = p->settings->descriptors;
	uint16_t sent = p->rdma ? PORT_TX_DESCRIPTORS : 0;
	int ret;

	conf.rxmode.offloads = (p->split ? split : 0) | port_checksums(info);
	if (p->rdma)
		conf.txmode.offloads = info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	ret = rte_eth_dev_configure(p->id, p->nb_queues, p->rdma ? p->nb_queues : 0, &conf);
	if (ret != 0) {
		LOG(ERR, "%s: cannot configure %u RX queues: %s\n", p->name, p->nb_queues,
			rte_strerror(-ret));
		return ret;
	}
	ret = rte_eth_dev_adjust_nb_rx_tx_desc(p->id, &descriptors, &sent);
	if (ret != 0 && ret != -ENOTSUP)
		return ret;
	rx.offloads = conf.rxmode.offloads;
	segments[0].split.mp = p->header_pool;
	segments[0].split.length = port_header_bytes(s);
	segments[1].split.mp = p->payload_pool;
	if (p->split) {
		rx.rx_seg = segments;
		rx.rx_nseg = 2;
	}
	for (uint32_t q = 0; q < p->nb_queues; q++) {
		ret = rte_eth_rx_queue_setup(
			p->id, q, descriptors, socket, &rx, p->split ? NULL : p->payload_pool);
		if (ret != 0) {
			LOG(ERR, "%s: cannot set up RX queue %u of %u descriptors%s: %s\n", p->name,
				q, descriptors, p->split ? ", split buffers" : "",
				rte_strerror(-ret));
			return ret;
		}
	}
	for (uint32_t q = 0; p->rdma && q < p->nb_queues; q++) {
		ret = rte_eth_tx_queue_setup(p->id, q, sent, socket, NULL);
		if (ret != 0) {
			LOG(ERR, "%s: cannot set up TX queue %u of %u descriptors: %s\n", p->name,
				q, sent, rte_strerror(-ret));
			return ret;
		}
	}
	ret = rte_eth_dev_start(p->id);
	if (ret != 0) {
		LOG(ERR, "%s: cannot start%s: %s%s\n", p->name,
			p->split ? " (buffers are split; try mode = single)" : "",
			rte_strerror(-ret), port_start_hint(info));
		return ret;
	}
	p->started = true;
	return 0;
}

/**
 * Accept packets to any MAC address, because the detector need not know the port's. This stays set
 * until the port is closed.
 */
static void
take_all(const struct port *p, const struct rte_eth_dev_info *info)
{
	const int ret = rte_eth_promiscuous_enable(p->id);

	/* a virtual device without this setting filters nothing */
	if (ret != 0 && (ret != -ENOTSUP || port_is_real(info)))
		LOG(WARNING,
			"%s: cannot enable promiscuous mode: %s. Only packets for its MAC "
			"address are received\n",
			p->name, rte_strerror(-ret));
}

uint64_t
port_checksums(const struct rte_eth_dev_info *info)
{
	return info->rx_offload_capa &
		(RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM);
}

/**
 * Use one queue for all streams. One RX lcore reads the whole port and hands packets over to the
 * others.
 */
static void
fall_back(
	struct port *p, const struct rte_eth_dev_info *info, const uint8_t *owner, const char *why)
{
	const uint32_t wanted = p->nb_queues;

	assign_queues(p, owner, false);
	/* a replay waits for its receiver */
	if (wanted == 1 || port_is_replay(info))
		LOG(INFO, "%s: %s\n", p->name, why);
	else
		LOG(WARNING,
			"%s: %s. One RX lcore reads the port and hands packets to %u others; set "
			"steering = software to silence this warning\n",
			p->name, why, wanted - 1);
}

/** Each RX role polls its queue of a RoCE port, and hands packets of other streams over. */
static void
keep_queues(struct port *p, const char *why)
{
	p->flows = false;
	if (p->replay)
		LOG(INFO, "%s: %s\n", p->name, why);
	else
		LOG(WARNING,
			"%s: %s. All RoCE packets may reach the first RX lcore, which then hands "
			"them to %u others\n",
			p->name, why, p->nb_queues - 1);
}

/**
 * Check that each RX role that has streams of a RoCE port has its own queue there. Its queue pairs
 * belong to the poll group of that queue, and no other RX role polls them.
 */
static int
check_roce_queues(const struct port *p, uint32_t available)
{
	const uint32_t have = p->settings->steering == RX_STEERING_SOFTWARE ? 1 : available;

	if (!p->rdma || p->nb_queues <= have)
		return 0;
	LOG(ERR, "%s: %u RX queue%s for RoCE%s, expected one for each of %u RX lcores; %s\n",
		p->name, have, have == 1 ? "" : "s",
		p->settings->steering == RX_STEERING_SOFTWARE ? " with steering = software" : "",
		p->nb_queues, PORT_ROCE_FIX);
	return -ENOTSUP;
}

/** The driver reports that the device was removed or has failed. */
static int
on_removal(uint16_t id, enum rte_eth_event_type event, void *arg, void *param)
{
	struct port *p = arg;

	__atomic_store_n(&p->removed, true, __ATOMIC_RELAXED);
	return 0;
}

int
port_open(struct port *p, const struct port_settings *settings, const struct settings *all,
	const uint8_t *owner, const struct port_demand *demand, enum gk_memory packets,
	struct memory *memory)
{
	struct rte_eth_dev_info info;
	char why[256];
	int ret;

	*p = (struct port){.settings = settings,
		.device = packets == GK_MEMORY_DEVICE,
		.rdma = settings->rdma[0] != '\0'};
	ret = find_device(p);
	if (ret != 0)
		return ret;
	ret = rte_eth_dev_info_get(p->id, &info);
	if (ret == 0)
		ret = choose_mode(p, &info);
	if (ret != 0)
		return ret;
	ret = rte_eth_dev_callback_register(p->id, RTE_ETH_EVENT_INTR_RMV, on_removal, p);
	if (ret != 0)
		return ret;
	p->watched = true;
	p->replay = port_is_replay(&info);
	if (port_is_real(&info) && !p->reference && rte_eal_iova_mode() != RTE_IOVA_VA) {
		LOG(ERR,
			"%s does DMA to physical addresses, for which payload pools are not "
			"contiguous; give EAL --iova-mode=va\n",
			p->name);
		return -ENOTSUP;
	}
	assign_queues(p, owner, true);
	ret = check_roce_queues(p, info.max_rx_queues);
	if (ret != 0)
		return ret;
	assign_queues(p, owner, settings->steering != RX_STEERING_SOFTWARE);
	if (p->nb_queues > info.max_rx_queues) {
		snprintf(why, sizeof(why), "%u RX queues available, %u RX lcores need one each",
			info.max_rx_queues, p->nb_queues);
		if (settings->steering == RX_STEERING_FLOW) {
			LOG(ERR, "%s: %s\n", p->name, why);
			return -ENOTSUP;
		}
		fall_back(p, &info, owner, why);
	}
	if (p->device && port_is_replay(&info))
		ret = place_replay(p, memory);
	if (ret == 0)
		ret = create_pools(p, all, demand, memory);
	/*
	 * Some virtual devices report too small a maximum (net_af_packet reports 1500 and accepts
	 * what its frame size permits), so this is not an error. A RoCE device checks its path MTU.
	 */
	if (ret == 0 && !p->rdma && port_mtu(settings, &info) < settings->mtu)
		LOG(WARNING,
			"%s: the driver reports a maximum MTU of %u bytes, expected at least %u; "
			"set [port N] mtu = %u if it receives longer packets\n",
			p->name, port_mtu(settings, &info), settings->mtu,
			port_mtu(settings, &info));
	if (ret == 0)
		ret = setup_queues(p, all, &info);
	if (ret != 0)
		return ret;
	take_all(p, &info);
	if (p->flows && port_steer(p, all, owner, why, sizeof(why)) != 0) {
		if (settings->steering == RX_STEERING_FLOW) {
			LOG(ERR, "%s: %s; set steering = software or auto\n", p->name, why);
			return -ENOTSUP;
		}
		if (p->rdma)
			keep_queues(p, why);
		else {
			fall_back(p, &info, owner, why);
			rte_eth_dev_stop(p->id);
			ret = setup_queues(p, all, &info);
		}
	}
	LOG(INFO, "%s: %u queue%s, %s, %s, payload %s\n", p->name, p->nb_queues,
		p->nb_queues == 1 ? "" : "s", p->split ? "split buffers" : "single segment",
		p->flows ? "flow rules" : "software classifier",
		p->reference	    ? "by reference"
			: p->device ? "in GPU memory"
				    : "in host memory");
	return ret;
}

void
port_of_adapter(struct port *p, const struct port_settings *settings, const uint8_t *owner)
{
	*p = (struct port){.settings = settings, .id = RTE_MAX_ETHPORTS, .rdma = true};
	rte_strscpy(p->name, settings->rdma, sizeof(p->name));
	assign_queues(p, owner, true);
}

void
port_close(struct port *p)
{
	if (p->watched)
		rte_eth_dev_callback_unregister(p->id, RTE_ETH_EVENT_INTR_RMV, on_removal, p);
	p->watched = false;
	if (p->started) {
		port_unsteer(p);
		rte_eth_dev_stop(p->id);
	}
	if (p->extmem != NULL)
		unmap_for_dma(p->id, p->extmem, p->extmem_size);
	p->extmem = NULL;
	if (p->started)
		rte_eth_dev_close(p->id);
	p->started = false;
}

uint32_t
port_free_pools(struct port *p)
{
	struct rte_mempool *pools[] = {p->header_pool, p->payload_pool};
	uint32_t missing = 0;

	for (uint32_t i = 0; i < RTE_DIM(pools); i++) {
		if (pools[i] == NULL)
			continue;
		missing += rte_mempool_in_use_count(pools[i]);
		rte_mempool_free(pools[i]);
	}
	p->header_pool = NULL;
	p->payload_pool = NULL;
	return missing;
}
