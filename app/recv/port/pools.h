/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Sizes of the mempools of a port.
 */
#ifndef PORT_POOLS_H
#define PORT_POOLS_H

#include <stdbool.h>
#include <stdint.h>

struct settings;

/**
 * Measured: neither a size of 512 with one or two RX lcores, nor separate pools for two queues, was
 * faster.
 */
#define PORT_MEMPOOL_CACHE 256

/** Packets that an RX role holds at the most: the pools have mbufs for them. @{ */
#define RX_BURST	     64		    /**< packets taken from a queue or ring at once */
#define RX_PENDING_SOURCE    (4 * RX_BURST) /**< packets of a source that may wait */
#define RX_HANDOFF_RING_SIZE 4096	    /**< size of a handoff ring */
/** @} */

/** Mbufs that pools need in addition to those of RX descriptor rings; see port_open(). */
struct port_demand {
	uint32_t frame_packets; /**< packets that frame slots may hold */
	uint32_t held;		/**< packets of a frame that RX roles may hold (rx_held) */
	uint32_t nb_rx;		/**< number of RX lcores; only they allocate and free mbufs */
	uint32_t packet_mbufs;	/**< mbufs of a packet or message that waits */
};

struct port_demand port_demand_of(const struct settings *s);

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
struct port_mbufs port_count_mbufs(
	uint32_t queues, uint32_t descriptors, const struct port_demand *demand);

/** Bytes of the headers before the pixels of a packet. */
uint32_t port_header_bytes(const struct settings *s);

/**
 * Bytes before the pixels in a payload element. In single-segment mode these are headroom and
 * headers.
 */
uint32_t port_element_lead(const struct settings *s, bool split);

/**
 * Size of an element of the payload pool: room for the longest packet that the MTU permits, or for
 * the part of it after the headers, for any length of the detector's headers. A driver refuses a
 * smaller element, or (mlx5, split) uses as many elements for every packet as the longest one
 * needs.
 */
uint32_t port_element_bytes(const struct settings *s, bool split);

#endif /* PORT_POOLS_H */
