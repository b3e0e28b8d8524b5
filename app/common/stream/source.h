/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Reads a complete file of a stream: the stream's identity, its batches, and their transfer to the
 * writer of a stream. The bytes are written unchanged, so batches keep their identity.
 *
 * Batches that the file's footer marks as damaged (arrow/reader.h) are not listed.
 *
 * The file is locked while it is open, except for messages. To read bodies, it is mapped: if the
 * disk cannot read it, the process is killed by SIGBUS. One thread.
 */
#ifndef STREAM_SOURCE_H
#define STREAM_SOURCE_H

#include <limits.h>

#include "io/file_io.h"
#include "arrow/reader.h"
#include "interval_set.h"
#include "recovery/damage.h"
#include "xfer/proto.h"
#include "stream/content.h"
#include "stream/writer.h"

struct stream_source {
	const struct arrow_io_ops *io;
	const char *path; /**< of the caller */
	void *handle;
	struct arrow_window *window; /**< NULL: the file is mapped */
	struct arrow_reader reader;
};

/**
 * Open a file and map it.
 * @param message  out, on error: what is wrong
 * @return 0; -EBADMSG: not complete, or damaged; -EBUSY: locked by another process; -errno
 */
int stream_source_open(struct stream_source *s, const struct arrow_io_ops *io, const char *path,
	char message[PATH_MAX]);

/**
 * As stream_source_open(), but the file is not locked: another process may have it open. For
 * messages only.
 */
int stream_source_open_to_show(struct stream_source *s, const struct arrow_io_ops *io,
	const char *path, char message[PATH_MAX]);

/**
 * As stream_source_open(), for stream_source_list() only: bodies are not accessible. The file is
 * read, not mapped. A batch whose announcement the disk cannot read is not listed.
 */
int stream_source_open_to_list(struct stream_source *s, const struct arrow_io_ops *io,
	const char *path, char message[PATH_MAX]);

void stream_source_close(struct stream_source *s);

/**
 * Whether the file can only have been created by this user or root, as far as this can be
 * determined.
 */
bool stream_source_is_ours(const struct stream_source *s);

/** @return the content of a batch whose announcement is valid (stream/content.h) */
uint64_t stream_source_content(const struct arrow_reader *r, const struct arrow_read_batch *b);

/** Describe the frames of a batch in a line of text. Its body is read. */
void stream_source_frames(const struct arrow_reader *r, size_t batch, char text[ARROW_DAMAGE_TEXT]);

/**
 * List the batches of a file.
 * @param identity  expected stream. If its table is NULL: out, stream of the file's name, or else
 *   of the first batch (the table stays NULL if there is no batch)
 * @param have      out: the sequence numbers are added to it
 * @param contents  out: their contents are added to it; may be NULL
 * @return 0; -EXDEV: of another stream, or without identity; -ENOMEM
 */
int stream_source_list(const struct arrow_reader *r, struct arrow_identity *identity,
	struct interval_set *have, struct stream_contents *contents);

/** Get the stream of a batch. @return 0; -EXDEV: the batch has no identity */
int stream_source_identity(const struct arrow_read_batch *b, struct arrow_identity *identity);

/** @return sequence number of a batch */
uint64_t stream_source_sequence(const struct arrow_reader *r, size_t batch);

/**
 * Check all bytes of the batches that are not known to be damaged.
 * @return NULL: no fault; otherwise what is wrong (static string)
 */
const char *stream_source_fault(struct stream_source *s);

/**
 * Verify the CRC of bodies. If possible they are read from the disk, not through the mapping, so
 * that a read error is returned.
 * @param which  sequence numbers of the batches to verify
 * @param bad    out: the numbers of damaged batches are added to it
 * @param bytes  incremented by the size of the bodies that were read
 * @return 0; -errno: a body cannot be read; -ENOMEM
 */
int stream_source_check(struct stream_source *s, const struct interval_set *which,
	struct interval_set *bad, uint64_t *bytes);

/**
 * Read the whole file, so that a read error is returned here and does not kill the process once the
 * file is mapped. @return 0; -errno; -ENOMEM
 */
int stream_source_read_through(struct stream_source *s);

/**
 * Get the name of the run from a file name RUN_INCARNATION_NNNNNN_TABLE.arrow.
 * @return 0; -EINVAL: another kind of name
 */
int stream_source_run(const char *path, char run[XFER_NAME_BYTES]);

/**
 * Whether the name of a file, complete or not, is one of this run, incarnation and table. A table
 * of NULL matches all.
 */
bool stream_source_matches(const char *path, const char *run, const struct arrow_identity *of);

/** Get the folder of a run's files below a store's root. @return 0; -ENAMETOOLONG */
int stream_source_dir(char dir[PATH_MAX], const char *root, const char *run,
	const struct arrow_identity *identity);

/**
 * Pass the batches of a file to a writer in order, complete what it writes, and wait for all
 * results.
 * @param only  batches to pass; NULL: all
 * @return number of batches passed; -EBADMSG: a batch that no receiver of this program has made
 */
int64_t stream_source_copy(
	const struct stream_source *s, struct stream_writer *w, const struct interval_set *only);

#endif /* STREAM_SOURCE_H */
