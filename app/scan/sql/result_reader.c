/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sql/ipc_type.h"
#include "sql/result_reader.h"

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
	struct ArrowArray items; /* DEFERRED: of a list */
	struct ArrowArray *child;
	const void *buffer[3];
	const void *item_buffer[2];
	/* memory of the reader for `room` rows */
	uint64_t *validity;
	uint8_t *values; /* DIRECT, with NULLs */
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
	struct sql_list_range *range;
	uint64_t nb_converted;
	duckdb_chunk some; /* the columns that are converted; NULL: all are, or none */
	duckdb_chunk chunk;
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

/* Types whose vectors have the bytes of Arrow's values. */
static bool
is_direct(int id)
{
	switch (id) {
	case DUCKDB_TYPE_TINYINT:
	case DUCKDB_TYPE_SMALLINT:
	case DUCKDB_TYPE_INTEGER:
	case DUCKDB_TYPE_BIGINT:
	case DUCKDB_TYPE_UTINYINT:
	case DUCKDB_TYPE_USMALLINT:
	case DUCKDB_TYPE_UINTEGER:
	case DUCKDB_TYPE_UBIGINT:
	case DUCKDB_TYPE_FLOAT:
	case DUCKDB_TYPE_DOUBLE:
	case DUCKDB_TYPE_TIMESTAMP:
	case DUCKDB_TYPE_DATE:
	case DUCKDB_TYPE_TIME:
	case DUCKDB_TYPE_HUGEINT:
	case DUCKDB_TYPE_TIMESTAMP_S:
	case DUCKDB_TYPE_TIMESTAMP_MS:
	case DUCKDB_TYPE_TIMESTAMP_NS:
	case DUCKDB_TYPE_TIMESTAMP_TZ:
		return true;
	default:
		return false;
	}
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
	error = s->api->to_arrow_schema(r->options, type, s->name, r->nb, &r->schema);
	if (error != NULL)
		return arrow_error(r, error);
	if (r->schema.n_children != (int64_t)r->nb)
		return reader_error(r, -EIO, "DuckDB's conversion to Arrow: ", "wrong schema");
	for (i = 0; i < r->nb; i++) {
		const struct ArrowSchema *f = r->schema.children[i];

		c = &r->column[i];
		if (s->deferred[i]) {
			c->is_list = s->api->get_type_id(type[i]) == DUCKDB_TYPE_LIST;
			if (c->is_list)
				f = f->children[0];
			if (ipc_type_read(f->format, &format) < 0 ||
				format.layout != (c->is_list ? LAYOUT_FIXED : LAYOUT_TEXT))
				return reader_error(
					r, -EIO, "DuckDB's conversion to Arrow: ", "wrong type");
			c->width = c->is_list ? format.width : 1;
			c->way = DEFERRED;
		} else if (is_direct(s->api->get_type_id(type[i])) && f->dictionary == NULL &&
			ipc_type_read(f->format, &format) == 0 && format.layout == LAYOUT_FIXED) {
			c->width = format.width;
			c->way = DIRECT;
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
	r->nb = s->nb_columns;
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

/* Free what the last batch needed. */
static void
forget_batch(struct sql_reader *r)
{
	if (r->converted.release != NULL)
		r->converted.release(&r->converted);
	if (r->chunk != NULL)
		r->session->api->destroy_data_chunk(&r->chunk);
}

void
sql_reader_close(struct sql_reader *r)
{
	const struct duckdb_api *api = r->session->api;
	uint64_t i;

	forget_batch(r);
	if (r->some != NULL)
		api->destroy_data_chunk(&r->some);
	for (i = 0; r->column != NULL && i < r->nb; i++) {
		free(r->column[i].validity);
		free(r->column[i].values);
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
	free(r->range);
	free(r);
}

/* Have memory for some rows. What was in it is lost. @return false: not enough */
static bool
make_room(struct sql_reader *r, uint64_t rows)
{
	struct column *c;

	if (rows <= r->room)
		return true;
	r->room = 0;
	free(r->handle);
	free(r->range);
	r->handle = calloc(rows, sizeof(*r->handle));
	r->range = calloc(rows, sizeof(*r->range));
	if (r->handle == NULL || r->range == NULL)
		return false;
	for (c = r->column; c < r->column + r->nb; c++) {
		free(c->validity);
		free(c->values);
		free(c->offsets);
		free(c->piece);
		c->values = NULL;
		c->offsets = NULL;
		c->piece = NULL;
		c->validity = calloc((rows + 63) / 64, sizeof(*c->validity));
		if (c->validity == NULL)
			return false;
		if (c->way == DIRECT) {
			c->values = malloc(rows * c->width);
			if (c->values == NULL)
				return false;
		} else if (c->way == DEFERRED) {
			c->offsets = calloc(rows + 1, sizeof(*c->offsets));
			c->piece = calloc(rows, sizeof(*c->piece));
			if (c->offsets == NULL || c->piece == NULL)
				return false;
		}
	}
	r->room = rows;
	return true;
}

/* Copy the validity of a vector, if a row is NULL. */
static void
take_validity(struct sql_reader *r, struct column *c, duckdb_vector vector, uint64_t rows)
{
	const uint64_t *validity = r->session->api->vector_get_validity(vector);
	uint64_t i, nulls = 0;

	for (i = 0; validity != NULL && i < (rows + 63) / 64; i++) {
		const uint64_t mask =
			rows - i * 64 < 64 ? (UINT64_C(1) << rows % 64) - 1 : UINT64_MAX;

		/* behind the last row as DuckDB's conversion has it */
		c->validity[i] = validity[i] | ~mask;
		nulls += __builtin_popcountll(~validity[i] & mask);
	}
	c->array = (struct ArrowArray){
		.length = (int64_t)rows,
		.null_count = (int64_t)nulls,
		.n_buffers = 2,
		.buffers = c->buffer,
	};
	c->buffer[0] = nulls > 0 ? c->validity : NULL;
}

static bool
is_null(const struct column *c, uint64_t row)
{
	return c->buffer[0] != NULL && !(c->validity[row / 64] >> row % 64 & 1);
}

static void
take_direct(struct sql_reader *r, struct column *c, duckdb_vector vector, uint64_t rows,
	struct sql_batch *batch)
{
	uint64_t row;

	take_validity(r, c, vector, rows);
	c->buffer[1] = r->session->api->vector_get_data(vector);
	if (c->array.null_count == 0) {
		batch->direct += rows * c->width;
		return;
	}
	memcpy(c->values, c->buffer[1], rows * c->width);
	for (row = 0; row < rows; row++) {
		if (is_null(c, row))
			memset(c->values + row * c->width, 0, c->width);
	}
	c->buffer[1] = c->values;
}

/* Copy the handles of a vector. @return false: something else is in it */
static bool
take_handles(struct sql_reader *r, const struct column *c, duckdb_vector vector, uint64_t rows)
{
	const struct duckdb_api *api = r->session->api;
	const union duckdb_text *text = api->vector_get_data(vector);
	const struct duckdb_list *list = api->vector_get_data(vector);
	const uint8_t *items =
		c->is_list ? api->vector_get_data(api->list_vector_get_child(vector)) : NULL;
	uint64_t row;

	for (row = 0; row < rows; row++) {
		if (is_null(c, row))
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

/* Refer to the values of a deferred column: one piece for rows that are neighbours in the file. */
static int
take_deferred(struct sql_reader *r, uint64_t column, duckdb_vector vector, uint64_t rows,
	struct sql_batch *batch)
{
	struct column *c = &r->column[column];
	struct ipc_values *v = &r->values[column];
	uint64_t row, items = 0, size;
	struct ipc_buffer *last;

	take_validity(r, c, vector, rows);
	if (!take_handles(r, c, vector, rows) ||
		sql_lists_resolve(&r->session->tables.lists, r->handle, c->buffer[0], rows,
			c->width, r->range) < 0)
		return reader_error(r, -EIO, r->session->name[column],
			": its lists have changed during the query");
	*v = (struct ipc_values){.piece = c->piece, .is_set = true};
	c->offsets[0] = 0;
	for (row = 0; row < rows; row++) {
		items += r->range[row].items;
		if (items > INT32_MAX)
			return reader_error(r, -EOVERFLOW, r->session->name[column],
				": expected at most 2147483647 list items or bytes in 2048 rows, "
				"found more: use LIMIT or fewer frames");
		c->offsets[row + 1] = (int32_t)items;
		size = (uint64_t)r->range[row].items * c->width;
		if (size == 0)
			continue;
		last = v->nb > 0 ? &c->piece[v->nb - 1] : NULL;
		if (last != NULL &&
			(const uint8_t *)last->bytes + last->size == r->range[row].bytes)
			last->size += size;
		else
			c->piece[v->nb++] = (struct ipc_buffer){
				.bytes = r->range[row].bytes, .size = size, .in_file = true};
	}
	v->size = items * c->width;
	batch->direct += v->size;
	batch->deferred += v->size;
	c->buffer[1] = c->offsets;
	if (c->is_list) {
		c->child = &c->items;
		c->array.n_children = 1;
		c->array.children = &c->child;
		c->items = (struct ArrowArray){
			.length = (int64_t)items, .n_buffers = 2, .buffers = c->item_buffer};
	} else {
		c->array.n_buffers = 3;
	}
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

/* Write zeros to all values behind NULL. */
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

int
sql_reader_next(struct sql_reader *r, struct sql_batch *batch)
{
	uint64_t rows, i;
	int ret;

	*batch = (struct sql_batch){.values = r->values};
	forget_batch(r);
	ret = sql_session_fetch(r->session, &r->chunk);
	if (ret < 0 || r->chunk == NULL)
		return ret;
	rows = r->session->api->data_chunk_get_size(r->chunk);
	if (!make_room(r, rows))
		return no_memory(r);
	ret = convert(r, rows);
	for (i = 0; i < r->nb && ret == 0; i++) {
		struct column *c = &r->column[i];
		duckdb_vector vector = r->session->api->data_chunk_get_vector(r->chunk, i);

		r->child[i] = c->way == CONVERTED ? r->converted.children[c->at] : &c->array;
		if (c->way == DIRECT)
			take_direct(r, c, vector, rows, batch);
		else if (c->way == DEFERRED)
			ret = take_deferred(r, i, vector, rows, batch);
	}
	if (ret < 0)
		return ret;
	r->root = (struct ArrowArray){
		.length = (int64_t)rows,
		.n_buffers = 1,
		.buffers = r->root_buffer,
		.n_children = (int64_t)r->nb,
		.children = r->child,
	};
	batch->array = &r->root;
	return 0;
}
