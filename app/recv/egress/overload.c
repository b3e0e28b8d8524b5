/* SPDX-License-Identifier: BSD-3-Clause */

#include <inttypes.h>

#include "arrow/tables.h"
#include "counter.h"
#include "egress/overload.h"
#include "fail_point.h"
#include "log.h"

LOG_REGISTER("egress", "egress");

#define RESULTS	       32
#define SPILL_PAUSE_MS 1000 /* pause after a batch was returned */
/* spilling ends when the journal is below half the level at which it began */
#define LOW_PART 2

const char *
egress_level_name(enum egress_level level)
{
	static const char *const names[EGRESS_LEVELS] = {
		[EGRESS_HOLD] = "hold",
		[EGRESS_SPILL] = "spill",
		[EGRESS_REFUSE] = "refuse",
	};

	return names[level];
}

void
overload_init(struct overload *o, const struct overload_config *config)
{
	*o = (struct overload){.config = *config, .level = EGRESS_HOLD};
}

/* Return the bytes of the journal in use. */
static uint64_t
fill(const struct overload *o, uint64_t *room)
{
	struct journal_stats stats;

	journal_stats_get(o->config.journal, &stats);
	*room = stats.room;
	return stats.bytes;
}

static void
enter(struct overload *o, enum egress_level level)
{
	uint64_t room, used = fill(o, &room);

	if (level == o->level)
		return;
	LOG(WARNING, "overload level %s -> %s: journal is %u %% full\n",
		egress_level_name(o->level), egress_level_name(level),
		(unsigned int)(100 * used / room));
	o->level = level;
	o->entered[level]++;
}

/*
 * A file may contain batches that were returned. They are not in the count of spilled batches, so
 * as many imported batches would not be noticed. The next receiver that adopts the journal then
 * discards the records of batches in doubt. At worst there are duplicates, which reconcile finds.
 */
static void
note_uncut(struct overload *o)
{
	struct journal_run run;
	unsigned int i;
	uint32_t uncut;

	for (i = 0; i < JOURNAL_RUNS; i++) {
		uncut = spill_uncut(o->config.spill, i);
		if (uncut == o->uncut[i])
			continue;
		o->uncut[i] = uncut;
		if (journal_run_get(o->config.journal, i, &run))
			journal_run_spilled(o->config.journal, i, JOURNAL_UNCOUNTED);
	}
}

/* A damaged batch was spilled: a store that may have a good copy must not truncate it. */
static void
keep_copies(struct overload *o, uint32_t batch, const struct journal_batch *b)
{
	LOG(ERR,
		"batch %" PRIu64 " of %s (frames %" PRIu64 " to %" PRIu64 ") is damaged in the "
		"memory of this receiver; it was spilled as it is, and copies in stores stay\n",
		b->sequence, arrow_table_name(b->table), b->first, b->last);
	journal_keep_copies(o->config.journal, batch);
}

static bool
take_results(struct overload *o, uint64_t now)
{
	struct spill_result result[RESULTS];
	struct journal_batch b;
	unsigned int i, n;

	n = spill_results(o->config.spill, result, RESULTS);
	for (i = 0; i < n; i++) {
		if (!journal_get(o->config.journal, result[i].batch, &b))
			continue;
		o->in_spill -= XFER_BLOCK + b.body_bytes;
		if (result[i].durable) {
			FAIL_POINT("spill.result");
			if (result[i].damaged)
				keep_copies(o, result[i].batch, &b);
			journal_release_spilled(o->config.journal, result[i].batch);
			o->config.spilled(o->config.arg, result[i].batch);
			counter_add(&o->nb_spilled, 1);
			continue;
		}
		journal_assign(o->config.journal, result[i].batch, JOURNAL_NOBODY);
		o->config.returned(o->config.arg);
		o->paused_until = now + SPILL_PAUSE_MS;
	}
	return n > 0;
}

/* Oldest batches first, because they block the space of later ones. */
static bool
put_batches(struct overload *o, uint64_t enough)
{
	struct journal_batch b;
	struct journal_run run;
	uint32_t batch, at = 0;
	bool busy = false;

	while (o->in_spill < enough && spill_has_room(o->config.spill) &&
		(batch = journal_walk(o->config.journal, &at)) != UINT32_MAX) {
		if (!journal_get(o->config.journal, batch, &b) ||
			!o->config.may_spill(o->config.arg, &b) ||
			!journal_run_get(o->config.journal, b.run, &run) ||
			!journal_check(o->config.journal, batch))
			continue;
		/*
		 * First record this in the journal: a receiver that adopts it must know that the
		 * batch may be in a file.
		 */
		journal_assign(o->config.journal, batch, JOURNAL_SPILL);
		FAIL_POINT("spill.assigned");
		spill_put(o->config.spill, batch, &b, &run);
		o->in_spill += XFER_BLOCK + b.body_bytes;
		busy = true;
	}
	return busy;
}

/* Note how full the journal is, and since when, and change the level accordingly. */
static void
update_level(struct overload *o, uint64_t now)
{
	uint64_t room, used = fill(o, &room);
	const uint64_t mark = room / 100 * o->config.percent;
	const uint64_t refused = counter_get(&o->refused);
	const bool full = __atomic_load_n(&o->full, __ATOMIC_RELAXED);

	if (refused != o->refused_seen) {
		o->refused_seen = refused;
		enter(o, EGRESS_REFUSE);
	}
	if (used < mark && !full)
		o->above_since = 0;
	else if (o->above_since == 0)
		o->above_since = now;
	if (o->level != EGRESS_HOLD && used < mark / LOW_PART && !full) {
		enter(o, EGRESS_HOLD);
		if (o->config.spill != NULL)
			spill_pause(o->config.spill);
	} else if (o->level == EGRESS_HOLD && o->config.spill != NULL && o->above_since != 0 &&
		now - o->above_since >= o->config.hold_ms / 2) {
		enter(o, EGRESS_SPILL);
	}
}

bool
overload_poll(struct overload *o, uint64_t now)
{
	const bool results = o->config.spill != NULL && take_results(o, now);
	uint64_t room, used;

	if (!results && now < o->next_check)
		return false;
	o->next_check = now + 1;
	if (o->config.spill != NULL)
		note_uncut(o);
	update_level(o, now);
	if (o->config.spill == NULL || o->level == EGRESS_HOLD || now < o->paused_until)
		return results;
	used = fill(o, &room);
	return put_batches(o, used - used / LOW_PART) || results;
}

bool
overload_spills(const struct overload *o)
{
	return o->config.spill != NULL && o->level != EGRESS_HOLD;
}

void
overload_note_room(struct overload *o, bool found)
{
	COUNTER_SET(o->full, !found);
}

void
overload_note_refused(struct overload *o)
{
	counter_add(&o->refused, 1);
}

uint64_t
overload_spilled(const struct overload *o)
{
	return counter_get(&o->nb_spilled);
}
