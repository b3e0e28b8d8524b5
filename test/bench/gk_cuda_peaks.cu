/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The search for peaks on a GPU, as kernels of their own: compared byte for byte with
 * gk_peaks_find(), and timed beside a kernel that only reads the same bytes.
 *
 *   gk_cuda_peaks [SECONDS [SEED]]
 *
 * Times are those of a gang that serves one batch after the other in one launch. Frames follow each
 * other in 134 MB of memory, so that they are not in the L2 cache. 0: all are equal.
 */
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

#include "gk_peak_cases.h"

#define PEAK_STEP(number) note_step(number)
#define STEPS		  6
#define PRINT_MOST	  8 /* frames that differ */

/* Time of each step, from barrier to barrier. */
static __device__ unsigned long long step_ns[STEPS];
static __device__ unsigned long long step_last;
static __device__ __forceinline__ void note_step(uint32_t number);

#include "gk_cuda_peaks.cuh"

static __device__ __forceinline__ void
note_step(uint32_t number)
{
	if (peak_state.block == 0 && threadIdx.x == 0) {
		const unsigned long long now = now_ns();

		step_ns[number] += now - step_last;
		step_last = now;
	}
}

struct batch {
	struct gk_peak_params params;
	uint32_t nb_frames;
	uint32_t repeats; /* each with the next slots */
	uint32_t slots;
	uint32_t *arrived; /* blocks that have arrived */
	uint32_t *killed;
	uint32_t *found; /* [slots] */
};

extern "C" __global__ void
__launch_bounds__(GK_CUDA_THREADS, GK_CUDA_BLOCKS) find_peaks(const struct batch batch)
{
	struct peak_shared *s = &peak_state;

	if (threadIdx.x == 0) {
		s->params = batch.params;
		s->block = blockIdx.x;
		s->blocks = gridDim.x;
		s->gang = 0;
		s->nb_frames = batch.nb_frames;
		s->arrived = batch.arrived;
		s->killed = batch.killed;
		s->target = 0;
	}
	peak_share();
	PEAK_STEP(STEPS - 1);
	for (uint32_t i = 0; i < batch.repeats; i++) {
		__syncthreads();
		if (threadIdx.x == 0)
			s->slot = i * batch.nb_frames % batch.slots;
		if (!peak_barrier())
			return;
		PEAK_STEP(0);
		if (!peak_search())
			return;
		PEAK_STEP(4);
		if (blockIdx.x == 0 && threadIdx.x < batch.nb_frames)
			batch.found[s->slot + threadIdx.x] = peak_found(s->slot + threadIdx.x);
	}
}

extern "C" __global__ void
__launch_bounds__(GK_CUDA_THREADS, GK_CUDA_BLOCKS)
	read_bytes(uint32_t repeats, uint32_t with_bins, uint32_t *to)
{
	const uint32_t groups = peak_args.s.pixels / 8, threads = gridDim.x * blockDim.x;
	uint32_t sum = 0;

	for (uint32_t r = 0; r < repeats; r++) {
		const uint4 *photons = (const uint4 *)slot_photons(r % GK_CUDA_PEAK_FRAMES);
		const uint4 *bins = (const uint4 *)peak_args.bin;

#pragma unroll 4
		for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < groups; i += threads) {
			const uint4 v = __ldcg(photons + i);

			sum += v.x ^ v.y ^ v.z ^ v.w;
			if (with_bins) {
				const uint4 b = __ldcg(bins + i);

				sum += b.x ^ b.y ^ b.z ^ b.w;
			}
		}
	}
	if (sum == 0x12345678)
		*to = sum;
}

static void
need(cudaError_t e, const char *what)
{
	if (e == cudaSuccess)
		return;
	printf("%s: %s\n", what, cudaGetErrorString(e));
	exit(1);
}
#define NEED(call) need(call, #call)

static double
seconds(void)
{
	return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
		.count();
}

static uint32_t blocks_max;

/* A detector in device memory. */
struct detector {
	struct gk_peak_map map;
	struct gk_cuda_peaks args;
	struct gk_peak_finder *finder;
	uint8_t *memory;
	uint32_t *words; /* arrived, killed, dummy */
	uint32_t *found;
	uint64_t pixels;
};

static void
open_detector(struct detector *d, const struct gk_peak_map *map)
{
	uint64_t size, constant;
	void *host;
	char why[200];

	d->map = *map;
	d->pixels = (uint64_t)map->rows * map->cols;
	if (gk_peak_map_check(map, why, sizeof(why)) != 0) {
		printf("map: %s\n", why);
		exit(1);
	}
	if (gk_peak_finder_create(map, GK_ISA_AUTO, &d->finder) != 0 ||
		gk_cuda_peaks_shape(map, &d->args.s) != 0)
		exit(1);
	host = gk_cuda_peaks_make(map, &d->args, 1, &constant);
	size = gk_cuda_peaks_place(&d->args, 1, NULL, &constant);
	NEED(cudaMalloc(&d->memory, size));
	NEED(cudaMemset(d->memory, 0, size));
	NEED(cudaMemcpy(d->memory, host, constant, cudaMemcpyHostToDevice));
	free(host);
	gk_cuda_peaks_place(&d->args, 1, d->memory, &constant);
	NEED(cudaMemcpyToSymbol(peak_args, &d->args, sizeof(d->args)));
	NEED(cudaMalloc(&d->words, 1024));
	NEED(cudaMalloc(&d->found, GK_CUDA_PEAK_FRAMES * 4));
}

static void
close_detector(struct detector *d)
{
	gk_peak_finder_destroy(d->finder);
	cudaFree(d->memory);
	cudaFree(d->words);
	cudaFree(d->found);
}

/* @return ms */
static float
launch(struct detector *d, struct batch b, uint32_t blocks)
{
	void *args[] = {&b};
	cudaEvent_t start, end;
	float ms;

	b.arrived = d->words;
	b.killed = d->words + 64;
	b.found = d->found;
	args[0] = &b;
	NEED(cudaMemset(d->words, 0, 1024));
	cudaEventCreate(&start);
	cudaEventCreate(&end);
	cudaEventRecord(start);
	NEED(cudaLaunchCooperativeKernel(
		(void *)find_peaks, dim3(blocks), dim3(GK_CUDA_THREADS), args, GK_CUDA_SHARED));
	cudaEventRecord(end);
	NEED(cudaDeviceSynchronize());
	cudaEventElapsedTime(&ms, start, end);
	cudaEventDestroy(start);
	cudaEventDestroy(end);
	return ms;
}

static void
print_peak(const char *what, const struct gk_peak *p)
{
	printf("  %s: panel %u fs %.9g ss %.9g intensity %.9g snr %.9g background %.9g pixels %u "
	       "bin %u\n",
		what, p->panel, p->fs, p->ss, p->intensity, p->snr, p->background, p->pixels,
		p->bin);
}

/* @return peaks that differ; 1 if only the counts do */
static uint32_t
check_frame(struct detector *d, const struct gk_peak_params *params, uint32_t f,
	const int16_t *photons, struct gk_peaks *expected, const char *what)
{
	static struct gk_peak list[GK_PEAKS_MAX];
	static uint32_t printed;
	struct gk_cuda_peak_counters c;
	uint32_t found, different = 0;
	bool same;

	gk_peaks_find(d->finder, params, photons, expected);
	NEED(cudaMemcpy(&c, d->args.counters + f, sizeof(c), cudaMemcpyDeviceToHost));
	NEED(cudaMemcpy(&found, d->found + f, sizeof(found), cudaMemcpyDeviceToHost));
	NEED(cudaMemcpy(list, d->args.list + (uint64_t)f * GK_PEAKS_MAX, sizeof(list),
		cudaMemcpyDeviceToHost));
	for (uint32_t i = 0; i < expected->count && i < c.count; i++) {
		if (memcmp(&list[i], &expected->peak[i], sizeof(list[i])) == 0)
			continue;
		if (different++ == 0 && printed++ < PRINT_MOST) {
			printf("%s frame %u peak %u: threshold %g snr %g radius %u\n", what, f, i,
				params->threshold, params->min_snr, params->bg_radius);
			print_peak("found   ", &list[i]);
			print_peak("expected", &expected->peak[i]);
		}
	}
	same = c.count == expected->count && found == expected->found &&
		memcmp(c.shell, expected->shell, sizeof(c.shell)) == 0;
	if (!same && printed++ < PRINT_MOST)
		printf("%s frame %u: %u peaks, %u found, expected %u, %u\n", what, f, c.count,
			found, expected->count, expected->found);
	return different != 0 ? different : !same;
}

struct totals {
	uint64_t cases, frames, peaks, by_labels, different;
};

static uint32_t
by_labels(struct detector *d, uint32_t f)
{
	struct gk_cuda_peak_counters c;

	NEED(cudaMemcpy(&c, d->args.counters + f, sizeof(c), cudaMemcpyDeviceToHost));
	return c.heavy != 0;
}

/* Random frames of a detector. */
static void
check_detector(struct peak_case *c, struct detector *d, uint32_t batches, uint32_t most,
	struct totals *t, struct gk_peaks *expected, const char *what)
{
	std::vector<int16_t> photons(d->pixels * most);

	for (uint32_t i = 0; i < batches; i++) {
		struct batch b = {};

		case_params(c);
		b.params = c->params;
		b.nb_frames = 1 + case_below(c, most);
		b.repeats = 1 + case_below(c, 2);
		b.slots = b.nb_frames;
		for (uint32_t f = 0; f < b.nb_frames; f++) {
			c->photons = photons.data() + f * d->pixels;
			case_frame(c, UINT32_MAX);
		}
		NEED(cudaMemcpy(d->args.photons, photons.data(),
			b.nb_frames * d->pixels * sizeof(int16_t), cudaMemcpyHostToDevice));
		launch(d, b, case_chance(c, 500) ? blocks_max : 1 + case_below(c, blocks_max));
		for (uint32_t f = 0; f < b.nb_frames; f++) {
			t->different += check_frame(
				d, &b.params, f, photons.data() + f * d->pixels, expected, what);
			t->by_labels += by_labels(d, f);
			t->peaks += expected->count;
			t->frames++;
		}
	}
	t->cases++;
}

static void
check_random(double until, uint64_t seed, struct totals *t, struct gk_peaks *expected)
{
	struct peak_case *c = new peak_case;
	double printed = seconds();

	for (; seconds() < until; seed++) {
		struct detector d;
		char what[64];

		memset(c, 0, sizeof(*c));
		c->rng = seed;
		case_random(c);
		c->map.rows = 3 + case_below(c, case_chance(c, 200) ? 600 : 120);
		c->map.cols = 32 * (1 + case_below(c, case_chance(c, 200) ? 40 : 8));
		c->bin = new uint16_t[c->map.rows * c->map.cols];
		case_map(c);
		snprintf(what, sizeof(what), "seed %llu", (unsigned long long)seed);
		open_detector(&d, &c->map);
		check_detector(c, &d, 3, GK_CUDA_PEAK_FRAMES, t, expected, what);
		close_detector(&d);
		delete[] c->bin;
		if (seconds() - printed > 3) {
			printed = seconds();
			printf("  %llu detectors, %llu frames, %llu peaks, %llu by labels, "
			       "%llu different\n",
				(unsigned long long)t->cases, (unsigned long long)t->frames,
				(unsigned long long)t->peaks, (unsigned long long)t->by_labels,
				(unsigned long long)t->different);
			fflush(stdout);
		}
	}
	delete c;
}

/* Modules in two columns around the beam; `chips`: each of 8 chips is a panel. */
static void
make_4m(struct peak_case *c, bool chips)
{
	c->map.rows = 8 * 512;
	c->map.cols = 1024;
	c->map.bin = c->bin;
	c->map.panel = c->panel;
	c->map.nb_panels = 0;
	for (uint32_t m = 0; m < 8; m++) {
		const double x = m % 2 ? 8 : -8.3 - 1024, y = m / 2 * 550 - 4 * 275.0;

		for (uint32_t ss = 0; ss < 512; ss++)
			for (uint32_t fs = 0; fs < 1024; fs++)
				c->bin[(m * 512 + ss) * 1024 + fs] =
					gk_peak_bin(x + fs + (chips ? fs / 256 * 2 : 0),
						y + ss + (chips ? ss / 256 * 2 : 0), 0, 0);
		for (uint32_t k = 0; k < (chips ? 8 : 1); k++) {
			const struct gk_peak_panel chip = {
				k % 4 * 256, m * 512 + k / 4 * 256, 256, 256, INFINITY};
			const struct gk_peak_panel module = {0, m * 512, 1024, 512, INFINITY};

			c->panel[c->map.nb_panels++] = chips ? chip : module;
		}
	}
}

/* Half of the pixels have photons, more of them near the beam; 1,280 spots. */
static void
make_frame(struct peak_case *c, float photons)
{
	float limit[GK_PEAK_BINS_MAX];

	for (uint32_t b = 0; b < GK_PEAK_BINS_MAX; b++)
		limit[b] = expf(-photons * (0.3f + 2 * expf(-(float)b / 500)));
	for (uint32_t i = 0; i < c->map.rows * c->map.cols; i++)
		c->photons[i] = case_noise(c, limit[c->bin[i] & GK_PEAK_BIN_MASK]);
	for (uint32_t i = 0; i < 1280; i++)
		case_spot(c, 1 + case_below(c, c->map.rows - 2), 1 + case_below(c, c->map.cols - 2),
			20 + (int)case_below(c, 300));
}

static void
time_detector(struct detector *d, const struct gk_peak_params *params, const char *what)
{
	static const char *const step[] = {"barrier", "count", "compare", "find", "order"};
	const uint32_t sizes[] = {1, 2, 8, 16};
	const uint32_t blocks[] = {blocks_max, blocks_max - 1, blocks_max / 2};
	uint32_t *dummy = d->words + 128;

	for (uint32_t bins = 0; bins < 2; bins++) {
		float best = 1e9;

		for (uint32_t i = 0; i < 3; i++) {
			cudaEvent_t start, end;
			float ms;

			cudaEventCreate(&start);
			cudaEventCreate(&end);
			cudaEventRecord(start);
			read_bytes<<<blocks_max, GK_CUDA_THREADS>>>(320, bins, dummy);
			cudaEventRecord(end);
			NEED(cudaDeviceSynchronize());
			cudaEventElapsedTime(&ms, start, end);
			best = std::min(best, ms);
		}
		printf("%-28s read %-16s %8.2f us/frame\n", what,
			bins ? "photons and bins" : "photons", best * 1e3 / 320);
	}
	for (uint32_t k = 0; k < 3; k++) {
		for (uint32_t n : sizes) {
			std::vector<float> us;
			unsigned long long ns[STEPS] = {};
			struct batch b = {};

			b.params = *params;
			b.nb_frames = n;
			b.repeats = 320 / n;
			b.slots = GK_CUDA_PEAK_FRAMES;
			launch(d, b, blocks[k]);
			NEED(cudaMemcpyToSymbol(step_ns, ns, sizeof(ns)));
			for (uint32_t i = 0; i < 7; i++)
				us.push_back(launch(d, b, blocks[k]) * 1e3f / b.repeats / n);
			NEED(cudaMemcpyFromSymbol(ns, step_ns, sizeof(ns)));
			std::sort(us.begin(), us.end());
			printf("%-28s %3u blocks, %2u frames %8.2f us/frame (%.2f to %.2f), "
			       "batch %.1f us:",
				what, blocks[k], n, us[3], us.front(), us.back(), us[3] * n);
			for (uint32_t i = 0; i < STEPS - 1; i++)
				printf(" %s %.1f", step[i], (double)ns[i] / 1e3 / 7 / b.repeats);
			printf("\n");
			fflush(stdout);
		}
	}
}

static void
check_4m(struct totals *t, struct gk_peaks *expected, bool chips, double until)
{
	struct peak_case *c = new peak_case;
	struct gk_peak_params params = {};
	struct detector d;
	int16_t *photons;

	memset(c, 0, sizeof(*c));
	c->rng = 12345 + chips;
	c->bin = new uint16_t[8 * 512 * 1024];
	make_4m(c, chips);
	open_detector(&d, &c->map);
	photons = new int16_t[16 * d.pixels];
	params.threshold = 10;
	params.min_snr = 5;
	params.min_pixels = 2;
	params.max_pixels = 200;
	params.bg_radius = 3;
	params.saturated = 1;
	params.shells = 2;
	params.shell[1] = 300;
	params.shell[2] = 700;
	for (uint32_t light = 0; light < 3; light++) {
		static const char *const name[] = {
			"4M", "4M, 10 x background", "4M, no background"};
		static const float mean[] = {1, 10, 0.02f};
		char what[64];
		struct batch b = {};

		snprintf(what, sizeof(what), "%s%s", name[light], chips ? ", chips" : "");
		for (uint32_t f = 0; f < 16; f++) {
			c->photons = photons + f * d.pixels;
			if (f < 2)
				make_frame(c, mean[light]);
			else
				memcpy(c->photons, photons + f % 2 * d.pixels, d.pixels * 2);
			/* frames differ a little */
			c->photons[case_below(c, (uint32_t)d.pixels)] += 100;
		}
		NEED(cudaMemcpy(
			d.args.photons, photons, 16 * d.pixels * 2, cudaMemcpyHostToDevice));
		b.params = params;
		b.nb_frames = 16;
		b.repeats = 1;
		b.slots = 16;
		launch(&d, b, blocks_max);
		for (uint32_t f = 0; f < 16; f++) {
			t->different +=
				check_frame(&d, &params, f, photons + f * d.pixels, expected, what);
			t->by_labels += by_labels(&d, f);
			t->peaks += expected->count;
			t->frames++;
		}
		printf("%s: %u peaks in the last frame, %llu different\n", what, expected->count,
			(unsigned long long)t->different);
		fflush(stdout);
		time_detector(&d, &params, what);
	}
	if (seconds() < until) {
		c->photons = photons;
		check_detector(c, &d, 2, 4, t, expected, "4M, random");
	}
	printf("4M: %llu frames, %llu peaks, %llu by labels, %llu different\n",
		(unsigned long long)t->frames, (unsigned long long)t->peaks,
		(unsigned long long)t->by_labels, (unsigned long long)t->different);
	close_detector(&d);
	delete[] photons;
	delete[] c->bin;
	delete c;
}

int
main(int argc, char **argv)
{
	const double begin = seconds(), limit = argc > 1 ? atof(argv[1]) : 50;
	const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	struct gk_peaks *expected = (struct gk_peaks *)malloc(GK_PEAKS_SIZE);
	struct totals t = {};
	cudaDeviceProp device;
	int per_sm = 0;

	NEED(cudaGetDeviceProperties(&device, 0));
	NEED(cudaFuncSetAttribute(
		find_peaks, cudaFuncAttributeMaxDynamicSharedMemorySize, GK_CUDA_SHARED));
	NEED(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
		&per_sm, find_peaks, GK_CUDA_THREADS, GK_CUDA_SHARED));
	blocks_max = (uint32_t)(per_sm * device.multiProcessorCount);
	printf("%s, %d multiprocessors, %u blocks\n", device.name, device.multiProcessorCount,
		blocks_max);
	fflush(stdout);
	check_random(begin + limit * 0.35, seed, &t, expected);
	printf("random: %llu detectors, %llu frames, %llu peaks, %llu by labels, %llu different, "
	       "%.1f s\n",
		(unsigned long long)t.cases, (unsigned long long)t.frames,
		(unsigned long long)t.peaks, (unsigned long long)t.by_labels,
		(unsigned long long)t.different, seconds() - begin);
	fflush(stdout);
	for (uint32_t chips = 0; chips < 2; chips++)
		if (seconds() < begin + limit * 0.85)
			check_4m(&t, expected, chips, begin + limit * 0.9);
	printf("%s: %llu frames, %llu peaks, %llu different, %.1f s\n",
		t.different ? "FAILED" : "passed", (unsigned long long)t.frames,
		(unsigned long long)t.peaks, (unsigned long long)t.different, seconds() - begin);
	return t.different != 0;
}
