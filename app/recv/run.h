/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Data-taking runs. The process executes one run at a time and stays up between runs.
 *
 *            configure        arm                      start           stop, end of run
 *   IDLE ──────────────► CONFIGURED ──► ARMING ──► ARMED ──► RUNNING ──────────► STOPPING ──► IDLE
 *                                                     └────────── abort ─────────────┘
 *
 * configure: takes settings that may differ between runs ([run], [veto], [dark], [output],
 * [calibration]) on top of the configuration file; all other settings stay fixed
 *
 * arm: loads the calibration, recovers files that a killed receiver left in the directory, which
 * may take minutes, and opens the files of the run
 *
 * start: accepts frames from now on (arms first if necessary)
 *
 * stop: closes open frames, writes them and closes the files
 *
 * abort: like stop, but discards and counts frames that no gang has started
 *
 * A run also ends by itself after its number of frames, when the detector is past its last frame,
 * or after its idle timeout.
 *
 * Any thread except an lcore may call these functions. Calls are serialized. Those that configure,
 * arm, start, stop and abort a run, and run_give_up(), may wait for the file system. The functions
 * run_get_... never do. While a run is being armed or ended, other commands are refused
 * immediately, except that a stop ends the arming.
 */
#ifndef RUN_H
#define RUN_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "ledger.h"

struct calibration;
struct config_source;
struct pipeline;
struct settings;

#define RUN_MESSAGE_SIZE 512
#define RUN_WARNINGS	 15
#define RUN_WARNING_SIZE 640

enum run_state {
	RUN_IDLE,
	RUN_CONFIGURED,
	/** a thread loads the calibration, recovers files, opens or checks those of the run */
	RUN_ARMING,
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
	uint64_t batches;		/**< batches of its frames that were handed to gangs */
	uint64_t batched_frames;
	struct ledger ledger;
	char ledger_path[PATH_MAX]; /**< ledger of the last run that ended; "": none ended */
	char preview[PATH_MAX];	    /**< picture of the last run that ended; "": off */
	bool calibration;	    /**< coefficient maps of that run were to be written */
	uint64_t first_frame;
	uint64_t last_frame;
	int write_error; /**< of a file that is not written now, -errno; 0: none */
	char dark[400];	 /**< result of a dark run; "": not a dark run */
	/** problems of the files and of the received data; "": no more */
	char warnings[RUN_WARNINGS][RUN_WARNING_SIZE];
	uint32_t veto_version;
};

struct run;

/**
 * A run may be started before lcores poll. The calls that need the builder then poll it themselves,
 * and packets wait for the lcores.
 * @param process      settings of the pipeline
 * @param base         base settings of the runs; the caller keeps ownership
 * @param lcores_poll  false: no lcore polls the builder until run_polled(). In service mode,
 *   commands that arrive earlier wait for the lcores
 * @return NULL: no memory
 */
struct run *run_create(struct pipeline *p, const struct settings *process,
	const struct config_source *base, bool lcores_poll);
void run_destroy(struct run *r);

/**
 * Have `report` called at the end of each run that has begun. Until it returns, no command of a
 * client is executed, so that the status remains that of the run. It may call the functions
 * run_get_... only.
 */
void run_on_end(struct run *r, void (*report)(void *arg), void *arg);

/** Return the pipeline of the runs. Any thread. */
const struct pipeline *run_get_pipeline(const struct run *r);

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
 * @return 0; -EBUSY: armed or running; -ECANCELED: run_stop(), run_abort(), run_close() or
 *   run_interrupt() has ended the arming; -errno of calibration or files
 */
int run_arm(struct run *r);

/**
 * Start the run. Configures and arms first if necessary.
 * @return 0; -EBUSY: running; -errno as run_arm()
 */
int run_start(struct run *r);

/**
 * Stop the run. If another thread is arming it, that thread stops it as soon as it can.
 * @return 0, even if the run is already stopping; -EALREADY: there is no run to stop
 */
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

/**
 * Prepare the end of the process: configure, arm and start fail from now on with -ESHUTDOWN, and a
 * run that is being armed is stopped.
 */
void run_close(struct run *r);

/** Stop the run that is being armed, or the next one. Async-signal-safe. */
void run_interrupt(void);

/** As run_close(), but only if there is no run (atomic). @return whether there is no run */
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

/**
 * Return a number that changes when data of the run is taken, written or sent, and always while the
 * end of the run waits for stores, which [egress] end_ms limits. It never waits. One thread may
 * call it.
 */
uint64_t run_get_progress(struct run *r);

/** Return the thresholds of the run, or those of the process if there is none. */
void run_get_veto(struct run *r, struct builder_veto *veto);

/** Return a copy of the calibration of the last run that was armed. */
void run_get_calibration(struct run *r, struct calibration *calibration);

#endif /* RUN_H */
