/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * One TX queue of an ethdev port, with the pools of its packets.
 */
#ifndef TRANSMIT_PORT_H
#define TRANSMIT_PORT_H

#include <signal.h>

#include <rte_mbuf.h>

#define TRANSMIT_BURST 32

struct transmit_port {
	uint16_t id;
	bool started;
	/** the driver accepts packets of several segments: payloads are sent by reference */
	bool chains;
	struct rte_mempool *receive; /**< for the RX queue that some drivers require */
	struct rte_mempool *header;
	struct rte_mempool *payload; /**< without data room */
	struct rte_mempool *whole;   /**< for packets in one segment: damaged ones, or all */
};

/**
 * Find a port by its device name or its number, and set it up.
 * @return 0 or -errno, reported
 */
int transmit_port_open(struct transmit_port *port, const char *name);

/** Start and wait for the link. @return 0; -ETIMEDOUT: reported; -EINTR: *stop became non-zero */
int transmit_port_start(
	struct transmit_port *port, uint32_t seconds, const volatile sig_atomic_t *stop);

/** Does nothing if it is not open. */
void transmit_port_close(struct transmit_port *port);

#endif /* TRANSMIT_PORT_H */
