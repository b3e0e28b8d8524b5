/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arrow/crc32c.h"
#include "arrow/batch.h"
#include "arrow/region.h"
#include "gk_bitshuffle.h"

#define COLUMNS_MAX  FRAMES_COLUMNS
#define FRAMES_ALIGN 64 /* recommended by Arrow */
#define IMAGES_ALIGN ARROW_BLOCK
#define OFFSET_SIZE  sizeof(int32_t)
#define ELEMENTS_MAX INT32_MAX /* offsets of lists are int32 */

/* The memory of a batch. */
struct column_set {
	uint8_t *metadata;
	/* one per buffer; those of absent validity stay empty */
	struct batch_region *region;
	struct batch_region *data[COLUMNS_MAX];	   /* values, or items of a list */
	struct batch_region *offsets[COLUMNS_MAX]; /* lists and binary */
	struct batch_region *nulls[COLUMNS_MAX];   /* validity, nullable columns */
	bool lent;				   /* emitted and not reclaimed */
};

/*
 * Parts of a column that are in output slots or in memory of batch_place, in front of its region.
 * Those of the lead column that are in slots are the references of the batch; batch_emit copies the
 * others in slots.
 */
struct front {
	struct iovec *part; /* NULL: the column has none */
	uint32_t nb;
	uint64_t bytes;
	uint32_t crc;
};

struct table {
	const struct arrow_schema *schema;
	struct arrow_template template;
	struct column_set sets[BATCH_SETS_MAX];
	unsigned int nb_sets;
	struct column_set *set;	  /* the set that grows */
	unsigned int lead;	  /* number of the buffer that the body begins with */
	struct batch_region room; /* memory of batch_place; base NULL: none */
	uint32_t nb_placed;	  /* parts there */
	struct front *front;	  /* one per buffer */
	uint32_t *slots;	  /* of the parts in front of the lead column */
	uint64_t copied;	  /* bytes of images that were copied to regions or to the room */
	struct arrow_node node[ARROW_NODES_MAX];
	struct arrow_buffer buffer[ARROW_BUFFERS_MAX];
	struct iovec *body; /* fronts, buffers and padding */
	uint32_t null_count[COLUMNS_MAX];
	size_t align;
	uint64_t interval;
	uint64_t byte_limit;
	uint64_t rows;
	uint64_t bytes; /* size, as the cutting rule counts it */
	uint64_t first;
	uint64_t last;
	int64_t received; /* of the last row */
	uint64_t sequence;
};

struct batch_builder {
	struct batch_builder_config config;
	struct table table[ARROW_TABLES];
	uint64_t pixels;
	uint64_t place_max; /* largest size of the image columns, without padding, bytes */
	uint32_t raster_rows;
	uint32_t missing_bytes;
};

/* The columns that have the bytes of an image. They can be long. */
static const unsigned int image_columns[] = {IMAGES_ROW_PTR, IMAGES_COL, IMAGES_VALUE, IMAGES_RAW};
#define NB_IMAGE_COLUMNS (sizeof(image_columns) / sizeof(image_columns[0]))

#define ROW_PARTS 3 /* maximum parts of a row: those of CSR data */

/* Bytes of a peak in the lists */
#define PEAK_BYTES (5 * sizeof(float) + sizeof(uint32_t) + sizeof(uint16_t))

/* Items that a row of `images` adds to the lists. */
struct image_row {
	const uint8_t *output;
	uint32_t kind;
	uint64_t nb_row_ptr;
	uint64_t nb_col;
	uint64_t nb_value;
	uint64_t chunk_bound; /* 0: not a chunk */
	uint32_t nb_peaks;
	uint64_t bytes;
};

static void
set_reset(const struct table *t, struct column_set *set)
{
	const int32_t zero = 0;
	unsigned int i;

	for (i = 0; i < t->template.nb_buffers; i++)
		batch_region_reset(&set->region[i]);
	for (i = 0; i < t->schema->nb_fields; i++) {
		if (set->offsets[i] != NULL)
			batch_region_append(set->offsets[i], &zero, sizeof(zero));
	}
}

/*
 * Assign a region to each used buffer. `most` is the maximum size of a batch by column, bytes, for
 * lists and binary. That of other columns follows from their width.
 */
static int
set_init(const struct table *t, struct column_set *set, const uint64_t *most)
{
	const struct arrow_field *f;
	struct batch_region *r;
	unsigned int i;
	uint64_t size;
	int ret;

	set->region = calloc(t->template.nb_buffers, sizeof(*set->region));
	set->metadata = aligned_alloc(ARROW_BLOCK, t->template.size);
	if (set->region == NULL || set->metadata == NULL)
		return -ENOMEM;
	memcpy(set->metadata, t->template.bytes, t->template.size);

	r = set->region;
	for (i = 0; i < t->schema->nb_fields; i++) {
		f = &t->schema->fields[i];
		if (f->nullable) {
			set->nulls[i] = r;
			ret = batch_region_init(r, (t->interval + 7) / 8);
			if (ret < 0)
				return ret;
		}
		r++;
		size = t->interval * arrow_type_width(f->type);
		if (f->type == ARROW_LIST || f->type == ARROW_BINARY) {
			set->offsets[i] = r;
			ret = batch_region_init(r++, (t->interval + 1) * OFFSET_SIZE);
			if (ret < 0)
				return ret;
			size = most[i];
		} else if (f->type == ARROW_FIXED_LIST) {
			size = t->interval * f->list_size * arrow_type_width(f->item);
		}
		if (f->type == ARROW_LIST || f->type == ARROW_FIXED_LIST)
			r++; /* skip the validity of the items, which are never null */
		set->data[i] = r;
		ret = batch_region_init(r++, size);
		if (ret < 0)
			return ret;
	}
	set_reset(t, set);
	return 0;
}

/* The parts in front of a column. */
static struct front *
front_of(const struct table *t, unsigned int column)
{
	return &t->front[t->set->data[column] - t->set->region];
}

/* Allow parts in front of the columns that can be long. @param parts  of a column */
static int
fronts_init(struct table *t, uint32_t parts)
{
	struct front *f;

	t->front = calloc(t->template.nb_buffers, sizeof(*t->front));
	if (t->front == NULL)
		return -ENOMEM;
	for (unsigned int i = 0; i < NB_IMAGE_COLUMNS && parts > 0; i++) {
		f = front_of(t, image_columns[i]);
		f->part = calloc(parts, sizeof(*f->part));
		if (f->part == NULL)
			return -ENOMEM;
	}
	return 0;
}

/* Bytes follow in front of a column. */
static void
front_extend(struct front *f, size_t size, uint32_t crc)
{
	f->bytes += size;
	f->crc = arrow_crc32c_combine(f->crc, crc, size);
}

static void
front_add(struct front *f, const void *bytes, size_t size, uint32_t crc)
{
	/* iov_base is not const */
	f->part[f->nb++] = (struct iovec){(void *)(uintptr_t)bytes, size};
	front_extend(f, size, crc);
}

/**
 * @param references  most rows that are references; 0: none
 * @param placed      most parts in memory of batch_place; 0: none
 */
static int
table_init(struct table *t, const struct arrow_schema *schema, const struct arrow_identity *id,
	uint64_t interval, unsigned int nb_sets, uint32_t references, uint32_t placed,
	const uint64_t *most)
{
	int ret;

	/* a batch has references or parts in memory of batch_place */
	t->body = calloc(ROW_PARTS * references + placed + ARROW_BUFFERS_MAX + 1, sizeof(*t->body));
	t->slots = calloc(references + 1, sizeof(*t->slots));
	if (t->body == NULL || t->slots == NULL)
		return -ENOMEM;
	t->schema = schema;
	t->interval = interval;
	t->nb_sets = nb_sets;
	t->set = t->sets;
	ret = arrow_template_init(&t->template, schema, id);
	for (unsigned int i = 0; i < nb_sets && ret == 0; i++)
		ret = set_init(t, &t->sets[i], most);
	return ret == 0 ? fronts_init(t, references > placed ? references : placed) : ret;
}

static void
table_free(struct table *t)
{
	struct column_set *set;
	unsigned int i;

	for (set = t->sets; set < t->sets + t->nb_sets; set++) {
		for (i = 0; set->region != NULL && i < t->template.nb_buffers; i++)
			batch_region_free(&set->region[i]);
		free(set->region);
		free(set->metadata);
	}
	for (i = 0; t->front != NULL && i < t->template.nb_buffers; i++)
		free(t->front[i].part);
	free(t->front);
	arrow_template_free(&t->template);
	free(t->body);
	free(t->slots);
}

/* Bytes of a column's values or items. */
static uint64_t
column_bytes(const struct table *t, unsigned int column)
{
	const struct batch_region *r = t->set->data[column];

	return r->used + t->front[r - t->set->region].bytes;
}

/* Fill in the field nodes: rows of each column, items of each list. */
static void
table_count(struct table *t)
{
	const struct arrow_field *f;
	struct arrow_node *n = t->node;
	unsigned int i;

	for (i = 0; i < t->schema->nb_fields; i++) {
		f = &t->schema->fields[i];
		*n++ = (struct arrow_node){t->rows, t->null_count[i]};
		if (f->type == ARROW_LIST || f->type == ARROW_FIXED_LIST)
			*n++ = (struct arrow_node){
				column_bytes(t, i) / arrow_type_width(f->item), 0};
	}
}

/*
 * Choose the next set: the oldest, which is written first. `size` is that of the batch just
 * emitted.
 */
static struct column_set *
next_set(struct table *t, uint64_t ahead, uint64_t size)
{
	const unsigned int used = t->set - t->sets + 1;

	return used < t->nb_sets && (used < 2 || used * size < ahead) ? t->set + 1 : t->sets;
}

/* Number of the buffer at a place of the body: the lead, then the others in their order. */
static unsigned int
buffer_at(const struct table *t, unsigned int i)
{
	if (i == 0)
		return t->lead;
	return i <= t->lead ? i - 1 : i;
}

/* Count the bytes of the images, and how many of them were copied or will be. */
static void
count_bytes(const struct table *t, const struct batch_builder_config *config, struct batch *batch)
{
	const uint64_t stay = t->room.base != NULL ? t->room.used : t->front[t->lead].bytes;

	for (unsigned int i = 0; i < NB_IMAGE_COLUMNS; i++)
		batch->kept_bytes += column_bytes(t, image_columns[i]);
	batch->copied_bytes = t->copied;
	if (config->reclaim == NULL)
		batch->copied_bytes += batch->kept_bytes - stay;
}

static void
table_emit(struct table *t, const struct batch_builder_config *config, enum arrow_table id)
{
	/* zero padding of the body up to a whole block; read only */
	static const uint8_t zeros[ARROW_BLOCK] __attribute__((aligned(ARROW_BLOCK)));
	struct column_set *set = t->set;
	struct arrow_batch numbers;
	struct batch_region *r;
	unsigned int i, k, nb = 0;
	uint64_t at = 0, size;
	struct batch batch;
	struct front *f;
	uint32_t crc = 0;

	if (t->rows == 0)
		return;
	for (k = 0; k < t->template.nb_buffers; k++) {
		i = buffer_at(t, k);
		r = &set->region[i];
		f = &t->front[i];
		t->buffer[i] = (struct arrow_buffer){at, f->bytes + r->used};
		if (f->bytes + r->used == 0)
			continue;
		if (f->nb > 0)
			memcpy(&t->body[nb], f->part, f->nb * sizeof(*f->part));
		nb += f->nb;
		size = batch_region_finish(r, f->bytes, t->align);
		crc = arrow_crc32c_combine(crc, f->crc, f->bytes);
		crc = arrow_crc32c_combine(crc, r->crc, size);
		if (size > 0)
			t->body[nb++] = (struct iovec){r->base, size};
		at += f->bytes + size;
	}
	size = -at & (ARROW_BLOCK - 1);
	if (size > 0) {
		crc = arrow_crc32c_zeros(crc, size);
		/* iov_base is not const */
		t->body[nb++] = (struct iovec){(void *)(uintptr_t)zeros, size};
		at += size;
	}
	table_count(t);

	numbers = (struct arrow_batch){
		.rows = t->rows,
		.nodes = t->node,
		.buffers = t->buffer,
		.body_length = at,
		.sequence = t->sequence,
		.crc32c = crc,
	};
	arrow_template_patch(&t->template, set->metadata, &numbers);
	batch = (struct batch){
		.table = id,
		.metadata = set->metadata,
		.metadata_size = t->template.size,
		.body = t->body,
		.nb_body = nb,
		.nb_references = t->room.base != NULL ? 0 : t->front[t->lead].nb,
		.slots = t->slots,
		.body_length = at,
		.rows = t->rows,
		.first = t->first,
		.last = t->last,
		.received = t->received,
		.sequence = t->sequence++,
		.crc32c = crc,
		.lasting = config->reclaim != NULL,
		.set = set - t->sets,
	};
	if (id == ARROW_IMAGES)
		count_bytes(t, config, &batch);
	config->emit(config->arg, &batch);
	t->room = (struct batch_region){0};
	t->nb_placed = 0;
	/* reclaimed when the first row of the next batch needs it, not before */
	set->lent = true;
	t->set = next_set(t, config->ahead, at);
	t->rows = 0;
	t->bytes = 0;
	for (i = 0; i < t->template.nb_buffers; i++)
		t->front[i] = (struct front){.part = t->front[i].part};
	t->copied = 0;
	memset(t->null_count, 0, sizeof(t->null_count));
}

/* Empty the set that grows next. */
static void
table_reclaim(struct table *t, const struct batch_builder_config *config, enum arrow_table id)
{
	if (!t->set->lent)
		return;
	if (config->reclaim != NULL)
		config->reclaim(config->arg, id, t->set - t->sets);
	set_reset(t, t->set);
	t->set->lent = false;
}

/* Whether a frame cannot join the current batch for a reason other than size. */
static bool
table_must_cut(const struct table *t, uint64_t frame)
{
	return t->rows > 0 && (frame / t->interval != t->first / t->interval || frame <= t->last);
}

/* Whether an image of this kind is a chunk in `raw`. */
static bool
is_chunk(const struct batch_builder *b, uint32_t kind)
{
	return kind == GK_KIND_RAW || (kind == GK_KIND_IMAGE && b->config.tables->chunks);
}

/* The column that has most of the bytes of an image of this kind. */
static unsigned int
main_column(const struct batch_builder *b, uint32_t kind)
{
	return is_chunk(b, kind) ? IMAGES_RAW : IMAGES_VALUE;
}

/* Choose the lead column of a batch of images by its first row. */
static void
images_lead(struct batch_builder *b, const struct frame_record *rec)
{
	struct table *t = &b->table[ARROW_IMAGES];

	t->lead = t->set->data[main_column(b, rec->kind)] - t->set->region;
}

/* Ask the owner for memory to which the images of the batch are copied. */
static void
images_place(struct batch_builder *b)
{
	struct table *t = &b->table[ARROW_IMAGES];

	if (b->config.place == NULL)
		return;
	t->room.base = b->config.place(b->config.arg, b->place_max);
	t->room.reserved = b->place_max;
}

/* Begin bytes of a row in the room. @return where they begin */
static size_t
room_begin(struct table *t)
{
	/* of these bytes only, because other columns have those before and after them */
	t->room.crc = 0;
	return t->room.used;
}

/* The bytes of the room from `at` on follow in a column. */
static void
room_end(struct table *t, unsigned int column, size_t at)
{
	const struct batch_region *r = &t->room;
	struct front *f = front_of(t, column);
	struct iovec *last = f->nb > 0 ? &f->part[f->nb - 1] : NULL;

	if (last != NULL && (uint8_t *)last->iov_base + last->iov_len == r->base + at) {
		last->iov_len += r->used - at;
		front_extend(f, r->used - at, r->crc);
		return;
	}
	front_add(f, r->base + at, r->used - at, r->crc);
	t->nb_placed++;
}

static void
table_begin_row(struct batch_builder *b, enum arrow_table id, const struct frame_record *rec,
	uint64_t bytes)
{
	struct table *t = &b->table[id];

	if (t->rows == 0) {
		table_reclaim(t, &b->config, id);
		if (id == ARROW_IMAGES)
			images_lead(b, rec);
		t->first = rec->frame;
	}
	t->last = rec->frame;
	t->received = rec->receive_time;
	t->bytes += bytes;
}

static void
put(struct table *t, unsigned int column, const void *value, size_t size)
{
	batch_region_append(t->set->data[column], value, size);
}

/* Store the end offset of the row's items. */
static void
end_list(struct table *t, unsigned int column, size_t width)
{
	const int32_t end = column_bytes(t, column) / width;

	batch_region_append(t->set->offsets[column], &end, sizeof(end));
}

static void
put_list(struct table *t, unsigned int column, const void *items, size_t nb, size_t width)
{
	batch_region_append_large(t->set->data[column], items, nb * width);
	end_list(t, column, width);
}

static void
put_validity(struct table *t, unsigned int column, bool valid)
{
	struct batch_region *r = t->set->nulls[column];

	if (t->rows % 8 == 0)
		*batch_region_grow(r, 1) = 0;
	if (valid)
		r->base[t->rows / 8] |= 1u << (t->rows % 8);
	else
		t->null_count[column]++;
}

/* Emit all tables, images first, so that a row of `frames` always has its image. */
static void
emit_all(struct batch_builder *b)
{
	table_emit(&b->table[ARROW_IMAGES], &b->config, ARROW_IMAGES);
	table_emit(&b->table[ARROW_FRAMES], &b->config, ARROW_FRAMES);
}

/* End the batches that a frame, kept or not, cannot join. */
static void
cut(struct batch_builder *b, uint64_t frame)
{
	if (table_must_cut(&b->table[ARROW_FRAMES], frame))
		emit_all(b);
	else if (table_must_cut(&b->table[ARROW_IMAGES], frame))
		table_emit(&b->table[ARROW_IMAGES], &b->config, ARROW_IMAGES);
}

/* Whether the tables have the columns of peaks. */
static bool
has_peaks(const struct batch_builder *b)
{
	return b->config.tables->peaks;
}

static void
frames_add_peaks(struct table *t, const struct frame_record *rec)
{
	const bool searched = rec->peaks != FRAME_NO_SEARCH;
	const uint32_t peaks = searched ? rec->peaks : 0;

	put_validity(t, FRAMES_PEAKS, searched);
	put(t, FRAMES_PEAKS, &peaks, sizeof(peaks));
	put_list(t, FRAMES_SHELL_PEAKS, rec->shell_peaks, searched ? rec->shells : 0,
		sizeof(rec->shell_peaks[0]));
}

/* Append the items of a nullable list of fixed size. @param items  NULL: null, which has items */
static void
put_fixed(struct table *t, unsigned int column, const void *items, uint64_t size)
{
	struct batch_region *r = t->set->data[column];

	put_validity(t, column, items != NULL);
	if (items != NULL)
		batch_region_append_large(r, items, size);
	else
		memset(batch_region_grow(r, size), 0, size);
}

static void
frames_add_profile(struct batch_builder *b, const struct frame_record *rec)
{
	const unsigned int column = b->config.tables->radial;
	struct table *t = &b->table[ARROW_FRAMES];
	const uint32_t bins = t->schema->fields[column].list_size;
	const uint8_t *sum = NULL, *count = NULL;

	if (rec->profile < b->config.nb_profiles) {
		sum = b->config.profiles + rec->profile * gk_profile_stride(bins);
		count = sum + gk_profile_count_at(bins);
	}
	put_fixed(t, column, sum, bins * sizeof(int64_t));
	put_fixed(t, column + 1, count, bins * sizeof(uint32_t));
}

/** @param flags  flags in addition to those of the record */
static void
frames_add(struct batch_builder *b, const struct frame_record *rec, uint32_t flags)
{
	struct table *t = &b->table[ARROW_FRAMES];
	const uint8_t verdict = rec->verdict, kind = rec->kind;

	flags |= rec->flags;
	table_begin_row(b, ARROW_FRAMES, rec, 0);
	put(t, FRAMES_FRAME, &rec->frame, sizeof(rec->frame));
	put(t, FRAMES_BUNCH_ID, &rec->bunch_id, sizeof(rec->bunch_id));
	put(t, FRAMES_DETECTOR_TIME, &rec->detector_time, sizeof(rec->detector_time));
	put(t, FRAMES_RECEIVE_TIME, &rec->receive_time, sizeof(rec->receive_time));
	put(t, FRAMES_EXPOSURE, &rec->exposure, sizeof(rec->exposure));
	put(t, FRAMES_DETECTOR_STATUS, &rec->detector_status, sizeof(rec->detector_status));
	put(t, FRAMES_FLAGS, &flags, sizeof(flags));
	put(t, FRAMES_MISSING, rec->missing,
		t->schema->fields[FRAMES_MISSING].list_size * sizeof(rec->missing[0]));
	put(t, FRAMES_STRONG_COUNT, &rec->strong_count, sizeof(rec->strong_count));
	put(t, FRAMES_SUM, &rec->sum, sizeof(rec->sum));
	put(t, FRAMES_SATURATED, &rec->saturated, sizeof(rec->saturated));
	put(t, FRAMES_INVALID, &rec->invalid, sizeof(rec->invalid));
	put(t, FRAMES_NNZ, &rec->nnz, sizeof(rec->nnz));
	put(t, FRAMES_VERDICT, &verdict, sizeof(verdict));
	put(t, FRAMES_KIND, &kind, sizeof(kind));
	put(t, FRAMES_VETO_VERSION, &rec->veto_version, sizeof(rec->veto_version));
	put(t, FRAMES_PEDESTAL_VERSION, &rec->pedestal_version, sizeof(rec->pedestal_version));
	if (has_peaks(b))
		frames_add_peaks(t, rec);
	if (b->config.tables->radial != 0)
		frames_add_profile(b, rec);
	t->rows++;
}

/* @return number of peaks in the output slot; -EINVAL: they are not peaks of the panels */
static int
peaks_measure(const struct batch_builder *b, const struct frame_record *rec, const uint8_t *output)
{
	const struct gk_layout *l = &b->config.layout;
	const struct gk_peak *peak = (const struct gk_peak *)(output + l->peaks);
	uint32_t n;

	if (!has_peaks(b) || rec->peaks == FRAME_NO_SEARCH)
		return 0;
	n = rec->peaks < l->peaks_cap ? rec->peaks : l->peaks_cap;
	for (uint32_t i = 0; i < n; i++)
		if (peak[i].panel >= b->config.nb_panels)
			return -EINVAL;
	return (int)n;
}

/* Compute what a row will add. @return 0; -EINVAL: the output does not match the record */
static int
image_measure(const struct batch_builder *b, const struct frame_record *rec, struct image_row *row)
{
	const struct gk_layout *l = &b->config.layout;
	uint32_t nnz;
	int peaks;

	if (rec->out >= b->config.nb_outputs)
		return -EINVAL;
	*row = (struct image_row){
		.output = b->config.outputs + rec->out * l->stride,
		.kind = rec->kind,
	};
	if (is_chunk(b, rec->kind))
		row->chunk_bound = gk_bitshuffle_bound(b->pixels);
	if (rec->chunk_bytes > row->chunk_bound)
		return -EINVAL;
	switch (rec->kind) {
	case GK_KIND_CSR:
		memcpy(&nnz, row->output + l->row_ptr + (uint64_t)b->raster_rows * sizeof(nnz),
			sizeof(nnz));
		if (nnz > l->nnz_cap)
			return -EINVAL;
		row->nb_row_ptr = b->raster_rows + 1;
		row->nb_col = nnz;
		row->nb_value = nnz;
		break;
	case GK_KIND_IMAGE:
		row->nb_value = row->chunk_bound > 0 ? 0 : b->pixels;
		break;
	case GK_KIND_RAW:
		break;
	default:
		return -EINVAL;
	}
	peaks = peaks_measure(b, rec, row->output);
	if (peaks < 0)
		return peaks;
	row->nb_peaks = (uint32_t)peaks;
	row->bytes = row->nb_row_ptr * sizeof(uint32_t) + row->nb_col * sizeof(uint16_t) +
		row->nb_value * l->value_size + row->chunk_bound + b->missing_bytes +
		row->nb_peaks * PEAK_BYTES;
	return 0;
}

static bool
images_columns_full(const struct batch_builder *b, const struct image_row *row)
{
	const struct table *t = &b->table[ARROW_IMAGES];

	return column_bytes(t, IMAGES_ROW_PTR) / sizeof(uint32_t) + row->nb_row_ptr >
		ELEMENTS_MAX ||
		column_bytes(t, IMAGES_VALUE) / b->config.layout.value_size + row->nb_value >
		ELEMENTS_MAX ||
		column_bytes(t, IMAGES_RAW) + row->chunk_bound > ELEMENTS_MAX ||
		t->set->data[IMAGES_MISSING]->used + b->missing_bytes > ELEMENTS_MAX ||
		(has_peaks(b) &&
			t->set->data[IMAGES_PEAK_FS]->used / sizeof(float) + row->nb_peaks >
				ELEMENTS_MAX);
}

/* Append the peaks, column by column. Positions are those in the raster. */
static void
images_add_peaks(struct batch_builder *b, const struct image_row *row)
{
	const struct gk_peak *peak = (const struct gk_peak *)(row->output + b->config.layout.peaks);
	struct table *t = &b->table[ARROW_IMAGES];
	unsigned int column;

	for (uint32_t i = 0; i < row->nb_peaks; i++) {
		const struct gk_peak *p = &peak[i];
		const struct gk_peak_panel *panel = &b->config.panels[p->panel];
		const float fs = (float)panel->fs + p->fs, ss = (float)panel->ss + p->ss;
		const uint16_t number = (uint16_t)p->panel;

		put(t, IMAGES_PEAK_FS, &fs, sizeof(fs));
		put(t, IMAGES_PEAK_SS, &ss, sizeof(ss));
		put(t, IMAGES_PEAK_INTENSITY, &p->intensity, sizeof(p->intensity));
		put(t, IMAGES_PEAK_SNR, &p->snr, sizeof(p->snr));
		put(t, IMAGES_PEAK_BACKGROUND, &p->background, sizeof(p->background));
		put(t, IMAGES_PEAK_PIXELS, &p->pixels, sizeof(p->pixels));
		put(t, IMAGES_PEAK_PANEL, &number, sizeof(number));
	}
	for (column = IMAGES_PEAK_FS; column < IMAGES_COLUMNS; column++)
		end_list(t, column, arrow_type_width(t->schema->fields[column].item));
}

/*
 * Whether the batch can refer to a row's output slot. References are the first parts of the body,
 * so none follows bytes of the lead column that were copied.
 */
static bool
may_refer(
	const struct batch_builder *b, const struct frame_record *rec, const struct image_row *row)
{
	const struct table *t = &b->table[ARROW_IMAGES];
	const struct batch_region *lead = &t->set->region[t->lead];

	return t->front[t->lead].nb < b->config.references &&
		(row->chunk_bound > 0 ? rec->chunk_bytes > 0 : row->nb_value > 0) &&
		t->set->data[main_column(b, rec->kind)] == lead && t->room.base == NULL &&
		lead->used == 0;
}

/* Refer to the row's bytes of the lead column in their output slot. */
static void
refer(struct batch_builder *b, const struct frame_record *rec, const struct image_row *row)
{
	const struct gk_layout *l = &b->config.layout;
	struct table *t = &b->table[ARROW_IMAGES];
	const bool chunk = row->chunk_bound > 0;
	const uint8_t *bytes = row->output + (chunk ? l->raw : l->value);
	const size_t size = chunk ? rec->chunk_bytes : row->nb_value * l->value_size;
	uint32_t crc = chunk ? rec->chunk_crc32c : 0;

	/* 0: none. If it is the CRC, it is computed again, to the same value. */
	if (crc == 0)
		crc = arrow_crc32c(0, bytes, size);
	t->slots[t->front[t->lead].nb] = rec->out;
	front_add(&t->front[t->lead], bytes, size, crc);
}

/* Location of the bytes of a row of images when it is added. */
enum row_bytes {
	ROW_COPIED,   /* in regions */
	ROW_PLACED,   /* in memory of batch_place */
	ROW_REFERRED, /* in the output slot, which stays unchanged until the batch is emitted */
};

/*
 * Whether a row can be in memory of batch_place. None follows one that was copied to regions,
 * because the number of parts only grows. What is not there is before, between or after the parts
 * of these columns.
 */
static bool
may_place(const struct table *t)
{
	return t->room.base != NULL &&
		t->nb_placed + ROW_PARTS + NB_IMAGE_COLUMNS + 1 <= BATCH_PLACE_PARTS;
}

/* Add items of a list. end_list() follows. */
static void
put_items(
	struct table *t, unsigned int column, const void *items, size_t size, enum row_bytes where)
{
	struct batch_region *r = t->set->data[column];
	size_t at;

	if (size == 0)
		return;
	/* no reference follows bytes of the column that were copied */
	if (where == ROW_REFERRED && r->used == 0) {
		front_add(front_of(t, column), items, size, arrow_crc32c(0, items, size));
		return;
	}
	t->copied += size;
	if (where != ROW_PLACED) {
		batch_region_append_large(r, items, size);
		return;
	}
	at = room_begin(t);
	batch_region_append_large(&t->room, items, size);
	room_end(t, column, at);
}

/* Add a chunk, or compress one. @param chunk  see images_add() */
static void
put_chunk(struct batch_builder *b, const struct frame_record *rec, const struct image_row *row,
	const struct batch_chunk *chunk, enum row_bytes where)
{
	const uint8_t *output = row->output + b->config.layout.raw;
	struct table *t = &b->table[ARROW_IMAGES];
	struct batch_region *to = where == ROW_PLACED ? &t->room : t->set->data[IMAGES_RAW];
	size_t packed, at;

	if (chunk != NULL) {
		put_items(t, IMAGES_RAW, chunk->bytes, chunk->size, where);
		return;
	}
	if (rec->chunk_bytes > 0) {
		put_items(t, IMAGES_RAW, output, rec->chunk_bytes, where);
		return;
	}
	at = room_begin(t);
	/* full images and raw data are in the same place */
	packed = gk_bitshuffle_compress(
		(const uint16_t *)output, b->pixels, batch_region_grow(to, row->chunk_bound));
	batch_region_shrink(to, row->chunk_bound - packed);
	if (where == ROW_PLACED)
		room_end(t, IMAGES_RAW, at);
}

/**
 * @param chunk  that is already compressed; NULL: not compressed, or not a chunk
 * @param may    the batch may refer to the output slot
 * @return 1: it refers to it; 0: it has a copy; -EINVAL
 */
static int
images_add(struct batch_builder *b, const struct frame_record *rec, const struct batch_chunk *chunk,
	bool may)
{
	const struct gk_layout *l = &b->config.layout;
	struct table *t = &b->table[ARROW_IMAGES];
	const uint8_t kind = rec->kind;
	enum row_bytes where = ROW_COPIED;
	struct image_row row;
	int ret;

	ret = image_measure(b, rec, &row);
	if (ret < 0)
		return ret;
	if (t->rows > 0 && (t->bytes + row.bytes > t->byte_limit || images_columns_full(b, &row)))
		table_emit(t, &b->config, ARROW_IMAGES);
	table_begin_row(b, ARROW_IMAGES, rec, row.bytes);
	if (may && may_refer(b, rec, &row)) {
		refer(b, rec, &row);
		where = ROW_REFERRED;
	} else {
		if (t->rows == 0)
			images_place(b);
		if (may_place(t))
			where = ROW_PLACED;
	}

	put(t, IMAGES_FRAME, &rec->frame, sizeof(rec->frame));
	put(t, IMAGES_KIND, &kind, sizeof(kind));
	put_items(t, IMAGES_ROW_PTR, row.output + l->row_ptr, row.nb_row_ptr * sizeof(uint32_t),
		where);
	end_list(t, IMAGES_ROW_PTR, sizeof(uint32_t));
	put_items(t, IMAGES_COL, row.output + l->col, row.nb_col * sizeof(uint16_t), where);
	end_list(t, IMAGES_COL, sizeof(uint16_t));
	if (where != ROW_REFERRED)
		put_items(t, IMAGES_VALUE, row.output + l->value, row.nb_value * l->value_size,
			where);
	end_list(t, IMAGES_VALUE, l->value_size);
	put_validity(t, IMAGES_RAW, row.chunk_bound > 0);
	if (row.chunk_bound > 0 && where != ROW_REFERRED)
		put_chunk(b, rec, &row, chunk, where);
	end_list(t, IMAGES_RAW, 1);
	put_list(t, IMAGES_MISSING, rec->missing_map, b->missing_bytes, 1);
	if (has_peaks(b))
		images_add_peaks(b, &row);
	t->rows++;
	return where == ROW_REFERRED;
}

/* Largest size of image_columns of a batch, without padding, bytes: the limit, or a single row. */
static uint64_t
place_max(const struct batch_builder *b, uint64_t limit)
{
	const struct gk_layout *l = &b->config.layout;
	const uint64_t of_row[] = {
		b->pixels * l->value_size,
		gk_bitshuffle_bound(b->pixels),
		(b->raster_rows + 1) * sizeof(uint32_t) +
			l->nnz_cap * (sizeof(uint16_t) + l->value_size),
	};
	uint64_t max = limit;

	for (unsigned int i = 0; i < sizeof(of_row) / sizeof(of_row[0]); i++)
		max = of_row[i] > max ? of_row[i] : max;
	return max;
}

static int
config_check(const struct batch_builder_config *c)
{
	const struct arrow_field *f;

	if (c->emit == NULL || c->sets > BATCH_SETS_MAX || (c->sets > 1 && c->reclaim == NULL) ||
		(c->place != NULL && c->reclaim != NULL) ||
		(c->references > 0 && c->reclaim != NULL) ||
		c->frames_interval > BATCH_INTERVAL_MAX ||
		c->images_interval > BATCH_INTERVAL_MAX || c->geometry.tiles == 0 ||
		c->geometry.tiles > FRAME_PACKETS_MAX)
		return -EINVAL;
	f = &c->tables->schema[ARROW_FRAMES].fields[FRAMES_MISSING];
	if (f->list_size > FRAME_MODULES_MAX)
		return -EINVAL;
	f = &c->tables->schema[ARROW_IMAGES].fields[IMAGES_VALUE];
	return arrow_type_width(f->item) != c->layout.value_size ? -EINVAL : 0;
}

int
batch_builder_create(struct batch_builder **builder, const struct batch_builder_config *config)
{
	struct arrow_identity id = {config->receiver_id, config->run, config->incarnation, NULL};
	const uint64_t limit = config->byte_limit ? config->byte_limit : BATCH_BYTE_LIMIT;
	const unsigned int sets = config->sets > 0 ? config->sets : 1;
	uint64_t most[COLUMNS_MAX] = {0};
	struct batch_builder *b;
	struct table *t;
	int ret;

	ret = config_check(config);
	if (ret < 0)
		return ret;
	b = calloc(1, sizeof(*b));
	if (b == NULL)
		return -ENOMEM;
	b->config = *config;
	if (b->config.ahead == 0)
		b->config.ahead = BATCH_AHEAD;
	b->pixels = gk_pixels(&config->geometry);
	b->raster_rows = gk_rows(&config->geometry);
	b->missing_bytes = (config->geometry.tiles + 7) / 8;
	b->place_max = place_max(b, limit);

	most[FRAMES_SHELL_PEAKS] =
		(config->frames_interval ? config->frames_interval : BATCH_FRAMES_INTERVAL) *
		sizeof(((struct frame_record *)NULL)->shell_peaks);
	t = &b->table[ARROW_FRAMES];
	t->align = FRAMES_ALIGN;
	t->byte_limit = UINT64_MAX; /* all rows have the same size, so the interval is the limit */
	id.table = arrow_table_name(ARROW_FRAMES);
	ret = table_init(t, &config->tables->schema[ARROW_FRAMES], &id,
		config->frames_interval ? config->frames_interval : BATCH_FRAMES_INTERVAL, sets, 0,
		0, most);
	if (ret < 0)
		goto fail;

	/* a batch within the limit, or a single row of any size */
	most[IMAGES_ROW_PTR] = limit + (b->raster_rows + 1) * sizeof(uint32_t);
	most[IMAGES_COL] = limit + b->pixels * sizeof(uint16_t);
	most[IMAGES_VALUE] = limit + b->pixels * config->layout.value_size;
	most[IMAGES_RAW] = limit + gk_bitshuffle_bound(b->pixels);
	most[IMAGES_MISSING] = limit + b->missing_bytes;
	for (unsigned int i = IMAGES_PEAK_FS; i < IMAGES_COLUMNS; i++)
		most[i] = limit + config->layout.peaks_cap * sizeof(float);
	t = &b->table[ARROW_IMAGES];
	t->align = IMAGES_ALIGN;
	t->byte_limit = limit;
	id.table = arrow_table_name(ARROW_IMAGES);
	ret = table_init(t, &config->tables->schema[ARROW_IMAGES], &id,
		config->images_interval ? config->images_interval : BATCH_IMAGES_INTERVAL, sets,
		config->references, config->place != NULL ? BATCH_PLACE_PARTS : 0, most);
	if (ret < 0)
		goto fail;
	*builder = b;
	return 0;

fail:
	batch_builder_destroy(b);
	return ret;
}

void
batch_builder_destroy(struct batch_builder *builder)
{
	if (builder == NULL)
		return;
	table_free(&builder->table[ARROW_FRAMES]);
	table_free(&builder->table[ARROW_IMAGES]);
	free(builder);
}

/* Add a frame to both tables. @return as images_add() */
static int
add(struct batch_builder *b, const struct frame_record *record, const struct batch_chunk *chunk,
	bool may_refer)
{
	int ret = 0;

	cut(b, record->frame);
	if (frame_verdict_is_kept(record->verdict))
		ret = images_add(b, record, chunk, may_refer);
	frames_add(b, record, ret < 0 ? FRAME_FLAG_NO_IMAGE : 0);
	return ret;
}

int
batch_builder_add(struct batch_builder *builder, const struct frame_record *record)
{
	return add(builder, record, NULL, false);
}

int
batch_builder_add_packed(struct batch_builder *builder, const struct frame_record *record,
	const struct batch_chunk *chunk)
{
	return add(builder, record, chunk, false);
}

int
batch_builder_refer(struct batch_builder *builder, const struct frame_record *record)
{
	return add(builder, record, NULL, true);
}

void
batch_builder_disown(struct batch_builder *builder, uint64_t first, uint64_t last)
{
	const struct table *t = &builder->table[ARROW_FRAMES];
	const uint8_t *frames = t->set->data[FRAMES_FRAME]->base;
	const uint8_t *verdicts = t->set->data[FRAMES_VERDICT]->base;
	uint8_t *at = t->set->data[FRAMES_FLAGS]->base;
	uint64_t i, frame;
	uint32_t flags;

	for (i = 0; i < t->rows; i++) {
		memcpy(&frame, frames + i * sizeof(frame), sizeof(frame));
		if (frame < first || frame > last || !frame_verdict_is_kept(verdicts[i]))
			continue;
		memcpy(&flags, at + i * sizeof(flags), sizeof(flags));
		flags |= FRAME_FLAG_NO_IMAGE;
		memcpy(at + i * sizeof(flags), &flags, sizeof(flags));
	}
}

uint64_t
batch_builder_rows(const struct batch_builder *builder)
{
	return builder->table[ARROW_FRAMES].rows;
}

void
batch_builder_flush(struct batch_builder *builder)
{
	emit_all(builder);
}
