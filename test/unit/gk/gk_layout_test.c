/* SPDX-License-Identifier: BSD-3-Clause */
/* Layouts in memory, and the reasons for refusing configurations and descriptors. */

#include "gk_rig.h"

static void
test_layout(void **state)
{
	uint64_t rng = rig_seed("layout");

	for (int i = 0; i < 20000; i++) {
		const struct gk_geometry g = {1 + rig_below(&rng, 5000), 1 + rig_below(&rng, 8),
			32 * (1 + rig_below(&rng, 64))};
		const enum gk_value value = rig_below(&rng, 2) ? GK_VALUE_F32 : GK_VALUE_I16;
		const uint64_t size = value == GK_VALUE_F32 ? 4 : 2;
		const uint32_t cap = (uint32_t)rig_random(&rng) >> rig_below(&rng, 32);
		const uint64_t rows = (uint64_t)g.tiles * g.tile_rows, pixels = rows * g.cols;
		struct gk_layout l;

		gk_layout_init(&l, &g, value, cap);
		assert_int_equal(gk_rows(&g), rows);
		assert_int_equal(gk_pixels(&g), pixels);
		assert_int_equal(l.nnz_cap, cap < pixels ? cap : pixels);
		assert_int_equal(l.value_size, size);
		assert_int_equal((l.row_ptr | l.col | l.value | l.raw) % 64, 0);
		assert_int_equal(l.stride % 4096, 0);
		assert_true(l.row_ptr + 4 * (rows + 1) <= l.col);
		assert_true(l.col + 2 * (uint64_t)l.nnz_cap <= l.value);
		assert_true(l.value + pixels * size <= l.stride);
		assert_true(l.raw + gk_bitshuffle_bound(pixels) <= l.stride);
		/* no more than the larger of both needs */
		assert_true(l.stride - (l.value + pixels * size) < 4096 ||
			l.stride - (l.raw + gk_bitshuffle_bound(pixels)) < 4096);
		gk_layout_add_peaks(&l, cap);
		assert_int_equal(l.peaks_cap, cap < GK_PEAKS_MAX ? cap : GK_PEAKS_MAX);
		assert_int_equal(l.peaks % 64, 0);
		assert_true(l.value + pixels * size <= l.peaks);
		assert_true(l.raw + gk_bitshuffle_bound(pixels) <= l.peaks);
		assert_int_equal(l.stride % 4096, 0);
		assert_true(l.peaks + l.peaks_cap * sizeof(struct gk_peak) <= l.stride);
		assert_true(gk_frame_stride(&g) >= sizeof(struct gk_frame) + 8 * g.tiles);
		assert_int_equal(gk_frame_stride(&g) % 64, 0);
	}
}

/* JUNGFRAU 4M, computed by hand. */
static void
test_layout_4m(void **state)
{
	const struct gk_geometry g = {1024, 4, 1024};
	struct gk_layout l;

	gk_layout_init(&l, &g, GK_VALUE_F32, 1000000);
	assert_int_equal(gk_frame_stride(&g), 64 + 8192 + 128);
	assert_int_equal(l.col, 16448); /* 4 x 4097 = 16388 */
	assert_int_equal(l.value, 2016448);
	assert_int_equal(l.stride, 18796544); /* 2016448 + 4 x 4194304 = 18793664 */
}

/* Offsets of fields: the CUDA side and readers of a dump depend on them. */
static void
test_offsets(void **state)
{
	assert_int_equal(offsetof(struct gk_frame, packet), 64);
	assert_int_equal(offsetof(struct gk_frame, missing), 16);
	assert_int_equal(offsetof(struct gk_result, verdict), 16);
	assert_int_equal(offsetof(struct gk_result, coef), 44);
	assert_int_equal(offsetof(struct gk_work, op), 12);
	assert_int_equal(offsetof(struct gk_work, coef_to), 20);
	assert_int_equal(offsetof(struct gk_work, slot), 64);
	assert_int_equal(offsetof(struct gk_params, dark_min), 28);
	assert_int_equal(offsetof(struct gk_params, dark_alpha), 32);
	assert_int_equal(offsetof(struct gk_update, updated), 16);
	assert_int_equal(offsetof(struct gk_doorbell, quit), 48);
	assert_int_equal(offsetof(struct gk_coef, version), 48);
	assert_int_equal(offsetof(struct gk_channel, done), 64);
	assert_int_equal(offsetof(struct gk_channel, params), 64 + 768);
	assert_int_equal(offsetof(struct gk_channel, coef), 64 + 768 + 1024);
	assert_int_equal(offsetof(struct gk_channel, dark), 64 + 768 + 1024 + 256);
	assert_int_equal(offsetof(struct gk_channel, update), 64 + 768 + 1024 + 256 + 128);
	assert_int_equal(offsetof(struct gk_channel, pixels), 64 + 768 + 1024 + 256 + 256);
	assert_int_equal(offsetof(struct gk_channel, radial), 64 + 768 + 1024 + 256 + 256 + 64);
	assert_int_equal(offsetof(struct gk_channel, peak), 64 + 768 + 1024 + 256 + 256 + 128);
	assert_int_equal(
		offsetof(struct gk_channel, work), 64 + 768 + 1024 + 256 + 256 + 128 + 1024);
	assert_int_equal(offsetof(struct gk_frame, profile), 20);
	assert_int_equal(gk_profile_count_at(9), 128);
	assert_int_equal(gk_profile_stride(9), 192);
	assert_int_equal(offsetof(struct gk_result, peaks), 56);
	assert_int_equal(offsetof(struct gk_params, search), 36);
	assert_int_equal(_Alignof(struct gk_channel), 64);
}

static void
refused(const struct gk_config *c, const char *wanted)
{
	char why[256] = "";
	struct gk *gk = NULL;

	assert_int_equal(gk_config_check(c, why, sizeof(why)), -EINVAL);
	assert_string_equal(why, wanted);
	assert_int_equal(gk_config_check(c, NULL, 0), -EINVAL);
	assert_int_equal(gk_host_ops.create(c, &gk), -EINVAL);
	assert_null(gk);
}

static void
test_config_reasons(void **state)
{
	const struct gk_geometry g = {4, 2, 64};
	struct gk_config c;
	struct rig rig;
	char why[256];

	rig_open(&rig, &g, GK_VALUE_F32, 100, 2, 8, 0);
#define REFUSED(change, text)      \
	do {                       \
		c = rig.config;    \
		change;            \
		refused(&c, text); \
	} while (0)
	REFUSED(c.geometry.tiles = 0, "geometry is 0 tiles of 2 rows, expected at least 1 of 1");
	REFUSED(c.geometry.cols = 48, "geometry.cols is 48, expected a multiple of 32 up to 65504");
	REFUSED(c.geometry.cols = 65536,
		"geometry.cols is 65536, expected a multiple of 32 up to 65504");
	REFUSED(c.geometry.tiles = 1u << 31,
		"geometry is 2147483648 tiles x 2 rows x 64 columns, expected fewer than 2^32 "
		"pixels");
	REFUSED(c.value = 5, "value is 5, expected 0 (f32) or 1 (i16)");
	REFUSED(c.value = GK_VALUE_I16,
		"layout.value_size is 4, expected 2: gk_layout_init() with "
		"this geometry and value type");
	REFUSED(c.layout.nnz_cap = 513,
		"layout.nnz_cap is 513, expected 512: gk_layout_init() with "
		"this geometry and value type");
	REFUSED(c.layout.stride = 64,
		"layout.stride is 64, expected 12288: gk_layout_init() with "
		"this geometry and value type");
	REFUSED(c.watchdog_ms = 99, "watchdog_ms is 99, expected at least 100, or 0 for none");
	REFUSED(c.gangs = 0, "gangs is 0, expected 1 to 12");
	REFUSED(c.gangs = 13, "gangs is 13, expected 1 to 12");
	REFUSED(c.nb_frames = 0, "nb_frames is 0, expected at least 1");
	REFUSED(c.channel = NULL, "channel is NULL");
	REFUSED(c.frames = NULL, "frames is NULL");
	REFUSED(c.results = NULL, "results is NULL");
	REFUSED(c.outputs = NULL, "outputs is NULL");
	REFUSED(c.frames = (uint8_t *)(uintptr_t)0x1020,
		"frames is at 0x1020, expected a multiple of 64");
	rig.config.channel->dark[1].cells += 8;
	c = rig.config;
	assert_int_equal(gk_config_check(&c, why, sizeof(why)), -EINVAL);
	assert_non_null(strstr(why, "dark[1].cells is at 0x"));
	rig.config.channel->dark[1].cells = 0; /* no accumulators */
	REFUSED(c.layout.peaks_cap = 200,
		"layout.stride is 12288, expected 16384: gk_layout_init() with "
		"this geometry and value type");
	REFUSED(c.details = NULL, "details is NULL, expected memory for the sizes of chunks");
	REFUSED(c.details = (struct gk_details *)(uintptr_t)0x1020,
		"details is at 0x1020, expected a multiple of 64");
	rig.config.channel->pixels = (struct gk_peak_pixels){.bin = 0x1000};
	REFUSED(, "pixels.panel is NULL");
	rig.config.channel->pixels = (struct gk_peak_pixels){.bin = 0x1000, .panel = 0x1000};
	REFUSED(, "pixels.nb_panels is 0, expected 1 to 512");
	rig.config.channel->pixels.nb_panels = 1;
	rig.config.channel->pixels.nb_bins = 16385;
	REFUSED(, "pixels.nb_bins is 16385, expected at most 16384");
	memset(&rig.config.channel->pixels, 0, sizeof(rig.config.channel->pixels));
	rig.config.channel->radial = (struct gk_radial_pixels){.bin = 0x1000};
	REFUSED(, "profiles is NULL");
	REFUSED(c.profiles = (uint8_t *)(uintptr_t)0x1000,
		"radial.nb_bins is 0, expected 1 to 4096");
	rig.config.channel->radial.nb_bins = 4097;
	REFUSED(c.profiles = (uint8_t *)(uintptr_t)0x1000,
		"radial.nb_bins is 4097, expected 1 to 4096");
	rig.config.channel->radial.nb_bins = 4096;
	REFUSED(c.profiles = (uint8_t *)(uintptr_t)0x1000, "nb_profiles is 0, expected at least 1");
	memset(&rig.config.channel->radial, 0, sizeof(rig.config.channel->radial));
#undef REFUSED
	c = rig.config;
	c.outputs = NULL;
	c.nb_outputs = 0; /* results without outputs */
	assert_int_equal(gk_config_check(&c, NULL, 0), 0);
	assert_null(gk_ops_find("abacus"));
	assert_ptr_equal(gk_ops_find("host"), &gk_host_ops);
	gk_host_ops.destroy(NULL);
	rig_close(&rig);
}

static void
test_work_reasons(void **state)
{
	const struct gk_geometry g = {4, 2, 64};
	struct gk_params *params;
	struct gk_work work;
	struct rig rig;
	char why[256];

	rig_open(&rig, &g, GK_VALUE_F32, 100, 2, 8, 0);
	params = &rig.config.channel->params[1];
#define REFUSED(change, text)                                                                   \
	do {                                                                                    \
		work = (struct gk_work){.nb_frames = 2, .params = 1, .slot = {6, 7}};           \
		*params = (struct gk_params){.kind = GK_KIND_CSR, .nnz_max = 100};              \
		rig_frame(&rig, 7)->out = 3;                                                    \
		rig_frame(&rig, 7)->frame = 1234;                                               \
		assert_int_equal(gk_work_check(&rig.config, &work, why, sizeof(why)), 0);       \
		change;                                                                         \
		assert_int_equal(gk_work_check(&rig.config, &work, why, sizeof(why)), -EINVAL); \
		assert_string_equal(why, text);                                                 \
	} while (0)
	REFUSED(work.nb_frames = 0, "work.nb_frames is 0, expected 1 to 16");
	REFUSED(work.nb_frames = 17, "work.nb_frames is 17, expected 1 to 16");
	REFUSED(work.params = 16, "work.params is 16, expected less than 16");
	REFUSED(work.coef = 4, "work.coef is 4, expected less than 4");
	REFUSED(work.coef = 3, "coef[3].p[0] is NULL");
	REFUSED(work.slot[1] = 8, "work.slot[1] is 8, expected less than nb_frames = 8");
	REFUSED(rig_frame(&rig, 7)->out = 8,
		"frame 1234 in slot 7 has output slot 8, expected less than nb_outputs = 8 or "
		"GK_NO_OUT");
	REFUSED(rig_frame(&rig, 7)->packet[2] = 0x1008,
		"frame 1234 in slot 7 has packet 2 at 0x1008, expected a multiple of 16");
	assert_int_equal(gk_descriptor_check(&rig.config, &work, why, sizeof(why)), 0);
	rig_frame(&rig, 7)->packet[2] = 0x1010;
	REFUSED(params->kind = GK_KIND_NONE,
		"params[1].kind is 255, expected 0 (CSR), 1 (image) or 2 (raw)");
	REFUSED(params->csr_threshold = NAN, "params[1].csr_threshold is NaN, expected photons");
	REFUSED(params->strong_threshold = NAN,
		"params[1].strong_threshold is NaN, expected photons");
	REFUSED(params->nnz_max = 101,
		"params[1].nnz_max is 101, expected at most layout.nnz_cap = 100");
	REFUSED(params->chunks = 2,
		"params[1].chunks is 0x2, expected 0 or bits of 0x4 (raw; images are f32)");
	rig.config.value = GK_VALUE_I16;
	REFUSED(params->chunks = 1,
		"params[1].chunks is 0x1, expected 0 or bits of 0x6 (raw, image)");
	rig.config.value = GK_VALUE_F32;
	rig.config.chunks = 0;
	REFUSED(params->chunks = 4, "params[1].chunks is 0x4, expected 0: gk_config.chunks is 0");
	REFUSED(params->search = 3,
		"params[1].search is 3, expected 0 (none), 1 (strong) or 2 (all)");
	REFUSED(params->search = GK_SEARCH_STRONG,
		"params[1].search is 1, expected 0: the channel has no map of pixels");
	rig.config.channel->pixels.bin = 0x1000; /* read by gangs only */
	REFUSED((params->search = GK_SEARCH_ALL, rig.config.channel->peak[1].bg_radius = 16),
		"peak[1]: bg_radius is 16, expected at most 15");
	rig.config.channel->peak[1].bg_radius = 3;
	REFUSED((params->search = GK_SEARCH_ALL, params->peaks_shells = 1),
		"params[1].peaks_shells is 0x1, expected bits of 0 shells");
	rig.config.channel->pixels.bin = 0;
#undef REFUSED
	rig.config.channel->coef[0].r[1] += 4;
	assert_int_equal(gk_work_check(&rig.config, &work, why, sizeof(why)), -EINVAL);
	params->nnz_max = 100;
	params->search = GK_SEARCH_NONE;
	assert_int_equal(gk_work_check(&rig.config, &work, why, sizeof(why)), -EINVAL);
	assert_non_null(strstr(why, "coef[0].r[1] is at 0x"));
	rig_close(&rig);
}

/* Descriptors of dark frames and of operations between pedestal intervals. */
static void
test_dark_reasons(void **state)
{
	const struct gk_geometry g = {4, 2, 64};
	struct gk_channel *channel;
	struct gk_work work;
	struct rig rig;
	char why[256];

	rig_open(&rig, &g, GK_VALUE_F32, 100, 2, 8, 0);
	channel = rig.config.channel;
#define REFUSED(change, text)                                                                   \
	do {                                                                                    \
		work = (struct gk_work){                                                        \
			.op = GK_OP_UPDATE, .params = 1, .dark = 1, .coef = 0, .coef_to = 1};   \
		channel->params[1].dark_min = 1;                                                \
		channel->params[1].dark_alpha = 1.0f;                                           \
		assert_int_equal(gk_work_check(&rig.config, &work, why, sizeof(why)), 0);       \
		change;                                                                         \
		assert_int_equal(gk_work_check(&rig.config, &work, why, sizeof(why)), -EINVAL); \
		assert_string_equal(why, text);                                                 \
	} while (0)
	REFUSED(work.op = 3, "work.op is 3, expected 0 (frames), 1 (update) or 2 (clear)");
	REFUSED(work.nb_frames = 1, "work.nb_frames is 1, expected 0 of work.op 1");
	REFUSED(work.params = 16, "work.params is 16, expected less than 16");
	REFUSED(work.dark = 2, "work.dark is 2, expected less than 2");
	REFUSED(work.coef = 4, "work.coef is 4, expected less than 4");
	REFUSED(work.coef_to = 4, "work.coef_to is 4, expected less than 4");
	REFUSED(work.coef_to = 2, "coef[2].p[0] is NULL");
	REFUSED(work.coef_to = 0,
		"coef[0].p[0] and coef[0].p[0] are the same plane, expected two: the old version "
		"is still in use");
	REFUSED(channel->params[1].dark_min = 0, "params[1].dark_min is 0, expected at least 1");
	REFUSED(channel->params[1].dark_alpha = 0,
		"params[1].dark_alpha is 0, expected more than 0, at most 1");
	REFUSED(channel->params[1].dark_alpha = 1.5f,
		"params[1].dark_alpha is 1.5, expected more than 0, at most 1");
	REFUSED(channel->params[1].dark_alpha = NAN,
		"params[1].dark_alpha is nan, expected more than 0, at most 1");
	channel->dark[1].cells = 0;
	work = (struct gk_work){.op = GK_OP_CLEAR, .dark = 1, .coef = 99, .params = 99};
	assert_int_equal(gk_work_check(&rig.config, &work, why, sizeof(why)), -EINVAL);
	assert_string_equal(why, "dark[1].cells is NULL");
	/* batches without dark frames ignore this field; batches with dark frames check it */
	work = (struct gk_work){.nb_frames = 1, .dark = 1};
	assert_int_equal(gk_work_check(&rig.config, &work, why, sizeof(why)), 0);
	work.dark = 2;
	assert_int_equal(gk_work_check(&rig.config, &work, why, sizeof(why)), 0);
	rig_frame(&rig, 0)->flags = GK_FRAME_DARK;
	assert_int_equal(gk_work_check(&rig.config, &work, why, sizeof(why)), -EINVAL);
	assert_string_equal(why, "work.dark is 2, expected less than 2");
	work.dark = 1;
	assert_int_equal(gk_work_check(&rig.config, &work, why, sizeof(why)), -EINVAL);
	assert_string_equal(why, "dark[1].cells is NULL");
	work.dark = 0;
	assert_int_equal(gk_work_check(&rig.config, &work, why, sizeof(why)), 0);
#undef REFUSED
	rig_close(&rig);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_layout_4m),
		cmocka_unit_test(test_offsets),
		cmocka_unit_test(test_config_reasons),
		cmocka_unit_test(test_work_reasons),
		cmocka_unit_test(test_dark_reasons),
	};

	return cmocka_run_group_tests_name("gk_layout", tests, NULL, NULL);
}
