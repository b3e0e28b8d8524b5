/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file Runs named on the command line or found in a directory, and the sets of files of each.
 */
#ifndef SCAN_LIST_H
#define SCAN_LIST_H

#include <stdbool.h>
#include <stddef.h>

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
 * Add the set of a file, or all runs of a directory; prints errors.
 * @return 0, -EINVAL, -ENOMEM
 */
int scan_list_add(struct scan_list *list, const char *path);

/** @return true if a directory has files of a run; nothing is printed */
bool scan_list_has(const char *dir);

/** Length of a path up to _frames or _images. @return 0: not such a file */
size_t scan_stem_length(const char *path);

/** Length of a stem without the number of a set. */
size_t scan_run_length(const char *stem, size_t len);

void scan_list_free(struct scan_list *list);

#endif /* SCAN_LIST_H */
