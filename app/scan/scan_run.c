/* SPDX-License-Identifier: BSD-3-Clause */

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "scan_run.h"

#define SIDE_MAX   65536
#define PIXELS_MAX (1u << 26) /* four times 32 modules of JUNGFRAU */

static void
complain(const char *path, const char *what)
{
	fprintf(stderr, "braggline-scan: %s: %s\n", path, what);
}

/* Length of a path up to _frames or _images, 0 if it is not such a file. */
static size_t
stem_length(const char *path)
{
	static const char *const ends[] = {
		"_frames.arrow", "_frames.arrow.part", "_images.arrow", "_images.arrow.part"};
	const size_t len = strlen(path);
	size_t end, i;

	for (i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		end = strlen(ends[i]);
		if (len > end && strcmp(path + len - end, ends[i]) == 0 &&
			path[len - end - 1] != '/')
			return len - end;
	}
	return 0;
}

static int
list_stem(struct scan_list *list, const char *path, size_t len)
{
	char **stem;
	size_t i;

	for (i = 0; i < list->nb; i++) {
		if (strlen(list->stem[i]) == len && memcmp(list->stem[i], path, len) == 0)
			return 0;
	}
	stem = realloc(list->stem, (list->nb + 1) * sizeof(*stem));
	if (stem == NULL)
		return -ENOMEM;
	list->stem = stem;
	stem[list->nb] = strndup(path, len);
	if (stem[list->nb] == NULL)
		return -ENOMEM;
	list->nb++;
	return 0;
}

static int
by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int
list_directory(struct scan_list *list, const char *dir)
{
	const size_t before = list->nb;
	struct dirent *entry;
	char path[PATH_MAX];
	size_t len;
	DIR *d;
	int rc = 0;

	d = opendir(dir);
	if (d == NULL) {
		complain(dir, strerror(errno));
		return -EINVAL;
	}
	while (rc == 0 && (entry = readdir(d)) != NULL) {
		if (snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name) >= (int)sizeof(path))
			continue;
		len = stem_length(path);
		if (len > 0)
			rc = list_stem(list, path, len);
	}
	closedir(d);
	if (rc == 0 && list->nb == before) {
		complain(dir, "no file here is called RUN_frames.arrow or RUN_images.arrow");
		return -EINVAL;
	}
	/* as a directory lists them is no order */
	if (list->nb > before)
		qsort(list->stem + before, list->nb - before, sizeof(*list->stem), by_name);
	return rc;
}

int
scan_list_add(struct scan_list *list, const char *path)
{
	struct stat st;
	size_t len;

	if (stat(path, &st) < 0) {
		complain(path, strerror(errno));
		return -EINVAL;
	}
	if (S_ISDIR(st.st_mode))
		return list_directory(list, path);
	len = stem_length(path);
	if (len == 0) {
		complain(path,
			"wanted a directory, or a file called RUN_frames.arrow or "
			"RUN_images.arrow, or the same with .part");
		return -EINVAL;
	}
	return list_stem(list, path, len);
}

void
scan_list_free(struct scan_list *list)
{
	size_t i;

	for (i = 0; i < list->nb; i++)
		free(list->stem[i]);
	free(list->stem);
}

/* A number of the schema's metadata between 1 and most. */
static int
read_size(const struct scan_file *f, const char *key, uint32_t most, uint32_t *size)
{
	const char *text = arrow_reader_meta(&f->reader, key);
	unsigned long value;
	char *end;

	if (text == NULL) {
		fprintf(stderr,
			"braggline-scan: %s: its schema has no %s: not written by braggline\n",
			f->path, key);
		return -EBADMSG;
	}
	value = strtoul(text, &end, 10);
	if (*end != '\0' || value < 1 || value > most) {
		fprintf(stderr, "braggline-scan: %s: %s is '%s', wanted 1 to %u\n", f->path, key,
			text, most);
		return -EBADMSG;
	}
	*size = value;
	return 0;
}

static int
open_file(struct scan_run *run, const char *stem, enum arrow_table table)
{
	struct scan_file *f = &run->file[table];
	const char *problem, *name;
	struct stat st;
	size_t i;
	int rc;

	if (snprintf(f->path, sizeof(f->path), "%s_%s.arrow", stem, arrow_table_name(table)) >=
		(int)sizeof(f->path) - 5)
		return -ENAMETOOLONG;
	if (stat(f->path, &st) < 0)
		strcat(f->path, ".part");
	if (stat(f->path, &st) < 0)
		return 0;
	rc = arrow_reader_open(&f->reader, f->path, &problem);
	if (rc < 0) {
		complain(f->path, problem);
		return rc;
	}
	f->present = true;
	name = arrow_reader_meta(&f->reader, ARROW_META_TABLE);
	if (name == NULL || strcmp(name, arrow_table_name(table)) != 0) {
		complain(f->path, "its schema is of another table than its name says");
		return -EBADMSG;
	}
	for (i = 0; i < f->reader.nb_batches; i++) {
		rc = arrow_reader_crc(&f->reader, i);
		f->crc_wrong += rc < 0;
		f->crc_absent += rc == 0;
	}
	if (read_size(f, ARROW_META_MODULES, FRAME_MODULES_MAX, &run->modules) < 0 ||
		read_size(f, ARROW_META_ROWS, SIDE_MAX, &run->rows) < 0 ||
		read_size(f, ARROW_META_COLS, SIDE_MAX, &run->cols) < 0 ||
		read_size(f, ARROW_META_PACKETS, FRAME_PACKETS_MAX, &run->packets) < 0)
		return -EBADMSG;
	if ((uint64_t)run->rows * run->cols > PIXELS_MAX) {
		complain(f->path, "its raster is larger than any detector");
		return -EBADMSG;
	}
	return 0;
}

enum {
	FRAME,
	RECEIVE_TIME,
	BRAGG_COUNT,
	NNZ,
	SATURATED,
	FLAGS,
	MISSING,
	VERDICT,
	KIND,
	NEEDED
};

static int
read_frames_batch(struct scan_run *run, size_t batch, const int *field)
{
	const struct arrow_reader *r = &run->file[ARROW_FRAMES].reader;
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
	/* so many rows have been found to lie within the file */
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
			.bragg_count = ((const uint32_t *)c[BRAGG_COUNT].data)[i],
			.nnz = ((const uint32_t *)c[NNZ].data)[i],
			.saturated = ((const uint32_t *)c[SATURATED].data)[i],
			.flags = ((const uint32_t *)c[FLAGS].data)[i],
			.verdict = ((const uint8_t *)c[VERDICT].data)[i],
			.kind = ((const uint8_t *)c[KIND].data)[i],
		};
		missing = (const uint16_t *)c[MISSING].data + i * run->modules;
		for (m = 0; m < run->modules; m++) {
			f->missing += missing[m];
			run->missing[m] += missing[m];
		}
	}
	return 0;
}

static int
read_frames(struct scan_run *run)
{
	static const struct {
		const char *name;
		enum arrow_type type;
	} needed[NEEDED] = {
		[FRAME] = {"frame", ARROW_UINT64},
		[RECEIVE_TIME] = {"receive_time", ARROW_TIMESTAMP_NS},
		[BRAGG_COUNT] = {"bragg_count", ARROW_UINT32},
		[NNZ] = {"nnz", ARROW_UINT32},
		[SATURATED] = {"saturated", ARROW_UINT32},
		[FLAGS] = {"flags", ARROW_UINT32},
		[MISSING] = {"missing", ARROW_FIXED_LIST},
		[VERDICT] = {"verdict", ARROW_UINT8},
		[KIND] = {"kind", ARROW_UINT8},
	};
	struct scan_file *f = &run->file[ARROW_FRAMES];
	int field[NEEDED], rc;
	size_t i;

	for (i = 0; i < NEEDED; i++) {
		field[i] =
			arrow_reader_find(&f->reader, needed[i].name, needed[i].type, ARROW_UINT16);
		if (field[i] >= 0 &&
			(i != MISSING || f->reader.fields[field[i]].list_size == run->modules))
			continue;
		fprintf(stderr, "braggline-scan: %s: no column %s of type %s\n", f->path,
			needed[i].name, arrow_type_name(needed[i].type));
		return -EBADMSG;
	}
	for (i = 0; i < f->reader.nb_batches; i++) {
		rc = read_frames_batch(run, i, field);
		if (rc < 0) {
			fprintf(stderr, "braggline-scan: %s: record batch %zu is damaged\n",
				f->path, i);
			if (rc != -EBADMSG)
				return rc;
			f->crc_wrong += f->crc_wrong == 0;
		}
	}
	return 0;
}

int
scan_run_open(struct scan_run *run, const char *stem)
{
	const char *slash = strrchr(stem, '/');
	unsigned int i;
	int rc;

	memset(run, 0, sizeof(*run));
	snprintf(run->name, sizeof(run->name), "%s", slash != NULL ? slash + 1 : stem);
	for (i = 0; i < ARROW_TABLES; i++) {
		rc = open_file(run, stem, i);
		if (rc < 0)
			return rc;
	}
	if (!run->file[ARROW_FRAMES].present) {
		fprintf(stderr,
			"braggline-scan: %s_frames.arrow: not there; it has the row of every "
			"frame and belongs beside %s\n",
			stem, run->file[ARROW_IMAGES].path);
		return -ENOENT;
	}
	return read_frames(run);
}

void
scan_run_close(struct scan_run *run)
{
	unsigned int i;

	for (i = 0; i < ARROW_TABLES; i++) {
		if (run->file[i].present)
			arrow_reader_close(&run->file[i].reader);
	}
	free(run->frame);
	memset(run, 0, sizeof(*run));
}

bool
scan_run_is_damaged(const struct scan_run *run)
{
	unsigned int i;

	for (i = 0; i < ARROW_TABLES; i++) {
		if (!run->file[i].present || run->file[i].crc_wrong > 0 ||
			!run->file[i].reader.complete)
			return true;
	}
	return false;
}
