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

#include <rte_flow.h>
#include <rte_mempool.h>

#include "memory.h"
#include "rx.h"
#include "settings.h"

#define PORT_MEMPOOL_CACHE 256

struct port {
	const struct port_settings *settings;
	uint16_t id;
	char name[RTE_ETH_NAME_MAX_LEN];
	bool split;	/**< header and pixels in two segments */
	bool reference; /**< payload pool without data room: the driver attaches its buffers */
	bool flows;	/**< flow rules steer; else the software classifier */
	bool started;
	uint32_t nb_queues;
	uint32_t queue_lane[FRAME_LANES_MAX]; /**< RX lane that polls each queue */
	struct rte_mempool *header_pool;
	struct rte_mempool *payload_pool;
	void *extmem; /**< payload memory that EAL and the device know */
	size_t extmem_size;
	struct rte_flow *rules[DETECTOR_STREAMS_MAX];
	uint32_t nb_rules;
};

/** What pools must hold besides RX rings; see port_open(). */
struct port_demand {
	uint32_t frame_packets; /**< packets that frame slots may keep */
	uint32_t lcores;	/**< lcores with a mempool cache: RX and builder */
	uint32_t lanes;
};

/**
 * Find the device, choose split or single-segment mode, create the pools, set up and start the
 * queues, steer the streams. What was chosen and the arithmetic of the pools is logged.
 * @param owner  RX lane of each stream
 * @return 0 or -errno (logged with device, what was wanted and what to do)
 */
int port_open(struct port *p, const struct port_settings *settings, const struct settings *all,
	const uint8_t *owner, const struct port_demand *demand, struct memory *memory);

/** Stop and close; the pools stay until port_free_pools(). */
void port_close(struct port *p);

/**
 * Free the pools after every mbuf has come back.
 * @return mbufs that have not: 0 unless something leaks
 */
uint32_t port_free_pools(struct port *p);

#endif /* PORT_H */
