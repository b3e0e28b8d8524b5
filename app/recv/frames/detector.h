/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Detector formats: a table of ops, one element for each format. A new detector needs one new file
 * and one line in detector.c.
 *
 * Terms:
 *  - A *stream* consists of the packets that one UDP interface of one module sends to one UDP port.
 *  - A *tile* consists of the pixels of one packet. Tiles are numbered over the frame, module by
 *    module and packet by packet (JUNGFRAU with two interfaces: first interface, then second).
 *  - The *raster* is the stack of modules. A tile is a whole number of its rows.
 */
#ifndef DETECTOR_H
#define DETECTOR_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DETECTOR_MODULES_MAX 32
#define DETECTOR_STREAMS_MAX 64

/** Header fields that the receiver needs to place a packet. */
struct detector_packet {
	uint64_t frame;	   /**< detector's frame number */
	uint32_t packet;   /**< number in its stream, or DETECTOR_PACKET_BAD */
	uint32_t position; /**< of its module in the detector: column << 16 | row */
};
static_assert(sizeof(struct detector_packet) == 16, "four a line");
#define DETECTOR_PACKET_BAD UINT32_MAX

/** Header fields that are the same in all packets of a frame. */
struct detector_frame_info {
	uint64_t bunch_id; /**< of the accelerator */
	uint64_t time;	   /**< detector ticks, see detector_ops.tick_ns */
	uint32_t exposure; /**< detector ticks */
	uint32_t status;   /**< format-specific word (JUNGFRAU: DAQ info) */
};

/** A detector format: shape of a module, and functions that read its headers. Constant. */
struct detector_ops {
	const char *name;	 /**< as in [detector] type */
	uint32_t rows, cols;	 /**< pixels of a module */
	uint32_t header_bytes;	 /**< between UDP header and pixels */
	uint32_t pixel_bytes;	 /**< pixels of one packet, in bytes */
	uint32_t tile_rows;	 /**< rows of one packet, full width */
	uint32_t interfaces_max; /**< UDP interfaces of a module, at most */
	uint32_t tick_ns;	 /**< unit of the times in detector_frame_info, in ns */
	/** Bits of detector_frame_info.status that must be the same in all modules of a frame. */
	uint32_t status_common;
	uint32_t status_cell; /**< those of them with the storage cell */
	uint32_t status_mode; /**< those of them that select the gain mode */

	/**
	 * Read the headers of a burst, header_bytes at each pointer. Called by RX lcores. For a
	 * header of another format, `packet` is set to DETECTOR_PACKET_BAD.
	 */
	void (*parse)(const uint8_t *const header[], struct detector_packet *out, uint32_t n);

	/**
	 * Describe why parse() finds another format: "version 1, expected version 2". Not called by
	 * RX lcores.
	 */
	void (*explain)(const uint8_t *header, char *text, size_t size);

	/** Read the fields of detector_frame_info. Called by RX lcores. */
	void (*frame_info)(const uint8_t *header, struct detector_frame_info *info);
};

/** A configured detector. Read-only after the start. */
struct detector {
	const struct detector_ops *ops;
	uint32_t modules;
	uint32_t interfaces; /**< UDP interfaces of a module */
	/* computed by detector_init() */
	uint32_t streams;	 /**< modules x interfaces */
	uint32_t stream_packets; /**< packets of one stream and frame */
	uint32_t module_packets; /**< packets of one module and frame */
	uint32_t tiles;		 /**< packets of a frame */
	/** By stream: numbers of the packets that it sends, expect_from ... expect_to - 1. Partial
	 * readout has fewer. */
	uint8_t expect_from[DETECTOR_STREAMS_MAX];
	uint8_t expect_to[DETECTOR_STREAMS_MAX];
	uint32_t expected; /**< packets of a frame that are sent, all streams */
	/** Addresses of a packet's pixels: 1, or the number of RoCE packets over which the pixels
	 * of a message are spread if messages are received by reference. */
	uint32_t parts;
	/** Expected status words: status & status_mask == status_value; 0, 0 = any. */
	uint32_t status_mask;
	uint32_t status_value;
	bool bunch_any; /**< the modules of a frame may send different bunch ids */
	bool messages;	/**< RoCE: streams are queue pairs and have no UDP ports */
};

extern const struct detector_ops jungfrau_ops;

/** Find a format by name. @return NULL: there is none */
const struct detector_ops *detector_find(const char *name);

/** Names of all formats, separated by ", ". */
const char *detector_names(void);

/**
 * Compute the shape of a detector.
 * @return 0; -EINVAL: modules or interfaces out of range for the format
 */
int detector_init(
	struct detector *d, const struct detector_ops *ops, uint32_t modules, uint32_t interfaces);

/**
 * Set how many rows modules read out (the middle ones), and which streams do not send. With fewer
 * rows, packets keep their numbers (as sent by PSI's virtual JUNGFRAU), so the first and last
 * numbers are missing.
 * @param rows    rows of a module that are read out, 0 = all
 * @param absent  streams that are configured absent
 * @return 0; -EINVAL: `rows` is not a whole, even number of packets, or no packet is left
 */
int detector_expect(struct detector *d, uint32_t rows, const uint32_t *absent, uint32_t nb_absent);

/**
 * Set in how many parts the pixels of a packet are received, each of them at its own address.
 * @return 0; -EINVAL: a part is not a whole number of rows
 */
int detector_split(struct detector *d, uint32_t parts);

/** Packets that a stream sends for a frame. */
static inline uint32_t
detector_stream_expected(const struct detector *d, uint32_t stream)
{
	return d->expect_to[stream] - d->expect_from[stream];
}

/**
 * Return true if some streams are most of the detector: at least half of the expected ones, and
 * more than the others that send. The numbers of fewer streams may be forged.
 */
static inline bool
detector_are_most(uint32_t streams, uint32_t others, uint32_t expected)
{
	return 2 * streams >= expected && streams > others;
}

/** Return true if a module sends this pixel of its raster. */
static inline bool
detector_reads_out(const struct detector *d, uint32_t module, size_t pixel)
{
	const uint32_t packet = (uint32_t)(pixel / (d->ops->tile_rows * d->ops->cols));
	const uint32_t stream = module * d->interfaces + packet / d->stream_packets;
	const uint32_t in_stream = packet % d->stream_packets;

	return in_stream >= d->expect_from[stream] && in_stream < d->expect_to[stream];
}

/** First tile of a stream; its packet p is tile first + p. */
static inline uint32_t
detector_stream_tile(const struct detector *d, uint32_t stream)
{
	return stream * d->stream_packets;
}

/** Module of a stream. */
static inline uint32_t
detector_stream_module(const struct detector *d, uint32_t stream)
{
	return stream / d->interfaces;
}

/** Format e.g. "module 1 (stream 1, UDP port 50002)"; RoCE: without port. @return text */
const char *detector_stream_name(
	const struct detector *d, uint32_t udp_port, uint32_t stream, char *text, size_t size);

#endif /* DETECTOR_H */
