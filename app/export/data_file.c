/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "child_process.h"
#include "chunk_pool.h"
#include "data_file.h"
#include "h5.h"
#include "h5_driver.h"
#include "image.h"
#include "io/directory.h"
#include "scan/record.h"

void
data_file_path(const struct export *e, uint32_t number, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%.4000s_data_%06u.h5", e->stem, number + 1);
}

const char *
data_file_run_id(const struct export *e, const struct selection_image *image)
{
	const struct arrow_reader *r = &e->run.set[image->image.set].file[ARROW_IMAGES].reader;
	/* the number of a run is 0 unless it is set */
	const char *id = r->batches[image->image.batch].incarnation;

	return id != NULL ? id : "none";
}

static int
fail(struct export *e, const char *path, const char *why, int ret)
{
	snprintf(e->message, sizeof(e->message), "%.400s: %.600s", path, why);
	return ret;
}

static int
refuse(struct export *e, const char *path, const char *found)
{
	snprintf(e->message, sizeof(e->message),
		"%.400s: %s; remove it, or choose another --output, or --overwrite", path, found);
	return -EEXIST;
}

/* Reads an attribute that is a text of a fixed length. */
static bool
read_attr(hid_t set, const char *name, char *value, size_t size)
{
	hid_t attr, stored;
	bool ok = false;

	if (H5Aexists(set, name) <= 0)
		return false;
	attr = H5Aopen(set, name, H5P_DEFAULT);
	stored = attr >= 0 ? H5Aget_type(attr) : -1;
	if (stored >= 0 && H5Tget_class(stored) == H5T_STRING && H5Tis_variable_str(stored) == 0 &&
		H5Tget_size(stored) <= size && H5Aget_storage_size(attr) <= size)
		ok = H5Aread(attr, stored, value) >= 0;
	h5_release(stored);
	h5_release(attr);
	return ok;
}

static bool
has_shape(hid_t set, const struct export *e, hsize_t nb)
{
	hid_t space = H5Dget_space(set), type = H5Dget_type(set);
	hsize_t dims[3];
	bool ok = H5Sget_simple_extent_ndims(space) == 3 &&
		H5Sget_simple_extent_dims(space, dims, NULL) == 3 && dims[0] == nb &&
		dims[1] == e->run.rows && dims[2] == e->run.cols &&
		H5Tequal(type, e->raw ? H5T_STD_U16LE : H5T_STD_I16LE) > 0;

	h5_release(type);
	h5_release(space);
	return ok;
}

static bool
has_frames(hid_t file, const struct export *e, size_t first, hsize_t nb)
{
	uint64_t *frame = calloc(nb, sizeof(*frame));
	hid_t set, space = -1;
	hsize_t dims = 0;
	bool ok = false;
	size_t i;

	set = frame != NULL ? H5Dopen2(file, "/entry/frames/frame", H5P_DEFAULT) : -1;
	if (set >= 0)
		space = H5Dget_space(set);
	if (space >= 0 && H5Sget_simple_extent_ndims(space) == 1 &&
		H5Sget_simple_extent_dims(space, &dims, NULL) == 1 && dims == nb)
		ok = H5Dread(set, H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, frame) >= 0;
	for (i = 0; ok && i < nb; i++)
		ok = frame[i] == e->images.image[first + i].image.frame;
	h5_release(space);
	h5_release(set);
	free(frame);
	return ok;
}

/* Parameters and results of the check of an existing file, which a child process executes. */
struct file_check {
	const struct export *e;
	char path[PATH_MAX];
	const char *group;  /* group that has the identity of the run */
	const char *frames; /* list of frame numbers */
	size_t first, nb;
	/* answer */
	hsize_t images;
	const char *wrong; /* what is wrong; NULL: nothing */
};

static void
count_images(void *state)
{
	struct file_check *q = state;
	hsize_t dims[3] = {0};
	hid_t set = -1, space = -1;
	struct h5 h;

	h5_open(&h, q->path);
	if (!h.failed)
		set = H5Dopen2(h.file, "/entry/data/data", H5P_DEFAULT);
	if (set >= 0)
		space = H5Dget_space(set);
	if (space < 0 || H5Sget_simple_extent_ndims(space) != 3 ||
		H5Sget_simple_extent_dims(space, dims, NULL) != 3)
		dims[0] = 0;
	h5_release(space);
	h5_release(set);
	(void)h5_close(&h);
	q->images = dims[0];
}

hsize_t
data_file_images(const struct export *e, uint32_t number)
{
	struct file_check q = {.e = e};

	data_file_path(e, number, q.path);
	if (access(q.path, F_OK) < 0 || child_process_call(count_images, &q, sizeof(q)) < 0)
		return 0;
	return q.images;
}

static const char no_data_file[] = "exists, but is no data file of braggline-export";

static void
check(void *state)
{
	struct file_check *q = state;
	const struct export *e = q->e;
	char run[64] = "";
	struct h5 h;
	hid_t set = -1;

	h5_open(&h, q->path);
	if (!h.failed)
		set = H5Dopen2(h.file, "/entry/data/data", H5P_DEFAULT);
	if (set < 0)
		q->wrong = no_data_file;
	else if (!read_attr(set, "run", run, sizeof(run) - 1) ||
		strcmp(run, data_file_run_id(e, &e->images.image[q->first])) != 0)
		q->wrong = "exists with images of another run";
	else if (!has_shape(set, e, q->nb) || !has_frames(h.file, e, q->first, q->nb))
		q->wrong = "exists with other images of this run";
	h5_release(set);
	(void)h5_close(&h);
}

int
data_file_check(struct export *e, uint32_t number)
{
	struct file_check q = {
		.e = e, .first = export_first(e, number), .nb = export_count(e, number)};
	int ret;

	data_file_path(e, number, q.path);
	if (access(q.path, F_OK) < 0)
		return errno == ENOENT ? 0 : fail(e, q.path, strerror(errno), -EEXIST);
	ret = child_process_call(check, &q, sizeof(q));
	if (ret < 0 && ret != -EFAULT)
		return fail(e, q.path, strerror(-ret), -EEXIST);
	if (ret == -EFAULT)
		q.wrong = no_data_file;
	return q.wrong != NULL ? refuse(e, q.path, q.wrong) : 1;
}

hid_t
data_file_create_images(struct h5 *h, hid_t data, const struct export *e, hsize_t nb, hsize_t most)
{
	static const unsigned int options[] = {0, 2, sizeof(uint16_t), 0, 2};
	const hsize_t dims[] = {nb, e->run.rows, e->run.cols};
	const hsize_t largest[] = {most, e->run.rows, e->run.cols};
	const hsize_t chunk[] = {1, e->run.rows, e->run.cols};
	const int16_t invalid = IMAGE_INVALID;
	const uint16_t raw_invalid = IMAGE_RAW_INVALID;
	const hid_t type = e->raw ? H5T_STD_U16LE : H5T_STD_I16LE;
	hid_t space, create, set = -1;

	space = h5_check_id(h, "data", H5Screate_simple(3, dims, largest));
	create = h5_check_id(h, "data", H5Pcreate(H5P_DATASET_CREATE));
	h5_check(h, "data", H5Pset_chunk(create, 3, chunk));
	/* optional: the file is written also where the filter is not installed */
	h5_check(h, "data", H5Pset_filter(create, H5_BITSHUFFLE, H5Z_FLAG_OPTIONAL, 5, options));
	h5_check(h, "data",
		e->raw ? H5Pset_fill_value(create, H5T_NATIVE_UINT16, &raw_invalid)
		       : H5Pset_fill_value(create, H5T_NATIVE_INT16, &invalid));
	if (!h->failed)
		set = h5_check_id(h, "data",
			H5Dcreate2(data, "data", type, space, H5P_DEFAULT, create, H5P_DEFAULT));
	h5_release(create);
	h5_release(space);
	return set;
}

static void
compare_frames(void *state)
{
	struct file_check *q = state;
	const struct export *e = q->e;
	hsize_t dims = 0, zero = 0, count;
	uint64_t *frame = calloc(q->nb + 1, sizeof(*frame));
	hid_t at = -1, set = -1, space = -1, memory = -1;
	char run[64] = "";
	bool ok = false;
	struct h5 h;

	h5_open(&h, q->path);
	if (!h.failed)
		at = H5Gopen2(h.file, q->group, H5P_DEFAULT);
	if (at >= 0 && frame != NULL && read_attr(at, "run", run, sizeof(run) - 1) &&
		strcmp(run, data_file_run_id(e, &e->images.image[q->first])) == 0)
		set = H5Dopen2(h.file, q->frames, H5P_DEFAULT);
	if (set >= 0)
		space = H5Dget_space(set);
	ok = space >= 0 && H5Sget_simple_extent_ndims(space) == 1 &&
		H5Sget_simple_extent_dims(space, &dims, NULL) == 1 && dims > 0 && dims <= SSIZE_MAX;
	count = dims < q->nb ? dims : q->nb;
	if (ok)
		memory = H5Screate_simple(1, &count, NULL);
	ok = ok && H5Sselect_hyperslab(space, H5S_SELECT_SET, &zero, NULL, &count, NULL) >= 0 &&
		H5Dread(set, H5T_NATIVE_UINT64, memory, space, H5P_DEFAULT, frame) >= 0;
	for (hsize_t i = 0; ok && i < count; i++)
		ok = frame[i] == e->images.image[q->first + i].image.frame;
	h5_release(memory);
	h5_release(space);
	h5_release(set);
	h5_release(at);
	(void)h5_close(&h);
	free(frame);
	q->images = ok ? dims : 0;
}

ssize_t
data_file_same_frames(const struct export *e, const char *path, const char *group,
	const char *frames, size_t first, size_t nb)
{
	struct file_check q = {.e = e, .group = group, .frames = frames, .first = first, .nb = nb};

	if (access(path, F_OK) < 0)
		return errno == ENOENT ? 0 : -EEXIST;
	snprintf(q.path, sizeof(q.path), "%s", path);
	if (child_process_call(compare_frames, &q, sizeof(q)) < 0 || q.images == 0)
		return -EEXIST;
	return (ssize_t)q.images;
}

int
data_file_check_single(struct export *e, const char *path, const char *group)
{
	char frames[64];
	ssize_t images;

	snprintf(frames, sizeof(frames), "%s/frame", group);
	images = data_file_same_frames(e, path, group, frames, 0, e->images.nb);
	if (images == 0 || images == (ssize_t)e->images.nb)
		return 0;
	return refuse(e, path,
		images > 0 ? "exists with more or fewer images of this run"
			   : "exists with other images, or is no file of braggline-export");
}

void
data_file_put_frames(struct h5 *h, hid_t entry, const struct export *e, size_t first, hsize_t nb)
{
	uint64_t *frame = malloc(nb * sizeof(*frame));
	hid_t group = h5_group(h, entry, "frames", "NXcollection");
	size_t i;

	if (frame == NULL)
		h5_check(h, "frame: out of memory", -1);
	for (i = 0; frame != NULL && i < nb; i++)
		frame[i] = e->images.image[first + i].image.frame;
	h5_array(h, group, "frame", H5T_STD_U64LE, 1, &nb, 0, frame, NULL);
	h5_release(group);
	free(frame);
}

static void
drop_record(void *record)
{
	scan_record_drop(record);
}

int
data_file_put_chunks(struct export *e, struct h5 *h, hid_t set, size_t first, size_t nb, size_t at,
	void (*progress)(uint64_t bytes), size_t *done)
{
	struct scan_record *record;
	struct chunk_pool *pool;
	const uint8_t *chunk;
	ssize_t size;
	size_t i;
	int ret = chunk_pool_open(&pool, e, first, nb);

	*done = 0;
	if (ret < 0)
		return fail(e, e->stem, "not enough memory or threads for images", ret);
	for (i = 0; ret == 0 && i < nb; i++) {
		const hsize_t place[] = {at + i, 0, 0};

		if (export_stopped() != 0) {
			ret = -EINTR;
			break;
		}
		size = chunk_pool_next(pool, &chunk, &record);
		if (size < 0) {
			ret = size;
			break;
		}
		if (h5_check(h, "data",
			    h5_driver_write_chunk(h->file, set, place, chunk, size,
				    record != NULL ? drop_record : NULL, record)) < 0)
			break;
		*done = i + 1;
		progress(size);
	}
	chunk_pool_close(pool);
	return ret;
}

int
data_file_put_images(struct export *e, struct h5 *h, hid_t data, size_t first, size_t nb,
	void (*progress)(uint64_t bytes))
{
	hid_t set = -1;
	size_t done;
	int ret = 0;

	if (!h->failed)
		set = data_file_create_images(h, data, e, nb, nb);
	h5_attr_i32(h, set, "image_nr_low", first + 1);
	h5_attr_i32(h, set, "image_nr_high", first + nb);
	h5_attr_text(h, set, "run", data_file_run_id(e, &e->images.image[first]));
	if (!h->failed)
		ret = data_file_put_chunks(e, h, set, first, nb, 0, progress, &done);
	h5_release(set);
	return ret;
}

int
data_file_write(struct export *e, uint32_t number, void (*progress)(uint64_t bytes))
{
	const size_t first = export_first(e, number), nb = export_count(e, number);
	char path[PATH_MAX], part[PATH_MAX];
	hid_t entry, data;
	struct h5 h;
	int ret;

	data_file_path(e, number, path);
	export_part(path, part);
	h5_create(&h, part);
	entry = h5_group(&h, h.file, "entry", "NXentry");
	data = h5_group(&h, entry, "data", "NXdata");
	h5_attr_text(&h, data, "signal", "data");
	data_file_put_frames(&h, entry, e, first, nb);
	ret = data_file_put_images(e, &h, data, first, nb, progress);
	h5_release(data);
	h5_release(entry);
	return export_finish(e, &h, part, path, ret);
}

int
data_file_check_others(struct export *e, bool remove)
{
	char dir[PATH_MAX], path[PATH_MAX];
	struct dirent *entry;
	int ret = 0;
	DIR *d;

	(void)export_split(e, dir);
	d = opendir(dir);
	if (d == NULL)
		return fail(e, dir, strerror(errno), -errno);
	while (ret == 0 && (entry = directory_next(d)) != NULL) {
		if (export_file_number(e, entry->d_name, "_data_", ".h5") <= export_files(e))
			continue;
		snprintf(path, sizeof(path), "%.3800s/%.255s", dir, entry->d_name);
		if (!remove)
			ret = refuse(e, path, "is of a longer export of this name");
		else if (unlink(path) < 0 && errno != ENOENT)
			ret = fail(e, path, strerror(errno), -errno);
	}
	if (ret == 0 && errno != 0)
		ret = fail(e, dir, strerror(errno), -errno);
	closedir(d);
	return ret;
}
