/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Watches the data of a run and logs problems: packets that cannot be used, and silent modules.
 *
 * The service thread calls these functions while it holds the run's lock.
 */
#ifndef RUN_WATCH_H
#define RUN_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "builder/builder.h"
#include "rx/rejects.h"

struct ledger;
struct pipeline;

struct run_watch {
	const struct pipeline *pipeline;
	const struct ledger *before; /**< counters at the start of the run */
	uint64_t next_check;	     /**< TSC of the next check */
	uint64_t rejected;	     /**< unusable packets before the run */
	uint64_t rejected_at; /**< TSC of the check that found the first unusable packet; 0: none */
	struct rejects rejects;
	char finding[512];			/**< warning that was logged; "": none */
	uint64_t lines[DETECTOR_STREAMS_MAX];	/**< log lines of each stream */
	uint64_t line_at[DETECTOR_STREAMS_MAX]; /**< TSC of the last log line of each stream */
	uint64_t silences[DETECTOR_STREAMS_MAX];
	bool silent[DETECTOR_STREAMS_MAX]; /**< state in the last log line of each stream */
};

/**
 * Start watching a new run.
 * @param before  counters at the start of the run; kept
 */
void run_watch_begin(struct run_watch *w, const struct pipeline *p, const struct ledger *before);

/**
 * Check the data, at most four times a second. @param now  the run ends: check regardless of the
 * time
 */
void run_watch_look(struct run_watch *w, bool now);

/** Return true if the stream is silent. */
static inline bool
run_watch_is_silent(const struct builder_stream *s)
{
	return s->absent >= BUILDER_SILENT_FRAMES;
}

/** Format e.g. "module 1 (stream 1, UDP port 50002)". @return text */
const char *run_watch_stream(
	const struct detector *d, uint32_t udp_port, uint32_t stream, char *text, size_t size);

#endif /* RUN_WATCH_H */
