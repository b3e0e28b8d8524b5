/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The lock of the files of a run in an output directory: one process writes them. The file
 * `.RUN.export.lock` is locked, and is removed at the end. Files that end in `.part` while it is
 * locked are of its owner, or were left by a process that was killed.
 */
#ifndef EXPORT_OUTPUT_LOCK_H
#define EXPORT_OUTPUT_LOCK_H

#include "export.h"
#include "options.h"

struct output_lock {
	int fd; /* OUTPUT_LOCK_NONE; -EOPNOTSUPP: the file system has none */
	char path[PATH_MAX];
};

#define OUTPUT_LOCK_NONE (-1)

/**
 * Lock the files of e->stem, unless this was done before.
 * @return 0; -EINVAL: printed, also if another process has the lock
 */
int output_lock_take(struct output_lock *lock, const struct export *e);

void output_lock_release(struct output_lock *lock);

/**
 * Remove the `.part` files of this run and format that a killed process left. To be called before
 * the owner of the lock writes a file. Without a lock they are left: another process may write
 * them. One that cannot be removed is printed as a warning.
 * @return 0; -EINVAL: printed
 */
int output_lock_clear(
	const struct output_lock *lock, const struct export *e, enum options_format format);

#endif /* EXPORT_OUTPUT_LOCK_H */
