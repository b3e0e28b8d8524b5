/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The ledger of a run, and the part of it that is kept in the journal. A restarted receiver reads
 * the kept ledger, so that it can report the losses of the time in between. Used only if batches go
 * to stores.
 *
 * The caller holds the run's lock, except where noted.
 */
#ifndef RUN_LEDGER_H
#define RUN_LEDGER_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "frames/frame_table.h"
#include "ledger.h"

struct batch_writer;
struct pipeline;
struct settings;

struct run_ledger {
	const struct pipeline *pipeline;
	const struct settings *settings; /**< of the current run */
	struct ledger before;		 /**< counters at the start of the run */
	/** kept ledger of a receiver that died in this run; version 0: none */
	struct ledger_kept resumed;
	bool asked; /**< the ledger above has been requested; do not request it again */
	/** absolute path of the current run's directory; "": too long for the kept ledger */
	char directory[sizeof(((struct ledger_kept *)0)->directory)];
	uint64_t receivers; /**< receivers that died in this run and had received frames */
	uint64_t earlier[LEDGER_COLUMNS]; /**< sum of the ledgers of these receivers */
	uint64_t keep_at;		  /**< TSC of the next time that the ledger is saved */
	struct ledger_veto *vetoes;	  /**< thresholds of the run so far */
	uint32_t nb_vetoes;
	bool settling;		      /**< run_ledger_settle() has begun to wait */
	uint64_t polls[FRAME_RX_MAX]; /**< ... rx_polls() of the RX roles then */
};

/** @param settings  location of the settings of the current run */
void run_ledger_init(
	struct run_ledger *a, const struct pipeline *p, const struct settings *settings);
void run_ledger_free(struct run_ledger *a);

/** Forget the previous run, before a new one is started. */
void run_ledger_begin(struct run_ledger *a);

/**
 * The run's frames are closed: wait for the counters that the RX roles have not published yet. An
 * RX role publishes its counters at the end of a poll, and packets that wait get their outcome in
 * the next one.
 * @return true if all RX roles have polled, false: call this again
 */
bool run_ledger_settle(struct run_ledger *a);

/** Record thresholds. */
void run_ledger_add_veto(
	struct run_ledger *a, const struct builder_veto *veto, uint64_t from_frame);

/**
 * Read the ledger of the current run. If another receiver died in this run, add the losses since
 * then.
 */
void run_ledger_read(
	const struct run_ledger *a, const struct batch_writer *writer, struct ledger *l);

/**
 * Before the start of a run, do what may wait for a disk: resolve the directory, and, if the
 * previous receiver process died during a run, write its ledger into the directory of that run. No
 * other thread uses the structure meanwhile. The caller does not hold the lock.
 */
void run_ledger_prepare(struct run_ledger *a);

/**
 * At the start of a run, continue the ledger of the previous receiver process if it died during
 * this run. Only the first run of a process can continue one.
 */
void run_ledger_resume(struct run_ledger *a);

/** Save the ledger in the journal. @param running  false: the run has ended normally */
void run_ledger_keep(struct run_ledger *a, const struct batch_writer *writer, bool running);

/**
 * Write the ledger file of the run that ends.
 * @param all_is_stored  all batches left by earlier receivers of the run are at stores
 * @return 0 or -errno (logged with the path)
 */
int run_ledger_write(const struct run_ledger *a, const struct batch_writer *writer,
	const struct ledger *l, bool all_is_stored, char path[PATH_MAX]);

#endif /* RUN_LEDGER_H */
