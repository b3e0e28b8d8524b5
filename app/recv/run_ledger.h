/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The ledger of a run, and the part of it that is kept in the journal. A receiver that is restarted
 * reads the kept ledger, and so can report the losses of the time in between. Used only if batches
 * go to stores.
 *
 * The caller holds the run's lock.
 */
#ifndef RUN_LEDGER_H
#define RUN_LEDGER_H

#include "run.h"

/**
 * Read the ledger of the current run. If another receiver died in this run, add the losses since
 * then.
 */
void run_ledger_read(struct run *r, struct ledger *l);

/**
 * At the start of a run, check whether the previous receiver process died during a run, this one or
 * another one. If so, write the ledger of that process into the directory of its run. This is done
 * once per process.
 */
void run_ledger_resume(struct run *r);

/** Save the ledger in the journal. @param running  false: the run has ended normally */
void run_ledger_keep(struct run *r, bool running);

/**
 * Write the ledger file of the run that ends.
 * @param all_is_stored  all batches left by earlier receivers of the run are at stores
 * @return 0 or -errno (logged with the path)
 */
int run_ledger_write(
	struct run *r, const struct ledger *l, bool all_is_stored, char path[PATH_MAX]);

#endif /* RUN_LEDGER_H */
