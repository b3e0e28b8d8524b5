/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csv_file.h"
#include "escaped_text.h"
#include "peak_lists.h"
#include "report.h"
#include "spots.h"

struct spot {
	uint64_t frame;
	double fs, ss; /* 0 is the centre of the first pixel, as in the lists of peaks */
	double photons;
	bool found; /* by a peak, in this frame of the run */
};

/* A peak near a spot. */
struct pair {
	size_t spot, peak;
	double distance;
};

struct comparison {
	struct spot *spot; /* by frame */
	size_t nb_spots;
	struct pair *pair; /* room for those of a frame */
	size_t pairs_room;
	bool *taken; /* peaks of a frame that belong to a spot */
	size_t taken_room;
	double *error; /* of bright spots that were found, pixels */
	size_t nb_errors, errors_room;
	uint64_t frames, bright, peaks, right, damaged;
};

/*
 * Makes room for one more item. The size doubles. @return NULL: out of memory, the old room stays
 */
static void *
grow(void *items, size_t nb, size_t *room, size_t size)
{
	if (nb < *room)
		return items;
	items = realloc(items, (nb + 1) * 2 * size);
	if (items != NULL)
		*room = (nb + 1) * 2;
	return items;
}

static int
read_spots(struct comparison *c, const char *path)
{
	struct csv_file csv;
	struct spot s = {0}, *more;
	size_t room = 0;
	int frame, fs, ss, photons, ret;

	ret = csv_open(&csv, path);
	if (ret < 0)
		return ret;
	frame = csv_column(&csv, "frame");
	fs = csv_column(&csv, "fs");
	ss = csv_column(&csv, "ss");
	photons = csv_column(&csv, "photons");
	if (frame < 0 || fs < 0 || ss < 0 || photons < 0)
		ret = csv_wrong(
			&csv, "expected a header line with the columns frame, fs, ss and photons");
	while (ret == 0 && csv_next(&csv)) {
		if (!csv_whole(&csv, frame, &s.frame) || !csv_real(&csv, fs, &s.fs) ||
			!csv_real(&csv, ss, &s.ss) || !csv_real(&csv, photons, &s.photons)) {
			ret = csv_wrong(&csv,
				"expected a frame number, and numbers for fs, ss and "
				"photons");
			break;
		}
		s.fs -= 0.5;
		s.ss -= 0.5;
		more = grow(c->spot, c->nb_spots, &room, sizeof(*more));
		if (more == NULL) {
			ret = -ENOMEM;
			break;
		}
		c->spot = more;
		c->spot[c->nb_spots++] = s;
	}
	csv_close(&csv);
	return ret;
}

static int
by_frame(const void *a, const void *b)
{
	const struct spot *x = a, *y = b;

	return x->frame != y->frame ? (x->frame < y->frame ? -1 : 1) : 0;
}

static int
by_distance(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;

	if (x->distance != y->distance)
		return x->distance < y->distance ? -1 : 1;
	if (x->spot != y->spot)
		return x->spot < y->spot ? -1 : 1;
	return x->peak < y->peak ? -1 : x->peak > y->peak;
}

static int
by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* First spot of a frame, or of the next one. */
static size_t
first_spot(const struct comparison *c, uint64_t frame)
{
	size_t low = 0, high = c->nb_spots, mid;

	while (low < high) {
		mid = (low + high) / 2;
		if (c->spot[mid].frame < frame)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* List the peaks near spots. @return their number; -ENOMEM */
static int64_t
find_pairs(struct comparison *c, size_t first, size_t end, const struct peak_list *list)
{
	struct pair *more;
	size_t nb = 0;
	double x, y;

	for (size_t s = first; s < end; s++) {
		for (size_t p = 0; p < list->nb; p++) {
			x = (double)list->fs[p] - c->spot[s].fs;
			y = (double)list->ss[p] - c->spot[s].ss;
			/* this form of the comparison also rejects NaN */
			if (!(x * x + y * y <= SPOTS_REACH * SPOTS_REACH))
				continue;
			more = grow(c->pair, nb, &c->pairs_room, sizeof(*more));
			if (more == NULL)
				return -ENOMEM;
			c->pair = more;
			c->pair[nb++] = (struct pair){s, p, sqrt(x * x + y * y)};
		}
	}
	return (int64_t)nb;
}

/* The nearest spot and peak belong together, then the nearest of the others, and so on. */
static int
compare_frame(struct comparison *c, uint64_t frame, const struct peak_list *list)
{
	const size_t first = first_spot(c, frame);
	size_t end = first;
	double *more;
	bool *taken;
	int64_t nb;

	for (; end < c->nb_spots && c->spot[end].frame == frame; end++) {
		c->spot[end].found = false;
		c->bright += c->spot[end].photons >= SPOTS_BRIGHT;
	}
	nb = find_pairs(c, first, end, list);
	taken = grow(c->taken, list->nb, &c->taken_room, sizeof(*taken));
	if (nb < 0 || taken == NULL)
		return -ENOMEM;
	c->taken = taken;
	memset(taken, 0, list->nb * sizeof(*taken));
	if (nb > 0)
		qsort(c->pair, (size_t)nb, sizeof(*c->pair), by_distance);
	for (const struct pair *p = c->pair; p < c->pair + nb; p++) {
		if (c->spot[p->spot].found || taken[p->peak])
			continue;
		c->spot[p->spot].found = taken[p->peak] = true;
		c->right++;
		if (c->spot[p->spot].photons < SPOTS_BRIGHT)
			continue;
		more = grow(c->error, c->nb_errors, &c->errors_room, sizeof(*more));
		if (more == NULL)
			return -ENOMEM;
		c->error = more;
		c->error[c->nb_errors++] = p->distance;
	}
	c->frames++;
	c->peaks += list->nb;
	return 0;
}

static int
compare_batch(const struct scan_run *run, struct comparison *c, const struct arrow_reader *r,
	size_t batch)
{
	const int field = arrow_reader_find(r, "frame", ARROW_UINT64, 0);
	const struct scan_frame *f;
	struct arrow_column frames;
	struct peak_lists lists;
	struct peak_list list;
	int ret;

	ret = peak_lists_open(r, batch, &lists);
	if (ret == 0 && (field < 0 || arrow_reader_column(r, batch, field, &frames) < 0))
		ret = -EBADMSG;
	if (ret == -EBADMSG) {
		c->damaged += r->batches[batch].rows;
		return 0;
	}
	for (uint64_t row = 0; ret == 0 && row < r->batches[batch].rows; row++) {
		f = scan_run_find(run, ((const uint64_t *)frames.data)[row]);
		if (f == NULL || f->peaks == FRAME_NO_SEARCH)
			continue;
		if (peak_lists_row(&lists, row, &list) < 0)
			c->damaged++;
		else
			ret = compare_frame(c, f->frame, &list);
	}
	return ret;
}

static void
print_comparison(struct comparison *c)
{
	char of[64];

	if (c->nb_errors > 0)
		qsort(c->error, c->nb_errors, sizeof(*c->error), by_value);
	snprintf(of, sizeof(of), "spots of at least %g photons found", SPOTS_BRIGHT);
	report_share("peaks, recall", c->nb_errors, c->bright, of);
	report_share("peaks, precision", c->right, c->peaks, "peaks found are spots");
	if (c->nb_errors > 0)
		printf("  position error     %.2f pixels in the median, %.2f at most for 95 %%\n",
			c->error[c->nb_errors / 2], c->error[(c->nb_errors - 1) * 95 / 100]);
}

int
spots_compare(const struct scan_run *run, const char *path)
{
	struct comparison c = {0};
	const struct arrow_reader *r;
	int ret;

	ret = read_spots(&c, path);
	if (ret == 0 && c.nb_spots > 0)
		qsort(c.spot, c.nb_spots, sizeof(*c.spot), by_frame);
	for (size_t set = 0; ret == 0 && set < run->nb_sets; set++) {
		/* a file that does not exist has no batches */
		r = &run->set[set].file[ARROW_IMAGES].reader;
		for (size_t batch = 0; ret == 0 && batch < r->nb_batches; batch++)
			ret = compare_batch(run, &c, r, batch);
	}
	if (ret == -ENOENT || (ret == 0 && c.frames == 0)) {
		escaped_line(stderr,
			"braggline-scan: run %s has no kept frame whose peaks were searched; %s is "
			"not compared; set [peaks] of the receiver",
			run->name, path);
		ret = -EINVAL;
	} else if (ret == -ENOMEM) {
		fprintf(stderr, "braggline-scan: out of memory\n");
	} else if (ret == 0) {
		print_comparison(&c);
	}
	if (c.damaged > 0)
		escaped_line(stderr,
			"braggline-scan: run %s: lists of peaks of %" PRIu64
			" images are damaged and left out",
			run->name, c.damaged);
	free(c.spot);
	free(c.pair);
	free(c.taken);
	free(c.error);
	return ret;
}
