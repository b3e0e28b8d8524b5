/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * An Ethernet port that the detector sends to: pools, queues, flow rules.
 * Control lcore only.
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

/** Ethernet header with two VLAN tags, and checksum: what an MTU does not count. */
#define PORT_L2_BYTES (RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN + 2 * RTE_VLAN_HLEN)

/**
 * Order of a pool of references: last in, first out. What comes back last is taken next and is
 * in a cache still; in a ring, all mbufs of the pool pass before one comes again, each from memory.
 * It matters where a burst of frames goes back at once: what RX lcores free a little at a time
 * (frame_rx_reclaim()) stays in their mempool caches.
 */
#define PORT_REFERENCE_OPS "lf_stack"

/** 512 was no faster with one RX lcore or two, nor were pools of their own for two queues. */
#define PORT_MEMPOOL_CACHE 256

/** Ethernet, IPv4 and UDP without options. */
#define PORT_UDP_HEADERS \
	(sizeof(struct rte_ether_hdr) + sizeof(struct rte_ipv4_hdr) + sizeof(struct rte_udp_hdr))

struct port {
	const struct port_settings *settings;
	uint16_t id;
	char name[RTE_ETH_NAME_MAX_LEN];
	bool split;	/**< header and pixels in two segments */
	bool reference; /**< payload pool without data room: the driver attaches its buffers */
	bool device;	/**< pixels lie in the GPU's memory */
	bool flows;	/**< flow rules steer; else the software classifier */
	bool replay;	/**< it waits for its receiver */
	bool started;
	uint32_t nb_queues;
	uint32_t queue_lane[FRAME_RX_MAX]; /**< RX lane that polls each queue */
	struct rte_mempool *header_pool;
	struct rte_mempool *payload_pool;
	void *extmem; /**< GPU memory that EAL and the device know */
	size_t extmem_size;
	struct rte_flow *rules[DETECTOR_STREAMS_MAX];
	uint32_t nb_rules;
};

/**
 * The device that EAL knows by this name or number.
 * @return 0 or -ENODEV
 */
int port_find(const char *device, uint16_t *id);

/** Is it a device of the bus, which does DMA? */
bool port_is_real(const struct rte_eth_dev_info *info);

/** Can it put headers and the rest into different pools? */
bool port_can_split(uint16_t id, const struct rte_eth_dev_info *info);

/** Is it the replay of a capture? */
bool port_is_replay(const struct rte_eth_dev_info *info);

/** Does a port of these settings exist, and is it the replay of a capture? */
bool port_replays(const struct port_settings *s);

/**
 * Can pixels that come through this port lie in a GPU's memory? Tries what a pool there needs.
 * @param gpu  gpudev id
 * @param why  receives why not, as a sentence
 * @return 0 or -ENOTSUP
 */
int port_reaches_gpu(
	const struct port_settings *s, int gpu, const char *gpu_name, char *why, size_t size);

/** The longest MTU that rte_eth_dev_configure() takes. */
uint32_t port_mtu_max(const struct rte_eth_dev_info *info);

/** The MTU to ask for: that of the settings, or what the port can. */
static inline uint32_t
port_mtu(const struct port_settings *s, const struct rte_eth_dev_info *info)
{
	return RTE_MIN(s->mtu, port_mtu_max(info));
}

/** What pools must hold besides RX rings; see port_open(). */
struct port_demand {
	uint32_t frame_packets; /**< packets that frame slots may keep */
	uint32_t held;		/**< packets that RX roles may hold, of a frame (rx_held) */
	uint32_t lanes;		/**< RX lcores: they alone take mbufs and free them */
};

static inline struct port_demand
port_demand_of(const struct settings *s)
{
	return (struct port_demand){
		.frame_packets = s->slots * s->detector.tiles,
		.held = s->detector.tiles,
		.lanes = s->rx_lcores,
	};
}

/** Mbufs of a port, by where all of them may be at the same time. */
struct port_mbufs {
	uint32_t rings;
	uint32_t frames;
	uint32_t caches;
	uint32_t bursts;  /**< in hands and inboxes */
	uint32_t held;	  /**< until the window moves, or not */
	uint32_t payload; /**< the payload pool: the sum of the above */
	uint32_t header;  /**< the header pool; headers do not wait in frame slots */
};

/** The sum that pools are made by. */
static inline struct port_mbufs
port_count_mbufs(uint32_t queues, uint32_t descriptors, const struct port_demand *demand)
{
	struct port_mbufs n = {
		.rings = queues * descriptors,
		.frames = demand->frame_packets,
		/* a cache may hold up to 1.5 times its size before it is flushed */
		.caches = demand->lanes * PORT_MEMPOOL_CACHE * 3 / 2,
		/* what waits for its frame came from a queue of this port, or from an inbox */
		.bursts = queues * RX_PENDING_SOURCE +
			demand->lanes *
				(RX_PENDING_SOURCE + (demand->lanes + 1) * RX_BURST +
					RX_INBOX_SIZE),
		.held = demand->held,
	};

	n.header = n.rings + n.caches + n.bursts + n.held;
	n.payload = n.header + n.frames;
	return n;
}

/** Headers before the pixels of a packet. */
static inline uint32_t
port_header_bytes(const struct settings *s)
{
	return PORT_UDP_HEADERS + s->detector.ops->header_bytes;
}

/** Bytes before the pixels in a payload element: whole packets come with headroom and headers. */
static inline uint32_t
port_element_lead(const struct settings *s, bool split)
{
	return split ? 0 : RTE_PKTMBUF_HEADROOM + port_header_bytes(s);
}

/**
 * Bytes of an element of the payload pool: room for the longest packet that the MTU lets through,
 * or what is left of it behind the headers, however long the detector's are. A driver that finds
 * less refuses, or (mlx5, split) takes as many elements for each packet as it would need at most.
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

/** The flow rule of one stream. Points into itself: not to be copied. */
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
 * Ethernet / IPv4 / UDP to `udp_port`, to RX queue `queue`.
 * @param filter  addresses that a packet must have; NULL: any
 */
void port_rule_init(
	struct port_rule *r, uint16_t udp_port, uint16_t queue, const struct source_filter *filter);

/** Checksums that the port checks, of those that RX roles want to know of: RX offloads. */
uint64_t port_checksums(const struct rte_eth_dev_info *info);

/**
 * Find the device, choose split or single-segment mode, create the pools, set up and start the
 * queues, steer the streams. What was chosen and the arithmetic of the pools is logged.
 * @param owner    RX lane of each stream
 * @param packets  where pixels lie; the GPU's memory if all ports reach it
 * @return 0 or -errno (logged with device, what was wanted and what to do)
 */
int port_open(struct port *p, const struct port_settings *settings, const struct settings *all,
	const uint8_t *owner, const struct port_demand *demand, enum gk_memory packets,
	struct memory *memory);

/** Packets that came and were not received, since the port was opened. */
enum port_drop {
	PORT_RING_FULL, /**< no descriptor was free: lcores are late, or bursts too long */
	PORT_NO_MBUF,	/**< the pool was empty */
	PORT_ERRORS, /**< `ierrors`: damaged on the wire, or too long; drivers do not say which */
	PORT_DROPS
};

extern const char *const port_drop_names[PORT_DROPS];

/** Add what the driver has counted. Any thread. */
void port_drops_add(const struct port *p, uint64_t drops[PORT_DROPS]);

/** Stop and close; the pools stay until port_free_pools(). */
void port_close(struct port *p);

/**
 * Free the pools after every mbuf has come back.
 * @return mbufs that have not: 0 unless something leaks
 */
uint32_t port_free_pools(struct port *p);

#endif /* PORT_H */
