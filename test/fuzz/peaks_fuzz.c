/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames of any content, with any panels, masks and options. All instruction sets give the bytes of
 * a restatement of the algorithm. Maps and options that are refused are not used.
 */

#include <stdlib.h>
#include <string.h>

#include "gk_peak_naive.h"
#include "seed_corpus.h"

#define WANT(condition)           \
	do {                      \
		if (!(condition)) \
			abort();  \
	} while (0)

#define PANELS 4

/* The first bytes of an input. The photons follow: a byte for each pixel, repeated. */
struct head {
	uint8_t rows, words, panels, masks;
	int16_t corner[PANELS][2]; /* in pixels from the beam */
	uint8_t box[PANELS][4];
	struct gk_peak_params params;
};

/* Bright and special photons for the last byte values. */
static const int16_t specials[] = {INT16_MIN, INT16_MAX, INT16_MIN + 1, INT16_MAX - 1, 5000, 300,
	127, 128, -16, -17, 1000, 40, 41, 42, 60, 200};
#define SPECIALS (sizeof(specials) / sizeof(specials[0]))

static int16_t
photons_of(uint8_t byte)
{
	return byte >= 256 - SPECIALS ? specials[byte - (256 - SPECIALS)] : byte % 16 - 2;
}

/* @return the panels that were placed */
static uint32_t
place_panels(const struct head *h, const struct gk_peak_map *map, struct gk_peak_panel *panel,
	uint16_t *bin)
{
	const uint32_t nb = h->panels % (PANELS + 1);

	for (uint32_t i = 0; i < nb; i++) {
		const uint8_t *box = h->box[i];
		struct gk_peak_panel *p = &panel[i];

		*p = (struct gk_peak_panel){box[0], box[1], box[2], box[3], (float)(box[0] * 8)};
		for (uint32_t ss = p->ss; ss < p->ss + p->height && ss < map->rows; ss++)
			for (uint32_t fs = p->fs; fs < p->fs + p->width && fs < map->cols; fs++)
				bin[ss * map->cols + fs] =
					gk_peak_bin(h->corner[i][0] % 256 + (double)(fs - p->fs),
						h->corner[i][1] % 256 + (double)(ss - p->ss), 0, 0);
	}
	return nb;
}

static void
search(const struct gk_peak_map *map, const struct gk_peak_params *params, const int16_t *photons)
{
	static union {
		struct gk_peaks peaks;
		uint8_t bytes[GK_PEAKS_SIZE];
	} found, expected;
	const uint64_t pixels = (uint64_t)map->rows * map->cols;
	struct naive *naive = naive_open(map);
	float *image = malloc(pixels * sizeof(*image));

	WANT(image != NULL);
	naive_from_i16(image, photons, pixels);
	naive_find(naive, params, image, NAIVE_EXACT, &expected.peaks);
	for (enum gk_isa isa = GK_ISA_PLAIN; isa < GK_ISAS; isa++) {
		struct gk_peak_finder *finder;

		if (gk_isa_choose(isa) != (int)isa)
			continue;
		WANT(gk_peak_finder_create(map, isa, &finder) == 0);
		gk_peaks_find(finder, params, photons, &found.peaks);
		WANT(found.peaks.count <= GK_PEAKS_MAX);
		WANT(memcmp(&found, &expected,
			     sizeof(struct gk_peaks) +
				     found.peaks.count * sizeof(struct gk_peak)) == 0);
		gk_peak_finder_destroy(finder);
	}
	free(image);
	naive_close(naive);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static struct {
		struct head head;
		uint8_t pixel[48 * 64];
	} input;
	struct head *h = &input.head;

	seed_begin(argc, argv);
	*h = (struct head){48, 2, 2, 1, {{-70, -30}, {-35, -30}}, {{0, 0, 32, 48}, {32, 0, 32, 48}},
		{.threshold = 10,
			.min_snr = 2,
			.min_pixels = 1,
			.max_pixels = 50,
			.bg_radius = 3,
			.saturated = 1,
			.shells = 2,
			.shell = {10, 40, 70}}};
	for (uint32_t i = 0; i < sizeof(input.pixel); i++)
		input.pixel[i] = (uint8_t)(i * 2654435761u >> 24) % 6 + 2;
	for (uint32_t i = 300; i < sizeof(input.pixel); i += 500) {
		input.pixel[i] = 251;
		input.pixel[i + 1] = 252;
		input.pixel[i + 64] = 253;
	}
	seed_add("spots", &input, sizeof(input));
	h->panels = 1;
	h->box[0][2] = 64;
	for (uint32_t i = 0; i < sizeof(input.pixel); i += 3)
		input.pixel[i] = (uint8_t)i;
	h->params.saturated = 0;
	seed_add("any", &input, sizeof(input));
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gk_peak_panel panel[PANELS] = {0};
	struct gk_peak_map map;
	struct head h;
	int16_t *photons;
	uint16_t *bin;
	uint64_t pixels;
	char why[160] = "";
	int ret;

	if (size <= sizeof(h))
		return 0;
	memcpy(&h, data, sizeof(h));
	data += sizeof(h);
	size -= sizeof(h);
	/* a ring costs its area for each blob */
	h.params.bg_radius %= h.rows > 16 ? 5 : 17;
	map.rows = h.rows % 50;
	map.cols = h.words % 3 * 32;
	pixels = (uint64_t)map.rows * map.cols;
	photons = calloc(pixels + 1, sizeof(*photons));
	bin = calloc(pixels + 1, sizeof(*bin));
	WANT(photons != NULL && bin != NULL);
	for (uint64_t i = 0; i < pixels; i++) {
		photons[i] = photons_of(data[i % size]);
		bin[i] = GK_PEAK_MASKED;
	}
	map.bin = bin;
	map.panel = panel;
	map.nb_panels = place_panels(&h, &map, panel, bin);
	for (uint64_t i = 0; i < pixels && h.masks % 4 != 0; i += h.masks)
		bin[i] |= GK_PEAK_MASKED;
	ret = gk_peak_map_check(&map, why, sizeof(why));
	WANT(ret == 0 || (ret == -EINVAL && why[0] != '\0'));
	if (ret == 0 && gk_peak_params_check(&h.params, why, sizeof(why)) == 0)
		search(&map, &h.params, photons);
	free(photons);
	free(bin);
	return 0;
}
