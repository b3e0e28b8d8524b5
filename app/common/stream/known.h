/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Files of a stream that are closed, and which batches each has. One thread.
 *
 * A batch that its file's footer marks as damaged, or whose announcement is damaged, is in no set:
 * the store does not have it, and takes it again.
 *
 * Bodies are read where it is about to count that a batch is there: before somebody else lets go of
 * his copy (stream_known_check()), and before a file is cut off as a later one has the same. One
 * that is wrong is marked as damaged in the footer of its file, in place, before anything else is
 * done: so the batch may be stored again, and readers see it once.
 */
#ifndef STREAM_KNOWN_H
#define STREAM_KNOWN_H

#include <limits.h>
#include <stdbool.h>

#include "io/file_io.h"
#include "arrow/schema.h"
#include "arrow/async_writer.h"
#include "interval_set.h"

struct stream_known_file {
	char *path;
	struct interval_set have;
	bool uncut; /**< a `.part` that may have batches behind those, which were given back */
};

/** All zero: none. */
struct stream_known {
	struct stream_known_file *file;
	size_t nb;
	struct interval_set have; /**< of all, and what the owner adds: durable */
};

void stream_known_free(struct stream_known *k);

/** Add a file, and take what it has; `have` of all is the caller's. @return 0; -ENOMEM */
int stream_known_add(
	struct stream_known *k, const char *path, struct interval_set *have, bool uncut);

/** Batches whose bodies were read. */
struct stream_checked {
	uint64_t batches;
	uint64_t bytes;
	struct interval_set rotten; /**< of them, those that no file has any more */
};

/**
 * Add a complete file that is there.
 *
 * A batch that an earlier file has as well was given back when that one failed, and could not be
 * cut off then: it is now, with all behind it. Both copies are read before: one that is wrong is
 * marked as damaged, and never a reason to cut the other off.
 *
 * @param slices    how copies are written; io is theirs, too
 * @param identity  of the stream
 * @param cut       out: batches that an earlier file lost
 * @param message   out, on error or if something was cut off
 * @return 0; -EXDEV: of another stream; -EBADMSG: not complete; -EUCLEAN: an earlier file is
 *   damaged, and cannot be cut off; -errno of the file system; -ENOMEM
 */
int stream_known_read(struct stream_known *k, const struct arrow_io_ops *io,
	const struct arrow_slices_config *slices, const struct arrow_identity *identity,
	const char *path, uint64_t *cut, char message[PATH_MAX]);

/**
 * Whether batches are there as they were written: those that somebody else still holds, and would
 * let go of. What is wrong is not had any more.
 * @param mark     mark it as damaged in its file, durably. Without that nothing is changed on the
 *   disk, and it must not be stored again
 * @param checked  is added to
 * @param message  out, on error, or if something was marked
 * @return 0; -errno: it is not known of all of them; maybe some was marked
 */
int stream_known_check(struct stream_known *k, const struct arrow_io_ops *io,
	const struct arrow_identity *identity, const struct interval_set *held, bool mark,
	struct stream_checked *checked, char message[PATH_MAX]);

/**
 * Cut one file off from a batch on, which it has; `have` of all goes with it.
 * @param cut  out: so many are added
 * @return 0; -errno: it may still be there, the message says why
 */
int stream_known_cut_file(struct stream_known *k, const struct arrow_io_ops *io,
	struct stream_known_file *f, uint64_t from, uint64_t *cut, char message[PATH_MAX]);

/**
 * What of a file would be gone if it were cut off at a batch: what no other file has from there on.
 * @param alone   gets them; empty before
 * @param behind  out: how many it has from there on, alone or not
 * @return 0; -ENOMEM
 */
int stream_known_alone(const struct stream_known *k, size_t file, uint64_t from,
	struct interval_set *alone, uint64_t *behind);

/** The highest number of a file (stream/copy.h). */
unsigned int stream_known_number(const struct stream_known *k);

/** Whether stream_known_cut() would have something to cut off, or may have. */
bool stream_known_is_touched(const struct stream_known *k, const struct interval_set *moved);

/**
 * Take out of each file what is in `moved`: it is cut off at the first of them, and what is behind
 * that and did not move gets a file of its own first (stream/copy.h). Whoever was told that it is
 * there may have relied on it. And what has been given back of files that are `uncut`: some of it
 * may have moved.
 * @param slices    how copies are written; io is theirs, too
 * @param identity  of the stream
 * @param cut       out: how many are gone
 * @return 0; -errno: of the first file that could not be cut off, the message says why
 */
int stream_known_cut(struct stream_known *k, const struct arrow_io_ops *io,
	const struct arrow_slices_config *slices, const struct arrow_identity *identity,
	const struct interval_set *moved, uint64_t *cut, char message[PATH_MAX]);

#endif /* STREAM_KNOWN_H */
