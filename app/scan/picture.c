/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "escaped_text.h"
#include "io/own_file.h"
#include "picture/figure.h"
#include "scan/dead_pixels.h"
#include "scan/geometry.h"
#include "scan/images.h"
#include "peak_lists.h"
#include "picture.h"

/* Location of an image. */
struct place {
	size_t set;
	size_t batch;
	uint64_t row;
};

/* Collects all kept frames: their maximum, and the location of the requested one. */
struct collection {
	float *plane;
	float *maximum;
	uint16_t *words;
	struct place shown;
	uint64_t shown_frame;
	uint32_t shown_count;
	uint64_t images;  /* included in the maximum */
	uint64_t damaged; /* damaged rows */
	bool found;
	bool raw;    /* the maximum is that of raw frames */
	bool sparse; /* there are sparse frames */
	bool shown_raw;
};

static uint32_t
strong_count_of(const struct scan_run *run, uint64_t frame)
{
	const struct scan_frame *f = scan_run_find(run, frame);

	return f != NULL ? f->strong_count : 0;
}

static void
collect_row(const struct scan_run *run, const struct scan_images *b, struct place at,
	uint64_t wanted, bool want_raw, struct collection *all)
{
	const uint64_t pixels = (uint64_t)run->rows * run->cols;
	const uint64_t frame = ((const uint64_t *)b->frame.data)[at.row];
	const bool raw = ((const uint8_t *)b->kind.data)[at.row] == GK_KIND_RAW;
	uint32_t count;
	uint64_t i;

	if (raw != want_raw && frame != wanted)
		return;
	if (scan_images_expand(run, b, at.row, all->plane, all->words) < 0) {
		all->damaged++;
		return;
	}
	all->sparse |= ((const uint8_t *)b->kind.data)[at.row] == GK_KIND_CSR;
	if (raw == want_raw) {
		for (i = 0; i < pixels; i++) {
			if (!(all->maximum[i] >= all->plane[i]) && all->plane[i] == all->plane[i])
				all->maximum[i] = all->plane[i];
		}
		all->images++;
	}
	count = strong_count_of(run, frame);
	if (wanted == PICTURE_BEST_FRAME ? !all->found || count > all->shown_count
					 : frame == wanted) {
		all->found = true;
		all->shown = at;
		all->shown_raw = raw;
		all->shown_frame = frame;
		all->shown_count = count;
	}
}

static const struct arrow_reader *
images_of(const struct scan_run *run, size_t set)
{
	return &run->set[set].file[ARROW_IMAGES].reader;
}

static void
collect(const struct scan_run *run, uint64_t wanted, bool want_raw, struct collection *all)
{
	const struct arrow_reader *r;
	struct scan_images b;
	struct place at;
	uint64_t i;

	all->raw = want_raw;
	for (i = 0; i < (uint64_t)run->rows * run->cols; i++)
		all->maximum[i] = NAN;
	for (at.set = 0; at.set < run->nb_sets; at.set++) {
		/* a file that does not exist has no batches */
		r = images_of(run, at.set);
		for (at.batch = 0; at.batch < r->nb_batches; at.batch++) {
			if (scan_images_open(r, at.batch, &b) < 0) {
				all->damaged += r->batches[at.batch].rows;
				continue;
			}
			for (at.row = 0; at.row < r->batches[at.batch].rows; at.row++)
				collect_row(run, &b, at, wanted, want_raw, all);
		}
	}
}

/* Mark the peaks of the shown frame. @return their number; -EBADMSG, -ENOENT: no list */
static int64_t
mark_peaks(const struct scan_run *run, const struct collection *all, struct figure *f)
{
	struct peak_lists lists;
	struct peak_list list;
	int ret;

	ret = peak_lists_open(images_of(run, all->shown.set), all->shown.batch, &lists);
	if (ret == 0)
		ret = peak_lists_row(&lists, all->shown.row, &list);
	if (ret != 0)
		return ret;
	for (uint64_t i = 0; i < list.nb; i++)
		figure_mark(f, 1, (double)list.ss[i], (double)list.fs[i]);
	return (int64_t)list.nb;
}

static const char *
unit_of(bool raw)
{
	return raw ? "ADC units, gain bits included" : "photons";
}

static int
draw(const struct scan_run *run, const struct collection *all, const struct panels *panels,
	bool peaks, struct figure *f)
{
	const struct scan_frame *shown = scan_run_find(run, all->shown_frame);
	char text[NAME_MAX + 128];
	float *cells = malloc(panels_cells(panels) * sizeof(*cells));

	if (cells == NULL)
		return -ENOMEM;
	panels_shrink(panels, all->maximum, cells);
	snprintf(text, sizeof(text), "%s: maximum of %" PRIu64 " kept frames", run->name,
		all->images);
	figure_draw(f, 0, text, unit_of(all->raw), cells);
	panels_shrink(panels, all->plane, cells);
	snprintf(text, sizeof(text), "frame %" PRIu64 ", strong pixel count %u", all->shown_frame,
		all->shown_count);
	if (shown != NULL && shown->peaks != FRAME_NO_SEARCH)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), ", %u peaks",
			shown->peaks);
	if (shown != NULL && shown->missing > 0)
		snprintf(text + strlen(text), sizeof(text) - strlen(text),
			", %u of %u packets missing", shown->missing, shown->expected);
	figure_draw(f, 1, text, unit_of(all->shown_raw), cells);
	if (peaks && mark_peaks(run, all, f) < 0)
		escaped_line(stderr,
			"braggline-scan: run %s has no list of peaks of frame %" PRIu64
			"; none are drawn",
			run->name, all->shown_frame);
	free(cells);
	return 0;
}

/* @return 0 or -errno */
static int
save(const struct scan_run *run, const struct collection *all, bool peaks, enum drawing_kind kind,
	const char *path)
{
	struct geometry *g = scan_geometry(run);
	struct figure *f = NULL;
	struct panels panels;
	int ret;

	ret = panels_init(&panels, run->rows, run->cols, g);
	free(g);
	if (ret == 0)
		ret = figure_create(&f, kind, &panels, 2, peaks);
	if (ret == 0)
		ret = draw(run, all, &panels, peaks, f);
	if (ret == 0)
		ret = figure_save(f, path, DRAWING_SMALL);
	figure_free(f);
	panels_free(&panels);
	return ret;
}

/*
 * Mark the pixels that the calibration masks, which sparse frames do not have. In images of photons
 * they are marked already, and raw frames have words there.
 */
static int
mask_sparse(const struct scan_run *run, const struct scan_images *b, const char *calibration,
	struct collection *all)
{
	const uint64_t pixels = (uint64_t)run->rows * run->cols;
	uint32_t *mask = calloc(pixels, sizeof(*mask));
	const char *why = "not enough memory";
	char path[PATH_MAX];
	int ret;

	snprintf(path, sizeof(path), "%s", calibration != NULL ? calibration : "");
	ret = mask != NULL ? dead_pixels_read(run, path, mask, &why) : -ENOMEM;
	if (ret < 0)
		escaped_line(stderr, "braggline-scan: run %s: masked pixels are not shown: %s: %s",
			run->name, path, why);
	for (uint64_t i = 0; ret == 0 && i < pixels; i++) {
		if (mask[i] == 0)
			continue;
		if (!all->raw)
			all->maximum[i] = NAN;
		if (((const uint8_t *)b->kind.data)[all->shown.row] == GK_KIND_CSR)
			all->plane[i] = NAN;
	}
	free(mask);
	/* a file that was not named is no condition for a picture */
	return calibration != NULL ? ret : 0;
}

int
picture_save(const struct scan_run *run, uint64_t frame, bool peaks, const char *calibration,
	const char *path)
{
	const uint64_t pixels = (uint64_t)run->rows * run->cols;
	struct collection all = {0};
	struct scan_images b;
	enum drawing_kind kind;
	int ret = -ENOMEM;

	all.plane = malloc(pixels * sizeof(*all.plane));
	all.maximum = malloc(pixels * sizeof(*all.maximum));
	all.words = malloc(pixels * sizeof(*all.words));
	if (all.plane == NULL || all.maximum == NULL || all.words == NULL)
		goto out;
	collect(run, frame, false, &all);
	if (all.images == 0)
		collect(run, frame, true, &all);
	if (all.damaged > 0)
		escaped_line(stderr,
			"braggline-scan: run %s: %" PRIu64 " images are damaged and left out",
			run->name, all.damaged);
	ret = -EINVAL;
	if (!all.found) {
		if (frame == PICTURE_BEST_FRAME)
			escaped_line(stderr,
				"braggline-scan: run %s has no kept frame; %s not written",
				run->name, path);
		else
			escaped_line(stderr,
				"braggline-scan: run %s has no image of frame %" PRIu64, run->name,
				frame);
		goto out;
	}
	if (scan_images_open(images_of(run, all.shown.set), all.shown.batch, &b) < 0 ||
		scan_images_expand(run, &b, all.shown.row, all.plane, all.words) < 0)
		goto out;
	if (all.sparse || calibration != NULL) {
		ret = mask_sparse(run, &b, calibration, &all);
		if (ret < 0)
			goto out;
	}
	ret = drawing_kind_of(path, &kind);
	if (ret == 0)
		ret = save(run, &all, peaks, kind, path);
	if (ret < 0)
		escaped_line(
			stderr, "braggline-scan: cannot write %s: %s", path, own_file_error(ret));
out:
	free(all.plane);
	free(all.maximum);
	free(all.words);
	return ret;
}
