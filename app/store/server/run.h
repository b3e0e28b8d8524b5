/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Runs of a store: schemas, directory, and a stream per table. A run outlives its connection until
 * it has ended or has been idle for some time.
 *
 * Files are in ROOT/NAME-RECEIVER_ID-RUN, with numbers of 16 hexadecimal digits. One thread, except
 * for store_run_open() and functions that say otherwise.
 */
#ifndef STORE_RUN_H
#define STORE_RUN_H

#include "arrow/reader.h"
#include "histogram.h"
#include "xfer/auth.h"
#include "server/completion.h"
#include "stream/writer.h"

#define STORE_RUNS     64    /**< open runs */
#define STORE_RUN_DIRS 10000 /**< default of store_files.runs_max */

/** Settings of all runs. A number of 0 selects its default. */
struct store_files {
	const char *root;
	struct async_writer_config slices;
	uint64_t roll_bytes;
	uint64_t roll_ms;
	uint64_t quota;	   /**< maximum bytes of a receiver; 0: no limit */
	uint64_t runs_max; /**< maximum number of a receiver's runs on the disk; 0: no limit */
	uint64_t idle_ms;  /**< time without a connection after which files are completed */
	stream_result result;
	void *arg;
};

struct store_receiver_id {
	uint64_t receiver_id;
	unsigned int nb_runs; /**< number of its runs; 0: the entry may be reused */
	struct stream_quota quota;
	bool told; /**< the log has the message that it may begin no run */
};

struct store_run {
	bool used;
	uint64_t receiver_id;
	uint64_t run;
	uint64_t incarnation;
	char name[XFER_NAME_BYTES];
	char dir[PATH_MAX];
	uint8_t *schema[XFER_TABLES];
	uint32_t schema_bytes[XFER_TABLES];
	struct arrow_reader reader[XFER_TABLES]; /**< of the schema */
	struct stream_writer *writer[XFER_TABLES];
	struct store_receiver_id *owner; /**< receiver whose quota applies */
	uint64_t bytes_open;		 /**< of the receiver's open files, when recovery began */
	uint64_t bytes_closed;		 /**< quota.closed, when recovery began */
	uint64_t bytes_disk; /**< result of recovery: the receiver's files on the disk */
	/** result of recovery: a new run was refused since the receiver has this many */
	uint64_t too_many;
	bool open;  /**< existing files were read, and more may be written */
	bool ended; /**< the receiver has ended the run: stream/ended.h */
	/** the recovery thread owns the writers: server/recovery_thread.h */
	bool settling;
	/** the connection that uses the run; NULL: none. Other threads read it: COUNTER_SET() */
	void *connection;
	uint64_t idle_since; /**< ms; 0: the run has a connection */
	bool visible;	     /**< to store_runs_view() */
};

/** A copy of a stream's state for other threads. */
struct store_stream_view {
	char run[XFER_NAME_BYTES];
	uint64_t receiver_id;
	uint64_t incarnation;
	bool connected;
	uint64_t quota; /**< maximum bytes of the receiver; 0: no limit */
	uint64_t quota_used;
	struct stream_stats stats;
};

struct store_runs {
	struct store_files files;
	struct store_run run[STORE_RUNS];
	unsigned int nb; /**< high-water mark: run[nb..] was never used and is not scanned */
	struct store_receiver_id receiver_id[STORE_RUNS];
	uint64_t opened;
	uint64_t ended;
	uint64_t idle; /**< runs that were completed because no receiver connected */
	uint64_t refused;
	/** completion of files of earlier processes; NULL: none */
	struct store_completion *completion;
	struct histogram latency; /**< of runs that were removed */
};

/**
 * Find or create the run of a completed handshake. A new run must then be opened.
 * @return NULL with the reason: the schemas are not of this program or have changed (_SCHEMA), too
 *   many runs (_BUSY), the run has another name (_NAME), names are too long or memory is exhausted
 *   (_FAILED)
 */
struct store_run *store_run_find(
	struct store_runs *s, const struct xfer_auth *h, enum xfer_reason *reason);

/**
 * Recover and read the existing files, so that more can be written. Does nothing if this was done
 * before. Any thread may call this while the run is `settling`. It may take minutes.
 * @return _NONE; _NAME: the directory has files of this run under another name; _DIFFERS: files of
 *   the run have different copies of a batch; _BUSY: another process is writing one of the files;
 *   _FAILED: the content of a file is unknown, or the directory is not usable (see the log);
 *   _QUOTA: the run has no files here, and its receiver has used up its quota or its number of runs
 */
enum xfer_reason store_run_open(struct store_runs *s, struct store_run *r);

/** Log that the receiver has a batch which differs from the stored one. Any thread. */
void store_run_report_differing(const struct store_run *r, unsigned int table, uint64_t sequence,
	const char *what, const char *path);

/** Begin `settling`: another thread will open the run. */
void store_run_recover_begin(struct store_run *r);

/**
 * End `settling`. A run that could not be opened is removed.
 * @param reason  result of the thread
 */
void store_run_recover_end(struct store_runs *s, struct store_run *r, enum xfer_reason reason);

/** Poll the writers; call this every few milliseconds. @param now  ms */
void store_runs_poll(struct store_runs *s, uint64_t now);

/** Whether all batches have their results. */
bool store_run_recovered(const struct store_run *r);

/** Complete the files in threads. @return true: they are complete; false: call again */
bool store_run_finish(struct store_run *r);

/** @return state of the run: enum xfer_state */
enum xfer_state store_run_state(const struct store_run *r);

/**
 * Complete the files and remove the run, with its directory if that is empty. All batches then have
 * results. @return 0 or the first error
 */
int store_run_end(struct store_runs *s, struct store_run *r);

/** Get a copy of a stream's state. Any thread. @return false: there is no such run */
bool store_runs_view(const struct store_runs *s, unsigned int run, unsigned int table,
	struct store_stream_view *view);

/** Times from the last packet to durable, of all current and former runs. Any thread. */
struct histogram store_runs_latency(const struct store_runs *s);

/** End all runs. @return 0 or the first error */
int store_runs_close(struct store_runs *s);

#endif /* STORE_RUN_H */
