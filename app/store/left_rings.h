/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Retention rings that receivers have left, for commands that decide over their heads where batches
 * are. A ring remembers which stores are to cut off what; if that were said later, the copy that is
 * cut off may be the only one by then. So it must forget it first, and doubles are reconciled.
 */
#ifndef LEFT_RINGS_H
#define LEFT_RINGS_H

#include <stdbool.h>

#include "arrow_schema.h"
#include "interval_set.h"
#include "retention.h"

#define LEFT_RINGS_MAX 16

struct left_rings {
	struct retention *ring[LEFT_RINGS_MAX];
	const char *path[LEFT_RINGS_MAX];
	uint16_t stores[LEFT_RINGS_MAX]; /**< that are looked into, by number */
	unsigned int nb;
	bool without; /**< those that are not here are gone for good */
};

/** Open one more. @return 0; -E2BIG; as retention_open_existing() */
int left_rings_add(struct left_rings *r, const char *path, char message[PATH_MAX]);

void left_rings_close(struct left_rings *r);

/** Whether nobody will say anything about batches of a stream: the ring that had its run is here. A
 * ring of the same producer may be another receiver's. */
bool left_rings_has(const struct left_rings *r, const struct arrow_identity *identity);

/**
 * Stores are not told any more what went elsewhere: their files are looked into.
 * @param identity  of stores; NULL: all that the rings know
 */
void left_rings_forget(struct left_rings *r, const uint64_t *identity, size_t nb);

/** Stores that were not looked into, and may have batches that are elsewhere: say which. */
void left_rings_say(const struct left_rings *r,
	void (*say)(void *arg, bool error, const char *text), void *arg);

/**
 * Batches of a stream that are for good in files that were looked into; other stores that may have
 * them are still told.
 * @return how many of them were held
 */
uint64_t left_rings_release(struct left_rings *r, const struct arrow_identity *identity,
	const struct interval_set *stored);

#endif /* LEFT_RINGS_H */
