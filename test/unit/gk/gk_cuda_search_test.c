/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The search for peaks and radial profiles by CUDA gangs compared with host gangs: result lines,
 * peaks by shell, lists, profiles, verdicts and outputs, byte for byte. Random detectors, options
 * and frames; missing packets, packets with trailers, 1 to 8 gangs, packets and outputs in host and
 * in GPU memory. GK_ROUNDS sets the number of random rounds; GK_ONCE=1 runs kernels that end by
 * themselves.
 *
 * Skipped without a GPU.
 */

#include "gk_cuda_rig.h"
#include "gk_peak_cases.h"

#define SLOTS	  24
#define MODULE	  512 /* rows; 1,024 columns */
#define PEAKS_CAP 300
#define ADU_ZERO  1000 /* of no photons */

static int once;
/*
 * ADU of a photon. With 1 ADU the photons of some words are too many for the fast conversion of
 * CUDA gangs. With 16 they are not, and many words convert to halves of photons.
 */
static int adu = 1;

static void
tune(struct gk_config *c)
{
	c->once = (uint32_t)once;
	c->watchdog_ms = once ? 0 : 60000;
}

static uint16_t
word_of(int16_t photons, uint64_t *rng)
{
	if (photons == INT16_MIN)
		return 0xFFFF;
	if (photons > (16383 - ADU_ZERO) / adu - 1)
		return 0xC000; /* saturated */
	/* some as words of another gain stage */
	if (photons >= 0 && rig_below(rng, 2000) == 0)
		return (uint16_t)(0x4000 | (photons + 1));
	if (photons < -ADU_ZERO / adu)
		return 0;
	return (uint16_t)(photons * adu + (int)rig_below(rng, (uint32_t)adu) + ADU_ZERO);
}

/* @param c  whose photons have room for a frame */
static void
draw_frame(struct pair *p, struct peak_case *c, uint32_t slot, uint64_t *rng)
{
	const struct gk_geometry *g = &p->host.config.geometry;
	const uint32_t pixels = g->tile_rows * g->cols;
	struct gk_frame *frame = rig_frame(&p->host, slot);
	uint64_t lost[8] = {0}; /* not used */
	const uint32_t missing = rig_below(rng, 3) == 0 ? 6 : UINT32_MAX;

	case_frame(c, UINT32_MAX);
	frame->frame = rig_random(rng);
	frame->out = rig_below(rng, 6) == 0 ? GK_NO_OUT : SLOTS - 1 - slot;
	frame->flags = rig_below(rng, 8);
	frame->profile = SLOTS + 2 - slot;
	frame->missing = 0;
	for (uint32_t t = 0; t < g->tiles; t++) {
		uint16_t *raw = rig_tile(&p->host, slot, t);

		for (uint32_t i = 0; i < pixels; i++)
			raw[i] = word_of(c->photons[(uint64_t)t * pixels + i], rng);
		frame->packet[t] = rig_below(rng, missing) == 0 ? 0 : (uintptr_t)raw;
		frame->missing += frame->packet[t] == 0;
	}
	if (p->host.config.trailers && rig_below(rng, 3) > 0)
		rig_random_trailers(&p->host, slot, lost, rng);
	pair_frame(p, slot);
}

static void
draw_coef(struct pair *p, uint64_t *rng)
{
	const uint64_t pixels = gk_pixels(&p->host.config.geometry);
	const uint32_t odd = rig_below(rng, 3) == 0 ? 8 : 400;

	rig_random_coef(&p->host, rng);
	for (uint64_t x = 0; x < pixels; x++) {
		if (rig_below(rng, odd) == 0)
			continue;
		for (int g = 0; g < 3; g++) {
			p->host.p[g][x] = g == 0 ? ADU_ZERO + 0.25f * (float)rig_below(rng, 4) : 1;
			p->host.r[g][x] = g == 0 ? 1.0f / (float)adu : 1;
		}
	}
	memcpy(p->host.p_next, p->host.p[0], pixels * sizeof(float));
	pair_coef(p);
}

static void
random_params(struct pair *p, struct peak_case *c, uint32_t index, uint64_t *rng)
{
	struct gk_channel *channel = p->host.config.channel;
	struct gk_params *params = &channel->params[index];
	const uint32_t pixels = (uint32_t)gk_pixels(&p->host.config.geometry);

	case_params(c);
	channel->peak[index] = c->params;
	*params = (struct gk_params){.version = (uint32_t)rig_random(rng),
		.kind = rig_below(rng, 3),
		.chunks = rig_chunks ? rig_below(rng, 2) << GK_KIND_RAW : 0,
		.strong_threshold = (float)rig_below(rng, 40),
		.csr_threshold = (float)(1 + rig_below(rng, 40)),
		.strong_min = rig_below(rng, 2) ? rig_below(rng, 1 + pixels / 10) : 0,
		.strong_max = UINT32_MAX,
		.nnz_max = rig_below(rng, p->host.config.layout.nnz_cap + 1),
		.search = rig_below(rng, 5) == 0 ? 0 : 1 + rig_below(rng, 2),
		.peaks_min = rig_below(rng, 4),
		.peaks_max = rig_below(rng, 2) ? UINT32_MAX : 5 + rig_below(rng, 100)};
	if (rig_below(rng, 4) == 0)
		params->strong_max = params->strong_min + rig_below(rng, pixels);
	if (p->host.config.channel->pixels.bin == 0)
		params->search = GK_SEARCH_NONE;
	if (rig_below(rng, 2) && c->params.shells > 0)
		params->peaks_shells = rig_below(rng, 1u << c->params.shells);
	p->cuda.config.channel->params[index] = *params;
	p->cuda.config.channel->peak[index] = c->params;
}

/* What has occurred */
static struct {
	uint32_t frames, searched, peaks, hits, cut, kept;
} seen;

static void
note(const struct pair *p)
{
	for (uint32_t i = 0; i < SLOTS; i++) {
		const struct gk_result *r = &p->cuda.config.results[i];

		seen.frames++;
		seen.searched += r->peaks_found != GK_NOT_SEARCHED;
		seen.peaks += r->peaks;
		seen.cut += r->peaks > p->cuda.config.layout.peaks_cap;
		seen.hits += r->peaks > 0 && r->verdict == GK_VERDICT_HIT;
		seen.kept += r->peaks > 0 && r->kind != GK_KIND_NONE;
	}
}

/* All slots in batches of random size, to random gangs. */
static void
play(struct pair *p, uint64_t *rng)
{
	for (uint32_t slot = 0; slot < SLOTS;) {
		struct gk_work work = {.params = rig_below(rng, GK_PARAMS_MAX),
			.nb_frames = 1 + rig_below(rng, GK_BATCH_MAX)};

		if (work.nb_frames > SLOTS - slot)
			work.nb_frames = SLOTS - slot;
		for (uint32_t i = 0; i < work.nb_frames; i++)
			work.slot[i] = slot++;
		pair_submit(p, rig_below(rng, p->host.config.gangs), &work);
	}
	if (once)
		pair_start(p);
	pair_drain(p);
	if (once)
		pair_stop(p);
	pair_compare(p);
	note(p);
}

static void
open_case(struct peak_case *c, const struct gk_geometry *g, uint64_t seed)
{
	memset(c, 0, sizeof(*c));
	c->rng = seed;
	case_random(c);
	c->map.rows = gk_rows(g);
	c->map.cols = g->cols;
	c->bin = rig_alloc(gk_pixels(g) * sizeof(*c->bin));
	c->photons = rig_alloc(gk_pixels(g) * sizeof(*c->photons));
	case_map(c);
}

/* Bins of random widths, or random bins; some are empty, and some pixels are in none. */
static void
draw_bins(struct gk_radial_map *map, uint16_t *bin, const struct gk_geometry *g, uint64_t *rng)
{
	static const uint32_t most[] = {1, 5, 300, 1000, GK_PROFILE_BINS_MAX};
	const uint32_t bins = 1 + rig_below(rng, most[rig_below(rng, 5)]);
	const uint32_t width = 1 + rig_below(rng, 40), kind = rig_below(rng, 3);

	*map = (struct gk_radial_map){gk_rows(g), g->cols, bins, bin, NULL};
	for (uint64_t i = 0; i < gk_pixels(g); i++) {
		const uint64_t at = i / g->cols + i % g->cols / width;

		bin[i] = (uint16_t)(kind == 0 ? rig_below(rng, bins + 1) : at % (bins + kind - 1));
	}
}

static void
round_of(const struct gk_geometry *g, uint32_t gangs, uint32_t plays, int in_device, uint64_t *rng)
{
	struct peak_case *c = malloc(sizeof(*c));
	uint16_t *bin = malloc(gk_pixels(g) * sizeof(*bin));
	const uint32_t maps = rig_below(rng, 4); /* 0: no profiles */
	struct gk_radial_map radial;
	struct pair p;

	assert_true(c != NULL && bin != NULL);
	open_case(c, g, rig_random(rng));
	rig_chunks = (int)rig_below(rng, 2); /* all images with the search */
	adu = rig_below(rng, 2) ? 16 : 1;
	draw_bins(&radial, bin, g, rng);
	pair_open_search(&p, g, rig_below(rng, 2) ? GK_VALUE_F32 : GK_VALUE_I16,
		1 + rig_below(rng, (uint32_t)gk_pixels(g)), gangs, SLOTS,
		UINT32_MAX - rig_below(rng, 40), in_device, tune, (int)rig_below(rng, 2),
		maps == 1 ? NULL : &c->map,
		rig_below(rng, 3) ? 1 + rig_below(rng, PEAKS_CAP) : GK_PEAKS_MAX,
		maps == 0 ? NULL : &radial);
	draw_coef(&p, rng);
	if (!once)
		pair_start(&p);
	for (uint32_t i = 0; i < plays; i++) {
		for (uint32_t k = 0; k < GK_PARAMS_MAX; k++)
			random_params(&p, c, k, rng);
		for (uint32_t slot = 0; slot < SLOTS; slot++)
			draw_frame(&p, c, slot, rng);
		play(&p, rng);
		if (once || rig_below(rng, 4) != 0)
			continue;
		pair_stop(&p);
		pair_start(&p);
	}
	if (!once)
		pair_stop(&p);
	pair_close(&p);
	free(c->bin);
	free(c->photons);
	free(c);
	free(bin);
}

static void
test_random(void **state)
{
	static const uint32_t cols[] = {32, 64, 96, 256, 544, 1056};
	const char *env = getenv("GK_ROUNDS");
	const uint32_t rounds = env != NULL ? (uint32_t)strtoul(env, NULL, 0) : 24;
	uint64_t rng = rig_seed("random");

	for (uint32_t i = 0; i < rounds; i++) {
		/* many peaks of a large frame take an emulated gang a minute */
		const struct gk_geometry g = {1 + rig_below(&rng, GK_EMULATED ? 6 : 12),
			1 + rig_below(&rng, GK_EMULATED ? 5 : 9),
			cols[rig_below(&rng, GK_EMULATED ? 3 : 6)]};

		round_of(&g, 1 + i % PAIR_GANGS_MAX, once || GK_EMULATED ? 2 : 4, (int)(i / 2 % 2),
			&rng);
	}
	print_message(
		"%u frames, %u searched, %u peaks, %u hits, %u kept with peaks, %u lists cut\n",
		seen.frames, seen.searched, seen.peaks, seen.hits, seen.kept, seen.cut);
	if (rounds < 8) /* too few to expect anything */
		return;
	assert_in_range(seen.searched, seen.frames / 4, seen.frames - 1);
	assert_true(seen.peaks > 0 && seen.hits > 0 && seen.kept > 0);
}

/* A detector of one module. */
static void
test_module(void **state)
{
	const struct gk_geometry g = {MODULE / 4, 4, 1024};
	uint64_t rng = rig_seed("module");

	pair_skip_emulated();
	for (uint32_t i = 0; i < 4; i++)
		round_of(&g, 1 + i % 2, 2, (int)(i / 2), &rng);
}

static void
tune_one_block(struct gk_config *c)
{
	tune(c);
	c->workers = 1;
}

/*
 * All pixels have the same number of photons and are in one bin. One block has all chunks, whose
 * sums of any photons do not fit into 32 bits.
 * @param bins    of the profile; those of the fast path have room for 1,023
 * @param chunks  of the frame; the fast path has room for 512
 * @param most    photons of the first frame, in G1; the second one, in G2, has the negative; the
 *                third one, in G0, has about the most that the fast path can convert
 */
static void
profile_of_greatest(uint32_t bins, uint32_t chunks, int32_t most)
{
	const struct gk_geometry g = {.tiles = 2, .tile_rows = chunks / 2, .cols = 512};
	const uint16_t words[] = {GK_RAW_G1 | 100, GK_RAW_G2 | 100, 0};
	const int32_t photons[] = {most, -most, 7990};
	const uint32_t pixels = (uint32_t)gk_pixels(&g), frames = 3;
	uint16_t *bin = calloc(pixels, sizeof(*bin));
	const struct gk_radial_map radial = {gk_rows(&g), g.cols, bins, bin, NULL};
	struct gk_work work = {.nb_frames = frames};
	struct gk_params *params;
	struct pair p;

	assert_non_null(bin);
	assert_true(pixels > GK_RADIAL_PART);
	pair_open_search(
		&p, &g, GK_VALUE_I16, 1, 1, frames, 0, 0, tune_one_block, 0, NULL, 0, &radial);
	for (uint32_t i = 0; i < pixels; i++) {
		p.host.p[0][i] = -1e8f;
		p.host.r[0][i] = (float)photons[2] / 1e8f;
		p.host.p[1][i] = 99;
		p.host.r[1][i] = (float)photons[0];
		p.host.p[2][i] = 101;
		p.host.r[2][i] = -(float)photons[1];
	}
	pair_coef(&p);
	params = &p.host.config.channel->params[0];
	*params = (struct gk_params){.strong_threshold = 1, .csr_threshold = 1, .strong_max = 0};
	p.cuda.config.channel->params[0] = *params;
	for (uint32_t f = 0; f < frames; f++) {
		struct gk_frame *frame = rig_frame(&p.host, f);

		frame->out = GK_NO_OUT;
		frame->profile = f;
		for (uint32_t t = 0; t < g.tiles; t++) {
			uint16_t *raw = rig_tile(&p.host, f, t);

			for (uint32_t i = 0; i < pixels / g.tiles; i++)
				raw[i] = words[f];
			frame->packet[t] = (uintptr_t)raw;
		}
		pair_frame(&p, f);
		work.slot[f] = f;
	}
	pair_submit(&p, 0, &work);
	pair_start(&p);
	pair_drain(&p);
	pair_stop(&p);
	for (uint32_t f = 0; f < frames; f++) {
		const struct gk_config *rigs[] = {&p.host.config, &p.cuda.config};

		for (uint32_t i = 0; i < 2; i++) {
			const uint8_t *profile =
				(const uint8_t *)rigs[i]->profiles + f * gk_profile_stride(bins);
			const int64_t sum = *(const int64_t *)profile;
			const int64_t expected = (int64_t)pixels * photons[f];

			if (sum != expected)
				fail_msg("%s gangs, %u bins: sum %lld, expected %lld",
					i == 0 ? "host" : "CUDA", bins, (long long)sum,
					(long long)expected);
		}
	}
	pair_compare(&p);
	pair_close(&p);
	free(bin);
}

static void
test_greatest(void **state)
{
	profile_of_greatest(1, 130, INT16_MAX - 1);
	profile_of_greatest(1024, 130, INT16_MAX - 1);
	profile_of_greatest(1, 512, INT16_MAX - 1);
	/* the greatest photons that are added in 32 bits */
	profile_of_greatest(1, 512, 8000);
	profile_of_greatest(1, 514, 8000);
}

/* Bits that replace a word of valid options: limits, signs, NaN */
static uint32_t
some_bits(uint64_t *rng)
{
	static const uint32_t bits[] = {0, 1, 2, 3, 8, 9, 15, 16, 0x7F800000, 0xFF800000,
		0x7FC00000, 0x80000000, 0xBF800000, 0x7F7FFFFF, UINT32_MAX};

	return bits[rig_below(rng, sizeof(bits) / sizeof(bits[0]))];
}

/* The GPU's checks compared with gk_work_check(). */
static void
test_refused(void **state)
{
	const struct gk_geometry g = {2, 2, 64};
	const uint32_t rounds = GK_EMULATED ? 24 : 60;
	uint64_t rng = rig_seed("refused");
	uint32_t refused = 0;
	struct peak_case *c = malloc(sizeof(*c));

	if (once)
		skip();
	assert_non_null(c);
	open_case(c, &g, 1);
	for (uint32_t round = 0; round < rounds; round++) {
		const struct gk_work work = {.nb_frames = 1};
		struct gk_channel *channel;
		uint32_t *word;
		struct pair p;
		int wanted;

		pair_open_search(&p, &g, GK_VALUE_F32, 10, 1, SLOTS, 0, 0, tune, 0,
			round % 8 == 0 ? NULL : &c->map, 10, NULL);
		channel = p.cuda.config.channel;
		case_params(c);
		channel->peak[0] = c->params;
		channel->params[0] = (struct gk_params){.search = 1 + rig_below(&rng, 2),
			.strong_max = UINT32_MAX,
			.csr_threshold = 1e30f};
		rig_frame(&p.cuda, 0)->out = GK_NO_OUT;
		switch (rig_below(&rng, 4)) {
		case 0:
			channel->params[0].search = rig_below(&rng, 5);
			break;
		case 1:
			channel->params[0].peaks_shells = rig_below(&rng, 512);
			break;
		default:
			word = (uint32_t *)&channel->peak[0];
			word[rig_below(&rng, sizeof(channel->peak[0]) / sizeof(*word))] =
				some_bits(&rng);
		}
		wanted = gk_work_check(&p.cuda.config, &work, NULL, 0);
		*gk_ring_next(&p.cuda.ring[0]) = work;
		gk_ring_submit(&p.cuda.ring[0]);
		assert_int_equal(p.cuda.ops->start(p.cuda.gk), 0);
		assert_int_equal(pair_stop_rig(&p.cuda), wanted);
		assert_int_equal(gk_ring_error(&p.cuda.ring[0]), wanted);
		assert_int_equal(gk_ring_is_done(&p.cuda.ring[0], 0), wanted == 0);
		refused += wanted != 0;
		pair_close(&p);
	}
	assert_in_range(refused, rounds / 8, rounds - rounds / 8);
	free(c->bin);
	free(c->photons);
	free(c);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_module),
		cmocka_unit_test(test_greatest),
		cmocka_unit_test(test_refused),
	};

	if (pair_driver() == NULL)
		return 77;
	once = getenv("GK_ONCE") != NULL;
	return cmocka_run_group_tests_name("gk_cuda_search", tests, NULL, NULL);
}
