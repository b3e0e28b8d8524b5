/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EGRESS_PRIVATE_H
#define EGRESS_PRIVATE_H

/**
 * @file Internal interface of the egress. egress.c has its creation, the calls of other threads,
 * the commands on the lcore and the state for telemetry. egress_settings.c reads the settings.
 * egress_runs.c handles runs and the assignment of batches to stores. overload.c handles stores
 * that make no progress.
 */

#include <rte_seqcount.h>

#include <rte_log.h>

#include "egress/egress.h"
#include "telemetry/ledger.h"
#include "rdma/rdma.h"
#include "xfer/auth_key.h"
#include "egress/store_client.h"
#include "output/spill.h"

/** Time until a store syncs that is tolerated: twice its default. The journal is sized for it. */
#define EGRESS_COMMIT_MS 200

extern int egress_logtype;

#define LOG(level, ...) rte_log(RTE_LOG_##level, egress_logtype, "egress: " __VA_ARGS__)

/* Commands from other threads to the lcore. */
enum order {
	COMMAND_NONE,
	COMMAND_BEGIN,
	COMMAND_END,
	COMMAND_IS_OVER,
	COMMAND_LOG_WAITING,
};

/*
 * Mailbox of one command. The posting thread stores `order` last; the lcore resets it to
 * COMMAND_NONE.
 */
struct mailbox {
	int order; /* atomic */
	int answer;
	const struct journal_run *run;
	uint64_t batches[XFER_TABLES];
};

/* A filled room that the writer hands over to the lcore. */
struct filled {
	struct journal_batch batch;
	uint64_t tally[LEDGER_COLUMNS]; /* counts of its rows, and of those refused before them */
};
static_assert(sizeof(struct filled) % sizeof(uint32_t) == 0, "element of an rte_ring");

/* Data that is counted when a batch is durable and released. */
struct known {
	uint32_t rows;
	uint8_t run; /* index of the run */
	uint8_t table;
	uint64_t kept_at; /* TSC; 0: kept by another process */
	int64_t received;
};

/* Overload state; belongs to the lcore. */
struct overload {
	enum egress_step step; /* atomic */
	/* ms: since when the journal is fuller than spill_at; 0: it is not */
	uint64_t above_since;
	/* ms: until when spilling pauses after it has returned batches */
	uint64_t rest_until;
	uint64_t in_spill;	      /* bytes being spilled */
	uint64_t progress;	      /* batches ever spilled; atomic */
	uint64_t next_check;	      /* ms: next check */
	bool full;		      /* atomic; the writer: the last batch found no room */
	uint64_t refused;	      /* atomic; the writer: batches ever refused */
	uint64_t refused_seen;	      /* of these, the lcore has noticed */
	uint32_t uncut[JOURNAL_RUNS]; /* last seen value of spill_uncut() */
};

/* A run with batches in the journal. */
struct egress_run {
	bool used;
	bool finishing;
	bool retiring;	    /* its store clients are being closed */
	unsigned int index; /* index in the journal */
	/* waits for configured stores; false: nothing more can be done for now */
	bool waits;
	bool told;		   /* it was logged that the run waits for other stores */
	uint16_t again[STORE_SET]; /* store numbers for which a store client has reconnected */
	struct store_client *sender[STORE_SET];
};

struct egress {
	struct egress_settings settings;
	uint64_t receiver_id;
	struct xfer_key key;
	struct rdma_dev *dev;
	struct rdma_dev_info info;
	struct rdma_pd *pd;
	struct xfer_mr memory; /* the journal */
	struct journal *ring;
	struct store_set stores;
	unsigned int changes; /* changes of `stores` that have been processed */
	struct egress_run run[JOURNAL_RUNS];
	int current; /* index of the current run; -1: none */
	unsigned int next_store;
	struct known *known;	   /* indexed by batch */
	struct spill *spill;	   /* NULL: none */
	struct ledger_kept before; /* of a process that died; version 0: none */
	/* images of that process in the journal at the time of opening */
	uint64_t before_held;
	struct ledger_kept kept;   /* the ledger in the journal; belongs to the lcore */
	uint64_t first_row;	   /* first frame of the current run that has a row; 0: none */
	bool knows_rows;	   /* `kept` has the rows: ledger_begin() */
	struct ledger_kept ledger; /* ledger to be saved */
	bool ledger_is_new;	   /* atomic; while set, `ledger` belongs to the lcore */
	struct overload overload;
	bool unassigned; /* a batch may be without an assigned store */
	int64_t (*clock)(void *arg);
	void *clock_arg;
	rte_seqcount_t view_count;
	struct egress_view view;
	struct egress_store past[STORE_SET];  /* counters of closed store clients */
	struct egress_store rated[STORE_SET]; /* values at the last computation of rates */
	uint64_t rated_at;		      /* ms */
	uint64_t latency[ARROW_LATENCY_BUCKETS];
	uint64_t turn;
	uint64_t next_check;
	uint64_t cm_at;
	bool lcore_polls; /* atomic */
	bool rests;	  /* atomic: the lcore has stopped polling for good */
	struct mailbox mail;
	/* The writer enqueues, the lcore dequeues. Elements are struct filled. */
	struct rte_ring *filled;
	/* The members up to `tally` belong to the writer. */
	uint8_t *room; /* the open one; NULL: none */
	enum arrow_table room_table;
	uint64_t body_max[XFER_TABLES];
	uint32_t modules;		/* modules of a row */
	uint64_t tally[LEDGER_COLUMNS]; /* counts of rows refused since the last batch */
	struct egress_stats stats[XFER_TABLES];
};

#define SET(counter, value) __atomic_store_n(&(counter), (value), __ATOMIC_RELAXED)
#define ADD(counter, n)	    SET(counter, (counter) + (n))

/** On the lcore: save the new ledger in the journal, with the retained frames. */
void egress_put_ledger(struct egress *e);

/** On the lcore: count a batch that is durable and already released. */
void egress_known(struct egress *e, uint32_t batch, bool spilled);

/* ---- egress_runs.c: runs ---- */

/**
 * Adopt runs of a receiver that was killed: send their batches, then end them. @return 0; -errno
 */
int egress_adopt_runs(struct egress *e);

/** Open the store clients of a run in the journal. @return 0 or -errno */
int egress_open_senders(struct egress *e, unsigned int index);

/** End a run: no more batches follow. */
void egress_finish_run(struct egress *e, struct egress_run *run);

/**
 * Remove runs that are over. Runs that wait for stores that are no longer configured stay in the
 * journal, and the egress does not wait for them.
 */
void egress_check_runs(struct egress *e);

/**
 * Return true if there is nothing to wait for, adopted runs included. After an orderly end, no
 * configured store lacks data or information that it should have.
 */
bool egress_all_is_over(const struct egress *e);

/** Log what the end of a run waited for in vain. */
void egress_say_what_is_left(const struct egress *e);

/* ---- egress_runs.c: assignment of batches to stores ---- */

/**
 * Return true if a store has accepted nothing for so long that its batches should be reassigned.
 */
bool egress_store_is_gone(const struct egress *e, const struct store_client *sender, uint64_t now);

/** Return the store client of a batch's store; NULL: the store is not configured. */
struct store_client *egress_sender_of(const struct egress *e, const struct journal_batch *b);

/** Choose a store for a batch. @param first  number of its first frame */
unsigned int egress_choose(struct egress *e, const struct egress_run *run, uint64_t first);

/** Reassign batches of stores that are gone. */
void egress_move(struct egress *e, uint64_t now);

/* ---- overload.c ---- */

/** Adopt what another process was spilling when it died. @return 0 or -errno */
int egress_adopt_spilled(struct egress *e);

/** Process results and spill the next batches. @return true if any work was done */
bool egress_spill_turn(struct egress *e, uint64_t now);

/* ---- egress.c ---- */

/** Keep the counters of a store client that is closed. */
void egress_view_retire(struct egress *e, unsigned int store, const struct store_client *sender);

/** Update the state for telemetry. */
void egress_view_update(struct egress *e);

/**
 * Run one iteration: on the lcore, or in the calling thread while no lcore polls. @return non-zero
 * if any work was done
 */
int egress_iterate(struct egress *e);

#endif /* EGRESS_PRIVATE_H */
