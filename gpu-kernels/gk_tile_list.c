/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lists of the pixels of a tile whose bit is set, with AVX2: gk_tile_ops.csr() of all sets that
 * have it. Wider vectors gain nothing where most have one pixel that is wanted.
 *
 * At 1 % a strip of 1,024 pixels has ten. Their arithmetic is nothing; what takes time is branches
 * that nobody guesses: how many pixels there are in a run, and how many such runs in a strip. So
 * without branches, and of several strips, first runs are gathered that have any, then groups of a
 * vector's pixels that have any. A group costs the same however many of its pixels are listed: all
 * of its photons are made, and those that are wanted moved together.
 */

#include <stdbool.h>
#include <string.h>

#include "gk_photons.h"
#include "gk_tile_set.h"

/* A vector's pixels: their bits are a byte */
#define GROUP	   VEC_LANES
#define RUN_GROUPS (RUN / GROUP)
#define STRIP_RUNS (GK_TILE_STRIP / RUN)

/* Runs that are listed in one go: as long as a strip is sure to fit, it is added */
#define CHUNK_RUNS (2 * STRIP_RUNS)
#define CHUNK	   (CHUNK_RUNS * RUN)
_Static_assert(CHUNK_RUNS *RUN_GROUPS <= 256, "a byte is a group's number");

/*
 * Runs that have listed pixels. Here, and in what follows, arrays are written a vector at a time,
 * however little of it there is: the next vector goes on where that ends.
 */
struct chunk {
	_Alignas(64) uint32_t bits[CHUNK_RUNS + GROUP];
	uint32_t x[CHUNK_RUNS + GROUP];	  /* first pixel, in the tile */
	uint16_t col[CHUNK_RUNS + GROUP]; /* of that */
	uint32_t n;
};

/* Listed pixels on their way out. */
struct packed {
	_Alignas(64) float photons[CHUNK + GROUP];
	uint16_t col[CHUNK + GROUP];
	uint32_t n;
};

/*
 * The runs of a strip.
 * @param used  which ones
 * @param bits  of each of these; read a vector at a time, too (gk_tile_bits())
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

/* @return how many of the chunk's groups have listed pixels; group: which ones */
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

/*
 * The pixels of n groups.
 * @param any  do they have other gains than G0?
 * @return would they have to be asked?
 */
VEC_FN bool
list_groups(const struct gk_tile *t, const uint16_t *raw, const struct chunk *chunk,
	const uint8_t group[], uint32_t n, const bool any, struct packed *to)
{
	vec_i32 gains = vec_set_i32(0);
	uint32_t listed = 0;

	for (uint32_t i = 0; i < n; i++) {
		const uint32_t run = group[i] / RUN_GROUPS, at = group[i] % RUN_GROUPS * GROUP;
		const uint32_t bits = ((const uint8_t *)chunk->bits)[group[i]];
		const uint64_t x = chunk->x[run] + at;
		const vec_i32 words = vec_words(raw + x);

		gains = vec_or_i32(gains, words);
		vec_store_listed(to->photons + listed, bits,
			any ? photons_any(t, x, words) : photons_g0(t, x, words));
		vec_store_numbers_u16(to->col + listed, bits, 1, chunk->col[run] + at);
		listed += (uint32_t)__builtin_popcount(bits);
	}
	to->n = listed;
	return vec_any_i32(gains, GK_RAW_GAIN_MASK);
}

/* What few chunks need. */
static __attribute__((noinline)) void
list_any(const struct gk_tile *t, const uint16_t *raw, const struct chunk *chunk,
	const uint8_t group[], uint32_t n, struct packed *to)
{
	list_groups(t, raw, chunk, group, n, true, to);
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
		/* no NaN is at or above a threshold: they need not be made alike */
		memcpy(value, packed->photons, packed->n * sizeof(float));
	}
}

/* @return how many pixels there are in the chunk */
static uint32_t
list_chunk(const struct gk_tile *t, const uint16_t *raw, const struct chunk *chunk,
	enum gk_value type, uint16_t *col, void *value)
{
	uint8_t group[CHUNK_RUNS * RUN_GROUPS + 8];
	const uint32_t n = find_groups(chunk, group);
	struct packed packed;

	if (__builtin_expect(list_groups(t, raw, chunk, group, n, false, &packed), 0))
		list_any(t, raw, chunk, group, n, &packed);
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
