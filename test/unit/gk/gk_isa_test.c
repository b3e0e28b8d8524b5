/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Instruction sets of host gangs: selection, and identical bits of all of them, tile by tile.
 * gk_kernel_test.c checks that the bits are right.
 */

#include <sys/mman.h>

#include "gk_rig.h"
#include "gk_tile.h"

#define GUARD 64 /* bytes after every output */

/* Results of an instruction set for the tiles of a batch. */
struct made {
	struct gk_tile_counts counts[GK_BATCH_MAX];
	struct gk_update update;
	uint16_t *row_nnz[GK_BATCH_MAX];
	uint32_t *bits[GK_BATCH_MAX];
	uint16_t *col[GK_BATCH_MAX];
	void *csr[GK_BATCH_MAX];
	void *image[GK_BATCH_MAX];
	void *early[GK_BATCH_MAX]; /* images of stats() */
	uint16_t *copy[GK_BATCH_MAX];
	uint64_t *cells;
	float *p;
};

static uint64_t
image_size(const struct gk_tile *t)
{
	return (uint64_t)t->rows * t->cols * sizeof(float) + GUARD;
}

static uint64_t
bits_size(const struct gk_tile *t)
{
	return gk_tile_bits(t->rows, t->cols) * sizeof(uint32_t) + GUARD;
}

/* The words of a tile's bit mask that are defined. */
static uint64_t
bits_words(const struct gk_tile *t, const uint32_t *bits)
{
	uint32_t strips = t->rows * ((t->cols + GK_TILE_STRIP - 1) / GK_TILE_STRIP);
	uint64_t words = 0;

	for (; strips > 0; strips--)
		words += 1 + (uint32_t)__builtin_popcount(bits[words]);
	return words;
}

/* A copy that ends at an unmapped page, so that reading past its end crashes. */
static void *
fenced(const void *data, uint64_t size)
{
	const uint64_t page = 4096, whole = (size + page - 1) & ~(page - 1);
	uint8_t *memory = mmap(
		NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(memory != MAP_FAILED);
	assert_int_equal(mprotect(memory + whole, page, PROT_NONE), 0);
	return memcpy(memory + whole - size, data, size);
}

static void
unfence(const void *data, uint64_t size)
{
	const uint64_t page = 4096, whole = (size + page - 1) & ~(page - 1);

	munmap((void *)((uintptr_t)data - (whole - size)), whole + page);
}

static void *
guarded(uint64_t size)
{
	void *memory = rig_alloc(size);

	memset(memory, RIG_GUARD, size);
	return memory;
}

static void
make(const struct gk_tile_ops *ops, const struct gk_tile *t, uint32_t n,
	const uint16_t *const raw[], enum gk_value type, uint32_t images, struct made *m)
{
	const uint64_t pixels = (uint64_t)t->rows * t->cols, size = image_size(t);
	const uint16_t *ahead[GK_BATCH_MAX];

	memset(m, 0, sizeof(*m));
	for (uint32_t f = 0; f < n; f++) {
		m->row_nnz[f] = guarded(t->rows * 2 + GUARD);
		m->bits[f] = f % 5 == 4 ? NULL : guarded(bits_size(t));
		m->col[f] = guarded(pixels * 2 + GUARD);
		m->csr[f] = guarded(size);
		m->image[f] = guarded(size);
		m->early[f] = f % 7 < images ? guarded(size) : NULL;
		m->copy[f] = guarded(pixels * 2 + GUARD);
		ahead[f] = f % 2 ? NULL : raw[f];
	}
	ops->stats(t, n, raw, ahead, m->counts, m->row_nnz, m->bits, type, m->early);
	for (uint32_t f = 0; f < n; f++) {
		if (m->bits[f] != NULL)
			ops->csr(t, raw[f], m->bits[f], type, m->col[f], m->csr[f]);
		ops->copy(t, raw[f], m->copy[f]);
		if (ops->fetch != NULL)
			ops->fetch(t, raw[f], f % 2, f % 3 ? m->bits[f] : NULL);
	}
	ops->image(t, n, raw, type, m->image);
	if (ops->drain != NULL)
		ops->drain();
	m->cells = rig_alloc(pixels * sizeof(*m->cells));
	m->p = guarded(pixels * sizeof(*m->p) + GUARD);
	ops->dark(t, n, raw, m->cells, type == GK_VALUE_I16);
	ops->update(t, m->cells, 1 + n / 2, 0.3f, m->p, &m->update);
}

static void
check_same(const struct gk_tile *t, uint32_t n, const struct made *a, const struct made *b)
{
	const uint64_t pixels = (uint64_t)t->rows * t->cols;

	for (uint32_t f = 0; f < n; f++) {
		assert_memory_equal(&a->counts[f], &b->counts[f], sizeof(a->counts[f]));
		assert_memory_equal(a->row_nnz[f], b->row_nnz[f], t->rows * 2 + GUARD);
		if (a->bits[f] != NULL) {
			assert_memory_equal(a->bits[f], b->bits[f],
				bits_words(t, a->bits[f]) * sizeof(uint32_t));
			assert_memory_equal((uint8_t *)a->bits[f] + bits_size(t) - GUARD,
				(uint8_t *)b->bits[f] + bits_size(t) - GUARD, GUARD);
		}
		assert_memory_equal(a->col[f], b->col[f], pixels * 2 + GUARD);
		assert_memory_equal(a->csr[f], b->csr[f], image_size(t));
		assert_memory_equal(a->image[f], b->image[f], image_size(t));
		if (a->early[f] != NULL) {
			assert_memory_equal(a->early[f], a->image[f], image_size(t));
			assert_memory_equal(b->early[f], a->image[f], image_size(t));
		}
		assert_memory_equal(a->copy[f], b->copy[f], pixels * 2 + GUARD);
	}
	assert_memory_equal(&a->update, &b->update, sizeof(a->update));
	assert_memory_equal(a->cells, b->cells, pixels * sizeof(*a->cells));
	assert_memory_equal(a->p, b->p, pixels * sizeof(*a->p) + GUARD);
}

static void
drop(struct made *m, uint32_t n)
{
	for (uint32_t f = 0; f < n; f++) {
		free(m->row_nnz[f]);
		free(m->bits[f]);
		free(m->col[f]);
		free(m->csr[f]);
		free(m->image[f]);
		free(m->early[f]);
		free(m->copy[f]);
	}
	free(m->cells);
	free(m->p);
}

/* Run all instruction sets on the tiles of one batch. */
static void
compare_rows(const struct gk_tile *t, uint32_t n, const uint16_t *const raw[], enum gk_value type,
	uint32_t images)
{
	struct made plain, other;

	make(gk_tile_choose(GK_ISA_PLAIN), t, n, raw, type, images, &plain);
	for (int isa = GK_ISA_PLAIN + 1; isa < GK_ISAS; isa++) {
		if (gk_tile_choose(isa) == NULL)
			continue;
		make(gk_tile_choose(isa), t, n, raw, type, images, &other);
		check_same(t, n, &plain, &other);
		drop(&other, n);
	}
	drop(&plain, n);
}

static void
test_choice(void **state)
{
	const struct gk_geometry g = {1, 1, 32};
	struct gk_config c;
	struct gk *gk = NULL;
	struct rig rig;
	char why[256];

	assert_int_equal(gk_isa_choose(GK_ISA_PLAIN), GK_ISA_PLAIN);
	assert_true(gk_isa_choose(GK_ISA_AUTO) >= GK_ISA_PLAIN);
	assert_null(gk_isa_name(GK_ISAS));
	rig_open(&rig, &g, GK_VALUE_F32, 0, 1, 1, 0);
	c = rig.config;
	for (int isa = GK_ISA_PLAIN; isa < GK_ISAS; isa++) {
		c.isa = isa;
		if (gk_tile_choose(isa) == NULL) {
			assert_int_equal(gk_isa_choose(isa), -ENOTSUP);
			assert_int_equal(rig.ops->create(&c, &gk), -ENOTSUP);
			assert_non_null(strstr(rig.ops->why(), gk_isa_name(isa)));
			continue;
		}
		assert_int_equal(gk_isa_choose(isa), isa);
		assert_true(gk_isa_choose(GK_ISA_AUTO) >= isa);
		assert_string_equal(gk_tile_choose(isa)->name, gk_isa_name(isa));
		assert_int_equal(rig.ops->create(&c, &gk), 0);
		rig.ops->destroy(gk);
	}
	c.isa = GK_ISAS;
	assert_int_equal(gk_config_check(&c, why, sizeof(why)), -EINVAL);
	assert_non_null(strstr(why, "isa 4"));
	assert_int_equal(rig.ops->create(&c, &gk), -EINVAL);
	rig_close(&rig);
}

/*
 * Thresholds of all kinds: exact values, with and without the lower half of their bits, signed
 * zeros, infinities, values that no pixel reaches.
 */
static float
some_threshold(uint64_t *rng)
{
	static const float some[] = {0.0f, -0.0f, 0.5f, 1.0f, 2.0f, 10.0f, 4095.0f, 1e-40f, -1e-40f,
		1e30f, -1e30f, 3e38f, INFINITY, -INFINITY, 0x1p-120f, 0.75f, 0x1.fep2f, 0x1.01p3f,
		2.3f, 0x1.fffffep2f, 0x1p-126f};

	return some[rig_below(rng, sizeof(some) / sizeof(some[0]))];
}

/* All pixels have the same value, below or above the limit at which their sums fit into 32 bits. */
static void
uniform_coef(struct rig *rig, uint64_t *rng)
{
	static const float p[] = {
		0x1p-41f, 0x1.fffffep-42f, 0x1.fffffep14f, 0x1p15f, 0x1p22f, 0x1p26f};
	static const float r[] = {0x1p-60f, 0x1.fffffep-5f, 0x1p-4f, 1.0f, 0x1p10f};
	const float p0 = p[rig_below(rng, 6)], r0 = r[rig_below(rng, 5)];

	for (uint64_t x = 0; x < gk_pixels(&rig->config.geometry); x++) {
		rig->p[0][x] = p0;
		rig->r[0][x] = r0;
	}
}

static void
test_random_tiles(void **state)
{
	static const uint32_t cols[] = {32, 64, 96, 1024, 1056, 2080, 20000};
	uint64_t rng = rig_seed("random tiles");

	for (int round = 0; round < 300; round++) {
		const struct gk_geometry g = {1, 1 + rig_below(&rng, 5), cols[rig_below(&rng, 7)]};
		const uint32_t n = 1 + rig_below(&rng, GK_BATCH_MAX);
		const uint64_t pixels = gk_pixels(&g);
		const uint16_t *raw[GK_BATCH_MAX];
		struct gk_tile t = {.rows = g.tile_rows,
			.cols = g.cols,
			.strong_threshold = some_threshold(&rng),
			.csr_threshold = some_threshold(&rng)};
		struct rig rig;

		rig_open(&rig, &g, GK_VALUE_F32, 0, 1, GK_BATCH_MAX, 0);
		rig_random_coef(&rig, &rng);
		if (rig_below(&rng, 4) == 0)
			uniform_coef(&rig, &rng);
		for (uint32_t f = 0; f < n; f++) {
			rig_random_frame(&rig, f, 0, &rng);
			raw[f] = fenced(rig_tile(&rig, f, 0), pixels * sizeof(*raw[f]));
		}
		for (int s = 0; s < 3; s++) {
			t.p[s] = fenced(rig.p[s], pixels * sizeof(*t.p[s]));
			t.r[s] = fenced(rig.r[s], pixels * sizeof(*t.r[s]));
		}
		compare_rows(&t, n, raw, rig_below(&rng, 2), rig_below(&rng, 8));
		for (uint32_t f = 0; f < n; f++)
			unfence(raw[f], pixels * sizeof(*raw[f]));
		for (int s = 0; s < 3; s++) {
			unfence(t.p[s], pixels * sizeof(*t.p[s]));
			unfence(t.r[s], pixels * sizeof(*t.r[s]));
		}
		rig_close(&rig);
	}
}

/* Arbitrary floats as photons, (1 - 0) x r, to int16 and float32. */
static void
test_rounding(void **state)
{
	const struct gk_geometry g = {1, 64, 1024};
	const uint32_t pixels = 64 * 1024;
	uint64_t rng = rig_seed("rounding");
	int16_t *whole = rig_alloc(pixels * sizeof(*whole));
	float *value = rig_alloc(pixels * sizeof(*value));
	struct gk_tile t = {.rows = 64, .cols = 1024};
	const uint16_t *raw;
	struct rig rig;

	rig_open(&rig, &g, GK_VALUE_F32, 0, 1, 1, 0);
	for (int s = 0; s < 3; s++) {
		t.p[s] = rig.p[s];
		t.r[s] = rig.r[s];
	}
	raw = rig_tile(&rig, 0, 0);
	for (uint32_t x = 0; x < pixels; x++)
		rig_tile(&rig, 0, 0)[x] = 1;
	for (int round = 0; round < 60; round++) {
		for (uint32_t x = 0; x < pixels; x++) {
			/* arbitrary ones, and some near the limits and ties of int16 */
			rig.r[0][x] = rig_float_of((uint32_t)rig_random(&rng));
			if (round % 2)
				rig.r[0][x] = rig_float_of(rig_below(&rng, 2) << 31 |
					((110 + rig_below(&rng, 36)) << 23) |
					(rig_below(&rng, 2) ? rig_below(&rng, 1 << 23)
							    : rig_below(&rng, 512) << 14));
			if (round % 3 == 2) /* next to a tie */
				rig.r[0][x] = rig_float_of(0x3F000000u + rig_below(&rng, 5) - 2 +
					(rig_below(&rng, 2) << 31));
		}
		for (int isa = GK_ISA_PLAIN; isa < GK_ISAS; isa++) {
			const struct gk_tile_ops *ops = gk_tile_choose(isa);

			if (ops == NULL)
				continue;
			ops->image(&t, 1, &raw, GK_VALUE_I16, (void *const[]){whole});
			ops->image(&t, 1, &raw, GK_VALUE_F32, (void *const[]){value});
			for (uint32_t x = 0; x < pixels; x++) {
				const float wanted = gk_value_f32(rig.r[0][x]);

				if (whole[x] != gk_value_i16(rig.r[0][x]))
					fail_msg("%s: %a is %d, expected %d", ops->name,
						(double)rig.r[0][x], whole[x],
						gk_value_i16(rig.r[0][x]));
				assert_memory_equal(&value[x], &wanted, sizeof(wanted));
			}
		}
	}
	free(whole);
	free(value);
	rig_close(&rig);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_choice),
		cmocka_unit_test(test_rounding),
		cmocka_unit_test(test_random_tiles),
	};
	int lacking = 0;

	for (int isa = GK_ISA_PLAIN; isa < GK_ISAS; isa++) {
		if (gk_isa_choose(isa) >= 0)
			continue;
		printf("skipped: %s: not supported by this CPU\n", gk_isa_name(isa));
		lacking++;
	}
	if (lacking == GK_ISAS - GK_ISA_PLAIN - 1) {
		printf("skipped: nothing to compare plain with\n");
		return 77;
	}
	return cmocka_run_group_tests_name("gk_isa", tests, NULL, NULL);
}
