/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The command line of braggline-detector.
 */
#ifndef DETECTOR_OPTIONS_H
#define DETECTOR_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "ingest/card.h"
#include "rdma_stream.h"
#include "wire/fault_options.h"
#include "sim/jungfrau_model.h"
#include "wire/jungfrau_packets.h"
#include "wire/pulse_header.h"

struct detector_options {
	struct jungfrau_model_config model;
	double threshold; /**< threshold of strong pixels in the truth, photons */

	uint64_t frames;
	uint64_t first_frame;
	uint64_t first_bunch; /**< bunch id of frame 0 */
	double rate;	      /**< frames per second */
	uint32_t storage_cells;
	struct jungfrau_wire wire;
	struct fault_options faults;
	uint64_t fault_seed; /**< 0: the model's seed */

	const char *port_name; /**< name of an ethdev; NULL: no packets are transmitted */
	bool loop;	       /**< transmit until a signal */
	uint64_t distinct;     /**< number of frames that are drawn and repeated; 0: a default */
	uint32_t burst_gap;    /**< gap between the packets of a frame, ns */
	uint32_t link_wait;    /**< time to wait for the port's link, s */

	enum ingest_transport transport;
	const char *device_name; /**< not udp: RDMA device; NULL: none */
	const char *card_path;	 /**< send, write: card of the receiver; NULL: from its CM */
	const char *connect;	 /**< send, write: address and port of the receiver's CM */
	bool reliable;		 /**< RC instead of UC */
	bool credits;		 /**< write: wait until the receiver's ring has room */

	/* multicast */
	const char *group; /**< address of stream 0 */
	uint16_t service;  /**< port of stream 0 */
	enum rdma_stream_policy policy;
	uint32_t ring_slots;
	uint32_t members;      /**< members of each stream to wait for */
	uint32_t silence_ms;   /**< a member that is silent for this time is removed */
	const char *keys_path; /**< NULL: members are not authenticated */

	const char *geometry_path; /**< geometry file of the detector; NULL: a stack of modules */

	const char *pcap_path;	      /**< NULL: no such output; likewise for the other paths */
	const char *truth_path;	      /**< CSV */
	const char *calibration_path; /**< directory */
	const char *spots_path;	      /**< CSV */
	const char *raw_path;
	const char *report_path; /**< INI */

	bool pack;
	bool replay;
	char *const *pack_paths; /**< raw frame files; for --replay, Arrow files and directories */
	int nb_pack_paths;
};

/** Set the defaults. No output is selected yet. */
void detector_options_default(struct detector_options *options);

/**
 * Parse a command line on top of the defaults.
 * @return 0; 1: help or version was requested and printed; -EINVAL: an error was reported
 */
int detector_options_parse(int argc, char **argv, struct detector_options *options);

/**
 * Check combinations of options.
 * @return 0; -EINVAL: an error was reported
 */
int detector_options_check(const struct detector_options *options);

/** Numbering of pulses; the options must outlive it. */
struct pulse_numbering detector_options_numbering(const struct detector_options *options);

/** Whether packets are transmitted, which needs EAL. */
static inline bool
detector_options_transmits(const struct detector_options *options)
{
	return options->port_name != NULL || options->device_name != NULL;
}

/** Seed of the faults. */
uint64_t detector_options_fault_seed(const struct detector_options *options);

#endif /* DETECTOR_OPTIONS_H */
