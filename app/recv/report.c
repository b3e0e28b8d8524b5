/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_lcore.h>

#include "builder/builder.h"
#include "calib/calibration.h"
#include "calib/pedestal.h"
#include "counter.h"
#include "egress/egress.h"
#include "lcores.h"
#include "output/preview.h"
#include "pipeline.h"
#include "plural.h"
#include "rdma/rdma.h"
#include "report.h"
#include "run.h"
#include "run_watch.h"
#include "run_writer.h"
#include "rx/messages.h"
#include "settings.h"

/** Print the names of the silent modules. */
static void
print_silent(const struct run *run, const struct builder_stats *stats, FILE *out)
{
	const struct detector *d = &run_get_pipeline(run)->settings->detector;
	bool first = true;

	for (uint32_t s = 0; s < d->streams; s++) {
		if (!run_watch_is_silent(&stats->stream[s]))
			continue;
		fprintf(out, "%s%u", first ? "; silent: module " : ", ",
			detector_stream_module(d, s));
		if (d->interfaces > 1)
			fprintf(out, " interface %u", s % d->interfaces);
		first = false;
	}
}

static void
print_time(FILE *out)
{
	const time_t now = time(NULL);
	struct tm tm;
	char text[16];

	localtime_r(&now, &tm);
	strftime(text, sizeof(text), "%H:%M:%S", &tm);
	fprintf(out, "%s  ", text);
}

static void
print_line(const struct report *r, const struct run *run, const struct run_status *status,
	double seconds, FILE *out)
{
	const struct builder_stats stats = builder_stats(run_get_pipeline(run)->builder);
	const struct ledger *l = &status->ledger;
	const uint64_t lost = l->lost + l->refused + l->lost_at_restart + l->lost_while_down;
	const uint64_t received = l->packets[RX_PACKETS] + l->pending;

	print_time(out);
	if (l->frames == 0) {
		fprintf(out, "no frame yet: %" PRIu64 " %s received, %" PRIu64 " placed\n",
			received, plural(received, "packet", "packets"), l->packets[RX_PLACED]);
		return;
	}
	fprintf(out, "frame %" PRIu64 ": %.0f frames/s, mean %.0f, %.2f GB/s; ", status->last_frame,
		(l->frames - r->frames) / seconds,
		status->seconds > 0 ? l->frames / status->seconds : 0,
		(l->packets[RX_BYTES] - r->bytes) / seconds / 1e9);
	fprintf(out, "%" PRIu64 " kept, %" PRIu64 " %s missing, %" PRIu64 " %s lost",
		l->hits + l->prescaled + l->dry_run, l->missing_packets,
		plural(l->missing_packets, "packet", "packets"), lost,
		plural(lost, "frame", "frames"));
	if (l->unwritten + l->unwritten_rows > 0)
		fprintf(out, "; %" PRIu64 " not written%s%s",
			RTE_MAX(l->unwritten, l->unwritten_rows),
			status->write_error != 0 ? ": " : "",
			status->write_error != 0 ? strerror(-status->write_error) : "");
	print_silent(run, &stats, out);
	if (l->packets[RX_PACKETS] > r->packets && l->packets[RX_PLACED] == r->placed)
		fprintf(out, "; none of the last %" PRIu64 " packets used",
			l->packets[RX_PACKETS] - r->packets);
	fprintf(out, "\n");
}

void
report_progress(struct report *r, struct run *run, FILE *out)
{
	const uint64_t now = rte_rdtsc();
	const double seconds = (double)(now - r->line_at) / rte_get_tsc_hz();
	struct run_status status;

	if (r->period == 0 || (r->line_at != 0 && seconds < r->period))
		return;
	run_get_status(run, &status);
	if (status.runs != r->runs) {
		r->runs = status.runs;
		r->frames = r->bytes = r->packets = r->placed = 0;
	}
	if (r->line_at != 0 && status.state == RUN_RUNNING)
		print_line(r, run, &status, seconds, out);
	r->line_at = now;
	r->frames = status.ledger.frames;
	r->bytes = status.ledger.packets[RX_BYTES];
	r->packets = status.ledger.packets[RX_PACKETS];
	r->placed = status.ledger.packets[RX_PLACED];
}

static void
print_modules(const struct run *run, const struct ledger *l, FILE *out)
{
	const struct builder_stats stats = builder_stats(run_get_pipeline(run)->builder);
	const struct detector *d = &run_get_pipeline(run)->settings->detector;
	const uint64_t frames = l->frames - l->lost - l->refused - l->lost_at_restart -
		l->lost_while_down - l->late_frames;
	bool first = true;

	for (uint32_t s = 0; s < d->streams; s++) {
		const struct builder_stream *of = &stats.stream[s];
		const double expected = (double)detector_stream_expected(d, s) * frames;
		char name[64];

		if (of->missing == 0)
			continue;
		if (first)
			fprintf(out, "modules\n");
		first = false;
		fprintf(out, "  %s: %" PRIu64 " %s missing, %.2f %%",
			detector_stream_name(d, run_get_pipeline(run)->settings->udp_port, s, name,
				sizeof(name)),
			of->missing, plural(of->missing, "packet", "packets"),
			expected > 0 ? 100 * of->missing / expected : 0);
		if (of->frames == 0 && stats.complete == 0)
			fprintf(out, "; no usable packet of it arrived");
		else if (run_watch_is_silent(of))
			fprintf(out, "; silent since frame %" PRIu64, of->silent_from);
		else if (of->silences > 0 && of->silent_to <= of->silent_from)
			fprintf(out,
				"; silent from frame %" PRIu64 " to the restart of the detector",
				of->silent_from);
		else if (of->silences > 0)
			fprintf(out, "; silent from frame %" PRIu64 " to %" PRIu64, of->silent_from,
				of->silent_to - 1);
		if (of->silences > 1)
			fprintf(out, ", and %" PRIu64 " %s before", of->silences - 1,
				plural(of->silences - 1, "time", "times"));
		fprintf(out, "\n");
	}
}

/**
 * Print the frames, packets and bytes that were received per second of the run. Only placed packets
 * count: others may have arrived before or after this time. Bytes are not counted by outcome; the
 * detector's packets are equally long.
 */
static void
print_rate(const struct run_status *status, FILE *out)
{
	const struct ledger *l = &status->ledger;
	const double seconds = status->seconds, packets = l->packets[RX_PLACED];
	const double bytes =
		packets * l->packets[RX_BYTES] / RTE_MAX(l->packets[RX_PACKETS], UINT64_C(1));

	if (seconds > 0 || status->batches != 0)
		fprintf(out, "rate\n");
	if (seconds > 0)
		fprintf(out, "  %.0f frames/s, %.3f Mpackets/s, %.2f GB/s, %.1f Gb/s over %.2f s\n",
			l->frames / seconds, packets / seconds / 1e6, bytes / seconds / 1e9,
			bytes * 8 / seconds / 1e9, seconds);
	if (status->batches != 0)
		fprintf(out, "  %.2f frames per batch, %" PRIu64 " batches\n",
			(double)status->batched_frames / status->batches, status->batches);
}

static void
print_lcores(const struct pipeline *p, FILE *out)
{
	unsigned int id;

	fprintf(out, "lcores\n");
	RTE_LCORE_FOREACH(id) {
		const struct lcore *lc = &p->lcores->lcore[id];
		const uint64_t busy = counter_get(&lc->busy_cycles);
		const uint64_t cycles = busy + counter_get(&lc->idle_cycles);

		if (lc->nb_roles == 0)
			continue;
		fprintf(out, "  %3u  %5.1f %% busy ", id, cycles != 0 ? 100.0 * busy / cycles : 0);
		for (uint32_t i = 0; i < lc->nb_roles; i++)
			fprintf(out, "%s %s", i == 0 ? "" : ",", lc->roles[i].name);
		fprintf(out, "\n");
	}
}

/**
 * Print what a device has registered since it was opened, and how long that took. The share is that
 * of the run, to which all registrations are charged.
 */
static void
print_registrations(const char *of, const struct rdma_dev *dev, double seconds, FILE *out)
{
	struct rdma_registrations r;

	rdma_registrations_get(dev, &r);
	fprintf(out, "  %-10s %3" PRIu64 " %s, %.1f MiB, registered in %.3f ms", of, r.regions,
		plural(r.regions, "region", "regions"), r.bytes / 1048576.0, r.ns / 1e6);
	if (seconds > 0)
		fprintf(out, ", %.4f %% of the run", r.ns / 1e7 / seconds);
	fprintf(out, "\n");
}

static void
print_memory(const struct pipeline *p, double seconds, FILE *out)
{
	const struct rdma_dev_info *info;

	if (p->stores == NULL && p->messages == NULL)
		return;
	fprintf(out, "memory of RDMA devices\n");
	for (uint32_t d = 0; p->messages != NULL && d < p->messages->nb_devices; d++)
		print_registrations("[port]", p->messages->devices[d], seconds, out);
	if (p->stores != NULL)
		print_registrations("[egress]", egress_device(p->stores, &info), seconds, out);
}

/** Files may have been removed, or recovered by another process, while the run wrote them. */
static void
print_file(const char *path, FILE *out)
{
	if (access(path, F_OK) == 0)
		fprintf(out, "  %s\n", path);
	else
		fprintf(out, "  %s: %s\n", path, strerror(errno));
}

/** Print where the batches of a table are: at stores, in the journal, or in spill files. */
static void
print_batches(struct run *run, const struct run_writer *writer, int table, FILE *out)
{
	const struct egress_settings *egress = run_get_pipeline(run)->settings->egress;
	const uint64_t held = writer->stats.held_batches[table];
	const uint64_t spilled = writer->stats.spilled_batches[table];

	/* a table without rows has no batches at any place */
	if (writer->stats.table[table].batches > 0 ||
		held + spilled + writer->stats.table[table].unwritten == 0)
		fprintf(out, "  %s\n", run_last_path(run, table));
	if (held > 0)
		fprintf(out, "  journal %s: %s of %s, %" PRIu64 " %s that no store has yet\n",
			egress->journal, arrow_table_name(table), writer->name, held,
			plural(held, "batch", "batches"));
	if (spilled > 0)
		fprintf(out, "  spill %s: %s of %s, %" PRIu64 " %s\n", egress->spill,
			arrow_table_name(table), writer->name, spilled,
			plural(spilled, "batch", "batches"));
}

/** Print the maps that a dark run has written: those that exist, because a run overwrites none. */
static void
print_maps(const struct run *run, const struct run_status *status, FILE *out)
{
	const struct detector *d = &run_get_pipeline(run)->settings->detector;
	char path[PATH_MAX], first[PATH_MAX], last[PATH_MAX];

	for (uint32_t map = 0; map < PEDESTAL_MAPS; map++) {
		uint32_t files = 0;

		for (uint32_t m = 0; m < d->modules; m++) {
			if (pedestal_map_path(path, status->directory, status->name, map, m) != 0 ||
				access(path, F_OK) != 0)
				continue;
			strcpy(files == 0 ? first : last, path);
			files++;
		}
		if (files == 1)
			fprintf(out, "  %s\n", first);
		else if (files > 1)
			fprintf(out, "  %s ... %s, %u files\n", first, last, files);
	}
}

/** Print the files other than those of the tables: coefficient maps, and the preview. */
static void
print_extras(const struct run_status *status, FILE *out)
{
	const struct ledger *l = &status->ledger;
	char path[PATH_MAX];

	if (status->calibration &&
		snprintf(path, sizeof(path), "%s/%s_calibration.bin", status->directory,
			status->name) < (int)sizeof(path) &&
		access(path, F_OK) == 0)
		fprintf(out, "  %s\n", path);
	/* the last picture may still be drawn; a file that is no picture is not replaced */
	if (status->preview[0] != '\0' && l->hits + l->prescaled + l->dry_run > 0 &&
		preview_check(status->preview) == 0)
		fprintf(out, "  %s\n", status->preview);
}

/**
 * Print the number of times that a byte of the pixels of images was copied after the gangs wrote
 * it.
 */
static void
print_copies(const struct run_writer *writer, FILE *out)
{
	const struct batch_writer_stats *s = &writer->stats;

	if (s->kept_bytes == 0)
		return;
	fprintf(out, "copies\n  %.2f by the CPU per byte of %.1f MB of pixels in images",
		(double)s->copied_bytes / s->kept_bytes, s->kept_bytes / 1e6);
	if (s->no_slot > 0)
		fprintf(out, "; %" PRIu64 " %s found no free output slot in the journal",
			s->no_slot, plural(s->no_slot, "frame", "frames"));
	fprintf(out, "\n");
}

static void
print_files(struct run *run, const struct run_status *status, FILE *out)
{
	struct run_writer writer;

	run_get_writer(run, &writer);
	if (run_get_pipeline(run)->stores != NULL)
		print_copies(&writer, out);
	fprintf(out, "files\n");
	for (int t = 0; t < ARROW_TABLES; t++) {
		const uint64_t files = writer.stats.table[t].files;

		if (run_get_pipeline(run)->stores != NULL)
			print_batches(run, &writer, t, out);
		else if (files > 1)
			fprintf(out, "  %s ... %s, %" PRIu64 " files%s\n", run_first_path(run, t),
				run_last_path(run, t), files,
				access(run_last_path(run, t), F_OK) == 0
					? ""
					: "; the last one does not exist");
		else
			print_file(run_last_path(run, t), out);
	}
	print_extras(status, out);
	if (status->dark[0] != '\0')
		print_maps(run, status, out);
	if (status->ledger_path[0] != '\0')
		fprintf(out, "  %s\n", status->ledger_path);
}

void
report_summary(struct run *run, const struct run_status *status, FILE *out)
{
	struct calibration calibration;

	ledger_print(&status->ledger, status->dark[0] != '\0',
		run_get_pipeline(run)->settings->refuse, out);
	print_modules(run, &status->ledger, out);
	print_rate(status, out);
	print_lcores(run_get_pipeline(run), out);
	print_memory(run_get_pipeline(run), status->seconds, out);
	print_files(run, status, out);
	run_get_calibration(run, &calibration);
	if (calibration.warnings > 0)
		fprintf(out, "calibration\n  %u %s, the first: %s\n", calibration.warnings,
			plural(calibration.warnings, "warning", "warnings"),
			calibration_warning(&calibration));
	for (uint32_t i = 0; i < RUN_WARNINGS && status->warnings[i][0] != '\0'; i++)
		fprintf(out, "%s  %s\n", i == 0 ? "warning\n" : "", status->warnings[i]);
}
