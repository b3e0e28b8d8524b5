/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The ledger of the current run in the journal. A receiver that adopts the journal learns from it
 * which frames were lost with this process. It has the columns of the whole receiver, which another
 * thread reads some times a second, and the columns of the rows in the journal, which are always
 * exact.
 *
 * The egress lcore calls all functions, except kept_ledger_post().
 */
#ifndef KEPT_LEDGER_H
#define KEPT_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "journal/journal.h"
#include "ledger.h"

struct kept_ledger {
	struct journal *journal;
	struct ledger_kept saved;  /**< as in the journal */
	uint64_t first_row;	   /**< first frame of the run that has a row; 0: none */
	bool has_rows;		   /**< `saved` has the rows: ledger_begin() */
	struct ledger_kept posted; /**< belongs to the lcore while is_new */
	bool is_new;		   /**< atomic */
};

void kept_ledger_init(struct kept_ledger *k, struct journal *journal);

/** A run begins. */
void kept_ledger_begin(struct kept_ledger *k, uint64_t incarnation);

/**
 * A batch of rows is about to be put into the journal. A receiver that adopts the journal counts
 * the rows if the batch is in it.
 * @param tally  columns of its rows, and of those refused before them
 */
void kept_ledger_announce(struct kept_ledger *k, const struct journal_batch *batch,
	const uint64_t tally[LEDGER_COLUMNS]);

/** The rows are in the journal. Call this before the batch can be anywhere else. */
void kept_ledger_commit(struct kept_ledger *k);

/** Pass on the columns of the receiver. Any thread. @return false: the last ones are not saved */
bool kept_ledger_post(struct kept_ledger *k, const struct ledger_kept *columns);

/** Whether there are columns that are not saved. Any thread. */
bool kept_ledger_is_new(const struct kept_ledger *k);

/** Save the posted columns in the journal, if they are new, with those of the rows. */
void kept_ledger_save(struct kept_ledger *k);

/**
 * Read the ledger of the process that used the journal before. It may have been killed after it had
 * put a batch of rows and before it recorded this: the rows are then counted.
 */
void kept_ledger_before(struct ledger_kept *before, const struct journal *journal);

/** Whether a batch belongs to the run of that ledger. */
bool kept_ledger_has(
	const struct ledger_kept *k, const struct journal *journal, const struct journal_batch *b);

#endif /* KEPT_LEDGER_H */
