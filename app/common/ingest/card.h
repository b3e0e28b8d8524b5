/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * What a detector must know to send by RoCEv2: the *card* of a receiver, and the layout of messages
 * and of the receiver's ring. The receiver writes the card; a detector reads it from a file, gets a
 * part of it in the private data of the CM, or has its values entered by hand in the registers of
 * an FPGA.
 *
 * Message. One message of a stream has the content of one packet of the detector: the pixels (a
 * *tile*), and then the *trailer*, which is the detector's header as in a UDP packet, padded with
 * zeros to INGEST_TRAILER_BYTES. A JUNGFRAU message has 8,192 + 64 bytes: three RoCE packets with a
 * path MTU of 4,096 bytes. On a UC queue pair, a trailer that was placed proves that the pixels
 * before it were placed, because packets of a message are taken only in the order of their PSNs. If
 * the card has a *leader*, the message begins with INGEST_LEADER_BYTES: zeros, and in the last 8
 * bytes the frame number, little-endian. A receiver needs it if the device writes into the memory
 * that gangs read: as with a seqlock, a gang reads the trailer, the pixels, and then the leader. If
 * the sender laps the ring meanwhile, it writes the new leader before any new pixel.
 *
 * Ring (transport `write`). Each stream has a ring of `slots` slots, a power of two. A slot has the
 * tiles of one frame of one stream, in the order of their packet numbers:
 *
 *     address = base + (frame mod slots) x slot_bytes
 *             + tile x (leader_bytes + tile_bytes + trailer_bytes)
 *
 * The frame is the number in the detector's header, and the tile is the packet number in it.
 *
 * Event. After the last message of a frame, each stream sends a message without data and with an
 * immediate: SEND with immediate, or RDMA WRITE with immediate of length 0. The immediate is
 * ingest_immediate(). No event has a tile.
 *
 * Any thread may call the functions.
 */
#ifndef INGEST_CARD_H
#define INGEST_CARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INGEST_VERSION	     1
#define INGEST_STREAMS_MAX   64
#define INGEST_TRAILER_BYTES 64 /**< keeps the tiles on cache lines */
#define INGEST_LEADER_BYTES  64 /**< likewise */
#define INGEST_SLOTS_MAX     65536
#define INGEST_ADDRESS_LEN   46 /**< INET6_ADDRSTRLEN */

enum ingest_transport {
	INGEST_UDP,	  /**< UDP packets; there is no card */
	INGEST_SEND,	  /**< UC SEND */
	INGEST_WRITE,	  /**< UC RDMA WRITE to the addresses above */
	INGEST_MULTICAST, /**< reliable multicast (multicast.h); there is no card */
};

/** Names as in `[detector] transport` and `--transport`, in the order above; the last is NULL. */
extern const char *const ingest_transport_names[5];

/** Where one stream is received. */
struct ingest_stream {
	char ip[INGEST_ADDRESS_LEN]; /**< of the receiver's port */
	uint32_t qpn;
	uint32_t psn;  /**< first PSN that the receiver expects */
	uint32_t rkey; /**< write */
	uint64_t base; /**< write: address of slot 0 */
};

struct ingest_card {
	enum ingest_transport transport; /**< INGEST_SEND or INGEST_WRITE */
	uint32_t streams;
	uint32_t mtu;		/**< path MTU in bytes: 256, 512, 1024, 2048 or 4096 */
	uint32_t tile_bytes;	/**< pixels of a message; a multiple of 64 */
	uint32_t trailer_bytes; /**< INGEST_TRAILER_BYTES */
	uint32_t leader_bytes;	/**< write: 0 or INGEST_LEADER_BYTES; send: 0 */
	uint32_t tiles;		/**< messages of a stream and frame */
	uint32_t slots;		/**< write: a power of two */
	uint64_t slot_bytes;	/**< write: tiles x ingest_message_bytes() */
	struct ingest_stream stream[INGEST_STREAMS_MAX];
};

/** Bytes of a message, which is also the distance of messages in a slot. */
static inline uint64_t
ingest_message_bytes(const struct ingest_card *c)
{
	return (uint64_t)c->leader_bytes + c->tile_bytes + c->trailer_bytes;
}

/** Address of a message: of its leader if there is one, else of its tile. */
static inline uint64_t
ingest_address(const struct ingest_card *c, uint32_t stream, uint64_t frame, uint32_t tile)
{
	return c->stream[stream].base + (frame & (c->slots - 1)) * c->slot_bytes +
		tile * ingest_message_bytes(c);
}

/** Immediate of the event of a frame: stream << 24 | low 24 bits of the frame number. */
static inline uint32_t
ingest_immediate(uint32_t stream, uint64_t frame)
{
	return stream << 24 | (frame & 0xFFFFFF);
}

/** Stream of an event. */
static inline uint32_t
ingest_immediate_stream(uint32_t immediate)
{
	return immediate >> 24;
}

/** Frame of an event: the number with these low 24 bits that is nearest to `near`. */
static inline uint64_t
ingest_immediate_frame(uint32_t immediate, uint64_t near)
{
	const uint64_t frame = (near & ~UINT64_C(0xFFFFFF)) | (immediate & 0xFFFFFF);

	if (frame > near && frame - near > 0x800000 && frame >= 0x1000000)
		return frame - 0x1000000;
	if (frame < near && near - frame > 0x800000)
		return frame + 0x1000000;
	return frame;
}

/**
 * Check the values of a card.
 * @param message  out: which value is wrong, and what is allowed; "" if none
 * @return 0; -EINVAL
 */
int ingest_card_check(const struct ingest_card *card, char *message, size_t size);

/**
 * Read a card from a file (README.rst has the keys), and check it.
 * @param message  out: errors with file and line, "" on success
 * @return 0; -EINVAL; -errno of reading the file
 */
int ingest_card_read(struct ingest_card *card, const char *path, char *message, size_t size);

/**
 * Write a card to a file, which is replaced in one step.
 * @return 0 or -errno
 */
int ingest_card_write(const struct ingest_card *card, const char *path);

/** Bytes of a stream's part of the card in the private data of a REP. */
#define INGEST_PRIVATE_BYTES 56

/**
 * Encode what a detector needs of one stream for the private data of a REP: magic, version,
 * transport, and the values of the card. The fields are big-endian; README.rst has the table.
 */
void ingest_card_to_private(
	const struct ingest_card *card, uint32_t stream, uint8_t out[INGEST_PRIVATE_BYTES]);

/**
 * Decode it into the card's common values and `card->stream[stream]`, without IP address, queue
 * pair number and PSN, which the CM has.
 * @return 0; -EINVAL: no such data, or invalid values
 */
int ingest_card_from_private(
	struct ingest_card *card, uint32_t stream, const uint8_t *data, size_t length);

/** Private data of a REQ, which is at most 56 bytes. */
#define INGEST_REQUEST_BYTES 24

/** What a detector says of a queue pair. */
struct ingest_request {
	uint32_t stream;
	enum ingest_transport transport;
	/**
	 * Write: address and key of the stream's credit, in the detector's memory; address 0: none.
	 * The credit is a word of 8 bytes, little-endian, that the receiver writes: all slots of
	 * frames below it are free. Before the first frame of a connection, any value says that the
	 * whole ring is free.
	 */
	uint64_t credit_address;
	uint32_t credit_rkey;
};

void ingest_request_encode(const struct ingest_request *request, uint8_t out[INGEST_REQUEST_BYTES]);

/** @return 0; -EINVAL: no such request */
int ingest_request_decode(struct ingest_request *request, const uint8_t *data, size_t length);

#endif /* INGEST_CARD_H */
