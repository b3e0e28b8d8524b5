/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net_replay with a capture that fits into the caches and with one that does not, beside DPDK's own
 * driver of captures, net_pcap with infinite_rx, and beside a loop that never looks at a packet:
 * the limit of handing out references. One lcore, all rows in turn.
 */

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_bus_vdev.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>

#include "bench_alone.h"
#include "bench_capture.h"
#include "bench_median.h"
#include "bench_rows.h"
#include "port.h"

#define BURST	    64
#define ROUNDS_MAX  BENCH_ROUNDS_MAX
#define SMALL_MIB   1 /* one frame of a module: in L2 with what goes with it */
#define FRAME_BYTES ((uint64_t)BENCH_PACKETS * BENCH_PACKET_BYTES)

static const char usage[] =
	"Usage: replay_bench [--mib N] [--seconds S] [--rounds N] [--rows FILE]\n"
	"Million packets/s of a capture received without end, 8,282 bytes each, on one lcore,\n"
	"split behind the headers; the frame number of each packet is read. Medians.\n"
	"  --mib N      of the large capture (default 256, eight times a cache of 32 MiB)\n"
	"  --seconds S  of a window, up to 0.6 (default 0.2)\n"
	"  --rounds N   windows of each row (default 9)\n"
	"  --rows FILE  rows for bench.py\n";

enum source {
	REPLAY_SMALL,
	REPLAY_LARGE,
	PCAP_SMALL,
	PCAP_LARGE,
	SOURCES
};

struct bench {
	uint32_t mib;
	uint32_t rounds;
	double seconds;
	bool alone;
	bool huge;
	uint16_t port[SOURCES];
	double speed[SOURCES][2][ROUNDS_MAX]; /* Mpackets/s; [1]: no packet is looked at */
	struct rte_mempool *headers;
	struct rte_mempool *references;
};

static void
fail(const char *what, const char *why)
{
	fprintf(stderr, "replay_bench: %s: %s\n", what, why);
	exit(1);
}

static uint32_t
frames_of(uint32_t mib)
{
	const uint32_t n = (uint32_t)(((uint64_t)mib << 20) / FRAME_BYTES);

	return n > 0 ? n : 1;
}

/* net_pcap copies each packet of its own mbufs into one of the queue's pool. */
static void
open_pcap(struct bench *b, enum source source, const char *name, uint32_t packets)
{
	const struct rte_eth_conf conf = {.rxmode.mtu = 9000};
	struct rte_mempool *pool;

	pool = rte_pktmbuf_pool_create(name, packets + 2047, 256, 0,
		RTE_PKTMBUF_HEADROOM + RTE_ALIGN_CEIL(BENCH_PACKET_BYTES, 64), SOCKET_ID_ANY);
	if (pool == NULL)
		fail(name, rte_strerror(rte_errno));
	if (rte_eth_dev_configure(b->port[source], 1, 1, &conf) != 0 ||
		rte_eth_rx_queue_setup(b->port[source], 0, 512, 0, NULL, pool) != 0 ||
		rte_eth_tx_queue_setup(b->port[source], 0, 512, 0, NULL) != 0)
		fail(name, "cannot be set up");
}

static void
open_replay(struct bench *b, enum source source, const char *name)
{
	const struct rte_eth_conf conf = {
		.rxmode.offloads = RTE_ETH_RX_OFFLOAD_SCATTER | RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT};
	struct rte_eth_rxconf rx = {.rx_nseg = 2, .offloads = conf.rxmode.offloads};
	union rte_eth_rxseg segments[2] = {0};

	segments[0].split.mp = b->headers;
	segments[0].split.length = BENCH_SPLIT_AT;
	segments[1].split.mp = b->references;
	rx.rx_seg = segments;
	if (rte_eth_dev_configure(b->port[source], 1, 0, &conf) != 0 ||
		rte_eth_rx_queue_setup(b->port[source], 0, 512, 0, &rx, NULL) != 0)
		fail(name, "cannot be set up");
}

static void
open_source(struct bench *b, enum source source, const char *path, uint32_t frames)
{
	const bool replay = source <= REPLAY_LARGE;
	char name[32], args[512];

	snprintf(name, sizeof(name), "%s%d", replay ? "net_replay" : "net_pcap", source);
	if (replay)
		snprintf(args, sizeof(args), "file=%s,loops=0", path);
	else
		snprintf(args, sizeof(args), "rx_pcap=%s,infinite_rx=1", path);
	if (rte_vdev_init(name, args) != 0 ||
		rte_eth_dev_get_port_by_name(name, &b->port[source]) != 0)
		fail(name, "cannot be made; --mib smaller?");
	if (replay)
		open_replay(b, source, name);
	else
		open_pcap(b, source, name, frames * BENCH_PACKETS);
	if (rte_eth_dev_start(b->port[source]) != 0)
		fail(name, "cannot be started");
}

static void
open_sources(struct bench *b)
{
	const uint32_t frames[2] = {frames_of(SMALL_MIB), frames_of(b->mib)};
	char path[256];

	b->headers = rte_pktmbuf_pool_create(
		"headers", 2047, 256, 0, RTE_PKTMBUF_HEADROOM + 128, SOCKET_ID_ANY);
	b->references = rte_pktmbuf_pool_create_by_ops(
		"references", 2047, 256, 0, 0, SOCKET_ID_ANY, PORT_REFERENCE_OPS);
	if (b->headers == NULL || b->references == NULL)
		fail("pools", rte_strerror(rte_errno));
	for (int large = 0; large < 2; large++) {
		const int fd = bench_capture_write(1, frames[large], path, sizeof(path));

		open_source(b, REPLAY_SMALL + large, path, frames[large]);
		open_source(b, PCAP_SMALL + large, path, frames[large]);
		close(fd);
		unlink(path);
	}
}

static uint64_t
poll_port(uint16_t port, bool look, uint64_t end)
{
	static volatile uint64_t sink;
	struct rte_mbuf *m[BURST];
	uint64_t sum = 0, packets = 0;

	while (rte_rdtsc() < end) {
		const uint16_t n = rte_eth_rx_burst(port, 0, m, BURST);

		for (uint16_t i = 0; look && i < n; i++)
			sum += *rte_pktmbuf_mtod_offset(m[i], const uint64_t *, BENCH_UDP_HEADERS);
		rte_pktmbuf_free_bulk(m, n);
		packets += n;
	}
	sink += sum;
	return packets;
}

static double
measure(struct bench *b, enum source source, bool look)
{
	const uint64_t hz = rte_get_tsc_hz();
	uint64_t begin, packets;

	bench_alone_rest();
	b->alone = bench_alone_begin();
	poll_port(b->port[source], look, rte_rdtsc() + hz / 50);
	begin = rte_rdtsc();
	packets = poll_port(b->port[source], look, begin + (uint64_t)(b->seconds * hz));
	begin = rte_rdtsc() - begin;
	bench_alone_end();
	return 1e-6 * (double)packets * hz / begin;
}

static void
report(struct bench *b)
{
	static const char *const names[SOURCES] = {"net_replay, in the cache",
		"net_replay, larger than it", "net_pcap, in the cache", "net_pcap, larger than it"};
	double m[SOURCES][2];

	printf("%u and %u MiB of packets, split at %u, %s%s\n\n%-28s %10s %14s\n", SMALL_MIB,
		b->mib, BENCH_SPLIT_AT, b->huge ? "huge pages" : "pages of 4 KB",
		b->alone ? "" : "; no real-time priority: others disturb", "Mpackets/s",
		"headers read", "nothing read");
	for (int s = 0; s < SOURCES; s++) {
		for (int look = 0; look < 2; look++)
			m[s][look] = bench_median(b->speed[s][look], b->rounds);
		printf("%-28s %10.2f %14.2f\n", names[s], m[s][0], m[s][1]);
	}
	for (int s = REPLAY_SMALL; s <= REPLAY_LARGE; s++) {
		bench_row(&(struct bench_row){.stage = "replay",
			.what = names[s],
			.value = m[s][0],
			.unit = "Mpackets/s",
			.against = "net_pcap infinite_rx",
			.other = m[s + PCAP_SMALL][0],
			.goal = "ratio >= 1"});
		bench_row(&(struct bench_row){.stage = "replay",
			.what = names[s],
			.value = m[s][0],
			.unit = "Mpackets/s",
			.against = "no packet looked at",
			.other = m[s][1],
			/* two lines of headers, one of the table, the copies stay in the cache */
			.bytes = s == REPLAY_LARGE ? 8 * BENCH_PACKETS * 3 * 64.0 : 0});
	}
	bench_row(&(struct bench_row){.stage = "replay",
		.what = "out of the cache beside in it",
		.value = m[REPLAY_LARGE][0],
		.unit = "Mpackets/s",
		.against = "in it",
		.other = m[REPLAY_SMALL][0],
		.goal = "ratio >= 0.9"});
}

static void
init_eal(struct bench *b, char *program)
{
	const uint32_t mib = 3 * b->mib + 192;
	static char options[][32] = {"--no-pci", "--no-telemetry", "--iova-mode=va",
		"--log-level=lib.eal:error", "--log-level=braggline.*:error", "-l", "0", "-m", "",
		"--in-memory"};
	char *argv[RTE_DIM(options) + 1] = {program};

	snprintf(options[8], sizeof(options[8]), "%u", mib);
	b->huge = bench_huge_pages(mib);
	if (!b->huge)
		strcpy(options[9], "--no-huge");
	for (uint32_t i = 0; i < RTE_DIM(options); i++)
		argv[i + 1] = options[i];
	if (rte_eal_init(RTE_DIM(argv), argv) < 0)
		fail("EAL", rte_strerror(rte_errno));
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {
		{"mib", required_argument, NULL, 'm'},
		{"seconds", required_argument, NULL, 's'},
		{"rounds", required_argument, NULL, 'r'},
		{"rows", required_argument, NULL, 'o'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	static struct bench b = {.mib = 256, .rounds = 9, .seconds = 0.2};
	int option;

	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (option == 'm')
			b.mib = strtoul(optarg, NULL, 10);
		else if (option == 's')
			b.seconds = strtod(optarg, NULL);
		else if (option == 'r')
			b.rounds = strtoul(optarg, NULL, 10);
		else if (option == 'o')
			bench_rows_to(optarg);
		else if (option == 'h')
			return fputs(usage, stdout) < 0;
		else
			return 2;
	}
	if (b.mib < 2 || b.mib > 4096 || b.rounds < 1 || b.rounds > ROUNDS_MAX ||
		!(b.seconds > 0) || b.seconds > BENCH_WINDOW_MAX || optind < argc) {
		fputs(usage, stderr);
		return 2;
	}
	init_eal(&b, argv[0]);
	open_sources(&b);
	for (uint32_t i = 0; i < b.rounds; i++) {
		for (int s = 0; s < SOURCES; s++) {
			b.speed[s][0][i] = measure(&b, s, true);
			b.speed[s][1][i] = measure(&b, s, false);
		}
	}
	report(&b);
	return 0;
}
