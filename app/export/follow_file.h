/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A file of a run that is exported while it is written: its batches, in memory, are those of the
 * reader of a struct scan_file. Pixels are in memory for one batch only, and the next one. One
 * thread calls all functions.
 */
#ifndef EXPORT_FOLLOW_FILE_H
#define EXPORT_FOLLOW_FILE_H

#include "read_ahead.h"
#include "scan/record.h"
#include "scan/run.h"

/** A batch. */
struct follow_batch {
	struct scan_record *record; /**< without pixels */
	uint64_t at, length;	    /**< offset and length in the file */
	bool gone;		    /**< the file was truncated before the batch's end */
};

struct follow_file {
	struct scan_file *file; /**< NULL: not open */
	struct scan_header *header;
	struct follow_batch *batch; /**< as many as the reader has */
	struct scan_record *loaded; /**< batch `loaded_batch` with its pixels; NULL: none */
	size_t loaded_batch;
	/** the next batch, which was read ahead: by its thread, while `reading` @{ */
	struct read_ahead *reading; /**< NULL: `next` can be used */
	struct scan_record *next;   /**< NULL: it was not complete */
	uint64_t next_at, next_length;
	/** @} */
	uint64_t at;		   /**< offset of the next batch */
	int fd;			   /**< open descriptor of the file */
	uint64_t limit;		   /**< no batch after it is read */
	struct scan_change change; /**< change of the file after it had its final name */
	bool named;		   /**< it has its final name, or was removed */
	bool ended;		   /**< its writer has ended, and there is no further batch */
};

/**
 * Open a file that has a whole schema. Its reader has no batches yet.
 * @param f      of `run`; its path is set
 * @param table  which the file must have
 * @return 0; -EAGAIN: the schema is not written yet; -EBADMSG: printed; -ENOMEM, -errno
 */
int follow_file_open(
	struct follow_file *g, struct scan_run *run, struct scan_file *f, enum arrow_table table);

/**
 * Append the next batch to the reader if it is complete. Its pixels are loaded. If the file was
 * truncated before it is named, continue where it ends now: a batch may then come again. A batch of
 * a named file is damaged if it is wrong after scan_file_settled().
 * @return 1: appended; 0: there is none yet; -EBADMSG: a damaged batch is left out, or, if the file
 *         has now ended, its end is absent; -ENOMEM, -errno
 */
int follow_file_next(struct follow_file *g);

/**
 * Read the batch after those that were returned, for the next call of follow_file_next(), if it is
 * complete.
 * @param thread  reads it; while it is busy, nothing is read
 */
void follow_file_read_ahead(struct follow_file *g, struct read_ahead *thread);

/** Return only the batches that the file has now. No further call waits for a copy. */
void follow_file_stop(struct follow_file *g);

/**
 * Whether the file is complete, and all of its batches were returned. Its writer has then renamed
 * it, and the struct scan_file has the new path.
 */
bool follow_file_ended(const struct follow_file *g);

/**
 * Load the pixels of a batch, and forget those of the batch before.
 * @return 0; -ENODATA: the file no longer has this batch, or out of memory
 */
int follow_file_load(struct follow_file *g, size_t batch);

/** Forget the pixels that are loaded. */
void follow_file_forget(struct follow_file *g);

/** Close the file, if it is open. */
void follow_file_close(struct follow_file *g);

#endif /* EXPORT_FOLLOW_FILE_H */
