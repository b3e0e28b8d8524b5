/* SPDX-License-Identifier: BSD-3-Clause */

#include "fail_point.h"
#include "process_cpus.h"
#include "store_settle.h"

/* What went elsewhere goes. @return false: some of it may still be there */
static bool
cut_moved(struct store_settle *s, unsigned int table)
{
	struct stream_writer *w = s->run->writer[table];
	struct stream_stats before, after;
	int rc;

	stream_writer_stats_get(w, &before);
	rc = stream_writer_cut(w, &s->moved[table]);
	stream_writer_stats_get(w, &after);
	s->cuts += after.cut > before.cut;
	s->batches_cut += after.cut - before.cut;
	return rc == 0;
}

static enum sink_reason
settle(struct store_settle *s)
{
	enum sink_reason reason = store_run_open(s->runs, s->run);
	unsigned int i;

	if (reason != SINK_REASON_NONE)
		return reason;
	for (i = 0; i < SINK_TABLES; i++) {
		if (!cut_moved(s, i)) {
			/* what its files have is not known now: they are read anew */
			s->run->open = false;
			return SINK_REASON_FAILED;
		}
		FAIL_POINT("store.cut");
	}
	s->memory_error = store_bodies_take(s->bodies, s->bytes, &s->memory);
	if (s->memory_error == 0)
		return SINK_REASON_NONE;
	s->memory = NULL;
	return SINK_REASON_FAILED;
}

static void *
settle_main(void *arg)
{
	struct store_settle *s = arg;

	if (s->has_thread)
		process_cpus_take();
	s->reason = settle(s);
	__atomic_store_n(&s->ended, true, __ATOMIC_RELEASE);
	return NULL;
}

void
store_settle_begin(struct store_settle *s)
{
	s->begun = true;
	s->ended = false;
	s->memory = NULL;
	s->memory_error = 0;
	s->cuts = 0;
	s->batches_cut = 0;
	s->run->settling = true;
	/* before the thread reads it */
	s->has_thread = true;
	if (pthread_create(&s->thread, NULL, settle_main, s) == 0)
		return;
	s->has_thread = false;
	(void)settle_main(s);
}

bool
store_settle_end(struct store_settle *s)
{
	if (!s->begun || !__atomic_load_n(&s->ended, __ATOMIC_ACQUIRE))
		return false;
	if (s->has_thread)
		pthread_join(s->thread, NULL);
	s->begun = false;
	store_run_settle_end(s->runs, s->run);
	return true;
}
