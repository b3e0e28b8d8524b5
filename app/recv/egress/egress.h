/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Sends record batches to stores. A batch is held in the journal until it is durable at a store.
 *
 * egress_poll() is the role of one lcore. Only this lcore accesses the records of the journal, the
 * device and the connections (struct store_client). The thread that begins and ends runs sends it
 * commands through a mailbox and waits for the reply.
 *
 * The writer, the thread that makes batches, is the producer of the journal (journal/journal.h,
 * which also has the memory order). It waits for the lcore only if the journal or the ring is full,
 * and refuses the batch if that does not change: of the journal within hold_ms, of the ring within
 * 5 s, when the lcore no longer polls:
 *  - The lcore grants it the free space of the journal ahead, whenever a batch is released.
 *  - It copies the rows of a batch of images to a room of that space (egress_room()), or copies a
 *    batch there that it built elsewhere. It numbers the batches itself. A room belongs to the
 *    writer until egress_put(). It is as large as the largest batch; what a batch does not use
 *    remains free for the next one. The columns of a batch are pieces of such a room. Only one room
 *    is open at a time, and no room crosses the end of the journal.
 *  - It hands the filled room over to the lcore through an rte_ring (egress_put()). The lcore
 *    commits it, which makes it survive the process: the record in the journal, the counts of its
 *    rows in the ledger, and its store. The order of the batches stays.
 *  - The gangs may write their results into output slots that are part of the journal
 *    (egress_area()). A batch of images that refers to such slots is not built in a room. Its room
 *    has the rest of the body only. The writer takes a free slot for each one that a batch keeps
 *    (egress_slot_take()), so that the number of slots that the gangs use stays the same.
 *  - If there is no room for the largest batch, the writer builds the batch in its own memory. A
 *    batch that is complete waits for a room of its own size, as long as the overload level allows
 *    (`hold`, `spill`), and is then refused. The lcore enters the level `refuse`. A batch that is
 *    larger than the largest that the run announced is refused at once.
 *  - At the end of a run the ring is empty: commands of the mailbox follow the batches that were
 *    handed over before. A room that was not used needs no return; the next run's writer gets the
 *    same space.
 *  - A receiver that adopts the journal of a killed one sees the committed batches only: they are
 *    the first of those handed over, and the ledger counts the frames of the others, at most 63
 *    batches, as lost at restart. The bytes of any other room are free space.
 *
 * Settings: [egress] in app/recv/README.rst.
 */
#ifndef EGRESS_H
#define EGRESS_H

#include <limits.h>
#include <sched.h>
#include <stdbool.h>

#include <gk.h>

#include "arrow/batch.h"
#include "config/config.h"
#include "histogram.h"
#include "journal/journal.h"
#include "egress/store_client.h"
#include "egress/store_set.h"

/** Time until a store syncs that is tolerated: twice its default. The journal is sized for it. */
#define EGRESS_COMMIT_MS 200

#define EGRESS_SLOTS_AUTO UINT32_MAX

enum egress_policy {
	EGRESS_ROUND_ROBIN, /**< one batch after the other to each store that accepts batches */
	EGRESS_BY_FRAME,    /**< by the frame number of a batch's first frame */
	EGRESS_PRIMARY,	    /**< the first store; another one while it is not connected */
};

/** Treatment of batches when the stores do not accept them (overload level). */
enum egress_level {
	EGRESS_HOLD,   /**< batches stay in the journal */
	EGRESS_SPILL,  /**< the oldest batches go to local files */
	EGRESS_REFUSE, /**< the journal is full: batches are refused and counted */
	EGRESS_LEVELS
};

/** @return `hold`, `spill`, `refuse` */
const char *egress_level_name(enum egress_level step);

struct egress_settings {
	const char *device;   /**< for rdma_dev_open(); NULL: no egress, local files are written */
	const char *stores;   /**< ADDRESS[:PORT], separated by commas */
	const char *identity; /**< this receiver's name in the stores' keyrings */
	const char *key;      /**< path of the key file */
	const char *journal;  /**< path of the journal, in a tmpfs or hugetlbfs */
	uint64_t journal_bytes;
	/** kept frames that the journal can hold in output slots; EGRESS_SLOTS_AUTO */
	uint32_t journal_slots;
	uint64_t batch_bytes; /**< limit of a batch's body; a single frame may be larger */
	uint64_t rate;	      /**< kept bytes per second that the journal is sized for */
	unsigned int policy;  /**< enum egress_policy */
	/** EGRESS_BY_FRAME: consecutive frame numbers that go to one store */
	uint64_t interval;
	/** batches of a store that is not connected for this time are reassigned to others */
	uint32_t failover_ms;
	/** maximum time without progress at the stores before the next overload level */
	uint32_t hold_ms;
	const char *spill;    /**< directory; NULL: no spilling */
	uint64_t spill_bytes; /**< limit of the spill files' size; 0: limited by the disk only */
	uint32_t spill_at;    /**< percentage of the journal in use above which spilling begins */
	/** maximum wait at the end of a run; remaining batches stay in the journal */
	uint32_t end_ms;
	const char *directory; /**< for quarantine files: [output] directory; NULL: `.` */
};

/** What the writer counts of one table. */
struct egress_put_stats {
	uint64_t batches; /**< batches that entered the journal */
	uint64_t rows;	  /**< rows of these batches */
	uint64_t bytes;	  /**< metadata and bodies of these batches */
	uint64_t refused; /**< batches refused because the journal or the ring was full */
	uint64_t refused_rows;
	uint64_t oversize; /**< batches larger than any space in the journal */
	uint64_t oversize_rows;
};

/** What the lcore counts of one table: what became of the batches in the journal. */
struct egress_outcome_stats {
	uint64_t durable; /**< batches that are durable at a store */
	uint64_t durable_rows;
	uint64_t spilled; /**< batches in local files, permanently */
	uint64_t spilled_rows;
	uint64_t damaged; /**< batches that were found damaged in the journal and taken out of it */
	uint64_t damaged_rows;
	/** from the first packet of the last frame until durable */
	struct histogram latency;
};

/** Statistics of one table. At no time do more batches have an outcome than were put. */
struct egress_stats {
	struct egress_put_stats put;
	struct egress_outcome_stats outcome;
};

/** State of a configured store, over all runs. */
struct egress_store {
	const char *name;
	/** connection of the current run, or of the oldest run being sent */
	struct store_client_stats now;
	uint64_t connections;
	uint64_t broken;
	uint64_t refused;
	uint64_t unreachable;
	uint64_t malformed;
	uint64_t late;
	uint64_t stuck;
	uint64_t sent;
	uint64_t bytes;
	uint64_t bytes_per_s; /**< over the last second */
	uint64_t durable;
	uint64_t durable_per_s;
	uint64_t found;
	uint64_t duplicates;
	uint64_t returned;
	uint64_t wrong_crc;
	uint64_t corrupted;
	uint64_t sent_damaged;
};

/** State for telemetry, about 100 ms old. */
struct egress_view {
	unsigned int nb_stores;
	unsigned int runs; /**< runs with batches in the journal, including adopted ones */
	enum egress_level step;
	uint64_t steps[EGRESS_LEVELS]; /**< how often each overload level was entered */
	uint64_t spill_error;	       /**< errno; current */
	uint64_t spill_used;	       /**< bytes of the spill files */
	uint64_t spilled;	       /**< spilled batches of all runs */
	uint64_t adopted_spilled;      /**< spilled batches of a process that died */
	uint64_t damaged_frames;       /**< images in damaged batches of the journal */
	/** from entering the journal until durable, all batches */
	struct histogram latency;
	struct journal_stats journal;
	struct egress_store store[STORE_SET];
};

struct egress;
struct ledger_kept;

/** Read section [egress]. */
void egress_settings_read(struct egress_settings *s, struct config *c);

/**
 * Parse [egress] stores into addresses. No connection is made.
 * @param stores   all zero
 * @param message  out, on error: what was found and what was expected
 * @return 0 or -EINVAL
 */
int egress_stores_parse(
	const struct egress_settings *s, struct store_set *stores, char message[PATH_MAX]);

/**
 * Check that the device has a route to each store. Nothing is sent.
 * @param message  out, on error: the store and what is wrong
 * @return 0; -EHOSTUNREACH, -EAFNOSUPPORT
 */
int egress_stores_check(
	const struct store_set *stores, const struct rdma_dev *dev, char message[PATH_MAX]);

/** Return journal_need() of these settings. A smaller journal is refused. */
uint64_t egress_ring_need(const struct egress_settings *s, char *text, size_t size);

/**
 * Return whether an existing journal has another size than [egress] journal_mib, which counts only
 * when the file is created.
 * @param room  capacity of the existing journal, bytes
 */
bool egress_size_is_ignored(const struct egress_settings *s, uint64_t room);

/** Output slots in the journal. */
struct egress_slots {
	uint64_t bytes; /**< of a slot, a multiple of XFER_BLOCK */
	uint32_t n;	/**< 0: none */
};

struct settings;

/**
 * Return the output slots that the journal is to have, if the gangs write them there: those of
 * [gpu] outputs and of the kept frames that it can hold.
 * @param s        completed by placement_choose()
 * @param results  memory of kept frames, see struct placement
 * @return n = 0: output slots are in memory of the receiver
 */
struct egress_slots egress_slots_choose(const struct settings *s, enum gk_memory results);

/**
 * Open the device and the journal, and adopt the batches in the journal, which are sent again. Main
 * lcore, before lcores poll.
 * @param slots  of a new journal; an existing one keeps its own
 * @return 0 or -errno (logged)
 */
int egress_create(struct egress **e, const struct egress_settings *settings, uint64_t receiver_id,
	const struct egress_slots *slots);

/**
 * Return the output slots in the journal, for the gangs. Any thread.
 * @param slot_bytes  out
 * @param slots  out
 * @return address of slot 0; the others follow it. NULL: there are none
 */
uint8_t *egress_area(const struct egress *e, uint64_t *slot_bytes, uint32_t *slots);

/**
 * Take a free output slot: for the gangs before they start, and then for each slot that a batch
 * refers to. Main lcore before the writer starts, then the writer only.
 * @return JOURNAL_NO_SLOT: none is free now
 */
uint32_t egress_slot_take(struct egress *e);

/**
 * Take the output slots that the gangs begin with: `n`, or none. Main lcore before the writer
 * starts.
 * @param slot  out: `n` numbers
 * @param message  out: why kept frames are copied to the journal, and what to do; "" if the journal
 *   has free slots for them
 * @return 0; -ENOSPC: fewer than `n` are free
 */
int egress_slots_begin(struct egress *e, uint32_t n, uint32_t *slot, char message[PATH_MAX]);

/** Return an output slot that is no longer used and that no batch refers to. As above. */
void egress_slot_return(struct egress *e, uint32_t slot);

/** Poll function of the role; `arg` is the struct egress. */
int egress_poll(void *arg);

/**
 * Tell the egress that its lcore has stopped polling permanently. From now on, as before its first
 * poll, calls of the main lcore that wait for the egress lcore do its work. Calls of other threads
 * wait until the main lcore calls egress_wait().
 */
void egress_rest(struct egress *e);

/** Wait for up to 1 ms; see egress_rest(). Any thread. */
void egress_wait(struct egress *e);

/** Start the threads on the CPUs that lcores leave free. @return 0 or -errno (logged) */
int egress_start(struct egress *e, const cpu_set_t *cpus);

/** Parameters of a run that begins. */
struct egress_begin {
	const char *name;
	uint64_t run;
	uint64_t incarnation;
	const struct arrow_tables *tables;
	uint64_t body_max[ARROW_TABLES]; /**< maximum size of a body in bytes */
	/** current time, on the clock of the batches' `received`; any thread. NULL: none */
	int64_t (*clock)(void *arg);
	void *clock_arg;
};

/** Begin a run. @param message  out, on error. @return 0 or -errno */
int egress_begin(struct egress *e, const struct egress_begin *run, char message[PATH_MAX]);

/**
 * Open a room in the journal, for parts of the body of the next batch of a table. They begin at its
 * start and follow one another, in any order. The next call by the writer is egress_put() of this
 * batch. Writer only; does not wait.
 * @param size  bytes that are needed; the room has body_max of the table
 * @return where the first part begins, a multiple of XFER_BLOCK; NULL: not enough free space
 */
uint8_t *egress_room(struct egress *e, enum arrow_table table, uint64_t size);

/**
 * Put a batch into the journal: copy the bytes that are not in the open room yet, and then hand the
 * room over to the lcore. Waits while the journal is full: as long as spilling frees space,
 * otherwise up to hold_ms. Then waits while the ring is full, up to 5 s. A batch refused after
 * that is counted. The batch survives the death of the process as soon as the lcore has committed
 * it, in its next iteration. Put images before the rows that refer to them. Writer only.
 * @param batch  parts of its body that are in the open room already are not copied. Its references
 *   are parts of output slots of the journal, which belong to the journal from then on, also if the
 *   batch is refused
 * @return 0; -ENOSPC: no room; -E2BIG: larger than any space in the journal
 */
int egress_put(struct egress *e, const struct batch *batch);

/**
 * End the run: no more batches follow. Waits until all held batches, including adopted ones, are
 * durable, and until the configured stores have completed their files and have been informed of
 * batches reassigned to other stores. A wait of more than a second is logged. From then on, the
 * second signal (egress_signal()) ends it.
 * @return 0: all batches are durable, although a store may not have confirmed the end of the run,
 *   which was then logged; -ETIMEDOUT: the rest stays in the journal
 */
int egress_end(struct egress *e);

/** Return true while egress_end() waits. Any thread. */
bool egress_is_ending(const struct egress *e);

/**
 * Return true if the RDMA device was removed or has failed: no store can be reached until the
 * process starts again, and egress_end() does not wait. Any thread.
 */
bool egress_lost_device(const struct egress *e);

/** Tell all egresses that the process has received an ending signal. Async-signal-safe. */
void egress_signal(void);

/**
 * Save a ledger in the journal, so that it survives the death of the process. One thread.
 * @param kept  everything except the incarnation and the retained frames, which the egress fills in
 * @return false: the previous ledger has not been saved yet
 */
bool egress_keep_ledger(struct egress *e, const struct ledger_kept *kept);

/**
 * Whether the journal had damage that could not be corrected, since the egress was created or
 * before. The damage is logged. Any thread.
 */
bool egress_was_damaged(const struct egress *e);

/** Whether the journal was already damaged in this way when the egress was created. */
bool egress_before_was_damaged(const struct egress *e);

/**
 * Return the ledger of a process that died during a run.
 * @param held  out: images of frames up to kept.retained_frame that were in the journal at that
 *   time
 * @return false: there is none
 */
bool egress_ledger_before(const struct egress *e, struct ledger_kept *kept, uint64_t *held);

/**
 * Return the number of damaged batches that two stores may have since the last call, and that no
 * store will be told of: the operator must run `braggline-store reconcile` (logged). Any thread.
 */
uint64_t egress_lost_doubts(struct egress *e);

/** Return statistics of the current run, or of the last one. Any thread. */
void egress_stats_get(const struct egress *e, enum arrow_table table, struct egress_stats *stats);

/**
 * Return the device and its properties at the time of opening. Any thread, until egress_destroy().
 */
const struct rdma_dev *egress_device(const struct egress *e, const struct rdma_dev_info **info);

/** Return the state for telemetry. Any thread. */
void egress_view_get(struct egress *e, struct egress_view *view);

/**
 * Free the egress. No lcore may poll it from now on. Call this from the lcore that did, or from the
 * main one. Held batches stay in the journal.
 */
void egress_destroy(struct egress *e);

#endif /* EGRESS_H */
