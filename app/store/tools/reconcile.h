/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Reconciles the files of several stores, so that each batch of a stream is in one file: one of two
 * copies is removed.
 *
 * Files are truncated, because single batches cannot be removed. Of the files with duplicates, the
 * one with the fewest unique batches after its first duplicate is chosen. These batches are first
 * copied to a new file and made durable. Each batch is thus in a file at any moment. After a crash,
 * and recovery of the `.part` files, the command can be repeated with the same result.
 *
 * Nothing of a run is truncated if two copies of a batch differ (stream/content.h), or if its files
 * have different run names: a copy from another sender must not replace the receiver's.
 *
 * If a directory has the mark that the run has ended, the mark is written to all directories that
 * keep batches of the run before the first truncation. Otherwise a peer could truncate the
 * remaining copy. Files of directories that had the mark are kept where possible.
 *
 * Nothing of a run is truncated while a file with duplicates has damaged batches, since the
 * remaining copy must be intact. One thread.
 */
#ifndef RECONCILE_H
#define RECONCILE_H

#include "arrow/async_writer.h"
#include "stream/closed_files.h"

/** The files of one stream, of all stores. */
struct reconcile_stream {
	struct arrow_identity identity;
	struct closed_files files;
	struct interval_set all;   /**< batches of all files, before and after */
	char run[XFER_NAME_BYTES]; /**< name of the run, from the first file; empty: unknown */
	/**
	 * in and out of reconcile_inspect(): the stream stays unchanged, for a reason that was
	 * reported
	 */
	bool kept;
	int result; /**< of the functions below: 0: each batch is in one file; -errno */
};

/** A mark that a run has ended: stream/ended.h. */
struct reconcile_mark {
	char *dir;
	uint64_t incarnation;
	bool found; /**< false: written by reconcile_run() */
};

struct reconcile {
	const struct arrow_io_ops *io;
	struct async_writer_config slices; /**< for the files that are written, except for io */
	bool dry_run;			   /**< only report what would be done */
	/** Reports actions and problems. */
	void (*say)(void *arg, bool error, const char *text);
	void *arg;
	struct reconcile_stream *stream;
	size_t nb;
	struct reconcile_mark *mark;
	size_t nb_marks;
	uint64_t batches;    /**< distinct batches */
	uint64_t duplicates; /**< redundant copies */
	uint64_t cut;	     /**< batches removed: duplicates, and those after them */
	uint64_t copied;     /**< part of `cut` that was copied to a new file before */
	uint64_t files;	     /**< files that were truncated */
};

/** @param r  io, slices, dry_run, say and arg are set, all else is zero */
void reconcile_free(struct reconcile *r);

/**
 * Add a complete file. A file without batches is ignored.
 * @param have      its batches; ownership is transferred
 * @param contents  their contents; ownership is transferred
 * @return 0; -ENOMEM
 */
int reconcile_add(struct reconcile *r, const char *path, const struct arrow_identity *identity,
	struct interval_set *have, struct stream_contents *contents);

/** Get a stream. It is added without files if there is none. @return NULL: out of memory */
struct reconcile_stream *reconcile_stream_of(
	struct reconcile *r, const struct arrow_identity *identity);

/** Add the mark that a run has ended. @return 0; -ENOMEM; -EINVAL: not the path of such a mark */
int reconcile_add_mark(struct reconcile *r, const char *path);

/** Read the batches of a file, and add it. @return as stream_source_list(); errors are reported */
int reconcile_read(struct reconcile *r, const char *path);

/**
 * Report files of a stream that have another run name than its first one.
 * @return 0: there are none; -ENOTUNIQ
 */
int reconcile_report_names(const struct reconcile *r, const struct reconcile_stream *s);

/** @return number of redundant copies of batches */
uint64_t reconcile_duplicates(const struct reconcile_stream *s);

/**
 * Decide which runs stay unchanged. All tables of a run stay unchanged if one of them does. Nothing
 * is changed yet.
 * @return the first result that is not 0. -ENOTUNIQ: copies of a batch differ, or a run has two
 *   names; -EBADMSG: something is damaged; -errno
 */
int reconcile_inspect(struct reconcile *r);

/**
 * Whether a stream of a run is kept, or the run has no file here; other stores may have its files.
 * @param arg  the struct reconcile
 */
bool reconcile_is_kept(void *arg, const struct arrow_identity *identity);

/**
 * After reconcile_inspect(): truncate the duplicates of the streams that are not kept.
 * @return the first result that is not 0, also of reconcile_inspect(). -errno: the work may be
 *   incomplete, and must be repeated
 */
int reconcile_run(struct reconcile *r);

/**
 * After reconcile_run(): verify batches of a stream that a peer still holds and is about to
 * release. The disk is not changed.
 * @param sound   out: batches that are intact in a file
 * @param damaged  out: number of batches that are damaged in their file
 * @return 0; -errno: not all batches could be verified (reported)
 */
int reconcile_check(struct reconcile *r, struct reconcile_stream *stream,
	const struct interval_set *held, struct interval_set *sound, uint64_t *damaged);

#endif /* RECONCILE_H */
