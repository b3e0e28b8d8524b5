/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Writes an Arrow file: header, record batches, trailer. Its name is `NAME.part` until it is
 * complete.
 *
 * A batch is durable when it, all batches before it and the file's name are durable. After an error
 * no more batches are accepted. arrow_file_close() then keeps the batches that are certain to be
 * written, truncates the rest, and completes the file if the disk permits: batches are missing, but
 * the end is valid. Otherwise the file stays `.part`, which is a valid stream up to its last
 * complete batch, and recovery completes it later.
 *
 * One thread at a time per file. Calls block in the file system.
 */
#ifndef ARROW_FILE_H
#define ARROW_FILE_H

#include <limits.h>

#include "arrow/schema.h"
#include "arrow/async_writer.h"
#include "histogram.h"

struct batch;

/** Maximum number of parts of a batch's body. */
#define ARROW_PARTS_MAX 3328

/**
 * A batch in the file; it follows the previous one directly. Kept at 8 bytes: a file may have
 * millions of batches, and every first touch of a page stalls the polling lcore.
 */
struct arrow_file_batch {
	uint32_t metadata; /**< bytes */
	uint32_t body;	   /**< in units of eight bytes */
};

/** A batch that is not durable yet. */
struct arrow_file_pending {
	uint64_t rows;
	int64_t received; /**< see struct batch */
};

/** Progress of a file. */
struct arrow_file_progress {
	uint64_t rows;	  /**< that are durable */
	uint64_t batches; /**< that are durable */
	uint64_t bytes;	  /**< passed in; modulo 2^64, as a file that is closed may be truncated */
	uint64_t syncs;
};

struct arrow_file {
	struct async_writer out;
	const struct arrow_schema *schema;
	struct arrow_file_batch *batches;
	size_t nb_batches;
	size_t cap_batches;
	size_t nb_durable;    /**< number of durable batches */
	uint64_t durable_end; /**< offset of the end of the last durable batch */
	/** batches that are not durable yet: number i at i & (cap_pending - 1) */
	struct arrow_file_pending *pending;
	size_t cap_pending;
	uint64_t size; /**< bytes passed in so far */
	uint64_t rows; /**< of all batches; after close, of the kept batches */
	uint64_t rows_durable;
	/** Times from `received` to durable. */
	struct histogram latency;
	/** Clock of `received`, set by the owner. NULL: no latency is measured. */
	int64_t (*clock)(void *arg);
	/** The clock may be called by any thread that uses the file. */
	void *clock_arg;
	struct arrow_file_progress counted; /**< by arrow_file_count() */
	bool complete; /**< the trailer is written and the file has its final name */
	/** after close, if not complete: the file may hold batches after the kept ones */
	bool uncut;
	int error;		      /**< 0, or the first error as -errno */
	char path[PATH_MAX];	      /**< path when complete */
	char part[PATH_MAX];	      /**< path until then */
	char message[PATH_MAX + 128]; /**< on an error or news: what happened, where, and why */
};

/**
 * Create DIR/NAME.arrow.part, write the header, and make the name durable.
 * @param config  NULL: defaults
 * @param schema  must outlive the file
 * @return 0 or -errno: `message` has the reason, and nothing is left open
 *   - -EEXIST: DIR/NAME.arrow or its .part exists
 *   - -ENAMETOOLONG
 *   - -EINVAL: invalid slice or depth
 */
int arrow_file_create(struct arrow_file *f, const struct async_writer_config *config,
	const char *dir, const char *name, const struct arrow_schema *schema);

/**
 * Reserve space for `bytes` after what was passed in. A new file after an outage needs it.
 * @return 0, even if the file system cannot reserve space; otherwise -errno: `message` has the
 *   reason, and the file is removed. It must have no batch.
 */
int arrow_file_reserve(struct arrow_file *f, uint64_t bytes);

/**
 * Append a record batch.
 * @param batch  of at most ARROW_PARTS_MAX parts; if `lasting`, its body may be read until
 *   arrow_file_wait() has returned
 * @return 0: accepted; otherwise the first error. The file may then hold the batch or not, as
 *   arrow_file_close() reports
 */
int arrow_file_append(struct arrow_file *f, const struct batch *batch);

/** Update what is durable, and start operations that are due. @return 0 or the first error */
int arrow_file_poll(struct arrow_file *f);

/** Wait until all batches are durable. @return 0 or the first error */
int arrow_file_commit(struct arrow_file *f);

/**
 * Determine the progress since the last call, of an open file or of a closed one.
 * @param latency  the file's `latency` is added to it and set to zero; other threads may read it
 */
void arrow_file_count(
	struct arrow_file *f, struct arrow_file_progress *progress, struct histogram *latency);

/** Wait until the memory of batches that end before byte `end` of the file is not read any more. */
void arrow_file_wait(struct arrow_file *f, uint64_t end);

/**
 * Write the trailer, wait for the disk, and rename the file. Another thread may call this once all
 * earlier calls have returned.
 * @return 0: all batches are durable; otherwise the first error. `rows` is the number of kept rows,
 *   and `complete` is true if the file has a trailer and its final name
 */
int arrow_file_close(struct arrow_file *f);

/** Close and remove an open file that no batch was written to. */
void arrow_file_discard(struct arrow_file *f);

/** @return current path of the file */
const char *arrow_file_path(const struct arrow_file *f);

#endif /* ARROW_FILE_H */
