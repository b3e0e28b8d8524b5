/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "escaped_text.h"
#include "gk_abi.h"
#include "scan/images.h"
#include "selection.h"

/* By number, then by place: the sets of a run are in the order of time. */
static int
by_frame(const void *a, const void *b)
{
	const struct selection_row *x = a, *y = b;

	if (x->frame != y->frame)
		return x->frame < y->frame ? -1 : 1;
	if (x->set != y->set)
		return x->set < y->set ? -1 : 1;
	if (x->batch != y->batch)
		return x->batch < y->batch ? -1 : 1;
	return x->row < y->row ? -1 : x->row > y->row;
}

static bool
passes(const struct selection_filter *f, const struct selection_row *row, bool has_verdict)
{
	return row->frame >= f->first && row->frame <= f->last &&
		(!has_verdict || (f->verdicts >> row->verdict & 1) != 0);
}

int
selection_join(struct selection *s, const struct selection_filter *filter,
	struct selection_row *frames, size_t nb_frames, struct selection_row *images,
	size_t nb_images)
{
	size_t f = 0, i = 0;
	bool same;

	memset(s, 0, sizeof(*s));
	s->image = malloc((nb_images + 1) * sizeof(*s->image));
	if (s->image == NULL)
		return -ENOMEM;
	if (nb_frames > 0)
		qsort(frames, nb_frames, sizeof(*frames), by_frame);
	if (nb_images > 0)
		qsort(images, nb_images, sizeof(*images), by_frame);
	while (i < nb_images || f < nb_frames) {
		if (i == nb_images || (f < nb_frames && frames[f].frame < images[i].frame)) {
			s->lost += passes(filter, &frames[f], true);
			f++;
			continue;
		}
		same = f < nb_frames && frames[f].frame == images[i].frame;
		if (passes(filter, same ? &frames[f] : &images[i], same)) {
			s->image[s->nb].image = images[i];
			s->image[s->nb].info =
				same ? frames[f] : (struct selection_row){.set = SELECTION_NOWHERE};
			s->nb++;
			s->orphans += !same;
			if (images[i].kind < SELECTION_KINDS)
				s->kinds[images[i].kind]++;
		}
		f += same;
		i++;
	}
	return 0;
}

/* Batches by identity: a batch that two stores have is read once. */
struct source {
	const struct arrow_reader *reader;
	uint32_t set, batch;
	bool copy;
};

static int
compare_text(const char *a, const char *b)
{
	if (a == NULL || b == NULL)
		return (a != NULL) - (b != NULL);
	return strcmp(a, b);
}

static int
compare_identity(const struct source *a, const struct source *b)
{
	const struct arrow_read_batch *x = &a->reader->batches[a->batch];
	const struct arrow_read_batch *y = &b->reader->batches[b->batch];
	int ret = compare_text(x->receiver_id, y->receiver_id);

	if (ret == 0)
		ret = compare_text(x->run, y->run);
	if (ret == 0)
		ret = compare_text(x->incarnation, y->incarnation);
	return ret != 0 ? ret : compare_text(x->sequence, y->sequence);
}

static int
by_identity(const void *a, const void *b)
{
	const struct source *x = a, *y = b;
	const int ret = compare_identity(x, y);

	if (ret != 0)
		return ret;
	return x->set != y->set ? (x->set < y->set ? -1 : 1)
				: (x->batch < y->batch ? -1 : x->batch > y->batch);
}

/* Lists the batches of a table. @return their number, or -ENOMEM */
static ssize_t
list_batches(const struct scan_run *run, enum arrow_table table, struct source **list)
{
	const struct arrow_reader *r;
	size_t nb = 0, k, i;

	for (k = 0; k < run->nb_sets; k++)
		nb += run->set[k].file[table].reader.nb_batches;
	*list = calloc(nb + 1, sizeof(**list));
	if (*list == NULL)
		return -ENOMEM;
	nb = 0;
	for (k = 0; k < run->nb_sets; k++) {
		r = &run->set[k].file[table].reader;
		for (i = 0; i < r->nb_batches; i++)
			(*list)[nb++] = (struct source){.reader = r, .set = k, .batch = i};
	}
	qsort(*list, nb, sizeof(**list), by_identity);
	/* files of other programs have no identity, and no copies */
	for (i = 1; i < nb; i++)
		(*list)[i].copy = (*list)[i].reader->batches[(*list)[i].batch].sequence != NULL &&
			compare_identity(&(*list)[i - 1], &(*list)[i]) == 0;
	return nb;
}

/* Appends the rows of a batch that have an image. */
static int
read_batch(const struct source *from, enum arrow_table table, struct selection_row *row, size_t *nb)
{
	const struct arrow_reader *r = from->reader;
	struct arrow_column frame, kind, verdict = {0};
	int field[3];
	uint64_t i;

	field[0] = arrow_reader_find(r, "frame", ARROW_UINT64, 0);
	field[1] = arrow_reader_find(r, "kind", ARROW_UINT8, 0);
	field[2] = arrow_reader_find(r, "verdict", ARROW_UINT8, 0);
	if (field[0] < 0 || field[1] < 0 || (table == ARROW_FRAMES && field[2] < 0) ||
		arrow_reader_column(r, from->batch, field[0], &frame) < 0 ||
		arrow_reader_column(r, from->batch, field[1], &kind) < 0 ||
		(table == ARROW_FRAMES &&
			arrow_reader_column(r, from->batch, field[2], &verdict) < 0))
		return -EBADMSG;
	for (i = 0; i < r->batches[from->batch].rows; i++) {
		struct selection_row next = {
			.frame = ((const uint64_t *)frame.data)[i],
			.set = from->set,
			.batch = from->batch,
			.row = i,
			.kind = ((const uint8_t *)kind.data)[i],
		};

		if (table == ARROW_FRAMES) {
			next.verdict = ((const uint8_t *)verdict.data)[i];
			if (!frame_verdict_is_kept(next.verdict) || next.kind == GK_KIND_NONE)
				continue;
		}
		row[(*nb)++] = next;
	}
	return 0;
}

int
selection_append(struct selection_rows *rows, const struct scan_run *run, uint32_t set,
	enum arrow_table table, uint32_t batch)
{
	const struct arrow_reader *r = &run->set[set].file[table].reader;
	const struct source from = {.reader = r, .set = set, .batch = batch};
	const size_t most = rows->nb + r->batches[batch].rows;
	struct selection_row *row;
	size_t room;

	if (most > rows->room) {
		room = most > 2 * rows->room ? most : 2 * rows->room;
		row = realloc(rows->row, room * sizeof(*row));
		if (row == NULL)
			return -ENOMEM;
		rows->row = row;
		rows->room = room;
	}
	return read_batch(&from, table, rows->row, &rows->nb);
}

/* Reads the rows of a table that have an image. */
static int
read_table(const struct scan_run *run, enum arrow_table table, struct selection_row **rows,
	size_t *nb, uint64_t *copies)
{
	struct source *list = NULL;
	const ssize_t nb_batches = list_batches(run, table, &list);
	uint64_t most = 0;
	ssize_t i;
	int ret = nb_batches < 0 ? -ENOMEM : 0;

	for (i = 0; i < nb_batches; i++)
		most += list[i].reader->batches[list[i].batch].rows;
	*nb = 0;
	*rows = malloc((most + 1) * sizeof(**rows));
	if (*rows == NULL)
		ret = -ENOMEM;
	for (i = 0; ret == 0 && i < nb_batches; i++) {
		if (list[i].copy) {
			*copies += list[i].reader->batches[list[i].batch].rows;
			continue;
		}
		ret = read_batch(&list[i], table, *rows, nb);
		if (ret < 0)
			escaped_line(stderr,
				"%s: %s: record batch %u has a damaged column; run "
				"braggline-scan on the file",
				program_invocation_short_name,
				run->set[list[i].set].file[table].path, list[i].batch);
	}
	free(list);
	return ret;
}

int
selection_read(
	struct selection *s, const struct selection_filter *filter, const struct scan_run *run)
{
	struct selection_row *frames = NULL, *images = NULL;
	size_t nb_frames = 0, nb_images = 0;
	uint64_t copies = 0, ignored = 0;
	int ret;

	memset(s, 0, sizeof(*s));
	ret = read_table(run, ARROW_FRAMES, &frames, &nb_frames, &ignored);
	if (ret == 0)
		ret = read_table(run, ARROW_IMAGES, &images, &nb_images, &copies);
	if (ret == 0)
		ret = selection_join(s, filter, frames, nb_frames, images, nb_images);
	s->copies = copies;
	free(frames);
	free(images);
	return ret;
}

bool
selection_is_paired(const struct selection *s)
{
	bool paired = s->lost == 0 && s->orphans == 0;

	for (size_t i = 0; paired && i < s->nb; i++)
		paired = s->image[i].image.kind == s->image[i].info.kind;
	return paired;
}

void
selection_only(struct selection *s, uint32_t kinds)
{
	size_t i, nb = 0;

	for (i = 0; i < s->nb; i++) {
		if (s->image[i].image.kind < SELECTION_KINDS &&
			(kinds >> s->image[i].image.kind & 1) != 0)
			s->image[nb++] = s->image[i];
	}
	s->nb = nb;
}

void
selection_free(struct selection *s)
{
	free(s->image);
	memset(s, 0, sizeof(*s));
}
