/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host gangs and packets that their sender may overwrite. A tile with the trailer of another frame
 * is missing in every byte of every output: compared with gangs whose tiles are given as missing.
 * Threads overwrite tiles while gangs work.
 *
 * Also the packets of a transport that delivers 4,096 pixel bytes by reference: 2 rows a tile, at
 * any multiple of 16. The outputs are those of 4 rows a tile.
 */

#include "gk_race.h"

#define MAP_WORDS 4

static uint32_t
random_kind(struct gk_params *p, const struct gk_config *c, uint64_t *rng)
{
	*p = (struct gk_params){.version = (uint32_t)rig_random(rng),
		.kind = rig_below(rng, 3),
		.strong_threshold = ldexpf((float)(1 + rig_below(rng, 4000)), -5),
		.csr_threshold = ldexpf((float)(1 + rig_below(rng, 4000)), -7),
		.strong_min = rig_below(rng, 3) ? rig_below(rng, 500) : 0,
		.strong_max = UINT32_MAX,
		.nnz_max = rig_below(rng, c->layout.nnz_cap + 1),
		.chunks = rig_below(rng, 2) << GK_KIND_RAW};
	return p->kind;
}

/* The same pixels, coefficients and headers; lost tiles are given as missing. */
static void
give_missing(struct rig *to, const struct rig *from, uint32_t slot, const uint64_t lost[])
{
	const struct gk_geometry *g = &from->config.geometry;
	struct gk_frame *frame = rig_frame(to, slot);

	memcpy(frame, rig_frame(from, slot), sizeof(*frame));
	frame->flags &= ~(GK_FRAME_TRAILER | GK_FRAME_LEADER);
	for (uint32_t t = 0; t < g->tiles; t++) {
		memcpy(rig_tile(to, slot, t), rig_tile(from, slot, t),
			(uint64_t)g->tile_rows * g->cols * 2);
		frame->packet[t] = (uintptr_t)rig_tile(to, slot, t);
		if (rig_frame(from, slot)->packet[t] == 0 || (lost[t / 64] >> t % 64 & 1))
			frame->packet[t] = 0;
	}
}

static void
copy_coef(struct rig *to, const struct rig *from)
{
	const uint64_t plane = gk_pixels(&from->config.geometry) * sizeof(float);

	for (int s = 0; s < 3; s++) {
		memcpy(to->p[s], from->p[s], plane);
		memcpy(to->r[s], from->r[s], plane);
	}
}

/*
 * Serve gang 0 until the batch is done. When its packets are released, their memory is overwritten.
 * @return whether that was before the batch was done
 */
static int
serve(struct rig *rig, uint32_t batch, int overwrite)
{
	const struct gk_done *done = &rig->config.channel->done[0];
	int early = 0;

	while (done->done == batch) {
		assert_int_equal(rig->ops->poll(rig->gk, 0, 0), 1);
		assert_int_equal(done->error, 0);
		if (early || done->raw == batch || done->done != batch)
			continue;
		early = 1;
		if (overwrite)
			memset(rig->raw, 0x55,
				rig->config.nb_frames * rig_raw_stride(rig) - RIG_TRAILER);
	}
	return early;
}

static void
submit(struct rig *rig, uint32_t n, uint32_t params)
{
	struct gk_work *work = gk_ring_next(&rig->ring[0]);

	*work = (struct gk_work){.nb_frames = n, .params = params};
	for (uint32_t i = 0; i < n; i++)
		work->slot[i] = i;
	gk_ring_submit(&rig->ring[0]);
}

static void
check_map(const struct rig *rig, uint32_t slot, const uint64_t lost[])
{
	struct gk_frame *frame = rig_frame(rig, slot);
	const uint64_t *map = gk_missing_map(&rig->config.geometry, frame);
	uint32_t given = 0, n = 0;

	for (uint64_t i = 0; i < gk_missing_size(&rig->config.geometry) / 8; i++) {
		assert_int_equal(map[i], i < MAP_WORDS ? lost[i] : 0);
		n += (uint32_t)__builtin_popcountll(map[i]);
	}
	for (uint32_t t = 0; t < rig->config.geometry.tiles; t++)
		given += frame->packet[t] == 0;
	assert_int_equal(
		rig->config.results[slot].missing + rig->config.results[slot].overrun + given, n);
}

static void
check_same(struct rig *found, struct rig *wanted, uint32_t n)
{
	const uint64_t stride = found->config.layout.stride;

	for (uint32_t i = 0; i < n; i++) {
		const uint64_t chunk = found->config.details[i].chunk_bytes;
		struct gk_result result = found->config.results[i];
		const uint32_t out = rig_frame(found, i)->out;

		result.missing = result.overrun = 0;
		assert_memory_equal(&result, &wanted->config.results[i], sizeof(result));
		if (out == GK_NO_OUT)
			continue;
		assert_int_equal(wanted->config.details[i].chunk_bytes, chunk);
		rig_forget_guess(found, &result, chunk, rig_output(found, out));
		rig_forget_guess(wanted, &result, chunk, rig_output(wanted, out));
		assert_memory_equal(rig_output(found, out), rig_output(wanted, out), stride);
	}
	for (int i = 0; i < GK_DARK_MAX; i++)
		assert_memory_equal(
			found->cells[i], wanted->cells[i], gk_dark_size(&wanted->config.geometry));
}

static void
stale_round(uint32_t kinds[4], uint32_t *early, uint64_t *rng)
{
	static const uint32_t cols[] = {32, 64, 96, 1024, 1056};
	const struct gk_geometry g = {1 + rig_below(rng, 2 + rig_below(rng, 200)),
		1 + rig_below(rng, 4), cols[rig_below(rng, 5)]};
	const uint32_t n = 1 + rig_below(rng, GK_BATCH_MAX),
		       cap = rig_below(rng, (uint32_t)gk_pixels(&g) + 1),
		       first = (uint32_t)rig_random(rng);
	const enum gk_value value = rig_below(rng, 2) ? GK_VALUE_F32 : GK_VALUE_I16;
	struct rig found, wanted;

	rig_open_trailers(&found, &g, value, cap, 1, GK_BATCH_MAX, first, 1);
	rig_open(&wanted, &g, value, cap, 1, GK_BATCH_MAX, first);
	rig_random_coef(&found, rng);
	copy_coef(&wanted, &found);
	assert_int_equal(found.ops->start(found.gk), 0);
	assert_int_equal(wanted.ops->start(wanted.gk), 0);
	for (uint32_t batch = 0; batch < 3; batch++) {
		uint64_t lost[GK_BATCH_MAX][MAP_WORDS] = {0};
		/* other frames read their packets again */
		const int all = (int)rig_below(rng, 2);

		random_kind(&found.config.channel->params[0], &found.config, rng);
		wanted.config.channel->params[0] = found.config.channel->params[0];
		for (uint32_t i = 0; i < n; i++) {
			struct gk_frame *frame = rig_frame(&found, i);

			rig_random_frame(&found, i, rig_below(rng, 2), rng);
			frame->frame = rig_random(rng);
			frame->out = rig_below(rng, 6) == 0 ? GK_NO_OUT : GK_BATCH_MAX - 1 - i;
			frame->flags = rig_below(rng, 8);
			/* the gang clears it */
			memset(gk_missing_map(&g, frame), 0xA5, gk_missing_size(&g));
			if (all || rig_below(rng, 2))
				rig_random_trailers(&found, i, lost[i], rng);
			give_missing(&wanted, &found, i, lost[i]);
		}
		submit(&found, n, 0);
		submit(&wanted, n, 0);
		*early += (uint32_t)serve(&found, first + batch, all);
		serve(&wanted, first + batch, 0);
		gk_ring_collect(&found.ring[0]);
		gk_ring_collect(&wanted.ring[0]);
		for (uint32_t i = 0; i < n; i++) {
			const uint32_t kind = found.config.results[i].kind;

			if (!(rig_frame(&found, i)->flags & GK_FRAME_TRAILER))
				continue;
			check_map(&found, i, lost[i]);
			kinds[kind == GK_KIND_NONE ? 3 : kind]++;
		}
		check_same(&found, &wanted, n);
	}
	assert_int_equal(found.ops->stop(found.gk), 0);
	assert_int_equal(wanted.ops->stop(wanted.gk), 0);
	rig_close(&found);
	rig_close(&wanted);
}

/* a sanitizer makes a round ten times slower, and finds an error in the first ones */
#ifdef __SANITIZE_ADDRESS__
#define STALE_ROUNDS 30
#else
#define STALE_ROUNDS 150
#endif

static void
test_stale(void **state)
{
	uint32_t kinds[4] = {0}, early = 0;
	uint64_t rng = rig_seed("stale");

	for (int round = 0; round < STALE_ROUNDS; round++)
		stale_round(kinds, &early, &rng);
	print_message("%u csr, %u images, %u raw, %u without output; packets of %u batches were "
		      "released before the outputs\n",
		kinds[0], kinds[1], kinds[2], kinds[3], early);
	assert_true(kinds[0] > 0 && kinds[1] > 0 && kinds[2] > 0 && kinds[3] > 0 && early > 0);
}

static void
refused(struct rig *rig, const char *wanted)
{
	const struct gk_work work = {.nb_frames = 2, .slot = {0, 1}};
	char why[256] = "";

	assert_int_equal(gk_descriptor_check(&rig->config, &work, why, sizeof(why)), -EINVAL);
	if (strstr(why, wanted) == NULL)
		fail_msg("'%s', expected '%s'", why, wanted);
	assert_int_equal(gk_work_check(&rig->config, &work, why, sizeof(why)), -EINVAL);
}

static void
test_refused(void **state)
{
	const struct gk_geometry g = {3, 1, 32};
	const struct gk_work work = {.nb_frames = 2, .slot = {0, 1}};
	struct gk_frame *frame;
	struct rig rig;

	for (uint32_t trailers = 0; trailers < 2; trailers++) {
		rig_open_trailers(&rig, &g, GK_VALUE_F32, 0, 1, 2, 0, (int)trailers);
		frame = rig_frame(&rig, 1);
		for (uint32_t t = 0; t < g.tiles; t++)
			frame->packet[t] = (uintptr_t)rig_tile(&rig, 1, t);
		assert_int_equal(gk_work_check(&rig.config, &work, NULL, 0), 0);
		frame->flags = GK_FRAME_LEADER;
		refused(&rig, "slot 1 has GK_FRAME_LEADER, expected GK_FRAME_TRAILER with it");
		frame->flags = GK_FRAME_TRAILER;
		if (!trailers) {
			refused(&rig,
				"slot 1 has trailers, expected none: gk_config.trailers is 0");
		} else {
			assert_int_equal(gk_work_check(&rig.config, &work, NULL, 0), 0);
			frame->packet[2] += 8;
			refused(&rig, "slot 1 has packet 2 at 0x");
		}
		rig_close(&rig);
	}
}

static void
race_on_host(int wire)
{
	struct rig rig;

	rig_open_trailers(&rig, &race_geometry, GK_VALUE_F32, RACE_PIXELS, 1, PLACES, 0, 1);
	run_race(&rig, wire);
	rig_close(&rig);
}

static void
test_race_seqlock(void **state)
{
	race_on_host(0);
}

static void
test_race_wire(void **state)
{
	race_on_host(1);
}

#define MODULES 2

/* The same frames in 4 rows a tile, and in 2 rows a tile at any multiple of 16. */
static void
test_two_rows(void **state)
{
	const struct gk_geometry four = {128 * MODULES, 4, 1024}, two = {256 * MODULES, 2, 1024};
	const uint32_t n = 5, cap = (uint32_t)gk_pixels(&four) / 8;
	const uint64_t bytes = 4096, step = bytes + 128;
	uint8_t *memory = rig_alloc(n * two.tiles * step);
	uint64_t rng = rig_seed("two rows");
	struct rig wanted, found;

	for (uint32_t value = GK_VALUE_F32; value <= GK_VALUE_I16; value++) {
		rig_open(&wanted, &four, value, cap, 1, n, 0);
		rig_open_trailers(&found, &two, value, cap, 1, n, 0, 1);
		rig_random_coef(&wanted, &rng);
		copy_coef(&found, &wanted);
		assert_int_equal(found.ops->start(found.gk), 0);
		assert_int_equal(wanted.ops->start(wanted.gk), 0);
		for (uint32_t batch = 0; batch < 6; batch++) {
			random_kind(&wanted.config.channel->params[0], &wanted.config, &rng);
			wanted.config.channel->params[0].kind = batch % 3;
			found.config.channel->params[0] = wanted.config.channel->params[0];
			for (uint32_t i = 0; i < n; i++) {
				struct gk_frame *frame = rig_frame(&wanted, i);

				rig_random_frame(&wanted, i, (int)rig_below(&rng, 2), &rng);
				frame->frame = frame->trailer = rig_random(&rng);
				frame->flags = rig_below(&rng, 8);
				frame->out = i;
				memcpy(rig_frame(&found, i), frame, sizeof(*frame));
				/* by reference, or into a slot that may be overwritten */
				if (batch > 2)
					rig_frame(&found, i)->flags |= GK_FRAME_TRAILER;
				for (uint32_t t = 0; t < two.tiles; t++) {
					uint8_t *to = memory + (i * two.tiles + t) * step +
						16 * rig_below(&rng, 7);

					memcpy(to,
						(uint8_t *)rig_tile(&wanted, i, t / 2) +
							t % 2 * bytes,
						bytes);
					memcpy(to + bytes, &frame->trailer, 8);
					rig_frame(&found, i)->packet[t] =
						frame->packet[t / 2] == 0 ? 0 : (uintptr_t)to;
				}
			}
			submit(&found, n, 0);
			submit(&wanted, n, 0);
			assert_int_equal(gk_work_check(&found.config,
						 gk_ring_work(&found.ring[0], batch), NULL, 0),
				0);
			serve(&found, batch, 0);
			serve(&wanted, batch, 0);
			gk_ring_collect(&found.ring[0]);
			gk_ring_collect(&wanted.ring[0]);
			check_same(&found, &wanted, n);
		}
		assert_int_equal(found.ops->stop(found.gk), 0);
		assert_int_equal(wanted.ops->stop(wanted.gk), 0);
		rig_close(&found);
		rig_close(&wanted);
	}
	free(memory);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_stale),
		cmocka_unit_test(test_two_rows),
		cmocka_unit_test(test_race_seqlock),
		cmocka_unit_test(test_race_wire),
	};

	if (rig_lacks_isa())
		return 77;
	return cmocka_run_group_tests_name("gk_trailer", tests, NULL, NULL);
}
