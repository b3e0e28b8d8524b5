/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Whose packets are a stream's: addresses and module position, configured or learnt.
 *
 * `[detector] source` configured: packets with other addresses are never taken. Not configured, the
 * source of a stream (MAC and IP addresses, of the destination too) is learnt:
 *  - The first source is taken at once. It is learnt after as many packets as a frame has of the
 *    stream.
 *  - If another one sends before that, neither is believed: what is in frames that are still open
 *    is taken out again. Then the first one that sends so many packets in a row is learnt.
 *  - A source that is learnt stays. Another one is learnt in its place only if it sends so many
 *    packets in a row after `stall_ms` in which the learnt one has sent none. The one that was
 *    learnt first gets its stream back with its first packet.
 *
 * Positions. A header says which row and column of the detector its module has; modules are stacked
 * down a column, then the next column. With `positions = N` (modules in a column) each stream has
 * to announce the position that follows. With `auto` the announced ones, sorted by column and
 * row, have to be in the order of the streams; if two streams announce the same (a simulator),
 * nothing can be checked. A stream that announces another position is *misplaced*: none of its
 * packets is taken. Another position is believed after SOURCE_MOVES packets in a row.
 *
 * Threads: a stream's filter and state are written by the RX lcore that owns it. Positions are read
 * by the others; texts and telemetry read everything, and may see it half changed.
 */
#ifndef SOURCES_H
#define SOURCES_H

#include <rte_branch_prediction.h>
#include <rte_common.h>

#include "source_settings.h"

#define SOURCE_POSITION_UNKNOWN UINT32_MAX
#define SOURCE_MOVES		8

enum source_step {
	SOURCE_CONFIGURED, /**< addresses are as configured, nothing is learnt */
	SOURCE_NONE,	   /**< to be learnt, nothing has come yet */
	SOURCE_FIRST,	   /**< nobody else has sent yet */
	SOURCE_CONTESTED,  /**< two have sent: none is taken */
	SOURCE_LEARNT,
	SOURCE_STEPS
};

extern const char *const source_step_names[SOURCE_STEPS];

/** A stream's state, beside the filter that most packets pass. */
struct source {
	enum source_step step;
	bool has_first;		/**< another one was learnt after the first one */
	bool misplaced;		/**< the position is not the stream's */
	uint32_t count;		/**< packets in a row of the candidate, or of the only one */
	uint32_t needed;	/**< ... to be learnt */
	uint32_t position;	/**< announced, or SOURCE_POSITION_UNKNOWN. Read by other lanes */
	uint32_t moved_to;	/**< a position that differs, */
	uint32_t moves;		/**< and how many packets in a row had it */
	uint64_t challenged_at; /**< TSC since when the learnt one is silent and another is not */
	uint64_t taken[SOURCE_WORDS];	  /**< addresses of the source that is taken */
	uint64_t first[SOURCE_WORDS];	  /**< ... that was learnt first, if has_first */
	uint64_t candidate[SOURCE_WORDS]; /**< ... that would be learnt */
	uint64_t rejected[SOURCE_WORDS];  /**< ... of the last packet that was not taken */
	uint64_t nb_rejected;
	uint64_t rivals[2][SOURCE_WORDS]; /**< who sent before one was learnt, */
	uint32_t contests;		  /**< and how often there were two */
	uint32_t changes;		  /**< of step, source and position */
} __rte_cache_aligned;

struct sources {
	struct source_filter filter[DETECTOR_STREAMS_MAX] __rte_cache_aligned;
	const struct source_settings *settings;
	const struct detector *detector;
	uint64_t stall_cycles;
	uint32_t version; /**< changes of positions, by any lane */
	struct source stream[DETECTOR_STREAMS_MAX];
};

enum source_verdict {
	SOURCE_OURS,
	SOURCE_FOREIGN,	  /**< not the stream's source, or destination */
	SOURCE_EXPELLED,  /**< ... nor are those that were taken before: expel them */
	SOURCE_MISPLACED, /**< another module's position */
};

/** Begin with nothing learnt. `settings` and `detector` stay the caller's. */
void sources_init(struct sources *all, const struct source_settings *settings,
	const struct detector *detector, uint64_t stall_cycles);

/** Does a packet pass at once? */
static inline bool
source_passes(const struct source_filter *f, const uint8_t *headers, uint32_t position)
{
	uint64_t words[SOURCE_WORDS];

	source_words(headers, position, words);
	return (((words[0] ^ f->value[0]) & f->mask[0]) | ((words[1] ^ f->value[1]) & f->mask[1]) |
		       ((words[2] ^ f->value[2]) & f->mask[2]) |
		       ((words[3] ^ f->value[3]) & f->mask[3])) == 0;
}

/**
 * Whose is a packet that does not? By the lane that owns the stream. After a look at positions,
 * `misplaced` says whether those that are ours may be taken.
 */
enum source_verdict sources_judge(
	struct sources *all, uint32_t stream, const uint8_t *headers, uint32_t position);

/**
 * Look at positions again, after `version` has changed.
 * @param mine  bits of the caller's streams
 * @return bits of those that are misplaced now and were not: expel them
 */
uint64_t sources_review(struct sources *all, uint64_t mine);

/** Positions that streams should announce; SOURCE_POSITION_UNKNOWN: cannot be said. */
void sources_expected(const struct sources *all, uint32_t position[DETECTOR_STREAMS_MAX]);

/** What the log was told. */
struct source_watch {
	uint64_t next; /**< TSC */
	bool learnt;
	uint32_t changes[DETECTOR_STREAMS_MAX];
	uint32_t contests[DETECTOR_STREAMS_MAX];
	uint64_t rejected[DETECTOR_STREAMS_MAX];
};

/** Log what has changed, once a second, or `now`. Not by an RX lcore. */
void sources_log(const struct sources *all, struct source_watch *watch, bool now);

/** "10.0.0.1 (00:11:22:33:44:55)". @return text */
const char *source_text(const uint64_t words[SOURCE_WORDS], char *text, size_t size);

/** Destination address. @return text */
const char *source_destination_text(const uint64_t words[SOURCE_WORDS], char *text, size_t size);

#endif /* SOURCES_H */
