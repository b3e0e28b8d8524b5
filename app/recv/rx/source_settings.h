/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * [detector] source, source_mac, destination, positions: which packets are a stream's own.
 */
#ifndef SOURCE_SETTINGS_H
#define SOURCE_SETTINGS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_common.h>
#include <rte_ip.h>

#include "config/config.h"
#include "frames/detector.h"

/** Ethernet, IPv4 and UDP headers without options. */
#define SOURCE_HEADERS 42

#define SOURCE_MAC_TO	 0
#define SOURCE_MAC_FROM	 6
#define SOURCE_IP_FROM	 26
#define SOURCE_IP_TO	 30
#define SOURCE_PORT_FROM 34

/** Header words that are compared: both MAC addresses, position, both IP addresses, port. */
#define SOURCE_WORDS   4
#define SOURCE_WORD_IP 2 /**< IPv4 addresses: source, destination */

/** Values of [detector] positions beside a number of modules. */
#define SOURCE_POSITIONS_AUTO 0
#define SOURCE_POSITIONS_OFF  UINT32_MAX

/**
 * Header words of a stream's packets, the bits of them that count, and how many packets had them:
 * all that a packet that passes touches.
 */
struct source_filter {
	uint64_t value[SOURCE_WORDS - 1];
	uint64_t mask[SOURCE_WORDS - 1];
	uint32_t port; /**< the last word */
	uint32_t port_mask;
	uint64_t taken; /**< by the RX role that owns the stream */
};
static_assert(sizeof(struct source_filter) == RTE_CACHE_LINE_MIN_SIZE, "a line a stream");

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
	uint32_t mac;
	uint16_t port;

	memcpy(&words[0], headers + SOURCE_MAC_TO, 8);
	memcpy(&mac, headers + 8, 4);
	words[1] = (uint64_t)position << 32 | mac;
	memcpy(&words[SOURCE_WORD_IP], headers + SOURCE_IP_FROM, 8);
	memcpy(&port, headers + SOURCE_PORT_FROM, 2);
	words[3] = port;
}

/** Position in words. */
static inline uint32_t
source_words_position(const uint64_t words[SOURCE_WORDS])
{
	return words[1] >> 32;
}

static inline bool
source_filter_takes(const struct source_filter *f, const uint64_t words[SOURCE_WORDS])
{
	return (((words[0] ^ f->value[0]) & f->mask[0]) | ((words[1] ^ f->value[1]) & f->mask[1]) |
		       ((words[2] ^ f->value[2]) & f->mask[2]) |
		       (((uint32_t)words[3] ^ f->port) & f->port_mask)) == 0;
}

/** Have a filter take the packets with the bits of `value` that are set in `mask`. */
void source_filter_set(struct source_filter *f, const uint64_t value[SOURCE_WORDS],
	const uint64_t mask[SOURCE_WORDS]);

/** IPv4 addresses that a filter asks for, as flow rules have them; masks of 0: any. */
void source_filter_ipv4(
	const struct source_filter *f, struct rte_ipv4_hdr *spec, struct rte_ipv4_hdr *mask);

/** Read the keys; mistakes are reported to `c`. */
void source_settings_read(
	struct source_settings *s, struct config *c, const struct detector *detector);

#endif /* SOURCE_SETTINGS_H */
