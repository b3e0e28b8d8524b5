/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file Runs named on the command line or found in a directory, and the sets of files of each.
 */
#ifndef SCAN_LIST_H
#define SCAN_LIST_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define SCAN_LIST_MESSAGE_LEN (2 * PATH_MAX + 256)

/** A run. A stem is a path up to _frames or _images. */
struct scan_sets {
	char *path;  /**< path without the number of a set */
	char **stem; /**< stems of its sets, in order */
	size_t nb;
};

struct scan_list {
	struct scan_sets *run;
	size_t nb;
};

/**
 * Add the set of a file, or all runs of a directory or of a store (scan_list_folders()).
 * @param message  out, on error: what is wrong; it may have control characters of names
 * @return 0; -ENODATA: a directory without runs; -EINVAL: not the name of a run's file; -ENOMEM;
 *         -errno: it cannot be read
 */
int scan_list_try(struct scan_list *list, const char *path, char message[SCAN_LIST_MESSAGE_LEN]);

/** Add as scan_list_try(); errors are printed. */
int scan_list_add(struct scan_list *list, const char *path);

/** Add the runs of a directory, without those of its subfolders; errors are printed. */
int scan_list_add_folder(struct scan_list *list, const char *dir);

/**
 * @return true if a directory has files of a run, or if reading it fails before one is found;
 *   nothing is printed
 */
bool scan_list_has(const char *dir);

/**
 * Find the directories with files of the runs of `dir`: itself, or if it has none, those in it. A
 * store has a directory for each run. Symbolic links and lost+found are left out.
 * @param found  called for each, also for one in it that cannot be read; an error ends the search
 * @return 0; -ENODATA: none was found; -errno: `dir` cannot be read; an error of `found`
 */
int scan_list_folders(const char *dir, int (*found)(void *arg, const char *folder), void *arg);

/** Length of a path up to _frames or _images. @return 0: not such a file */
size_t scan_stem_length(const char *path);

/** Length of a stem without the number of a set. */
size_t scan_run_length(const char *stem, size_t len);

void scan_list_free(struct scan_list *list);

#endif /* SCAN_LIST_H */
