/* SPDX-License-Identifier: BSD-3-Clause */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <rte_cycles.h>

#include "builder/builder.h"
#include "frames/detector.h"
#include "frames/frame_run.h"
#include "log.h"
#include "plural.h"
#include "run_notes.h"
#include "run_writer.h"

LOG_REGISTER("run.notes", "recv");

#define CHECKS_PER_SECOND 4

/** Number of frames with another status or bunch id before they are reported in the run. */
#define MISMATCH_MIN 8

/** JUNGFRAU: bits that force a switch to G1 and G2, see settings.c */
#define FORCED_MODES 0x3000u

void
run_notes_begin(struct run_notes *n, const struct detector *d, const struct builder_stats *stats)
{
	memset(n, 0, sizeof(*n));
	n->detector = d;
	n->closed = stats->closed;
	n->mismatch = stats->status_mismatch;
	n->bunch_mismatch = stats->bunch_mismatch;
	n->closed_early = stats->closed_early;
	n->refused_behind = stats->refused_behind;
}

bool
run_notes_due(struct run_notes *n)
{
	const uint64_t now = rte_rdtsc();

	if (now < n->next_check)
		return false;
	n->next_check = now + rte_get_tsc_hz() / CHECKS_PER_SECOND;
	return true;
}

static uint32_t
cell_of(const struct detector *d, uint32_t status)
{
	return (status & d->ops->status_cell) >> __builtin_ctz(d->ops->status_cell);
}

/** Value of [detector] gain_mode. */
static const char *
mode_of(uint32_t status)
{
	static const char *const names[] = {"dynamic", "g1", "g2", "g1 and g2"};

	return names[(status & FORCED_MODES) >> __builtin_ctz(FORCED_MODES)];
}

/** Describe a status that differs from the settings, or from that of the frame's first module. */
static void
explain_status(const struct detector *d, uint32_t seen, uint32_t first, uint32_t module, char *text,
	size_t size)
{
	const uint32_t wrong = (seen ^ d->status_value) & d->status_mask;
	const uint32_t other = (seen ^ first) & d->ops->status_common;

	if (other & d->ops->status_cell)
		snprintf(text, size,
			"have modules of different storage cells: module %u has storage cell %u, "
			"the first module has %u; set up all modules alike",
			module, cell_of(d, seen), cell_of(d, first));
	else if (other & FORCED_MODES)
		snprintf(text, size,
			"have modules of different gain modes: module %u has gain mode %s, the "
			"first module has %s; set up all modules alike",
			module, mode_of(seen), mode_of(first));
	else if (other != 0)
		snprintf(text, size,
			"have modules of different status: module %u has 0x%08x, the first module "
			"has 0x%08x; set up all modules alike",
			module, seen, first);
	else if (wrong & d->ops->status_cell)
		snprintf(text, size,
			"have storage cell %u, expected [detector] storage_cell = %u; set "
			"storage_cell = %u or any, or set the storage cell of the detector",
			cell_of(d, seen), cell_of(d, d->status_value), cell_of(d, seen));
	else
		snprintf(text, size,
			"have gain mode %s, expected [detector] gain_mode = %s; set gain_mode = "
			"%s or any, or set the gain mode of the detector",
			mode_of(seen), mode_of(d->status_value), mode_of(seen));
}

static void
name_stream(const struct detector *d, uint32_t stream, char *text, size_t size)
{
	const uint32_t module = detector_stream_module(d, stream);

	if (d->interfaces > 1)
		snprintf(text, size, "module %u interface %u", module, stream % d->interfaces);
	else
		snprintf(text, size, "module %u", module);
}

void
run_notes_status(struct run_notes *n, const struct builder_stats *stats, bool now)
{
	const uint64_t frames = stats->status_mismatch - n->mismatch;
	char *text = n->text[RUN_NOTE_STATUS], why[400];
	const bool known = text[0] != '\0';

	if (frames < (now ? 1 : MISMATCH_MIN))
		return;
	explain_status(n->detector, stats->status_seen >> 32, (uint32_t)stats->status_seen,
		detector_stream_module(n->detector, (uint32_t)stats->status_stream), why,
		sizeof(why));
	snprintf(text, sizeof(n->text[0]), "%" PRIu64 " of %" PRIu64 " frames %s", frames,
		stats->closed - n->closed, why);
	if (!known)
		LOG(WARNING, "%s\n", text);
}

void
run_notes_bunch(struct run_notes *n, const struct builder_stats *stats, bool now)
{
	const uint64_t frames = stats->bunch_mismatch - n->bunch_mismatch;
	char *text = n->text[RUN_NOTE_BUNCH], name[2][40];
	const bool known = text[0] != '\0';

	if (frames < (now ? 1 : MISMATCH_MIN))
		return;
	name_stream(n->detector, (uint32_t)stats->bunch_streams, name[0], sizeof(name[0]));
	name_stream(n->detector, stats->bunch_streams >> 32, name[1], sizeof(name[1]));
	snprintf(text, sizeof(n->text[0]),
		"%" PRIu64 " of %" PRIu64 " frames have modules of different bunch ids, the last "
		"one is frame %" PRIu64 ": %s has bunch id %" PRIu64 ", %s has %" PRIu64 "; their "
		"images may mix exposures. Set the same next frame number in all modules and start "
		"them before the triggers; if bunch ids of the modules are not synchronised, set "
		"[detector] bunch_id = any",
		frames, stats->closed - n->closed, stats->bunch_frame, name[0], stats->bunch_first,
		name[1], stats->bunch_seen);
	if (!known)
		LOG(WARNING, "%s\n", text);
}

/** Append the names of streams for which frames were closed early or refused. */
static void
name_streams(const struct detector *d, const struct builder_stats *stats, char *text, size_t size)
{
	size_t at = 0;
	char name[40];

	text[0] = '\0';
	for (uint32_t s = 0; s < d->streams && at < size; s++) {
		if (stats->stream[s].waited_for == 0)
			continue;
		name_stream(d, s, name, sizeof(name));
		at += snprintf(text + at, size - at, "%s%s", at > 0 ? ", " : "", name);
	}
}

void
run_notes_slots(struct run_notes *n, const struct builder_stats *stats)
{
	const uint64_t early = stats->closed_early - n->closed_early;
	const uint64_t refused = stats->refused_behind - n->refused_behind;
	char *text = n->text[RUN_NOTE_SLOTS], names[300];
	const bool known = text[0] != '\0';

	if (early + refused == 0)
		return;
	name_streams(n->detector, stats, names, sizeof(names));
	snprintf(text, sizeof(n->text[0]),
		"%" PRIu64 " %s closed early and %" PRIu64 " refused, because frames waited for "
		"%s, and few [frames] slots were free; check the module and its cable; if it only "
		"lags, increase slots",
		early, plural(early, "frame was", "frames were"), refused, names);
	if (!known)
		LOG(WARNING, "%s\n", text);
}

void
run_notes_frames(
	struct run_notes *n, const struct builder_stats *stats, const struct frame_run *run)
{
	const uint64_t frames = stats->closed - n->closed, stride = RTE_MAX(run->stride, 1u);
	const uint64_t next = stats->first_frame + frames * stride;
	char *text = n->text[RUN_NOTE_FRAMES], which[80];

	/* a run without any frame is reported in another way */
	if (frames == 0 || frames >= run->nb_frames)
		return;
	/* the numbers show nothing if the detector restarted meanwhile */
	if (stats->last_frame + stride == next && frames + 1 == run->nb_frames)
		snprintf(which, sizeof(which), "frame %" PRIu64, next);
	else if (stats->last_frame + stride == next)
		snprintf(which, sizeof(which), "frames %" PRIu64 " to %" PRIu64, next,
			stats->first_frame + (run->nb_frames - 1) * stride);
	else
		snprintf(which, sizeof(which), "the other %" PRIu64, run->nb_frames - frames);
	snprintf(text, sizeof(n->text[0]),
		"[run] frames = %" PRIu64 ", but the run has ended after %" PRIu64
		": %s did not arrive; check how many frames the detector has sent",
		run->nb_frames, frames, which);
	LOG(WARNING, "%s\n", text);
}

/**
 * Return the reason why rows were not written. The error of a file is lost once another file is
 * open.
 */
static const char *
explain_unwritten(const struct batch_writer_stats *stats, bool stores)
{
	const uint64_t full = stats->table[ARROW_IMAGES].unwritten_full +
		stats->table[ARROW_FRAMES].unwritten_full;

	if (full > 0)
		return stores ? "the journal was full; check the stores, and increase [egress] "
				"journal_mib, or set spill"
			      : "the file system was full";
	return stores ? "damaged in the journal, or too large for it; see the log"
		      : "writing failed; see the log";
}

void
run_notes_unwritten(struct run_notes *n, const struct run_writer *writer, bool stores)
{
	const uint64_t images = writer->stats.table[ARROW_IMAGES].unwritten;
	const uint64_t rows = writer->stats.table[ARROW_FRAMES].unwritten;
	const char *why = writer->status[images > 0 ? ARROW_IMAGES : ARROW_FRAMES].error;
	char *text = n->text[RUN_NOTE_UNWRITTEN];
	size_t at;

	if (images + rows == 0)
		return;
	if (why[0] == '\0')
		why = explain_unwritten(&writer->stats, stores);
	at = snprintf(text, sizeof(n->text[0]), "not written: %" PRIu64 " kept frames", images);
	if (rows > 0)
		at += snprintf(
			text + at, sizeof(n->text[0]) - at, ", %" PRIu64 " rows of `frames`", rows);
	snprintf(text + at, sizeof(n->text[0]) - at, ": %s", why);
}
