/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Runs: they come and go while the process stays up. One at a time.
 *
 *            configure        arm           start           stop, end of run
 *   IDLE ──────────────► CONFIGURED ──► ARMED ──► RUNNING ──────────► STOPPING ──► IDLE
 *                                          └────────── abort ─────────────┘
 *
 * configure  takes settings that may differ from run to run ([run], [veto], [dark], [output],
 *            [calibration]) on top of the configuration file; nothing else changes
 * arm        loads the calibration and opens the files
 * start      takes frames from now on (arms first if need be)
 * stop       closes what has begun, writes it, closes the files
 * abort      the same, but frames that no gang has begun with are thrown away, counted
 *
 * A run also ends by itself: after its number of frames, or after its idle time-out.
 *
 * Any thread but an lcore; calls exclude one another. They may wait for the file system.
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

/** What is to be told of the run at hand or, when there is none, of the last one. */
struct run_status {
	enum run_state state;
	uint64_t runs; /**< that were started */
	char name[72];
	char directory[256];
	char message[RUN_MESSAGE_SIZE]; /**< what went wrong last, "" = nothing */
	bool failed;			/**< the last run that ended lost something */
	double seconds;			/**< from its first packet to its last, or to now */
	struct ledger ledger;
	char ledger_path[PATH_MAX]; /**< of the last run that ended, "" = none did */
	uint64_t first_frame;
	uint64_t last_frame;
	char dark[256];	   /**< what a dark run gave, "" if the run was none */
	char warning[512]; /**< what is wrong with what it received, "" = nothing */
	uint32_t veto_version;
};

/** What the writer of the run at hand says or, when there is none, that of the last one. */
struct run_writer {
	char name[72]; /**< of the run; "" = there was none yet */
	struct file_writer_stats stats;
	struct arrow_run_status status[ARROW_TABLES];
};

struct run {
	pthread_mutex_t lock;
	enum run_state state;
	bool closed; /* no other run begins */
	struct pipeline *pipeline;
	const struct config_source *base; /**< what every run builds on */
	const struct settings *process;	  /**< that the pipeline was made with */
	struct config *config;		  /**< of the run at hand; its settings point into it */
	struct config *changed;		  /**< the same with thresholds of later on; NULL: none */
	struct settings settings;
	struct file_writer *writer;
	bool began;			    /**< it was not only armed */
	struct ledger before;		    /**< counters when the run began */
	struct ledger_kept resumed;	    /**< of a receiver that died in it; version 0: none */
	bool asked;			    /**< ... and nobody asks again */
	uint64_t receivers;		    /**< that have died in it, and had frames */
	uint64_t earlier[LEDGER_COLUMNS];   /**< the sum of their ledgers */
	uint64_t keep_at;		    /**< TSC when the ledger is kept next */
	struct run_status last;		    /**< of the last run that ended */
	char paths[ARROW_TABLES][PATH_MAX]; /**< its files, the last ones if there were several */
	char first_paths[ARROW_TABLES][PATH_MAX]; /**< of the run at hand or the last one */
	struct run_watch watch;			  /**< what it receives */
	bool polled;				  /**< RX roles poll */
	bool timed_out;				  /**< [run] idle_timeout_ms has ended it */
	bool aborted;				  /**< a client has */
	uint64_t activity;			  /**< packets and frames so far, */
	uint64_t active_at;			  /**< and TSC when that last changed */
	uint64_t first_activity;		  /**< TSC, 0 = nothing yet */
	uint64_t runs;
	struct run_writer last_writer;
	/** Latency of the batches of all runs that have ended. */
	uint64_t latency[ARROW_TABLES][ARROW_LATENCY_BUCKETS];
	uint32_t veto_version;	    /**< newest */
	struct ledger_veto *vetoes; /**< thresholds of the run so far */
	uint32_t nb_vetoes;

	bool lcores_poll; /**< else the builder is polled from here */
	char message[RUN_MESSAGE_SIZE];
};

/**
 * @param process  settings of the pipeline
 * @param base     where settings of runs begin; stays the caller's
 * Until lcores poll (run.lcores_poll), a run may be started already: packets then wait for it.
 */
void run_init(struct run *r, struct pipeline *p, const struct settings *process,
	const struct config_source *base);
void run_free(struct run *r);

/** From here on lcores poll the builder. */
void run_polled(struct run *r);

/**
 * Take settings for the next run.
 * @param assignments  `section.key=value`, separated by commas; NULL or "" = those of the base
 * @return 0; -EBUSY: not while armed or running; -EINVAL: a setting is wrong. run_status.message
 *         says what, here and below
 */
int run_configure(struct run *r, const char *assignments);

/** @return 0; -EBUSY: armed or running; -errno of calibration or files */
int run_arm(struct run *r);

/** Configures and arms first if need be. @return 0; -EBUSY: running; -errno as run_arm() */
int run_start(struct run *r);

/** @return 0, also when it is stopping already; -EALREADY: there is nothing to stop */
int run_stop(struct run *r);
int run_abort(struct run *r);

/**
 * Change thresholds while running.
 * @param assignments  of [veto] alone; on top of what the run has, whatever its file says by now
 * @param from_frame   first frame that they apply to; 0 = as soon as possible
 * @param effective    receives the frame that they apply from
 * @return 0; -EALREADY: there is no run; -EINVAL; -EBUSY: too many changes at once
 */
int run_set_veto(struct run *r, const char *assignments, uint64_t from_frame, uint64_t *effective);

/** The process is to end: no run is configured, armed or started from here on (-ESHUTDOWN). */
void run_close(struct run *r);

/** The same if there is no run, and none begins in between. @return whether there is none */
bool run_close_if_idle(struct run *r);

/** The lcores are at rest and will not finish the run: close the files with what there is. */
void run_give_up(struct run *r, const char *why);

/** What the run is about. */
enum run_state run_get_state(struct run *r);

/** Carry the run on: end it when it is over, finish what is stopping. About once a ms. */
void run_tick(struct run *r);

void run_get_status(struct run *r, struct run_status *status);

void run_get_writer(struct run *r, struct run_writer *writer);

/**
 * Time from the first packet of a batch's last frame until the batch is durable, of all batches
 * since the start.
 */
void run_get_latency(struct run *r, uint64_t latency[ARROW_TABLES][ARROW_LATENCY_BUCKETS]);

#endif /* RUN_H */
