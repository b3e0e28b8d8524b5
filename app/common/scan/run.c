/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "escaped_text.h"
#include "recovery/order.h"
#include "recovery/recovery.h"
#include "scan/crcs.h"
#include "scan/run.h"
#include "whole_number.h"

#define SIDE_MAX   65536
#define PIXELS_MAX (1u << 26) /* four times 32 modules of JUNGFRAU */

static void
complain(const char *path, const char *what)
{
	escaped_line(stderr, "%s: %s: %s", program_invocation_short_name, path, what);
}

/* Reads a number between 1 and `most` from the schema's metadata. */
static int
read_size(const struct scan_file *f, const char *key, uint32_t most, uint32_t *size)
{
	const char *text = arrow_reader_meta(&f->reader, key);
	uint64_t value;

	if (text == NULL) {
		escaped_line(stderr, "%s: %s: its schema has no %s: not a file of braggline",
			program_invocation_short_name, f->path, key);
		return -EBADMSG;
	}
	if (!whole_number(text, 1, most, &value)) {
		escaped_line(stderr, "%s: %s: %s is '%s', expected 1 to %u",
			program_invocation_short_name, f->path, key, text, most);
		return -EBADMSG;
	}
	*size = value;
	return 0;
}

/* Reads the detector's metadata from the schema; all files of a run must agree. */
static int
read_detector(struct scan_run *run, const struct scan_file *f)
{
	const struct {
		const char *key;
		uint32_t most;
		uint32_t *size;
	} sizes[] = {
		{ARROW_META_MODULES, FRAME_MODULES_MAX, &run->modules},
		{ARROW_META_ROWS, SIDE_MAX, &run->rows},
		{ARROW_META_COLS, SIDE_MAX, &run->cols},
		{ARROW_META_PACKETS, FRAME_PACKETS_MAX, &run->packets},
	};
	uint32_t size;
	unsigned int i;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (read_size(f, sizes[i].key, sizes[i].most, &size) < 0)
			return -EBADMSG;
		if (*sizes[i].size != 0 && *sizes[i].size != size) {
			escaped_line(stderr,
				"%s: %s: %s is %u, in other files of the run it is "
				"%u",
				program_invocation_short_name, f->path, sizes[i].key, size,
				*sizes[i].size);
			return -EBADMSG;
		}
		*sizes[i].size = size;
	}
	if ((uint64_t)run->rows * run->cols > PIXELS_MAX) {
		complain(f->path, "its pixel raster is larger than that of any supported detector");
		return -EBADMSG;
	}
	return 0;
}

/*
 * Reads how many packets of a frame the readout sends. A receiver that continues a run may have
 * another readout. Older files lack this key: the readout then sends all packets of the raster.
 */
static int
read_expected(const struct scan_run *run, struct scan_file *f)
{
	if (arrow_reader_meta(&f->reader, ARROW_META_EXPECTED) != NULL)
		return read_size(f, ARROW_META_EXPECTED, run->packets, &f->expected);
	f->expected = run->packets;
	return 0;
}

int
scan_run_check(struct scan_run *run, struct scan_file *f)
{
	const int ret = read_detector(run, f);

	return ret < 0 ? ret : read_expected(run, f);
}

static int
open_file(struct scan_run *run, struct scan_file *f, const char *stem, enum arrow_table table,
	bool check)
{
	const char *problem;
	struct stat st;
	int ret;

	if (snprintf(f->path, sizeof(f->path), "%s_%s.arrow", stem, arrow_table_name(table)) >=
		(int)sizeof(f->path) - 5)
		return -ENAMETOOLONG;
	if (stat(f->path, &st) < 0)
		strcat(f->path, ".part");
	if (stat(f->path, &st) < 0)
		return 0;
	ret = arrow_reader_open(&f->reader, f->path, &problem);
	if (ret < 0) {
		complain(f->path, problem);
		return ret;
	}
	f->present = true;
	problem = arrow_table_problem(&f->reader, table);
	if (problem != NULL) {
		complain(f->path, problem);
		return -EBADMSG;
	}
	f->crc_absent = check ? scan_crcs(&f->reader) : 0;
	ret = arrow_order(&f->reader);
	/* from here on the reader contains only undamaged batches */
	if (ret == 0)
		ret = arrow_reader_part(&f->reader);
	f->damaged = f->reader.nb_damage;
	f->fault = arrow_recovery_frame_fault(&f->reader);
	return ret < 0 ? ret : scan_run_check(run, f);
}

enum {
	FRAME,
	RECEIVE_TIME,
	STRONG_COUNT,
	NNZ,
	SATURATED,
	FLAGS,
	MISSING,
	VERDICT,
	KIND,
	NEEDED
};

/* Read the column of peaks, which only files of runs with a search have. */
static int
read_peaks(struct scan_run *run, const struct scan_file *file, size_t batch, struct scan_frame *f)
{
	const struct arrow_reader *r = &file->reader;
	const int field = arrow_reader_find(r, "peaks", ARROW_UINT32, ARROW_UINT16);
	struct arrow_column c;

	if (field < 0)
		return 0;
	if (arrow_reader_column(r, batch, field, &c) < 0)
		return -EBADMSG;
	for (uint64_t i = 0; i < r->batches[batch].rows; i++) {
		if (c.validity != NULL && !(c.validity[i / 8] >> i % 8 & 1))
			continue;
		f[i].peaks = ((const uint32_t *)c.data)[i];
		run->nb_searched++;
	}
	return 0;
}

static int
read_frames_batch(
	struct scan_run *run, const struct scan_file *file, size_t batch, const int *field)
{
	const struct arrow_reader *r = &file->reader;
	const uint64_t rows = r->batches[batch].rows;
	struct arrow_column c[NEEDED];
	struct scan_frame *f;
	const uint16_t *missing;
	uint32_t m;
	uint64_t i;

	for (i = 0; i < NEEDED; i++) {
		if (arrow_reader_column(r, batch, field[i], &c[i]) < 0)
			return -EBADMSG;
	}
	/* these rows have been checked to be within the file */
	f = realloc(run->frame, (run->nb_frames + rows + 1) * sizeof(*f));
	if (f == NULL)
		return -ENOMEM;
	run->frame = f;
	f += run->nb_frames;
	run->nb_frames += rows;
	for (i = 0; i < rows; i++, f++) {
		*f = (struct scan_frame){
			.frame = ((const uint64_t *)c[FRAME].data)[i],
			.receive_time = ((const int64_t *)c[RECEIVE_TIME].data)[i],
			.strong_count = ((const uint32_t *)c[STRONG_COUNT].data)[i],
			.nnz = ((const uint32_t *)c[NNZ].data)[i],
			.peaks = FRAME_NO_SEARCH,
			.saturated = ((const uint32_t *)c[SATURATED].data)[i],
			.flags = ((const uint32_t *)c[FLAGS].data)[i],
			.expected = file->expected,
			.verdict = ((const uint8_t *)c[VERDICT].data)[i],
			.kind = ((const uint8_t *)c[KIND].data)[i],
		};
		missing = (const uint16_t *)c[MISSING].data + i * run->modules;
		for (m = 0; m < run->modules; m++) {
			f->missing += missing[m];
			run->missing[m] += missing[m];
		}
	}
	return read_peaks(run, file, batch, f - rows);
}

static int
read_frames(struct scan_run *run, struct scan_file *f)
{
	static const struct {
		const char *name;
		enum arrow_type type;
	} needed[NEEDED] = {
		[FRAME] = {"frame", ARROW_UINT64},
		[RECEIVE_TIME] = {"receive_time", ARROW_TIMESTAMP_NS},
		[STRONG_COUNT] = {"strong_count", ARROW_UINT32},
		[NNZ] = {"nnz", ARROW_UINT32},
		[SATURATED] = {"saturated", ARROW_UINT32},
		[FLAGS] = {"flags", ARROW_UINT32},
		[MISSING] = {"missing", ARROW_FIXED_LIST},
		[VERDICT] = {"verdict", ARROW_UINT8},
		[KIND] = {"kind", ARROW_UINT8},
	};
	int field[NEEDED], ret;
	size_t i;

	for (i = 0; i < NEEDED; i++) {
		field[i] =
			arrow_reader_find(&f->reader, needed[i].name, needed[i].type, ARROW_UINT16);
		if (field[i] >= 0 &&
			(i != MISSING || f->reader.fields[field[i]].list_size == run->modules))
			continue;
		escaped_line(stderr, "%s: %s: no column %s of type %s",
			program_invocation_short_name, f->path, needed[i].name,
			arrow_type_name(needed[i].type));
		return -EBADMSG;
	}
	for (i = 0; i < f->reader.nb_batches; i++) {
		ret = read_frames_batch(run, f, i, field);
		if (ret < 0) {
			escaped_line(stderr, "%s: %s: record batch %zu is damaged",
				program_invocation_short_name, f->path, i);
			if (ret != -EBADMSG)
				return ret;
			f->damaged++;
		}
	}
	return 0;
}

static int
open_run(struct scan_run *run, const struct scan_sets *sets, bool check_images)
{
	const char *slash = strrchr(sets->path, '/');
	struct scan_set *set;
	unsigned int i;
	bool any = false;
	int ret;

	memset(run, 0, sizeof(*run));
	snprintf(run->name, sizeof(run->name), "%s", slash != NULL ? slash + 1 : sets->path);
	run->set = calloc(sets->nb, sizeof(*run->set));
	if (run->set == NULL)
		return -ENOMEM;
	for (run->nb_sets = 0; run->nb_sets < sets->nb;) {
		set = &run->set[run->nb_sets++];
		for (i = 0; i < ARROW_TABLES; i++) {
			ret = open_file(run, &set->file[i], sets->stem[set - run->set], i,
				i != ARROW_IMAGES || check_images);
			if (ret < 0)
				return ret;
		}
		if (!set->file[ARROW_FRAMES].present) {
			escaped_line(stderr,
				"%s: %s_frames.arrow: not found; it has a row for "
				"every frame and must be beside %s",
				program_invocation_short_name, sets->stem[set - run->set],
				set->file[ARROW_IMAGES].path);
			continue;
		}
		any = true;
		ret = read_frames(run, &set->file[ARROW_FRAMES]);
		if (ret < 0)
			return ret;
	}
	return any ? 0 : -ENOENT;
}

int
scan_run_open(struct scan_run *run, const struct scan_sets *sets)
{
	return open_run(run, sets, true);
}

int
scan_run_open_unchecked(struct scan_run *run, const struct scan_sets *sets)
{
	return open_run(run, sets, false);
}

void
scan_run_close(struct scan_run *run)
{
	unsigned int i;
	size_t k;

	for (k = 0; k < run->nb_sets; k++) {
		for (i = 0; i < ARROW_TABLES; i++) {
			if (run->set[k].file[i].present)
				arrow_reader_close(&run->set[k].file[i].reader);
		}
	}
	free(run->set);
	free(run->frame);
	memset(run, 0, sizeof(*run));
}

bool
scan_file_is_damaged(const struct scan_file *f)
{
	return !f->present || f->damaged > 0 || f->fault != NULL || !f->reader.complete;
}

bool
scan_run_is_damaged(const struct scan_run *run)
{
	unsigned int i;
	size_t k;

	for (k = 0; k < run->nb_sets; k++) {
		for (i = 0; i < ARROW_TABLES; i++) {
			if (scan_file_is_damaged(&run->set[k].file[i]))
				return true;
		}
	}
	return false;
}

const struct arrow_reader *
scan_run_reader(const struct scan_run *run)
{
	size_t k;

	for (k = 0; !run->set[k].file[ARROW_FRAMES].present; k++)
		;
	return &run->set[k].file[ARROW_FRAMES].reader;
}

const struct scan_frame *
scan_run_find(const struct scan_run *run, uint64_t frame)
{
	size_t low = 0, high = run->nb_frames, mid;

	/* the rows are sorted, unless a detector restarted; then any matching row is acceptable */
	while (low < high) {
		mid = (low + high) / 2;
		if (run->frame[mid].frame < frame)
			low = mid + 1;
		else
			high = mid;
	}
	return low < run->nb_frames && run->frame[low].frame == frame ? &run->frame[low] : NULL;
}
