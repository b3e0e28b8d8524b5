/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Counters as text: a summary, and a file for Prometheus. Main thread.
 */
#ifndef PUBLISH_REPORT_H
#define PUBLISH_REPORT_H

#include "output.h"
#include "watch.h"

/** What is counted. */
struct report {
	const struct watch *watch;
	struct output *const *output; /**< by kind; NULL: no such output */
};

/** Print a summary to standard output. */
void report_summary(const struct report *r);

/** Print to standard error how many images wait for workers or clients of each output. */
void report_waiting(const struct report *r);

/**
 * Write all counters to a file, under a temporary name that is renamed. It is not made durable: a
 * sync could delay other writers of the disk.
 * @return 0; -errno
 */
int report_write(const struct report *r, const char *path);

#endif /* PUBLISH_REPORT_H */
