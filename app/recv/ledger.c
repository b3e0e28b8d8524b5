/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "arrow/batch.h"
#include "io/durable_file.h"
#include "io/own_file.h"
#include "ledger.h"
#include "log.h"

LOG_REGISTER("ledger", "ledger");

#define COLUMN(name)                                 \
	{                                            \
#name, offsetof(struct ledger, name) \
	}

/* Columns of frames, in the order of the output and of the kept columns. */
static const struct {
	const char *name;
	size_t at;
} columns[LEDGER_COLUMNS] = {
	COLUMN(frames),
	COLUMN(stored),
	COLUMN(held),
	COLUMN(spilled),
	COLUMN(vetoed),
	COLUMN(incomplete),
	COLUMN(lost),
	COLUMN(refused),
	COLUMN(aborted),
	COLUMN(lost_at_restart),
	COLUMN(lost_while_down),
	COLUMN(late_frames),
	COLUMN(unwritten),
	COLUMN(unretained),
	COLUMN(unwritten_rows),
	COLUMN(in_flight),
	COLUMN(hits),
	COLUMN(prescaled),
	COLUMN(dry_run),
	COLUMN(incomplete_kept),
	COLUMN(missing_packets),
	COLUMN(timeouts),
};

const char *
ledger_column_name(uint32_t i)
{
	return columns[i].name;
}

uint64_t
ledger_column(const struct ledger *l, uint32_t i)
{
	return *(const uint64_t *)((const uint8_t *)l + columns[i].at);
}

static uint64_t *
column_of(struct ledger *l, uint32_t i)
{
	return (uint64_t *)((uint8_t *)l + columns[i].at);
}

bool
ledger_balanced(const struct ledger *l)
{
	return l->frames_balance && l->packets_balance && l->placed_balance;
}

/* The difference, or 0: counters of ports may be reset, or vanish with their port. */
static uint64_t
above(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

void
ledger_balance(struct ledger *l)
{
	const uint64_t kept = l->hits + l->prescaled + l->dry_run;
	uint64_t ends = 0;

	l->in_flight = l->frames -
		(l->stored + l->held + l->spilled + l->unwritten + l->vetoed + l->incomplete +
			l->lost + l->refused + l->aborted + l->lost_at_restart +
			l->lost_while_down + l->late_frames);
	l->frames_balance = l->in_flight == 0 &&
		kept == l->stored + l->held + l->spilled + l->unwritten &&
		l->records + l->lost_at_restart + l->lost_while_down + l->late_frames == l->frames;
	for (uint32_t c = RX_PLACED; c < RX_COUNTERS; c++)
		ends += l->packets[c];
	l->packets_balance = ends == l->packets[RX_PACKETS];
	l->placed_balance = l->packets[RX_PLACED] == l->frame_packets;
}

void
ledger_since(struct ledger *l, const struct ledger *before)
{
	l->hits -= before->hits;
	l->prescaled -= before->prescaled;
	l->dry_run -= before->dry_run;
	l->vetoed -= before->vetoed;
	l->incomplete -= before->incomplete;
	l->lost -= before->lost;
	l->refused -= before->refused;
	l->aborted -= before->aborted;
	l->late_frames -= before->late_frames;
	l->frames -= before->frames;
	l->frame_packets -= before->frame_packets;
	l->incomplete_kept -= before->incomplete_kept;
	l->missing_packets -= before->missing_packets;
	l->timeouts -= before->timeouts;
	for (uint32_t c = 0; c < RX_COUNTERS; c++)
		l->packets[c] -= before->packets[c];
	for (uint32_t c = 0; c < PORT_DROPS; c++)
		l->ports[c] = above(l->ports[c], before->ports[c]);
	ledger_balance(l);
}

void
ledger_keep(const struct ledger *l, struct ledger_kept *kept)
{
	for (uint32_t i = 0; i < LEDGER_COLUMNS; i++)
		kept->columns[i] = ledger_column(l, i);
}

/* Return the last frame that the receiver saw, and the last one that is not lost. */
static uint64_t
last_seen(const struct ledger_kept *before, uint64_t *retained)
{
	*retained = before->retained_frame;
	/* none is retained: all frames that it saw are lost */
	if (*retained == 0 && before->first_frame > 0)
		*retained = before->first_frame - 1;
	return RTE_MAX(before->last_frame, before->retained_frame);
}

void
ledger_pass_on(struct ledger_kept *kept, const struct ledger_kept *before)
{
	uint64_t retained, seen = last_seen(before, &retained);

	if (kept->first_frame > 0 || seen == 0)
		return;
	kept->first_frame = retained + 1;
	kept->last_frame = seen;
}

void
ledger_begin(struct ledger_kept *kept, uint64_t first, uint64_t last)
{
	const uint64_t retained = kept->retained_frame;
	struct ledger l = {0};

	for (uint32_t i = 0; i < LEDGER_COLUMNS; i++)
		*column_of(&l, i) = kept->columns[i];
	if (l.frames > 0)
		return;
	/* use the frames kept by ledger_pass_on(), before any row of this receiver */
	kept->retained_frame = 0;
	ledger_resume(&l, kept, first);
	kept->retained_frame = retained;
	ledger_keep(&l, kept);
	kept->first_frame = first;
	kept->last_frame = last;
}

void
ledger_resume(struct ledger *l, const struct ledger_kept *before, uint64_t first)
{
	const uint64_t stride = RTE_MAX(before->stride, 1u);
	uint64_t retained, seen = last_seen(before, &retained);

	/*
	 * Before the first frame of this receiver it is unknown whether the detector has continued.
	 * If the earlier receiver saw no frame, none is known to be missing.
	 */
	if (first == 0 || seen == 0)
		return;
	l->lost_at_restart = (seen - retained + stride - 1) / stride;
	l->lost_while_down = first > seen ? (first - seen - 1) / stride : 0;
	l->frames += l->lost_at_restart + l->lost_while_down;
	ledger_balance(l);
}

/* Add one row. `l` is filled as from the counters of a running receiver. */
static void
tally_row(struct ledger *l, uint8_t verdict, uint32_t flags, uint32_t missing)
{
	const bool kept = frame_verdict_is_kept(verdict);

	l->frames++;
	l->timeouts += (flags & FRAME_FLAG_TIMEOUT) != 0;
	l->incomplete_kept += kept && (flags & FRAME_FLAG_INCOMPLETE) != 0;
	if (verdict != FRAME_LOST && verdict != FRAME_REFUSED)
		l->missing_packets += missing;
	if (kept && (flags & FRAME_FLAG_NO_IMAGE) != 0) {
		l->unwritten++;
		l->unretained++;
	}
	switch ((enum frame_verdict)verdict) {
	case FRAME_HIT:
		l->hits++;
		break;
	case FRAME_PRESCALED:
		l->prescaled++;
		break;
	case FRAME_DRY_RUN:
		l->dry_run++;
		break;
	case FRAME_INCOMPLETE:
		l->incomplete++;
		break;
	case FRAME_LOST:
		l->lost++;
		break;
	case FRAME_REFUSED:
		l->refused++;
		break;
	case FRAME_ABORTED:
		l->aborted++;
		break;
	case FRAME_VETOED:
	default:
		l->vetoed++;
		break;
	}
}

void
ledger_tally(uint64_t to[LEDGER_COLUMNS], const struct batch *b, uint32_t modules)
{
	/*
	 * arrow/batch.h: no column of `frames` is empty or has nulls, so body[] has the indices of
	 * columns
	 */
	const uint8_t *verdict = b->body[FRAMES_VERDICT].iov_base;
	const uint32_t *flags = b->body[FRAMES_FLAGS].iov_base;
	const uint16_t *missing = b->body[FRAMES_MISSING].iov_base;
	struct ledger l = {0};

	for (uint64_t row = 0; row < b->rows; row++) {
		uint32_t sum = 0;

		for (uint32_t m = 0; m < modules; m++)
			sum += missing[row * modules + m];
		tally_row(&l, verdict[row], flags[row], sum);
	}
	for (uint32_t i = 0; i < LEDGER_COLUMNS; i++)
		to[i] += ledger_column(&l, i);
}

void
ledger_of_dead(struct ledger *l, const struct ledger_kept *dead, uint64_t held, bool resumed)
{
	const uint64_t stride = RTE_MAX(dead->stride, 1u);
	struct ledger then = {0};
	uint64_t images, retained, seen;

	memset(l, 0, sizeof(*l));
	for (uint32_t i = 0; i < LEDGER_COLUMNS; i++) {
		*column_of(l, i) = dead->retained[i];
		*column_of(&then, i) = dead->columns[i];
	}
	images = above(l->hits + l->prescaled + l->dry_run, l->unwritten);
	l->held = RTE_MIN(held, images);
	l->spilled = RTE_MIN(then.spilled, images - l->held);
	l->stored = images - l->held - l->spilled;
	l->records = l->frames;
	/* losses of the receivers before it */
	l->lost_at_restart = then.lost_at_restart;
	l->lost_while_down = then.lost_while_down;
	seen = last_seen(dead, &retained);
	if (!resumed && seen > 0)
		l->lost_at_restart += (seen - retained + stride - 1) / stride;
	l->late_frames = then.late_frames;
	l->frames += l->lost_at_restart + l->lost_while_down + l->late_frames;
	ledger_balance(l);
}

void
ledger_count_damaged(
	uint64_t c[LEDGER_COLUMNS], enum arrow_table table, uint64_t rows, bool written)
{
	struct ledger l;

	for (uint32_t i = 0; i < LEDGER_COLUMNS; i++)
		*column_of(&l, i) = c[i];
	if (table == ARROW_FRAMES) {
		l.unwritten_rows += rows;
	} else if (written) {
		rows = RTE_MIN(rows, l.held);
		l.held -= rows;
		l.unwritten += rows;
	} else {
		l.unwritten += rows;
	}
	for (uint32_t i = 0; i < LEDGER_COLUMNS; i++)
		c[i] = ledger_column(&l, i);
}

void
ledger_held_is_stored(uint64_t c[LEDGER_COLUMNS])
{
	struct ledger l;

	for (uint32_t i = 0; i < LEDGER_COLUMNS; i++)
		*column_of(&l, i) = c[i];
	l.stored += l.held;
	l.held = 0;
	for (uint32_t i = 0; i < LEDGER_COLUMNS; i++)
		c[i] = ledger_column(&l, i);
}

static void
total(FILE *out, const char *name, uint64_t n, uint64_t of, const char *what)
{
	fprintf(out, "  %-18s %12" PRIu64, name, n);
	if (of != 0)
		fprintf(out, "  %6.2f %%", 100.0 * n / of);
	else
		fprintf(out, "  %8s", "");
	fprintf(out, "  %s\n", what);
}

/* Print a total, unless it is 0. For losses and optional outcomes. */
static void
line(FILE *out, const char *name, uint64_t n, uint64_t of, const char *what)
{
	if (n != 0)
		total(out, name, n, of, what);
}

static const char *const port_hints[PORT_DROPS] = {
	[PORT_RING_FULL] = "dropped by ports: use more descriptors or RX lcores",
	[PORT_NO_MBUF] = "dropped by ports: use more memory for frames",
	[PORT_ERRORS] = "refused by ports: damaged (check cables) or too long (check MTU)",
	[PORT_ICRC] = "RoCE packets with a wrong invariant CRC: check cables and the sender",
	[PORT_INCOMPLETE] = "RoCE packets of messages of which another packet was lost",
	[PORT_REPEATED] = "RoCE packets that arrived again",
	[PORT_REFUSED] = "RoCE packets with a wrong queue pair, source, key, address or length",
	[PORT_REPAIRED] = "lost multicast packets that were READ from the sender's ring",
	[PORT_LOST_FOR_GOOD] =
		"multicast packets: this receiver was too late, or the sender was restarted",
};

/* If RX waits for a slot, it does not poll its queues meanwhile. */
static void
print_port(FILE *out, uint32_t cause, uint64_t n, bool refuses)
{
	char what[128];

	snprintf(what, sizeof(what), "%s%s", port_hints[cause],
		(cause == PORT_RING_FULL || cause == PORT_NO_MBUF) && !refuses
			? ", or backpressure = refuse"
			: "");
	line(out, port_drop_names[cause], n, 0, what);
}

void
ledger_print(const struct ledger *l, bool dark_run, bool refuses, FILE *out)
{
	fprintf(out, "frames\n");
	total(out, "stored", l->stored, l->frames, "kept, stored in files");
	line(out, "held", l->held, l->frames, "kept, in the journal until stores take them");
	line(out, "spilled", l->spilled, l->frames, "kept, in local spill files; to be imported");
	line(out, "vetoed", l->vetoed, l->frames, "rejected");
	line(out, "incomplete", l->incomplete, l->frames, "dropped, packets missing");
	line(out, "lost", l->lost, l->frames, "no packet arrived in time");
	line(out, "refused", l->refused, l->frames, "no free frame slot");
	line(out, "aborted", l->aborted, l->frames, "discarded with the aborted run");
	line(out, "lost at restart", l->lost_at_restart, l->frames,
		"not yet written when the receiver was killed");
	line(out, "lost while down", l->lost_while_down, l->frames,
		"sent before the receiver was restarted");
	line(out, "late", l->late_frames, l->frames,
		"all packets late or out of the window: no row");
	line(out, "unwritten", l->unwritten, l->frames,
		l->unretained != 0 ? "kept, but not stored or spilled: journal full"
				   : "kept, but writing failed, or damaged in the journal");
	line(out, "in flight", l->in_flight, l->frames, "");
	total(out, "= sum", l->frames, 0,
		l->frames_balance ? "every frame accounted for" : "NOT BALANCED");
	if (l->hits + l->prescaled + l->dry_run + l->incomplete_kept + l->unwritten_rows != 0)
		fprintf(out, "of these\n");
	line(out, "hits", l->hits, l->frames, "within the thresholds of the veto");
	line(out, "prescaled", l->prescaled, l->frames,
		"rejected by the veto, kept by the prescale");
	line(out, dark_run ? "dark frames" : "dry run", l->dry_run, l->frames,
		dark_run ? "kept for the pedestals"
			 : "rejected, kept because [veto] dry_run is set");
	line(out, "incomplete, kept", l->incomplete_kept, l->frames, "missing pixels masked");
	line(out, "unretained", l->unretained, l->frames, "unwritten because the journal was full");
	line(out, "rows not written", l->unwritten_rows, l->frames,
		"of `frames`: writing failed, or damaged in the journal");
	fprintf(out, "packets\n");
	total(out, rx_counter_names[RX_PLACED], l->packets[RX_PLACED], l->packets[RX_PACKETS], "");
	for (uint32_t c = RX_PLACED + 1; c < RX_COUNTERS; c++)
		line(out, rx_counter_names[c], l->packets[c], l->packets[RX_PACKETS],
			c == RX_OUTLIER ? "too far ahead, or not a frame number (2^48 - 1 or more)"
					: "");
	total(out, "= received", l->packets[RX_PACKETS], 0,
		l->placed_balance && l->packets_balance ? "every packet accounted for"
							: "NOT BALANCED");
	line(out, "missing", l->missing_packets, 0, "of partially received frames");
	for (uint32_t c = 0; c < PORT_DROPS; c++)
		print_port(out, c, l->ports[c], refuses);
}

/* The options of the search for peaks that may change during a run. */
static void
write_search(FILE *f, const struct builder_veto *v)
{
	const struct gk_peak_params *p = &v->peak;

	fprintf(f, "peaks_min = %u\n", v->params.peaks_min);
	if (v->params.peaks_max == UINT32_MAX)
		fprintf(f, "peaks_max = none\n");
	else
		fprintf(f, "peaks_max = %u\n", v->params.peaks_max);
	fprintf(f, "veto_shells = 0x%x\nthreshold = %.9g\nmin_snr = %.9g\n", v->params.peaks_shells,
		p->threshold, p->min_snr);
	fprintf(f,
		"min_pix_count = %u\nmax_pix_count = %u\nlocal_bg_radius = %u\n"
		"use_saturated = %u\n",
		p->min_pixels, p->max_pixels, p->bg_radius, p->saturated);
}

static void
write_veto(FILE *f, const struct ledger_veto *v)
{
	const struct gk_params *p = &v->veto.params;

	fprintf(f, "\n[veto %u]\nfrom_frame = %" PRIu64 "\n", p->version, v->from_frame);
	fprintf(f, "strong_threshold = %.9g\nstrong_min = %u\n", p->strong_threshold,
		p->strong_min);
	if (p->strong_max == UINT32_MAX)
		fprintf(f, "strong_max = none\n");
	else
		fprintf(f, "strong_max = %u\n", p->strong_max);
	fprintf(f, "csr_threshold = %.9g\nnnz_max = %u\n", p->csr_threshold, p->nnz_max);
	fprintf(f, "search = %u\n", p->search);
	if (p->search != GK_SEARCH_NONE)
		write_search(f, &v->veto);
	fprintf(f, "dry_run = %u\nprescale = %" PRIu64 "\nprescale_raw = %u\n", v->veto.dry_run,
		v->veto.prescale, v->veto.prescale_raw);
}

static void
write_columns(const struct ledger *l, FILE *f)
{
	for (uint32_t i = 0; i < LEDGER_COLUMNS; i++)
		fprintf(f, "%s = %" PRIu64 "\n", columns[i].name, ledger_column(l, i));
	fprintf(f, "balanced = %d\n", ledger_balanced(l));
}

/* Write the sum of all receivers of the run up to this one. */
static void
write_sum(const struct ledger *l, const struct ledger_receiver *r, FILE *f)
{
	struct ledger sum = *l;

	for (uint32_t i = 0; i < LEDGER_COLUMNS; i++) {
		*column_of(&sum, i) += r->earlier[i];
		if (columns[i].at == offsetof(struct ledger, frames))
			sum.records += r->earlier[i];
	}
	/* records exist only for frames that a receiver has closed */
	sum.records += l->lost_at_restart + l->lost_while_down + l->late_frames;
	sum.records -= sum.lost_at_restart + sum.lost_while_down + sum.late_frames;
	ledger_balance(&sum);
	sum.placed_balance = l->placed_balance;
	fprintf(f, "\n[run]\nreceivers = %" PRIu64 "\n", r->receivers + 1);
	write_columns(&sum, f);
}

static void
write_all(const struct ledger *l, const struct ledger_receiver *r, const struct ledger_veto *vetoes,
	uint32_t nb_vetoes, FILE *f)
{
	fprintf(f, "[receiver]\nincarnation = %016" PRIx64 "\ndied = %d\n", r->incarnation,
		r->died);
	fprintf(f, "\n[frames]\n");
	write_columns(l, f);
	if (!r->died) {
		fprintf(f, "\n[packets]\n");
		for (uint32_t c = 0; c < RX_COUNTERS; c++)
			fprintf(f, "%s = %" PRIu64 "\n", rx_counter_names[c], l->packets[c]);
		fprintf(f, "\n[ports]\n");
		for (uint32_t c = 0; c < PORT_DROPS; c++)
			fprintf(f, "%s = %" PRIu64 "\n", port_drop_names[c], l->ports[c]);
	}
	for (uint32_t i = 0; i < nb_vetoes; i++)
		write_veto(f, &vetoes[i]);
	write_sum(l, r, f);
}

/* Return true if the file is the ledger of this receiver, from its first section. */
static bool
is_ledger_of(const char *path, uint64_t incarnation)
{
	char wanted[40], head[128];
	bool found = false;
	FILE *f = own_file_read(path);

	snprintf(wanted, sizeof(wanted), "incarnation = %016" PRIx64 "\n", incarnation);
	while (f != NULL && !found && fgets(head, sizeof(head), f) != NULL && head[0] != '\n')
		found = strcmp(head, wanted) == 0;
	if (f != NULL)
		fclose(f);
	return found;
}

/* Create the file. A run that is continued has ledgers of earlier receivers. */
static int
create(char path[PATH_MAX], const struct ledger_receiver *r, const char *directory, const char *run,
	const char *text, size_t bytes)
{
	char number[16] = "";
	int ret, n;

	for (uint32_t i = 1; i <= LEDGER_FILES_MAX; i++) {
		if (i > 1)
			snprintf(number, sizeof(number), ".%u", i);
		n = snprintf(path, PATH_MAX, "%s/%s_ledger%s.ini", directory, run, number);
		if (n >= PATH_MAX)
			return -ENAMETOOLONG;
		ret = durable_file_create(path, text, bytes);
		if (ret != -EEXIST)
			break;
		/* the next receiver was killed after it had written this file */
		if (r->died && is_ledger_of(path, r->incarnation))
			return 0;
	}
	if (ret == 0 && number[0] != '\0')
		LOG(NOTICE,
			"%s/%s_ledger.ini already exists, or was begun by a receiver "
			"that was killed; writing %s\n",
			directory, run, path);
	return ret;
}

int
ledger_write(const struct ledger *l, const struct ledger_receiver *receiver,
	const struct ledger_veto *vetoes, uint32_t nb_vetoes, const char *directory,
	const char *run, char path[PATH_MAX])
{
	char *text = NULL;
	size_t bytes;
	FILE *f;
	int ret;

	snprintf(path, PATH_MAX, "%s/%s_ledger.ini", directory, run);
	f = open_memstream(&text, &bytes);
	if (f != NULL)
		write_all(l, receiver, vetoes, nb_vetoes, f);
	ret = f == NULL || fclose(f) != 0 ? -ENOMEM
					  : create(path, receiver, directory, run, text, bytes);
	free(text);
	if (ret != 0)
		LOG(ERR, "cannot write %s: %s\n", path, strerror(-ret));
	return ret;
}
