/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The files of a run: a sequence of file sets. A set has two files, one for each table.
 *
 * A run without limits for its sets has one set, RUN_frames.arrow and RUN_images.arrow. A run with
 * limits (roll_frames, roll_bytes, roll_ms) has RUN_000001_frames.arrow, RUN_000001_images.arrow,
 * RUN_000002_... . Both tables change to the next set at the same frame: at a number that is a
 * multiple of both batch intervals, or at a restart of the numbers, where all batches end. Batches
 * are therefore the same with and without limits. Sequence numbers continue across sets. Separate
 * threads close the old files while the new ones are written.
 *
 * Images are written before rows: a batch of `frames` is written only after all images that were
 * appended before it are durable. A row of a kept frame in a file therefore implies that its image
 * is in a file, even after a crash of the process or the machine. There are two exceptions: the
 * file of the images has failed (see below), which is counted, or the row is marked as having no
 * image (FRAME_FLAG_NO_IMAGE). Waiting rows are limited: above slice x depth bytes of them, the
 * images are synced immediately and the caller waits for this.
 *
 * If a file fails (disk full, I/O error), its durable part is closed as a complete file. The rows
 * of its table are counted as unwritten, by cause, while the other table continues. The next set is
 * opened at the next frame number where a set may begin, but not before a retry interval has
 * passed. The interval doubles with every attempt. If the set can be opened and there is enough
 * space, both tables continue in it. A run without limits then continues with RUN_000002_... .
 *
 * All functions belong to one thread, which may wait for the disk in them. There are two
 * exceptions: another thread calls run_files_watch(), and any thread may call run_files_stats_get()
 * and run_files_status().
 */
#ifndef RUN_FILES_H
#define RUN_FILES_H

#include "arrow/file.h"
#include "arrow/tables.h"
#include "arrow/batch.h"

#define RUN_FILES_RETRY_MS     100
#define RUN_FILES_RETRY_MAX_MS 10000
#define RUN_FILES_RESUME_BYTES (64u << 20)

enum run_files_state {
	RUN_FILES_WRITING,
	RUN_FILES_FULL,	  /**< disk or quota is full: rows are counted, not written */
	RUN_FILES_FAILED, /**< any other error: rows are counted, not written */
	RUN_FILES_CLOSED,
	RUN_FILES_STATES
};

/** @return `writing`, `disk full`, `failed`, `closed` */
const char *run_files_state_name(enum run_files_state state);

/** The value 0 selects the default of each number. */
struct run_files_config {
	const char *dir;
	const char *run;
	const struct arrow_tables *tables; /**< must outlive the run */
	struct async_writer_config slices;
	uint32_t frames_interval; /**< frames_interval of the batch builder */
	uint32_t images_interval;
	/** frame numbers per set, rounded up; at a restart of the numbers, frames; 0: no limit */
	uint64_t roll_frames;
	uint64_t roll_bytes;   /**< size of a set's files in bytes; 0: no limit */
	uint64_t roll_ms;      /**< age of a set in ms; 0: no limit */
	uint32_t retry_ms;     /**< first retry interval after an error, doubled each time */
	uint32_t retry_max_ms; /**< maximum retry interval */
	uint64_t resume_bytes; /**< free space that a file needs to resume writing */
	void (*log)(void *arg, bool error, const char *text); /**< NULL: no log */
	/** current time, on the clock of the batches' `received`; NULL: no latency */
	int64_t (*clock)(void *arg);
	void *arg;
};

/** Statistics of one table. */
struct run_files_stats {
	/** durable rows; with `unwritten` and rows in progress: all rows */
	uint64_t rows;
	uint64_t batches;	  /**< durable batches */
	uint64_t bytes;		  /**< bytes of all files */
	uint64_t unwritten;	  /**< rows that are in no file; the sum of the next three */
	uint64_t unwritten_full;  /**< because the disk or quota was full */
	uint64_t unwritten_error; /**< because of any other error of the file system */
	uint64_t unwritten_bad;	  /**< rows that could not be built: 0 here, see batch_writer */
	uint64_t files;		  /**< files begun */
	uint64_t complete;	  /**< files completed, with footer and final name */
	uint64_t outages;	  /**< number of times that a file failed */
	/** times that no file was created, or no write or sync completed, for `slices.stall_ms` */
	uint64_t stalls;
	uint64_t resumes;   /**< number of times that writing resumed after that */
	uint64_t retries;   /**< failed attempts to resume */
	uint64_t syncs;	    /**< syncs: group commits, and the last one of each file */
	int32_t error;	    /**< -errno of the current outage; 0: none */
	int32_t last_error; /**< -errno of the last outage, which may be over; 0: none */
	uint32_t state;	    /**< enum run_files_state */
	uint32_t stalled;   /**< the disk is stalled now */
	uint32_t mode;	    /**< enum arrow_io_mode of the last file */
	/**
	 * Latency histogram of durable batches, from the first packet of their last frame:
	 * arrow/file.h
	 */
	struct histogram latency;
};

/** Status of one table, for diagnosis. */
struct run_files_status {
	char path[PATH_MAX]; /**< current file, or the last one */
	/** the last error: operation, file and reason; "" if there was none */
	char error[PATH_MAX + 128];
	char why[120]; /**< why the mode is not direct+io_uring; "" if it is */
};

struct run_files;

/**
 * Create the first set.
 * @param message  out, on error: the reason and the file; at least PATH_MAX bytes
 * @return 0, or -errno of the file system, -EEXIST if the run has files already, -EINVAL, -ENOMEM
 */
int run_files_open(
	struct run_files **run, const struct run_files_config *config, char message[PATH_MAX]);

/**
 * Check whether the set should change. Call this before adding the row of a frame to a batch.
 * @return true: flush the batch builder, then call run_files_roll()
 */
bool run_files_wants_roll(struct run_files *r, uint64_t frame);

/** Change to the next set, if it can be opened. */
void run_files_roll(struct run_files *r);

/** Write a batch, or count its rows. @return 0: accepted; else the error of the table's outage */
int run_files_append(struct run_files *r, const struct batch *b);

/** Callback for batch_reclaim. */
void run_files_reclaim(struct run_files *r, enum arrow_table table, unsigned int set);

/** Process completions. Call this every few ms. */
void run_files_poll(struct run_files *r);

/**
 * Report a disk that has stalled or recovered: the thread that writes may be waiting for it. One
 * thread at a time calls this, every few ms, until all files are closed and once after that.
 */
void run_files_watch(struct run_files *r);

/** Close all files. Returns when they are durable. @return 0, or the first error of the run */
int run_files_close(struct run_files *r);

/** Remove the files of a run to which nothing was written. */
void run_files_discard(struct run_files *r);

void run_files_stats_get(
	const struct run_files *r, enum arrow_table table, struct run_files_stats *stats);

void run_files_status(struct run_files *r, enum arrow_table table, struct run_files_status *status);

/** Free the run, after close or discard. */
void run_files_free(struct run_files *r);

#endif /* RUN_FILES_H */
