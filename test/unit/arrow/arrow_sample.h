/* SPDX-License-Identifier: BSD-3-Clause */
/* Random frame records with outputs of all formats, for the tests of the code that stores them. */
#ifndef ARROW_SAMPLE_H
#define ARROW_SAMPLE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arrow/batch.h"

#define SAMPLE_PANELS	     3
#define SAMPLE_PROFILES	     2
#define SAMPLE_BINS_MAX	     64
#define SAMPLE_PROFILE_BYTES (SAMPLE_BINS_MAX * 12)

struct sample {
	uint64_t seed;
	struct gk_geometry geometry;
	struct gk_layout layout;
	enum gk_value value;
	uint32_t modules;
	uint8_t *outputs; /* memory of one output slot */
	struct gk_peak_panel panel[SAMPLE_PANELS];
	bool chunks;   /* full images, of int16, are chunks */
	uint32_t bins; /* of radial profiles; 0: none */
	_Alignas(8) uint8_t profiles[SAMPLE_PROFILES * SAMPLE_PROFILE_BYTES];
	struct frame_record record;
};

static inline uint32_t
sample_random(struct sample *s)
{
	s->seed = s->seed * 6364136223846793005ull + 1442695040888963407ull;
	return s->seed >> 33;
}

static inline void
sample_init(struct sample *s, uint64_t seed, enum gk_value value, uint32_t modules)
{
	memset(s, 0, sizeof(*s));
	s->seed = seed;
	s->value = value;
	s->modules = modules;
	/* 13 packets a module: neither packet bits nor pixels fill whole bytes and blocks */
	s->geometry = (struct gk_geometry){.tiles = 13 * modules, .tile_rows = 4, .cols = 96};
	gk_layout_init(&s->layout, &s->geometry, value, 700);
	s->outputs = aligned_alloc(4096, s->layout.stride);
	memset(s->outputs, 0, s->layout.stride);
}

/* As sample_init(), with peaks; of some frames more than fit into their lists. */
static inline void
sample_init_peaks(struct sample *s, uint64_t seed, enum gk_value value, uint32_t modules)
{
	sample_init(s, seed, value, modules);
	gk_layout_add_peaks(&s->layout, 40);
	free(s->outputs);
	s->outputs = aligned_alloc(4096, s->layout.stride);
	memset(s->outputs, 0, s->layout.stride);
	for (uint32_t i = 0; i < SAMPLE_PANELS; i++)
		s->panel[i] = (struct gk_peak_panel){32 * i, 4 * i, 32, 8, INFINITY};
}

static inline void
sample_free(struct sample *s)
{
	free(s->outputs);
}

static inline void
sample_value(struct sample *s, uint64_t i)
{
	const uint32_t n = sample_random(s);
	float f = (float)(int32_t)(n - (1u << 30)) / 4096.0f;

	if (s->value == GK_VALUE_I16) {
		((int16_t *)(s->outputs + s->layout.value))[i] = n;
		return;
	}
	if (n % 17 == 0)
		f = n % 2 ? INFINITY : NAN;
	((float *)(s->outputs + s->layout.value))[i] = f;
}

static inline void
sample_csr(struct sample *s)
{
	uint32_t *row_ptr = (uint32_t *)(s->outputs + s->layout.row_ptr);
	uint16_t *col = (uint16_t *)(s->outputs + s->layout.col);
	uint32_t row, n = 0, c;

	for (row = 0; row < gk_rows(&s->geometry); row++) {
		row_ptr[row] = n;
		for (c = sample_random(s) % 32; c < s->geometry.cols;
			c += 1 + sample_random(s) % 64) {
			if (n == s->layout.nnz_cap)
				break;
			col[n] = c;
			sample_value(s, n++);
		}
	}
	row_ptr[row] = n;
	s->record.nnz = n;
}

static inline void
sample_peaks(struct sample *s)
{
	struct gk_peak *peak = (struct gk_peak *)(s->outputs + s->layout.peaks);
	struct frame_record *r = &s->record;
	const uint32_t n = sample_random(s) % 60;

	r->peaks = sample_random(s) % 4 == 0 ? FRAME_NO_SEARCH : n;
	r->shells = sample_random(s) % 3;
	for (uint32_t i = 0; i < r->shells; i++)
		r->shell_peaks[i] = sample_random(s) % 20;
	for (uint32_t i = 0; i < s->layout.peaks_cap; i++)
		peak[i] = (struct gk_peak){(float)sample_random(s) / 65536.0f,
			(float)sample_random(s) / 65536.0f, (float)sample_random(s),
			(float)sample_random(s), (float)sample_random(s), sample_random(s),
			sample_random(s) % SAMPLE_PANELS, sample_random(s)};
}

/* One frame in four has no profile. Sums may be negative. */
static inline void
sample_profile(struct sample *s)
{
	const uint32_t n = sample_random(s) % (SAMPLE_PROFILES * 4);
	int64_t *sum;
	uint32_t *count;

	s->record.profile = n % 4 == 0 ? FRAME_NO_PROFILE : n / 4;
	sum = (int64_t *)(s->profiles + n / 4 * gk_profile_stride(s->bins));
	count = (uint32_t *)((uint8_t *)sum + gk_profile_count_at(s->bins));
	for (uint32_t i = 0; i < s->bins; i++) {
		sum[i] = (int64_t)sample_random(s) * 1000 - (INT64_C(1) << 40);
		count[i] = sample_random(s);
	}
}

/* Make the next frame, with a number higher by `step`; `kept` of 8 frames have an image. */
static inline void
sample_next(struct sample *s, uint64_t step, uint32_t kept)
{
	struct frame_record *r = &s->record;
	const uint64_t frame = r->frame + step;
	uint64_t i;

	memset(r, 0, sizeof(*r));
	r->frame = frame;
	r->bunch_id = (uint64_t)sample_random(s) << 32 | sample_random(s);
	r->detector_time = frame * 5000;
	r->receive_time = 1700000000000000000ll + (int64_t)frame * 500123;
	r->sum = sample_random(s) / 256.0;
	r->exposure = sample_random(s);
	r->detector_status = sample_random(s);
	r->flags = sample_random(s) % 16;
	r->strong_count = sample_random(s) % 1000;
	r->saturated = sample_random(s) % 10;
	r->invalid = sample_random(s) % 100;
	r->nnz = sample_random(s) % 5000;
	r->veto_version = 1;
	r->pedestal_version = frame / 100;
	r->verdict = FRAME_VETOED;
	r->kind = GK_KIND_NONE;
	r->out = GK_NO_OUT;
	for (i = 0; i < s->geometry.tiles; i++) {
		if (sample_random(s) % 50 == 0) {
			r->missing_map[i / 8] |= 1u << (i % 8);
			r->missing[i / 13]++;
		}
	}
	if (s->layout.peaks_cap > 0)
		sample_peaks(s);
	if (s->bins > 0)
		sample_profile(s);
	if (sample_random(s) % 8 >= kept)
		return;

	r->verdict = FRAME_HIT + sample_random(s) % 3;
	r->out = 0;
	r->kind = sample_random(s) % 3;
	switch (r->kind) {
	case GK_KIND_CSR:
		sample_csr(s);
		break;
	case GK_KIND_IMAGE:
		for (i = 0; i < gk_pixels(&s->geometry); i++)
			sample_value(s, i);
		break;
	default:
		for (i = 0; i < gk_pixels(&s->geometry); i++)
			((uint16_t *)(s->outputs + s->layout.raw))[i] =
				i % 100 == 0 ? 0xFFFF : 3000 + sample_random(s) % 50;
	}
}

static inline int
sample_tables(const struct sample *s, struct arrow_tables *t)
{
	static const struct arrow_meta meta[] = {
		{ARROW_META_RUN, "sample"},
		{ARROW_META_SAMPLE, "; of two\nlines = 1\n"},
	};
	const struct arrow_tables_config c = {
		.modules = s->modules,
		.rows = gk_rows(&s->geometry),
		.cols = s->geometry.cols,
		.packets = s->geometry.tiles,
		.value = s->value,
		.chunks = s->chunks,
		.peaks = s->layout.peaks_cap > 0,
		.radial_bins = s->bins,
		.meta = meta,
		.nb_meta = 2,
	};

	return arrow_tables_init(t, &c);
}

static inline struct batch_builder_config
sample_builder_config(const struct sample *s, const struct arrow_tables *t)
{
	return (struct batch_builder_config){
		.geometry = s->geometry,
		.layout = s->layout,
		.value = s->value,
		.tables = t,
		.receiver_id = 0x0123456789abcdefull,
		.run = 42,
		.incarnation = 0xfedcba9876543210ull,
		.outputs = s->outputs,
		.nb_outputs = 1,
		.panels = s->panel,
		.nb_panels = SAMPLE_PANELS,
		.profiles = s->profiles,
		.nb_profiles = SAMPLE_PROFILES,
	};
}

#endif /* ARROW_SAMPLE_H */
