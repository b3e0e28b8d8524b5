/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net_replay with a capture that fits into the caches and with one that does not, compared with
 * DPDK's net_pcap with infinite_rx, and with a loop that never reads a packet: the limit of passing
 * references. Then other features in comparison with that: copies (net_pcap always copies), four
 * queues, faults, pacing. One lcore; all rows alternate.
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
#include <rte_flow.h>

#include "bench_alone.h"
#include "bench_capture.h"
#include "bench_median.h"
#include "bench_rows.h"
#include "port/port.h"

#define BURST	    64
#define ROUNDS_MAX  BENCH_ROUNDS_MAX
#define SMALL_MIB   1 /* one frame of a module: in L2 with its metadata */
#define FRAME_BYTES ((uint64_t)BENCH_PACKETS * BENCH_PACKET_BYTES)

static const char usage[] =
	"Usage: replay_bench [--mib N] [--seconds S] [--rounds N] [--rows FILE]\n"
	"Million packets/s of a capture received without end, 8,282 bytes each, on one lcore,\n"
	"split after the headers or copied; the frame number of each packet is read. Medians.\n"
	"  --mib N      of the large capture (default 256, eight times a cache of 32 MiB)\n"
	"  --seconds S  of a window, up to 0.6 (default 0.2)\n"
	"  --rounds N   windows of each row (default 9)\n"
	"  --rows FILE  rows for bench.py\n";

enum replay_source {
	REPLAY_SMALL,
	REPLAY_LARGE,
	PCAP_SMALL,
	PCAP_LARGE,
	COPY_SMALL,
	COPY_LARGE,
	QUEUES,
	FAULTS,
	PACED,
	SOURCES
};

/* Rows with both sizes of capture; other rows use the small one. */
#define SIZED PCAP_LARGE

#define NB_QUEUES 4
#define PACE	  1000000 /* packets/s */

static const struct {
	const char *name; /* of the row */
	const char *driver;
	const char *args;
	uint16_t queues; /* also the number of modules */
	bool copies;
} sources[SOURCES] = {
	[REPLAY_SMALL] = {"net_replay, in the cache", "net_replay", "loops=0", 1},
	[REPLAY_LARGE] = {"net_replay, larger than it", "net_replay", "loops=0", 1},
	[PCAP_SMALL] = {"net_pcap, in the cache", "net_pcap", "infinite_rx=1", 1, true},
	[PCAP_LARGE] = {"net_pcap, larger than it", "net_pcap", "infinite_rx=1", 1, true},
	[COPY_SMALL] = {"copies, in the cache", "net_replay", "loops=0", 1, true},
	[COPY_LARGE] = {"copies, larger than it", "net_replay", "loops=0", 1, true},
	[QUEUES] = {"four queues", "net_replay", "loops=0", NB_QUEUES},
	[FAULTS] = {"faults", "net_replay", "loops=0,loss=0.001,reorder=0.001:16,duplicate=0.001",
		1},
	[PACED] = {"paced", "net_replay", "loops=0,overrun=drop,rate=" RTE_STR(PACE), 1},
};

struct bench {
	uint32_t mib;
	uint32_t rounds;
	double seconds;
	bool alone;
	bool huge;
	uint16_t port[SOURCES];
	double speed[SOURCES][2][ROUNDS_MAX]; /* Mpackets/s; [1]: without reading packets */
	double late[ROUNDS_MAX];	      /* ns, upper bound of 99 % of the paced packets */
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

/* A queue that copies whole packets: net_pcap from its own mbufs, net_replay from the capture. */
static int
set_up_copies(uint16_t port, const char *name, uint32_t mbufs)
{
	const struct rte_eth_conf conf = {.rxmode.mtu = 9000};
	struct rte_mempool *pool;

	pool = rte_pktmbuf_pool_create(name, mbufs, 256, 0,
		RTE_PKTMBUF_HEADROOM + RTE_ALIGN_CEIL(BENCH_PACKET_BYTES, 64), SOCKET_ID_ANY);
	if (pool == NULL)
		fail(name, rte_strerror(rte_errno));
	if (rte_eth_dev_configure(port, 1, 1, &conf) != 0 ||
		rte_eth_rx_queue_setup(port, 0, 512, 0, NULL, pool) != 0)
		return -1;
	return rte_eth_tx_queue_setup(port, 0, 512, 0, NULL);
}

/* Steer packets of a module to a queue. */
static int
steer(uint16_t port, uint16_t queue)
{
	const struct rte_flow_attr attr = {.ingress = 1};
	const struct rte_flow_item_udp spec = {
		.hdr.dst_port = rte_cpu_to_be_16((uint16_t)(BENCH_UDP_PORT + queue))};
	const struct rte_flow_item_udp mask = {.hdr.dst_port = RTE_BE16(0xffff)};
	const struct rte_flow_item pattern[] = {
		{.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &spec, .mask = &mask},
		{.type = RTE_FLOW_ITEM_TYPE_END}};
	const struct rte_flow_action_queue to = {.index = queue};
	const struct rte_flow_action actions[] = {
		{RTE_FLOW_ACTION_TYPE_QUEUE, &to}, {.type = RTE_FLOW_ACTION_TYPE_END}};
	struct rte_flow_error error;

	return rte_flow_create(port, &attr, pattern, actions, &error) == NULL ? -1 : 0;
}

static int
set_up_references(const struct bench *b, uint16_t port, uint16_t queues)
{
	const struct rte_eth_conf conf = {
		.rxmode.offloads = RTE_ETH_RX_OFFLOAD_SCATTER | RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT};
	struct rte_eth_rxconf rx = {.rx_nseg = 2, .offloads = conf.rxmode.offloads};
	union rte_eth_rxseg segments[2] = {0};
	int ret;

	segments[0].split.mp = b->headers;
	segments[0].split.length = BENCH_SPLIT_AT;
	segments[1].split.mp = b->references;
	rx.rx_seg = segments;
	ret = rte_eth_dev_configure(port, queues, 0, &conf);
	for (uint16_t q = 0; ret == 0 && q < queues; q++)
		ret = rte_eth_rx_queue_setup(port, q, 512, 0, &rx, NULL);
	for (uint16_t q = 1; ret == 0 && q < queues; q++)
		ret = steer(port, q);
	return ret;
}

static void
open_source(struct bench *b, enum replay_source source, const char *path, uint32_t packets)
{
	const bool pcap = source == PCAP_SMALL || source == PCAP_LARGE;
	char name[32], args[512];
	int ret;

	snprintf(name, sizeof(name), "%s%d", sources[source].driver, source);
	snprintf(args, sizeof(args), "%s=%s,%s", pcap ? "rx_pcap" : "file", path,
		sources[source].args);
	if (rte_vdev_init(name, args) != 0 ||
		rte_eth_dev_get_port_by_name(name, &b->port[source]) != 0)
		fail(name, "cannot be made; --mib smaller?");
	/* net_pcap keeps its packets in mbufs of the queue's pool */
	ret = sources[source].copies
		? set_up_copies(b->port[source], name, pcap ? packets + 2047 : 2047)
		: set_up_references(b, b->port[source], sources[source].queues);
	if (ret != 0)
		fail(name, "cannot be set up");
	if (rte_eth_dev_start(b->port[source]) != 0)
		fail(name, "cannot be started");
}

static void
open_sources(struct bench *b)
{
	const uint32_t frames[2] = {frames_of(SMALL_MIB), frames_of(b->mib)};

	b->headers = rte_pktmbuf_pool_create(
		"headers", 2047, 256, 0, RTE_PKTMBUF_HEADROOM + 128, SOCKET_ID_ANY);
	b->references = rte_pktmbuf_pool_create_by_ops(
		"references", 2047, 256, 0, 0, SOCKET_ID_ANY, PORT_REFERENCE_OPS);
	if (b->headers == NULL || b->references == NULL)
		fail("pools", rte_strerror(rte_errno));
	for (int s = 0; s < SOURCES; s++) {
		const bool large = s == REPLAY_LARGE || s == PCAP_LARGE || s == COPY_LARGE;
		const uint16_t modules = sources[s].queues;
		char path[256];
		const int fd = bench_capture_write(modules, frames[large], path, sizeof(path));

		open_source(b, s, path, frames[large] * modules * BENCH_PACKETS);
		close(fd);
		unlink(path);
	}
}

static uint64_t
poll_port(uint16_t port, uint16_t queues, bool look, uint64_t end)
{
	static volatile uint64_t sink;
	struct rte_mbuf *m[BURST];
	uint64_t sum = 0, packets = 0;
	uint16_t q = 0;

	while (rte_rdtsc() < end) {
		const uint16_t n = rte_eth_rx_burst(port, q, m, BURST);

		for (uint16_t i = 0; look && i < n; i++)
			sum += *rte_pktmbuf_mtod_offset(m[i], const uint64_t *, BENCH_UDP_HEADERS);
		rte_pktmbuf_free_bulk(m, n);
		packets += n;
		if (++q == queues)
			q = 0;
	}
	sink += sum;
	return packets;
}

static double
measure(struct bench *b, enum replay_source source, bool look)
{
	const uint64_t hz = rte_get_tsc_hz();
	const uint16_t port = b->port[source], queues = sources[source].queues;
	uint64_t begin, packets;

	bench_alone_rest();
	b->alone = bench_alone_begin();
	poll_port(port, queues, look, rte_rdtsc() + hz / 50);
	rte_eth_xstats_reset(port);
	begin = rte_rdtsc();
	packets = poll_port(port, queues, look, begin + (uint64_t)(b->seconds * hz));
	begin = rte_rdtsc() - begin;
	bench_alone_end();
	return 1e-6 * (double)packets * hz / begin;
}

/* Upper bound in the histogram for 99 % of the packets since the last reset, ns. */
static double
lateness(uint16_t port)
{
	static const char *const bin = "rx_late_under_%uns_packets";
	struct rte_eth_stats stats;
	uint64_t below = 0;

	if (rte_eth_stats_get(port, &stats) != 0)
		fail("net_replay", "no statistics");
	for (unsigned int limit = 64; limit <= 4194304; limit *= 4) {
		char name[RTE_ETH_XSTATS_NAME_SIZE];
		uint64_t id, value;

		snprintf(name, sizeof(name), bin, limit);
		if (rte_eth_xstats_get_id_by_name(port, name, &id) != 0 ||
			rte_eth_xstats_get_by_id(port, &id, &value, 1) != 1)
			fail(name, "no such statistic");
		below += value;
		if (below >= stats.ipackets * 0.99)
			return limit;
	}
	return 1e9; /* the delay exceeds the range of the histogram */
}

static void
report_row(enum replay_source source, double value, const char *against, double other,
	const char *goal)
{
	bench_row(&(struct bench_row){.stage = "replay",
		.what = sources[source].name,
		.value = value,
		.unit = "Mpackets/s",
		.against = against,
		.other = other,
		.goal = goal});
}

static void
report(struct bench *b)
{
	const double late = bench_median(b->late, b->rounds);
	double m[SOURCES][2];

	printf("%u and %u MiB of packets, split at %u, %s%s\n\n%-28s %10s %14s\n", SMALL_MIB,
		b->mib, BENCH_SPLIT_AT, b->huge ? "huge pages" : "pages of 4 KB",
		b->alone ? "" : "; no real-time priority: others disturb", "Mpackets/s",
		"headers read", "nothing read");
	for (int s = 0; s < SOURCES; s++) {
		m[s][0] = bench_median(b->speed[s][0], b->rounds);
		printf("%-28s %10.2f", sources[s].name, m[s][0]);
		if (s <= SIZED) {
			m[s][1] = bench_median(b->speed[s][1], b->rounds);
			printf(" %14.2f", m[s][1]);
		}
		printf("\n");
	}
	printf("\npaced, %.1f Mpackets/s: 99 %% of packets less than %.0f ns late\n", 1e-6 * PACE,
		late);
	for (int s = REPLAY_SMALL; s <= REPLAY_LARGE; s++) {
		report_row(s, m[s][0], "net_pcap infinite_rx", m[s + PCAP_SMALL][0], "ratio >= 1");
		bench_row(&(struct bench_row){.stage = "replay",
			.what = sources[s].name,
			.value = m[s][0],
			.unit = "Mpackets/s",
			.against = "no packet looked at",
			.other = m[s][1],
			/*
			 * two cache lines of headers and one of the table; copies stay in the cache
			 */
			.bytes = s == REPLAY_LARGE ? 8 * BENCH_PACKETS * 3 * 64.0 : 0});
	}
	bench_row(&(struct bench_row){.stage = "replay",
		.what = "out of the cache beside in it",
		.value = m[REPLAY_LARGE][0],
		.unit = "Mpackets/s",
		.against = "in it",
		.other = m[REPLAY_SMALL][0],
		.goal = "ratio >= 0.9"});
	report_row(COPY_SMALL, m[COPY_SMALL][0], "net_pcap infinite_rx", m[PCAP_SMALL][0],
		"ratio >= 0.9");
	report_row(COPY_LARGE, m[COPY_LARGE][0], "net_pcap infinite_rx", m[PCAP_LARGE][0],
		"ratio >= 0.9");
	report_row(QUEUES, m[QUEUES][0], "one queue", m[REPLAY_SMALL][0], NULL);
	report_row(FAULTS, m[FAULTS][0], "without", m[REPLAY_SMALL][0], NULL);
	bench_row(&(struct bench_row){.stage = "replay",
		.what = "paced, 99 % less late than",
		.value = late,
		.unit = "ns"});
}

static void
init_eal(struct bench *b, char *program)
{
	const uint32_t mib = 4 * b->mib + 256;
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
			if (s == PACED)
				b.late[i] = lateness(b.port[s]);
			if (s <= SIZED)
				b.speed[s][1][i] = measure(&b, s, false);
		}
	}
	report(&b);
	return 0;
}
