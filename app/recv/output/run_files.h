/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The files of a run: sets of two, one of each table, one set after the other.
 *
 * A run that is not rolled has one set, RUN_frames.arrow and RUN_images.arrow. One that is has
 * RUN_000001_frames.arrow, RUN_000001_images.arrow, RUN_000002_... . Both tables go on to the next
 * set at the same frame number, a multiple of both batch intervals, so that batches are the same
 * whether a run is rolled or not, and sequence numbers go on. Old files are closed by threads of
 * their own, beside the new ones.
 *
 * Images come before rows: a batch of frames is not written before all images that were appended
 * before it are durable. So whoever finds a row of a kept frame in a file finds its image, whatever
 * ended the process or the machine - unless the file of the images has failed (below), which is
 * counted, or the row says that it has none (FRAME_FLAG_NO_IMAGE). Rows that wait are bounded: with
 * more than slice x depth bytes of them the images are synced at once, and waited for.
 *
 * When a file fails (disk full, I/O error), the sure part of it is closed as a complete file. The
 * table's rows are counted as unwritten, by cause, while the other table goes on. At the next frame
 * number where a set may begin, and not before a time that doubles with every try, the next set is
 * opened; if that works and there is room, both tables go on there. A run not rolled goes on
 * with RUN_000002_... then.
 *
 * One thread; but for arrow_run_stats_get() and arrow_run_status(), which any may call.
 */
#ifndef ARROW_RUN_H
#define ARROW_RUN_H

#include "arrow/file.h"
#include "arrow/tables.h"
#include "arrow/batch.h"

#define ARROW_RUN_RETRY_MS     100
#define ARROW_RUN_RETRY_MAX_MS 10000
#define ARROW_RUN_RESUME_BYTES (64u << 20)

enum arrow_run_state {
	ARROW_RUN_WRITING,
	ARROW_RUN_FULL,	  /**< disk or quota is full: rows are counted, not written */
	ARROW_RUN_FAILED, /**< the same for any other error */
	ARROW_RUN_CLOSED,
	ARROW_RUN_STATES
};

/** @return `writing`, `disk full`, `failed`, `closed` */
const char *arrow_run_state_name(enum arrow_run_state state);

/** 0 is the default of each number. */
struct arrow_run_config {
	const char *dir;
	const char *run;
	const struct arrow_tables *tables; /**< must outlive the run */
	struct arrow_slices_config slices;
	uint32_t frames_interval; /**< of the batch builder */
	uint32_t images_interval;
	uint64_t roll_frames;  /**< a set has so many frame numbers, rounded up; 0: no matter */
	uint64_t roll_bytes;   /**< a set ends when its files have so many; 0: no matter */
	uint64_t roll_ms;      /**< ... when it is so old; 0: no matter */
	uint32_t retry_ms;     /**< after an error, doubled each time, */
	uint32_t retry_max_ms; /**< up to this */
	uint64_t resume_bytes; /**< room that a file must find before writing goes on */
	void (*log)(void *arg, bool error, const char *text); /**< NULL: nobody listens */
	int64_t (*clock)(void *arg); /**< now, as batches' `received` is; NULL: no latency */
	void *arg;
};

/** Of one table. */
struct arrow_run_stats {
	uint64_t rows;		  /**< durable; with `unwritten` and those on their way: all */
	uint64_t batches;	  /**< durable */
	uint64_t bytes;		  /**< of all files */
	uint64_t unwritten;	  /**< rows that no file has; the sum of */
	uint64_t unwritten_full;  /**< disk or quota full */
	uint64_t unwritten_error; /**< any other error of the file system */
	uint64_t unwritten_bad;	  /**< rows that nobody could make: 0 here, see file_writer */
	uint64_t files;		  /**< begun */
	uint64_t complete;	  /**< of them, with footer and name */
	uint64_t outages;	  /**< times that a file failed */
	uint64_t stalls;	  /**< times that the disk stood still: arrow/async_writer.h */
	uint64_t resumes;	  /**< times that writing went on after that */
	uint64_t retries;	  /**< times that it was tried in vain */
	uint64_t syncs;		  /**< group commits, and the last one of each file */
	int32_t error;		  /**< -errno of the outage now; 0: none */
	uint32_t state;		  /**< enum arrow_run_state */
	uint32_t mode;		  /**< enum arrow_io_mode of the last file */
	/** Durable batches, by the time since their last frame's first packet: arrow/file.h */
	uint64_t latency[ARROW_LATENCY_BUCKETS];
};

/** What a user asks about one table when something is wrong. */
struct arrow_run_status {
	char path[PATH_MAX];	    /**< file that is written, or was last */
	char error[PATH_MAX + 128]; /**< the last error: what, where, why; "" if there was none */
	char why[120];		    /**< why the mode is not direct+io_uring; "" if it is */
};

struct arrow_run;

/**
 * Create the first set.
 * @param message  out, on error: what is wrong with which file; at least PATH_MAX bytes
 * @return 0, or -errno of the file system, -EEXIST if the run has files already, -EINVAL, -ENOMEM
 */
int arrow_run_open(
	struct arrow_run **run, const struct arrow_run_config *config, char message[PATH_MAX]);

/**
 * To be asked before the row of a frame is added to a batch.
 * @return true: flush the batch builder, then call arrow_run_roll()
 */
bool arrow_run_wants_roll(struct arrow_run *r, uint64_t frame);

/** Go on with the next set, if it can be opened. */
void arrow_run_roll(struct arrow_run *r);

/** Write a batch, or count it. @return 0: taken; else the error of its table's outage */
int arrow_run_append(struct arrow_run *r, const struct batch *b);

/** For batch_reclaim. */
void arrow_run_reclaim(struct arrow_run *r, enum arrow_table table, unsigned int set);

/** See what has become of things: every few ms. */
void arrow_run_poll(struct arrow_run *r);

/** Close all files; returns when they are durable. @return 0, or the first error of the run */
int arrow_run_close(struct arrow_run *r);

/** Remove the files of a run that nothing was written to. */
void arrow_run_discard(struct arrow_run *r);

void arrow_run_stats_get(
	const struct arrow_run *r, enum arrow_table table, struct arrow_run_stats *stats);

void arrow_run_status(struct arrow_run *r, enum arrow_table table, struct arrow_run_status *status);

/** After close or discard. */
void arrow_run_free(struct arrow_run *r);

#endif /* ARROW_RUN_H */
