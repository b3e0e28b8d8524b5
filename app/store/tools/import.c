/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "recovery/damage.h"
#include "recovery/recovery.h"
#include "arrow/tables.h"
#include "io/direct_io.h"
#include "fail_point.h"
#include "tools/import.h"
#include "io/own_file.h"
#include "stream/ended.h"
#include "stream/run_name.h"
#include "stream/source.h"

#define IMPORTED ".imported"

__attribute__((format(printf, 3, 4))) static void
say(const struct import *s, bool error, const char *format, ...)
{
	char text[2 * PATH_MAX];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	s->say(s->arg, error, text);
}

/* ---- streams --------------------------------------------------------------------------------- */

static void
take_result(void *arg, uint64_t tag, uint64_t sequence, enum xfer_result_status status)
{
	struct import *s = arg;

	s->counts.stored += status == XFER_DURABLE;
	s->counts.duplicates += status == XFER_DUPLICATE;
	s->counts.failed += status == XFER_RETRY;
	if (s->journal != NULL && status != XFER_RETRY)
		journal_release(s->journal, tag);
}

static void
log_writer(void *arg, bool error, const char *text)
{
	say(arg, error, "%s", text);
}

/* Close a stream that is not in the list, and remove its directory if it is empty and unused. */
static void
close_stream(const struct import *s, struct import_stream *t)
{
	bool used = t->dir[0] == '\0';
	size_t i;

	stream_writer_close(t->writer);
	for (i = 0; i < s->nb && !used; i++)
		used = strcmp(s->stream[i]->dir, t->dir) == 0;
	/* an empty directory would count as one of the receiver's runs */
	if (!used)
		(void)rmdir(t->dir);
	closed_files_free(&t->sources);
	if (t->reader.data != NULL)
		arrow_reader_close(&t->reader);
	free(t->header);
	free(t);
}

void
import_free(struct import *s)
{
	while (s->nb > 0) {
		s->nb--;
		close_stream(s, s->stream[s->nb]);
	}
	free(s->stream);
	s->stream = NULL;
	s->nb = 0;
}

/* Argument of note_recovery(), while a stream is opened. */
struct recovered {
	struct import *import;
	const struct import_stream *stream;
	bool unknown; /* a `.part` file that may have batches of the stream stays incomplete */
};

static void
note_recovery(void *arg, const struct arrow_recovery *report)
{
	struct recovered *r = arg;
	const bool failed = arrow_recovery_is_unknown(report);

	if (failed && !stream_source_matches(report->path, r->stream->run, &r->stream->identity))
		return;
	r->unknown |= failed;
	say(r->import, failed, "%s: %s", report->path, report->message);
}

/* Adopt the files of a stream in the store. `.part` files are completed, as at its start. */
static int
adopt_files(struct import *s, struct import_stream *t)
{
	struct recovered r = {s, t, false};
	int ret;

	ret = arrow_recover_dir(NULL, t->dir, note_recovery, &r);
	if (ret >= 0)
		ret = r.unknown ? -EBUSY : stream_writer_adopt_all(t->writer);
	return ret < 0 ? ret : 0;
}

static int
open_stream(struct import *s, struct import_stream *t)
{
	const struct stream_writer_config c = {
		.dir = t->dir,
		.run = t->run,
		.identity = t->identity,
		.schema = &t->reader.schema,
		.slices = s->slices,
		.result = take_result,
		.log = log_writer,
		.arg = s,
	};
	char message[PATH_MAX];
	const char *problem;
	int ret;

	ret = stream_run_other(s->root, t->run, &t->identity, message);
	if (ret != 0) {
		say(s, true, "run %s, incarnation %016" PRIx64 ": %s%s", t->run,
			t->identity.incarnation, message,
			ret > 0 ? " has this run under another name, and one of them is not its "
				  "receiver's; nothing of it is imported"
				: ": cannot list it");
		return ret < 0 ? ret : -ENOTUNIQ;
	}
	ret = stream_source_dir(t->dir, s->root, t->run, &t->identity);
	if (ret == 0) {
		ret = own_folder_make(t->dir, OWN_FOLDER_RUN, message);
		if (ret < 0) {
			say(s, true, "%s", message);
			return ret;
		}
		close(ret);
		ret = 0;
	}
	if (ret < 0) {
		say(s, true, "%s: %s", t->dir, strerror(-ret));
		return ret;
	}
	ret = arrow_reader_open_memory(&t->reader, t->header, t->header_size, &problem);
	if (ret < 0) {
		say(s, true, "schema of run %s: %s", t->run, problem);
		return ret;
	}
	ret = stream_writer_open(&t->writer, &c);
	return ret == 0 ? adopt_files(s, t) : ret;
}

/* @param run  NULL: any table and name of this run */
static bool
is_stream(const struct import_stream *t, const struct arrow_identity *id, const char *run)
{
	return arrow_same_run(&t->identity, id) &&
		(run == NULL ||
			(strcmp(t->identity.table, id->table) == 0 && strcmp(t->run, run) == 0));
}

bool
import_is_kept(void *arg, const struct arrow_identity *id)
{
	const struct import *s = arg;
	bool found = false;
	size_t i;

	for (i = 0; i < s->nb; i++) {
		if (!is_stream(s->stream[i], id, NULL))
			continue;
		if (s->stream[i]->refused)
			return true;
		found = true;
	}
	return !found;
}

/* Refuse a run that has another name in another source: nothing of it is imported, by no name. */
static void
check_name(struct import *s, struct import_stream *t)
{
	const struct arrow_identity *id = &t->identity;
	size_t i;

	for (i = 0; i < s->nb; i++) {
		if (!is_stream(s->stream[i], id, NULL) || strcmp(s->stream[i]->run, t->run) == 0)
			continue;
		say(s, true,
			"receiver %" PRIu64 ", run %016" PRIx64 ", incarnation %016" PRIx64
			" has two names, %s and %s, and one of them is not its receiver's: "
			"nothing of it is imported; move the files of the wrong name away",
			id->receiver_id, id->run, id->incarnation, s->stream[i]->run, t->run);
		t->refused = true;
		return;
	}
}

/*
 * Find or open the stream of batches. It may be refused.
 * @return NULL: out of memory; this was reported
 */
static struct import_stream *
find_stream(struct import *s, const struct arrow_identity *id, const char *run,
	const uint8_t *header, uint64_t size)
{
	struct import_stream *t, **more;
	size_t i;

	for (i = 0; i < s->nb; i++) {
		t = s->stream[i];
		if (!is_stream(t, id, run))
			continue;
		if (!t->refused &&
			(t->header_size != size || memcmp(t->header, header, size) != 0)) {
			say(s, true,
				"run %s has two different schemas of %s; nothing of it is imported",
				run, id->table);
			t->refused = true;
		}
		return t;
	}
	t = calloc(1, sizeof(*t));
	more = realloc(s->stream, (s->nb + 1) * sizeof(struct import_stream *));
	if (more != NULL)
		s->stream = more;
	if (t != NULL)
		t->header = malloc(size);
	if (t == NULL || more == NULL || t->header == NULL) {
		say(s, true, "cannot allocate memory for run %s", run);
		if (t != NULL)
			free(t->header);
		free(t);
		return NULL;
	}
	t->identity = *id;
	t->header_size = size;
	memcpy(t->header, header, size);
	snprintf(t->run, sizeof(t->run), "%s", run);
	check_name(s, t);
	if (s->compared && !t->refused) {
		say(s, true,
			"run %s: batches of %s were not found in time to be compared; they are not "
			"imported; run the command again",
			run, t->identity.table);
		t->refused = true;
	}
	if (!t->refused && open_stream(s, t) < 0) {
		stream_writer_close(t->writer);
		t->writer = NULL;
		t->refused = true;
	}
	more[s->nb++] = t;
	return t;
}

/*
 * Verify the batches that the store already has, because they will be the only copies. Damaged
 * batches are marked, and their copies from the source are stored again.
 */
static int
check_there(struct import *s, const struct import_stream *t, const struct interval_set *held)
{
	struct stream_stats before, now;
	int ret;

	stream_writer_stats_get(t->writer, &before);
	ret = stream_writer_check(t->writer, held, true, NULL);
	stream_writer_stats_get(t->writer, &now);
	s->counts.damaged += now.damaged - before.damaged;
	if (ret < 0)
		say(s, true, "run %s: cannot check the stored batches of %s: %s", t->run,
			t->identity.table, strerror(-ret));
	return ret;
}

/* ---- comparison before the import ------------------------------------------------------------ */

#define SAY_MAX 64 /* differing batches of a source that are listed one by one */

/* Report a batch that differs from the stored one. */
static void
report_differing(struct import *s, struct import_stream *t, uint64_t nb, uint64_t sequence,
	const char *frames, const char *source, const char *stored)
{
	t->refused = true;
	if (nb < SAY_MAX)
		say(s, true,
			"different: batch %" PRIu64 " of %s, %s, has other bytes in %s than in %s",
			sequence, t->identity.table, frames, source, stored);
}

static void
report_remedy(struct import *s, uint64_t nb)
{
	if (nb > SAY_MAX)
		say(s, true, "different: %" PRIu64 " more batches", nb - SAY_MAX);
	if (nb > 0)
		say(s, true,
			"different: nothing of this run is imported. Find out which files are "
			"the receiver's (their dates, audit log of the store), move the others "
			"away, and run the command again");
}

/* Compare the batches of a file. Damaged ones are compared, too. */
static int
compare_batches(struct import *s, const struct stream_source *source, struct import_stream *t)
{
	const struct arrow_reader *r = &source->reader;
	struct stream_contents contents = {0};
	struct interval_set have = {0};
	char frames[ARROW_DAMAGE_TEXT];
	const char *stored;
	uint64_t sequence, crc, nb = 0;
	size_t i;
	int ret;

	ret = stream_source_list(r, &t->identity, &have, &contents);
	for (i = 0; i < r->nb_batches && ret == 0; i++) {
		sequence = stream_source_sequence(r, i);
		(void)stream_contents_get(&contents, sequence, &crc);
		if (stream_writer_compare(t->writer, sequence, crc, &stored) >= 0)
			continue;
		if (nb < SAY_MAX)
			stream_source_frames(r, i, frames);
		report_differing(s, t, nb++, sequence, frames, source->path, stored);
	}
	report_remedy(s, nb);
	if (ret == 0)
		ret = closed_files_add(&t->sources, source->path, &have, &contents, false);
	interval_set_free(&have);
	stream_contents_free(&contents);
	return ret;
}

int
import_compare_file(struct import *s, const char *path)
{
	struct arrow_identity identity = {0};
	char run[XFER_NAME_BYTES], message[PATH_MAX];
	struct interval_set have = {0};
	struct import_stream *t;
	struct stream_source source;
	int ret;

	/* import_file() reports a wrong name */
	if (stream_source_run(path, run) < 0)
		return 0;
	ret = stream_source_open(&source, &direct_io, path, message);
	if (ret < 0) {
		/* a file that was not compared is not imported, even if it can be opened later */
		say(s, true, "%s", message);
		s->counts.failed++;
		return ret;
	}
	ret = stream_source_list(&source.reader, &identity, &have, NULL);
	if (ret == 0 && have.nb > 0) {
		t = find_stream(
			s, &identity, run, source.reader.data, source.reader.batches[0].offset);
		if (t == NULL)
			ret = -ENOMEM;
		else if (t->writer != NULL)
			ret = compare_batches(s, &source, t);
		if (ret < 0) {
			say(s, true, "%s was not imported", path);
			s->counts.failed += source.reader.nb_batches;
		}
		if (ret < 0 && t != NULL)
			t->refused = true;
	} else {
		ret = 0;
	}
	interval_set_free(&have);
	stream_source_close(&source);
	return ret;
}

int
import_compare_sources(struct import *s)
{
	size_t i;
	int ret, first = 0;

	for (i = 0; i < s->nb; i++) {
		ret = closed_files_report_differing(
			&s->stream[i]->sources, &direct_io, s->say, s->arg);
		s->stream[i]->refused |= ret < 0;
		first = first == 0 ? ret : first;
	}
	return first;
}

void
import_compare_end(struct import *s)
{
	size_t i;

	s->compared = true;
	for (i = 0; i < s->nb; i++)
		s->stream[i]->refused = import_is_kept(s, &s->stream[i]->identity);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Remove or rename a file whose batches are all stored. */
static int
retire_file(struct import *s, const char *path)
{
	char to[PATH_MAX];
	int ret = 0;

	if (!s->keep)
		ret = direct_io.remove(path);
	else if (snprintf(to, sizeof(to), "%s" IMPORTED, path) < (int)sizeof(to))
		ret = direct_io.rename(path, to);
	else
		ret = -ENAMETOOLONG;
	FAIL_POINT("import.removed");
	if (ret == 0)
		ret = direct_io.sync_dir(path);
	if (ret < 0)
		say(s, true, "%s was imported, but cannot be removed: %s", path, strerror(-ret));
	return ret;
}

/* Report damaged batches. They are not imported, and their file is kept. */
static int
report_damage(struct import *s, const struct stream_source *source)
{
	const struct arrow_reader *r = &source->reader;
	char text[ARROW_DAMAGE_TEXT];
	size_t i;

	for (i = 0; i < r->nb_damage; i++) {
		arrow_damage_text(r, i, text);
		say(s, true, "%s: %s: not imported, and the file is kept", source->path, text);
		s->counts.failed++;
	}
	return r->nb_damage > 0 ? -EBADMSG : 0;
}

/*
 * If the run has ended where the file is, it has ended in the store, too: no peer may truncate what
 * will be the only copy. This is durable before the file is removed.
 */
static int
copy_mark(struct import *s, const char *path, const struct import_stream *t)
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_MAX];
	int ret;

	snprintf(dir, sizeof(dir), "%.*s", slash != NULL ? (int)(slash - path) : 1,
		slash != NULL ? path : ".");
	ret = store_ended_read(slash == path ? "/" : dir, t->identity.incarnation);
	if (ret > 0 && store_ended_read(t->dir, t->identity.incarnation) <= 0) {
		ret = store_ended_write(t->dir, t->identity.incarnation);
		if (ret == 0)
			say(s, false, "%s: marked its run as ended, as in %s", t->dir, dir);
	}
	if (ret < 0)
		say(s, true, "%s: cannot mark its run as ended: %s", t->dir, strerror(-ret));
	return ret < 0 ? ret : 0;
}

static int
copy_file(struct import *s, struct stream_source *source, const char *run)
{
	const struct import_counts before = s->counts;
	struct arrow_identity identity = {0};
	struct interval_set have = {0};
	struct import_stream *t;
	int64_t given;
	int ret;

	ret = arrow_recovery_scan(&source->reader);
	if (ret == 0)
		ret = stream_source_list(&source->reader, &identity, &have, NULL);
	if (ret < 0) {
		interval_set_free(&have);
		say(s, true, "%s: %s", source->path,
			ret == -EXDEV ? "batches of no stream, or of several streams"
				      : strerror(-ret));
		return ret == -EXDEV ? -EBADMSG : ret;
	}
	/* a file without batches counts as imported */
	if (have.nb == 0)
		return report_damage(s, source);
	t = find_stream(s, &identity, run, source->reader.data, source->reader.batches[0].offset);
	if (t != NULL && t->refused) {
		say(s, true, "%s was not imported: nothing of its run is, see above", source->path);
		s->counts.failed += source->reader.nb_batches;
		ret = -ENOTUNIQ;
	} else {
		ret = t != NULL ? check_there(s, t, &have) : -EIO;
	}
	interval_set_free(&have);
	if (ret < 0)
		return ret;
	given = stream_source_copy(source, t->writer, NULL);
	if (given >= 0 && s->counts.failed == before.failed) {
		say(s, false, "%s: %" PRIu64 " batches stored, %" PRIu64 " already stored",
			source->path, s->counts.stored - before.stored,
			s->counts.duplicates - before.duplicates);
		ret = copy_mark(s, source->path, t);
		return ret == 0 ? report_damage(s, source) : ret;
	}
	/* batches that were not tried also count as failed */
	s->counts.failed = before.failed + source->reader.nb_batches -
		(s->counts.stored - before.stored) - (s->counts.duplicates - before.duplicates);
	ret = given < 0 ? (int)given : stream_writer_state(t->writer);
	say(s, true, "%s was not imported: %s", source->path, strerror(ret < 0 ? -ret : EIO));
	return ret < 0 ? ret : -EIO;
}

int
import_file(struct import *s, const char *path)
{
	char run[XFER_NAME_BYTES], message[PATH_MAX];
	struct stream_source source;
	int ret;

	if (stream_source_run(path, run) < 0) {
		say(s, true, "%s: not a file name of a store", path);
		return -EINVAL;
	}
	ret = stream_source_open(&source, &direct_io, path, message);
	if (ret < 0) {
		say(s, true, "%s", message);
		return ret;
	}
	s->journal = NULL;
	ret = copy_file(s, &source, run);
	FAIL_POINT("import.stored");
	/* remove it while it is still locked */
	if (ret == 0)
		ret = retire_file(s, path);
	stream_source_close(&source);
	return ret;
}

/* ---- journals -------------------------------------------------------------------------------- */

static struct import_stream *
stream_of(struct import *s, const struct journal_batch *b)
{
	struct arrow_identity identity = {.receiver_id = journal_receiver_id(s->journal)};
	struct journal_run run;

	if (!journal_run_get(s->journal, b->run, &run))
		return NULL;
	identity.run = run.run;
	identity.incarnation = run.incarnation;
	identity.table = arrow_table_name(b->table);
	return find_stream(
		s, &identity, run.name, run.schema[b->table], run.schema_bytes[b->table]);
}

/* List the held batches of a stream. */
static int
list_held(struct import *s, const struct import_stream *t, struct interval_set *held)
{
	struct journal_batch b;
	uint32_t number, at = 0;
	int ret = 0;

	while (ret == 0 && (number = journal_walk(s->journal, &at)) != UINT32_MAX) {
		if (journal_get(s->journal, number, &b) && stream_of(s, &b) == t)
			ret = interval_set_add(held, b.sequence, b.sequence);
	}
	return ret;
}

/*
 * Open all streams of the journal and verify their stored batches, before any batch of the journal
 * is written: stream_writer_check() requires that all batches have their results.
 */
static int
check_held(struct import *s)
{
	struct interval_set held = {0};
	struct journal_batch b;
	uint32_t number, at = 0;
	int ret = 0;
	size_t i;

	while ((number = journal_walk(s->journal, &at)) != UINT32_MAX) {
		if (journal_get(s->journal, number, &b) && stream_of(s, &b) == NULL)
			return -EIO;
	}
	for (i = 0; i < s->nb && ret == 0; i++) {
		if (s->stream[i]->refused)
			continue;
		ret = list_held(s, s->stream[i], &held);
		if (ret == 0)
			ret = check_there(s, s->stream[i], &held);
		interval_set_free(&held);
	}
	return ret;
}

/* Store the held batches, the oldest first. @param nb  out: incremented for each held batch */
static int
copy_held(struct import *s, uint32_t *nb)
{
	struct iovec part[JOURNAL_PARTS];
	struct journal_batch b;
	struct import_stream *t;
	uint32_t number, at = 0;

	while ((number = journal_walk(s->journal, &at)) != UINT32_MAX) {
		if (!journal_get(s->journal, number, &b))
			continue;
		(*nb)++;
		if (journal_body_crc32c(&b) != b.body_crc32c) {
			say(s, true,
				"batch %" PRIu64 " of the journal is damaged and is kept there",
				b.sequence);
			s->counts.failed++;
			continue;
		}
		t = stream_of(s, &b);
		if (t == NULL)
			return -EIO;
		if (t->refused) {
			s->counts.failed++;
			continue;
		}
		const struct stream_batch batch = {
			.xfer = {.sequence = b.sequence,
				.rows = b.rows,
				.first = b.first,
				.last = b.last,
				.body_bytes = b.body_bytes,
				.body_crc32c = b.body_crc32c},
			.metadata = b.metadata,
			.part = part,
			.nb_parts = journal_parts(&b, part),
			.tag = number,
		};
		stream_writer_append(t->writer, &batch);
	}
	return 0;
}

int
import_compare_journal(struct import *s, struct journal *journal)
{
	struct journal_batch b;
	struct import_stream *t;
	uint32_t number, at = 0;
	char frames[64];
	const char *stored;
	uint64_t crc, nb = 0;
	int ret = 0;

	s->journal = journal;
	while ((number = journal_walk(journal, &at)) != UINT32_MAX) {
		if (!journal_get(journal, number, &b))
			continue;
		t = stream_of(s, &b);
		if (t == NULL) {
			ret = -EIO;
			break;
		}
		if (t->writer == NULL)
			continue;
		crc = stream_content_make(b.body_crc32c, b.metadata_crc32c);
		if (stream_writer_compare(t->writer, b.sequence, crc, &stored) >= 0 &&
			closed_files_compare(&t->sources, b.sequence, crc, &stored) >= 0)
			continue;
		snprintf(frames, sizeof(frames), "frames %" PRIu64 " to %" PRIu64, b.first, b.last);
		report_differing(s, t, nb++, b.sequence, frames, "the journal", stored);
	}
	report_remedy(s, nb);
	s->journal = NULL;
	return ret;
}

int
import_journal(struct import *s, struct journal *journal)
{
	const struct import_counts before = s->counts;
	uint32_t nb = 0;
	size_t i;
	int ret;

	s->journal = journal;
	ret = check_held(s);
	if (ret == 0)
		ret = copy_held(s, &nb);
	for (i = 0; i < s->nb; i++)
		if (s->stream[i]->writer != NULL)
			(void)stream_writer_finish(s->stream[i]->writer);
	s->journal = NULL;
	say(s, false,
		"journal: %u unacknowledged batches, %" PRIu64 " stored, %" PRIu64 " "
		"already stored",
		nb, s->counts.stored - before.stored, s->counts.duplicates - before.duplicates);
	if (ret == 0 && s->counts.failed > before.failed)
		ret = -EIO;
	return ret;
}
