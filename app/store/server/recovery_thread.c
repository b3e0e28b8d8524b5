/* SPDX-License-Identifier: BSD-3-Clause */

#include <stdio.h>

#include "fail_point.h"
#include "eal/process_cpus.h"
#include "server/recovery_thread.h"

/* Record which batches will be removed. */
static int
note_cuts(struct store_recover *s, unsigned int table)
{
	const struct interval_set *have = stream_writer_have(s->run->writer[table]);
	const struct interval_set *moved = &s->moved[table];
	int ret = 0;
	size_t i;

	for (i = 0; i < moved->nb && ret == 0; i++)
		ret = interval_set_add_common(
			&s->cut[table], have, moved->at[i].first, moved->at[i].last);
	return ret;
}

/* Remove reassigned batches. @return false: some may still be there */
static bool
cut_moved(struct store_recover *s, unsigned int table)
{
	struct stream_writer *w = s->run->writer[table];
	struct stream_stats before, after;
	int ret;

	stream_writer_stats_get(w, &before);
	ret = note_cuts(s, table);
	if (ret < 0)
		return false;
	ret = stream_writer_cut(w, &s->moved[table]);
	stream_writer_stats_get(w, &after);
	s->cuts += after.cut > before.cut;
	s->batches_truncated += after.cut - before.cut;
	return ret == 0;
}

/*
 * Verify the batches that the receiver would release; `held` becomes the inventory. @return false:
 * unknown
 */
static bool
check_held(struct store_recover *s, unsigned int table)
{
	struct stream_writer *w = s->run->writer[table];
	const struct interval_set *have = stream_writer_have(w);
	struct interval_set sound = {0};
	int ret;
	size_t i;

	/* files of an ended run are not marked: the commands reconcile and import change them */
	ret = stream_writer_check(w, &s->held[table], !s->run->ended, &s->damaged[table]);
	for (i = 0; i < s->held[table].nb && ret == 0; i++)
		ret = interval_set_add_common(
			&sound, have, s->held[table].at[i].first, s->held[table].at[i].last);
	interval_set_free(&s->held[table]);
	s->held[table] = sound;
	return ret == 0;
}

/*
 * Compare batches that the receiver lists with the stored ones. Only copies of the receiver's own
 * batches are truncated or reported as stored. @return false: one differs
 */
static bool
are_the_same(const struct store_recover *s, unsigned int table, const struct stream_contents *list,
	const char *what)
{
	const char *path;
	size_t i;

	for (i = 0; i < list->nb; i++) {
		if (stream_writer_compare(s->run->writer[table], list->at[i].sequence,
			    list->at[i].crc, &path) >= 0)
			continue;
		store_run_report_differing(s->run, table, list->at[i].sequence, what, path);
		return false;
	}
	return true;
}

/* Recover the run's files, and remove its reassigned batches. */
static enum xfer_reason
settle_files(struct store_recover *s)
{
	enum xfer_reason reason = store_run_open(s->runs, s->run);
	unsigned int i;

	if (reason != XFER_REASON_NONE)
		return reason;
	snprintf(s->dir, sizeof(s->dir), "%s", s->run->dir);
	/* no peer may change a run that its receiver has ended; the reconcile command may */
	if (s->run->ended && (s->moved[0].nb > 0 || s->moved[1].nb > 0))
		return XFER_REASON_ENDED;
	for (i = 0; i < XFER_TABLES; i++) {
		if (!are_the_same(s, i, &s->moved_contents[i], "reassigned") ||
			!are_the_same(s, i, &s->held_contents[i], "held"))
			return XFER_REASON_DIFFERS;
	}
	for (i = 0; i < XFER_TABLES; i++) {
		if (!cut_moved(s, i) || !check_held(s, i)) {
			/* the content of the files is unknown now: read them again next time */
			s->run->open = false;
			return XFER_REASON_FAILED;
		}
		FAIL_POINT("store.truncated");
	}
	return XFER_REASON_NONE;
}

static enum xfer_reason
settle(struct store_recover *s)
{
	const struct store_run *r = s->run;
	const struct arrow_identity identity = {r->receiver_id, r->run, r->incarnation, NULL};
	struct store_completion *completion = s->runs->completion;
	struct store_claim claim;
	enum xfer_reason reason;

	store_completion_claim(completion, &claim, r->dir);
	reason = settle_files(s);
	store_completion_release(
		completion, &claim, reason == XFER_REASON_NONE ? r->name : NULL, &identity);
	if (reason != XFER_REASON_NONE)
		return reason;
	s->memory_error = store_bodies_take(s->bodies, s->bytes, &s->memory);
	if (s->memory_error == 0)
		return XFER_REASON_NONE;
	s->memory = NULL;
	return XFER_REASON_FAILED;
}

static void *
recover_main(void *arg)
{
	struct store_recover *s = arg;

	if (s->has_thread)
		process_cpus_take();
	s->reason = settle(s);
	__atomic_store_n(&s->ended, true, __ATOMIC_RELEASE);
	return NULL;
}

void
store_recover_begin(struct store_recover *s)
{
	s->begun = true;
	s->ended = false;
	s->memory = NULL;
	s->memory_error = 0;
	s->cuts = 0;
	s->batches_truncated = 0;
	store_run_recover_begin(s->run);
	/* set before the thread reads it */
	s->has_thread = true;
	if (pthread_create(&s->thread, NULL, recover_main, s) == 0)
		return;
	s->has_thread = false;
	(void)recover_main(s);
}

bool
store_recover_end(struct store_recover *s)
{
	if (!s->begun || !__atomic_load_n(&s->ended, __ATOMIC_ACQUIRE))
		return false;
	if (s->has_thread)
		pthread_join(s->thread, NULL);
	s->begun = false;
	store_run_recover_end(s->runs, s->run, s->reason);
	return true;
}
