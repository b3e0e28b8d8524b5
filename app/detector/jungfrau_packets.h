/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * JUNGFRAU frames as packets: Ethernet, IPv4, UDP, sls_detector_header version 2, 8192 bytes.
 *
 * Written from slsDetectorPackage's documentation (detectors.md 3.1, 3.2) and apart from the
 * receiver's parser on purpose: the two check each other.
 *
 * A *stream* is what one UDP interface of one module sends, to a UDP port of its own. Packet p of
 * a module with one interface carries rows 4p ... 4p + 3. With two, interface 0 carries rows
 * 0 ... 255 and interface 1 rows 256 ... 511, each in packets 0 ... 63.
 */
#ifndef JUNGFRAU_PACKETS_H
#define JUNGFRAU_PACKETS_H

#include <stdint.h>

#include "jungfrau_model.h"

#define JUNGFRAU_ETHERNET_BYTES 14
#define JUNGFRAU_IPV4_BYTES	20
#define JUNGFRAU_UDP_BYTES	8
#define JUNGFRAU_SLS_BYTES	48
#define JUNGFRAU_PAYLOAD_BYTES	8192
#define JUNGFRAU_UDP_PAYLOAD	(JUNGFRAU_SLS_BYTES + JUNGFRAU_PAYLOAD_BYTES)
#define JUNGFRAU_SLS_OFFSET	(JUNGFRAU_ETHERNET_BYTES + JUNGFRAU_IPV4_BYTES + JUNGFRAU_UDP_BYTES)
#define JUNGFRAU_PACKET_BYTES	(JUNGFRAU_SLS_OFFSET + JUNGFRAU_UDP_PAYLOAD)
#define JUNGFRAU_MODULE_PACKETS 128

_Static_assert(JUNGFRAU_MODULE_PACKETS *JUNGFRAU_PAYLOAD_BYTES == 2 * JUNGFRAU_PIXELS,
	"the packets of a module hold its pixels");

/** DAQ information (detSpec3). */
#define JUNGFRAU_DAQ_CHIP_1_1	    (1u << 5)
#define JUNGFRAU_DAQ_EXTERNAL_INPUT (1u << 31)

/** Where packets come from and go to. */
struct jungfrau_wire {
	uint32_t modules;
	uint32_t interfaces;	 /**< of a module, 1 or 2 */
	uint32_t column_modules; /**< modules of one column of the stack */
	uint16_t module_id;	 /**< of module 0, the others follow */
	uint16_t source_port;	 /**< UDP, of all streams */
	uint16_t port;		 /**< UDP destination of stream 0, the others follow */
	uint8_t source_mac[6];	 /**< of stream 0, the others follow */
	uint8_t destination_mac[6];
	uint32_t source_ip; /**< host byte order; of stream 0, the others follow */
	uint32_t destination_ip;
};

/** What all packets of a frame say about it. */
struct jungfrau_frame_header {
	uint64_t number;
	uint64_t bunch_id;
	uint64_t timestamp; /**< 10 MHz ticks */
	uint32_t exposure;  /**< 100 ns */
	uint32_t daq_info;
};

/** Packets of one frame in one stream. */
static inline uint32_t
jungfrau_stream_packets(const struct jungfrau_wire *wire)
{
	return JUNGFRAU_MODULE_PACKETS / wire->interfaces;
}

/**
 * Make one packet.
 * @param packet number within the stream, 0 ... jungfrau_stream_packets() - 1
 * @param raw    pixels of the whole module
 */
void jungfrau_packet_make(const struct jungfrau_wire *wire,
	const struct jungfrau_frame_header *header, uint32_t module, uint32_t interface,
	uint32_t packet, const uint16_t raw[JUNGFRAU_PIXELS], uint8_t out[JUNGFRAU_PACKET_BYTES]);

#endif /* JUNGFRAU_PACKETS_H */
