/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CUDA gangs with prebuilt descriptors. Measures the time of a frame from GPU memory and from
 * registered host memory, compared with reads of the same packets in the same run; the latency from
 * doorbell to verdict; and alternatives: stream memory operations, cuSPARSE.
 */

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_median.h"
#include "gk_cuda_bench.h"
#include "gk_cuda_bench_image.h"

static const char usage[] =
	"Usage: gk_cuda_bench [--modules N] [--seconds S] [--repeats N] [--rows N] [--shots N]\n"
	"CUDA gangs on the first GPU, as tables. Exit status 77: there is no GPU.\n"
	"  --modules N   JUNGFRAU modules of a frame, 1 to 32 (default 8: 4M, 8.4 MB raw)\n"
	"  --seconds S   of one measurement (default 0.3)\n"
	"  --repeats N   measurements of a row; the median counts (default 5)\n"
	"  --rows WHAT   any of d (GPU memory), h (host memory), l (latency), p (peers),\n"
	"                s (search for peaks in a share of the frames), r (radial profiles),\n"
	"                c (compressed raw frames, those of BRAGGLINE_DATA/jungfrau if set;\n"
	"                default dhlp)\n"
	"  --shots N     of a latency (default 100000, at most 1000000)\n";

struct row {
	const char *what;
	uint32_t kind;
	int hit;
	enum outputs outputs;
	enum gk_value value;
	uint32_t chunks; /* gk_params.chunks */
};

/* Background with noise of a few photons, 1 % of pixels with 10 photons, peaks, all in G0. */
static void
fill(struct bench *b)
{
	uint64_t rng = 1;

	for (uint64_t x = 0; x < b->pixels; x++) {
		for (int s = 0; s < 3; s++) {
			float *p = b->planes + 2 * s * b->pixels, *r = p + b->pixels;

			p[x] = s == 0 ? 3000.0f + (float)(x % 64) : 15000.0f;
			r[x] = s == 0 ? 1.0f / (508.4f + (float)(x % 32)) : -0.05f;
		}
	}
	for (uint64_t x = 0; x < b->pixels * BENCH_FRAMES; x++) {
		rng = rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		b->host_raw[x] =
			(uint16_t)(3000 + (rng >> 58) + ((rng >> 32) % 100 == 0 ? 5084 : 0));
	}
	for (uint32_t f = 0; f < BENCH_FRAMES; f++) {
		const uint32_t n = BENCH_PEAKS / (f % 10 == 0 ? 1 : f % 2 == 0 ? 2 : 3);

		for (uint32_t i = 0; i < n; i++) {
			uint16_t *at = b->host_raw + f * b->pixels +
				(i * UINT64_C(2000003) + f * 7919) % (b->pixels - 1);

			at[0] = at[1] = 15000;
		}
	}
}

static CUdeviceptr_v2
upload(struct bench *b, const void *from, uint64_t size)
{
	CUdeviceptr_v2 at;

	CHECK(b, cuMemAlloc(&at, size));
	CHECK(b, cuMemcpyHtoDAsync(at, from, size, b->stream));
	CHECK(b, cuStreamSynchronize(b->stream));
	return at;
}

static void
open_bench(struct bench *b, uint32_t modules)
{
	const uint64_t tile = 4 * 1024;
	uint64_t *table;
	CUdevice_v1 device;

	CHECK(b, cuDeviceGet(&device, 0));
	CHECK(b, cuDeviceGetName(b->gpu, sizeof(b->gpu), device));
	CHECK(b,
		cuDeviceGetAttribute(
			&b->processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
	CHECK(b, cuDevicePrimaryCtxRetain(&b->context, device));
	CHECK(b, cuCtxPushCurrent(b->context));
	CHECK(b, cuStreamCreate(&b->stream, CU_STREAM_NON_BLOCKING));
	CHECK(b, cuModuleLoadData(&b->module, gk_cuda_bench_image));
	CHECK(b, cuModuleGetFunction(&b->read, b->module, "bench_read"));
	CHECK(b, cuModuleGetFunction(&b->both, b->module, "bench_both"));
	b->geometry = (struct gk_geometry){128 * modules, 4, 1024};
	b->pixels = gk_pixels(&b->geometry);
	b->host_raw = bench_memory(b, BENCH_FRAMES * b->pixels * 2);
	b->planes = bench_memory(b, 6 * b->pixels * 4);
	b->shots = calloc(BENCH_SHOTS, sizeof(*b->shots));
	fill(b);
	b->device_raw = (uint16_t *)(uintptr_t)upload(b, b->host_raw, BENCH_FRAMES * b->pixels * 2);
	b->device_planes = upload(b, b->planes, 6 * b->pixels * 4);
	table = malloc(BENCH_FRAMES * b->geometry.tiles * sizeof(*table));
	for (uint64_t i = 0; i < BENCH_FRAMES * b->geometry.tiles; i++)
		table[i] = (uintptr_t)(b->host_raw + i * tile);
	b->host_table = upload(b, table, BENCH_FRAMES * b->geometry.tiles * sizeof(*table));
	for (uint64_t i = 0; i < BENCH_FRAMES * b->geometry.tiles; i++)
		table[i] = (uintptr_t)(b->device_raw + i * tile);
	b->device_table = upload(b, table, BENCH_FRAMES * b->geometry.tiles * sizeof(*table));
	b->sink = upload(b, table, 4);
	free(table);
}

/* One line of the table: a row with one layout. @return frames/s */
static double
measure(struct bench *b, const struct row *row, enum gk_memory packets, uint32_t gangs,
	uint32_t workers, uint32_t batch, double read)
{
	const double mb = 2e-6 * (double)b->pixels;
	double seconds, rate[64], kept;
	struct player p;
	uint64_t n;

	if (player_open(&p, b, gangs, workers, packets, row->outputs, row->value) != 0)
		exit(1);
	player_params(&p, row->kind, row->chunks, row->hit);
	n = BENCH_FRAMES * 4;
	seconds = player_run(&p, batch, n); /* warm-up: packs the coefficients */
	seconds = player_run(&p, batch, n);
	n = (uint64_t)((double)n * b->seconds / seconds) / BENCH_FRAMES * BENCH_FRAMES +
		BENCH_FRAMES;
	for (int i = 0; i < b->repeats; i++)
		rate[i] = (double)n / player_run(&p, batch, n);
	bench_sort(rate, (unsigned int)b->repeats);
	kept = row->hit ? row->kind == GK_KIND_CSR
			? 100.0 * p.config.results[0].nnz / (double)b->pixels
			: 100.0
			: 0.0;
	printf("%-34s %2u x %3s%-3u %5u %9.2f %8.2f..%-8.2f %10.0f %8.1f %7.3f %8.2f\n", row->what,
		gangs, workers == 0 ? "max" : "", workers, batch, 1e6 / rate[b->repeats / 2],
		1e6 / rate[b->repeats - 1], 1e6 / rate[0], rate[b->repeats / 2],
		1e-3 * mb * rate[b->repeats / 2], 1e-3 * mb * rate[b->repeats / 2] / read, kept);
	fflush(stdout);
	player_close(&p);
	return rate[b->repeats / 2];
}

static void
head(const char *of, double read)
{
	printf("\n%s; bare read %.1f GB/s\n", of, read);
	printf("%-34s %-11s %5s %9s %18s %10s %8s %7s %8s\n", "what", "gangs", "batch", "us/frame",
		"fastest..slowest", "frames/s", "GB/s", "of read", "kept %");
}

static double
best_read(struct bench *b, int host)
{
	static const uint32_t blocks[] = {32, 64, 132, 264, 528};
	double best = 0, gb;

	for (int i = 0; i < 5; i++) {
		gb = bench_read(b, host, blocks[i]);
		best = gb > best ? gb : best;
	}
	return best;
}

static void
device_rows(struct bench *b)
{
	static const struct row rows[] = {
		{"conversion + count", GK_KIND_CSR, 0, OUTPUTS_DEVICE, GK_VALUE_F32},
		{"+ CSR, all frames kept", GK_KIND_CSR, 1, OUTPUTS_DEVICE, GK_VALUE_F32},
		{"+ f32 image, all frames kept", GK_KIND_IMAGE, 1, OUTPUTS_DEVICE, GK_VALUE_F32},
		{"+ i16 image, all frames kept", GK_KIND_IMAGE, 1, OUTPUTS_DEVICE, GK_VALUE_I16},
		{"+ raw, all frames kept", GK_KIND_RAW, 1, OUTPUTS_DEVICE, GK_VALUE_F32},
	};
	static const uint32_t layouts[][2] = {{1, 16}, {2, 16}, {2, 8}, {4, 16}, {4, 8}, {8, 8}};
	const double read = best_read(b, 0);

	head("packets and outputs in GPU memory", read);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (size_t k = 0; k < sizeof(layouts) / sizeof(layouts[0]); k++)
			if (i < 3 || k == 1 || k == 2)
				measure(b, &rows[i], GK_MEMORY_DEVICE, layouts[k][0], 0,
					layouts[k][1], read);
}

static void
host_rows(struct bench *b)
{
	static const struct row rows[] = {
		{"conversion + count", GK_KIND_CSR, 0, OUTPUTS_NONE, GK_VALUE_F32},
		{"+ CSR to host, all frames kept", GK_KIND_CSR, 1, OUTPUTS_HOST, GK_VALUE_F32},
		{"+ CSR to GPU, all frames kept", GK_KIND_CSR, 1, OUTPUTS_DEVICE, GK_VALUE_F32},
	};
	static const uint32_t layouts[][3] = {
		{1, 32, 4}, {1, 64, 4}, {1, 0, 4}, {2, 32, 4}, {2, 64, 4}, {2, 64, 1}, {2, 0, 4}};
	const double read = best_read(b, 1);

	head("packets in registered host memory", read);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (size_t k = 0; k < sizeof(layouts) / sizeof(layouts[0]); k++)
			if (i == 0 || k == 4 || k == 6)
				measure(b, &rows[i], GK_MEMORY_HOST, layouts[k][0], layouts[k][1],
					layouts[k][2], read);
}

/*
 * Replace the frames by real ones of one module, each module of a frame by another; without them by
 * words of which 13 bits are noise.
 */
static const char *
fill_real(struct bench *b)
{
	const uint64_t module = 512 * 1024;
	const char *folder = getenv("BRAGGLINE_DATA");
	uint64_t rng = 1;
	char path[600];
	FILE *f;

	for (uint64_t i = 0; i < b->pixels * BENCH_FRAMES; i++) {
		rng = rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		b->host_raw[i] = (uint16_t)(rng >> 51);
	}
	for (uint32_t n = 0; folder != NULL && n < 6; n++) {
		snprintf(path, sizeof(path), "%s/jungfrau/mod5_raw%u.bin", folder, n);
		f = fopen(path, "rb");
		if (f == NULL || fread(b->host_raw + n * module, 2 * module, 1, f) != 1)
			folder = NULL;
		if (f != NULL)
			fclose(f);
	}
	/* from the end, because the frames are at the begin */
	for (uint64_t i = BENCH_FRAMES * b->pixels / module; folder != NULL && i-- > 6;)
		memcpy(b->host_raw + i * module, b->host_raw + i % 6 * module, 2 * module);
	CHECK(b,
		cuMemcpyHtoDAsync((uintptr_t)b->device_raw, b->host_raw,
			2 * b->pixels * BENCH_FRAMES, b->stream));
	CHECK(b, cuStreamSynchronize(b->stream));
	return folder != NULL ? "real frames" : "13 bits of noise";
}

static double
chunk_share(struct bench *b)
{
	uint64_t bytes = 0;
	struct player p;

	if (player_open(&p, b, 1, 0, GK_MEMORY_DEVICE, OUTPUTS_DEVICE, GK_VALUE_F32) != 0)
		exit(1);
	player_params(&p, GK_KIND_RAW, 1u << GK_KIND_RAW, 1);
	player_run(&p, 8, BENCH_FRAMES);
	for (uint32_t f = 0; f < BENCH_FRAMES; f++)
		bytes += p.config.details[f].chunk_bytes;
	player_close(&p);
	return (double)bytes / (2.0 * (double)b->pixels * BENCH_FRAMES);
}

/* Raw frames as chunks, all kept: from and to GPU memory, and over the bus both ways. */
static void
chunk_rows(struct bench *b)
{
	static const struct row far = {"raw chunks over the bus and back", GK_KIND_RAW, 1,
		OUTPUTS_HOST, GK_VALUE_F32, 1u << GK_KIND_RAW};
	static const struct row plain = {
		"plain raw over the bus and back", GK_KIND_RAW, 1, OUTPUTS_HOST, GK_VALUE_F32, 0};
	static const struct row near = {"raw chunks in GPU memory", GK_KIND_RAW, 1, OUTPUTS_DEVICE,
		GK_VALUE_F32, 1u << GK_KIND_RAW};
	static const struct row count = {"count of these frames", GK_KIND_CSR, 0, OUTPUTS_DEVICE,
		GK_VALUE_F32, 1u << GK_KIND_RAW};
	static const uint32_t layouts[][3] = {{1, 0, 4}, {1, 0, 16}, {2, 0, 1}, {2, 0, 4},
		{2, 0, 8}, {3, 0, 4}, {4, 0, 4}, {4, 0, 16}, {8, 0, 2}, {8, 0, 4}, {8, 0, 16},
		{12, 0, 1}, {12, 0, 2}, {12, 0, 4}, {12, 0, 8}};
	static const uint32_t blocks[] = {32, 64, 132, 264, 528};
	const char *frames = fill_real(b);
	const double mb = 2e-6 * (double)b->pixels;
	double share, best = 0, rate;

	b->chunks = 1;
	share = chunk_share(b);

	for (int i = 0; i < 5; i++) {
		rate = bench_both(b, share, blocks[i]);
		printf("one kernel of %u blocks, reads and writes %.3f back: %.0f frames/s\n",
			blocks[i], share, rate);
		best = rate > best ? rate : best;
	}
	printf("\n%s, chunks of %.4f of their bytes; `of read`: of %.0f frames/s of that kernel",
		frames, share, best);
	head("", 1e-3 * mb * best);
	for (size_t k = 0; k < sizeof(layouts) / sizeof(layouts[0]); k++)
		measure(b, &far, GK_MEMORY_HOST, layouts[k][0], layouts[k][1], layouts[k][2],
			1e-3 * mb * best);
	measure(b, &plain, GK_MEMORY_HOST, 2, 0, 4, 1e-3 * mb * best);
	for (size_t k = 0; k < sizeof(layouts) / sizeof(layouts[0]); k++)
		measure(b, &near, GK_MEMORY_DEVICE, layouts[k][0], layouts[k][1], layouts[k][2],
			1e-3 * mb * best);
	for (size_t k = 0; k < sizeof(layouts) / sizeof(layouts[0]); k++)
		measure(b, &count, GK_MEMORY_DEVICE, layouts[k][0], layouts[k][1], layouts[k][2],
			1e-3 * mb * best);
}

/* The share of frames in the search, against no search and no map of pixels. */
static void
search_rows(struct bench *b)
{
	static const struct {
		const char *what;
		enum gk_search search;
		uint32_t peaks; /* least number of a frame's in the search */
	} rows[] = {
		{"no map of pixels", GK_SEARCH_NONE, 0},
		{"no search", GK_SEARCH_NONE, 0},
		{"10 % of frames searched", GK_SEARCH_STRONG, BENCH_PEAKS * 3 / 4},
		{"50 % of frames searched", GK_SEARCH_STRONG, BENCH_PEAKS * 5 / 12},
		{"100 % of frames searched", GK_SEARCH_ALL, 0},
	};
	static const uint32_t layouts[][2] = {{1, 16}, {2, 8}, {4, 8}};
	struct player p;

	printf("\nsearch for peaks, all frames rejected, peaks of the frames: %d, %d and %d\n"
	       "%-28s %-6s %-6s %5s %9s %10s %10s\n",
		BENCH_PEAKS, BENCH_PEAKS / 2, BENCH_PEAKS / 3, "what", "memory", "gangs", "batch",
		"us/frame", "frames/s", "searched %");
	for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (i == 1)
			search_map(b);
		for (uint32_t k = 0; k < 2 * sizeof(layouts) / sizeof(layouts[0]); k++) {
			const uint32_t *l = layouts[k / 2], host = k % 2;
			uint32_t searched = 0;
			double rate[64];
			uint64_t n = BENCH_FRAMES;

			if (player_open(&p, b, l[0], 0, host ? GK_MEMORY_HOST : GK_MEMORY_DEVICE,
				    OUTPUTS_NONE, GK_VALUE_F32) != 0)
				exit(1);
			player_search(&p, rows[i].search, 2 * rows[i].peaks);
			player_run(&p, l[1], n);
			n = (uint64_t)((double)n * b->seconds / player_run(&p, l[1], n)) /
					BENCH_FRAMES * BENCH_FRAMES +
				BENCH_FRAMES;
			for (int r = 0; r < b->repeats; r++)
				rate[r] = (double)n / player_run(&p, l[1], n);
			bench_sort(rate, (unsigned int)b->repeats);
			for (uint32_t f = 0; f < BENCH_FRAMES; f++)
				searched += p.config.results[f].peaks_found != GK_NOT_SEARCHED;
			printf("%-28s %-6s %-6u %5u %9.2f %10.0f %10.0f\n", rows[i].what,
				host ? "host" : "GPU", l[0], l[1], 1e6 / rate[b->repeats / 2],
				rate[b->repeats / 2], 100.0 * searched / BENCH_FRAMES);
			fflush(stdout);
			player_close(&p);
		}
	}
}

/* Photons in most pixels, or in 1 % of them. */
static void
set_gain(struct bench *b, float adu)
{
	float *r = b->planes + b->pixels;

	for (uint64_t x = 0; x < b->pixels; x++)
		r[x] = 1.0f / (adu + 0.1f * (float)(x % 32));
	CHECK(b, cuMemcpyHtoDAsync(b->device_planes, b->planes, 6 * b->pixels * 4, b->stream));
	CHECK(b, cuStreamSynchronize(b->stream));
}

/* @return us a frame, all of which are rejected */
static double
radial_time(struct bench *b, uint32_t gangs, uint32_t batch, enum gk_memory memory)
{
	uint64_t n = BENCH_FRAMES;
	struct player p;
	double us[64];

	if (player_open(&p, b, gangs, 0, memory, OUTPUTS_NONE, GK_VALUE_F32) != 0)
		exit(1);
	player_run(&p, batch, n);
	n = (uint64_t)((double)n * b->seconds / player_run(&p, batch, n)) / BENCH_FRAMES *
			BENCH_FRAMES +
		BENCH_FRAMES;
	for (int i = 0; i < b->repeats; i++)
		us[i] = 1e6 * player_run(&p, batch, n) / (double)n;
	bench_sort(us, (unsigned int)b->repeats);
	player_close(&p);
	return us[b->repeats / 2];
}

/* Radial profiles of all frames, on top of the conversion alone. */
static void
radial_rows(struct bench *b)
{
	static const struct {
		const char *what;
		float adu; /* of a photon */
		uint32_t bins;
	} rows[] = {
		{"1 % of pixels with photons", 508.4f, 1000},
		{"most pixels with photons", 10, 1000},
		{"most pixels with photons", 10, 250},
		{"most pixels with photons", 10, 4096},
	};
	static const uint32_t layouts[][2] = {{1, 16}, {2, 8}, {2, 16}, {4, 16}};

	printf("\nradial profiles of all frames, all rejected\n"
	       "%-28s %5s %-6s %-6s %5s %12s %12s %10s\n",
		"what", "bins", "memory", "gangs", "batch", "none, us", "profile, us", "more, us");
	for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		set_gain(b, rows[i].adu);
		for (uint32_t k = 0; k < 2 * sizeof(layouts) / sizeof(layouts[0]); k++) {
			const uint32_t *l = layouts[k / 2];
			const enum gk_memory memory = k % 2 ? GK_MEMORY_HOST : GK_MEMORY_DEVICE;
			double none, with;

			none = radial_time(b, l[0], l[1], memory);
			radial_map(b, rows[i].bins);
			with = radial_time(b, l[0], l[1], memory);
			radial_map_free(b);
			printf("%-28s %5u %-6s %-6u %5u %12.2f %12.2f %10.2f\n", rows[i].what,
				rows[i].bins, k % 2 ? "host" : "GPU", l[0], l[1], none, with,
				with - none);
			fflush(stdout);
		}
	}
}

static void
print_shots(const struct bench *b, const char *what, uint64_t n)
{
	printf("%-58s %8.2f %8.2f %8.2f %8.2f\n", what, 1e-3 * (double)b->shots[n / 2],
		1e-3 * (double)b->shots[n * 99 / 100], 1e-3 * (double)b->shots[n * 9999 / 10000],
		1e-3 * (double)b->shots[n - 1]);
	fflush(stdout);
}

static void
latency_rows(struct bench *b, uint64_t shots)
{
	static const uint32_t layouts[][2] = {{1, 0}, {1, 131}, {2, 0}};
	char what[64];
	struct player p;

	printf("\none frame at a time, us%36s %8s %8s %8s %8s\n", "", "p50", "p99", "p99.99",
		"most");
	for (size_t i = 0; i < 3; i++) {
		for (int host = 0; host < 2; host++) {
			if (player_open(&p, b, layouts[i][0], layouts[i][1],
				    host ? GK_MEMORY_HOST : GK_MEMORY_DEVICE, OUTPUTS_NONE,
				    GK_VALUE_F32) != 0)
				exit(1);
			player_latency(&p, 1000);
			player_latency(&p, host ? shots / 10 : shots);
			snprintf(what, sizeof(what), "doorbell to verdict, %s memory, %u x %u",
				host ? "host" : "GPU", layouts[i][0], layouts[i][1]);
			print_shots(b, what, host ? shots / 10 : shots);
			player_close(&p);
		}
	}
}

static void
peer_rows(struct bench *b, uint64_t shots)
{
	uint32_t nnz = 0;
	double value;

	value = launch_count(b);
	printf("one launch a batch of 16 frames, GPU memory: %.2f us/frame\n", value);
	value = stream_latency(b, shots);
	print_shots(b, "stream wait value, launch, write value, GPU memory", shots);
	printf("the same, rung without waiting: %.2f us/frame, %.0f frames/s\n", 1e6 / value,
		value);
	value = sparse_convert(b, &nnz);
	if (value != 0)
		printf("cuSPARSE dense to sparse of an f32 image: %.2f us/frame, %u pixels "
		       "(%.2f %%)\n",
			value, nnz, 100.0 * nnz / (double)b->pixels);
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {{"modules", required_argument, NULL, 'm'},
		{"seconds", required_argument, NULL, 's'},
		{"repeats", required_argument, NULL, 'r'}, {"rows", required_argument, NULL, 'w'},
		{"shots", required_argument, NULL, 'n'}, {"help", no_argument, NULL, 'h'}, {0}};
	struct bench b = {.seconds = 0.3, .repeats = 5};
	uint64_t shots = 100000;
	const char *rows = "dhlp";
	uint32_t modules = 8;
	char why[256] = "";
	int option;

	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (option) {
		case 'm':
			modules = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 's':
			b.seconds = strtod(optarg, NULL);
			break;
		case 'r':
			b.repeats = atoi(optarg);
			break;
		case 'w':
			rows = optarg;
			break;
		case 'n':
			shots = strtoull(optarg, NULL, 0);
			break;
		default:
			fputs(usage, option == 'h' ? stdout : stderr);
			return option != 'h';
		}
	}
	if (modules < 1 || modules > 32 || b.seconds <= 0 || b.repeats < 1 || b.repeats > 64 ||
		shots < 10000 || shots > BENCH_SHOTS) {
		fputs(usage, stderr);
		return 1;
	}
	b.cuda = gk_cuda_driver(why, sizeof(why));
	if (b.cuda == NULL) {
		printf("skipped: %s\n", why);
		return 77;
	}
	open_bench(&b, modules);
	printf("%s; frames of %u modules, %.2f MB raw, %d of them; median of %d x %.2f s; "
	       "1 %% of pixels above both thresholds, all G0\n",
		b.gpu, modules, 2e-6 * (double)b.pixels, BENCH_FRAMES, b.repeats, b.seconds);
	if (strchr(rows, 'd') != NULL)
		device_rows(&b);
	if (strchr(rows, 'h') != NULL)
		host_rows(&b);
	if (strchr(rows, 's') != NULL)
		search_rows(&b);
	if (strchr(rows, 'c') != NULL)
		chunk_rows(&b);
	if (strchr(rows, 'r') != NULL)
		radial_rows(&b);
	if (strchr(rows, 'l') != NULL)
		latency_rows(&b, shots);
	if (strchr(rows, 'p') != NULL)
		peer_rows(&b, shots / 5);
	return 0;
}
