/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Journals that receivers have left, for commands that decide over their heads where batches
 * are. A ring remembers which stores are to cut off what; if that were said later, the copy that is
 * cut off may be the only one by then. So it must forget it first, and doubles are reconciled.
 */
#ifndef LEFT_RINGS_H
#define LEFT_RINGS_H

#include <stdbool.h>

#include "arrow/schema.h"
#include "interval_set.h"
#include "journal/journal.h"

#define LEFT_RINGS_MAX 16

struct left_rings {
	struct journal *ring[LEFT_RINGS_MAX];
	const char *path[LEFT_RINGS_MAX];
	unsigned int nb;
	bool without; /**< those that are not here are gone for good */
};

/** Open one more. @return 0; -E2BIG; as journal_open_existing() */
int left_rings_add(struct left_rings *r, const char *path, char message[PATH_MAX]);

void left_rings_close(struct left_rings *r);

/** Whether nobody will say anything about batches of a stream: the ring that had its run is here. A
 * ring of the same producer may be another receiver's. */
bool left_rings_has(const struct left_rings *r, const struct arrow_identity *identity);

/** Say which stores may have batches that are elsewhere, and are none of these. */
void left_rings_say_others(const struct left_rings *r, const uint64_t *identity, size_t nb,
	void (*say)(void *arg, bool error, const char *text), void *arg);

/**
 * No store is told what went elsewhere, not even those whose files are not looked into: what is cut
 * off takes all behind it along, so to tell some of it could be a loss. Doubles are none.
 */
void left_rings_forget(struct left_rings *r);

/** Numbers of a stream's batches that are held. @return 0; -ENOMEM */
int left_rings_held(const struct left_rings *r, const struct arrow_identity *identity,
	struct interval_set *held);

/** Batches of a stream that are in files for good, and sound. @return how many of them were held */
uint64_t left_rings_release(struct left_rings *r, const struct arrow_identity *identity,
	const struct interval_set *stored);

#endif /* LEFT_RINGS_H */
