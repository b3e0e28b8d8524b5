/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Search for peaks and radial profiles by host gangs: the same peaks, verdicts and outputs as
 * gk_peaks_find() and gangs without a search, and profiles as by their definition, for all
 * instruction sets, numbers of gangs and threads.
 */

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

#include "gk_peaks.h"
#include "gk_rig.h"

#define FRAMES	  40
#define ROUNDS	  3 /* of all frames; predictions differ after the first */
#define PEAKS_CAP 12
#define NNZ_CAP	  2000
#define SETS	  4
#define THREADS	  6 /* at most */
#define BINS	  37
#define AREAS	  (FRAMES + 5)

/* the thread sanitizer makes this test slow, and looks for nothing in its other cases */
#ifdef __SANITIZE_THREAD__
#define THREADS_ONLY 1
#else
#define THREADS_ONLY 0
#endif

/* enough tiles for several quanta; two panels, one above the other */
static const struct gk_geometry geometry = {30, 4, 96};
#define PANELS 2

struct map {
	struct gk_peak_map map;
	struct gk_peak_panel panel[PANELS];
	uint16_t *bin;
	uint16_t *radial; /* BINS: the pixel is in no bin */
};

struct expected {
	bool searched, hit;
	struct gk_peaks *peaks; /* NULL: not searched */
	int64_t sum[BINS];
	uint32_t count[BINS];
};

/* a gang thread */
struct worker {
	struct rig *rig;
	uint32_t number;
	uint64_t rng;
	int *quit;
	pthread_t thread;
};

static const struct gk_params sets[SETS] = {
	{.version = 1,
		.kind = GK_KIND_CSR,
		.strong_min = 60,
		.strong_max = 400,
		.peaks_min = 3,
		.peaks_max = 25,
		.search = GK_SEARCH_STRONG},
	{.version = 2,
		.kind = GK_KIND_IMAGE,
		.strong_max = UINT32_MAX,
		.peaks_min = 5,
		.peaks_max = UINT32_MAX,
		.search = GK_SEARCH_ALL},
	{.version = 3,
		.kind = GK_KIND_RAW,
		.strong_min = 30,
		.strong_max = UINT32_MAX,
		.peaks_min = 2,
		.peaks_max = 12,
		.peaks_shells = 2,
		.search = GK_SEARCH_ALL},
	/* the limits of peaks have no effect */
	{.version = 4,
		.kind = GK_KIND_CSR,
		.strong_min = 60,
		.strong_max = UINT32_MAX,
		.peaks_min = 1,
		.peaks_max = 0,
		.search = GK_SEARCH_NONE},
};

static const struct gk_peak_params options = {.threshold = 40,
	.min_snr = 4,
	.min_pixels = 2,
	.max_pixels = 60,
	.bg_radius = 3,
	.shells = 2,
	.shell = {5, 30, 60}};

static void
map_open(struct map *m, uint64_t *rng)
{
	const uint32_t rows = gk_rows(&geometry);

	m->bin = rig_alloc(gk_pixels(&geometry) * sizeof(*m->bin));
	for (uint32_t i = 0; i < PANELS; i++)
		m->panel[i] = (struct gk_peak_panel){.ss = i * rows / PANELS,
			.width = geometry.cols - i, /* its last column is in no panel */
			.height = rows / PANELS,
			.max_adu = INFINITY};
	for (uint32_t row = 0; row < rows; row++)
		for (uint32_t col = 0; col < geometry.cols; col++)
			m->bin[row * geometry.cols + col] =
				gk_peak_bin((double)col - 40, (double)row - 55, 0, 0) |
				(col == geometry.cols - 1 || rig_below(rng, 200) == 0
						? GK_PEAK_MASKED
						: 0);
	m->radial = rig_alloc(gk_pixels(&geometry) * sizeof(*m->radial));
	for (uint64_t i = 0; i < gk_pixels(&geometry); i++)
		m->radial[i] = (uint16_t)((m->bin[i] & GK_PEAK_BIN_MASK) / 2 < BINS - 2
				? (m->bin[i] & GK_PEAK_BIN_MASK) / 2
				: BINS); /* the last two bins have no pixels */
	m->map = (struct gk_peak_map){rows, geometry.cols, m->bin, m->panel, PANELS};
}

static void
map_close(struct map *m)
{
	free(m->bin);
	free(m->radial);
}

/* Area of a frame's profile */
static uint8_t *
profile_of(const struct rig *rig, uint32_t slot)
{
	return rig->config.profiles + rig_frame(rig, slot)->profile * gk_profile_stride(BINS);
}

/* Background of 0 to 8 photons, and spots of up to 400. 8 ADU are a photon. */
static void
draw_frame(struct rig *rig, uint32_t slot, uint64_t *rng)
{
	const uint32_t spots = slot * 7 % 40, rows = gk_rows(&geometry);
	struct gk_frame *frame = rig_frame(rig, slot);

	frame->frame = 1000 + slot;
	frame->out = slot % 9 == 8 ? GK_NO_OUT : slot;
	frame->profile = (slot + 7) % AREAS;
	frame->flags = slot % 7 == 1 ? GK_FRAME_KEEP : 0;
	frame->flags |= slot % 11 == 2 ? GK_FRAME_KEEP | GK_FRAME_KIND_RAW : 0;
	for (uint32_t t = 0; t < geometry.tiles; t++) {
		uint16_t *raw = rig_tile(rig, slot, t);

		frame->packet[t] = slot % 4 == 3 && rig_below(rng, 8) == 0 ? 0 : (uintptr_t)raw;
		for (uint32_t i = 0; i < geometry.tile_rows * geometry.cols; i++)
			raw[i] = (uint16_t)(1000 + rig_below(rng, 64));
		if (slot % 6 == 5) /* saturated and other words */
			rig_random_tile(raw, geometry.cols, rng);
	}
	for (uint32_t i = 0; i < spots; i++) {
		const uint32_t row = rig_below(rng, rows - 1), col = rig_below(rng, 95);

		for (uint32_t k = 0; k < 4; k++) {
			const uint32_t y = row + k / 2;
			uint16_t *raw = rig_tile(rig, slot, y / geometry.tile_rows);

			raw[y % geometry.tile_rows * geometry.cols + col + k % 2] =
				(uint16_t)(1200 + rig_below(rng, 3000));
		}
	}
}

static void
draw(struct rig *rig, uint64_t *rng)
{
	static const float gain[3] = {1.0f / 8, -1.0f / 4, -2.0f};

	for (uint64_t i = 0; i < gk_pixels(&geometry); i++) {
		const bool masked = rig_below(rng, 300) == 0;

		for (int g = 0; g < 3; g++) {
			rig->p[g][i] = masked && g == 2 ? rig_some_nan(rng) : 1000.0f + 9000 * g;
			rig->r[g][i] = masked ? rig_some_nan(rng) : gain[g];
		}
	}
	for (uint32_t slot = 0; slot < FRAMES; slot++)
		draw_frame(rig, slot, rng);
}

static void
set_params(struct gk_channel *channel)
{
	for (uint32_t i = 0; i < SETS; i++) {
		channel->params[i] = sets[i];
		channel->params[i].strong_threshold = 20;
		channel->params[i].csr_threshold = 7.5f;
		channel->params[i].nnz_max = NNZ_CAP - 500 * i;
		channel->peak[i] = options;
		channel->peak[i].threshold += (float)i; /* of this set and no other */
	}
}

/* Gangs with a map and room for peaks. Each has the frames of seed `data`. */
static void
open_gangs(struct rig *rig, const struct map *m, enum gk_value value, enum gk_isa isa,
	uint32_t gangs, uint32_t workers, uint64_t data)
{
	struct gk_config *c = &rig->config;

	rig_open(rig, &geometry, value, NNZ_CAP, gangs, FRAMES, 0);
	rig->ops->destroy(rig->gk);
	c->isa = isa;
	c->workers = workers;
	gk_layout_add_peaks(&c->layout, PEAKS_CAP);
	free(c->outputs);
	c->outputs = rig_alloc(FRAMES * c->layout.stride);
	c->channel->pixels = (struct gk_peak_pixels){.bin = (uintptr_t)m->bin,
		.panel = (uintptr_t)rig_alloc(sizeof(m->panel)),
		.nb_panels = PANELS};
	memcpy((void *)(uintptr_t)c->channel->pixels.panel, m->panel, sizeof(m->panel));
	c->channel->radial =
		(struct gk_radial_pixels){.bin = (uintptr_t)m->radial, .nb_bins = BINS};
	c->profiles = rig_alloc(AREAS * gk_profile_stride(BINS));
	c->nb_profiles = AREAS;
	if (rig->ops->create(c, &rig->gk) != 0)
		fail_msg("%s", rig->ops->why());
	set_params(c->channel);
	draw(rig, &data);
	assert_int_equal(rig->ops->start(rig->gk), 0);
}

static void
close_gangs(struct rig *rig)
{
	int ret;

	while ((ret = rig->ops->stop(rig->gk)) == -EBUSY)
		sched_yield();
	assert_int_equal(ret, 0);
	free(rig->config.profiles);
	free((void *)(uintptr_t)rig->config.channel->pixels.panel);
	rig_close(rig);
}

static void *
work(void *arg)
{
	struct worker *w = arg;

	while (!__atomic_load_n(w->quit, __ATOMIC_ACQUIRE)) {
		/* threads serve all gangs, with any number */
		if (!w->rig->ops->poll(
			    w->rig->gk, rig_below(&w->rng, w->rig->config.gangs), w->number) ||
			rig_below(&w->rng, 8) == 0)
			sched_yield();
	}
	return NULL;
}

/* All frames once, in batches of random size. */
static void
play(struct rig *rig, uint32_t threads, uint32_t set, uint64_t *rng)
{
	uint32_t raw;

	for (uint32_t slot = 0; slot < FRAMES; slot++)
		memset(rig_output(rig, slot), RIG_GUARD, rig->config.layout.stride);

	for (uint32_t slot = 0; slot < FRAMES;) {
		struct gk_ring *ring = &rig->ring[rig_below(rng, rig->config.gangs)];
		const uint32_t n = 1 + rig_below(rng, GK_BATCH_MAX);
		struct gk_work *w = gk_ring_next(ring);

		*w = (struct gk_work){.params = set};
		for (; slot < FRAMES && w->nb_frames < n; slot++)
			w->slot[w->nb_frames++] = slot;
		gk_ring_submit(ring);
	}
	for (uint32_t gang = 0; gang < rig->config.gangs; gang++) {
		struct gk_ring *ring = &rig->ring[gang];

		while (gk_ring_pending(ring) > 0) {
			if (threads == 0)
				rig_poll_all(rig);
			assert_int_equal(gk_ring_error(ring), 0);
			if (!gk_ring_is_done(ring, ring->done_tail)) {
				sched_yield();
				continue;
			}
			assert_int_equal(gk_ring_take_raw(ring, &raw), 1);
			gk_ring_collect(ring);
		}
	}
}

/* Photons by their definition. @return number of strong pixels */
static uint32_t
convert(const struct rig *rig, uint32_t slot, float strong_threshold, int16_t *photons)
{
	const uint32_t pixels = geometry.tile_rows * geometry.cols;
	uint32_t strong = 0;

	for (uint32_t i = 0; i < gk_pixels(&geometry); i++) {
		const float p[3] = {rig->p[0][i], rig->p[1][i], rig->p[2][i]},
			    r[3] = {rig->r[0][i], rig->r[1][i], rig->r[2][i]};
		const uint32_t tile = i / pixels;
		float value;

		photons[i] = INT16_MIN;
		if (rig_frame(rig, slot)->packet[tile] == 0)
			continue;
		value = gk_photons(rig_tile(rig, slot, tile)[i % pixels], p, r);
		photons[i] = gk_value_i16(value);
		strong += value >= strong_threshold;
	}
	return strong;
}

static void
expect_profile(const struct map *m, const int16_t *photons, struct expected *e)
{
	for (uint64_t i = 0; i < gk_pixels(&geometry); i++) {
		if (m->radial[i] == BINS || photons[i] == INT16_MIN || photons[i] == INT16_MAX)
			continue;
		e->sum[m->radial[i]] += photons[i];
		e->count[m->radial[i]]++;
	}
}

static void
expect_frame(const struct rig *rig, const struct map *m, struct gk_peak_finder *finder,
	uint32_t set, uint32_t slot, struct expected *e)
{
	const struct gk_params *params = &rig->config.channel->params[set];
	int16_t *photons = rig_alloc(gk_pixels(&geometry) * sizeof(*photons));
	const uint32_t strong = convert(rig, slot, params->strong_threshold, photons);
	const bool in = strong >= params->strong_min && strong <= params->strong_max;
	uint32_t n;

	*e = (struct expected){.hit = in};
	expect_profile(m, photons, e);
	if (params->search == GK_SEARCH_ALL || (params->search == GK_SEARCH_STRONG && in)) {
		e->searched = true;
		e->peaks = malloc(GK_PEAKS_SIZE);
		assert_non_null(e->peaks);
		gk_peaks_find(finder, &rig->config.channel->peak[set], photons, e->peaks);
		n = params->peaks_shells == 2 ? e->peaks->shell[1] : e->peaks->count;
		e->hit = in && n >= params->peaks_min && n <= params->peaks_max;
	}
	free(photons);
}

static void
check_output(const struct rig *rig, const struct rig *plain, uint32_t slot)
{
	const struct gk_layout *l = &rig->config.layout;
	const struct gk_result *r = &rig->config.results[slot];
	const uint8_t *out = rig_output(rig, slot), *same = rig_output(plain, slot);
	const uint64_t tile_bytes = (uint64_t)geometry.tile_rows * geometry.cols * 2;

	switch (r->kind) {
	case GK_KIND_CSR:
		assert_memory_equal(out, same, 4 * (gk_rows(&geometry) + 1));
		assert_memory_equal(out + l->col, same + l->col, 2 * r->nnz);
		assert_memory_equal(out + l->value, same + l->value, r->nnz * l->value_size);
		break;
	case GK_KIND_IMAGE:
		assert_memory_equal(
			out + l->value, same + l->value, gk_pixels(&geometry) * l->value_size);
		break;
	case GK_KIND_RAW:
		for (uint32_t t = 0; t < geometry.tiles; t++)
			if (rig_frame(rig, slot)->packet[t] != 0)
				assert_memory_equal(out + l->raw + t * tile_bytes,
					rig_tile(rig, slot, t), tile_bytes);
		break;
	default:
		assert_int_equal(r->kind, GK_KIND_NONE);
	}
}

static void
check_profile(const struct rig *rig, uint32_t slot, const struct expected *e)
{
	const uint64_t count_at = gk_profile_count_at(BINS);
	const uint8_t *area = profile_of(rig, slot);

	assert_memory_equal(area, e->sum, sizeof(e->sum));
	assert_memory_equal(area + count_at, e->count, sizeof(e->count));
	for (uint64_t i = sizeof(e->sum); i < gk_profile_stride(BINS); i++)
		if (i < count_at || i >= count_at + sizeof(e->count))
			assert_int_equal(area[i], RIG_GUARD);
}

/* @param plain  gangs that have kept all frames without a search */
static void
check_frame(const struct rig *rig, const struct rig *plain, uint32_t slot, const struct expected *e)
{
	const struct gk_result *r = &rig->config.results[slot];
	const struct gk_frame *frame = rig_frame(rig, slot);
	uint32_t kind = plain->config.results[slot].kind, listed;

	assert_int_equal(r->frame, 1000 + slot);
	assert_int_equal(r->sum, plain->config.results[slot].sum);
	assert_int_equal(r->verdict, e->hit);
	if (!e->hit && !(frame->flags & GK_FRAME_KEEP))
		kind = GK_KIND_NONE;
	else if (!e->hit && (frame->flags & GK_FRAME_KIND_RAW) && frame->out != GK_NO_OUT)
		kind = GK_KIND_RAW;
	assert_int_equal(r->kind, kind);
	check_output(rig, plain, slot);
	check_profile(rig, slot, e);
	assert_int_equal(r->peaks, e->searched ? e->peaks->count : 0);
	assert_int_equal(r->peaks_found, e->searched ? e->peaks->found : GK_NOT_SEARCHED);
	if (!e->searched)
		return;
	assert_memory_equal(
		rig->config.details[slot].shell_peaks, e->peaks->shell, sizeof(e->peaks->shell));
	listed = r->peaks < PEAKS_CAP ? r->peaks : PEAKS_CAP;
	if (kind != GK_KIND_NONE)
		assert_memory_equal(rig_output(rig, slot) + rig->config.layout.peaks,
			e->peaks->peak, listed * sizeof(e->peaks->peak[0]));
}

static void
play_set(struct rig *rig, const struct rig *plain, const struct map *m, uint32_t threads,
	uint32_t set, const struct expected *expected, uint64_t *rng)
{
	struct worker workers[THREADS];
	int quit = 0;

	for (uint32_t i = 0; i < threads; i++) {
		workers[i] = (struct worker){rig, i, rig_random(rng), &quit, 0};
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (uint32_t round = 0; round < ROUNDS; round++) {
		memset(rig->config.details, RIG_GUARD, FRAMES * sizeof(*rig->config.details));
		memset(rig->config.profiles, RIG_GUARD, AREAS * gk_profile_stride(BINS));
		play(rig, threads, set, rng);
		for (uint32_t i = 0; i < FRAMES; i++)
			check_frame(rig, plain, i, &expected[i]);
	}
	__atomic_store_n(&quit, 1, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
}

/* All combinations of gangs and threads for a set of parameters */
static void
test_set(const struct map *m, enum gk_value value, uint32_t set, uint64_t data, uint64_t *rng)
{
	/* gangs, threads; 0: the caller polls */
	static const uint32_t shape[][2] = {{1, 0}, {1, 1}, {1, THREADS}, {3, 2}, {2, THREADS}};
	uint32_t searched = 0, hits = 0, most = 0;
	struct expected expected[FRAMES];
	struct gk_peak_finder *finder;
	struct rig plain, rig;

	assert_int_equal(gk_peak_finder_create(&m->map, GK_ISA_PLAIN, &finder), 0);
	open_gangs(&plain, m, value, GK_ISA_PLAIN, 1, 1, data);
	for (uint32_t i = 0; i < FRAMES; i++) {
		expect_frame(&plain, m, finder, set, i, &expected[i]);
		searched += expected[i].searched;
		hits += expected[i].hit;
		if (expected[i].searched && expected[i].peaks->count > most)
			most = expected[i].peaks->count;
	}
	print_message("set %u: %u frames searched, %u hits, at most %u peaks\n", set, searched,
		hits, most);
	assert_in_range(hits, 1, FRAMES - 1);
	if (sets[set].search == GK_SEARCH_STRONG)
		assert_in_range(searched, hits + 1, FRAMES - 1);
	if (sets[set].search != GK_SEARCH_NONE)
		assert_true(most > PEAKS_CAP);
	plain.config.channel->params[set].search = GK_SEARCH_NONE;
	plain.config.channel->params[set].strong_min = 0;
	plain.config.channel->params[set].strong_max = UINT32_MAX;
	play(&plain, 0, set, rng);

	for (enum gk_isa isa = GK_ISA_PLAIN; isa < (THREADS_ONLY ? GK_ISA_PLAIN + 1 : GK_ISAS);
		isa++) {
		if (gk_isa_choose(isa) != (int)isa)
			continue;
		for (uint32_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
			if (THREADS_ONLY && shape[i][1] < 2)
				continue;
			open_gangs(&rig, m, value, isa, shape[i][0], shape[i][1], data);
			play_set(&rig, &plain, m, shape[i][1], set, expected, rng);
			close_gangs(&rig);
		}
	}
	for (uint32_t i = 0; i < FRAMES; i++)
		free(expected[i].peaks);
	gk_peak_finder_destroy(finder);
	close_gangs(&plain);
}

static void
test_search(void **state)
{
	uint64_t rng = rig_seed("search");
	struct map m;

	map_open(&m, &rng);
	for (uint32_t set = 0; set < SETS; set++) {
		const uint64_t data = rig_random(&rng);

		if (!THREADS_ONLY)
			test_set(&m, GK_VALUE_F32, set, data, &rng);
		test_set(&m, GK_VALUE_I16, set, data, &rng);
	}
	map_close(&m);
}

/* A quantum is a few tiles, and a thread that stops in a search does not hold it up. */
static void
test_quantum(void **state)
{
	uint64_t rng = rig_seed("quantum");
	uint32_t polls = 0;
	struct rig rig;
	struct map m;

	map_open(&m, &rng);
	open_gangs(&rig, &m, GK_VALUE_F32, GK_ISA_PLAIN, 1, 3, rig_random(&rng));
	*gk_ring_next(&rig.ring[0]) = (struct gk_work){.nb_frames = 2, .params = 1, .slot = {0, 1}};
	gk_ring_submit(&rig.ring[0]);
	/* each poll is made by another thread */
	while (!gk_ring_is_done(&rig.ring[0], 0)) {
		assert_int_equal(rig.ops->stop(rig.gk), -EBUSY);
		assert_true(rig.ops->poll(rig.gk, 0, polls++));
	}
	/* setup, tiles of both passes, and each frame's search in 30 / 8 quanta */
	assert_true(polls > 2 * 4);
	assert_int_not_equal(rig.config.results[0].peaks_found, GK_NOT_SEARCHED);
	assert_int_not_equal(rig.config.results[1].peaks_found, GK_NOT_SEARCHED);
	close_gangs(&rig);
	map_close(&m);
}

/* Gangs that make profiles without a map for searches. */
static void
test_profiles_only(void **state)
{
	uint64_t rng = rig_seed("profiles");
	struct expected expected[FRAMES];
	struct rig rig;
	struct map m;

	map_open(&m, &rng);
	open_gangs(&rig, &m, GK_VALUE_I16, GK_ISA_AUTO, 2, 2, rig_random(&rng));
	for (uint32_t i = 0; i < FRAMES; i++)
		expect_frame(&rig, &m, NULL, 3, i, &expected[i]);
	assert_int_equal(rig.ops->stop(rig.gk), 0);
	rig.ops->destroy(rig.gk);
	rig.config.channel->pixels.bin = 0;
	assert_int_equal(rig.ops->create(&rig.config, &rig.gk), 0);
	assert_int_equal(rig.ops->start(rig.gk), 0);
	memset(rig.config.profiles, RIG_GUARD, AREAS * gk_profile_stride(BINS));
	play(&rig, 0, 3, &rng);
	for (uint32_t i = 0; i < FRAMES; i++) {
		check_profile(&rig, i, &expected[i]);
		assert_int_equal(rig.config.results[i].peaks_found, GK_NOT_SEARCHED);
	}
	close_gangs(&rig);
	map_close(&m);
}

/* A profile outside the areas fails the gang, as any invalid descriptor. */
static void
test_profile_area(void **state)
{
	uint64_t rng = rig_seed("area");
	struct gk_work work = {.nb_frames = 1, .slot = {2}};
	struct rig rig;
	struct map m;
	char why[160];

	map_open(&m, &rng);
	open_gangs(&rig, &m, GK_VALUE_I16, GK_ISA_AUTO, 1, 1, rig_random(&rng));
	assert_int_equal(gk_work_check(&rig.config, &work, why, sizeof(why)), 0);
	rig_frame(&rig, 2)->profile = AREAS;
	assert_int_equal(gk_work_check(&rig.config, &work, why, sizeof(why)), -EINVAL);
	assert_string_equal(
		why, "frame 1002 in slot 2 has profile 45, expected less than nb_profiles = 45");
	close_gangs(&rig);
	map_close(&m);
}

/* The map is checked when the gangs are created. */
static void
test_map(void **state)
{
	uint64_t rng = rig_seed("map");
	struct gk *gk = NULL;
	struct rig rig;
	struct map m;

	map_open(&m, &rng);
	open_gangs(&rig, &m, GK_VALUE_F32, GK_ISA_PLAIN, 1, 1, 1);
	((struct gk_peak_panel *)(uintptr_t)rig.config.channel->pixels.panel)[1].ss = 0;
	assert_int_equal(rig.ops->create(&rig.config, &gk), -EINVAL);
	assert_null(gk);
	assert_string_equal(
		rig.ops->why(), "panels 0 and 1 overlap at column 0, row 0, expected panels apart");
	rig.config.channel->pixels.bin = 0;
	m.radial[97] = BINS + 1;
	assert_int_equal(rig.ops->create(&rig.config, &gk), -EINVAL);
	assert_string_equal(rig.ops->why(),
		"bin 38 at column 1, row 1, expected at most 37, which is that of unused pixels");
	close_gangs(&rig);
	map_close(&m);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_search),
		cmocka_unit_test(test_quantum),
		cmocka_unit_test(test_profiles_only),
		cmocka_unit_test(test_profile_area),
		cmocka_unit_test(test_map),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
