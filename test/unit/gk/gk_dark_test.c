/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dark frames: values that gangs add to accumulators, and pedestals that updates compute from them,
 * compared with a plain reference over many pedestal intervals. Any number of gangs and threads
 * gives the same bits.
 */

#include <pthread.h>
#include <sched.h>

#include "gk_rig.h"

#define PATTERNS	40
#define SLOTS		48
#define INTERVALS	24
#define INTERVAL_FRAMES 30
#define WORKERS		3

static const struct gk_geometry geometry = {5, 2, 96};
#define PIXELS 960
#define TILE   192

/*
 * Reference, written from the text of the architecture: every operation in long double, rounded
 * once.
 */
static float
ref_update(float p, uint32_t n, uint32_t s, uint32_t n_min, float alpha)
{
	const float fs = (float)(long double)s, fn = (float)(long double)n;
	float mean, d, step, moved;

	if (n < n_min)
		return p;
	mean = (float)((long double)fs / (long double)fn);
	d = (float)((long double)mean - (long double)p);
	step = (float)((long double)alpha * (long double)d);
	moved = (float)((long double)p + (long double)step);
	return isnan(moved) ? p : moved;
}

static uint32_t
bits(float f)
{
	uint32_t b;

	memcpy(&b, &f, sizeof(b));
	return b;
}

static void
test_words(void **state)
{
	static const uint32_t sums[] = {0, 1, 0xFFFF, 0x10000, 16777217, 0x7FFFFFFF, 0x80000001,
		16383u * GK_DARK_FRAMES_MAX, UINT32_MAX};
	uint64_t rng = rig_seed("words");

	for (uint32_t w = 0; w < 0x10000; w++) {
		const uint64_t wanted = w < 0x4000 ? (UINT64_C(1) << 32) + w : 0;

		assert_int_equal(gk_dark_sample((uint16_t)w, -1.5f), wanted);
		assert_int_equal(gk_dark_sample((uint16_t)w, rig_some_nan(&rng)), 0);
	}
	for (int i = 0; i < 2000000; i++) {
		const uint32_t n = rig_below(&rng, 2) ? rig_below(&rng, 50)
						      : rig_below(&rng, GK_DARK_FRAMES_MAX + 1);
		const uint32_t s = i % 3 == 0 ? sums[rig_below(&rng, 9)]
					      : (uint32_t)(rig_random(&rng) % (16383ull * n + 1));
		const uint32_t n_min = 1 + rig_below(&rng, 40);
		const float alpha =
			rig_below(&rng, 4) ? (float)(1 + rig_below(&rng, 64)) / 64.0f : 0.3f;
		float p = 3000.0f + (float)rig_below(&rng, 1 << 20) / 1024.0f;

		if (rig_below(&rng, 16) == 0)
			p = rig_float_of((uint32_t)rig_random(&rng));
		assert_int_equal(bits(gk_dark_update(p, (uint64_t)n << 32 | s, n_min, alpha)),
			bits(ref_update(p, n, s, n_min, alpha)));
	}
}

/*
 * Expected result of a pedestal interval's dark frames; coefficient version e is used in pedestal
 * interval e.
 */
struct truth {
	float p[INTERVALS + 2][PIXELS];
	uint32_t version[INTERVALS + 2];
	struct gk_update update[INTERVALS];
	int dark[INTERVALS]; /* frames */
};

struct stage {
	struct rig rig;
	uint16_t *pattern[PATTERNS];
	struct gk_params params[INTERVALS];
	struct truth truth;
	uint64_t seed;
	int quit;
};

/*
 * Frame n is the same in every run: its pattern, missing tiles and dark flag depend only on its
 * number.
 */
static uint64_t
frame_hash(const struct stage *s, uint64_t n)
{
	uint64_t state = s->seed ^ n << 20;

	return rig_random(&state);
}

static uint16_t *
frame_tile(const struct stage *s, uint64_t n, uint32_t tile)
{
	const uint64_t h = frame_hash(s, n);

	if (h >> 60 < 4 && h >> (40 + tile) & 1)
		return NULL;
	return s->pattern[h % PATTERNS] + tile * TILE;
}

static int
frame_dark(const struct stage *s, uint64_t n)
{
	const uint64_t interval = n / INTERVAL_FRAMES;

	/* none, a few, half, all */
	return (frame_hash(s, n) >> 8) % 4 < interval % 5;
}

static void
stage_open(struct stage *s, uint32_t gangs, uint64_t seed)
{
	uint64_t rng = seed;

	s->seed = seed;
	rig_open(&s->rig, &geometry, GK_VALUE_F32, 100, gangs, SLOTS, (uint32_t)rig_random(&rng));
	rig_random_coef(&s->rig, &rng);
	for (uint32_t x = 0; x < PIXELS; x += 7) /* NaN pedestals also keep their bits */
		s->rig.p[0][x] = rig_below(&rng, 3) ? s->rig.p[0][x] : rig_some_nan(&rng);
	s->rig.config.channel->coef[0].version = 100;
	for (uint32_t i = 0; i < PATTERNS; i++) {
		s->pattern[i] = rig_alloc(PIXELS * 2);
		rig_random_tile(s->pattern[i], PIXELS, &rng);
	}
	for (uint32_t e = 0; e < INTERVALS; e++) {
		s->params[e] = (struct gk_params){.version = e,
			.kind = GK_KIND_CSR,
			.csr_threshold = 1.0f,
			.strong_threshold = 1.0f,
			.strong_min = 100,
			.strong_max = UINT32_MAX,
			.nnz_max = 100,
			.dark_min = 1 + rig_below(&rng, 12),
			.dark_alpha = (float)(1 + rig_below(&rng, 100)) / 100.0f};
	}
}

static void
stage_close(struct stage *s)
{
	for (uint32_t i = 0; i < PATTERNS; i++)
		free(s->pattern[i]);
	rig_close(&s->rig);
}

static void
ref_interval(struct stage *s, uint32_t interval)
{
	struct truth *t = &s->truth;
	struct gk_update *u = &t->update[interval];
	static uint32_t n[PIXELS], sum[PIXELS];

	memset(n, 0, sizeof(n));
	memset(sum, 0, sizeof(sum));
	t->dark[interval] = 0;
	for (uint64_t f = (uint64_t)interval * INTERVAL_FRAMES;
		f < (interval + 1ull) * INTERVAL_FRAMES; f++) {
		if (!frame_dark(s, f))
			continue;
		t->dark[interval]++;
		for (uint32_t x = 0; x < PIXELS; x++) {
			const uint16_t *words = frame_tile(s, f, x / TILE);

			if (words == NULL || words[x % TILE] >= 0x4000 || isnan(s->rig.r[0][x]))
				continue;
			n[x]++;
			sum[x] += words[x % TILE];
		}
	}
	memcpy(t->p[interval + 2], t->p[interval + 1], sizeof(t->p[0]));
	t->version[interval + 2] = t->version[interval + 1];
	if (t->dark[interval] == 0)
		return;
	t->version[interval + 2]++;
	*u = (struct gk_update){.from = t->version[interval + 1], .to = t->version[interval + 2]};
	for (uint32_t x = 0; x < PIXELS; x++) {
		const float p = t->p[interval + 1][x];
		const float q = ref_update(p, n[x], sum[x], s->params[interval].dark_min,
			s->params[interval].dark_alpha);
		const float moved = (float)((long double)q - (long double)p);

		t->p[interval + 2][x] = q;
		u->samples += n[x];
		u->updated += n[x] >= s->params[interval].dark_min;
		if (!isnan(moved))
			u->drift += (int64_t)rintl((long double)moved * 256);
	}
}

static void
ref_all(struct stage *s)
{
	for (int e = 0; e < 2; e++) {
		memcpy(s->truth.p[e], s->rig.p[0], sizeof(s->truth.p[e]));
		s->truth.version[e] = 100;
	}
	for (uint32_t e = 0; e < INTERVALS; e++)
		ref_interval(s, e);
}

/*
 * The arithmetic of pixels has its own test; this one checks which pedestals were used for a frame.
 */
static void
check_result(const struct stage *s, uint32_t slot, uint64_t number)
{
	const struct gk_result *found = &s->rig.config.results[slot];
	const uint32_t interval = (uint32_t)(number / INTERVAL_FRAMES);
	uint32_t invalid = 0;
	int64_t sum = 0;

	for (uint32_t x = 0; x < PIXELS; x++) {
		const uint16_t *words = frame_tile(s, number, x / TILE);
		const float p[3] = {s->truth.p[interval][x], s->rig.p[1][x], s->rig.p[2][x]};
		const float r[3] = {s->rig.r[0][x], s->rig.r[1][x], s->rig.r[2][x]};
		const float ph = words == NULL ? NAN : gk_photons(words[x % TILE], p, r);

		invalid += ph != ph;
		sum += gk_sum_q8(ph);
	}
	assert_int_equal(found->frame, number);
	assert_int_equal(found->coef, s->truth.version[interval]);
	assert_int_equal(found->params, interval);
	assert_int_equal(found->invalid, invalid);
	assert_int_equal(found->sum, sum);
}

struct worker {
	struct stage *stage;
	uint64_t rng;
	pthread_t thread;
};

static void *
work(void *arg)
{
	struct worker *w = arg;
	struct rig *rig = &w->stage->rig;

	while (!__atomic_load_n(&w->stage->quit, __ATOMIC_ACQUIRE)) {
		if (!rig->ops->poll(rig->gk, rig_below(&w->rng, rig->config.gangs), 0) ||
			rig_below(&w->rng, 4) == 0)
			sched_yield();
	}
	return NULL;
}

/* The builder's side: batches in flight, with the coefficients and accumulators that each uses. */
struct player {
	struct stage *s;
	uint64_t *rng;
	struct {
		uint32_t gang, batch, n, coef, dark;
		uint64_t number;
	} out[SLOTS];
	uint32_t head, tail;
	uint32_t free_slots, next_slot;
	uint32_t now; /* current version: 0 or 1 */
	int threads;
};

/* Collect batches that are done, in order of submission. */
static void
collect(struct player *pl)
{
	struct stage *s = pl->s;

	if (!pl->threads)
		rig_poll_all(&s->rig);
	while (pl->tail != pl->head) {
		const uint32_t i = pl->tail % SLOTS;
		struct gk_ring *ring = &s->rig.ring[pl->out[i].gang];
		const struct gk_work *w = gk_ring_work(ring, pl->out[i].batch);

		assert_int_equal(gk_ring_error(ring), 0);
		if (!gk_ring_is_done(ring, pl->out[i].batch)) {
			sched_yield();
			return;
		}
		for (uint32_t k = 0; k < pl->out[i].n; k++)
			check_result(s, w->slot[k], pl->out[i].number + k);
		pl->free_slots += pl->out[i].n;
		gk_ring_collect(ring);
		pl->tail++;
	}
}

static struct gk_work *
next_work(struct player *pl, uint32_t *gang)
{
	struct gk_work *w;

	do {
		*gang = rig_below(pl->rng, pl->s->rig.config.gangs);
		w = gk_ring_next(&pl->s->rig.ring[*gang]);
		if (w == NULL)
			collect(pl);
	} while (w == NULL);
	return w;
}

/*
 * Called before the first frame of a pedestal interval: the dark frames of the interval before the
 * previous one take effect.
 */
static void
update(struct player *pl, uint32_t interval)
{
	struct stage *s = pl->s;
	struct gk_channel *channel = s->rig.config.channel;
	const uint32_t from = pl->now, to = 1 - from, set = interval % GK_DARK_MAX;
	uint32_t gang, batch, busy;
	struct gk_work *w;

	if (s->truth.dark[interval] == 0)
		return;
	do {
		collect(pl);
		busy = 0;
		for (uint32_t i = pl->tail; i != pl->head; i++)
			busy += pl->out[i % SLOTS].coef == to || pl->out[i % SLOTS].dark == set;
	} while (busy > 0);
	channel->coef[to].version = channel->coef[from].version + 1;
	channel->params[interval % 2] = s->params[interval];
	w = next_work(pl, &gang);
	*w = (struct gk_work){.op = GK_OP_UPDATE,
		.params = interval % 2,
		.coef = from,
		.coef_to = to,
		.dark = set};
	pl->out[pl->head++ % SLOTS].n = 0;
	pl->out[(pl->head - 1) % SLOTS].gang = gang;
	batch = gk_ring_submit(&s->rig.ring[gang]);
	pl->out[(pl->head - 1) % SLOTS].batch = batch;
	while (!gk_ring_is_done(&s->rig.ring[gang], batch))
		if (pl->threads)
			sched_yield();
		else
			rig_poll_all(&s->rig);
	pl->now = to;
	assert_memory_equal(
		to == 0 ? s->rig.p[0] : s->rig.p_next, s->truth.p[interval + 2], PIXELS * 4);
	assert_memory_equal(
		&channel->update[set], &s->truth.update[interval], sizeof(struct gk_update));
	for (uint32_t x = 0; x < PIXELS; x++)
		assert_int_equal(s->rig.cells[set][x], 0);
}

static void
play(struct stage *s, int threads, uint64_t *rng)
{
	struct player pl = {.s = s, .rng = rng, .free_slots = SLOTS, .threads = threads};
	uint64_t number = 0;

	while (number < INTERVALS * INTERVAL_FRAMES || pl.tail != pl.head) {
		const uint32_t interval = (uint32_t)(number / INTERVAL_FRAMES);
		const uint64_t left = INTERVAL_FRAMES - number % INTERVAL_FRAMES;
		uint32_t n = 1 + rig_below(rng, GK_BATCH_MAX), gang;
		struct gk_work *w;

		collect(&pl);
		if (number == INTERVALS * INTERVAL_FRAMES)
			continue;
		n = n < left ? n : (uint32_t)left;
		n = n < pl.free_slots ? n : pl.free_slots;
		if (n == 0 || pl.head - pl.tail >= SLOTS - 1)
			continue;
		if (number % INTERVAL_FRAMES == 0 && interval >= 2)
			update(&pl, interval - 2);
		w = next_work(&pl, &gang);
		if (number % INTERVAL_FRAMES == 0)
			s->rig.config.channel->params[2 + interval % 4] = s->params[interval];
		*w = (struct gk_work){.nb_frames = n,
			.params = 2 + interval % 4,
			.coef = pl.now,
			.dark = interval % GK_DARK_MAX};
		for (uint32_t i = 0; i < n; i++) {
			struct gk_frame *frame = rig_frame(&s->rig, pl.next_slot);

			frame->frame = number + i;
			frame->out = rig_below(rng, 2) ? pl.next_slot : GK_NO_OUT;
			frame->flags = frame_dark(s, number + i) ? GK_FRAME_DARK : 0;
			for (uint32_t t = 0; t < geometry.tiles; t++)
				frame->packet[t] = (uintptr_t)frame_tile(s, number + i, t);
			w->slot[i] = pl.next_slot;
			pl.next_slot = (pl.next_slot + 1) % SLOTS;
		}
		pl.free_slots -= n;
		pl.out[pl.head % SLOTS].gang = gang;
		pl.out[pl.head % SLOTS].n = n;
		pl.out[pl.head % SLOTS].number = number;
		pl.out[pl.head % SLOTS].coef = pl.now;
		pl.out[pl.head % SLOTS].dark = interval % GK_DARK_MAX;
		pl.out[pl.head % SLOTS].batch = gk_ring_submit(&s->rig.ring[gang]);
		pl.head++;
		number += n;
	}
}

static void
run(struct stage *s, uint32_t gangs, uint32_t threads, uint64_t seed, uint64_t *rng)
{
	struct worker workers[8 * WORKERS];

	stage_open(s, gangs, seed);
	ref_all(s);
	assert_int_equal(s->rig.ops->start(s->rig.gk), 0);
	s->quit = 0;
	for (uint32_t i = 0; i < threads; i++) {
		workers[i] = (struct worker){.stage = s, .rng = rig_random(rng)};
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	play(s, threads > 0, rng);
	__atomic_store_n(&s->quit, 1, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	while (s->rig.ops->stop(s->rig.gk) == -EBUSY)
		rig_poll_all(&s->rig);
	stage_close(s);
}

static void
test_intervals(void **state)
{
	static const uint32_t gang_counts[] = {1, 2, 3, 5, 8};
	static struct stage s;
	uint64_t rng = rig_seed("intervals");
	uint32_t updates = 0;

	for (int round = 0; round < 10; round++)
		run(&s, 1 + rig_below(&rng, 3), 0, rig_random(&rng), &rng);
	for (uint32_t e = 0; e < INTERVALS; e++)
		updates += s.truth.dark[e] > 0;
	assert_in_range(updates, INTERVALS / 2,
		INTERVALS - 1); /* some pedestal intervals have no dark frames */
	for (size_t i = 0; i < sizeof(gang_counts) / sizeof(gang_counts[0]); i++) {
		const uint32_t gangs = gang_counts[i];

		for (uint32_t each = 1; each <= WORKERS; each++)
			run(&s, gangs, gangs * each, rig_random(&rng), &rng);
	}
}

/* Process a dark frame with one value in all pixels n times. */
static void
darken(struct rig *rig, uint16_t word, uint32_t n)
{
	struct gk_work *w;

	for (uint32_t t = 0; t < geometry.tiles; t++) {
		rig_frame(rig, 0)->packet[t] = (uintptr_t)rig_tile(rig, 0, t);
		for (uint32_t x = 0; x < TILE; x++)
			rig_tile(rig, 0, t)[x] = word;
	}
	rig_frame(rig, 0)->flags = GK_FRAME_DARK;
	while (n > 0) {
		w = gk_ring_next(&rig->ring[0]);
		/* the same slot many times: it is only read, and its results are not checked */
		*w = (struct gk_work){.nb_frames = n < GK_BATCH_MAX ? n : GK_BATCH_MAX};
		n -= w->nb_frames;
		gk_ring_submit(&rig->ring[0]);
		rig_poll_all(rig);
		assert_int_equal(gk_ring_error(&rig->ring[0]), 0);
		gk_ring_collect(&rig->ring[0]);
	}
}

static void
between(struct rig *rig, uint32_t op, uint32_t from)
{
	*gk_ring_next(&rig->ring[0]) =
		(struct gk_work){.op = op, .coef = from, .coef_to = 1 - from};
	gk_ring_submit(&rig->ring[0]);
	rig_poll_all(rig);
	assert_int_equal(gk_ring_error(&rig->ring[0]), 0);
	gk_ring_collect(&rig->ring[0]);
}

/* All gangs add to the same few accumulators all the time: no sample is lost. */
static void
test_contention(void **state)
{
	const struct gk_geometry g = {1, 4, 1024};
	const uint32_t gangs = 4, batches = 400;
	static struct stage s;
	struct worker workers[4];
	struct rig *rig = &s.rig;
	uint32_t done = 0;

	memset(&s, 0, sizeof(s));
	rig_open(rig, &g, GK_VALUE_F32, 0, gangs, gangs, 0);
	rig->config.channel->params[0].strong_min = 1;
	for (uint32_t i = 0; i < gangs; i++) {
		rig_frame(rig, i)->flags = GK_FRAME_DARK;
		rig_frame(rig, i)->packet[0] = (uintptr_t)rig_tile(rig, i, 0);
		for (uint32_t x = 0; x < gk_pixels(&g); x++)
			rig_tile(rig, i, 0)[x] = (uint16_t)(x + i);
	}
	assert_int_equal(rig->ops->start(rig->gk), 0);
	for (uint32_t i = 0; i < gangs; i++) {
		workers[i] = (struct worker){.stage = &s, .rng = i};
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (uint32_t n = 0; n < gangs * batches || done < gangs * batches;) {
		for (uint32_t i = 0; i < gangs; i++) {
			struct gk_ring *r = &rig->ring[i];
			struct gk_work *w = gk_ring_next(r);

			if (w != NULL && r->head < batches) {
				*w = (struct gk_work){.nb_frames = 1, .dark = 1, .slot = {i}};
				gk_ring_submit(r);
				n++;
			}
			while (gk_ring_pending(r) > 0 && gk_ring_is_done(r, r->done_tail)) {
				gk_ring_collect(r);
				done++;
			}
		}
		sched_yield();
	}
	__atomic_store_n(&s.quit, 1, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < gangs; i++)
		pthread_join(workers[i].thread, NULL);
	for (uint32_t x = 0; x < gk_pixels(&g); x++)
		assert_int_equal(rig->cells[1][x],
			((uint64_t)gangs * batches << 32) +
				(uint64_t)batches * (gangs * x + gangs * (gangs - 1) / 2));
	assert_int_equal(rig->ops->stop(rig->gk), 0);
	rig_close(rig);
}

/*
 * A drifting pedestal is tracked; a pedestal with too few dark frames does not change, nor do
 * masked pixels.
 */
static void
test_drift(void **state)
{
	struct gk_params *params;
	const float *p = NULL;
	struct rig rig;

	rig_open(&rig, &geometry, GK_VALUE_F32, 0, 1, 1, UINT32_MAX - 20);
	for (uint32_t x = 0; x < PIXELS; x++) {
		rig.p[0][x] = 3000;
		for (int g = 0; g < 3; g++)
			rig.r[g][x] = x % 10 == 0 ? NAN : 0.002f;
	}
	params = &rig.config.channel->params[0];
	*params = (struct gk_params){.kind = GK_KIND_CSR, .dark_min = 20, .dark_alpha = 0.5f};
	assert_int_equal(rig.ops->start(rig.gk), 0);
	for (uint32_t e = 0; e < 50; e++) {
		darken(&rig, (uint16_t)(3000 + 2 * e), 20);
		between(&rig, GK_OP_UPDATE, e % 2);
		p = e % 2 == 0 ? rig.p_next : rig.p[0];
		/* an exponential mean lags behind a ramp by 2 x (1 - alpha) / alpha */
		assert_true(fabsf(p[1] - (3000.0f + 2 * (float)e)) <= 2.0f);
		assert_true(p[0] == 3000.0f);
		assert_int_equal(rig.config.channel->update[0].updated, PIXELS - PIXELS / 10);
		assert_int_equal(
			rig.config.channel->update[0].samples, 20 * (PIXELS - PIXELS / 10));
	}
	/* one sample too few: no change */
	darken(&rig, 100, 19);
	between(&rig, GK_OP_UPDATE, 0);
	assert_memory_equal(rig.p[0], rig.p_next, PIXELS * 4);
	assert_int_equal(rig.config.channel->update[0].updated, 0);
	assert_int_equal(rig.config.channel->update[0].drift, 0);
	/* after a clear: as if there had been no dark frames */
	darken(&rig, 100, 21);
	assert_int_equal(rig.cells[0][1], 21 * ((UINT64_C(1) << 32) + 100));
	between(&rig, GK_OP_CLEAR, 0);
	darken(&rig, 16383, 19);
	between(&rig, GK_OP_UPDATE, 0);
	assert_memory_equal(rig.p[0], rig.p_next, PIXELS * 4);
	/* words of other gain stages are not samples */
	darken(&rig, 0x4000 + 100, 30);
	darken(&rig, 0xC000, 30);
	darken(&rig, 0xFFFF, 30);
	darken(&rig, 0x8000, 30);
	assert_int_equal(rig.cells[0][1], 0);
	assert_int_equal(rig.ops->stop(rig.gk), 0);
	rig_close(&rig);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_drift),
		cmocka_unit_test(test_contention),
		cmocka_unit_test(test_intervals),
	};

	if (rig_lacks_isa())
		return 77;
	return cmocka_run_group_tests_name("gk_dark", tests, NULL, NULL);
}
