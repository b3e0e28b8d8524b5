/* SPDX-License-Identifier: BSD-3-Clause */
/* A sender that overwrites tiles while gangs of any implementation work on them. */
#ifndef GK_RACE_H
#define GK_RACE_H

#include <pthread.h>
#include <sched.h>

#include "gk_rig.h"

/*
 * The race. Frame n is in place n % PLACES, and each of its words is word_of(n). The writer writes
 * frames in order, as fast as it can. The gang gets the frames that are being written, are
 * complete, and are being overwritten.
 */
#define PLACES	   4
#define RACE_TILES 16
#define FIRST	   1000 /* frame: memory is zero before */
/* tiles; the sanitizers make gangs ten times slower */
#ifdef __SANITIZE_ADDRESS__
#define RACE_MIN 20000
#else
#define RACE_MIN 200000
#endif
static const struct gk_geometry race_geometry = {RACE_TILES, 2, 1024};
#define TILE_WORDS  2048
#define RACE_PIXELS (RACE_TILES * TILE_WORDS)

struct race {
	struct rig *rig; /* slot s has the memory of place s */
	uint64_t frame;	 /* that the writer writes */
	int quit;
	int wire; /* leader, pixels, trailer; otherwise trailer, pixels, trailer */
	uint64_t rng;
};

static inline uint16_t
word_of(uint64_t frame)
{
	return (uint16_t)(1 + frame * 37 % 0x3FFE);
}

static inline void
write_tile(struct race *r, uint64_t frame, uint32_t tile)
{
	const uint64_t words = word_of(frame) * UINT64_C(0x0001000100010001);
	uint64_t *to = (uint64_t *)rig_tile(r->rig, frame % PLACES, tile);
	uint64_t end = TILE_WORDS / 4;
	/* in wire order packets may be lost: then the message ends early */
	const int whole = !r->wire || rig_below(&r->rng, 8) != 0;

	if (!whole)
		end = rig_below(&r->rng, (uint32_t)end + 1);
	__atomic_store_n(r->wire ? to - 1 : to + TILE_WORDS / 4, r->wire ? frame : UINT64_MAX,
		__ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	for (uint64_t i = 0; i < end; i++)
		__atomic_store_n(to + i, words, __ATOMIC_RELAXED);
	if (whole)
		__atomic_store_n(to + TILE_WORDS / 4, frame, __ATOMIC_RELEASE);
}

static inline void *
write_frames(void *arg)
{
	struct race *r = arg;

	for (uint64_t n = FIRST; !__atomic_load_n(&r->quit, __ATOMIC_ACQUIRE); n++) {
		__atomic_store_n(&r->frame, n, __ATOMIC_RELEASE);
		for (uint32_t t = 0; t < RACE_TILES; t++)
			write_tile(r, n, t);
		if (rig_below(&r->rng, 4) == 0)
			sched_yield();
	}
	return NULL;
}

static inline void *
poll_gang(void *arg)
{
	struct race *r = arg;

	while (!__atomic_load_n(&r->quit, __ATOMIC_ACQUIRE))
		if (r->rig->ops->poll == NULL || !r->rig->ops->poll(r->rig->gk, 0, 1))
			sched_yield();
	return NULL;
}

/* All pixels of the frame in its output, present or missing. @return tiles that are present */
static inline uint32_t
check_race(struct race *r, uint32_t slot)
{
	const struct gk_layout *l = &r->rig->config.layout;
	const struct gk_result *result = &r->rig->config.results[slot];
	struct gk_frame *frame = rig_frame(r->rig, slot);
	const uint64_t *map = gk_missing_map(&race_geometry, frame);
	const uint32_t present = RACE_TILES - (uint32_t)__builtin_popcountll(map[0]);
	const uint16_t word = word_of(frame->frame);
	const uint8_t *out = rig_output(r->rig, slot);
	uint32_t at = 0;

	assert_int_equal(result->frame, frame->frame);
	assert_int_equal(result->missing + result->overrun, RACE_TILES - present);
	assert_int_equal(result->invalid, (RACE_TILES - present) * TILE_WORDS);
	assert_int_equal(result->nnz, present * TILE_WORDS);
	assert_int_equal(result->sum, (int64_t)present * TILE_WORDS * word * 256);
	for (uint32_t x = 0; x < RACE_TILES * TILE_WORDS; x++) {
		const int here = !(map[0] >> x / TILE_WORDS & 1);
		const float value = ((const float *)(out + l->value))[x];

		if (result->kind == GK_KIND_RAW)
			assert_int_equal(
				((const uint16_t *)(out + l->raw))[x], here ? word : 0xFFFF);
		else if (result->kind == GK_KIND_IMAGE && here)
			assert_true(value == word);
		else if (result->kind == GK_KIND_IMAGE)
			assert_true(isnan(value));
		else if (here) {
			assert_int_equal(((const uint16_t *)(out + l->col))[at], x % 1024);
			assert_true(((const float *)(out + l->value))[at++] == word);
		}
	}
	return present;
}

/* Serves the rig, which has race_geometry and PLACES slots, and stops it. */
static inline void
run_race(struct rig *rig, int wire)
{
	struct race r = {.rig = rig, .wire = wire};
	uint64_t rng = rig_seed(wire ? "wire order" : "seqlock"), samples = 0, sum = 0, found = 0;
	uint64_t present = 0, missing = 0, overrun = 0, tiles = 0, frames = 0;
	pthread_t writer, poller;
	int ret;

	r.rng = rig_random(&rng);
	r.frame = FIRST;
	for (uint64_t x = 0; x < gk_pixels(&race_geometry); x++)
		for (int s = 0; s < 3; s++) /* photons are the word */
			rig->r[s][x] = 1.0f;
	for (uint32_t kind = GK_KIND_CSR; kind <= GK_KIND_RAW; kind++)
		rig->config.channel->params[kind] = (struct gk_params){.kind = kind,
			.strong_threshold = 1,
			.csr_threshold = 1,
			/* not known before counting */
			.strong_min = 1,
			.strong_max = UINT32_MAX,
			.nnz_max = TILE_WORDS * RACE_TILES};
	assert_int_equal(rig->ops->start(rig->gk), 0);
	assert_int_equal(pthread_create(&writer, NULL, write_frames, &r), 0);
	assert_int_equal(pthread_create(&poller, NULL, poll_gang, &r), 0);
	while (tiles < RACE_MIN) {
		/* newest first; the last one is being overwritten */
		const uint64_t newest = __atomic_load_n(&r.frame, __ATOMIC_ACQUIRE);
		const uint32_t kind = rig_below(&rng, 3);
		const uint32_t batch = rig->config.channel->done[0].done;

		for (uint32_t i = 0; i < PLACES; i++) {
			const uint64_t n = newest - (i == PLACES - 1 ? PLACES : i);
			struct gk_frame *frame = rig_frame(rig, i);

			frame->frame = frame->trailer = n;
			frame->out = i;
			frame->flags = GK_FRAME_TRAILER | GK_FRAME_DARK | GK_FRAME_KEEP |
				(wire ? GK_FRAME_LEADER : 0);
			for (uint32_t t = 0; t < RACE_TILES; t++)
				frame->packet[t] =
					(uintptr_t)rig_tile(rig, (uint32_t)(n % PLACES), t);
		}
		*gk_ring_next(&rig->ring[0]) =
			(struct gk_work){.nb_frames = PLACES, .params = kind, .slot = {0, 1, 2, 3}};
		gk_ring_submit(&rig->ring[0]);
		while (!gk_ring_is_done(&rig->ring[0], batch)) {
			assert_int_equal(gk_ring_error(&rig->ring[0]), 0);
			if (rig->ops->poll == NULL || !rig->ops->poll(rig->gk, 0, 0))
				sched_yield();
		}
		gk_ring_collect(&rig->ring[0]);
		for (uint32_t i = 0; i < PLACES; i++) {
			const uint32_t n = check_race(&r, i);

			present += n;
			samples += (uint64_t)n * TILE_WORDS;
			sum += (uint64_t)n * TILE_WORDS * word_of(rig_frame(rig, i)->frame);
			missing += rig->config.results[i].missing;
			overrun += rig->config.results[i].overrun;
		}
		tiles += PLACES * RACE_TILES;
		frames += PLACES;
	}
	__atomic_store_n(&r.quit, 1, __ATOMIC_RELEASE);
	pthread_join(writer, NULL);
	pthread_join(poller, NULL);
	while ((ret = rig->ops->stop(rig->gk)) == -EBUSY)
		sched_yield();
	assert_int_equal(ret, 0);
	for (uint64_t x = 0; x < gk_pixels(&race_geometry); x++) {
		samples -= rig->cells[0][x] >> 32;
		found += rig->cells[0][x] & UINT32_MAX;
	}
	assert_true(frames < GK_DARK_FRAMES_MAX);
	assert_int_equal(samples, 0);
	assert_int_equal(found, sum);
	print_message("%llu tiles used, %llu missing, %llu overwritten while they were copied\n",
		(unsigned long long)present, (unsigned long long)missing,
		(unsigned long long)overrun);
	assert_true(present > 0 && missing > 0);
}

#endif /* GK_RACE_H */
