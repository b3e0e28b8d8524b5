/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Orphaned journals, for commands that decide where batches are stored while the receivers are not
 * running. A journal records which stores must truncate which batches. A store that is notified
 * after the command could then truncate the only copy. These records are therefore removed from the
 * journal before the command removes the first copy and reconciles the duplicates. The records of a
 * run that the command does not change stay in the journal.
 */
#ifndef ORPHANED_JOURNALS_H
#define ORPHANED_JOURNALS_H

#include <stdbool.h>

#include "arrow/schema.h"
#include "interval_set.h"
#include "journal/journal.h"
#include "stream/content.h"

#define ORPHANED_JOURNALS_MAX 16

struct orphaned_journals {
	struct journal *journal[ORPHANED_JOURNALS_MAX];
	const char *path[ORPHANED_JOURNALS_MAX];
	unsigned int nb;
	bool without; /**< journals that are not listed are permanently lost */
};

/**
 * Open another journal. Nothing is changed in it.
 * @return 0; -E2BIG; errors of journal_open_existing()
 */
int orphaned_journals_add(struct orphaned_journals *r, const char *path, char message[PATH_MAX]);

void orphaned_journals_close(struct orphaned_journals *r);

/**
 * Report the damage of the journals: runs, stores, incarnations and batches. Damaged batches stay
 * in the journal, and no other function below returns them.
 * @param batches  out: number of damaged batches
 * @return whether anything is damaged
 */
bool orphaned_journals_report_damage(const struct orphaned_journals *r, uint64_t *batches,
	void (*say)(void *arg, bool error, const char *text), void *arg);

/**
 * Whether no receiver can change batches of a stream any more: the journal that had its run is open
 * here. A journal of the same receiver may belong to another receiver.
 */
bool orphaned_journals_has(
	const struct orphaned_journals *r, const struct arrow_identity *identity);

/** Report the stores that may have reassigned batches and are not in the list. */
void orphaned_journals_report_others(const struct orphaned_journals *r, const uint64_t *identity,
	size_t nb, void (*say)(void *arg, bool error, const char *text), void *arg);

/**
 * Stop notifying stores of reassigned batches, also those whose files are not examined. Truncation
 * also removes all later batches, so a partial notification could lose data. The remaining
 * duplicates do no harm.
 * @param is_kept  true: nothing of this run is changed, in files and journals
 */
void orphaned_journals_forget(struct orphaned_journals *r,
	bool (*is_kept)(void *arg, const struct arrow_identity *identity), void *arg);

/** Get the sequence numbers of a stream's held batches. @return 0; -ENOMEM */
int orphaned_journals_held(const struct orphaned_journals *r, const struct arrow_identity *identity,
	struct interval_set *held);

/**
 * Get the contents of a stream's held batches.
 * @param differing  out: the numbers of which two journals hold different batches are added
 * @return 0; -ENOMEM
 */
int orphaned_journals_contents(const struct orphaned_journals *r,
	const struct arrow_identity *identity, struct stream_contents *held,
	struct interval_set *differing);

/**
 * Call `take` for each stream of the runs that are in the journals, until it returns an error. A
 * stream may be passed several times. @return 0, or that error
 */
int orphaned_journals_streams(const struct orphaned_journals *r,
	int (*take)(void *arg, const struct arrow_identity *identity), void *arg);

/**
 * Release batches of a stream that are durable and intact in files. @return how many of them were
 * held
 */
uint64_t orphaned_journals_release(struct orphaned_journals *r,
	const struct arrow_identity *identity, const struct interval_set *stored);

#endif /* ORPHANED_JOURNALS_H */
