/* SPDX-License-Identifier: BSD-3-Clause */
/* Overload levels, used when no store makes progress: hold, spill, refuse. */

#include <inttypes.h>

#include "egress/egress_private.h"
#include "fail_point.h"

#define RESULTS 32
#define REST_MS 1000		    /* pause after a batch was returned */
#define UNCUT	(UINT64_C(1) << 32) /* larger than any real count */
/* spilling ends when the journal is below half the level at which it began */
#define LOW_PART 2

const char *
egress_step_name(enum egress_step step)
{
	static const char *const names[EGRESS_STEPS] = {
		[EGRESS_HOLD] = "hold",
		[EGRESS_SPILL] = "spill",
		[EGRESS_REFUSE] = "refuse",
	};

	return names[step];
}

/* Return the bytes of the journal in use. */
static uint64_t
fill(const struct egress *e, uint64_t *room)
{
	struct journal_stats stats;

	journal_stats_get(e->ring, &stats);
	*room = stats.room;
	return stats.bytes;
}

static void
enter(struct egress *e, enum egress_step step)
{
	uint64_t room, used = fill(e, &room);

	if (step == e->overload.step)
		return;
	LOG(WARNING, "overload step %s -> %s: journal is %u %% full\n",
		egress_step_name(e->overload.step), egress_step_name(step),
		(unsigned int)(100 * used / room));
	SET(e->overload.step, step);
	ADD(e->view.steps[step], 1);
}

static bool
is_spilled(const struct egress *e, const struct journal_batch *b)
{
	return e->spill != NULL && spill_has(e->spill, b->run, b->table, b->sequence);
}

/*
 * Settle a batch that a dead process held while spilling it: it is in its files, or it is assigned
 * again.
 */
static void
settle(struct egress *e, uint32_t batch, const struct journal_batch *b)
{
	if (is_spilled(e, b)) {
		ADD(e->view.adopted_spilled, 1);
		journal_release_spilled(e->ring, batch);
	} else {
		journal_assign(e->ring, batch, JOURNAL_NOBODY);
		e->unassigned = true;
	}
	FAIL_POINT("spill.adopted");
}

/* Find the runs with batches that were being spilled. */
static void
find_spilled(const struct egress *e, bool spilled[JOURNAL_RUNS])
{
	struct journal_batch b;
	uint32_t i;

	for (i = journal_next(e->ring, 0); i != UINT32_MAX; i = journal_next(e->ring, i + 1)) {
		if (journal_get(e->ring, i, &b))
			spilled[b.run] |= b.owner == JOURNAL_SPILL;
	}
}

/*
 * A batch imported from spill files may also be at the store that had it. A store that is told of a
 * reassigned batch also truncates all later ones. Stores are therefore told nothing more about this
 * run.
 */
static void
forget_doubts(struct egress *e, unsigned int index, const struct journal_run *run)
{
	if (e->spill == NULL)
		LOG(WARNING,
			"run %s, incarnation %016" PRIx64 ": part of it was spilled, but "
			"[egress] spill is not set. Stores get the batches of the journal and "
			"keep all that they have. Import the spilled files, then run "
			"braggline-store reconcile\n",
			run->name, run->incarnation);
	else
		LOG(WARNING,
			"run %s, incarnation %016" PRIx64 ": part of its spilled batches has "
			"been imported. Stores keep what they have of it. Import the rest, then "
			"run braggline-store reconcile\n",
			run->name, run->incarnation);
	journal_forget_doubts(e->ring, index);
	FAIL_POINT("spill.forgotten");
}

/* Count the batches that are in the files and not in the journal. */
static uint64_t
count_released(const struct egress *e, unsigned int index)
{
	uint64_t batches = spill_batches(e->spill, index);
	struct journal_batch b;
	uint32_t batch, at = 0;

	while ((batch = journal_walk(e->ring, &at)) != UINT32_MAX) {
		if (journal_get(e->ring, batch, &b) && b.run == index)
			batches -= is_spilled(e, &b);
	}
	return batches;
}

/*
 * Held batches that are also in a file are about to be released. Check that they are intact there;
 * the file otherwise no longer contains them.
 */
static int
check_spilled(const struct egress *e, unsigned int index)
{
	struct interval_set held[XFER_TABLES] = {0};
	struct journal_batch b;
	uint32_t batch, at = 0;
	unsigned int i;
	int rc = 0;

	while (rc == 0 && (batch = journal_walk(e->ring, &at)) != UINT32_MAX) {
		if (journal_get(e->ring, batch, &b) && b.run == index)
			rc = interval_set_add(&held[b.table], b.sequence, b.sequence);
	}
	for (i = 0; i < XFER_TABLES; i++) {
		if (rc == 0)
			rc = spill_check(e->spill, index, i, &held[i]);
		interval_set_free(&held[i]);
	}
	return rc;
}

/*
 * Check whether all spilled and released batches are in the files, or whether some were imported
 * meanwhile. The batches in the journal do not tell, because released ones are removed from it
 * unless in doubt. The expected number does.
 */
static int
adopt_run(struct egress *e, unsigned int index, const struct journal_run *run)
{
	uint64_t batches = 0;
	int rc;

	if (e->spill != NULL) {
		rc = spill_adopt_run(e->spill, index, run);
		if (rc == 0)
			rc = check_spilled(e, index);
		if (rc < 0)
			return rc;
		batches = count_released(e, index);
	}
	if (batches < run->spilled)
		forget_doubts(e, index, run);
	/* Last: a process that dies before this finds the same state again. */
	journal_run_spilled(e->ring, index, batches);
	return 0;
}

int
egress_adopt_spilled(struct egress *e)
{
	bool spilled[JOURNAL_RUNS] = {false};
	struct journal_batch b;
	struct journal_run run;
	uint32_t i, at = 0;
	int rc;

	find_spilled(e, spilled);
	for (i = 0; i < JOURNAL_RUNS; i++) {
		if (!journal_run_get(e->ring, i, &run))
			continue;
		/*
		 * Include runs whose batches were not counted. A receiver without [egress] spill
		 * removed the doubts, or reconcile released them. Their batches would hide others
		 * that are imported.
		 */
		if (!spilled[i] && run.spilled == 0 &&
			(e->spill == NULL || !spill_was(e->spill, &run)))
			continue;
		rc = adopt_run(e, i, &run);
		if (rc < 0)
			return rc;
	}
	while ((i = journal_walk(e->ring, &at)) != UINT32_MAX) {
		if (journal_get(e->ring, i, &b) && b.owner == JOURNAL_SPILL)
			settle(e, i, &b);
	}
	return 0;
}

/*
 * A file may contain batches that were returned. They were not counted, so they would hide as many
 * imported ones. Store a count that files never reach; the next receiver that adopts the journal
 * then forgets the doubts. At worst there are duplicates, which reconcile finds.
 */
static void
look_for_uncut(struct egress *e)
{
	struct journal_run run;
	unsigned int i;
	uint32_t uncut;

	for (i = 0; i < JOURNAL_RUNS; i++) {
		uncut = spill_uncut(e->spill, i);
		if (uncut == e->overload.uncut[i])
			continue;
		e->overload.uncut[i] = uncut;
		if (journal_run_get(e->ring, i, &run) && run.spilled < UNCUT)
			journal_run_spilled(e->ring, i, run.spilled + UNCUT);
	}
}

static bool
take_results(struct egress *e, uint64_t now)
{
	struct spill_result result[RESULTS];
	struct journal_batch b;
	unsigned int i, n;

	n = spill_results(e->spill, result, RESULTS);
	for (i = 0; i < n; i++) {
		if (!journal_get(e->ring, result[i].batch, &b))
			continue;
		e->overload.in_spill -= XFER_BLOCK + b.body_bytes;
		if (result[i].durable) {
			FAIL_POINT("spill.result");
			journal_release_spilled(e->ring, result[i].batch);
			egress_known(e, result[i].batch, true);
			ADD(e->overload.progress, 1);
			continue;
		}
		journal_assign(e->ring, result[i].batch, JOURNAL_NOBODY);
		e->unassigned = true;
		e->overload.rest_until = now + REST_MS;
	}
	return n > 0;
}

/*
 * Return true if a batch may be spilled. A batch that a store has, or may have while it is
 * connected, stays with that store.
 */
static bool
may_spill(const struct egress *e, const struct journal_batch *b)
{
	const struct store_client *sender = egress_sender_of(e, b);

	if (b->owner == JOURNAL_SPILL || !e->run[b->run].used || e->run[b->run].retiring)
		return false;
	return sender == NULL || (b->given & 1u << b->owner) == 0 || store_client_is_down(sender);
}

/* Oldest batches first, because they block the space of later ones. */
static bool
put_batches(struct egress *e, uint64_t enough)
{
	struct journal_batch b;
	struct journal_run run;
	uint32_t batch, at = 0;
	bool busy = false;

	while (e->overload.in_spill < enough && spill_has_room(e->spill) &&
		(batch = journal_walk(e->ring, &at)) != UINT32_MAX) {
		if (!journal_get(e->ring, batch, &b) || !may_spill(e, &b) ||
			!journal_run_get(e->ring, b.run, &run))
			continue;
		/*
		 * First record this in the journal: a receiver that adopts it must know that the
		 * batch may be in a file.
		 */
		journal_assign(e->ring, batch, JOURNAL_SPILL);
		FAIL_POINT("spill.assigned");
		spill_put(e->spill, batch, &b, &run);
		e->overload.in_spill += XFER_BLOCK + b.body_bytes;
		busy = true;
	}
	return busy;
}

/* Update how full the journal is, and since when. */
static void
climb(struct egress *e, uint64_t now)
{
	struct overload *l = &e->overload;
	uint64_t room, used = fill(e, &room);
	const uint64_t mark = room / 100 * e->settings.spill_at;
	const uint64_t refused = __atomic_load_n(&l->refused, __ATOMIC_RELAXED);
	const bool full = __atomic_load_n(&l->full, __ATOMIC_RELAXED);

	if (refused != l->refused_seen) {
		l->refused_seen = refused;
		enter(e, EGRESS_REFUSE);
	}
	if (used < mark && !full)
		l->above_since = 0;
	else if (l->above_since == 0)
		l->above_since = now;
	if (l->step != EGRESS_HOLD && used < mark / LOW_PART && !full) {
		enter(e, EGRESS_HOLD);
		if (e->spill != NULL)
			spill_pause(e->spill);
	} else if (l->step == EGRESS_HOLD && e->spill != NULL && l->above_since != 0 &&
		now - l->above_since >= e->settings.hold_ms / 2) {
		enter(e, EGRESS_SPILL);
	}
}

bool
egress_spill_turn(struct egress *e, uint64_t now)
{
	const bool results = e->spill != NULL && take_results(e, now);
	uint64_t room, used;

	if (!results && now < e->overload.next_check)
		return false;
	e->overload.next_check = now + 1;
	if (e->spill != NULL)
		look_for_uncut(e);
	climb(e, now);
	if (e->spill == NULL || e->overload.step == EGRESS_HOLD || now < e->overload.rest_until)
		return results;
	used = fill(e, &room);
	return put_batches(e, used - used / LOW_PART) || results;
}
