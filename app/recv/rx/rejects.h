/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Packets that could not be used: what they are, and which setting would change that.
 *
 * Samples of them (rx.h) are sorted by what is wrong with each. A sentence of the commonest kind
 * names its addresses, ports and lengths, what was expected, and what to do. One thread.
 */
#ifndef REJECTS_H
#define REJECTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "builder/builder.h"
#include "frames/detector.h"
#include "rx/rx.h"

/** What is wrong with a packet. The first ones are of other hosts' making, and come on any line. */
enum reject {
	REJECT_OTHER,	 /**< ARP, IPv6, ICMP, LLDP and the like */
	REJECT_UDP,	 /**< UDP to another port, and of another length than the detector's */
	REJECT_PORT,	 /**< ... of that length */
	REJECT_VLAN,	 /**< the detector's but for a VLAN tag */
	REJECT_OPTIONS,	 /**< the detector's but for IPv4 options */
	REJECT_FRAGMENT, /**< of an IPv4 datagram */
	REJECT_CHECKSUM, /**< of the IPv4 header, or of UDP */
	REJECT_LENGTH,	 /**< of another length, to a port of the detector's */
	REJECT_CUT,	 /**< the beginning of a packet, as of a capture with a snapshot length */
	REJECT_FORMAT,	 /**< no header of the detector's format */
	REJECT_NUMBER,	 /**< a packet number that its stream has not */
	REJECTS
};

/** Of one kind. */
struct reject_kind {
	uint64_t samples;
	uint16_t port_min, port_max; /**< UDP destinations */
	/* of the first one */
	uint8_t source[4], destination[4];
	uint16_t source_port;
	uint16_t ether_type;
	uint16_t tag;	   /**< VLAN */
	uint8_t protocol;  /**< of IPv4 */
	bool ip_checksum;  /**< that of the IPv4 header is right */
	uint32_t length;   /**< UDP length; of fragments, the IPv4 total length */
	uint32_t captured; /**< bytes of the packet that there are */
};

struct rejects {
	struct reject_kind kind[REJECTS];
};

/** What the settings want. */
struct reject_view {
	const struct detector *detector;
	uint32_t udp_port;
	bool placed;		  /**< some packets can be used */
	uint32_t lowest, highest; /**< packet numbers out of range; + 1, 0: none */
	const struct builder_stats *stats;
};

/** Take a sample up. */
void rejects_add(struct rejects *r, const struct rx_sample *sample, const struct detector *d);

/** The kind that most samples are of; of what comes on any line only if there is nothing else. */
enum reject rejects_commonest(const struct rejects *r);

/**
 * Say what the commonest kind is, what was expected, and what to do: "are sent to UDP port 50001
 * ...". @return whether there are any
 */
bool rejects_explain(
	const struct rejects *r, const struct reject_view *view, char *text, size_t size);

/**
 * No frame is complete, and all streams send the same part of their packets: say so and what to do.
 * @return whether it is so
 */
bool rejects_explain_missing(const struct reject_view *view, char *text, size_t size);

#endif /* REJECTS_H */
