/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Search for peaks in a frame on the host.
 *
 * 1. One pass over all pixels counts them by bin and value, and marks those above the threshold.
 * 2. The clipping rounds run on these tables: an upper limit for each bin.
 * 3. Marked pixels are compared with their limits. Those above are hits.
 * 4. Blobs of hits are filled and measured, from seeds in raster order, panel by panel.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gk_peak_finder.h"

#define LINE	  64 /* bytes of a cache line */
#define LINE_U32  (LINE / sizeof(uint32_t))
#define STRIP_MAX GK_PEAK_STRIP

/* The photons of a bin that are in the table, without empty entries. */
struct bin_values {
	uint32_t n;
	int32_t value[GK_PEAK_VALUES + 1];
	uint32_t count[GK_PEAK_VALUES + 1];
};

static void *
line_alloc(uint64_t count, uint64_t size)
{
	const uint64_t bytes = (count * size + LINE - 1) / LINE * LINE;
	void *memory = aligned_alloc(LINE, bytes);

	if (memory != NULL)
		memset(memory, 0, bytes);
	return memory;
}

/* Large arrays that most frames touch little of: pages are allocated at their first use. */
static void *
lazy_alloc(uint64_t count, uint64_t size)
{
	return calloc(count, size);
}

void
gk_peak_finder_destroy(struct gk_peak_finder *f)
{
	if (f == NULL)
		return;
	free(f->counts.values);
	free(f->counts.invalid);
	free(f->counts.listed);
	free(f->counts.rest);
	free(f->used);
	free(f->start);
	free(f->ordered);
	free(f->offset);
	free(f->upper);
	free(f->round);
	free(f->words);
	free(f->strips);
	free(f);
}

/* Keep it the same as finder_alloc(). */
uint64_t
gk_peak_finder_memory(uint32_t rows, uint32_t cols, uint32_t nb_bins)
{
	const uint64_t pixels = (uint64_t)rows * cols;
	const uint64_t strips = (cols + STRIP_MAX - 1) / STRIP_MAX;
	const uint64_t of_bins = GK_PEAK_VALUES * sizeof(uint32_t) + 4 * sizeof(uint32_t) +
		sizeof(*((struct gk_peak_finder *)NULL)->round);

	return sizeof(struct gk_peak_finder) + nb_bins * of_bins + GK_PEAK_DUMP * sizeof(uint32_t) +
		pixels * (sizeof(uint32_t) + sizeof(int16_t)) +
		(pixels / 32 + 4) * sizeof(uint32_t) + 2 * (GK_PEAK_BIN_MASK + 1) * sizeof(float) +
		rows * strips * sizeof(uint32_t);
}

static uint32_t
count_bins(const struct gk_peak_map *map)
{
	const uint64_t pixels = (uint64_t)map->rows * map->cols;
	uint32_t n = 0;

	for (uint64_t i = 0; i < pixels; i++)
		if (!(map->bin[i] & GK_PEAK_MASKED) && map->bin[i] >= n)
			n = map->bin[i] + 1;
	return n;
}

static int
finder_alloc(struct gk_peak_finder *f)
{
	const uint64_t pixels = (uint64_t)f->map.rows * f->map.cols;
	const uint64_t words = pixels / 32 + 4;

	f->nb_bins = count_bins(&f->map);
	f->nb_strips = (f->map.cols + STRIP_MAX - 1) / STRIP_MAX;
	f->counts.dump = f->nb_bins * GK_PEAK_VALUES;
	f->counts.values = line_alloc(f->counts.dump + GK_PEAK_DUMP, sizeof(uint32_t));
	f->counts.invalid = line_alloc(f->nb_bins + 1, sizeof(uint32_t));
	f->counts.listed = line_alloc(f->nb_bins + 1, sizeof(uint32_t));
	f->counts.rest = lazy_alloc(pixels, sizeof(uint32_t));
	f->blob = f->counts.rest;
	f->used = line_alloc(f->nb_bins + 1, sizeof(uint32_t));
	f->start = line_alloc(f->nb_bins + 1, sizeof(uint32_t));
	f->ordered = lazy_alloc(pixels, sizeof(int16_t));
	f->offset = lazy_alloc(GK_PEAK_BIN_MASK + 1, sizeof(float));
	f->upper = lazy_alloc(GK_PEAK_BIN_MASK + 1, sizeof(float));
	f->round = line_alloc(f->nb_bins + 1, sizeof(*f->round));
	f->words = line_alloc(words, sizeof(uint32_t));
	f->strips = line_alloc((uint64_t)f->map.rows * f->nb_strips, sizeof(uint32_t));
	if (f->counts.values == NULL || f->counts.invalid == NULL || f->counts.listed == NULL ||
		f->counts.rest == NULL || f->used == NULL || f->start == NULL ||
		f->ordered == NULL || f->offset == NULL || f->upper == NULL || f->round == NULL ||
		f->words == NULL || f->strips == NULL)
		return -ENOMEM;
	f->hits.word = f->words + 2;
	f->hits.row_words = f->map.cols / 32;
	for (uint64_t i = 0; i < pixels; i++)
		if (!(f->map.bin[i] & GK_PEAK_MASKED))
			f->used[f->map.bin[i]]++;
	return 0;
}

int
gk_peak_finder_create(const struct gk_peak_map *map, enum gk_isa isa, struct gk_peak_finder **to)
{
	const struct gk_peak_ops *ops = gk_peak_choose(isa);
	struct gk_peak_finder *f;
	int ret;

	ret = gk_peak_map_check(map, NULL, 0);
	if (ret != 0)
		return ret;
	if (ops == NULL)
		return -ENOTSUP;
	f = calloc(1, sizeof(*f));
	if (f == NULL)
		return -ENOMEM;
	f->map = *map;
	f->ops = ops;
	ret = finder_alloc(f);
	if (ret != 0) {
		gk_peak_finder_destroy(f);
		return ret;
	}
	*to = f;
	return 0;
}

void
gk_peaks_begin(struct gk_peak_finder *f, const struct gk_peak_params *params)
{
	/* the previous frame has not ended, and has left its counts */
	if (f->counting)
		memset(f->counts.values, 0, f->counts.dump * sizeof(uint32_t));
	f->counting = true;
	f->params = *params;
	/* no limit of a bin is below the threshold */
	if (params->threshold >= (float)INT16_MAX)
		f->counts.above = INT16_MAX;
	else if (params->threshold <= (float)INT16_MIN)
		f->counts.above = INT16_MIN;
	else
		f->counts.above = (int16_t)floorf(params->threshold);
	f->counts.nb_rest = 0;
	memset(f->counts.invalid, 0, f->nb_bins * sizeof(uint32_t));
	memset(f->counts.listed, 0, f->nb_bins * sizeof(uint32_t));
}

void
gk_peaks_add(struct gk_peak_finder *f, uint32_t row, uint32_t nb_rows, const int16_t *photons)
{
	const uint32_t cols = f->map.cols;

	for (uint32_t end = row + nb_rows; row < end; row++) {
		const uint16_t *bin = f->map.bin + (uint64_t)row * cols;
		uint32_t *word = f->hits.word + (uint64_t)row * f->hits.row_words;
		uint32_t *strip = f->strips + (uint64_t)row * f->nb_strips;

		for (uint32_t at = 0; at < cols; at += STRIP_MAX)
			*strip++ = f->ops->count(&f->counts, photons + at, bin + at,
				cols - at < STRIP_MAX ? cols - at : STRIP_MAX, word + at / 32);
		photons += cols;
	}
}

/* Order the listed pixels by bin. */
static void
order_rest(struct gk_peak_finder *f)
{
	struct gk_peak_counts *c = &f->counts;
	uint32_t at = 0;

	for (uint32_t b = 0; b < f->nb_bins; b++) {
		f->start[b] = at;
		at += c->listed[b];
	}
	for (uint32_t i = 0; i < c->nb_rest; i++)
		f->ordered[f->start[c->rest[i] >> 16]++] = (int16_t)(uint16_t)c->rest[i];
	/* each start is now that of the next bin */
}

static inline bool
is_line_used(const uint32_t *line)
{
	uint32_t any = 0;

	for (uint32_t i = 0; i < LINE_U32; i++)
		any |= line[i];
	return any != 0;
}

/* Take the entries of a bin out of the table, which is then 0 for the next frame. */
static void
take_values(struct gk_peak_finder *f, uint32_t bin, struct bin_values *v)
{
	uint32_t *values = f->counts.values + (uint64_t)bin * GK_PEAK_VALUES;
	uint32_t zeros = f->used[bin] - f->counts.invalid[bin] - f->counts.listed[bin];

	v->n = 1;
	for (uint32_t line = 0; line < GK_PEAK_VALUES; line += LINE_U32) {
		if (!is_line_used(values + line))
			continue;
		for (uint32_t i = line; i < line + LINE_U32; i++) {
			v->value[v->n] = (int32_t)i + GK_PEAK_VALUE_MIN;
			v->count[v->n] = values[i];
			v->n += values[i] != 0;
			zeros -= values[i];
		}
		memset(values + line, 0, LINE);
	}
	v->value[0] = 0;
	v->count[0] = zeros;
}

static struct gk_peak_sums
sum_between(const struct bin_values *v, const int16_t *rest, uint32_t nb_rest,
	const struct gk_peak_range *r)
{
	struct gk_peak_sums s = {0, 0, 0};

	for (uint32_t i = 0; i < v->n; i++) {
		const bool in = v->value[i] >= r->first && v->value[i] <= r->last;
		const int64_t n = in ? v->count[i] : 0;

		s.n += n;
		s.sum += n * v->value[i];
		s.squares += n * (v->value[i] * v->value[i]);
	}
	for (uint32_t i = 0; i < nb_rest; i++) {
		const bool in = rest[i] >= r->first && rest[i] <= r->last;
		const int32_t value = in ? rest[i] : 0;

		s.n += in;
		s.sum += value;
		s.squares += value * value;
	}
	return s;
}

static void
clip_bin(struct gk_peak_finder *f, uint32_t bin)
{
	const uint32_t nb_rest = f->counts.listed[bin];
	const int16_t *rest = f->ordered + f->start[bin] - nb_rest;
	struct gk_peak_limits l = gk_peak_first_limits();
	struct gk_peak_range last = {1, 0};
	struct bin_values v;

	take_values(f, bin, &v);
	for (uint32_t i = 0; i < GK_PEAK_ROUNDS; i++) {
		const struct gk_peak_range r = gk_peak_between(&l);
		struct gk_peak_sums s;

		/* same pixels, so all further rounds would give the same limits */
		if (i > 0 && r.first == last.first && r.last == last.last)
			break;
		s = sum_between(&v, rest, nb_rest, &r);
		l = gk_peak_clip(s.n, (float)s.sum, (float)s.squares, &f->params);
		last = r;
	}
	f->offset[bin] = l.offset;
	f->upper[bin] = l.upper;
}

/*
 * Take and measure the blobs that have hits among the bits of a word.
 * @param mask  bits of the word that can be seeds
 * @return false: the list is full
 */
static bool
search_word(struct gk_peak_finder *f, const struct gk_peak_frame *frame, uint32_t number,
	uint32_t ss, uint32_t w, uint32_t mask, struct gk_peaks *out)
{
	const struct gk_peak_panel *panel = &f->map.panel[number];
	const uint32_t *word = f->hits.word + (uint64_t)(panel->ss + ss) * f->hits.row_words + w;
	uint32_t bits;

	while ((bits = *word & mask) != 0) {
		const uint32_t fs = w * 32 + (uint32_t)__builtin_ctz(bits) - panel->fs;
		enum gk_peak_verdict verdict;
		struct gk_peak peak;
		uint32_t n;

		n = gk_peak_fill(&f->hits, panel, gk_peak_position(fs, ss), f->blob);
		verdict = gk_peak_measure(frame, panel, &f->params, f->blob, n, &peak);
		if (!gk_peak_append(out, &f->params, number, verdict, &peak))
			return false;
	}
	return true;
}

/* Bits `first` to `last` of an array whose element `at` has the bits from 32 x at on. */
static inline uint32_t
bits_between(uint32_t at, uint32_t first, uint32_t last)
{
	uint32_t bits = UINT32_MAX;

	bits &= at == first / 32 ? UINT32_MAX << first % 32 : UINT32_MAX;
	return bits & (at == last / 32 ? UINT32_MAX >> (31 - last % 32) : UINT32_MAX);
}

/* Find the blobs of a panel. Seeds are not on its border. @return false: the list is full */
static bool
search_panel(struct gk_peak_finder *f, const struct gk_peak_frame *frame, uint32_t number,
	struct gk_peaks *out)
{
	const struct gk_peak_panel *panel = &f->map.panel[number];
	const uint32_t first = panel->fs + 1, last = panel->fs + panel->width - 2;

	if (panel->width < 3)
		return true;
	for (uint32_t ss = 1; ss + 1 < panel->height; ss++) {
		const uint32_t *strip = f->strips + (uint64_t)(panel->ss + ss) * f->nb_strips;

		for (uint32_t s = first / STRIP_MAX; s <= last / STRIP_MAX; s++) {
			uint32_t some = strip[s] & bits_between(s, first / 32, last / 32);

			for (; some != 0; some &= some - 1) {
				const uint32_t w = s * 32 + (uint32_t)__builtin_ctz(some);

				if (!search_word(f, frame, number, ss, w,
					    bits_between(w, first, last), out))
					return false;
			}
		}
	}
	return true;
}

void
gk_peak_search(struct gk_peak_finder *f, const struct gk_peak_frame *frame, struct gk_peaks *out)
{
	memset(out, 0, sizeof(*out));
	for (uint32_t i = 0; i < f->map.nb_panels; i++)
		if (!search_panel(f, frame, i, out))
			break;
}

void
gk_peaks_end(struct gk_peak_finder *f, const int16_t *photons, struct gk_peaks *out)
{
	const struct gk_peak_frame frame = {
		photons, NULL, f->map.bin, f->map.cols, f->offset, f->upper};

	order_rest(f);
	f->counting = false;
	for (uint32_t bin = 0; bin < f->nb_bins; bin++)
		clip_bin(f, bin);
	for (uint32_t row = 0; row < f->map.rows; row++) {
		uint32_t *strip = f->strips + (uint64_t)row * f->nb_strips;

		for (uint32_t i = 0; i < f->nb_strips; i++)
			if (strip[i] != 0)
				strip[i] = f->ops->compare(&frame,
					(uint64_t)row * f->map.cols + i * STRIP_MAX, strip[i],
					f->hits.word + (uint64_t)row * f->hits.row_words + i * 32);
	}
	gk_peak_search(f, &frame, out);
}

void
gk_peaks_find(struct gk_peak_finder *f, const struct gk_peak_params *params, const int16_t *photons,
	struct gk_peaks *out)
{
	gk_peaks_begin(f, params);
	gk_peaks_add(f, 0, f->map.rows, photons);
	gk_peaks_end(f, photons, out);
}
