/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * What a run sent, for people and for programs (README.rst, Report).
 */
#ifndef DETECTOR_REPORT_H
#define DETECTOR_REPORT_H

#include <stdint.h>

#include "output/output_file.h"
#include "wire/packet_faults.h"

struct detector_report {
	uint64_t frames;
	uint64_t whole;	    /**< frames all of whose packets can be placed */
	uint64_t silent;    /**< frames of which none can */
	uint64_t made;	    /**< packets before any fault */
	uint64_t placeable; /**< packets that a receiver can place, each counted once */
	uint64_t sent;	    /**< packets that left, copies and damaged ones included */
	uint64_t bytes;	    /**< of these, without the check sequence */
	uint64_t fault[FAULT_KINDS];

	/* onto a port only; zeros otherwise */
	double seconds;
	double asked_rate;	    /**< frames a second */
	uint64_t late_frames;	    /**< begun later than a period after they were due */
	double late_max, late_mean; /**< of all frames, seconds */
	uint64_t full;		    /**< bursts that the port did not take whole */
	double waited;		    /**< for room in the port, seconds */
	uint64_t port_packets;	    /**< the port's own counters */
	uint64_t port_errors;
};

/** Add a frame's outcome. */
void detector_report_frame(struct detector_report *report, const struct frame_outcome *outcome);

/** Write an INI file. @return 0 or -errno, reported */
int detector_report_write(const struct detector_report *report, struct output_file *file);

/** The same in a few lines on standard error. */
void detector_report_print(const struct detector_report *report);

#endif /* DETECTOR_REPORT_H */
