/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Whose packets are a stream's: addresses and module position, configured or learnt.
 *
 * `[detector] source` configured: packets with other addresses are never taken. Not configured, the
 * source of a stream (MAC and IP addresses, of the destination too) is learnt. `needed` are as many
 * packets as a frame has of the stream, and SOURCE_NEEDED_MIN at least.
 *  - The first source is taken at once. It is learnt after `needed` packets.
 *  - If another one sends before that, neither is believed: what is in frames that are still open
 *    is taken out again. Then the one is learnt that has sent `needed` packets more than all others
 *    since the first packet (Boyer and Moore's majority vote): others may send between them.
 *  - A source that is learnt stays as long as it sends half of `needed` in a window of
 *    `stream_timeout_ms`. Windows begin with packets of others. The one that leads by
 *    `needed` among these is learnt
 *    instead, at the end of a window in which the learnt one has sent less than that; or if it has
 *    sent more than the learnt one in each of so many windows in a row as the learnt one had sent
 *    in before (its tenure).
 *  - A source that was displaced, and had the longer tenure, is learnt again at the end of a window
 *    in which it leads by `needed`, and has sent half of what the other one has.
 *
 * Positions: source_positions.c. A stream that announces another position than it has is
 * *misplaced*: none of its packets is taken. Another position is believed after SOURCE_MOVES
 * packets in a row.
 *
 * Threads: a stream's filter and state are written by the RX lcore that owns it. Positions are read
 * by the others; texts and telemetry read everything, and may see it half changed.
 */
#ifndef SOURCES_H
#define SOURCES_H

#include <rte_branch_prediction.h>
#include <rte_common.h>
#include <rte_seqcount.h>

#include "rx/source_settings.h"

#define SOURCE_POSITION_UNKNOWN UINT32_MAX
#define SOURCE_MOVES		8
/** One packet of three may be forged: then the forger leads by so many once in 2^32 times. */
#define SOURCE_NEEDED_MIN 32

enum source_step {
	SOURCE_CONFIGURED, /**< addresses are as configured, nothing is learnt */
	SOURCE_NONE,	   /**< to be learnt, nothing has come yet */
	SOURCE_FIRST,	   /**< nobody else has sent yet */
	SOURCE_CONTESTED,  /**< two have sent: none is taken */
	SOURCE_LEARNT,
	SOURCE_STEPS
};

extern const char *const source_step_names[SOURCE_STEPS];

/** Why a source was learnt. */
enum source_reason {
	SOURCE_BY_VOTE,	   /**< nobody had been */
	SOURCE_BY_SILENCE, /**< of the one before */
	SOURCE_BY_NUMBER,  /**< of its packets: more than the one before, for longer */
	SOURCE_IS_BACK,	   /**< it had been, for longer than the one before */
};

/** One that was learnt. */
struct source_tenant {
	uint64_t words[SOURCE_WORDS];
	/** Windows of stream_timeout_ms in which it has sent half of `needed`, at most. */
	uint64_t tenure;
};

/** A stream's state, beside the filter that most packets pass. */
struct source {
	enum source_step step;
	enum source_reason reason; /**< of the last change of source */
	bool misplaced;		   /**< the position is not the stream's */
	uint32_t needed;	   /**< packets to be learnt */
	uint32_t count;		   /**< packets of the candidate beyond those of others */
	uint32_t windows;	   /**< in a row that `ahead` has won against the learnt one */
	uint32_t position; /**< announced, or SOURCE_POSITION_UNKNOWN. Read by other RX roles */
	uint32_t moved_to; /**< a position that differs, */
	uint32_t moves;	   /**< and how many packets in a row had it */
	uint64_t taken[SOURCE_WORDS];	  /**< addresses of the source that is taken */
	uint64_t before[SOURCE_WORDS];	  /**< ... of the one that was, unless SOURCE_BY_VOTE */
	uint64_t candidate[SOURCE_WORDS]; /**< ... that would be learnt */
	uint64_t ahead[SOURCE_WORDS];	  /**< ... that has won windows */
	uint64_t learnt_at;		  /**< TSC */
	uint64_t credit;		  /**< tenure that the learnt one had when it was learnt */
	uint64_t window_at;		  /**< TSC since when another one sends; 0: none does */
	uint64_t window_from;		  /**< packets that the learnt one had sent then */
	uint64_t to_win;		  /**< windows that win against the learnt one */
	struct source_tenant displaced;	  /**< the one of the longest tenure; 0: none was */
	uint64_t rejected[SOURCE_WORDS];  /**< addresses of the last packet that was not taken */
	uint64_t nb_rejected;
	uint64_t rivals[2][SOURCE_WORDS]; /**< who sent before one was learnt, */
	uint32_t contests;		  /**< and how often there were two */
	uint32_t changes;		  /**< of step, source and position */
	rte_seqcount_t written;		  /**< of all of this: sources_get() */
} __rte_cache_aligned;

struct sources {
	struct source_filter filter[DETECTOR_STREAMS_MAX] __rte_cache_aligned;
	const struct source_settings *settings;
	const struct detector *detector;
	uint64_t stall_cycles;
	uint32_t version; /**< changes of positions, by any RX role */
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

/** A stream's state, as a whole, for other threads than the RX role that owns it. */
void sources_get(const struct sources *all, uint32_t stream, struct source *to);

/** Does a packet pass at once? */
static inline bool
source_passes(const struct source_filter *f, const uint8_t *headers, uint32_t position)
{
	uint64_t words[SOURCE_WORDS];

	source_words(headers, position, words);
	return source_filter_takes(f, words);
}

/** The same, and count it if it does. By the RX role that owns the stream. */
static inline bool
source_takes(struct source_filter *f, const uint8_t *headers, uint32_t position)
{
	const bool passes = source_passes(f, headers, position);

	f->taken += passes;
	return passes;
}

/**
 * Whose is a packet that does not? By the RX role that owns the stream. After a look at positions,
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

/** What the announced positions say of the cabling. */
enum source_order {
	SOURCE_ORDER_OFF,     /**< positions = off, or none is announced */
	SOURCE_ORDER_SAME,    /**< all announce the same, as simulators do: nothing is checked */
	SOURCE_ORDER_GOOD,    /**< each stream its own */
	SOURCE_ORDER_SWAPPED, /**< some streams each other's */
	SOURCE_ORDER_ODD,     /**< nothing that swapped cables explain: nothing is checked */
};

/**
 * Positions that streams should announce; SOURCE_POSITION_UNKNOWN: cannot be said.
 * See source_positions.c.
 */
enum source_order sources_expected(
	const struct sources *all, uint32_t position[DETECTOR_STREAMS_MAX]);

/** What the log was told. */
struct source_watch {
	uint64_t next; /**< TSC */
	bool learnt;
	bool odd_logged;
	uint32_t odd; /**< looks in a row at positions that cannot be checked */
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
