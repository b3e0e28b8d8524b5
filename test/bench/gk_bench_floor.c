/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The least that a gang must do: read and write. Ordinary loads of 8 bytes, which compilers make
 * vectors of, with the next tile fetched ahead or left to the processor: one is faster on Turin,
 * the other on Genoa, and the faster counts. Full images are written past the caches, as gangs do.
 */

#include <stdbool.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "gk_bench.h"

#define LINE 64

/* Sums keep the loads. @param ahead  the next tile is so many bytes on: fetch it; 0 = do not */
static inline __attribute__((always_inline)) uint64_t
read_all(const void *memory, uint64_t bytes, uint64_t ahead)
{
	const uint64_t words = LINE / sizeof(uint64_t), *w = memory;
	uint64_t sum = 0;

	if (ahead == 0) {
		for (uint64_t i = 0; i < bytes / sizeof(*w); i++)
			sum += w[i];
		return sum;
	}
	for (uint64_t line = 0; line < bytes / LINE; line++) {
		__builtin_prefetch((const uint8_t *)memory + ahead + line * LINE, 0, 2);
		for (uint64_t i = 0; i < words; i++)
			sum += w[line * words + i];
	}
	return sum;
}

#ifdef __x86_64__

/* A line at a time: faster than in pieces. */
__attribute__((target("avx512f"))) static void
write_lines(uint8_t *to, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i += sizeof(__m512i))
		_mm512_stream_si512((void *)(to + i), _mm512_set1_epi32(1));
}

static void
write_past(uint8_t *to, uint64_t bytes)
{
	if (__builtin_cpu_supports("avx512f")) {
		write_lines(to, bytes);
		return;
	}
	for (uint64_t i = 0; i < bytes; i += sizeof(__m128i))
		_mm_stream_si128((__m128i *)(to + i), _mm_set1_epi8(1));
}

#else

static void
write_past(uint8_t *to, uint64_t bytes)
{
	memset(to, 1, bytes);
}

#endif

/* Lists of one tile of one frame; `at` is how many pixels lie before it. */
static void
write_lists(const struct bench *b, uint8_t *out, uint32_t tile, uint64_t at, uint64_t n)
{
	const struct gk_layout *l = &b->config.layout;
	const uint32_t rows = b->config.geometry.tile_rows;

	memset(out + l->row_ptr + (uint64_t)tile * rows * 4, 1, rows * 4);
	memset(out + l->col + at * 2, 1, n * 2);
	memset(out + l->value + at * l->value_size, 1, n * l->value_size);
}

static inline __attribute__((always_inline)) double
pass(const struct bench *b, uint32_t batch, const struct floor_writes *writes, bool ahead)
{
	const struct gk_geometry *g = &b->config.geometry;
	const uint64_t tile = (uint64_t)g->tile_rows * g->cols;
	const double start = seconds();
	static volatile uint64_t sink;
	uint64_t sum = 0;

	for (uint32_t f = 0; f < b->frames; f += batch) {
		for (uint32_t t = 0; t < g->tiles; t++) {
			const uint64_t at = (uint64_t)writes->nnz * t / g->tiles,
				       next = (uint64_t)writes->nnz * (t + 1) / g->tiles;

			sum += read_all(b->p[0] + t * tile, tile * 4, ahead ? tile * 4 : 0);
			sum += read_all(b->r[0] + t * tile, tile * 4, ahead ? tile * 4 : 0);
			for (uint32_t i = f; i < f + batch; i++) {
				uint8_t *out = b->config.outputs + i * b->config.layout.stride;

				sum += read_all(
					packet_of(b, i, t), tile * 2, ahead ? packet_stride(g) : 0);
				if (writes->pixel_bytes > 0)
					write_past(out + b->config.layout.value +
							t * tile * writes->pixel_bytes,
						tile * writes->pixel_bytes);
				else if (writes->nnz > 0)
					write_lists(b, out, t, at, next - at);
			}
		}
	}
	sink = sum;
	(void)sink;
	return seconds() - start;
}

double
floor_run(const struct bench *b, uint32_t batch, const struct floor_writes *writes)
{
	const double left = pass(b, batch, writes, false), fetched = pass(b, batch, writes, true);

	return left < fetched ? left : fetched;
}
