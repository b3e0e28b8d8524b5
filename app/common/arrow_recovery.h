/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Files that a crash left as `.part` are made complete.
 *
 * Record batches are kept from the first one on while each lies whole within the file, has the
 * CRC that its metadata tell, columns that agree with the schema, and the identity and a higher
 * sequence number than the one before: gaps are legal, other stores have what is missing. What
 * follows the last of them is cut off, the footer is rebuilt, and the file gets its name. Batches
 * are never changed, so that a crash in between, or any number of recoveries, end in the same file.
 * A file whose schema is unreadable stays as it is; so does one that somebody still writes (it is
 * locked), and one that cannot be read.
 *
 * The file is read through a mapping: a disk that cannot read it ends the process (SIGBUS) before
 * anything has been changed.
 */
#ifndef ARROW_RECOVERY_H
#define ARROW_RECOVERY_H

#include <errno.h>
#include <limits.h>
#include <stdbool.h>

#include "arrow_io.h"
#include "arrow_read.h"

enum arrow_recovery_state {
	ARROW_RECOVERY_DONE,	/**< complete now */
	ARROW_RECOVERY_REMOVED, /**< nothing had been written to it: it is gone */
	ARROW_RECOVERY_BUSY,	/**< somebody writes it; untouched */
	ARROW_RECOVERY_FAILED	/**< still `.part`; message says why */
};

struct arrow_recovery {
	enum arrow_recovery_state state;
	uint64_t batches; /**< kept */
	uint64_t rows;	  /**< of them */
	uint64_t cut;	  /**< bytes of the file that were cut off */
	int error;
	char path[PATH_MAX];	      /**< as the file is called now */
	char message[PATH_MAX + 256]; /**< what was done, or why not: a sentence */
};

/**
 * Batches that recovery keeps, and where they end.
 * @param end  out: bytes
 * @param why  out: what is wrong with what follows (static text); NULL: nothing does
 * @return number of batches
 */
size_t arrow_recovery_scan(const struct arrow_reader *r, uint64_t *end, const char **why);

/**
 * What is wrong with a batch, every byte of it looked at, or with its place behind the one before.
 * @return NULL: nothing is; else a static text
 */
const char *arrow_recovery_fault(const struct arrow_reader *r, size_t batch);

/**
 * Whether there may be batches in a file that stays `.part`: not if it has no schema, as that is
 * durable before any batch is.
 */
static inline bool
arrow_recovery_is_unknown(const struct arrow_recovery *r)
{
	return r->state == ARROW_RECOVERY_BUSY ||
		(r->state == ARROW_RECOVERY_FAILED && r->error != -EBADMSG);
}

/**
 * Recover one file.
 * @param io    NULL: direct_io
 * @param part  its path, which ends in `.arrow.part`
 * @return 0: done or removed; -EBUSY; -EINVAL: another name; -EBADMSG: its schema is damaged;
 *   -EEXIST: a file has its name already; -errno of the file system
 */
int arrow_recover_file(
	const struct arrow_io_ops *io, const char *part, struct arrow_recovery *report);

/**
 * Cut a file off behind its first `most` batches; 0 removes it. A crash in between leaves
 * a `.part` that recovery completes, with some of the others still in it.
 * @param path  ends in `.arrow`, or in `.arrow.part` if nobody writes it
 * @return as arrow_recover_file(); report->path as the file is called now
 */
int arrow_cut_file(const struct arrow_io_ops *io, const char *path, size_t most,
	struct arrow_recovery *report);

/** Called for each file. */
typedef void (*arrow_recovery_report)(void *arg, const struct arrow_recovery *report);

/**
 * Recover all `.arrow.part` files of a directory, by name; remove calibration files that were not
 * completed (`_calibration.bin.part`).
 * @param dir  that it does not exist is no error: there is nothing to recover
 * @return files that are still `.part` and not busy; -errno of opendir(3)
 */
int arrow_recover_dir(
	const struct arrow_io_ops *io, const char *dir, arrow_recovery_report report, void *arg);

#endif /* ARROW_RECOVERY_H */
