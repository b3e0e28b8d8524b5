/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Streams of a detector that several receivers take by reliable multicast (ingest/multicast.h). For
 * each stream of the detector there is a receiver of rdma_stream.h, whose poll group is that of the
 * RX role that owns the stream.
 *
 * The RX role takes packets in the order of their sequence numbers, copies the fragments of each
 * message into the stream's ring (ring.h), and makes an event when the detector has sent all of a
 * frame. From then on, the path is the same as with transport `write` and delivery = memory.
 */
#ifndef RX_MULTICAST_H
#define RX_MULTICAST_H

#include <stdbool.h>
#include <stdint.h>

#include <rdma_stream.h>

#include "port/drops.h"
#include "rx/fragments.h"

struct rx_messages;
struct rx_multicast;

/** State and counters of a stream. */
struct rx_multicast_info {
	struct rdma_stream_receiver_info stream;
	const char *state;   /**< name of stream.state */
	uint64_t slot_waits; /**< polls in which the slot of the next frame was in use */
	uint64_t refused[RX_FRAGMENT_CAUSES]; /**< fragments */
};

/**
 * Create the receivers of all streams, and start to join. Devices, poll groups and rings are known.
 * *Control.*
 * @return NULL with rte_errno; logged
 */
struct rx_multicast *rx_multicast_create(struct rx_messages *m);

/** Destroy the receivers. RX roles have ended; NULL is allowed. *Control.* */
void rx_multicast_destroy(struct rx_multicast *mc);

/**
 * Connect, and log changes. Polled by the lcore of ROLE_CONNECT.
 * @return non-zero if there was anything to do
 */
int rx_multicast_control(struct rx_multicast *mc);

/** Any thread. */
void rx_multicast_info_get(
	const struct rx_multicast *mc, uint32_t stream, struct rx_multicast_info *info);

/**
 * Return the number of times that all streams have ended. A stream has ended when the detector has
 * ended it and the RX role has taken all its packets. Streams that failed do not count. UINT64_MAX:
 * all have failed. Any thread.
 */
uint64_t rx_multicast_ends(const struct rx_multicast *mc);

/** Return true if all streams have failed. They stay failed. Any thread. */
bool rx_multicast_failed(const struct rx_multicast *mc);

/** Add the numbers of packets that were repaired or lost permanently. Any thread. */
void rx_multicast_add_drops(const struct rx_multicast *mc, uint64_t drops[PORT_DROPS]);

#endif
