/* SPDX-License-Identifier: BSD-3-Clause */
/* The data of gk_bench: frames as from a detector, and its calibration. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench_host.h"
#include "gk_bench.h"
#include "gk_pixel.h"

#define PEDESTAL    3000
#define GAIN	    508.4f /* ADU per photon in G0 */
#define FRAMES_MAX  64
#define SPOTS	    100 /* bright spots of a module */
#define SPOT	    4	/* pixels along each side */
#define MODULE_ROWS 512

void *
bench_need(uint64_t size)
{
	const uint64_t page = UINT64_C(1) << 21, whole = (size + page - 1) & ~(page - 1);
	void *memory = aligned_alloc(page, whole);

	if (memory == NULL) {
		fprintf(stderr, "gk_bench: no memory for %llu bytes; use a lower --frames\n",
			(unsigned long long)size);
		exit(1);
	}
	/* huge pages as in the receiver; ordinary pages if there are none */
	madvise(memory, whole, MADV_HUGEPAGE);
	memset(memory, 0, size); /* touch the pages: the zero page would be cached */
	return memory;
}

static uint64_t
next_random(uint64_t *rng)
{
	*rng = *rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *rng >> 32;
}

static void
fill_coefficients(struct bench *b)
{
	const uint64_t pixels = gk_pixels(&b->config.geometry);
	uint64_t rng = 7;

	for (uint64_t x = 0; x < pixels; x++) {
		for (int s = 0; s < 3; s++) {
			b->p[s][x] = s == 0 ? PEDESTAL + (float)(x % 64) : 15000.0f;
			b->r[s][x] = s == 0 ? 1 / (GAIN + (float)(x % 32)) : -0.05f;
		}
		if (next_random(&rng) % 1000 != 0)
			continue;
		/* dead pixels, as marked in a calibration */
		b->r[0][x] = b->r[1][x] = b->r[2][x] = b->p[2][x] = gk_nan();
	}
}

/* Noise around the pedestal; of a thousand pixels, 9 have 5 photons and one has 12. */
static uint16_t
background(uint64_t *rng)
{
	const uint64_t random = next_random(rng), class = random % 1000;
	const float photons = class == 0 ? 12 : class < 10 ? 5 : 0;

	return (uint16_t)(PEDESTAL + (random >> 26) + (uint64_t)(photons * GAIN));
}

/* Values in G1, with G2 in their middle, at random positions of a module. */
static void
put_spots(struct bench *b, uint32_t frame, uint64_t *rng)
{
	const struct gk_geometry *g = &b->config.geometry;

	for (uint32_t i = 0; i < SPOTS * b->modules; i++) {
		const uint32_t row = i / SPOTS * MODULE_ROWS +
			(uint32_t)(next_random(rng) % (MODULE_ROWS - SPOT)),
			       col = (uint32_t)(next_random(rng) % (g->cols - SPOT));

		for (uint32_t k = 0; k < SPOT * SPOT; k++) {
			const uint32_t y = k / SPOT, x = k % SPOT;
			const bool middle = (y + 1) / 2 == 1 && (x + 1) / 2 == 1;
			const uint32_t at = row + y;

			packet_of(b, frame,
				at / g->tile_rows)[(uint64_t)(at % g->tile_rows) * g->cols + col +
				x] = (uint16_t)(14000 + (middle ? GK_RAW_G2 : GK_RAW_G1));
		}
	}
}

/*
 * List the lines of coefficients that the pixels of a strip in G1 and G2 need.
 * @param n  lines before it
 * @return with those of the strip
 */
static uint32_t
list_lines(struct bench *b, const uint16_t *raw, uint64_t first, uint32_t n)
{
	for (uint32_t x = 0; x < STRIP; x += 16) {
		const uint32_t line = (uint32_t)((first + x) / 16);
		uint32_t gains = 0; /* bit g: some pixel has gain Gg */

		for (uint32_t i = 0; i < 16; i++)
			gains |= 1u << (raw[x + i] >= GK_RAW_G2 ? 2 : raw[x + i] >> 14);
		for (uint32_t plane = 0; plane < 4; plane++) {
			if (gains >> (1 + plane / 2) & 1)
				b->lines[n++] = line << 2 | plane;
		}
	}
	return n;
}

static void
list_all_lines(struct bench *b)
{
	const struct gk_geometry *g = &b->config.geometry;
	const uint64_t tile = (uint64_t)g->tile_rows * g->cols;
	uint32_t n = 0, strip = 0;

	/* each row of a spot is in at most two lines of each plane */
	b->lines = bench_need(
		(uint64_t)b->frames * SPOTS * b->modules * SPOT * 2 * 4 * sizeof(*b->lines));
	b->strip_lines =
		bench_need((b->frames * gk_pixels(g) / STRIP + 1) * sizeof(*b->strip_lines));
	for (uint32_t f = 0; f < b->frames; f++) {
		for (uint64_t at = 0; at < gk_pixels(g); at += STRIP) {
			b->strip_lines[strip++] = n;
			n = list_lines(
				b, packet_of(b, f, (uint32_t)(at / tile)) + at % tile, at, n);
		}
	}
	b->strip_lines[strip] = n;
}

static void
free_lines(struct bench *b)
{
	free(b->lines);
	free(b->strip_lines);
	b->lines = b->strip_lines = NULL;
}

void
bench_bright(struct bench *b, bool bright)
{
	const struct gk_geometry *g = &b->config.geometry;
	uint64_t rng = 1;

	b->bright = bright;
	for (uint32_t f = 0; f < b->frames; f++) {
		for (uint32_t t = 0; t < g->tiles; t++) {
			uint16_t *raw = packet_of(b, f, t);

			for (uint64_t x = 0; x < (uint64_t)g->tile_rows * g->cols; x++)
				raw[x] = background(&rng);
		}
		if (bright)
			put_spots(b, f, &rng);
	}
	free_lines(b);
	if (bright)
		list_all_lines(b);
}

/* Enough frames to exceed the caches, a multiple of the batch. */
static uint32_t
choose_frames(uint64_t frame_bytes)
{
	uint64_t l3 = bench_host_cache(3), n;

	if (l3 == 0)
		l3 = BENCH_L3_UNKNOWN;
	n = (2 * l3 + BATCH_MAX * frame_bytes - 1) / (BATCH_MAX * frame_bytes) * BATCH_MAX;
	return n < FRAMES_MAX ? (uint32_t)n : FRAMES_MAX;
}

static void
open_set(struct bench *b, enum gk_isa isa)
{
	struct bench_set *s = &b->set[b->nb_sets++];

	s->isa = isa;
	s->config.channel = bench_need(sizeof(*s->config.channel));
	for (int i = 0; i < 3; i++) {
		s->config.channel->coef[0].p[i] = (uintptr_t)b->p[i];
		s->config.channel->coef[0].r[i] = (uintptr_t)b->r[i];
	}
	s->config.channel->dark[0].cells = (uintptr_t)b->cells;
	/* rows continue with the same ring memory */
	gk_ring_init(&s->ring, s->config.channel, 0);
}

void
bench_open(struct bench *b)
{
	struct gk_config *c = &b->config;
	uint64_t pixels;

	c->geometry = (struct gk_geometry){128 * b->modules, 4, 1024};
	pixels = gk_pixels(&c->geometry);
	if (b->frames == 0)
		b->frames = choose_frames(pixels * sizeof(uint16_t));
	/* output slots have room for each value type */
	gk_layout_init(&c->layout, &c->geometry, GK_VALUE_F32, (uint32_t)pixels / 16);
	c->gangs = c->workers = 1;
	c->nb_frames = c->nb_outputs = b->frames;
	c->frames = bench_need(b->frames * gk_frame_stride(&c->geometry));
	c->results = bench_need(b->frames * sizeof(*c->results));
	c->details = bench_need(b->frames * sizeof(*c->details));
	c->outputs = bench_need(b->frames * c->layout.stride);
	b->packets =
		bench_need((uint64_t)b->frames * c->geometry.tiles * packet_stride(&c->geometry));
	b->cells = bench_need(gk_dark_size(&c->geometry));
	for (int s = 0; s < 3; s++) {
		b->p[s] = bench_need(pixels * 4);
		b->r[s] = bench_need(pixels * 4);
	}
	for (uint32_t f = 0; f < b->frames; f++) {
		frame_of(b, f)->frame = f;
		frame_of(b, f)->out = f;
		frame_of(b, f)->trailer = f;
		for (uint32_t t = 0; t < c->geometry.tiles; t++) {
			frame_of(b, f)->packet[t] = (uintptr_t)packet_of(b, f, t);
			*trailer_of(b, f, t) = f;
		}
	}
	fill_coefficients(b);
	bench_bright(b, false);
	for (int isa = GK_ISA_PLAIN; isa < GK_ISAS; isa++) {
		if (gk_isa_choose(isa) >= 0)
			open_set(b, isa);
		else
			printf("%s: not supported by this CPU\n", gk_isa_name(isa));
	}
}

void
bench_close(struct bench *b)
{
	for (int s = 0; s < 3; s++) {
		free(b->p[s]);
		free(b->r[s]);
	}
	for (uint32_t i = 0; i < b->nb_sets; i++)
		free(b->set[i].config.channel);
	free(b->cells);
	free_lines(b);
	free(b->packets);
	free(b->config.frames);
	free(b->config.results);
	free(b->config.outputs);
}
