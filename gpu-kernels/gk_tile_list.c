/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lists of the pixels of a tile whose bit is set, with AVX2: csr() of struct gk_tile_ops for all
 * sets that include AVX2. Wider vectors gain nothing where most contain one selected pixel.
 *
 * At 1 % a strip of 1,024 pixels has ten selected pixels. Their arithmetic takes almost no time.
 * The cost is in mispredicted branches: the number of pixels in a run, and the number of such runs
 * in a strip. The code therefore has no such branches. For several strips, it first gathers the
 * runs that have selected pixels, then the groups (one vector of pixels) that have any. A group
 * costs the same for any number of selected pixels: all its photons are computed, and the selected
 * ones are compacted.
 */

#include <stdbool.h>
#include <string.h>

#include "gk_photons.h"
#include "gk_tile_set.h"

/* Pixels of a vector: their bits are one byte */
#define GROUP	   VEC_LANES
#define RUN_GROUPS (RUN / GROUP)
#define STRIP_RUNS (GK_TILE_STRIP / RUN)

/* Runs listed in one pass. Strips are added as long as one is certain to fit */
#define CHUNK_RUNS (2 * STRIP_RUNS)
#define CHUNK	   (CHUNK_RUNS * RUN)
_Static_assert(CHUNK_RUNS *RUN_GROUPS <= 256, "a byte is a group's number");

/*
 * Runs that have selected pixels. Here and below, arrays are written one full vector at a time. The
 * next vector overwrites the unused part.
 */
struct chunk {
	_Alignas(64) uint32_t bits[CHUNK_RUNS + GROUP];
	uint32_t x[CHUNK_RUNS + GROUP];	  /* first pixel of the run, within the tile */
	uint16_t col[CHUNK_RUNS + GROUP]; /* column of that pixel */
	uint32_t n;
};

/* Listed pixels before they are stored. */
struct packed {
	_Alignas(64) float photons[CHUNK + GROUP];
	uint16_t col[CHUNK + GROUP];
	uint32_t n;
};

/*
 * Add the runs of a strip.
 * @param used  bit mask of runs with selected pixels
 * @param bits  bits of each of these; read one full vector at a time, too (gk_tile_bits())
 * @param runs  length of the strip
 * @param x     its first pixel, whose column is `col`
 */
VEC_FN void
add_runs(struct chunk *chunk, uint32_t used, const uint32_t *bits, uint32_t runs, uint32_t x,
	uint32_t col)
{
	const uint32_t at = chunk->n;
	uint32_t n = at;

	for (uint32_t i = 0; i < runs; i += GROUP) {
		const uint32_t some = used >> i & 0xFF;

		vec_store_i32(chunk->bits + at + i, vec_load_i32(bits + i));
		vec_store_i32(chunk->x + n, vec_numbers(some, RUN, x + i * RUN));
		vec_store_numbers_u16(chunk->col + n, some, RUN, col + i * RUN);
		n += (uint32_t)__builtin_popcount(some);
	}
	chunk->n = n;
}

/* @return number of the chunk's groups that have selected pixels; group: their indices */
VEC_FN uint32_t
find_groups(const struct chunk *chunk, uint8_t group[])
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < chunk->n; i += GROUP) {
		uint32_t used = vec_bytes_used(vec_load_i32(chunk->bits + i));

		if (chunk->n - i < GROUP)
			used = _bzhi_u32(used, (chunk->n - i) * RUN_GROUPS);
		for (uint32_t k = 0; k < 32; k += 8) {
			const uint32_t some = used >> k & 0xFF;
			const uint64_t numbers = vec_order[some] +
				(i * RUN_GROUPS + k) * UINT64_C(0x0101010101010101);

			memcpy(group + n, &numbers, sizeof(numbers));
			n += (uint32_t)__builtin_popcount(some);
		}
	}
	return n;
}

/* First pixel of a group, within the tile. */
VEC_FN uint64_t
group_at(const struct chunk *chunk, uint32_t group)
{
	return chunk->x[group / RUN_GROUPS] + group % RUN_GROUPS * GROUP;
}

VEC_FN uint32_t
group_bits(const struct chunk *chunk, uint32_t group)
{
	return ((const uint8_t *)chunk->bits)[group];
}

/*
 * Compute the pixels of n groups as if all of them were in G0.
 * @return whether any pixel of the groups has another gain than G0
 */
VEC_FN bool
list_groups(const struct gk_tile *t, const uint16_t *raw, const struct chunk *chunk,
	const uint8_t group[], uint32_t n, struct packed *to)
{
	vec_i32 gains = vec_set_i32(0);
	uint32_t listed = 0;

	for (uint32_t i = 0; i < n; i++) {
		const uint32_t run = group[i] / RUN_GROUPS, at = group[i] % RUN_GROUPS * GROUP;
		const uint32_t bits = group_bits(chunk, group[i]);
		const uint64_t x = chunk->x[run] + at;
		const vec_i32 words = vec_words(raw + x);

		gains = vec_or_i32(gains, words);
		vec_store_listed(to->photons + listed, bits, photons_g0(t, x, words));
		vec_store_numbers_u16(to->col + listed, bits, 1, chunk->col[run] + at);
		listed += (uint32_t)__builtin_popcount(bits);
	}
	to->n = listed;
	return vec_any_i32(gains, GK_RAW_GAIN_MASK);
}

/* Compute the pixels of the few groups that have gains other than G0 again. */
static __attribute__((noinline)) void
list_odd(const struct gk_tile *t, const uint16_t *raw, const struct chunk *chunk,
	const uint8_t group[], uint32_t n, struct packed *to)
{
	uint8_t odd[CHUNK_RUNS * RUN_GROUPS + 1];
	uint16_t at[CHUNK_RUNS * RUN_GROUPS + 1]; /* positions of the groups in the list */
	uint32_t nb_odd = 0, listed = 0;

	for (uint32_t i = 0; i < n; i++) {
		const vec_i32 words = vec_words(raw + group_at(chunk, group[i]));

		odd[nb_odd] = group[i];
		at[nb_odd] = (uint16_t)listed;
		nb_odd += vec_any_i32(words, GK_RAW_GAIN_MASK) ? 1 : 0;
		listed += (uint32_t)__builtin_popcount(group_bits(chunk, group[i]));
	}
	for (uint32_t i = 0; i < nb_odd; i++) {
		const uint64_t x = group_at(chunk, odd[i]);

		vec_replace_listed(to->photons + at[i], group_bits(chunk, odd[i]),
			photons_any(t, x, vec_words(raw + x)));
	}
}

static void
put_packed(const struct packed *packed, enum gk_value type, uint16_t *col, void *value)
{
	int16_t whole[CHUNK];

	memcpy(col, packed->col, packed->n * sizeof(*col));
	if (type == GK_VALUE_I16) {
		for (uint32_t i = 0; i < packed->n; i += RUN) {
			vec_f32 photons[RUN_VECS];

			for (int k = 0; k < RUN_VECS; k++)
				photons[k] = vec_load(packed->photons + i + k * VEC_LANES);
			vec_run_store(whole + i, run_i16(photons));
		}
		memcpy(value, whole, packed->n * sizeof(*whole));
	} else {
		/* A NaN is never at or above a threshold, so NaNs need not be unified. */
		memcpy(value, packed->photons, packed->n * sizeof(float));
	}
}

/* @return number of pixels in the chunk */
static uint32_t
list_chunk(const struct gk_tile *t, const uint16_t *raw, const struct chunk *chunk,
	enum gk_value type, uint16_t *col, void *value)
{
	uint8_t group[CHUNK_RUNS * RUN_GROUPS + 8];
	const uint32_t n = find_groups(chunk, group);
	struct packed packed;

	if (__builtin_expect(list_groups(t, raw, chunk, group, n, &packed), 0))
		list_odd(t, raw, chunk, group, n, &packed);
	put_packed(&packed, type, col, value);
	return packed.n;
}

void
gk_tile_csr_avx2(const struct gk_tile *t, const uint16_t *raw, const uint32_t *bits,
	enum gk_value type, uint16_t *col, void *value)
{
	const uint32_t value_size = type == GK_VALUE_I16 ? sizeof(int16_t) : sizeof(float);
	struct chunk chunk;
	uint64_t at = 0;

	chunk.n = 0;
	for (uint32_t row = 0; row < t->rows; row++) {
		for (uint32_t strip = 0; strip < t->cols; strip += GK_TILE_STRIP) {
			const uint32_t runs = (t->cols - strip) / RUN, used = *bits++;

			if (chunk.n > CHUNK_RUNS - STRIP_RUNS) {
				at += list_chunk(t, raw, &chunk, type, col + at,
					(uint8_t *)value + at * value_size);
				chunk.n = 0;
			}
			add_runs(&chunk, used, bits, runs < STRIP_RUNS ? runs : STRIP_RUNS,
				row * t->cols + strip, strip);
			bits += __builtin_popcount(used);
		}
	}
	list_chunk(t, raw, &chunk, type, col + at, (uint8_t *)value + at * value_size);
}
