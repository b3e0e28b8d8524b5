/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Adopts the batches that another receiver was spilling when it died. The journal assigns each of
 * them to the spill (JOURNAL_SPILL), but they may not be in a file, or may be imported into a store
 * already.
 */
#ifndef ADOPT_SPILLED_H
#define ADOPT_SPILLED_H

#include "egress/spill.h"
#include "journal/journal.h"

/**
 * Release the batches that are in files. All others become unassigned (JOURNAL_NOBODY). If batches
 * of a run were imported meanwhile, the journal forgets which stores may have batches of the run,
 * so that no store is asked to remove an imported one.
 * @param spill     NULL: [egress] spill is not set
 * @param in_files  out: number of batches that were released
 * @return 0, or -errno of the files
 */
int adopt_spilled(struct journal *journal, struct spill *spill, uint64_t *in_files);

#endif /* ADOPT_SPILLED_H */
