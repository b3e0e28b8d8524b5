/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Record batches to stores: held in the journal until one has them for good.
 *
 * egress_poll() is a role of one lcore, which is the only one that touches the ring, the device and
 * the senders. The thread that makes batches, and the one that begins and ends runs, ask it through
 * a mailbox and wait for the answer; that thread copies a batch to the place that it was given, so
 * the lcore does not.
 *
 * What is asked: [egress] in the settings, README.rst.
 */
#ifndef EGRESS_H
#define EGRESS_H

#include <limits.h>
#include <sched.h>
#include <stdbool.h>

#include "output/run_files.h"
#include "config/config.h"
#include "journal/journal.h"
#include "egress/store_client.h"
#include "egress/store_set.h"

enum egress_policy {
	EGRESS_ROUND_ROBIN, /**< batch by batch over the stores that take them */
	EGRESS_BY_FRAME,    /**< by the number of a batch's first frame */
	EGRESS_PRIMARY,	    /**< the first one; another when it is gone */
};

/** What becomes of batches when stores stand still. */
enum egress_step {
	EGRESS_HOLD,   /**< they stay in the ring */
	EGRESS_SPILL,  /**< the oldest go to local files */
	EGRESS_REFUSE, /**< the ring is full: counted */
	EGRESS_STEPS
};

/** @return `hold`, `spill`, `refuse` */
const char *egress_step_name(enum egress_step step);

struct egress_settings {
	const char *device;   /**< rdma_dev_open(); NULL: no egress, files are written here */
	const char *stores;   /**< ADDRESS[:PORT] with commas between */
	const char *identity; /**< of the stores' keyrings */
	const char *key;      /**< path */
	const char *ring;     /**< path, in a tmpfs or hugetlbfs */
	uint64_t ring_bytes;
	uint64_t batch_bytes; /**< limit of a batch's body; one frame may be larger */
	uint64_t rate;	      /**< bytes of kept batches a second that the ring is to be good for */
	unsigned int policy;  /**< enum egress_policy */
	uint64_t interval;    /**< by frame: frame numbers that go to a store in a row */
	uint32_t failover_ms; /**< a store that is gone so long loses its batches to others */
	uint32_t hold_ms;     /**< stores may stand still so long; then the next step */
	const char *spill;    /**< directory; NULL: nothing is spilled */
	uint64_t spill_bytes; /**< of its files, at most; 0: as the disk has */
	uint32_t spill_at;    /**< percent of the ring that may be full before */
	uint32_t end_ms;      /**< the end of a run waits so long; the rest stays in the ring */
};

/** Of one table. */
struct egress_stats {
	uint64_t put;	   /**< batches that entered the journal, */
	uint64_t put_rows; /**< with so many rows */
	uint64_t durable;  /**< of them, */
	uint64_t rows;	   /**< with so many rows */
	uint64_t bytes;
	uint64_t refused; /**< batches, ring full */
	uint64_t refused_rows;
	uint64_t oversize; /**< batches larger than any place */
	uint64_t oversize_rows;
	uint64_t spilled; /**< batches in local files, for good */
	uint64_t spilled_rows;
	uint64_t latency[ARROW_LATENCY_BUCKETS]; /**< first packet of the last frame to durable */
};

/** A store as it is configured, all runs together. */
struct egress_store {
	const char *name;
	struct store_client_stats now; /**< of the run at hand, or the oldest that is sent */
	uint64_t connections;
	uint64_t broken;
	uint64_t refused;
	uint64_t unreachable;
	uint64_t malformed;
	uint64_t late;
	uint64_t stuck;
	uint64_t sent;
	uint64_t bytes;
	uint64_t bytes_per_s; /**< in the last second */
	uint64_t durable;
	uint64_t durable_per_s;
	uint64_t found;
	uint64_t doubles;
	uint64_t again;
};

/** For telemetry: about what it was 100 ms ago. */
struct egress_view {
	unsigned int nb_stores;
	unsigned int runs; /**< whose batches are held, adopted ones too */
	enum egress_step step;
	uint64_t steps[EGRESS_STEPS];		 /**< times that each was come to */
	uint64_t spill_error;			 /**< errno, now */
	uint64_t spill_used;			 /**< bytes */
	uint64_t spilled;			 /**< batches, of all runs */
	uint64_t adopted_spilled;		 /**< ... of a process that died */
	uint64_t latency[ARROW_LATENCY_BUCKETS]; /**< kept to durable, all batches */
	struct journal_stats journal;
	struct egress_store store[STORE_SET];
};

struct egress;
struct ledger_kept;

/** Read [egress]. */
void egress_settings_read(struct egress_settings *s, struct config *c);

/**
 * [egress] stores as addresses. Nobody is connected to.
 * @param stores   all zero
 * @param message  out, on error: what is wrong, what was wanted
 * @return 0 or -EINVAL
 */
int egress_stores_parse(
	const struct egress_settings *s, struct store_set *stores, char message[PATH_MAX]);

/** journal_need() of these settings: a ring with less room is refused. */
uint64_t egress_ring_need(const struct egress_settings *s, char *text, size_t size);

/**
 * Open device and ring, adopt what the ring holds: it is sent again. Main lcore, before lcores
 * poll.
 * @return 0 or -errno (logged)
 */
int egress_create(struct egress **e, const struct egress_settings *settings, uint64_t producer);

/** A role's poll function: arg is the egress. */
int egress_poll(void *arg);

/** The lcore polls no more, for good: who asks for anything polls from here on, one thread. */
void egress_rest(struct egress *e);

/** Lcores have their CPUs: threads begin on what is left. @return 0 or -errno (logged) */
int egress_start(struct egress *e, const cpu_set_t *cpus);

/** What is new with a run. */
struct egress_begin {
	const char *name;
	uint64_t run;
	uint64_t incarnation;
	const struct arrow_tables *tables;
	uint64_t body_max[ARROW_TABLES]; /**< bytes of the largest body */
	int64_t (*clock)(void *arg);	 /**< as `received` of batches; any thread. NULL: none */
	void *clock_arg;
};

/** Begin a run. @param message  out, on error. @return 0 or -errno */
int egress_begin(struct egress *e, const struct egress_begin *run, char message[PATH_MAX]);

/**
 * Hold a batch. Waits while the ring is full, as long as spilling makes room and otherwise up to
 * hold_ms; what is refused then is counted. It outlives the process when this returns: so images
 * are put before the rows that imply them.
 * @return 0; -ENOSPC: no room; -E2BIG: larger than any place
 */
int egress_put(struct egress *e, const struct batch *batch);

/**
 * No more batches: wait until all that is held is durable, what was adopted too, and the stores
 * that are configured have completed their files and heard what went elsewhere.
 * @return 0; -ETIMEDOUT: the rest is in the ring
 */
int egress_end(struct egress *e);

/**
 * Keep a ledger in the ring, so that it outlives the process. One thread.
 * @param kept  all but incarnation and what is retained, which the egress knows
 * @return false: the one before is still on its way
 */
bool egress_keep_ledger(struct egress *e, const struct ledger_kept *kept);

/**
 * The ledger of a process that died in the middle of a run.
 * @param held  out: images of frames up to kept.retained_frame that were in the ring then
 * @return false: none did
 */
bool egress_ledger_before(const struct egress *e, struct ledger_kept *kept, uint64_t *held);

/** Of the run at hand, or the last one. Any thread. */
void egress_stats_get(const struct egress *e, enum arrow_table table, struct egress_stats *stats);

/** The device, and what it was when it was opened. Any thread, until egress_destroy(). */
const struct rdma_dev *egress_device(const struct egress *e, const struct rdma_dev_info **info);

/** Any thread. */
void egress_view_get(struct egress *e, struct egress_view *view);

/** No lcore polls any more; called by the one that did or the main one. What is held stays. */
void egress_destroy(struct egress *e);

#endif /* EGRESS_H */
