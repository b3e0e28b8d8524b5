/* SPDX-License-Identifier: BSD-3-Clause */

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_log.h>
#include <rte_string_fns.h>

#include "egress/egress.h"
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
		ledger_resume(l, &r->resumed, builder_stats(r->pipeline->builder).first_frame);
}

/* Write the ledger of the receiver that died. Without it the account of its files is incomplete. */
static void
write_of_dead(const struct run *r, const struct ledger_kept *dead, const struct ledger *l)
{
	struct ledger_receiver receiver = {
		.incarnation = dead->incarnation,
		.died = true,
		.receivers = dead->receivers,
	};
	char path[PATH_MAX];

	/* a receiver without frames has nothing to account for */
	if (l->frames == 0)
		return;
	if (dead->name[0] == '\0' || strchr(dead->name, '/') != NULL) {
		rte_log(RTE_LOG_ERR, run_ledger_logtype,
			"run: the ledger of the previous receiver, which was killed, has no run "
			"name and is not written\n");
		return;
	}
	memcpy(receiver.earlier, dead->earlier, sizeof(receiver.earlier));
	if (ledger_write(l, &receiver, NULL, 0, dead->directory, dead->name, path) == 0)
		rte_log(RTE_LOG_NOTICE, run_ledger_logtype,
			"run: wrote the ledger of the killed receiver, %s\n", path);
}

void
run_ledger_resume(struct run *r)
{
	struct ledger_kept *dead = &r->resumed;
	struct ledger l;
	uint64_t held;
	bool same;

	memset(r->earlier, 0, sizeof(r->earlier));
	r->receivers = 0;
	if (r->pipeline->stores == NULL || r->asked ||
		!egress_ledger_before(r->pipeline->stores, dead, &held)) {
		dead->version = 0;
		return;
	}
	r->asked = true;
	rte_log(RTE_LOG_NOTICE, run_ledger_logtype,
		"run: the previous receiver was killed in run %s (%016" PRIx64 "); last frame "
		"seen %" PRIu64 ", journal has frames up to %" PRIu64 "\n",
		dead->name, dead->run, dead->last_frame, dead->retained_frame);
	same = dead->run == r->settings.run_id && strcmp(dead->name, r->settings.run) == 0;
	ledger_of_dead(&l, dead, held, same);
	write_of_dead(r, dead, &l);
	if (!same) {
		dead->version = 0;
		return;
	}
	for (uint32_t i = 0; i < LEDGER_COLUMNS; i++)
		r->earlier[i] = dead->earlier[i] + ledger_column(&l, i);
	r->receivers = dead->receivers + (l.frames > 0);
}

int
run_ledger_write(struct run *r, const struct ledger *l, bool all_is_stored, char path[PATH_MAX])
{
	struct ledger_receiver receiver = {
		.incarnation = file_writer_incarnation(r->writer),
		.receivers = r->receivers,
	};

	memcpy(receiver.earlier, r->earlier, sizeof(receiver.earlier));
	/*
	 * With a spill directory, some of these batches may be in spill files. It is unknown which.
	 */
	if (all_is_stored && r->process->egress.spill == NULL)
		ledger_held_is_stored(receiver.earlier);
	return ledger_write(l, &receiver, r->vetoes, r->nb_vetoes, r->settings.directory,
		r->settings.run, path);
}

void
run_ledger_keep(struct run *r, bool running)
{
	struct ledger_kept kept = {
		.version = LEDGER_KEPT_VERSION,
		.running = running,
		.run = r->settings.run_id,
		.stride = r->settings.frames.stride,
	};
	struct builder_stats stats;
	char directory[PATH_MAX];
	struct timespec now;
	struct ledger l;

	if (r->pipeline->stores == NULL)
		return;
	kept.receivers = r->receivers;
	memcpy(kept.earlier, r->earlier, sizeof(kept.earlier));
	snprintf(kept.name, sizeof(kept.name), "%s", r->settings.run);
	/* absolute, because the next process may start in another directory */
	if (realpath(r->settings.directory, directory) == NULL ||
		rte_strscpy(kept.directory, directory, sizeof(kept.directory)) < 0)
		kept.directory[0] = '\0';
	clock_gettime(CLOCK_REALTIME, &now);
	kept.written = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
	run_ledger_read(r, &l);
	ledger_keep(&l, &kept);
	/*
	 * The builder may begin its first frame between the two reads. The ledger's count decides.
	 */
	stats = builder_stats(r->pipeline->builder);
	if (l.frames > 0) {
		kept.first_frame = stats.first_frame;
		kept.last_frame = stats.last_frame;
	}
	if (r->resumed.version != 0)
		ledger_pass_on(&kept, &r->resumed);
	/* retry the last save of a run */
	for (unsigned int i = 0;
		!egress_keep_ledger(r->pipeline->stores, &kept) && !running && i < KEEP_TRIES; i++)
		usleep(1000);
	r->keep_at = rte_rdtsc() + rte_get_tsc_hz() / KEEPS_PER_SECOND;
}
