/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Settings [detector] source, source_mac, destination and positions: which packets belong to a
 * stream.
 */
#ifndef SOURCE_SETTINGS_H
#define SOURCE_SETTINGS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_common.h>
#include <rte_ip.h>

#include "frames/detector.h"

struct config;

/** Ethernet, IPv4 and UDP headers without options. */
#define SOURCE_HEADERS 42

/* offsets in these headers */
#define SOURCE_MAC_TO	 0
#define SOURCE_MAC_FROM	 6
#define SOURCE_IP_FROM	 26
#define SOURCE_IP_TO	 30
#define SOURCE_PORT_FROM 34

/** 64-bit header words that are compared: both MAC addresses, position, both IP addresses, port. */
#define SOURCE_WORDS   4
#define SOURCE_WORD_IP 2 /**< IPv4 addresses: source, destination */

/** Values of [detector] positions that are not a number of modules. */
#define SOURCE_POSITIONS_AUTO 0
#define SOURCE_POSITIONS_OFF  UINT32_MAX

/**
 * Filter of a stream's packets: expected header words, the bits of them that are compared, and a
 * packet counter. A packet that passes touches no other cache line of its stream's source.
 */
struct source_filter {
	uint64_t value[SOURCE_WORDS - 1];
	uint64_t mask[SOURCE_WORDS - 1];
	uint32_t port; /**< expected value of the last word */
	uint32_t port_mask;
	uint64_t taken; /**< packets that passed; written by the RX role that owns the stream */
};
static_assert(sizeof(struct source_filter) == RTE_CACHE_LINE_MIN_SIZE, "a line a stream");

struct source_settings {
	struct source_filter filter[DETECTOR_STREAMS_MAX]; /**< configured part of the filters */
	bool source;	    /**< `source` is configured, otherwise it is learnt */
	bool any;	    /**< `source = any`: all sources are taken */
	bool destination;   /**< `destination` is configured */
	uint32_t positions; /**< modules in a column of the detector, or SOURCE_POSITIONS_... */
};

/**
 * Build the words of a packet.
 * @param headers   Ethernet, IPv4 and UDP headers, SOURCE_HEADERS bytes, as on the wire
 * @param position  like detector_packet.position
 * @param words     out
 */
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

/** The position in a packet's words. */
static inline uint32_t
source_words_position(const uint64_t words[SOURCE_WORDS])
{
	return words[1] >> 32;
}

/** Return true if a filter passes a packet's words. */
static inline bool
source_filter_takes(const struct source_filter *f, const uint64_t words[SOURCE_WORDS])
{
	return (((words[0] ^ f->value[0]) & f->mask[0]) | ((words[1] ^ f->value[1]) & f->mask[1]) |
		       ((words[2] ^ f->value[2]) & f->mask[2]) |
		       (((uint32_t)words[3] ^ f->port) & f->port_mask)) == 0;
}

/** Let a filter pass packets whose words equal `value` in the bits set in `mask`. */
void source_filter_set(struct source_filter *f, const uint64_t value[SOURCE_WORDS],
	const uint64_t mask[SOURCE_WORDS]);

/**
 * Write the IPv4 addresses of a filter in the form of flow rules.
 * @param spec  out: addresses
 * @param mask  out: bits of them that are compared; 0: any address
 */
void source_filter_ipv4(
	const struct source_filter *f, struct rte_ipv4_hdr *spec, struct rte_ipv4_hdr *mask);

/** Read the settings. Mistakes are reported to `c`. */
void source_settings_read(
	struct source_settings *s, struct config *c, const struct detector *detector);

#endif /* SOURCE_SETTINGS_H */
