/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Finished runs in given folders. A thread lists them every few seconds, so that requests do not
 * wait for disks. A run is listed if its RUN_frames.arrow is complete and no file of it is still
 * being written. Files that are not of a listed run cannot be opened.
 *
 * Names with characters other than letters, digits, `_`, `-` and `.`, names that begin with a dot,
 * symbolic links, and files with several hard links are left out.
 */
#ifndef RUNS_H
#define RUNS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "request.h"

struct runs;

/**
 * Start the thread.
 * @param folders  paths, which must outlive the thread; a folder may be created later. Subfolders
 *   are read too (a store has one for each run)
 * @param nb  1 ... LIMIT_RUN_FOLDERS
 * @return NULL: not enough memory, or no thread
 */
struct runs *runs_start(const char *const *folders, size_t nb);

/** Any thread. @return the newest list (JSON, RunList of openapi.json), to be freed; NULL */
char *runs_text(struct runs *r);

/**
 * Open a file of a listed run. Any thread.
 * @param st  out: of the open file
 * @return descriptor; -ENOENT: not a file of a listed run; -errno
 */
int runs_open(struct runs *r, const struct request_run *name, struct stat *st);

/** Stop the thread. NULL is allowed. */
void runs_stop(struct runs *r);

#endif /* RUNS_H */
