/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Removes the damaged batches from a journal that is being adopted. Their bytes are saved in a
 * quarantine file, their frames are counted in the ledger of the receivers that kept them, and
 * their space is freed.
 *
 * The quarantine file is complete and durable before the journal changes. The ledger in the journal
 * changes with each batch: a receiver that is killed in between leaves a state from which the next
 * one continues, and no batch is counted twice. README.rst has the layout of the file.
 */
#ifndef DAMAGED_BATCHES_H
#define DAMAGED_BATCHES_H

#include "journal/journal.h"
#include "telemetry/ledger.h"

struct damaged_batches {
	uint64_t batches;
	uint64_t frames; /**< of these, images of frames; as far as known */
	/** of the incarnation in the ledger, by table; as far as known */
	uint64_t nb[XFER_TABLES];
	uint64_t rows[XFER_TABLES];
	/**
	 * of which two stores, or a store and a file, may have a copy; none of them will be told
	 */
	uint64_t doubts;
	uint16_t stores; /**< bitmap of these stores */
};

/**
 * Remove all damaged batches from the journal. Does nothing if there is none. Logs each of them,
 * and the stores that may have second copies.
 * @param directory  where the file `journal-RECEIVER_ID.quarantine` is created; if it exists,
 *   `.2`, `.3` and so on are appended
 * @param before     ledger of the receiver that put them, which is also in the journal; updated
 * @param found      out
 * @return 0, or -errno of the file (logged): the journal is unchanged
 */
int damaged_batches_remove(struct journal *journal, const char *directory,
	struct ledger_kept *before, struct damaged_batches *found);

#endif /* DAMAGED_BATCHES_H */
