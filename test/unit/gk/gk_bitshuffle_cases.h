/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks for tests of compressed u16 images: bytes of bit planes, and the values that have them. */
#ifndef GK_BITSHUFFLE_CASES_H
#define GK_BITSHUFFLE_CASES_H

#include <stdint.h>

static inline uint32_t
next_random(uint64_t *seed)
{
	*seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*seed >> 33);
}

static inline void
values_of(const uint8_t *planes, uint32_t v, uint16_t *to)
{
	for (uint32_t i = 0; i < v; i++) {
		to[i] = 0;
		for (uint32_t k = 0; k < 16; k++)
			to[i] |= (uint16_t)((planes[k * v / 8 + i / 8] >> i % 8 & 1) << k);
	}
}

/* Bytes of which none equals the one before. */
static inline void
fill_without_runs(uint8_t *b, uint32_t n, uint64_t *seed)
{
	for (uint32_t i = 0; i < n; i++)
		b[i] = (uint8_t)((i == 0 ? 0 : b[i - 1]) + 1 + next_random(seed) % 255);
}

/* Make bytes [s, e) a run, which a byte follows that differs. */
static inline void
put_run(uint8_t *b, uint32_t n, uint32_t s, uint32_t e)
{
	for (uint32_t i = s; i < e; i++)
		b[i] = b[s - 1];
	if (e < n && b[e] == b[s - 1])
		b[e] ^= 1;
	if (e + 1 < n && b[e + 1] == b[e])
		b[e + 1] ^= 1;
}

/* Runs and gaps of random lengths; few values of bytes, as in sparse planes. */
static inline void
fill_with_runs(uint8_t *b, uint32_t n, uint64_t *seed)
{
	const uint32_t kinds = 1 + next_random(seed) % 4, longest = 1u << next_random(seed) % 11;

	for (uint32_t at = 0; at < n;) {
		const uint8_t byte = (uint8_t)(next_random(seed) % kinds);
		uint32_t length = 1 + next_random(seed) % longest;

		for (; at < n && length > 0; length--)
			b[at++] = byte;
	}
}

#endif /* GK_BITSHUFFLE_CASES_H */
