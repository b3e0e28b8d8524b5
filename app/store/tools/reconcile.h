/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Each batch of a stream into one file, out of the files of several stores: those that two have are
 * cut off one of them.
 *
 * Files are cut off, batches are not picked out of them: of the files that have doubles the one is
 * chosen behind whose first double the fewest batches are that no other file has. Those few are
 * written to a file of their own first, and are durable before anything is cut. So at any moment
 * each batch is in some file; after a crash, and recovery of `.part` files, it is done again, and
 * ends the same way.
 *
 * Nothing is cut off as long as a file with doubles has anything that is damaged: the copy that
 * stays must be good. One thread.
 */
#ifndef RECONCILE_H
#define RECONCILE_H

#include "arrow/async_writer.h"
#include "stream/known.h"

/** Files of one stream, of all stores. */
struct reconcile_stream {
	struct arrow_identity identity;
	struct stream_known known;
	struct interval_set all; /**< batches that any of them has, also afterwards */
	int result;		 /**< of reconcile_run(): 0, each is there once; -errno */
};

struct reconcile {
	const struct arrow_io_ops *io;
	struct arrow_slices_config slices; /**< of files that are written, but for io */
	bool dry_run;			   /**< say what would be done */
	/** What was done, or is wrong. */
	void (*say)(void *arg, bool error, const char *text);
	void *arg;
	struct reconcile_stream *stream;
	size_t nb;
	uint64_t batches; /**< in one file or more */
	uint64_t doubles; /**< copies that were too many */
	uint64_t cut;	  /**< batches cut off: doubles, and what was behind them */
	uint64_t copied;  /**< of them, written to a file of their own before */
	uint64_t files;	  /**< that were cut off */
};

/** @param r  io, slices, dry_run, say, arg are set, all else is zero */
void reconcile_free(struct reconcile *r);

/**
 * A complete file, one without batches is of no interest.
 * @param have  what it has, is taken
 * @return 0; -ENOMEM
 */
int reconcile_add(struct reconcile *r, const char *path, const struct arrow_identity *identity,
	struct interval_set *have);

/** Read what a file has, and add it. @return as stream_source_list(), with a message said */
int reconcile_read(struct reconcile *r, const char *path);

/** How many copies of batches are too many. */
uint64_t reconcile_doubles(const struct reconcile_stream *s);

/**
 * Cut doubles off.
 * @return the first result that is not 0. -EBADMSG: something is damaged, and its stream stays as
 *   it is; -errno: it may be done in part, and is to be done again
 */
int reconcile_run(struct reconcile *r);

/**
 * After that: read those batches of a stream that somebody else still holds, and would let go of.
 * Nothing is changed on the disk.
 * @param sound   gets those that a file has, as they were written
 * @param rotten  out: how many are damaged in their file
 * @return 0; -errno: it is not known of all of them (said)
 */
int reconcile_check(struct reconcile *r, struct reconcile_stream *stream,
	const struct interval_set *held, struct interval_set *sound, uint64_t *rotten);

#endif /* RECONCILE_H */
