/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Data-taking runs. The process executes one run at a time and stays up between runs.
 *
 *            configure        arm           start           stop, end of run
 *   IDLE ──────────────► CONFIGURED ──► ARMED ──► RUNNING ──────────► STOPPING ──► IDLE
 *                                          └────────── abort ─────────────┘
 *
 * configure: takes settings that may differ between runs ([run], [veto], [dark], [output],
 * [calibration]) on top of the configuration file; all other settings stay fixed
 *
 * arm: loads the calibration and opens the files
 *
 * start: accepts frames from now on (arms first if necessary)
 *
 * stop: closes open frames, writes them and closes the files
 *
 * abort: like stop, but discards and counts frames that no gang has started
 *
 * A run also ends by itself after its number of frames, or after its idle timeout.
 *
 * Any thread except an lcore may call these functions; the calls exclude one another. They may wait
 * for the file system.
 */
#ifndef RUN_H
#define RUN_H

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"
#include "telemetry/ledger.h"
#include "pipeline.h"
#include "run_watch.h"
#include "settings.h"

#define RUN_MESSAGE_SIZE 512

enum run_state {
	RUN_IDLE,
	RUN_CONFIGURED,
	RUN_ARMED,
	RUN_RUNNING,
	RUN_STOPPING,
	RUN_STATES
};

extern const char *const run_state_names[RUN_STATES];

/** Status of the current run or, if there is none, of the last one. */
struct run_status {
	enum run_state state;
	uint64_t runs; /**< runs started */
	char name[72];
	char directory[256];
	char message[RUN_MESSAGE_SIZE]; /**< the last error; "": none */
	bool failed;			/**< the last run that ended has failed */
	uint64_t failed_runs;		/**< of the runs that have ended */
	double seconds;			/**< from its first packet to its last one, or to now */
	struct ledger ledger;
	char ledger_path[PATH_MAX]; /**< ledger of the last run that ended; "": none ended */
	uint64_t first_frame;
	uint64_t last_frame;
	char dark[256];	   /**< result of a dark run; "": not a dark run */
	char warning[512]; /**< problems of the received data; "": none */
	uint32_t veto_version;
};

/** Status of the writer of the current run or, if there is none, of the last run's writer. */
struct run_writer {
	char name[72]; /**< of the run; "": there was none yet */
	struct file_writer_stats stats;
	struct arrow_run_status status[ARROW_TABLES];
};

struct run {
	pthread_mutex_t lock;
	enum run_state state;
	bool closed; /* no other run may begin */
	struct pipeline *pipeline;
	const struct config_source *base; /**< base settings of every run */
	const struct settings *process;	  /**< settings of the pipeline */
	struct config *config;		  /**< of the current run; its settings point into it */
	/** the same with thresholds changed during the run; NULL: none */
	struct config *changed;
	struct settings settings;
	struct file_writer *writer;
	bool began;	      /**< the run was started, not only armed */
	struct ledger before; /**< counters at the start of the run */
	/** kept ledger of a receiver that died in this run; version 0: none */
	struct ledger_kept resumed;
	/** the ledger above has been requested; do not request it again */
	bool asked;
	/** receivers that died in this run and had received frames */
	uint64_t receivers;
	uint64_t earlier[LEDGER_COLUMNS]; /**< sum of the ledgers of these receivers */
	uint64_t keep_at;		  /**< TSC of the next time that the ledger is saved */
	struct run_status last;		  /**< of the last run that ended */
	/** paths of its files, or of the last ones if there were several */
	char paths[ARROW_TABLES][PATH_MAX];
	char first_paths[ARROW_TABLES][PATH_MAX]; /**< of the current run or the last one */
	struct run_watch watch;			  /**< checks on the data that the run receives */
	bool timed_out;				  /**< [run] idle_timeout_ms ended the run */
	bool aborted;				  /**< a client aborted the run */
	uint64_t activity;			  /**< packets and frames so far */
	uint64_t active_at;			  /**< TSC of the last change of `activity` */
	uint64_t idle_from[FRAME_RX_MAX]; /**< frame_rx.listened of the RX roles at that time */
	uint64_t first_activity;	  /**< TSC; 0: no activity yet */
	uint64_t runs;
	struct run_writer last_writer;
	/** Latency histogram of the batches of all runs that have ended. */
	uint64_t latency[ARROW_TABLES][ARROW_LATENCY_BUCKETS];
	uint32_t veto_version;	    /**< newest version */
	struct ledger_veto *vetoes; /**< thresholds of the run so far */
	uint32_t nb_vetoes;

	bool lcores_poll; /**< false: the control thread polls the builder */
	char message[RUN_MESSAGE_SIZE];
};

/**
 * @param process  settings of the pipeline
 * @param base     base settings of the runs; the caller keeps ownership
 * A run may be started before lcores poll (run.lcores_poll). Packets then wait for the lcores.
 */
void run_init(struct run *r, struct pipeline *p, const struct settings *process,
	const struct config_source *base);
void run_free(struct run *r);

/** Tell the run that lcores poll the builder from now on. */
void run_polled(struct run *r);

/**
 * Set the settings of the next run.
 * @param assignments  `section.key=value`, separated by commas; NULL or "": only those of the base
 * @return 0; -EBUSY: armed or running; -EINVAL: a setting is wrong. For this and the functions
 *   below, run_status.message gives the reason
 */
int run_configure(struct run *r, const char *assignments);

/**
 * Load the calibration and open the files.
 * @return 0; -EBUSY: armed or running; -errno of calibration or files
 */
int run_arm(struct run *r);

/**
 * Start the run. Configures and arms first if necessary.
 * @return 0; -EBUSY: running; -errno as run_arm()
 */
int run_start(struct run *r);

/** @return 0, also if the run is already stopping; -EALREADY: there is no run to stop */
int run_stop(struct run *r);
int run_abort(struct run *r);

/**
 * Change thresholds of a running run.
 * @param assignments  keys of [veto] only, applied on top of the run's current settings even if the
 *   configuration file has changed since
 * @param from_frame   first frame that they apply to; 0: as soon as possible
 * @param effective    receives the first frame that they do apply to
 * @return 0; -EALREADY: there is no run; -EINVAL; -EBUSY: too many changes at once
 */
int run_set_veto(struct run *r, const char *assignments, uint64_t from_frame, uint64_t *effective);

/** Prepare the end of the process: configure, arm and start fail from now on with -ESHUTDOWN. */
void run_close(struct run *r);

/** Do the same if there is no run; no run can begin in between. @return whether there is no run */
bool run_close_if_idle(struct run *r);

/**
 * Close the files with the data written so far. Used when the lcores have stopped and cannot finish
 * the run.
 */
void run_give_up(struct run *r, const char *why);

/** Return the state of the current run. */
enum run_state run_get_state(struct run *r);

/** Advance the run: end it when it is over, and finish a stopping run. Call this about every ms. */
void run_tick(struct run *r);

void run_get_status(struct run *r, struct run_status *status);

void run_get_writer(struct run *r, struct run_writer *writer);

/**
 * Return the latency histogram of all batches since the start. The latency of a batch is the time
 * from the first packet of its last frame until the batch is durable.
 */
void run_get_latency(struct run *r, uint64_t latency[ARROW_TABLES][ARROW_LATENCY_BUCKETS]);

#endif /* RUN_H */
