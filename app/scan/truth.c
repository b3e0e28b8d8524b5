/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "escaped_text.h"
#include "io/own_file.h"
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
wrong_line(const char *path, unsigned int line, const char *what)
{
	escaped_line(stderr, "braggline-scan: %s:%u: %s", path, line, what);
	return -EINVAL;
}

/* Index of a name in a line of names, or -1. */
static int
find_name(const char *line, const char *name)
{
	const size_t len = strlen(name);
	int index = 0;

	for (;; index++, line++) {
		if (strncmp(line, name, len) == 0 && strchr(",\r\n", line[len]) != NULL)
			return index;
		line = strchr(line, ',');
		if (line == NULL)
			return -1;
	}
}

/* Reads the number in a column of a line. */
static bool
read_number(const char *line, int column, uint64_t *value)
{
	char *end;

	for (; column > 0; column--) {
		line = strchr(line, ',');
		if (line == NULL)
			return false;
		line++;
	}
	*value = strtoull(line, &end, 10);
	return end > line && strchr(",\r\n", *end) != NULL;
}

static int
truth_read(struct truth *t, const char *path)
{
	char *line = NULL;
	size_t room = 0;
	struct truth_row *more;
	unsigned int number = 1;
	uint64_t frame, hit;
	int frame_column, hit_column, ret = 0;
	FILE *f;

	f = own_file_read(path);
	if (f == NULL) {
		escaped_line(stderr, "braggline-scan: %s: %s", path, own_file_error(-errno));
		return -EINVAL;
	}
	if (getline(&line, &room, f) < 0) {
		ret = wrong_line(path, 1, "empty; expected a header line");
		goto out;
	}
	frame_column = find_name(line, "frame");
	hit_column = find_name(line, "hit");
	if (frame_column < 0 || hit_column < 0) {
		ret = wrong_line(path, 1, "expected a header line with the columns frame and hit");
		goto out;
	}
	while (getline(&line, &room, f) >= 0) {
		number++;
		if (line[strspn(line, " \r\n")] == '\0')
			continue;
		if (!read_number(line, frame_column, &frame) ||
			!read_number(line, hit_column, &hit) || hit > 1) {
			ret = wrong_line(
				path, number, "expected a frame number, and a hit of 0 or 1");
			goto out;
		}
		if ((t->nb & (t->nb - 1)) == 0) {
			more = realloc(t->row, (t->nb == 0 ? 1 : 2 * t->nb) * sizeof(*more));
			if (more == NULL) {
				ret = -ENOMEM;
				goto out;
			}
			t->row = more;
		}
		t->row[t->nb++] = (struct truth_row){frame, hit == 1};
	}
out:
	free(line);
	fclose(f);
	return ret;
}

static int
by_frame(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void
print_share(const char *name, uint64_t part, uint64_t whole, const char *of)
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
	print_share("recall", s.found, s.hits, "hits found");
	print_share("precision", s.found, s.called, "frames called hits are hits");
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
