/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Removes the damaged batches from a journal. Their bytes are saved in a quarantine file, their
 * frames are counted in the ledger of the receivers that kept them, and their space is freed.
 *
 * This has three steps, so that the egress lcore does not wait for the disk: it lists the batches,
 * another thread saves those in the list, and the lcore drops them from the journal. In between
 * their bytes do not change, because a journal with damaged batches grants no space. More batches
 * may be found damaged; they are for the next list.
 *
 * The quarantine file is complete and durable before the journal changes. The ledger in the journal
 * changes with each batch: a receiver that is killed in between leaves a state from which the next
 * one continues, and no batch is counted twice. README.rst has the layout of the file.
 */
#ifndef DAMAGED_BATCHES_H
#define DAMAGED_BATCHES_H

#include <sys/uio.h>

#include "journal/journal.h"
#include "ledger.h"

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

/** Damaged batches, as they are when they are listed. Their bytes are in the journal. */
struct damaged_list {
	uint64_t receiver_id;
	uint32_t *batch; /**< their numbers */
	size_t nb;
	uint8_t *heads; /**< one for each batch */
	/** heads and bytes of the batches */
	struct iovec *part;
	size_t nb_parts;
	/** all that no sound batch occupies, if the position of a batch is not known */
	struct iovec *space;
	size_t nb_space;
};

/**
 * List all damaged batches. The lcore only; allocates.
 * @param l  out; on success, damaged_batches_forget() frees it
 * @return 0; -ENOMEM (logged)
 */
int damaged_batches_list(struct damaged_list *l, const struct journal *journal);

/**
 * Write a list to a new file. Logs each batch. Any thread; waits for the disk.
 * @param directory  where the file `journal-RECEIVER_ID.quarantine` is created; if it exists,
 *   `.2`, `.3` and so on are appended
 * @return 0; -ENOMEM; -errno of the file (logged)
 */
int damaged_batches_save(const struct damaged_list *l, const char *directory);

/**
 * Count the batches of a list and remove them from the journal. Logs the stores that may have
 * second copies. The lcore only.
 * @param before  ledger of the receiver that put them, which is also in the journal; updated
 * @param found   out
 */
void damaged_batches_drop(struct journal *journal, const struct damaged_list *l,
	struct ledger_kept *before, struct damaged_batches *found);

/** Free a list. */
void damaged_batches_forget(struct damaged_list *l);

/**
 * All three steps, for a journal that is being adopted. Does nothing if no batch is damaged.
 * @return 0; -ENOMEM; -errno of the file (logged): the journal is unchanged
 */
int damaged_batches_remove(struct journal *journal, const char *directory,
	struct ledger_kept *before, struct damaged_batches *found);

#endif /* DAMAGED_BATCHES_H */
