/* SPDX-License-Identifier: BSD-3-Clause */
/* The net_replay driver through the public ethdev API, on captures made here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <pcap/pcap.h>
#include <rte_bus_vdev.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_udp.h>

#define POOL_MBUFS 4095u
#define LINE	   64u
#define HEADERS	   90u
#define COUNTER_AT 42u /* the 8 bytes behind the UDP header hold the number of the packet */
#define SPLIT	   (RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT | RTE_ETH_RX_OFFLOAD_SCATTER)

static char capture[] = "/tmp/replay_test_XXXXXX";
static struct rte_mempool *roomless; /* data room = headroom: single segments by reference */
static struct rte_mempool *zero;     /* data room 0 */
static struct rte_mempool *headers;
static struct rte_mempool *ordinary;
static struct rte_mempool *small;
static struct rte_mempool *pinned;

/* ---- captures ---- */

static void
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

/* Lengths repeat every `nb_len` packets, ports 5000, 5001, ... every 4. */
static void
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

static void
write_equal(uint32_t n, uint32_t len)
{
	write_capture(n, &len, 1, UINT32_MAX);
}

/* ---- the port ---- */

static int
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

static void
configure(uint16_t port, uint16_t queues, uint64_t offloads)
{
	struct rte_eth_conf conf = {.rxmode.offloads = offloads};

	assert_int_equal(rte_eth_dev_configure(port, queues, 1, &conf), 0);
	assert_int_equal(rte_eth_tx_queue_setup(port, 0, 64, 0, NULL), 0);
}

static int
split_queue(uint16_t port, uint16_t queue, struct rte_mempool *rest, uint16_t at)
{
	union rte_eth_rxseg seg[2] = {
		{.split = {.mp = headers, .length = at}},
		{.split = {.mp = rest}},
	};
	struct rte_eth_rxconf conf = {.rx_seg = seg, .rx_nseg = 2, .offloads = SPLIT};

	return rte_eth_rx_queue_setup(port, queue, 64, 0, &conf, NULL);
}

static uint16_t
start_single(const char *args, struct rte_mempool *pool, uint64_t offloads)
{
	int port = open_port(args);

	assert_true(port >= 0);
	configure((uint16_t)port, 1, offloads);
	assert_int_equal(rte_eth_rx_queue_setup((uint16_t)port, 0, 64, 0, NULL, pool), 0);
	assert_int_equal(rte_eth_dev_start((uint16_t)port), 0);
	return (uint16_t)port;
}

static uint16_t
start_split(const char *args, struct rte_mempool *rest, uint16_t at)
{
	int port = open_port(args);

	assert_true(port >= 0);
	configure((uint16_t)port, 1, SPLIT);
	assert_int_equal(split_queue((uint16_t)port, 0, rest, at), 0);
	assert_int_equal(rte_eth_dev_start((uint16_t)port), 0);
	return (uint16_t)port;
}

static void
close_port(uint16_t port)
{
	rte_eth_dev_stop(port);
	assert_int_equal(rte_eth_dev_close(port), 0);
	assert_int_equal(rte_vdev_uninit("net_replay0"), 0);
}

/* Until `max` packets are there or nothing comes any more. */
static uint32_t
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

static uint64_t
xstat(uint16_t port, const char *name)
{
	uint64_t id, value;

	assert_int_equal(rte_eth_xstats_get_id_by_name(port, name, &id), 0);
	assert_int_equal(rte_eth_xstats_get_by_id(port, &id, &value, 1), 1);
	return value;
}

static void
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

static uint64_t
counter_of(struct rte_mbuf *m)
{
	uint64_t value;
	uint8_t bytes[8];

	memcpy(&value, rte_pktmbuf_read(m, COUNTER_AT, 8, bytes), 8);
	return value;
}

/* Every mbuf is back, and none of them points anywhere but at its own buffer. */
static void
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

/* ---- tests ---- */

static void
frames_by_reference(void **state)
{
	static const uint32_t len[] = {1000, 60, 65535, 91, 8240};
	struct rte_mbuf *m[120];
	uint16_t port;

	write_capture(50, len, RTE_DIM(len), UINT32_MAX);
	port = start_single("loops=2", roomless, 0);
	assert_int_equal(receive(port, 0, m, 120), 100);
	for (uint32_t i = 0; i < 100; i++) {
		assert_content(m[i], i % 50, len[i % RTE_DIM(len)]);
		assert_int_equal(m[i]->nb_segs, 1);
		assert_int_equal(m[i]->ol_flags, RTE_MBUF_F_EXTERNAL);
		assert_int_equal(m[i]->port, port);
		assert_int_equal(rte_pktmbuf_mtod_offset(m[i], uintptr_t, HEADERS) % LINE, 0);
		assert_int_equal(m[i]->packet_type,
			RTE_PTYPE_L2_ETHER | RTE_PTYPE_L3_IPV4 | RTE_PTYPE_L4_UDP);
		/* both loops hand out the same bytes, not copies */
		assert_ptr_equal(m[i]->buf_addr, m[i % 50]->buf_addr);
	}
	assert_int_equal(xstat(port, "replay_references_outstanding"), 100);
	assert_int_equal(xstat(port, "rx_by_reference_packets"), 100);
	assert_int_equal(xstat(port, "replay_done"), 1);
	rte_pktmbuf_free_bulk(m, 100);
	assert_int_equal(xstat(port, "replay_references_outstanding"), 0);
	close_port(port);
	assert_pool_sound(roomless);
}

static void
frames_by_copy(void **state)
{
	static const uint32_t len[] = {1000, 60, 1500};
	struct rte_eth_stats stats;
	struct rte_mbuf *m[40];
	uint16_t port;

	write_capture(30, len, RTE_DIM(len), UINT32_MAX);
	port = start_single("", ordinary, 0);
	assert_int_equal(receive(port, 0, m, 40), 30);
	for (uint32_t i = 0; i < 30; i++) {
		assert_content(m[i], i, len[i % 3]);
		assert_int_equal(m[i]->ol_flags, 0);
		memset(rte_pktmbuf_mtod(m[i], void *), 0, 60); /* private: harms nobody */
	}
	assert_int_equal(rte_eth_stats_get(port, &stats), 0);
	assert_int_equal(stats.ipackets, 30);
	assert_int_equal(stats.ibytes, 10 * (1000 + 60 + 1500));
	assert_int_equal(xstat(port, "rx_copied_packets"), 30);
	assert_int_equal(rte_eth_tx_burst(port, 0, m, 30), 30);
	assert_int_equal(rte_eth_stats_get(port, &stats), 0);
	assert_int_equal(stats.opackets, 30);
	assert_int_equal(rte_eth_stats_reset(port), 0);
	assert_int_equal(rte_eth_stats_get(port, &stats), 0);
	assert_int_equal(stats.ipackets + stats.ibytes + stats.opackets + stats.obytes, 0);
	close_port(port);
	assert_pool_sound(ordinary);
}

static void
large_frames_scatter_or_drop(void **state)
{
	static const uint32_t len[] = {1000, 300, 65535};
	struct rte_eth_stats stats;
	struct rte_mbuf *m[9];
	uint16_t port;

	write_capture(9, len, RTE_DIM(len), UINT32_MAX);
	port = start_single("", small, RTE_ETH_RX_OFFLOAD_SCATTER);
	assert_int_equal(receive(port, 0, m, 9), 9);
	for (uint32_t i = 0; i < 9; i++) {
		assert_content(m[i], i, len[i % 3]);
		assert_int_equal(m[i]->nb_segs, (len[i % 3] + 255) / 256);
	}
	rte_pktmbuf_free_bulk(m, 9);
	close_port(port);
	assert_pool_sound(small);

	port = start_single("loops=3", ordinary, 0);
	assert_int_equal(receive(port, 0, m, 9), 9);
	rte_pktmbuf_free_bulk(m, 9);
	assert_int_equal(receive(port, 0, m, 9), 9);
	assert_content(m[8], 7, 300);
	rte_pktmbuf_free_bulk(m, 9);
	assert_int_equal(receive(port, 0, m, 1), 0); /* the last one is dropped, too */
	assert_int_equal(xstat(port, "rx_oversize_dropped_packets"), 9);
	assert_int_equal(rte_eth_stats_get(port, &stats), 0);
	assert_int_equal(stats.ierrors, 9);
	close_port(port);
	assert_pool_sound(ordinary);

	/* nothing fits, for ever: a burst still ends */
	write_equal(3, 5000);
	port = start_single("loops=0", ordinary, 0);
	assert_int_equal(rte_eth_rx_burst(port, 0, m, 9), 0);
	close_port(port);
}

static void
payload_by_reference_behind_private_headers(void **state)
{
	static const uint32_t len[] = {8240, 1000, 90, 60, 91, 65535};
	static const uint16_t at[] = {90, 64, 110, 48};
	struct rte_mbuf *m[60];

	write_capture(60, len, RTE_DIM(len), UINT32_MAX);
	for (uint32_t k = 0; k < RTE_DIM(at); k++) {
		uint16_t port = start_split("", k % 2 != 0 ? zero : roomless, at[k]);

		assert_int_equal(receive(port, 0, m, 60), 60);
		for (uint32_t i = 0; i < 60; i++) {
			uint32_t l = len[i % RTE_DIM(len)];

			assert_content(m[i], i, l);
			assert_int_equal(m[i]->nb_segs, l > at[k] ? 2 : 1);
			assert_int_equal(m[i]->data_len, RTE_MIN(l, (uint32_t)at[k]));
			assert_ptr_equal(m[i]->pool, headers);
			assert_int_equal(m[i]->ol_flags, 0);
			if (m[i]->nb_segs == 1)
				continue;
			assert_int_equal(m[i]->next->ol_flags, RTE_MBUF_F_EXTERNAL);
			assert_int_equal(m[i]->next->pkt_len, l - at[k]);
			assert_int_equal(rte_pktmbuf_mtod(m[i]->next, uintptr_t) % LINE, 0);
		}
		rte_pktmbuf_free_bulk(m, 60);
		close_port(port);
		assert_pool_sound(headers);
		assert_pool_sound(k % 2 != 0 ? zero : roomless);
	}
}

static void
payload_copied_behind_headers(void **state)
{
	static const uint32_t len[] = {1000, 2000, 90, 8240};
	struct rte_mbuf *m[40];
	uint16_t port;

	write_capture(40, len, RTE_DIM(len), UINT32_MAX);
	port = start_split("", ordinary, 90);
	assert_int_equal(receive(port, 0, m, 40), 40);
	for (uint32_t i = 0; i < 40; i++) {
		assert_content(m[i], i, len[i % 4]);
		assert_int_equal(m[i]->data_len, 90);
		if (m[i]->nb_segs > 1)
			assert_int_equal(m[i]->next->data_off, 0);
	}
	rte_pktmbuf_free_bulk(m, 40);
	close_port(port);
	assert_pool_sound(headers);
	assert_pool_sound(ordinary);
}

static void
pinned_buffers_are_filled_never_repointed(void **state)
{
	struct rte_mbuf *m[64], *all[255];
	void *own[255];
	uint16_t port;

	assert_int_equal(rte_pktmbuf_alloc_bulk(pinned, all, 255), 0);
	for (uint32_t i = 0; i < 255; i++)
		own[i] = all[i]->buf_addr;
	rte_pktmbuf_free_bulk(all, 255);
	write_equal(64, 1000);
	for (uint32_t split = 0; split < 2; split++) {
		port = split ? start_split("", pinned, 90) : start_single("", pinned, 0);
		assert_int_equal(receive(port, 0, m, 64), 64);
		for (uint32_t i = 0; i < 64; i++) {
			struct rte_mbuf *last = rte_pktmbuf_lastseg(m[i]);

			assert_content(m[i], i, 1000);
			assert_ptr_equal(last->pool, pinned);
			assert_int_equal(last->ol_flags, RTE_MBUF_F_EXTERNAL);
		}
		rte_pktmbuf_free_bulk(m, 64);
		close_port(port);
	}
	assert_int_equal(rte_mempool_avail_count(pinned), 255);
	assert_int_equal(rte_pktmbuf_alloc_bulk(pinned, all, 255), 0);
	for (uint32_t i = 0; i < 255; i++) {
		uint32_t k;

		for (k = 0; k < 255 && own[k] != all[i]->buf_addr; k++)
			;
		assert_true(k < 255);
		own[k] = NULL;
	}
	rte_pktmbuf_free_bulk(all, 255);
}

static void
rewritten_fields_step_per_loop(void **state)
{
	struct rte_mbuf *m[30];
	uint16_t port;

	write_equal(10, 1000);
	/* counter + 10 per loop; source address (big endian) - 1 per loop */
	port = start_split("loops=3,rewrite=42:8:le:10,rewrite=26:4:be:-1", zero, 90);
	assert_int_equal(receive(port, 0, m, 30), 30);
	for (uint32_t i = 0; i < 30; i++) {
		uint32_t src;

		assert_int_equal(counter_of(m[i]), i);
		memcpy(&src, rte_pktmbuf_mtod_offset(m[i], void *, 26), 4);
		assert_int_equal(rte_be_to_cpu_32(src), RTE_IPV4(10, 0, 0, 1) - i / 10);
	}
	rte_pktmbuf_free_bulk(m, 30);
	close_port(port);

	port = start_single("loops=3,rewrite=42:8:le:0xa", ordinary, 0);
	assert_int_equal(receive(port, 0, m, 30), 30);
	for (uint32_t i = 0; i < 30; i++)
		assert_int_equal(counter_of(m[i]), i);
	rte_pktmbuf_free_bulk(m, 30);
	close_port(port);

	/* across segments: the last byte of the first and seven of the second; wraps modulo 2^64 */
	port = start_single(
		"loops=3,rewrite=255:8:le:0x8000000000000001", small, RTE_ETH_RX_OFFLOAD_SCATTER);
	assert_int_equal(receive(port, 0, m, 30), 30);
	for (uint32_t i = 0; i < 10; i++) {
		uint64_t v[3];

		for (uint32_t l = 0; l < 3; l++) {
			uint8_t bytes[8];

			memcpy(&v[l], rte_pktmbuf_read(m[l * 10 + i], 255, 8, bytes), 8);
		}
		assert_true(v[1] == v[0] + 0x8000000000000001u);
		assert_true(v[2] == v[0] + 2u);
	}
	rte_pktmbuf_free_bulk(m, 30);
	close_port(port);
	assert_pool_sound(small);
}

static void
rewriting_shared_bytes_is_refused(void **state)
{
	int port;

	write_equal(10, 1000);
	port = open_port("rewrite=86:8:le:1");
	assert_true(port >= 0);
	configure((uint16_t)port, 1, SPLIT);
	assert_int_equal(split_queue((uint16_t)port, 0, zero, 90), -ENOTSUP);
	assert_int_equal(
		rte_eth_rx_queue_setup((uint16_t)port, 0, 64, 0, NULL, roomless), -ENOTSUP);
	assert_int_equal(split_queue((uint16_t)port, 0, zero, 94), 0);
	assert_int_equal(split_queue((uint16_t)port, 0, ordinary, 64), 0);
	close_port((uint16_t)port);
}

static void
loops_are_exact(void **state)
{
	struct rte_mbuf *m[64];
	uint16_t port;

	write_equal(7, 200);
	for (uint16_t burst = 1; burst <= 64; burst += 9) {
		uint32_t n = 0, got;

		port = start_single("loops=13", roomless, 0);
		while ((got = rte_eth_rx_burst(port, 0, m, burst)) != 0) {
			for (uint32_t i = 0; i < got; i++)
				assert_int_equal(counter_of(m[i]), (n + i) % 7);
			rte_pktmbuf_free_bulk(m, got);
			n += got;
		}
		assert_int_equal(n, 7 * 13);
		assert_int_equal(rte_eth_rx_burst(port, 0, m, burst), 0);
		assert_int_equal(xstat(port, "replay_loops_done"), 13);
		close_port(port);
	}
	port = start_single("loops=0", roomless, 0);
	for (uint32_t i = 0; i < 1000; i++) {
		assert_int_equal(rte_eth_rx_burst(port, 0, m, 64), 64);
		rte_pktmbuf_free_bulk(m, 64);
	}
	assert_int_equal(xstat(port, "replay_done"), 0);
	close_port(port);
}

static void
link_is_up_until_the_end_and_start_begins_anew(void **state)
{
	struct rte_eth_link link;
	struct rte_mbuf *m[64];
	uint16_t port;

	write_equal(40, 200);
	port = start_single("", roomless, 0);
	for (uint32_t round = 0; round < 3; round++) {
		uint32_t n = round == 0 ? 15 : 40; /* the first round is broken off */

		assert_int_equal(receive(port, 0, m, n), n);
		assert_int_equal(counter_of(m[0]), 0);
		assert_int_equal(rte_eth_link_get_nowait(port, &link), 0);
		assert_int_equal(link.link_status, round == 0);
		rte_pktmbuf_free_bulk(m, n);
		assert_int_equal(rte_eth_dev_stop(port), 0);
		assert_int_equal(rte_eth_dev_start(port), 0);
		assert_int_equal(rte_eth_link_get_nowait(port, &link), 0);
		assert_int_equal(link.link_status, RTE_ETH_LINK_UP);
	}
	close_port(port);
}

static void
paced_packets_are_never_early(void **state)
{
	const uint64_t rate = 30000, hz = rte_get_tsc_hz();
	struct rte_mbuf *m[64];
	uint64_t begin, end, n = 0;
	uint16_t port;

	write_equal(100, 200);
	port = start_single("loops=15,rate=30000", roomless, 0);
	rte_delay_ms(5); /* the clock starts with the first burst, not with the port */
	begin = rte_rdtsc();
	do {
		uint16_t got = rte_eth_rx_burst(port, 0, m, 64);

		end = rte_rdtsc();
		n += got;
		rte_pktmbuf_free_bulk(m, got);
		/* packet k is due at k / rate after a moment that is not before `begin` */
		assert_true(n <= (end - begin) * rate / hz + 1);
	} while (n < 1500 && end - begin < 5 * hz);
	assert_int_equal(n, 1500);
	assert_true(end - begin >= 1499 * hz / rate);
	close_port(port);
}

static void
waits_when_mbufs_run_out(void **state)
{
	struct rte_mempool *few = rte_pktmbuf_pool_create("few", 10, 0, 0, 0, SOCKET_ID_ANY);
	struct rte_eth_stats stats;
	struct rte_mbuf *m[64];
	uint16_t port;

	assert_non_null(few);
	write_equal(45, 1000);
	port = start_split("", few, 90);
	for (uint32_t n = 0; n < 45;) {
		uint32_t got = receive(port, 0, m, 64);

		assert_int_equal(got, RTE_MIN(45 - n, 10u));
		for (uint32_t i = 0; i < got; i++)
			assert_content(m[i], n + i, 1000);
		rte_pktmbuf_free_bulk(m, got);
		n += got;
	}
	assert_int_equal(rte_eth_stats_get(port, &stats), 0);
	assert_true(stats.rx_nombuf > 0);
	assert_int_equal(stats.ipackets, 45);
	assert_int_equal(stats.imissed + stats.ierrors, 0);
	close_port(port);
	assert_pool_sound(few);
	assert_pool_sound(headers);
	rte_mempool_free(few);
}

static struct rte_flow *
udp_rule(uint16_t port, uint16_t udp_port, uint16_t mask, uint16_t queue, uint32_t priority)
{
	struct rte_flow_attr attr = {.ingress = 1, .priority = priority};
	struct rte_flow_item_udp spec = {.hdr.dst_port = rte_cpu_to_be_16(udp_port)};
	struct rte_flow_item_udp bits = {.hdr.dst_port = rte_cpu_to_be_16(mask)};
	struct rte_flow_item pattern[] = {
		{.type = RTE_FLOW_ITEM_TYPE_ETH},
		{.type = RTE_FLOW_ITEM_TYPE_IPV4},
		{.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &spec, .mask = &bits},
		{.type = RTE_FLOW_ITEM_TYPE_END},
	};
	struct rte_flow_action_queue to = {.index = queue};
	struct rte_flow_action actions[] = {
		{.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &to},
		{.type = RTE_FLOW_ACTION_TYPE_END},
	};
	struct rte_flow_error error;

	if (rte_flow_validate(port, &attr, pattern, actions, &error) != 0)
		return NULL;
	return rte_flow_create(port, &attr, pattern, actions, &error);
}

static struct rte_flow *
address_rule(uint16_t port, uint32_t address, uint16_t queue)
{
	struct rte_flow_attr attr = {.ingress = 1};
	struct rte_flow_item_ipv4 spec = {.hdr.dst_addr = rte_cpu_to_be_32(address)};
	struct rte_flow_item_ipv4 mask = {.hdr.dst_addr = RTE_BE32(UINT32_MAX)};
	struct rte_flow_item pattern[] = {
		{.type = RTE_FLOW_ITEM_TYPE_IPV4, .spec = &spec, .mask = &mask},
		{.type = RTE_FLOW_ITEM_TYPE_END},
	};
	struct rte_flow_action_queue to = {.index = queue};
	struct rte_flow_action actions[] = {
		{.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &to},
		{.type = RTE_FLOW_ACTION_TYPE_END},
	};
	struct rte_flow_error error;

	return rte_flow_create(port, &attr, pattern, actions, &error);
}

/* Receives on three queues and checks that queue_of(i % 4) is where each packet came. */
static void
assert_steered(uint16_t port, const uint16_t queue_of[4])
{
	static struct rte_mbuf *m[400];
	struct rte_eth_stats stats;
	uint32_t total = 0;

	assert_int_equal(rte_eth_stats_reset(port), 0);
	assert_int_equal(rte_eth_dev_stop(port), 0);
	assert_int_equal(rte_eth_dev_start(port), 0);
	for (uint16_t q = 0; q < 3; q++) {
		uint32_t n = receive(port, q, m, 400), last = 0;

		assert_int_equal(rte_eth_stats_get(port, &stats), 0);
		assert_int_equal(stats.q_ipackets[q], n);
		for (uint32_t i = 0; i < n; i++) {
			uint32_t nth = (uint32_t)counter_of(m[i]);

			assert_int_equal(queue_of[nth % 4], q);
			assert_true(i == 0 || nth > last); /* order is kept */
			last = nth;
		}
		rte_pktmbuf_free_bulk(m, n);
		total += n;
	}
	assert_int_equal(total, 400);
	assert_int_equal(xstat(port, "replay_done"), 1);
}

static void
flow_rules_choose_the_queue(void **state)
{
	struct rte_flow *odd, *first;
	struct rte_flow_error error;
	int port;

	write_equal(400, 200);
	port = open_port("queues=3");
	assert_true(port >= 0);
	configure((uint16_t)port, 3, 0);
	for (uint16_t q = 0; q < 3; q++)
		assert_int_equal(
			rte_eth_rx_queue_setup((uint16_t)port, q, 64, 0, NULL, roomless), 0);
	/* before the start */
	odd = udp_rule((uint16_t)port, 5001, 0x0001, 1, 1);
	assert_non_null(odd);
	assert_int_equal(rte_eth_dev_start((uint16_t)port), 0);
	assert_steered((uint16_t)port, (uint16_t[]){0, 1, 0, 1});
	/* a smaller priority number is tried first; after the start */
	first = udp_rule((uint16_t)port, 5003, 0xffff, 2, 0);
	assert_non_null(first);
	assert_steered((uint16_t)port, (uint16_t[]){0, 1, 0, 2});
	/* and among equal ones the older */
	assert_non_null(address_rule((uint16_t)port, RTE_IPV4(10, 0, 1, 3), 1));
	assert_non_null(address_rule((uint16_t)port, RTE_IPV4(10, 0, 1, 2), 2));
	assert_steered((uint16_t)port, (uint16_t[]){0, 1, 2, 2});
	assert_int_equal(rte_flow_destroy((uint16_t)port, first, &error), 0);
	assert_steered((uint16_t)port, (uint16_t[]){0, 1, 2, 1});
	assert_int_not_equal(rte_flow_destroy((uint16_t)port, first, &error), 0);
	assert_int_equal(rte_flow_flush((uint16_t)port, &error), 0);
	assert_steered((uint16_t)port, (uint16_t[]){0, 0, 0, 0});
	close_port((uint16_t)port);
	assert_pool_sound(roomless);
}

static void
unknown_flow_rules_are_refused(void **state)
{
	struct rte_flow_attr in = {.ingress = 1}, out = {.egress = 1},
			     group = {.ingress = 1, .group = 1};
	struct rte_flow_item_ipv4 ttl = {.hdr.time_to_live = 1};
	struct rte_flow_item_udp ports = {0};
	struct rte_flow_item end = {.type = RTE_FLOW_ITEM_TYPE_END};
	struct rte_flow_item any[] = {{.type = RTE_FLOW_ITEM_TYPE_ETH}, end};
	struct rte_flow_item bad[][3] = {
		{{.type = RTE_FLOW_ITEM_TYPE_TCP}, end},
		{{.type = RTE_FLOW_ITEM_TYPE_UDP}, {.type = RTE_FLOW_ITEM_TYPE_IPV4}, end},
		{{.type = RTE_FLOW_ITEM_TYPE_IPV4, .spec = &ttl, .mask = &ttl}, end},
		{{.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &ports, .last = &ports}, end},
		{{.type = RTE_FLOW_ITEM_TYPE_UDP, .mask = &ports}, end},
	};
	struct rte_flow_action_queue zeroth = {.index = 0}, second = {.index = 1};
	struct rte_flow_action stop = {.type = RTE_FLOW_ACTION_TYPE_END};
	struct rte_flow_action queue[] = {{RTE_FLOW_ACTION_TYPE_QUEUE, &zeroth}, stop};
	struct rte_flow_action wrong[][3] = {
		{{RTE_FLOW_ACTION_TYPE_QUEUE, &second}, stop},
		{{RTE_FLOW_ACTION_TYPE_DROP, NULL}, stop},
		{{RTE_FLOW_ACTION_TYPE_QUEUE, &zeroth}, {RTE_FLOW_ACTION_TYPE_QUEUE, &zeroth},
			stop},
		{stop},
	};
	struct rte_flow_error error;
	uint16_t port;

	write_equal(4, 200);
	port = start_single("", roomless, 0);
	assert_int_equal(rte_flow_validate(port, &in, any, queue, &error), 0);
	assert_int_not_equal(rte_flow_validate(port, &out, any, queue, &error), 0);
	assert_non_null(error.message);
	assert_int_not_equal(rte_flow_validate(port, &group, any, queue, &error), 0);
	for (uint32_t i = 0; i < RTE_DIM(bad); i++) {
		error.message = NULL;
		assert_int_not_equal(rte_flow_validate(port, &in, bad[i], queue, &error), 0);
		assert_non_null(error.message);
	}
	for (uint32_t i = 0; i < RTE_DIM(wrong); i++) {
		error.message = NULL;
		assert_null(rte_flow_create(port, &in, any, wrong[i], &error));
		assert_non_null(error.message);
	}
	close_port(port);
}

static void
malformed_arguments_are_refused(void **state)
{
	static const char *const bad[] = {"loops=x", "loops=-1", "loops=", "loops=1,loops=2",
		"rate=fast", "rate=99999999999999", "queues=0", "queues=5000", "align_at=70000",
		"colour=blue", "rewrite=42", "rewrite=42:8:le", "rewrite=42:9:le:1",
		"rewrite=42:0:le:1", "rewrite=42:8:me:1", "rewrite=42:8:le:x",
		"rewrite=42:8:le:1:1", "rewrite=65530:8:le:1"};

	write_equal(4, 200);
	for (uint32_t i = 0; i < RTE_DIM(bad); i++)
		assert_int_equal(open_port(bad[i]), -1);
	assert_int_not_equal(rte_vdev_init("net_replay0", ""), 0);
	assert_int_not_equal(rte_vdev_init("net_replay0", "file="), 0);
	assert_int_not_equal(rte_vdev_init("net_replay0", "file=/nonexistent.pcap"), 0);
	assert_int_equal(rte_eth_dev_count_avail(), 0);
}

static void
damaged_captures_are_refused(void **state)
{
	pcap_t *pcap;

	write_equal(4, 200);
	assert_int_equal(truncate(capture, 24 + 3 * 216 + 100), 0); /* the last record cut off */
	assert_int_equal(open_port(""), -1);
	assert_int_equal(truncate(capture, 24), 0); /* no packets */
	assert_int_equal(open_port(""), -1);
	assert_int_equal(truncate(capture, 10), 0);
	assert_int_equal(open_port(""), -1);
	pcap = pcap_open_dead(DLT_RAW, 65535);
	pcap_dump_close(pcap_dump_open(pcap, capture));
	pcap_close(pcap);
	assert_int_equal(open_port(""), -1);
}

static void
short_records_are_delivered_and_counted(void **state)
{
	static const uint32_t len[] = {1000, 100, 0};
	struct rte_mbuf *m[30];
	uint16_t port;

	write_capture(30, len, RTE_DIM(len), 128);
	port = start_single("", roomless, 0);
	assert_int_equal(receive(port, 0, m, 30), 20);
	for (uint32_t i = 0; i < 20; i++)
		assert_int_equal(m[i]->pkt_len, i % 2 ? 100 : 128);
	assert_int_equal(xstat(port, "replay_capture_packets"), 20);
	assert_int_equal(xstat(port, "replay_capture_truncated_records"), 10);
	assert_int_equal(xstat(port, "replay_capture_empty_records"), 10);
	rte_pktmbuf_free_bulk(m, 20);
	close_port(port);
}

static void
pcapng_is_read(void **state)
{
	uint32_t shb[] = {0x0a0d0d0a, 28, 0x1a2b3c4d, 1, UINT32_MAX, UINT32_MAX, 28};
	uint32_t idb[] = {1, 20, DLT_EN10MB, 65535, 20};
	uint8_t frame[200];
	struct rte_mbuf *m[8];
	FILE *file = fopen(capture, "w");
	uint16_t port;

	assert_non_null(file);
	fwrite(shb, sizeof(shb), 1, file);
	fwrite(idb, sizeof(idb), 1, file);
	for (uint32_t i = 0; i < 5; i++) {
		uint32_t epb[] = {6, 32 + sizeof(frame), 0, 0, i, sizeof(frame), sizeof(frame)};
		uint32_t total = 32 + sizeof(frame);

		make_frame(frame, i, sizeof(frame), (uint16_t)(5000 + i % 4));
		fwrite(epb, sizeof(epb), 1, file);
		fwrite(frame, sizeof(frame), 1, file);
		fwrite(&total, sizeof(total), 1, file);
	}
	fclose(file);
	port = start_single("", roomless, 0);
	assert_int_equal(receive(port, 0, m, 8), 5);
	for (uint32_t i = 0; i < 5; i++)
		assert_content(m[i], i, sizeof(frame));
	rte_pktmbuf_free_bulk(m, 5);
	close_port(port);
}

static size_t
heap_used(void)
{
	struct rte_malloc_socket_stats stats;

	assert_int_equal(rte_malloc_get_socket_stats(0, &stats), 0);
	return stats.heap_allocsz_bytes;
}

static void
short_memory_is_refused_and_returned(void **state)
{
	void *hog[512];
	uint32_t n = 0;
	size_t used;
	int port;

	write_equal(2000, 9000); /* 18 MB */
	while (n < RTE_DIM(hog) && (hog[n] = rte_malloc(NULL, 4 << 20, 0)) != NULL)
		n++;
	assert_true(n > 0 && n < RTE_DIM(hog));
	used = heap_used();
	assert_int_equal(open_port(""), -1);
	assert_int_equal(heap_used(), used);
	while (n > 0)
		rte_free(hog[--n]);
	port = open_port("");
	assert_true(port >= 0);
	assert_int_equal(rte_eth_dev_close((uint16_t)port), 0);
	rte_vdev_uninit("net_replay0");
}

static void
capture_outlives_its_port_while_referenced(void **state)
{
	struct rte_mbuf *m[50], *clone;
	size_t used, with_capture;
	uint16_t port;

	write_equal(50, 9000);
	used = heap_used();
	port = start_split("", zero, 90);
	with_capture = heap_used();
	assert_int_equal(receive(port, 0, m, 50), 50);
	clone = rte_pktmbuf_clone(m[7], ordinary);
	assert_non_null(clone);
	close_port(port);
	assert_true(heap_used() > used + 50 * 9000);
	for (uint32_t i = 0; i < 50; i++)
		assert_content(m[i], i, 9000);
	rte_pktmbuf_free_bulk(m, 50);
	assert_content(clone, 7, 9000);
	assert_true(heap_used() > used + 50 * 9000);
	rte_pktmbuf_free(clone);
	assert_true(heap_used() + 50 * 9000 < with_capture);
	assert_pool_sound(zero);
	assert_pool_sound(headers);
}

static void
start_is_refused_while_references_pin_the_layout(void **state)
{
	struct rte_mbuf *m[10];
	uint16_t port;

	write_equal(10, 1000);
	port = start_split("queues=2", zero, 90);
	assert_int_equal(receive(port, 0, m, 10), 10);
	assert_int_equal(rte_eth_dev_stop(port), 0);
	assert_int_equal(split_queue(port, 0, zero, 64), 0);
	assert_int_equal(rte_eth_dev_start(port), -EBUSY);
	rte_pktmbuf_free_bulk(m, 10);
	assert_int_equal(rte_eth_dev_start(port), 0);
	assert_int_equal(rte_eth_dev_stop(port), 0);
	/* one arena cannot be aligned for two places */
	configure(port, 2, SPLIT);
	assert_int_equal(split_queue(port, 0, zero, 64), 0);
	assert_int_equal(split_queue(port, 1, zero, 90), 0);
	assert_int_equal(rte_eth_dev_start(port), -ENOTSUP);
	close_port(port);
}

static void
queue_tells_what_it_does(void **state)
{
	struct rte_eth_burst_mode mode;
	struct rte_eth_rxq_info info;
	uint32_t ptypes[8];
	uint16_t port;

	write_equal(10, 1000);
	port = start_split("", zero, 90);
	assert_int_equal(rte_eth_rx_burst_mode_get(port, 0, &mode), 0);
	assert_non_null(strstr(mode.info, "by reference"));
	assert_int_equal(rte_eth_rx_queue_info_get(port, 0, &info), 0);
	assert_int_equal(info.nb_desc, 64);
	assert_int_equal(info.scattered_rx, 1);
	assert_true(rte_eth_dev_get_supported_ptypes(port, RTE_PTYPE_L4_MASK, ptypes, 8) > 0);
	assert_int_equal(rte_eth_dev_set_mtu(port, 9000), 0);
	close_port(port);
}

/* A test that failed leaves its port behind. */
static int
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
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(frames_by_reference, remove_port),
		cmocka_unit_test_teardown(frames_by_copy, remove_port),
		cmocka_unit_test_teardown(large_frames_scatter_or_drop, remove_port),
		cmocka_unit_test_teardown(payload_by_reference_behind_private_headers, remove_port),
		cmocka_unit_test_teardown(payload_copied_behind_headers, remove_port),
		cmocka_unit_test_teardown(pinned_buffers_are_filled_never_repointed, remove_port),
		cmocka_unit_test_teardown(rewritten_fields_step_per_loop, remove_port),
		cmocka_unit_test_teardown(rewriting_shared_bytes_is_refused, remove_port),
		cmocka_unit_test_teardown(loops_are_exact, remove_port),
		cmocka_unit_test_teardown(
			link_is_up_until_the_end_and_start_begins_anew, remove_port),
		cmocka_unit_test_teardown(paced_packets_are_never_early, remove_port),
		cmocka_unit_test_teardown(waits_when_mbufs_run_out, remove_port),
		cmocka_unit_test_teardown(flow_rules_choose_the_queue, remove_port),
		cmocka_unit_test_teardown(unknown_flow_rules_are_refused, remove_port),
		cmocka_unit_test_teardown(malformed_arguments_are_refused, remove_port),
		cmocka_unit_test_teardown(damaged_captures_are_refused, remove_port),
		cmocka_unit_test_teardown(short_records_are_delivered_and_counted, remove_port),
		cmocka_unit_test_teardown(pcapng_is_read, remove_port),
		cmocka_unit_test_teardown(short_memory_is_refused_and_returned, remove_port),
		cmocka_unit_test_teardown(capture_outlives_its_port_while_referenced, remove_port),
		cmocka_unit_test_teardown(
			start_is_refused_while_references_pin_the_layout, remove_port),
		cmocka_unit_test_teardown(queue_tells_what_it_does, remove_port),
	};
	char *eal[] = {argv[0], (char[]){"--no-huge"}, (char[]){"--no-shconf"},
		(char[]){"--no-pci"}, (char[]){"-m"}, (char[]){"256"}, (char[]){"-l"},
		(char[]){"0"}, (char[]){"--no-telemetry"}};
	int failed, fd;

	if (rte_eal_init(RTE_DIM(eal), eal) < 0 || make_pools() < 0)
		return 1;
	fd = mkstemp(capture);
	if (fd < 0)
		return 1;
	close(fd);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(capture);
	rte_eal_cleanup();
	return failed;
}
