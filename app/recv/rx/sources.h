/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Decides which packets belong to a stream, by addresses and module position. These are configured
 * or learnt.
 *
 * If `[detector] source` is configured, packets with other addresses are never taken. Otherwise the
 * source of a stream is learnt: the MAC and IP addresses of both ends. `needed` is the number of
 * packets of the stream in a frame, and at least SOURCE_NEEDED_MIN.
 *  - Packets of the first source are taken at once. It is learnt after `needed` packets.
 *  - If another source sends before that, the stream is contested. Its packets are taken out of
 *    frames that are still open. The source that has sent `needed` packets more than all others
 *    since the first packet is learnt (Boyer and Moore's majority vote). Packets of the others may
 *    lie between them.
 *  - Packets of other sources than the learnt one start a time window of `stream_timeout_ms`. Of
 *    these sources, the candidate is the one that leads the rest by `needed` packets within the
 *    time window. It replaces the learnt source at the end of a time window in which the learnt
 *    source has sent less than half of `needed`. It also replaces a learnt source that has sent
 *    fewer packets than the candidate in several time windows in a row: in more of them than the
 *    learnt source's tenure. The *tenure* of a source is the number of earlier time windows in
 *    which it can have sent half of `needed`.
 *  - A source that was displaced and had the longer tenure is learnt again at the end of a time
 *    window in which it leads by `needed`, and has sent at least half as much as the learnt source.
 *
 * Positions are checked in source_positions.c. A stream that announces another position than its
 * own is *misplaced*, and none of its packets is taken. A stream's announced position changes after
 * SOURCE_MOVES packets in a row with the new one.
 *
 * Threads: the RX lcore that owns a stream writes its filter and state. Other RX lcores read its
 * position. The log and telemetry read a copy, see sources_get().
 */
#ifndef SOURCES_H
#define SOURCES_H

#include <rte_branch_prediction.h>
#include <rte_common.h>
#include <rte_seqcount.h>

#include "source_settings.h"

#define SOURCE_POSITION_UNKNOWN UINT32_MAX
#define SOURCE_MOVES		8 /**< packets in a row that change an announced position */
/** If one packet of three is forged, the forger leads by this many once in 2^32 times. */
#define SOURCE_NEEDED_MIN 32

/** State of a stream's source. */
enum source_step {
	SOURCE_CONFIGURED, /**< addresses are configured, none are learnt */
	SOURCE_NONE,	   /**< to be learnt, no packet has arrived */
	SOURCE_FIRST,	   /**< one source has sent: its packets are taken */
	SOURCE_CONTESTED,  /**< at least two sources have sent: no packets are taken */
	SOURCE_LEARNT,	   /**< only packets of the learnt source are taken */
	SOURCE_STEPS
};

extern const char *const source_step_names[SOURCE_STEPS];

/** Why a source was learnt. */
enum source_reason {
	SOURCE_BY_VOTE,	   /**< none was learnt before */
	SOURCE_BY_SILENCE, /**< the learnt source had stopped sending */
	SOURCE_BY_NUMBER,  /**< it has sent more packets than the learnt source, for longer */
	SOURCE_IS_BACK,	   /**< it was learnt before, with a longer tenure */
};

/** A source that was learnt. */
struct source_tenant {
	uint64_t words[SOURCE_WORDS]; /**< its addresses */
	/** Upper limit of the time windows in which it has sent half of `needed`. */
	uint64_t tenure;
};

/** A stream's state. Written by the RX role that owns it. Most packets only need the filter. */
struct source {
	enum source_step step;
	enum source_reason reason; /**< why the source changed last */
	bool misplaced;		   /**< the announced position is not the stream's */
	uint32_t needed;	   /**< packets that a source needs to be learnt */
	uint32_t count;		   /**< packets by which the candidate leads the others */
	uint32_t windows;	   /**< time windows in a row that `ahead` has won */
	uint32_t position; /**< announced, or SOURCE_POSITION_UNKNOWN; read by other RX roles */
	uint32_t moved_to; /**< a position that differs from `position` */
	uint32_t moves;	   /**< packets in a row with moved_to */
	uint64_t taken[SOURCE_WORDS];  /**< addresses of the source that is taken */
	uint64_t before[SOURCE_WORDS]; /**< ... of the source before it; unused if SOURCE_BY_VOTE */
	uint64_t candidate[SOURCE_WORDS]; /**< ... of the source that may be learnt */
	uint64_t ahead[SOURCE_WORDS];	  /**< ... of the source that has won time windows */
	uint64_t learnt_at;		  /**< TSC */
	uint64_t credit;		  /**< tenure that the source had when it was learnt */
	uint64_t window_at;		  /**< TSC of the start of the time window; 0: none */
	uint64_t window_from;		  /**< packets that the learnt source had sent then */
	uint64_t to_win;		  /**< time windows that `ahead` has to exceed */
	struct source_tenant displaced;	  /**< displaced source of the longest tenure; 0: none */
	uint64_t rejected[SOURCE_WORDS];  /**< addresses of the last packet dropped as foreign */
	uint64_t nb_rejected;		  /**< packets dropped as foreign */
	uint64_t rivals[2][SOURCE_WORDS]; /**< sources of the last contest */
	uint32_t contests;		  /**< number of contests */
	uint32_t changes;		  /**< of step, source and position */
	rte_seqcount_t written;		  /**< for sources_get() */
} __rte_cache_aligned;

/** Sources of all streams. Elements are written by the RX role that owns the stream. */
struct sources {
	struct source_filter filter[DETECTOR_STREAMS_MAX] __rte_cache_aligned;
	const struct source_settings *settings;
	const struct detector *detector;
	uint64_t stall_cycles; /**< stream_timeout_ms in TSC cycles */
	uint32_t version;      /**< changes of positions; incremented by any RX role */
	struct source stream[DETECTOR_STREAMS_MAX];
};

/** Verdict on a packet. */
enum source_verdict {
	SOURCE_OURS,	  /**< of the stream's source, to its destination */
	SOURCE_FOREIGN,	  /**< not the stream's source, or destination */
	SOURCE_EXPELLED,  /**< like SOURCE_FOREIGN; expel also the packets that were taken before */
	SOURCE_MISPLACED, /**< the header has another module's position */
};

/** Initialize, with nothing learnt. `settings` and `detector` remain owned by the caller. */
void sources_init(struct sources *all, const struct source_settings *settings,
	const struct detector *detector, uint64_t stall_cycles);

/** Copy a stream's state consistently. For threads other than the RX lcore that owns it. */
void sources_get(const struct sources *all, uint32_t stream, struct source *to);

/** Return true if a packet passes its stream's filter. */
static inline bool
source_passes(const struct source_filter *f, const uint8_t *headers, uint32_t position)
{
	uint64_t words[SOURCE_WORDS];

	source_words(headers, position, words);
	return source_filter_takes(f, words);
}

/** Like source_passes(), and count the packet if it passes. By the RX role that owns the stream. */
static inline bool
source_takes(struct source_filter *f, const uint8_t *headers, uint32_t position)
{
	const bool passes = source_passes(f, headers, position);

	f->taken += passes;
	return passes;
}

/**
 * Judge a packet that does not pass its stream's filter. By the RX role that owns the stream. A
 * packet that is SOURCE_OURS may be taken only if source.misplaced is false, after a call of
 * sources_review() if `version` has changed.
 */
enum source_verdict sources_verdict(
	struct sources *all, uint32_t stream, const uint8_t *headers, uint32_t position);

/**
 * Check positions again, after `version` has changed.
 * @param mine  bits of the caller's streams
 * @return bits of the streams that have become misplaced: expel their packets
 */
uint64_t sources_review(struct sources *all, uint64_t mine);

/** Result of comparing the announced positions with the streams. */
enum source_order {
	SOURCE_ORDER_OFF,     /**< positions = off, or none is announced */
	SOURCE_ORDER_SAME,    /**< all streams announce the same, as simulators do: no check */
	SOURCE_ORDER_GOOD,    /**< each stream announces its own position */
	SOURCE_ORDER_SWAPPED, /**< some streams announce each other's position */
	SOURCE_ORDER_ODD,     /**< swapped cables do not explain the positions: no check */
};

/**
 * Calculate the positions that streams should announce, see source_positions.c.
 * @param position  out, by stream; SOURCE_POSITION_UNKNOWN: not known
 */
enum source_order sources_expected(
	const struct sources *all, uint32_t position[DETECTOR_STREAMS_MAX]);

/**
 * Modules in a column of the detector, by the positions that all its streams announce.
 * @return 0: not known
 */
uint32_t sources_column(const struct sources *all);

/** Messages that were logged already. Used only by the thread that calls sources_log(). */
struct source_watch {
	uint64_t next;	 /**< TSC of the next check */
	bool learnt;	 /**< the message that all sources are learnt was logged */
	bool odd_logged; /**< the message about SOURCE_ORDER_ODD was logged */
	uint32_t odd;	 /**< checks in a row with SOURCE_ORDER_ODD */
	uint32_t changes[DETECTOR_STREAMS_MAX];	 /**< source.changes, as logged */
	uint32_t contests[DETECTOR_STREAMS_MAX]; /**< source.contests, as logged */
	uint64_t rejected[DETECTOR_STREAMS_MAX]; /**< source.nb_rejected, as logged */
};

/** Log changes, at most once a second unless `now`. Not to be called by an RX lcore. */
void sources_log(const struct sources *all, struct source_watch *watch, bool now);

/**
 * Return true if two modules send to the UDP port of a stream: if the sources of its last contest
 * announce different positions.
 * @param text  out: describes them and the remedy; unchanged if false
 */
bool source_is_shared(const struct source *st, uint32_t stream, char *text, size_t size);

/**
 * Describe the last packet of a stream that was dropped as foreign: its sender, the fields that
 * differ from the configured or learnt ones, the expected values, and the remedy.
 * @param text  out: "10.0.0.1 (00:11:22:33:44:55), has source address 10.0.0.1, expected ..."
 */
void source_explain_rejected(const struct sources *all, uint32_t stream, const struct source *st,
	char *text, size_t size);

/**
 * Describe a stream that announces another position than expected, and the remedy.
 * @param expected  from sources_expected()
 * @param text      out
 * @return the other stream if the two look swapped, else `stream`
 */
uint32_t source_explain_position(const struct sources *all, uint32_t stream,
	const uint32_t expected[], char *text, size_t size);

/** Format a source: "10.0.0.1 (00:11:22:33:44:55)". @return text */
const char *source_text(const uint64_t words[SOURCE_WORDS], char *text, size_t size);

/** Format the destination's IP address. @return text */
const char *source_destination_text(const uint64_t words[SOURCE_WORDS], char *text, size_t size);

#endif /* SOURCES_H */
