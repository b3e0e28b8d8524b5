/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Quarantine files: what recovery cuts off a file, and is not known to be worthless. One thread.
 */
#ifndef ARROW_QUARANTINE_H
#define ARROW_QUARANTINE_H

#include "recovery/content.h"

/** Bytes of a file that are to be in a quarantine file, in their order. */
struct arrow_quarantine {
	struct arrow_quarantine_piece {
		uint64_t at;
		uint64_t size;
	} * piece; /**< to be freed with free() */
	size_t nb;
	uint64_t bytes; /**< of all, rounded up to whole blocks each */
};

/**
 * List what is cut off at `end`, and is neither a sound batch nor a trailer, and the first block.
 * @param nb       batches that stay
 * @param trailer  that is going to be there
 * @param q        out: its nb is 0 if there is nothing
 * @return 0; -ENOMEM
 */
int arrow_quarantine_list(const struct arrow_reader *r, size_t nb, uint64_t end,
	const uint8_t *trailer, size_t trailer_size, struct arrow_quarantine *q);

/**
 * Put that into a file that is durable, by name and content. One that a crash has left is taken if
 * it has just these bytes.
 * @param part  the file's own name
 * @param path  out: that of the quarantine file
 * @return 0; -errno
 */
int arrow_quarantine_keep(const struct arrow_io_ops *io, const char *part,
	const struct arrow_reader *r, const struct arrow_quarantine *q, char path[PATH_MAX]);

/** @return bytes without the blocks of zeros at their end, which say nothing */
uint64_t arrow_quarantine_trim(const struct arrow_reader *r, uint64_t at, uint64_t size);

#endif /* ARROW_QUARANTINE_H */
