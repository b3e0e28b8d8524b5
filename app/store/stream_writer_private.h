/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef STREAM_WRITER_PRIVATE_H
#define STREAM_WRITER_PRIVATE_H

/**
 * @file
 * What the parts of a stream's writer share: stream_writer.c (batches into files) and
 * stream_writer_results.c (what became of each batch, in their order).
 */

#include <pthread.h>

#include "stream_known.h"
#include "stream_writer.h"

/* A batch that has no result. */
struct item {
	uint64_t sequence;
	uint64_t tag;
	uint64_t bytes;
	uint64_t rows;
	size_t index; /* in its file; SIZE_MAX: a double */
};

/* A file that is written or being closed. */
struct stream_file {
	struct stream_file *next; /* younger */
	struct arrow_file file;
	struct item *item;
	size_t nb;
	size_t room;
	size_t results; /* items that have one */
	struct interval_set have;
	uint64_t charged; /* to the quota */
	uint64_t syncs;	  /* that are counted */
	size_t counted;	  /* batches that were durable when it was looked at last */
	uint64_t opened_at;
	uint64_t last; /* sequence */
	bool empty;
	bool closing;
	bool has_thread;
	pthread_t thread;
	void (*enter)(void);
	bool closed; /* atomic */
};

struct stream_writer {
	struct stream_writer_config config;
	const struct arrow_io_ops *io;
	struct stream_file *oldest;
	struct stream_file *current; /* the youngest, if it is open; NULL: none is */
	struct stream_known known;   /* files that are closed, and all that is durable */
	struct interval_set taken;   /* without a result */
	struct interval_set rotten;  /* found damaged, and not stored again so far */
	struct interval_set unread;  /* were there before, and nobody has read their bodies */
	bool doubt;		     /* one of them has come again */
	unsigned int set;	     /* number of the last file */
	uint64_t retry_at;
	uint64_t backoff; /* ns */
	uint64_t wanted;  /* bytes of the largest batch that the quota refused since it was full */
	int first_error;
	struct stream_stats stats; /* one writer; read with atomic loads */
};

#define SET(counter, value) __atomic_store_n(&(counter), (value), __ATOMIC_RELAXED)
#define ADD(counter, n)	    SET(counter, (counter) + (n))

/** A line for the log of whoever opened the writer. */
void stream_writer_say(const struct stream_writer *w, bool error, const char *text);

/** Count a batch's result and give it. */
void stream_writer_give_result(
	struct stream_writer *w, const struct item *item, enum sink_result_status status);

/** Results of what is known by now, oldest first; files that have given all of theirs are gone. */
void stream_writer_give_results(struct stream_writer *w);

#endif /* STREAM_WRITER_PRIVATE_H */
