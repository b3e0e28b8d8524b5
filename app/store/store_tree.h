/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Arrow files below directories: those of stores, of runs, of receivers that spilled; and the lock
 * that tells whose a store's directory is.
 */
#ifndef STORE_TREE_H
#define STORE_TREE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/** All zero: none. */
struct store_tree {
	char **path;
	size_t nb;
};

/**
 * Find `*.arrow` and `*.arrow.part`, by name.
 * @param root     directories, or files themselves; NULL-terminated
 * @param message  out, on error: what cannot be read
 * @return 0; -errno; -ENOMEM
 */
int store_tree_read(struct store_tree *t, char *const *root, char message[PATH_MAX]);

void store_tree_free(struct store_tree *t);

/** @return whether a file is not complete, by its name */
bool store_tree_is_part(const char *path);

/**
 * Complete what a crash has left as `.part` below directories, as a store does when it starts.
 * @param say  called with each
 * @return how many could not be completed, or are being written; -errno
 */
int store_tree_recover(
	char *const *root, void (*say)(const char *path, const char *what), char message[PATH_MAX]);

/**
 * Hold directories of runs that have files below others: a receiver holds those that it has spilled
 * to until no store may have to cut off what is in them. They are held until the process ends.
 * @return 0; -EBUSY; -errno
 */
int store_tree_lock_runs(char *const *root, char message[PATH_MAX]);

/**
 * Hold a directory: `.lock` in it. It is held until the descriptor is closed or the process ends.
 * @return a descriptor; -EBUSY: somebody else holds it; -errno
 */
int store_tree_lock(const char *dir, char message[PATH_MAX]);

#endif /* STORE_TREE_H */
