/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bursts of 1,024 packets, a 4M frame, at line rate, into queues that have only their descriptors
 * as buffer: net_replay with overrun=drop. One lcore polls RX role and builder. The largest backlog
 * is the smallest number of descriptors without loss. If the machine takes the CPU away, the time
 * between two polls becomes longer; an undisturbed iteration takes at most RX_BURSTS_A_POLL bursts,
 * some microseconds. Packets that are lost in a window without a gap as long as the ring are lost
 * by the RX path.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_ethdev.h>

#include "bench_alone.h"
#include "bench_rows.h"
#include "rx_bench.h"

#define WINDOWS	    40
#define DESCRIPTORS 4096
#define WARM_UP	    0.02 /* s */
#define QUIET_US    100	 /* no undisturbed iteration takes as long */

struct burst {
	const char *name;
	uint64_t bps;
	uint32_t every_us;
};

/* 1,024 packets of 8,306 bytes take 680 us at 100 Gb/s; one burst starts every millisecond */
static const struct burst bursts[] = {
	{"100 Gb/s, every ms", 100000000000u, 1000},
	{"400 Gb/s, every 0.5 ms", 400000000000u, 500},
};

static uint64_t
xstat(uint16_t port, const char *name)
{
	uint64_t id, value = 0;

	if (rte_eth_xstats_get_id_by_name(port, name, &id) != 0 ||
		rte_eth_xstats_get_by_id(port, &id, &value, 1) != 1)
		rx_bench_fail(name, "there is no such counter");
	return value;
}

static int
compare(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/*
 * @param last  in: TSC at the start of the previous iteration; out: of the last one here @return
 * the longest time between two polls, us
 */
static uint64_t
poll_until(struct rx_bench *b, double seconds, uint64_t *last)
{
	uint64_t longest = 0, now = rte_rdtsc();
	const uint64_t end = now + (uint64_t)(seconds * rte_get_tsc_hz());

	while (now < end) {
		rx_poll(b->rx[0]);
		rx_bench_build(b);
		longest = RTE_MAX(longest, rte_rdtsc() - *last);
		*last = now;
		now = rte_rdtsc();
	}
	return longest * 1000000 / rte_get_tsc_hz();
}

struct window {
	uint64_t waiting; /* the largest backlog, packets */
	uint64_t packets;
	uint64_t missed;
	uint64_t gap_us; /* the longest gap */
};

static struct window
run_window(struct rx_bench *b)
{
	struct rte_eth_stats stats;
	struct window w;
	uint64_t polled = rte_rdtsc();

	rx_bench_start(b, 1, DESCRIPTORS, true);
	bench_alone_rest();
	b->alone = bench_alone_begin();
	/* touch the memory for the first time, and find the first frame */
	poll_until(b, WARM_UP, &polled);
	rte_eth_stats_reset(b->port);
	rte_eth_xstats_reset(b->port);
	w.gap_us = poll_until(b, b->seconds, &polled);
	bench_alone_end();
	rte_eth_stats_get(b->port, &stats);
	w.waiting = xstat(b->port, "rx_most_waiting_packets");
	w.packets = stats.ipackets;
	w.missed = stats.imissed;
	rx_bench_stop(b, true);
	return w;
}

static void
run_bursts(struct rx_bench *b, const struct burst *burst)
{
	const uint32_t windows = b->rounds * 4 < WINDOWS ? b->rounds * 4 : WINDOWS;
	/* a shorter gap ends before the burst for which the ring has no room */
	const uint64_t holds_us = (uint64_t)(DESCRIPTORS / 1024 - 1) * burst->every_us;
	uint64_t waiting[WINDOWS], packets = 0, missed = 0, ours = 0, quiet = 0, gap = 0;
	char args[128], what[96];
	uint32_t nb_quiet = 0;

	snprintf(args, sizeof(args), ",bps=%" PRIu64 ",burst=1024:%u000,overrun=drop", burst->bps,
		burst->every_us);
	rx_bench_open_port(b, args);
	for (uint32_t i = 0; i < windows; i++) {
		const struct window w = run_window(b);

		waiting[i] = w.waiting;
		packets += w.packets;
		missed += w.missed;
		gap = RTE_MAX(gap, w.gap_us);
		if (w.gap_us < holds_us)
			ours += w.missed;
		if (w.gap_us < QUIET_US) {
			quiet = RTE_MAX(quiet, w.waiting);
			nb_quiet++;
		}
	}
	rx_bench_close_port(b);
	qsort(waiting, windows, sizeof(waiting[0]), compare);
	printf("%-26s %10" PRIu64 " %8" PRIu64 " %8" PRIu64 " %8" PRIu64 " %8" PRIu64 "\n",
		burst->name, packets + missed, missed, waiting[0], waiting[windows / 2],
		waiting[windows - 1]);
	printf("  longest time without a poll %" PRIu64
	       " us; lost in windows without one of %" PRIu64 " us: %" PRIu64
	       "; worst of %u windows without one of %d us: %" PRIu64 "\n",
		gap, holds_us, ours, nb_quiet, QUIET_US, quiet);
	snprintf(what, sizeof(what), "packets lost of bursts of 1,024, %s", burst->name);
	bench_row(&(struct bench_row){.stage = "RX",
		.what = what,
		.value = (double)missed,
		.unit = "packets",
		.against = "sent",
		.other = (double)(packets + missed),
		.goal = "value <= 0"});
	snprintf(what, sizeof(what), "... in windows without a gap of %" PRIu64 " us, %s", holds_us,
		burst->name);
	bench_row(&(struct bench_row){.stage = "RX",
		.what = what,
		.value = (double)ours,
		.unit = "packets",
		.against = "longest gap, us",
		.other = (double)gap,
		.goal = "value <= 0"});
	snprintf(what, sizeof(what), "smallest ring that holds them, %s", burst->name);
	bench_row(&(struct bench_row){.stage = "RX",
		.what = what,
		.value = (double)waiting[windows / 2],
		.unit = "descriptors",
		.against = "worst window",
		.other = (double)waiting[windows - 1]});
}

void
rx_bench_bursts(struct rx_bench *b)
{
	b->frames = b->frames < 8 ? b->frames : 8;
	b->seconds /= 3;
	printf("\nbursts of 1,024 packets, 8,306 bytes each on the wire, windows of %.2f s, %u "
	       "descriptors%s\n",
		b->seconds, DESCRIPTORS, b->alone ? "" : "; no real-time priority: others disturb");
	printf("%-26s %10s %8s   %s\n", "", "", "", "smallest ring that holds");
	printf("%-26s %10s %8s %8s %8s %8s\n", "what", "packets", "lost", "least", "median",
		"worst");
	for (uint32_t i = 0; i < RTE_DIM(bursts); i++)
		run_bursts(b, &bursts[i]);
}
