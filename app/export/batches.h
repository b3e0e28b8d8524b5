/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The batches of a complete run, in memory while images of them are written. A batch is read when
 * its first image is needed, or before by a thread (read_ahead.h), and dropped after its last one.
 * The CRC of a batch is checked when it is read, in the order of the images.
 *
 * The images of several stores alternate, so a batch of each store is in memory. Beyond
 * BATCHES_BYTES, the one that was used least recently is dropped, and read again when needed.
 */
#ifndef EXPORT_BATCHES_H
#define EXPORT_BATCHES_H

#include "export.h"

/** Bytes of batches in memory, beyond which they are read again; one batch may be larger. */
#define BATCHES_BYTES (UINT64_C(2) << 30)

struct batches;

/** Begin, after the selection: e->load gets its images from now on. @return 0; -ENOMEM */
int batches_open(struct batches **batches, struct export *e);

/**
 * Read the batches of the selection that were not read yet: those of images that are in files
 * already.
 * @return 0; -EINTR: export_stopped(); as export_load
 */
int batches_check(struct batches *b);

void batches_close(struct batches *b);

#endif /* EXPORT_BATCHES_H */
