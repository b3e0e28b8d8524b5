/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Damage of the journal: damaged batches are saved in a file and then dropped, and records that
 * were corrected are logged.
 */

#include <errno.h>
#include <inttypes.h>

#include "egress/egress_private.h"
#include "log.h"
#include "xfer/qp.h"

LOG_REGISTER("egress", "egress");

#define REMOVE_MS 1000 /* interval of attempts to save damaged batches */

static void
note_doubts(struct egress *e, const struct damaged_batches *damaged)
{
	__atomic_fetch_add(&e->lost_doubts, damaged->doubts, __ATOMIC_RELAXED);
}

/* The thread `save`: save the damaged batches. */
static int
save_damaged(void *arg)
{
	const struct egress *e = arg;

	return damaged_batches_save(&e->damaged_list, egress_quarantine(e));
}

int
egress_damage_open(struct egress *e)
{
	struct damaged_batches damaged;
	struct journal_stats stats;
	int ret;

	e->save.work = save_damaged;
	e->save.arg = e;
	journal_stats_get(e->journal, &stats);
	e->corrected = stats.corrected;
	if (stats.corrected > 0)
		LOG(WARNING,
			"journal %s: %" PRIu64 " records with a wrong bit or a damaged copy were "
			"corrected; check the memory of this machine\n",
			e->settings.journal, stats.corrected);
	if (journal_ledger_is_lost(e->journal))
		LOG(ERR,
			"journal %s: both copies of the ledger of the previous receiver are "
			"damaged. If it was killed, its frames are in no ledger; count them with "
			"braggline-scan in the directories of the stores\n",
			e->settings.journal);
	ret = damaged_batches_remove(e->journal, egress_quarantine(e), &e->previous, &damaged);
	if (ret < 0)
		return ret;
	e->previous_damaged = damaged.batches > 0 || journal_ledger_is_lost(e->journal);
	e->damaged_frames = damaged.frames;
	note_doubts(e, &damaged);
	return 0;
}

int
egress_damage_start(struct egress *e, const cpu_set_t *cpus)
{
	return file_thread_start(&e->save, "egress save", cpus);
}

/* The damaged batches in the list are saved: remove them from the journal. */
static void
drop_damaged(struct egress *e)
{
	struct damaged_batches damaged;
	struct egress_outcome_stats *s;
	unsigned int i;

	damaged_batches_drop(e->journal, &e->damaged_list, &e->kept.saved, &damaged);
	e->remove_at = 0;
	note_doubts(e, &damaged);
	COUNTER_SET(e->damaged, true);
	e->damaged_frames += damaged.frames;
	for (i = 0; i < XFER_TABLES; i++) {
		s = &e->outcome[i];
		counter_add(&s->damaged, damaged.nb[i]);
		counter_add(&s->damaged_rows, damaged.rows[i]);
	}
}

void
egress_damage_poll(struct egress *e, uint64_t now)
{
	int ret;

	if (e->saves) {
		ret = file_thread_result(&e->save);
		if (ret == -EINPROGRESS)
			return;
		if (ret == 0)
			drop_damaged(e);
		damaged_batches_forget(&e->damaged_list);
		e->saves = false;
		return;
	}
	if (now < e->remove_at)
		return;
	e->remove_at = now + REMOVE_MS;
	if (damaged_batches_list(&e->damaged_list, e->journal) < 0)
		return;
	e->saves = true;
	file_thread_begin(&e->save);
}

void
egress_damage_close(struct egress *e)
{
	(void)file_thread_stop(&e->save, 0);
	/* the next start would save these batches once more */
	if (e->saves)
		egress_damage_poll(e, xfer_qp_clock());
}

void
egress_damage_log_corrected(struct egress *e)
{
	struct journal_stats stats;

	journal_stats_get(e->journal, &stats);
	if (stats.corrected == e->corrected)
		return;
	LOG(WARNING,
		"journal %s: %" PRIu64
		" records of batches had changed and were written again; check the memory of this "
		"machine\n",
		e->settings.journal, stats.corrected - e->corrected);
	e->corrected = stats.corrected;
}

bool
egress_was_damaged(const struct egress *e)
{
	return __atomic_load_n(&e->damaged, __ATOMIC_RELAXED);
}

bool
egress_before_was_damaged(const struct egress *e)
{
	return e->previous_damaged;
}

uint64_t
egress_lost_doubts(struct egress *e)
{
	return __atomic_exchange_n(&e->lost_doubts, 0, __ATOMIC_RELAXED);
}
