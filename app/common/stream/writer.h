/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Writes the batches of one stream to files, and reports a result for each batch: durable,
 * duplicate, or not stored.
 *
 * Files are DIR/RUN_INCARNATION_NNNNNN_TABLE.arrow, with `.part` until complete. Sequence numbers
 * in a file are ascending. A batch with a lower number goes to the next file, as does one that
 * follows when a file has reached its maximum size or age. Results are in the order of the batches,
 * also across files: when a result says durable, all batches passed before are either durable or
 * not stored. A batch's memory is read in place and must stay unchanged until its result.
 *
 * A batch is a duplicate only if it has the same content as the stored one (stream/content.h). One
 * that differs is refused (XFER_RETRY), changes nothing, and is reported (stream_writer_differs()).
 *
 * On a full disk, quota or I/O error, the file keeps the batches that are certain to be written,
 * and is completed. All other batches are refused (XFER_RETRY) until another file can be opened.
 *
 * One thread, except for stream_writer_stats_get(), which any thread may call. Calls may block in
 * the file system.
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
#define STREAM_DEPTH	    16 /**< slices in flight, as in cuDF's study */

/**
 * Limit of the bytes that streams may use together. `used` increases with written data. The disk is
 * examined when a run is opened, and while batches are refused, since files may have been added or
 * removed.
 */
struct stream_quota {
	uint64_t limit;	 /**< bytes; 0: no limit */
	uint64_t used;	 /**< any thread may read it: counter.h */
	uint64_t open;	 /**< part of `used`: files that are being written */
	uint64_t closed; /**< bytes of files that were completed, since the start */
	/** a thread examines the disk: the caller of the writers may not wait for it */
	bool in_thread;
	struct stream_quota_job *job; /**< its current measurement; NULL: none */
	/** folder with the directories RUN-RECEIVER_ID-ID; NULL: the disk is not examined */
	const char *root;
	uint64_t receiver_id; /**< receiver whose directories count */
	const char *setting;  /**< name of the setting that has the limit, for messages */
};

/**
 * Examine the disk. `used` becomes the size of the receiver's files that are complete or truncated,
 * plus one block for each marker of an ended run, plus `open`. With `in_thread`, a call begins a
 * measurement, and a later one takes its result.
 * @param enter  called first by the thread; may be NULL
 */
void stream_quota_renew(struct stream_quota *q, void (*enter)(void));

/**
 * Measure the receiver's files. Any thread.
 * @param bytes  out: size of the files; NULL: only the runs are counted
 * @param runs   out: number of directories; one with several markers counts once for each of them
 * @return 0; -errno
 */
int stream_quota_measure(const char *root, uint64_t receiver_id, uint64_t *bytes, uint64_t *runs);

/** Take the result of a measurement. @param closed  q->closed when it began */
void stream_quota_apply(struct stream_quota *q, uint64_t bytes, uint64_t closed);

/** Drop a measurement that has begun. */
void stream_quota_abandon(struct stream_quota *q);

/** A batch to be written. */
struct stream_batch {
	struct xfer_batch xfer;
	const uint8_t *metadata; /**< XFER_BLOCK bytes, aligned to XFER_BLOCK */
	void *body;		 /**< aligned to XFER_BLOCK; CPU or GPU memory */
	uint64_t tag;		 /**< returned with the result */
	/**
	 * The body as up to ARROW_PARTS_MAX parts in CPU memory, instead of `body`. NULL: it is
	 * at `body`. The array is used until stream_writer_append() returns. The bytes are copied,
	 * unless all parts are whole blocks at aligned addresses: then they must stay until the
	 * result.
	 */
	const struct iovec *part;
	uint32_t nb_parts;
};

typedef void (*stream_result)(
	void *arg, uint64_t tag, uint64_t sequence, enum xfer_result_status status);

/** A number of 0 selects its default. */
struct stream_writer_config {
	const char *dir; /**< must exist */
	const char *run; /**< name of the run, valid for xfer_name_check() */
	bool hidden;	 /**< file names begin with a dot, and such files are not adopted */
	bool final;	 /**< adopted files stay as they are, even if they have duplicates */
	struct arrow_identity identity;
	const struct arrow_schema *schema; /**< must outlive the writer */
	struct async_writer_config slices; /**< sync_ms, sync_bytes: group commit */
	uint64_t roll_bytes;		   /**< maximum size of a file */
	uint64_t roll_batches;		   /**< maximum batches of a file; 0: no limit */
	uint64_t roll_ms;		   /**< maximum age of a file; 0: no limit */
	uint32_t retry_ms;		   /**< delay after an error; doubles at each repetition */
	uint32_t retry_max_ms;		   /**< maximum delay */
	/** free space that is required to continue after an error */
	uint64_t resume_bytes;
	/**
	 * The caller is an lcore: threads create files. If the disk does not take a batch at once,
	 * the batch waits in memory, and not the caller. Batches have no parts. A batch of more
	 * than ARROW_SLICE_PUT_MAX(slices.slice) bytes never begins.
	 */
	bool on_lcore;
	struct stream_quota *quota; /**< NULL: no quota */
	void (*enter)(void);	    /**< called first by each thread of the writer; may be NULL */
	stream_result result;
	void (*log)(void *arg, bool error, const char *text); /**< may be NULL */
	/** clock of `received`, called by any thread; NULL: no latency is measured */
	int64_t (*clock)(void *arg);
	void *arg;
};

struct stream_stats {
	uint64_t batches; /**< durable batches of this process */
	uint64_t rows;
	uint64_t bytes;	     /**< bytes of their metadata and bodies */
	uint64_t copied;     /**< part of `bytes` that the CPU copied; of closed files only */
	uint64_t duplicates; /**< discarded duplicates */
	uint64_t returned;   /**< refused batches (XFER_RETRY) */
	uint64_t differing;  /**< part of `returned`: they differ from the stored batch */
	uint64_t pending;    /**< batches without a result */
	uint64_t cut;	     /**< reassigned batches that were removed */
	uint64_t checked;    /**< batches read again because a peer was about to release them */
	uint64_t checked_bytes;
	/** batches of `checked` that were damaged and are not listed any more */
	uint64_t damaged;
	uint64_t repaired; /**< batches of `damaged` that were stored again */
	uint64_t files;	   /**< files that were created */
	uint64_t complete;
	uint64_t syncs; /**< group commits, and the last sync of each file */
	uint64_t outages;
	uint64_t uncut; /**< files that may hold refused batches at the end */
	/** times that no file was created, or no write or sync completed, for `slices.stall_ms` */
	uint64_t stalls;
	uint64_t resumes;
	uint32_t stalled; /**< the disk is stalled now */
	int32_t error;	  /**< -errno of the current outage; 0: none */
	uint32_t mode;	  /**< enum arrow_io_mode of the last file */
	/** time from the last packet to durable: arrow/file.h */
	struct histogram latency;
};

struct stream_writer;

/** @return 0; -ENOMEM; -EINVAL: no result function, or an invalid name */
int stream_writer_open(struct stream_writer **w, const struct stream_writer_config *config);

/**
 * Adopt complete files: the batches of this stream in them are durable. A damaged file, or one of
 * another stream, is logged and does not prevent writing.
 *
 * If two files have the same copy of a batch, the earlier one is truncated
 * (stream/closed_files.h). This begins once all files were read and compared.
 * @param path  in the order of the numbers of the files
 * @return
 *   - 0
 *   - -EBUSY: a file is locked
 *   - -ENOTUNIQ: two files have different copies of a batch; nothing was changed
 *   - -EACCES, -EIO, ...: a file cannot be read. Its batches are unknown and would be written again
 *   - -ENOMEM
 */
int stream_writer_adopt(struct stream_writer *w, const char *const *path, size_t nb);

/**
 * Adopt all complete files of this stream in its directory.
 * @return as stream_writer_adopt(); -errno of the directory
 */
int stream_writer_adopt_all(struct stream_writer *w);

/** Write or refuse a batch. A result follows in either case, possibly before this returns. */
void stream_writer_append(struct stream_writer *w, const struct stream_batch *batch);

/** Process completions. Call this every few milliseconds. */
void stream_writer_poll(struct stream_writer *w);

/** Whether every batch has its result. */
bool stream_writer_settled(const struct stream_writer *w);

/** @return the durable batches */
const struct interval_set *stream_writer_have(const struct stream_writer *w);

/** @return 0: batches are accepted; -errno: why they are refused */
int stream_writer_state(const struct stream_writer *w);

/**
 * Complete the open file if it has one of the batches `moved`. Call this before
 * stream_writer_cut(), which would block. @return true: done, and all batches have results; false:
 * call again
 */
bool stream_writer_begin_cut(struct stream_writer *w, const struct interval_set *moved);

/**
 * Remove reassigned batches. Each file is truncated at the first of them; batches after it that
 * were not reassigned are kept in a new file. All batches must have results. Returns when the
 * change is durable. The next batch begins a new file.
 * @return 0; -errno: some of the batches may still be there
 */
int stream_writer_cut(struct stream_writer *w, const struct interval_set *moved);

/**
 * Complete the open file if it has one of the batches `held`. Call this before
 * stream_writer_check().
 * @return true: done, and all batches have results; false: call again
 */
bool stream_writer_begin_check(struct stream_writer *w, const struct interval_set *held);

/**
 * Read and verify the bodies of batches that a peer still holds. The peer will release those in
 * stream_writer_have(). Damaged batches are removed from that set and logged. All batches must have
 * results. The call takes as long as reading takes.
 * @param mark    mark damaged batches in their files, durably, so that they can be stored again;
 *   false: the run is not written to any more
 * @param damaged  out: sequence numbers of damaged batches; may be NULL
 * @return 0; -errno: not all batches could be verified, and none may be released
 */
int stream_writer_check(struct stream_writer *w, const struct interval_set *held, bool mark,
	struct interval_set *damaged);

/**
 * Whether a batch was passed that is already stored and not verified by stream_writer_check(). It
 * was refused, as the stored copy may be damaged. stream_writer_check() resets this.
 */
bool stream_writer_in_doubt(const struct stream_writer *w);

/**
 * Compare a batch with the copies of it that are stored or being written.
 * @param crc   its content (stream/content.h)
 * @param path  out: the file that has another content; may be NULL
 * @return 1: all copies are the same; 0: there is none; -ENOTUNIQ: one differs
 */
int stream_writer_compare(
	const struct stream_writer *w, uint64_t sequence, uint64_t crc, const char **path);

/**
 * Whether a batch was passed that differs from the stored one. stream_writer_check() resets this.
 */
bool stream_writer_differs(const struct stream_writer *w);

/**
 * Start to complete the files in threads. stream_writer_poll() delivers the results. Repeat this
 * until stream_writer_finished(): a file may be created meanwhile.
 */
void stream_writer_begin_finish(struct stream_writer *w);

/** Whether stream_writer_begin_finish() is done. */
bool stream_writer_finished(const struct stream_writer *w);

/** Complete the files and wait until all batches have results. @return first error */
int stream_writer_finish(struct stream_writer *w);

void stream_writer_stats_get(const struct stream_writer *w, struct stream_stats *stats);

/** Finish and free. */
void stream_writer_close(struct stream_writer *w);

#endif /* STREAM_WRITER_H */
