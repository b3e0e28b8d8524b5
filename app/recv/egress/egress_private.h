/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EGRESS_PRIVATE_H
#define EGRESS_PRIVATE_H

/**
 * @file
 * The egress from inside, and the functions that its parts share. The parts are
 *  - egress.c: creation, the work of the lcore, the end,
 *  - egress_control.c: begin and end of a run, by commands to the lcore,
 *  - egress_put.c: the way of a batch from the writer to the journal,
 *  - egress_assign.c: the store of each batch,
 *  - egress_runs.c: the runs that have batches in the journal,
 *  - egress_damage.c: damaged batches of the journal,
 *  - egress_stats.c: what is counted, and the state for telemetry.
 *
 * The egress lcore calls all functions, except where noted: before its first poll and after its
 * last one, the main lcore is the egress lcore.
 */

#include <rte_common.h>
#include <rte_ring.h>
#include <rte_seqcount.h>

#include "counter.h"
#include "egress/damaged_batches.h"
#include "egress/egress.h"
#include "egress/file_thread.h"
#include "egress/kept_ledger.h"
#include "egress/key_file.h"
#include "egress/overload.h"
#include "egress/spill.h"
#include "egress/store_client.h"
#include "ledger.h"
#include "mailbox.h"
#include "rdma/rdma.h"
#include "xfer/msg.h"

/** Command of the thread that begins and ends runs to the lcore, in its mailbox. */
struct egress_command {
	enum {
		EGRESS_COMMAND_BEGIN,
		EGRESS_COMMAND_END,	/**< no more batches follow */
		EGRESS_COMMAND_IS_OVER, /**< whether there is nothing to wait for */
		EGRESS_COMMAND_GIVE_UP, /**< the wait is over */
	} order;
	const struct journal_run *run;	  /**< BEGIN */
	const struct egress_begin *begin; /**< BEGIN */
	uint64_t batches[XFER_TABLES];	  /**< END */
};

/** Data that is counted when a batch is durable and released. */
struct egress_batch {
	uint32_t rows;
	uint8_t run; /**< index of the run */
	uint8_t table;
	uint64_t kept_at; /**< TSC; 0: kept by another process */
	int64_t received;
};

/** A run with batches in the journal. */
struct egress_run {
	bool used;
	bool finishing;
	bool retiring;	    /**< its store clients are being closed */
	unsigned int index; /**< index in the journal */
	/** waits for configured stores; false: nothing more can be done for now */
	bool waits;
	bool wait_logged; /**< it was logged that the run waits for other stores */
	/** masks of store numbers for which this store client has reconnected */
	uint16_t reconnected[STORE_SET];
	struct store_client *client[STORE_SET];
};

struct egress {
	struct egress_settings settings;
	uint64_t receiver_id;
	struct key_file *key;
	struct file_thread save; /**< of the damaged batches in the list */
	bool saves;		 /**< it has no result yet that was taken */
	struct damaged_list damaged_list;
	struct rdma_dev *dev;
	struct rdma_dev_info info;
	struct rdma_pd *pd;
	struct xfer_mr memory; /**< the journal */
	struct journal *journal;
	struct store_set stores;
	unsigned int changes; /**< changes of `stores` that have been processed */
	struct egress_run run[JOURNAL_RUNS];
	int current; /**< index of the current run; -1: none */
	unsigned int next_store;
	struct egress_batch *counted; /**< indexed by batch */
	struct spill *spill;	      /**< NULL: none */
	struct ledger_kept previous;  /**< of a process that died; version 0: none */
	/** images of that process in the journal at the time of opening */
	uint64_t previous_held;
	struct kept_ledger kept;
	struct overload overload;
	bool unassigned; /**< a batch may be without an assigned store */
	int64_t (*clock)(void *arg);
	void *clock_arg;
	rte_seqcount_t view_count;
	struct egress_view view; /**< changes under `view_count` only, once there are readers */
	uint64_t damaged_frames; /**< for the view */
	bool damaged;		 /**< atomic: egress_was_damaged() */
	bool previous_damaged;	 /**< it was when the egress was created */
	struct egress_store past[STORE_SET];  /**< counters of closed store clients */
	struct egress_store rated[STORE_SET]; /**< values at the last computation of rates */
	uint64_t rated_at;		      /**< ms */
	struct histogram latency;
	uint64_t iterations;
	uint64_t next_check;
	uint64_t remove_at;   /**< ms: next attempt to save damaged batches */
	uint64_t lost_doubts; /**< atomic: see egress_lost_doubts() */
	uint64_t corrected;   /**< records of the journal that were wrong and corrected, logged */
	uint64_t cm_at;
	bool lcore_polls;   /**< atomic */
	bool polling_ended; /**< atomic: the lcore does not poll any more */
	bool ending;	    /**< atomic: egress_end() waits */
	bool lost_device;   /**< atomic: it was removed or has failed */
	struct mailbox mailbox;
	struct egress_command command;
	struct egress_outcome_stats outcome[XFER_TABLES];
	/** The writer enqueues, the lcore dequeues. Elements are struct filled. */
	struct rte_ring *filled;
	/** The members from here on belong to the writer. The lcore polls those above: they must be
	 * on other cache lines. */
	uint8_t *room __rte_cache_aligned; /**< the open one; NULL: none */
	enum arrow_table room_table;
	uint64_t body_max[XFER_TABLES];
	uint32_t modules;		/**< modules of a row */
	uint64_t tally[LEDGER_COLUMNS]; /**< counts of rows refused since the last batch */
	struct egress_put_stats put[XFER_TABLES];
};

/** The directory of quarantine files. Any thread. */
static inline const char *
egress_quarantine(const struct egress *e)
{
	return e->settings.directory != NULL ? e->settings.directory : ".";
}

/**
 * Return true if a store has not accepted batches for so long that they should be reassigned.
 * @param now  ms
 */
static inline bool
egress_store_is_gone(const struct egress *e, const struct store_client *client, uint64_t now)
{
	const uint64_t since = store_client_idle_since(client);

	/* the clock may have advanced in this iteration */
	return since != 0 && now >= since + e->settings.failover_ms;
}

/* ---- egress.c ---- */

/** Run one iteration. @return non-zero if any work was done */
int egress_iterate(struct egress *e);

/**
 * Return true if the calling thread does the work of the egress lcore: it is the main lcore, before
 * the lcores start or after they have ended. Other threads may not use the RDMA device. Any thread.
 */
bool egress_polls_itself(const struct egress *e);

/** Do the work of the egress lcore once, or sleep while that lcore does it. Any thread. */
void egress_poll_or_sleep(struct egress *e, unsigned int us);

/* ---- egress_control.c ---- */

/** Execute the command in the mailbox. @return its result */
int egress_control_execute(struct egress *e);

/* ---- egress_put.c ---- */

/** Create the ring of filled rooms. @return 0; -ENOMEM */
int egress_put_create(struct egress *e);

/** A run begins: reset what belongs to the writer, which has not begun. */
void egress_put_begin(struct egress *e, const struct egress_begin *begin);

/** Commit the batches that the writer has handed over. @return true if there were any */
bool egress_put_commit(struct egress *e);

/* ---- egress_assign.c ---- */

/** Begin at the overload level `hold`. */
void egress_assign_init(struct egress *e);

/**
 * Assign a batch of the current run to a store, and offer it to this store.
 * @param batch  index in the journal
 * @param first  number of its first frame
 */
void egress_assign(struct egress *e, uint32_t batch, uint64_t first);

/** Reassign batches of stores that are not connected. @param now  ms */
void egress_assign_again(struct egress *e, uint64_t now);

/** The result of a batch at its store: store_client_config.result. */
void egress_assign_result(void *arg, uint32_t batch, enum xfer_result_status status);

/* ---- egress_runs.c ---- */

/**
 * Adopt runs of a receiver that was killed: send their batches, then end them. @return 0; -errno
 */
int egress_runs_adopt(struct egress *e);

/**
 * Add a run to the journal and open its store clients. It is the current one from then on.
 * @return 0 or -errno
 */
int egress_runs_begin(struct egress *e, const struct journal_run *run);

/** End a run: no more batches follow. */
void egress_runs_finish(struct egress *e, struct egress_run *run);

/**
 * Remove runs that are over. Runs that wait for stores that are no longer configured stay in the
 * journal, and the egress does not wait for them.
 */
void egress_runs_check(struct egress *e);

/**
 * Return true if there is nothing to wait for, adopted runs included. After an orderly end, no
 * configured store lacks data or information that it should have, and damaged batches are saved.
 */
bool egress_runs_are_over(const struct egress *e);

/** The wait for the stores is over: log what is missing. @return as egress_end() */
int egress_runs_give_up(const struct egress *e);

/* ---- egress_damage.c ---- */

/**
 * Save and drop the damaged batches of a journal that is being adopted. Waits for the disk.
 * @return 0 or -errno (logged)
 */
int egress_damage_open(struct egress *e);

/** Start the thread that saves damaged batches from then on. @return 0 or -errno */
int egress_damage_start(struct egress *e, const cpu_set_t *cpus);

/**
 * Remove batches that were found damaged from the journal: a thread saves them, which may take
 * long, and then they are dropped. Until then, the journal grants no space.
 * @param now  ms
 */
void egress_damage_poll(struct egress *e, uint64_t now);

/** Log records that were corrected since the last time. */
void egress_damage_log_corrected(struct egress *e);

/** End the thread, and drop the batches that it has saved. */
void egress_damage_close(struct egress *e);

/* ---- egress_stats.c ---- */

/**
 * Count a batch that is durable and already released.
 * @param batch  index in the journal
 * @param spilled  in a local file, not in a store
 */
void egress_stats_released(struct egress *e, uint32_t batch, bool spilled);

/** Keep the counters of a store client that is closed. @param store  index in `stores` */
void egress_stats_closed(struct egress *e, unsigned int store, const struct store_client *client);

/** Update the state for telemetry. */
void egress_view_update(struct egress *e);

#endif /* EGRESS_PRIVATE_H */
