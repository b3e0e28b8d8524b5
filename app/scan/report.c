/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csv_file.h"
#include "escaped_text.h"
#include "geometry/summary.h"
#include "plural.h"
#include "recovery/damage.h"
#include "scan/geometry.h"
#include "report.h"

#define KEPT_SHOWN 16 /* frames of a damaged batch that are listed */

static const char *const verdict_names[FRAME_VERDICTS] = {
	[FRAME_VETOED] = "vetoed",
	[FRAME_HIT] = "hit, kept",
	[FRAME_PRESCALED] = "prescale, kept",
	[FRAME_DRY_RUN] = "dry run, kept",
	[FRAME_INCOMPLETE] = "incomplete",
	[FRAME_LOST] = "lost",
	[FRAME_REFUSED] = "refused",
	[FRAME_ABORTED] = "aborted",
};

/* All frames of a dark run are such. */
static bool
is_kept_dark(const struct scan_frame *f)
{
	return f->verdict == FRAME_DRY_RUN && (f->flags & FRAME_FLAG_DARK) != 0;
}

bool
report_is_judged(const struct scan_frame *f)
{
	return f->verdict == FRAME_VETOED ||
		(frame_verdict_is_kept(f->verdict) && !is_kept_dark(f));
}

static double
percent(uint64_t part, uint64_t whole)
{
	return whole > 0 ? 100.0 * part / whole : 0.0;
}

/* Bytes in decimal units, as for disks and links. */
static const char *
bytes_text(uint64_t bytes, char text[32])
{
	static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
	double value = bytes;
	unsigned int i;

	for (i = 0; value >= 1000.0 && i < 4; i++)
		value /= 1000.0;
	snprintf(text, 32, i == 0 ? "%.0f %s" : "%.1f %s", value, units[i]);
	return text;
}

/* Prints the kept frames whose images may be in a damaged batch, at most KEPT_SHOWN. */
static void
print_kept(const struct scan_run *run, const struct arrow_damage_frames *range)
{
	const struct scan_frame *f;
	uint64_t nb = 0;

	if (!range->exact && !(range->has_after && range->has_before))
		return;
	for (f = run->frame; f < run->frame + run->nb_frames; f++) {
		if (!frame_verdict_is_kept(f->verdict) ||
			(range->exact ? f->frame < range->first || f->frame > range->last
				      : f->frame <= range->first || f->frame >= range->last))
			continue;
		if (nb++ == 0)
			printf("             frames kept there:");
		if (nb <= KEPT_SHOWN)
			printf(" %" PRIu64, f->frame);
	}
	if (nb > 0)
		printf("%s (%" PRIu64 ")\n", nb > KEPT_SHOWN ? " ..." : "", nb);
}

static void
print_damage(const struct scan_run *run, const struct scan_file *f, enum arrow_table table)
{
	struct arrow_damage_frames range;
	char text[ARROW_DAMAGE_TEXT];
	size_t i;

	for (i = 0; i < f->reader.nb_damage; i++) {
		arrow_damage_text(&f->reader, i, text);
		if (arrow_damage_is_end(&f->reader, i))
			escaped_line(stdout,
				"           incomplete, its write may not have ended: %s", text);
		else
			escaped_line(stdout, "           %s", text);
		if (table != ARROW_IMAGES)
			continue;
		arrow_damage_frames(&f->reader, i, &range);
		print_kept(run, &range);
	}
}

static void
print_file(const struct scan_run *run, const struct scan_file *f, enum arrow_table table)
{
	char size[32];
	bool end; /* the last batch is incomplete */

	if (!f->present) {
		printf("  %-7s  missing\n", arrow_table_name(table));
		return;
	}
	escaped_line(stdout, "  %-7s  %s", arrow_table_name(table), f->path);
	printf("           %s, %zu batch%s, ", bytes_text(f->reader.size, size),
		f->reader.nb_batches, plural(f->reader.nb_batches, "", "es"));
	end = f->damaged > 0 && f->reader.nb_damage > 0 &&
		arrow_damage_is_end(&f->reader, f->reader.nb_damage - 1);
	if (f->damaged > end)
		printf("%zu DAMAGED%s, left out", f->damaged - end, end ? ", 1 incomplete" : "");
	else if (end)
		printf("1 incomplete, left out");
	else if (f->crc_absent > 0)
		printf("%zu without CRC", f->crc_absent);
	else
		printf("every CRC-32C right");
	if (f->fault != NULL)
		printf("\n           DAMAGED: %s", f->fault);
	if (f->reader.complete)
		printf(", complete\n");
	else
		printf("\n           NOT COMPLETE: valid up to byte %" PRIu64 ": %s\n",
			f->reader.valid, f->reader.problem);
	print_damage(run, f, table);
}

/* Sums over all files of a table. */
struct table_sum {
	size_t files;
	size_t batches;
	size_t damaged; /* number of files */
	uint64_t bytes;
	uint64_t rows;
};

static struct table_sum
sum_table(const struct scan_run *run, enum arrow_table table)
{
	struct table_sum sum = {0};
	const struct scan_file *f;
	size_t k, i;

	for (k = 0; k < run->nb_sets; k++) {
		f = &run->set[k].file[table];
		sum.files += f->present;
		sum.damaged += scan_file_is_damaged(f);
		sum.bytes += f->reader.size;
		sum.batches += f->reader.nb_batches;
		for (i = 0; i < f->reader.nb_batches; i++)
			sum.rows += f->reader.batches[i].rows;
	}
	return sum;
}

/* Prints the files of a run; if there are many, only those with problems. */
static void
print_files(const struct scan_run *run)
{
	struct table_sum sum;
	char size[32];
	unsigned int i;
	size_t k;

	if (run->nb_sets > 1)
		printf("  %zu sets of files\n", run->nb_sets);
	for (i = 0; i < ARROW_TABLES; i++) {
		if (run->nb_sets > 1) {
			sum = sum_table(run, i);
			printf("  %-7s  %zu files, %s, %zu batch%s, ", arrow_table_name(i),
				sum.files, bytes_text(sum.bytes, size), sum.batches,
				plural(sum.batches, "", "es"));
			if (sum.damaged == 0)
				printf("every CRC-32C right, all complete\n");
			else
				printf("%zu WITH ERRORS:\n", sum.damaged);
		}
		for (k = 0; k < run->nb_sets; k++) {
			if (run->nb_sets == 1 || scan_file_is_damaged(&run->set[k].file[i]))
				print_file(run, &run->set[k].file[i], i);
		}
	}
}

static void
print_meta(const struct scan_run *run)
{
	static const struct {
		const char *key;
		const char *name;
		const char *unit;
		const char *unknown; /**< value that means unknown and is not shown */
	} shown[] = {
		{ARROW_META_SAMPLE, "sample", "", ""},
		{ARROW_META_DETECTOR, "detector", ""},
		{ARROW_META_DISTANCE, "distance", " mm", "0"},
		{ARROW_META_BEAM_X, "beam, x", " pixels", "0"},
		{ARROW_META_BEAM_Y, "beam, y", " pixels", "0"},
		{ARROW_META_ENERGY, "photon energy", " keV"},
		{ARROW_META_VALUE, "values", ""},
		{ARROW_META_CSR_THRESHOLD, "CSR threshold", " photons"},
		{ARROW_META_STRONG_THRESH, "strong threshold", " photons"},
		{ARROW_META_STRONG_MIN, "strong count, min", " pixels"},
		{ARROW_META_STRONG_MAX, "strong count, max", " pixels"},
		{ARROW_META_PEAKS, "search for peaks", ""},
		{ARROW_META_PEAKS_MIN, "peaks, min", ""},
		{ARROW_META_PEAKS_MAX, "peaks, max", ""},
		{ARROW_META_PEAKS_SHELLS, "shells", " angstrom", "none"},
		{ARROW_META_PEDESTAL, "pedestal maps", ""},
		{ARROW_META_GAIN, "gain maps", ""},
		{ARROW_META_MASK, "mask maps", ""},
		{ARROW_META_CALIBRATION, "all coefficients", ""},
	};
	const struct arrow_reader *r = scan_run_reader(run);
	const char *text;
	unsigned int i;

	printf("  %-18s %u module%s, %u x %u pixels\n", "raster", run->modules,
		run->modules == 1 ? "" : "s", run->rows, run->cols);
	for (i = 0; i < sizeof(shown) / sizeof(shown[0]); i++) {
		text = arrow_reader_meta(r, shown[i].key);
		if (text == NULL ||
			(shown[i].unknown != NULL && strcmp(text, shown[i].unknown) == 0))
			continue;
		/* UINT32_MAX means no limit */
		if ((strcmp(shown[i].key, ARROW_META_STRONG_MAX) == 0 ||
			    strcmp(shown[i].key, ARROW_META_PEAKS_MAX) == 0) &&
			strcmp(text, "4294967295") == 0)
			printf("  %-18s no limit\n", shown[i].name);
		else
			escaped_line(stdout, "  %-18s %s%s", shown[i].name, text, shown[i].unit);
	}
}

static void
print_geometry(const struct scan_run *run)
{
	struct geometry *g = scan_geometry(run);
	struct geometry_summary s;
	char text[256];

	if (g == NULL)
		return;
	geometry_summary(g, &s);
	escaped_line(
		stdout, "  %-18s %s", "geometry", geometry_summary_text(g, &s, text, sizeof(text)));
	free(g);
}

static void
print_missing(const struct scan_run *run, uint64_t packets, uint64_t sent, uint64_t frames)
{
	unsigned int m;

	printf("  packets missing    %" PRIu64 " of %" PRIu64 " (%.4f %%), in %" PRIu64 " frames\n",
		packets, sent, percent(packets, sent), frames);
	if (packets == 0 || run->modules == 1)
		return;
	printf("    by module       ");
	for (m = 0; m < run->modules; m++)
		printf(" %" PRIu64, run->missing[m]);
	printf("\n");
}

static void
print_peaks(const struct scan_run *run)
{
	uint64_t peaks = 0, kept = 0, hits = 0;
	const struct scan_frame *f;
	uint32_t most = 0;

	for (f = run->frame; f < run->frame + run->nb_frames; f++) {
		if (f->peaks == FRAME_NO_SEARCH)
			continue;
		peaks += f->peaks;
		most = f->peaks > most ? f->peaks : most;
		hits += f->verdict == FRAME_HIT;
		kept += f->verdict == FRAME_HIT ? f->peaks : 0;
	}
	printf("  peaks              %" PRIu64 " in %zu frames that were searched, %u at most",
		peaks, run->nb_searched, most);
	if (hits > 0)
		printf(", %.1f per hit", (double)kept / hits);
	printf("\n");
}

bool
report_summary(const struct scan_run *run)
{
	const struct table_sum images = sum_table(run, ARROW_IMAGES);
	uint64_t verdict[FRAME_VERDICTS + 1] = {0};
	uint64_t kept = 0, judged = 0, dark = 0, nnz = 0, packets = 0, holes = 0, no_image = 0;
	uint64_t sent = 0, raw = 0; /* packets */
	uint64_t status = 0, bunch = 0;
	uint64_t kind[4] = {0};
	uint32_t nnz_most = 0;
	const struct scan_frame *f;
	char text[2][32];
	size_t i;

	for (i = 0, f = run->frame; i < run->nb_frames; i++, f++) {
		if (is_kept_dark(f))
			dark++;
		else
			verdict[f->verdict < FRAME_VERDICTS ? f->verdict : FRAME_VERDICTS]++;
		judged += report_is_judged(f);
		packets += f->missing;
		sent += f->expected;
		raw += f->verdict != FRAME_LOST ? f->expected : 0;
		holes += f->missing > 0;
		status += (f->flags & FRAME_FLAG_STATUS) != 0;
		bunch += (f->flags & FRAME_FLAG_BUNCH) != 0;
		if (!frame_verdict_is_kept(f->verdict))
			continue;
		kept++;
		no_image += (f->flags & FRAME_FLAG_NO_IMAGE) != 0;
		kind[f->kind < 3 ? f->kind : 3]++;
		nnz += f->nnz;
		if (f->nnz > nnz_most)
			nnz_most = f->nnz;
	}
	escaped_line(stdout, "run %s", run->name);
	print_files(run);
	print_meta(run);
	print_geometry(run);
	printf("  frames             %zu", run->nb_frames);
	if (run->nb_frames > 0)
		printf(", number %" PRIu64 " to %" PRIu64, run->frame[0].frame,
			run->frame[run->nb_frames - 1].frame);
	printf("\n");
	for (i = 0; i <= FRAME_VERDICTS; i++) {
		if (verdict[i] > 0)
			printf("    %-16s %-10" PRIu64 " %6.2f %%\n",
				i < FRAME_VERDICTS ? verdict_names[i] : "UNKNOWN", verdict[i],
				percent(verdict[i], run->nb_frames));
	}
	if (dark > 0)
		printf("    %-16s %-10" PRIu64 " %6.2f %%\n", "dark, kept", dark,
			percent(dark, run->nb_frames));
	if (judged > 0 || dark == 0)
		printf("  hit rate           %.2f %% of %" PRIu64 " judged frames\n",
			percent(verdict[FRAME_HIT], judged), judged);
	if (run->nb_searched > 0)
		print_peaks(run);
	print_missing(run, packets, sent, holes);
	if (status > 0)
		printf("  NOTE               %" PRIu64 " frames of another storage cell or gain "
		       "mode, or whose modules disagree\n",
			status);
	if (bunch > 0)
		printf("  NOTE               %" PRIu64 " frames whose modules disagree on the "
		       "bunch id: their images may mix exposures\n",
			bunch);
	printf("  kept frames        %" PRIu64 " as CSR, %" PRIu64 " as full image, %" PRIu64
	       " raw\n",
		kind[0], kind[1], kind[2]);
	if (kept > 0)
		printf("  pixels over thr.   %.0f per kept frame, %u at most\n", (double)nnz / kept,
			nnz_most);
	/* each packet has the same share of the raster */
	raw *= (uint64_t)run->rows * run->cols * 2 / run->packets;
	printf("  kept bytes         %s of %s raw", bytes_text(images.bytes, text[0]),
		bytes_text(raw, text[1]));
	if (images.bytes > 0 && raw > 0)
		printf(": 1 : %.1f", (double)raw / images.bytes);
	printf("\n");

	if (images.rows == kept)
		return true;
	printf("  NOTE               %" PRIu64 " kept frames, but %" PRIu64 " rows in images%s\n",
		kept, images.rows,
		scan_run_is_damaged(run) ? ": damaged or incomplete files lack some"
			: images.rows > kept
			? ": the last rows of frames, which follow their images, were not written"
			: "");
	if (no_image > 0)
		printf("                     %" PRIu64
		       " of them are flagged as without image: it could not be written\n",
			no_image);
	return false;
}

static void
print_cell(FILE *out, const struct arrow_column *c, enum arrow_type type, uint64_t i)
{
	switch (type) {
	case ARROW_UINT8:
		fprintf(out, "%u", ((const uint8_t *)c->data)[i]);
		break;
	case ARROW_UINT16:
		fprintf(out, "%u", ((const uint16_t *)c->data)[i]);
		break;
	case ARROW_INT16:
		fprintf(out, "%d", ((const int16_t *)c->data)[i]);
		break;
	case ARROW_UINT32:
		fprintf(out, "%" PRIu32, ((const uint32_t *)c->data)[i]);
		break;
	case ARROW_UINT64:
		fprintf(out, "%" PRIu64, ((const uint64_t *)c->data)[i]);
		break;
	case ARROW_INT64:
	case ARROW_TIMESTAMP_NS:
		fprintf(out, "%" PRId64, ((const int64_t *)c->data)[i]);
		break;
	case ARROW_FLOAT32:
		fprintf(out, "%.9g", (double)((const float *)c->data)[i]);
		break;
	case ARROW_FLOAT64:
		fprintf(out, "%.17g", ((const double *)c->data)[i]);
		break;
	default:
		break;
	}
}

static void
print_items(FILE *out, const struct arrow_column *c, uint64_t from, uint64_t end)
{
	for (uint64_t i = from; i < end; i++) {
		if (i > from)
			fputc(' ', out);
		print_cell(out, c, c->field->item, i);
	}
}

/* Null is an empty cell. */
static void
print_row(FILE *out, const struct arrow_column *columns, unsigned int nb, uint64_t row)
{
	const struct arrow_column *c;
	const struct arrow_field *f;

	for (c = columns; c < columns + nb; c++) {
		f = c->field;
		if (c > columns)
			fputc(',', out);
		if (c->validity != NULL && !(c->validity[row / 8] >> row % 8 & 1))
			continue;
		if (f->type == ARROW_FIXED_LIST)
			print_items(out, c, row * f->list_size, (row + 1) * f->list_size);
		else if (f->type == ARROW_LIST)
			print_items(out, c, c->offsets[row], c->offsets[row + 1]);
		else
			print_cell(out, c, f->type, row);
	}
	fputc('\n', out);
}

static void
print_rows(FILE *out, const struct arrow_reader *r)
{
	struct arrow_column c[ARROW_NODES_MAX];
	unsigned int k;
	uint64_t row;
	size_t i;

	for (i = 0; i < r->nb_batches; i++) {
		for (k = 0; k < r->schema.nb_fields; k++) {
			/* damaged batches were reported when the run was read */
			if (arrow_reader_column(r, i, k, &c[k]) < 0)
				break;
		}
		for (row = 0; k == r->schema.nb_fields && row < r->batches[i].rows; row++)
			print_row(out, c, k, row);
	}
}

int
report_csv(const struct scan_run *run, const char *path)
{
	const struct arrow_reader *r = scan_run_reader(run);
	FILE *out = csv_create(path);
	unsigned int k;
	size_t i;

	if (out == NULL)
		return csv_finish(NULL, path, -errno);
	for (k = 0; k < r->schema.nb_fields; k++)
		fprintf(out, "%s%s", k > 0 ? "," : "", r->fields[k].name);
	fputc('\n', out);
	for (i = 0; i < run->nb_sets; i++)
		print_rows(out, &run->set[i].file[ARROW_FRAMES].reader);
	return csv_finish(out, path, 0);
}
