/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A net_ring port whose other end the test holds.
 */
#ifndef BRAGGLINE_TEST_RING_PORT_H
#define BRAGGLINE_TEST_RING_PORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <rte_eth_ring.h>
#include <rte_ring.h>

/**
 * Make port net_ring_NAME with rings NAME_rxQ and NAME_txQ of `size` mbufs for each of its queues.
 *
 * @param[out] rx packets that the port will receive
 * @param[out] tx packets that it has sent
 * @return its port number
 */
static inline uint16_t
ring_port_make(const char *name, unsigned int size, unsigned int queues, struct rte_ring **rx,
	struct rte_ring **tx)
{
	char ring[RTE_RING_NAMESIZE];
	int port;

	for (unsigned int q = 0; q < queues; q++) {
		assert_true(snprintf(ring, sizeof(ring), "%s_rx%u", name, q) < (int)sizeof(ring));
		rx[q] = rte_ring_create(ring, size, 0, RING_F_SP_ENQ | RING_F_SC_DEQ);
		assert_true(snprintf(ring, sizeof(ring), "%s_tx%u", name, q) < (int)sizeof(ring));
		tx[q] = rte_ring_create(ring, size, 0, RING_F_SP_ENQ | RING_F_SC_DEQ);
		assert_true(rx[q] && tx[q]);
	}
	port = rte_eth_from_rings(name, rx, queues, tx, queues, 0);
	assert_true(port >= 0);
	return port;
}

#endif
