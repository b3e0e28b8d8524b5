/* SPDX-License-Identifier: BSD-3-Clause */

#include <inttypes.h>

#include "egress/adopt_spilled.h"
#include "fail_point.h"
#include "interval_set.h"
#include "log.h"

LOG_REGISTER("egress", "egress");

struct adoption {
	struct journal *journal;
	struct spill *spill; /* NULL: none */
	uint64_t in_files;   /* batches of the journal that are in files */
};

/* Return true if a batch of this number is in a file. */
static bool
is_spilled(const struct adoption *a, const struct journal_batch *b)
{
	return a->spill != NULL && spill_has(a->spill, b);
}

/*
 * Resolve a batch that a killed process was spilling. If it is in a spill file, release it; if not,
 * mark it as unassigned, so that a store gets it.
 */
static void
settle(struct adoption *a, uint32_t batch, const struct journal_batch *b)
{
	if (a->spill != NULL && spill_has_same(a->spill, b)) {
		a->in_files++;
		journal_release_spilled(a->journal, batch);
	} else {
		journal_assign(a->journal, batch, JOURNAL_NOBODY);
	}
	FAIL_POINT("spill.adopted");
}

/* Find the runs with batches that were being spilled. */
static void
find_spilled(const struct adoption *a, bool spilled[JOURNAL_RUNS])
{
	struct journal_batch b;
	uint32_t i;

	for (i = journal_next(a->journal, 0); i != UINT32_MAX;
		i = journal_next(a->journal, i + 1)) {
		if (journal_get(a->journal, i, &b))
			spilled[b.run] |= b.owner == JOURNAL_SPILL;
	}
}

/*
 * Batches of this run were imported from spill files, or may have been. The store that had such a
 * batch before may still have it. A store truncates its file at the first batch that is reported as
 * reassigned, and removes all later ones. Stores therefore get no more reports about this run.
 */
static void
forget_doubts(struct adoption *a, unsigned int index, const struct journal_run *run)
{
	if (run->spilled_lost)
		LOG(ERR,
			"run %s, incarnation %016" PRIx64 ": the number of its spilled batches in "
			"the journal is damaged, so some of them may have been imported. Stores "
			"keep what they have of it. Import the spilled files, then run "
			"braggline-store reconcile\n",
			run->name, run->incarnation);
	else if (a->spill == NULL)
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
	journal_forget_doubts(a->journal, index);
	FAIL_POINT("spill.forgotten");
}

/* Count the batches that are in the files and not in the journal. */
static uint64_t
count_released(const struct adoption *a, unsigned int index)
{
	uint64_t batches = spill_batches(a->spill, index);
	struct journal_batch b;
	uint32_t batch, at = 0;

	while ((batch = journal_walk(a->journal, &at)) != UINT32_MAX) {
		if (journal_get(a->journal, batch, &b) && b.run == index)
			batches -= is_spilled(a, &b);
	}
	return batches;
}

/*
 * Held batches that are also in a file are about to be released. Check that they are intact there;
 * the file otherwise no longer contains them.
 */
static int
check_spilled(const struct adoption *a, unsigned int index)
{
	struct interval_set held[XFER_TABLES] = {0};
	struct journal_batch b;
	uint32_t batch, at = 0;
	unsigned int i;
	int ret = 0;

	while (ret == 0 && (batch = journal_walk(a->journal, &at)) != UINT32_MAX) {
		if (journal_get(a->journal, batch, &b) && b.run == index)
			ret = interval_set_add(&held[b.table], b.sequence, b.sequence);
	}
	for (i = 0; i < XFER_TABLES; i++) {
		if (ret == 0)
			ret = spill_check(a->spill, index, i, &held[i]);
		interval_set_free(&held[i]);
	}
	return ret;
}

/*
 * Check whether all spilled and released batches are in the files, or whether some were imported
 * meanwhile. The batches in the journal do not show this, because released ones are removed from
 * it unless they are in doubt. The number of batches that the files should have does.
 */
static int
adopt_run(struct adoption *a, unsigned int index, const struct journal_run *run)
{
	uint64_t batches = 0;
	int ret;

	if (a->spill != NULL) {
		ret = spill_adopt_run(a->spill, index, run);
		if (ret == 0)
			ret = check_spilled(a, index);
		if (ret < 0)
			return ret;
		batches = count_released(a, index);
	}
	if (batches < run->spilled)
		forget_doubts(a, index, run);
	/* Last: a process that dies before this finds the same state again. */
	journal_run_spilled(a->journal, index, batches);
	return 0;
}

int
adopt_spilled(struct journal *journal, struct spill *spill, uint64_t *in_files)
{
	struct adoption adoption = {journal, spill, 0}, *a = &adoption;
	bool spilled[JOURNAL_RUNS] = {false};
	struct journal_batch b;
	struct journal_run run;
	uint32_t i, at = 0;
	int ret;

	find_spilled(a, spilled);
	for (i = 0; i < JOURNAL_RUNS; i++) {
		if (!journal_run_get(a->journal, i, &run))
			continue;
		/*
		 * Include runs whose batches were not counted. A receiver without [egress] spill
		 * removed the records of batches in doubt, or reconcile released them. These
		 * batches would hide others that are imported.
		 */
		if (!spilled[i] && run.spilled == 0 &&
			(a->spill == NULL || !spill_was(a->spill, &run)))
			continue;
		ret = adopt_run(a, i, &run);
		if (ret < 0)
			return ret;
	}
	while ((i = journal_walk(a->journal, &at)) != UINT32_MAX) {
		if (journal_get(a->journal, i, &b) && b.owner == JOURNAL_SPILL)
			settle(a, i, &b);
	}
	*in_files = a->in_files;
	return 0;
}
