/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The closed files of a stream, and the batches that each file has. One thread.
 *
 * A batch that the file's footer marks as damaged, or whose announcement is damaged, is in no set:
 * the store does not have it, and accepts it again.
 *
 * Copies of a batch are compared by their CRCs (stream/content.h). If two copies differ, nothing of
 * the stream is changed, and it is not written to (-ENOTUNIQ): an operator must find out which one
 * is the receiver's.
 *
 * Bodies are read before another copy is given up: before a peer releases its copy
 * (closed_files_check()), and before a file is truncated because a later one has the same batches.
 * A body that is damaged is first marked in the footer of its file, in place. The batch may then be
 * stored again, and readers see it once.
 */
#ifndef STREAM_CLOSED_FILES_H
#define STREAM_CLOSED_FILES_H

#include <limits.h>
#include <stdbool.h>

#include "io/file_io.h"
#include "arrow/schema.h"
#include "arrow/async_writer.h"
#include "interval_set.h"
#include "stream/content.h"

struct closed_file {
	char *path;
	struct interval_set have;
	/** of the batches in `have`; it may list others, which were removed */
	struct stream_contents contents;
	/**
	 * a `.part` file that may hold batches after those of the set; these were refused
	 * (XFER_RETRY)
	 */
	bool uncut;
};

/** Zero-initialized: no files. */
struct closed_files {
	struct closed_file *file;
	size_t nb;
	/** the durable batches of all files, and those that the owner adds */
	struct interval_set have;
};

void closed_files_free(struct closed_files *k);

/**
 * Add a file with its batches. The caller updates `have` of the stream. The ownership of both lists
 * is transferred. @return 0; -ENOMEM
 */
int closed_files_add(struct closed_files *k, const char *path, struct interval_set *have,
	struct stream_contents *contents, bool uncut);

/**
 * Compare a batch with the stored copies of it.
 * @param path  out: the file that has another content; may be NULL
 * @return 1: all copies are the same; 0: there is none; -ENOTUNIQ: one differs
 */
int closed_files_compare(
	const struct closed_files *k, uint64_t sequence, uint64_t crc, const char **path);

/**
 * Find the batches that two files have with different contents.
 * @param which  out: their numbers are added
 * @return 0; -ENOMEM
 */
int closed_files_differing(
	const struct closed_file *a, const struct closed_file *b, struct interval_set *which);

/**
 * Report each pair of files that have differing copies of a batch: one line for each batch, with
 * both files and its frames, and one with what to do. Files are only read, without a lock.
 * @param say  receives lines of text
 * @return 0: all copies are the same; -ENOTUNIQ; -ENOMEM
 */
int closed_files_report_differing(const struct closed_files *k, const struct arrow_io_ops *io,
	void (*say)(void *arg, bool error, const char *text), void *arg);

/** Results of reading bodies. */
struct stream_checked {
	uint64_t batches;
	uint64_t bytes;
	struct interval_set damaged; /**< batches of them that no file has any more */
};

/**
 * Compare all files with each other.
 * @param message  out, on error: two files that have differing copies of a batch
 * @return 0: all copies are the same; -ENOTUNIQ; -ENOMEM
 */
int closed_files_find_differing(const struct closed_files *k, char message[PATH_MAX]);

/**
 * Add an existing complete file as it is.
 * @param identity  of the stream
 * @param message   out, on error
 * @return 0; -EXDEV: of another stream; -EBADMSG: not complete; -errno of the file system; -ENOMEM
 */
int closed_files_list(struct closed_files *k, const struct arrow_io_ops *io,
	const struct arrow_identity *identity, const char *path, char message[PATH_MAX]);

/**
 * Add a file of another list. Call closed_files_find_differing() for the whole list before: nothing
 * may be truncated because of a copy as long as another one may differ.
 *
 * If an earlier file has one of its batches too, that batch was refused when the earlier file
 * failed, and the file could not be truncated then. It is truncated now, from that batch on. Both
 * copies are read before: a damaged copy is marked as damaged, and is no reason to truncate the
 * other one. Batches after it that no other file has are first copied to a new file
 * (stream/copy.h).
 *
 * @param io        as that of the slices
 * @param slices    how copies are written
 * @param identity  of the stream
 * @param file      its sets are transferred
 * @param cut       out: batches that an earlier file lost
 * @param message   out, on error or if a file was truncated
 * @return 0; -EUCLEAN: a file is damaged and cannot be truncated or marked; -errno of the file
 *   system; -ENOMEM
 */
int closed_files_take(struct closed_files *k, const struct arrow_io_ops *io,
	const struct async_writer_config *slices, const struct arrow_identity *identity,
	struct closed_file *file, uint64_t *cut, char message[PATH_MAX]);

/**
 * Verify batches that a peer still holds and is about to release. Damaged batches are removed from
 * the sets.
 * @param mark     mark them as damaged in their files, durably. Otherwise the disk is not changed,
 *   and they must not be stored again
 * @param checked  the results are added to it
 * @param message  out, on error, or if a batch was marked
 * @return 0; -errno: not all batches could be verified; some may have been marked
 */
int closed_files_check(struct closed_files *k, const struct arrow_io_ops *io,
	const struct arrow_identity *identity, const struct interval_set *held, bool mark,
	struct stream_checked *checked, char message[PATH_MAX]);

/**
 * Truncate one file from a batch on. The file must have that batch. `have` of the stream is
 * updated.
 * @param cut  out: incremented by the number of removed batches
 * @return 0; -errno: the batches may still be there; see `message`
 */
int closed_files_cut_file(struct closed_files *k, const struct arrow_io_ops *io,
	struct closed_file *f, uint64_t from, uint64_t *cut, char message[PATH_MAX]);

/**
 * Compute which batches would be lost if a file were truncated at a batch: those that no other file
 * has.
 * @param alone   out: these batches; must be empty
 * @param behind  out: number of batches of the file from there on
 * @return 0; -ENOMEM
 */
int closed_files_only_copies(const struct closed_files *k, size_t file, uint64_t from,
	struct interval_set *alone, uint64_t *behind);

/** @return highest file number (stream/copy.h) */
unsigned int closed_files_highest_number(const struct closed_files *k);

/** Whether closed_files_cut() has, or may have, something to truncate. */
bool closed_files_need_cut(const struct closed_files *k, const struct interval_set *moved);

/**
 * Remove the reassigned batches `moved` from each file. The file is truncated at the first of them.
 * Batches after it that were not reassigned are first copied to a new file (stream/copy.h), since
 * a peer may rely on their being durable. Refused batches at the end of `uncut` files are removed
 * as well, since they may have been reassigned.
 * @param io        as that of the slices
 * @param slices    how copies are written
 * @param identity  of the stream
 * @param cut       out: number of removed batches
 * @return 0; -errno of the first file that could not be truncated; see `message`
 */
int closed_files_cut(struct closed_files *k, const struct arrow_io_ops *io,
	const struct async_writer_config *slices, const struct arrow_identity *identity,
	const struct interval_set *moved, uint64_t *cut, char message[PATH_MAX]);

#endif /* STREAM_CLOSED_FILES_H */
