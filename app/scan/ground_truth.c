/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csv_file.h"
#include "escaped_text.h"
#include "report.h"

struct truth_row {
	uint64_t frame;
	bool hit;
};

struct truth {
	struct truth_row *row;
	size_t nb;
};

struct score {
	uint64_t hits;		/* frames with a pattern that the veto judged */
	uint64_t found;		/* those with the verdict hit */
	uint64_t called;	/* frames with the verdict hit */
	uint64_t unjudged_hits; /* frames with a pattern that were lost, refused or incomplete */
	uint64_t absent;	/* frames of the truth without a row in the run */
};

static int
truth_read(struct truth *t, const char *path)
{
	struct csv_file csv;
	struct truth_row *more;
	uint64_t frame, hit;
	int frame_column, hit_column, ret;

	ret = csv_open(&csv, path);
	if (ret < 0)
		return ret;
	frame_column = csv_column(&csv, "frame");
	hit_column = csv_column(&csv, "hit");
	if (frame_column < 0 || hit_column < 0)
		ret = csv_wrong(&csv, "expected a header line with the columns frame and hit");
	while (ret == 0 && csv_next(&csv)) {
		if (!csv_whole(&csv, frame_column, &frame) || !csv_whole(&csv, hit_column, &hit) ||
			hit > 1) {
			ret = csv_wrong(&csv, "expected a frame number, and a hit of 0 or 1");
			break;
		}
		if ((t->nb & (t->nb - 1)) == 0) {
			more = realloc(t->row, (t->nb == 0 ? 1 : 2 * t->nb) * sizeof(*more));
			if (more == NULL) {
				ret = -ENOMEM;
				break;
			}
			t->row = more;
		}
		t->row[t->nb++] = (struct truth_row){frame, hit == 1};
	}
	csv_close(&csv);
	return ret;
}

static int
by_frame(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

void
report_share(const char *name, uint64_t part, uint64_t whole, const char *of)
{
	printf("  %-18s ", name);
	if (whole == 0)
		printf("-        ");
	else
		printf("%6.2f %%  ", 100.0 * part / whole);
	printf("%" PRIu64 " of %" PRIu64 " %s\n", part, whole, of);
}

int
report_truth(const struct scan_run *run, const char *path)
{
	struct truth t = {0};
	struct score s = {0};
	const struct truth_row *row;
	const struct scan_frame *f;
	struct scan_frame *sorted;
	uint64_t unknown = 0;
	size_t i;
	int ret;

	ret = truth_read(&t, path);
	if (ret < 0)
		goto out;
	if (t.nb > 0)
		qsort(t.row, t.nb, sizeof(*t.row), by_frame);
	for (i = 0, f = run->frame; i < run->nb_frames; i++, f++) {
		row = t.nb ? bsearch(&f->frame, t.row, t.nb, sizeof(*t.row), by_frame) : NULL;
		if (row == NULL) {
			unknown++;
			continue;
		}
		if (!report_is_judged(f)) {
			s.unjudged_hits += row->hit;
			continue;
		}
		s.hits += row->hit;
		s.called += f->verdict == FRAME_HIT;
		s.found += row->hit && f->verdict == FRAME_HIT;
	}
	/* count frames of the truth that are not in the run */
	sorted = malloc((run->nb_frames + 1) * sizeof(*sorted));
	if (sorted == NULL) {
		ret = -ENOMEM;
		goto out;
	}
	if (run->nb_frames > 0) {
		memcpy(sorted, run->frame, run->nb_frames * sizeof(*sorted));
		qsort(sorted, run->nb_frames, sizeof(*sorted), by_frame);
	}
	for (i = 0; i < t.nb; i++)
		s.absent += bsearch(&t.row[i].frame, sorted, run->nb_frames, sizeof(*sorted),
				    by_frame) == NULL;
	free(sorted);

	escaped_line(stdout, "truth %s", path);
	report_share("recall", s.found, s.hits, "hits found");
	report_share("precision", s.found, s.called, "frames called hits are hits");
	if (s.unjudged_hits > 0)
		printf("  not judged         %" PRIu64 " hits are in lost, refused or incomplete "
		       "frames\n",
			s.unjudged_hits);
	if (s.absent > 0)
		printf("  not in the run     %" PRIu64 " frames are only in the truth\n", s.absent);
	if (unknown > 0)
		printf("  not in the truth   %" PRIu64 " frames are only in the run\n", unknown);
out:
	free(t.row);
	return ret;
}
