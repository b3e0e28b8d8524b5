/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Fragments of a multicast stream (ingest/multicast.h): takes packets in the order of their
 * sequence numbers, assembles messages in the slots of the stream's ring, and hands tiles and
 * events to open_frames.h.
 *
 * Only the RX role that owns the stream calls these functions.
 */
#ifndef RX_FRAGMENTS_H
#define RX_FRAGMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "rx/open_frames.h"

struct rdma_stream_packet;

/** Why a fragment is refused. The rest of its message is dropped with it. */
enum rx_fragment_cause {
	RX_FRAGMENT_FORMAT, /**< no fragment, or values that contradict its length */
	RX_FRAGMENT_STREAM, /**< belongs to another stream of the detector */
	RX_FRAGMENT_TILE,   /**< tile that the stream does not send, or impossible frame number */
	/** another size of a message, or another number of messages of a frame */
	RX_FRAGMENT_SIZE,
	RX_FRAGMENT_ORDER, /**< not the next one of its message, although no packet was lost */
	/** the detector's header is that of another frame or tile, or has another format */
	RX_FRAGMENT_HEADER,
	RX_FRAGMENT_CAUSES
};

extern const char *const rx_fragment_cause_names[RX_FRAGMENT_CAUSES];

/** The message of a stream that is being received. */
struct fragments {
	uint32_t fragment_max;
	uint32_t message_bytes; /**< without a leader */
	bool begun;		/**< a packet was taken: `run` and `next` are valid */
	uint64_t run;		/**< of the sender */
	uint64_t next;		/**< sequence number that follows without a loss */
	uint32_t tile;		/**< of the message; UINT32_MAX: none */
	uint32_t at;		/**< bytes of this message that have arrived */
	uint64_t frame;		/**< of this message */
	bool skip; /**< fragments up to the beginning of the next message are dropped */
	struct open_frames open;
	uint64_t refused[RX_FRAGMENT_CAUSES]; /**< fragments; read by other threads */
};

void fragments_init(struct fragments *fs, const struct rx_messages *m, uint32_t stream);

/**
 * Take a packet.
 * @return false: it must wait, because its slot is in use
 */
bool fragments_take(struct rx *rx, struct fragments *fs, const struct rdma_stream_packet *p,
	struct event_burst *b);

#endif
