/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Batches of one stream into files, and what became of each: durable, double, or not stored.
 *
 * Files are DIR/RUN_INCARNATION_NNNNNN_TABLE.arrow, `.part` until complete. In a file sequence
 * numbers ascend; a batch that does not goes on in the next file, as one does when a file is large
 * or old enough. Results come in the order of the batches, also from one file to the next: what a
 * result calls durable is durable with all that was given before it, or is not there at all. Until
 * its result a batch's memory is read and must stay as it is; nothing is copied.
 *
 * Disk full, quota, I/O error: the file keeps what is sure and is completed; the rest, and all that
 * comes until another file can be opened, is given back (XFER_AGAIN).
 *
 * One thread; stream_writer_stats_get() may be called by any. Calls may block in the file system.
 */
#ifndef STREAM_WRITER_H
#define STREAM_WRITER_H

#include <limits.h>

#include "arrow/file.h"
#include "interval_set.h"
#include "xfer/desc.h"

#define STREAM_ROLL_BYTES   (64ull << 30)
#define STREAM_SYNC_MS	    100
#define STREAM_RETRY_MS	    100
#define STREAM_RETRY_MAX_MS 10000
#define STREAM_RESUME_BYTES (64ull << 20)
#define STREAM_DEPTH	    16 /**< slices at a time, as in the study of cuDF */

/**
 * Bytes that streams may take together. `used` grows with what is written; what is on the disk is
 * looked at when a run is opened, and before a batch is given back for it: files come and go.
 */
struct stream_quota {
	uint64_t limit; /**< 0: none */
	uint64_t used;
	uint64_t open;	     /**< of these: of files that are being written */
	const char *root;    /**< below it are directories RUN-PRODUCER-ID; NULL: nobody looks */
	uint64_t producer;   /**< of those that count */
	const char *setting; /**< that says the limit, for who has to change it */
};

/** Look at the disk: `used` is what files of the producer have that are complete, or were cut off,
 * a block for each marker of an ended run, and what is `open`. */
void stream_quota_renew(struct stream_quota *q);

/** A batch to be written. */
struct stream_batch {
	struct xfer_batch xfer;
	const uint8_t *metadata; /**< XFER_BLOCK bytes at a multiple of it */
	void *body;		 /**< at a multiple of XFER_BLOCK; of the CPU or of a GPU */
	uint64_t tag;		 /**< comes back with the result */
};

typedef void (*stream_result)(
	void *arg, uint64_t tag, uint64_t sequence, enum xfer_result_status status);

/** 0 is the default of each number. */
struct stream_writer_config {
	const char *dir; /**< exists */
	const char *run; /**< name, xfer_name_check() */
	bool hidden;	 /**< names begin with a dot: nobody adopts such files */
	struct arrow_identity identity;
	const struct arrow_schema *schema; /**< outlives the writer */
	struct arrow_slices_config slices; /**< sync_ms, sync_bytes: group commit */
	uint64_t roll_bytes;		   /**< of a file */
	uint64_t roll_batches;		   /**< of a file; 0: no matter */
	uint64_t roll_ms;		   /**< age of a file; 0: no matter */
	uint32_t retry_ms;		   /**< after an error, doubled each time, */
	uint32_t retry_max_ms;		   /**< up to this */
	uint64_t resume_bytes;		   /**< room that a file must find before it goes on */
	struct stream_quota *quota;	   /**< NULL: none */
	void (*enter)(void); /**< what a thread of the writer does first; NULL: nothing */
	stream_result result;
	void (*log)(void *arg, bool error, const char *text); /**< NULL: nobody listens */
	int64_t (*clock)(void *arg); /**< now, as `received` is; NULL: no latency. Any thread */
	void *arg;
};

struct stream_stats {
	uint64_t batches; /**< durable, of this process */
	uint64_t rows;
	uint64_t bytes;	  /**< of their metadata and bodies */
	uint64_t copied;  /**< of them by the CPU, for files that are closed */
	uint64_t doubles; /**< thrown away */
	uint64_t again;	  /**< given back */
	uint64_t pending; /**< without a result */
	uint64_t cut;	  /**< that went elsewhere */
	uint64_t checked; /**< read again, as somebody else was about to let go of them */
	uint64_t checked_bytes;
	uint64_t rotten;   /**< of them, found damaged: not had any more */
	uint64_t repaired; /**< of these, stored again */
	uint64_t files;	   /**< begun */
	uint64_t complete;
	uint64_t syncs; /**< group commits, and the last one of each file */
	uint64_t outages;
	uint64_t uncut;	 /**< files that may have batches which were given back */
	uint64_t stalls; /**< times that the disk stood still: arrow/async_writer.h */
	uint64_t resumes;
	uint32_t stalled;			 /**< the disk stands still */
	int32_t error;				 /**< -errno of the outage now; 0: none */
	uint32_t mode;				 /**< enum arrow_io_mode of the last file */
	uint64_t latency[ARROW_LATENCY_BUCKETS]; /**< last packet to durable: arrow/file.h */
};

struct stream_writer;

/** @return 0; -ENOMEM; -EINVAL: no result, a name that is none */
int stream_writer_open(struct stream_writer **w, const struct stream_writer_config *config);

/**
 * A complete file that was there before: if it is of this stream, what it has is durable.
 * @param message  out, on error: what is wrong
 * @return 0; -EXDEV: of another stream; -EBADMSG; -errno of the file system; -ENOMEM
 */
int stream_writer_adopt(struct stream_writer *w, const char *path, char message[PATH_MAX]);

/**
 * All complete files of this stream in its directory. One that is damaged is no reason to write
 * nothing: that is logged.
 *
 * @return
 *   - 0
 *   - -EBUSY: one is locked; -EACCES, -EIO, ...: or cannot be read: what is in it is not known, so
 *     it would be written again
 *   - -errno of the directory
 */
int stream_writer_adopt_all(struct stream_writer *w);

/** Write a batch, or give it back: a result follows in any case, maybe before this returns. */
void stream_writer_append(struct stream_writer *w, const struct stream_batch *batch);

/** See what has become of things; every few ms. */
void stream_writer_poll(struct stream_writer *w);

/** Whether each batch has its result. */
bool stream_writer_settled(const struct stream_writer *w);

/** What is durable. */
const struct interval_set *stream_writer_have(const struct stream_writer *w);

/** 0, or -errno: why batches are given back now. */
int stream_writer_state(const struct stream_writer *w);

/**
 * Before stream_writer_cut(), which would wait: complete the file that is written, if it is one of
 * those. @return whether that is done, and all is settled; else call again
 */
bool stream_writer_begin_cut(struct stream_writer *w, const struct interval_set *moved);

/**
 * Take batches that went elsewhere out of files: each is cut off at the first of them, and what
 * follows and did not move has a file of its own then.
 * All must be settled. Returns when it is durable; the next batch begins another file.
 * @return 0 or -errno: some of it may still be there
 */
int stream_writer_cut(struct stream_writer *w, const struct interval_set *moved);

/**
 * Before stream_writer_check(): complete the file that is written, if some of it is held.
 * @return whether that is done, and all is settled; else call again
 */
bool stream_writer_begin_check(struct stream_writer *w, const struct interval_set *held);

/**
 * Read the bodies of batches that are here and that somebody else still holds: he will let go of
 * those that stream_writer_have() has. What is damaged is not had any more, and logged.
 * All must be settled. Takes as long as the disk takes to read them.
 * @param mark    mark what is damaged in its file, durably, so that it can be stored again; false:
 *   of a run that is not written to any more
 * @param rotten  gets their numbers; NULL: nobody wants them
 * @return 0; -errno: it is not known of all of them, and nobody may let go of anything
 */
int stream_writer_check(struct stream_writer *w, const struct interval_set *held, bool mark,
	struct interval_set *rotten);

/**
 * Whether a batch was given that is here from before, and that stream_writer_check() has not looked
 * at: it was given back, as nobody knows whether what is here is sound. stream_writer_check() ends
 * that.
 */
bool stream_writer_in_doubt(const struct stream_writer *w);

/** Begin to complete the files: threads do, and poll gives the results. */
void stream_writer_begin_finish(struct stream_writer *w);

/** Whether that is over. */
bool stream_writer_finished(const struct stream_writer *w);

/** Complete the files; returns when they are, with results of all batches. @return first error */
int stream_writer_finish(struct stream_writer *w);

void stream_writer_stats_get(const struct stream_writer *w, struct stream_stats *stats);

/** Finish and free. */
void stream_writer_close(struct stream_writer *w);

#endif /* STREAM_WRITER_H */
