/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * JUNGFRAU frames as packets: Ethernet, IPv4, UDP, sls_detector_header version 2, 8192 bytes.
 *
 * Written from slsDetectorPackage's documentation (docs/src/udpheader.rst, udpdetspec.rst) and, on
 * purpose, independently of the receiver's parser: the two check each other.
 *
 * A *stream* is the sequence of packets from one UDP interface of one module to its own UDP port.
 * Packet p of a module with one interface has rows 4p ... 4p + 3. With two, interface 0 has rows 0
 * ... 255 and interface 1 rows 256 ... 511, each in packets 0 ... 63. In a partial readout, only
 * the rows in the middle of the module are read. Packets keep their numbers, and the others are not
 * sent.
 */
#ifndef JUNGFRAU_PACKETS_H
#define JUNGFRAU_PACKETS_H

#include <assert.h>
#include <stdint.h>

#include "sim/jungfrau_model.h"

#define JUNGFRAU_ETHERNET_BYTES 14
#define JUNGFRAU_IPV4_BYTES	20
#define JUNGFRAU_UDP_BYTES	8
#define JUNGFRAU_SLS_BYTES	48
#define JUNGFRAU_PAYLOAD_BYTES	8192
#define JUNGFRAU_UDP_PAYLOAD	(JUNGFRAU_SLS_BYTES + JUNGFRAU_PAYLOAD_BYTES)
#define JUNGFRAU_SLS_OFFSET	(JUNGFRAU_ETHERNET_BYTES + JUNGFRAU_IPV4_BYTES + JUNGFRAU_UDP_BYTES)
#define JUNGFRAU_PACKET_BYTES	(JUNGFRAU_SLS_OFFSET + JUNGFRAU_UDP_PAYLOAD)
#define JUNGFRAU_HEADER_BYTES	(JUNGFRAU_SLS_OFFSET + JUNGFRAU_SLS_BYTES)
#define JUNGFRAU_MODULE_PACKETS 128
#define JUNGFRAU_PACKET_ROWS	(JUNGFRAU_ROWS / JUNGFRAU_MODULE_PACKETS)

static_assert(JUNGFRAU_MODULE_PACKETS * JUNGFRAU_PAYLOAD_BYTES == 2 * JUNGFRAU_PIXELS,
	"the packets of a module hold its pixels");

/** DAQ information (detSpec3). */
#define JUNGFRAU_DAQ_CHIP_1_1	    (1u << 5)
#define JUNGFRAU_DAQ_CELL(cell)	    ((uint32_t)(cell) << 8) /* storage cell, 0 ... 15 */
#define JUNGFRAU_DAQ_FORCED_G1	    (1u << 12)
#define JUNGFRAU_DAQ_FORCED_G2	    (1u << 13)
#define JUNGFRAU_DAQ_EXTERNAL_INPUT (1u << 31)

/** Addresses of the packets. */
struct jungfrau_wire {
	uint32_t modules;
	uint32_t interfaces;	 /**< per module, 1 or 2 */
	uint32_t column_modules; /**< modules in one column of the stack */
	uint32_t rows;		 /**< read out of each module, a multiple of 8 */
	uint16_t module_id;	 /**< of module 0; the others follow */
	uint16_t source_port;	 /**< UDP source port of all streams */
	uint16_t port;		 /**< UDP destination port of stream 0; the others follow */
	uint8_t source_mac[6];	 /**< of stream 0; the others follow */
	uint8_t destination_mac[6];
	uint32_t source_ip; /**< host byte order; of stream 0; the others follow */
	uint32_t destination_ip;
};

/** Header values common to all packets of a frame. */
struct jungfrau_frame_header {
	uint64_t number;
	uint64_t bunch_id;
	uint64_t timestamp; /**< 10 MHz ticks */
	uint32_t exposure;  /**< in units of 100 ns */
	uint32_t daq_info;
};

/** Packets per frame in one stream. */
static inline uint32_t
jungfrau_stream_packets(const struct jungfrau_wire *wire)
{
	return wire->rows / JUNGFRAU_PACKET_ROWS / wire->interfaces;
}

/** Packets per frame. */
static inline uint32_t
jungfrau_frame_packets(const struct jungfrau_wire *wire)
{
	return wire->modules * wire->interfaces * jungfrau_stream_packets(wire);
}

/**
 * Number of the first packet of each frame in a stream; partial readout does not renumber packets.
 */
static inline uint32_t
jungfrau_stream_first(const struct jungfrau_wire *wire, uint32_t interface)
{
	uint32_t first = jungfrau_first_row(wire->rows) / JUNGFRAU_PACKET_ROWS;

	return interface == 0 ? first : 0;
}

/** Byte offset in the module's pixels of a packet's payload. */
static inline uint32_t
jungfrau_payload_offset(const struct jungfrau_wire *wire, uint32_t interface, uint32_t packet)
{
	return (interface * (JUNGFRAU_MODULE_PACKETS / wire->interfaces) + packet) *
		JUNGFRAU_PAYLOAD_BYTES;
}

/**
 * Make the headers that precede the pixels.
 * @param packet number within the stream, starting at jungfrau_stream_first()
 */
void jungfrau_header_make(const struct jungfrau_wire *wire,
	const struct jungfrau_frame_header *header, uint32_t module, uint32_t interface,
	uint32_t packet, uint8_t out[JUNGFRAU_HEADER_BYTES]);

/** Make the detector's own header of a packet, sls_detector_header version 2. */
void jungfrau_sls_make(const struct jungfrau_wire *wire, const struct jungfrau_frame_header *header,
	uint32_t module, uint32_t interface, uint32_t packet, uint8_t out[JUNGFRAU_SLS_BYTES]);

/**
 * Update a header that jungfrau_header_make() made for the same packet of another frame. Only the
 * bytes written here differ between frames.
 */
void jungfrau_header_update(const struct jungfrau_wire *wire,
	const struct jungfrau_frame_header *header, uint8_t made[JUNGFRAU_HEADER_BYTES]);

/**
 * Make one packet.
 * @param packet number within the stream, starting at jungfrau_stream_first()
 * @param raw    pixels of the whole module
 */
void jungfrau_packet_make(const struct jungfrau_wire *wire,
	const struct jungfrau_frame_header *header, uint32_t module, uint32_t interface,
	uint32_t packet, const uint16_t raw[JUNGFRAU_PIXELS], uint8_t out[JUNGFRAU_PACKET_BYTES]);

#endif /* JUNGFRAU_PACKETS_H */
