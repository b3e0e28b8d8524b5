/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A complete file of a stream being read: whose batches it has, which, and from there into a
 * stream's writer. What is written is what was read, byte for byte: batches keep their identity.
 *
 * Batches that the file's footer marks as damaged (arrow/reader.h) are not among those that it has.
 *
 * The file is locked while it is open. Where its bodies are read it is mapped: a disk that cannot
 * read it ends the process (SIGBUS). One thread.
 */
#ifndef STREAM_SOURCE_H
#define STREAM_SOURCE_H

#include <limits.h>

#include "io/file_io.h"
#include "arrow/reader.h"
#include "interval_set.h"
#include "xfer/proto.h"
#include "stream/writer.h"

struct stream_source {
	const struct arrow_io_ops *io;
	const char *path; /**< the caller's */
	void *handle;
	struct arrow_window *window; /**< NULL: it is mapped */
	struct arrow_reader reader;
};

/**
 * @param message  out, on error: what is wrong
 * @return 0; -EBADMSG: not complete, or damaged; -EBUSY: somebody has it; -errno
 */
int stream_source_open(struct stream_source *s, const struct arrow_io_ops *io, const char *path,
	char message[PATH_MAX]);

/**
 * The same for stream_source_list() alone: bodies are not there. It is read, not mapped: a batch
 * whose announcement the disk cannot read is not among those that it has.
 */
int stream_source_open_to_list(struct stream_source *s, const struct arrow_io_ops *io,
	const char *path, char message[PATH_MAX]);

void stream_source_close(struct stream_source *s);

/** Whether nobody but this user or root has made it, as far as that can be told. */
bool stream_source_is_ours(const struct stream_source *s);

/**
 * What a file has.
 * @param identity  whose batches they must be; its table NULL: out, those of the first batch (and
 *   still NULL if there is none)
 * @param have      out: their sequence numbers are added
 * @return 0; -EXDEV: of another stream, or of none; -ENOMEM
 */
int stream_source_list(
	const struct arrow_reader *r, struct arrow_identity *identity, struct interval_set *have);

/** Whose batch it is. @return 0; -EXDEV: nobody's */
int stream_source_identity(const struct arrow_read_batch *b, struct arrow_identity *identity);

/** Number of a batch in its stream. */
uint64_t stream_source_sequence(const struct arrow_reader *r, size_t batch);

/**
 * What is wrong with a batch that is not known to be damaged, every byte looked at.
 * @return NULL: nothing is; else a static text
 */
const char *stream_source_fault(struct stream_source *s);

/**
 * Compare bodies with their CRC. They are read from the disk, not through the mapping, where the
 * file can be read so: what it cannot read is an error then.
 * @param which  numbers of those that are looked at
 * @param bad    numbers of those that are wrong are added
 * @param bytes  of the bodies that were read are added
 * @return 0; -errno: one cannot be read; -ENOMEM
 */
int stream_source_check(struct stream_source *s, const struct interval_set *which,
	struct interval_set *bad, uint64_t *bytes);

/** Read all of a file, so that a disk that cannot read it is an error, and not the end of the
 * process once it is mapped. @return 0; -errno; -ENOMEM */
int stream_source_read_through(struct stream_source *s);

/**
 * Name of the run, out of the name of one of its files: RUN_INCARNATION_NNNNNN_TABLE.arrow.
 * @return 0; -EINVAL: a file that has another name
 */
int stream_source_run(const char *path, char run[XFER_NAME_BYTES]);

/**
 * Whether a file, complete or not, is one of a run's incarnation, and of its table unless that is
 * NULL; by its name, as above.
 */
bool stream_source_is_of(const char *path, const char *run, const struct arrow_identity *of);

/** Where the files of a run are, below a store's root. @return 0; -ENAMETOOLONG */
int stream_source_dir(char dir[PATH_MAX], const char *root, const char *run,
	const struct arrow_identity *identity);

/**
 * Give a writer the batches of a file, in their order, and complete what it has written; returns
 * with the results of all.
 * @param only  those that are in it; NULL: all
 * @return batches that were given; -EBADMSG: one that no receiver of ours has made
 */
int64_t stream_source_copy(
	const struct stream_source *s, struct stream_writer *w, const struct interval_set *only);

#endif /* STREAM_SOURCE_H */
