/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host gang kernels on one core, by instruction set, beside the floor: a pass that only reads what
 * they must read - the raw data of every frame, and the G0 coefficients once a batch - and writes
 * as many bytes as they write. Ratio 1 would be the ceiling of memory.
 */

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "bench_median.h"
#include "bench_rows.h"
#include "gk_bench.h"
#include "gk_pixel.h"

#define REPEATS_MAX BENCH_ROUNDS_MAX
#define BATCH_MAX   8

static const char usage[] =
	"Usage: gk_bench [--modules N] [--frames N] [--repeats N] [--isa NAME] [--numpy SCRIPT]\n"
	"                [--rows FILE]\n"
	"Throughput of the host gang kernels on one core, as a table.\n"
	"  --modules N     JUNGFRAU modules of a frame, 1 to 32 (default 8: 4M, 8.4 MB raw)\n"
	"  --frames N      frames of the working set, a multiple of 8 up to 64 (default 8)\n"
	"  --repeats N     passes over the working set; the median counts (default 9)\n"
	"  --isa NAME      only this instruction set: plain, avx2, avx512\n"
	"  --numpy SCRIPT  gk_bench_numpy.py: the same with numpy\n"
	"  --row NAME      only the row that numpy has by this name: count, csr, f32, i16\n"
	"  --rows FILE     rows for bench.py: the best set, batches of 8\n"
	"Columns: GB/s of raw data by the kernel; GB/s of raw data by its floor, a pass that only\n"
	"reads the raw data and, once a batch, the coefficients of G0, and writes what the\n"
	"kernel writes; their ratio; frames/s; speed-up over plain C in the same run.\n"
	"`count` keeps no frame, other rows all; `after the verdict`: which nobody knows before,\n"
	"but gangs guess from the batch before.\n";

static void *
need(uint64_t size)
{
	const uint64_t page = UINT64_C(1) << 21, whole = (size + page - 1) & ~(page - 1);
	void *memory = aligned_alloc(page, whole);

	if (memory == NULL) {
		fprintf(stderr, "gk_bench: no memory for %llu bytes\n", (unsigned long long)size);
		exit(1);
	}
	/* as the receiver's memory is; where it is not to be had, ordinary pages will do */
	madvise(memory, whole, MADV_HUGEPAGE);
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
	for (uint32_t f = 0; f < b->frames; f++) {
		frame_of(b, f)->frame = f;
		frame_of(b, f)->out = f;
		for (uint32_t t = 0; t < g->tiles; t++) {
			uint16_t *raw = packet_of(b, f, t);

			frame_of(b, f)->packet[t] = (uintptr_t)raw;
			for (x = 0; x < (uint64_t)g->tile_rows * g->cols; x++) {
				rng = rng * UINT64_C(6364136223846793005) +
					UINT64_C(1442695040888963407);
				raw[x] = (uint16_t)(3000 + (rng >> 58) +
					((rng >> 32) % 100 == 0 ? 5084 : 0));
			}
		}
	}
}

/* Memory of the working set; output slots fit for any type of values. */
static void
open_bench(struct bench *b, uint32_t modules)
{
	struct gk_config *c = &b->config;
	uint64_t pixels;

	c->geometry = (struct gk_geometry){128 * modules, 4, 1024};
	pixels = gk_pixels(&c->geometry);
	gk_layout_init(&c->layout, &c->geometry, GK_VALUE_F32, (uint32_t)pixels / 16);
	c->gangs = c->workers = 1;
	c->nb_frames = c->nb_outputs = b->frames;
	c->channel = need(sizeof(*c->channel));
	c->frames = need(b->frames * gk_frame_stride(&c->geometry));
	c->results = need(b->frames * sizeof(*c->results));
	c->outputs = need(b->frames * c->layout.stride);
	b->packets = need((uint64_t)b->frames * c->geometry.tiles * packet_stride(&c->geometry));
	for (int s = 0; s < 3; s++) {
		b->p[s] = need(pixels * 4);
		b->r[s] = need(pixels * 4);
		c->channel->coef[0].p[s] = (uintptr_t)b->p[s];
		c->channel->coef[0].r[s] = (uintptr_t)b->r[s];
	}
	fill(b);
}

static int
open_gangs(struct bench *b, enum gk_isa isa, enum gk_value value)
{
	struct gk_config *c = &b->config;
	int ret;

	c->isa = isa;
	c->value = value;
	gk_layout_init(&c->layout, &c->geometry, value, (uint32_t)gk_pixels(&c->geometry) / 16);
	gk_ring_init(&b->ring, c->channel, 0);
	ret = gk_host_ops.create(c, &b->gk);
	if (ret != 0)
		fprintf(stderr, "gk_bench: the host gangs cannot be made: %s\n", gk_host_ops.why());
	return ret;
}

static void
close_bench(struct bench *b)
{
	for (int s = 0; s < 3; s++) {
		free(b->p[s]);
		free(b->r[s]);
	}
	free(b->packets);
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

/* `sure`: every frame is a hit, and that is known beforehand. */
struct row {
	const char *name;
	const char *numpy; /* of gk_bench_numpy.py */
	uint32_t kind;
	enum gk_value value;
	int kept;
	int sure;
	const char *goal;
	double best; /* frames/s of the best set */
};

static struct row rows[] = {
	{"conversion + count", "count", GK_KIND_CSR, GK_VALUE_F32, 0, 0, "ratio >= 0.7"},
	{"conversion + CSR 1 %", "csr", GK_KIND_CSR, GK_VALUE_F32, 1, 1, "ratio >= 0.6"},
	{"conversion + CSR 1 % i16", NULL, GK_KIND_CSR, GK_VALUE_I16, 1, 1, "ratio >= 0.6"},
	{"conversion + f32 image", "f32", GK_KIND_IMAGE, GK_VALUE_F32, 1, 1, "ratio >= 0.6"},
	{"conversion + i16 image", "i16", GK_KIND_IMAGE, GK_VALUE_I16, 1, 1, "ratio >= 0.6"},
	{"f32 image after the verdict", NULL, GK_KIND_IMAGE, GK_VALUE_F32, 1, 0, "ratio >= 0.6"},
	{"i16 image after the verdict", NULL, GK_KIND_IMAGE, GK_VALUE_I16, 1, 0, "ratio >= 0.6"},
	{"count + raw", NULL, GK_KIND_RAW, GK_VALUE_F32, 1, 1, "ratio >= 0.6"},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static void
set_params(struct bench *b, const struct row *row)
{
	b->config.channel->params[0] = (struct gk_params){.kind = row->kind,
		.bragg_threshold = 5.0f,
		.csr_threshold = 5.0f,
		.bragg_min = row->kept ? !row->sure : UINT32_MAX,
		.bragg_max = UINT32_MAX,
		.nnz_max = b->config.layout.nnz_cap};
	for (uint32_t f = 0; f < b->frames; f++)
		frame_of(b, f)->out = row->kept ? f : GK_NO_OUT;
}

static struct floor_writes
writes_of(const struct bench *b, const struct row *row)
{
	struct floor_writes w = {0};

	if (!row->kept)
		return w;
	if (row->kind == GK_KIND_CSR)
		w.nnz = b->config.results[0].nnz;
	else
		w.pixel_bytes = row->kind == GK_KIND_RAW ? 2 : b->config.layout.value_size;
	return w;
}

/* Bytes of memory that a frame moves at least: see floor_run(). */
static double
bytes_of(const struct bench *b, uint32_t batch, const struct floor_writes *w)
{
	const double pixels = (double)gk_pixels(&b->config.geometry);

	return pixels * (2 + 8.0 / batch + w->pixel_bytes) +
		(double)w->nnz * (2 + b->config.layout.value_size);
}

/* What bench.py gets: the best set of this processor, with the largest batch. */
static void
emit_row(const struct bench *b, struct row *row, enum gk_isa isa, uint32_t batch,
	const double speed[3], double plain, const struct floor_writes *w)
{
	const double frame = 2e-9 * (double)gk_pixels(&b->config.geometry);
	char what[80];

	if (batch != BATCH_MAX || isa != (enum gk_isa)gk_isa_choose(GK_ISA_AUTO))
		return;
	row->best = speed[0] / frame;
	bench_row(&(struct bench_row){.stage = "gang",
		.what = row->name,
		.value = row->best,
		.unit = "frames/s",
		.against = "a pass that reads and writes as much",
		.other = speed[1] / frame,
		.ratio = speed[2],
		.goal = row->goal,
		.bytes = bytes_of(b, batch, w)});
	if (row->numpy == NULL || plain <= 0)
		return;
	snprintf(what, sizeof(what), "%s, %s beside C", row->name, gk_isa_name(isa));
	bench_row(&(struct bench_row){.stage = "gang",
		.what = what,
		.value = speed[0] / frame,
		.unit = "frames/s",
		.against = "plain C",
		.other = plain / frame});
}

/* @param plain  GB/s of plain C, which comes first; set by it */
static int
run_row(struct bench *b, struct row *row, enum gk_isa isa, uint32_t batch, double *plain)
{
	const double raw = 2e-9 * (double)gk_pixels(&b->config.geometry) * b->frames;
	double gang[REPEATS_MAX], least[REPEATS_MAX], ratio[REPEATS_MAX];
	double median[3];
	struct floor_writes writes;
	int ret;

	ret = open_gangs(b, isa, row->value);
	if (ret != 0)
		return ret;
	set_params(b, row);
	ret = gk_host_ops.start(b->gk);
	if (ret != 0)
		return ret;
	/* once to warm up; then turn about, so that both see the same machine */
	run_gang(b, batch);
	writes = writes_of(b, row);
	for (uint32_t i = 0; i < b->repeats; i++) {
		gang[i] = raw / run_gang(b, batch);
		least[i] = raw / floor_run(b, batch, &writes);
		ratio[i] = gang[i] / least[i];
	}
	ret = gk_host_ops.stop(b->gk);
	gk_host_ops.destroy(b->gk);
	median[0] = bench_median(gang, b->repeats);
	median[1] = bench_median(least, b->repeats);
	median[2] = bench_median(ratio, b->repeats);
	if (isa == GK_ISA_PLAIN)
		*plain = median[0];
	emit_row(b, row, isa, batch, median, *plain, &writes);
	printf("%-28s %-7s %5u %8.2f %10.2f %7.2f %10.1f", row->name, gk_isa_name(isa), batch,
		median[0], median[1], median[2], median[0] / raw * b->frames);
	if (*plain > 0)
		printf(" %8.1f\n", median[0] / *plain);
	else
		printf("        -\n");
	return ret;
}

static void
print_numpy(const struct row *row, double raw, double frame_seconds)
{
	char what[80];

	printf("%-28s %-7s %5u %8.2f %10s %7s %10.1f\n", row->name, "numpy", 1, raw / frame_seconds,
		"-", "-", 1 / frame_seconds);
	snprintf(what, sizeof(what), "%s, beside numpy", row->name);
	bench_row(&(struct bench_row){.stage = "gang",
		.what = what,
		.value = row->best,
		.unit = "frames/s",
		.against = "numpy",
		.other = 1 / frame_seconds});
}

/* Rows of another program, single-threaded as all others here, with its own working set. */
static int
run_numpy(const struct bench *b, const char *script)
{
	const double raw = 2e-9 * (double)gk_pixels(&b->config.geometry);
	char line[256], name[16];
	double frame_seconds;
	int status;
	FILE *f;

	snprintf(line, sizeof(line), "OMP_NUM_THREADS=1 '%s' %u %u", script,
		b->config.geometry.tiles / 128, b->repeats < 3 ? b->repeats : 3);
	fflush(stdout);
	f = popen(line, "r");
	if (f == NULL)
		return -errno;
	while (fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "%15s %lf", name, &frame_seconds) != 2) {
			fputs(line, stdout);
			continue;
		}
		for (size_t i = 0; i < ROWS; i++)
			if (rows[i].numpy != NULL && strcmp(rows[i].numpy, name) == 0)
				print_numpy(&rows[i], raw, frame_seconds);
	}
	status = pclose(f);
	if (status == 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 77))
		return 0;
	fprintf(stderr, "gk_bench: %s: exit status %d\n", script, status);
	return -EIO;
}

static int
parse(int argc, char **argv, struct bench *b, uint32_t *modules, enum gk_isa *only,
	const char **script)
{
	static const struct option options[] = {{"modules", required_argument, NULL, 'm'},
		{"frames", required_argument, NULL, 'f'}, {"repeats", required_argument, NULL, 'r'},
		{"isa", required_argument, NULL, 'i'}, {"numpy", required_argument, NULL, 'n'},
		{"row", required_argument, NULL, 'w'}, {"rows", required_argument, NULL, 'o'},
		{"help", no_argument, NULL, 'h'}, {0}};
	int option;

	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		const uint32_t n = optarg != NULL ? (uint32_t)strtoul(optarg, NULL, 0) : 0;
		int isa = GK_ISA_PLAIN;

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
		case 'i':
			while (isa < GK_ISAS && strcmp(gk_isa_name(isa), optarg) != 0)
				isa++;
			if (isa == GK_ISAS) {
				fprintf(stderr, "gk_bench: isa %s: no such set\n", optarg);
				return -EINVAL;
			}
			*only = isa;
			break;
		case 'n':
			*script = optarg;
			break;
		case 'w':
			b->only_row = optarg;
			break;
		case 'o':
			bench_rows_to(optarg);
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

/* All instruction sets of a row and a batch. */
static int
run_sets(struct bench *b, struct row *row, enum gk_isa only, uint32_t batch)
{
	double plain = 0;
	int ret = 0;

	for (int isa = GK_ISA_PLAIN; isa < GK_ISAS && ret == 0; isa++) {
		if (only != GK_ISA_AUTO && only != (enum gk_isa)isa)
			continue;
		if (gk_isa_choose(isa) < 0) {
			printf("%-28s %-7s skipped: this processor has it not\n", row->name,
				gk_isa_name(isa));
			continue;
		}
		ret = run_row(b, row, isa, batch, &plain);
	}
	return ret;
}

int
main(int argc, char **argv)
{
	static const uint32_t batches[] = {1, BATCH_MAX};
	struct bench b = {.frames = 8, .repeats = 9};
	enum gk_isa only = GK_ISA_AUTO;
	const char *script = NULL;
	uint32_t modules = 8;
	int ret = 0;

	if (parse(argc, argv, &b, &modules, &only, &script) != 0)
		return 1;
	open_bench(&b, modules);
	printf("host gangs, 1 core; %u frames of %u modules: %.1f MB raw, %.1f MB G0 coefficients; "
	       "median of %u\n",
		b.frames, modules, 2e-6 * (double)gk_pixels(&b.config.geometry) * b.frames,
		8e-6 * (double)gk_pixels(&b.config.geometry), b.repeats);
	printf("%-28s %-7s %5s %8s %10s %7s %10s %8s\n", "what", "isa", "batch", "GB/s",
		"floor GB/s", "ratio", "frames/s", "x plain");
	for (size_t i = 0; i < ROWS && ret == 0; i++)
		for (size_t k = 0; k < sizeof(batches) / sizeof(batches[0]) && ret == 0; k++)
			if (b.only_row == NULL ||
				(rows[i].numpy != NULL && !strcmp(rows[i].numpy, b.only_row)))
				ret = run_sets(&b, &rows[i], only, batches[k]);
	if (ret == 0 && script != NULL)
		ret = run_numpy(&b, script);
	close_bench(&b);
	return ret != 0;
}
