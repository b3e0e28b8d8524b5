/* SPDX-License-Identifier: BSD-3-Clause */
/* Packets that queues of net_replay deliver, through the public ethdev API. */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>

#include <ethdev_driver.h>
#include <pcap/pcap.h>
#include <rte_bus_vdev.h>
#include <rte_cycles.h>
#include <rte_ip.h>
#include <rte_udp.h>

#include "replay.h"
#include "replay_fixture.h"

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
		/* both loops deliver references to the same bytes */
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
		memset(rte_pktmbuf_mtod(m[i], void *), 0, 60); /* private */
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

	/* no packet ever fits: a burst still returns */
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
	/*
	 * counter + 10 per loop; source address (big endian) - 1 per loop; neighbouring bytes
	 * unchanged
	 */
	port = start_split("loops=3,rewrite=42:8:le:10,rewrite=26:4:be:-1,rewrite=30:4:be:0,"
			   "rewrite=40:2:le:0,rewrite=50:3:le:0,rewrite=25:1:be:0",
		zero, 90);
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

	/* every length and offset, both byte orders, compared with a plain addition */
	for (uint32_t k = 0; k < 32; k++) {
		uint32_t length = k % 8 + 1, off = k < 16 ? 100 : 200 - length;
		bool big = k / 8 % 2;
		char args[64];

		write_equal(4, 200);
		snprintf(args, sizeof(args), "loops=2,rewrite=%u:%u:%s:0xfedcba9876543210", off,
			length, big ? "be" : "le");
		port = start_single(args, ordinary, 0);
		assert_int_equal(receive(port, 0, m, 8), 8);
		for (uint32_t i = 0; i < 4; i++) {
			uint8_t *was = rte_pktmbuf_mtod(m[i], uint8_t *);
			uint8_t *is = rte_pktmbuf_mtod(m[4 + i], uint8_t *);
			uint64_t step = 0xfedcba9876543210;
			uint32_t carry = 0;

			for (uint32_t b = 0; b < length; b++, step >>= 8) {
				uint32_t at = big ? off + length - 1 - b : off + b;

				carry += was[at] + (uint8_t)step;
				assert_int_equal(is[at], (uint8_t)carry);
				carry >>= 8;
				is[at] = was[at];
			}
			assert_memory_equal(is, was, 200);
		}
		rte_pktmbuf_free_bulk(m, 8);
		close_port(port);
	}

	write_equal(10, 1000);
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
	assert_int_equal(xstat(port, "rx_no_mbuf_bursts"), stats.rx_nombuf);
	assert_int_equal(stats.ipackets, 45);
	assert_int_equal(stats.imissed + stats.ierrors, 0);
	close_port(port);
	assert_pool_sound(few);
	assert_pool_sound(headers);
	rte_mempool_free(few);
}

/* A packet with 65,534 references in use; and a queue that is set up again with a new pool. */
static void
waits_when_references_run_out(void **state)
{
	struct rte_mempool *many =
		rte_pktmbuf_pool_create("many", 65599, 0, 0, RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);
	struct rte_mbuf **m = calloc(65599, sizeof(*m));
	struct rte_eth_stats stats;
	uint16_t port;

	assert_true(many != NULL && m != NULL);
	write_equal(1, 200);
	port = start_single("loops=0", many, 0);
	assert_int_equal(receive(port, 0, m, 65599), 65534);
	assert_int_equal(rte_eth_stats_get(port, &stats), 0);
	assert_true(stats.rx_nombuf > 0);
	assert_int_equal(xstat(port, "rx_references_full_bursts"), stats.rx_nombuf);
	assert_int_equal(xstat(port, "rx_no_mbuf_bursts"), 0);
	rte_pktmbuf_free(m[0]);
	assert_int_equal(rte_eth_rx_burst(port, 0, m, 1), 1);
	for (uint32_t i = 0; i < 65534; i++)
		rte_pktmbuf_free(m[i]);
	/* counters of the old queues are kept */
	assert_int_equal(rte_eth_dev_stop(port), 0);
	assert_int_equal(rte_eth_rx_queue_setup(port, 0, 64, 0, NULL, ordinary), 0);
	assert_int_equal(rte_eth_dev_start(port), 0);
	assert_int_equal(receive(port, 0, m, 7), 7);
	assert_int_equal(rte_eth_tx_burst(port, 0, m, 7), 7);
	assert_int_equal(rte_eth_dev_stop(port), 0);
	assert_int_equal(rte_eth_tx_queue_setup(port, 0, 64, 0, NULL), 0);
	assert_int_equal(rte_eth_stats_get(port, &stats), 0);
	assert_int_equal(stats.ipackets, 65535 + 7);
	assert_int_equal(stats.ibytes, (65535 + 7) * 200);
	assert_int_equal(stats.opackets, 7);
	assert_int_equal(xstat(port, "rx_by_reference_packets"), 65535);
	assert_int_equal(xstat(port, "rx_copied_packets"), 7);
	assert_int_equal(rte_eth_stats_reset(port), 0);
	assert_int_equal(rte_eth_stats_get(port, &stats), 0);
	assert_int_equal(stats.ipackets + stats.ibytes + stats.rx_nombuf + stats.opackets, 0);
	close_port(port);
	assert_pool_sound(ordinary);
	rte_mempool_free(many);
	free(m);
}

static void
queue_info_reports_the_mode(void **state)
{
	struct rte_eth_burst_mode mode;
	struct rte_eth_rxq_info info;
	struct rte_eth_txq_info tx;
	struct replay_rxq *rxq;
	struct rte_mbuf *m[4];
	uint32_t ptypes[8];
	uint16_t port;

	write_equal(10, 1000);
	port = start_split("", zero, 90);
	assert_int_equal(rte_eth_rx_burst_mode_get(port, 0, &mode), 0);
	assert_non_null(strstr(mode.info, "by reference"));
	assert_int_equal(rte_eth_rx_queue_info_get(port, 0, &info), 0);
	assert_int_equal(info.nb_desc, 64);
	assert_int_equal(info.scattered_rx, 1);
	assert_int_equal(info.conf.rx_nseg, 2);
	assert_ptr_equal(info.conf.rx_seg[0].split.mp, headers);
	assert_int_equal(info.conf.rx_seg[0].split.length, 90);
	assert_ptr_equal(info.conf.rx_seg[1].split.mp, zero);
	assert_int_equal(rte_eth_tx_queue_info_get(port, 0, &tx), 0);
	assert_int_equal(tx.nb_desc, 64);
	assert_int_equal(rte_eth_rx_queue_count(port, 0), 10);
	assert_int_equal(receive(port, 0, m, 4), 4);
	rte_pktmbuf_free_bulk(m, 4);
	assert_int_equal(rte_eth_rx_queue_count(port, 0), 6);
	assert_true(rte_eth_dev_get_supported_ptypes(port, RTE_PTYPE_L4_MASK, ptypes, 8) > 0);
	assert_int_equal(rte_eth_dev_set_mtu(port, 9000), 0);
	close_port(port);

	/* with a pace: packets that are due, at most as many as the ring holds */
	port = start_single("loops=0,burst=8:1000000000", roomless, 0);
	assert_int_equal(rte_eth_rx_queue_count(port, 0), 8);
	assert_int_equal(rte_eth_rx_burst(port, 0, m, 3), 3);
	rte_pktmbuf_free_bulk(m, 3);
	assert_int_equal(rte_eth_rx_queue_count(port, 0), 5);
	rxq = rte_eth_devices[port].data->rx_queues[0];
	/* the TSC counts from the start of the machine, which may be minutes ago */
	rxq->clock -= RTE_MIN(3600 * rte_get_tsc_hz(), rxq->clock / 2);
	assert_int_equal(rte_eth_rx_queue_count(port, 0), 64);
	close_port(port);
}

static void
half_a_setup_is_refused(void **state)
{
	const struct rte_eth_conf conf = {0};
	struct rte_eth_rxconf rx = {.rx_deferred_start = 1};
	struct rte_eth_txconf tx = {.tx_deferred_start = 1};
	int port;

	write_equal(10, 1000);
	port = open_port("");
	assert_true(port >= 0);
	assert_int_equal(rte_eth_dev_configure((uint16_t)port, 1, 2, &conf), 0);
	assert_int_equal(rte_eth_rx_queue_setup((uint16_t)port, 0, 64, 0, &rx, roomless), -ENOTSUP);
	assert_int_equal(rte_eth_tx_queue_setup((uint16_t)port, 0, 64, 0, &tx), -ENOTSUP);
	assert_int_equal(rte_eth_rx_queue_setup((uint16_t)port, 0, 64, 0, NULL, roomless), 0);
	assert_int_equal(rte_eth_tx_queue_setup((uint16_t)port, 0, 64, 0, NULL), 0);
	assert_int_equal(rte_eth_dev_start((uint16_t)port), -EINVAL); /* the second Tx queue */
	assert_int_equal(rte_eth_tx_queue_setup((uint16_t)port, 1, 64, 0, NULL), 0);
	assert_int_equal(rte_eth_dev_start((uint16_t)port), 0);
	close_port((uint16_t)port);
}

/* Read statistics and link status like ethdev's telemetry, in a thread, until `end` is set. */
struct asking {
	struct rte_eth_dev *dev;
	const struct eth_dev_ops *ops;
	bool end;	   /* atomic */
	uint64_t answered; /* atomic */
};

static void *
ask_always(void *arg)
{
	struct asking *a = arg;
	struct rte_eth_xstat xstats[128];
	struct rte_eth_stats stats;
	uint64_t n = 0;

	while (!__atomic_load_n(&a->end, __ATOMIC_RELAXED)) {
		(void)a->ops->stats_get(a->dev, &stats);
		(void)a->ops->link_update(a->dev, 0);
		if (a->ops->xstats_get(a->dev, xstats, RTE_DIM(xstats)) > 0)
			n++;
		__atomic_store_n(&a->answered, n, __ATOMIC_RELAXED);
	}
	return NULL;
}

/*
 * Statistics and link status are read while the port closes. The driver is called as by ethdev,
 * which has checked before that the port exists.
 */
static void
statistics_while_ports_close(void **state)
{
	pthread_t thread;
	uint16_t port;
	int round;

	write_equal(10, 1000);
	for (round = 0; round < 100; round++) {
		struct asking a = {0};

		port = open_queues("", 2, 64, roomless, 0);
		a.dev = &rte_eth_devices[port];
		a.ops = a.dev->dev_ops;
		assert_int_equal(rte_eth_dev_start(port), 0);
		assert_int_equal(pthread_create(&thread, NULL, ask_always, &a), 0);
		while (__atomic_load_n(&a.answered, __ATOMIC_RELAXED) < 2)
			sched_yield();
		close_port(port);
		__atomic_store_n(&a.end, true, __ATOMIC_RELAXED);
		pthread_join(thread, NULL);
		assert_int_equal(a.ops->link_update(a.dev, 0), -ENODEV);
	}
}

static const struct eth_dev_ops *driver;
static unsigned int stops;

static int
count_stop(struct rte_eth_dev *dev)
{
	stops++;
	return driver->dev_stop(dev);
}

/* Lcores may poll a started port that is removed: ethdev must hear that it has stopped. */
static void
a_removed_port_is_stopped(void **state)
{
	struct eth_dev_ops counting;
	struct rte_eth_dev *dev;
	uint16_t port;

	write_equal(10, 1000);
	port = start_single("", roomless, 0);
	dev = &rte_eth_devices[port];
	driver = dev->dev_ops;
	counting = *driver;
	counting.dev_stop = count_stop;
	dev->dev_ops = &counting;
	assert_int_equal(rte_vdev_uninit("net_replay0"), 0);
	assert_int_equal(stops, 1);
}

/* Checksum of a packet in the capture, and the flags that a queue delivers. */
static const struct {
	const char *what;
	uint64_t flags;
} checksum_cases[] = {
	{"correct", RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD},
	{"UDP wrong", RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_BAD},
	{"payload changed", RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_BAD},
	{"not computed", RTE_MBUF_F_RX_IP_CKSUM_GOOD},
	{"partial", RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_NONE},
	{"IPv4 wrong", RTE_MBUF_F_RX_IP_CKSUM_BAD},
	{"captured truncated", 0},
	{"IPv4 length beyond the frame", RTE_MBUF_F_RX_IP_CKSUM_GOOD},
	{"IPv4 length below the headers", RTE_MBUF_F_RX_IP_CKSUM_GOOD},
	{"no IPv4", 0},
};

static void
write_checksums(uint32_t len)
{
	pcap_t *pcap =
		pcap_open_dead_with_tstamp_precision(DLT_EN10MB, 65535, PCAP_TSTAMP_PRECISION_NANO);
	pcap_dumper_t *dump = pcap_dump_open(pcap, capture);
	uint8_t frame[2048];

	assert_non_null(dump);
	for (uint32_t i = 0; i < RTE_DIM(checksum_cases); i++) {
		struct rte_ether_hdr *ether = (void *)frame;
		struct rte_ipv4_hdr *ip = (void *)(ether + 1);
		struct rte_udp_hdr *udp = (void *)(ip + 1);
		struct pcap_pkthdr header = {.len = len, .caplen = i == 6 ? len - 1 : len};

		make_frame(frame, i, len, 5000);
		ip->total_length = rte_cpu_to_be_16((uint16_t)(len - sizeof(*ether)));
		udp->dgram_len = rte_cpu_to_be_16((uint16_t)(len - sizeof(*ether) - sizeof(*ip)));
		udp->dgram_cksum = rte_ipv4_udptcp_cksum(ip, udp);
		if (i == 1)
			udp->dgram_cksum ^= 1;
		else if (i == 2)
			frame[len - 1] ^= 1;
		else if (i == 3)
			udp->dgram_cksum = 0;
		else if (i == 4)
			udp->dgram_cksum = rte_ipv4_phdr_cksum(ip, 0);
		else if (i == 7)
			ip->total_length = rte_cpu_to_be_16((uint16_t)len);
		else if (i == 8)
			ip->total_length = rte_cpu_to_be_16(27);
		else if (i == 9)
			ether->ether_type = RTE_BE16(RTE_ETHER_TYPE_IPV6);
		ip->hdr_checksum = (uint16_t)(rte_ipv4_cksum(ip) ^ (i == 5));
		pcap_dump((u_char *)dump, &header, frame);
	}
	pcap_dump_close(dump);
	pcap_close(pcap);
}

/* Flags by reference, split by reference and as copies; odd and even lengths; with one offload. */
static void
checksums_are_verified(void **state)
{
	const uint64_t both = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
	const uint64_t mask = RTE_MBUF_F_RX_IP_CKSUM_MASK | RTE_MBUF_F_RX_L4_CKSUM_MASK;
	const struct {
		const char *args;
		struct rte_mempool *pool;
		uint64_t offloads, mask;
	} ways[] = {
		{"", roomless, both, mask}, {"align_at=91", roomless, both, mask},
		{"", ordinary, both, mask},
		{"", ordinary, RTE_ETH_RX_OFFLOAD_IPV4_CKSUM, RTE_MBUF_F_RX_IP_CKSUM_MASK},
		{"", roomless, RTE_ETH_RX_OFFLOAD_UDP_CKSUM, RTE_MBUF_F_RX_L4_CKSUM_MASK},
		{"", roomless, 0, 0},
		/* after the port's check */
		{"corrupt=1", roomless, both, 0}, {"truncate=1", ordinary, both, 0},
		{"", NULL, both, mask}, /* split */
	};
	struct rte_mbuf *m[RTE_DIM(checksum_cases) + 1];

	for (uint32_t w = 0; w < RTE_DIM(ways); w++) {
		uint16_t port;

		write_checksums(1000 + w % 2);
		if (ways[w].pool != NULL) {
			port = start_single(ways[w].args, ways[w].pool, ways[w].offloads);
		} else {
			port = (uint16_t)open_port(ways[w].args);
			configure(port, 1, SPLIT | both);
			assert_int_equal(split_queue(port, 0, zero, HEADERS), 0);
			assert_int_equal(rte_eth_dev_start(port), 0);
		}
		assert_int_equal(receive(port, 0, m, RTE_DIM(m)), RTE_DIM(checksum_cases));
		for (uint32_t i = 0; i < RTE_DIM(checksum_cases); i++)
			if ((m[i]->ol_flags & mask) != (checksum_cases[i].flags & ways[w].mask))
				fail_msg("way %u, %s: flags %#" PRIx64, w, checksum_cases[i].what,
					m[i]->ol_flags);
		rte_pktmbuf_free_bulk(m, RTE_DIM(checksum_cases));
		close_port(port);
	}
	assert_pool_sound(roomless);
	assert_pool_sound(ordinary);
	assert_pool_sound(zero);
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
		cmocka_unit_test_teardown(waits_when_mbufs_run_out, remove_port),
		cmocka_unit_test_teardown(waits_when_references_run_out, remove_port),
		cmocka_unit_test_teardown(queue_info_reports_the_mode, remove_port),
		cmocka_unit_test_teardown(checksums_are_verified, remove_port),
		cmocka_unit_test_teardown(half_a_setup_is_refused, remove_port),
		cmocka_unit_test_teardown(statistics_while_ports_close, remove_port),
		cmocka_unit_test_teardown(a_removed_port_is_stopped, remove_port),
	};

	return run_replay_tests(argv[0], tests, RTE_DIM(tests));
}
