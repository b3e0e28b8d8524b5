/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Detector formats: a table of ops, one row a format. A new detector is one new file and one line
 * in detector.c.
 *
 * Terms: a *stream* is what one UDP interface of one module sends to one UDP port; a *tile* is the
 * pixels of one packet, numbered canonically over the frame: module by module, packet by packet
 * (for a JUNGFRAU with two interfaces: first interface, then second). The raster is the stack of
 * modules; a tile is a whole number of its rows.
 */
#ifndef DETECTOR_H
#define DETECTOR_H

#include <assert.h>
#include <stdint.h>

#define DETECTOR_MODULES_MAX 32
#define DETECTOR_STREAMS_MAX 64

/** What a receiver needs of a packet to place it. */
struct detector_packet {
	uint64_t frame;
	uint32_t packet;   /**< number in its stream, or DETECTOR_PACKET_BAD */
	uint32_t position; /**< of its module: column << 16 | row */
};
static_assert(sizeof(struct detector_packet) == 16, "four a line");
#define DETECTOR_PACKET_BAD UINT32_MAX

/** What a packet's header says of the whole frame. */
struct detector_frame_info {
	uint64_t bunch_id;
	uint64_t time;	   /**< detector ticks, see detector_ops.tick_ns */
	uint32_t exposure; /**< detector ticks */
	uint32_t status;   /**< format-specific word (JUNGFRAU: DAQ info) */
};

/** Shape of a module as the format sends it. */
struct detector_ops {
	const char *name;
	uint32_t rows, cols;	 /**< pixels of a module */
	uint32_t header_bytes;	 /**< between UDP header and pixels */
	uint32_t pixel_bytes;	 /**< pixels of one packet, in bytes */
	uint32_t tile_rows;	 /**< rows of one packet, full width */
	uint32_t interfaces_max; /**< UDP interfaces a module may use: 1 ... this */
	uint32_t tick_ns;	 /**< unit of detector_frame_info times */
	/** Bits of detector_frame_info.status that must be the same in all modules of a frame. */
	uint32_t status_common;
	uint32_t status_cell; /**< ... of these, the storage cell, */
	uint32_t status_mode; /**< and what chooses the gain */

	/**
	 * Read the headers of a burst. Called by RX lcores; reads header_bytes at each pointer.
	 * A header that is not of this format gives DETECTOR_PACKET_BAD.
	 */
	void (*parse)(const uint8_t *const header[], struct detector_packet *out, uint32_t n);

	/** Read what is the same in all packets of a frame. */
	void (*frame_info)(const uint8_t *header, struct detector_frame_info *info);
};

/** A configured detector. */
struct detector {
	const struct detector_ops *ops;
	uint32_t modules;
	uint32_t interfaces; /**< a module's UDP interfaces */
	/* computed by detector_init() */
	uint32_t streams;	 /**< modules x interfaces */
	uint32_t stream_packets; /**< packets of one stream and frame */
	uint32_t module_packets; /**< packets of one module and frame */
	uint32_t tiles;		 /**< packets of a frame */
	/** Packets that each stream sends, [expect_from, expect_to): less with partial readout. */
	uint8_t expect_from[DETECTOR_STREAMS_MAX];
	uint8_t expect_to[DETECTOR_STREAMS_MAX];
	uint32_t expected; /**< packets of a frame, all streams */
	/** Status words that are as they should be: status & mask == value; 0, 0 = any. */
	uint32_t status_mask;
	uint32_t status_value;
};

extern const struct detector_ops jungfrau_ops;

/** A format by name. @return NULL if there is none */
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
 * Say how many rows modules read out, the middle ones, and which streams do not send at all.
 * Packets are not renumbered (PSI's virtual JUNGFRAU sends them so): fewer of the same numbers
 * come.
 * @param rows    of a module, 0 = all
 * @param absent  streams that are configured absent
 * @return 0; -EINVAL: not a whole, even number of packets, or nothing is left
 */
int detector_expect(struct detector *d, uint32_t rows, const uint32_t *absent, uint32_t nb_absent);

/** Packets that a stream sends for a frame. */
static inline uint32_t
detector_stream_expected(const struct detector *d, uint32_t stream)
{
	return d->expect_to[stream] - d->expect_from[stream];
}

/** First tile of a stream; its packet p is tile first + p. */
static inline uint32_t
detector_stream_tile(const struct detector *d, uint32_t stream)
{
	return stream * d->stream_packets;
}

static inline uint32_t
detector_stream_module(const struct detector *d, uint32_t stream)
{
	return stream / d->interfaces;
}

#endif /* DETECTOR_H */
