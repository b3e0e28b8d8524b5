/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Explains why packets could not be used, and names the setting that would make them usable.
 *
 * Samples of these packets (rx.h) are sorted by kind of mistake. A sentence about the most frequent
 * kind gives the addresses, ports and lengths, the expected values, and the remedy. Only one thread
 * may use a struct rejects.
 */
#ifndef REJECTS_H
#define REJECTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct builder_stats;
struct detector;
struct rx_sample;

/**
 * Kinds of mistakes. REJECT_OTHER and REJECT_UDP are traffic of other hosts, which occurs on any
 * network.
 */
enum reject {
	REJECT_OTHER,	 /**< ARP, IPv6, ICMP, LLDP and the like */
	REJECT_UDP,	 /**< UDP to another port, with another length than the detector's */
	REJECT_PORT,	 /**< UDP to another port, with the detector's length */
	REJECT_VLAN,	 /**< like the detector's, but with a VLAN tag */
	REJECT_OPTIONS,	 /**< like the detector's, but with IPv4 options */
	REJECT_FRAGMENT, /**< fragment of an IPv4 datagram */
	REJECT_CHECKSUM, /**< wrong checksum, of the IPv4 header or of UDP */
	REJECT_LENGTH,	 /**< wrong length, to a port of the detector */
	REJECT_CUT,	 /**< truncated packet, as in a capture with a snapshot length */
	REJECT_FORMAT,	 /**< no header of the detector's format */
	REJECT_NUMBER,	 /**< packet number that its stream does not send */
	REJECT_ABSENT,	 /**< belongs to a stream that [detector] absent lists */
	REJECT_MESSAGE,	 /**< RoCE: message of another length or another operation */
	REJECT_ADDRESS,	 /**< RoCE: written to an address that is not that of its frame and tile */
	REJECTS
};

/** Samples of one kind. */
struct reject_kind {
	uint64_t samples;
	uint64_t streams; /**< bit mask of the streams that the UDP destination ports belong to */
	uint16_t port_min, port_max; /**< range of UDP destination ports */
	/* of the first sample */
	uint8_t source[4], destination[4];
	uint16_t source_port, destination_port;
	uint16_t ether_type;
	uint16_t tag;	   /**< VLAN id */
	uint8_t protocol;  /**< of the IPv4 header */
	bool ip_checksum;  /**< the checksum of the IPv4 header is correct */
	uint32_t length;   /**< UDP length; for fragments, the IPv4 total length */
	uint32_t captured; /**< bytes of the packet that were received */
	uint32_t tile;	   /**< REJECT_ADDRESS: packet number in the header */
	char header[80];   /**< REJECT_FORMAT: why it has another format */
};

struct rejects {
	uint32_t udp_port; /**< [detector] udp_port */
	bool messages;	   /**< RoCE: headers of samples are those of a queue pair */
	struct reject_kind kind[REJECTS];
};

/** Settings and counters that an explanation depends on. */
struct reject_view {
	const struct detector *detector;
	uint32_t udp_port;			/**< [detector] udp_port */
	bool placed;				/**< some packets could be used */
	uint32_t lowest, highest;		/**< packet numbers out of range; + 1, 0: none */
	uint32_t stream;			/**< the first stream with such numbers */
	uint32_t stream_lowest, stream_highest; /**< ... and its numbers */
	/** Bits of the streams that send the packet numbers of their module's other interface. */
	uint64_t swapped;
	/**
	 * Bits of the streams whose packets cannot be used while those of others can; 0: no such
	 * difference. `lowest` and `highest` then belong to these streams.
	 */
	uint64_t odd;
	/** near UDP ports with packets of the detector's length (rx_samples.near); 0: none */
	uint16_t port_min, port_max;
	const struct builder_stats *stats;
};

/** Add a sample. */
void rejects_add(struct rejects *r, const struct rx_sample *sample, const struct detector *d);

/** Forget all samples. */
void rejects_clear(struct rejects *r);

/**
 * The kind of the unusable packets that a stream sends: "have a VLAN tag".
 * @return NULL: there is no sample of the stream
 */
const char *rejects_of_stream(const struct rejects *r, uint32_t stream);

/** The most frequent kind. Other hosts' traffic counts only if there is no other kind. */
enum reject rejects_commonest(const struct rejects *r);

/** @return number of samples of all kinds */
uint64_t rejects_samples(const struct rejects *r);

/**
 * Describe the most frequent kind, the expected values, and the remedy: "are sent to UDP port 50001
 * ...".
 * @param text  out
 * @return false: there are no samples
 */
bool rejects_explain(
	const struct rejects *r, const struct reject_view *view, char *text, size_t size);

/** Describe packets of the detector's length to other ports, as rejects_explain() does. */
void rejects_explain_ports(
	const struct rejects *r, const struct reject_view *view, char *text, size_t size);

/**
 * If no frame is complete because all streams send the same part of their packets, or because a
 * stream never sends some of them, describe this and the remedy.
 * @param text  out
 * @return false: this is not the case
 */
bool rejects_explain_missing(const struct reject_view *view, char *text, size_t size);

#endif /* REJECTS_H */
