/* SPDX-License-Identifier: BSD-3-Clause */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_bus_vdev.h>
#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_malloc.h>

#include "bench_capture.h"
#include "port/pools.h"
#include "port/port.h"
#include "port/steering.h"
#include "rx/transport.h"
#include "rx_bench.h"

#define DEVICE "net_replay0"

void
rx_bench_fail(const char *what, const char *why)
{
	fprintf(stderr, "rx_bench: %s: %s\n", what, why);
	exit(1);
}

void
rx_bench_open_port(struct rx_bench *b, const char *more)
{
	char path[256], args[512];
	uint32_t mbufs = b->slots * b->detector.tiles + 8191;
	int fd;

	fd = bench_capture_write(b->modules, b->frames, path, sizeof(path));
	snprintf(args, sizeof(args), "file=%s,loops=0,rewrite=%u:8:le:%u%s", path,
		BENCH_UDP_HEADERS, b->frames, more);
	if (rte_vdev_init(DEVICE, args) != 0 || rte_eth_dev_get_port_by_name(DEVICE, &b->port) != 0)
		rx_bench_fail(DEVICE, "cannot be made; --frames smaller?");
	close(fd);
	unlink(path);
	if (b->pixels != NULL)
		return;
	b->headers = rte_pktmbuf_pool_create(
		"headers", 8191, PORT_MEMPOOL_CACHE, 0, RTE_PKTMBUF_HEADROOM + 128, SOCKET_ID_ANY);
	b->pixels = rte_pktmbuf_pool_create_by_ops(
		"pixels", mbufs, PORT_MEMPOOL_CACHE, 0, 0, SOCKET_ID_ANY, PORT_REFERENCE_OPS);
	if (b->headers == NULL || b->pixels == NULL)
		rx_bench_fail("pools", rte_strerror(rte_errno));
}

void
rx_bench_close_port(struct rx_bench *b)
{
	if (rte_eth_dev_close(b->port) != 0 || rte_vdev_uninit(DEVICE) != 0)
		rx_bench_fail(DEVICE, "cannot be closed");
}

/* Steer module m to the queue of its RX role. */
static uint32_t
lane_of(const struct rx_bench *b, uint32_t module)
{
	return module * b->nb_rx / b->modules;
}

static void
start_port(struct rx_bench *b, uint16_t descriptors)
{
	struct rte_eth_conf conf = {
		.rxmode.offloads = RTE_ETH_RX_OFFLOAD_SCATTER | RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT};
	struct rte_eth_rxconf rx = {.rx_nseg = 2};
	union rte_eth_rxseg segments[2] = {0};
	struct rte_eth_dev_info info;
	struct rte_flow_error error;
	struct port_rule rule;

	segments[0].split.mp = b->headers;
	segments[0].split.length = BENCH_SPLIT_AT;
	segments[1].split.mp = b->pixels;
	rx.rx_seg = segments;
	/* as in the receiver, the port checks checksums */
	if (rte_eth_dev_info_get(b->port, &info) != 0)
		rx_bench_fail(DEVICE, "does not describe itself");
	conf.rxmode.offloads |= port_checksums(&info);
	rx.offloads = conf.rxmode.offloads;
	if (rte_eth_dev_configure(b->port, b->nb_rx, 0, &conf) != 0)
		rx_bench_fail(DEVICE, "cannot be configured");
	for (uint32_t q = 0; q < b->nb_rx; q++)
		if (rte_eth_rx_queue_setup(b->port, q, descriptors, 0, &rx, NULL) != 0)
			rx_bench_fail(DEVICE, "has no such queue");
	for (uint32_t m = 0; m < b->modules; m++) {
		port_rule_init(&rule, BENCH_UDP_PORT + m, lane_of(b, m), NULL);
		if (rte_flow_create(b->port, &rule.attr, rule.pattern, rule.actions, &error) ==
			NULL)
			rx_bench_fail(DEVICE, "takes no flow rules");
	}
	if (rte_eth_dev_start(b->port) != 0)
		rx_bench_fail(DEVICE, "cannot be started");
}

static void
create_roles(struct rx_bench *b)
{
	static const struct source_settings settings; /* sources are learned */
	struct frame_table_config c = {
		.detector = &b->detector,
		.nb_rx = b->nb_rx,
		.slots = b->slots,
		.max_skew_frames = 8,
		.resync_packets = 8,
		.max_gap_frames = 16384,
		.stall_cycles = rte_get_tsc_hz(),
		.frames = rte_zmalloc("frames",
			b->slots *
				gk_frame_stride(&(struct gk_geometry){.tiles = b->detector.tiles}),
			64),
		.socket = SOCKET_ID_ANY,
	};

	for (uint32_t m = 0; m < b->modules; m++)
		c.owner[m] = lane_of(b, m);
	if (c.frames == NULL || (b->table = frame_table_create(&c)) == NULL)
		rx_bench_fail("frame table", rte_strerror(rte_errno));
	sources_init(&b->sources, &settings, &b->detector, c.stall_cycles);
	for (uint32_t i = 0; i < b->nb_rx; i++) {
		struct rx *rx = rte_zmalloc("rx", sizeof(*rx), RTE_CACHE_LINE_SIZE);
		char name[16];

		snprintf(name, sizeof(name), "handoff ring%u", i);
		if (rx == NULL)
			rx_bench_fail("RX role", "no memory");
		rx->table = b->table;
		rx->frx = &b->table->rx[i];
		rx->streams = b->streams;
		rx->detector = &b->detector;
		rx->transport = &rx_udp;
		rx->sources = &b->sources;
		rx->peers = b->rx;
		rx->nb_queues = 1;
		rx->queues[0].port = b->port;
		rx->queues[0].queue = i;
		rx->handoff_ring =
			rte_ring_create(name, 64, SOCKET_ID_ANY, RING_F_MP_RTS_ENQ | RING_F_SC_DEQ);
		if (rx->handoff_ring == NULL)
			rx_bench_fail("handoff ring", rte_strerror(rte_errno));
		b->rx[i] = rx;
	}
}

void
rx_bench_start(struct rx_bench *b, uint32_t nb_rx, uint16_t descriptors, bool roles)
{
	b->nb_rx = nb_rx;
	start_port(b, descriptors);
	if (roles)
		create_roles(b);
}

static void
give_back(struct rx_bench *b, const struct frame_closed *closed)
{
	if (closed->packets == 0)
		return;
	frame_table_release(b->table, closed->slot);
	frame_table_recycle(b->table, closed->slot);
}

bool
rx_bench_build(struct rx_bench *b)
{
	struct frame_closed closed;
	bool any = false;

	while (frame_table_close(b->table, &closed)) {
		b->frames_closed++;
		b->frames_complete += closed.missing == 0;
		any = true;
		give_back(b, &closed);
	}
	return frame_table_open(b->table) > 0 || any;
}

/* Empty the table: drop waiting packets, and close all frames. */
static void
finish(struct rx_bench *b)
{
	struct frame_closed closed;

	for (uint32_t i = 0; i < b->nb_rx; i++)
		b->rx[i]->stop = true;
	frame_table_flush(b->table);
	while (!frame_table_flushed(b->table)) {
		for (uint32_t i = 0; i < b->nb_rx; i++)
			rx_poll(b->rx[i]);
		while (frame_table_close(b->table, &closed))
			give_back(b, &closed);
	}
	for (uint32_t i = 0; i < b->nb_rx; i++)
		rx_poll(b->rx[i]);
}

void
rx_bench_stop(struct rx_bench *b, bool roles)
{
	struct rte_flow_error error;

	if (roles)
		finish(b);
	if (rte_flow_flush(b->port, &error) != 0 || rte_eth_dev_stop(b->port) != 0)
		rx_bench_fail(DEVICE, "cannot be stopped");
	for (uint32_t i = 0; roles && i < b->nb_rx; i++) {
		rte_ring_free(b->rx[i]->handoff_ring);
		rte_free(b->rx[i]);
	}
	if (roles) {
		rte_free(b->table->config.frames);
		frame_table_destroy(b->table);
	}
	if (rte_mempool_in_use_count(b->pixels) + rte_mempool_in_use_count(b->headers) != 0)
		rx_bench_fail("pools", "mbufs have not come back");
}
