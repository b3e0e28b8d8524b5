/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames as bitshuffle + LZ4 chunks on one core, by instruction set. Peers are the same planes
 * compressed by liblz4, as up to version 0.2.0, and a pass that only reads the frames and writes as
 * many bytes. Frames and chunks are larger than the caches, and all passes take turns.
 */

#include <getopt.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <lz4.h>

#include "bench_host.h"
#include "bench_median.h"
#include "bench_rows.h"
#include "gk_bitshuffle_block.h"
#include "gk_pixel.h"

static const char usage[] =
	"Usage: bitshuffle_bench [--modules N] [--frames N] [--repeats N] [--data DIR]\n"
	"                        [--rows FILE]\n"
	"Frames of N JUNGFRAU modules (1 to 32, default 8) as bitshuffle and LZ4 on one\n"
	"core; the median of up to %d repeats (default 9) counts.\n"
	"  --frames N   frames of the working set (default: twice the L3 cache)\n"
	"  --data DIR   also real frames, DIR/mod5_raw0.bin and others\n"
	"  --rows FILE  write rows for bench.py, for the widest instruction set\n"
	"Columns: frames/s; GB/s of raw data as chunks, as planes alone, as planes and by\n"
	"liblz4, in a pass that reads and writes as many bytes; size beside the raw data.\n";

#define REPEATS_MAX BENCH_ROUNDS_MAX
#define BYTES	    GK_BITSHUFFLE_BYTES
#define MODULE	    (512 * 1024) /* values */
#define REAL_FRAMES 6
#define FRAMES_MAX  32

enum {
	CHUNK,	  /* by gk_bitshuffle.h */
	LZ4,	  /* planes, then liblz4 */
	SPLIT,	  /* planes alone */
	BY_BLOCK, /* the pass, block by block */
	AT_ONCE,  /* the pass, frame by frame */
	PASSES
};

enum data {
	NOISE, /* made here */
	RAW,   /* real frames */
	PHOTONS,
	DATA
};

struct bench {
	size_t n;	 /* values of a frame, a multiple of the block size */
	uint32_t frames; /* of the working set */
	uint32_t repeats;
	const char *dir; /* of real frames */
	uint16_t *raw;	 /* [frames][n] */
	uint8_t *chunks; /* [frames][gk_bitshuffle_bound(n)] */
	uint32_t *size;	 /* [n / GK_BITSHUFFLE_BLOCK], of the blocks of a frame */
};

/* CPU time of this thread, so that other programs affect it as little as possible. */
static double
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint8_t *
chunk_of(const struct bench *b, uint32_t frame)
{
	return b->chunks + frame * (gk_bitshuffle_bound(b->n) + 4 * BYTES);
}

/* With liblz4's search. @return size of the chunk */
static size_t
compress_by_liblz4(const struct bench *b, const struct gk_bitshuffle_ops *ops, uint32_t frame)
{
	uint8_t plain[BYTES], *to = chunk_of(b, frame);
	size_t at = GK_BITSHUFFLE_HEADER;

	for (size_t i = 0; i < b->n; i += GK_BITSHUFFLE_BLOCK) {
		ops->split(b->raw + frame * b->n + i, GK_BITSHUFFLE_BLOCK, plain);
		at += 4 +
			(size_t)LZ4_compress_default((const char *)plain, (char *)to + at + 4,
				BYTES, LZ4_COMPRESSBOUND(BYTES));
	}
	return at;
}

/* Sizes of the blocks of frame 0, for the pass. @return size of the chunk */
static size_t
measure_blocks(const struct bench *b)
{
	uint8_t *to = chunk_of(b, 0);
	size_t at = GK_BITSHUFFLE_HEADER;

	for (size_t i = 0; i < b->n / GK_BITSHUFFLE_BLOCK; i++) {
		b->size[i] = gk_bitshuffle_plain.block(
			b->raw + i * GK_BITSHUFFLE_BLOCK, GK_BITSHUFFLE_BLOCK, to);
		at += 4 + b->size[i];
	}
	return at;
}

static uint64_t
read_all(const uint16_t *from, size_t bytes)
{
	const uint64_t *w = (const uint64_t *)from;
	uint64_t sum = 0;

	for (size_t i = 0; i < bytes / sizeof(*w); i++)
		sum += w[i];
	return sum;
}

static void
move_frame(const struct bench *b, uint32_t frame, size_t packed, bool by_block)
{
	const size_t step = by_block ? GK_BITSHUFFLE_BLOCK : b->n;
	uint8_t *to = chunk_of(b, frame);
	uint64_t sum = 0;

	for (size_t i = 0; i < b->n; i += step) {
		const uint16_t *from = b->raw + frame * b->n + i;
		const size_t size = by_block ? b->size[i / step] & ~(size_t)7 : packed & ~(size_t)7;
		const size_t all = step * sizeof(*from), some = size < all ? size : all;

		memcpy(to, from, some);
		sum += read_all(from + some / sizeof(*from), all - some);
		to += size;
	}
	__asm__ volatile("" : : "r"(sum) : "memory");
}

/* @return GB/s of raw data */
static double
run(const struct bench *b, enum gk_isa isa, int pass, size_t packed)
{
	const struct gk_bitshuffle_ops *ops = gk_bitshuffle_choose(isa);
	const double start = seconds();
	struct gk_bitshuffle_job job;
	uint8_t plain[BYTES];

	for (uint32_t f = 0; f < b->frames; f++) {
		switch (pass) {
		case CHUNK:
			gk_bitshuffle_begin(&job, isa, b->raw + f * b->n, b->n, chunk_of(b, f));
			gk_bitshuffle_continue(&job, SIZE_MAX);
			break;
		case LZ4:
			compress_by_liblz4(b, ops, f);
			break;
		case SPLIT:
			for (size_t i = 0; i < b->n; i += GK_BITSHUFFLE_BLOCK) {
				ops->split(b->raw + f * b->n + i, GK_BITSHUFFLE_BLOCK, plain);
				__asm__ volatile("" : : "r"(plain) : "memory");
			}
			break;
		default:
			move_frame(b, f, packed, pass == BY_BLOCK);
			break;
		}
	}
	return 2e-9 * (double)b->n * b->frames / (seconds() - start);
}

/* Background with noise of a few photons, 1 % of pixels with 10 photons, all in G0. */
static void
fill_noise(uint16_t *module)
{
	uint64_t rng = 1;

	for (size_t i = 0; i < MODULE; i++) {
		rng = rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		module[i] = (uint16_t)(3000 + (rng >> 58) + ((rng >> 32) % 100 == 0 ? 5084 : 0));
	}
}

static bool
read_module(const struct bench *b, const char *name, int number, void *to, size_t size)
{
	char path[600];
	bool ok;
	FILE *f;

	snprintf(path, sizeof(path), "%s/mod5_%s%d.bin", b->dir, name, number);
	f = fopen(path, "rb");
	if (f == NULL)
		return false;
	ok = fread(to, 1, size, f) == size;
	fclose(f);
	return ok;
}

static bool
read_photons(const struct bench *b, int number, uint16_t *to)
{
	float *photons = malloc(MODULE * sizeof(*photons));
	const bool ok = photons != NULL &&
		read_module(b, "conv", number, photons, MODULE * sizeof(*photons));

	for (size_t i = 0; ok && i < MODULE; i++)
		/* PSI's mark of saturation */
		to[i] = (uint16_t)gk_value_i16(photons[i] == 32678.0f ? INFINITY : photons[i]);
	free(photons);
	return ok;
}

/* Fill the frames with modules in turn. @return false: no such data */
static bool
fill(struct bench *b, enum data data)
{
	uint16_t *module = malloc(REAL_FRAMES * MODULE * sizeof(*module));
	const uint32_t modules = data == NOISE ? 1 : REAL_FRAMES;
	bool ok = module != NULL;

	for (uint32_t i = 0; ok && i < modules; i++) {
		uint16_t *to = module + (size_t)i * MODULE;

		if (data == NOISE)
			fill_noise(to);
		else if (data == RAW)
			ok = read_module(b, "raw", (int)i, to, MODULE * sizeof(*to));
		else
			ok = read_photons(b, (int)i, to);
	}
	for (size_t i = 0; ok && i < b->n / MODULE * b->frames; i++)
		memcpy(b->raw + i * MODULE, module + (i + i / (b->n / MODULE)) % modules * MODULE,
			MODULE * sizeof(*module));
	free(module);
	return ok;
}

static void
emit(const struct bench *b, enum data data, enum gk_isa isa, const double *m, const double *ratio,
	size_t packed, size_t by_lz4)
{
	static const char *const names[] = {"frames of noise", "real raw frames", "int16 photons"};
	const double frame = 2e-9 * (double)b->n, all = 2 * (double)b->n;
	char what[80];

	snprintf(what, sizeof(what), "chunks of %s", names[data]);
	bench_row(&(struct bench_row){.stage = "raw",
		.what = what,
		.value = m[CHUNK] / frame,
		.unit = "frames/s",
		.against = "liblz4 on the same planes",
		.other = m[LZ4] / frame,
		.ratio = ratio[LZ4],
		.goal = data == NOISE ? NULL : "ratio >= 3",
		.notes = gk_isa_name(isa)});
	snprintf(what, sizeof(what), "chunks of %s, beside a pass", names[data]);
	bench_row(&(struct bench_row){.stage = "raw",
		.what = what,
		.value = m[CHUNK] / frame,
		.unit = "frames/s",
		.against = "a pass that moves as many bytes",
		.other = (m[BY_BLOCK] > m[AT_ONCE] ? m[BY_BLOCK] : m[AT_ONCE]) / frame,
		.ratio = ratio[BY_BLOCK],
		.goal = data == RAW ? "ratio >= 0.6" : NULL,
		.bytes = all + (double)packed,
		.role = BENCH_FLOOR,
		.notes = gk_isa_name(isa)});
	snprintf(what, sizeof(what), "size of %s", names[data]);
	bench_row(&(struct bench_row){.stage = "raw",
		.what = what,
		.value = (double)packed / all,
		.unit = "of raw data",
		.against = "liblz4 on the same planes",
		.other = (double)by_lz4 / all,
		.goal = data == NOISE ? NULL
			: data == RAW ? "ratio <= 1.005"
				      : "ratio <= 1.03"});
}

static void
run_data(struct bench *b, enum data data)
{
	static const char *const names[] = {"noise", "raw", "photons"};
	static double speed[GK_ISAS][PASSES][REPEATS_MAX];
	const size_t packed = measure_blocks(b);
	const size_t by_lz4 = compress_by_liblz4(b, &gk_bitshuffle_plain, 0);

	for (uint32_t i = 0; i < b->repeats; i++)
		for (int isa = GK_ISA_PLAIN; isa < GK_ISAS; isa++)
			for (int pass = 0; pass < PASSES && gk_isa_choose(isa) >= 0; pass++)
				speed[isa][pass][i] = run(b, isa, pass, packed);
	for (int isa = GK_ISA_PLAIN; isa < GK_ISAS; isa++) {
		double m[PASSES], ratio[PASSES];
		int floor;

		if (gk_isa_choose(isa) < 0) {
			printf("%-8s %-8s skipped: not supported by this CPU\n", names[data],
				gk_isa_name(isa));
			continue;
		}
		for (int pass = 0; pass < PASSES; pass++)
			m[pass] = bench_median(speed[isa][pass], b->repeats);
		floor = m[BY_BLOCK] > m[AT_ONCE] ? BY_BLOCK : AT_ONCE;
		ratio[LZ4] = bench_median_ratio(speed[isa][CHUNK], speed[isa][LZ4], b->repeats);
		ratio[BY_BLOCK] =
			bench_median_ratio(speed[isa][CHUNK], speed[isa][floor], b->repeats);
		printf("%-8s %-8s %9.0f %8.2f %8.2f %8.2f %7.2f %8.2f %7.2f %9.4f %9.4f\n",
			names[data], gk_isa_name(isa), m[CHUNK] / (2e-9 * (double)b->n), m[CHUNK],
			m[SPLIT], m[LZ4], ratio[LZ4], m[floor], ratio[BY_BLOCK],
			(double)packed / (2.0 * (double)b->n),
			(double)by_lz4 / (2.0 * (double)b->n));
		if (isa == gk_isa_choose(GK_ISA_AUTO))
			emit(b, data, isa, m, ratio, packed, by_lz4);
	}
}

/* Zeroed memory in huge pages, if there are any. */
static void *
need(size_t size)
{
	const size_t page = (size_t)1 << 21, whole = (size + page - 1) & ~(page - 1);
	void *memory = aligned_alloc(page, whole);

	if (memory == NULL) {
		fprintf(stderr, "bitshuffle_bench: no memory for %zu bytes; use a lower --frames\n",
			size);
		exit(1);
	}
	madvise(memory, whole, MADV_HUGEPAGE);
	memset(memory, 0, whole);
	return memory;
}

static void
open_bench(struct bench *b)
{
	const size_t l3 = bench_host_cache(3) != 0 ? bench_host_cache(3) : BENCH_L3_UNKNOWN;

	if (b->frames == 0)
		b->frames = (uint32_t)(2 * l3 / (b->n * 2) + 1);
	if (b->frames > FRAMES_MAX)
		b->frames = FRAMES_MAX;
	b->raw = need(b->n * 2 * b->frames);
	b->chunks = need(b->frames * (gk_bitshuffle_bound(b->n) + 4 * BYTES));
	b->size = need(b->n / GK_BITSHUFFLE_BLOCK * sizeof(*b->size));
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {{"modules", required_argument, NULL, 'm'},
		{"frames", required_argument, NULL, 'f'}, {"repeats", required_argument, NULL, 'r'},
		{"data", required_argument, NULL, 'd'}, {"rows", required_argument, NULL, 'o'},
		{"help", no_argument, NULL, 'h'}, {0}};
	uint32_t modules = 8;
	struct bench b = {.repeats = 9};
	int option;

	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (option == 'm')
			modules = (uint32_t)strtoul(optarg, NULL, 0);
		else if (option == 'f')
			b.frames = (uint32_t)strtoul(optarg, NULL, 0);
		else if (option == 'r')
			b.repeats = (uint32_t)strtoul(optarg, NULL, 0);
		else if (option == 'd')
			b.dir = optarg;
		else if (option == 'o')
			bench_rows_to(optarg);
		else
			modules = 0;
	}
	if (modules < 1 || modules > 32 || b.repeats < 1 || b.repeats > REPEATS_MAX) {
		fprintf(stderr, usage, REPEATS_MAX);
		return 1;
	}
	b.n = (size_t)modules * MODULE;
	open_bench(&b);
	bench_host_print(stdout);
	printf("%u frames of %u modules (%.1f MB), 1 core; median of %u\n", b.frames, modules,
		2e-6 * (double)b.n, b.repeats);
	printf("%-8s %-8s %9s %8s %8s %8s %7s %8s %7s %9s %9s\n", "data", "isa", "frames/s",
		"chunks", "planes", "liblz4", "ratio", "pass", "ratio", "size", "liblz4's");
	for (int data = NOISE; data < DATA; data++) {
		if (data != NOISE && b.dir == NULL)
			continue;
		if (fill(&b, data))
			run_data(&b, data);
		else
			bench_row_missing("raw", data == RAW ? "real raw frames" : "int16 photons",
				"no frames in --data");
	}
	free(b.raw);
	free(b.chunks);
	free(b.size);
	return 0;
}
