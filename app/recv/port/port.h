/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * An Ethernet port that receives from the detector: pools, queues and flow rules. Control lcore
 * only.
 */
#ifndef PORT_H
#define PORT_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_ether.h>
#include <rte_flow.h>
#include <rte_ip.h>
#include <rte_mempool.h>
#include <rte_udp.h>

#include "port/memory.h"
#include "rx/rx.h"
#include "settings.h"

/** Ethernet header with two VLAN tags, and CRC: the bytes that an MTU does not include. */
#define PORT_L2_BYTES (RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN + 2 * RTE_VLAN_HLEN)

/**
 * Mempool ops of a pool of references: last in, first out. The mbuf freed last is allocated next
 * and is still in a CPU cache. With a ring, every mbuf of the pool is used before one is used
 * again, and each comes from memory. This matters when a burst of frames is freed at once: mbufs
 * that RX lcores free a few at a time (frame_rx_reclaim()) stay in their mempool caches.
 */
#define PORT_REFERENCE_OPS "lf_stack"

/**
 * A size of 512 was not faster with one or two RX lcores. Separate pools for two queues were not
 * faster either.
 */
#define PORT_MEMPOOL_CACHE 256

/** Ethernet, IPv4 and UDP headers without options. */
#define PORT_UDP_HEADERS \
	(sizeof(struct rte_ether_hdr) + sizeof(struct rte_ipv4_hdr) + sizeof(struct rte_udp_hdr))

struct port {
	const struct port_settings *settings;
	uint16_t id;
	char name[RTE_ETH_NAME_MAX_LEN];
	bool split;	/**< header and pixels in two segments */
	bool reference; /**< payload pool without data room: the driver attaches its own buffers */
	bool device;	/**< pixels are in GPU memory */
	bool flows;	/**< flow rules steer the streams; false: the software classifier does */
	bool replay;	/**< a replay of a capture, which waits for its receiver */
	bool started;
	uint32_t nb_queues;
	/** the RX lcore (frame_rx index) that polls each queue */
	uint32_t queue_lane[FRAME_RX_MAX];
	struct rte_mempool *header_pool;
	struct rte_mempool *payload_pool;
	void *extmem; /**< GPU memory registered with EAL and the device */
	size_t extmem_size;
	struct rte_flow *rules[DETECTOR_STREAMS_MAX];
	uint32_t nb_rules;
};

/**
 * Find the device with this EAL name or port number.
 * @return 0 or -ENODEV
 */
int port_find(const char *device, uint16_t *id);

/** Return true if the port is a device on a bus that does DMA. */
bool port_is_real(const struct rte_eth_dev_info *info);

/** Return true if the port can split headers and the rest of a packet into different pools. */
bool port_can_split(uint16_t id, const struct rte_eth_dev_info *info);

/** Return true if the port is the replay of a capture. */
bool port_is_replay(const struct rte_eth_dev_info *info);

/** Return true if a port with these settings exists and is the replay of a capture. */
bool port_replays(const struct port_settings *s);

/**
 * Check whether pixels received on this port can be placed in GPU memory. Tries the steps that such
 * a pool needs.
 * @param gpu  gpudev id
 * @param why  receives the reason if not, as a sentence
 * @return 0 or -ENOTSUP
 */
int port_reaches_gpu(
	const struct port_settings *s, int gpu, const char *gpu_name, char *why, size_t size);

/** Return the largest MTU that rte_eth_dev_configure() accepts. */
uint32_t port_mtu_max(const struct rte_eth_dev_info *info);

/** Return the MTU to request: that of the settings, limited to the port's maximum. */
static inline uint32_t
port_mtu(const struct port_settings *s, const struct rte_eth_dev_info *info)
{
	return RTE_MIN(s->mtu, port_mtu_max(info));
}

/** Mbufs that pools need in addition to those of RX descriptor rings; see port_open(). */
struct port_demand {
	uint32_t frame_packets; /**< packets that frame slots may hold */
	uint32_t held;		/**< packets of a frame that RX roles may hold (rx_held) */
	uint32_t nb_rx;		/**< number of RX lcores; only they allocate and free mbufs */
};

static inline struct port_demand
port_demand_of(const struct settings *s)
{
	return (struct port_demand){
		.frame_packets = s->slots * s->detector.tiles,
		.held = s->detector.tiles,
		.nb_rx = s->rx_lcores,
	};
}

/** Maximum number of mbufs of a port in each place. All maxima may occur at the same time. */
struct port_mbufs {
	uint32_t rings;
	uint32_t frames;
	uint32_t caches;
	uint32_t bursts;  /**< in bursts being processed and in handoff rings */
	uint32_t held;	  /**< until the window position is decided */
	uint32_t payload; /**< size of the payload pool: the sum of the above */
	uint32_t header;  /**< size of the header pool; headers do not wait in frame slots */
};

/** Compute the pool sizes. */
static inline struct port_mbufs
port_count_mbufs(uint32_t queues, uint32_t descriptors, const struct port_demand *demand)
{
	struct port_mbufs n = {
		.rings = queues * descriptors,
		.frames = demand->frame_packets,
		/* A cache may hold up to 1.5 times its size before it is flushed. */
		.caches = demand->nb_rx * PORT_MEMPOOL_CACHE * 3 / 2,
		/*
		 * Packets that wait for their frame came from a queue of this port or from an
		 * handoff ring.
		 */
		.bursts = queues * RX_PENDING_SOURCE +
			demand->nb_rx *
				(RX_PENDING_SOURCE + (demand->nb_rx + 1) * RX_BURST +
					RX_HANDOFF_RING_SIZE),
		.held = demand->held,
	};

	n.header = n.rings + n.caches + n.bursts + n.held;
	n.payload = n.header + n.frames;
	return n;
}

/** Bytes of the headers before the pixels of a packet. */
static inline uint32_t
port_header_bytes(const struct settings *s)
{
	return PORT_UDP_HEADERS + s->detector.ops->header_bytes;
}

/**
 * Bytes before the pixels in a payload element. In single-segment mode these are headroom and
 * headers.
 */
static inline uint32_t
port_element_lead(const struct settings *s, bool split)
{
	return split ? 0 : RTE_PKTMBUF_HEADROOM + port_header_bytes(s);
}

/**
 * Size of an element of the payload pool: room for the longest packet that the MTU permits, or for
 * the part of it after the headers, for any length of the detector's headers. A driver refuses a
 * smaller element, or (mlx5, split) uses as many elements for every packet as the longest one
 * needs.
 */
static inline uint32_t
port_element_bytes(const struct settings *s, bool split)
{
	const uint32_t pixels = s->detector.ops->pixel_bytes;
	uint32_t bytes = port_element_lead(s, split) + pixels;

	for (uint32_t i = 0; i < s->nb_ports; i++) {
		const uint32_t longest = PORT_L2_BYTES + s->ports[i].mtu;

		bytes = RTE_MAX(bytes,
			split ? longest - RTE_MIN(longest, port_header_bytes(s))
			      : RTE_PKTMBUF_HEADROOM + longest);
	}
	return RTE_ALIGN_CEIL(bytes, 2 * RTE_CACHE_LINE_SIZE);
}

/** Flow rule of one stream. It contains pointers to itself: do not copy it. */
struct port_rule {
	struct rte_flow_attr attr;
	struct rte_flow_item_udp udp;
	struct rte_flow_item_udp mask;
	struct rte_flow_item_ipv4 ip;
	struct rte_flow_item_ipv4 ip_mask;
	struct rte_flow_action_queue queue;
	struct rte_flow_item pattern[4];
	struct rte_flow_action actions[2];
};

/**
 * Initialise a rule that steers Ethernet / IPv4 / UDP packets to `udp_port` to RX queue `queue`.
 * @param filter  addresses that a packet must have; NULL: any
 */
void port_rule_init(
	struct port_rule *r, uint16_t udp_port, uint16_t queue, const struct source_filter *filter);

/** Return the RX offloads for the checksums that RX roles use and the port can check. */
uint64_t port_checksums(const struct rte_eth_dev_info *info);

/**
 * Find the device, choose split or single-segment mode, create the pools, set up and start the
 * queues, and steer the streams. The choice and the computation of the pool sizes are logged.
 * @param owner    RX lcore of each stream
 * @param packets  memory of the pixels; GPU memory if all ports can access it
 * @return 0 or -errno (logged with the device, what was expected, and a remedy)
 */
int port_open(struct port *p, const struct port_settings *settings, const struct settings *all,
	const uint8_t *owner, const struct port_demand *demand, enum gk_memory packets,
	struct memory *memory);

/** Packets that arrived since the port was opened and were not received, by cause. */
enum port_drop {
	PORT_RING_FULL, /**< no free descriptor: lcores are late, or bursts too long */
	PORT_NO_MBUF,	/**< the mempool was empty */
	/** `ierrors`: damaged on the wire, or too long; drivers do not distinguish these */
	PORT_ERRORS,
	PORT_DROPS
};

extern const char *const port_drop_names[PORT_DROPS];

/** Add the driver's counters. Any thread. */
void port_drops_add(const struct port *p, uint64_t drops[PORT_DROPS]);

/** Stop and close; the pools stay until port_free_pools(). */
void port_close(struct port *p);

/**
 * Free the pools. All mbufs must have been returned before.
 * @return number of mbufs that were not returned: 0 unless there is a leak
 */
uint32_t port_free_pools(struct port *p);

#endif /* PORT_H */
