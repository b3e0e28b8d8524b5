/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <pcap/pcap.h>
#include <rte_bus_vdev.h>
#include <rte_eal.h>
#include <rte_malloc.h>
#include <rte_udp.h>

#include "replay_fixture.h"

#define POOL_MBUFS 4095u

static char path[] = "/tmp/replay_test_XXXXXX";
const char *capture = path;
struct rte_mempool *roomless, *zero, *headers, *ordinary, *small, *pinned;

void
make_frame(uint8_t *frame, uint32_t nth, uint32_t len, uint16_t port)
{
	struct rte_ether_hdr *ether = (void *)frame;
	struct rte_ipv4_hdr *ip = (void *)(ether + 1);
	struct rte_udp_hdr *udp = (void *)(ip + 1);

	for (uint32_t i = 0; i < len; i++)
		frame[i] = (uint8_t)(nth * 31 + i);
	if (len < COUNTER_AT + 8)
		return;
	memset(frame, 0, COUNTER_AT + 8);
	ether->dst_addr.addr_bytes[5] = (uint8_t)nth;
	ether->ether_type = RTE_BE16(RTE_ETHER_TYPE_IPV4);
	ip->version_ihl = RTE_IPV4_VHL_DEF;
	ip->next_proto_id = 17;
	ip->src_addr = rte_cpu_to_be_32(RTE_IPV4(10, 0, 0, 1));
	ip->dst_addr = rte_cpu_to_be_32(RTE_IPV4(10, 0, 1, nth % 4));
	udp->src_port = rte_cpu_to_be_16(4000);
	udp->dst_port = rte_cpu_to_be_16(port);
	memcpy(frame + COUNTER_AT, &(uint64_t){nth}, 8);
}

/* Write n packets; lengths repeat every `nb_len` packets, ports 5000, 5001, ... every 4. */
void
write_capture(uint32_t n, const uint32_t *len, uint32_t nb_len, uint32_t cut)
{
	pcap_t *pcap =
		pcap_open_dead_with_tstamp_precision(DLT_EN10MB, 65535, PCAP_TSTAMP_PRECISION_NANO);
	pcap_dumper_t *dump = pcap_dump_open(pcap, capture);
	uint8_t *frame = malloc(65535);

	assert_non_null(dump);
	for (uint32_t i = 0; i < n; i++) {
		struct pcap_pkthdr header = {.len = len[i % nb_len]};

		make_frame(frame, i, header.len, (uint16_t)(5000 + i % 4));
		header.caplen = RTE_MIN(header.len, cut);
		header.ts.tv_sec = i;
		pcap_dump((u_char *)dump, &header, frame);
	}
	pcap_dump_close(dump);
	pcap_close(pcap);
	free(frame);
}

void
write_equal(uint32_t n, uint32_t len)
{
	write_capture(n, &len, 1, UINT32_MAX);
}

int
open_port(const char *more)
{
	char args[256];
	uint16_t port;

	snprintf(args, sizeof(args), "file=%s%s%s", capture, *more == '\0' ? "" : ",", more);
	if (rte_vdev_init("net_replay0", args) != 0)
		return -1;
	assert_int_equal(rte_eth_dev_get_port_by_name("net_replay0", &port), 0);
	return port;
}

void
configure(uint16_t port, uint16_t queues, uint64_t offloads)
{
	struct rte_eth_conf conf = {.rxmode.offloads = offloads};

	assert_int_equal(rte_eth_dev_configure(port, queues, 1, &conf), 0);
	assert_int_equal(rte_eth_tx_queue_setup(port, 0, 64, 0, NULL), 0);
}

int
split_queue(uint16_t port, uint16_t queue, struct rte_mempool *rest, uint16_t at)
{
	union rte_eth_rxseg seg[2] = {
		{.split = {.mp = headers, .length = at}},
		{.split = {.mp = rest}},
	};
	struct rte_eth_rxconf conf = {.rx_seg = seg, .rx_nseg = 2, .offloads = SPLIT};

	return rte_eth_rx_queue_setup(port, queue, 64, 0, &conf, NULL);
}

uint16_t
open_queues(const char *args, uint16_t nb, uint16_t nb_desc, struct rte_mempool *pool,
	uint64_t offloads)
{
	const int port = open_port(args);

	assert_true(port >= 0);
	configure((uint16_t)port, nb, offloads);
	for (uint16_t q = 0; q < nb; q++)
		assert_int_equal(
			rte_eth_rx_queue_setup((uint16_t)port, q, nb_desc, 0, NULL, pool), 0);
	return (uint16_t)port;
}

uint16_t
start_single(const char *args, struct rte_mempool *pool, uint64_t offloads)
{
	const uint16_t port = open_queues(args, 1, 64, pool, offloads);

	assert_int_equal(rte_eth_dev_start(port), 0);
	return port;
}

uint16_t
start_split(const char *args, struct rte_mempool *rest, uint16_t at)
{
	int port = open_port(args);

	assert_true(port >= 0);
	configure((uint16_t)port, 1, SPLIT);
	assert_int_equal(split_queue((uint16_t)port, 0, rest, at), 0);
	assert_int_equal(rte_eth_dev_start((uint16_t)port), 0);
	return (uint16_t)port;
}

void
close_port(uint16_t port)
{
	rte_eth_dev_stop(port);
	assert_int_equal(rte_eth_dev_close(port), 0);
	assert_int_equal(rte_vdev_uninit("net_replay0"), 0);
}

/* Receive until `max` packets are there or no more arrive. */
uint32_t
receive(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint32_t max)
{
	uint32_t n = 0;

	for (uint32_t idle = 0; n < max && idle < 100; idle++) {
		uint16_t got = rte_eth_rx_burst(port, queue, mbufs + n, RTE_MIN(max - n, 32u));

		n += got;
		if (got != 0)
			idle = 0;
	}
	return n;
}

uint64_t
xstat(uint16_t port, const char *name)
{
	uint64_t id, value;

	assert_int_equal(rte_eth_xstats_get_id_by_name(port, name, &id), 0);
	assert_int_equal(rte_eth_xstats_get_by_id(port, &id, &value, 1), 1);
	return value;
}

void
assert_content(struct rte_mbuf *m, uint32_t nth, uint32_t len)
{
	static uint8_t want[65535], have[65535];
	const uint8_t *bytes;

	make_frame(want, nth, len, (uint16_t)(5000 + nth % 4));
	assert_int_equal(m->pkt_len, len);
	rte_mbuf_sanity_check(m, 1);
	bytes = rte_pktmbuf_read(m, 0, len, have);
	assert_non_null(bytes);
	assert_memory_equal(bytes, want, len);
}

uint64_t
counter_of(struct rte_mbuf *m)
{
	uint64_t value;
	uint8_t bytes[8];

	memcpy(&value, rte_pktmbuf_read(m, COUNTER_AT, 8, bytes), 8);
	return value;
}

/* All mbufs are free, and each points to its own buffer. */
void
assert_pool_sound(struct rte_mempool *pool)
{
	static struct rte_mbuf *mbufs[POOL_MBUFS];
	uint32_t n = pool->size;

	assert_int_equal(rte_mempool_avail_count(pool), n);
	assert_int_equal(rte_pktmbuf_alloc_bulk(pool, mbufs, n), 0);
	for (uint32_t i = 0; i < n; i++) {
		assert_ptr_equal(mbufs[i]->buf_addr, (char *)(mbufs[i] + 1) + mbufs[i]->priv_size);
		assert_int_equal(mbufs[i]->buf_len, rte_pktmbuf_data_room_size(pool));
		assert_int_equal(mbufs[i]->ol_flags, 0);
		assert_null(mbufs[i]->next);
		assert_int_equal(mbufs[i]->nb_segs, 1);
	}
	rte_pktmbuf_free_bulk(mbufs, n);
}

/* A test that fails leaves its port open. */
int
remove_port(void **state)
{
	uint16_t port;

	if (rte_eth_dev_get_port_by_name("net_replay0", &port) == 0) {
		rte_eth_dev_stop(port);
		rte_vdev_uninit("net_replay0");
	}
	return 0;
}

static int
make_pools(void)
{
	static struct rte_pktmbuf_extmem ext;
	const size_t bytes = 255 * 2048;

	ext.buf_ptr = rte_malloc(NULL, RTE_ALIGN_CEIL(bytes, 4096), 4096);
	ext.buf_iova = RTE_BAD_IOVA;
	ext.buf_len = RTE_ALIGN_CEIL(bytes, 4096);
	ext.elt_size = 2048;
	roomless = rte_pktmbuf_pool_create("roomless", POOL_MBUFS, 256, 0, RTE_PKTMBUF_HEADROOM, 0);
	zero = rte_pktmbuf_pool_create("zero", POOL_MBUFS, 256, 0, 0, 0);
	headers = rte_pktmbuf_pool_create(
		"headers", POOL_MBUFS, 256, 16, RTE_PKTMBUF_HEADROOM + 128, 0);
	ordinary = rte_pktmbuf_pool_create("ordinary", 1023, 64, 0, 2048 + RTE_PKTMBUF_HEADROOM, 0);
	small = rte_pktmbuf_pool_create("small", POOL_MBUFS, 64, 0, 256 + RTE_PKTMBUF_HEADROOM, 0);
	pinned = rte_pktmbuf_pool_create_extbuf("pinned", 255, 0, 0, 2048, 0, &ext, 1);
	return roomless && zero && headers && ordinary && small && pinned ? 0 : -1;
}

int
run_replay_tests(char *program, const struct CMUnitTest *tests, size_t nb_tests)
{
	char *eal[] = {program, (char[]){"--no-huge"}, (char[]){"--no-shconf"},
		(char[]){"--no-pci"}, (char[]){"-m"}, (char[]){"256"}, (char[]){"--no-telemetry"}};
	int failed, fd;

	if (rte_eal_init(RTE_DIM(eal), eal) < 0 || make_pools() < 0)
		return 1;
	fd = mkstemp(path);
	if (fd < 0)
		return 1;
	close(fd);
	failed = _cmocka_run_group_tests(program, tests, nb_tests, NULL, NULL);
	unlink(path);
	rte_eal_cleanup();
	return failed;
}
