/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Files that an earlier process of the store has left as `.part`, and whose receivers may never
 * come back: a thread completes them while the store serves.
 *
 * The list is made once, before anything is served: a file that this process writes is never on it.
 * The thread waits for a grace period, in which receivers come back and complete their own files
 * (server/recovery_thread.h), and then completes one file after the other, the oldest first. A
 * receiver that comes later waits for no file of another run: a claim of its run's directory ends
 * the thread's work on a file in it at once, and keeps the thread out until the claim is released.
 * Files are changed only by arrow_recover_file(), so that a crash at any moment is one that the
 * next start knows how to go on from.
 *
 * Of folders and files only those are worked at that nobody but this user, root and the group of
 * the run's folder could have made (own_file.h, recovery/directory.h). Both are checked when they
 * are listed, and again when they are taken; what is refused is named in the log, and left alone.
 */
#ifndef STORE_COMPLETION_H
#define STORE_COMPLETION_H

#include <stdbool.h>
#include <stdint.h>

#include "io/file_io.h"
#include "arrow/schema.h"

#define STORE_COMPLETION_GRACE_MS 30000 /**< at most: what receivers have to come back */

struct store_completion_config {
	const char *root;	       /**< run directories are in it; the caller's */
	const struct arrow_io_ops *io; /**< NULL: direct_io, of files that are ours */
	uint64_t grace_ms;	       /**< after the start */
	uint64_t retry_ms;	       /**< a file that is locked is tried again; 0: 10 s */
	void (*enter)(void);	       /**< the thread's first call; NULL: nothing */
};

/** All but the first two only grow. */
struct store_completion_stats {
	uint64_t files; /**< that are left */
	uint64_t bytes; /**< of them */
	uint64_t completed;
	uint64_t failed;  /**< stay `.part`: the log says why */
	uint64_t refused; /**< folders and files that another user made, or could change */
};

struct store_completion;

/** A claim of a directory; the owner of the memory is the caller. */
struct store_claim {
	struct store_claim *next;
	const char *dir;
};

/**
 * List what is there, and begin.
 * @param c  out: NULL if nothing was left
 * @return 0; -errno: the root cannot be read; -ENOMEM; -errno of pthread_create(3)
 */
int store_completion_open(
	struct store_completion **c, const struct store_completion_config *config);

/**
 * Have a directory of a run to oneself; returns when the thread has let go of its files. Any
 * thread. With NULL for `c`, as all that follows: nothing.
 */
void store_completion_claim(struct store_completion *c, struct store_claim *claim, const char *dir);

/**
 * @param run       NULL: nothing is known of its files; else name of the run whose files have been
 *   completed by the caller, who may now write new ones
 * @param identity  of the run: its incarnation counts
 */
void store_completion_release(struct store_completion *c, struct store_claim *claim,
	const char *run, const struct arrow_identity *identity);

void store_completion_stats_get(struct store_completion *c, struct store_completion_stats *stats);

/** No file is begun any more, and the one at work is given up. Does not wait. */
void store_completion_stop(struct store_completion *c);

/** Stop, wait for the thread, free. */
void store_completion_close(struct store_completion *c);

#endif /* STORE_COMPLETION_H */
