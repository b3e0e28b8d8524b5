/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The RX path (rx_poll(), frame table, closing and freeing), compared with a loop that polls the
 * same port and reads one number of each header. The port is net_replay: headers are private
 * copies, and pixels are passed by reference and not accessed, as behind a NIC that writes to a
 * GPU.
 */

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_pause.h>

#include "bench_alone.h"
#include "bench_capture.h"
#include "bench_median.h"
#include "bench_rows.h"
#include "rx_bench.h"

#define ROUNDS_MAX  BENCH_ROUNDS_MAX
#define DESCRIPTORS 1024

static const char usage[] =
	"Usage: rx_bench [--modules N] [--frames N] [--slots N] [--seconds S] [--rounds N]\n"
	"                [--rows FILE]\n"
	"Throughput of the RX path in split mode, as a table; medians of the rounds.\n"
	"  --modules N  JUNGFRAU modules, 1 to 8 (default 8: 4M, 1,024 packets a frame)\n"
	"  --frames N   frames of the capture, which is replayed without end (default 48:\n"
	"               407 MB; of each packet two cache lines are read)\n"
	"  --slots N    frame slots (default 64)\n"
	"  --seconds S  of a window, up to 0.6 (default 0.3)\n"
	"  --rounds N   windows of each row, all rows in turn (default 9)\n"
	"  --rows FILE  rows for bench.py\n"
	"Columns: million packets/s and TSC cycles a packet and lcore of the row; the same of a\n"
	"loop that polls the port, reads the frame number of each packet, frees it; the ratio.\n"
	"Time is the CPU time of the lcore that took most. Two lcores have an RX role each, of\n"
	"half of the modules; the builder is polled by the first of them, as one lcore does all.\n";

/* Packets per TSC cycles of each lcore. */
struct speed {
	uint64_t packets;
	uint64_t cycles;
};

static uint64_t
window(const struct rx_bench *b)
{
	return (uint64_t)(b->seconds * rte_get_tsc_hz());
}

/* CPU time of this thread in TSC cycles, which other load on a shared machine affects less. */
static uint64_t
thread_cycles(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)((t.tv_sec + 1e-9 * t.tv_nsec) * rte_get_tsc_hz());
}

/* Work of one lcore until the window ends. */
struct loop {
	struct rx_bench *b;
	uint32_t frx;
	bool roles;
	struct speed speed;
} __rte_cache_aligned;

static void
poll_and_touch(struct loop *l, uint64_t end)
{
	static volatile uint64_t sink;
	struct rte_mbuf *m[RX_BURST];
	uint64_t sum = 0;

	while (rte_rdtsc() < end) {
		const uint16_t n = rte_eth_rx_burst(l->b->port, l->frx, m, RX_BURST);

		for (uint16_t i = 0; i < n; i++)
			sum += *rte_pktmbuf_mtod_offset(m[i], const uint64_t *, BENCH_UDP_HEADERS);
		rte_pktmbuf_free_bulk(m, n);
		l->speed.packets += n;
	}
	sink += sum;
}

static void
poll_roles(struct loop *l, uint64_t end)
{
	struct rx *rx = l->b->rx[l->frx];

	while (rte_rdtsc() < end) {
		bool busy = rx_poll(rx) != 0;

		if (l->frx == 0)
			busy |= rx_bench_build(l->b);
		/*
		 * a blocked RX role does not touch the cache lines of the other one, as in the
		 * receiver
		 */
		if (!busy)
			rte_pause();
	}
	l->speed.packets = rx->counters[RX_PLACED];
}

static int
run_loop(void *arg)
{
	struct loop *l = arg;
	const uint64_t begin = thread_cycles(), end = rte_rdtsc() + window(l->b);

	if (l->roles)
		poll_roles(l, end);
	else
		poll_and_touch(l, end);
	l->speed.cycles = thread_cycles() - begin;
	return 0;
}

/* Run one window. @param second  only one RX role, on the second lcore */
static struct speed
measure(struct rx_bench *b, uint32_t nb_rx, bool roles, bool second)
{
	const unsigned int worker = rte_get_next_lcore(-1, 1, 0);
	struct loop loop[RX_BENCH_LANES] = {0};
	struct speed s;

	rx_bench_start(b, nb_rx, DESCRIPTORS, roles);
	for (uint32_t i = 0; i < nb_rx; i++)
		loop[i] = (struct loop){.b = b, .frx = i, .roles = roles};
	bench_alone_rest();
	b->alone = bench_alone_begin();
	if ((second || nb_rx > 1) && rte_eal_remote_launch(run_loop, &loop[nb_rx - 1], worker))
		rx_bench_fail("second lcore", "cannot be launched");
	if (!second)
		run_loop(&loop[0]);
	rte_eal_mp_wait_lcore();
	bench_alone_end();
	rx_bench_stop(b, roles);
	s = loop[0].speed;
	for (uint32_t i = 1; i < nb_rx; i++) {
		s.packets += loop[i].speed.packets;
		s.cycles = RTE_MAX(s.cycles, loop[i].speed.cycles);
	}
	return s;
}

static double
mpps(struct speed s)
{
	return (double)s.packets * rte_get_tsc_hz() / s.cycles / 1e6;
}

/* Windows of all rows alternate, so that they see the same state of the machine. */
struct rows {
	double touch[RX_BENCH_LANES][ROUNDS_MAX]; /* Mpackets/s, by number of RX roles - 1 */
	double role[RX_BENCH_LANES][ROUNDS_MAX];
	double slower[ROUNDS_MAX]; /* of the slower lcore alone: the other one waits for it */
};

/* Two lcores that share frames, and two that share only the port and the machine. */
static void
print_scaling(const struct rx_bench *b, const struct rows *r)
{
	const double touch = bench_median_ratio(r->touch[1], r->touch[0], b->rounds);

	bench_row(&(struct bench_row){.stage = "RX",
		.what = "2 lcores beside 1",
		.value = bench_median(r->role[1], b->rounds),
		.unit = "Mpackets/s",
		.against = "1 lcore, the slower one",
		.other = bench_median(r->slower, b->rounds),
		.ratio = bench_median_ratio(r->role[1], r->slower, b->rounds),
		.goal = "ratio >= 1.8"});
	bench_row(&(struct bench_row){.stage = "RX",
		.what = "poll and touch, 2 lcores beside 1",
		.value = bench_median(r->touch[1], b->rounds),
		.unit = "Mpackets/s",
		.against = "1 lcore",
		.other = bench_median(r->touch[0], b->rounds),
		.ratio = touch});
	printf("poll and touch, 2 lcores beside 1: %.2f x, what port and machine allow\n", touch);
}

static void
print_row(const struct rx_bench *b, const struct rows *r, uint32_t nb_rx)
{
	const double *role = r->role[nb_rx - 1], *touch = r->touch[nb_rx - 1];
	const double this = bench_median(role, b->rounds), ceiling = bench_median(touch, b->rounds);
	const double cycles = 1e-6 * rte_get_tsc_hz() * nb_rx;
	char what[64];

	snprintf(what, sizeof(what), "RX and builder, %u lcore%s", nb_rx, nb_rx > 1 ? "s" : "");
	printf("%-26s %8.2f %8.1f %10.2f %8.1f %7.2f %8.2f\n", what, this, cycles / this, ceiling,
		cycles / ceiling, bench_median_ratio(role, touch, b->rounds),
		bench_median_ratio(role, r->slower, b->rounds));
	bench_row(&(struct bench_row){.stage = "RX",
		.what = what,
		.value = this,
		.unit = "Mpackets/s",
		.against = "poll and touch each header",
		.other = ceiling,
		.ratio = bench_median_ratio(role, touch, b->rounds),
		.goal = nb_rx == 1 ? "value >= 10" : NULL,
		/*
		 * two cache lines of the capture, two of mbufs, two of tables; the frame's pointers
		 */
		.bytes = nb_rx == 1 ? BENCH_PACKETS * 8 * (6 * 64 + 16) : 0});
	if (nb_rx > 1)
		print_scaling(b, r);
	else
		bench_row(&(struct bench_row){.stage = "RX",
			.what = "cycles a packet above that loop",
			.value = cycles / this - cycles / ceiling,
			.unit = "cycles"});
}

static void
throughput(struct rx_bench *b)
{
	const uint32_t lcores = RTE_MIN(rte_lcore_count(), (unsigned int)RX_BENCH_LANES);
	static struct rows r;

	rx_bench_open_port(b, "");
	for (uint32_t i = 0; i < b->rounds; i++) {
		for (uint32_t nb_rx = 1; nb_rx <= lcores; nb_rx++) {
			r.touch[nb_rx - 1][i] = mpps(measure(b, nb_rx, false, false));
			r.role[nb_rx - 1][i] = mpps(measure(b, nb_rx, true, false));
		}
		r.slower[i] = r.role[0][i];
		if (lcores > 1)
			r.slower[i] = RTE_MIN(r.slower[i], mpps(measure(b, 1, true, true)));
	}
	rx_bench_close_port(b);
	printf("RX path, %u frames of %u modules (%.0f MB) replayed without end, %u frame slots, "
	       "%u mbufs, split at %u, TSC %.2f GHz%s; ",
		b->frames, b->modules, 1e-6 * b->frames * b->detector.tiles * BENCH_PACKET_BYTES,
		b->slots, b->pixels->size, BENCH_SPLIT_AT, 1e-9 * rte_get_tsc_hz(),
		b->alone ? "" : "; no real-time priority: others disturb");
	printf("%s\n\n", b->huge ? "huge pages" : "pages of 4 KB: there are no free huge pages");
	printf("%-26s %17s   %17s\n", "", "this", "poll and touch");
	printf("%-26s %8s %8s %10s %8s %7s %8s\n", "what", "Mpkt/s", "cyc/pkt", "Mpkt/s", "cyc/pkt",
		"ratio", "x lcore");
	for (uint32_t nb_rx = 1; nb_rx <= lcores; nb_rx++)
		print_row(b, &r, nb_rx);
	if (lcores < RX_BENCH_LANES)
		printf("RX and builder, 2 lcores: not measured, there is one CPU\n");
}

static void
parse_arguments(struct rx_bench *b, int argc, char **argv)
{
	static const struct option options[] = {
		{"modules", required_argument, NULL, 'm'},
		{"frames", required_argument, NULL, 'f'},
		{"slots", required_argument, NULL, 'l'},
		{"seconds", required_argument, NULL, 's'},
		{"rounds", required_argument, NULL, 'r'},
		{"rows", required_argument, NULL, 'o'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (option == 'm')
			b->modules = strtoul(optarg, NULL, 10);
		else if (option == 'f')
			b->frames = strtoul(optarg, NULL, 10);
		else if (option == 'l')
			b->slots = strtoul(optarg, NULL, 10);
		else if (option == 's')
			b->seconds = strtod(optarg, NULL);
		else if (option == 'r')
			b->rounds = strtoul(optarg, NULL, 10);
		else if (option == 'o')
			bench_rows_to(optarg);
		else if (option == 'h')
			exit(fputs(usage, stdout) < 0);
		else
			exit(2);
	}
	if (b->modules < 1 || b->modules > 8 || b->frames < 1 || b->frames > 4096 ||
		b->slots < 16 || b->slots > 1024 || !(b->seconds > 0) ||
		b->seconds > BENCH_WINDOW_MAX || b->rounds < 1 || b->rounds > ROUNDS_MAX ||
		optind < argc) {
		fputs(usage, stderr);
		exit(2);
	}
}

static void
init_eal(char *program, struct rx_bench *b)
{
	const uint64_t packets = (uint64_t)b->frames * b->detector.tiles;
	const uint32_t mib = 320 + (uint32_t)(packets * (BENCH_PACKET_BYTES + 192) >> 20) +
		b->slots * b->detector.tiles / 2048;
	static char options[][32] = {"--iova-mode=va", "--no-pci", "--no-telemetry",
		"--log-level=lib.eal:error", "--log-level=braggline.*:error", "-l", "0,1", "-m", "",
		"--in-memory"};
	char *argv[RTE_DIM(options) + 1] = {program};

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		strcpy(options[6], "0");
	snprintf(options[8], sizeof(options[8]), "%u", mib);
	b->huge = bench_huge_pages(mib);
	if (!b->huge)
		strcpy(options[9], "--no-huge");
	for (uint32_t i = 0; i < RTE_DIM(options); i++)
		argv[i + 1] = options[i];
	/* threads inherit the priority of this one */
	bench_alone_begin();
	if (rte_eal_init(RTE_DIM(argv), argv) < 0)
		rx_bench_fail("EAL", rte_strerror(rte_errno));
	bench_alone_end();
}

int
main(int argc, char **argv)
{
	static struct rx_bench b = {
		.modules = 8, .frames = 48, .slots = 64, .seconds = 0.3, .rounds = 9};

	parse_arguments(&b, argc, argv);
	if (detector_init(&b.detector, &jungfrau_ops, b.modules, 1) != 0)
		return 1;
	init_eal(argv[0], &b);
	b.streams = rte_malloc("streams", sizeof(*b.streams), 64);
	if (b.streams == NULL)
		return 1;
	memset(b.streams, 0xFF, sizeof(*b.streams));
	for (uint32_t m = 0; m < b.modules; m++)
		b.streams->stream[BENCH_UDP_PORT + m] = m;
	throughput(&b);
	printf("\n%" PRIu64 " of %" PRIu64 " frames complete\n", b.frames_complete,
		b.frames_closed);
	if (b.frames_complete != b.frames_closed)
		return 1;
	rx_bench_bursts(&b);
	return 0;
}
