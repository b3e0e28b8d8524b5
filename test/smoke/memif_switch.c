/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A switch of all DPDK ports that EAL has: it learns addresses, and floods frames to groups and to
 * unknown addresses. Packets that a port does not accept are lost, and a share of all others, each
 * copy for itself. It runs until a signal, and then prints how many it has lost at random.
 *
 * usage: memif_switch EAL-ARGUMENT... [-- LOSS-PERCENT SEED]
 */

#include <err.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>
#include <rte_random.h>

#define PORTS	    8
#define BURST	    64
#define DESCRIPTORS 1024
#define MBUFS	    16383
#define ROOM	    8448
#define NO_PORT	    UINT16_MAX

static struct rte_ether_addr address[PORTS]; /* source address of the last frame from each port */
static uint64_t chance;			     /* probability of a loss, in units of 2^-32 */
static uint64_t lost;
static volatile sig_atomic_t stop;

static void
on_signal(int number)
{
	stop = number;
}

static void
port_start(uint16_t port, struct rte_mempool *pool)
{
	const struct rte_eth_conf conf = {0};

	if (rte_eth_dev_configure(port, 1, 1, &conf) < 0 ||
		rte_eth_rx_queue_setup(port, 0, DESCRIPTORS, 0, NULL, pool) < 0 ||
		rte_eth_tx_queue_setup(port, 0, DESCRIPTORS, 0, NULL) < 0 ||
		rte_eth_dev_start(port) < 0)
		errx(1, "port %u: cannot start", port);
}

/** @return port of an address; NO_PORT: all */
static uint16_t
port_of(const struct rte_ether_addr *to, uint16_t nb_ports)
{
	if (rte_is_multicast_ether_addr(to))
		return NO_PORT;
	for (uint16_t p = 0; p < nb_ports; p++)
		if (rte_is_same_ether_addr(to, &address[p]))
			return p;
	return NO_PORT;
}

static void
carry(struct rte_mbuf *m, uint16_t from, uint16_t nb_ports)
{
	const struct rte_ether_hdr *ether = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);
	const uint16_t to = port_of(&ether->dst_addr, nb_ports);

	rte_ether_addr_copy(&ether->src_addr, &address[from]);
	for (uint16_t p = 0; p < nb_ports; p++) {
		if (p == from || (to != NO_PORT && to != p))
			continue;
		if (chance > rte_rand_max(UINT64_C(1) << 32)) {
			lost++;
			continue;
		}
		/* memif copies the frame before it frees the mbuf */
		rte_mbuf_refcnt_update(m, 1);
		if (rte_eth_tx_burst(p, 0, &m, 1) == 0)
			rte_mbuf_refcnt_update(m, -1);
	}
	rte_pktmbuf_free(m);
}

int
main(int argc, char **argv)
{
	const struct sigaction action = {.sa_handler = on_signal};
	struct rte_mbuf *burst[BURST];
	struct rte_mempool *pool;
	uint16_t nb_ports;
	int used;

	used = rte_eal_init(argc, argv);
	if (used < 0)
		errx(1, "cannot initialize EAL");
	if (argc - used == 3) {
		chance = (uint64_t)(atof(argv[used + 1]) / 100 * 0x1p32);
		rte_srand(strtoull(argv[used + 2], NULL, 10));
	}
	sigaction(SIGTERM, &action, NULL);
	nb_ports = rte_eth_dev_count_avail();
	if (nb_ports == 0 || nb_ports > PORTS)
		errx(1, "found %u ports, expected 1 to %u", nb_ports, PORTS);
	pool = rte_pktmbuf_pool_create("switch", MBUFS, 0, 0, ROOM, SOCKET_ID_ANY);
	if (pool == NULL)
		errx(1, "out of memory");
	for (uint16_t p = 0; p < nb_ports; p++)
		port_start(p, pool);
	puts("ready");
	fflush(stdout);
	while (stop == 0) {
		uint32_t n = 0;

		for (uint16_t p = 0; p < nb_ports; p++) {
			const uint16_t got = rte_eth_rx_burst(p, 0, burst, BURST);

			for (uint16_t i = 0; i < got; i++)
				carry(burst[i], p, nb_ports);
			n += got;
		}
		/* CPUs are shared with the programs that send */
		if (n == 0)
			sched_yield();
	}
	printf("lost = %" PRIu64 "\n", lost);
	return 0;
}
