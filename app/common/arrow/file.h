/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * An Arrow file being written: header, record batches, trailer; `NAME.part` until it is complete.
 *
 * A batch is durable when it, all before it and the file's name are. After an error nothing more is
 * taken; arrow_file_close() then keeps the batches that are sure, cuts off what follows them, and
 * makes a complete file of that if the disk lets it: what is missing are batches, not the end.
 * Otherwise the file stays `.part`, a valid stream up to its last whole batch, and arrow_recovery
 * completes it later.
 *
 * One thread at a time per file; calls block in the file system.
 */
#ifndef ARROW_FILE_H
#define ARROW_FILE_H

#include <limits.h>

#include "arrow/schema.h"
#include "arrow/async_writer.h"

struct batch;

/** Buckets of a histogram: bucket i counts times below 2^i us, the last all others. */
#define ARROW_LATENCY_BUCKETS 24

/**
 * A batch in the file, which follows the one before it. There may be millions of small ones, and
 * memory that is new stops a polling lcore for the time of a page fault: so no more than it takes.
 */
struct arrow_file_batch {
	uint32_t metadata; /**< bytes */
	uint32_t body;	   /**< of eight bytes */
};

/** One that is not durable yet. */
struct arrow_file_pending {
	uint64_t rows;
	int64_t received; /**< see struct batch */
};

struct arrow_file {
	struct arrow_slices out;
	const struct arrow_schema *schema;
	struct arrow_file_batch *batches;
	size_t nb_batches;
	size_t cap_batches;
	size_t nb_durable;		    /**< batches */
	uint64_t durable_end;		    /**< byte behind them */
	struct arrow_file_pending *pending; /**< batches behind them: i at i & (cap_pending - 1) */
	size_t cap_pending;
	uint64_t size; /**< bytes given so far */
	uint64_t rows; /**< of all batches; after close, of those that were kept */
	uint64_t rows_durable;
	/** Batches by the time from `received` to durable. */
	uint64_t latency[ARROW_LATENCY_BUCKETS];
	int64_t (*clock)(void *arg); /**< what `received` is by; the owner sets it. NULL: no */
	void *clock_arg;	     /**< latency is counted. Any thread that has the file */
	bool named;		     /**< the directory entry is durable */
	bool complete;		     /**< trailer written, file has its name */
	bool uncut; /**< after close, if not complete: batches may be behind those that were kept */
	bool stalled;		      /**< as arrow_file_has_news() told last */
	int error;		      /**< 0, or the -errno that ended it first */
	char path[PATH_MAX];	      /**< when complete */
	char part[PATH_MAX];	      /**< until then */
	char message[PATH_MAX + 128]; /**< if error or news: what, where, why */
};

/**
 * Create DIR/NAME.arrow.part and write the header.
 * @param config  NULL: defaults
 * @param schema  must outlive the file
 * @return 0 or -errno: message says why, nothing is left open
 *   - -EEXIST: DIR/NAME.arrow or its .part is already there
 *   - -ENAMETOOLONG
 *   - -EINVAL: slice or depth
 */
int arrow_file_create(struct arrow_file *f, const struct arrow_slices_config *config,
	const char *dir, const char *name, const struct arrow_schema *schema);

/**
 * Append a record batch.
 * @param batch  its body may still be read until arrow_file_wait(), if it lasts (batch.lasting)
 * @return 0: taken; or the error that ended the file, now or before: the batch may be in it or not,
 *   arrow_file_close() tells
 */
int arrow_file_append(struct arrow_file *f, const struct batch *batch);

/** See what has become durable, begin what is due. @return 0 or the error that ended the file */
int arrow_file_poll(struct arrow_file *f);

/** Return when all batches are durable. @return 0 or the error that ended the file */
int arrow_file_commit(struct arrow_file *f);

/** Whether the disk has come to stand still, or moves again, since this was asked: see message. */
bool arrow_file_has_news(struct arrow_file *f);

/** Return when nobody reads the memory of batches that end before byte `end` of the file. */
void arrow_file_wait(struct arrow_file *f, uint64_t end);

/**
 * Write the trailer, wait for the disk, give the file its name. May be called by another thread
 * than the calls before, which have returned.
 * @return 0: all batches are durable; else the first error. rows says what was kept, complete
 *   whether the file got a trailer and its name
 */
int arrow_file_close(struct arrow_file *f);

/** Close and remove a file that is still open: for one that nothing was written to. */
void arrow_file_discard(struct arrow_file *f);

/** Name of the file as it is now. */
const char *arrow_file_path(const struct arrow_file *f);

#endif /* ARROW_FILE_H */
