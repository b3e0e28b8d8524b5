/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host gangs alone, with the receiver's configuration: frames of a capture with dead pixels, gain
 * stages and hits, packets at the distance of mbufs, one gang that all workers serve. The cores
 * have no other load. The receiver, which does all its work on them, is compared with this.
 */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <pcap/pcap.h>

#include "bench_capture.h"
#include "bench_rows.h"
#include "calib/calibration.h"
#include "gk.h"
#include "gk_ring.h"

#define BATCH	    8
#define OUTPUTS	    24
#define STRIDE	    8704 /* of packets */
#define WORKERS_MAX 16

static const char usage[] =
	"Usage: gang_bench [--udp-port N] [--modules N] [--workers N] [--seconds S]\n"
	"                  [--strong-min N] [--huge] [--rows FILE] CAPTURE CALIBRATION\n"
	"Frames of a capture of braggline-detector through the host gangs and nothing else.\n"
	"  --udp-port N   of the first module (default 50001)\n"
	"  --modules N    of the detector (default 8)\n"
	"  --workers N    threads of the gang, one a CPU (default 2)\n"
	"  --seconds S    default 2\n"
	"  --strong-min N strong pixels of a hit (default 40)\n"
	"  --huge         memory of large pages, as a receiver without --no-huge has it\n"
	"  --rows FILE    a row for recv_bench.py\n"
	"CALIBRATION is the directory of gain_m%d.bin and so on.\n";

static struct {
	unsigned int udp_port, modules, workers, strong_min;
	double seconds;
	bool huge;
	const char *capture, *calibration;
} options = {.udp_port = 50001, .modules = 8, .workers = 2, .strong_min = 40, .seconds = 2};

static struct {
	struct detector detector;
	struct gk_config config;
	struct gk *gk;
	uint64_t frames_done, kept;
	_Atomic bool stop;
	_Atomic uint64_t cpu_ns;
} it;

static void *
need(uint64_t size)
{
	const uint64_t page = UINT64_C(1) << (options.huge ? 21 : 12);
	void *memory = aligned_alloc(page, (size + page - 1) & ~(page - 1));

	if (memory == NULL) {
		fprintf(stderr, "gang_bench: no memory for %llu bytes\n", (unsigned long long)size);
		exit(1);
	}
	if (options.huge)
		madvise(memory, size, MADV_HUGEPAGE);
	memset(memory, 0, size);
	return memory;
}

static struct gk_frame *
frame_at(uint64_t slot)
{
	return (struct gk_frame *)(it.config.frames + slot * gk_frame_stride(&it.config.geometry));
}

/* Index of the packet. @return false: it is not a packet of this detector */
static bool
put_packet(const uint8_t *b, uint32_t bytes, const uint8_t *pixels)
{
	const struct detector *d = &it.detector;
	const uint8_t *header = b + BENCH_UDP_HEADERS;
	struct detector_packet packet;
	uint32_t stream;

	if (bytes < BENCH_UDP_HEADERS + d->ops->header_bytes + d->ops->pixel_bytes)
		return false;
	stream = ((uint32_t)b[36] << 8 | b[37]) - options.udp_port;
	if (stream >= d->streams)
		return false;
	d->ops->parse(&header, &packet, 1);
	if (packet.packet == DETECTOR_PACKET_BAD || packet.frame == 0 ||
		packet.frame > it.config.nb_frames)
		return false;
	frame_at(packet.frame - 1)->frame = packet.frame;
	frame_at(packet.frame - 1)->packet[detector_stream_tile(d, stream) + packet.packet] =
		(uintptr_t)pixels;
	return true;
}

static pcap_t *
open_capture(void)
{
	char why[PCAP_ERRBUF_SIZE];
	pcap_t *pcap = pcap_open_offline(options.capture, why);

	if (pcap == NULL) {
		fprintf(stderr, "gang_bench: %s\n", why);
		exit(1);
	}
	return pcap;
}

/* All packets in the order of their arrival, as they would lie in a pool. */
static void
load_capture(void)
{
	struct pcap_pkthdr *h;
	const u_char *bytes;
	uint8_t *memory;
	uint64_t n = 0;
	pcap_t *pcap;

	pcap = open_capture();
	while (pcap_next_ex(pcap, &h, &bytes) == 1)
		n++;
	pcap_close(pcap);
	it.config.nb_frames = (uint32_t)(n / it.detector.tiles / BATCH * BATCH);
	if (it.config.nb_frames == 0) {
		fprintf(stderr, "gang_bench: %s: %llu packets; expected %u, %d frames\n",
			options.capture, (unsigned long long)n, it.detector.tiles * BATCH, BATCH);
		exit(1);
	}
	it.config.frames = need(it.config.nb_frames * gk_frame_stride(&it.config.geometry));
	it.config.results = need(it.config.nb_frames * sizeof(*it.config.results));
	memory = need(n * STRIDE);
	pcap = open_capture();
	for (; pcap_next_ex(pcap, &h, &bytes) == 1; memory += STRIDE) {
		if (put_packet(bytes, h->caplen, memory))
			memcpy(memory, bytes + BENCH_UDP_HEADERS + it.detector.ops->header_bytes,
				it.detector.ops->pixel_bytes);
	}
	pcap_close(pcap);
}

static void
load_calibration(void)
{
	struct calibration_files files = {.energy = 12.4};
	static const char *const names[] = {
		"gain", "mask", "pedestal_g0", "pedestal_g1", "pedestal_g2"};
	struct gk_coef *coef = &it.config.channel->coef[0];
	struct calibration c;
	char *path[5];

	for (int i = 0; i < 5; i++)
		if (asprintf(&path[i], "%s/%s_m%%d.bin", options.calibration, names[i]) < 0)
			exit(1);
	files.gain = path[0];
	files.mask = path[1];
	for (int i = 0; i < CALIBRATION_STAGES; i++)
		files.pedestal[i] = path[2 + i];
	if (calibration_load(&c, need(calibration_size(&it.detector)), &files, &it.detector) != 0)
		exit(1); /* the error was printed */
	for (int i = 0; i < CALIBRATION_STAGES; i++) {
		coef->p[i] = (uintptr_t)c.p[i];
		coef->r[i] = (uintptr_t)c.r[i];
	}
	coef->version = 1;
	for (int i = 0; i < 5; i++)
		free(path[i]);
}

static void
open_gang(void)
{
	struct gk_config *c = &it.config;

	gk_layout_init(
		&c->layout, &c->geometry, GK_VALUE_F32, (uint32_t)gk_pixels(&c->geometry) / 8);
	c->value = GK_VALUE_F32;
	c->gangs = 1;
	c->workers = options.workers;
	c->nb_outputs = OUTPUTS;
	c->outputs = need(OUTPUTS * c->layout.stride);
	/* the receiver's default configuration */
	c->channel->params[0] = (struct gk_params){.kind = GK_KIND_CSR,
		.strong_threshold = 10,
		.csr_threshold = 2,
		.strong_min = options.strong_min,
		.strong_max = UINT32_MAX,
		.nnz_max = c->layout.nnz_cap};
	if (gk_host_ops.create(c, &it.gk) != 0 || gk_host_ops.start(it.gk) != 0) {
		fprintf(stderr, "gang_bench: no gang: %s\n", gk_host_ops.why());
		exit(1);
	}
}

static void
pin(unsigned int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	(void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static uint64_t
cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *
work(void *arg)
{
	const unsigned int number = (unsigned int)(uintptr_t)arg;
	const uint64_t begin = cpu_ns();

	pin(number);
	while (!atomic_load_explicit(&it.stop, memory_order_relaxed))
		(void)gk_host_ops.poll(it.gk, 0, number);
	atomic_fetch_add(&it.cpu_ns, cpu_ns() - begin);
	return NULL;
}

/* As in the builder, the next batches are queued before one is done. */
static void
feed(struct gk_ring *ring, uint64_t *next)
{
	while (gk_ring_pending(ring) < OUTPUTS / BATCH) {
		struct gk_work *w = gk_ring_next(ring);

		*w = (struct gk_work){.nb_frames = BATCH};
		for (uint32_t i = 0; i < BATCH; i++, (*next)++) {
			w->slot[i] = (uint32_t)(*next % it.config.nb_frames);
			frame_at(w->slot[i])->out = (uint32_t)(*next % OUTPUTS);
		}
		(void)gk_ring_submit(ring);
	}
}

static void
collect(struct gk_ring *ring)
{
	while (gk_ring_pending(ring) > 0 && gk_ring_is_done(ring, ring->done_tail)) {
		const struct gk_work *w = gk_ring_work(ring, ring->done_tail);

		for (uint32_t i = 0; i < BATCH; i++)
			it.kept += it.config.results[w->slot[i]].kind != GK_KIND_NONE;
		it.frames_done += BATCH;
		gk_ring_collect(ring);
	}
}

static void
run(void)
{
	pthread_t thread[WORKERS_MAX];
	uint64_t next = 0, begin;
	struct gk_ring ring;
	double end;
	unsigned int i;

	gk_ring_init(&ring, it.config.channel, 0);
	pin(0);
	/* one warm-up pass */
	while (it.frames_done < it.config.nb_frames) {
		feed(&ring, &next);
		(void)gk_host_ops.poll(it.gk, 0, 0);
		collect(&ring);
	}
	it.frames_done = it.kept = 0;
	for (i = 1; i < options.workers; i++)
		if (pthread_create(&thread[i], NULL, work, (void *)(uintptr_t)i) != 0)
			exit(1);
	begin = cpu_ns();
	end = now() + options.seconds;
	while (now() < end) {
		feed(&ring, &next);
		for (i = 0; i < 16; i++)
			(void)gk_host_ops.poll(it.gk, 0, 0);
		collect(&ring);
	}
	atomic_store(&it.stop, true);
	atomic_fetch_add(&it.cpu_ns, cpu_ns() - begin);
	for (i = 1; i < options.workers; i++)
		pthread_join(thread[i], NULL);
	while (gk_host_ops.stop(it.gk) == -EBUSY)
		(void)gk_host_ops.poll(it.gk, 0, 0);
}

static int
parse(int argc, char **argv)
{
	static const struct option known[] = {{"udp-port", required_argument, NULL, 'p'},
		{"modules", required_argument, NULL, 'm'},
		{"workers", required_argument, NULL, 'w'},
		{"seconds", required_argument, NULL, 's'},
		{"strong-min", required_argument, NULL, 'b'},
		{"rows", required_argument, NULL, 'o'}, {"huge", no_argument, NULL, 'u'},
		{"help", no_argument, NULL, 'h'}, {0}};
	int option;

	while ((option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
		switch (option) {
		case 'p':
			options.udp_port = (unsigned int)strtoul(optarg, NULL, 0);
			break;
		case 'm':
			options.modules = (unsigned int)strtoul(optarg, NULL, 0);
			break;
		case 'w':
			options.workers = (unsigned int)strtoul(optarg, NULL, 0);
			break;
		case 's':
			options.seconds = strtod(optarg, NULL);
			break;
		case 'b':
			options.strong_min = (unsigned int)strtoul(optarg, NULL, 0);
			break;
		case 'u':
			options.huge = true;
			break;
		case 'o':
			bench_rows_to(optarg);
			break;
		case 'h':
			fputs(usage, stdout);
			exit(0);
		default:
			return -EINVAL;
		}
	}
	if (argc - optind != 2 || options.workers < 1 || options.workers > WORKERS_MAX)
		return -EINVAL;
	options.capture = argv[optind];
	options.calibration = argv[optind + 1];
	return detector_init(&it.detector, &jungfrau_ops, options.modules, 1);
}

int
main(int argc, char **argv)
{
	double cost;

	if (parse(argc, argv) != 0) {
		fputs(usage, stderr);
		return 2;
	}
	it.config.geometry = (struct gk_geometry){.tiles = it.detector.tiles,
		.tile_rows = jungfrau_ops.tile_rows,
		.cols = jungfrau_ops.cols};
	it.config.channel = need(sizeof(*it.config.channel));
	load_capture();
	load_calibration();
	open_gang();
	run();
	cost = 1e-9 * (double)it.cpu_ns / (double)it.frames_done;
	printf("gangs alone, %u workers: %.3f ms of CPU a frame, %.0f frames/s; %.1f %% kept\n",
		options.workers, 1e3 * cost, options.workers / cost,
		100.0 * (double)it.kept / (double)it.frames_done);
	bench_row(&(struct bench_row){.stage = "gang",
		.what = "frames of the detector",
		.value = options.workers / cost,
		.unit = "frames/s"});
	gk_host_ops.destroy(it.gk);
	return 0;
}
