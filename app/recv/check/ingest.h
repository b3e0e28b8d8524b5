/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Items of --check for RoCE detectors: queue pair numbers, card, memory of the rings.
 */
#ifndef CHECK_INGEST_H
#define CHECK_INGEST_H

#include <stdint.h>

struct check;
struct check_heap;
struct check_need;
struct settings;

/** Check that fixed queue pair numbers are in the device's table. */
void check_queue_pairs(struct check *c, const struct settings *s);

/** Check that the card can be written, or that a detector can connect without it. */
void check_card(struct check *c, const struct settings *s);

/** Check that the host has memory for the rings, and huge pages in addition to those of EAL. */
void check_rings(struct check *c, const struct settings *s, const struct check_heap *heap,
	const struct check_need *need);

#endif /* CHECK_INGEST_H */
