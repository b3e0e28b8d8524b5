/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host gang kernels on one core, beside a pass that only reads what they must read: the raw data
 * of every frame, and the G0 coefficients once a batch. Ratio 1 would be the ceiling of memory.
 */

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gk.h"
#include "gk_pixel.h"
#include "gk_ring.h"

#define REPEATS_MAX 100

struct bench {
	struct gk_config config;
	struct gk *gk;
	struct gk_ring ring;
	uint16_t *raw;
	float *p[3];
	float *r[3];
	uint32_t frames; /* all of them, the working set */
	uint32_t repeats;
};

static const char usage[] =
	"Usage: gk_bench [--modules N] [--frames N] [--repeats N]\n"
	"Throughput of the host gang kernels on one core, as a table.\n"
	"  --modules N   JUNGFRAU modules of a frame, 1 to 32 (default 8: 4M, 8.4 MB raw)\n"
	"  --frames N    frames of the working set, a multiple of 8 up to 64 (default 8)\n"
	"  --repeats N   passes over the working set; the median counts (default 5)\n"
	"Columns: GB/s of raw data by the kernel; GB/s of raw data by a pass that only reads the\n"
	"raw data and, once a batch, the coefficients of G0; their ratio; frames/s.\n";

static double
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int
compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void *
need(uint64_t size)
{
	void *memory = aligned_alloc(4096, (size + 4095) & ~UINT64_C(4095));

	if (memory == NULL) {
		fprintf(stderr, "gk_bench: no memory for %llu bytes\n", (unsigned long long)size);
		exit(1);
	}
	memset(memory, 0, size); /* touched: the kernel's zero page would be one cache line set */
	return memory;
}

static struct gk_frame *
frame_of(const struct bench *b, uint32_t slot)
{
	return (struct gk_frame *)(b->config.frames + slot * gk_frame_stride(&b->config.geometry));
}

/* Background of a few photons' worth of noise, 1 % of pixels with 10 photons, all in G0. */
static void
fill(struct bench *b)
{
	const uint64_t pixels = gk_pixels(&b->config.geometry);
	const struct gk_geometry *g = &b->config.geometry;
	uint64_t x, rng = 1;

	for (x = 0; x < pixels; x++) {
		for (int s = 0; s < 3; s++) {
			b->p[s][x] = s == 0 ? 3000.0f + (float)(x % 64) : 15000.0f;
			b->r[s][x] = s == 0 ? 1.0f / (508.4f + (float)(x % 32)) : -0.05f;
		}
	}
	for (x = 0; x < pixels * b->frames; x++) {
		rng = rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		b->raw[x] = (uint16_t)(3000 + (rng >> 58) + ((rng >> 32) % 100 == 0 ? 5084 : 0));
	}
	for (uint32_t f = 0; f < b->frames; f++) {
		frame_of(b, f)->frame = f;
		frame_of(b, f)->out = f;
		for (uint32_t t = 0; t < g->tiles; t++)
			frame_of(b, f)->packet[t] = (uintptr_t)(b->raw + f * pixels +
				(uint64_t)t * g->tile_rows * g->cols);
	}
}

static int
open_bench(struct bench *b, uint32_t modules)
{
	struct gk_config *c = &b->config;
	char why[256] = "";
	uint64_t pixels;

	c->geometry = (struct gk_geometry){128 * modules, 4, 1024};
	pixels = gk_pixels(&c->geometry);
	c->value = GK_VALUE_F32;
	gk_layout_init(&c->layout, &c->geometry, c->value, (uint32_t)pixels / 16);
	c->gangs = c->workers = 1;
	c->nb_frames = c->nb_outputs = b->frames;
	c->channel = need(sizeof(*c->channel));
	c->frames = need(b->frames * gk_frame_stride(&c->geometry));
	c->results = need(b->frames * sizeof(*c->results));
	c->outputs = need(b->frames * c->layout.stride);
	b->raw = need(b->frames * pixels * 2);
	for (int s = 0; s < 3; s++) {
		b->p[s] = need(pixels * 4);
		b->r[s] = need(pixels * 4);
		c->channel->coef[0].p[s] = (uintptr_t)b->p[s];
		c->channel->coef[0].r[s] = (uintptr_t)b->r[s];
	}
	fill(b);
	gk_ring_init(&b->ring, c->channel, 0);
	if (gk_config_check(c, why, sizeof(why)) != 0) {
		fprintf(stderr, "gk_bench: %s\n", why);
		return -EINVAL;
	}
	return gk_host_ops.create(c, &b->gk);
}

static void
close_bench(struct bench *b)
{
	gk_host_ops.destroy(b->gk);
	for (int s = 0; s < 3; s++) {
		free(b->p[s]);
		free(b->r[s]);
	}
	free(b->raw);
	free(b->config.channel);
	free(b->config.frames);
	free(b->config.results);
	free(b->config.outputs);
}

/* All frames through the gang, in batches. @return seconds */
static double
run_gang(struct bench *b, uint32_t batch)
{
	const double start = seconds();

	for (uint32_t f = 0; f < b->frames; f += batch) {
		struct gk_work *work = gk_ring_next(&b->ring);
		uint32_t number;

		*work = (struct gk_work){.nb_frames = batch};
		for (uint32_t i = 0; i < batch; i++)
			work->slot[i] = f + i;
		number = gk_ring_submit(&b->ring);
		while (!gk_ring_is_done(&b->ring, number)) {
			if (!gk_host_ops.poll(b->gk, 0, 0)) {
				fprintf(stderr, "gk_bench: the gang has stopped: error %d\n",
					gk_ring_error(&b->ring));
				exit(1);
			}
		}
		gk_ring_collect(&b->ring);
	}
	return seconds() - start;
}

/* Sums keep the loads; the loop becomes 16-byte loads and adds. */
static uint64_t
read_all(const void *memory, uint64_t bytes)
{
	const uint64_t *w = memory;
	uint64_t sum = 0;

	for (uint64_t i = 0; i < bytes / sizeof(*w); i++)
		sum += w[i];
	return sum;
}

/* The same tiles in the same order, read only. @return seconds */
static double
run_read(const struct bench *b, uint32_t batch)
{
	const struct gk_geometry *g = &b->config.geometry;
	const uint64_t tile = (uint64_t)g->tile_rows * g->cols;
	static volatile uint64_t sink;
	const double start = seconds();
	uint64_t sum = 0;

	for (uint32_t f = 0; f < b->frames; f += batch) {
		for (uint32_t t = 0; t < g->tiles; t++) {
			sum += read_all(b->p[0] + t * tile, tile * 4);
			sum += read_all(b->r[0] + t * tile, tile * 4);
			for (uint32_t i = 0; i < batch; i++)
				sum += read_all(b->raw + ((f + i) * (uint64_t)g->tiles + t) * tile,
					tile * 2);
		}
	}
	sink = sum;
	(void)sink;
	return seconds() - start;
}

struct row {
	const char *name;
	uint32_t kind;
	uint32_t flags;
	int hit;
};

static int
run_row(struct bench *b, const struct row *row, uint32_t batch)
{
	const double raw = 2e-9 * (double)gk_pixels(&b->config.geometry) * b->frames;
	struct gk_params *params = &b->config.channel->params[0];
	double gang[REPEATS_MAX], read[REPEATS_MAX], kept;
	int ret;

	*params = (struct gk_params){.kind = row->kind,
		.bragg_threshold = 5.0f,
		.csr_threshold = 5.0f,
		.bragg_min = row->hit ? 0 : UINT32_MAX,
		.bragg_max = UINT32_MAX,
		.nnz_max = b->config.layout.nnz_cap};
	for (uint32_t f = 0; f < b->frames; f++)
		frame_of(b, f)->flags = row->flags;
	ret = gk_host_ops.start(b->gk);
	if (ret != 0)
		return ret;
	/* once to warm up; then turn about, so that both see the same machine */
	run_gang(b, batch);
	for (uint32_t i = 0; i < b->repeats; i++) {
		gang[i] = raw / run_gang(b, batch);
		read[i] = raw / run_read(b, batch);
	}
	ret = gk_host_ops.stop(b->gk);
	qsort(gang, b->repeats, sizeof(gang[0]), compare);
	qsort(read, b->repeats, sizeof(read[0]), compare);
	kept = 100.0 * b->config.results[0].nnz / (double)gk_pixels(&b->config.geometry);
	printf("%-28s %5u %8.2f %10.2f %7.2f %10.1f   %.2f %%\n", row->name, batch,
		gang[b->repeats / 2], read[b->repeats / 2],
		gang[b->repeats / 2] / read[b->repeats / 2], gang[b->repeats / 2] / raw * b->frames,
		row->hit ? kept : 0.0);
	return ret;
}

static int
parse(int argc, char **argv, struct bench *b, uint32_t *modules)
{
	static const struct option options[] = {{"modules", required_argument, NULL, 'm'},
		{"frames", required_argument, NULL, 'f'}, {"repeats", required_argument, NULL, 'r'},
		{"help", no_argument, NULL, 'h'}, {0}};
	int option;

	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		const uint32_t n = optarg != NULL ? (uint32_t)strtoul(optarg, NULL, 0) : 0;

		switch (option) {
		case 'm':
			*modules = n;
			break;
		case 'f':
			b->frames = n;
			break;
		case 'r':
			b->repeats = n;
			break;
		case 'h':
			fputs(usage, stdout);
			exit(0);
		default:
			fputs(usage, stderr);
			return -EINVAL;
		}
	}
	if (*modules < 1 || *modules > 32 || b->frames < 8 || b->frames > 64 ||
		b->frames % 8 != 0 || b->repeats < 1 || b->repeats > REPEATS_MAX) {
		fprintf(stderr,
			"gk_bench: modules %u, frames %u, repeats %u; wanted 1 to 32, a multiple "
			"of 8 up to 64, 1 to %d\n",
			*modules, b->frames, b->repeats, REPEATS_MAX);
		return -EINVAL;
	}
	return 0;
}

int
main(int argc, char **argv)
{
	static const struct row rows[] = {
		{"conversion + count", GK_KIND_CSR, 0, 0},
		{"conversion + count + CSR", GK_KIND_CSR, 0, 1},
		{"conversion + f32 image", GK_KIND_IMAGE, 0, 1},
		{"count + raw hand-over", GK_KIND_RAW, 0, 1},
	};
	static const uint32_t batches[] = {1, 8};
	struct bench b = {.frames = 8, .repeats = 5};
	uint32_t modules = 8;
	int ret;

	if (parse(argc, argv, &b, &modules) != 0)
		return 1;
	ret = open_bench(&b, modules);
	if (ret != 0) {
		fprintf(stderr, "gk_bench: the host gangs cannot be made: %s\n", strerror(-ret));
		return 1;
	}
	printf("host gangs, 1 core; %u frames of %u modules: %.1f MB raw, %.1f MB G0 coefficients; "
	       "median of %u\n",
		b.frames, modules, 2e-6 * (double)gk_pixels(&b.config.geometry) * b.frames,
		8e-6 * (double)gk_pixels(&b.config.geometry), b.repeats);
	printf("%-28s %5s %8s %10s %7s %10s   %s\n", "what", "batch", "GB/s", "read GB/s", "ratio",
		"frames/s", "kept");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && ret == 0; i++)
		for (size_t k = 0; k < sizeof(batches) / sizeof(batches[0]) && ret == 0; k++)
			ret = run_row(&b, &rows[i], batches[k]);
	close_bench(&b);
	return ret != 0;
}
