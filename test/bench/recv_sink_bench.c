/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The receiver from its ports to its output slots: a sink in place of the writer frees each slot at
 * once. Frames must come one after the other and complete, and each that is kept must have an
 * image. Another thread decodes some chunks, and compares them with the first of the same frame of
 * the capture.
 *
 * With --feed another lcore polls the replay (recv_feed.h), and the rate is compared with what an
 * lcore can do at most with the same packets.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_ring.h>

#include "arrow/bitshuffle.h"
#include "bench_alone.h"
#include "bench_median.h"
#include "bench_rows.h"
#include "builder/builder.h"
#include "builder/command.h"
#include "calib/calibration.h"
#include "config/config.h"
#include "egress/egress.h"
#include "eal/end.h"
#include "eal/start.h"
#include "frame_record.h"
#include "gk.h"
#include "gk_bitshuffle.h"
#include "lcores.h"
#include "pipeline.h"
#include "port/placement.h"
#include "recv_feed.h"
#include "recv_null_gang.h"
#include "settings.h"

#define CHECK_EVERY 61 /* a prime number */
#define PERIOD_MAX  1024
#define BURST	    64
#define END_SECONDS 20
#define FEED_DEVICE "net_replay0"
#define FEED_IDLE   1000000 /* ns; without --feed: */
#define IDLE	    20000

static const char usage[] =
	"Usage: recv_sink_bench [EAL options] -- [--config FILE] [--set KEY=VALUE]...\n"
	"                       [--seconds S] [--rounds N] [--period N] [--feed LCORE]\n"
	"                       [--null-gangs] [--rows FILE]\n"
	"The receiver with a sink that frees each output slot at once, in place of files.\n"
	"  --seconds S  time that is measured, after 1 s (default 5)\n"
	"  --rounds N   measure N times, up to 0.6 s each, at real-time priority; the\n"
	"               result is the median (default 1, at normal priority)\n"
	"  --period N   frames of the capture, which net_replay repeats with new numbers\n"
	"               (default 64)\n"
	"  --feed LCORE this lcore polls net_replay0 and passes the packets on to the port\n"
	"               net_ring_feed, which the receiver polls. At the end, an lcore takes\n"
	"               the same packets from the ring and frees them, and computes the CRC-32\n"
	"               of their bytes, as ceilings. RoCE only.\n"
	"  --null-gangs gangs in place of host gangs that read no pixel and reject each frame\n"
	"  --rows FILE  rows for bench.py, with --feed\n"
	"Exit status 1: a frame is missing or incomplete, an image is wrong, or, without\n"
	"--feed, none was compared.\n";

enum check {
	CHECK_EMPTY,
	CHECK_FULL,
	CHECK_END
};

static struct {
	struct pipeline pipeline;
	struct settings settings;
	struct egress_settings egress;
	double seconds;
	uint32_t rounds;
	uint32_t period;
	uint32_t feed; /* lcore; RTE_MAX_LCORE: none */
	bool null_gangs;
	/* an image for the checker @{ */
	enum check check;
	uint8_t *image;
	uint64_t image_bytes, image_frame;
	uint16_t *words, *first[PERIOD_MAX];
	/** @} */
	uint64_t frames, kept, bytes, checked, compared, wrong, gaps, incomplete, without_image,
		next;
	double rate[BENCH_ROUNDS_MAX], gigabytes[BENCH_ROUNDS_MAX];
	struct recv_feed_ceilings ceilings[BENCH_ROUNDS_MAX]; /* frames/s */
	bool alone;					      /* no other program uses the CPUs */
	bool ending; /* frames that are open at the end of the run are incomplete */
	bool failed; /* no frame came in a window, or the run did not end */
} it = {.seconds = 5, .rounds = 1, .period = 64, .feed = RTE_MAX_LCORE};

static bool
is_fed(void)
{
	return it.feed != RTE_MAX_LCORE;
}

/* Decode the chunk in it.image, and compare it with the first of the same frame of the capture. */
static void
check_image(void)
{
	const uint64_t n = gk_pixels(&it.pipeline.gk_config->geometry);
	uint16_t **first = &it.first[it.image_frame % it.period];
	uint16_t *words = it.words;

	if (*first == NULL) {
		*first = words = malloc(n * sizeof(*words));
		if (words == NULL || bitshuffle_decompress(it.image, it.image_bytes, words, n) != 0)
			it.wrong++;
	} else {
		it.compared++;
		if (bitshuffle_decompress(it.image, it.image_bytes, words, n) != 0 ||
			memcmp(words, *first, n * sizeof(*words)) != 0)
			it.wrong++;
	}
	it.checked++;
}

static void *
checker(void *arg)
{
	enum check state;

	while ((state = __atomic_load_n(&it.check, __ATOMIC_ACQUIRE)) != CHECK_END) {
		if (state == CHECK_FULL) {
			check_image();
			__atomic_store_n(&it.check, CHECK_EMPTY, __ATOMIC_RELEASE);
		}
		usleep(1000);
	}
	return arg;
}

/* Copy a chunk for the other thread, unless that still has one. */
static void
give_image(const struct frame_record *r, const uint8_t *chunk)
{
	if (__atomic_load_n(&it.check, __ATOMIC_ACQUIRE) != CHECK_EMPTY)
		return;
	memcpy(it.image, chunk, r->chunk_bytes);
	it.image_bytes = r->chunk_bytes;
	it.image_frame = r->frame;
	__atomic_store_n(&it.check, CHECK_FULL, __ATOMIC_RELEASE);
}

/* One frame of the capture whenever it comes, and the others in turn. */
static bool
is_checked(uint64_t frame)
{
	return frame % it.period == 0 || frame % CHECK_EVERY == 0;
}

static void
take(const struct frame_record *r)
{
	const struct gk_layout *l = &it.pipeline.gk_config->layout;

	it.gaps += it.next != 0 && r->frame != it.next;
	it.next = r->frame + 1;
	it.frames++;
	it.incomplete += !it.ending &&
		((r->flags & FRAME_FLAG_INCOMPLETE) != 0 || r->verdict > FRAME_DRY_RUN);
	if (!frame_verdict_is_kept(r->verdict))
		return;
	it.kept++;
	it.bytes += r->chunk_bytes;
	if (r->out == GK_NO_OUT || r->chunk_bytes == 0)
		it.without_image++;
	else if (it.pipeline.staging == NULL && is_checked(r->frame))
		give_image(r, it.pipeline.outputs + r->out * l->stride + l->raw);
}

/* @return records that were taken */
static unsigned int
drain(void)
{
	struct rte_ring *to = it.pipeline.returned;
	void *r[BURST];
	const unsigned int n = rte_ring_sc_dequeue_burst(it.pipeline.egress, r, BURST, NULL);

	for (unsigned int i = 0; i < n; i++) {
		take(r[i]);
		while (rte_ring_sp_enqueue(to, r[i]) < 0)
			sched_yield();
	}
	/* fed, this thread may share the CPU of the RX lcore */
	if (n == 0)
		nanosleep(&(struct timespec){.tv_nsec = is_fed() ? FEED_IDLE : IDLE}, NULL);
	return n;
}

static void
drain_for(double seconds)
{
	const uint64_t end = rte_get_tsc_cycles() + seconds * rte_get_tsc_hz();

	while (rte_get_tsc_cycles() < end)
		drain();
}

/* Measure a window. */
static void
measure(uint32_t round)
{
	const uint64_t frames = it.frames, bytes = it.bytes, begin = rte_get_tsc_cycles();
	double taken;

	drain_for(it.seconds);
	taken = (double)(rte_get_tsc_cycles() - begin) / rte_get_tsc_hz();
	it.rate[round] = (it.frames - frames) / taken;
	it.failed |= it.frames == frames;
	it.gigabytes[round] = (it.bytes - bytes) / taken / 1e9;
}

static void *
sink(void *arg)
{
	const struct builder_command end = {.order = BUILDER_END};
	const uint64_t hz = rte_get_tsc_hz();
	uint64_t begin;
	bool posted;

	drain_for(1);
	/* the first frames may wait for [frames] stream_timeout_ms */
	begin = rte_get_tsc_cycles();
	while (is_fed() && it.frames < 4 * it.period &&
		rte_get_tsc_cycles() - begin < END_SECONDS * hz)
		drain_for(0.1);
	for (uint32_t i = 0; i < it.rounds; i++) {
		if (it.rounds > 1) {
			drain_for(BENCH_WINDOW_MAX);
			it.alone = bench_alone_process(true);
			/* until all are at their rate */
			drain_for(0.02);
		}
		measure(i);
		if (it.rounds > 1)
			(void)bench_alone_process(false);
	}
	it.ending = true;
	posted = builder_post(it.pipeline.builder, &end) == 0;
	begin = rte_get_tsc_cycles();
	while (posted && !builder_is_idle(it.pipeline.builder)) {
		drain();
		posted = rte_get_tsc_cycles() - begin <= END_SECONDS * hz;
	}
	it.failed |= !posted;
	while (drain() > 0)
		continue;
	recv_feed_stop();
	__atomic_store_n(&it.pipeline.lcores->stop, true, __ATOMIC_RELEASE);
	return arg;
}

/* @return exit status */
static int
report(void)
{
	const struct builder_stats s = builder_stats(it.pipeline.builder);
	const uint64_t pixels = gk_pixels(&it.pipeline.gk_config->geometry);
	const double rate = bench_median(it.rate, it.rounds);
	int error = 0;

	printf("%.0f frames/s, %.1f GB/s of pixels, %.1f GB/s of images, %.3f of their pixels\n",
		rate, rate * pixels * sizeof(uint16_t) / 1e9, bench_median(it.gigabytes, it.rounds),
		it.kept == 0 ? 0 : (double)it.bytes / it.kept / (pixels * sizeof(uint16_t)));
	printf("frames %" PRIu64 ": kept %" PRIu64 ", gaps %" PRIu64 ", incomplete %" PRIu64
	       ", kept without an image %" PRIu64 "; refused %" PRIu64 ", lost %" PRIu64 "\n",
		it.frames, it.kept, it.gaps, it.incomplete, it.without_image,
		s.verdicts[FRAME_REFUSED], s.verdicts[FRAME_LOST]);
	printf("images decoded %" PRIu64 ", compared %" PRIu64 ", wrong %" PRIu64
	       "; polls without a free slot %" PRIu64 "\n",
		it.checked, it.compared, it.wrong, s.no_output_slot);
	builder_failed_gang(it.pipeline.builder, &error);
	if (error != 0)
		printf("a gang failed: error %d\n", error);
	return it.failed || (it.pipeline.staging == NULL && !is_fed() && it.compared == 0) ||
			it.gaps != 0 || it.incomplete != 0 || it.without_image != 0 ||
			it.wrong != 0 || error != 0
		? EXIT_FAILURE
		: EXIT_SUCCESS;
}

static int
receive(void)
{
	struct builder_command begin = {.order = BUILDER_BEGIN,
		.run = it.settings.frames,
		.packets_min = it.settings.packets_min,
		.veto = it.settings.veto};
	const uint64_t pixels = gk_pixels(&it.pipeline.gk_config->geometry);
	pthread_t thread, check;
	int ret;

	begin.veto.params.version = 1;
	it.words = malloc(pixels * sizeof(*it.words));
	it.image = malloc(gk_bitshuffle_bound(pixels));
	if (it.words == NULL || it.image == NULL || builder_post(it.pipeline.builder, &begin) != 0)
		return EXIT_FAILURE;
	/* a replay delivers packets in the first poll, so the run must exist before */
	for (uint32_t i = 0; i < 1000 && builder_result(it.pipeline.builder, NULL) == -EINPROGRESS;
		i++)
		builder_poll(it.pipeline.builder);
	if (pthread_create(&check, NULL, checker, NULL) != 0 ||
		pthread_create(&thread, NULL, sink, NULL) != 0)
		return EXIT_FAILURE;
	pthread_setaffinity_np(check, sizeof(it.pipeline.writer_cpus), &it.pipeline.writer_cpus);
	pthread_setaffinity_np(thread, sizeof(it.pipeline.writer_cpus), &it.pipeline.writer_cpus);
	if (is_fed() && rte_eal_remote_launch(recv_feed_run, NULL, it.feed) != 0)
		return EXIT_FAILURE;
	ret = lcores_run(it.pipeline.lcores);
	pthread_join(thread, NULL);
	while (__atomic_load_n(&it.check, __ATOMIC_ACQUIRE) == CHECK_FULL)
		usleep(1000);
	__atomic_store_n(&it.check, CHECK_END, __ATOMIC_RELEASE);
	pthread_join(check, NULL);
	return ret != 0 ? EXIT_FAILURE : report();
}

/* ---- the feed ---- */

/* Packets of a frame: the parts and the trailer of each message, and an event for each stream. */
static uint32_t
frame_packets(void)
{
	const struct detector *d = &it.settings.detector;

	return d->tiles * (d->parts + 1) + d->streams;
}

/* Measure what an lcore can do at most with the packets of the feed. @return 0 or -errno */
static int
measure_ceilings(void)
{
	int ret = 0;

	if (rte_eal_remote_launch(recv_feed_run, NULL, it.feed) != 0)
		return -EBUSY;
	for (uint32_t i = 0; i < it.rounds && ret == 0; i++) {
		struct recv_feed_ceilings *c = &it.ceilings[i];

		if (it.rounds > 1) {
			bench_alone_rest();
			it.alone = bench_alone_process(true);
		}
		ret = recv_feed_measure(it.period * frame_packets(), it.seconds, c);
		if (it.rounds > 1)
			(void)bench_alone_process(false);
		c->ring /= frame_packets();
		c->crc /= frame_packets();
	}
	recv_feed_stop();
	rte_eal_mp_wait_lcore();
	if (ret == -ETIMEDOUT)
		fprintf(stderr,
			"recv_sink_bench: found no %u packets of %u frames in the capture; "
			"check --period\n",
			it.period * frame_packets(), it.period);
	return ret;
}

/* Print the rate, and what it is compared with. */
static void
report_feed(void)
{
	const struct detector *d = &it.settings.detector;
	const double gbit = (double)d->tiles * d->ops->pixel_bytes * 8e-9;
	double rate[BENCH_ROUNDS_MAX], ring[BENCH_ROUNDS_MAX], crc[BENCH_ROUNDS_MAX];
	const uint32_t n = it.rounds;
	char what[96];

	for (uint32_t i = 0; i < n; i++) {
		rate[i] = it.rate[i] * gbit;
		ring[i] = it.ceilings[i].ring * gbit;
		crc[i] = it.ceilings[i].crc * gbit;
	}
	snprintf(what, sizeof(what), "%u modules by %s, %s, 1 RX lcore", d->modules,
		ingest_transport_names[it.settings.ingest.transport],
		it.settings.ingest.check_icrc ? "ICRC checked" : "ICRC not checked");
	printf("\n%s: Gbit/s of pixels, medians of %u, %u frames (%.0f MB)%s\n", what, n, it.period,
		it.period * gbit / 8e-3, it.alone ? "" : "; no real-time priority: others disturb");
	printf("%-34s %8s %8s\n", "", "Gbit/s", "ratio");
	printf("%-34s %8.1f\n", "this", bench_median(rate, n));
	printf("%-34s %8.1f %8.2f\n", "CRC-32 of the same bytes", bench_median(crc, n),
		bench_median_ratio(rate, crc, n));
	printf("%-34s %8.1f %8.2f\n", "ring: take and free", bench_median(ring, n),
		bench_median_ratio(rate, ring, n));
	bench_row(&(struct bench_row){.stage = "ingest",
		.what = what,
		.value = bench_median(rate, n),
		.unit = "Gbit/s",
		.against = "CRC-32 of the same bytes",
		.other = bench_median(crc, n),
		.ratio = bench_median_ratio(rate, crc, n),
		.goal = it.settings.ingest.check_icrc ? "value >= 60" : NULL,
		.notes = it.null_gangs ? "gangs that reject each frame" : NULL});
	bench_row(&(struct bench_row){.stage = "ingest",
		.what = "the same",
		.value = bench_median(rate, n),
		.unit = "Gbit/s",
		.against = "take the packets and free them",
		.other = bench_median(ring, n),
		.ratio = bench_median_ratio(rate, ring, n)});
}

static int
parse(int argc, char **argv, struct config_source *source)
{
	static const struct option options[] = {{"config", required_argument, NULL, 'c'},
		{"set", required_argument, NULL, 's'}, {"seconds", required_argument, NULL, 't'},
		{"rounds", required_argument, NULL, 'n'}, {"period", required_argument, NULL, 'p'},
		{"feed", required_argument, NULL, 'f'}, {"null-gangs", no_argument, NULL, 'g'},
		{"rows", required_argument, NULL, 'o'}, {NULL, 0, NULL, 0}};
	int c;

	optind = 1;
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (c) {
		case 'c':
			source->file = optarg;
			break;
		case 's':
			if (config_source_set(source, optarg) != 0)
				return -1;
			break;
		case 't':
			it.seconds = strtod(optarg, NULL);
			break;
		case 'n':
			it.rounds = strtoul(optarg, NULL, 10);
			break;
		case 'p':
			it.period = strtoul(optarg, NULL, 10);
			break;
		case 'f':
			it.feed = strtoul(optarg, NULL, 10);
			if (it.feed >= RTE_MAX_LCORE)
				return -1;
			break;
		case 'g':
			it.null_gangs = true;
			recv_null_gang_use();
			break;
		case 'o':
			bench_rows_to(optarg);
			break;
		default:
			return -1;
		}
	/* without a feed images are compared, which these gangs do not make */
	if (it.null_gangs && !is_fed())
		return -1;
	if (it.rounds < 1 || it.rounds > BENCH_ROUNDS_MAX ||
		(it.rounds > 1 && it.seconds > BENCH_WINDOW_MAX))
		return -1;
	return optind == argc && it.period > 0 && it.period <= PERIOD_MAX && it.seconds > 0 ? 0
											    : -1;
}

/* Receive, with everything created and freed. @return exit status */
static int
run(struct placement *way, const cpu_set_t *cpus)
{
	int status = EXIT_FAILURE;

	if (is_fed() && recv_feed_open(FEED_DEVICE, it.period * frame_packets()) != 0)
		return EXIT_FAILURE;
	if (placement_choose(way, &it.settings) == 0) {
		if (pipeline_create(&it.pipeline, &it.settings, way, cpus) == 0 &&
			pipeline_calibrate(&it.pipeline, &it.settings.calibration) == 0)
			status = receive();
		if (pipeline_destroy(&it.pipeline) != 0) {
			printf("mbufs leaked\n");
			status = EXIT_FAILURE;
		}
	}
	if (!is_fed())
		return status;
	/* frames that the receiver has no longer hold packets up */
	if (status == EXIT_SUCCESS) {
		if (measure_ceilings() == 0)
			report_feed();
		else
			status = EXIT_FAILURE;
	}
	if (recv_feed_close() != 0) {
		printf("mbufs of the feed leaked\n");
		status = EXIT_FAILURE;
	}
	return status;
}

int
main(int argc, char **argv)
{
	struct config_source source = {.file = NULL};
	struct config *config;
	struct placement way;
	cpu_set_t cpus;
	int own, status = EXIT_FAILURE;

	if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0)
		CPU_ZERO(&cpus);
	own = eal_own_words(argc, argv);
	if (parse(argc - own, argv + own, &source) != 0) {
		fputs(usage, stderr);
		return EXIT_FAILURE;
	}
	status = eal_start("recv_sink_bench", argc, argv, own);
	if (status != EXIT_SUCCESS)
		return status;
	status = EXIT_FAILURE;
	if (is_fed() && (!rte_lcore_is_enabled(it.feed) || it.feed == rte_get_main_lcore())) {
		fprintf(stderr,
			"recv_sink_bench: --feed %u: expected an lcore of -l that is not "
			"the main one, %u\n",
			it.feed, rte_get_main_lcore());
		eal_end();
		return EXIT_FAILURE;
	}
	config = config_open(&source);
	if (config != NULL && settings_read(&it.settings, &it.egress, config) == 0)
		status = run(&way, &cpus);
	config_close(config);
	eal_end();
	return status;
}
