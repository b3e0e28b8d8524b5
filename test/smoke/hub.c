/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A switch between all ports of the process, which can lose frames: each copy for itself.
 *
 * usage: hub EAL-OPTION... -- LOSS-PERCENT SEED
 * It prints "ready", runs until a signal, and prints how many copies it has lost.
 */

#include <err.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>
#include <rte_random.h>

#define PORTS_MAX   8
#define BURST	    32
#define DESCRIPTORS 1024
#define FRAMES	    16383
#define IDLE_US	    20

static volatile sig_atomic_t stop;
static struct rte_ether_addr station[PORTS_MAX]; /* last source address */
static struct rte_mempool *pool;
static uint64_t chance, lost, passed;

static void
on_signal(int number)
{
	stop = number;
}

static void
start(uint16_t port)
{
	const struct rte_eth_conf conf = {0};

	if (rte_eth_dev_configure(port, 1, 1, &conf) < 0 ||
		rte_eth_rx_queue_setup(port, 0, DESCRIPTORS, SOCKET_ID_ANY, NULL, pool) < 0 ||
		rte_eth_tx_queue_setup(port, 0, DESCRIPTORS, SOCKET_ID_ANY, NULL) < 0 ||
		rte_eth_dev_start(port) < 0)
		errx(1, "port %u", port);
}

/* Whether a frame goes out of a port. */
static bool
is_for(uint16_t port, uint16_t ports, const struct rte_ether_addr *to)
{
	if (rte_is_multicast_ether_addr(to) || rte_is_same_ether_addr(to, &station[port]))
		return true;
	for (uint16_t p = 0; p < ports; p++)
		if (rte_is_same_ether_addr(to, &station[p]))
			return false;
	return true;
}

static void
forward(uint16_t from, uint16_t ports, const struct rte_mbuf *m)
{
	const struct rte_ether_hdr *eth = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);

	station[from] = eth->src_addr;
	for (uint16_t p = 0; p < ports; p++) {
		struct rte_mbuf *copy;

		if (p == from || !is_for(p, ports, &eth->dst_addr))
			continue;
		if (chance > rte_rand_max(UINT32_MAX)) {
			lost++;
			continue;
		}
		copy = rte_pktmbuf_copy(m, pool, 0, UINT32_MAX);
		if (copy == NULL)
			continue;
		/* a full ring brakes: only chosen frames are lost */
		while (rte_eth_tx_burst(p, 0, &copy, 1) == 0) {
			struct rte_eth_link link;

			rte_eth_link_get_nowait(p, &link);
			if (link.link_status == RTE_ETH_LINK_DOWN || stop != 0) {
				rte_pktmbuf_free(copy);
				break;
			}
		}
		passed++;
	}
}

int
main(int argc, char **argv)
{
	const int used = rte_eal_init(argc, argv);
	const struct sigaction action = {.sa_handler = on_signal};
	struct rte_mbuf *m[BURST];
	uint16_t ports, n, work;

	if (used < 0 || argc - used != 3)
		errx(2, "usage");
	chance = (uint64_t)(atof(argv[used + 1]) / 100 * UINT32_MAX);
	rte_srand(strtoull(argv[used + 2], NULL, 10));
	ports = rte_eth_dev_count_avail();
	pool = rte_pktmbuf_pool_create("hub", FRAMES, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE, 0);
	if (ports < 2 || ports > PORTS_MAX || pool == NULL)
		errx(1, "ports or memory");
	for (uint16_t p = 0; p < ports; p++)
		start(p);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	printf("ready\n");
	fflush(stdout);
	while (stop == 0) {
		work = 0;
		for (uint16_t p = 0; p < ports; p++) {
			n = rte_eth_rx_burst(p, 0, m, BURST);
			for (uint16_t i = 0; i < n; i++) {
				forward(p, ports, m[i]);
				rte_pktmbuf_free(m[i]);
			}
			work += n;
		}
		if (work == 0)
			rte_delay_us_sleep(IDLE_US);
	}
	printf("lost = %" PRIu64 "\npassed = %" PRIu64 "\n", lost, passed);
	return 0;
}
