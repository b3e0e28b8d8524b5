/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The ledger of a run, and what of it outlives the process in the journal: so a receiver
 * that is started again can tell what was lost meanwhile. Only where batches go to stores.
 *
 * Whoever holds the run's lock.
 */
#ifndef RUN_LEDGER_H
#define RUN_LEDGER_H

#include "run.h"

/** Of the run at hand, with what is missing since another receiver died in it. */
void run_ledger_read(struct run *r, struct ledger *l);

/** A run begins: has another process died, in it or in another one? Asked once: its ledger is
 * written then, into its own directory. */
void run_ledger_resume(struct run *r);

/** Keep the ledger. @param running  false: the run has ended in order */
void run_ledger_keep(struct run *r, bool running);

/**
 * Write the ledger of the run that ends.
 * @param all_is_stored  what earlier receivers of the run had left is at stores by now
 * @return 0 or -errno (logged with the path)
 */
int run_ledger_write(
	struct run *r, const struct ledger *l, bool all_is_stored, char path[PATH_MAX]);

#endif /* RUN_LEDGER_H */
