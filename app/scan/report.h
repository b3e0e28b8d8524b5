/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file Contents of a run as text.
 */
#ifndef REPORT_H
#define REPORT_H

#include "scan/run.h"

/** Print a summary of a run. @return false: rows of one table are missing in the other */
bool report_summary(const struct scan_run *run);

/**
 * Write all columns of `frames` as CSV, with a line of names first.
 * @return 0 or -EBADMSG, -errno of stdio
 */
int report_csv(const struct scan_run *run, const char *path);

/**
 * Compare verdicts with the truth of the frames.
 * @param path  CSV file with a line of names, among them frame and hit (0 or 1)
 * @return 0; -EINVAL, -errno: printed
 */
int report_truth(const struct scan_run *run, const char *path);

/** Print a share in per cent, and both numbers. */
void report_share(const char *name, uint64_t part, uint64_t whole, const char *of);

/** @return true if the veto judged the frame */
bool report_is_judged(const struct scan_frame *f);

#endif /* REPORT_H */
