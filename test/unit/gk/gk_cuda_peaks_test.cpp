/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device code of the search for peaks, executed on CPUs (gk_cuda_on_host.h), compared with
 * gk_peaks_find() on random detectors, options and frames.
 *
 *   gk_cuda_peaks_test [SEED [CASES]]
 */
#include "gk_cuda_on_host.h"

#include "gk_peak_cases.h"

/* so that lists of small frames are full, and frames have several parts */
#define PEAK_REST  16
#define PEAK_LIST  16
#define PEAK_QUADS 64

static thread_local uint4 shared_area[128 << 10 >> 4];

#include "gk_cuda_peaks.cuh"

#define FRAMES 3

/* What the blocks of a gang share. */
static struct run {
	uint32_t blocks;
	uint32_t arrived;
	uint32_t killed;
	uint32_t nb_frames;
	struct gk_peak_params params;
} run;

static thread_local uint32_t block;

static void
run_thread(void)
{
	struct peak_shared *s = &peak_state;

	if (threadIdx.x == 0) {
		s->params = run.params;
		s->block = block;
		s->blocks = run.blocks;
		s->slot = s->gang = 0;
		s->nb_frames = run.nb_frames;
		s->arrived = &run.arrived;
		s->killed = &run.killed;
		s->target = 0;
	}
	peak_share();
	peak_search();
}

static void
run_gang(void)
{
	std::vector<std::thread> gang;

	run.arrived = 0;
	for (uint32_t i = 0; i < run.blocks; i++)
		gang.emplace_back([i] {
			block = i;
			host_run_block(run_thread);
		});
	for (std::thread &t : gang)
		t.join();
}

static int
check_frame(uint32_t f, const struct gk_peaks *expected, uint64_t seed)
{
	const struct gk_cuda_peak_counters *c = &peak_args.counters[f];

	for (uint32_t i = 0; i < expected->count && i < c->count; i++) {
		const struct gk_peak *a = &slot_list(f)[i], *b = &expected->peak[i];

		if (memcmp(a, b, sizeof(*a)) == 0)
			continue;
		printf("seed %llu frame %u peak %u: panel %u fs %.9g ss %.9g intensity %.9g snr "
		       "%.9g background %.9g pixels %u bin %u, expected panel %u fs %.9g ss %.9g "
		       "intensity %.9g snr %.9g background %.9g pixels %u bin %u\n",
			(unsigned long long)seed, f, i, a->panel, a->fs, a->ss, a->intensity,
			a->snr, a->background, a->pixels, a->bin, b->panel, b->fs, b->ss,
			b->intensity, b->snr, b->background, b->pixels, b->bin);
		return 1;
	}
	if (c->count != expected->count || peak_found(f) != expected->found ||
		memcmp(c->shell, expected->shell, sizeof(c->shell)) != 0) {
		printf("seed %llu frame %u: %u peaks, %u found, expected %u, %u\n",
			(unsigned long long)seed, f, c->count, peak_found(f), expected->count,
			expected->found);
		return 1;
	}
	return 0;
}

/* As many blobs as possible: three frames have more than the queue of the gang has room for. */
static void
make_dense(struct peak_case *c, uint64_t pixels)
{
	c->params.threshold = 50;
	/* the first round leaves out the blobs, and no round leaves out background */
	c->params.min_snr = 1.6f;
	c->params.min_pixels = 1;
	run.nb_frames = FRAMES;
	for (uint64_t i = 0; i < FRAMES * pixels; i++) {
		const uint64_t at = i % pixels;
		const bool blob = at % 2 && at / c->map.cols % 2;

		peak_args.photons[i] = blob ? 100 : at / 2 % 4;
	}
}

static int
check_case(struct peak_case *c, uint64_t seed, struct gk_peaks *expected, uint32_t *heavy)
{
	const uint64_t pixels = (uint64_t)c->map.rows * c->map.cols;
	struct gk_peak_finder *finder;
	uint64_t size, constant;
	char why[200];
	uint8_t *memory;
	int bad = 0;

	if (gk_peak_map_check(&c->map, why, sizeof(why)) != 0 ||
		gk_peak_finder_create(&c->map, GK_ISA_PLAIN, &finder) != 0) {
		printf("seed %llu: %s\n", (unsigned long long)seed, why);
		return 1;
	}
	if (gk_cuda_peaks_shape(&c->map, &peak_args.s) != 0)
		abort();
	size = gk_cuda_peaks_place(&peak_args, 1, NULL, &constant);
	memory = (uint8_t *)aligned_alloc(128, size);
	memset(memory + constant, 0, size - constant);
	gk_cuda_peaks_place(&peak_args, 1, memory, &constant);
	gk_cuda_peaks_fill(&c->map, &peak_args);
	run.blocks = 1 + case_below(c, 3);
	for (uint32_t batch = 0; batch < 2 && !bad; batch++) {
		case_params(c);
		run.nb_frames = 1 + case_below(c, FRAMES);
		for (uint32_t f = 0; f < run.nb_frames; f++) {
			case_frame(c, UINT32_MAX);
			memcpy(peak_args.photons + f * pixels, c->photons,
				pixels * sizeof(*c->photons));
		}
		if (batch == 1 && pixels < 5000)
			make_dense(c, pixels);
		run.params = c->params;
		run_gang();
		for (uint32_t f = 0; f < run.nb_frames; f++) {
			gk_peaks_find(finder, &c->params, peak_args.photons + f * pixels, expected);
			bad |= check_frame(f, expected, seed);
			*heavy += peak_is_heavy(f);
		}
	}
	gk_peak_finder_destroy(finder);
	free(memory);
	return bad;
}

int
main(int argc, char **argv)
{
	const uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	const uint64_t cases = argc > 2 ? strtoull(argv[2], NULL, 10) : 60;
	struct gk_peaks *expected = (struct gk_peaks *)malloc(GK_PEAKS_SIZE);
	struct peak_case *c = new peak_case;
	uint32_t heavy = 0;
	int bad = 0;

	for (uint64_t seed = first; seed < first + cases && bad < 5; seed++) {
		memset(c, 0, sizeof(*c));
		c->rng = seed;
		case_random(c);
		c->map.rows = 3 + case_below(c, 100);
		c->map.cols = 32 * (1 + case_below(c, 6));
		c->bin = new uint16_t[c->map.rows * c->map.cols];
		c->photons = new int16_t[c->map.rows * c->map.cols];
		case_map(c);
		bad += check_case(c, seed, expected, &heavy);
		delete[] c->bin;
		delete[] c->photons;
	}
	printf("%u frames were searched by labels; %d cases differ\n", heavy, bad);
	free(expected);
	delete c;
	return bad != 0;
}
