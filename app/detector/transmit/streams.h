/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The queue pairs of a transmitting run, one for each stream, with the memory that they send from.
 * One lcore calls all functions: it polls the device and is its control lcore.
 */
#ifndef TRANSMIT_STREAMS_H
#define TRANSMIT_STREAMS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "detector_options.h"
#include "transmit/frames.h"

struct transmit_streams;

/** A message with data, or the event of a frame. */
struct transmit_message {
	uint32_t stream;
	uint32_t frame;	       /**< index of the frame in memory */
	const uint8_t *pixels; /**< JUNGFRAU_PAYLOAD_BYTES of that frame; NULL: an event */
	uint64_t address;      /**< write, not of an event */
	uint32_t immediate;    /**< of an event */
	/** RoCE packet that is lost, from 0; TRANSMIT_DROP_NONE or TRANSMIT_DROP_ALL */
	uint32_t dropped;
};

#define TRANSMIT_DROP_NONE UINT32_MAX
#define TRANSMIT_DROP_ALL  (UINT32_MAX - 1)

/**
 * Open the device, and create queue pairs. With --card, the card is read.
 * @return 0 or -errno, reported
 */
int transmit_streams_open(
	const struct detector_options *options, struct transmit_streams **streams);

/** Register the frames. @return 0 or -errno, reported */
int transmit_streams_register(
	struct transmit_streams *streams, const struct transmit_frames *frames);

/**
 * Connect all queue pairs. With --connect, each brings a part of the card.
 * @return 0 or -errno, reported; -EINTR: *stop became non-zero
 */
int transmit_streams_connect(
	struct transmit_streams *streams, uint32_t seconds, const volatile sig_atomic_t *stop);

const struct ingest_card *transmit_streams_card(const struct transmit_streams *streams);

/** Run the device. @return whether there was work */
bool transmit_streams_poll(struct transmit_streams *streams);

/**
 * Whether a queue pair or the device has failed. The poll that detected this has reported the
 * reason.
 */
bool transmit_streams_failed(const struct transmit_streams *streams);

/**
 * Begin a frame of a stream, or continue one.
 * @return false: with --credits, the receiver's ring has no room for it yet
 */
bool transmit_streams_credit(
	struct transmit_streams *streams, uint32_t stream, uint64_t pulse, uint64_t number);

/**
 * Send the event of the last frame of a stream again, because it may be lost.
 * @return false: there is none, or the send queue is full
 */
bool transmit_streams_event_again(struct transmit_streams *streams, uint32_t stream);

/** Memory for the ends of the next message of a stream. @return NULL: its send queue is full */
struct message_ends *transmit_streams_ends(struct transmit_streams *streams, uint32_t stream);

/**
 * Post a message with the ends from transmit_streams_ends(), which must not have returned
 * NULL.
 * @return bytes on the wire of the packets that are not lost
 */
uint32_t transmit_streams_post(
	struct transmit_streams *streams, const struct transmit_message *message);

/** Whether all messages have been sent. */
bool transmit_streams_idle(const struct transmit_streams *streams);

/** The device's counter of sent packets. */
uint64_t transmit_streams_packets(const struct transmit_streams *streams);

/** NULL is allowed. */
void transmit_streams_close(struct transmit_streams *streams);

#endif /* TRANSMIT_STREAMS_H */
