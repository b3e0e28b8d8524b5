/* SPDX-License-Identifier: BSD-3-Clause */

#include "arrow/names.h"
#include "output/run_frames.h"

#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "arrow/reader.h"
#include "arrow/tables.h"
#include "arrow/bitshuffle.h"

/* A row of one of the tables. */
struct row {
	uint64_t frame;
	uint32_t file;
	uint32_t batch;
	uint32_t row;
};

struct rows {
	struct row *at;
	size_t nb;
	size_t room;
};

struct run_file {
	char *path;
	struct arrow_reader reader;
};

struct run_frames {
	uint32_t modules;
	struct run_file *file;
	size_t nb_files;
	struct rows frames;
	struct rows images; /* rows of raw images */
	size_t next;	    /* index in images */
	size_t at;	    /* index in `frames` from which the row of images[next] is searched */
};

static int
damaged(const char *path, const char *what)
{
	warnx("%s: %s", path, what);
	return -EBADMSG;
}

static int
add_row(struct rows *rows, const struct row *row)
{
	struct row *more;

	if (rows->nb == rows->room) {
		more = realloc(rows->at, (2 * rows->room + 1024) * sizeof(*more));
		if (more == NULL)
			return -ENOMEM;
		rows->at = more;
		rows->room = 2 * rows->room + 1024;
	}
	rows->at[rows->nb++] = *row;
	return 0;
}

/* Adds all rows of a batch; of `images` only the raw ones. */
static int
add_batch(struct run_frames *run, uint32_t file, uint32_t batch, bool images)
{
	const struct arrow_reader *r = &run->file[file].reader;
	struct arrow_column frame, kind = {0};
	struct row row = {.file = file, .batch = batch};
	int ret = 0;

	if (arrow_reader_crc(r, batch) < 0)
		return damaged(run->file[file].path, "a batch is damaged");
	if (arrow_reader_column(r, batch, images ? (int)IMAGES_FRAME : (int)FRAMES_FRAME, &frame) <
			0 ||
		(images && arrow_reader_column(r, batch, IMAGES_KIND, &kind) < 0))
		return damaged(run->file[file].path, "a column is damaged");
	for (; ret == 0 && row.row < frame.rows; row.row++) {
		row.frame = ((const uint64_t *)frame.data)[row.row];
		if (!images)
			ret = add_row(&run->frames, &row);
		else if (((const uint8_t *)kind.data)[row.row] == GK_KIND_RAW)
			ret = add_row(&run->images, &row);
	}
	return ret;
}

/* Check that a schema belongs to one of the tables, and to our detector. */
static int
check_schema(const struct run_frames *run, const struct run_file *f, bool *images)
{
	const char *modules = arrow_reader_meta(&f->reader, ARROW_META_MODULES);
	const char *table = arrow_reader_meta(&f->reader, ARROW_META_TABLE);
	const struct arrow_reader *r = &f->reader;

	if (modules == NULL || table == NULL)
		return damaged(f->path, "it is not a file of a run");
	if (strtoul(modules, NULL, 10) != run->modules) {
		warnx("%s: run of %s modules, expected the %u of --modules", f->path, modules,
			run->modules);
		return -EINVAL;
	}
	*images = strcmp(table, arrow_table_name(ARROW_IMAGES)) == 0;
	if (*images ? arrow_reader_find(r, "frame", ARROW_UINT64, 0) != IMAGES_FRAME ||
				arrow_reader_find(r, "kind", ARROW_UINT8, 0) != IMAGES_KIND ||
				arrow_reader_find(r, "raw", ARROW_BINARY, 0) != IMAGES_RAW ||
				arrow_reader_find(r, "missing", ARROW_BINARY, 0) != IMAGES_MISSING
		    : arrow_reader_find(r, "frame", ARROW_UINT64, 0) != FRAMES_FRAME ||
				arrow_reader_find(r, "bunch_id", ARROW_UINT64, 0) !=
					FRAMES_BUNCH_ID ||
				arrow_reader_find(r, "detector_time", ARROW_UINT64, 0) !=
					FRAMES_DETECTOR_TIME ||
				arrow_reader_find(r, "exposure", ARROW_UINT32, 0) !=
					FRAMES_EXPOSURE ||
				arrow_reader_find(r, "detector_status", ARROW_UINT32, 0) !=
					FRAMES_DETECTOR_STATUS)
		return damaged(f->path, "its columns are not those of a run");
	return 0;
}

static int
add_file(struct run_frames *run, const char *path)
{
	struct run_file *more, *f;
	const char *problem;
	bool images;
	size_t i;
	int ret;

	more = realloc(run->file, (run->nb_files + 1) * sizeof(*more));
	if (more == NULL)
		return -ENOMEM;
	run->file = more;
	f = &more[run->nb_files];
	ret = arrow_reader_open(&f->reader, path, &problem);
	if (ret < 0) {
		warnx("%s: %s", path, problem);
		return ret;
	}
	f->path = strdup(path);
	run->nb_files++;
	ret = f->path != NULL ? check_schema(run, f, &images) : -ENOMEM;
	for (i = 0; ret == 0 && i < f->reader.nb_batches; i++)
		ret = add_batch(run, run->nb_files - 1, i, images);
	return ret;
}

static int
is_arrow(const struct dirent *entry)
{
	return !arrow_name_is_hidden(entry->d_name) && arrow_name_is_complete(entry->d_name);
}

static int
add_path(struct run_frames *run, const char *path)
{
	char name[PATH_MAX];
	struct dirent **entry;
	struct stat st;
	int i, n, ret = 0;

	if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode))
		return add_file(run, path);
	n = scandir(path, &entry, is_arrow, alphasort);
	if (n < 0) {
		ret = -errno;
		warn("%s", path);
		return ret;
	}
	for (i = 0; i < n; i++) {
		if (ret == 0 &&
			snprintf(name, sizeof(name), "%s/%s", path, entry[i]->d_name) <
				(int)sizeof(name))
			ret = add_file(run, name);
		free(entry[i]);
	}
	free(entry);
	return ret;
}

static int
by_frame(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return x->frame < y->frame ? -1 : x->frame > y->frame;
}

static int
sort(struct rows *rows)
{
	size_t i;

	if (rows->nb > 0)
		qsort(rows->at, rows->nb, sizeof(rows->at[0]), by_frame);
	for (i = 1; i < rows->nb; i++) {
		if (rows->at[i].frame != rows->at[i - 1].frame)
			continue;
		warnx("frame %llu is there twice; expected one run, without a restart of the "
		      "detector",
			(unsigned long long)rows->at[i].frame);
		return -EINVAL;
	}
	return 0;
}

int
run_frames_open(struct run_frames **run, char *const *paths, int nb_paths, uint32_t modules,
	uint64_t *frames)
{
	struct run_frames *r = calloc(1, sizeof(*r));
	int i, ret = 0;

	*run = r;
	if (r == NULL)
		return -ENOMEM;
	r->modules = modules;
	for (i = 0; i < nb_paths && ret == 0; i++)
		ret = add_path(r, paths[i]);
	if (ret == 0)
		ret = sort(&r->frames);
	if (ret == 0)
		ret = sort(&r->images);
	if (ret == 0 && r->images.nb == 0) {
		warnx("no raw frame found; expected a run with [output] format = raw");
		ret = -EINVAL;
	}
	*frames = r->images.nb;
	return ret;
}

static uint64_t
u64_of(const struct arrow_column *c, uint32_t row)
{
	return ((const uint64_t *)c->data)[row];
}

static uint32_t
u32_of(const struct arrow_column *c, uint32_t row)
{
	return ((const uint32_t *)c->data)[row];
}

/* Reads the header values of a frame's packets, which are in the table `frames`. */
static int
read_header(struct run_frames *run, uint64_t frame, struct jungfrau_frame_header *header)
{
	static const enum arrow_frames_column wanted[] = {
		FRAMES_BUNCH_ID, FRAMES_DETECTOR_TIME, FRAMES_EXPOSURE, FRAMES_DETECTOR_STATUS};
	struct arrow_column c[4];
	const struct row *row;
	unsigned int i;

	while (run->at < run->frames.nb && run->frames.at[run->at].frame < frame)
		run->at++;
	if (run->at == run->frames.nb || run->frames.at[run->at].frame != frame) {
		warnx("frame %llu has an image but no row in frames; expected the files of both "
		      "tables",
			(unsigned long long)frame);
		return -EINVAL;
	}
	row = &run->frames.at[run->at];
	for (i = 0; i < 4; i++) {
		if (arrow_reader_column(
			    &run->file[row->file].reader, row->batch, wanted[i], &c[i]) < 0)
			return damaged(run->file[row->file].path, "a column is damaged");
	}
	*header = (struct jungfrau_frame_header){
		.number = frame,
		.bunch_id = u64_of(&c[0], row->row),
		.timestamp = u64_of(&c[1], row->row),
		.exposure = u32_of(&c[2], row->row),
		.daq_info = u32_of(&c[3], row->row),
	};
	return 0;
}

int
run_frames_read(struct run_frames *run, uint16_t *raw, struct jungfrau_frame_header *header,
	const uint8_t **missing)
{
	const struct row *row = &run->images.at[run->next];
	const struct run_file *f;
	struct arrow_column chunk, map;
	uint64_t start, end;

	if (run->next == run->images.nb)
		return -ENODATA;
	run->next++;
	f = &run->file[row->file];
	if (arrow_reader_column(&f->reader, row->batch, IMAGES_RAW, &chunk) < 0 ||
		arrow_reader_column(&f->reader, row->batch, IMAGES_MISSING, &map) < 0 ||
		arrow_column_is_null(&chunk, row->row))
		return damaged(f->path, "a column is damaged");
	arrow_column_range(&map, row->row, &start, &end);
	if (end - start != run->modules * JUNGFRAU_MODULE_PACKETS / 8)
		return damaged(f->path, "missing packets do not match this detector");
	*missing = (const uint8_t *)map.data + start;
	arrow_column_range(&chunk, row->row, &start, &end);
	if (bitshuffle_decompress((const uint8_t *)chunk.data + start, end - start, raw,
		    (size_t)run->modules * JUNGFRAU_PIXELS) < 0)
		return damaged(f->path, "a raw image is damaged, or of another detector");
	return read_header(run, row->frame, header);
}

void
run_frames_close(struct run_frames *run)
{
	size_t i;

	if (run == NULL)
		return;
	for (i = 0; i < run->nb_files; i++) {
		arrow_reader_close(&run->file[i].reader);
		free(run->file[i].path);
	}
	free(run->file);
	free(run->frames.at);
	free(run->images.at);
	free(run);
}
