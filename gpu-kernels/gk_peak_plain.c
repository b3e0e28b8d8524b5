/* SPDX-License-Identifier: BSD-3-Clause */
/* Passes over all pixels of a frame, in C that compilers vectorise. */

#include "gk_peak_finder.h"

/* Pixels of a word of bits. */
#define RUN 32

/* @return the bits of the pixels that can be hits */
static uint32_t
bits_above(const int16_t *photons, const uint16_t *bin, int16_t above)
{
	uint32_t bits = 0;

	for (uint32_t i = 0; i < RUN; i++)
		bits |= (uint32_t)(!(bin[i] & GK_PEAK_MASKED) && photons[i] > above) << i;
	return bits;
}

static inline bool
is_value(int16_t photons)
{
	return (uint16_t)(photons - GK_PEAK_VALUE_MIN) < GK_PEAK_VALUES;
}

static void
count_rest(struct gk_peak_counts *c, const int16_t *photons, const uint16_t *bin)
{
	for (uint32_t i = 0; i < RUN; i++)
		if (!(bin[i] & GK_PEAK_MASKED) && !is_value(photons[i]))
			gk_peak_count_rest(c, photons[i], bin[i]);
}

static uint32_t
count(struct gk_peak_counts *c, const int16_t *photons, const uint16_t *bin, uint32_t n,
	uint32_t *word)
{
	const int32_t dump = (int32_t)c->dump;
	const int16_t limit = c->above;
	uint32_t index[GK_PEAK_STRIP], used = 0;

	for (uint32_t at = 0; at < n; at += RUN) {
		const int16_t *x = photons + at;
		const uint16_t *b = bin + at;
		uint32_t *to = index + at;
		uint16_t rest = 0, above = 0, counted[RUN];

		/* no branches, and masks of the size of pixels, so that compilers vectorise */
		for (uint32_t i = 0; i < RUN; i++) {
			const uint16_t good = b[i] < GK_PEAK_MASKED ? 0xFFFF : 0;
			const uint16_t value = is_value(x[i]) ? 0xFFFF : 0;

			rest |= good & (uint16_t)~value;
			above |= x[i] > limit ? good : 0;
			counted[i] = x[i] != 0 ? good & value : 0;
		}
		for (uint32_t i = 0; i < RUN; i++) {
			const int32_t mask = (int16_t)counted[i];
			const int32_t entry = b[i] * GK_PEAK_VALUES + x[i] - GK_PEAK_VALUE_MIN;

			to[i] = (uint32_t)((entry & mask) |
				((dump + (int32_t)(i % GK_PEAK_DUMP)) & ~mask));
		}
		word[at / RUN] = 0;
		if (above != 0) {
			word[at / RUN] = bits_above(x, b, limit);
			used |= 1u << at / RUN;
		}
		if (rest != 0)
			count_rest(c, x, b);
	}
	gk_peak_count_values(c->values, index, n);
	return used;
}

static uint32_t
compare(const struct gk_peak_frame *f, uint64_t first, uint32_t some, uint32_t *word)
{
	uint32_t used = 0;

	for (; some != 0; some &= some - 1) {
		const uint32_t k = (uint32_t)__builtin_ctz(some);
		const uint64_t at = first + k * RUN;
		uint32_t hits = 0;

		for (uint32_t bits = word[k]; bits != 0; bits &= bits - 1) {
			const uint32_t i = (uint32_t)__builtin_ctz(bits);

			hits |= (uint32_t)((float)f->photons[at + i] > f->upper[f->bin[at + i]])
				<< i;
		}
		word[k] = hits;
		used |= (uint32_t)(hits != 0) << k;
	}
	return used;
}

const struct gk_peak_ops gk_peak_plain = {count, compare};
