/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Quarantine files, which save the bytes that recovery truncates, except zeros, sound batches and
 * trailers. One thread.
 */
#ifndef ARROW_QUARANTINE_H
#define ARROW_QUARANTINE_H

#include "recovery/content.h"

/** Pieces of a file to save in a quarantine file, in file order. */
struct arrow_quarantine {
	struct arrow_quarantine_piece {
		uint64_t at;
		uint64_t size;
	} * piece; /**< free it with free() */
	size_t nb;
	uint64_t bytes; /**< total size, with each piece rounded up to whole blocks */
};

/**
 * List the bytes to save if the file is truncated at `end`: the first block, and all bytes after
 * `end` that are neither a sound batch nor a trailer.
 * @param nb       number of batches that stay
 * @param trailer  new trailer of the file
 * @param q        out: q->nb is 0 if there is nothing to save
 * @return 0; -ENOMEM
 */
int arrow_quarantine_list(const struct arrow_reader *r, size_t nb, uint64_t end,
	const uint8_t *trailer, size_t trailer_size, struct arrow_quarantine *q);

/**
 * Save the listed bytes in a quarantine file, and make its content and name durable. If a
 * quarantine file with exactly these bytes already exists, it is used.
 * @param part  path of the file to recover
 * @param path  out: path of the quarantine file
 * @return 0; -errno
 */
int arrow_quarantine_keep(const struct arrow_io_ops *io, const char *part,
	const struct arrow_reader *r, const struct arrow_quarantine *q, char path[PATH_MAX]);

/** @return size of the bytes at `at` without trailing blocks of zeros, which hold no information */
uint64_t arrow_quarantine_trim(const struct arrow_reader *r, uint64_t at, uint64_t size);

#endif /* ARROW_QUARANTINE_H */
