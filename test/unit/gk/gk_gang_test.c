/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gangs of threads: the results are the same bytes with any number of gangs and threads, batch
 * size, preemption, and wrap-around of counters. Start, stop, and refused descriptors.
 */

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "gk_rig.h"

#define PATTERNS 48   /* different frames; frame n shows pattern n % PATTERNS */
#define SLOTS	 40   /* fewer than frames that could be in flight, so slots are scarce */
#define FRAMES	 2500 /* for one combination of gangs and threads */
#define STARTS	 2000 /* while other threads poll */
#define WORKERS	 4

/* enough tiles for several quanta */
#define TILES 20
static const struct gk_geometry geometry = {TILES, 1, 32};

/* Expected result of a pattern; the output as a hash of the whole slot with its guard bytes. */
struct truth {
	struct gk_result result;
	uint64_t output;
};

struct stage {
	struct rig rig;
	uint16_t *pattern[PATTERNS]; /* [tiles][tile pixels], 64-byte aligned */
	uint8_t missing[PATTERNS][TILES];
	struct truth truth[PATTERNS];
	int quit;
	int mixed; /* threads serve all gangs */
};

struct worker {
	struct stage *stage;
	uint32_t gang;
	uint32_t worker;
	uint64_t rng;
	pthread_t thread;
};

/* FNV-1a */
static uint64_t
hash(const uint8_t *bytes, uint64_t n)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (uint64_t i = 0; i < n; i++)
		h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
	return h;
}

/* Parameters by pattern, so that a batch that confuses them is detected. */
static uint32_t
params_of(uint64_t pattern)
{
	return (uint32_t)(pattern / 16 % 3);
}

static void
stage_open(struct stage *s, uint32_t gangs, uint32_t first, uint64_t *rng)
{
	const uint32_t pixels = geometry.tile_rows * geometry.cols;
	struct gk_params *params;

	rig_open(&s->rig, &geometry, GK_VALUE_F32, 220, gangs, SLOTS, first);
	rig_random_coef(&s->rig, rng);
	for (uint32_t i = 0; i < 3; i++) {
		params = &s->rig.config.channel->params[i];
		params->version = 100 + i;
		params->kind = i == 2 ? GK_KIND_IMAGE : GK_KIND_CSR;
		params->strong_threshold = 1.0f;
		params->csr_threshold = 0.5f;
		params->strong_min = 85; /* about half are hits */
		params->strong_max = UINT32_MAX;
		params->nnz_max = 100 + 20 * i; /* some become images */
	}
	for (uint32_t i = 0; i < PATTERNS; i++) {
		s->pattern[i] = rig_alloc(gk_pixels(&geometry) * 2);
		for (uint32_t t = 0; t < geometry.tiles; t++) {
			rig_random_tile(s->pattern[i] + t * pixels, pixels, rng);
			/* pattern 2 is requested as raw data: with one tile it is no hit */
			s->missing[i][t] = i == 2 ? t > 0 : i % 4 == 3 && rig_below(rng, 3) == 0;
		}
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
fill_slot(struct stage *s, uint32_t slot, uint64_t number)
{
	const uint32_t pattern = number % PATTERNS;
	struct gk_frame *frame = rig_frame(&s->rig, slot);

	frame->frame = number;
	frame->flags = pattern % 7 == 1 ? GK_FRAME_KEEP : 0;
	frame->flags |= pattern % 11 == 2 ? GK_FRAME_KIND_RAW | GK_FRAME_KEEP : 0;
	frame->out = pattern % 13 == 5 ? GK_NO_OUT : slot;
	for (uint32_t t = 0; t < geometry.tiles; t++)
		frame->packet[t] = s->missing[pattern][t]
			? 0
			: (uintptr_t)(s->pattern[pattern] + t * geometry.tile_rows * geometry.cols);
	memset(rig_output(&s->rig, slot), RIG_GUARD, s->rig.config.layout.stride);
}

/* Check a finished frame: store it as the expected result, or compare. */
static void
check_slot(struct stage *s, uint32_t slot, uint64_t number, int learn)
{
	struct truth *truth = &s->truth[number % PATTERNS];
	struct gk_result result = s->rig.config.results[slot];
	uint64_t output;

	assert_int_equal(result.frame, number);
	result.frame = 0;
	rig_forget_guess(&s->rig, &result, 0, rig_output(&s->rig, slot));
	output = hash(rig_output(&s->rig, slot), s->rig.config.layout.stride);
	if (learn) {
		truth->result = result;
		truth->output = output;
		return;
	}
	assert_memory_equal(&result, &truth->result, sizeof(result));
	assert_int_equal(output, truth->output);
}

static void *
work(void *arg)
{
	struct worker *w = arg;
	struct rig *rig = &w->stage->rig;
	uint32_t gang = w->gang;

	while (!__atomic_load_n(&w->stage->quit, __ATOMIC_ACQUIRE)) {
		if (w->stage->mixed)
			gang = rig_below(&w->rng, rig->config.gangs);
		if (!rig->ops->poll(rig->gk, gang, w->worker) || rig_below(&w->rng, 4) == 0)
			sched_yield();
	}
	return NULL;
}

/* FRAMES frames in batches of random size over all gangs, collected in order. */
static void
play(struct stage *s, int threads, uint64_t *rng)
{
	struct {
		uint32_t gang, batch, n;
		uint64_t number;
	} out[SLOTS];
	uint32_t head = 0, tail = 0, free_slots = SLOTS, next_slot = 0, raw;
	struct gk_ring *ring;
	struct gk_work *w;
	uint64_t number = 0;

	while (number < FRAMES || tail != head) {
		uint32_t n = 1 + rig_below(rng, GK_BATCH_MAX);
		const uint32_t gang = rig_below(rng, s->rig.config.gangs);

		if (n > FRAMES - number)
			n = (uint32_t)(FRAMES - number);
		if (n > free_slots)
			n = free_slots;
		/* one set of parameters per batch */
		for (uint32_t i = 1; i < n; i++)
			if (params_of((number + i) % PATTERNS) != params_of(number % PATTERNS))
				n = i;
		w = gk_ring_next(&s->rig.ring[gang]);
		if (n > 0 && w != NULL) {
			*w = (struct gk_work){
				.nb_frames = n, .params = params_of(number % PATTERNS)};
			out[head % SLOTS].gang = gang;
			out[head % SLOTS].n = n;
			out[head % SLOTS].number = number;
			for (uint32_t i = 0; i < n; i++) {
				w->slot[i] = next_slot;
				fill_slot(s, next_slot, number++);
				next_slot = (next_slot + 1) % SLOTS;
			}
			free_slots -= n;
			out[head++ % SLOTS].batch = gk_ring_submit(&s->rig.ring[gang]);
		}
		if (!threads)
			rig_poll_all(&s->rig);
		while (tail != head) {
			ring = &s->rig.ring[out[tail % SLOTS].gang];
			assert_int_equal(gk_ring_error(ring), 0);
			if (!gk_ring_is_done(ring, out[tail % SLOTS].batch))
				break;
			/* raw is at least done */
			assert_int_equal(gk_ring_take_raw(ring, &raw), 1);
			assert_int_equal(raw, out[tail % SLOTS].batch);
			for (uint32_t i = 0; i < out[tail % SLOTS].n; i++)
				check_slot(s, gk_ring_work(ring, raw)->slot[i],
					out[tail % SLOTS].number + i, !threads);
			free_slots += out[tail % SLOTS].n;
			gk_ring_collect(ring);
			tail++;
		}
		if (threads && (n == 0 || rig_below(rng, 3) == 0))
			sched_yield();
	}
}

static void
start_workers(
	struct stage *s, struct worker workers[], uint32_t gangs, uint32_t each, uint64_t *rng)
{
	s->quit = 0;
	for (uint32_t i = 0; i < gangs * each; i++) {
		workers[i] = (struct worker){
			.stage = s, .gang = i / each, .worker = i % each, .rng = rig_random(rng)};
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
}

static void
join_workers(struct stage *s, struct worker workers[], uint32_t n)
{
	__atomic_store_n(&s->quit, 1, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < n; i++)
		pthread_join(workers[i].thread, NULL);
}

static void
stop_gangs(struct rig *rig)
{
	int ret;

	while ((ret = rig->ops->stop(rig->gk)) == -EBUSY)
		sched_yield();
	assert_int_equal(ret, 0);
}

static void
test_same_bytes(void **state)
{
	static const uint32_t gang_counts[] = {1, 2, 3, 5, 8};
	struct worker workers[8 * WORKERS];
	uint64_t rng = rig_seed("same bytes"), data;
	const uint64_t data_seed = rig_random(&rng);
	uint32_t kinds[4] = {0}, hits = 0;
	struct stage s = {0};

	/* expected results: one gang, served by the builder's own thread */
	data = data_seed;
	stage_open(&s, 1, 0, &data);
	assert_int_equal(s.rig.ops->start(s.rig.gk), 0);
	play(&s, 0, &rng);
	assert_int_equal(s.rig.ops->stop(s.rig.gk), 0);
	stage_close(&s);
	for (uint32_t i = 0; i < PATTERNS; i++) {
		const uint32_t kind = s.truth[i].result.kind;

		kinds[kind == GK_KIND_NONE ? 3 : kind]++;
		hits += s.truth[i].result.verdict;
	}
	print_message("%d patterns: %u csr, %u image, %u raw, %u without output, %u hits\n",
		PATTERNS, kinds[0], kinds[1], kinds[2], kinds[3], hits);
	assert_true(kinds[0] > 0 && kinds[1] > 0 && kinds[2] > 0 && kinds[3] > 0);

	for (size_t i = 0; i < sizeof(gang_counts) / sizeof(gang_counts[0]); i++) {
		for (uint32_t each = 1; each <= WORKERS; each++) {
			const uint32_t gangs = gang_counts[i];

			data = data_seed;
			s.mixed = each == 3;
			/* counters wrap around during the run */
			stage_open(&s, gangs, UINT32_MAX - rig_below(&rng, 100), &data);
			start_workers(&s, workers, gangs, each, &rng);
			/* stop and start while other threads poll; rings continue */
			for (int run = 0; run < 2; run++) {
				assert_int_equal(s.rig.ops->start(s.rig.gk), 0);
				assert_int_equal(s.rig.ops->start(s.rig.gk), -EBUSY);
				play(&s, 1, &rng);
				stop_gangs(&s.rig);
			}
			join_workers(&s, workers, gangs * each);
			stage_close(&s);
		}
	}
}

/* Batches that were submitted before the stop are completed; later ones wait for the next start. */
static void
test_stop_finishes(void **state)
{
	uint64_t rng = rig_seed("stop");
	struct stage s = {0};
	struct gk_ring *ring;
	uint32_t polls = 0;

	stage_open(&s, 1, UINT32_MAX - 1, &rng);
	ring = &s.rig.ring[0];
	assert_int_equal(s.rig.ops->poll(s.rig.gk, 0, 0), 0); /* not started */
	assert_int_equal(s.rig.ops->stop(s.rig.gk), 0);
	assert_int_equal(s.rig.ops->start(s.rig.gk), 0);
	for (uint32_t i = 0; i < 4; i++) {
		fill_slot(&s, i, i);
		*gk_ring_next(ring) = (struct gk_work){.nb_frames = 1, .slot = {i}};
		gk_ring_submit(ring);
	}
	while (s.rig.ops->stop(s.rig.gk) == -EBUSY) {
		s.rig.ops->poll(s.rig.gk, 0, 0);
		assert_true(++polls < 1000);
	}
	assert_int_equal(gk_ring_is_done(ring, UINT32_MAX - 1 + 3), 1);
	/*
	 * a quantum is at most 8 tiles: one poll for setup, then once or twice per batch for tiles
	 */
	assert_in_range(polls, 4 * (1 + geometry.tiles / 8), 4 * (1 + 2 * geometry.tiles) + 1);

	*gk_ring_next(ring) = (struct gk_work){.nb_frames = 1, .slot = {0}};
	gk_ring_submit(ring);
	assert_int_equal(s.rig.ops->poll(s.rig.gk, 0, 0), 0);
	assert_int_equal(gk_ring_is_done(ring, UINT32_MAX - 1 + 4), 0);
	assert_int_equal(s.rig.ops->start(s.rig.gk), 0);
	rig_poll_all(&s.rig);
	assert_int_equal(gk_ring_is_done(ring, UINT32_MAX - 1 + 4), 1);
	assert_int_equal(s.rig.ops->stop(s.rig.gk), 0);
	stage_close(&s);
}

/* A thread that has polled just before a stop does not stop the gang after the next start. */
static void
test_starts_again(void **state)
{
	uint64_t rng = rig_seed("starts again"), until;
	struct worker workers[WORKERS];
	struct stage s = {0};
	struct gk_ring *ring;
	uint32_t number;

	stage_open(&s, 1, 0, &rng);
	ring = &s.rig.ring[0];
	fill_slot(&s, 0, 0);
	start_workers(&s, workers, 1, WORKERS, &rng);
	for (uint32_t i = 0; i < STARTS; i++) {
		assert_int_equal(s.rig.ops->start(s.rig.gk), 0);
		*gk_ring_next(ring) = (struct gk_work){.nb_frames = 1, .slot = {0}};
		number = gk_ring_submit(ring);
		for (until = time(NULL) + 20; !gk_ring_is_done(ring, number);) {
			assert_true((uint64_t)time(NULL) < until);
			sched_yield();
		}
		gk_ring_collect(ring);
		stop_gangs(&s.rig);
	}
	join_workers(&s, workers, WORKERS);
	stage_close(&s);
}

/* Host gangs accept packets at any address: drivers need not align them. */
static void
test_packets_anywhere(void **state)
{
	const uint64_t size = gk_pixels(&geometry) * 2;
	uint64_t rng = rig_seed("packets anywhere");
	uint8_t *moved = rig_alloc(size + 64);
	struct stage s = {0};
	char why[256];

	stage_open(&s, 1, 0, &rng);
	assert_int_equal(s.rig.ops->start(s.rig.gk), 0);
	for (uint32_t i = 0; i < 31; i++) {
		const uint64_t by = 2 + 2 * i;

		for (uint32_t slot = 0; slot < 2; slot++)
			fill_slot(&s, slot, i);
		memcpy(moved + by, s.pattern[i], size);
		for (uint32_t t = 0; t < TILES; t++)
			if (rig_frame(&s.rig, 1)->packet[t] != 0)
				rig_frame(&s.rig, 1)->packet[t] +=
					(uintptr_t)moved + by - (uintptr_t)s.pattern[i];
		*gk_ring_next(&s.rig.ring[0]) =
			(struct gk_work){.nb_frames = 2, .params = params_of(i), .slot = {0, 1}};
		assert_int_equal(gk_work_check(&s.rig.config, gk_ring_work(&s.rig.ring[0], i), why,
					 sizeof(why)),
			by % GK_PACKET_ALIGN != 0 ? -EINVAL : 0);
		gk_ring_submit(&s.rig.ring[0]);
		rig_poll_all(&s.rig);
		assert_int_equal(gk_ring_is_done(&s.rig.ring[0], i), 1);
		gk_ring_collect(&s.rig.ring[0]);
		assert_memory_equal(&s.rig.config.results[0], &s.rig.config.results[1],
			sizeof(struct gk_result));
		assert_memory_equal(
			rig_output(&s.rig, 0), rig_output(&s.rig, 1), s.rig.config.layout.stride);
	}
	assert_int_equal(s.rig.ops->stop(s.rig.gk), 0);
	stage_close(&s);
	free(moved);
}

/* A refused descriptor stops its gang with a message, and does not affect others. */
static void
test_refused_descriptor(void **state)
{
	uint64_t rng = rig_seed("gives up");
	struct stage s = {0};
	char why[256];

	stage_open(&s, 2, 0, &rng);
	assert_int_equal(s.rig.ops->start(s.rig.gk), 0);
	for (uint32_t i = 0; i < 2; i++) {
		fill_slot(&s, i, i);
		*gk_ring_next(&s.rig.ring[i]) =
			(struct gk_work){.nb_frames = 1, .slot = {i == 0 ? SLOTS : i}};
		gk_ring_submit(&s.rig.ring[i]);
	}
	rig_poll_all(&s.rig);
	assert_int_equal(gk_ring_error(&s.rig.ring[0]), -EINVAL);
	assert_int_equal(gk_ring_is_done(&s.rig.ring[0], 0), 0);
	assert_int_equal(
		gk_work_check(&s.rig.config, gk_ring_work(&s.rig.ring[0], 0), why, sizeof(why)),
		-EINVAL);
	assert_string_equal(why, "work.slot[0] is 40, expected less than nb_frames = 40");
	assert_int_equal(gk_ring_error(&s.rig.ring[1]), 0);
	assert_int_equal(gk_ring_is_done(&s.rig.ring[1], 0), 1);
	assert_int_equal(s.rig.ops->stop(s.rig.gk), -EINVAL);

	/* after a correction the same batch is accepted */
	s.rig.config.channel->work[0][0].slot[0] = 0;
	assert_int_equal(s.rig.ops->start(s.rig.gk), 0);
	rig_poll_all(&s.rig);
	assert_int_equal(gk_ring_error(&s.rig.ring[0]), 0);
	assert_int_equal(gk_ring_is_done(&s.rig.ring[0], 0), 1);
	assert_int_equal(s.rig.ops->stop(s.rig.gk), 0);

	/* invalid counters */
	s.rig.config.channel->bell.head[1] += GK_RING_SIZE + 1;
	assert_int_equal(s.rig.ops->start(s.rig.gk), -EINVAL);
	stage_close(&s);
}

/*
 * A gang that was ended during a batch, as the watchdog does, cannot repeat it: start() refuses and
 * changes nothing. Frames of later batches may be in packets that the gang has released.
 */
static void
test_ended_in_batch(void **state)
{
	static const struct {
		uint32_t raw, head;
		int error;
		const char *why; /* NULL: start() succeeds */
	} cases[] = {
		{3, 3, -ETIMEDOUT, NULL}, /* all batches were done */
		{3, 4, -EINVAL, NULL},	  /* a refused descriptor, corrected since */
		{4, 4, -ETIMEDOUT, "gang 1 was ended in batch 3, whose packets it has released"},
		{4, 4, 0, "gang 1 was ended in batch 3, whose packets it has released"},
		{3, 4, -ETIMEDOUT, "gang 1 was ended with 1 unfinished batches"},
		{3, 5, -EIO, "gang 1 was ended with 2 unfinished batches"},
	};
	uint64_t rng = rig_seed("ended in a batch");

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct gk_channel *channel;
		struct stage s = {0};
		int wanted;

		stage_open(&s, 2, 3, &rng);
		channel = s.rig.config.channel;
		channel->bell.head[1] = cases[i].head;
		channel->done[1].raw = cases[i].raw;
		channel->done[1].error = (uint32_t)cases[i].error;
		wanted = cases[i].why ? -EINVAL : 0;
		assert_int_equal(gk_start_check(&s.rig.config, NULL, 0), wanted);
		assert_int_equal(s.rig.ops->start(s.rig.gk), wanted);
		if (wanted != 0) {
			assert_ptr_equal(strstr(s.rig.ops->why(), cases[i].why), s.rig.ops->why());
			assert_int_equal(channel->done[1].error, (uint32_t)cases[i].error);
			assert_int_equal(s.rig.ops->poll(s.rig.gk, 1, 0), 0);
		} else {
			assert_int_equal(channel->done[1].error, 0);
		}
		stage_close(&s);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stop_finishes),
		cmocka_unit_test(test_ended_in_batch),
		cmocka_unit_test(test_starts_again),
		cmocka_unit_test(test_refused_descriptor),
		cmocka_unit_test(test_packets_anywhere),
		cmocka_unit_test(test_same_bytes),
	};

	if (rig_lacks_isa())
		return 77;
	return cmocka_run_group_tests_name("gk_gang", tests, NULL, NULL);
}
