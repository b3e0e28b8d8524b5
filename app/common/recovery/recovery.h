/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Recovery, which completes `.part` files that a crash left behind.
 *
 * A record batch is valid if it lies completely within the file, its CRCs match its metadata, its
 * columns agree with the schema, and it has an identity. Of the valid batches, the longest
 * ascending sequence of numbers of one stream is sound. Gaps in the numbers are legal, because
 * other stores have the missing batches. A single misplaced batch is therefore marked as damaged
 * itself and does not invalidate the others.
 *
 * If the footer is valid, nothing is truncated, because no torn tail can follow a valid footer. If
 * batches that the footer lists are damaged, recovery writes a new footer that marks them as
 * damaged. Otherwise it only renames the file.
 *
 * If the footer is not valid, every byte up to the end of the last valid batch stays in place. The
 * new footer does not list the damaged regions there. It marks them (ARROW_KEY_DAMAGED), and
 * readers skip them. The bytes after the last valid batch are truncated. Unless they are zeros,
 * recovery first copies them to a quarantine file, after a copy of the first block of the file.
 * Regions that the disk cannot read stay in place and are marked.
 *
 * Before it truncates the file, recovery writes a plan to a separate file
 * (`.NAME.arrow.recovery`) and makes it durable. After a crash, the next recovery either carries
 * out the plan or finds the file unchanged. A crash at any moment and any number of recoveries
 * therefore give the same files, and no byte that was written is ever lost.
 *
 * Recovery does not change a file whose schema is unreadable, a file that is still being written
 * (it is locked), a file whose quarantine file does not fit on the disk, or a file that takes too
 * much work: the number of bytes to check is bounded by the size of the file
 * (arrow_recovery_limit()).
 *
 * The file is read by read(2), not mapped, so a read error of the disk is a damaged batch.
 */
#ifndef ARROW_RECOVERY_H
#define ARROW_RECOVERY_H

#include <errno.h>
#include <limits.h>
#include <stdbool.h>

#include "io/file_io.h"
#include "arrow/reader.h"

enum arrow_recovery_state {
	ARROW_RECOVERY_DONE,	/**< the file is complete */
	ARROW_RECOVERY_REMOVED, /**< the file had no batches and was removed */
	ARROW_RECOVERY_BUSY,	/**< the file is still being written; unchanged */
	ARROW_RECOVERY_FAILED	/**< the file is still `.part`; `message` has the reason */
};

struct arrow_recovery {
	enum arrow_recovery_state state;
	uint64_t batches; /**< number of sound batches, which were kept */
	uint64_t rows;	  /**< rows of the sound batches */
	/** number of damaged batches, and of damaged regions between batches, that stay in place */
	uint64_t damaged;
	bool repaired;		   /**< one copy of the schema was repaired from the other */
	uint64_t cut;		   /**< bytes that were truncated, without `room` */
	uint64_t room;		   /**< zeros at the end that were preallocated and never used */
	uint64_t looked;	   /**< bytes read from the disk plus bytes checked as batches */
	uint64_t quarantined;	   /**< truncated bytes that are in the quarantine file */
	char quarantine[PATH_MAX]; /**< path of the quarantine file; "": none was needed */
	/** 0 or -errno */
	int error;
	char path[PATH_MAX];	       /**< current path of the file */
	char message[PATH_MAX + 1024]; /**< result or reason of the failure, one sentence */
};

/**
 * Maximum number of bytes to check as batches in a file of `size` bytes. The bodies of announced
 * batches can overlap, so a byte may be checked more than once.
 */
static inline uint64_t
arrow_recovery_limit(uint64_t size)
{
	return 8 * size + (UINT64_C(16) << 20);
}

/**
 * Check all bytes of a batch and store the result in its `fault`. Its position in the file is not
 * checked: see arrow_order().
 * @return NULL: the batch is valid; otherwise the fault (static string)
 */
const char *arrow_recovery_check(struct arrow_reader *r, size_t batch);

/**
 * Check all batches and move the faulty ones to `damage`.
 * @return 0; -ENOMEM; -EFBIG: the file is not complete, and arrow_recovery_limit() is exceeded
 */
int arrow_recovery_scan(struct arrow_reader *r);

/**
 * Check the first block of a file and, if the file is complete, its footer. The footer is compared
 * byte by byte with one that is built from the schema and the batches.
 * @return NULL: no fault, or another version wrote the file; otherwise the fault (static string)
 */
const char *arrow_recovery_frame_fault(const struct arrow_reader *r);

/**
 * Whether a file that stays `.part` may contain batches. A file without a schema contains none,
 * because the schema is made durable before any batch.
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
 * @param part  path of the file, which ends in `.arrow.part`
 * @return 0: done or removed
 *   - -EBUSY: the file is still being written
 *   - -EINVAL: the path does not end in `.arrow.part`
 *   - -EBADMSG: the schema is damaged
 *   - -EEXIST: a file with the final name already exists
 *   - -EFBIG: the file takes too much work to check
 *   - -errno of the file system
 *   - -ENOMEM
 */
int arrow_recover_file(
	const struct arrow_io_ops *io, const char *part, struct arrow_recovery *report);

/**
 * As arrow_recover_file(), with a stop flag. If another thread sets `stop` (atomic) while batches
 * are checked, recovery ends before it changes the file. The flag is checked before each batch.
 * @param stop  NULL: recovery cannot be stopped
 * @return as arrow_recover_file(); -ECANCELED: stopped
 */
int arrow_recover_file_until(const struct arrow_io_ops *io, const char *part, const bool *stop,
	struct arrow_recovery *report);

/**
 * Truncate a file after its last sound batch with a number below `from`. Damaged regions before
 * that batch stay in place. Damaged regions after it are saved in a quarantine file. A crash during
 * the call leaves a `.part` file that recovery completes, and that may still contain some of the
 * batches to be removed. If a batch that should stay is damaged, it is marked (report->damaged),
 * and the caller must read again which batches the file has. A file whose schema is damaged is not
 * changed.
 * @param path  ends in `.arrow`, or in `.arrow.part` if no process writes the file
 * @param from  0: remove the file
 * @return as arrow_recover_file(); report->path is the current path of the file
 */
int arrow_cut_file(const struct arrow_io_ops *io, const char *path, uint64_t from,
	struct arrow_recovery *report);

/** Callback of arrow_recover_dir(), called for each file. */
typedef void (*arrow_recovery_report)(void *arg, const struct arrow_recovery *report);

/**
 * Recover all `.arrow.part` files of a directory in the order of their names, and remove incomplete
 * calibration files (`_calibration.bin.part`). Files that another user created or could change are
 * not touched, and `report` is called for them (recovery/directory.h).
 * @param io   NULL: direct_io
 * @param dir  if it does not exist, there is nothing to recover, which is not an error
 * @return number of files that are still `.part` and not busy
 *   - -EPERM: other users can write to the folder and it is not sticky, or it belongs to another
 *     user; `report` is called
 *   - -errno of open(2)
 */
int arrow_recover_dir(
	const struct arrow_io_ops *io, const char *dir, arrow_recovery_report report, void *arg);

/**
 * As arrow_recover_dir(), with the stop flag of arrow_recover_file_until(). A stop leaves the file
 * that is being checked and those behind it unchanged; another call recovers them.
 * @return as arrow_recover_dir(); -ECANCELED: stopped
 */
int arrow_recover_dir_until(const struct arrow_io_ops *io, const char *dir, const bool *stop,
	arrow_recovery_report report, void *arg);

#endif /* ARROW_RECOVERY_H */
