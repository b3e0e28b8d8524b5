/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The files that runs write: paths, state and statistics. Threads as in run.h.
 */
#ifndef RUN_WRITER_H
#define RUN_WRITER_H

#include <stdint.h>

#include "output/batch_writer.h"

struct run;

/** Status of the writer of the current run or, if there is none, of the last run's writer. */
struct run_writer {
	char name[72]; /**< of the run; "": there was none yet */
	struct batch_writer_stats stats;
	struct run_files_status status[ARROW_TABLES];
};

void run_get_writer(struct run *r, struct run_writer *writer);

/**
 * Return the latency histogram of all batches since the start. The latency of a batch is the time
 * from the first packet of its last frame until the batch is durable.
 */
void run_get_latency(struct run *r, struct histogram latency[ARROW_TABLES]);

/** Return the path of the first file of a table in the current run or the last one. */
const char *run_first_path(const struct run *r, enum arrow_table table);

/** Return the path of the last file of a table in the last run that has ended. */
const char *run_last_path(const struct run *r, enum arrow_table table);

#endif /* RUN_WRITER_H */
