/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * What is wrong with what a run receives, in the log: packets that cannot be used, and modules that
 * are silent. By the service thread, with the run's lock.
 */
#ifndef RUN_WATCH_H
#define RUN_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "builder/builder.h"
#include "rx/rejects.h"

struct run;

struct run_watch {
	uint64_t next_check;  /**< TSC of the next look */
	uint64_t rejected;    /**< packets that could not be used before the run */
	uint64_t rejected_at; /**< TSC since when some cannot; 0: all can */
	struct rejects rejects;
	char finding[512];			/**< what was told of them; "" = nothing */
	uint64_t lines[DETECTOR_STREAMS_MAX];	/**< on each stream, */
	uint64_t line_at[DETECTOR_STREAMS_MAX]; /**< and TSC of the last one */
	uint64_t silences[DETECTOR_STREAMS_MAX];
	bool silent[DETECTOR_STREAMS_MAX]; /**< as the log was told */
};

/** A run begins. */
void run_watch_begin(struct run *r);

/** Look, twice a second. @param now  the run ends: once more */
void run_watch_look(struct run *r, bool now);

/** Is it silent? */
static inline bool
run_watch_is_silent(const struct builder_stream *s)
{
	return s->absent >= BUILDER_SILENT_FRAMES;
}

/** "module 1 (stream 1, UDP port 50002)". @return text */
const char *run_watch_stream(
	const struct detector *d, uint32_t udp_port, uint32_t stream, char *text, size_t size);

#endif /* RUN_WATCH_H */
