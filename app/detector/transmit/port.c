/* SPDX-License-Identifier: BSD-3-Clause */

#include "transmit/port.h"

#include <err.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_ethdev.h>

#include "wire/jungfrau_packets.h"
#include "ethdev_find.h"

#define TX_DESCRIPTORS 1024
#define RX_DESCRIPTORS 64
#define POOL_CACHE     64

/* net_af_packet refuses the RX queue unless its largest frame fits into an mbuf. */
#define RECEIVE_ROOM (9600 + RTE_PKTMBUF_HEADROOM)

/* Packets in the port, and in the receiver if a driver passes mbufs on, as net_ring does. */
#define IN_FLIGHT 4096

/* Damaged packets are rare. */
#define DAMAGED 256

/* Time for a peer to empty a shared ring before the port is stopped. */
#define LINGER_MS 300

static int
failed(const char *name, const char *what, int error)
{
	warnx("port %s: cannot %s: %s", name, what, rte_strerror(-error));
	return error;
}

static int
find_port(const char *name, uint16_t *id)
{
	char names[ETHDEV_NAMES_SIZE];

	if (ethdev_find(name, id) == 0)
		return 0;
	warnx("--port: no Ethernet device '%s'; EAL has %s. Create it with --vdev or allow it with "
	      "-a",
		name, ethdev_names(names));
	return -ENODEV;
}

static int
make_pools(struct transmit_port *port, const char *name, int socket)
{
	const uint32_t in_flight = IN_FLIGHT + 2 * POOL_CACHE;
	const uint16_t whole_room = RTE_PKTMBUF_HEADROOM + JUNGFRAU_PACKET_BYTES;

	port->whole = rte_pktmbuf_pool_create(
		"detector_whole", port->chains ? DAMAGED : in_flight, 0, 0, whole_room, socket);
	if (port->chains) {
		port->header = rte_pktmbuf_pool_create("detector_header", in_flight, POOL_CACHE, 0,
			RTE_PKTMBUF_HEADROOM + RTE_ALIGN_CEIL(JUNGFRAU_HEADER_BYTES, 64), socket);
		port->payload = rte_pktmbuf_pool_create(
			"detector_payload", in_flight, POOL_CACHE, 0, 0, socket);
	}
	if (port->whole == NULL ||
		(port->chains && (port->header == NULL || port->payload == NULL)))
		return failed(name, "create its pools; more memory for EAL (-m) may help", -ENOMEM);
	return 0;
}

/* Sets up the RX queue, which is never polled. */
static int
setup_receive(struct transmit_port *port, uint16_t nb_rxd, int socket)
{
	port->receive = rte_pktmbuf_pool_create(
		"detector_receive", nb_rxd + RX_DESCRIPTORS, 0, 0, RECEIVE_ROOM, socket);
	if (port->receive == NULL)
		return -ENOMEM;
	return rte_eth_rx_queue_setup(
		port->id, 0, nb_rxd, (unsigned int)socket, NULL, port->receive);
}

/* IP packets of 8268 bytes must fit. Drivers that cannot report the largest frame (net_af_packet
 * reports 1518) depend on their device and are left unchanged. */
static void
raise_mtu(uint16_t id, const char *name, const struct rte_eth_dev_info *info)
{
	const uint16_t wanted = JUNGFRAU_PACKET_BYTES - JUNGFRAU_ETHERNET_BYTES;
	uint16_t mtu;
	int ret;

	if (rte_eth_dev_get_mtu(id, &mtu) != 0 || mtu >= wanted || info->max_mtu < wanted ||
		info->max_rx_pktlen < JUNGFRAU_PACKET_BYTES)
		return;
	ret = rte_eth_dev_set_mtu(id, RTE_MIN(info->max_mtu, 9000));
	if (ret != 0 && ret != -ENOTSUP)
		warnx("port %s: MTU is %u, expected at least %u, and it cannot be changed", name,
			mtu, wanted);
}

int
transmit_port_open(struct transmit_port *port, const char *name)
{
	uint16_t nb_rxq, nb_rxd = RX_DESCRIPTORS, nb_txd = TX_DESCRIPTORS;
	struct rte_eth_conf conf = {0};
	struct rte_eth_dev_info info;
	struct rte_eth_txconf txconf;
	int socket, ret;

	*port = (struct transmit_port){.id = RTE_MAX_ETHPORTS};
	ret = find_port(name, &port->id);
	if (ret != 0)
		return ret;
	ret = rte_eth_dev_info_get(port->id, &info);
	if (ret != 0)
		return failed(name, "get its device information", ret);
	socket = rte_eth_dev_socket_id(port->id);
	port->chains = (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0;
	ret = make_pools(port, name, socket);
	if (ret != 0)
		return ret;

	conf.txmode.offloads = port->chains ? RTE_ETH_TX_OFFLOAD_MULTI_SEGS : 0;
	/* The port does not receive, but net_vhost and others require an RX queue. A client of
	 * net_memif must not have more rings than its server, and braggline-recv's server has no TX
	 * ring. */
	nb_rxq = strcmp(info.driver_name, "net_memif") != 0;
	ret = rte_eth_dev_configure(port->id, nb_rxq, 1, &conf);
	if (ret != 0)
		return failed(name, "configure it", ret);
	raise_mtu(port->id, name, &info);
	ret = rte_eth_dev_adjust_nb_rx_tx_desc(port->id, &nb_rxd, &nb_txd);
	if (ret == 0 && nb_rxq != 0)
		ret = setup_receive(port, nb_rxd, socket);
	if (ret != 0)
		return failed(name, "set up its receive queue", ret);
	txconf = info.default_txconf;
	txconf.offloads = conf.txmode.offloads;
	ret = rte_eth_tx_queue_setup(port->id, 0, nb_txd, (unsigned int)socket, &txconf);
	return ret == 0 ? 0 : failed(name, "set up its transmit queue", ret);
}

int
transmit_port_start(struct transmit_port *port, uint32_t seconds, const volatile sig_atomic_t *stop)
{
	uint64_t end = rte_get_timer_cycles() + seconds * rte_get_timer_hz();
	struct rte_eth_link link;

	for (;;) {
		/* a net_memif client cannot start before its server */
		if (!port->started)
			port->started = rte_eth_dev_start(port->id) == 0;
		if (port->started && rte_eth_link_get_nowait(port->id, &link) == 0 &&
			link.link_status == RTE_ETH_LINK_UP)
			return 0;
		if (*stop != 0)
			return -EINTR;
		if (rte_get_timer_cycles() >= end) {
			warnx("port %u: no link after %u s; check the other side (--link-wait)",
				port->id, seconds);
			return -ETIMEDOUT;
		}
		rte_delay_us_sleep(port->started ? 10000 : 200000);
	}
}

void
transmit_port_close(struct transmit_port *port)
{
	if (port->started) {
		rte_delay_us_sleep(LINGER_MS * 1000);
		rte_eth_dev_stop(port->id);
	}
	if (port->whole != NULL)
		rte_eth_dev_close(port->id);
	port->started = false;
	rte_mempool_free(port->receive);
	rte_mempool_free(port->header);
	rte_mempool_free(port->payload);
	rte_mempool_free(port->whole);
	port->receive = port->header = port->payload = port->whole = NULL;
}
