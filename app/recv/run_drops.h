/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Explains why packets of the detector's format were dropped: duplicate, late, outlier and so on.
 */
#ifndef RUN_DROPS_H
#define RUN_DROPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frames/detector.h"
#include "rx/rx.h"

/** Packets of a run, or of a part of it. */
struct run_packets {
	uint64_t packets;			   /**< received */
	uint64_t placed;			   /**< in a frame */
	uint64_t rejected;			   /**< unusable, see rx_samples.total */
	uint64_t foreign;			   /**< not of the source of their stream */
	uint64_t misplaced;			   /**< with the position of another module */
	uint64_t early;				   /**< before [run] first_frame; not in `late` */
	uint64_t duplicate, late, outlier;	   /**< dropped because of their frame number */
	uint64_t unusable[DETECTOR_STREAMS_MAX];   /**< by stream, see struct rx_unusable */
	uint64_t near[2 * RX_NEAR_PORTS];	   /**< rx_samples.near */
	uint64_t progress[DETECTOR_STREAMS_MAX];   /**< frame_rx.progress by stream */
	struct rx_drop drop[DETECTOR_STREAMS_MAX]; /**< by stream; the last frame and cause */
};

/** Settings and counters that an explanation depends on. */
struct run_drops_view {
	const struct detector *detector;
	uint32_t udp_port;
	uint32_t max_skew_frames;   /**< [frames] max_skew_frames */
	uint32_t stream_timeout_ms; /**< [frames] stream_timeout_ms */
	bool positions;		    /**< [detector] positions is a number */
	uint64_t placed;	    /**< packets that the run has placed */
	uint64_t last_frame;	    /**< the last frame that it has closed */
};

/** Packets dropped because of their frame number. */
static inline uint64_t
run_drops_numbers(const struct run_packets *p)
{
	return p->duplicate + p->late + p->outlier;
}

/** The stream that has most of the dropped packets. */
uint32_t run_drops_worst(const struct run_packets *p, const struct run_drops_view *v);

/**
 * Describe packets that were dropped because of their frame numbers: their number, the likely
 * reason, and what to do.
 * @param text  out
 */
void run_drops_explain(
	const struct run_packets *p, const struct run_drops_view *v, char *text, size_t size);

/**
 * Describe why all packets of a stream are dropped: "they are late: ...; check ...".
 * @param drop  its last dropped packet
 * @param text  out
 */
void run_drops_explain_stream(
	const struct rx_drop *drop, const struct run_drops_view *v, char *text, size_t size);

#endif /* RUN_DROPS_H */
