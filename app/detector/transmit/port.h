/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * One queue of an ethdev port to transmit on, with the pools that its packets come from.
 */
#ifndef TRANSMIT_PORT_H
#define TRANSMIT_PORT_H

#include <signal.h>

#include <rte_mbuf.h>

#define TRANSMIT_BURST 32

struct transmit_port {
	uint16_t id;
	bool started;
	bool chains; /**< the driver takes packets of several segments: payloads go by reference */
	struct rte_mempool *receive; /**< for the receive queue that some drivers insist on */
	struct rte_mempool *header;
	struct rte_mempool *payload; /**< without data room */
	struct rte_mempool *whole;   /**< packets in one piece: damaged ones, or all */
};

/**
 * Find a port by the name of its device, or its number, and set it up.
 * @return 0 or -errno, reported
 */
int transmit_port_open(struct transmit_port *port, const char *name);

/** Start and wait for the link. @return 0; -ETIMEDOUT: reported; -EINTR: *stop became non-zero */
int transmit_port_start(
	struct transmit_port *port, uint32_t seconds, const volatile sig_atomic_t *stop);

/** Nothing if it is not open. */
void transmit_port_close(struct transmit_port *port);

#endif /* TRANSMIT_PORT_H */
