/* SPDX-License-Identifier: BSD-3-Clause */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail_point.h"
#include "stream_writer_private.h"

void
stream_writer_give_result(
	struct stream_writer *w, const struct item *item, enum sink_result_status status)
{
	switch (status) {
	case SINK_DURABLE:
		ADD(w->stats.batches, 1);
		ADD(w->stats.rows, item->rows);
		ADD(w->stats.bytes, item->bytes);
		break;
	case SINK_DOUBLE:
		ADD(w->stats.doubles, 1);
		break;
	default:
		ADD(w->stats.again, 1);
	}
	w->config.result(w->config.arg, item->tag, item->sequence, status);
}

/* One that was there and damaged has been stored again. */
static void
note_repair(struct stream_writer *w, uint64_t sequence)
{
	char text[128];

	if (!interval_set_has(&w->rotten, sequence))
		return;
	(void)interval_set_remove(&w->rotten, sequence, sequence);
	ADD(w->stats.repaired, 1);
	snprintf(text, sizeof(text), "%s: batch %" PRIu64 " is repaired: it was stored again",
		w->config.identity.table, sequence);
	stream_writer_say(w, true, text);
}

/* A batch of a file is durable, or never will be. */
static void
resolve(struct stream_writer *w, struct stream_file *f, const struct item *item)
{
	bool durable = item->index < f->file.nb_durable;

	SET(w->stats.pending, w->stats.pending - 1);
	if (item->index == SIZE_MAX) {
		/* all before it have their results: the first one's is known */
		durable = interval_set_has(&w->known.have, item->sequence);
		stream_writer_give_result(w, item, durable ? SINK_DOUBLE : SINK_AGAIN);
		return;
	}
	(void)interval_set_remove(&w->taken, item->sequence, item->sequence);
	/* one that cannot be remembered is one that will be written twice */
	if (durable &&
		(interval_set_add(&w->known.have, item->sequence, item->sequence) < 0 ||
			interval_set_add(&f->have, item->sequence, item->sequence) < 0))
		stream_writer_say(w, true, "no memory for a list of what is durable");
	if (durable) {
		w->backoff = 0;
		note_repair(w, item->sequence);
		FAIL_POINT("stream.durable");
	}
	stream_writer_give_result(w, item, durable ? SINK_DURABLE : SINK_AGAIN);
}

/* What a file, open or closed, has to show for since it was looked at last. */
static void
count_file(struct stream_writer *w, struct stream_file *f)
{
	unsigned int i;

	ADD(w->stats.syncs, f->file.out.syncs - f->syncs);
	f->syncs = f->file.out.syncs;
	/* latencies are of batches that have become durable */
	if (f->counted == f->file.nb_durable)
		return;
	f->counted = f->file.nb_durable;
	for (i = 0; i < ARROW_LATENCY_BUCKETS; i++) {
		if (f->file.latency[i] == 0)
			continue;
		ADD(w->stats.latency[i], f->file.latency[i]);
		f->file.latency[i] = 0;
	}
}

/* A closed file whose batches all have results. */
static void
retire(struct stream_writer *w, struct stream_file *f)
{
	if (f->has_thread)
		pthread_join(f->thread, NULL);
	ADD(w->stats.complete, f->file.complete);
	ADD(w->stats.uncut, f->file.uncut);
	ADD(w->stats.copied, f->file.out.copied);
	if (f->file.error != 0) {
		stream_writer_say(w, true, f->file.message);
		if (w->first_error == 0)
			w->first_error = f->file.error;
	}
	if (stream_known_add(&w->known, arrow_file_path(&f->file), &f->have, f->file.uncut) < 0)
		stream_writer_say(w, true, "no memory for a list of files");
	if (w->config.quota != NULL) {
		w->config.quota->used += f->file.size - f->charged;
		w->config.quota->open -= f->charged;
	}
	interval_set_free(&f->have);
	free(f->item);
	free(f);
}

void
stream_writer_give_results(struct stream_writer *w)
{
	struct stream_file *f;
	bool closed;

	while ((f = w->oldest) != NULL) {
		closed = __atomic_load_n(&f->closed, __ATOMIC_ACQUIRE);
		/* its thread has it now */
		if (f->closing && !closed)
			return;
		count_file(w, f);
		while (f->results < f->nb &&
			(closed || f->item[f->results].index == SIZE_MAX ||
				f->item[f->results].index < f->file.nb_durable))
			resolve(w, f, &f->item[f->results++]);
		if (!closed)
			break;
		w->oldest = f->next;
		retire(w, f);
	}
	/* what has been told is of no interest */
	if (f != NULL && f->results > 0 && f->results >= f->nb / 2) {
		memmove(f->item, f->item + f->results, (f->nb - f->results) * sizeof(*f->item));
		f->nb -= f->results;
		f->results = 0;
	}
}
