/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EGRESS_PRIVATE_H
#define EGRESS_PRIVATE_H

/**
 * @file What the parts of the egress share: egress.c (its life, and what threads that make batches
 * and runs ask of it), egress_settings.c, and what its lcore does: egress/egress.c (orders),
 * egress_runs.c (runs and what is left of them), egress/egress_runs.c (which store has which
 * batch), egress/overload.c (when all stand still) and egress/egress.c (what telemetry shows).
 */

#include <rte_seqcount.h>

#include <rte_log.h>

#include "egress/egress.h"
#include "telemetry/ledger.h"
#include "rdma/rdma.h"
#include "xfer/auth_key.h"
#include "egress/store_client.h"
#include "output/spill.h"

/** What a store may take until it syncs: twice its default. The ring is sized for it. */
#define EGRESS_COMMIT_MS 200

extern int egress_logtype;

#define LOG(level, ...) rte_log(RTE_LOG_##level, egress_logtype, "egress: " __VA_ARGS__)

/* What others want of the lcore. */
enum order {
	ORDER_NONE,
	ORDER_BEGIN,
	ORDER_RESERVE,
	ORDER_COMMIT,
	ORDER_REFUSED,
	ORDER_END,
	ORDER_IS_OVER,
	ORDER_SAY_WHY_NOT,
};

/* One thing at a time: `order` is stored last by who asks, and back to ORDER_NONE by the lcore. */
struct mailbox {
	int order; /* atomic */
	int answer;
	const struct journal_run *run;
	struct journal_batch batch;
	uint64_t body;
	uint8_t *room;
	uint64_t batches[XFER_TABLES];
	uint64_t tally[LEDGER_COLUMNS]; /* what its rows, and those refused before them, say */
};

/* What is counted when a batch is durable and forgotten. */
struct known {
	uint32_t rows;
	uint8_t run; /* index */
	uint8_t table;
	uint64_t kept_at; /* TSC; 0: by another process */
	int64_t received;
};

/* What is done when stores stand still; the lcore's. */
struct ladder {
	enum egress_step step;	      /* atomic */
	uint64_t above_since;	      /* ms: the ring is fuller than spill_at; 0: it is not */
	uint64_t rest_until;	      /* ms: a spill that gives batches back is left alone */
	uint64_t in_spill;	      /* bytes that are being spilled */
	uint64_t progress;	      /* batches ever spilled; atomic */
	uint64_t look_at;	      /* ms */
	bool full;		      /* the last batch found no room */
	uint32_t uncut[JOURNAL_RUNS]; /* spill_uncut(), as it was seen */
};

/* A run whose batches are held. */
struct egress_run {
	bool used;
	bool finishing;
	bool retiring;	    /* senders are being closed */
	unsigned int index; /* in the ring */
	bool waits;	    /* for stores that are configured; else it is over as far as can be */
	bool told;	    /* that it waits for others */
	uint16_t again[STORE_SET]; /* numbers that a sender has come back for */
	struct store_client *sender[STORE_SET];
};

struct egress {
	struct egress_settings settings;
	uint64_t producer;
	struct xfer_key key;
	struct rdma_dev *dev;
	struct rdma_dev_info info;
	struct rdma_pd *pd;
	struct xfer_mr memory; /* the ring */
	struct journal *ring;
	struct store_set stores;
	unsigned int changes; /* of them, that were seen to */
	struct egress_run run[JOURNAL_RUNS];
	int current; /* index of the run at hand; -1: none */
	unsigned int next_store;
	struct known *known;	   /* by batch */
	struct spill *spill;	   /* NULL: none */
	struct ledger_kept before; /* of a process that died; version 0: there was none */
	uint64_t before_held;	   /* images of it that the ring had then */
	struct ledger_kept kept;   /* as it is in the ring; the lcore's */
	uint64_t first_row;	   /* first frame of the run at hand that has one; 0: none */
	bool knows_rows;	   /* `kept` does: ledger_begin() */
	struct ledger_kept ledger; /* to be kept; */
	bool ledger_is_new;	   /* atomic: the lcore's then */
	struct ladder ladder;
	bool unassigned; /* some batch may be nobody's */
	int64_t (*clock)(void *arg);
	void *clock_arg;
	rte_seqcount_t view_count;
	struct egress_view view;
	struct egress_store past[STORE_SET];  /* counters of senders that are closed */
	struct egress_store rated[STORE_SET]; /* as they were when rates were made last */
	uint64_t rated_at;		      /* ms */
	uint64_t latency[ARROW_LATENCY_BUCKETS];
	uint64_t turn;
	uint64_t look_at;
	uint64_t cm_at;
	bool lcore_polls; /* atomic */
	bool rests;	  /* atomic: it did, and will not */
	uint64_t body_max[XFER_TABLES];
	uint32_t modules;		/* of rows */
	uint64_t tally[LEDGER_COLUMNS]; /* of rows that were refused since the last batch */
	struct mailbox mail;
	struct egress_stats stats[XFER_TABLES];
};

#define SET(counter, value) __atomic_store_n(&(counter), (value), __ATOMIC_RELAXED)
#define ADD(counter, n)	    SET(counter, (counter) + (n))

/** The lcore: what is to be kept goes into the ring, with what is retained. */
void egress_put_ledger(struct egress *e);

/** The lcore: a batch is known to be durable, and released by now. */
void egress_known(struct egress *e, uint32_t batch, bool spilled);

/* ---- egress_runs.c --------------------------------------------------------------------------- */

/** Runs of a receiver that was killed: theirs is sent, and then they are over. @return 0; -errno */
int egress_adopt_runs(struct egress *e);

/** Open the senders of a run of the ring. @return 0 or -errno */
int egress_open_senders(struct egress *e, unsigned int index);

/** No more batches of a run. */
void egress_finish_run(struct egress *e, struct egress_run *run);

/** Runs that are over are forgotten; those that wait for stores that nobody names any more stay,
 * and nothing waits for them. */
void egress_look_at_runs(struct egress *e);

/** Whether nothing has to be waited for, of runs that were adopted as well: who ends in order
 * leaves nothing behind that a store that is configured should have. */
bool egress_all_is_over(const struct egress *e);

/** What the end of a run waited for in vain. */
void egress_say_what_is_left(const struct egress *e);

/*
 * ---- egress/egress_runs.c
 * -------------------------------------------------------------------------
 */

/** Whether a store has not taken anything for so long that its batches are better off elsewhere. */
bool egress_store_is_gone(const struct egress *e, const struct store_client *sender, uint64_t now);

/** The sender of the store that a batch is of; NULL: none that is configured. */
struct store_client *egress_sender_of(const struct egress *e, const struct journal_batch *b);

/** A store for a batch. @param first  number of its first frame */
unsigned int egress_choose(struct egress *e, const struct egress_run *run, uint64_t first);

/** Batches of stores that are gone go to others. */
void egress_move(struct egress *e, uint64_t now);

/*
 * ---- egress/overload.c --------------------------------------------------------------------------
 */

/** What was being spilled when another process died. @return 0 or -errno */
int egress_adopt_spilled(struct egress *e);

/** A batch found no room, and was not waited for any longer. */
void egress_refused(struct egress *e);

/** Results, and the next batches. @return something was done */
bool egress_spill_turn(struct egress *e, uint64_t now);

/*
 * ---- egress/egress.c ---------------------------------------------------------------------------
 */

/** A sender is closed: its counters stay. */
void egress_view_retire(struct egress *e, unsigned int store, const struct store_client *sender);

/** Show how things are. */
void egress_view_update(struct egress *e);

/** The lcore's turn, or that of who asks before lcores poll. @return something was done */
int egress_turn(struct egress *e);

#endif /* EGRESS_PRIVATE_H */
