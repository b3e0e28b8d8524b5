/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arrow/bitshuffle.h"
#include "counter.h"
#include "output/projection.h"

/* Find the cells that have no pixel. */
static int
find_gaps(struct projection *p)
{
	const struct panels *panels = &p->panels;

	p->gap = malloc(panels_cells(panels));
	if (p->gap == NULL)
		return -ENOMEM;
	memset(p->gap, 1, panels_cells(panels));
	for (size_t i = 0; i < (size_t)panels->rows * panels->cols; i++)
		if (panels->cell[i] != PANELS_NO_CELL)
			p->gap[panels->cell[i]] = 0;
	return 0;
}

int
projection_init(struct projection *p, const struct gk_geometry *geometry,
	const struct gk_layout *layout, enum gk_value value, const struct geometry *place)
{
	memset(p, 0, sizeof(*p));
	p->layout = *layout;
	p->value = value;
	if (panels_init(&p->panels, gk_rows(geometry), geometry->cols, place) != 0)
		return -ENOMEM;
	if (p->panels.cell != NULL && find_gaps(p) != 0)
		return -ENOMEM;
	p->cell = malloc(p->panels.cols * sizeof(*p->cell));
	/* pages that no chunk needs are not allocated */
	if (value == GK_VALUE_I16)
		p->photons = malloc(gk_pixels(geometry) * sizeof(*p->photons));
	p->line = malloc(p->panels.cols * sizeof(*p->line));
	p->maximum = malloc(panels_cells(&p->panels) * sizeof(*p->maximum));
	p->shown = malloc(panels_cells(&p->panels) * sizeof(*p->shown));
	if (p->cell == NULL || (value == GK_VALUE_I16 && p->photons == NULL) || p->line == NULL ||
		p->maximum == NULL || p->shown == NULL)
		return -ENOMEM;
	for (uint32_t x = 0; x < p->panels.cols; x++)
		p->cell[x] = x / p->panels.by;
	projection_reset(p);
	return 0;
}

void
projection_free(struct projection *p)
{
	panels_free(&p->panels);
	free(p->gap);
	free(p->cell);
	free(p->photons);
	free(p->line);
	free(p->maximum);
	free(p->shown);
	memset(p, 0, sizeof(*p));
}

/* Cells and counters have one writer at a time. Atomic stores prevent torn reads. */
static inline float
get(const float *cell)
{
	float v;

	__atomic_load(cell, &v, __ATOMIC_RELAXED);
	return v;
}

static inline void
set(float *cell, float v)
{
	__atomic_store(cell, &v, __ATOMIC_RELAXED);
}

/* NaN does not raise a value. Without a branch, which would be mispredicted. */
static inline void
raise_to(float *cell, float v)
{
	const float old = get(cell);

	set(cell, v > old ? v : old);
}

static inline float
photons_of(int16_t v)
{
	return v == INT16_MIN ? -INFINITY : v == INT16_MAX ? INFINITY : v;
}

static void
fill(const struct projection *p, float *cells, float v)
{
	for (size_t i = 0; i < panels_cells(&p->panels); i++)
		set(&cells[i], v);
}

void
projection_reset(struct projection *p)
{
	fill(p, p->maximum, -INFINITY);
	fill(p, p->shown, 0);
	counter_set(&p->frames, 0);
	counter_set(&p->sparse, 0);
	counter_set(&p->skipped, 0);
	counter_set(&p->raw, 0);
	counter_set(&p->spent, 0);
	counter_set(&p->granted, 0);
	p->shown_frame = 0;
	p->shown_count = 0;
	__atomic_store_n(&p->state, PROJECTION_WANTED, __ATOMIC_RELEASE);
}

/*
 * Add the pixels of a sparse frame. The content of the slot is checked: pixels must be in the
 * raster, and rows in the slot.
 */
static inline __attribute__((always_inline)) void
scatter(struct projection *p, const uint8_t *output, bool i16, bool show)
{
	const struct panels *panels = &p->panels;
	const uint32_t *cell = panels->cell;
	const uint32_t *row_ptr = (const uint32_t *)(output + p->layout.row_ptr);
	const uint16_t *col = (const uint16_t *)(output + p->layout.col);
	const void *value = output + p->layout.value;
	uint32_t left = panels->by, i = 0;
	size_t line = 0;

	for (uint32_t y = 0; y < panels->rows; y++) {
		const uint32_t end = row_ptr[y + 1];

		for (; i < end && i < p->layout.nnz_cap; i++) {
			float v;
			size_t at;

			if (col[i] >= panels->cols)
				continue;
			v = i16 ? photons_of(((const int16_t *)value)[i])
				: ((const float *)value)[i];
			at = cell != NULL ? cell[(size_t)y * panels->cols + col[i]]
					  : line + p->cell[col[i]];
			if (at == PANELS_NO_CELL)
				continue;
			raise_to(&p->maximum[at], v);
			if (show)
				raise_to(&p->shown[at], v);
		}
		if (--left == 0) {
			left = panels->by;
			line += panels->width;
		}
	}
}

static void
add_sparse(struct projection *p, const uint8_t *output, bool show)
{
	if (p->value == GK_VALUE_I16 && show)
		scatter(p, output, true, true);
	else if (p->value == GK_VALUE_I16)
		scatter(p, output, true, false);
	else if (show)
		scatter(p, output, false, true);
	else
		scatter(p, output, false, false);
}

/*
 * Raise the line to the maximum with a row of the image. The loops are written for vectorisation.
 */
static void
fold(struct projection *p, const uint8_t *values, uint32_t y)
{
	const uint32_t cols = p->panels.cols;
	float *line = p->line;

	if (p->value == GK_VALUE_I16) {
		const int16_t *row = (const int16_t *)values + (size_t)y * cols;

		for (uint32_t x = 0; x < cols; x++) {
			const float v = photons_of(row[x]);

			line[x] = v > line[x] ? v : line[x];
		}
	} else {
		const float *row = (const float *)values + (size_t)y * cols;

		for (uint32_t x = 0; x < cols; x++)
			line[x] = row[x] > line[x] ? row[x] : line[x];
	}
}

/* Reduce the line to a row of cells. */
static void
squeeze(const struct projection *p, float *maximum, float *shown)
{
	const uint32_t by = p->panels.by, cols = p->panels.cols;
	float *line = p->line;

	for (uint32_t x = 0, cell = 0; by > 1 && x < cols; cell++) {
		float v = line[x++];

		for (uint32_t k = 1; k < by && x < cols; k++, x++)
			v = line[x] > v ? line[x] : v;
		line[cell] = v;
	}
	for (uint32_t x = 0; x < p->panels.width; x++) {
		raise_to(&maximum[x], line[x]);
		set(&shown[x], line[x]);
	}
}

/* Add an image whose pixels are placed by a geometry. */
static void
add_placed(struct projection *p, const uint8_t *values)
{
	const struct panels *panels = &p->panels;

	fill(p, p->shown, -INFINITY);
	for (size_t i = 0; i < (size_t)panels->rows * panels->cols; i++) {
		const float v = p->value == GK_VALUE_I16 ? photons_of(((const int16_t *)values)[i])
							 : ((const float *)values)[i];

		if (panels->cell[i] == PANELS_NO_CELL)
			continue;
		raise_to(&p->maximum[panels->cell[i]], v);
		raise_to(&p->shown[panels->cell[i]], v);
	}
}

static void
add_image(struct projection *p, const uint8_t *values)
{
	const struct panels *panels = &p->panels;
	size_t at = 0;

	if (panels->cell != NULL) {
		add_placed(p, values);
		return;
	}
	for (uint32_t y = 0; y < panels->rows; y += panels->by, at += panels->width) {
		for (uint32_t x = 0; x < panels->cols; x++)
			p->line[x] = -INFINITY;
		for (uint32_t k = y; k < y + panels->by && k < panels->rows; k++)
			fold(p, values, k);
		squeeze(p, p->maximum + at, p->shown + at);
	}
}

/* @return values of a full image; NULL: it is a chunk that is damaged */
static const uint8_t *
values_of(struct projection *p, const struct frame_record *record, const uint8_t *output)
{
	if (record->chunk_bytes == 0)
		return output + p->layout.value;
	/* only the bits count */
	if (p->photons == NULL ||
		bitshuffle_decompress(output + p->layout.raw, record->chunk_bytes,
			(uint16_t *)p->photons, (size_t)p->panels.rows * p->panels.cols) < 0)
		return NULL;
	return (const uint8_t *)p->photons;
}

void
projection_add(struct projection *p, const struct frame_record *record, const uint8_t *output)
{
	const uint8_t *values;
	const bool show = projection_state(p) == PROJECTION_WANTED;
	const uint64_t pixels = record->nnz + p->panels.rows;

	switch (record->kind) {
	case GK_KIND_CSR:
		if (!show && p->spent + pixels > __atomic_load_n(&p->granted, __ATOMIC_RELAXED)) {
			counter_add(&p->skipped, 1);
			return;
		}
		add_sparse(p, output, show);
		counter_add(&p->spent, pixels);
		counter_add(&p->sparse, 1);
		break;
	case GK_KIND_IMAGE:
		values = show ? values_of(p, record, output) : NULL;
		if (values == NULL) {
			counter_add(&p->skipped, 1);
			return;
		}
		add_image(p, values);
		break;
	default:
		counter_add(&p->raw, 1);
		return;
	}
	counter_add(&p->frames, 1);
	if (show) {
		p->shown_frame = record->frame;
		p->shown_count = record->strong_count;
		__atomic_store_n(&p->state, PROJECTION_FILLED, __ATOMIC_RELEASE);
	}
}

void
projection_grant(struct projection *p, uint64_t pixels, uint64_t most)
{
	const uint64_t ahead = __atomic_load_n(&p->spent, __ATOMIC_RELAXED) + most;
	const uint64_t granted = p->granted + pixels;

	__atomic_store_n(&p->granted, granted < ahead ? granted : ahead, __ATOMIC_RELAXED);
}

void
projection_want(struct projection *p)
{
	fill(p, p->shown, 0);
	__atomic_store_n(&p->state, PROJECTION_WANTED, __ATOMIC_RELEASE);
}

void
projection_take(struct projection *p)
{
	__atomic_store_n(&p->state, PROJECTION_SHOWN, __ATOMIC_RELEASE);
}

static void
copy(const struct projection *p, const float *from, float least, float *cells)
{
	for (size_t i = 0; i < panels_cells(&p->panels); i++) {
		const float v = get(&from[i]);

		cells[i] = v > least ? v : least;
		if (cells[i] == -INFINITY || (p->gap != NULL && p->gap[i]))
			cells[i] = NAN;
	}
}

void
projection_copy_maximum(const struct projection *p, float *cells)
{
	/* Sparse frames contain no pixels below the threshold: they count as zero. */
	const bool sparse = __atomic_load_n(&p->sparse, __ATOMIC_RELAXED) > 0;

	copy(p, p->maximum, sparse ? 0 : -INFINITY, cells);
}

void
projection_copy_shown(const struct projection *p, float *cells)
{
	copy(p, p->shown, -INFINITY, cells);
}
