/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gangs on one core that search none to all of their frames for peaks, compared with the same gangs
 * without this stage. Frames have bright spots, which are the peaks. None is kept.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_rows.h"
#include "gk_bench.h"

/* Percent of the frames; WITHOUT: the gang has no map of pixels, and so no such stage. */
static const int shares[] = {-1, 0, 10, 100};
#define WAYS	(sizeof(shares) / sizeof(shares[0]))
#define WITHOUT 0

static const struct gk_peak_params params = {.threshold = STRONG_THRESHOLD,
	.min_snr = 5,
	.min_pixels = 2,
	.max_pixels = 200,
	.bg_radius = 3,
	.saturated = 1};

/* The gangs of an instruction set. */
struct search_set {
	struct bench_set gang[WAYS];
	double ms[WAYS][REPEATS_MAX]; /* of a frame */
};

static int
by_count(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? 1 : x > y ? -1 : 0;
}

/* Number of strong pixels that this share of the frames has. */
static uint32_t
strong_of(const struct bench *b, int percent, uint32_t *nb_searched)
{
	uint32_t count[64], n = (b->frames * (uint32_t)percent + 50) / 100;

	n = percent > 0 && n == 0 ? 1 : n;
	for (uint32_t f = 0; f < b->frames; f++)
		count[f] = b->config.results[f].strong_count;
	qsort(count, b->frames, sizeof(count[0]), by_count);
	*nb_searched = n;
	return n > 0 ? count[n - 1] : UINT32_MAX;
}

static int
open_gang(const struct bench *b, struct bench_set *s, enum gk_isa isa,
	const struct gk_peak_map *map, uint32_t strong_min)
{
	struct gk_channel *channel = bench_need(sizeof(*channel));
	int ret;

	*s = (struct bench_set){.isa = isa, .config = b->config};
	s->config.channel = channel;
	s->config.isa = isa;
	s->config.value = GK_VALUE_F32;
	for (int i = 0; i < 3; i++) {
		channel->coef[0].p[i] = (uintptr_t)b->p[i];
		channel->coef[0].r[i] = (uintptr_t)b->r[i];
	}
	channel->params[0] = (struct gk_params){.kind = GK_KIND_CSR,
		.strong_threshold = STRONG_THRESHOLD,
		.csr_threshold = CSR_THRESHOLD,
		.strong_min = strong_min,
		.strong_max = UINT32_MAX,
		.peaks_min = UINT32_MAX, /* no frame is kept */
		.peaks_max = UINT32_MAX,
		.search = map != NULL ? GK_SEARCH_STRONG : GK_SEARCH_NONE,
		.nnz_max = b->config.layout.nnz_cap};
	if (map != NULL) {
		channel->peak[0] = params;
		channel->pixels.bin = (uintptr_t)map->bin;
		channel->pixels.panel = (uintptr_t)map->panel;
		channel->pixels.nb_panels = map->nb_panels;
		channel->pixels.nb_bins = GK_PEAK_BINS_MAX;
		gk_layout_add_peaks(&s->config.layout, GK_PEAKS_MAX);
	}
	gk_ring_init(&s->ring, channel, 0);
	ret = gk_host_ops.create(&s->config, &s->gk);
	if (ret == 0)
		ret = gk_host_ops.start(s->gk);
	if (ret != 0)
		fprintf(stderr, "gk_bench: the host gangs cannot be made: %s\n", gk_host_ops.why());
	else
		bench_play(b, s, BATCH_MAX); /* warm-up */
	return ret;
}

static void
close_gang(struct bench_set *s)
{
	if (s->gk != NULL) {
		gk_host_ops.stop(s->gk);
		gk_host_ops.destroy(s->gk);
	}
	free(s->config.channel);
}

static void
report(const struct search_set *s, unsigned int way, uint32_t rounds, uint32_t frames,
	uint32_t searched)
{
	const enum gk_isa isa = s->gang[way].isa;
	const double ms = bench_median(s->ms[way], rounds);
	const double without = bench_median(s->ms[WITHOUT], rounds);
	const double ratio = bench_median_ratio(s->ms[WITHOUT], s->ms[way], rounds);
	const double more = searched > 0 ? (ms - without) * frames / searched : 0;
	char what[64], notes[64];

	printf("%-28s %-7s %8u %10.2f %10.1f %10.2f %8.2f %10.2f\n",
		way == WITHOUT ? "count, no stage" : "count, search", gk_isa_name(isa), searched,
		ms, 1e3 / ms, without, ratio, more);
	if (way == WITHOUT || isa != (enum gk_isa)gk_isa_choose(GK_ISA_AUTO))
		return;
	snprintf(what, sizeof(what), "count, peaks of %d %% of the frames", shares[way]);
	snprintf(notes, sizeof(notes), "%s, batches of %d; %.2f ms for a search", gk_isa_name(isa),
		BATCH_MAX, more);
	bench_row(&(struct bench_row){.stage = "gang",
		.what = what,
		.value = 1e3 / ms,
		.unit = "frames/s",
		.against = "the same gang without the stage",
		.other = 1e3 / without,
		.ratio = ratio,
		.notes = notes});
}

int
search_rows(struct bench *b)
{
	static struct search_set sets[GK_ISAS];
	static _Alignas(64) struct gk_peak_panel panel[32];
	uint16_t *bin = bench_need(gk_pixels(&b->config.geometry) * sizeof(*bin));
	const struct gk_peak_map map = bench_map(b->modules, bin, panel);
	uint32_t searched[WAYS] = {0}, rounds = 0;
	double end;
	int ret = 0;

	bench_bright(b, true);
	/* two gangs of a set read all that others write: the first, without the stage, counts */
	for (uint32_t i = 0; i < b->nb_sets && ret == 0; i++)
		for (unsigned int way = 0; way < WAYS && ret == 0; way++)
			ret = open_gang(b, &sets[i].gang[way], b->set[i].isa,
				way == WITHOUT ? NULL : &map,
				way == WITHOUT ? UINT32_MAX
					       : strong_of(b, shares[way], &searched[way]));
	end = seconds() + b->seconds * WAYS;
	while (ret == 0 && rounds < b->repeats && (rounds < 3 || seconds() < end)) {
		for (uint32_t i = 0; i < b->nb_sets; i++)
			for (unsigned int way = 0; way < WAYS; way++)
				sets[i].ms[way][rounds] = 1e3 / b->frames *
					bench_play(b, &sets[i].gang[way], BATCH_MAX);
		rounds++;
	}
	if (ret == 0)
		printf("\ngangs that search frames for peaks, %u modules, %u frames\n"
		       "%-28s %-7s %8s %10s %10s %10s %8s %10s\n",
			b->modules, b->frames, "what", "isa", "searched", "ms/frame", "frames/s",
			"none, ms", "of none", "ms/search");
	for (uint32_t i = 0; i < b->nb_sets; i++) {
		for (unsigned int way = 0; way < WAYS; way++) {
			if (ret == 0)
				report(&sets[i], way, rounds, b->frames, searched[way]);
			close_gang(&sets[i].gang[way]);
		}
	}
	free(bin);
	return ret;
}
