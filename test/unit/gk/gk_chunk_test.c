/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host gangs that write raw frames and int16 images as chunks: the bytes of
 * gk_bitshuffle_compress() with any number of threads, tiles that are blocks and tiles that are
 * not, missing packets, packets with trailers, frames whose kind is certain, a guess, a wrong guess
 * or known after the verdict. Images are those of gk_pixel.h. liblz4 decodes them. The CRC of a
 * chunk is that of its bytes, if the gangs compute it.
 */

#include <lz4.h>
#include <pthread.h>
#include <sched.h>

#include "gk_bitshuffle.h"
#include "gk_bitshuffle_cases.h"
#include "gk_rig.h"

#define SLOTS 32

/* a sanitizer makes a round ten times slower, and finds an error in the first ones */
#ifdef __SANITIZE_ADDRESS__
#define ROUNDS 4
#else
#define ROUNDS 16
#endif

/* CRC-32C, by the definition. */
static uint32_t
crc32c(uint32_t crc, const void *bytes, size_t size)
{
	const uint8_t *at = bytes;

	crc = ~crc;
	for (size_t i = 0; i < size; i++) {
		crc ^= at[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
	}
	return ~crc;
}

struct server {
	struct rig *rig;
	const int *quit;
	pthread_t thread;
};

static void *
serve(void *arg)
{
	struct server *s = arg;

	while (!__atomic_load_n(s->quit, __ATOMIC_RELAXED)) {
		int busy = 0;

		for (uint32_t g = 0; g < s->rig->config.gangs; g++)
			busy |= s->rig->ops->poll(s->rig->gk, g, 0);
		if (!busy)
			sched_yield();
	}
	return NULL;
}

/* Pixels of a frame, of which planes have runs of many lengths, or that are noise or constant. */
static void
fill_frame(struct rig *rig, uint32_t slot, uint16_t *raster, uint64_t *rng)
{
	const struct gk_geometry *g = &rig->config.geometry;
	const uint64_t pixels = gk_pixels(g), tile = (uint64_t)g->tile_rows * g->cols;

	for (uint64_t at = 0; at < pixels; at += GK_BITSHUFFLE_BLOCK) {
		const uint32_t v = pixels - at < GK_BITSHUFFLE_BLOCK ? (uint32_t)(pixels - at)
								     : GK_BITSHUFFLE_BLOCK;
		uint8_t planes[GK_BITSHUFFLE_BYTES];
		uint64_t seed = rig_random(rng);

		switch (rig_below(rng, 4)) {
		case 0:
			fill_without_runs(planes, 2 * v, &seed);
			for (uint32_t i = 0, s; i < 20; i++) {
				s = 1 + rig_below(rng, 2 * v - 1);
				put_run(planes, 2 * v, s,
					s + 1 + rig_below(rng, 2 * v - s < 300 ? 2 * v - s : 300));
			}
			break;
		case 1:
			fill_with_runs(planes, 2 * v, &seed);
			break;
		case 2:
			memset(planes, (int)rig_below(rng, 2) * 255, sizeof(planes));
			break;
		default:
			for (uint32_t i = 0; i < 2 * v; i++)
				planes[i] = (uint8_t)rig_random(rng);
		}
		values_of(planes, v, raster + at);
	}
	for (uint32_t t = 0; t < g->tiles; t++)
		memcpy(rig_tile(rig, slot, t), raster + t * tile, tile * sizeof(*raster));
}

static void
check_decoded(const uint8_t *chunk, uint64_t size, const uint16_t *raster, uint64_t pixels)
{
	uint64_t at = GK_BITSHUFFLE_HEADER;

	for (uint64_t first = 0; first < pixels; first += GK_BITSHUFFLE_BLOCK) {
		const uint32_t v = pixels - first < GK_BITSHUFFLE_BLOCK ? (uint32_t)(pixels - first)
									: GK_BITSHUFFLE_BLOCK;
		uint8_t planes[GK_BITSHUFFLE_BYTES];
		uint16_t values[GK_BITSHUFFLE_BLOCK];
		uint32_t length;

		memcpy(&length, chunk + at, sizeof(length));
		length = gk_big_endian(length);
		at += GK_BITSHUFFLE_LENGTH;
		assert_in_range(at + length, at + 1, size);
		assert_int_equal(LZ4_decompress_safe((const char *)chunk + at, (char *)planes,
					 (int)length, (int)(2 * v)),
			2 * v);
		values_of(planes, v, values);
		assert_memory_equal(values, raster + first, v * sizeof(values[0]));
		at += length;
	}
	assert_int_equal(at, size);
}

/* Convert the words of a frame to an image, by the definition. */
static void
make_image(const struct rig *rig, uint16_t *raster)
{
	for (uint64_t x = 0; x < gk_pixels(&rig->config.geometry); x++) {
		const float p[3] = {rig->p[0][x], rig->p[1][x], rig->p[2][x]};
		const float r[3] = {rig->r[0][x], rig->r[1][x], rig->r[2][x]};

		raster[x] = (uint16_t)gk_value_i16(gk_photons(raster[x], p, r));
	}
}

/* @return 1 << the kind of the chunk that the frame was, 0: it was none */
static uint32_t
check_frame(const struct rig *rig, uint32_t slot, uint16_t *raster, const uint64_t lost[])
{
	const struct gk_config *c = &rig->config;
	const uint64_t pixels = gk_pixels(&c->geometry), bound = gk_bitshuffle_bound(pixels);
	const uint64_t tile = (uint64_t)c->geometry.tile_rows * c->geometry.cols;
	const struct gk_frame *frame = rig_frame(rig, slot);
	const uint64_t size = c->details[slot].chunk_bytes;
	const uint32_t kind = c->results[slot].kind;
	uint8_t *wanted;
	const uint8_t *out;

	if (kind == GK_KIND_NONE || (c->channel->params[0].chunks >> kind & 1) == 0) {
		assert_int_equal(size, 0);
		assert_int_equal(c->details[slot].chunk_crc32c, 0);
		return 0;
	}
	if (kind == GK_KIND_IMAGE)
		make_image(rig, raster);
	for (uint32_t t = 0; t < c->geometry.tiles; t++)
		if (frame->packet[t] == 0 || (lost[t / 64] >> t % 64 & 1))
			for (uint64_t i = 0; i < tile; i++)
				raster[t * tile + i] =
					kind == GK_KIND_IMAGE ? (uint16_t)GK_I16_INVALID : 0xFFFF;
	wanted = malloc(bound);
	assert_non_null(wanted);
	out = rig_output(rig, frame->out) + c->layout.raw;
	assert_int_equal(size, gk_bitshuffle_compress(raster, pixels, wanted));
	assert_memory_equal(out, wanted, size);
	assert_int_equal(
		c->details[slot].chunk_crc32c, c->crc32c != NULL ? crc32c(0, out, size) : 0);
	check_decoded(out, size, raster, pixels);
	/* there may be a plain image that was a wrong guess */
	for (uint64_t i = c->layout.peaks - c->layout.raw; i < c->layout.stride - c->layout.raw;
		i++)
		assert_int_equal(out[i], RIG_GUARD);
	free(wanted);
	return 1u << kind;
}

static void
draw_params(struct gk_params *p, enum gk_value value, uint64_t *rng)
{
	static const uint32_t kinds[] = {
		GK_KIND_RAW, GK_KIND_RAW, GK_KIND_IMAGE, GK_KIND_IMAGE, GK_KIND_CSR};
	/* rejected frames are kept as raw data; no list has room, so it becomes an image */
	static const uint32_t least[] = {0, 0, 1, UINT32_MAX};

	*p = (struct gk_params){.version = 1,
		.kind = kinds[rig_below(rng, 5)],
		.chunks = 1u << GK_KIND_RAW,
		.strong_threshold = 1,
		.csr_threshold = 1,
		.strong_min = least[rig_below(rng, 4)],
		.strong_max = UINT32_MAX};
	if (value == GK_VALUE_I16 && rig_below(rng, 4))
		p->chunks |= 1u << GK_KIND_IMAGE;
}

static void
run_round(uint32_t threads, uint32_t chunks[2], uint64_t *rng)
{
	/* a tile is a block, several ones, parts of one, or has parts of two */
	static const struct gk_geometry shapes[] = {
		{37, 4, 1024}, {9, 8, 1024}, {40, 3, 96}, {19, 2, 1024}, {1, 1, 32}, {7, 5, 1056}};
	const struct gk_geometry *g = &shapes[rig_below(rng, 6)];
	const uint64_t pixels = gk_pixels(g);
	uint64_t lost[SLOTS][1 + 40 / 64];
	const int trailers = (int)rig_below(rng, 2);
	const enum gk_value value = rig_below(rng, 3) ? GK_VALUE_I16 : GK_VALUE_F32;
	uint32_t gangs = 1 + rig_below(rng, 2);
	struct server server[4];
	uint16_t *raster = malloc(SLOTS * pixels * sizeof(*raster));
	struct rig rig;
	int quit = 0;

	assert_non_null(raster);
	rig_crc32c = rig_below(rng, 4) ? crc32c : NULL;
	rig_open_trailers(&rig, g, value, 0, gangs, SLOTS, 0, trailers);
	rig_random_coef(&rig, rng);
	assert_int_equal(rig.ops->start(rig.gk), 0);
	for (uint32_t i = 0; i < threads; i++) {
		server[i] = (struct server){.rig = &rig, .quit = &quit};
		assert_int_equal(pthread_create(&server[i].thread, NULL, serve, &server[i]), 0);
	}
	for (uint32_t batches = 0; batches < 2; batches++) {
		draw_params(&rig.config.channel->params[0], value, rng);
		memset(lost, 0, sizeof(lost));
		for (uint32_t s = 0; s < SLOTS; s++) {
			struct gk_frame *frame = rig_frame(&rig, s);

			rig_random_frame(&rig, s, (int)rig_below(rng, 2), rng);
			fill_frame(&rig, s, raster + s * pixels, rng);
			frame->out = s;
			frame->flags = rig_below(rng, 5) ? GK_FRAME_KEEP | GK_FRAME_KIND_RAW : 0;
			if (trailers && rig_below(rng, 2))
				rig_random_trailers(&rig, s, lost[s], rng);
		}
		for (uint32_t s = 0, n; s < SLOTS; s += n) {
			struct gk_ring *ring = &rig.ring[rig_below(rng, gangs)];
			struct gk_work *work = gk_ring_next(ring);

			n = 1 + rig_below(rng, GK_BATCH_MAX);
			n = n < SLOTS - s ? n : SLOTS - s;
			*work = (struct gk_work){.nb_frames = n};
			for (uint32_t i = 0; i < n; i++)
				work->slot[i] = s + i;
			gk_ring_submit(ring);
		}
		for (uint32_t i = 0; i < gangs; i++) {
			while (gk_ring_pending(&rig.ring[i]) > 0) {
				assert_int_equal(gk_ring_error(&rig.ring[i]), 0);
				if (gk_ring_is_done(&rig.ring[i], rig.ring[i].done_tail)) {
					uint32_t batch;

					gk_ring_take_raw(&rig.ring[i], &batch);
					gk_ring_collect(&rig.ring[i]);
				} else {
					sched_yield();
				}
			}
		}
		for (uint32_t s = 0; s < SLOTS; s++) {
			const uint32_t kind = check_frame(&rig, s, raster + s * pixels, lost[s]);

			chunks[0] += kind == 1u << GK_KIND_RAW;
			chunks[1] += kind == 1u << GK_KIND_IMAGE;
		}
	}
	while (rig.ops->stop(rig.gk) == -EBUSY)
		sched_yield();
	__atomic_store_n(&quit, 1, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < threads; i++)
		pthread_join(server[i].thread, NULL);
	rig_close(&rig);
	free(raster);
}

static void
test_chunks(void **state)
{
	uint64_t rng = rig_seed("chunks");
	uint32_t chunks[2] = {0}; /* raw frames, images */

	for (uint32_t i = 0; i < ROUNDS; i++)
		run_round(1 + i % 4, chunks, &rng);
	print_message("chunks: %u raw frames, %u images\n", chunks[0], chunks[1]);
	assert_true(chunks[0] + chunks[1] > ROUNDS * SLOTS / 3);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chunks),
	};

	if (rig_lacks_isa())
		return 77;
	return cmocka_run_group_tests_name("gk_chunk", tests, NULL, NULL);
}
