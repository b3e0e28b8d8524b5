/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "arrow/flatbuf.h"
#include "arrow/format.h"
#include "sql/ipc_stream.h"
#include "sql/ipc_type.h"

#define IPC_DEPTH_MAX 64

/* ------------------------------------------------------------------ schema */

static int put_field(struct fb_writer *w, size_t ref, const struct ArrowSchema *f, int depth,
	int64_t *dictionaries);

static void
put_union(struct fb_writer *w, size_t ref, const struct ipc_type *t)
{
	static const uint8_t fields[] = {2, 4}; /* mode, typeIds */
	size_t at[2], items, nb = *t->text != '\0', i;
	const char *text;
	int32_t id = 0;

	for (text = t->text; *text != '\0'; text++)
		nb += *text == ',';
	fb_refer(w, ref, fb_table(w, fields, 2, at));
	fb_put16(w, at[0], t->arg[0]);
	fb_refer(w, at[1], fb_vector(w, nb, 4, 4, &items));
	for (text = t->text, i = 0; i < nb && ipc_int_read(&text, &id); i++) {
		fb_put32(w, items + 4 * i, id);
		text += *text == ',';
	}
}

/* Write the table of a type. */
static void
put_type(struct fb_writer *w, size_t ref, const struct ipc_type *t, int64_t flags)
{
	static const uint8_t int_fields[] = {4, 1};	   /* bitWidth, is_signed */
	static const uint8_t unit_fields[] = {2};	   /* precision, unit */
	static const uint8_t time_fields[] = {2, 4};	   /* unit, bitWidth */
	static const uint8_t zone_fields[] = {2, 4};	   /* unit, timezone */
	static const uint8_t size_fields[] = {4};	   /* byteWidth, listSize */
	static const uint8_t decimal_fields[] = {4, 4, 4}; /* precision, scale, bitWidth */
	static const uint8_t map_fields[] = {1};	   /* keysSorted */
	size_t at[3];

	switch (t->id) {
	case ARROW_FB_INT:
		fb_refer(w, ref, fb_table(w, int_fields, 2, at));
		fb_put32(w, at[0], t->arg[0]);
		fb_put8(w, at[1], t->arg[1]);
		break;
	case ARROW_FB_FLOAT:
	case FB_DATE:
	case FB_INTERVAL:
	case FB_DURATION:
		fb_refer(w, ref, fb_table(w, unit_fields, 1, at));
		fb_put16(w, at[0], t->arg[0]);
		break;
	case FB_TIME:
		fb_refer(w, ref, fb_table(w, time_fields, 2, at));
		fb_put16(w, at[0], t->arg[0]);
		fb_put32(w, at[1], t->arg[1]);
		break;
	case ARROW_FB_TIMESTAMP:
		fb_refer(w, ref, fb_table(w, zone_fields, *t->text != '\0' ? 2 : 1, at));
		fb_put16(w, at[0], t->arg[0]);
		if (*t->text != '\0')
			fb_string(w, at[1], t->text, strlen(t->text));
		break;
	case ARROW_FB_FIXED_LIST:
	case FB_FIXED_BINARY:
		fb_refer(w, ref, fb_table(w, size_fields, 1, at));
		fb_put32(w, at[0], t->arg[0]);
		break;
	case FB_DECIMAL:
		fb_refer(w, ref, fb_table(w, decimal_fields, 3, at));
		fb_put32(w, at[0], t->arg[0]);
		fb_put32(w, at[1], t->arg[1]);
		fb_put32(w, at[2], t->arg[2]);
		break;
	case FB_MAP:
		fb_refer(w, ref, fb_table(w, map_fields, 1, at));
		fb_put8(w, at[0], (flags & ARROW_FLAG_MAP_KEYS_SORTED) != 0);
		break;
	case FB_UNION:
		put_union(w, ref, t);
		break;
	default:
		fb_refer(w, ref, fb_table(w, NULL, 0, NULL));
	}
}

static int32_t
read_length(const char *bytes)
{
	int32_t length;

	memcpy(&length, bytes, sizeof(length));
	return length;
}

/* Write field metadata, which the C data interface has as lengths and bytes. */
static void
put_metadata(struct fb_writer *w, size_t ref, const char *metadata)
{
	static const uint8_t fields[] = {4, 4}; /* key, value */
	const int32_t nb = read_length(metadata);
	size_t items, at[2];
	int32_t i, k, length;

	metadata += 4;
	fb_refer(w, ref, fb_vector(w, nb, 4, 4, &items));
	for (i = 0; i < nb; i++) {
		fb_refer(w, items + 4 * i, fb_table(w, fields, 2, at));
		for (k = 0; k < 2; k++) {
			length = read_length(metadata);
			fb_string(w, at[k], metadata + 4, length);
			metadata += 4 + length;
		}
	}
}

/* Write the encoding of a dictionary, whose indexes are of type `index`. */
static void
put_encoding(
	struct fb_writer *w, size_t ref, const struct ipc_type *index, int64_t id, int64_t flags)
{
	static const uint8_t fields[] = {8, 4, 1}; /* id, indexType, isOrdered */
	size_t at[3];

	fb_refer(w, ref, fb_table(w, fields, 3, at));
	fb_put64(w, at[0], id);
	fb_put8(w, at[2], (flags & ARROW_FLAG_DICTIONARY_ORDERED) != 0);
	put_type(w, at[1], index, 0);
}

static int
put_fields(struct fb_writer *w, size_t ref, const struct ArrowSchema *parent, int depth,
	int64_t *dictionaries)
{
	size_t items;
	int64_t i;
	int ret = 0;

	fb_refer(w, ref, fb_vector(w, parent->n_children, 4, 4, &items));
	for (i = 0; i < parent->n_children && ret == 0; i++)
		ret = put_field(w, items + 4 * i, parent->children[i], depth, dictionaries);
	return ret;
}

static int
put_field(struct fb_writer *w, size_t ref, const struct ArrowSchema *f, int depth,
	int64_t *dictionaries)
{
	/* name, nullable, type_type, type, dictionary, children, custom_metadata */
	const bool metadata = f->metadata != NULL && read_length(f->metadata) > 0;
	const uint8_t fields[] = {4, 1, 1, 4, f->dictionary != NULL ? 4 : 0, 4, metadata ? 4 : 0};
	const struct ArrowSchema *values = f->dictionary != NULL ? f->dictionary : f;
	const char *name = f->name != NULL ? f->name : "";
	struct ipc_type type, index;
	size_t at[7];
	int ret;

	if (depth > IPC_DEPTH_MAX)
		return -ENOTSUP;
	ret = ipc_type_read(values->format, &type);
	if (ret == 0)
		ret = ipc_type_read(f->format, &index);
	if (ret < 0)
		return ret;
	if (f->dictionary != NULL && index.id != ARROW_FB_INT)
		return -EINVAL;
	fb_refer(w, ref, fb_table(w, fields, 7, at));
	fb_put8(w, at[1], (f->flags & ARROW_FLAG_NULLABLE) != 0);
	fb_put8(w, at[2], type.id);
	fb_string(w, at[0], name, strlen(name));
	put_type(w, at[3], &type, values->flags);
	if (f->dictionary != NULL)
		put_encoding(w, at[4], &index, (*dictionaries)++, f->flags);
	ret = put_fields(w, at[5], values, depth + 1, dictionaries);
	if (metadata)
		put_metadata(w, at[6], f->metadata);
	return ret;
}

/* ------------------------------------------------------------------ messages */

static int
put_bytes(struct ipc_stream *s, const void *bytes, size_t size)
{
	if (size > 0 && fwrite(bytes, size, 1, s->out) != 1)
		return errno != 0 ? -errno : -EIO;
	s->bytes += size;
	return 0;
}

static int
put_zeros(struct ipc_stream *s, size_t size)
{
	static const uint8_t zeros[IPC_ALIGN];

	return put_bytes(s, zeros, size);
}

/* Place the Message table. @return reference to its header */
static size_t
put_message(struct fb_writer *w, uint8_t type, uint64_t body)
{
	static const uint8_t fields[] = {2, 1, 4, 8}; /* version, header_type, header, bodyLength */
	size_t at[4];

	fb_refer(w, 0, fb_table(w, fields, 4, at));
	fb_put16(w, at[0], ARROW_FB_V5);
	fb_put8(w, at[1], type);
	fb_put64(w, at[3], body);
	return at[2];
}

/* Write a finished message: prefix, flatbuffer, padding, body. */
static int
send_message(struct ipc_stream *s, struct fb_writer *w, const struct ipc_buffer *buffer, size_t nb,
	uint64_t body)
{
	uint32_t prefix[2] = {ARROW_CONTINUATION, 0};
	uint64_t size = 0; /* of a buffer so far */
	size_t i;
	int ret;

	fb_pad(w, 8);
	if (w->error != 0)
		return w->error;
	if (s->out == NULL) {
		s->bytes += w->len + body;
		return s->sink.message(s->sink.arg, w->buf, w->len, buffer, nb, body);
	}
	prefix[1] = w->len;
	ret = put_bytes(s, prefix, sizeof(prefix));
	if (ret == 0)
		ret = put_bytes(s, w->buf, w->len);
	for (i = 0; i < nb && ret == 0; i++) {
		ret = put_bytes(s, buffer[i].bytes, buffer[i].size);
		size += buffer[i].size;
		if (ret == 0 && !buffer[i].joined) {
			ret = put_zeros(s, -size % IPC_ALIGN);
			size = 0;
		}
	}
	return ret;
}

static int
begin(struct ipc_stream *s)
{
	static const uint8_t fields[] = {2, 4}; /* endianness, fields */
	struct fb_writer w;
	size_t header, at[2];
	int ret;

	fb_init(&w);
	header = put_message(&w, ARROW_FB_SCHEMA, 0);
	fb_refer(&w, header, fb_table(&w, fields, 2, at));
	ret = put_fields(&w, at[1], s->schema, 0, &s->nb_dictionaries);
	if (ret == 0)
		ret = send_message(s, &w, NULL, 0, 0);
	fb_free(&w);
	return ret;
}

int
ipc_stream_begin(struct ipc_stream *s, FILE *out, const struct ArrowSchema *schema)
{
	*s = (struct ipc_stream){.out = out, .schema = schema};
	return begin(s);
}

int
ipc_stream_begin_messages(
	struct ipc_stream *s, const struct ipc_sink *sink, const struct ArrowSchema *schema)
{
	*s = (struct ipc_stream){.sink = *sink, .schema = schema};
	return begin(s);
}

/* A record batch under construction: field nodes, and buffers in the order of the body. */
struct body {
	int64_t *node; /* pairs: length, null count */
	size_t nb_nodes;
	struct ipc_buffer *buffer; /* elements: pieces of a buffer are joined */
	size_t nb_elements;
	size_t nb_buffers;
	uint64_t size;
};

static int
body_node(struct body *b, int64_t length, int64_t nulls)
{
	int64_t *node = realloc(b->node, (b->nb_nodes + 1) * 2 * sizeof(*node));

	if (node == NULL)
		return -ENOMEM;
	b->node = node;
	node[2 * b->nb_nodes] = length;
	node[2 * b->nb_nodes++ + 1] = nulls;
	return 0;
}

static uint64_t
padded(uint64_t size)
{
	return (size + IPC_ALIGN - 1) / IPC_ALIGN * IPC_ALIGN;
}

/* Append a buffer of some pieces. */
static int
body_pieces(struct body *b, const struct ipc_buffer *piece, size_t nb, uint64_t size)
{
	struct ipc_buffer *elements;
	size_t i;

	elements = realloc(b->buffer, (b->nb_elements + nb) * sizeof(*elements));
	if (elements == NULL)
		return -ENOMEM;
	b->buffer = elements;
	for (i = 0; i < nb; i++) {
		if (piece[i].bytes == NULL && piece[i].size > 0)
			return -EINVAL;
		elements[b->nb_elements] = piece[i];
		elements[b->nb_elements++].joined = i + 1 < nb;
	}
	b->nb_buffers++;
	b->size += padded(size);
	return 0;
}

static int
body_buffer(struct body *b, const void *bytes, uint64_t size)
{
	const struct ipc_buffer whole = {.bytes = bytes, .size = size};

	return body_pieces(b, &whole, 1, size);
}

/* Append the values of a column: those of the array, or others. */
static int
body_values(struct body *b, const struct ipc_values *values, const void *bytes, uint64_t size)
{
	if (values == NULL || !values->is_set)
		return body_buffer(b, bytes, size);
	if (values->size != size)
		return -EINVAL;
	return values->nb > 0 ? body_pieces(b, values->piece, values->nb, size)
			      : body_buffer(b, NULL, 0);
}

static int64_t
count_nulls(const struct ArrowArray *a)
{
	const uint8_t *validity = a->n_buffers > 0 ? a->buffers[0] : NULL;
	int64_t i, nulls = 0;

	if (validity == NULL || a->null_count == 0)
		return 0;
	if (a->null_count > 0)
		return a->null_count;
	for (i = 0; i < a->length; i++)
		nulls += !(validity[i / 8] >> i % 8 & 1);
	return nulls;
}

/* Offset after the last row. */
static uint64_t
last_offset(const struct ArrowArray *a, uint32_t width)
{
	if (a->length == 0 || a->buffers[1] == NULL)
		return 0;
	return width == 4 ? (uint64_t)((const int32_t *)a->buffers[1])[a->length]
			  : (uint64_t)((const int64_t *)a->buffers[1])[a->length];
}

static const int64_t layout_buffers[] = {
	[LAYOUT_NONE] = 0,
	[LAYOUT_BITS] = 2,
	[LAYOUT_FIXED] = 2,
	[LAYOUT_TEXT] = 3,
	[LAYOUT_LIST] = 2,
	[LAYOUT_CHILD] = 1,
	[LAYOUT_UNION] = 1,
};

static int
body_array(struct body *b, const struct ArrowSchema *f, const struct ArrowArray *a,
	const struct ipc_values *values)
{
	const uint64_t rows = a->length;
	struct ipc_type t;
	int64_t nulls, i;
	int ret;

	ret = ipc_type_read(f->format, &t);
	if (ret < 0)
		return ret;
	if (a->offset != 0)
		return -ENOTSUP;
	if (a->length < 0 || a->n_buffers < layout_buffers[t.layout] ||
		(f->dictionary == NULL && a->n_children != f->n_children) ||
		(t.layout == LAYOUT_LIST && a->n_children != 1))
		return -EINVAL;
	nulls = t.layout == LAYOUT_NONE	   ? (int64_t)rows
		: t.layout == LAYOUT_UNION ? 0
					   : count_nulls(a);
	ret = body_node(b, a->length, nulls);
	if (ret == 0 && t.layout != LAYOUT_NONE && t.layout != LAYOUT_UNION)
		ret = body_buffer(b, a->buffers[0], nulls > 0 ? (rows + 7) / 8 : 0);
	if (ret < 0)
		return ret;
	switch (t.layout) {
	case LAYOUT_BITS:
		ret = body_buffer(b, a->buffers[1], (rows + 7) / 8);
		break;
	case LAYOUT_FIXED:
		ret = body_values(b, values, a->buffers[1], rows * t.width);
		break;
	case LAYOUT_TEXT:
		ret = body_buffer(b, a->buffers[1], rows > 0 ? (rows + 1) * t.width : 0);
		if (ret == 0)
			ret = body_values(b, values, a->buffers[2], last_offset(a, t.width));
		break;
	case LAYOUT_LIST:
		ret = body_buffer(b, a->buffers[1], rows > 0 ? (rows + 1) * t.width : 0);
		if (ret == 0 && (uint64_t)a->children[0]->length < last_offset(a, t.width))
			ret = -EINVAL;
		break;
	case LAYOUT_UNION:
		ret = body_buffer(b, a->buffers[0], rows);
		if (ret == 0 && t.width > 0)
			ret = a->n_buffers < 2 ? -EINVAL
					       : body_buffer(b, a->buffers[1], rows * t.width);
		break;
	case LAYOUT_NONE:
	case LAYOUT_CHILD:
		break;
	}
	for (i = 0; f->dictionary == NULL && i < f->n_children && ret == 0; i++)
		ret = body_array(
			b, f->children[i], a->children[i], t.layout == LAYOUT_LIST ? values : NULL);
	return ret;
}

/* Place a RecordBatch table. */
static void
put_record_batch(struct fb_writer *w, size_t ref, const struct body *b, int64_t rows)
{
	static const uint8_t fields[] = {8, 4, 4}; /* length, nodes, buffers */
	uint64_t offset = 0, size;
	size_t at[3], items, i, k;

	fb_refer(w, ref, fb_table(w, fields, 3, at));
	fb_put64(w, at[0], rows);
	fb_refer(w, at[1], fb_vector(w, b->nb_nodes, 16, 8, &items));
	for (i = 0; i < 2 * b->nb_nodes; i++)
		fb_put64(w, items + 8 * i, b->node[i]);
	fb_refer(w, at[2], fb_vector(w, b->nb_buffers, 16, 8, &items));
	for (i = k = 0; i < b->nb_buffers; i++) {
		for (size = b->buffer[k].size; b->buffer[k].joined; size += b->buffer[k].size)
			k++;
		k++;
		fb_put64(w, items + 16 * i, offset);
		fb_put64(w, items + 16 * i + 8, size);
		offset += padded(size);
	}
}

static void
body_free(struct body *b)
{
	free(b->node);
	free(b->buffer);
}

/* Write a message with a body. @param dictionary  its number; -1: a record batch */
static int
send_batch(struct ipc_stream *s, const struct body *b, int64_t rows, int64_t dictionary)
{
	static const uint8_t fields[] = {8, 4, 1}; /* id, data, isDelta */
	struct fb_writer w;
	size_t header, at[3];
	int ret;

	fb_init(&w);
	header = put_message(
		&w, dictionary < 0 ? ARROW_FB_RECORD_BATCH : FB_DICTIONARY_BATCH, b->size);
	if (dictionary >= 0) {
		fb_refer(&w, header, fb_table(&w, fields, 3, at));
		fb_put64(&w, at[0], dictionary);
		header = at[1];
	}
	put_record_batch(&w, header, b, rows);
	ret = send_message(s, &w, b->buffer, b->nb_elements, b->size);
	fb_free(&w);
	return ret;
}

/* Write the dictionaries of a column, in the order of put_field(). */
static int
send_dictionaries(
	struct ipc_stream *s, const struct ArrowSchema *f, const struct ArrowArray *a, int64_t *id)
{
	struct body b = {0};
	int64_t i, mine;
	int ret = 0;

	if (f->dictionary != NULL) {
		mine = (*id)++;
		/* a dictionary of dictionaries would have to be written before this one */
		if (a->dictionary == NULL || f->dictionary->dictionary != NULL)
			return -ENOTSUP;
		ret = body_array(&b, f->dictionary, a->dictionary, NULL);
		if (ret == 0)
			ret = send_batch(s, &b, a->dictionary->length, mine);
		body_free(&b);
		return ret;
	}
	for (i = 0; i < f->n_children && ret == 0; i++)
		ret = send_dictionaries(s, f->children[i], a->children[i], id);
	return ret;
}

int
ipc_stream_batch(struct ipc_stream *s, const struct ArrowArray *array)
{
	return ipc_stream_batch_values(s, array, NULL);
}

int
ipc_stream_batch_values(
	struct ipc_stream *s, const struct ArrowArray *array, const struct ipc_values *values)
{
	struct body b = {0};
	int64_t i, id = 0;
	int ret = 0;

	if (array->offset != 0 || array->n_children != s->schema->n_children)
		return -EINVAL;
	for (i = 0; i < array->n_children && ret == 0; i++)
		ret = body_array(&b, s->schema->children[i], array->children[i],
			values != NULL ? &values[i] : NULL);
	if (ret == 0 && !s->started)
		ret = send_dictionaries(s, s->schema, array, &id);
	if (ret == 0) {
		s->started = true;
		ret = send_batch(s, &b, array->length, -1);
	}
	body_free(&b);
	return ret;
}

void
ipc_body_copy(
	void *to, const struct ipc_buffer *buffer, size_t nb, uint64_t offset, uint64_t length)
{
	const uint64_t last = offset + length;
	uint64_t at = 0, end, next, skip, n;
	uint8_t *out = to;
	size_t i;

	for (i = 0; i < nb && offset < last; i++, at = next) {
		end = at + buffer[i].size;
		next = buffer[i].joined ? end : padded(end);
		if (offset < end) {
			skip = offset - at;
			n = buffer[i].size - skip < last - offset ? buffer[i].size - skip
								  : last - offset;
			memcpy(out, (const uint8_t *)buffer[i].bytes + skip, n);
			out += n;
			offset += n;
		}
		if (offset < next && offset < last) {
			n = next - offset < last - offset ? next - offset : last - offset;
			memset(out, 0, n);
			out += n;
			offset += n;
		}
	}
}

int
ipc_stream_end(struct ipc_stream *s)
{
	static const uint32_t end[2] = {ARROW_CONTINUATION, 0};

	return put_bytes(s, end, sizeof(end));
}
