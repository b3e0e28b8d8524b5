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
#include "port/refused.h"
#include "run_drops.h"
#include "rx/rejects.h"

struct ledger;
struct pipeline;

/** Problems of the data, each reported once per run. */
enum run_watch_finding {
	RUN_WATCH_REJECTS,   /**< packets of another format, or from elsewhere */
	RUN_WATCH_PORTS,     /**< packets of the detector to ports near those of the streams */
	RUN_WATCH_PATTERN,   /**< the same part of all frames is missing */
	RUN_WATCH_FOREIGN,   /**< packets of other senders than expected; sources_log() logs it */
	RUN_WATCH_POSITIONS, /**< packets of other modules than expected; sources_log() logs it */
	RUN_WATCH_SOURCES,   /**< two modules send to one port; sources_log() logs it */
	RUN_WATCH_DROPS,     /**< packets dropped because of their frame number */
	RUN_WATCH_GEOMETRY,  /**< packets announce other columns than [geometry] has */
	RUN_WATCH_ROCE,	     /**< packets that the RoCE devices of ports refused */
	RUN_WATCH_FINDINGS
};

/** An interval that ends now. */
struct run_watch_interval {
	uint64_t at;		 /**< TSC of its begin */
	struct run_packets from; /**< counters then */
	struct rejects rejects;	 /**< samples since then */
};

/** What was logged about a stream. */
struct run_watch_stream {
	uint64_t lines;	   /**< log lines */
	uint64_t line_at;  /**< TSC of the last one */
	uint64_t silences; /**< ... builder_stream.silences then */
	bool silent;	   /**< ... state then */
	bool sends;	   /**< ... it was silent, and sent packets that were dropped */
	uint32_t contests; /**< its source.contests before the run */
	uint64_t foreign;  /**< its source.nb_rejected before the run */
};

struct run_watch {
	const struct pipeline *pipeline;
	const struct ledger *before; /**< counters at the start of the run */
	uint64_t first_frame;	     /**< [run] first_frame; 0: auto */
	struct run_packets from;     /**< packets before the run */
	struct port_refused refused; /**< what RoCE devices refused before the run */
	uint64_t next_check;	     /**< TSC of the next check */
	uint64_t rejected_at; /**< TSC of the check that found the first unusable packet; 0: none */
	uint64_t near_at;     /**< ... that found the first one to a near port; 0: none */
	bool recent_rejects;  /**< the warning about them describes a recent interval */
	struct rejects rejects; /**< samples of the run */
	/** Two overlapping intervals: the current one, of one to two seconds, and the next one. */
	struct run_watch_interval recent[2];
	/** Warnings that were logged; "": none. */
	char finding[RUN_WATCH_FINDINGS][640];
	struct run_watch_stream stream[DETECTOR_STREAMS_MAX];
};

/**
 * Start watching a new run.
 * @param before       counters at the start of the run; kept
 * @param first_frame  [run] first_frame; 0: auto
 */
void run_watch_begin(struct run_watch *w, const struct pipeline *p, const struct ledger *before,
	uint64_t first_frame);

/**
 * Check the data, at most four times a second. @param now  the run ends: check regardless of the
 * time
 */
void run_watch_check(struct run_watch *w, bool now);

/**
 * Describe what RoCE devices refused in this run, even if it is a single packet.
 * @return false: nothing
 */
bool run_watch_refused(const struct run_watch *w, char *text, size_t size);

/** Return true if the stream is silent. */
static inline bool
run_watch_is_silent(const struct builder_stream *s)
{
	return s->absent >= BUILDER_SILENT_FRAMES;
}

#endif /* RUN_WATCH_H */
