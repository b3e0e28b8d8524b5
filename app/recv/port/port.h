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

#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_flow.h>
#include <rte_ip.h>
#include <rte_mempool.h>
#include <rte_udp.h>

#include <gk.h>

#include "frames/detector.h"
#include "frames/frame_run.h"
#include "port/drops.h"

struct memory;
struct port_demand;
struct port_settings;
struct rdma_dev;
struct settings;

/**
 * Mempool ops of a pool of references: last in, first out. The mbuf freed last is allocated next
 * and is still in a CPU cache. With a ring, every mbuf of the pool is used before one is reused, so
 * each access misses the cache. This matters when a burst of frames is freed at once: mbufs that RX
 * lcores free a few at a time (frame_rx_reclaim()) stay in their mempool caches.
 */
#define PORT_REFERENCE_OPS "lf_stack"

/** What to do if a RoCE port has too few queues. Also in --check. */
#define PORT_ROCE_FIX "set [lcores] rx_lcores = 1, or give each RX lcore a port of its own"

struct port {
	const struct port_settings *settings;
	uint16_t id;
	char name[RTE_ETH_NAME_MAX_LEN];
	bool split;	/**< header and pixels in two segments */
	bool reference; /**< payload pool without data room: the driver attaches its own buffers */
	bool device;	/**< pixels are in GPU memory */
	bool flows;	/**< flow rules steer the streams; false: the software classifier does */
	bool rdma;	/**< a RoCE device polls the queues; it sends, too */
	struct rdma_dev *dev; /**< ... which is opened by rx_messages_create() */
	bool replay;	      /**< a replay of a capture, which waits for its receiver */
	bool started;
	bool watched; /**< the driver reports when the device is removed */
	bool removed; /**< atomic; the driver has reported it, in EAL's interrupt thread */
	uint32_t nb_queues;
	/** the RX lcore (frame_rx index) that polls each queue */
	uint32_t queue_rx[FRAME_RX_MAX];
	struct rte_mempool *header_pool;
	struct rte_mempool *payload_pool;
	void *extmem; /**< GPU memory registered with EAL and the device */
	size_t extmem_size;
	struct rte_flow *rules[DETECTOR_STREAMS_MAX];
	uint32_t nb_rules;
};

/** Return true if the port is a device on a bus that does DMA. */
bool port_is_real(const struct rte_eth_dev_info *info);

/** Return true if the port can split headers and the rest of a packet into different pools. */
bool port_can_split(uint16_t id, const struct rte_eth_dev_info *info);

/** Return true if the port is the replay of a capture. */
bool port_is_replay(const struct rte_eth_dev_info *info);

/** What to do if rte_eth_dev_start() fails: "; ...", or "". */
const char *port_start_hint(const struct rte_eth_dev_info *info);

/** Return true if a port with these settings exists and is the replay of a capture. */
bool port_replays(const struct port_settings *s);

/**
 * Check whether pixels received on this port can be placed in GPU memory. Tries the steps that such
 * a pool needs.
 * @param gpu  gpudev id
 * @param why  receives the reason if not, as a sentence
 * @return 0
 *   - -EINVAL: the settings or the driver exclude it, or the EAL options lack the virtual device
 *   - other: a NIC is not there, or GPU memory cannot be allocated or mapped for it
 */
int port_reaches_gpu(
	const struct port_settings *s, int gpu, const char *gpu_name, char *why, size_t size);

/** Return the MTU to request: that of the settings, limited to the port's maximum. */
uint32_t port_mtu(const struct port_settings *s, const struct rte_eth_dev_info *info);

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

/**
 * Describe an adapter instead of a port: it has neither queues nor pools. Each RX lcore that has
 * streams of it polls a completion queue.
 */
void port_of_adapter(struct port *p, const struct port_settings *settings, const uint8_t *owner);

/** Add the driver's counters. Any thread. */
void port_drops_add(const struct port *p, uint64_t drops[PORT_DROPS]);

/** Packets of RoCE messages that are not complete yet. Any thread. */
uint64_t port_unfinished(const struct port *p);

/** Stop and close; the pools stay until port_free_pools(). */
void port_close(struct port *p);

/**
 * Free the pools. All mbufs must have been returned before.
 * @return number of mbufs that were not returned: 0 unless there is a leak
 */
uint32_t port_free_pools(struct port *p);

#endif /* PORT_H */
