/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by tests of the gang kernels: gangs with their memory, seeded random numbers, random raw
 * frames and coefficients that cover every case of gk_pixel.h.
 */
#ifndef GK_RIG_H
#define GK_RIG_H

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gk.h"
#include "gk_pixel.h"
#include "gk_ring.h"

/* Content of output slots before a gang writes them. */
#define RIG_GUARD 0xA5

/* gk_config.chunks of gangs. */
static int rig_chunks = 1;

/* gk_config.crc32c of gangs. */
static uint32_t (*rig_crc32c)(uint32_t crc, const void *bytes, size_t size);

struct rig {
	struct gk_config config;
	const struct gk_ops *ops;
	struct gk *gk;
	struct gk_ring ring[GK_GANGS_MAX];
	uint8_t *memory; /* of `raw` */
	uint8_t *raw;	 /* one frame of pixels per frame slot, each tile 64-byte aligned */
	uint64_t tile_stride;
	float *p[3];
	float *r[3];
	float *p_next; /* p[0] of coefficient version 1, other planes as in version 0 */
	uint64_t *cells[GK_DARK_MAX];
};

/* splitmix64 (Steele, Lea, Flood 2014): any seed is suitable, also zero. */
static inline uint64_t
rig_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);

	z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
	return z ^ z >> 31;
}

static inline uint32_t
rig_below(uint64_t *state, uint32_t n)
{
	return (uint32_t)(rig_random(state) % n);
}

/* The seed of this run: GK_SEED repeats a run. */
static inline uint64_t
rig_seed(const char *test)
{
	const char *env = getenv("GK_SEED");
	uint64_t seed = (uintptr_t)&seed * UINT64_C(0x2545F4914F6CDD1D); /* ASLR */
	FILE *f;

	if (env != NULL) {
		seed = strtoull(env, NULL, 0);
	} else if ((f = fopen("/dev/urandom", "rb")) != NULL) {
		if (fread(&seed, sizeof(seed), 1, f) != 1)
			seed = 1;
		fclose(f);
	}
	printf("%s: GK_SEED=0x%llx\n", test, (unsigned long long)seed);
	return seed;
}

static inline void *
rig_alloc(uint64_t size)
{
	void *memory = aligned_alloc(4096, (size + 4095) & ~UINT64_C(4095));

	assert_non_null(memory);
	memset(memory, 0, size);
	return memory;
}

static inline uint64_t
rig_raw_stride(const struct rig *rig)
{
	return rig->config.geometry.tiles * rig->tile_stride;
}

/* Pixels of tile t in frame slot s. */
static inline uint16_t *
rig_tile(const struct rig *rig, uint32_t slot, uint32_t tile)
{
	return (uint16_t *)(rig->raw + slot * rig_raw_stride(rig) + tile * rig->tile_stride);
}

static inline struct gk_frame *
rig_frame(const struct rig *rig, uint32_t slot)
{
	return (struct gk_frame *)(rig->config.frames +
		slot * gk_frame_stride(&rig->config.geometry));
}

static inline uint8_t *
rig_output(const struct rig *rig, uint32_t slot)
{
	return rig->config.outputs + slot * rig->config.layout.stride;
}

/*
 * Overwrite the part of an output that the result does not define with guard bytes: speculative
 * output may be there.
 * @param chunk  size of the chunk in bytes, 0: it is not one
 */
static inline void
rig_forget_guess(
	const struct rig *rig, const struct gk_result *result, uint64_t chunk, uint8_t *out)
{
	const struct gk_layout *l = &rig->config.layout;
	const uint64_t raw_end =
		l->raw + (chunk > 0 ? chunk : gk_pixels(&rig->config.geometry) * 2);

	if (result->kind != GK_KIND_CSR)
		memset(out + l->col, RIG_GUARD, l->value - l->col);
	if (result->kind == GK_KIND_RAW || chunk > 0)
		memset(out + raw_end, RIG_GUARD, l->peaks - raw_end);
	else if (result->kind == GK_KIND_NONE)
		memset(out + l->value, RIG_GUARD, l->stride - l->value);
}

/*
 * The instruction set that GK_ISA requests for a test; by default the one that is chosen
 * automatically.
 */
static inline enum gk_isa
rig_isa(void)
{
	const char *name = getenv("GK_ISA");

	for (int isa = 0; name != NULL && isa < GK_ISAS; isa++)
		if (strcmp(gk_isa_name(isa), name) == 0)
			return isa;
	if (name != NULL)
		fail_msg("GK_ISA=%s: no such instruction set", name);
	return GK_ISA_AUTO;
}

/*
 * Is the instruction set of GK_ISA not supported by the CPU? Prints the reason; the test exits with
 * 77.
 */
static inline int
rig_lacks_isa(void)
{
	const enum gk_isa isa = rig_isa();

	if (gk_isa_choose(isa) >= 0)
		return 0;
	printf("skipped: this processor has no %s\n", gk_isa_name(isa));
	return 1;
}

/* Bytes between tiles with trailers: the trailer, and in the last 8 the leader of the next tile. */
#define RIG_TRAILER 64

/* As rig_open(); if `trailers`, frames may have them. */
static inline void
rig_open_trailers(struct rig *rig, const struct gk_geometry *g, enum gk_value value,
	uint32_t nnz_cap, uint32_t gangs, uint32_t slots, uint32_t first, int trailers)
{
	struct gk_config *c = &rig->config;
	char why[256] = "";

	memset(rig, 0, sizeof(*rig));
	c->geometry = *g;
	c->value = value;
	gk_layout_init(&c->layout, g, value, nnz_cap);
	c->gangs = gangs;
	c->workers = 1;
	c->isa = rig_isa();
	c->nb_frames = c->nb_outputs = slots;
	c->channel = rig_alloc(sizeof(*c->channel));
	c->frames = rig_alloc(slots * gk_frame_stride(g));
	c->results = rig_alloc(slots * sizeof(*c->results));
	c->details = rig_alloc(slots * sizeof(*c->details));
	memset(c->details, RIG_GUARD, slots * sizeof(*c->details));
	c->chunks = (uint32_t)rig_chunks;
	c->crc32c = rig_crc32c;
	c->outputs = rig_alloc(slots * c->layout.stride);
	memset(c->outputs, RIG_GUARD, slots * c->layout.stride);
	rig->tile_stride = ((uint64_t)g->tile_rows * g->cols * 2 + 63) & ~UINT64_C(63);
	if (trailers) {
		c->trailers = 1;
		rig->tile_stride += RIG_TRAILER;
	}
	/* the first tile has a leader, too */
	rig->memory = rig_alloc(RIG_TRAILER + slots * rig_raw_stride(rig));
	rig->raw = rig->memory + RIG_TRAILER;
	for (int i = 0; i < 3; i++) {
		rig->p[i] = rig_alloc(gk_pixels(g) * sizeof(float));
		rig->r[i] = rig_alloc(gk_pixels(g) * sizeof(float));
		c->channel->coef[0].p[i] = (uintptr_t)rig->p[i];
		c->channel->coef[0].r[i] = (uintptr_t)rig->r[i];
	}
	c->channel->coef[0].version = 7;
	rig->p_next = rig_alloc(gk_pixels(g) * sizeof(float));
	c->channel->coef[1] = c->channel->coef[0];
	c->channel->coef[1].p[0] = (uintptr_t)rig->p_next;
	for (int i = 0; i < GK_DARK_MAX; i++) {
		rig->cells[i] = rig_alloc(gk_dark_size(g));
		c->channel->dark[i].cells = (uintptr_t)rig->cells[i];
	}
	for (uint32_t i = 0; i < gangs; i++) {
		c->channel->bell.head[i] = first;
		c->channel->done[i].raw = c->channel->done[i].done = first;
		gk_ring_init(&rig->ring[i], c->channel, i);
	}
	rig->ops = gk_ops_find("host");
	assert_non_null(rig->ops);
	if (gk_config_check(c, why, sizeof(why)) != 0)
		fail_msg("%s", why);
	assert_int_equal(rig->ops->create(c, &rig->gk), 0);
}

/*
 * Allocate memory with coefficient version 0, and create gangs without starting them. `first` is
 * the initial value of counters, which may wrap around.
 */
static inline void
rig_open(struct rig *rig, const struct gk_geometry *g, enum gk_value value, uint32_t nnz_cap,
	uint32_t gangs, uint32_t slots, uint32_t first)
{
	rig_open_trailers(rig, g, value, nnz_cap, gangs, slots, first, 0);
}

static inline void
rig_close(struct rig *rig)
{
	rig->ops->destroy(rig->gk);
	for (int i = 0; i < 3; i++) {
		free(rig->p[i]);
		free(rig->r[i]);
	}
	for (int i = 0; i < GK_DARK_MAX; i++)
		free(rig->cells[i]);
	free(rig->p_next);
	free(rig->memory);
	free(rig->config.channel);
	free(rig->config.frames);
	free(rig->config.results);
	free(rig->config.details);
	free(rig->config.outputs);
}

/* Serve all gangs from this thread until all work is done. */
static inline void
rig_poll_all(struct rig *rig)
{
	int busy;

	do {
		busy = 0;
		for (uint32_t i = 0; i < rig->config.gangs; i++)
			busy |= rig->ops->poll(rig->gk, i, 0);
	} while (busy);
}

/* A float with arbitrary bits: NaNs must give the same result for any bits. */
static inline float
rig_float_of(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static inline float
rig_some_nan(uint64_t *rng)
{
	return rig_float_of(0x7F800000u | (uint32_t)rig_random(rng) | 1u);
}

/*
 * Coefficients: mostly plausible; some give ties and exact thresholds, some are NaN in one stage,
 * some are masked, some overflow or are denormal, some are at limits where gk_tile_simd.c uses
 * another method. Half of the runs of 32 pixels have only usual values and NaN.
 */
static inline void
rig_random_coef(struct rig *rig, uint64_t *rng)
{
	static const float gain[3] = {508.4f, -17.8f, -1.42f};
	const uint64_t pixels = gk_pixels(&rig->config.geometry);

	static const float edge[] = {0x1p-60f, 0x1.fffffep-61f, 0x1p-41f, 0x1.fffffep-42f,
		0x1.fffffep14f, 0x1p15f, 0x1.fffffep-5f, 0x1p-4f, 0.0f, -0.0f, INFINITY, -INFINITY};
	const uint32_t edges = sizeof(edge) / sizeof(edge[0]);
	uint32_t common = 0;

	for (uint64_t x = 0; x < pixels; x++) {
		uint32_t what = rig_below(rng, 32);

		if (x % 32 == 0)
			common = rig_below(rng, 2);
		if (common && (what < 8 || what == 10))
			what = 11;

		for (int g = 0; g < 3; g++) {
			const float jitter = (float)rig_below(rng, 4096) / 64.0f;

			rig->p[g][x] = g == 0 ? 3000.0f + jitter : 15000.0f - jitter;
			rig->r[g][x] = 1.0f / (gain[g] * (1.0f + jitter / 1000.0f));
			if (what < 6) { /* exact halves, quarters, 1/512: ties in i16 and sum */
				rig->p[g][x] = (float)rig_below(rng, 16384) + 0.5f * (what & 1);
				rig->r[g][x] =
					ldexpf(g == 0 ? 1.0f : -1.0f, -(int)rig_below(rng, 11));
			} else if (what == 6) {
				rig->r[g][x] = (rig_below(rng, 2) ? 1e36f : -1e36f);
			} else if (what == 7) {
				rig->r[g][x] = rig_float_of(rig_below(rng, 1000)); /* denormal */
			} else if (what == 10) {
				/* p[2] is finite, or NaN if the pixel is masked (gk_pixel.h) */
				rig->p[g][x] = edge[rig_below(rng, edges - (g == 2 ? 2 : 0))];
				rig->r[g][x] = edge[rig_below(rng, edges)];
			} else if (what == 11) { /* also ties and exact thresholds */
				rig->p[g][x] = (float)rig_below(rng, 16384) +
					0.5f * (float)rig_below(rng, 2);
				rig->r[g][x] = ldexpf(1.0f, -5 - (int)rig_below(rng, 6));
			}
		}
		if (what == 8) {
			rig->r[rig_below(rng, 3)][x] = rig_some_nan(rng);
			if (rig_below(rng, 2))
				rig->p[rig_below(rng, 2)][x] = rig_some_nan(rng);
		} else if (what == 9) {
			for (int g = 0; g < 3; g++)
				rig->r[g][x] = rig_some_nan(rng);
			rig->p[2][x] = rig_some_nan(rng);
		}
	}
}

/* Raw words: some runs entirely in G0 (the fast path), some with one other word, some arbitrary. */
static inline void
rig_random_tile(uint16_t *raw, uint32_t pixels, uint64_t *rng)
{
	static const uint16_t special[] = {0x0000, 0x3FFF, 0x4000, 0x4001, 0x7FFF, 0x8000, 0x8001,
		0xBFFF, 0xC000, 0xC001, 0xFFFE, 0xFFFF};
	const uint32_t n_special = sizeof(special) / sizeof(special[0]);

	for (uint32_t run = 0; run < pixels; run += 32) {
		const uint32_t what = rig_below(rng, 8);

		for (uint32_t i = 0; i < 32; i++) {
			uint16_t *w = &raw[run + i];

			*w = (uint16_t)(2900 + rig_below(rng, 300));
			if (rig_below(rng, 50) == 0)
				*w = (uint16_t)rig_below(rng, 16384);
			if (what == 0)
				*w = (uint16_t)rig_random(rng);
			else if (what == 1)
				*w = special[rig_below(rng, n_special)];
		}
		if (what == 2)
			raw[run + rig_below(rng, 32)] = special[rig_below(rng, n_special)];
	}
}

/* All tiles of a slot are present, or some are missing; the header is not changed. */
static inline void
rig_random_frame(struct rig *rig, uint32_t slot, int holes, uint64_t *rng)
{
	const struct gk_geometry *g = &rig->config.geometry;
	struct gk_frame *frame = rig_frame(rig, slot);

	frame->missing = 0;
	for (uint32_t t = 0; t < g->tiles; t++) {
		rig_random_tile(rig_tile(rig, slot, t), g->tile_rows * g->cols, rng);
		frame->packet[t] = (uintptr_t)rig_tile(rig, slot, t);
		if (holes && rig_below(rng, 5) == 0) {
			frame->packet[t] = 0;
			frame->missing++;
		}
	}
}

/* Number in the trailer, and in the leader, of a tile. @{ */
static inline uint64_t *
rig_trailer(const struct rig *rig, uint32_t slot, uint32_t tile)
{
	const struct gk_geometry *g = &rig->config.geometry;

	return (uint64_t *)(rig_tile(rig, slot, tile) + (uint64_t)g->tile_rows * g->cols);
}

static inline uint64_t *
rig_leader(const struct rig *rig, uint32_t slot, uint32_t tile)
{
	return (uint64_t *)rig_tile(rig, slot, tile) - 1;
}
/** @} */

/*
 * Give a frame trailers: those of its tiles, but random ones are of another frame, in the trailer,
 * the leader or both. @return bit mask by tile in `lost`
 */
static inline void
rig_random_trailers(struct rig *rig, uint32_t slot, uint64_t lost[], uint64_t *rng)
{
	const struct gk_geometry *g = &rig->config.geometry;
	struct gk_frame *frame = rig_frame(rig, slot);

	frame->flags |= GK_FRAME_TRAILER | (rig_below(rng, 2) ? GK_FRAME_LEADER : 0);
	frame->trailer = rig_random(rng);
	for (uint32_t t = 0; t < g->tiles; t++) {
		const uint32_t stale = rig_below(rng, 12);

		*rig_trailer(rig, slot, t) = *rig_leader(rig, slot, t) = frame->trailer;
		/* differs in one bit */
		if (stale == 0 || stale == 1)
			*rig_trailer(rig, slot, t) ^= UINT64_C(1) << rig_below(rng, 64);
		if (stale == 1 || stale == 2)
			*rig_leader(rig, slot, t) ^= UINT64_C(1) << rig_below(rng, 64);
		if (frame->packet[t] == 0 || stale < 2 ||
			(stale == 2 && (frame->flags & GK_FRAME_LEADER)))
			lost[t / 64] |= UINT64_C(1) << t % 64;
	}
}

#endif /* GK_RIG_H */
