/* SPDX-License-Identifier: BSD-3-Clause */

#include <inttypes.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_log.h>

#include "egress.h"
#include "run_ledger.h"

RTE_LOG_REGISTER(run_ledger_logtype, braggline.run.ledger, NOTICE);

#define KEEPS_PER_SECOND 10
#define KEEP_TRIES	 300 /* ms */

void
run_ledger_read(struct run *r, struct ledger *l)
{
	ledger_read(l, r->pipeline, r->writer);
	ledger_since(l, &r->before);
	if (r->resumed.version != 0)
		ledger_resume(l, &r->resumed, builder_stats(r->pipeline->builder)->first_frame);
}

void
run_ledger_resume(struct run *r)
{
	if (r->pipeline->stores == NULL || r->asked ||
		!egress_ledger_before(r->pipeline->stores, &r->resumed)) {
		r->resumed.version = 0;
		return;
	}
	r->asked = true;
	rte_log(RTE_LOG_NOTICE, run_ledger_logtype,
		"run: a receiver died in run %016" PRIx64 ": it had seen frame %" PRIu64
		", frames up to %" PRIu64 " are retained\n",
		r->resumed.run, r->resumed.last_frame, r->resumed.retained_frame);
	if (r->resumed.run != r->settings.run_id)
		r->resumed.version = 0;
}

void
run_ledger_keep(struct run *r, bool running)
{
	const struct builder_stats *b = builder_stats(r->pipeline->builder);
	struct ledger_kept kept = {
		.version = LEDGER_KEPT_VERSION,
		.running = running,
		.run = r->settings.run_id,
		.stride = r->settings.frames.stride,
		.first_frame = b->first_frame,
		.last_frame = b->last_frame,
	};
	struct timespec now;
	struct ledger l;

	if (r->pipeline->stores == NULL)
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	kept.written = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
	run_ledger_read(r, &l);
	ledger_keep(&l, &kept);
	if (r->resumed.version != 0)
		ledger_pass_on(&kept, &r->resumed);
	/* the last one is worth waiting for */
	for (unsigned int i = 0;
		!egress_keep_ledger(r->pipeline->stores, &kept) && !running && i < KEEP_TRIES; i++)
		usleep(1000);
	r->keep_at = rte_rdtsc() + rte_get_tsc_hz() / KEEPS_PER_SECOND;
}
