/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gk_abi.h>

#include "bounds.h"
#include "escaped_text.h"
#include "geometry/crystfel.h"
#include "geometry/pixels.h"
#include "images.h"
#include "live_reader.h"
#include "picture/rings.h"

#define NPY_HEAD   128
#define RING_APART 100 /* smallest difference of radii, pixels: as in panels.c */

/** Rows that are read at once, so that a mean needs little memory in addition to its result. */
#define CHUNK_PIXELS (1u << 17)

/** Write NumPy's head: magic, version 1.0, length, and a dict that ends with a newline. */
static void
npy_head(uint8_t *to, const char *dtype, uint32_t rows, uint32_t cols)
{
	const uint16_t length = NPY_HEAD - 10;
	char dict[NPY_HEAD];
	int n;

	n = snprintf(dict, sizeof(dict),
		"{'descr': '%s', 'fortran_order': False, 'shape': (%u, %u), }", dtype, rows, cols);
	memcpy(to, "\x93NUMPY\x01\x00", 8);
	memcpy(to + 8, &length, sizeof(length));
	memset(to + 10, ' ', length);
	memcpy(to + 10, dict, (size_t)n);
	to[NPY_HEAD - 1] = '\n';
}

/** @return the array after the head; NULL: out of memory */
static void *
npy_sized(struct body *body, const char *dtype, size_t width, uint32_t rows, uint32_t cols)
{
	body->size = NPY_HEAD + (size_t)rows * cols * width;
	body->bytes = malloc(body->size);
	if (body->bytes == NULL)
		return NULL;
	npy_head(body->bytes, dtype, rows, cols);
	return body->bytes + NPY_HEAD;
}

/** npy_sized() for an array of the size of the raster. */
static void *
npy_new(struct body *body, const char *dtype, size_t width, const struct live_file_head *h)
{
	return npy_sized(body, dtype, width, h->rows, h->cols);
}

/** Discard a body. @return ret */
static int
drop(struct body *body, int ret)
{
	free(body->bytes);
	body->bytes = NULL;
	body->size = 0;
	return ret;
}

/** The sequence for the frame; the generation and the number of frames for the others. */
static void
name_version(
	const struct live_reader *r, enum request_plane plane, uint64_t sequence, char etag[64])
{
	const struct live_file_head *h = &r->head;

	if (plane == REQUEST_PLANE_MASK)
		snprintf(etag, 64, "\"%016" PRIx64 "-%" PRIu64 "\"", h->id, h->generation);
	else
		snprintf(etag, 64, "\"%016" PRIx64 "-%" PRIu64 "-%" PRIu64 "\"", h->id,
			h->generation, plane == REQUEST_PLANE_FRAME ? sequence : h->frames);
}

static bool
is_missing(const struct live_file_frame *f, uint32_t packet)
{
	return f->missing_map[packet / 8] & 1u << packet % 8;
}

static void
put_nothing(const struct live_file_head *h, void *values, size_t i)
{
	if (h->value == GK_VALUE_I16)
		((int16_t *)values)[i] = INT16_MIN;
	else
		((float *)values)[i] = NAN;
}

/** Expand a sparse frame. Its pixels below the threshold are 0, masked and missing ones nothing. */
static void
expand(const struct live_file_head *h, const struct live_file_frame *f, const uint8_t *pixels,
	const uint8_t *mask, void *to)
{
	const size_t width = live_reader_value_size(h);
	const uint32_t *row_ptr = (const uint32_t *)(pixels + h->row_ptr);
	const uint16_t *col = (const uint16_t *)(pixels + h->col);
	uint32_t i = 0;

	memset(to, 0, live_reader_pixels(h) * width);
	for (uint32_t y = 0; y < h->rows; y++) {
		const uint32_t end = row_ptr[y + 1] < f->nnz ? row_ptr[y + 1] : f->nnz;
		const bool missing = is_missing(f, y / h->packet_rows);
		const size_t line = (size_t)y * h->cols;

		for (uint32_t x = 0; x < h->cols; x++)
			if (missing || mask[line + x])
				put_nothing(h, to, line + x);
		for (; i < end; i++)
			if (col[i] < h->cols)
				memcpy((uint8_t *)to + (line + col[i]) * width,
					pixels + h->values + i * width, width);
	}
}

static int
read_mask(const struct live_reader *r, uint8_t **mask)
{
	*mask = malloc(live_reader_pixels(&r->head));
	if (*mask == NULL)
		return -ENOMEM;
	return live_reader_at(r, r->head.mask, *mask, live_reader_pixels(&r->head));
}

/** Pixels of a frame in the raster, in the run's type. @param to  live_reader_pixels() values */
static int
put_raster(const struct live_reader *r, const struct live_file_frame *f, const uint8_t *pixels,
	void *to)
{
	const struct live_file_head *h = &r->head;
	uint8_t *mask = NULL;
	int ret = 0;

	if (f->kind != GK_KIND_CSR) {
		memcpy(to, pixels + h->values, live_reader_pixels(h) * live_reader_value_size(h));
		return 0;
	}
	ret = read_mask(r, &mask);
	if (ret == 0)
		expand(h, f, pixels, mask, to);
	free(mask);
	return ret;
}

static int
make_frame(struct live_reader *r, struct body *body)
{
	const struct live_file_head *h = &r->head;
	struct live_file_frame f;
	uint8_t *pixels = NULL;
	void *to;
	int ret;

	ret = live_reader_frame(r, &f, &pixels);
	if (ret != 0)
		return ret;
	to = npy_new(body, h->value == GK_VALUE_I16 ? "<i2" : "<f4", live_reader_value_size(h), h);
	ret = to != NULL ? put_raster(r, &f, pixels, to) : -ENOMEM;
	name_version(r, REQUEST_PLANE_FRAME, f.begin, body->etag);
	free(pixels);
	return ret;
}

static int
make_maximum(struct live_reader *r, struct body *body)
{
	const struct live_file_head *h = &r->head;
	uint8_t *mask = NULL;
	float *to = npy_new(body, "<f4", sizeof(float), h);
	int ret;

	if (to == NULL)
		return -ENOMEM;
	ret = read_mask(r, &mask);
	if (ret == 0)
		ret = live_reader_at(r, h->maximum, to, live_reader_pixels(h) * sizeof(float));
	for (size_t i = 0; ret == 0 && i < live_reader_pixels(h); i++) {
		/* pixels of sparse frames below the threshold count as 0 */
		if (h->sparse > 0 && !mask[i] && to[i] < 0)
			to[i] = 0;
		else if (to[i] == -INFINITY)
			to[i] = NAN;
	}
	free(mask);
	return ret;
}

static int
make_mean(struct live_reader *r, struct body *body)
{
	const struct live_file_head *h = &r->head;
	double *sum = malloc((CHUNK_PIXELS + h->cols) * sizeof(*sum));
	uint32_t rows = CHUNK_PIXELS / h->cols + 1;
	float *to = npy_new(body, "<f4", sizeof(float), h);
	uint8_t *mask = NULL;
	int ret = to != NULL && sum != NULL ? 0 : -ENOMEM;

	if (ret == 0)
		ret = read_mask(r, &mask);
	for (uint32_t y = 0; ret == 0 && y < h->rows; y += rows) {
		const size_t line = (size_t)y * h->cols;

		rows = h->rows - y < rows ? h->rows - y : rows;
		ret = live_reader_at(r, h->sum + line * sizeof(*sum), sum,
			(size_t)rows * h->cols * sizeof(*sum));
		for (size_t i = 0; ret == 0 && i < (size_t)rows * h->cols; i++) {
			const uint32_t packet = (y + (uint32_t)(i / h->cols)) / h->packet_rows;
			const uint64_t n = h->frames > h->missing_frames[packet]
				? h->frames - h->missing_frames[packet]
				: 0;

			to[line + i] = mask[line + i] || n == 0 ? NAN : (float)(sum[i] / (double)n);
		}
	}
	free(mask);
	free(sum);
	return ret;
}

static int
make_mask(struct live_reader *r, struct body *body)
{
	uint8_t *to = npy_new(body, "|u1", 1, &r->head);

	return to == NULL ? -ENOMEM
			  : live_reader_at(r, r->head.mask, to, live_reader_pixels(&r->head));
}

/** After an error, the body is to be dropped. */
static int
make_plane(struct live_reader *r, enum request_plane plane, struct body *body)
{
	name_version(r, plane, 0, body->etag);
	switch (plane) {
	case REQUEST_PLANE_FRAME:
		return make_frame(r, body);
	case REQUEST_PLANE_MAXIMUM:
		return make_maximum(r, body);
	case REQUEST_PLANE_MEAN:
		return make_mean(r, body);
	default:
		return make_mask(r, body);
	}
}

int
images_plane(const char *path, enum request_plane plane, struct body *body)
{
	struct live_reader r;
	int ret;

	*body = (struct body){.bytes = NULL};
	ret = live_reader_open(&r, path);
	if (ret != 0)
		return ret;
	ret = make_plane(&r, plane, body);
	if (ret == 0 && live_reader_is_stale(&r))
		ret = -EAGAIN;
	live_reader_close(&r);
	return ret == 0 ? 0 : drop(body, ret);
}

int
images_etag(const char *path, enum request_plane plane, char etag[64])
{
	struct live_reader r;
	int ret = live_reader_open(&r, path);

	if (ret != 0)
		return ret;
	name_version(&r, plane, r.head.sequence, etag);
	live_reader_close(&r);
	return 0;
}

/* ---- windows of the picture ---- */

/** @return 0; -ENODATA: it is not known, or its picture is too large */
static int
read_geometry(const struct live_reader *r, struct geometry **g, struct pixels_picture *picture)
{
	const struct live_file_head *h = &r->head;
	const struct geometry_raster raster = {.rows = h->rows, .cols = h->cols};
	char message[GEOMETRY_MESSAGE_LEN], *text;
	int ret;

	if (h->geometry_size == 0)
		return -ENODATA;
	text = malloc(h->geometry_size);
	*g = malloc(sizeof(**g));
	ret = text != NULL && *g != NULL ? live_reader_at(r, h->geometry, text, h->geometry_size)
					 : -ENOMEM;
	if (ret == 0)
		ret = crystfel_read(*g, text, h->geometry_size, "live file", &raster, message);
	if (ret == 0)
		ret = pixels_picture(*g, picture) == 0 &&
				(uint64_t)picture->width * picture->height <= LIMIT_PIXELS
			? 0
			: -ENODATA;
	free(text);
	if (ret != 0) {
		free(*g);
		*g = NULL;
	}
	return ret == -EINVAL ? -EPROTO : ret;
}

/** Cached mapping from pixels of the picture to those of the raster. */
struct images_cache {
	pthread_mutex_t lock;
	uint32_t rows, cols; /* size of the raster */
	uint64_t id;	     /* identity of the live file */
	int32_t *pixel; /* [height][width]: index in the raster, -1: none. NULL: as the raster */
	uint32_t width, height; /* 0: not computed yet */
};

struct images_cache *
images_cache_create(void)
{
	struct images_cache *c = calloc(1, sizeof(*c));

	if (c != NULL)
		pthread_mutex_init(&c->lock, NULL);
	return c;
}

void
images_cache_free(struct images_cache *c)
{
	if (c == NULL)
		return;
	free(c->pixel);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

/** Called with the lock. */
static int
cache_places(struct images_cache *c, const struct live_reader *r)
{
	const size_t pixels = live_reader_pixels(&r->head);
	struct pixels_picture picture;
	struct geometry *g = NULL;
	uint32_t *at = NULL;
	int ret;

	free(c->pixel);
	c->pixel = NULL;
	c->width = r->head.cols;
	c->height = r->head.rows;
	c->rows = r->head.rows;
	c->cols = r->head.cols;
	c->id = r->head.id;
	ret = read_geometry(r, &g, &picture);
	if (ret == -ENODATA)
		return 0;
	if (ret == 0) {
		at = malloc(pixels * sizeof(*at));
		c->pixel = malloc((size_t)picture.width * picture.height * sizeof(*c->pixel));
		ret = at != NULL && c->pixel != NULL ? 0 : -ENOMEM;
	}
	if (ret == 0) {
		c->width = picture.width;
		c->height = picture.height;
		memset(c->pixel, 0xFF, (size_t)picture.width * picture.height * sizeof(*c->pixel));
		pixels_place(g, &picture, at);
		for (size_t i = 0; i < pixels; i++)
			if (at[i] != PIXELS_NOWHERE)
				c->pixel[at[i]] = (int32_t)i;
	} else {
		c->width = c->height = 0;
		c->id = 0;
	}
	free(at);
	free(g);
	return ret;
}

/** Values of the raster that cells are made of. */
struct raster {
	uint32_t kind; /* enum gk_value */
	const void *values;
	const struct live_file_frame *missing; /* frame with a map of missing packets; NULL: none */
};

/** An array of cells. */
struct cells {
	uint32_t rows, cols;
	float *value;
};

static size_t
cells_size(const struct cells *c)
{
	return (size_t)c->rows * c->cols * sizeof(*c->value);
}

static void
cells_shape(struct cells *c, const struct request_window *w)
{
	c->cols = (w->width + w->bin - 1) / w->bin;
	c->rows = (w->height + w->bin - 1) / w->bin;
}

/** Why a cell has no value. */
static float
missing_value(const struct live_file_head *h, const struct raster *raster, int64_t pixel)
{
	uint32_t bits = IMAGES_MASKED;
	float v;

	if (pixel < 0)
		bits = IMAGES_GAP;
	else if (raster->missing != NULL &&
		is_missing(raster->missing, (uint32_t)(pixel / h->cols) / h->packet_rows))
		bits = IMAGES_MISSING;
	memcpy(&v, &bits, sizeof(v));
	return v;
}

/** The largest value of a line of pixels, and one of the pixels. Inlined for each type. */
static inline __attribute__((always_inline)) float
greatest(const struct raster *raster, bool i16, const int32_t *pixel, size_t at, uint32_t n,
	int64_t *any)
{
	float most = -INFINITY;

	for (uint32_t k = 0; k < n; k++) {
		const int64_t i = pixel != NULL ? pixel[at + k] : (int64_t)(at + k);
		float v;

		if (i < 0)
			continue;
		*any = i;
		if (i16) {
			const int16_t s = ((const int16_t *)raster->values)[i];

			v = s == INT16_MIN ? -INFINITY : s == INT16_MAX ? INFINITY : s;
		} else {
			v = ((const float *)raster->values)[i];
		}
		/* NaN is not greater */
		most = v > most ? v : most;
	}
	return most;
}

static inline __attribute__((always_inline)) void
fill_cells(const struct live_file_head *h, const struct images_cache *c,
	const struct raster *raster, bool i16, const struct request_window *w, float *to)
{
	for (uint32_t y = 0; y < w->height; y += w->bin) {
		const uint32_t lines = w->height - y < w->bin ? w->height - y : w->bin;

		for (uint32_t x = 0; x < w->width; x += w->bin) {
			const uint32_t n = w->width - x < w->bin ? w->width - x : w->bin;
			float most = -INFINITY;
			int64_t any = -1;

			for (uint32_t k = 0; k < lines; k++) {
				const size_t at = (size_t)(w->y + y + k) * c->width + w->x + x;
				const float v = greatest(raster, i16, c->pixel, at, n, &any);

				most = v > most ? v : most;
			}
			*to++ = most > -INFINITY ? most : missing_value(h, raster, any);
		}
	}
}

/**
 * Called with the lock, before memory is allocated for the cells: a window can have 17 GB.
 * @return 0; -ERANGE: the window is not in the picture; errors of reading the geometry
 */
static int
check_window(const struct live_reader *r, const struct request_window *w, struct images_cache *c)
{
	int ret = 0;

	/* the places are indices of a raster of this size: another file may have another size */
	if (c->width == 0 || c->id != r->head.id || c->rows != r->head.rows ||
		c->cols != r->head.cols)
		ret = cache_places(c, r);
	if (ret == 0 &&
		((uint64_t)w->x + w->width > c->width || (uint64_t)w->y + w->height > c->height))
		ret = -ERANGE;
	return ret;
}

static int
cells_check(const struct live_reader *r, const struct request_window *w, struct images_cache *c)
{
	int ret;

	pthread_mutex_lock(&c->lock);
	ret = check_window(r, w, c);
	pthread_mutex_unlock(&c->lock);
	return ret;
}

/** @return 0; errors of check_window() */
static int
cells_fill(const struct live_reader *r, const struct raster *raster, const struct request_window *w,
	struct images_cache *c, float *to)
{
	int ret;

	pthread_mutex_lock(&c->lock);
	/* again: a request for another file may have changed the places */
	ret = check_window(r, w, c);
	if (ret == 0 && raster->kind == GK_VALUE_I16)
		fill_cells(&r->head, c, raster, true, w, to);
	else if (ret == 0)
		fill_cells(&r->head, c, raster, false, w, to);
	pthread_mutex_unlock(&c->lock);
	return ret;
}

/** Cells of a frame. @param to  room for the cells of a window that cells_check() accepted */
static int
frame_cells(const struct live_reader *r, const struct live_file_frame *f, const uint8_t *pixels,
	const struct request_window *window, struct images_cache *cache, float *to)
{
	const struct live_file_head *h = &r->head;
	struct raster raster = {.kind = h->value, .values = pixels + h->values, .missing = f};
	void *expanded = NULL;
	int ret = 0;

	if (f->kind == GK_KIND_CSR) {
		expanded = malloc(live_reader_pixels(h) * live_reader_value_size(h));
		ret = expanded != NULL ? put_raster(r, f, pixels, expanded) : -ENOMEM;
		raster.values = expanded;
	}
	if (ret == 0)
		ret = cells_fill(r, &raster, window, cache, to);
	free(expanded);
	return ret;
}

/** npy_sized() for the cells of a window. */
static float *
npy_cells(struct body *body, const struct request_window *window)
{
	struct cells cells;

	cells_shape(&cells, window);
	return npy_sized(body, "<f4", sizeof(float), cells.rows, cells.cols);
}

/** The pixels and the map of missing packets are read together: they are of the same frame. */
static int
make_frame_window(struct live_reader *r, const struct request_window *window,
	struct images_cache *cache, struct body *body)
{
	struct live_file_frame f;
	uint8_t *pixels;
	float *to;
	int ret;

	ret = live_reader_frame(r, &f, &pixels);
	if (ret != 0)
		return ret;
	name_version(r, REQUEST_PLANE_FRAME, f.begin, body->etag);
	ret = cells_check(r, window, cache);
	if (ret == 0) {
		to = npy_cells(body, window);
		ret = to != NULL ? frame_cells(r, &f, pixels, window, cache, to) : -ENOMEM;
	}
	free(pixels);
	return ret;
}

/** Of the maximum and the mean, which have no missing packets. */
static int
make_window(struct live_reader *r, enum request_plane plane, const struct request_window *window,
	struct images_cache *cache, struct body *body)
{
	struct raster raster = {.kind = GK_VALUE_F32};
	struct body whole = {.bytes = NULL};
	float *to;
	int ret;

	ret = make_plane(r, plane, &whole);
	if (ret == 0)
		ret = cells_check(r, window, cache);
	if (ret == 0) {
		memcpy(body->etag, whole.etag, sizeof(body->etag));
		raster.values = whole.bytes + NPY_HEAD;
		to = npy_cells(body, window);
		ret = to != NULL ? cells_fill(r, &raster, window, cache, to) : -ENOMEM;
	}
	return drop(&whole, ret);
}

int
images_window(const char *path, enum request_plane plane, const struct request_window *window,
	struct images_cache *cache, struct body *body)
{
	struct live_reader r;
	int ret;

	*body = (struct body){.bytes = NULL};
	ret = live_reader_open(&r, path);
	if (ret != 0)
		return ret;
	ret = plane == REQUEST_PLANE_FRAME ? make_frame_window(&r, window, cache, body)
					   : make_window(&r, plane, window, cache, body);
	if (ret == 0 && live_reader_is_stale(&r))
		ret = -EAGAIN;
	live_reader_close(&r);
	return ret == 0 ? 0 : drop(body, ret);
}

/* ---- the frame as it was kept ---- */

/** Tensors of a safetensors file. Their data follow each other in this order. */
struct tensors {
	json_t *head;
	uint64_t size; /* bytes of the data */
};

static void
tensors_add(struct tensors *t, const char *name, const char *dtype, size_t width, uint64_t n,
	uint64_t columns)
{
	const uint64_t size = n * (columns > 0 ? columns : 1) * width;
	json_t *shape = columns > 0 ? json_pack("[II]", (json_int_t)n, (json_int_t)columns)
				    : json_pack("[I]", (json_int_t)n);

	json_object_set_new(t->head, name,
		json_pack("{s:s, s:o, s:[II]}", "dtype", dtype, "shape", shape, "data_offsets",
			(json_int_t)t->size, (json_int_t)(t->size + size)));
	t->size += size;
}

__attribute__((format(printf, 3, 4))) static void
set_text(json_t *object, const char *key, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	json_object_set_new(object, key, json_vsprintf(format, arguments));
	va_end(arguments);
}

/** Metadata of safetensors are texts. */
static json_t *
frame_facts(const struct live_file_head *h, const struct live_file_frame *f)
{
	json_t *m = json_object();
	char *run = escaped_text(h->run);

	set_text(m, "run", "%s", run != NULL ? run : "");
	free(run);
	set_text(m, "generation", "%" PRIu64, h->generation);
	set_text(m, "sequence", "%" PRIu64, f->begin);
	set_text(m, "frame", "%" PRIu64, f->frame);
	set_text(m, "bunch_id", "%" PRIu64, f->bunch_id);
	set_text(m, "receive_time", "%" PRId64, f->receive_time);
	set_text(m, "kind", "%s", f->kind == GK_KIND_CSR ? "csr" : "image");
	set_text(m, "rows", "%u", h->rows);
	set_text(m, "cols", "%u", h->cols);
	set_text(m, "packet_rows", "%u", h->packet_rows);
	set_text(m, "csr_threshold", "%.9g", h->csr_threshold);
	set_text(m, "strong_count", "%u", f->strong_count);
	set_text(m, "sum", "%.17g", f->sum);
	set_text(m, "saturated", "%u", f->saturated);
	set_text(m, "invalid", "%u", f->invalid);
	set_text(m, "verdict", "%u", f->verdict);
	set_text(m, "flags", "%u", f->flags);
	set_text(m, "veto_version", "%u", f->veto_version);
	set_text(m, "pedestal_version", "%u", f->pedestal_version);
	if (f->peaks != FRAME_NO_SEARCH)
		set_text(m, "peaks_found", "%u", f->peaks);
	return m;
}

/** Arrays of 4 bytes come first, so that all are aligned. @param cells  instead of the pixels */
static void
list_tensors(struct tensors *t, const struct live_file_head *h, const struct live_file_frame *f,
	const struct cells *cells)
{
	const bool csr = f->kind == GK_KIND_CSR && cells == NULL, i16 = h->value == GK_VALUE_I16;
	const char *dtype = i16 ? "I16" : "F32";

	tensors_add(t, "peaks", "F32", sizeof(float), f->nb_peaks, 4);
	if (cells != NULL)
		tensors_add(t, "cells", "F32", sizeof(float), cells->rows, cells->cols);
	if (csr)
		tensors_add(t, "row_ptr", "U32", sizeof(uint32_t), h->rows + 1, 0);
	if (csr && !i16)
		tensors_add(t, "value", dtype, sizeof(float), f->nnz, 0);
	if (csr)
		tensors_add(t, "col", "U16", sizeof(uint16_t), f->nnz, 0);
	if (csr && i16)
		tensors_add(t, "value", dtype, sizeof(int16_t), f->nnz, 0);
	if (!csr && cells == NULL)
		tensors_add(t, "value", dtype, live_reader_value_size(h), h->rows, h->cols);
	tensors_add(t, "missing", "U8", 1, (h->packets + 7) / 8, 0);
}

static uint8_t *
append(uint8_t *to, const void *from, size_t size)
{
	memcpy(to, from, size);
	return to + size;
}

static void
copy_tensors(uint8_t *to, const struct live_file_head *h, const struct live_file_frame *f,
	const uint8_t *pixels, const struct cells *cells)
{
	const bool csr = f->kind == GK_KIND_CSR && cells == NULL, i16 = h->value == GK_VALUE_I16;
	const size_t values = (csr ? f->nnz : live_reader_pixels(h)) * live_reader_value_size(h);

	to = append(to, f->peak, f->nb_peaks * sizeof(f->peak[0]));
	if (cells != NULL)
		to = append(to, cells->value, cells_size(cells));
	if (csr)
		to = append(to, pixels + h->row_ptr, (h->rows + 1) * sizeof(uint32_t));
	if ((!csr || !i16) && cells == NULL)
		to = append(to, pixels + h->values, values);
	if (csr)
		to = append(to, pixels + h->col, f->nnz * sizeof(uint16_t));
	if (csr && i16)
		to = append(to, pixels + h->values, values);
	append(to, f->missing_map, (h->packets + 7) / 8);
}

/** Length of the header as u64, the header with blanks after it, the data. */
static int
make_tensors(const struct live_file_head *h, const struct live_file_frame *f, const uint8_t *pixels,
	const struct cells *cells, struct body *body)
{
	struct tensors t = {.head = json_object()};
	uint64_t length, padded;
	char *text;

	json_object_set_new(t.head, "__metadata__", frame_facts(h, f));
	list_tensors(&t, h, f, cells);
	text = json_dumps(t.head, JSON_COMPACT);
	json_decref(t.head);
	if (text == NULL)
		return -ENOMEM;
	length = strlen(text);
	padded = (length + 7) & ~UINT64_C(7);
	body->size = sizeof(padded) + padded + t.size;
	body->bytes = malloc(body->size);
	if (body->bytes != NULL) {
		memset(body->bytes + sizeof(padded) + length, ' ', padded - length);
		memcpy(body->bytes, &padded, sizeof(padded));
		memcpy(body->bytes + sizeof(padded), text, length);
		copy_tensors(body->bytes + sizeof(padded) + padded, h, f, pixels, cells);
	}
	free(text);
	return body->bytes != NULL ? 0 : -ENOMEM;
}

/** @param cells  out: value is to be freed, also after an error */
static int
cells_make(const struct live_reader *r, const struct live_file_frame *f, const uint8_t *pixels,
	const struct request_window *window, struct images_cache *cache, struct cells *cells)
{
	int ret = cells_check(r, window, cache);

	if (ret != 0)
		return ret;
	cells_shape(cells, window);
	cells->value = malloc(cells_size(cells));
	return cells->value != NULL ? frame_cells(r, f, pixels, window, cache, cells->value)
				    : -ENOMEM;
}

int
images_frame(const char *path, const struct request_window *window, struct images_cache *cache,
	struct body *body)
{
	struct cells cells = {.value = NULL};
	struct live_file_frame f;
	struct live_reader r;
	uint8_t *pixels;
	int ret;

	*body = (struct body){.bytes = NULL};
	ret = live_reader_open(&r, path);
	if (ret != 0)
		return ret;
	ret = live_reader_frame(&r, &f, &pixels);
	if (ret == 0) {
		name_version(&r, REQUEST_PLANE_FRAME, f.begin, body->etag);
		if (window != NULL)
			ret = cells_make(&r, &f, pixels, window, cache, &cells);
		if (ret == 0)
			ret = make_tensors(
				&r.head, &f, pixels, window != NULL ? &cells : NULL, body);
		free(cells.value);
		free(pixels);
	}
	if (ret == 0 && live_reader_is_stale(&r))
		ret = -EAGAIN;
	live_reader_close(&r);
	return ret == 0 ? 0 : drop(body, ret);
}

/* ---- geometry ---- */

static json_t *
describe(const struct geometry *g, const struct pixels_picture *p)
{
	const double x = fmax(fabs(p->left), fabs(p->left + p->width));
	const double y = fmax(fabs(p->top), fabs(p->top - p->height));
	json_t *o = json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:f}", "rows", (json_int_t)g->rows,
		"cols", (json_int_t)g->cols, "width", (json_int_t)p->width, "height",
		(json_int_t)p->height, "beam_x", 0 - p->left, "beam_y", p->top, "pixel_metres",
		g->pixel_metres);
	json_t *rings = json_array();
	struct rings chosen;

	/* 0: not known */
	if (g->distance_metres > 0)
		json_object_set_new(o, "distance_metres", json_real(g->distance_metres));
	if (g->energy_ev > 0)
		json_object_set_new(o, "wavelength_angstrom", json_real(geometry_wavelength(g)));
	rings_choose(&chosen, g, hypot(x, y), RING_APART);
	for (unsigned int i = 0; i < chosen.nb; i++)
		json_array_append_new(rings,
			json_pack("{s:f, s:f}", "resolution_angstrom", chosen.d[i], "radius",
				chosen.radius[i]));
	json_object_set_new(o, "rings", rings);
	return o;
}

static void
name_geometry(const struct live_reader *r, char etag[64])
{
	/* another geometry has another file */
	snprintf(etag, 64, "\"%016" PRIx64 "\"", r->head.id);
}

int
images_geometry(const char *path, struct body *body)
{
	struct pixels_picture picture;
	struct geometry *g = NULL;
	struct live_reader r;
	json_t *object;
	int ret;

	*body = (struct body){.bytes = NULL};
	ret = live_reader_open(&r, path);
	if (ret != 0)
		return ret;
	name_geometry(&r, body->etag);
	ret = read_geometry(&r, &g, &picture);
	live_reader_close(&r);
	if (ret != 0)
		return ret;
	object = describe(g, &picture);
	body->bytes = (uint8_t *)json_dumps(object, JSON_COMPACT);
	json_decref(object);
	free(g);
	if (body->bytes == NULL)
		return -ENOMEM;
	body->size = strlen((char *)body->bytes);
	return 0;
}

int
images_places(const char *path, struct body *body)
{
	struct pixels_picture picture;
	struct geometry *g = NULL;
	struct live_reader r;
	uint32_t *at = NULL;
	int ret;

	*body = (struct body){.bytes = NULL};
	ret = live_reader_open(&r, path);
	if (ret != 0)
		return ret;
	name_geometry(&r, body->etag);
	ret = read_geometry(&r, &g, &picture);
	if (ret == 0)
		at = npy_new(body, "<u4", sizeof(*at), &r.head);
	live_reader_close(&r);
	if (ret == 0 && at == NULL)
		ret = -ENOMEM;
	if (ret == 0)
		pixels_place(g, &picture, at);
	free(g);
	return ret;
}
