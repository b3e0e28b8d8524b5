/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Begin and end of a run: the commands of the thread that begins and ends runs, and their execution
 * by the lcore.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "egress/egress_private.h"
#include "log.h"
#include "xfer/qp.h"

LOG_REGISTER("egress", "egress");

#define SLEEP_US 50 /* sleep while waiting for a command */
/* a run does not begin if the lcore has not taken the command for this time */
#define COMMAND_TIMEOUT_MS 5000
#define LOG_WAIT_MS	   1000 /* log a wait for stores that takes longer */
#define WAIT_US		   1000 /* before a repeated command */

static int
do_begin(struct egress *e, const struct egress_command *c)
{
	const int ret = egress_runs_begin(e, c->run);

	if (ret < 0)
		return ret;
	/*
	 * Up to here, batches that the run before has left in the journal are counted for it. The
	 * writer has not begun.
	 */
	memset(e->outcome, 0, sizeof(e->outcome));
	egress_put_begin(e, c->begin);
	e->clock = c->begin->clock;
	e->clock_arg = c->begin->clock_arg;
	kept_ledger_begin(&e->kept, c->run->incarnation);
	return 0;
}

int
egress_control_execute(struct egress *e)
{
	const struct egress_command *c = &e->command;

	switch (c->order) {
	case EGRESS_COMMAND_BEGIN:
		return do_begin(e, c);
	case EGRESS_COMMAND_END:
		journal_run_end(e->journal, e->current, c->batches);
		egress_runs_finish(e, &e->run[e->current]);
		return 0;
	case EGRESS_COMMAND_IS_OVER:
		return egress_runs_are_over(e);
	case EGRESS_COMMAND_GIVE_UP:
		return egress_runs_give_up(e);
	}
	return -EINVAL;
}

/*
 * Send a command to the lcore, and wait for its result. Only BEGIN has a time limit: a run whose
 * END is not executed would never be over. The watchdog ends a process whose lcore no longer polls.
 * @return -ETIMEDOUT: BEGIN was not taken in time, and is not executed later
 */
static int
run_command(struct egress *e, const struct egress_command *command)
{
	const uint64_t until = command->order == EGRESS_COMMAND_BEGIN
		? xfer_qp_clock() + COMMAND_TIMEOUT_MS
		: UINT64_MAX;
	int ret;

	e->command = *command;
	mailbox_post(&e->mailbox);
	while ((ret = mailbox_result(&e->mailbox)) == -EINPROGRESS) {
		/* false: the lcore is already executing the command */
		if (xfer_qp_clock() >= until && mailbox_cancel(&e->mailbox))
			return -ETIMEDOUT;
		egress_poll_or_sleep(e, SLEEP_US);
	}
	return ret;
}

int
egress_begin(struct egress *e, const struct egress_begin *begin, char message[PATH_MAX])
{
	struct journal_run run = {.run = begin->run, .incarnation = begin->incarnation};
	uint8_t *header[ARROW_TABLES] = {NULL};
	unsigned int i;
	size_t size;
	int ret = 0;

	snprintf(run.name, sizeof(run.name), "%s", begin->name);
	for (i = 0; i < ARROW_TABLES && ret == 0; i++) {
		ret = arrow_header_build(&begin->tables->schema[i], &header[i], &size);
		run.schema[i] = header[i];
		run.schema_bytes[i] = size;
		run.body_max[i] = begin->body_max[i];
	}
	if (ret == 0)
		ret = run_command(e,
			&(struct egress_command){
				.order = EGRESS_COMMAND_BEGIN, .run = &run, .begin = begin});
	for (i = 0; i < ARROW_TABLES; i++)
		free(header[i]);
	if (ret == -ENOSPC)
		snprintf(message, PATH_MAX,
			"the journal has unacknowledged batches of %u runs, its limit; a new run "
			"begins when the stores have taken those of one of them",
			JOURNAL_RUNS);
	else if (ret == -ETIMEDOUT)
		snprintf(message, PATH_MAX,
			"cannot add the run to the journal: the egress lcore has not polled for "
			"%u ms",
			COMMAND_TIMEOUT_MS);
	else if (ret < 0)
		snprintf(
			message, PATH_MAX, "cannot add the run to the journal: %s", strerror(-ret));
	return ret;
}

/* Ending signals that the process has received. */
static unsigned int nb_signals;

void
egress_signal(void)
{
	__atomic_fetch_add(&nb_signals, 1, __ATOMIC_RELAXED);
}

/* Log that the end of the run waits for stores, for how long, and how to end the wait. */
static void
log_wait(const struct egress *e, uint64_t ms, bool ending)
{
	struct egress_stats s;
	uint64_t batches = 0;
	unsigned int i;

	for (i = 0; i < XFER_TABLES; i++) {
		egress_stats_get(e, i, &s);
		batches +=
			s.put.batches - s.outcome.durable - s.outcome.spilled - s.outcome.damaged;
	}
	LOG(NOTICE,
		"waiting up to %" PRIu64 " s ([egress] end_ms) for stores to take %" PRIu64
		" batches%s\n",
		(ms + 999) / 1000, batches,
		ending ? "; a further SIGINT or SIGTERM ends the wait, and the next start sends "
			 "the batches from the journal"
		       : "");
}

/* Wait until the stores have all batches. @return as egress_end() */
static int
wait_for_stores(struct egress *e)
{
	const uint64_t begin = xfer_qp_clock(), until = begin + e->settings.end_ms;
	const struct egress_command is_over = {.order = EGRESS_COMMAND_IS_OVER};
	struct egress_command end = {.order = EGRESS_COMMAND_END};
	unsigned int logged = 0, signals, i;
	bool waits = false;

	for (i = 0; i < XFER_TABLES; i++)
		end.batches[i] = e->put[i].batches;
	(void)run_command(e, &end);
	while (run_command(e, &is_over) == 0) {
		const uint64_t now = xfer_qp_clock();

		signals = __atomic_load_n(&nb_signals, __ATOMIC_RELAXED);
		/* a signal ends the wait only after a line that says so, and after another one */
		if (now >= until || egress_lost_device(e) ||
			(waits && logged > 0 && signals != logged))
			return run_command(
				e, &(struct egress_command){.order = EGRESS_COMMAND_GIVE_UP});
		if (now - begin >= LOG_WAIT_MS && (!waits || signals != logged)) {
			log_wait(e, until - now, signals > 0);
			waits = true;
			logged = signals;
		}
		egress_poll_or_sleep(e, WAIT_US);
	}
	return 0;
}

int
egress_end(struct egress *e)
{
	int ret;

	__atomic_store_n(&e->ending, true, __ATOMIC_RELAXED);
	ret = wait_for_stores(e);
	__atomic_store_n(&e->ending, false, __ATOMIC_RELAXED);
	return ret;
}

bool
egress_is_ending(const struct egress *e)
{
	return __atomic_load_n(&e->ending, __ATOMIC_RELAXED);
}
