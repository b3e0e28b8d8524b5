/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/reconcile.h"
#include "stream/copy.h"
#include "stream/ended.h"
#include "stream/source.h"

#define NONE UINT64_MAX

/* A planned truncation of a file. */
struct cut {
	size_t file;
	bool ended;		   /* the directory of the file had the mark of an ended run */
	uint64_t from;		   /* sequence number of the first batch to remove */
	uint64_t gone;		   /* number of batches to remove */
	struct interval_set alone; /* batches to remove that no other file has */
};

__attribute__((format(printf, 3, 4))) static void
say(const struct reconcile *r, bool error, const char *format, ...)
{
	char text[3 * PATH_MAX];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	r->say(r->arg, error, text);
}

void
reconcile_free(struct reconcile *r)
{
	size_t i;

	for (i = 0; i < r->nb; i++) {
		closed_files_free(&r->stream[i].files);
		interval_set_free(&r->stream[i].all);
	}
	free(r->stream);
	r->stream = NULL;
	r->nb = 0;
	for (i = 0; i < r->nb_marks; i++)
		free(r->mark[i].dir);
	free(r->mark);
	r->mark = NULL;
	r->nb_marks = 0;
}

static bool
is_same(const struct arrow_identity *a, const struct arrow_identity *b)
{
	return arrow_same_run(a, b) && strcmp(a->table, b->table) == 0;
}

struct reconcile_stream *
reconcile_stream_of(struct reconcile *r, const struct arrow_identity *identity)
{
	struct reconcile_stream *more;
	size_t i;

	for (i = 0; i < r->nb; i++) {
		if (is_same(&r->stream[i].identity, identity))
			return &r->stream[i];
	}
	more = realloc(r->stream, (r->nb + 1) * sizeof(*more));
	if (more == NULL)
		return NULL;
	r->stream = more;
	more[r->nb] = (struct reconcile_stream){.identity = *identity};
	return &more[r->nb++];
}

int
reconcile_add(struct reconcile *r, const char *path, const struct arrow_identity *identity,
	struct interval_set *have, struct stream_contents *contents)
{
	char run[XFER_NAME_BYTES];
	struct reconcile_stream *s;

	if (have->nb == 0)
		return 0;
	s = reconcile_stream_of(r, identity);
	if (s == NULL || interval_set_add_all(&s->all, have) < 0)
		return -ENOMEM;
	if (s->run[0] == '\0' && stream_source_run(path, run) == 0)
		memcpy(s->run, run, sizeof(run));
	return closed_files_add(&s->files, path, have, contents, false);
}

/* Get the directory of a path. @return its length in `path`; 0: the current one */
static size_t
dir_size(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash - path : 0;
}

static int
add_mark(struct reconcile *r, const char *path, uint64_t incarnation, bool found)
{
	struct reconcile_mark *more = realloc(r->mark, (r->nb_marks + 1) * sizeof(*more));
	char *dir = strndup(path, dir_size(path));

	if (more != NULL)
		r->mark = more;
	if (more == NULL || dir == NULL) {
		free(dir);
		return -ENOMEM;
	}
	more[r->nb_marks++] = (struct reconcile_mark){dir, incarnation, found};
	return 0;
}

int
reconcile_add_mark(struct reconcile *r, const char *path)
{
	const char *name = path + dir_size(path) + (strchr(path, '/') != NULL);
	const char *number = name + strlen(STORE_ENDED);
	char *end;
	uint64_t incarnation;

	if (strncmp(name, STORE_ENDED, strlen(STORE_ENDED)) != 0)
		return -EINVAL;
	incarnation = strtoull(number, &end, 16);
	/* a store does not find such a mark either */
	if (strspn(number, "0123456789abcdef") != 16 || *end != '\0')
		return 0;
	return add_mark(r, path, incarnation, true);
}

int
reconcile_read(struct reconcile *r, const char *path)
{
	struct arrow_identity identity = {0};
	struct stream_contents contents = {0};
	struct interval_set have = {0};
	char message[PATH_MAX];
	struct stream_source s;
	int ret;

	ret = stream_source_open(&s, r->io, path, message);
	if (ret < 0) {
		say(r, true, "%s", message);
		return ret;
	}
	ret = stream_source_list(&s.reader, &identity, &have, &contents);
	stream_source_close(&s);
	if (ret == 0)
		ret = reconcile_add(r, path, &identity, &have, &contents);
	if (ret < 0)
		say(r, true, "%s: %s", path,
			ret == -EXDEV ? "batches of no stream, or of several streams"
				      : strerror(-ret));
	interval_set_free(&have);
	stream_contents_free(&contents);
	return ret;
}

int
reconcile_report_names(const struct reconcile *r, const struct reconcile_stream *s)
{
	const struct arrow_identity *id = &s->identity;
	char run[XFER_NAME_BYTES];
	size_t i;
	int ret = 0;

	for (i = 0; i < s->files.nb; i++) {
		if (stream_source_run(s->files.file[i].path, run) < 0 || strcmp(run, s->run) == 0)
			continue;
		say(r, true,
			"receiver %" PRIu64 ", run %016" PRIx64 ", incarnation %016" PRIx64 " has "
			"two names: %s and %s; one of them is not its receiver's. Nothing of it is "
			"changed; move the files of the wrong name away",
			id->receiver_id, id->run, id->incarnation, s->files.file[0].path,
			s->files.file[i].path);
		ret = -ENOTUNIQ;
	}
	return ret;
}

uint64_t
reconcile_duplicates(const struct reconcile_stream *s)
{
	uint64_t copies = 0;
	size_t i;

	for (i = 0; i < s->files.nb; i++)
		copies += interval_set_count(&s->files.file[i].have);
	return copies - interval_set_count(&s->all);
}

/* Find the first batch of a file that another file also has. @return NONE: there is none */
static uint64_t
first_double(const struct closed_files *k, size_t file)
{
	uint64_t first = NONE, n;
	size_t i;

	for (i = 0; i < k->nb; i++) {
		if (i == file)
			continue;
		n = interval_set_first_common(&k->file[file].have, &k->file[i].have);
		if (n < first)
			first = n;
	}
	return first;
}

static bool
is_dir_of(const char *dir, const char *path)
{
	return strlen(dir) == dir_size(path) && strncmp(dir, path, dir_size(path)) == 0;
}

/* Find the mark of an ended run in the directory of a file. */
static const struct reconcile_mark *
mark_of(const struct reconcile *r, const struct arrow_identity *id, const char *path)
{
	size_t i;

	for (i = 0; i < r->nb_marks; i++) {
		if (r->mark[i].incarnation == id->incarnation && is_dir_of(r->mark[i].dir, path))
			return &r->mark[i];
	}
	return NULL;
}

/* Find a mark of a stream's run, in any directory. A directory's name ends in -RECEIVER_ID-RUN. */
static const struct reconcile_mark *
mark_of_run(const struct reconcile *r, const struct reconcile_stream *s)
{
	const struct arrow_identity *id = &s->identity;
	const struct reconcile_mark *mark;
	char end[64];
	size_t i, size, all;

	size = snprintf(end, sizeof(end), "-%016" PRIx64 "-%016" PRIx64, id->receiver_id, id->run);
	for (i = 0; i < r->nb_marks; i++) {
		all = strlen(r->mark[i].dir);
		if (r->mark[i].incarnation == id->incarnation && all >= size &&
			strcmp(r->mark[i].dir + all - size, end) == 0)
			return &r->mark[i];
	}
	for (i = 0; i < s->files.nb; i++) {
		mark = mark_of(r, id, s->files.file[i].path);
		if (mark != NULL)
			return mark;
	}
	return NULL;
}

/*
 * Mark the run as ended in all directories that have files of the stream, if it has ended in one:
 * the batches that stay there may be the only copies, and no peer may truncate them.
 */
static int
mark_all(struct reconcile *r, const struct reconcile_stream *s)
{
	const struct reconcile_mark *mark = mark_of_run(r, s);
	char from[PATH_MAX], dir[PATH_MAX];
	const char *path;
	size_t i;
	int ret = 0;

	if (mark == NULL)
		return 0;
	/* the list may move */
	snprintf(from, sizeof(from), "%s", mark->dir);
	for (i = 0; i < s->files.nb && ret == 0; i++) {
		path = s->files.file[i].path;
		if (mark_of(r, &s->identity, path) != NULL)
			continue;
		snprintf(dir, sizeof(dir), "%.*s", (int)dir_size(path), path);
		if (dir[0] == '\0')
			strcpy(dir, path[0] == '/' ? "/" : ".");
		if (!r->dry_run)
			ret = store_ended_write(dir, s->identity.incarnation);
		if (ret < 0)
			say(r, true, "%s: cannot mark its run as ended: %s", dir, strerror(-ret));
		else
			say(r, false, "%s: %s as ended, as in %s", dir,
				r->dry_run ? "its run would be marked" : "marked its run", from);
		if (ret == 0)
			ret = add_mark(r, path, s->identity.incarnation, false);
	}
	return ret;
}

/* Compute which batches are removed if the file is truncated at its first duplicate. */
static int
plan_cut(const struct reconcile *r, const struct reconcile_stream *s, size_t file, struct cut *c)
{
	const struct closed_files *k = &s->files;
	const struct reconcile_mark *mark = mark_of(r, &s->identity, k->file[file].path);

	*c = (struct cut){.file = file, .from = first_double(k, file)};
	c->ended = mark != NULL && mark->found;
	if (c->from == NONE)
		return 0;
	return closed_files_only_copies(k, file, c->from, &c->alone, &c->gone);
}

/* Whether a truncation is better than another one. */
static bool
is_better(const struct cut *c, const struct cut *than)
{
	const uint64_t alone = interval_set_count(&c->alone);
	const uint64_t least = interval_set_count(&than->alone);

	if (than->from == NONE)
		return true;
	if (c->ended != than->ended)
		return than->ended;
	return alone != least ? alone < least : c->gone < than->gone;
}

/*
 * Choose the truncation: of a file in a directory where the run has not ended, which copies the
 * fewest batches; of several, the one that removes the fewest batches.
 * @return 1: found; 0: there are no duplicates; -ENOMEM
 */
static int
choose_cut(const struct reconcile *r, const struct reconcile_stream *s, struct cut *best)
{
	struct cut c;
	size_t i;
	int ret;

	*best = (struct cut){.from = NONE};
	for (i = 0; i < s->files.nb; i++) {
		ret = plan_cut(r, s, i, &c);
		if (ret < 0) {
			interval_set_free(&best->alone);
			interval_set_free(&c.alone);
			return ret;
		}
		if (c.from == NONE || !is_better(&c, best)) {
			interval_set_free(&c.alone);
			continue;
		}
		interval_set_free(&best->alone);
		*best = c;
	}
	return best->from != NONE;
}

/* Check that all files with duplicates are intact: the remaining copy will be the only one. */
static int
check_files(const struct reconcile *r, const struct closed_files *k)
{
	char message[PATH_MAX];
	struct stream_source s;
	const char *why;
	size_t i;
	int ret, worst = 0;

	for (i = 0; i < k->nb; i++) {
		if (first_double(k, i) == NONE)
			continue;
		ret = stream_source_open(&s, r->io, k->file[i].path, message);
		if (ret < 0) {
			say(r, true, "%s", message);
			return ret;
		}
		why = stream_source_fault(&s);
		stream_source_close(&s);
		if (why == NULL)
			continue;
		say(r, true, "%s: %s: nothing of its stream is truncated", k->file[i].path, why);
		worst = -EBADMSG;
	}
	return worst;
}

/* Dry run: remove the batches from the lists only. */
static int
forget(struct closed_files *k, const struct cut *c)
{
	return interval_set_remove(&k->file[c->file].have, c->from, UINT64_MAX - 1);
}

static int
work_cut(struct reconcile *r, struct reconcile_stream *stream, struct cut *c)
{
	struct closed_files *k = &stream->files;
	const uint64_t alone = interval_set_count(&c->alone);
	struct stream_contents contents = {0};
	char message[PATH_MAX], copy[PATH_MAX];
	uint64_t cut = 0;
	int ret = 0;

	copy[0] = '\0';
	say(r, false,
		"%s: %s at batch %" PRIu64 ": %" PRIu64 " batches, %" PRIu64 " of them copied",
		k->file[c->file].path, r->dry_run ? "would be truncated" : "truncated", c->from,
		c->gone, alone);
	if (alone > 0 && !r->dry_run) {
		ret = stream_copy(r->io, &r->slices, &stream->identity, k->file[c->file].path,
			&c->alone, closed_files_highest_number(k), copy, message);
		if (ret < 0)
			say(r, true, "%s", message);
	}
	if (ret == 0 && r->dry_run)
		ret = forget(k, c);
	else if (ret == 0) {
		ret = closed_files_cut_file(k, r->io, &k->file[c->file], c->from, &cut, message);
		if (ret < 0)
			say(r, true, "%s", message);
	}
	/* add the copy to the files of the stream */
	if (ret == 0 && copy[0] != '\0')
		ret = stream_contents_add_all(&contents, &k->file[c->file].contents);
	if (ret == 0 && copy[0] != '\0')
		ret = closed_files_add(k, copy, &c->alone, &contents, false);
	stream_contents_free(&contents);
	if (ret == 0) {
		r->cut += c->gone;
		r->copied += alone;
		r->files++;
	}
	return ret;
}

/* Whether the duplicates of a stream may be removed. */
static int
check_stream(struct reconcile *r, const struct reconcile_stream *stream)
{
	int ret = stream->kept ? -ENOTUNIQ : reconcile_report_names(r, stream);

	if (ret < 0 || reconcile_duplicates(stream) == 0)
		return ret;
	ret = closed_files_report_differing(&stream->files, r->io, r->say, r->arg);
	return ret == 0 ? check_files(r, &stream->files) : ret;
}

bool
reconcile_is_kept(void *arg, const struct arrow_identity *id)
{
	const struct reconcile *r = arg;
	bool found = false;
	size_t i;

	for (i = 0; i < r->nb; i++) {
		if (!arrow_same_run(&r->stream[i].identity, id))
			continue;
		found = true;
		if (r->stream[i].kept)
			return true;
	}
	/* files of the run may be in directories that were not named */
	return !found;
}

int
reconcile_inspect(struct reconcile *r)
{
	struct reconcile_stream *s;
	size_t i;
	int first = 0;

	for (i = 0; i < r->nb; i++) {
		s = &r->stream[i];
		r->batches += interval_set_count(&s->all);
		r->duplicates += reconcile_duplicates(s);
		s->result = check_stream(r, s);
		s->kept = s->result < 0;
		if (first == 0)
			first = s->result;
	}
	for (i = 0; i < r->nb; i++) {
		s = &r->stream[i];
		if (s->kept || !reconcile_is_kept(r, &s->identity))
			continue;
		s->kept = true;
		s->result = -ENOTUNIQ;
	}
	return first;
}

static int
reconcile_stream(struct reconcile *r, struct reconcile_stream *stream)
{
	struct cut c;
	int ret;

	if (reconcile_duplicates(stream) == 0)
		return 0;
	ret = mark_all(r, stream);
	if (ret < 0)
		return ret;
	while ((ret = choose_cut(r, stream, &c)) > 0) {
		ret = work_cut(r, stream, &c);
		interval_set_free(&c.alone);
		if (ret < 0)
			break;
	}
	return ret;
}

int
reconcile_run(struct reconcile *r)
{
	size_t i;
	int first = 0;

	for (i = 0; i < r->nb; i++) {
		if (!r->stream[i].kept)
			r->stream[i].result = reconcile_stream(r, &r->stream[i]);
		if (first == 0)
			first = r->stream[i].result;
	}
	return first;
}

int
reconcile_check(struct reconcile *r, struct reconcile_stream *stream,
	const struct interval_set *held, struct interval_set *sound, uint64_t *damaged)
{
	struct stream_checked checked = {0};
	char message[PATH_MAX];
	size_t i, k;
	int ret;

	ret = closed_files_check(
		&stream->files, r->io, &stream->identity, held, false, &checked, message);
	if (ret < 0)
		say(r, true, "%s", message);
	*damaged = interval_set_count(&checked.damaged);
	for (i = 0; i < checked.damaged.nb; i++)
		say(r, true,
			"%s of run %016" PRIx64 ": batches %" PRIu64 " to %" PRIu64 " are "
			"damaged in their file and stay in the journal; run braggline-store "
			"import",
			stream->identity.table, stream->identity.run, checked.damaged.at[i].first,
			checked.damaged.at[i].last);
	interval_set_free(&checked.damaged);
	for (i = 0; i < stream->files.nb && ret == 0; i++) {
		const struct interval_set *have = &stream->files.file[i].have;

		for (k = 0; k < held->nb && ret == 0; k++)
			ret = interval_set_add_common(
				sound, have, held->at[k].first, held->at[k].last);
	}
	return ret;
}
