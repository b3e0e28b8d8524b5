/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "columns.h"
#include "geometry/pixels.h"
#include "gk_abi.h"
#include "h5.h"
#include "image.h"
#include "scan/images.h"
#include "sparse.h"

#define CHUNK (1u << 16) /* pixels of a chunk of the lists */

/* Pixels of one image, and what is common to all images. */
struct pixels {
	uint64_t size; /* of an image */
	bool is_i16;   /* type of values */
	float least;   /* photons: the threshold of CSR images */
	float *radius; /* NaN: not used */
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
	p->index = malloc(p->size * sizeof(*p->index));
	p->value.f32 = malloc(p->size * sizeof(*p->value.f32));
	if (p->radius == NULL || p->index == NULL || p->value.f32 == NULL)
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

/* Adds a pixel that the geometry uses. @param i  of the value in the column */
static void
add_pixel(struct pixels *p, const struct scan_images *b, uint32_t index, uint64_t i)
{
	if (isnan(p->radius[index]))
		return;
	p->index[p->nb] = index;
	if (p->is_i16)
		p->value.i16[p->nb] = ((const int16_t *)b->value.data)[i];
	else
		p->value.f32[p->nb] = ((const float *)b->value.data)[i];
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
			add_pixel(p, b, y * e->run.cols + col[i], start + i);
		}
	}
	return 0;
}

static int
read_full(struct pixels *p, const struct scan_images *b, uint64_t row)
{
	uint64_t start, end, i;
	float value;

	arrow_column_range(&b->value, row, &start, &end);
	if (end - start != p->size)
		return -EBADMSG;
	for (i = 0; i < p->size; i++) {
		value = p->is_i16 ? ((const int16_t *)b->value.data)[start + i]
				  : ((const float *)b->value.data)[start + i];
		if (value >= p->least)
			add_pixel(p, b, i, start + i);
	}
	return 0;
}

/* Reads the pixels of an image. @return 0; -EBADMSG: e->message */
static int
read_image(struct pixels *p, struct export *e, size_t image)
{
	const struct selection_row *row = &e->images.image[image].image;
	const struct scan_file *f = &e->run.set[row->set].file[ARROW_IMAGES];
	struct scan_images b;
	int ret = scan_images_open(&f->reader, row->batch, &b);

	p->nb = 0;
	if (ret == 0 && b.is_i16 != p->is_i16)
		ret = -EBADMSG;
	if (ret == 0)
		ret = row->kind == GK_KIND_CSR ? read_csr(p, e, &b, row->row)
					       : read_full(p, &b, row->row);
	if (ret < 0)
		snprintf(e->message, sizeof(e->message),
			"%.512s: frame %" PRIu64 ": its image does not fit %u x %u pixels; export "
			"the other frames with --frames",
			f->path, row->frame, e->run.rows, e->run.cols);
	return ret;
}

/* First pixel of each image in the lists, and behind the last one. @return NULL: *ret says why */
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
	const hid_t type = p->is_i16 ? H5T_STD_I16LE : H5T_IEEE_F32LE;
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

static int
put_frames(struct h5 *h, hid_t entry, struct export *e, struct pixels *p, const uint64_t *first,
	void (*progress)(uint64_t bytes))
{
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
	ret = put_lists(h, group, e, p, first, progress);
	h5_release(group);
	return ret;
}

static int
put_file(struct h5 *h, struct export *e, struct pixels *p, const uint64_t *first,
	void (*progress)(uint64_t bytes))
{
	hid_t entry;
	int ret;

	h5_attr_text(h, h->file, "default", "entry_0000");
	entry = h5_group(h, h->file, "entry_0000", "NXentry");
	h5_attr_text(h, entry, "default", "sparse_frames");
	h5_attr_text(h, entry, "pyFAI_sparse_frames", "sparse_frames");
	h5_text(h, entry, "program_name", "braggline-export " BRAGGLINE_VERSION);
	ret = put_frames(h, entry, e, p, first, progress);
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
			ret = put_file(&h, e, &p, first, progress);
			ret = export_finish(e, &h, part, path, ret);
		}
		pixels_free(&p);
		free(first);
	}
	if (ret < 0 && e->message[0] == '\0')
		snprintf(e->message, sizeof(e->message), "%.400s: %s", path, strerror(-ret));
	return ret;
}
