/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Completes `.part` files of an earlier process of the store in a thread, while the store is
 * running. The receivers of such files may never reconnect.
 *
 * The files are listed once, before the store serves connections, so files of this process are
 * never listed. The thread waits for a grace period, in which receivers may reconnect and complete
 * their own files (server/recovery_thread.h). It then completes one file after another, the oldest
 * first. A receiver that connects later does not wait for files of another run: a claim of its
 * run's directory aborts the work on a file in that directory immediately, and excludes the thread
 * until the claim is released. Only arrow_recover_file() changes files, so the next start can
 * continue after a crash at any moment.
 *
 * The thread works only on folders and files that no user except this one, root and the group of
 * the run's folder could have created (own_file.h, recovery/directory.h). Both are checked when
 * they are listed, and again before the work begins. Refused ones are logged and left unchanged.
 */
#ifndef STORE_COMPLETION_H
#define STORE_COMPLETION_H

#include <stdbool.h>
#include <stdint.h>

#include "io/file_io.h"
#include "arrow/schema.h"

#define STORE_COMPLETION_GRACE_MS 30000 /**< maximum time for receivers to reconnect */

struct store_completion_config {
	const char *root;	       /**< folder of the run directories; of the caller */
	const struct arrow_io_ops *io; /**< NULL: direct_io, for own files only */
	uint64_t grace_ms;	       /**< delay after the start */
	uint64_t retry_ms;	       /**< interval for retrying a locked file; 0: 10 s */
	void (*enter)(void);	       /**< first call of the thread; may be NULL */
};

/** All but the first two only increase. */
struct store_completion_stats {
	uint64_t files; /**< remaining files */
	uint64_t bytes; /**< bytes of the remaining files */
	uint64_t completed;
	uint64_t failed;  /**< files that stay `.part`: see the log for the reason */
	uint64_t refused; /**< folders and files that another user created or could change */
};

struct store_completion;

/** A claim of a directory. The caller owns the memory. */
struct store_claim {
	struct store_claim *next;
	const char *dir;
};

/**
 * List the files and start the thread.
 * @param c  out: NULL if there are no files
 * @return 0; -errno: the root cannot be read; -ENOMEM; -errno of pthread_create(3)
 */
int store_completion_open(
	struct store_completion **c, const struct store_completion_config *config);

/**
 * Claim the directory of a run exclusively. Returns when the completion thread no longer uses its
 * files. Any thread may call this. Does nothing if `c` is NULL, like all functions below.
 */
void store_completion_claim(struct store_completion *c, struct store_claim *claim, const char *dir);

/**
 * Release a claim.
 * @param run       name of the run whose files the caller has completed, and which may have new
 *   files now; NULL: nothing is known of its files
 * @param identity  of the run; its incarnation is used
 */
void store_completion_release(struct store_completion *c, struct store_claim *claim,
	const char *run, const struct arrow_identity *identity);

void store_completion_stats_get(struct store_completion *c, struct store_completion_stats *stats);

/** Abort the current file and start no other. Does not wait. */
void store_completion_stop(struct store_completion *c);

/** Stop, wait for the thread, and free. */
void store_completion_close(struct store_completion *c);

#endif /* STORE_COMPLETION_H */
