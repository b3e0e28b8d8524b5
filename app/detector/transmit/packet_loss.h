/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Loss of RoCE packets on the port of a `roce` device. There are selected packets, which are
 * numbered when they are posted and recognised on transmit by their PSN, and random packets of
 * multicast streams. A lost packet leaves the port with an unknown EtherType, because a TX callback
 * cannot remove packets. RC sends it again.
 *
 * The lcore that polls the device calls all functions.
 */
#ifndef PACKET_LOSS_H
#define PACKET_LOSS_H

#include <stdint.h>
#include <sys/socket.h>

struct packet_loss;

/**
 * Begin to watch the port of an open device.
 * @param device  its name, roce:port=...
 * @param nb_streams  with queue pairs of their own
 * @param window  maximum number of packets of a stream that are posted and not yet sent
 * @return 0; -ENOTSUP: another provider; -errno; reported
 */
int packet_loss_create(
	const char *device, uint32_t nb_streams, uint32_t window, struct packet_loss **loss);

/** Set the queue pair of a stream at the receiver. */
void packet_loss_stream(
	struct packet_loss *loss, uint32_t stream, const struct sockaddr_storage *ip, uint32_t qpn);

/** Lose packet number `packet` of a stream, counted from its first. */
void packet_loss_mark(struct packet_loss *loss, uint32_t stream, uint64_t packet);

/** Chances of packets of multicast streams, and how many were lost. */
struct packet_loss_chance {
	double group; /**< packets to groups */
	double read;  /**< packets of responses to READs */
	/**
	 * The loss of a packet to a group depends on the seed, its group, and its PSN relative to
	 * the first one.
	 */
	uint64_t seed;
	uint64_t group_lost, read_lost;
};

/** Lose random packets from now on. @param chance  counts lost packets; outlives `loss` */
void packet_loss_random(struct packet_loss *loss, struct packet_loss_chance *chance);

/** Stop. NULL is allowed. Call it before the device is closed. */
void packet_loss_destroy(struct packet_loss *loss);

#endif /* PACKET_LOSS_H */
