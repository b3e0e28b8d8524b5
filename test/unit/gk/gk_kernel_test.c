/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host gangs compared with a plain reference: for each pixel, in long double, written from the text
 * of gk_pixel.h and the output table of the architecture, independently of their code.
 */

#include "gk_rig.h"

/* Photons of one pixel by the specification; special values first. */
static float
ref_photons(uint16_t raw, const float p[3], const float r[3])
{
	const int masked = isnan(r[0]) && isnan(r[1]) && isnan(r[2]) && isnan(p[2]);
	const int code = raw >> 14;
	/* code 10 is no gain stage, code 11 is the third one */
	const int stage = code == 3 ? 2 : code;
	float difference;

	if (masked)
		return NAN;
	if (raw == 0xC000)
		return INFINITY;
	if (raw == 0xFFFF || raw == 0x4000 || code == 2)
		return NAN;
	if (isnan(r[stage]) || isnan(p[stage]))
		return NAN;
	/*
	 * Each operation is rounded once. A long double holds the exact product of two floats. For
	 * a difference its 64 bits are more than twice 24 + 2, so rounding to it first has no
	 * effect (Figueroa 1995).
	 */
	difference = (float)((long double)(raw & 0x3FFF) - (long double)p[stage]);
	return (float)((long double)difference * (long double)r[stage]);
}

static int16_t
ref_i16(float photons)
{
	long double whole;

	if (isnan(photons))
		return INT16_MIN;
	whole = roundl((long double)photons); /* half away from zero */
	if (whole > 32767)
		return INT16_MAX;
	if (whole < -32767)
		return -32767;
	return (int16_t)whole;
}

static int64_t
ref_q8(float photons)
{
	const long double limit = 1L << 30;
	long double q;

	if (isnan(photons) || (isinf(photons) && photons > 0))
		return 0;
	q = rintl((long double)photons * 256); /* ties to even */
	return (int64_t)(q > limit ? limit : q < -limit ? -limit : q);
}

/* Result of the frame in a slot, and a copy of its output slot, which the caller frees. */
static uint8_t *
ref_frame(
	const struct rig *rig, uint32_t slot, const struct gk_params *params, struct gk_result *res)
{
	const struct gk_geometry *g = &rig->config.geometry;
	const struct gk_layout *l = &rig->config.layout;
	const struct gk_frame *frame = rig_frame(rig, slot);
	const uint32_t rows = g->tiles * g->tile_rows;
	uint8_t *out = malloc(l->stride);
	uint32_t *row_ptr = (uint32_t *)(out + l->row_ptr);
	uint16_t *col = (uint16_t *)(out + l->col);
	uint32_t n = 0;

	assert_non_null(out);
	memset(out, RIG_GUARD, l->stride);
	*res = (struct gk_result){.frame = frame->frame,
		.peaks_found = GK_NOT_SEARCHED,
		.params = params->version,
		.coef = rig->config.channel->coef[0].version,
		.kind = GK_KIND_NONE};
	for (int pass = 0; pass < 2; pass++) {
		for (uint32_t y = 0; y < rows; y++) {
			const uint32_t tile = y / g->tile_rows;
			const uint16_t *words = (const uint16_t *)(uintptr_t)frame->packet[tile];

			if (pass == 1 && res->kind == GK_KIND_CSR)
				row_ptr[y] = n;
			for (uint32_t x = 0; x < g->cols; x++) {
				const uint64_t at = (uint64_t)y * g->cols + x;
				const float p[3] = {rig->p[0][at], rig->p[1][at], rig->p[2][at]};
				const float r[3] = {rig->r[0][at], rig->r[1][at], rig->r[2][at]};
				uint16_t word = 0xFFFF;
				float ph = NAN;

				if (words != NULL) {
					word = words[(y % g->tile_rows) * g->cols + x];
					ph = ref_photons(word, p, r);
				}
				if (pass == 0) {
					res->sum += ref_q8(ph);
					res->strong_count += ph >= params->strong_threshold;
					res->nnz += ph >= params->csr_threshold;
					res->saturated += isinf(ph) && ph > 0;
					res->invalid += !!isnan(ph);
					continue;
				}
				if (isnan(ph))
					ph = rig_float_of(GK_NAN_BITS);
				if (res->kind == GK_KIND_RAW) {
					((uint16_t *)(out + l->raw))[at] = word;
					continue;
				}
				if (res->kind == GK_KIND_CSR) {
					if (!(ph >= params->csr_threshold))
						continue;
					col[n] = (uint16_t)x;
				}
				if (rig->config.value == GK_VALUE_F32)
					((float *)(out + l->value))[n] = ph;
				else
					((int16_t *)(out + l->value))[n] = ref_i16(ph);
				n++;
			}
		}
		if (pass == 1) {
			if (res->kind == GK_KIND_CSR)
				row_ptr[rows] = n;
			break;
		}
		res->verdict = res->strong_count >= params->strong_min &&
			res->strong_count <= params->strong_max;
		if (frame->out == GK_NO_OUT || !(res->verdict || frame->flags & GK_FRAME_KEEP))
			break;
		res->kind = params->kind;
		if (res->verdict == GK_VERDICT_REJECT && frame->flags & GK_FRAME_KIND_RAW)
			res->kind = GK_KIND_RAW;
		else if (res->kind == GK_KIND_CSR && res->nnz > params->nnz_max)
			res->kind = GK_KIND_IMAGE;
	}
	return out;
}

static void
check_frame(const struct rig *rig, uint32_t slot, const struct gk_params *params)
{
	const struct gk_frame *frame = rig_frame(rig, slot);
	const struct gk_result *found = &rig->config.results[slot];
	struct gk_result wanted;
	uint8_t *out = ref_frame(rig, slot, params, &wanted);
	uint8_t *bytes;

	assert_int_equal(found->frame, wanted.frame);
	assert_int_equal(found->invalid, wanted.invalid);
	assert_int_equal(found->saturated, wanted.saturated);
	assert_int_equal(found->strong_count, wanted.strong_count);
	assert_int_equal(found->nnz, wanted.nnz);
	assert_int_equal(found->sum, wanted.sum);
	assert_int_equal(found->verdict, wanted.verdict);
	assert_int_equal(found->kind, wanted.kind);
	assert_memory_equal(found, &wanted, sizeof(wanted));
	if (frame->out != GK_NO_OUT) {
		bytes = rig_output(rig, frame->out);
		rig_forget_guess(rig, &wanted, 0, bytes);
		for (uint64_t i = 0; i < rig->config.layout.stride; i++) {
			if (bytes[i] != out[i])
				fail_msg("frame %llu kind %u: byte %llu of its output (col at "
					 "%llu, value at %llu) is 0x%02x, expected 0x%02x",
					(unsigned long long)frame->frame, wanted.kind,
					(unsigned long long)i,
					(unsigned long long)rig->config.layout.col,
					(unsigned long long)rig->config.layout.value, bytes[i],
					out[i]);
		}
	}
	free(out);
}

/* Process the first n slots as one batch in gang 0. @param params  index */
static void
run_batch(struct rig *rig, uint32_t n, uint32_t params)
{
	struct gk_work *work = gk_ring_next(&rig->ring[0]);
	uint32_t batch;

	assert_non_null(work);
	*work = (struct gk_work){.nb_frames = n, .params = params};
	for (uint32_t i = 0; i < n; i++)
		work->slot[i] = i;
	batch = gk_ring_submit(&rig->ring[0]);
	rig_poll_all(rig);
	assert_int_equal(gk_ring_error(&rig->ring[0]), 0);
	assert_true(gk_ring_is_done(&rig->ring[0], batch));
	gk_ring_collect(&rig->ring[0]);
}

/* A threshold that is exactly the value of a pixel, or one that is error-prone. */
static float
some_threshold(const struct rig *rig, uint64_t *rng)
{
	static const float odd[] = {0.0f, -0.0f, 10.0f, 1e30f, -INFINITY, INFINITY};
	const struct gk_geometry *g = &rig->config.geometry;
	const uint32_t pixels = g->tile_rows * g->cols;

	if (rig_below(rng, 3) == 0)
		return odd[rig_below(rng, 6)];
	for (int tries = 0; tries < 100; tries++) {
		const uint32_t tile = rig_below(rng, g->tiles), x = rig_below(rng, pixels);
		const uint64_t at = (uint64_t)tile * pixels + x;
		const float p[3] = {rig->p[0][at], rig->p[1][at], rig->p[2][at]};
		const float r[3] = {rig->r[0][at], rig->r[1][at], rig->r[2][at]};
		const float ph = ref_photons(rig_tile(rig, 0, tile)[x], p, r);

		if (isfinite(ph))
			return ph;
	}
	return 1.0f;
}

static void
random_params(const struct rig *rig, uint32_t index, uint64_t *rng)
{
	struct gk_params *params = &rig->config.channel->params[index];
	struct gk_result first;

	params->version = (uint32_t)rig_random(rng);
	params->kind = rig_below(rng, 4) ? GK_KIND_CSR : rig_below(rng, 3);
	params->csr_threshold = some_threshold(rig, rng);
	params->strong_threshold = some_threshold(rig, rng);
	/* limits that the first frame meets exactly, or misses by one */
	params->strong_min = 0;
	params->strong_max = UINT32_MAX;
	free(ref_frame(rig, 0, params, &first));
	params->strong_min = first.strong_count + rig_below(rng, 2);
	params->strong_max = rig_below(rng, 2) ? UINT32_MAX : first.strong_count;
	params->nnz_max = first.nnz - (first.nnz > 0 && rig_below(rng, 3) == 0);
	if (params->nnz_max > rig->config.layout.nnz_cap || rig_below(rng, 3) == 0)
		params->nnz_max = rig->config.layout.nnz_cap;
}

static void
random_round(uint64_t *rng)
{
	static const uint32_t cols[] = {32, 64, 96, 1024, 1056, 2080};
	const struct gk_geometry g = {
		1 + rig_below(rng, 6), 1 + rig_below(rng, 5), cols[rig_below(rng, 6)]};
	const enum gk_value value = rig_below(rng, 2) ? GK_VALUE_F32 : GK_VALUE_I16;
	const uint32_t n = 1 + rig_below(rng, GK_BATCH_MAX);
	const uint32_t cap = rig_below(rng, (uint32_t)gk_pixels(&g) + 1);
	struct rig rig;

	rig_open(&rig, &g, value, cap, 1, GK_BATCH_MAX, (uint32_t)rig_random(rng));
	rig_random_coef(&rig, rng);
	for (uint32_t i = 0; i < n; i++) {
		struct gk_frame *frame = rig_frame(&rig, i);

		rig_random_frame(&rig, i, rig_below(rng, 2), rng);
		frame->frame = rig_random(rng);
		frame->out = rig_below(rng, 6) == 0 ? GK_NO_OUT : GK_BATCH_MAX - 1 - i;
		frame->flags = rig_below(rng, 8);
	}
	assert_int_equal(rig.ops->start(rig.gk), 0);
	/* the gang predicts the output of the second batch from the first one */
	for (uint32_t batch = 0; batch < 2; batch++) {
		random_params(&rig, batch, rng);
		memset(rig.config.outputs, RIG_GUARD, GK_BATCH_MAX * rig.config.layout.stride);
		run_batch(&rig, n, batch);
		for (uint32_t i = 0; i < n; i++)
			check_frame(&rig, i, &rig.config.channel->params[batch]);
	}
	for (uint32_t i = 0; i < GK_BATCH_MAX - n; i++) /* invalid slots */
		for (uint64_t k = 0; k < rig.config.layout.stride; k++)
			assert_int_equal(rig_output(&rig, i)[k], RIG_GUARD);
	assert_int_equal(rig.ops->stop(rig.gk), 0);
	rig_close(&rig);
}

static void
test_random_frames(void **state)
{
	uint64_t rng = rig_seed("random frames");

	for (int round = 0; round < 400; round++)
		random_round(&rng);
}

/* Explicit words and their meaning. */
static void
test_special_words(void **state)
{
	const float p[3] = {100.0f, 200.0f, 300.0f}, r[3] = {0.5f, -2.0f, -4.0f};
	const float masked_p[3] = {100.0f, 200.0f, NAN}, masked_r[3] = {NAN, NAN, NAN};
	const float no_g2[3] = {0.5f, -2.0f, NAN};

	assert_true(gk_photons(0x0000, p, r) == -50.0f);
	assert_true(gk_photons(0x3FFF, p, r) == (16383.0f - 100.0f) * 0.5f);
	assert_true(isnan(gk_photons(0x4000, p, r)));
	assert_true(gk_photons(0x4001, p, r) == 398.0f);
	assert_true(gk_photons(0x7FFF, p, r) == (16383.0f - 200.0f) * -2.0f);
	for (uint32_t word = 0x8000; word < 0xC000; word++)
		assert_true(isnan(gk_photons((uint16_t)word, p, r)));
	assert_true(gk_photons(0xC000, p, r) == INFINITY);
	assert_true(gk_photons(0xC001, p, r) == 1196.0f);
	assert_true(gk_photons(0xFFFE, p, r) == (16382.0f - 300.0f) * -4.0f);
	assert_true(isnan(gk_photons(0xFFFF, p, r)));
	/* a gain stage without a pedestal still saturates; a masked pixel never does */
	assert_true(gk_photons(0xC000, p, no_g2) == INFINITY);
	assert_true(isnan(gk_photons(0xC001, p, no_g2)));
	for (uint32_t word = 0; word < 0x10000; word++) {
		assert_true(isnan(gk_photons((uint16_t)word, masked_p, masked_r)));
		assert_true(isnan(ref_photons((uint16_t)word, masked_p, masked_r)));
	}
}

static void
test_rounding(void **state)
{
	static const float ties[] = {0.0f, -0.0f, 0.49999997f, 0.5f, 1.5f, 2.5f, 32766.498f,
		32766.5f, 32767.0f, 32768.0f, 4194304.0f, 4194303.75f, 8388609.0f, 1e20f, INFINITY};
	uint64_t rng = rig_seed("rounding");

	for (size_t i = 0; i < sizeof(ties) / sizeof(ties[0]); i++) {
		assert_int_equal(gk_value_i16(ties[i]), ref_i16(ties[i]));
		assert_int_equal(gk_value_i16(-ties[i]), ref_i16(-ties[i]));
		assert_int_equal(gk_sum_q8(ties[i]), ref_q8(ties[i]));
		assert_int_equal(gk_sum_q8(-ties[i]), ref_q8(-ties[i]));
	}
	assert_int_equal(gk_value_i16(2.5f), 3);
	assert_int_equal(gk_value_i16(-2.5f), -3);
	assert_int_equal(gk_value_i16(NAN), INT16_MIN);
	assert_int_equal(gk_value_i16(INFINITY), INT16_MAX);
	assert_int_equal(gk_sum_q8(NAN), 0);
	assert_int_equal(gk_sum_q8(1.5f / 256), 2);
	assert_int_equal(gk_sum_q8(2.5f / 256), 2);
	for (int i = 0; i < 1000000; i++) {
		const float f = rig_float_of((uint32_t)rig_random(&rng));
		const float v = gk_value_f32(f);
		uint32_t bits;

		assert_int_equal(gk_value_i16(f), ref_i16(f));
		assert_int_equal(gk_sum_q8(f), ref_q8(f));
		memcpy(&bits, &v, sizeof(bits));
		if (isnan(f))
			assert_int_equal(bits, GK_NAN_BITS);
		else
			assert_memory_equal(&v, &f, sizeof(f));
	}
}

/* Sums near the limits of 32 bits, of a strip or of a clamp: whole frames of one value. */
static void
test_large_sums(void **state)
{
	static const float values[] = {
		4095.9f, 4096.0f, 8191.99f, 1e5f, 4194303.75f, 4194304.0f, 1e7f, 1e30f, INFINITY};
	const struct gk_geometry g = {2, 2, 2080};
	struct gk_params *params;
	struct rig rig;

	rig_open(&rig, &g, GK_VALUE_F32, 0, 1, GK_BATCH_MAX, 0);
	params = &rig.config.channel->params[0];
	*params = (struct gk_params){.kind = GK_KIND_CSR, .csr_threshold = 1.0f};
	rig_frame(&rig, 0)->out = GK_NO_OUT;
	for (uint32_t t = 0; t < g.tiles; t++) {
		rig_frame(&rig, 0)->packet[t] = (uintptr_t)rig_tile(&rig, 0, t);
		for (uint32_t x = 0; x < g.tile_rows * g.cols; x++)
			rig_tile(&rig, 0, t)[x] = 1;
	}
	assert_int_equal(rig.ops->start(rig.gk), 0);
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		for (int sign = -1; sign <= 1; sign += 2) {
			for (uint64_t x = 0; x < gk_pixels(&g); x++) /* (1 - 0) x value */
				rig.r[0][x] = (float)sign * values[i];
			run_batch(&rig, 1, 0);
			check_frame(&rig, 0, params);
			rig.r[0][1500] = NAN;
			rig.r[0][3000] = INFINITY;
			rig.r[0][5000] = -1e6f;
			run_batch(&rig, 1, 0);
			check_frame(&rig, 0, params);
		}
	}
	rig_close(&rig);
}

/*
 * A CSR frame becomes a full image above nnz_max, but not at it; nnz_cap has exactly enough bytes.
 */
static void
test_dense_fallback(void **state)
{
	const struct gk_geometry g = {3, 2, 64};
	struct gk_params *params;
	struct rig rig;
	const uint32_t keep = 37;

	for (int value = GK_VALUE_F32; value <= GK_VALUE_I16; value++) {
		rig_open(&rig, &g, value, keep, 1, GK_BATCH_MAX, UINT32_MAX);
		params = &rig.config.channel->params[0];
		*params = (struct gk_params){.kind = GK_KIND_CSR,
			.csr_threshold = 2.0f,
			.strong_threshold = 2.0f,
			.strong_max = UINT32_MAX};
		for (uint64_t x = 0; x < gk_pixels(&g); x++) {
			for (int s = 0; s < 3; s++) {
				rig.p[s][x] = 0;
				rig.r[s][x] = 1;
			}
		}
		for (uint32_t i = 0; i < 3; i++) {
			rig_frame(&rig, i)->out = i;
			for (uint32_t t = 0; t < g.tiles; t++)
				rig_frame(&rig, i)->packet[t] = (uintptr_t)rig_tile(&rig, i, t);
			/* 36, 37 and 38 pixels; the last one is the frame's last pixel */
			for (uint32_t k = 0; k < keep - 2 + i; k++)
				rig_tile(&rig, i, k % 3)[k * 3] = (uint16_t)(2 + k);
			rig_tile(&rig, i, 2)[127] = 0xC000;
		}
		params->nnz_max = keep;
		assert_int_equal(rig.ops->start(rig.gk), 0);
		run_batch(&rig, 3, 0);
		for (uint32_t i = 0; i < 3; i++) {
			check_frame(&rig, i, params);
			assert_int_equal(rig.config.results[i].nnz, keep - 1 + i);
			assert_int_equal(
				rig.config.results[i].kind, i < 2 ? GK_KIND_CSR : GK_KIND_IMAGE);
		}
		rig_close(&rig);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_special_words),
		cmocka_unit_test(test_rounding),
		cmocka_unit_test(test_large_sums),
		cmocka_unit_test(test_dense_fallback),
		cmocka_unit_test(test_random_frames),
	};

	if (rig_lacks_isa())
		return 77;
	return cmocka_run_group_tests_name("gk_kernel", tests, NULL, NULL);
}
