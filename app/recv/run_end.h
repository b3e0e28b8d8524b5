/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Detects that the detector is past the last frame of a run, so that the run's missing frames will
 * not arrive: the detector never sent them to this receiver, or they were lost.
 *
 * The service thread calls these functions while it holds the run's lock.
 */
#ifndef RUN_END_H
#define RUN_END_H

#include <stdbool.h>
#include <stdint.h>

#include "frames/detector.h"
#include "frames/frame_table.h"

struct pipeline;

struct run_end {
	const struct pipeline *pipeline;
	bool past;	 /**< most streams have sent packets after the run's last frame */
	uint64_t frame;	 /**< ... the number of one of them */
	uint64_t placed; /**< packets placed by all RX roles */
	bool noted;	 /**< the members below were set since a packet was placed */
	uint64_t beyond[DETECTOR_STREAMS_MAX];	/**< rx_beyond.packets by stream then */
	uint64_t dropped[DETECTOR_STREAMS_MAX]; /**< rx_drop.packets by stream then */
	uint64_t listened[FRAME_RX_MAX];	/**< frame_rx.listened of the RX roles then */
};

/** Start watching a new run. */
void run_end_begin(struct run_end *e, const struct pipeline *p);

/**
 * Check the counters of the RX roles.
 * @return true if the run should end: since the last packet was placed, for [frames]
 *   stream_timeout_ms, at least half of the streams have sent packets after the run's last frame,
 *   and fewer streams have sent other packets
 */
bool run_end_check(struct run_end *e);

#endif /* RUN_END_H */
