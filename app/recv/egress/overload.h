/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * What happens to batches that no store accepts: the overload levels hold, spill and refuse
 * (enum egress_level), and the batches that are being spilled.
 *
 * The egress lcore calls all functions, except overload_note_room() and overload_note_refused().
 * The writer calls these two and overload_spilled().
 */
#ifndef OVERLOAD_H
#define OVERLOAD_H

#include "egress/egress.h"
#include "egress/spill.h"

struct overload_config {
	struct journal *journal;
	struct spill *spill; /**< NULL: batches are not spilled */
	/** spilling begins when the journal has been fuller than `percent` for half of `hold_ms` */
	uint32_t percent;
	uint32_t hold_ms;
	/** whether a held batch may be spilled */
	bool (*may_spill)(void *arg, const struct journal_batch *batch);
	/** a batch was spilled, and is released */
	void (*spilled)(void *arg, uint32_t batch);
	/** a batch was returned, and has no owner again */
	void (*returned)(void *arg);
	void *arg;
};

/** Members belong to the lcore, unless something else is stated. The egress reads the first two. */
struct overload {
	enum egress_level level;
	uint64_t entered[EGRESS_LEVELS]; /**< number of times that each level was entered */
	struct overload_config config;
	/** ms: since when the journal is fuller than `percent`; 0: it is not */
	uint64_t above_since;
	uint64_t paused_until;	      /**< ms: end of a pause after batches were returned */
	uint64_t in_spill;	      /**< bytes being spilled */
	uint64_t nb_spilled;	      /**< batches ever spilled; atomic */
	uint64_t next_check;	      /**< ms */
	bool full;		      /**< atomic; of the writer: the last batch found no room */
	uint64_t refused;	      /**< atomic; of the writer: batches ever refused */
	uint64_t refused_seen;	      /**< of these, the lcore has noticed */
	uint32_t uncut[JOURNAL_RUNS]; /**< last seen value of spill_uncut() */
};

/** Begin at level hold. */
void overload_init(struct overload *o, const struct overload_config *config);

/**
 * Change the level if necessary, process the results of spilled batches, and spill the next ones.
 * @param now  ms. @return whether any work was done
 */
bool overload_poll(struct overload *o, uint64_t now);

/** Whether batches are spilled now. */
bool overload_spills(const struct overload *o);

/** The writer found room in the journal, or none. */
void overload_note_room(struct overload *o, bool found);

/** The writer has refused a batch. The lcore then enters level refuse. */
void overload_note_refused(struct overload *o);

/** @return number of batches ever spilled. It grows as spilling makes room in the journal */
uint64_t overload_spilled(const struct overload *o);

#endif /* OVERLOAD_H */
