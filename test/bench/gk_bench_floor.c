/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The minimum work of a gang: reading and writing. It uses ordinary loads of 8 bytes, which
 * compilers vectorize. Full images are written with non-temporal stores, as in gangs. No single
 * order is the fastest on all machines, so there are variants, of which the fastest counts:
 * - one tile of a frame after the other, or strips of 1,024 pixels of all frames of a batch in
 *   turn, so that their coefficients stay in L1;
 * - the next piece is prefetched by software or by the processor (one is faster on Turin, the other
 *   on Genoa);
 * - a piece is read and then written, or each line is written immediately after it is read.
 */

#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "gk_bench.h"

#define LINE 64

#define BY_STRIPS (1u << 0)
#define AHEAD	  (1u << 1)
#define WOVEN	  (1u << 2)

/* Loads that a compiler cannot remove. @param next  prefetched meanwhile, or NULL */
static inline __attribute__((always_inline)) uint64_t
read_all(const void *memory, uint64_t bytes, const void *next)
{
	const uint64_t words = LINE / sizeof(uint64_t), *w = memory;
	uint64_t sum = 0;

	if (next == NULL) {
		for (uint64_t i = 0; i < bytes / sizeof(*w); i++)
			sum += w[i];
		return sum;
	}
	for (uint64_t line = 0; line < bytes / LINE; line++) {
		__builtin_prefetch((const uint8_t *)next + line * LINE, 0, 2);
		for (uint64_t i = 0; i < words; i++)
			sum += w[line * words + i];
	}
	return sum;
}

#ifdef __x86_64__

/* One cache line at a time: faster than piece by piece. */
static inline __attribute__((always_inline, target("avx512f"))) void
write_avx512(uint8_t *to, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i += sizeof(__m512i))
		_mm512_stream_si512((void *)(to + i), _mm512_set1_epi32(1));
}

static inline __attribute__((always_inline)) void
write_sse2(uint8_t *to, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i += sizeof(__m128i))
		_mm_stream_si128((__m128i *)(to + i), _mm_set1_epi8(1));
}

#else

static inline __attribute__((always_inline)) void
write_plain(uint8_t *to, uint64_t bytes)
{
	memset(to, 1, bytes);
}

#endif

/* A piece of a frame and its piece of an image. */
struct piece {
	const uint16_t *raw;
	const void *next;
	uint64_t pixels;
	uint8_t *to;
	uint64_t pixel_bytes;
	bool woven;
};

#define READ_AND_WRITE(name, target, write)                                                        \
	static target uint64_t name(const struct piece *p)                                         \
	{                                                                                          \
		const uint64_t at_once = p->woven ? LINE / sizeof(*p->raw) : p->pixels;            \
		uint64_t sum = 0;                                                                  \
		for (uint64_t i = 0; i < p->pixels; i += at_once) {                                \
			const void *next = p->next == NULL ? NULL : (const uint16_t *)p->next + i; \
			sum += read_all(p->raw + i, at_once * sizeof(*p->raw), next);              \
			write(p->to + i * p->pixel_bytes, at_once * p->pixel_bytes);               \
		}                                                                                  \
		return sum;                                                                        \
	}

#ifdef __x86_64__
READ_AND_WRITE(image_avx512, __attribute__((target("avx512f"))), write_avx512)
READ_AND_WRITE(image_sse2, , write_sse2)

static uint64_t
image(const struct piece *p)
{
	return __builtin_cpu_supports("avx512f") ? image_avx512(p) : image_sse2(p);
}
#else
READ_AND_WRITE(image, , write_plain)
#endif

/*
 * Lists of the pixels of one frame from `at`, the beginning of a row; the same number in each
 * piece.
 */
static void
write_lists(const struct bench *b, uint8_t *out, uint64_t at, uint64_t pixels, uint32_t nnz)
{
	const struct gk_layout *l = &b->config.layout;
	const uint64_t all = gk_pixels(&b->config.geometry), row = at / b->config.geometry.cols,
		       first = nnz * at / all, n = nnz * (at + pixels) / all - first;

	memset(out + l->row_ptr + row * 4, 1, pixels / b->config.geometry.cols * 4);
	memset(out + l->col + first * 2, 1, n * 2);
	memset(out + l->value + first * l->value_size, 1, n * l->value_size);
}

/* Each accumulator gets one sample, as if from the whole batch at once. */
static void
add_cells(uint64_t *cells, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		cells[i] += UINT64_C(1) << 32;
}

/* The lines of G1 and G2 of a piece. @param ahead  prefetch only */
static uint64_t
read_lines(const struct bench *b, uint32_t frame, uint64_t at, uint64_t pixels, bool ahead)
{
	const uint32_t *first =
		b->strip_lines + (frame * gk_pixels(&b->config.geometry) + at) / STRIP;
	uint64_t sum = 0, word;

	for (uint32_t i = first[0]; i < first[pixels / STRIP]; i++) {
		const float *line = bench_line(b, b->lines[i]);

		if (ahead) {
			__builtin_prefetch(line, 0, 2);
			continue;
		}
		memcpy(&word, line, sizeof(word));
		sum += word;
	}
	return sum;
}

/* One piece of one frame. @param next  the following piece, or NULL */
static uint64_t
frame_piece(const struct bench *b, uint32_t frame, uint64_t at, const uint16_t *raw,
	const uint16_t *next, uint64_t pixels, const struct floor_writes *writes, bool woven)
{
	uint8_t *out = b->config.outputs + frame * b->config.layout.stride;
	const struct piece p = {.raw = raw,
		.next = next,
		.pixels = pixels,
		.to = out + b->config.layout.value + at * writes->pixel_bytes,
		.pixel_bytes = writes->pixel_bytes,
		.woven = woven};
	uint64_t sum;

	if (writes->pixel_bytes > 0)
		return image(&p);
	sum = read_all(raw, pixels * sizeof(*raw), next);
	if (writes->nnz > 0)
		write_lists(b, out, at, pixels, writes->nnz);
	return sum;
}

/* One batch, from frame f. */
static uint64_t
run_batch(const struct bench *b, unsigned int way, uint32_t f, uint32_t batch,
	const struct floor_writes *writes)
{
	const struct gk_geometry *g = &b->config.geometry;
	const uint64_t tile = (uint64_t)g->tile_rows * g->cols, all = gk_pixels(g),
		       pixels = way & BY_STRIPS ? STRIP : tile;
	uint64_t sum = 0;

	for (uint64_t at = 0; at < all; at += pixels) {
		const uint64_t next = at + pixels < all ? at + pixels : at;
		const bool ahead = way & AHEAD;

		sum += read_all(b->p[0] + at, pixels * 4, ahead ? b->p[0] + next : NULL);
		sum += read_all(b->r[0] + at, pixels * 4, ahead ? b->r[0] + next : NULL);
		if (writes->cells)
			add_cells(b->cells + at, pixels);
		for (uint32_t i = f; i < f + batch; i++) {
			if (writes->lines > 0 && ahead)
				read_lines(b, i, next, pixels, true);
			sum += frame_piece(b, i, at, packet_of(b, i, at / tile) + at % tile,
				ahead ? packet_of(b, i, next / tile) + next % tile : NULL, pixels,
				writes, way & WOVEN);
			if (writes->lines > 0)
				sum += read_lines(b, i, at, pixels, false);
		}
	}
	return sum;
}

const char *
floor_name(unsigned int way, const struct floor_writes *writes)
{
	static const char *const names[FLOOR_WAYS] = {"tiles", "strips", "tiles ahead",
		"strips ahead", "tiles woven", "strips woven", "tiles ahead woven",
		"strips ahead woven"};

	return way & WOVEN && writes->pixel_bytes == 0 ? NULL : names[way];
}

double
floor_run(
	const struct bench *b, unsigned int way, uint32_t batch, const struct floor_writes *writes)
{
	const double start = seconds();
	static volatile uint64_t sink;
	uint64_t sum = 0;

	for (uint32_t f = 0; f < b->frames; f += batch)
		sum += run_batch(b, way, f, batch, writes);
	sink = sum;
	(void)sink;
	return seconds() - start;
}
