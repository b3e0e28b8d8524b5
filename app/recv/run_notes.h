/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Warnings about a run that follow from its counters: rows that are not written, frames with
 * another status of the detector or with different bunch ids, slots that waited for modules, fewer
 * frames than requested, and masked pixels of a dark run. run_watch.h has those about packets.
 *
 * The service thread calls these functions while it holds the run's lock.
 */
#ifndef RUN_NOTES_H
#define RUN_NOTES_H

#include <stdbool.h>
#include <stdint.h>

struct builder_stats;
struct detector;
struct frame_run;
struct run_writer;

#define RUN_NOTE_SIZE 640

enum run_note {
	RUN_NOTE_UNWRITTEN, /**< kept frames or rows that are in no file; the writer logs it */
	RUN_NOTE_STATUS,    /**< frames of another storage cell or gain mode; logged once per run */
	RUN_NOTE_BUNCH,	    /**< frames of modules with different bunch ids; logged once per run */
	/** slots were short, because modules were behind; logged once per run */
	RUN_NOTE_SLOTS,
	/** fewer frames than [run] frames arrived; logged at the end of the run */
	RUN_NOTE_FRAMES,
	RUN_NOTE_DARK, /**< a dark run masks many pixels; set and logged by the run */
	RUN_NOTES
};

struct run_notes {
	const struct detector *detector;
	uint64_t closed;		     /**< builder_stats.closed before the run */
	uint64_t mismatch;		     /**< builder_stats.status_mismatch before the run */
	uint64_t bunch_mismatch;	     /**< the same of builder_stats.bunch_mismatch */
	uint64_t closed_early;		     /**< ... of builder_stats.closed_early */
	uint64_t refused_behind;	     /**< ... and of refused_behind */
	uint64_t next_check;		     /**< TSC */
	char text[RUN_NOTES][RUN_NOTE_SIZE]; /**< "": none */
};

/** Start a new run. @param stats  counters before the run */
void run_notes_begin(
	struct run_notes *n, const struct detector *d, const struct builder_stats *stats);

/** Return true if a check is due. Checks are due four times a second. */
bool run_notes_due(struct run_notes *n);

/** Check the frames' status. @param now  the run ends: a single frame is enough */
void run_notes_status(struct run_notes *n, const struct builder_stats *stats, bool now);

/** Check the frames' bunch ids. @param now  the run ends: a single frame is enough */
void run_notes_bunch(struct run_notes *n, const struct builder_stats *stats, bool now);

/** Check for frames that were closed early or refused because modules were behind. */
void run_notes_slots(struct run_notes *n, const struct builder_stats *stats);

/** The run has ended: compare its number of frames with [run] frames. */
void run_notes_frames(
	struct run_notes *n, const struct builder_stats *stats, const struct frame_run *run);

/** Check for rows that are not written. @param stores they go to stores, not to local files */
void run_notes_unwritten(struct run_notes *n, const struct run_writer *writer, bool stores);

#endif /* RUN_NOTES_H */
