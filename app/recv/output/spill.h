/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Batches that no store takes, into files of the receiver's own: what a store would have written,
 * with the same names below DIR/RUN-PRODUCER-ID/, so that `braggline-store import` takes them in.
 *
 * A thread writes them, off the lcores, straight out of the journal. Orders go to it, and
 * results come back, through rings: the caller of spill_put() and those below never waits.
 *
 * A run's directory is locked (flock(2) of the directory) from its first batch until
 * spill_close_run() is done: until then a store that was given a batch, too, may not have heard of
 * that yet, and who imports the files must wait.
 */
#ifndef SPILL_H
#define SPILL_H

#include <limits.h>
#include <sched.h>

#include "interval_set.h"
#include "journal/journal.h"

#define SPILL_BATCHES 64 /**< that it has without a result, at most */

struct spill_config {
	const char *dir; /**< made if missing; its parent is there */
	uint64_t limit;	 /**< bytes of all files; 0: none */
	uint64_t producer;
};

/** All only grow but those that say so. */
struct spill_stats {
	uint64_t again; /**< given back */
	uint64_t used;	/**< bytes of files, also of those found, if there is a limit; now */
	int32_t error;	/**< -errno: why batches are given back, now; 0: they are not */
};

struct spill_result {
	uint32_t batch; /**< of the journal */
	bool durable;	/**< else given back: after a disk has failed it may be in a file as well */
};

struct spill;

/**
 * Make the folder of spilled batches if it is not there, and see that it can be used.
 * @param message  out, on error
 * @return 0 or -errno
 */
int spill_make_folder(const char *dir, char message[PATH_MAX]);

/** @param message  out, on error. @return 0 or -errno */
int spill_create(struct spill **spill, const struct spill_config *config, char message[PATH_MAX]);

/** Runs of another process have been adopted: let the thread begin. @return 0 or -errno */
int spill_start(struct spill *s, const cpu_set_t *cpus);

/** Waits for the disk: complete all files, free all. What it was given has its result, or not. */
void spill_destroy(struct spill *s);

/** Whether there is a directory of a run's, whatever is in it. */
bool spill_was(const struct spill *s, const struct journal_run *run);

/**
 * A run that was being spilled when another process died: its files are recovered, and who has what
 * is known then. Before anything is put; blocks, for up to FILE_LOCK_MS if these are locked.
 * @return 0 or -errno (logged)
 */
int spill_adopt_run(struct spill *s, unsigned int run, const struct journal_run *from);

/**
 * Of a run that was adopted: read batches that the ring holds and that its files have. What is
 * damaged there is marked, and the files do not have it any more. Takes as long as the disk takes
 * to read them. @return 0; -errno: it is not known of all of them
 */
int spill_check(
	struct spill *s, unsigned int run, unsigned int table, const struct interval_set *held);

/** Of a run that was adopted. @return whether a batch is in its files, for good */
bool spill_has(const struct spill *s, unsigned int run, unsigned int table, uint64_t sequence);

/** Of a run that was adopted. @return batches in its files */
uint64_t spill_batches(const struct spill *s, unsigned int run);

/** Whether a batch can be put: SPILL_BATCHES are without a result, at most. */
bool spill_has_room(const struct spill *s);

/**
 * Spill a batch: it stays where it is until its result, and so do the schemas of its run,
 * which are the ring's. There is room for it.
 */
void spill_put(struct spill *s, uint32_t batch, const struct journal_batch *b,
	const struct journal_run *run);

/** What has become of them. @return results */
unsigned int spill_results(struct spill *s, struct spill_result *result, unsigned int room);

/** Times that a file of this place in the ring was left with batches that were given back. */
uint32_t spill_uncut(const struct spill *s, unsigned int run);

/** Complete the files that are open: no more for now. */
void spill_pause(struct spill *s);

/** No more of this run, and nothing of it is in doubt. @return false: not now, ask again */
bool spill_close_run(struct spill *s, unsigned int run);

/** Any thread. */
void spill_stats_get(const struct spill *s, struct spill_stats *stats);

#endif /* SPILL_H */
