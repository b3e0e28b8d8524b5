/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Summary of the sent packets, as text and as an INI file (README.rst, Report).
 */
#ifndef DETECTOR_REPORT_H
#define DETECTOR_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "output/output_file.h"
#include "wire/packet_faults.h"

struct detector_report {
	uint64_t frames;
	uint64_t whole;	    /**< frames of which a receiver can place all packets */
	uint64_t silent;    /**< frames of which it can place none */
	uint64_t made;	    /**< packets before any fault */
	uint64_t placeable; /**< packets that a receiver can place, each counted once */
	uint64_t sent;	    /**< packets sent, including copies and damaged ones */
	uint64_t bytes;	    /**< bytes of these packets, without the frame check sequence */
	uint64_t events;    /**< events of messages that were sent */
	uint64_t fault[FAULT_KINDS];

	/* only for a port; zeros otherwise */
	double seconds;
	double requested_rate;	    /**< requested frames per second */
	uint64_t late_frames;	    /**< started more than a period after they were due */
	double late_max, late_mean; /**< over all frames, seconds */
	uint64_t full;		    /**< bursts that the port accepted only partly */
	double waited;		    /**< time spent waiting for room in the port, seconds */
	uint64_t credit_waits;	    /**< times that the receiver's ring had no room */
	double credit_waited;  /**< time spent waiting for room in the receiver's ring, seconds */
	uint64_t events_again; /**< events sent again during these waits */
	uint64_t port_packets; /**< the port's own counters */
	uint64_t port_errors;

	/** Members of multicast streams, sums of all streams. */
	struct {
		uint64_t joined, left;
		uint64_t removed; /**< members that were silent or sent invalid values */
		uint64_t refused; /**< rejected requests to join */
		uint64_t resent;  /**< packets, for members without READ */
	} members;
};

/** Add a frame's outcome. */
void detector_report_frame(struct detector_report *report, const struct frame_outcome *outcome);

/** Write an INI file. @return 0 or -errno, reported */
int detector_report_write(const struct detector_report *report, struct output_file *file);

/** Print the report as a few lines on standard error. @param multicast  with its members */
void detector_report_print(const struct detector_report *report, bool multicast);

#endif /* DETECTOR_REPORT_H */
