/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * [detector] source, source_mac, destination, positions: which packets are a stream's own.
 */
#ifndef SOURCE_SETTINGS_H
#define SOURCE_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_ip.h>

#include "config.h"
#include "detector.h"

/** Ethernet, IPv4 and UDP headers without options. */
#define SOURCE_HEADERS 42

#define SOURCE_MAC_TO	 0
#define SOURCE_MAC_FROM	 6
#define SOURCE_IP_FROM	 26
#define SOURCE_IP_TO	 30
#define SOURCE_PORT_FROM 34

/** Header words that are compared: both MAC addresses, both IP addresses, port and position. */
#define SOURCE_WORDS 4

/** Values of [detector] positions beside a number of modules. */
#define SOURCE_POSITIONS_AUTO 0
#define SOURCE_POSITIONS_OFF  UINT32_MAX

/** Header words of a stream's packets, and the bits of them that count. One cache line. */
struct source_filter {
	uint64_t value[SOURCE_WORDS];
	uint64_t mask[SOURCE_WORDS];
};

struct source_settings {
	struct source_filter filter[DETECTOR_STREAMS_MAX]; /**< what is configured */
	bool source;	    /**< `source` is configured; else it is learnt */
	bool any;	    /**< ... as `any`: every source is taken */
	bool destination;   /**< `destination` is configured */
	uint32_t positions; /**< modules in a column of the detector, or SOURCE_POSITIONS_... */
};

/** Words of a packet: headers as on the wire; `position` as detector_packet has it. */
static inline void
source_words(const uint8_t *headers, uint32_t position, uint64_t words[SOURCE_WORDS])
{
	uint16_t port;

	memcpy(&words[0], headers + SOURCE_MAC_TO, 8);
	memcpy(&words[1], headers + 4, 8);
	memcpy(&words[2], headers + SOURCE_IP_FROM, 8);
	memcpy(&port, headers + SOURCE_PORT_FROM, 2);
	words[3] = (uint64_t)position << 32 | port;
}

/** IPv4 addresses that a filter asks for, as flow rules have them; masks of 0: any. */
void source_filter_ipv4(
	const struct source_filter *f, struct rte_ipv4_hdr *spec, struct rte_ipv4_hdr *mask);

/** Read the keys; mistakes are reported to `c`. */
void source_settings_read(
	struct source_settings *s, struct config *c, const struct detector *detector);

#endif /* SOURCE_SETTINGS_H */
