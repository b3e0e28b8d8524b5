/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The RX path - rx_poll(), frame table, closing and giving back - beside a loop that polls the same
 * port and reads one number of each header. The port is net_replay: headers are private copies,
 * pixels come by reference and are touched by nobody, as behind a NIC that writes to a GPU.
 */

#include <getopt.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <pcap/pcap.h>
#include <rte_bus_vdev.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_mempool.h>

#include "rx.h"

#define UDP_PORT     50000
#define UDP_HEADERS  42
#define SPLIT_AT     (UDP_HEADERS + 48)
#define PACKET_BYTES (SPLIT_AT + 8192)
#define PACKETS	     128 /* of a frame */
#define SLOTS	     64
#define ROUNDS	     5

static const char usage[] =
	"Usage: rx_bench [--frames N] [--seconds N]\n"
	"Throughput of the RX path with one JUNGFRAU module in split mode, as a table.\n"
	"  --frames N   frames of the capture that is replayed without end (default 384: 407 MB;\n"
	"               of each packet two cache lines are read, 12.6 MB)\n"
	"  --seconds N  time of one row (default 4), in 5 rounds, the best of which counts\n"
	"Columns: million packets/s and TSC cycles a packet of the row; the same of a loop on one\n"
	"lcore that polls the port, reads the frame number of each packet, frees it; the ratio\n"
	"of the rates. On one lcore time is the CPU time of its thread, on two it is the clock's:\n"
	"there another program on these CPUs shows.\n";

struct bench {
	uint32_t frames;
	double seconds;
	uint16_t port;
	struct rte_mempool *headers;
	struct rte_mempool *pixels;
	struct detector detector;
	struct rx_streams *streams;
	struct frame_table *table;
	struct rx *rx;
	struct rx *peers[1];
	bool stop;
	uint64_t frames_closed;
	uint64_t frames_complete;
};

/** Packets in some TSC cycles. */
struct speed {
	uint64_t packets;
	uint64_t cycles;
};

static void
fail(const char *what, const char *why)
{
	fprintf(stderr, "rx_bench: %s: %s\n", what, why);
	exit(1);
}

/** Frames 1 ... n of one module, to a file that is gone when this program is. */
static int
write_capture(uint32_t frames, char *path, size_t size)
{
	static uint8_t b[PACKET_BYTES];
	struct pcap_pkthdr h = {.caplen = sizeof(b), .len = sizeof(b)};
	pcap_t *pcap = pcap_open_dead(DLT_EN10MB, 65535);
	const char *tmp = getenv("TMPDIR");
	pcap_dumper_t *out;
	int fd;

	snprintf(path, size, "%s/rx_bench_XXXXXX", tmp != NULL ? tmp : "/tmp");
	fd = mkstemp(path);
	out = fd < 0 ? NULL : pcap_dump_fopen(pcap, fdopen(dup(fd), "wb"));
	if (out == NULL)
		fail(path, "cannot be written");
	b[12] = 0x08;
	b[14] = 0x45;
	b[16] = (PACKET_BYTES - 14) >> 8;
	b[17] = (PACKET_BYTES - 14) & 0xFF;
	b[23] = 17;
	b[36] = UDP_PORT >> 8;
	b[37] = UDP_PORT & 0xFF;
	b[38] = (PACKET_BYTES - 34) >> 8;
	b[39] = (PACKET_BYTES - 34) & 0xFF;
	b[UDP_HEADERS + 46] = 3;
	b[UDP_HEADERS + 47] = 2;
	for (uint32_t i = 0; i < frames * PACKETS; i++) {
		const uint64_t frame = 1 + i / PACKETS;

		memcpy(b + UDP_HEADERS, &frame, sizeof(frame));
		b[UDP_HEADERS + 12] = i % PACKETS;
		pcap_dump((u_char *)out, &h, b);
	}
	pcap_dump_close(out);
	pcap_close(pcap);
	return fd;
}

static void
open_port(struct bench *b)
{
	struct rte_eth_conf conf = {
		.rxmode.offloads = RTE_ETH_RX_OFFLOAD_SCATTER | RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT};
	struct rte_eth_rxconf rx = {.rx_nseg = 2, .offloads = conf.rxmode.offloads};
	union rte_eth_rxseg segments[2] = {0};
	char path[256], args[512];
	int fd;

	fd = write_capture(b->frames, path, sizeof(path));
	snprintf(args, sizeof(args), "file=%s,loops=0,rewrite=%u:8:le:%u", path, UDP_HEADERS,
		b->frames);
	if (rte_vdev_init("net_replay0", args) != 0 ||
		rte_eth_dev_get_port_by_name("net_replay0", &b->port) != 0)
		fail("net_replay0", "cannot be made; --frames smaller?");
	close(fd);
	unlink(path);
	b->headers = rte_pktmbuf_pool_create(
		"headers", 4095, 256, 0, RTE_PKTMBUF_HEADROOM + 128, SOCKET_ID_ANY);
	b->pixels =
		rte_pktmbuf_pool_create("pixels", SLOTS * PACKETS + 4095, 256, 0, 0, SOCKET_ID_ANY);
	if (b->headers == NULL || b->pixels == NULL)
		fail("pools", rte_strerror(rte_errno));
	segments[0].split.mp = b->headers;
	segments[0].split.length = SPLIT_AT;
	segments[1].split.mp = b->pixels;
	rx.rx_seg = segments;
	if (rte_eth_dev_configure(b->port, 1, 0, &conf) != 0 ||
		rte_eth_rx_queue_setup(b->port, 0, 1024, 0, &rx, NULL) != 0)
		fail("net_replay0", "cannot be set up");
}

static void
create_role(struct bench *b)
{
	struct frame_table_config c = {
		.detector = &b->detector,
		.lanes = 1,
		.slots = SLOTS,
		.give_up = 8,
		.agree = 8,
		.jump = 16384,
		.stall_cycles = rte_get_tsc_hz(),
		.frames = rte_zmalloc("frames",
			SLOTS * gk_frame_stride(&(struct gk_geometry){.tiles = PACKETS}), 64),
		.socket = SOCKET_ID_ANY,
	};

	if (c.frames == NULL || (b->table = frame_table_create(&c)) == NULL)
		fail("frame table", rte_strerror(rte_errno));
	b->rx = rte_zmalloc("rx", sizeof(*b->rx), RTE_CACHE_LINE_SIZE);
	if (b->rx == NULL)
		fail("RX role", "no memory");
	b->peers[0] = b->rx;
	b->rx->table = b->table;
	b->rx->lane = &b->table->lanes[0];
	b->rx->streams = b->streams;
	b->rx->detector = &b->detector;
	b->rx->peers = b->peers;
	b->rx->nb_queues = 1;
	b->rx->queues[0].port = b->port;
	b->rx->inbox =
		rte_ring_create("inbox", 64, SOCKET_ID_ANY, RING_F_MP_RTS_ENQ | RING_F_SC_DEQ);
	if (b->rx->inbox == NULL)
		fail("inbox", rte_strerror(rte_errno));
}

static void
free_role(struct bench *b)
{
	rte_ring_free(b->rx->inbox);
	rte_free(b->rx);
	rte_free(b->table->frames);
	frame_table_destroy(b->table);
}

/** What the builder does without gangs: what is closed is given back. */
static bool
build(struct bench *b)
{
	struct frame_closed closed;
	bool any = false;

	while (frame_table_close(b->table, &closed)) {
		b->frames_closed++;
		b->frames_complete += closed.missing == 0;
		any = true;
		if (closed.packets == 0)
			continue;
		rte_pktmbuf_free_bulk(frame_table_mbufs(b->table, closed.slot), PACKETS);
		frame_table_recycle(b->table, closed.slot);
	}
	return frame_table_open(b->table) > 0 || any;
}

/** Nothing may be left: give up what waits, close all. */
static void
finish(struct bench *b)
{
	b->rx->stop = true;
	frame_table_flush(b->table);
	while (!frame_table_flushed(b->table)) {
		struct frame_closed closed;

		rx_poll(b->rx);
		while (frame_table_close(b->table, &closed)) {
			if (closed.packets == 0)
				continue;
			rte_pktmbuf_free_bulk(frame_table_mbufs(b->table, closed.slot), PACKETS);
			frame_table_recycle(b->table, closed.slot);
		}
	}
}

static uint64_t
round_cycles(const struct bench *b)
{
	return (uint64_t)(b->seconds / ROUNDS * rte_get_tsc_hz());
}

/** CPU time of this thread, in TSC cycles: a machine that is shared disturbs it less. */
static uint64_t
thread_cycles(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)((t.tv_sec + 1e-9 * t.tv_nsec) * rte_get_tsc_hz());
}

static struct speed
poll_and_touch(struct bench *b)
{
	static volatile uint64_t sink;
	const uint64_t begin = thread_cycles(), end = rte_rdtsc() + round_cycles(b);
	struct rte_mbuf *m[RX_BURST];
	struct speed s = {0};
	uint64_t sum = 0;

	while (rte_rdtsc() < end) {
		const uint16_t n = rte_eth_rx_burst(b->port, 0, m, RX_BURST);

		for (uint16_t i = 0; i < n; i++)
			sum += *rte_pktmbuf_mtod_offset(m[i], const uint64_t *, UDP_HEADERS);
		rte_pktmbuf_free_bulk(m, n);
		s.packets += n;
	}
	sink += sum;
	s.cycles = thread_cycles() - begin;
	return s;
}

static struct speed
one_lcore(struct bench *b)
{
	const uint64_t begin = thread_cycles(), end = rte_rdtsc() + round_cycles(b);
	struct speed s = {0};

	while (rte_rdtsc() < end) {
		rx_poll(b->rx);
		build(b);
	}
	s.packets = b->rx->counters[RX_PLACED];
	s.cycles = thread_cycles() - begin;
	return s;
}

/** As lcores of braggline-recv do where CPUs are shared. */
static void
rest(bool busy, uint32_t *idle)
{
	*idle = busy ? 0 : *idle + 1;
	if (*idle >= 16)
		sched_yield();
}

static int
rx_loop(void *arg)
{
	struct bench *b = arg;
	uint32_t idle = 0;

	while (!__atomic_load_n(&b->stop, __ATOMIC_ACQUIRE))
		rest(rx_poll(b->rx) != 0, &idle);
	return 0;
}

static struct speed
two_lcores(struct bench *b)
{
	const uint64_t begin = rte_rdtsc(), end = begin + round_cycles(b);
	struct speed s = {0};
	uint32_t idle = 0;

	b->stop = false;
	if (rte_eal_remote_launch(rx_loop, b, rte_get_next_lcore(-1, 1, 0)) != 0)
		fail("second lcore", "cannot be launched");
	while (rte_rdtsc() < end)
		rest(build(b), &idle);
	__atomic_store_n(&b->stop, true, __ATOMIC_RELEASE);
	rte_eal_mp_wait_lcore();
	s.packets = b->rx->counters[RX_PLACED];
	s.cycles = rte_rdtsc() - begin;
	return s;
}

static int
compare(const void *a, const void *b)
{
	const struct speed *x = a, *y = b;
	const double p = (double)x->packets / x->cycles, q = (double)y->packets / y->cycles;

	return p < q ? -1 : p > q;
}

/** The best round; each begins at the first packet of the capture. */
static struct speed
measure(struct bench *b, struct speed (*run)(struct bench *), bool role)
{
	struct speed s[ROUNDS];

	for (uint32_t i = 0; i < ROUNDS; i++) {
		if (rte_eth_dev_start(b->port) != 0)
			fail("net_replay0", "cannot be started");
		if (role)
			create_role(b);
		s[i] = run(b);
		if (role)
			finish(b);
		if (rte_eth_dev_stop(b->port) != 0)
			fail("net_replay0", "cannot be stopped");
		if (role)
			free_role(b);
		if (rte_mempool_in_use_count(b->pixels) + rte_mempool_in_use_count(b->headers) != 0)
			fail("pools", "mbufs have not come back");
	}
	qsort(s, ROUNDS, sizeof(s[0]), compare);
	return s[ROUNDS - 1];
}

static double
mpps(struct speed s)
{
	return (double)s.packets * rte_get_tsc_hz() / s.cycles / 1e6;
}

static void
print_row(const char *what, struct speed s, struct speed ceiling)
{
	printf("%-28s %8.2f %8.1f %10.2f %8.1f %7.2f\n", what, mpps(s),
		(double)s.cycles / s.packets, mpps(ceiling),
		(double)ceiling.cycles / ceiling.packets, mpps(s) / mpps(ceiling));
}

static void
parse_arguments(struct bench *b, int argc, char **argv)
{
	static const struct option options[] = {
		{"frames", required_argument, NULL, 'f'},
		{"seconds", required_argument, NULL, 's'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "f:s:h", options, NULL)) != -1) {
		if (option == 'f')
			b->frames = strtoul(optarg, NULL, 10);
		else if (option == 's')
			b->seconds = strtod(optarg, NULL);
		else if (option == 'h')
			exit(fputs(usage, stdout) < 0);
		else
			exit(2);
	}
	if (b->frames < 1 || b->frames > 16384 || !(b->seconds > 0) || optind < argc) {
		fputs(usage, stderr);
		exit(2);
	}
}

static void
init_eal(char *program, uint32_t frames)
{
	static char options[][32] = {"--no-huge", "--no-shconf", "--no-pci", "--no-telemetry",
		"--log-level=lib.eal:error", "--log-level=braggline.*:error", "-l", "0,1", "-m",
		""};
	char *argv[RTE_DIM(options) + 1] = {program};

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		strcpy(options[7], "0");
	snprintf(options[9], sizeof(options[9]), "%u",
		128 + (uint32_t)((uint64_t)frames * PACKETS * (PACKET_BYTES + 192) >> 20));
	for (uint32_t i = 0; i < RTE_DIM(options); i++)
		argv[i + 1] = options[i];
	if (rte_eal_init(RTE_DIM(argv), argv) < 0)
		fail("EAL", rte_strerror(rte_errno));
}

int
main(int argc, char **argv)
{
	static struct bench b = {.frames = 384, .seconds = 4};
	struct speed ceiling;

	parse_arguments(&b, argc, argv);
	init_eal(argv[0], b.frames);
	if (detector_init(&b.detector, &jungfrau_ops, 1, 1) != 0)
		return 1;
	b.streams = rte_malloc("streams", sizeof(*b.streams), 64);
	if (b.streams == NULL)
		return 1;
	memset(b.streams, 0xFF, sizeof(*b.streams));
	b.streams->stream[UDP_PORT] = 0;
	open_port(&b);

	printf("RX path, %u frames of one module (%.0f MB) replayed without end, %u frame slots, "
	       "split at %u, TSC %.2f GHz\n\n",
		b.frames, 1e-6 * b.frames * PACKETS * PACKET_BYTES, SLOTS, SPLIT_AT,
		1e-9 * rte_get_tsc_hz());
	printf("%-28s %17s   %17s\n", "", "this", "poll and touch");
	printf("%-28s %8s %8s %10s %8s %7s\n", "what", "Mpkt/s", "cyc/pkt", "Mpkt/s", "cyc/pkt",
		"ratio");
	ceiling = measure(&b, poll_and_touch, false);
	print_row("RX and builder, one lcore", measure(&b, one_lcore, true), ceiling);
	if (rte_lcore_count() > 1)
		print_row("RX and builder, two lcores", measure(&b, two_lcores, true), ceiling);
	else
		printf("RX and builder, two lcores: not measured, there is one CPU\n");
	printf("\n%" PRIu64 " of %" PRIu64 " frames complete; one lcore polls both roles in turn\n",
		b.frames_complete, b.frames_closed);
	return b.frames_complete == b.frames_closed ? 0 : 1;
}
