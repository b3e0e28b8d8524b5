/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "arrow/tables.h"
#include "tools/orphaned_journals.h"

int
orphaned_journals_add(struct orphaned_journals *r, const char *path, char message[PATH_MAX])
{
	int ret;

	if (r->nb == ORPHANED_JOURNALS_MAX) {
		snprintf(message, PATH_MAX, "at most %u journals", ORPHANED_JOURNALS_MAX);
		return -E2BIG;
	}
	ret = journal_open_existing(&r->journal[r->nb], path, message);
	r->path[r->nb] = path;
	r->nb += ret == 0;
	return ret;
}

void
orphaned_journals_close(struct orphaned_journals *r)
{
	while (r->nb > 0)
		journal_close(r->journal[--r->nb]);
}

bool
orphaned_journals_report_damage(const struct orphaned_journals *r, uint64_t *batches,
	void (*say)(void *arg, bool error, const char *text), void *arg)
{
	char text[PATH_MAX], line[512];
	struct journal_stats stats;
	const char *problem;
	struct journal_store store;
	bool damaged = false;
	unsigned int i, k, lost;
	uint32_t n;

	*batches = 0;
	for (i = 0; i < r->nb; i++) {
		journal_stats_get(r->journal[i], &stats);
		if (stats.corrected > 0) {
			snprintf(text, sizeof(text),
				"%.3000s: %" PRIu64 " records with a wrong bit or a damaged copy "
				"were corrected",
				r->path[i], stats.corrected);
			say(arg, false, text);
		}
		for (k = 0; k < JOURNAL_RUNS; k++) {
			problem = journal_run_damage(r->journal[i], k);
			if (problem == NULL)
				continue;
			snprintf(text, sizeof(text), "%.3000s: run %u is damaged: %s", r->path[i],
				k, problem);
			say(arg, true, text);
			damaged = true;
		}
		for (k = 0; k < JOURNAL_STORES; k++) {
			if (!journal_store_get(r->journal[i], k, &store) || store.problem == NULL)
				continue;
			snprintf(text, sizeof(text), "%.3000s: store %u is damaged: %s", r->path[i],
				k, store.problem);
			say(arg, true, text);
			damaged = true;
		}
		lost = journal_lost_incarnations(r->journal[i]);
		if (lost > 0) {
			snprintf(text, sizeof(text),
				"%.3000s: %u incarnations of earlier runs are damaged: these runs "
				"count as runs of another journal",
				r->path[i], lost);
			say(arg, true, text);
			damaged = true;
		}
		for (n = journal_damage_next(r->journal[i], 0); n != UINT32_MAX;
			n = journal_damage_next(r->journal[i], n + 1)) {
			journal_damage_text(r->journal[i], n, line, sizeof(line));
			snprintf(text, sizeof(text), "%.3000s: %s; it is kept there", r->path[i],
				line);
			say(arg, true, text);
			(*batches)++;
			damaged = true;
		}
	}
	return damaged;
}

bool
orphaned_journals_has(const struct orphaned_journals *r, const struct arrow_identity *id)
{
	unsigned int i;

	for (i = 0; i < r->nb; i++) {
		if (journal_receiver_id(r->journal[i]) == id->receiver_id &&
			journal_had(r->journal[i], id->incarnation))
			return true;
	}
	return r->without;
}

void
orphaned_journals_report_others(const struct orphaned_journals *r, const uint64_t *identity,
	size_t nb, void (*say)(void *arg, bool error, const char *text), void *arg)
{
	struct journal_store store;
	char text[PATH_MAX];
	unsigned int i, k;
	uint32_t given;
	size_t n;

	for (i = 0; i < r->nb; i++) {
		for (k = 0; k < JOURNAL_STORES; k++) {
			given = journal_store_given(r->journal[i], k);
			if (given == 0 || !journal_store_get(r->journal[i], k, &store))
				continue;
			for (n = 0; n < nb && identity[n] != store.identity; n++)
				;
			if (n < nb && store.problem == NULL)
				continue;
			if (store.problem != NULL) {
				snprintf(text, sizeof(text),
					"%.3000s: store %u, which is damaged, last seen at %s, was "
					"sent %u batches that are unacknowledged or may also be in "
					"other stores; give the directories of all stores",
					r->path[i], k, store.address, given);
				say(arg, false, text);
				continue;
			}
			snprintf(text, sizeof(text),
				"%.3000s: store %016" PRIx64 ", last seen at %s, was sent %u "
				"batches that are unacknowledged or may also be in other stores, "
				"and its directory was not given; if it has batches of the run, "
				"run the command again with its directory",
				r->path[i], store.identity, store.address, given);
			say(arg, false, text);
		}
	}
}

void
orphaned_journals_forget(struct orphaned_journals *r,
	bool (*is_kept)(void *arg, const struct arrow_identity *identity), void *arg)
{
	struct arrow_identity identity = {0};
	struct journal_run run;
	unsigned int i, k;

	for (i = 0; i < r->nb; i++) {
		journal_repair(r->journal[i]);
		for (k = 0; k < JOURNAL_RUNS; k++) {
			if (!journal_run_get(r->journal[i], k, &run))
				continue;
			identity.receiver_id = journal_receiver_id(r->journal[i]);
			identity.run = run.run;
			identity.incarnation = run.incarnation;
			if (!is_kept(arg, &identity))
				journal_forget_doubts(r->journal[i], k);
		}
	}
}

static bool
is_of(struct journal *journal, uint32_t batch, const struct arrow_identity *id,
	struct journal_batch *b)
{
	struct journal_run run;

	return journal_get(journal, batch, b) && journal_run_get(journal, b->run, &run) &&
		run.run == id->run && run.incarnation == id->incarnation &&
		strcmp(arrow_table_name(b->table), id->table) == 0;
}

/* Call `take` for each held batch of a stream, until it returns an error. */
static int
for_each_held(const struct orphaned_journals *r, const struct arrow_identity *identity,
	int (*take)(void *arg, const struct journal_batch *b), void *arg)
{
	struct journal_batch b;
	uint32_t batch, at;
	unsigned int i;
	int ret = 0;

	for (i = 0; i < r->nb && ret == 0; i++) {
		if (journal_receiver_id(r->journal[i]) != identity->receiver_id)
			continue;
		for (at = 0; ret == 0 && (batch = journal_walk(r->journal[i], &at)) != UINT32_MAX;)
			if (is_of(r->journal[i], batch, identity, &b))
				ret = take(arg, &b);
	}
	return ret;
}

static int
add_number(void *arg, const struct journal_batch *b)
{
	return interval_set_add(arg, b->sequence, b->sequence);
}

int
orphaned_journals_held(const struct orphaned_journals *r, const struct arrow_identity *identity,
	struct interval_set *held)
{
	return for_each_held(r, identity, add_number, held);
}

struct contents {
	struct stream_contents *held;
	struct interval_set *differing;
};

static int
add_content(void *arg, const struct journal_batch *b)
{
	const uint64_t content = stream_content_make(b->body_crc32c, b->metadata_crc32c);
	struct contents *c = arg;
	uint64_t other;

	if (stream_contents_get(c->held, b->sequence, &other) && other != content)
		return interval_set_add(c->differing, b->sequence, b->sequence);
	return stream_contents_add(c->held, b->sequence, content);
}

int
orphaned_journals_contents(const struct orphaned_journals *r, const struct arrow_identity *identity,
	struct stream_contents *held, struct interval_set *differing)
{
	struct contents c = {held, differing};

	return for_each_held(r, identity, add_content, &c);
}

int
orphaned_journals_streams(const struct orphaned_journals *r,
	int (*take)(void *arg, const struct arrow_identity *identity), void *arg)
{
	struct arrow_identity identity;
	struct journal_run run;
	unsigned int i, k, table;
	int ret = 0;

	for (i = 0; i < r->nb; i++) {
		for (k = 0; k < JOURNAL_RUNS; k++) {
			if (!journal_run_get(r->journal[i], k, &run))
				continue;
			for (table = 0; table < XFER_TABLES && ret == 0; table++) {
				identity =
					(struct arrow_identity){journal_receiver_id(r->journal[i]),
						run.run, run.incarnation, arrow_table_name(table)};
				ret = take(arg, &identity);
			}
		}
	}
	return ret;
}

static uint64_t
release(struct journal *journal, const struct arrow_identity *id, const struct interval_set *stored)
{
	struct journal_batch b;
	uint64_t released = 0;
	uint32_t batch, at = 0;

	/* release in the order of the files: see store_client_release_found() */
	while ((batch = journal_walk(journal, &at)) != UINT32_MAX) {
		if (!is_of(journal, batch, id, &b) || !interval_set_has(stored, b.sequence))
			continue;
		journal_release(journal, batch);
		released++;
	}
	return released;
}

uint64_t
orphaned_journals_release(struct orphaned_journals *r, const struct arrow_identity *identity,
	const struct interval_set *stored)
{
	uint64_t released = 0;
	unsigned int i;

	for (i = 0; i < r->nb; i++) {
		if (journal_receiver_id(r->journal[i]) == identity->receiver_id)
			released += release(r->journal[i], identity, stored);
	}
	return released;
}
