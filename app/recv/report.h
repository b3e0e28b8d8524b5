/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * What a person reads of a run: a line of progress now and then, and a summary at its end.
 */
#ifndef REPORT_H
#define REPORT_H

#include <stdint.h>
#include <stdio.h>

#include "run.h"

/** What the last line of progress said. Zeroed, but for `period`, before the first one. */
struct report {
	double period;	  /**< s from one line to the next; 0: none */
	uint64_t line_at; /**< TSC of the last line; 0: none yet */
	uint64_t runs;	  /**< number of its run, */
	uint64_t frames;  /**< and how many it had, */
	uint64_t bytes;
};

/** Print a line if one is due and a run is on. */
void report_progress(struct report *r, struct run *run, FILE *out);

/** The run that has ended: frames and packets by outcome, who has lost any, where the files are. */
void report_summary(const struct run *run, const struct run_status *status, FILE *out);

#endif /* REPORT_H */
