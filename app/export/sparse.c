/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "columns.h"
#include "data_file.h"
#include "geometry/pixels.h"
#include "gk_abi.h"
#include "h5.h"
#include "image.h"
#include "scan/record.h"
#include "sparse.h"

#define CHUNK (1u << 16) /* pixels of a chunk of the lists */

/* Pixels of one image, and the values that all images share. */
struct pixels {
	uint64_t size;	  /* pixels of an image */
	bool is_i16;	  /* type of values */
	float least;	  /* photons: the threshold of CSR images */
	float *radius;	  /* [size] radius of each pixel; NaN: the geometry does not use it */
	int16_t *photons; /* photons of an image that is a chunk */
	uint32_t *index;
	union {
		int16_t *i16;
		float *f32;
	} value;
	uint64_t nb;
};

void
sparse_path(const struct export *e, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%.4000s_sparse.h5", e->stem);
}

static void
pixels_free(struct pixels *p)
{
	free(p->radius);
	free(p->photons);
	free(p->index);
	free(p->value.f32);
}

static int
pixels_init(struct pixels *p, const struct export *e)
{
	const struct arrow_reader *r = scan_run_reader(&e->run);
	const char *value = arrow_reader_meta(r, ARROW_META_VALUE);
	const char *least = arrow_reader_meta(r, ARROW_META_CSR_THRESHOLD);
	uint64_t i;
	int ret;

	memset(p, 0, sizeof(*p));
	p->size = (uint64_t)e->run.rows * e->run.cols;
	p->is_i16 = value != NULL && strcmp(value, "int16") == 0;
	p->least = least != NULL ? strtof(least, NULL) : 0;
	p->radius = malloc(p->size * sizeof(*p->radius));
	p->photons = malloc(p->size * sizeof(*p->photons));
	p->index = malloc(p->size * sizeof(*p->index));
	p->value.f32 = malloc(p->size * sizeof(*p->value.f32));
	if (p->radius == NULL || p->photons == NULL || p->index == NULL || p->value.f32 == NULL)
		ret = -ENOMEM;
	else
		ret = pixels_map(e->geometry, PIXELS_RADIUS, p->radius);
	for (i = 0; ret == 0 && i < p->size; i++) {
		if (e->mask[i] != 0)
			p->radius[i] = NAN;
	}
	if (ret < 0)
		pixels_free(p);
	return ret;
}

/* Adds a pixel that the geometry uses. @param i  of its value in `values` */
static void
add_pixel(struct pixels *p, const void *values, uint32_t index, uint64_t i)
{
	if (isnan(p->radius[index]))
		return;
	p->index[p->nb] = index;
	if (p->is_i16)
		p->value.i16[p->nb] = ((const int16_t *)values)[i];
	else
		p->value.f32[p->nb] = ((const float *)values)[i];
	p->nb++;
}

static int
read_csr(struct pixels *p, const struct export *e, const struct scan_images *b, uint64_t row)
{
	uint64_t start, end, first, last, col_first, col_last, i;
	const uint32_t *row_ptr;
	const uint16_t *col;
	uint32_t y;

	arrow_column_range(&b->value, row, &start, &end);
	arrow_column_range(&b->row_ptr, row, &first, &last);
	arrow_column_range(&b->col, row, &col_first, &col_last);
	row_ptr = (const uint32_t *)b->row_ptr.data + first;
	col = (const uint16_t *)b->col.data + col_first;
	if (last - first != (uint64_t)e->run.rows + 1 || row_ptr[0] != 0 ||
		col_last - col_first != end - start || end - start > p->size)
		return -EBADMSG;
	for (y = 0; y < e->run.rows; y++) {
		if (row_ptr[y + 1] < row_ptr[y] || row_ptr[y + 1] > end - start)
			return -EBADMSG;
		for (i = row_ptr[y]; i < row_ptr[y + 1]; i++) {
			if (col[i] >= e->run.cols)
				return -EBADMSG;
			add_pixel(p, b->value.data, y * e->run.cols + col[i], start + i);
		}
	}
	return 0;
}

static int
read_full(struct pixels *p, const struct scan_images *b, uint64_t row, uint32_t rows, uint32_t cols)
{
	const int16_t *photons = NULL;
	const float *values;
	uint64_t start, end, i;

	arrow_column_range(&b->value, row, &start, &end);
	values = (const float *)b->value.data + start;
	if (p->is_i16) {
		if (scan_images_photons(b, row, rows, cols, p->photons, &photons) < 0)
			return -EBADMSG;
	} else if (end - start != p->size) {
		return -EBADMSG;
	}
	for (i = 0; i < p->size; i++) {
		if ((p->is_i16 ? photons[i] : values[i]) >= p->least)
			add_pixel(p, p->is_i16 ? (const void *)photons : values, i, i);
	}
	return 0;
}

/* Reads the pixels of an image. @return 0; -EBADMSG: e->message; errors of e->load */
static int
read_image(struct pixels *p, struct export *e, size_t image)
{
	const struct selection_row *row = &e->images.image[image].image;
	const struct scan_file *f = &e->run.set[row->set].file[ARROW_IMAGES];
	struct scan_record *record = NULL;
	int ret = e->load(e->load_arg, image, &record);

	p->nb = 0;
	if (ret < 0)
		return ret;
	if (!record->has_images || record->images.is_i16 != p->is_i16)
		ret = -EBADMSG;
	else
		ret = row->kind == GK_KIND_CSR
			? read_csr(p, e, &record->images, row->row)
			: read_full(p, &record->images, row->row, e->run.rows, e->run.cols);
	scan_record_drop(record);
	if (ret < 0)
		snprintf(e->message, sizeof(e->message),
			"%.512s: frame %" PRIu64 ": its image does not fit %u x %u pixels; export "
			"the other frames with --frames",
			f->path, row->frame, e->run.rows, e->run.cols);
	return ret;
}

/* First pixel of each image in the lists, and after the last one. @return NULL: *ret says why */
static uint64_t *
count_pixels(struct pixels *p, struct export *e, int *ret)
{
	uint64_t *first = calloc(e->images.nb + 1, sizeof(*first));
	size_t i;

	*ret = first != NULL ? 0 : -ENOMEM;
	for (i = 0; *ret == 0 && i < e->images.nb; i++) {
		*ret = export_stopped() != 0 ? -EINTR : read_image(p, e, i);
		first[i + 1] = first[i] + p->nb;
	}
	if (*ret == 0)
		return first;
	free(first);
	return NULL;
}

/* pyFAI has u32 here; longer lists require u64, which fabio reads as well. */
static void
put_first(struct h5 *h, hid_t group, const uint64_t *first, size_t nb_images)
{
	const hsize_t nb = nb_images + 1;
	const bool wide = first[nb_images] > UINT32_MAX;
	uint32_t *narrow = NULL;
	size_t i;

	if (!wide) {
		narrow = malloc(nb * sizeof(*narrow));
		if (narrow == NULL)
			h5_check(h, "frame_ptr: out of memory", -1);
		for (i = 0; narrow != NULL && i < nb; i++)
			narrow[i] = first[i];
	}
	h5_array(h, group, "frame_ptr", wide ? H5T_STD_U64LE : H5T_STD_U32LE, 1, &nb, nb,
		wide ? (const void *)first : narrow, NULL);
	free(narrow);
}

/* Path of the lists of a run that is not finished. */
static void
part_path(const struct export *e, uint32_t number, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%.4000s_sparse_%06u.h5", e->stem, number + 1);
}

static hid_t
value_type(const struct pixels *p)
{
	return p->is_i16 ? H5T_STD_I16LE : H5T_IEEE_F32LE;
}

/* The background of all images: 0 between the first and the last radius. */
static void
put_background(struct h5 *h, hid_t group, const struct pixels *p, size_t nb_images)
{
	const hsize_t two = 2, dims[] = {nb_images, 2};
	float *zero = calloc(nb_images * 2, sizeof(*zero));
	float ends[] = {0, 1};
	uint64_t i;

	for (i = 0; i < p->size; i++)
		ends[1] = p->radius[i] > ends[1] ? p->radius[i] : ends[1];
	if (zero == NULL)
		h5_check(h, "background_avg: out of memory", -1);
	h5_array(h, group, "radius", H5T_IEEE_F32LE, 1, &two, 0, ends, "pixel");
	h5_array(h, group, "background_avg", H5T_IEEE_F32LE, 2, dims, nb_images, zero, NULL);
	h5_array(h, group, "background_std", H5T_IEEE_F32LE, 2, dims, nb_images, zero, NULL);
	free(zero);
}

static int
put_lists(struct h5 *h, hid_t group, struct export *e, struct pixels *p, const uint64_t *first,
	void (*progress)(uint64_t bytes))
{
	const hsize_t nb = first[e->images.nb], chunk = nb > 0 ? CHUNK : 0;
	const hid_t type = value_type(p);
	const hid_t index = h5_dataset(h, group, "index", H5T_STD_U32LE, 1, &nb, chunk);
	const hid_t value = h5_dataset(h, group, "intensity", type, 1, &nb, chunk);
	size_t i;
	int ret = 0;

	for (i = 0; ret == 0 && !h->failed && i < e->images.nb; i++) {
		ret = export_stopped() != 0 ? -EINTR : read_image(p, e, i);
		if (ret < 0)
			break;
		h5_rows(h, "index", index, first[i], p->nb, p->index);
		h5_rows(h, "intensity", value, first[i], p->nb, p->value.f32);
		progress(p->nb * (sizeof(*p->index) + (p->is_i16 ? 2 : 4)));
	}
	h5_release(value);
	h5_release(index);
	return ret;
}

/* The lists of a file: written, or those of the files of a run that is not finished. */
struct lists {
	struct pixels *pixels;
	const uint64_t *first;
	void (*progress)(uint64_t bytes); /* NULL: virtual */
};

/* A virtual dataset of a list over the files of a run that is not finished. */
static void
put_virtual(struct h5 *h, hid_t group, const struct export *e, const uint64_t *first,
	const char *name, hid_t type)
{
	const hsize_t zero = 0, nb = first[e->images.nb];
	char path[PATH_MAX], source[64];
	hid_t space, create, part, set = -1;
	const char *slash;

	if (nb == 0) {
		h5_release(h5_dataset(h, group, name, type, 1, &nb, 0));
		return;
	}
	snprintf(source, sizeof(source), "/entry/lists/%s", name);
	space = h5_check_id(h, name, H5Screate_simple(1, &nb, NULL));
	create = h5_check_id(h, name, H5Pcreate(H5P_DATASET_CREATE));
	for (uint32_t k = 0; k < export_files(e) && !h->failed; k++) {
		const hsize_t start = first[export_first(e, k)];
		const hsize_t count = first[export_first(e, k) + export_count(e, k)] - start;

		if (count == 0)
			continue;
		part_path(e, k, path);
		slash = strrchr(path, '/');
		part = h5_check_id(h, path, H5Screate_simple(1, &count, NULL));
		/* not all of the source: it may have grown when it is read */
		h5_check(h, path,
			H5Sselect_hyperslab(part, H5S_SELECT_SET, &zero, NULL, &count, NULL));
		h5_check(h, path,
			H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &count, NULL));
		h5_check(h, path,
			H5Pset_virtual(
				create, space, slash != NULL ? slash + 1 : path, source, part));
		h5_release(part);
	}
	h5_check(h, name, H5Sselect_all(space));
	if (!h->failed)
		set = h5_check_id(h, name,
			H5Dcreate2(group, name, type, space, H5P_DEFAULT, create, H5P_DEFAULT));
	h5_release(set);
	h5_release(create);
	h5_release(space);
}

static int
put_frames(struct h5 *h, hid_t entry, struct export *e, const struct lists *lists)
{
	struct pixels *p = lists->pixels;
	const uint64_t *first = lists->first;
	const hsize_t dims[] = {e->run.rows, e->run.cols};
	const hid_t group = h5_group(h, entry, "sparse_frames", "NXdata");
	const int16_t invalid = IMAGE_INVALID;
	const float nan = NAN;
	int ret;

	h5_attr_text(h, group, "signal", "background_avg");
	put_first(h, group, first, e->images.nb);
	h5_array(h, group, "mask", H5T_IEEE_F32LE, 2, dims, 1 + CHUNK / e->run.cols, p->radius,
		"pixel");
	put_background(h, group, p, e->images.nb);
	h5_scalar(h, group, "dummy", p->is_i16 ? H5T_STD_I16LE : H5T_IEEE_F32LE,
		p->is_i16 ? (const void *)&invalid : &nan, NULL);
	if (lists->progress != NULL) {
		ret = put_lists(h, group, e, p, first, lists->progress);
	} else {
		put_virtual(h, group, e, first, "index", H5T_STD_U32LE);
		put_virtual(h, group, e, first, "intensity", value_type(p));
		ret = 0;
	}
	h5_release(group);
	return ret;
}

static int
put_file(struct h5 *h, struct export *e, const struct lists *lists)
{
	hid_t entry;
	int ret;

	h5_attr_text(h, h->file, "default", "entry_0000");
	entry = h5_group(h, h->file, "entry_0000", "NXentry");
	h5_attr_text(h, entry, "default", "sparse_frames");
	h5_attr_text(h, entry, "pyFAI_sparse_frames", "sparse_frames");
	h5_text(h, entry, "program_name", "braggline-export " BRAGGLINE_VERSION);
	ret = put_frames(h, entry, e, lists);
	if (ret == 0)
		ret = columns_put_frames(h, entry, e);
	if (ret == 0 && columns_have_peaks(e))
		ret = columns_put_peaks(h, entry, "peaks", e);
	h5_release(entry);
	return ret;
}

int
sparse_write(struct export *e, void (*progress)(uint64_t bytes))
{
	char path[PATH_MAX], part[PATH_MAX];
	uint64_t *first = NULL;
	struct pixels p;
	struct h5 h;
	int ret;

	sparse_path(e, path);
	export_part(path, part);
	e->message[0] = '\0';
	ret = pixels_init(&p, e);
	if (ret == 0) {
		first = count_pixels(&p, e, &ret);
		if (first != NULL) {
			h5_create(&h, part);
			ret = put_file(&h, e, &(struct lists){&p, first, progress});
			ret = export_finish(e, &h, part, path, ret);
		}
		pixels_free(&p);
		free(first);
	}
	if (ret < 0 && e->message[0] == '\0')
		snprintf(e->message, sizeof(e->message), "%.400s: %s", path, strerror(-ret));
	return ret;
}

int
sparse_live_open(struct sparse_live *s, const struct export *e)
{
	int ret;

	*s = (struct sparse_live){.pixels = calloc(1, sizeof(*s->pixels))};
	if (s->pixels == NULL)
		return -ENOMEM;
	ret = pixels_init(s->pixels, e);
	if (ret < 0) {
		free(s->pixels);
		s->pixels = NULL;
	}
	return ret;
}

/* Makes room for the sizes of images. The array doubles. */
static int
make_room(struct sparse_live *s, size_t images)
{
	size_t room = s->room > 0 ? s->room : 1024;
	uint64_t *more;

	if (images < s->room)
		return 0;
	while (room <= images)
		room *= 2;
	more = realloc(s->first, room * sizeof(*more));
	if (more == NULL)
		return -ENOMEM;
	if (s->room == 0)
		more[0] = 0;
	s->first = more;
	s->room = room;
	return 0;
}

/* A list that grows with each image. */
static hid_t
create_list(struct h5 *h, hid_t group, const char *name, hid_t type)
{
	const hsize_t none = 0, any = H5S_UNLIMITED;
	hid_t set;

	h->growing = &any;
	set = h5_dataset(h, group, name, type, 1, &none, CHUNK);
	h->growing = NULL;
	return set;
}

static int
put_part(struct sparse_live *s, struct h5 *h, struct export *e, size_t at, size_t nb)
{
	struct pixels *p = s->pixels;
	const hid_t entry = h5_group(h, h->file, "entry", "NXentry");
	const hid_t group = h5_group(h, entry, "lists", "NXcollection");
	const hid_t index = create_list(h, group, "index", H5T_STD_U32LE);
	const hid_t value = create_list(h, group, "intensity", value_type(p));
	hsize_t size = 0;
	int ret = 0;

	data_file_put_frames(h, entry, e, at, nb);
	h5_attr_text(h, group, "run", data_file_run_id(e, &e->images.image[at]));
	for (size_t i = at; ret == 0 && !h->failed && i < at + nb; i++) {
		ret = export_stopped() != 0 ? -EINTR : read_image(p, e, i);
		if (ret < 0)
			break;
		size += p->nb;
		h5_check(h, "index", H5Dset_extent(index, &size));
		h5_check(h, "intensity", H5Dset_extent(value, &size));
		h5_rows(h, "index", index, size - p->nb, p->nb, p->index);
		h5_rows(h, "intensity", value, size - p->nb, p->nb, p->value.f32);
		s->first[i + 1] = s->first[i] + p->nb;
	}
	h5_release(value);
	h5_release(index);
	h5_release(group);
	h5_release(entry);
	return ret;
}

/*
 * Called before a file of an earlier process is replaced: RUN_sparse.h5 may show its images.
 * @return 0; -EAGAIN; -errno: e->message
 */
static int
leave_earlier(struct export *e, const char *path, size_t at, size_t nb, bool all)
{
	const ssize_t have =
		data_file_same_frames(e, path, "/entry/lists", "/entry/frames/frame", at, nb);
	char master[PATH_MAX];

	if (have >= 0 && (size_t)have <= nb)
		return 0;
	if (have > 0 && !all)
		return -EAGAIN;
	sparse_path(e, master);
	if (unlink(master) == 0 || errno == ENOENT)
		return 0;
	snprintf(e->message, sizeof(e->message), "%.400s: cannot be removed: %s", master,
		strerror(errno));
	return -EEXIST;
}

int
sparse_live_part(struct sparse_live *s, struct export *e, uint32_t number, size_t nb, bool all)
{
	const size_t at = export_first(e, number);
	char path[PATH_MAX], part[PATH_MAX];
	struct h5 h;
	int ret = make_room(s, at + nb);

	part_path(e, number, path);
	export_part(path, part);
	e->message[0] = '\0';
	if (ret == 0 && number >= s->own)
		ret = leave_earlier(e, path, at, nb, all);
	if (ret == -EAGAIN)
		return ret;
	if (ret == 0) {
		h5_create(&h, part);
		ret = put_part(s, &h, e, at, nb);
		ret = export_finish(e, &h, part, path, ret);
	}
	if (ret < 0 && e->message[0] == '\0')
		snprintf(e->message, sizeof(e->message), "%.400s: %s", path, strerror(-ret));
	if (ret < 0)
		return ret;
	s->own = number + 1;
	s->written = at + nb;
	return 0;
}

int
sparse_live_write(struct sparse_live *s, struct export *e)
{
	const size_t all = e->images.nb;
	char path[PATH_MAX], part[PATH_MAX];
	struct h5 h;
	int ret;

	sparse_path(e, path);
	export_part(path, part);
	e->message[0] = '\0';
	e->images.nb = s->written;
	h5_create(&h, part);
	ret = put_file(&h, e, &(struct lists){s->pixels, s->first, NULL});
	ret = export_finish(e, &h, part, path, ret);
	e->images.nb = all;
	if (ret < 0 && e->message[0] == '\0')
		snprintf(e->message, sizeof(e->message), "%.400s: %s", path, strerror(-ret));
	return ret;
}

int
sparse_live_finish(struct sparse_live *s, struct export *e)
{
	char path[PATH_MAX];

	/* part files are numbered without gaps */
	for (uint32_t number = s->own;; number++) {
		part_path(e, number, path);
		if (unlink(path) == 0)
			continue;
		if (errno == ENOENT)
			return 0;
		snprintf(e->message, sizeof(e->message), "%.400s: %s", path, strerror(errno));
		return -EEXIST;
	}
}

void
sparse_live_close(struct sparse_live *s)
{
	if (s->pixels != NULL)
		pixels_free(s->pixels);
	free(s->pixels);
	free(s->first);
	*s = (struct sparse_live){0};
}
