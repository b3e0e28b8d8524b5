/* SPDX-License-Identifier: BSD-3-Clause */

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_string_fns.h>

#include "builder/builder.h"
#include "clock.h"
#include "egress/egress.h"
#include "ledger_read.h"
#include "log.h"
#include "output/batch_writer.h"
#include "pipeline.h"
#include "run_ledger.h"
#include "rx/rx.h"
#include "settings.h"

LOG_REGISTER("run.ledger", "run");

#define KEEPS_PER_SECOND 10
#define KEEP_TRIES	 300 /* ms */

void
run_ledger_init(struct run_ledger *a, const struct pipeline *p, const struct settings *settings)
{
	memset(a, 0, sizeof(*a));
	a->pipeline = p;
	a->settings = settings;
}

void
run_ledger_free(struct run_ledger *a)
{
	free(a->vetoes);
}

void
run_ledger_begin(struct run_ledger *a)
{
	a->nb_vetoes = 0;
	a->resumed.version = 0;
	memset(a->earlier, 0, sizeof(a->earlier));
	a->receivers = 0;
	a->settling = false;
}

bool
run_ledger_settle(struct run_ledger *a)
{
	const uint32_t n = a->pipeline->settings->rx_lcores;
	bool settled = a->settling;

	for (uint32_t i = 0; i < n; i++) {
		const uint64_t polls = rx_polls(a->pipeline->rx[i]);

		if (!a->settling)
			a->polls[i] = polls;
		/* the first one may have been in progress */
		settled &= polls - a->polls[i] >= 2;
	}
	a->settling = true;
	return settled;
}

void
run_ledger_add_veto(struct run_ledger *a, const struct builder_veto *veto, uint64_t from_frame)
{
	struct ledger_veto *more = realloc(a->vetoes, (a->nb_vetoes + 1) * sizeof(*more));

	if (more == NULL)
		return;
	a->vetoes = more;
	more[a->nb_vetoes++] = (struct ledger_veto){.from_frame = from_frame, .veto = *veto};
}

void
run_ledger_read(const struct run_ledger *a, const struct batch_writer *writer, struct ledger *l)
{
	ledger_read(l, a->pipeline, writer);
	ledger_since(l, &a->before);
	if (a->resumed.version != 0)
		ledger_resume(l, &a->resumed, builder_stats(a->pipeline->builder).first_frame);
}

/*
 * Write the ledger of the receiver that died. Without it, the frames of its files are not accounted
 * for completely.
 */
static void
write_of_dead(const struct ledger_kept *dead, const struct ledger *l)
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
		LOG(ERR,
			"the ledger of the previous receiver, which was killed, has no run "
			"name and is not written\n");
		return;
	}
	memcpy(receiver.earlier, dead->earlier, sizeof(receiver.earlier));
	if (ledger_write(l, &receiver, NULL, 0, dead->directory, dead->name, path) == 0)
		LOG(NOTICE, "wrote the ledger of the killed receiver, %s\n", path);
}

/**
 * Read the ledger of a receiver that died in a run.
 * @param l     out: its final ledger
 * @param same  out: the current run continues that run
 * @return false: there is none, or a run of this process has taken it over
 */
static bool
read_dead(const struct run_ledger *a, struct ledger_kept *dead, struct ledger *l, bool *same)
{
	uint64_t held;

	if (a->pipeline->stores == NULL || a->asked ||
		!egress_ledger_before(a->pipeline->stores, dead, &held))
		return false;
	*same = dead->run == a->settings->run_id && strcmp(dead->name, a->settings->run) == 0;
	ledger_of_dead(l, dead, held, *same);
	return true;
}

void
run_ledger_prepare(struct run_ledger *a)
{
	char directory[PATH_MAX];
	struct ledger_kept dead;
	struct ledger l;
	bool same;

	if (a->pipeline->stores == NULL)
		return;
	/* absolute, because the next process may start in another directory */
	if (realpath(a->settings->directory, directory) == NULL ||
		rte_strscpy(a->directory, directory, sizeof(a->directory)) < 0)
		a->directory[0] = '\0';
	if (!read_dead(a, &dead, &l, &same))
		return;
	LOG(NOTICE,
		"the previous receiver was killed in run %s (%016" PRIx64 "); last frame "
		"seen %" PRIu64 ", journal has frames up to %" PRIu64 "\n",
		dead.name, dead.run, dead.last_frame, dead.retained_frame);
	write_of_dead(&dead, &l);
}

void
run_ledger_resume(struct run_ledger *a)
{
	struct ledger_kept *dead = &a->resumed;
	struct ledger l;
	bool same;

	memset(a->earlier, 0, sizeof(a->earlier));
	a->receivers = 0;
	if (!read_dead(a, dead, &l, &same)) {
		dead->version = 0;
		return;
	}
	a->asked = true;
	if (!same) {
		dead->version = 0;
		return;
	}
	for (uint32_t i = 0; i < LEDGER_COLUMNS; i++)
		a->earlier[i] = dead->earlier[i] + ledger_column(&l, i);
	a->receivers = dead->receivers + (l.frames > 0);
}

int
run_ledger_write(const struct run_ledger *a, const struct batch_writer *writer,
	const struct ledger *l, bool all_is_stored, char path[PATH_MAX])
{
	struct ledger_receiver receiver = {
		.incarnation = batch_writer_incarnation(writer),
		.receivers = a->receivers,
	};

	memcpy(receiver.earlier, a->earlier, sizeof(receiver.earlier));
	/*
	 * With a spill directory, some of these batches may be in spill files. It is unknown which.
	 */
	if (all_is_stored && a->pipeline->settings->egress->spill == NULL)
		ledger_held_is_stored(receiver.earlier);
	return ledger_write(l, &receiver, a->vetoes, a->nb_vetoes, a->settings->directory,
		a->settings->run, path);
}

void
run_ledger_keep(struct run_ledger *a, const struct batch_writer *writer, bool running)
{
	struct ledger_kept kept = {
		.version = LEDGER_KEPT_VERSION,
		.running = running,
		.run = a->settings->run_id,
		.stride = a->settings->frames.stride,
	};
	struct builder_stats stats;
	struct ledger l;

	if (a->pipeline->stores == NULL)
		return;
	kept.receivers = a->receivers;
	memcpy(kept.earlier, a->earlier, sizeof(kept.earlier));
	snprintf(kept.name, sizeof(kept.name), "%s", a->settings->run);
	static_assert(sizeof(kept.directory) == sizeof(a->directory), "a copy");
	memcpy(kept.directory, a->directory, sizeof(kept.directory));
	kept.written = utc_ns();
	run_ledger_read(a, writer, &l);
	ledger_keep(&l, &kept);
	/*
	 * The builder may begin its first frame between the two reads. The ledger's count decides.
	 */
	stats = builder_stats(a->pipeline->builder);
	if (l.frames > 0) {
		kept.first_frame = stats.first_frame;
		kept.last_frame = stats.last_frame;
	}
	if (a->resumed.version != 0)
		ledger_pass_on(&kept, &a->resumed);
	/* retry the last save of a run */
	for (unsigned int i = 0;
		!egress_keep_ledger(a->pipeline->stores, &kept) && !running && i < KEEP_TRIES; i++)
		usleep(1000);
	a->keep_at = rte_rdtsc() + rte_get_tsc_hz() / KEEPS_PER_SECOND;
}
