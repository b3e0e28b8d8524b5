/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/reconcile.h"
#include "stream/copy.h"
#include "stream/source.h"

#define NONE UINT64_MAX

/* A planned truncation of a file. */
struct cut {
	size_t file;
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
		stream_known_free(&r->stream[i].known);
		interval_set_free(&r->stream[i].all);
	}
	free(r->stream);
	r->stream = NULL;
	r->nb = 0;
}

static bool
is_same(const struct arrow_identity *a, const struct arrow_identity *b)
{
	return a->receiver_id == b->receiver_id && a->run == b->run &&
		a->incarnation == b->incarnation && strcmp(a->table, b->table) == 0;
}

static struct reconcile_stream *
find_stream(struct reconcile *r, const struct arrow_identity *identity)
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
	struct interval_set *have)
{
	struct reconcile_stream *s;

	if (have->nb == 0)
		return 0;
	s = find_stream(r, identity);
	if (s == NULL || interval_set_add_all(&s->all, have) < 0)
		return -ENOMEM;
	return stream_known_add(&s->known, path, have, false);
}

int
reconcile_read(struct reconcile *r, const char *path)
{
	struct arrow_identity identity = {0};
	struct interval_set have = {0};
	char message[PATH_MAX];
	struct stream_source s;
	int rc;

	rc = stream_source_open(&s, r->io, path, message);
	if (rc < 0) {
		say(r, true, "%s", message);
		return rc;
	}
	rc = stream_source_list(&s.reader, &identity, &have);
	stream_source_close(&s);
	if (rc == 0)
		rc = reconcile_add(r, path, &identity, &have);
	if (rc < 0)
		say(r, true, "%s: %s", path,
			rc == -EXDEV ? "batches of no stream, or of several streams"
				     : strerror(-rc));
	interval_set_free(&have);
	return rc;
}

uint64_t
reconcile_duplicates(const struct reconcile_stream *s)
{
	uint64_t copies = 0;
	size_t i;

	for (i = 0; i < s->known.nb; i++)
		copies += interval_set_count(&s->known.file[i].have);
	return copies - interval_set_count(&s->all);
}

/* Find the first batch of a file that another file also has. @return NONE: there is none */
static uint64_t
first_double(const struct stream_known *k, size_t file)
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

/* Compute which batches are removed if the file is truncated at its first duplicate. */
static int
plan_cut(const struct stream_known *k, size_t file, struct cut *c)
{
	*c = (struct cut){.file = file, .from = first_double(k, file)};
	if (c->from == NONE)
		return 0;
	return stream_known_alone(k, file, c->from, &c->alone, &c->gone);
}

/*
 * Choose the truncation that copies the fewest batches; of several, the one that removes the fewest
 * batches.
 * @return 1: found; 0: there are no duplicates; -ENOMEM
 */
static int
choose_cut(const struct stream_known *k, struct cut *best)
{
	uint64_t alone, least = 0;
	struct cut c;
	size_t i;
	int rc;

	*best = (struct cut){.from = NONE};
	for (i = 0; i < k->nb; i++) {
		rc = plan_cut(k, i, &c);
		if (rc < 0) {
			interval_set_free(&best->alone);
			interval_set_free(&c.alone);
			return rc;
		}
		alone = interval_set_count(&c.alone);
		if (c.from == NONE ||
			(best->from != NONE &&
				(alone > least || (alone == least && c.gone >= best->gone)))) {
			interval_set_free(&c.alone);
			continue;
		}
		interval_set_free(&best->alone);
		*best = c;
		least = alone;
	}
	return best->from != NONE;
}

/* Check that all files with duplicates are intact: the remaining copy will be the only one. */
static int
check_files(const struct reconcile *r, const struct stream_known *k)
{
	char message[PATH_MAX];
	struct stream_source s;
	const char *why;
	size_t i;
	int rc, worst = 0;

	for (i = 0; i < k->nb; i++) {
		if (first_double(k, i) == NONE)
			continue;
		rc = stream_source_open(&s, r->io, k->file[i].path, message);
		if (rc < 0) {
			say(r, true, "%s", message);
			return rc;
		}
		why = stream_source_fault(&s);
		stream_source_close(&s);
		if (why == NULL)
			continue;
		say(r, true, "%s: %s: nothing of its stream is cut off", k->file[i].path, why);
		worst = -EBADMSG;
	}
	return worst;
}

/* Dry run: remove the batches from the lists only. */
static int
forget(struct stream_known *k, const struct cut *c)
{
	return interval_set_remove(&k->file[c->file].have, c->from, UINT64_MAX - 1);
}

static int
work_cut(struct reconcile *r, struct reconcile_stream *stream, struct cut *c)
{
	struct stream_known *k = &stream->known;
	const uint64_t alone = interval_set_count(&c->alone);
	char message[PATH_MAX], copy[PATH_MAX];
	uint64_t cut = 0;
	int rc = 0;

	copy[0] = '\0';
	say(r, false,
		"%s: %s at batch %" PRIu64 ": %" PRIu64 " batches, %" PRIu64 " of them copied",
		k->file[c->file].path, r->dry_run ? "would be cut off" : "cut off", c->from,
		c->gone, alone);
	if (alone > 0 && !r->dry_run) {
		rc = stream_copy(r->io, &r->slices, &stream->identity, k->file[c->file].path,
			&c->alone, stream_known_number(k), copy, message);
		if (rc < 0)
			say(r, true, "%s", message);
	}
	if (rc == 0 && r->dry_run)
		rc = forget(k, c);
	else if (rc == 0) {
		rc = stream_known_cut_file(k, r->io, &k->file[c->file], c->from, &cut, message);
		if (rc < 0)
			say(r, true, "%s", message);
	}
	/* add the copy to the files of the stream */
	if (rc == 0 && copy[0] != '\0')
		rc = stream_known_add(k, copy, &c->alone, false);
	if (rc == 0) {
		r->cut += c->gone;
		r->copied += alone;
		r->files++;
	}
	return rc;
}

static int
reconcile_stream(struct reconcile *r, struct reconcile_stream *stream)
{
	const uint64_t duplicates = reconcile_duplicates(stream);
	struct cut c;
	int rc;

	r->batches += interval_set_count(&stream->all);
	r->duplicates += duplicates;
	if (duplicates == 0)
		return 0;
	rc = check_files(r, &stream->known);
	if (rc < 0)
		return rc;
	while ((rc = choose_cut(&stream->known, &c)) > 0) {
		rc = work_cut(r, stream, &c);
		interval_set_free(&c.alone);
		if (rc < 0)
			break;
	}
	return rc;
}

int
reconcile_run(struct reconcile *r)
{
	size_t i;
	int first = 0;

	for (i = 0; i < r->nb; i++) {
		r->stream[i].result = reconcile_stream(r, &r->stream[i]);
		if (first == 0)
			first = r->stream[i].result;
	}
	return first;
}

int
reconcile_check(struct reconcile *r, struct reconcile_stream *stream,
	const struct interval_set *held, struct interval_set *sound, uint64_t *rotten)
{
	struct stream_checked checked = {0};
	char message[PATH_MAX];
	size_t i, k;
	int rc;

	rc = stream_known_check(
		&stream->known, r->io, &stream->identity, held, false, &checked, message);
	if (rc < 0)
		say(r, true, "%s", message);
	*rotten = interval_set_count(&checked.rotten);
	for (i = 0; i < checked.rotten.nb; i++)
		say(r, true,
			"%s of run %016" PRIx64 ": batches %" PRIu64 " to %" PRIu64 " are "
			"damaged in their file and stay in the journal; run braggline-store "
			"import",
			stream->identity.table, stream->identity.run, checked.rotten.at[i].first,
			checked.rotten.at[i].last);
	interval_set_free(&checked.rotten);
	for (i = 0; i < stream->known.nb && rc == 0; i++) {
		const struct interval_set *have = &stream->known.file[i].have;

		for (k = 0; k < held->nb && rc == 0; k++)
			rc = interval_set_add_common(
				sound, have, held->at[k].first, held->at[k].last);
	}
	return rc;
}
