/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * RoCE streams: devices, and a UC queue pair for each stream. Messages are delivered by reference
 * (reference.c) or in memory (ring.h). ingest/card.h describes the messages and the card. The poll
 * groups of the devices are the queues of RX roles, and a stream's queue pair belongs to the poll
 * group of its RX role. The RX roles call rdma_progress(); ROLE_CONNECT answers ARP and connection
 * requests.
 */
#ifndef RX_MESSAGES_H
#define RX_MESSAGES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include <rte_byteorder.h>

#include "frames/detector.h"
#include "ingest/card.h"
#include "source_settings.h"

struct memory;
struct port;
struct port_settings;
struct rdma_conn;
struct rdma_cq;
struct rdma_dev;
struct rdma_event;
struct rdma_pd;
struct rdma_qp;
struct rx_multicast;
struct rx_ring;
struct settings;

#define RX_DEVICES_MAX 16

/** A stream's queue pair, and its context. */
struct rx_message_stream {
	uint32_t stream;
	uint32_t device; /**< index in rx_messages.devices */
	uint16_t poll_group;
	struct rdma_pd *pd; /**< its own: another stream's sender cannot write to its ring */
	/** By reference: a queue pair needs it, but has no completions. In memory: NULL. */
	struct rdma_cq *cq;
	struct rdma_qp *qp;
	bool fresh;		/**< the queue pair is ready to be connected */
	struct rdma_conn *conn; /**< if the CM has connected it */
};

/** All streams. RX roles read it; the control lcore writes it before they run. */
struct rx_messages {
	struct ingest_card card;
	const struct settings *settings;
	uint32_t nb_devices;
	struct rdma_dev *devices[RX_DEVICES_MAX];
	uint32_t lost; /**< a device that was removed or has failed + 1, 0: none; atomic */
	struct rdma_conn *listeners[RX_DEVICES_MAX]; /**< with [ingest] service */
	struct rx_message_stream streams[DETECTOR_STREAMS_MAX];
	/**
	 * The refusal of a connection that was logged last. It is not logged again when a detector
	 * repeats its request.
	 */
	struct {
		const char *why;
		struct sockaddr_storage peer;
		uint64_t at; /**< TSC */
	} refusal;
	struct rx_ring *ring; /**< of messages in memory; NULL: they are delivered by reference */
	struct rx_multicast *multicast; /**< NULL: the detector uses queue pairs */
	/**
	 * Headers that replace those of a stream's packets, because a queue pair checks addresses
	 * and ports itself: the configured source and destination, else zeros.
	 */
	uint8_t headers[DETECTOR_STREAMS_MAX][SOURCE_HEADERS];
};

/** Where a message is in its stream's ring: its leader, or its pixels if there is none. */
static inline uint8_t *
rx_message_at(const struct rx_messages *m, uint32_t stream, uint64_t frame, uint32_t tile)
{
	return (uint8_t *)(uintptr_t)ingest_address(&m->card, stream, frame, tile);
}

/**
 * Name of the RoCE device of a port: on a port that is started, its poll groups are the queues.
 * @param id  of the ethdev
 */
void rx_messages_name_device(const struct port_settings *port, uint16_t id, uint32_t mtu,
	uint32_t queues, bool replay, char name[]);

/** Fill in the values of the card that all streams share. */
void rx_messages_describe(struct ingest_card *card, const struct settings *s);

/**
 * Open a RoCE device on each port, which is started, and create and connect the queue pairs. Write
 * the card. *Control.*
 * @param owner   RX role of each stream
 * @param memory  with which rings are registered
 * @return NULL with rte_errno; logged
 */
struct rx_messages *rx_messages_create(
	const struct settings *s, struct port *ports, const uint8_t *owner, struct memory *memory);

/**
 * Create a stream's queue pair, and enter its number in the card. Without [ingest] service it is
 * connected at once. *Control.* @return 0 or -errno, logged
 */
int rx_messages_open_stream(struct rx_messages *m, uint32_t stream);

/**
 * Get the address that may send to a stream's queue pair.
 * @return false: any address may, because no source is configured
 */
bool rx_messages_source(const struct rx_messages *m, uint32_t stream, rte_be32_t *address);

/** Look for the loss of a device in an event of it. By the lcore that polls events. */
void rx_messages_watch(struct rx_messages *m, uint32_t device, const struct rdma_event *event);

/** Get the name of a device that was removed or has failed. Any thread. @return false: none */
bool rx_messages_lost(const struct rx_messages *m, char *name, size_t size);

/** Listen for connection requests on a device. *Control.* @return 0 or -errno, logged */
int rx_connect_listen(struct rx_messages *m, uint32_t device);

/**
 * Answer ARP and connection requests (connect.c). Polled by one lcore.
 * @param messages  struct rx_messages
 * @return non-zero if there was anything to do
 */
int rx_connect_poll(void *messages);

/** Close all. RX roles have ended; NULL is allowed. *Control.* */
void rx_messages_destroy(struct rx_messages *messages);

#endif
