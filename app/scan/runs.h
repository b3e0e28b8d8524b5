/* SPDX-License-Identifier: BSD-3-Clause */
/** @file Runs that were named, or found in a directory, and the sets of files that each has. */
#ifndef SCAN_LIST_H
#define SCAN_LIST_H

#include <stddef.h>

/** A run. A stem is a path up to _frames or _images. */
struct scan_sets {
	char *path;  /**< without the number of a set */
	char **stem; /**< of its sets, in order */
	size_t nb;
};

struct scan_list {
	struct scan_sets *run;
	size_t nb;
};

/**
 * Add the set that a file belongs to, or all runs of a directory; prints why not.
 * @return 0, -EINVAL, -ENOMEM
 */
int scan_list_add(struct scan_list *list, const char *path);

void scan_list_free(struct scan_list *list);

#endif /* SCAN_LIST_H */
