/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A net_replay that another lcore polls: it passes the packets on, by reference, through a ring to
 * a net_ring port, which the receiver polls in place of an adapter. The receiver's lcore then does
 * what it does with an adapter, and not the work of the replay.
 */
#ifndef RECV_FEED_H
#define RECV_FEED_H

#include <stdint.h>

/* Name of the port for the receiver. */
#define RECV_FEED_PORT "net_ring_feed"

/* What one lcore can do at most with the packets of the capture, in packets/s. */
struct recv_feed_ceilings {
	double ring; /* take them from the ring and free them */
	double crc;  /* the CRC-32 of all their bytes, without the ring; the better of two ways */
};

/*
 * Start the port `device`, a net_replay, and create RECV_FEED_PORT.
 * @param packets  most packets of the capture
 * @return 0 or -errno, printed
 */
int recv_feed_open(const char *device, uint32_t packets);

/* Poll the replay until recv_feed_stop(). Argument of rte_eal_remote_launch(). */
int recv_feed_run(void *arg);

/* End recv_feed_run(). Any thread. */
void recv_feed_stop(void);

/*
 * Measure the ceilings on this lcore, while recv_feed_run() runs and the receiver does not.
 * @param seconds  of all together
 * @return 0, or
 *   - -ETIMEDOUT: the replay does not deliver `packets`, the number in the capture
 *   - -ENOMEM
 */
int recv_feed_measure(uint32_t packets, double seconds, struct recv_feed_ceilings *ceilings);

/* Free all. recv_feed_run() has ended. @return mbufs that were leaked */
uint32_t recv_feed_close(void);

#endif /* RECV_FEED_H */
