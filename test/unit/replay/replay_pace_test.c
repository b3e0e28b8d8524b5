/* SPDX-License-Identifier: BSD-3-Clause */
/* Delivery times of net_replay, and their statistics. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <pcap/pcap.h>
#include <rte_cycles.h>
#include <rte_mbuf_dyn.h>

#include "replay.h"
#include "replay_fixture.h"

#define PACKETS 5u

static const uint16_t lengths[PACKETS] = {1000, 60, 8240, 91, 1500};
static const uint64_t times[PACKETS] = {7000, 7500, 7400, 9000, 10000}; /* ns */

/* Compare the exact time in TSC cycles with that of the table, over several loops. */
static void
check(const struct replay_devargs *args, long double (*ns)(uint64_t nth))
{
	struct replay_packet packets[PACKETS] = {0};
	uint32_t order[PACKETS] = {4, 3, 2, 1, 0}; /* a separate order for each flow */
	struct replay_capture five = {.packets = packets, .order = order, .nb_packets = PACKETS};
	struct replay_burst burst = {0};
	struct replay_pace pace;

	for (uint32_t i = 0; i < PACKETS; i++) {
		packets[order[i]].len = lengths[i];
		packets[order[i]].time_ns = times[i];
	}
	assert_int_equal(replay_pace_init(&pace, args, &five, SOCKET_ID_ANY), 0);
	for (uint64_t nth = 0; nth < 23; nth++) {
		const long double exact = ns(nth) * rte_get_tsc_hz() / 1e9L;
		const struct replay_pace_loop loop = replay_pace_loop(&pace, nth / PACKETS);
		const uint64_t due = replay_pace_due(&pace, &burst, &loop, nth % PACKETS);

		/* never early; late by at most the rounding of the table */
		assert_true(due + 0.01L >= exact);
		assert_true(due < exact + 2);
		/* the reverse function agrees: packets that are due by then */
		assert_true(replay_pace_passed(&pace, due) > nth);
		assert_true(due == 0 || replay_pace_passed(&pace, due - 1) <= nth);
	}
	replay_pace_fini(&pace);
}

static long double
at_rate(uint64_t nth)
{
	return nth * 1e9L / 3000000;
}

static long double
at_bits(uint64_t nth)
{
	uint64_t bits = 0;

	for (uint64_t i = 0; i < nth; i++)
		bits += (lengths[i % PACKETS] + 24u) * 8;
	return bits / 100.0L;
}

static long double
as_captured(uint64_t nth)
{
	static const uint64_t since[PACKETS] = {0, 500, 500, 2000, 3000};

	return (nth / PACKETS * 3750 + since[nth % PACKETS]) / 2.5L;
}

static long double
in_bursts(uint64_t nth)
{
	return nth / 3 * 1000000.0L + (at_bits(nth) - at_bits(nth / 3 * 3));
}

static long double
in_bursts_alone(uint64_t nth)
{
	return nth / 7 * 500.0L;
}

static void
packets_are_due_at_exact_times(void **state)
{
	check(&(struct replay_devargs){.rate = 3000000}, at_rate);
	check(&(struct replay_devargs){.bps = 100000000000}, at_bits);
	check(&(struct replay_devargs){.speed = 2.5}, as_captured);
	check(&(struct replay_devargs){.bps = 100000000000, .burst = 3, .burst_ns = 1000000},
		in_bursts);
	check(&(struct replay_devargs){.burst = 7, .burst_ns = 500}, in_bursts_alone);
}

static void
bins_of_lateness_grow_by_a_factor_of_four(void **state)
{
	uint64_t limit = 64;

	assert_int_equal(replay_late_bin(0), 0);
	for (uint32_t bin = 0; bin < REPLAY_LATE_BINS - 1; bin++, limit *= 4) {
		assert_int_equal(replay_late_bin(limit - 1), bin);
		assert_int_equal(replay_late_bin(limit), bin + 1);
	}
	assert_int_equal(replay_late_bin(UINT64_MAX), REPLAY_LATE_BINS - 1);
}

static uint64_t
all_late(uint16_t port)
{
	static const char *const more = "rx_late_more_packets";
	uint64_t limit = 64, sum = xstat(port, more);

	for (uint32_t bin = 0; bin < REPLAY_LATE_BINS - 1; bin++, limit *= 4) {
		char name[64];

		snprintf(name, sizeof(name), "rx_late_under_%" PRIu64 "ns_packets", limit);
		sum += xstat(port, name);
	}
	return sum;
}

static void
paced_packets_carry_the_time_they_were_due(void **state)
{
	const uint64_t period = rte_get_tsc_hz() / 100000;
	uint64_t flag, clock, before = 0, first = 0;
	struct rte_mbuf *m[32];
	uint32_t got = 0;
	uint16_t port;
	int offset;

	write_equal(40, 200);
	port = start_single("loops=10,rate=100000", ordinary, RTE_ETH_RX_OFFLOAD_TIMESTAMP);
	assert_int_equal(rte_mbuf_dyn_rx_timestamp_register(&offset, &flag), 0);
	while (got < 400) {
		const uint16_t n = rte_eth_rx_burst(port, 0, m, RTE_DIM(m));

		assert_int_equal(rte_eth_read_clock(port, &clock), 0);
		for (uint16_t i = 0; i < n; i++, got++) {
			const uint64_t at =
				*RTE_MBUF_DYNFIELD(m[i], offset, const rte_mbuf_timestamp_t *);

			assert_true((m[i]->ol_flags & flag) != 0);
			assert_true(at <= clock);
			if (got == 0)
				first = at;
			else
				assert_in_range(at - before, period - 1, period + 1);
			before = at;
		}
		rte_pktmbuf_free_bulk(m, n);
	}
	assert_in_range(before - first, 399 * period - 1, 399 * (period + 1));
	assert_int_equal(all_late(port), 400);
	assert_int_equal(rte_eth_xstats_reset(port), 0);
	assert_int_equal(all_late(port), 0);
	close_port(port);

	/* without a pace; and as captured: packets of the fixture are one second apart */
	port = start_single("timestamp=captured", roomless, RTE_ETH_RX_OFFLOAD_TIMESTAMP);
	assert_int_equal(receive(port, 0, m, 32), 32);
	for (uint32_t i = 0; i < 32; i++)
		assert_true(*RTE_MBUF_DYNFIELD(m[i], offset, rte_mbuf_timestamp_t *) ==
			i * UINT64_C(1000000000));
	rte_pktmbuf_free_bulk(m, 32);
	close_port(port);
	assert_pool_sound(roomless);
}

/* Eight packets are due together; two are polled 2 ms late, the others 5. */
static void
late_packets_fall_into_their_bins(void **state)
{
	const uint64_t ms = rte_get_tsc_hz() / 1000;
	struct replay_rxq *rxq;
	struct rte_mbuf *m[8];
	uint16_t port;

	write_equal(8, 200);
	port = start_single("burst=8:4000000000", roomless, 0);
	assert_int_equal(rte_eth_rx_burst(port, 0, m, 1), 1); /* starts the clock */
	assert_int_equal(xstat(port, "rx_late_under_64ns_packets"), 1);
	rxq = rte_eth_devices[port].data->rx_queues[0];
	rxq->clock = rte_rdtsc() - 2 * ms;
	assert_int_equal(rte_eth_rx_burst(port, 0, m + 1, 2), 2);
	rxq->clock = rte_rdtsc() - 5 * ms;
	assert_int_equal(rte_eth_rx_burst(port, 0, m + 3, 8), 5);
	assert_int_equal(xstat(port, "rx_late_under_4194304ns_packets"), 2);
	assert_int_equal(xstat(port, "rx_late_more_packets"), 5);
	assert_int_equal(all_late(port), 8);
	rte_pktmbuf_free_bulk(m, 8);
	close_port(port);
	assert_pool_sound(roomless);
}

/* Packets that are dropped, or delivered in two segments: each timestamp is that of its packet. */
static void
stamps_stay_with_their_packets(void **state)
{
	static const uint32_t len[] = {1000, 5000, 300};
	struct rte_mbuf *m[30];
	uint64_t flag;
	int offset, port;
	uint32_t n;

	write_capture(30, len, RTE_DIM(len), UINT32_MAX);
	assert_int_equal(rte_mbuf_dyn_rx_timestamp_register(&offset, &flag), 0);
	for (uint32_t split = 0; split < 2; split++) {
		port = open_port("timestamp=captured");
		assert_true(port >= 0);
		configure((uint16_t)port, 1, RTE_ETH_RX_OFFLOAD_TIMESTAMP | (split ? SPLIT : 0));
		if (split)
			assert_int_equal(split_queue((uint16_t)port, 0, zero, HEADERS), 0);
		else /* without SCATTER every third packet is too large */
			assert_int_equal(
				rte_eth_rx_queue_setup((uint16_t)port, 0, 64, 0, NULL, ordinary),
				0);
		assert_int_equal(rte_eth_dev_start((uint16_t)port), 0);
		n = receive((uint16_t)port, 0, m, 30);
		assert_int_equal(n, split ? 30 : 20);
		for (uint32_t i = 0; i < n; i++) {
			assert_true((m[i]->ol_flags & flag) != 0);
			assert_true(*RTE_MBUF_DYNFIELD(m[i], offset, rte_mbuf_timestamp_t *) ==
				counter_of(m[i]) * UINT64_C(1000000000));
		}
		rte_pktmbuf_free_bulk(m, n);
		close_port((uint16_t)port);
	}
}

/* Five packets at intervals of 250 us, in formats with different timestamps. */
enum format {
	MICROSECONDS,
	OTHER_ENDIAN,
	NANOSECONDS,
	PCAPNG, /* if_tsresol 10^-7 s */
	FORMATS
};

#define FRAME	  64u
#define FIRST_SEC 1700000000u

static void
write_format(enum format format)
{
	const bool swap = format == OTHER_ENDIAN;
	const uint32_t magic = format == NANOSECONDS ? 0xa1b23c4d : 0xa1b2c3d4;
	uint32_t head[] = {magic, 0x00040002, 0, 0, 65535, DLT_EN10MB};
	uint32_t section[] = {0x0a0d0d0a, 28, 0x1a2b3c4d, 1, UINT32_MAX, UINT32_MAX, 28};
	uint32_t interface[] = {1, 32, DLT_EN10MB, 65535, 9 | 1 << 16, 7, 0, 32};
	uint8_t frame[FRAME];
	FILE *file = fopen(capture, "w");

	assert_non_null(file);
	for (uint32_t i = 0; swap && i < RTE_DIM(head); i++)
		head[i] = i == 1 ? 0x04000200 : rte_bswap32(head[i]);
	if (format == PCAPNG) {
		fwrite(section, sizeof(section), 1, file);
		fwrite(interface, sizeof(interface), 1, file);
	} else {
		fwrite(head, sizeof(head), 1, file);
	}
	for (uint32_t i = 0; i < 5; i++) {
		const uint32_t us = 999500 + i * 250; /* crosses into the next second */
		const uint64_t ticks = (uint64_t)FIRST_SEC * 10000000 + us * 10;
		const uint32_t total = 32 + FRAME;
		uint32_t block[] = {
			6, total, 0, (uint32_t)(ticks >> 32), (uint32_t)ticks, FRAME, FRAME};
		uint32_t record[] = {FIRST_SEC + us / 1000000,
			us % 1000000 * (format == NANOSECONDS ? 1000 : 1), FRAME, FRAME};

		for (uint32_t k = 0; swap && k < RTE_DIM(record); k++)
			record[k] = rte_bswap32(record[k]);
		make_frame(frame, i, FRAME, 5000);
		if (format == PCAPNG)
			fwrite(block, sizeof(block), 1, file);
		else
			fwrite(record, sizeof(record), 1, file);
		fwrite(frame, FRAME, 1, file);
		if (format == PCAPNG)
			fwrite(&total, sizeof(total), 1, file);
	}
	fclose(file);
}

static void
captured_times_are_read_in_every_format(void **state)
{
	const uint64_t apart = rte_get_tsc_hz() / 8000; /* 250 us at twice the speed */
	struct rte_mbuf *m[5];
	uint64_t flag;
	int offset;

	assert_int_equal(rte_mbuf_dyn_rx_timestamp_register(&offset, &flag), 0);
	for (enum format format = MICROSECONDS; format < FORMATS; format++) {
		uint64_t first = 0, begin;
		uint16_t port;
		uint32_t n = 0;

		write_format(format);
		port = start_single("timestamp=captured", roomless, RTE_ETH_RX_OFFLOAD_TIMESTAMP);
		assert_int_equal(receive(port, 0, m, 5), 5);
		for (uint32_t i = 0; i < 5; i++)
			assert_true(*RTE_MBUF_DYNFIELD(m[i], offset, rte_mbuf_timestamp_t *) ==
				FIRST_SEC * UINT64_C(1000000000) + 999500000 + i * 250000);
		rte_pktmbuf_free_bulk(m, 5);
		close_port(port);

		port = start_single("speed=2", roomless, RTE_ETH_RX_OFFLOAD_TIMESTAMP);
		begin = rte_rdtsc();
		while (n < 5 && rte_rdtsc() - begin < rte_get_tsc_hz())
			n += rte_eth_rx_burst(port, 0, m + n, (uint16_t)(5 - n));
		assert_int_equal(n, 5);
		for (uint32_t i = 0; i < 5; i++) {
			const uint64_t at =
				*RTE_MBUF_DYNFIELD(m[i], offset, rte_mbuf_timestamp_t *);

			first = i == 0 ? at : first;
			assert_in_range(at - first, i * apart, i * (apart + 1) + 1);
		}
		rte_pktmbuf_free_bulk(m, 5);
		close_port(port);
	}
	assert_pool_sound(roomless);
}

static void
bursts_come_together(void **state)
{
	const uint64_t every = rte_get_tsc_hz() / 200;
	uint64_t flag, clock, first = 0;
	struct rte_mbuf *m[64];
	uint32_t got = 0;
	uint16_t port;
	int offset;

	write_equal(30, 200);
	port = start_single("loops=4,burst=40:5000000", ordinary, RTE_ETH_RX_OFFLOAD_TIMESTAMP);
	assert_int_equal(rte_mbuf_dyn_rx_timestamp_register(&offset, &flag), 0);
	while (got < 120) {
		const uint16_t n = rte_eth_rx_burst(port, 0, m, RTE_DIM(m));

		assert_int_equal(rte_eth_read_clock(port, &clock), 0);
		for (uint16_t i = 0; i < n; i++, got++) {
			const uint64_t at =
				*RTE_MBUF_DYNFIELD(m[i], offset, const rte_mbuf_timestamp_t *);

			if (got == 0)
				first = at;
			assert_true(at <= clock); /* not early */
			assert_in_range(
				at - first, got / 40 * every, got / 40 * every + got / 40 + 1);
		}
		rte_pktmbuf_free_bulk(m, n);
	}
	close_port(port);
}

/* A late poll finds only the packets that fit into the ring, as with a NIC. */
static void
full_rings_lose_packets(void **state)
{
	const uint64_t round = rte_get_tsc_hz() / 1000 * 50; /* 50 ms, one burst every 25 */
	struct rte_eth_stats stats;
	struct rte_mbuf *m[64];
	uint64_t begin, got = 0;
	uint16_t port;

	write_equal(30, 200); /* 64 descriptors: one burst of 50 fits, two do not */
	for (uint32_t late = 0; late < 2; late++) {
		port = start_single("loops=10,burst=50:25000000,overrun=drop", roomless, 0);
		got = 0;
		begin = rte_rdtsc();
		while (!xstat(port, "replay_done")) {
			const uint16_t n = rte_eth_rx_burst(port, 0, m, RTE_DIM(m));

			got += n;
			rte_pktmbuf_free_bulk(m, n);
			while (late && n != 0 && rte_rdtsc() - begin < round)
				;
			if (late && n != 0)
				begin = rte_rdtsc();
		}
		assert_int_equal(rte_eth_stats_get(port, &stats), 0);
		assert_int_equal(stats.ipackets, got);
		assert_int_equal(got + stats.imissed, 300);
		assert_true(xstat(port, "rx_most_waiting_packets") >= 50);
		/* on a busy machine the first kind may lose some packets, too */
		if (late)
			assert_true(
				stats.imissed > 0 && xstat(port, "rx_most_waiting_packets") > 64);
		close_port(port);
		assert_pool_sound(roomless);
	}
}

/* After an hour without a poll the next poll counts the lost packets in constant time. */
static void
late_polls_take_no_longer(void **state)
{
	static const char *const args[] = {"loops=0,overrun=drop,rate=10000000",
		"loops=0,overrun=drop,rate=10000000,burst=7:1000"};
	const uint64_t hz = rte_get_tsc_hz(), hour = 3600 * hz;

	write_equal(1000, 200);
	for (uint32_t k = 0; k < RTE_DIM(args); k++) {
		const uint64_t per_second = k == 0 ? 10000000 : 7000000;
		struct rte_eth_stats stats;
		struct rte_mbuf *m[32];
		struct replay_rxq *rxq;
		uint64_t begin, end, got;
		uint16_t port;

		port = start_single(args[k], roomless, 0);
		got = rte_eth_rx_burst(port, 0, m, RTE_DIM(m));
		rte_pktmbuf_free_bulk(m, got);
		rxq = rte_eth_devices[port].data->rx_queues[0];
		rxq->clock -= hour;
		begin = rte_rdtsc();
		assert_int_equal(rte_eth_rx_burst(port, 0, m, RTE_DIM(m)), RTE_DIM(m));
		end = rte_rdtsc();
		rte_pktmbuf_free_bulk(m, RTE_DIM(m));
		assert_true(end - begin < hz / 10);
		got += RTE_DIM(m);
		/* 64 descriptors, 32 of which are still in use */
		assert_int_equal(rte_eth_stats_get(port, &stats), 0);
		assert_in_range(stats.imissed + got + 32, 3600 * per_second,
			((end - rxq->clock) / (hz / 1000) + 1) * (per_second / 1000) + 7);
		assert_int_equal(xstat(port, "rx_most_waiting_packets"), stats.imissed + 64);
		close_port(port);
		assert_pool_sound(roomless);
	}
}

static void
impossible_paces_are_refused(void **state)
{
	static const char *const wrong[] = {
		"rate=1000,bps=1000", "rate=1000,speed=1", "speed=0", "speed=-1", "speed=1x",
		"speed=inf", "bps=1e9", "burst=10", "burst=0:100", "burst=10:0", "burst=10:100x",
		"overrun=drop", "overrun=drop,rate=1000,loss=0.1", "overrun=maybe",
		"burst=1000:10,rate=1000000", /* packets every 10 ns for 1 ms */
		"burst=2:1,speed=1000000",    /* a second within 1 us; and one packet per ns */
	};
	const uint32_t len = 200;

	write_equal(4, len);
	for (uint32_t i = 0; i < RTE_DIM(wrong); i++)
		assert_int_equal(open_port(wrong[i]), -1);
	/* one packet: no time passes */
	write_equal(1, len);
	assert_int_equal(open_port("speed=1"), -1);
	/* times beyond 63 bits, which would wrap around and be early */
	write_equal(100000, 60);
	assert_int_equal(open_port("rate=1"), -1);
	assert_int_equal(open_port("bps=100"), -1);
}

/* A frame of 8,240 bytes among small ones: it takes 6.6 us at 10 Gb/s, the mean is 0.7 us. */
static void
mixed_frames_fit_their_bursts(void **state)
{
	static const uint32_t len[] = {60, 8240, 60, 60, 60, 60, 60, 60, 60, 60};
	struct rte_mbuf *m[16];
	uint32_t got = 0;
	uint64_t begin;
	int port;

	write_capture(10, len + 1, 9, UINT32_MAX);
	assert_int_equal(open_port("bps=10000000000,burst=2:5000"), -1);
	/* with an odd number of packets each packet is the first of a burst in some loop */
	write_capture(9, len, RTE_DIM(len), UINT32_MAX);
	assert_int_equal(open_port("bps=10000000000,burst=2:5000"), -1);
	/* with an even number the large frame always ends its burst, and may take any time */
	write_capture(10, len, RTE_DIM(len), UINT32_MAX);
	port = open_port("bps=10000000000,burst=2:5000,loops=3");
	assert_true(port >= 0);
	configure((uint16_t)port, 1, 0);
	assert_int_equal(rte_eth_rx_queue_setup((uint16_t)port, 0, 64, 0, NULL, roomless), 0);
	assert_int_equal(rte_eth_dev_start((uint16_t)port), 0);
	begin = rte_rdtsc();
	while (got < 30 && rte_rdtsc() - begin < rte_get_tsc_hz()) {
		const uint32_t n = rte_eth_rx_burst((uint16_t)port, 0, m, RTE_DIM(m));

		got += n;
		rte_pktmbuf_free_bulk(m, n);
	}
	assert_int_equal(got, 30);
	close_port((uint16_t)port);
}

static void
sent_frames_are_counted_dropped_or_written(void **state)
{
	char args[128], file[] = "/tmp/replay_tx_XXXXXX", other[64], why[PCAP_ERRBUF_SIZE];
	struct pcap_pkthdr *header;
	struct rte_eth_stats stats;
	struct rte_mbuf *m[30];
	static uint8_t want[2000];
	const uint8_t *bytes;
	uint16_t port;
	struct timespec begin, end;
	pcap_t *pcap;
	int fd = mkstemp(file);

	assert_true(fd >= 0);
	close(fd);
	write_equal(30, 1000);
	port = start_single("tx=drop", ordinary, 0);
	assert_int_equal(receive(port, 0, m, 30), 30);
	assert_int_equal(rte_eth_tx_burst(port, 0, m, 30), 30);
	assert_int_equal(rte_eth_stats_get(port, &stats), 0);
	assert_int_equal(stats.opackets + stats.obytes, 0);
	assert_int_equal(stats.oerrors, 30);
	close_port(port);
	assert_pool_sound(ordinary);

	snprintf(args, sizeof(args), "tx=file:%s", file);
	port = start_single(args, small, RTE_ETH_RX_OFFLOAD_SCATTER);
	assert_int_equal(receive(port, 0, m, 30), 30); /* chains of four */
	clock_gettime(CLOCK_REALTIME, &begin);
	assert_int_equal(rte_eth_tx_burst(port, 0, m, 20), 20);
	assert_int_equal(rte_eth_tx_burst(port, 0, m + 20, 10), 10);
	assert_int_equal(rte_eth_stats_get(port, &stats), 0);
	assert_int_equal(stats.opackets, 30);
	assert_int_equal(stats.obytes, 30 * 1000);
	close_port(port);
	assert_pool_sound(small);
	clock_gettime(CLOCK_REALTIME, &end);
	pcap = pcap_open_offline_with_tstamp_precision(file, PCAP_TSTAMP_PRECISION_NANO, why);
	assert_non_null(pcap);
	for (uint32_t i = 0; i < 30; i++) {
		assert_int_equal(pcap_next_ex(pcap, &header, &bytes), 1);
		assert_int_equal(header->caplen, 1000);
		assert_int_equal(header->len, 1000);
		assert_in_range(header->ts.tv_sec * 1000000000 + header->ts.tv_usec,
			begin.tv_sec * 1000000000 + begin.tv_nsec,
			end.tv_sec * 1000000000 + end.tv_nsec);
		make_frame(want, i, 1000, (uint16_t)(5000 + i % 4));
		assert_memory_equal(bytes, want, 1000);
	}
	assert_int_equal(pcap_next_ex(pcap, &header, &bytes), PCAP_ERROR_BREAK);
	pcap_close(pcap);
	unlink(file);
	/* this would truncate the capture itself, by any of its names */
	snprintf(args, sizeof(args), "tx=file:%s", capture);
	assert_int_equal(open_port(args), -1);
	assert_int_equal(symlink(capture, file), 0);
	snprintf(args, sizeof(args), "tx=file:%s", file);
	assert_int_equal(open_port(args), -1);
	unlink(file);
	/* a link's target is not changed, and a FIFO does not block */
	snprintf(other, sizeof(other), "%s.other", file);
	fd = open(other, O_WRONLY | O_CREAT | O_EXCL, 0600);
	assert_int_equal(write(fd, "text", 4), 4);
	assert_int_equal(symlink(other, file), 0);
	assert_int_equal(open_port(args), -1);
	assert_int_equal(lseek(fd, 0, SEEK_END), 4);
	close(fd);
	unlink(other);
	unlink(file);
	assert_int_equal(mkfifo(file, 0600), 0);
	assert_int_equal(open_port(args), -1);
	unlink(file);
	/* a full disk: packets that are not written do not count as sent */
	port = start_single("tx=file:/dev/full", ordinary, 0);
	assert_int_equal(receive(port, 0, m, 30), 30);
	assert_int_equal(rte_eth_tx_burst(port, 0, m, 1), 1);
	assert_int_equal(rte_eth_tx_burst(port, 0, m + 1, 29), 29);
	assert_int_equal(rte_eth_stats_get(port, &stats), 0);
	assert_int_equal(stats.opackets + stats.obytes, 0);
	assert_int_equal(stats.oerrors, 30);
	close_port(port);
	assert_pool_sound(ordinary);
	assert_int_equal(open_port("tx=file:/nowhere/at/all"), -1);
	assert_int_equal(open_port("tx=file:"), -1);
	assert_int_equal(open_port("tx=pcap"), -1);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(packets_are_due_at_exact_times),
		cmocka_unit_test(bins_of_lateness_grow_by_a_factor_of_four),
		cmocka_unit_test_teardown(paced_packets_carry_the_time_they_were_due, remove_port),
		cmocka_unit_test_teardown(late_packets_fall_into_their_bins, remove_port),
		cmocka_unit_test_teardown(stamps_stay_with_their_packets, remove_port),
		cmocka_unit_test_teardown(captured_times_are_read_in_every_format, remove_port),
		cmocka_unit_test_teardown(bursts_come_together, remove_port),
		cmocka_unit_test_teardown(full_rings_lose_packets, remove_port),
		cmocka_unit_test_teardown(late_polls_take_no_longer, remove_port),
		cmocka_unit_test_teardown(impossible_paces_are_refused, remove_port),
		cmocka_unit_test_teardown(mixed_frames_fit_their_bursts, remove_port),
		cmocka_unit_test_teardown(sent_frames_are_counted_dropped_or_written, remove_port),
	};

	return run_replay_tests(argv[0], tests, RTE_DIM(tests));
}
