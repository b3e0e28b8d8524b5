/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * What goes wrong between detector and receiver, as the command line says it (README.rst, Faults).
 */
#ifndef FAULT_OPTIONS_H
#define FAULT_OPTIONS_H

#include <stdint.h>

#define FAULT_STALLS_MAX   8
#define FAULT_RESTARTS_MAX 8
#define FAULT_BURST_MAX	   65536
#define FAULT_WINDOW_MAX   65536

/** Kinds as they are counted. */
enum fault_kind {
	FAULT_LOSS,
	FAULT_BURST_LOSS,
	FAULT_STALL,
	FAULT_REORDER,
	FAULT_DUPLICATE,
	FAULT_CORRUPT_PORT,    /**< UDP destination port */
	FAULT_CORRUPT_VERSION, /**< version of the detector header */
	FAULT_CORRUPT_PACKET,  /**< packet number, out of range */
	FAULT_CORRUPT_FRAME,   /**< frame number, far away */
	FAULT_CORRUPT_PIXELS,  /**< one bit of a pixel: nothing can tell */
	FAULT_TRUNCATE,
	FAULT_RESTART,
	FAULT_KINDS
};

/** Names of the kinds in reports. */
extern const char *const fault_kind_names[FAULT_KINDS];

struct fault_options {
	double loss;
	double burst_loss; /**< a burst begins */
	double reorder;
	double duplicate;
	double corrupt;
	double truncate;
	uint32_t burst_packets;
	uint32_t reorder_window; /**< packets that overtake, at most */
	uint32_t corrupt_kinds;	 /**< bit: enum fault_kind */

	uint32_t nb_stalls;
	struct {
		uint32_t module;
		uint64_t from, to; /**< pulses, the last one included */
	} stall[FAULT_STALLS_MAX];

	uint32_t nb_restarts; /**< in the order of their pulses */
	struct {
		uint64_t pulse;
		uint64_t first; /**< frame number of that pulse */
	} restart[FAULT_RESTARTS_MAX];
};

/**
 * Add what `text` says, NAME=VALUE.
 * @return 0; -EINVAL: reported
 */
int fault_options_parse(const char *text, struct fault_options *options);

#endif /* FAULT_OPTIONS_H */
