/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * How a detector's packets reach an RX role: a table of functions, one element for each transport.
 * From rx_accept() on, all transports share the path to the builder. A new transport needs one new
 * file and one line here.
 *
 * Only the RX role's lcore calls the functions.
 */
#ifndef RX_TRANSPORT_H
#define RX_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_branch_prediction.h>
#include <rte_mbuf.h>

#include "counter.h"
#include "frames/detector.h"
#include "frames/frame_rx.h"
#include "rx/rx.h"
#include "source_settings.h"

/** Functions of a transport. */
struct rx_transport {
	const char *name;
	/** A struct rx_packet is an event: it counts as all packets of its stream and frame. */
	bool events;
	/**
	 * Take a burst of a queue: read its headers, let rx_accept() check them, and rx_take()
	 * place the packets.
	 * @param source  a queue, or rx.nb_queues for the handoff ring
	 * @return packets or events; RX_BURST: there may be more
	 */
	uint32_t (*poll)(struct rx *rx, uint32_t source);
	/**
	 * Called instead of poll() while too many packets of the source wait: do the work that must
	 * not stop meanwhile. NULL: there is nothing.
	 */
	void (*hold)(struct rx *rx, uint32_t source);
	/**
	 * The RX role stops: notify the senders. @return false: call again. NULL: nothing to notify
	 */
	bool (*leave)(struct rx *rx);
	/**
	 * Place a packet whose frame belongs to this receiver. NULL: it is a UDP packet, and
	 * rx.c places it without a call.
	 * @param frame  of the table
	 * @param rest   in: NULL; out: mbufs that are freed at once although the packet was placed
	 */
	enum frame_placement (*place)(
		struct rx *rx, const struct rx_packet *p, uint64_t frame, struct rte_mbuf **rest);
	/** A packet that rx_accept() has checked is dropped. NULL: only its mbuf is freed. */
	void (*dropped)(struct rx *rx, const struct rx_packet *p, enum rx_counter cause);
	/**
	 * Headers that represent the queue pair of a packet. NULL: a UDP packet, whose headers
	 * precede its detector header.
	 */
	const uint8_t *(*headers)(const struct rx *rx, const struct rx_packet *p);
};

extern const struct rx_transport rx_udp;       /**< UDP packets (udp.c) */
extern const struct rx_transport rx_reference; /**< RoCE messages in mbufs (reference.c) */
extern const struct rx_transport rx_memory;    /**< events of pixels in memory (ring.c) */
extern const struct rx_transport rx_multicast; /**< multicast streams (multicast.c) */

/** rx_transport.headers of RoCE streams. */
const uint8_t *rx_queue_pair_headers(const struct rx *rx, const struct rx_packet *p);

/** Ethernet, IPv4 and UDP headers of a packet, or those that represent its queue pair. */
static inline const uint8_t *
rx_headers(const struct rx *rx, const struct rx_packet *p)
{
	return likely(rx->transport->headers == NULL) ? p->header - SOURCE_HEADERS
						      : rx->transport->headers(rx, p);
}

/** Return the number of packets that a struct rx_packet counts as. */
static inline uint32_t
rx_packets_of(const struct rx *rx, uint32_t stream)
{
	return likely(!rx->transport->events) ? 1 : detector_stream_expected(rx->detector, stream);
}

/** Count a packet that is dropped. The caller frees its mbuf. */
static inline void
rx_count_drop(struct rx *rx, const struct rx_packet *p, enum rx_counter cause)
{
	counter_add(&rx->counters[cause], rx_packets_of(rx, p->stream));
	if (rx->transport->dropped != NULL)
		rx->transport->dropped(rx, p, cause);
}

/** Packets of a burst whose headers were read. They may be placed. */
struct rx_batch {
	struct rx_packet *packets;
	uint32_t n;
};

/** Packets of a burst that cannot be used, and were counted. */
struct rx_dropped {
	struct rte_mbuf *m[RX_BURST];
	uint32_t n;
};

/** Parts of a sample of a packet that cannot be used. */
struct rx_excerpt {
	const uint8_t *headers; /**< Ethernet, IPv4 and UDP headers; NULL: they are in `data` */
	const void *data;
	uint32_t bytes;	 /**< of `data` */
	uint32_t length; /**< of the packet */
};

/** Keep a sample of a packet, see struct rx_samples. @param stream  of its port, if known */
void rx_keep_sample(
	struct rx *rx, enum rx_counter cause, uint32_t stream, const struct rx_excerpt *e);

/** Record a packet that is dropped although it has the detector's format. */
void rx_note_drop(struct rx *rx, uint32_t stream, uint64_t frame, enum rx_counter cause);

/** Check positions again if a stream of any RX role has announced another one. */
void rx_check_positions(struct rx *rx, struct rx_batch *batch);

/**
 * Check packets whose detector headers were parsed: packet number, source, position. Packets of
 * other RX roles enter the outgoing handoff buffer of that role, which has room for a burst.
 * @param source  queue, or rx.nb_queues for the handoff ring
 * @param out     packets with `m`, `header` and `stream`; those that may be placed are moved to the
 *                front
 * @param valid   number of packets
 * @param drop    in: packets that the caller has refused. They are freed with the others that are
 *                dropped here
 * @return packets that may be placed
 */
uint32_t rx_accept(struct rx *rx, uint32_t source, struct rx_packet *out,
	const struct detector_packet *parsed, uint32_t valid, struct rx_batch *batch,
	struct rx_dropped *drop);

/** Place packets that were read. Those that must wait become pending; there is room for a burst. */
void rx_take(struct rx *rx, struct rx_packet *packets, uint32_t n);

#endif
