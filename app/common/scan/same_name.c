/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scan/same_name.h"

/* Frame numbers of a file. */
struct numbers {
	bool has_span;
	uint64_t low, high; /* low > high: none */
	uint64_t *frame;    /* in ascending order; NULL: not read */
	size_t nb;
};

static size_t
directory_length(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? (size_t)(slash - path) : 0;
}

static bool
in_one_directory(const char *a, const char *b)
{
	const size_t length = directory_length(a);

	return length == directory_length(b) && strncmp(a, b, length) == 0;
}

static bool
same_text(const char *a, const char *b)
{
	return a != NULL && b != NULL && strcmp(a, b) == 0;
}

/* Whether two files may be of different runs of one receiver. A file has one incarnation. */
static bool
may_differ(const struct scan_same_name_file *a, const struct scan_same_name_file *b)
{
	const struct arrow_read_batch *x = a->reader->batches, *y = b->reader->batches;

	return a->reader->nb_batches > 0 && b->reader->nb_batches > 0 && x->incarnation != NULL &&
		y->incarnation != NULL && strcmp(x->incarnation, y->incarnation) != 0 &&
		same_text(x->receiver_id, y->receiver_id) && !in_one_directory(a->path, b->path);
}

static int
by_number(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Find the lowest and the highest frame number of a file. */
static void
read_span(struct numbers *n, const struct arrow_reader *r)
{
	const int field = arrow_reader_find(r, "frame", ARROW_UINT64, 0);
	struct arrow_column column;
	uint64_t row, frame;
	size_t i;

	if (n->has_span)
		return;
	n->low = UINT64_MAX;
	for (i = 0; i < r->nb_batches && field >= 0; i++) {
		if (arrow_reader_column(r, i, field, &column) < 0)
			continue;
		for (row = 0; row < column.rows; row++) {
			frame = ((const uint64_t *)column.data)[row];
			n->low = frame < n->low ? frame : n->low;
			n->high = frame > n->high ? frame : n->high;
		}
	}
	n->has_span = true;
}

/*
 * Read the frame numbers of a file. Batches that are damaged have none, as has a file without this
 * column.
 * @return 0; -ENOMEM
 */
static int
read_numbers(struct numbers *n, const struct arrow_reader *r)
{
	const int field = arrow_reader_find(r, "frame", ARROW_UINT64, 0);
	struct arrow_column column;
	uint64_t rows = 0;
	size_t i;

	for (i = 0; i < r->nb_batches && field >= 0; i++)
		rows += arrow_reader_column(r, i, field, &column) == 0 ? column.rows : 0;
	n->frame = malloc((rows + 1) * sizeof(*n->frame));
	if (n->frame == NULL)
		return -ENOMEM;
	for (i = 0; i < r->nb_batches && field >= 0; i++) {
		if (arrow_reader_column(r, i, field, &column) < 0)
			continue;
		memcpy(n->frame + n->nb, column.data, column.rows * sizeof(*n->frame));
		n->nb += column.rows;
	}
	qsort(n->frame, n->nb, sizeof(*n->frame), by_number);
	return 0;
}

/* Find the lowest common number. @return false: none */
static bool
find_common(const struct numbers *a, const struct numbers *b, uint64_t *frame)
{
	size_t i = 0, k = 0;

	while (i < a->nb && k < b->nb && a->frame[i] != b->frame[k]) {
		if (a->frame[i] < b->frame[k])
			i++;
		else
			k++;
	}
	if (i == a->nb || k == b->nb)
		return false;
	*frame = a->frame[i];
	return true;
}

/* Compare two files. `n` has the numbers of files that were read before. */
static int
compare(const struct scan_same_name_file *file, struct numbers *n, size_t a, size_t b, char **text)
{
	uint64_t frame;

	if (!may_differ(&file[a], &file[b]))
		return 0;
	/* most files of one run are disjoint */
	read_span(&n[a], file[a].reader);
	read_span(&n[b], file[b].reader);
	if (n[a].high < n[b].low || n[b].high < n[a].low)
		return 0;
	if ((n[a].frame == NULL && read_numbers(&n[a], file[a].reader) < 0) ||
		(n[b].frame == NULL && read_numbers(&n[b], file[b].reader) < 0))
		return -ENOMEM;
	if (!find_common(&n[a], &n[b], &frame))
		return 0;
	if (asprintf(text,
		    "%s and %s may be different runs of the same name: they are of different "
		    "starts of the receiver, and both have frame %" PRIu64
		    "; give the directories of one run",
		    file[a].path, file[b].path, frame) < 0)
		return -ENOMEM;
	return 1;
}

int
scan_same_name_find(const struct scan_same_name_file *file, size_t nb, char **text)
{
	struct numbers *n = calloc(nb + 1, sizeof(*n));
	size_t a, b;
	int ret = n != NULL ? 0 : -ENOMEM;

	for (a = 0; a < nb && ret == 0; a++) {
		for (b = a + 1; b < nb && ret == 0; b++)
			ret = compare(file, n, a, b, text);
	}
	for (a = 0; a < nb && n != NULL; a++)
		free(n[a].frame);
	free(n);
	return ret;
}
