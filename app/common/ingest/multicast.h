/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Layout of a detector's packets in reliable multicast streams (rdma_stream.h, transport
 * `multicast`). There is no card: the detector is the server, and receivers join its streams.
 *
 * Streams. Each stream of the detector is a separate rdma_stream: stream N has the group address
 * `group` + N and the service port `service` + N of the detector. A member joins all.
 *
 * Fragments. One packet of an rdma_stream has one *fragment*: a struct ingest_fragment, and then up
 * to ingest_fragment_max() bytes of a message. A message is that of card.h without a leader: the
 * pixels of a tile, and the trailer. The fragments of a message are sent in the order of their
 * offsets, with no other fragment of the stream between them. All but the last have
 * ingest_fragment_max() bytes.
 *
 * Event. After the last message of a frame each stream sends a fragment whose tile is INGEST_EVENT,
 * without data.
 *
 * Sequence numbers of the rdma_stream show lost fragments. A receiver drops a message unless all of
 * its fragments have arrived in order.
 */
#ifndef INGEST_MULTICAST_H
#define INGEST_MULTICAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INGEST_FRAGMENT_MAGIC	0x464D4C42u /**< "BLMF", little-endian */
#define INGEST_FRAGMENT_VERSION 1
#define INGEST_EVENT		UINT32_MAX /**< `tile` of an event */

/** Header of a fragment; all fields are little-endian. */
struct ingest_fragment {
	uint32_t magic;	  /**< INGEST_FRAGMENT_MAGIC */
	uint16_t version; /**< INGEST_FRAGMENT_VERSION */
	uint16_t stream;  /**< of the detector */
	uint64_t frame;	  /**< the number in the detector's header */
	uint32_t tile;	  /**< packet number in the detector's header, or INGEST_EVENT */
	uint32_t offset;  /**< bytes of the message before this fragment; event: 0 */
	uint32_t message; /**< bytes of the message; event: 0 */
	uint32_t tiles;	  /**< messages of a stream and frame */
};

/** Maximum bytes of a message in a fragment: a multiple of 64, so that whole lines are copied. */
static inline uint32_t
ingest_fragment_max(uint32_t payload_max)
{
	return (payload_max - (uint32_t)sizeof(struct ingest_fragment)) & ~63u;
}

/** Encode a fragment's header. The values of `f` are those of the host. */
void ingest_fragment_encode(const struct ingest_fragment *f, uint8_t out[sizeof(*f)]);

/**
 * Decode a packet of an rdma_stream, and check that its values agree with each other and with its
 * length: offset and length within the message, whole fragments but the last, an event without
 * data. The caller checks stream, tile, tiles and bytes of a message.
 * @param fragment_max  ingest_fragment_max() of the stream
 * @param f             out: values of the host
 * @return 0; -EINVAL: no such fragment
 */
int ingest_fragment_decode(
	const uint8_t *packet, size_t length, uint32_t fragment_max, struct ingest_fragment *f);

#endif /* INGEST_MULTICAST_H */
