/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Faults between detector and receiver, as given on the command line (README.rst, Faults).
 */
#ifndef FAULT_OPTIONS_H
#define FAULT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#define FAULT_STALLS_MAX   8
#define FAULT_RESTARTS_MAX 8
#define FAULT_BURST_MAX	   65536
#define FAULT_WINDOW_MAX   65536

/** Kinds of faults, as counted. */
enum fault_kind {
	FAULT_LOSS,
	FAULT_BURST_LOSS,
	FAULT_STALL,
	FAULT_REORDER,
	FAULT_DUPLICATE,
	FAULT_CORRUPT_PORT,    /**< UDP destination port */
	FAULT_CORRUPT_VERSION, /**< version of the detector header */
	FAULT_CORRUPT_PACKET,  /**< packet number, out of range */
	FAULT_CORRUPT_FRAME,   /**< frame number, far from the current one */
	FAULT_CORRUPT_PIXELS,  /**< one bit of a pixel: not detectable */
	FAULT_TRUNCATE,
	FAULT_RESTART,
	FAULT_DROP_FIRST,  /**< first RoCE packet of a message */
	FAULT_DROP_MIDDLE, /**< one of the packets between */
	FAULT_DROP_LAST,
	FAULT_DROP_EVENT, /**< event of a stream and frame */
	/* not of packets: packet_loss.h counts these, and members repair them */
	FAULT_GROUP_LOSS, /**< RoCE packet to a multicast group */
	FAULT_READ_LOSS,  /**< RoCE packet of the response to a READ */
	FAULT_KINDS
};

#define FAULT_DROPS (FAULT_DROP_EVENT - FAULT_DROP_FIRST + 1)

/** Names of the kinds in reports. */
extern const char *const fault_kind_names[FAULT_KINDS];

struct fault_options {
	/** packets are messages of RDMA, which consist of RoCE packets (packet_faults.h) */
	bool messages;
	double drop[FAULT_DROPS];     /**< only of messages */
	double group_loss, read_loss; /**< only of multicast */
	double loss;
	double burst_loss; /**< probability that a burst starts */
	double reorder;
	double duplicate;
	double corrupt;
	double truncate;
	uint32_t burst_packets;
	uint32_t reorder_window; /**< maximum number of packets that overtake one */
	uint32_t corrupt_kinds;	 /**< bit mask of enum fault_kind */

	uint32_t nb_stalls;
	struct {
		uint32_t module;
		uint64_t from, to; /**< pulses, including the last one */
	} stall[FAULT_STALLS_MAX];

	uint32_t nb_restarts; /**< ordered by pulse */
	struct {
		uint64_t pulse;
		uint64_t first; /**< frame number of that pulse */
	} restart[FAULT_RESTARTS_MAX];
};

/**
 * Parse and add one fault, NAME=VALUE.
 * @return 0; -EINVAL: reported
 */
int fault_options_parse(const char *text, struct fault_options *options);

#endif /* FAULT_OPTIONS_H */
