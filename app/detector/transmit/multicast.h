/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The senders of a run that transmits by reliable multicast: an rdma_stream for each stream of the
 * detector (app/common/ingest/multicast.h). One lcore calls all functions: it polls the device and
 * is its control lcore.
 */
#ifndef TRANSMIT_MULTICAST_H
#define TRANSMIT_MULTICAST_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "detector_options.h"
#include "output/report.h"

struct transmit_multicast;

/**
 * Read the keyring, and open the device.
 * @return 0 or -errno, reported
 */
int transmit_multicast_open(
	const struct detector_options *options, struct transmit_multicast **multicast);

/**
 * Create the senders, and wait until each has its members.
 * @return 0 or -errno, reported; -ETIMEDOUT: members are missing; -EINTR: *stop became non-zero
 */
int transmit_multicast_start(
	struct transmit_multicast *multicast, uint32_t seconds, const volatile sig_atomic_t *stop);

/** Run device and senders. @return whether there was work recently */
bool transmit_multicast_poll(struct transmit_multicast *multicast);

/** Whether the device has failed. transmit_multicast_poll() has reported the reason. */
bool transmit_multicast_failed(const struct transmit_multicast *multicast);

/** Maximum bytes of a message in one fragment. */
uint32_t transmit_multicast_fragment_max(const struct transmit_multicast *multicast);

/** Memory for the next packet of a stream. @return NULL: its ring is full */
uint8_t *transmit_multicast_next(struct transmit_multicast *multicast, uint32_t stream);

/** Send the packet of transmit_multicast_next(). @return bytes on the wire */
uint32_t transmit_multicast_commit(
	struct transmit_multicast *multicast, uint32_t stream, uint32_t bytes);

/** No more packets follow. */
void transmit_multicast_end(struct transmit_multicast *multicast);

/** Whether all packets are sent, and all members have them. */
bool transmit_multicast_complete(const struct transmit_multicast *multicast);

/** Whether all members of all streams have left or were removed. */
bool transmit_multicast_left(const struct transmit_multicast *multicast);

/**
 * Report members that do not have all packets.
 * @param seconds  how long they were waited for
 * @return their number
 */
unsigned int transmit_multicast_late(
	const struct transmit_multicast *multicast, unsigned int seconds);

/**
 * Report streams whose members were all removed, so that no member has all packets.
 * @return their number
 */
unsigned int transmit_multicast_deserted(const struct transmit_multicast *multicast);

/** Get counters of members, device and lost packets. */
void transmit_multicast_report(
	const struct transmit_multicast *multicast, struct detector_report *report);

/** NULL is allowed. */
void transmit_multicast_close(struct transmit_multicast *multicast);

#endif /* TRANSMIT_MULTICAST_H */
