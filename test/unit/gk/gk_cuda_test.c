/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CUDA gangs compared with host gangs, byte for byte: random frames, every option, dark frames over
 * pedestal intervals, 1 to 8 gangs, packets in host and in GPU memory, stops and starts; refused
 * descriptors; real frames if BRAGGLINE_DATA has them. GK_ROUNDS sets the number of random rounds;
 * GK_ONCE=1 runs kernels that end by themselves, for sanitizers.
 *
 * Skipped without a GPU.
 */

#include <sys/stat.h>

#include "gk_cuda_rig.h"
#include "gk_race.h"

#define SLOTS 24

static int once;

static void
tune(struct gk_config *c)
{
	c->once = (uint32_t)once;
	c->watchdog_ms = once ? 0 : 60000;
}

static float
some_threshold(uint64_t *rng)
{
	static const float odd[] = {0.0f, -0.0f, -3.5f, 1e30f, -INFINITY, INFINITY};

	if (rig_below(rng, 6) == 0)
		return odd[rig_below(rng, 6)];
	return ldexpf((float)(1 + rig_below(rng, 4000)), -(int)rig_below(rng, 9));
}

static void
random_params(struct gk_params *p, const struct gk_config *c, uint64_t *rng)
{
	const uint32_t pixels = (uint32_t)gk_pixels(&c->geometry);

	memset(p, 0, sizeof(*p));
	p->version = (uint32_t)rig_random(rng);
	p->kind = rig_below(rng, 4) ? GK_KIND_CSR : rig_below(rng, 3);
	p->strong_threshold = some_threshold(rng);
	p->csr_threshold = rig_below(rng, 3) ? some_threshold(rng) : p->strong_threshold;
	p->strong_min = rig_below(rng, 3) ? rig_below(rng, pixels / 4 + 1) : 0;
	p->strong_max = rig_below(rng, 3) ? UINT32_MAX : p->strong_min + rig_below(rng, pixels);
	p->nnz_max = rig_below(rng, c->layout.nnz_cap + 1);
	p->chunks = c->chunks ? rig_below(rng, 2) << GK_KIND_RAW : 0;
	if (c->chunks && c->value == GK_VALUE_I16)
		p->chunks |= rig_below(rng, 2) << GK_KIND_IMAGE;
	p->dark_min = 1 + rig_below(rng, 10);
	p->dark_alpha = (float)(1 + rig_below(rng, 100)) / 100.0f;
}

/* New frames in all slots: other words at the same addresses. */
static void
random_slots(struct pair *p, uint64_t *rng)
{
	uint64_t lost[8] = {0}; /* not used: both have the same trailers */

	for (uint32_t i = 0; i < SLOTS; i++) {
		struct gk_frame *frame = rig_frame(&p->host, i);

		rig_random_frame(&p->host, i, rig_below(rng, 2), rng);
		if (rig_below(rng, 3) == 0) /* without exceptions, for the fast path */
			for (uint32_t t = 0; t < p->host.config.geometry.tiles; t++)
				for (uint32_t x = 0; x < p->host.tile_stride / 2; x++)
					rig_tile(&p->host, i, t)[x] &= 0x0FFF;
		frame->frame = rig_random(rng);
		frame->out = rig_below(rng, 6) == 0 ? GK_NO_OUT : SLOTS - 1 - i;
		frame->flags = rig_below(rng, 8);
		if (p->host.config.trailers && rig_below(rng, 3) > 0)
			rig_random_trailers(&p->host, i, lost, rng);
		pair_frame(p, i);
	}
}

/* Submit all slots, in batches of random size, to random gangs. */
static void
random_batches(struct pair *p, uint32_t coef, uint32_t dark, uint64_t *rng)
{
	for (uint32_t slot = 0; slot < SLOTS;) {
		struct gk_work work = {.params = rig_below(rng, GK_PARAMS_MAX),
			.coef = coef,
			.dark = dark,
			.nb_frames = 1 + rig_below(rng, GK_BATCH_MAX)};

		if (work.nb_frames > SLOTS - slot)
			work.nb_frames = SLOTS - slot;
		for (uint32_t i = 0; i < work.nb_frames; i++)
			work.slot[i] = slot++;
		pair_submit(p, rig_below(rng, p->host.config.gangs), &work);
	}
}

static void
set_version(struct pair *p, uint32_t coef, uint32_t version)
{
	p->host.config.channel->coef[coef].version = version;
	p->cuda.config.channel->coef[coef].version = version;
}

/* One pedestal interval: frames, then possibly an update or a clear. */
static void
random_interval(struct pair *p, uint32_t interval, uint32_t *now, uint64_t *rng)
{
	const uint32_t gangs = p->host.config.gangs;
	struct gk_work work;

	for (uint32_t i = 0; i < GK_PARAMS_MAX; i++) {
		random_params(&p->host.config.channel->params[i], &p->host.config, rng);
		p->cuda.config.channel->params[i] = p->host.config.channel->params[i];
	}
	if (rig_below(rng, 4) == 0) { /* another calibration at the same address */
		rig_random_coef(&p->host, rng);
		memcpy(p->host.p_next, p->host.p[0],
			gk_pixels(&p->host.config.geometry) * sizeof(float));
		pair_coef(p);
		set_version(p, 0, 1000 + 10 * interval);
		set_version(p, 1, 1005 + 10 * interval);
	}
	random_slots(p, rng);
	random_batches(p, *now, interval % GK_DARK_MAX, rng);
	if (once)
		pair_start(p);
	pair_drain(p);
	if (once)
		pair_stop(p);
	pair_compare(p);
	if (rig_below(rng, 3) == 0)
		return;
	work = (struct gk_work){.op = rig_below(rng, 5) ? GK_OP_UPDATE : GK_OP_CLEAR,
		.params = rig_below(rng, GK_PARAMS_MAX),
		.coef = *now,
		.coef_to = 1 - *now,
		.dark = rig_below(rng, GK_DARK_MAX)};
	if (work.op == GK_OP_UPDATE) {
		set_version(p, 1 - *now, 100 + interval);
		*now = 1 - *now;
	}
	pair_submit(p, rig_below(rng, gangs), &work);
	if (once)
		pair_start(p);
	pair_drain(p);
	if (once)
		pair_stop(p);
	pair_compare(p);
}

static void
random_round(uint32_t gangs, uint32_t intervals, int in_device, uint64_t *rng)
{
	static const uint32_t cols[] = {32, 64, 96, 256, 1024, 1056, 2080};
	const struct gk_geometry g = {
		1 + rig_below(rng, 12), 1 + rig_below(rng, 5), cols[rig_below(rng, 7)]};
	const uint32_t cap = rig_below(rng, (uint32_t)gk_pixels(&g) + 1);
	uint32_t now = 0;
	struct pair p;

	rig_chunks = (int)rig_below(rng, 2); /* two images of the kernel */
	pair_open_trailers(&p, &g, rig_below(rng, 2) ? GK_VALUE_F32 : GK_VALUE_I16, cap, gangs,
		SLOTS, UINT32_MAX - rig_below(rng, 40), in_device, tune, (int)rig_below(rng, 2));
	rig_random_coef(&p.host, rng);
	for (uint64_t x = 0; x < gk_pixels(&g); x += 7) /* NaN pedestals also keep their bits */
		p.host.p[0][x] = rig_below(rng, 3) ? p.host.p[0][x] : rig_some_nan(rng);
	for (uint64_t x = 0; x < gk_pixels(&g); x += 31) { /* values for NaN in the kernel */
		p.host.p[0][x] = rig_below(rng, 2) ? 3.402823466e38f : -3.402823466e38f;
		p.host.r[0][x] = rig_below(rng, 2) ? 0.0f : -0.0f;
	}
	memcpy(p.host.p_next, p.host.p[0], gk_pixels(&g) * sizeof(float));
	pair_coef(&p);
	if (!once)
		pair_start(&p);
	for (uint32_t e = 0; e < intervals; e++) {
		random_interval(&p, e, &now, rng);
		if (once || rig_below(rng, 4) != 0)
			continue;
		assert_int_equal(p.cuda.ops->start(p.cuda.gk), -EBUSY);
		pair_stop(&p);
		assert_int_equal(p.cuda.ops->stop(p.cuda.gk), 0);
		pair_start(&p);
	}
	if (!once)
		pair_stop(&p);
	pair_close(&p);
}

static void
test_random(void **state)
{
	const char *env = getenv("GK_ROUNDS");
	const uint32_t rounds = env != NULL ? (uint32_t)strtoul(env, NULL, 0) : 32;
	uint64_t rng = rig_seed("random");

	for (uint32_t i = 0; i < rounds; i++)
		random_round(1 + i % PAIR_GANGS_MAX, once ? 2 : 8, (int)(i / 8 % 2), &rng);
	if (!once && !GK_EMULATED) /* the ring wraps */
		random_round(1, 60, 0, &rng);
}

/* Frames that are all kept as CSR, with varying thresholds: from almost no pixels to all pixels. */
static void
test_lists(void **state)
{
	static const float thresholds[] = {100.0f, 3.0f, 0.3f, 0.12f, -1.0f};
	uint64_t rng = rig_seed("lists");

	for (uint32_t round = 0; round < 4; round++) {
		const struct gk_geometry g = {5, 3, round % 2 ? 1056 : 512};
		struct pair p;

		pair_open(&p, &g, round / 2 ? GK_VALUE_I16 : GK_VALUE_F32, (uint32_t)gk_pixels(&g),
			1 + round % 2, SLOTS, 0, (int)round / 2, tune);
		rig_random_coef(&p.host, &rng);
		memcpy(p.host.p_next, p.host.p[0], gk_pixels(&g) * sizeof(float));
		pair_coef(&p);
		for (uint32_t i = 0; i < sizeof(thresholds) / sizeof(thresholds[0]); i++) {
			struct gk_params *params = &p.host.config.channel->params[0];

			*params = (struct gk_params){.kind = GK_KIND_CSR,
				.strong_threshold = thresholds[i],
				.csr_threshold = thresholds[i],
				.strong_max = UINT32_MAX,
				.nnz_max = p.host.config.layout.nnz_cap};
			p.cuda.config.channel->params[0] = *params;
			random_slots(&p, &rng);
			for (uint32_t slot = 0; slot < SLOTS; slot += 4) {
				struct gk_work work = {.nb_frames = 4,
					.slot = {slot, slot + 1, slot + 2, slot + 3}};

				for (uint32_t k = slot; k < slot + 4; k++) {
					rig_frame(&p.host, k)->flags = 0;
					rig_frame(&p.host, k)->out = k;
					pair_frame(&p, k);
				}
				pair_submit(&p, slot / 4 % (1 + round % 2), &work);
			}
			pair_start(&p);
			pair_drain(&p);
			pair_stop(&p);
			pair_compare(&p);
			for (uint32_t k = 0; k < SLOTS; k++)
				assert_int_equal(p.cuda.config.results[k].kind, GK_KIND_CSR);
		}
		pair_close(&p);
	}
}

/* All slots in batches of `most` frames, to random gangs, with these parameters. */
static void
submit_all(struct pair *p, uint32_t params, uint32_t most, uint64_t *rng)
{
	for (uint32_t slot = 0; slot < SLOTS;) {
		struct gk_work work = {.params = params};

		for (; work.nb_frames < most && slot < SLOTS; slot++)
			work.slot[work.nb_frames++] = slot;
		pair_submit(p, rig_below(rng, p->host.config.gangs), &work);
	}
}

/*
 * Raw chunks that are written while frames are counted: packets of whole blocks, with missing ones,
 * every frame kept because all are hits, or by its flag. Then also batches with other frames, which
 * are counted first: not kept, dark or without an output.
 */
static void
test_one_pass(void **state)
{
	static const struct gk_geometry shapes[] = {{3, 4, 1024}, {2, 16, 512}, {5, 2, 2048}};
	uint64_t rng = rig_seed("one pass");

	for (uint32_t round = 0; round < (GK_EMULATED ? 4 : 24); round++) {
		const struct gk_geometry *g = &shapes[round % 3];
		struct gk_params hits = {.kind = GK_KIND_RAW,
			.chunks = 1u << GK_KIND_RAW,
			.strong_threshold = some_threshold(&rng),
			.csr_threshold = some_threshold(&rng),
			.strong_max = UINT32_MAX};
		struct gk_params none = hits;
		struct pair p;

		none.strong_min = UINT32_MAX;
		rig_chunks = 1;
		pair_open(&p, g, round % 2 ? GK_VALUE_I16 : GK_VALUE_F32, 10, 1 + round % 3, SLOTS,
			0, 0, tune);
		rig_random_coef(&p.host, &rng);
		memcpy(p.host.p_next, p.host.p[0], gk_pixels(g) * sizeof(float));
		pair_coef(&p);
		p.host.config.channel->params[0] = p.cuda.config.channel->params[0] = hits;
		p.host.config.channel->params[1] = p.cuda.config.channel->params[1] = none;
		if (!once)
			pair_start(&p);
		for (uint32_t step = 0; step < 6; step++) {
			const uint32_t params = step % 3 == 0 ? 0 : 1;

			random_slots(&p, &rng);
			for (uint32_t i = 0; i < SLOTS; i++) {
				struct gk_frame *frame = rig_frame(&p.host, i);

				if (step % 3 == 2) /* mixed */
					continue;
				frame->out = i;
				frame->flags &= GK_FRAME_KIND_RAW;
				frame->flags |= step % 3 == 1 ? GK_FRAME_KEEP : 0;
				pair_frame(&p, i);
			}
			submit_all(&p, params, 1 + rig_below(&rng, 5), &rng);
			if (once)
				pair_start(&p);
			pair_drain(&p);
			if (once)
				pair_stop(&p);
			pair_compare(&p);
			for (uint32_t i = 0; i < SLOTS && step % 3 < 2; i++) {
				assert_int_equal(p.cuda.config.results[i].kind, GK_KIND_RAW);
				assert_int_not_equal(p.cuda.config.details[i].chunk_bytes, 0);
			}
		}
		if (!once)
			pair_stop(&p);
		pair_close(&p);
	}
}

/*
 * A detector of one module, in every gang layout that has room, with packets of 4 and of 2 rows.
 */
static void
module_of(const struct gk_geometry *geometry)
{
	const struct gk_geometry g = *geometry;
	uint64_t rng = rig_seed("module");
	struct pair p;

	for (uint32_t gangs = 1; gangs <= 8; gangs *= 2) {
		uint32_t now = 0;

		pair_open_trailers(&p, &g, gangs % 3 ? GK_VALUE_F32 : GK_VALUE_I16, 60000, gangs,
			SLOTS, 0, gangs > 2, tune, 1);
		rig_random_coef(&p.host, &rng);
		memcpy(p.host.p_next, p.host.p[0], gk_pixels(&g) * sizeof(float));
		pair_coef(&p);
		if (!once)
			pair_start(&p);
		for (uint32_t e = 0; e < 3; e++)
			random_interval(&p, e, &now, &rng);
		if (!once)
			pair_stop(&p);
		pair_close(&p);
	}
}

static void
test_module(void **state)
{
	pair_skip_emulated();
	module_of(&(struct gk_geometry){128, 4, 1024});
	module_of(&(struct gk_geometry){256, 2, 1024});
}

/* A thread of the host overwrites packets while the GPU copies them. */
static void
race(int wire)
{
	struct pair p;

	pair_skip_emulated();
	if (once)
		skip();
	pair_open_trailers(&p, &race_geometry, GK_VALUE_F32, RACE_PIXELS, 1, PLACES, 0, 0, tune, 1);
	run_race(&p.cuda, wire);
	pair_close(&p);
}

static void
test_race_seqlock(void **state)
{
	race(0);
}

static void
test_race_wire(void **state)
{
	race(1);
}

/* The GPU's checks compared with gk_work_check(): one field of a valid descriptor is random. */
static void
test_refused(void **state)
{
	const struct gk_geometry g = {2, 2, 64};
	const int rounds = GK_EMULATED ? 40 : 120;
	uint64_t rng = rig_seed("refused");
	uint32_t refused = 0;
	struct pair p;

	if (once) {
		print_message("skipped: kernels that stay, GK_ONCE is set\n");
		skip();
	}
	for (int round = 0; round < rounds; round++) {
		struct gk_work work = {.nb_frames = 2, .slot = {0, 1}, .coef_to = 1};
		struct gk_channel *channel;
		struct gk_params *params;
		uint32_t value;
		int wanted;

		pair_open(&p, &g, GK_VALUE_F32, 10, 2, 4, 0, 0, tune);
		channel = p.cuda.config.channel;
		params = &channel->params[0];
		*params = (struct gk_params){.strong_max = UINT32_MAX,
			.csr_threshold = 1e30f,
			.dark_min = 1,
			.dark_alpha = 0.5f};
		value = (uint32_t[]){1, 2, 3, 4, 16, 17, UINT32_MAX}[rig_below(&rng, 7)];
		for (uint32_t i = 0; i < 2; i++)
			rig_frame(&p.cuda, i)->out = GK_NO_OUT;
		if (rig_below(&rng, 2)) {
			work.op = GK_OP_UPDATE;
			work.nb_frames = 0;
		}
		switch (rig_below(&rng, 16)) {
		case 0:
			work.nb_frames = value;
			break;
		case 1:
			work.params = value;
			break;
		case 2:
			work.coef = value;
			break;
		case 3:
			work.op = value;
			break;
		case 4:
			work.dark = value;
			break;
		case 5:
			work.coef_to = value;
			break;
		case 6:
			work.slot[1] = value;
			break;
		case 7:
			rig_frame(&p.cuda, 1)->out = value;
			break;
		case 8:
			rig_frame(&p.cuda, 1)->flags = GK_FRAME_DARK;
			work.dark = value;
			break;
		case 9:
			*(rig_below(&rng, 2) ? &params->kind : &params->chunks) = value;
			break;
		case 10:
			params->csr_threshold = rig_some_nan(&rng);
			break;
		case 11:
			params->nnz_max = value;
			break;
		case 12: /* one of four is a multiple of 16 */
			rig_frame(&p.cuda, 1)->packet[rig_below(&rng, 2)] =
				(uintptr_t)p.raw + 4 * rig_below(&rng, 16);
			break;
		case 14: /* also trailers, which the configuration lacks */
			rig_frame(&p.cuda, 1)->flags = rig_below(&rng, 2) ? 8 : value;
			break;
		case 13:
			params->dark_alpha = rig_below(&rng, 2) ? 0.0f : 1.5f;
			break;
		default:
			channel->coef[0].r[rig_below(&rng, 3)] = rig_below(&rng, 2) ? 0 : 4100;
		}
		wanted = gk_work_check(&p.cuda.config, &work, NULL, 0);
		*gk_ring_next(&p.cuda.ring[1]) = work;
		gk_ring_submit(&p.cuda.ring[1]);
		/* the other gang continues */
		*gk_ring_next(&p.cuda.ring[0]) = (struct gk_work){.op = GK_OP_CLEAR};
		gk_ring_submit(&p.cuda.ring[0]);
		assert_int_equal(p.cuda.ops->start(p.cuda.gk), 0);
		assert_int_equal(pair_stop_rig(&p.cuda), wanted);
		assert_int_equal(gk_ring_error(&p.cuda.ring[1]), wanted);
		assert_int_equal(gk_ring_is_done(&p.cuda.ring[1], 0), wanted == 0);
		assert_int_equal(gk_ring_error(&p.cuda.ring[0]), 0);
		assert_int_equal(gk_ring_is_done(&p.cuda.ring[0], 0), 1);
		refused += wanted != 0;
		pair_close(&p);
	}
	assert_in_range(refused, rounds / 4, rounds - rounds / 12);
}

/* Configurations that create() refuses, and their messages. */
static void
test_create(void **state)
{
	const struct gk_geometry g = {2, 2, 64};
	struct gk_config config;
	struct pair p;
	struct gk *gk;
	void *memory = rig_alloc(4096);

	pair_open(&p, &g, GK_VALUE_F32, 10, 1, 4, 0, 0, tune);
	config = p.cuda.config;
	config.results = memory;
	assert_int_equal(p.cuda.ops->create(&config, &gk), -EINVAL);
	assert_non_null(strstr(p.cuda.ops->why(), "results at "));
	config = p.cuda.config;
	config.workers = 100000;
	assert_int_equal(p.cuda.ops->create(&config, &gk), -EINVAL);
	assert_non_null(strstr(p.cuda.ops->why(), "expected at most"));
	p.cuda.config.channel->bell.head[0] += GK_RING_SIZE + 1;
	assert_int_equal(p.cuda.ops->start(p.cuda.gk), -EINVAL);
	p.cuda.config.channel->bell.head[0] -= GK_RING_SIZE + 1;
	pair_close(&p);
	free(memory);
}

#define MODULE_PIXELS (512 * 1024)
#define REAL_FRAMES   6

static void *
load(const char *folder, const char *name, uint64_t size)
{
	void *data = rig_alloc(size);
	char path[700];
	FILE *f;

	snprintf(path, sizeof(path), "%s/jungfrau/%s", folder, name);
	f = fopen(path, "rb");
	if (f == NULL || fread(data, 1, size, f) != size)
		fail_msg("%s: cannot be read", path);
	fclose(f);
	return data;
}

/* PSI's frames with PSI's pedestals and gains: every gain stage, saturation, masks. */
static void
test_real(void **state)
{
	const struct gk_geometry g = {128, 4, 1024};
	const char *folder = getenv("BRAGGLINE_DATA");
	uint32_t kinds[4] = {0};
	double *gain;
	struct pair p;
	struct stat st;
	char name[600];

	pair_skip_emulated();
	snprintf(name, sizeof(name), "%s/jungfrau", folder != NULL ? folder : "");
	if (folder == NULL || stat(name, &st) != 0) {
		print_message("real frames are missing: set BRAGGLINE_DATA\n");
		skip();
	}
	rig_chunks = 1;
	for (int mode = 0; mode < 4; mode++) {
		pair_open(&p, &g, mode & 1 ? GK_VALUE_I16 : GK_VALUE_F32, 100000, 2, REAL_FRAMES, 0,
			mode / 2, tune);
		gain = load(folder, "mod5_gain_adu_per_photon.bin", 24ull * MODULE_PIXELS);
		for (int s = 0; s < 3; s++) {
			float *pedestal;

			snprintf(name, sizeof(name), "mod5_pedeG%d.bin", s);
			pedestal = load(folder, name, 4ull * MODULE_PIXELS);
			for (uint32_t x = 0; x < MODULE_PIXELS; x++) {
				const double adu = gain[s * MODULE_PIXELS + x];
				const float ped = pedestal[x];

				p.host.p[s][x] = ped;
				p.host.r[s][x] = adu == 0 || ped == 0 || ped >= 16383
					? NAN
					: (float)(1.0 / adu);
			}
			free(pedestal);
		}
		free(gain);
		memcpy(p.host.p_next, p.host.p[0], 4ull * MODULE_PIXELS);
		pair_coef(&p);
		for (uint32_t f = 0; f < REAL_FRAMES; f++) {
			uint16_t *raw;

			snprintf(name, sizeof(name), "mod5_raw%u.bin", f);
			raw = load(folder, name, 2ull * MODULE_PIXELS);
			memcpy(rig_tile(&p.host, f, 0), raw, 2ull * MODULE_PIXELS);
			free(raw);
			rig_frame(&p.host, f)->frame = f;
			rig_frame(&p.host, f)->out = f;
			rig_frame(&p.host, f)->flags = f % 2 ? GK_FRAME_DARK : 0;
			for (uint32_t t = 0; t < g.tiles; t++)
				rig_frame(&p.host, f)->packet[t] =
					(uintptr_t)rig_tile(&p.host, f, t);
			pair_frame(&p, f);
		}
		/* the last one: chunks */
		for (uint32_t i = GK_KIND_CSR; i <= GK_KIND_RAW + 1; i++) {
			const uint32_t kind = i <= GK_KIND_RAW ? i : GK_KIND_RAW;
			struct gk_params params = {.version = i,
				.kind = kind,
				.chunks = i > GK_KIND_RAW ? 1u << GK_KIND_RAW : 0,
				.strong_threshold = 5,
				.csr_threshold = 5,
				.strong_max = UINT32_MAX,
				.nnz_max = 100000,
				.dark_min = 1,
				.dark_alpha = 0.25f};

			p.host.config.channel->params[i] = params;
			p.cuda.config.channel->params[i] = params;
		}
		for (uint32_t i = GK_KIND_CSR; i <= GK_KIND_RAW + 1; i++) {
			const struct gk_work a = {
				.nb_frames = 4, .slot = {0, 1, 2, 3}, .params = i};
			const struct gk_work b = {.nb_frames = 2, .slot = {4, 5}, .params = i};

			pair_submit(&p, 0, &a);
			pair_submit(&p, 1, &b);
			pair_start(&p);
			pair_drain(&p);
			pair_stop(&p);
			pair_compare(&p);
			for (uint32_t f = 0; f < REAL_FRAMES; f++)
				kinds[p.cuda.config.results[f].kind]++;
		}
		pair_submit(&p, 1, &(struct gk_work){.op = GK_OP_UPDATE, .coef = 0, .coef_to = 1});
		pair_start(&p);
		pair_drain(&p);
		pair_stop(&p);
		pair_compare(&p);
		pair_close(&p);
	}
	print_message("real frames: %u csr, %u images, %u raw\n", kinds[0], kinds[1], kinds[2]);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_create),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_one_pass),
		cmocka_unit_test(test_module),
		cmocka_unit_test(test_race_seqlock),
		cmocka_unit_test(test_race_wire),
		cmocka_unit_test(test_real),
		cmocka_unit_test(test_refused),
	};

	if (pair_driver() == NULL)
		return 77;
	once = getenv("GK_ONCE") != NULL;
	return cmocka_run_group_tests_name("gk_cuda", tests, NULL, NULL);
}
