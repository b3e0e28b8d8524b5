/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Reports about a run for operators: progress lines, and a summary at its end.
 */
#ifndef REPORT_H
#define REPORT_H

#include <stdint.h>
#include <stdio.h>

struct run;
struct run_status;

/**
 * Contents of the last progress line. All members except `period` must be 0 before the first line.
 */
struct report {
	double period;	  /**< seconds between two lines; 0: no lines */
	uint64_t line_at; /**< TSC of the last line; 0: none yet */
	uint64_t runs;	  /**< number of the run */
	uint64_t frames;  /**< frames of the run */
	uint64_t bytes, packets, placed;
};

/** Print a line if it is due and a run is in progress. */
void report_progress(struct report *r, struct run *run, FILE *out);

/**
 * Print the summary of a run that has ended: frames and packets by outcome, causes of losses,
 * files.
 */
void report_summary(struct run *run, const struct run_status *status, FILE *out);

#endif /* REPORT_H */
