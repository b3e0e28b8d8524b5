/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Writes batches that no store accepts to local files of the receiver. The content is that of a
 * store's files, with the same names, below DIR/RUN-RECEIVER_ID-ID/, so that `braggline-store
 * import` can import them.
 *
 * A thread off the lcores writes the files directly from the journal. Commands and results pass
 * through rings: the caller of spill_put() and of the functions below it never waits.
 *
 * A run's directory is locked (io/dir_lock.h) from its first batch until
 * spill_close_run() has completed. Until then a store may hold the same batch and not have been
 * informed, so an import must wait.
 */
#ifndef SPILL_H
#define SPILL_H

#include <limits.h>
#include <sched.h>

#include "interval_set.h"
#include "journal/journal.h"

#define SPILL_BATCHES 64 /**< maximum number of batches without a result */

struct spill_config {
	const char *dir; /**< created if missing; its parent must exist */
	uint64_t limit;	 /**< maximum size of all files in bytes; 0: no limit */
	uint64_t receiver_id;
};

/** All values only grow, except those marked as current. */
struct spill_stats {
	uint64_t again; /**< batches returned without being spilled */
	/**
	 * size of the files in bytes, with those found at the start if there is a limit; current
	 */
	uint64_t used;
	int32_t error; /**< -errno: current reason for returning batches; 0: none */
};

struct spill_result {
	uint32_t batch; /**< index in the journal */
	/** false: returned; after a disk failure the batch may also be in a file */
	bool durable;
	bool damaged; /**< the body in the journal has a wrong CRC-32C */
};

struct spill;

/**
 * Create the folder of spilled batches if it is missing, and check that it is usable.
 * @param message  out, on error
 * @return 0 or -errno
 */
int spill_make_folder(const char *dir, char message[PATH_MAX]);

/** @param message  out, on error. @return 0 or -errno */
int spill_create(struct spill **spill, const struct spill_config *config, char message[PATH_MAX]);

/** Start the thread, after the runs of an earlier process have been adopted. @return 0 or -errno */
int spill_start(struct spill *s, const cpu_set_t *cpus);

/**
 * Complete all files and free everything; waits for the disk. Batches without a result may or may
 * not be in a file.
 */
void spill_destroy(struct spill *s);

/** Return true if the run has a directory, with any content. */
bool spill_was(const struct spill *s, const struct journal_run *run);

/**
 * Adopt a run that an earlier process was spilling when it died: recover its files, so that the
 * batches in them are known. Call this before spill_put(). Blocks for up to FILE_LOCK_MS if the
 * files are locked.
 * @return 0 or -errno (logged)
 */
int spill_adopt_run(struct spill *s, unsigned int run, const struct journal_run *from);

/**
 * Check an adopted run: read the batches that are both in the journal and in its files. Damaged
 * batches are marked in the files, which then no longer contain them. Takes as long as the disk
 * needs to read them.
 * @return 0; -errno: some batches could not be checked
 */
int spill_check(
	struct spill *s, unsigned int run, unsigned int table, const struct interval_set *held);

/** For an adopted run. @return whether a batch of this number is in its files permanently */
bool spill_has(const struct spill *s, const struct journal_batch *b);

/** As spill_has(), with the same content. A different one is logged. */
bool spill_has_same(const struct spill *s, const struct journal_batch *b);

/** For an adopted run. @return number of batches in its files */
uint64_t spill_batches(const struct spill *s, unsigned int run);

/** Return true if a batch can be put: at most SPILL_BATCHES may be without a result. */
bool spill_has_room(const struct spill *s);

/**
 * Spill a batch. The batch must stay in place until its result, as must the schemas of its run,
 * which belong to the journal. spill_has_room() must be true.
 */
void spill_put(struct spill *s, uint32_t batch, const struct journal_batch *b,
	const struct journal_run *run);

/** Return results of spilled batches. @return their number */
unsigned int spill_results(struct spill *s, struct spill_result *result, unsigned int room);

/**
 * Return the number of files of the run with this index in the journal that could not be truncated
 * and therefore still contain batches that were returned.
 */
uint32_t spill_uncut(const struct spill *s, unsigned int run);

/** Complete the open files, because no batches follow for now. */
void spill_pause(struct spill *s);

/**
 * Close the files of a run, which gets no more batches and has none in doubt.
 * @return false: not possible yet, call again
 */
bool spill_close_run(struct spill *s, unsigned int run);

/** Any thread. */
void spill_stats_get(const struct spill *s, struct spill_stats *stats);

#endif /* SPILL_H */
