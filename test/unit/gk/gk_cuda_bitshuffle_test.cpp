/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device code of compressed u16 images, executed on CPUs (gk_cuda_on_host.h), compared with
 * gk_bitshuffle_compress() on runs around every limit, on random and on real frames. The CRCs of
 * the chunks are compared with the definition.
 *
 *   gk_cuda_bitshuffle_test [BLOCKS]
 */
#include "gk_cuda_on_host.h"

#include "gk_bitshuffle_cases.h"
#include "gk_cuda_bitshuffle.cuh"
#include "gk_cuda_crc.cuh"

#define BYTES  GK_BITSHUFFLE_BYTES
#define MODULE (512 * 1024)

alignas(16) static thread_local struct bitshuffle_warp shared[host_warps];

/* What the thread blocks share. */
static struct run {
	struct bitshuffle_chunk chunk;
	const uint16_t *from;
	bool whole; /* the values of a block are in one piece */
	uint32_t blocks;
	uint64_t size;
	uint32_t crc; /* sum over the blocks */
} run;

static struct gk_cuda_crc crc_tables_of_run;

static thread_local uint32_t number;

static uint4
values_at(uint64_t i)
{
	uint4 v;

	memcpy(&v, run.from + 8 * i, sizeof(v));
	return v;
}

static void
compress_thread(void)
{
	const uint32_t all = (uint32_t)gk_bitshuffle_blocks(run.chunk.n);
	const uint32_t warp = threadIdx.x / 32;
	const struct crc_tables *tables = (const struct crc_tables *)&crc_tables_of_run;
	const struct crc_lane lane = {
		crc_tables_of_run.above[threadIdx.x % 32], crc_tables_of_run.part};

	for (uint32_t i = warp * run.blocks + number; i < all; i += host_warps * run.blocks) {
		const uint16_t *from = run.from + (uint64_t)i * GK_BITSHUFFLE_BLOCK;
		const bool whole =
			run.whole && bitshuffle_values(&run.chunk, i) == GK_BITSHUFFLE_BLOCK;
		struct bitshuffle_words words;
		uint32_t size, behind, crc, n;
		struct crc_back back;
		uint64_t end;

		if (whole)
			bitshuffle_load(&words, (const uint4 *)from);
		size = bitshuffle_pack(
			&shared[warp], &run.chunk, i, whole ? &words : NULL, [=](uint32_t at) {
				return values_at((uint64_t)i * (GK_BITSHUFFLE_BLOCK / 8) + at);
			});
		n = bitshuffle_words_of(size);
		crc = crc_of(tables, &lane, shared[warp].room, n, &behind);
		end = bitshuffle_find(&run.chunk, i, size, [] { return false; });
		behind += n * 16 - GK_BITSHUFFLE_HEADER - size;
		back = crc_back_from(&crc_tables_of_run, end + behind);
		bitshuffle_write(&shared[warp], &run.chunk, i, size, end);
		crc = crc_times(&lane, crc, &back);
		if (threadIdx.x % 32 == 0)
			atomicXor(&run.crc, crc);
		if (i + 1 == all && threadIdx.x % 32 == 0)
			run.size = end;
	}
}

/* The CRC of the chunk, by the first warp. */
static void
close_thread(void)
{
	uint32_t crc;

	if (threadIdx.x >= 32)
		return;
	crc = crc_of_chunk(&crc_tables_of_run, run.crc, run.size);
	if (threadIdx.x == 0)
		run.crc = crc;
}

static uint32_t
crc32c(const uint8_t *from, uint64_t n)
{
	uint32_t crc = 0xFFFFFFFFu;

	for (uint64_t i = 0; i < n; i++) {
		crc ^= from[i];
		for (int k = 0; k < 8; k++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
	}
	return ~crc;
}

/* A block whose predecessor never comes. */
static void
stopped_thread(void)
{
	uint32_t size;
	uint64_t end;

	if (threadIdx.x >= 32)
		return;
	size = bitshuffle_pack(
		&shared[0], &run.chunk, 1, NULL, [](uint32_t at) { return values_at(at); });
	end = bitshuffle_find(&run.chunk, 1, size, [] { return true; });
	if (threadIdx.x == 0)
		run.size = end;
}

/* All thread blocks, at the same time. */
static void
run_blocks(void (*what)(void))
{
	std::vector<std::thread> all;

	for (uint32_t i = 0; i < run.blocks; i++)
		all.emplace_back([=] {
			number = i;
			host_run_block(what);
		});
	for (std::thread &t : all)
		t.join();
}

static int
check(const char *what, const uint16_t *from, uint64_t n, uint32_t blocks)
{
	const uint64_t bound = gk_bitshuffle_bound(n);
	std::vector<uint64_t> ends(gk_bitshuffle_blocks(n));
	std::vector<uint8_t> wanted(bound), found(bound + 4, 0xA5);
	const uint64_t size = gk_bitshuffle_compress(from, n, wanted.data());

	run.chunk = {found.data(), ends.data(), n};
	run.from = from;
	run.whole = blocks % 2 == 0;
	run.blocks = blocks;
	run.crc = 0;
	run_blocks(compress_thread);
	if (run.size != size || memcmp(found.data(), wanted.data(), size) != 0 ||
		found[size] != 0xA5) {
		printf("%s: %llu values, %u thread blocks: %llu bytes, wanted %llu, or others\n",
			what, (unsigned long long)n, blocks, (unsigned long long)run.size,
			(unsigned long long)size);
		return 1;
	}
	run.blocks = 1;
	run_blocks(close_thread);
	if (run.crc == crc32c(wanted.data(), size))
		return 0;
	printf("%s: %llu values, %u thread blocks: CRC %08x, wanted %08x\n", what,
		(unsigned long long)n, blocks, run.crc, crc32c(wanted.data(), size));
	return 1;
}

static int
check_stop(const uint16_t *from)
{
	uint64_t ends[2] = {0, 0};
	uint8_t to[4] = {1, 2, 3, 4};

	run.chunk = {to, ends, 2 * GK_BITSHUFFLE_BLOCK};
	run.from = from;
	run.blocks = 1;
	run.size = 1;
	run_blocks(stopped_thread);
	if (run.size == 0 && ends[0] == 0 && to[0] == 1 && to[3] == 4)
		return 0;
	printf("a block that waits is not stopped\n");
	return 1;
}

static std::vector<uint16_t>
real_frame(void)
{
	const char *data = getenv("BRAGGLINE_DATA");
	std::vector<uint16_t> values(MODULE);
	char path[600];
	FILE *f;

	snprintf(path, sizeof(path), "%s/jungfrau/mod5_raw0.bin", data != NULL ? data : ".");
	f = fopen(path, "rb");
	if (f == NULL || fread(values.data(), 2, MODULE, f) != MODULE)
		values.clear();
	if (f != NULL)
		fclose(f);
	return values;
}

int
main(int argc, char **argv)
{
	static const uint32_t ends[] = {
		1, 32, 64, 512, 8160, BYTES - 24, BYTES - 16, BYTES - 12, BYTES - 8, BYTES - 5};
	const uint32_t nb_ends = sizeof(ends) / sizeof(ends[0]);
	const uint32_t some = argc > 1 ? (uint32_t)atoi(argv[1]) : 400;
	std::vector<uint8_t> planes(BYTES);
	std::vector<uint16_t> values(some * GK_BITSHUFFLE_BLOCK), real = real_frame();
	uint64_t seed = 1;
	int bad = 0;

	gk_cuda_crc_init(&crc_tables_of_run);
	/* runs of many lengths around each limit */
	for (uint32_t i = 0; i < some; i++) {
		const int64_t s = (int64_t)ends[i % nb_ends] - 8 + i / nb_ends % 17;
		const uint32_t length = i % 3 == 0 ? 1 + i / 3 % 26 : 15 + 255 * (i % 3) + i % 9;

		fill_without_runs(planes.data(), BYTES, &seed);
		if (s >= 1 && s < BYTES)
			put_run(planes.data(), BYTES, (uint32_t)s,
				(uint32_t)min((int64_t)BYTES, s + length));
		values_of(planes.data(), GK_BITSHUFFLE_BLOCK, &values[i * GK_BITSHUFFLE_BLOCK]);
	}
	bad += check("runs", values.data(), values.size(), 3);
	/* random runs; the last block has any size */
	for (uint32_t i = 0; i < some; i++) {
		fill_with_runs(planes.data(), BYTES, &seed);
		values_of(planes.data(), GK_BITSHUFFLE_BLOCK, &values[i * GK_BITSHUFFLE_BLOCK]);
	}
	bad += check("random runs", values.data(), values.size() - 8 * 171, 2);
	for (uint32_t n : {8, 16, 24, 1032, 4088})
		bad += check("short", values.data(), n, 1);
	/* the most matches: more changes than are listed together */
	for (uint32_t i = 0; i < BYTES; i++)
		planes[i] = (uint8_t)(i / 5);
	for (uint32_t i = 0; i < 3; i++)
		values_of(planes.data(), GK_BITSHUFFLE_BLOCK, &values[i * GK_BITSHUFFLE_BLOCK]);
	bad += check("most matches", values.data(), 3 * GK_BITSHUFFLE_BLOCK, 2);
	bad += check_stop(values.data());
	for (uint16_t &v : values)
		v = (uint16_t)next_random(&seed);
	/* one block of noise, then packets that are missing */
	memset(&values[GK_BITSHUFFLE_BLOCK], 0xFF, (values.size() - GK_BITSHUFFLE_BLOCK) * 2);
	bad += check("noise", values.data(), values.size(), 2);
	if (real.empty())
		printf("skipped: no real frames in BRAGGLINE_DATA\n");
	else
		bad += check("real", real.data(),
			min((size_t)MODULE, (size_t)some * GK_BITSHUFFLE_BLOCK), 2);
	printf("%d frames differ\n", bad);
	return bad != 0;
}
