/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The ledger: every frame and every packet in exactly one column, and the columns add up.
 */
#ifndef LEDGER_H
#define LEDGER_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "frame_record.h"
#include "pipeline.h"
#include "rx/rx.h"

/** Columns of frames, in the order of a ledger's `[frames]`. */
#define LEDGER_COLUMNS 22
#define LEDGER_FRAMES  0 /**< the column of all */

/** What of a run's ledger outlives the process, in its journal: README.rst. */
struct ledger_kept {
	uint32_t version;	 /**< LEDGER_KEPT_VERSION */
	uint32_t running;	 /**< the run has not ended in order */
	uint64_t run;		 /**< its number */
	uint64_t incarnation;	 /**< of its batches */
	uint64_t stride;	 /**< of its frame numbers */
	int64_t written;	 /**< ns since 1970 */
	uint64_t first_frame;	 /**< that was closed, 0: none */
	uint64_t last_frame;	 /**< the last one, 0: none */
	uint64_t retained_frame; /**< last one whose row of `frames` is in the journal, 0: none */
	uint64_t columns[LEDGER_COLUMNS]; /**< when it was written */
	/** Of frames up to retained_frame, by their rows: ledger_tally() of all batches. */
	uint64_t retained[LEDGER_COLUMNS];
	/** A batch of `frames` is being put: if it is there, this is what is retained. */
	uint64_t next_sequence; /**< of that batch, or LEDGER_NONE */
	uint64_t next_frame;
	uint64_t next[LEDGER_COLUMNS];
	uint64_t receivers; /**< of the same run that have died before this one, and */
	uint64_t earlier[LEDGER_COLUMNS]; /**< the sum of their ledgers */
	char name[72];			  /**< of the run */
	char directory[2048];		  /**< where its ledger is written */
};

#define LEDGER_KEPT_VERSION 3
#define LEDGER_NONE	    UINT64_MAX

struct ledger {
	/* frames, by outcome */
	uint64_t frames;	 /**< that the detector sent, as far as numbers tell */
	uint64_t stored;	 /**< kept, and in a file */
	uint64_t held;		 /**< kept, in the journal: sent when a store takes them */
	uint64_t spilled;	 /**< kept, in files of our own, to be imported into a store */
	uint64_t unwritten;	 /**< kept, but the file system failed, or the journal was full */
	uint64_t unwritten_rows; /**< of `frames`, the file system failed */
	uint64_t vetoed;
	uint64_t incomplete;	  /**< dropped because packets were missing */
	uint64_t lost;		  /**< no packet arrived */
	uint64_t refused;	  /**< no room when they had to be opened */
	uint64_t aborted;	  /**< thrown away when the run was aborted */
	uint64_t lost_at_restart; /**< known to a receiver that died, and to nobody since */
	uint64_t lost_while_down; /**< between its last one and our first */
	uint64_t late_frames;	  /**< named by packets that were late or outliers: no row */
	uint64_t in_flight;
	/* of the frames above */
	uint64_t hits;
	uint64_t prescaled;
	uint64_t dry_run;
	uint64_t unretained; /**< of those unwritten: no room in the journal */
	uint64_t incomplete_kept;
	uint64_t missing_packets;
	uint64_t timeouts;
	uint64_t frame_packets; /**< found in frames */
	uint64_t records;	/**< that egress has taken */
	/* packets, by outcome (enum rx_counter) */
	uint64_t packets[RX_COUNTERS];
	uint64_t ports[PORT_DROPS]; /**< what never got to RX: not among `packets` */
	bool frames_balance;	    /**< the outcomes add up to the frames */
	bool packets_balance; /**< the outcomes add up to the packets; if nothing is on its way */
	bool placed_balance;  /**< what RX placed is what frames had */
};

/**
 * Collect the counters of all parts. Any thread; exact once nothing is on its way.
 * @param writer  of the run at hand, NULL if there is none
 */
void ledger_read(struct ledger *l, const struct pipeline *p, const struct file_writer *writer);

/** Leave what came after `before` was read: a run's share. Files are the run's own already. */
void ledger_since(struct ledger *l, const struct ledger *before);

/** @param i  0 to LEDGER_COLUMNS - 1, in their order */
const char *ledger_column_name(uint32_t i);
uint64_t ledger_column(const struct ledger *l, uint32_t i);

/** Nothing is on its way, and all of frames adds up. */
bool ledger_balanced(const struct ledger *l);

/** Columns that are kept. */
void ledger_keep(const struct ledger *l, struct ledger_kept *kept);

/**
 * Add what is missing since a receiver died in the middle of this run.
 * @param before  its ledger
 * @param first   first frame of ours, 0: there is none yet
 */
void ledger_resume(struct ledger *l, const struct ledger_kept *before, uint64_t first);

/** Of a receiver that has seen no frame yet: who comes next resumes from what it has found. */
void ledger_pass_on(struct ledger_kept *kept, const struct ledger_kept *before);

/**
 * The first rows of a receiver are put: what was lost before them is kept with them. Once for
 * what is kept; nothing is done if its columns tell of frames of the receiver already.
 * @param first  first frame that it has closed
 * @param last   last one of those rows
 */
void ledger_begin(struct ledger_kept *kept, uint64_t first, uint64_t last);

/** Add what the rows of a batch of `frames` say. @param modules  of the detector */
void ledger_tally(uint64_t columns[LEDGER_COLUMNS], const struct batch *b, uint32_t modules);

/**
 * The last ledger of a receiver that died, as its ring tells it.
 * @param held     kept rows that the ring holds for stores
 * @param resumed  the next one goes on with the run: what is lost in between is in its ledger
 */
void ledger_of_dead(struct ledger *l, const struct ledger_kept *dead, uint64_t held, bool resumed);

/** What was held for stores is there by now. */
void ledger_held_is_stored(uint64_t columns[LEDGER_COLUMNS]);

/** Print as aligned lines of name and number, with shares. */
void ledger_print(const struct ledger *l, FILE *out);

/** Thresholds of a run from a frame on: the `veto_version` of rows in `frames`. */
struct ledger_veto {
	uint64_t from_frame; /**< 0: from the run's first frame */
	struct builder_veto veto;
};

/** Ledgers of a run: of so many receivers that went on with it. */
#define LEDGER_FILES_MAX 10000

/** Whose ledger it is. */
struct ledger_receiver {
	uint64_t incarnation; /**< of its batches */
	bool died;	      /**< its successor writes this: of packets nothing is known */
	uint64_t receivers;   /**< of the same run before it */
	uint64_t earlier[LEDGER_COLUMNS]; /**< the sum of theirs */
};

/**
 * Write as `[receiver]`, `[frames]`, `[packets]`, `[ports]`, `[veto VERSION]` and `[run]` sections
 * of name = value; `[run]` is the sum of this and all earlier receivers of the run. The file is
 * RUN_ledger.ini or, as none is overwritten, the first of RUN_ledger.2.ini, ...3.ini and so on that
 * is free; it appears whole, and durable. That of a receiver that died is written once, whoever
 * tries: the one of its incarnation that is there stays.
 * @param vetoes  thresholds in the order in which they came into force
 * @param path    out: the file
 * @return 0 or -errno (logged with the path)
 */
int ledger_write(const struct ledger *l, const struct ledger_receiver *receiver,
	const struct ledger_veto *vetoes, uint32_t nb_vetoes, const char *directory,
	const char *run, char path[PATH_MAX]);

#endif /* LEDGER_H */
