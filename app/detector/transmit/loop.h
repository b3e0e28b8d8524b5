/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The polling loop of a transmitting run: it builds packets and passes them to the port in time.
 *
 * It does not allocate, lock or log. It sleeps only while the next frame is not due soon.
 */
#ifndef TRANSMIT_LOOP_H
#define TRANSMIT_LOOP_H

#include "output/report.h"
#include "wire/packet_faults.h"
#include "wire/pulse_header.h"
#include "transmit/frames.h"
#include "transmit/port.h"

/** Header of a packet, updated from frame to frame. */
struct transmit_header {
	uint8_t bytes[RTE_ALIGN_CEIL(JUNGFRAU_HEADER_BYTES, 64)];
};

struct transmit_loop {
	const struct jungfrau_wire *wire;
	const struct pulse_numbering *numbering;
	struct transmit_frames *frames;
	struct transmit_port *port;
	struct packet_faults *faults;
	const volatile sig_atomic_t *stop;

	uint64_t first;	    /**< pulse */
	uint64_t nb_frames; /**< number of frames to send */
	uint32_t burst_gap; /**< ns */
	/** seconds after which a port that accepts no packet counts as failed */
	uint64_t patience;
	double rate; /**< frames per second */

	struct detector_report *report; /**< frames, packets, lateness; written by the loop only */

	/* used by the loop only */
	struct wire_packet *packets;
	struct transmit_header *header;	    /* [modules][interfaces][packet] */
	struct jungfrau_frame_header *kept; /* indexed by pulse modulo nb_kept */
	uint32_t nb_kept;
	bool given_up;			     /* the port accepted no packet for too long */
	uint64_t late_sum, late_max, waited; /* cycles */
};

/** Allocate the loop's memory. @return 0 or -ENOMEM */
int transmit_loop_init(struct transmit_loop *loop);

/** lcore_function_t. @param argument struct transmit_loop. @return 0 */
int transmit_loop_run(void *argument);

void transmit_loop_release(struct transmit_loop *loop);

#endif /* TRANSMIT_LOOP_H */
