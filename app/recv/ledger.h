/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The ledger: counters in which every frame and every packet belongs to exactly one column, so that
 * the columns add up to the totals.
 */
#ifndef LEDGER_H
#define LEDGER_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "arrow/tables.h"
#include "builder/veto.h"
#include "port/drops.h"
#include "rx/counters.h"

struct batch;

/** Number of columns of frames, in the order of the `[frames]` section of a ledger file. */
#define LEDGER_COLUMNS 22
#define LEDGER_FRAMES  0 /**< the column with the total */

/** The part of a run's ledger that outlives the process, in its journal; see egress/README.rst. */
struct ledger_kept {
	uint32_t version;	 /**< LEDGER_KEPT_VERSION */
	uint32_t running;	 /**< the run has not ended normally */
	uint64_t run;		 /**< run number */
	uint64_t incarnation;	 /**< incarnation in its batches */
	uint64_t stride;	 /**< stride of its frame numbers */
	int64_t written;	 /**< ns since 1970 */
	uint64_t first_frame;	 /**< first frame that was closed; 0: none */
	uint64_t last_frame;	 /**< last frame that was closed; 0: none */
	uint64_t retained_frame; /**< last frame with a row of `frames` in the journal; 0: none */
	uint64_t columns[LEDGER_COLUMNS]; /**< at the time `written` */
	/**
	 * Columns of the frames up to retained_frame, from their rows: ledger_tally() of all
	 * batches.
	 */
	uint64_t retained[LEDGER_COLUMNS];
	/**
	 * A batch of `frames` that is being put into the journal. If the journal contains it after
	 * a crash, next_frame and next[] replace retained_frame and retained[].
	 */
	uint64_t next_sequence; /**< sequence number of the batch, or LEDGER_NONE */
	uint64_t next_frame;
	uint64_t next[LEDGER_COLUMNS];
	uint64_t receivers;		  /**< receivers that died in this run before this one */
	uint64_t earlier[LEDGER_COLUMNS]; /**< sum of their ledgers */
	char name[72];			  /**< run name */
	char directory[2048];		  /**< where the run's ledger file is written */
	/**
	 * 1 + number of the damaged batch of the journal that was counted last: as long as the
	 * journal has this batch, it is counted already; 0: none
	 */
	uint64_t damaged_batch;
};

#define LEDGER_KEPT_VERSION 3
#define LEDGER_NONE	    UINT64_MAX

struct ledger {
	/* frames, by outcome */
	uint64_t frames;  /**< sent by the detector, from the frame numbers */
	uint64_t stored;  /**< kept, and in a file */
	uint64_t held;	  /**< kept, in the journal until a store accepts them */
	uint64_t spilled; /**< kept, in local spill files, to be imported into a store */
	/** kept, but the file system failed, or the journal was full or damaged */
	uint64_t unwritten;
	/** rows of `frames` lost because the file system failed, or damaged in the journal */
	uint64_t unwritten_rows;
	uint64_t vetoed;
	uint64_t incomplete;	  /**< dropped because packets were missing */
	uint64_t lost;		  /**< no packet arrived in time */
	uint64_t refused;	  /**< no free slot when they had to be opened */
	uint64_t aborted;	  /**< discarded when the run was aborted */
	uint64_t lost_at_restart; /**< received only by a receiver that died, and lost with it */
	uint64_t lost_while_down; /**< between its last frame and our first one */
	uint64_t late_frames;	  /**< only seen in late or outlying packets; without rows */
	uint64_t in_flight;
	/* of the frames above */
	uint64_t hits;
	uint64_t prescaled;
	uint64_t dry_run;
	uint64_t unretained; /**< unwritten frames for which the journal had no room */
	uint64_t incomplete_kept;
	uint64_t missing_packets;
	uint64_t timeouts;
	uint64_t frame_packets; /**< found in frames */
	uint64_t records;	/**< records that egress has accepted */
	/* packets that have an outcome, and their outcomes (enum rx_counter) */
	uint64_t packets[RX_COUNTERS];
	uint64_t ports[PORT_DROPS]; /**< lost before RX; not included in `packets` */
	bool frames_balance;	    /**< the outcomes add up to the frames */
	uint64_t pending; /**< packets that are received and have no outcome; not of the run only */
	uint64_t unfinished;  /**< RoCE packets of messages that are not complete; likewise */
	bool packets_balance; /**< the same for packets */
	bool placed_balance;  /**< RX placed as many packets as frames contained */
};

/** Compute the frames in flight, and whether the columns balance, after others have changed. */
void ledger_balance(struct ledger *l);

/** Subtract `before`, which leaves a run's share. Counters of files count only the current run. */
void ledger_since(struct ledger *l, const struct ledger *before);

/** @param i  0 to LEDGER_COLUMNS - 1, in their order */
const char *ledger_column_name(uint32_t i);
uint64_t ledger_column(const struct ledger *l, uint32_t i);

/** Return true if the columns of frames add up. Valid if no data is in progress. */
bool ledger_balanced(const struct ledger *l);

/** Copy the columns to the kept ledger. */
void ledger_keep(const struct ledger *l, struct ledger_kept *kept);

/**
 * Add the frames lost since a receiver died during this run.
 * @param before  kept ledger of that receiver
 * @param first   first frame of this receiver; 0: none yet
 */
void ledger_resume(struct ledger *l, const struct ledger_kept *before, uint64_t first);

/**
 * If this receiver has closed no frame yet, keep the last frames of the receiver before it. The
 * next receiver then counts losses from there.
 */
void ledger_pass_on(struct ledger_kept *kept, const struct ledger_kept *before);

/**
 * Account for the frames lost before the first rows of this receiver, in the kept ledger. Call this
 * when these rows are put into the journal. Does nothing if the kept columns already contain frames
 * of this receiver.
 * @param first  first frame that it has closed
 * @param last   last frame of these rows
 */
void ledger_begin(struct ledger_kept *kept, uint64_t first, uint64_t last);

/** Add the rows of a batch of `frames`. @param modules  number of modules of the detector */
void ledger_tally(uint64_t columns[LEDGER_COLUMNS], const struct batch *b, uint32_t modules);

/**
 * Compute the final ledger of a receiver that died from its journal.
 * @param held     kept rows that are in the journal and not at a store
 * @param resumed  the next receiver continues the run, and accounts for the losses in between
 */
void ledger_of_dead(struct ledger *l, const struct ledger_kept *dead, uint64_t held, bool resumed);

/**
 * Count the rows of a batch that is damaged in the journal, and was not at a store.
 * @param written  the ledger was written; it counted the images as held
 */
void ledger_count_damaged(
	uint64_t columns[LEDGER_COLUMNS], enum arrow_table table, uint64_t rows, bool written);

/** Move the rows held for stores to the stored ones, because stores have them now. */
void ledger_held_is_stored(uint64_t columns[LEDGER_COLUMNS]);

/**
 * Print aligned lines with name, number and share.
 * @param refuses  frames are refused if no slot is free: [frames] backpressure
 */
void ledger_print(const struct ledger *l, bool dark_run, bool refuses, FILE *out);

/** Thresholds of a run from one frame on. The rows of `frames` refer to them by `veto_version`. */
struct ledger_veto {
	uint64_t from_frame; /**< 0: from the run's first frame */
	struct builder_veto veto;
};

/** Maximum number of ledger files of a run, one for each receiver that continued it. */
#define LEDGER_FILES_MAX 10000

/** The receiver that a ledger describes. */
struct ledger_receiver {
	uint64_t incarnation; /**< incarnation in its batches */
	bool died;	      /**< written by the next receiver, without packet counters */
	uint64_t receivers;   /**< receivers of the same run before it */
	uint64_t earlier[LEDGER_COLUMNS]; /**< sum of their ledgers */
};

/**
 * Write a ledger file with the sections `[receiver]`, `[frames]`, `[packets]`, `[ports]`, `[veto
 * VERSION]` and `[run]`, which contain lines of name = value. `[run]` is the sum of this and all
 * earlier receivers of the run.
 *
 * No file is overwritten: the name is RUN_ledger.ini or, if it exists, the first free one of
 * RUN_ledger.2.ini, RUN_ledger.3.ini and so on. The file appears complete and durable. The ledger
 * of a receiver that died is written only once: an existing file with its incarnation is kept.
 * @param vetoes  thresholds in the order in which they took effect
 * @param path    out: the file
 * @return 0 or -errno (logged with the path)
 */
int ledger_write(const struct ledger *l, const struct ledger_receiver *receiver,
	const struct ledger_veto *vetoes, uint32_t nb_vetoes, const char *directory,
	const char *run, char path[PATH_MAX]);

#endif /* LEDGER_H */
