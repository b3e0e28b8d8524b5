/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Files that a crash left as `.part` are made complete.
 *
 * A record batch is right if it lies whole within the file and has the CRCs that its metadata tell,
 * columns that agree with the schema, and an identity. Those that are right and of one stream, and
 * make the longest ascending sequence of numbers, are sound: gaps are legal, other stores have what
 * is missing. So one batch in a wrong place is the one that is marked, not all the others.
 *
 * Where the footer is right nothing is cut off: behind it there is no torn tail. If batches that it
 * lists are damaged, another footer marks them; else the file only gets its name.
 *
 * Where it is not, every byte up to the last batch that is right stays where it is. What is damaged
 * there is not listed in the footer that is built, but marked in it (ARROW_KEY_DAMAGED): readers
 * skip it. What follows is cut off; unless it is zeros it is copied to a quarantine file first: the
 * first block of the file, then what was cut off. What the disk cannot read stays, and is marked.
 *
 * What is going to be done is durable in a file of its own before anything is cut off
 * (`.NAME.arrow.recovery`): who goes on after a crash does that, or finds the file as it was. So a
 * crash at any moment, or any number of recoveries, end in the same files, and no byte that was
 * written is ever removed.
 *
 * A file whose schema is unreadable stays as it is; so does one that somebody still writes (it is
 * locked), one for whose quarantine file there is no room, and one that is not worth the work: what
 * is looked at is bounded by the size of the file (arrow_recovery_most()).
 *
 * The file is read by read(2), not mapped: what the disk cannot read is a damaged batch.
 */
#ifndef ARROW_RECOVERY_H
#define ARROW_RECOVERY_H

#include <errno.h>
#include <limits.h>
#include <stdbool.h>

#include "io/file_io.h"
#include "arrow/reader.h"

enum arrow_recovery_state {
	ARROW_RECOVERY_DONE,	/**< complete now */
	ARROW_RECOVERY_REMOVED, /**< nothing had been written to it: it is gone */
	ARROW_RECOVERY_BUSY,	/**< somebody writes it; untouched */
	ARROW_RECOVERY_FAILED	/**< still `.part`; message says why */
};

struct arrow_recovery {
	enum arrow_recovery_state state;
	uint64_t batches; /**< sound ones, kept */
	uint64_t rows;	  /**< of them */
	/** Batches and regions between them that are damaged, and stay in place. */
	uint64_t damaged;
	bool mended;		   /**< one copy of the schema was written again */
	uint64_t cut;		   /**< bytes of the file that were cut off, without these: */
	uint64_t room;		   /**< zeros at its end: allocated ahead and never used */
	uint64_t looked;	   /**< bytes that were read and that were checked */
	uint64_t quarantined;	   /**< bytes of them that are in the quarantine file */
	char quarantine[PATH_MAX]; /**< its path; "": none was needed */
	int error;
	char path[PATH_MAX];	      /**< as the file is called now */
	char message[PATH_MAX + 256]; /**< what was done, or why not: a sentence */
};

/** Most bytes that are checked as batches, in a file of `size` bytes: each byte is one batch's, or
 * several's that announce themselves in each other's place. */
static inline uint64_t
arrow_recovery_most(uint64_t size)
{
	return 8 * size + (UINT64_C(16) << 20);
}

/**
 * What is wrong with a batch, every byte of it looked at, but not its place: see
 * arrow_order(). It is noted as the batch's `fault`.
 * @return NULL: nothing is; else a static text
 */
const char *arrow_recovery_check(struct arrow_reader *r, size_t batch);

/**
 * Check all batches: those with a fault are in `damage` from then on.
 * @return 0; -ENOMEM; -EFBIG: arrow_recovery_most() (only of a file that is not complete)
 */
int arrow_recovery_scan(struct arrow_reader *r);

/**
 * What is wrong with the first block of a file, or with its footer if it is complete, compared byte
 * by byte with what its schema and batches give.
 * @return NULL: nothing is, or another version wrote it; else a static text
 */
const char *arrow_recovery_frame_fault(const struct arrow_reader *r);

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
 *   -EEXIST: a file has its name already; -EFBIG: not worth the work; -errno of the file system;
 *   -ENOMEM
 */
int arrow_recover_file(
	const struct arrow_io_ops *io, const char *part, struct arrow_recovery *report);

/**
 * The same, given up before anything is changed once somebody stores true in `stop` (atomic; looked
 * at before each batch). NULL: nobody does. @return also -ECANCELED
 */
int arrow_recover_file_until(const struct arrow_io_ops *io, const char *part, const bool *stop,
	struct arrow_recovery *report);

/**
 * Cut a file off: its sound batches with numbers below `from` stay, and what is damaged in front of
 * the last of them; 0 removes it. What is damaged behind them is in a quarantine file then. A crash
 * in between leaves a `.part` that recovery completes, with some of the others still in it.
 * A batch that is to stay and is damaged is marked then (report->damaged): the caller asks again
 * what the file has. A file whose schema is damaged stays as it is.
 * @param path  ends in `.arrow`, or in `.arrow.part` if nobody writes it
 * @return as arrow_recover_file(); report->path as the file is called now
 */
int arrow_cut_file(const struct arrow_io_ops *io, const char *path, uint64_t from,
	struct arrow_recovery *report);

/** Called for each file. */
typedef void (*arrow_recovery_report)(void *arg, const struct arrow_recovery *report);

/**
 * Recover all `.arrow.part` files of a directory, by name; remove calibration files that were not
 * completed (`_calibration.bin.part`). Files that another user made or could change are left alone,
 * with a report (recovery/directory.h).
 * @param io   NULL: direct_io
 * @param dir  that it does not exist is no error: there is nothing to recover
 * @return files that are still `.part` and not busy; -EPERM: a folder that others can write to, and
 *   that is not sticky, or another user's, with a report; -errno of open(2)
 */
int arrow_recover_dir(
	const struct arrow_io_ops *io, const char *dir, arrow_recovery_report report, void *arg);

#endif /* ARROW_RECOVERY_H */
