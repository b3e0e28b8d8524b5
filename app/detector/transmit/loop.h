/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The polling loop of a transmitting run: it sends the packets of each frame in time, through one
 * of three senders.
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

struct transmit_loop;
struct transmit_multicast;
struct transmit_streams;

/** Functions of a sender. Only the loop calls them, except init and release. */
struct transmit_sender {
	/** @return 0 or -ENOMEM */
	int (*init)(struct transmit_loop *loop);
	/** Send the first `count` of loop->packets. @param due time of the first one, TSC */
	void (*send)(struct transmit_loop *loop, uint32_t count, uint64_t due);
	/** All packets of a pulse are sent, except for reordered ones. NULL: nothing to do */
	void (*end_frame)(struct transmit_loop *loop, uint64_t pulse);
	/** Work that is due also while the loop waits. NULL: none. @return whether there was any */
	bool (*poll)(const struct transmit_loop *loop);
	/** Wait until the last packets have left. NULL: nothing to do */
	void (*finish)(struct transmit_loop *loop);
	void (*release)(struct transmit_loop *loop);
};

extern const struct transmit_sender transmit_packets;	/**< UDP packets, to a port */
extern const struct transmit_sender transmit_messages;	/**< RDMA messages, to queue pairs */
extern const struct transmit_sender transmit_fragments; /**< reliable multicast, to groups */

struct transmit_loop {
	const struct transmit_sender *sender;
	const struct jungfrau_wire *wire;
	const struct pulse_numbering *numbering;
	struct transmit_frames *frames;
	struct transmit_port *port;	      /**< of transmit_packets */
	struct transmit_streams *streams;     /**< of transmit_messages */
	struct transmit_multicast *multicast; /**< of transmit_fragments */
	struct packet_faults *faults;
	const volatile sig_atomic_t *stop;

	uint64_t first;	    /**< pulse */
	uint64_t nb_frames; /**< number of frames to send */
	uint32_t burst_gap; /**< ns */
	/** a port that accepts no packet for this time has failed */
	uint64_t link_timeout_s;
	double rate; /**< frames per second */

	struct detector_report *report; /**< frames, packets, lateness; written by the loop only */

	/* used by the loop only */
	struct wire_packet *packets;
	struct transmit_header *header;	    /* [modules][interfaces][packet] */
	struct jungfrau_frame_header *kept; /* indexed by pulse modulo nb_kept */
	uint32_t nb_kept;
	bool timed_out;			     /* the port accepted no packet for link_timeout_s */
	bool no_credit;			     /* timed_out because the receiver gave no credit */
	uint64_t late_sum, late_max, waited; /* cycles */
	uint64_t credit_waited;		     /* cycles */
};

/** Wait until a time, or for a stop. */
void transmit_loop_wait(const struct transmit_loop *loop, uint64_t tsc);

/** Pause while the port accepts nothing. @param since TSC @return false: it has for too long */
bool transmit_loop_keep_trying(struct transmit_loop *loop, uint64_t since);

/** Allocate the loop's memory. @return 0 or -ENOMEM */
int transmit_loop_init(struct transmit_loop *loop);

/** lcore_function_t. @param argument struct transmit_loop. @return 0 */
int transmit_loop_run(void *argument);

void transmit_loop_release(struct transmit_loop *loop);

#endif /* TRANSMIT_LOOP_H */
