/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sql/ipc_type.h"
#include "sql/result_reader.h"

#define CHUNKS_MAX 64 /* of the engine in a batch */

/** Where the buffers of a column come from. */
enum way {
	CONVERTED, /* DuckDB's conversion to Arrow */
	DIRECT,	   /* the vector */
	DEFERRED,  /* files */
};

struct column {
	enum way way;
	uint32_t width; /* DIRECT: bytes of a value. DEFERRED: bytes of an item */
	bool is_list;	/* DEFERRED: not BLOB */
	uint64_t at;	/* CONVERTED: its number in the converted chunk */
	struct ArrowArray array;
	struct ArrowArray items_array; /* DEFERRED: of a list */
	struct ArrowArray *child;
	const void *buffer[3];
	const void *item_buffer[2];
	/* of the present batch */
	uint64_t nulls;
	uint64_t items;		      /* DEFERRED */
	uint8_t *values[CHUNKS_MAX];  /* DIRECT: copies of values with NULLs */
	struct sql_list_range *range; /* DEFERRED: of the rows of the chunk that is being read */
	/* memory of the reader for `room` rows */
	uint64_t *validity;
	int32_t *offsets;
	struct ipc_buffer *piece;
};

struct sql_reader {
	struct sql_session *session;
	duckdb_arrow_options options;
	struct ArrowSchema schema;
	uint64_t nb;
	struct column *column;
	struct ipc_values *values;
	struct ArrowArray root;
	const void *root_buffer[1];
	struct ArrowArray **child;
	uint64_t room; /* rows */
	struct sql_handle *handle;
	uint64_t nb_converted;
	uint64_t nb_deferred;
	uint64_t row_bytes;   /* of all buffers but those of lists */
	uint64_t batch_bytes; /* aim; 0: a batch is a chunk */
	uint32_t most;	      /* chunks of the next batch */
	duckdb_chunk some;    /* the columns that are converted; NULL: all are, or none */
	duckdb_chunk chunk;   /* being read; NULL: none */
	bool ended;	      /* the engine must not be asked again */
	int error;	      /* that ended it, or 0 */
	uint64_t row, rows;   /* of it: first one that is in no batch; all */
	/* of the present batch; the last one may be `chunk` */
	duckdb_chunk used[CHUNKS_MAX];
	uint32_t nb_used;
	uint64_t length; /* rows */
	struct ArrowArray converted;
};

static int
reader_error(struct sql_reader *r, int ret, const char *what, const char *why)
{
	struct sql_session *s = r->session;

	snprintf(s->error, sizeof(s->error), "%s%s", what, why);
	return ret;
}

static int
no_memory(struct sql_reader *r)
{
	return reader_error(r, -ENOMEM, "not enough memory", "");
}

/* Report an error of DuckDB's conversion. */
static int
arrow_error(struct sql_reader *r, duckdb_error_data error)
{
	const struct duckdb_api *api = r->session->api;

	reader_error(r, -EIO, "DuckDB's conversion to Arrow: ", api->error_data_message(error));
	api->destroy_error_data(&error);
	return -EIO;
}

const struct ArrowSchema *
sql_reader_schema(const struct sql_reader *r)
{
	return &r->schema;
}

/* Get the types and the schema, and decide about each column. */
static int
describe(struct sql_reader *r, duckdb_logical_type *type)
{
	struct sql_session *s = r->session;
	struct ipc_type format;
	duckdb_error_data error;
	struct column *c;
	uint64_t i;

	for (i = 0; i < r->nb; i++)
		type[i] = sql_session_type(s, i);
	error = s->api->to_arrow_schema(r->options, type, s->present.name, r->nb, &r->schema);
	if (error != NULL)
		return arrow_error(r, error);
	if (r->schema.n_children != (int64_t)r->nb)
		return reader_error(r, -EIO, "DuckDB's conversion to Arrow: ", "wrong schema");
	for (i = 0; i < r->nb; i++) {
		const struct ArrowSchema *f = r->schema.children[i];

		c = &r->column[i];
		if (s->present.deferred[i]) {
			c->is_list = s->api->get_type_id(type[i]) == DUCKDB_TYPE_LIST;
			if (c->is_list)
				f = f->children[0];
			if (ipc_type_read(f->format, &format) < 0 ||
				format.layout != (c->is_list ? LAYOUT_FIXED : LAYOUT_TEXT))
				return reader_error(
					r, -EIO, "DuckDB's conversion to Arrow: ", "wrong type");
			c->width = c->is_list ? format.width : 1;
			c->way = DEFERRED;
			r->nb_deferred++;
			r->row_bytes += sizeof(*c->offsets);
		} else if (sql_type_is_direct(s->api->get_type_id(type[i])) &&
			f->dictionary == NULL && ipc_type_read(f->format, &format) == 0 &&
			format.layout == LAYOUT_FIXED) {
			c->width = format.width;
			c->way = DIRECT;
			r->row_bytes += c->width;
		} else {
			c->at = r->nb_converted;
			/* in place: the types of the chunk that is converted */
			if (c->at < i) {
				const duckdb_logical_type t = type[c->at];

				type[c->at] = type[i];
				type[i] = t;
			}
			r->nb_converted++;
		}
	}
	if (r->nb_converted > 0 && r->nb_converted < r->nb) {
		r->some = s->api->create_data_chunk(type, r->nb_converted);
		if (r->some == NULL)
			return no_memory(r);
	}
	return 0;
}

int
sql_reader_open(struct sql_reader **reader, struct sql_session *s)
{
	struct sql_reader *r = calloc(1, sizeof(*r));
	duckdb_logical_type *type;
	uint64_t i;
	int ret;

	if (r == NULL)
		return -ENOMEM;
	r->session = s;
	r->nb = s->present.nb_columns;
	r->most = 1;
	r->options = s->api->result_get_arrow_options(&s->result);
	r->column = calloc(r->nb + 1, sizeof(*r->column));
	r->values = calloc(r->nb + 1, sizeof(*r->values));
	r->child = calloc(r->nb + 1, sizeof(*r->child));
	type = calloc(r->nb + 1, sizeof(*type));
	ret = r->column == NULL || r->values == NULL || r->child == NULL || type == NULL
		? no_memory(r)
		: describe(r, type);
	for (i = 0; type != NULL && i < r->nb; i++)
		s->api->destroy_logical_type(&type[i]);
	free(type);
	if (ret == 0)
		*reader = r;
	else
		sql_reader_close(r);
	return ret;
}

void
sql_reader_batch_bytes(struct sql_reader *r, uint64_t bytes)
{
	r->batch_bytes = bytes;
}

/* Free what the last batch needed. */
static void
forget_batch(struct sql_reader *r)
{
	uint64_t k;
	uint32_t i;

	if (r->converted.release != NULL)
		r->converted.release(&r->converted);
	for (i = 0; i < r->nb_used; i++) {
		if (r->used[i] != r->chunk)
			r->session->api->destroy_data_chunk(&r->used[i]);
		for (k = 0; k < r->nb; k++) {
			free(r->column[k].values[i]);
			r->column[k].values[i] = NULL;
		}
	}
	r->nb_used = 0;
	r->length = 0;
	for (k = 0; k < r->nb; k++)
		r->column[k].nulls = r->column[k].items = 0;
}

void
sql_reader_close(struct sql_reader *r)
{
	const struct duckdb_api *api = r->session->api;
	uint64_t i;

	if (r->column != NULL)
		forget_batch(r);
	if (r->chunk != NULL)
		api->destroy_data_chunk(&r->chunk);
	if (r->some != NULL)
		api->destroy_data_chunk(&r->some);
	for (i = 0; r->column != NULL && i < r->nb; i++) {
		free(r->column[i].validity);
		free(r->column[i].range);
		free(r->column[i].offsets);
		free(r->column[i].piece);
	}
	if (r->schema.release != NULL)
		r->schema.release(&r->schema);
	if (r->options != NULL)
		api->destroy_arrow_options(&r->options);
	free(r->column);
	free(r->values);
	free(r->child);
	free(r->handle);
	free(r);
}

/* Change the number of elements of an array. @return false: not enough memory */
static bool
grow(void *array, uint64_t nb, size_t size)
{
	void *more, *old;

	memcpy(&old, array, sizeof(old));
	more = realloc(old, nb * size);
	if (more != NULL)
		memcpy(array, &more, sizeof(more));
	return more != NULL;
}

/* Have memory for the rows of a batch. What is in it stays. @return false: not enough */
static bool
make_room(struct sql_reader *r, uint64_t rows)
{
	struct column *c;

	if (rows <= r->room)
		return true;
	if (rows < 2 * r->room)
		rows = 2 * r->room;
	for (c = r->column; c < r->column + r->nb; c++) {
		if (c->way != CONVERTED &&
			(!grow(&c->validity, (rows + 63) / 64, sizeof(*c->validity)) ||
				!grow(&c->piece, c->way == DEFERRED ? rows : CHUNKS_MAX,
					sizeof(*c->piece))))
			return false;
		if (c->way == DEFERRED && !grow(&c->offsets, rows + 1, sizeof(*c->offsets)))
			return false;
	}
	r->room = rows;
	return true;
}

static bool
is_valid(const uint64_t *validity, uint64_t row)
{
	return validity == NULL || (validity[row / 64] >> row % 64 & 1);
}

static uint64_t
count_nulls(const uint64_t *validity, uint64_t row, uint64_t rows)
{
	const uint64_t end = row + rows;
	uint64_t word, mask, nulls = 0;

	for (word = row / 64; word * 64 < end; word++) {
		mask = UINT64_MAX;
		if (word * 64 < row)
			mask <<= row % 64;
		if (end - word * 64 < 64)
			mask &= (UINT64_C(1) << end % 64) - 1;
		nulls += __builtin_popcountll(~validity[word] & mask);
	}
	return nulls;
}

/*
 * Append the validity of rows of a vector.
 * @return the vector's; NULL: none of these rows is NULL
 */
static const uint64_t *
take_validity(
	struct sql_reader *r, struct column *c, duckdb_vector vector, uint64_t row, uint64_t rows)
{
	const uint64_t *validity = r->session->api->vector_get_validity(vector);
	const uint64_t at = r->length;
	const uint64_t nulls = validity != NULL ? count_nulls(validity, row, rows) : 0;
	uint64_t i;

	if (nulls == 0 && c->nulls == 0)
		return NULL;
	/* after the last row as DuckDB's conversion has it: ones */
	if (c->nulls == 0)
		memset(c->validity, 0xff, (at + 63) / 64 * sizeof(*c->validity));
	for (i = (at + 63) / 64; i < (at + rows + 63) / 64; i++)
		c->validity[i] = UINT64_MAX;
	for (i = 0; nulls > 0 && i < rows; i++) {
		if (!is_valid(validity, row + i))
			c->validity[(at + i) / 64] &= ~(UINT64_C(1) << (at + i) % 64);
	}
	c->nulls += nulls;
	return nulls > 0 ? validity : NULL;
}

/* Append a piece to the values of a column. */
static void
add_piece(struct ipc_values *v, struct ipc_buffer *piece, const void *bytes, uint64_t size,
	bool in_file)
{
	struct ipc_buffer *last = v->nb > 0 ? &piece[v->nb - 1] : NULL;

	v->size += size;
	if (size == 0)
		return;
	if (last != NULL && (const uint8_t *)last->bytes + last->size == (const uint8_t *)bytes)
		last->size += size;
	else
		piece[v->nb++] =
			(struct ipc_buffer){.bytes = bytes, .size = size, .in_file = in_file};
}

static int
take_direct(
	struct sql_reader *r, uint64_t column, uint64_t row, uint64_t rows, struct sql_batch *batch)
{
	struct column *c = &r->column[column];
	duckdb_vector vector = r->session->api->data_chunk_get_vector(r->chunk, column);
	const uint64_t *validity = take_validity(r, c, vector, row, rows);
	const uint8_t *bytes = r->session->api->vector_get_data(vector);
	const uint64_t size = rows * c->width;
	uint8_t *copy;
	uint64_t i;

	bytes += row * c->width;
	if (validity == NULL) {
		batch->direct += size;
	} else {
		copy = malloc(size);
		if (copy == NULL)
			return no_memory(r);
		c->values[r->nb_used - 1] = copy;
		memcpy(copy, bytes, size);
		for (i = 0; i < rows; i++) {
			if (!is_valid(validity, row + i))
				memset(copy + i * c->width, 0, c->width);
		}
		bytes = copy;
	}
	add_piece(&r->values[column], c->piece, bytes, size, false);
	return 0;
}

/* Copy the handles of a vector. @return false: something else is in it */
static bool
take_handles(struct sql_reader *r, const struct column *c, duckdb_vector vector,
	const uint64_t *validity, uint64_t rows)
{
	const struct duckdb_api *api = r->session->api;
	const union duckdb_text *text = api->vector_get_data(vector);
	const struct duckdb_list *list = api->vector_get_data(vector);
	const uint8_t *items =
		c->is_list ? api->vector_get_data(api->list_vector_get_child(vector)) : NULL;
	uint64_t row;

	for (row = 0; row < rows; row++) {
		if (!is_valid(validity, row))
			continue;
		if (c->is_list) {
			if (list[row].length * c->width != sizeof(r->handle[row]))
				return false;
			memcpy(&r->handle[row], items + list[row].offset * c->width,
				sizeof(r->handle[row]));
		} else {
			if (text[row].length != sizeof(r->handle[row]))
				return false;
			memcpy(&r->handle[row], duckdb_text_bytes(&text[row]),
				sizeof(r->handle[row]));
		}
	}
	return true;
}

/* Find the ranges of the chunk that is being read, of a deferred column. */
static int
find_ranges(struct sql_reader *r, uint64_t column)
{
	struct column *c = &r->column[column];
	duckdb_vector vector = r->session->api->data_chunk_get_vector(r->chunk, column);
	const uint64_t *validity = r->session->api->vector_get_validity(vector);

	if (!grow(&c->range, r->rows + 1, sizeof(*c->range)) ||
		!grow(&r->handle, r->rows + 1, sizeof(*r->handle)))
		return no_memory(r);
	if (!take_handles(r, c, vector, validity, r->rows) ||
		sql_lists_resolve(&r->session->tables.lists, r->handle, validity, r->rows, c->width,
			c->range) < 0)
		return reader_error(r, -EIO, r->session->present.name[column],
			": its lists have changed during the query");
	return 0;
}

/* Refer to the values of a deferred column: one piece for rows that are neighbours in the file. */
static int
take_deferred(
	struct sql_reader *r, uint64_t column, uint64_t row, uint64_t rows, struct sql_batch *batch)
{
	struct column *c = &r->column[column];
	struct ipc_values *v = &r->values[column];
	const uint64_t before = v->size;
	uint64_t i;

	take_validity(r, c, r->session->api->data_chunk_get_vector(r->chunk, column), row, rows);
	c->offsets[r->length] = (int32_t)c->items;
	for (i = 0; i < rows; i++) {
		const struct sql_list_range *range = &c->range[row + i];

		c->items += range->items;
		if (c->items > INT32_MAX)
			return reader_error(r, -EOVERFLOW, r->session->present.name[column],
				": expected at most 2147483647 list items or bytes in a record "
				"batch, found more: use LIMIT or fewer frames");
		c->offsets[r->length + i + 1] = (int32_t)c->items;
		add_piece(v, c->piece, range->bytes, (uint64_t)range->items * c->width, true);
	}
	batch->direct += v->size - before;
	batch->deferred += v->size - before;
	return 0;
}

/*
 * Write zeros to the values of rows. The memory is that of DuckDB's conversion, which belongs to
 * the reader until it releases the array.
 */
static void
clear_rows(const struct ArrowSchema *f, const struct ArrowArray *a, uint64_t row, uint64_t rows)
{
	struct ipc_type t;
	uint8_t *values;
	uint64_t k;
	int64_t i;

	if (f->dictionary != NULL || ipc_type_read(f->format, &t) < 0)
		return;
	switch (t.layout) {
	case LAYOUT_FIXED:
		values = (uint8_t *)(uintptr_t)a->buffers[1];
		memset(values + row * t.width, 0, rows * t.width);
		return;
	case LAYOUT_BITS:
		values = (uint8_t *)(uintptr_t)a->buffers[1];
		for (k = row; k < row + rows; k++)
			values[k / 8] &= ~(1u << k % 8);
		return;
	case LAYOUT_CHILD:
		k = t.id == ARROW_FB_FIXED_LIST ? t.arg[0] : 1;
		for (i = 0; i < f->n_children; i++)
			clear_rows(f->children[i], a->children[i], row * k, rows * k);
		return;
	default:
		/* the positions of null texts and lists are those of empty ones */
		return;
	}
}

/* Write zeros to the values of all rows that are NULL. */
static void
clear_nulls(const struct ArrowSchema *f, const struct ArrowArray *a)
{
	const uint8_t *validity = a->n_buffers > 0 ? a->buffers[0] : NULL;
	int64_t i;

	if (f->dictionary != NULL || strncmp(f->format, "+u", 2) == 0)
		return;
	for (i = 0; validity != NULL && a->null_count != 0 && i < a->length; i++) {
		if (!(validity[i / 8] >> i % 8 & 1))
			clear_rows(f, a, i, 1);
	}
	for (i = 0; i < f->n_children; i++)
		clear_nulls(f->children[i], a->children[i]);
}

/* Convert the columns that need it. */
static int
convert(struct sql_reader *r, uint64_t rows)
{
	const struct duckdb_api *api = r->session->api;
	duckdb_error_data error;
	uint64_t i;

	if (r->nb_converted == 0)
		return 0;
	for (i = 0; r->some != NULL && i < r->nb; i++) {
		if (r->column[i].way == CONVERTED)
			api->vector_reference_vector(
				api->data_chunk_get_vector(r->some, r->column[i].at),
				api->data_chunk_get_vector(r->chunk, i));
	}
	if (r->some != NULL)
		api->data_chunk_set_size(r->some, rows);
	error = api->data_chunk_to_arrow(
		r->options, r->some != NULL ? r->some : r->chunk, &r->converted);
	if (error != NULL)
		return arrow_error(r, error);
	if (r->converted.n_children != (int64_t)r->nb_converted)
		return reader_error(r, -EIO, "DuckDB's conversion to Arrow: ", "wrong columns");
	for (i = 0; i < r->nb; i++) {
		if (r->column[i].way == CONVERTED)
			clear_nulls(r->schema.children[i], r->converted.children[r->column[i].at]);
	}
	return 0;
}

/* Describe a column of the batch. */
static void
end_column(struct sql_reader *r, uint64_t column)
{
	struct column *c = &r->column[column];
	struct ipc_values *v = &r->values[column];

	if (c->way == CONVERTED) {
		r->child[column] = r->converted.children[c->at];
		return;
	}
	r->child[column] = &c->array;
	c->array = (struct ArrowArray){
		.length = (int64_t)r->length,
		.null_count = (int64_t)c->nulls,
		.n_buffers = 2,
		.buffers = c->buffer,
	};
	c->buffer[0] = c->nulls > 0 ? c->validity : NULL;
	v->piece = c->piece;
	v->is_set = c->way == DEFERRED || v->nb > 1;
	if (c->way == DIRECT) {
		c->buffer[1] = v->nb > 0 ? c->piece[0].bytes : NULL;
		return;
	}
	c->buffer[1] = c->offsets;
	if (c->is_list) {
		c->child = &c->items_array;
		c->array.n_children = 1;
		c->array.children = &c->child;
		c->items_array = (struct ArrowArray){
			.length = (int64_t)c->items, .n_buffers = 2, .buffers = c->item_buffer};
	} else {
		c->array.n_buffers = 3;
	}
}

/* Fetch the next chunk, if none is being read. @return 1; 0: the end; -errno */
static int
fetch(struct sql_reader *r)
{
	uint64_t i;
	int ret;

	if (r->chunk != NULL || r->ended)
		return r->chunk != NULL ? 1 : r->error;
	do {
		if (r->chunk != NULL)
			r->session->api->destroy_data_chunk(&r->chunk);
		ret = sql_session_fetch(r->session, &r->chunk);
		r->ended = ret < 0 || r->chunk == NULL;
		if (r->ended)
			return r->error = ret;
		r->rows = r->session->api->data_chunk_get_size(r->chunk);
	} while (r->rows == 0);
	r->row = 0;
	for (i = 0; i < r->nb && ret == 0; i++) {
		if (r->column[i].way == DEFERRED)
			ret = find_ranges(r, i);
	}
	return ret < 0 ? ret : 1;
}

/* Bytes of a body, or a little more. @param lists  bytes of lists in it */
static uint64_t
body_bytes(const struct sql_reader *r, uint64_t rows, uint64_t lists)
{
	/* validity, and three buffers with padding for each column */
	return lists + rows * r->row_bytes + r->nb * (rows / 8 + 4 * (uint64_t)IPC_ALIGN);
}

/* As rows_that_fit(), if the size of a row is the same for all. */
static uint64_t
equal_rows_that_fit(const struct sql_reader *r)
{
	uint64_t most = r->rows - r->row, least = 0, middle;

	while (least < most) {
		middle = most - (most - least) / 2;
		if (body_bytes(r, r->length + middle, 0) <= r->batch_bytes)
			least = middle;
		else
			most = middle - 1;
	}
	return least;
}

/* As rows_that_fit(), if rows have lists of files. */
static uint64_t
lists_that_fit(const struct sql_reader *r)
{
	uint64_t lists = 0, rows, i;

	for (i = 0; i < r->nb; i++)
		if (r->column[i].way == DEFERRED)
			lists += r->values[i].size;
	for (rows = 0; r->row + rows < r->rows; rows++) {
		for (i = 0; i < r->nb; i++) {
			if (r->column[i].way == DEFERRED)
				lists += (uint64_t)r->column[i].range[r->row + rows].items *
					r->column[i].width;
		}
		if (body_bytes(r, r->length + rows + 1, lists) > r->batch_bytes)
			break;
	}
	return rows;
}

/* @return number of rows of the chunk that the batch has room for */
static uint64_t
rows_that_fit(const struct sql_reader *r)
{
	uint64_t rows, i;

	if (r->batch_bytes == 0 || r->nb_converted > 0)
		return r->rows;
	for (i = 0; i < r->nb && r->column[i].way != DEFERRED; i++)
		;
	rows = i < r->nb ? lists_that_fit(r) : equal_rows_that_fit(r);
	/* a row that is larger than a batch is one */
	return rows == 0 && r->length == 0 ? 1 : rows;
}

/* Append rows of the chunk. */
static int
take_rows(struct sql_reader *r, uint64_t rows, struct sql_batch *batch)
{
	uint64_t i;
	int ret = 0;

	if (!make_room(r, r->length + rows))
		return no_memory(r);
	r->used[r->nb_used++] = r->chunk;
	for (i = 0; i < r->nb && ret == 0; i++) {
		if (r->column[i].way == DIRECT)
			ret = take_direct(r, i, r->row, rows, batch);
		else if (r->column[i].way == DEFERRED)
			ret = take_deferred(r, i, r->row, rows, batch);
	}
	r->length += rows;
	r->row += rows;
	return ret;
}

int
sql_reader_next(struct sql_reader *r, struct sql_batch *batch)
{
	uint64_t rows, i;
	int ret;

	*batch = (struct sql_batch){.values = r->values};
	forget_batch(r);
	memset(r->values, 0, r->nb * sizeof(*r->values));
	do {
		ret = fetch(r);
		if (ret <= 0)
			break;
		rows = rows_that_fit(r);
		if (rows == 0)
			break;
		ret = convert(r, rows);
		if (ret == 0)
			ret = take_rows(r, rows, batch);
		/* the rest is for the next batch */
		if (ret < 0 || r->row < r->rows)
			break;
		r->chunk = NULL;
	} while (r->batch_bytes > 0 && r->nb_converted == 0 && r->nb_used < r->most);
	if (ret < 0)
		return ret;
	if (r->nb_used == 0)
		return 0;
	/* the first rows come early, and later ones in large batches */
	r->most = r->most < CHUNKS_MAX / 2 ? 2 * r->most : CHUNKS_MAX;
	for (i = 0; i < r->nb; i++)
		end_column(r, i);
	r->root = (struct ArrowArray){
		.length = (int64_t)r->length,
		.n_buffers = 1,
		.buffers = r->root_buffer,
		.n_children = (int64_t)r->nb,
		.children = r->child,
	};
	batch->array = &r->root;
	return 0;
}
