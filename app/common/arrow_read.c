/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrow_crc.h"
#include "arrow_flatbuf.h"
#include "arrow_format.h"
#include "arrow_read.h"

#define META_MAX   4096
#define BLOCK_SIZE 24

/* A message whose metadata and body lie within the file. */
struct message {
	struct fb_view view;
	struct fb_tab table;
	uint64_t type;
	uint64_t body_length;
	uint32_t metadata_size; /* with prefix */
};

static int
find_plain_type(const struct fb_tab *t, uint64_t type, enum arrow_type *found)
{
	uint64_t arg = 0, flag = 0;

	switch (type) {
	case ARROW_FB_INT:
		if (fb_get_scalar(t, 0, 4, 0, &arg) < 0 || fb_get_scalar(t, 1, 1, 0, &flag) < 0)
			return -EBADMSG;
		if (arg == 16 && flag) {
			*found = ARROW_INT16;
			return 0;
		}
		*found = arg == 8   ? ARROW_UINT8
			: arg == 16 ? ARROW_UINT16
			: arg == 32 ? ARROW_UINT32
				    : ARROW_UINT64;
		return flag || arrow_type_width(*found) * 8 != arg ? -EBADMSG : 0;
	case ARROW_FB_FLOAT:
		if (fb_get_scalar(t, 0, 2, 0, &arg) < 0)
			return -EBADMSG;
		*found = arg == ARROW_FB_SINGLE ? ARROW_FLOAT32 : ARROW_FLOAT64;
		return arg == ARROW_FB_SINGLE || arg == ARROW_FB_DOUBLE ? 0 : -EBADMSG;
	case ARROW_FB_TIMESTAMP:
		if (fb_get_scalar(t, 0, 2, 0, &arg) < 0)
			return -EBADMSG;
		*found = ARROW_TIMESTAMP_NS;
		return arg == ARROW_FB_NANOSECOND ? 0 : -EBADMSG;
	case ARROW_FB_BINARY:
		*found = ARROW_BINARY;
		return 0;
	default:
		return -EBADMSG;
	}
}

/* Name, nullability, type table and children of a field. */
static int
read_field_head(const struct fb_tab *t, struct arrow_field *f, uint64_t *type, struct fb_tab *sub,
	struct fb_vec *children)
{
	struct fb_tab dictionary;
	uint64_t nullable;
	uint32_t len;

	if (fb_get_string(t, 0, &f->name, &len) < 0 || fb_get_scalar(t, 1, 1, 0, &nullable) < 0 ||
		fb_get_scalar(t, 2, 1, 0, type) < 0 || fb_get_table(t, 3, sub) != 1 ||
		fb_get_table(t, 4, &dictionary) != 0 || fb_get_vector(t, 5, 4, children) < 0)
		return -EBADMSG;
	f->nullable = nullable != 0;
	return 0;
}

static int
read_field(const struct fb_tab *t, struct arrow_field *f)
{
	struct fb_vec children, none;
	struct fb_tab sub, child;
	struct arrow_field item;
	uint64_t type, item_type, size = 0;

	if (read_field_head(t, f, &type, &sub, &children) < 0)
		return -EBADMSG;
	if (type != ARROW_FB_LIST && type != ARROW_FB_FIXED_LIST)
		return find_plain_type(&sub, type, &f->type);

	f->type = type == ARROW_FB_LIST ? ARROW_LIST : ARROW_FIXED_LIST;
	if (type == ARROW_FB_FIXED_LIST &&
		(fb_get_scalar(&sub, 0, 4, 0, &size) < 0 || size > INT32_MAX))
		return -EBADMSG;
	f->list_size = size;
	if (children.nb != 1 || fb_vec_table(&children, 0, &child) < 0 ||
		read_field_head(&child, &item, &item_type, &sub, &none) < 0 ||
		find_plain_type(&sub, item_type, &f->item) < 0)
		return -EBADMSG;
	return arrow_type_width(f->item) == 0 ? -EBADMSG : 0;
}

static int
read_meta(const struct fb_vec *vec, uint32_t i, struct arrow_meta *meta)
{
	struct fb_tab t;
	uint32_t key, value;

	if (fb_vec_table(vec, i, &t) < 0 || fb_get_string(&t, 0, &meta->key, &key) < 0 ||
		fb_get_string(&t, 1, &meta->value, &value) < 0)
		return -EBADMSG;
	/* sectors that a crash has lost are zeros */
	return strlen(meta->key) != key || strlen(meta->value) != value ? -EBADMSG : 0;
}

static int
read_schema(struct arrow_reader *r, const struct fb_tab *t, const char **problem)
{
	struct fb_vec fields, meta;
	struct fb_tab field;
	uint64_t endianness;
	uint32_t i;

	*problem = "its schema is damaged";
	if (fb_get_scalar(t, 0, 2, 0, &endianness) < 0 || endianness != 0 ||
		fb_get_vector(t, 1, 4, &fields) < 0 || fb_get_vector(t, 2, 4, &meta) < 0 ||
		fields.nb > ARROW_NODES_MAX || meta.nb > META_MAX)
		return -EBADMSG;
	r->fields = calloc(fields.nb + 1, sizeof(*r->fields));
	r->meta = calloc(meta.nb + 1, sizeof(*r->meta));
	if (r->fields == NULL || r->meta == NULL)
		return -ENOMEM;
	for (i = 0; i < meta.nb; i++) {
		if (read_meta(&meta, i, &r->meta[i]) < 0)
			return -EBADMSG;
	}
	for (i = 0; i < fields.nb; i++) {
		if (fb_vec_table(&fields, i, &field) < 0)
			return -EBADMSG;
		if (read_field(&field, &r->fields[i]) < 0) {
			*problem = "its schema has a column of a type that no table of ours has";
			return -EBADMSG;
		}
	}
	r->schema = (struct arrow_schema){r->fields, fields.nb, r->meta, meta.nb};
	arrow_schema_count(&r->schema, &r->nb_nodes, &r->nb_buffers);
	return 0;
}

/* 1 a message, 0 the end of the stream, -EBADMSG neither. `at` is a multiple of 8. */
static int
read_message(const struct arrow_reader *r, uint64_t at, struct message *m, const char **problem)
{
	uint64_t version;
	uint32_t prefix[2];

	*problem = "it ends within a message";
	if (r->size - at < ARROW_PREFIX)
		return -EBADMSG;
	memcpy(prefix, r->data + at, sizeof(prefix));
	*problem = "what should be a message is not one";
	if (prefix[0] != ARROW_CONTINUATION || prefix[1] % 8 != 0 || prefix[1] > INT32_MAX)
		return -EBADMSG;
	if (prefix[1] == 0)
		return 0;
	*problem = "it ends within a message";
	if (prefix[1] > r->size - at - ARROW_PREFIX)
		return -EBADMSG;
	m->metadata_size = ARROW_PREFIX + prefix[1];
	m->view = (struct fb_view){r->data + at + ARROW_PREFIX, prefix[1]};
	*problem = "the metadata of a message are damaged";
	if (fb_get_root(&m->view, &m->table) < 0)
		return -EBADMSG;
	if (fb_get_scalar(&m->table, 0, 2, 0, &version) < 0 || version != ARROW_FB_V5 ||
		fb_get_scalar(&m->table, 1, 1, 0, &m->type) < 0 ||
		fb_get_scalar(&m->table, 3, 8, 0, &m->body_length) < 0 || m->body_length % 8 != 0)
		return -EBADMSG;
	*problem = "it ends within the body of a message";
	return m->body_length > r->size - at - m->metadata_size ? -EBADMSG : 1;
}

/* What a batch's custom metadata tell; unknown keys are nobody's business. */
static int
read_identity(const struct fb_tab *message, struct arrow_read_batch *b)
{
	const struct {
		const char *key;
		const char **value;
	} known[] = {
		{ARROW_KEY_PRODUCER, &b->producer},
		{ARROW_KEY_RUN, &b->run},
		{ARROW_KEY_INCARNATION, &b->incarnation},
		{ARROW_KEY_TABLE, &b->table},
		{ARROW_KEY_SEQUENCE, &b->sequence},
		{ARROW_KEY_CRC32C, &b->crc32c},
		{ARROW_KEY_METADATA, &b->metadata_crc32c},
	};
	struct arrow_meta meta;
	struct fb_vec vec;
	unsigned int k;
	uint32_t i;

	if (fb_get_vector(message, 4, 4, &vec) < 0)
		return -EBADMSG;
	for (i = 0; i < vec.nb; i++) {
		if (read_meta(&vec, i, &meta) < 0)
			return -EBADMSG;
		for (k = 0; k < sizeof(known) / sizeof(known[0]); k++) {
			if (strcmp(meta.key, known[k].key) == 0)
				*known[k].value = meta.value;
		}
	}
	return 0;
}

static int
read_batch(struct arrow_reader *r, uint64_t at, const struct message *m, struct arrow_read_batch *b)
{
	struct fb_vec nodes, buffers;
	struct fb_tab t, compression;

	memset(b, 0, sizeof(*b));
	if (m->type != ARROW_FB_RECORD_BATCH || fb_get_table(&m->table, 2, &t) != 1 ||
		fb_get_scalar(&t, 0, 8, 0, &b->rows) < 0 || b->rows > INT64_MAX ||
		fb_get_vector(&t, 1, sizeof(struct arrow_node), &nodes) < 0 ||
		fb_get_vector(&t, 2, sizeof(struct arrow_buffer), &buffers) < 0 ||
		fb_get_table(&t, 3, &compression) != 0 || nodes.nb != r->nb_nodes ||
		buffers.nb != r->nb_buffers || read_identity(&m->table, b) < 0)
		return -EBADMSG;
	b->offset = at;
	b->metadata_size = m->metadata_size;
	b->body_length = m->body_length;
	b->body = r->data + at + m->metadata_size;
	b->nodes = nodes.view->base + nodes.pos;
	b->buffers = buffers.view->base + buffers.pos;
	return 0;
}

static int
keep_batch(struct arrow_reader *r, const struct arrow_read_batch *b)
{
	struct arrow_read_batch *more;
	size_t n = r->nb_batches;

	/* the array doubles whenever its size is a power of two */
	if ((n & (n - 1)) == 0) {
		more = realloc(r->batches, (n == 0 ? 1 : 2 * n) * sizeof(*more));
		if (more == NULL)
			return -ENOMEM;
		r->batches = more;
	}
	r->batches[r->nb_batches++] = *b;
	return 0;
}

/* Whether the footer is there and lists the batches that were found. */
static bool
footer_agrees(const struct arrow_reader *r)
{
	const uint64_t tail = sizeof(uint32_t) + ARROW_MAGIC_SIZE;
	struct fb_view view;
	struct fb_vec blocks;
	struct fb_tab root;
	uint64_t offset, body;
	uint32_t len, metadata, i;
	const uint8_t *b;

	if (r->size - r->valid < tail ||
		memcmp(r->data + r->size - ARROW_MAGIC_SIZE, ARROW_MAGIC, ARROW_MAGIC_SIZE) != 0)
		return false;
	memcpy(&len, r->data + r->size - tail, sizeof(len));
	if (len > r->size - r->valid - tail)
		return false;
	view = (struct fb_view){r->data + r->size - tail - len, len};
	if (fb_get_root(&view, &root) < 0 || fb_get_vector(&root, 3, BLOCK_SIZE, &blocks) < 0 ||
		blocks.nb != r->nb_batches)
		return false;
	for (i = 0; i < blocks.nb; i++) {
		b = fb_vec_at(&blocks, i, BLOCK_SIZE);
		memcpy(&offset, b, sizeof(offset));
		memcpy(&metadata, b + 8, sizeof(metadata));
		memcpy(&body, b + 16, sizeof(body));
		if (offset != r->batches[i].offset || metadata != r->batches[i].metadata_size ||
			body != r->batches[i].body_length)
			return false;
	}
	return true;
}

int
arrow_reader_open_memory(
	struct arrow_reader *r, const void *data, uint64_t size, const char **problem)
{
	struct arrow_read_batch batch;
	struct message m;
	struct fb_tab t;
	uint64_t at = 8;
	int rc;

	memset(r, 0, sizeof(*r));
	r->data = data;
	r->size = size;
	*problem = "it does not begin with ARROW1: not an Arrow IPC file";
	if (size < 8 || memcmp(data, ARROW_MAGIC "\0", 8) != 0)
		return -EBADMSG;
	rc = read_message(r, at, &m, problem);
	if (rc <= 0)
		return -EBADMSG;
	*problem = "its first message is not a schema";
	if (m.type != ARROW_FB_SCHEMA || m.body_length != 0 || fb_get_table(&m.table, 2, &t) != 1)
		return -EBADMSG;
	rc = read_schema(r, &t, problem);
	if (rc < 0)
		goto fail;
	at += m.metadata_size;

	for (;;) {
		r->valid = at;
		rc = read_message(r, at, &m, &r->problem);
		if (rc <= 0)
			break;
		if (read_batch(r, at, &m, &batch) < 0) {
			r->problem = "the metadata of a message are damaged";
			break;
		}
		rc = keep_batch(r, &batch);
		if (rc < 0)
			goto fail;
		at += m.metadata_size + m.body_length;
	}
	if (at == size) {
		r->problem = "it has no footer: it is being written, or was not closed";
	} else if (rc == 0) {
		r->valid = at + ARROW_PREFIX;
		r->complete = footer_agrees(r);
		r->problem = r->complete ? NULL : "its footer is missing or damaged";
	}
	return 0;

fail:
	arrow_reader_close(r);
	return rc;
}

int
arrow_reader_open(struct arrow_reader *r, const char *path, const char **problem)
{
	struct stat st;
	void *map;
	int fd, rc;

	memset(r, 0, sizeof(*r));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0) {
		rc = -errno;
		*problem = strerror(errno);
		goto out;
	}
	if (!S_ISREG(st.st_mode) || st.st_size == 0) {
		rc = -EBADMSG;
		*problem = "it is empty or not a regular file";
		goto out;
	}
	map = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED) {
		rc = -errno;
		*problem = strerror(errno);
		goto out;
	}
	rc = arrow_reader_open_memory(r, map, st.st_size, problem);
	if (rc < 0)
		munmap(map, st.st_size);
	else
		r->mapped = true;
out:
	if (fd >= 0)
		close(fd);
	return rc;
}

void
arrow_reader_close(struct arrow_reader *r)
{
	if (r->mapped)
		munmap((void *)(uintptr_t)r->data, r->size);
	free(r->fields);
	free(r->meta);
	free(r->batches);
	memset(r, 0, sizeof(*r));
}

const char *
arrow_reader_meta(const struct arrow_reader *r, const char *key)
{
	unsigned int i;

	for (i = 0; i < r->schema.nb_meta; i++) {
		if (strcmp(r->meta[i].key, key) == 0)
			return r->meta[i].value;
	}
	return NULL;
}

int
arrow_reader_find(
	const struct arrow_reader *r, const char *name, enum arrow_type type, enum arrow_type item)
{
	const struct arrow_field *f;
	unsigned int i;

	for (i = 0; i < r->schema.nb_fields; i++) {
		f = &r->fields[i];
		if (strcmp(f->name, name) == 0 && f->type == type &&
			((type != ARROW_LIST && type != ARROW_FIXED_LIST) || f->item == item))
			return (int)i;
	}
	return -1;
}

/* Buffers and nodes of a batch are taken one after the other. */
struct cursor {
	const struct arrow_read_batch *batch;
	unsigned int node;
	unsigned int buffer;
};

static struct arrow_node
next_node(struct cursor *c)
{
	struct arrow_node n;

	memcpy(&n, c->batch->nodes + sizeof(n) * c->node++, sizeof(n));
	return n;
}

/* The next buffer, which must have at least nb x width bytes. */
static int
next_buffer(struct cursor *c, uint64_t nb, uint64_t width, const void **data)
{
	struct arrow_buffer b;
	uint64_t offset, length;

	memcpy(&b, c->batch->buffers + sizeof(b) * c->buffer++, sizeof(b));
	offset = b.offset;
	length = b.length;
	if (offset > c->batch->body_length || length > c->batch->body_length - offset ||
		offset % 8 != 0)
		return -EBADMSG;
	/* nb x width without overflow */
	if (width != 0 && nb > length / width)
		return -EBADMSG;
	*data = c->batch->body + offset;
	return 0;
}

static int
next_validity(struct cursor *c, const struct arrow_node *n, const uint8_t **validity)
{
	const uint64_t length = n->length, null_count = n->null_count;
	const void *data;

	if (n->length < 0 || null_count > length ||
		next_buffer(c, null_count > 0 ? length / 8 + (length % 8 != 0) : 0, 1, &data) < 0)
		return -EBADMSG;
	*validity = null_count > 0 ? data : NULL;
	return 0;
}

static int
next_offsets(struct cursor *c, struct arrow_column *col)
{
	const void *data;
	uint64_t i;

	if (col->rows == 0)
		return next_buffer(c, 0, 0, &data);
	if (next_buffer(c, col->rows + 1, sizeof(int32_t), &data) < 0)
		return -EBADMSG;
	col->offsets = data;
	if (col->offsets[0] < 0)
		return -EBADMSG;
	for (i = 0; i < col->rows; i++) {
		if (col->offsets[i + 1] < col->offsets[i])
			return -EBADMSG;
	}
	return 0;
}

static int
next_items(struct cursor *c, struct arrow_column *col)
{
	struct arrow_node n = next_node(c);
	const uint8_t *validity;

	if (next_validity(c, &n, &validity) < 0 || validity != NULL)
		return -EBADMSG;
	col->items = n.length;
	return next_buffer(c, col->items, arrow_type_width(col->field->item), &col->data);
}

static int
next_column(struct cursor *c, const struct arrow_field *f, struct arrow_column *col)
{
	struct arrow_node n = next_node(c);

	*col = (struct arrow_column){.field = f, .rows = n.length, .null_count = n.null_count};
	if (col->rows != c->batch->rows || next_validity(c, &n, &col->validity) < 0)
		return -EBADMSG;
	switch (f->type) {
	case ARROW_LIST:
		if (next_offsets(c, col) < 0 || next_items(c, col) < 0)
			return -EBADMSG;
		break;
	case ARROW_BINARY:
		if (next_offsets(c, col) < 0)
			return -EBADMSG;
		col->items = col->rows > 0 ? col->offsets[col->rows] : 0;
		return next_buffer(c, col->items, 1, &col->data);
	case ARROW_FIXED_LIST:
		if (next_items(c, col) < 0 ||
			(f->list_size != 0 && col->rows > col->items / f->list_size))
			return -EBADMSG;
		return 0;
	default:
		col->items = col->rows;
		return next_buffer(c, col->rows, arrow_type_width(f->type), &col->data);
	}
	return col->rows > 0 && (uint64_t)col->offsets[col->rows] > col->items ? -EBADMSG : 0;
}

int
arrow_reader_column(
	const struct arrow_reader *r, size_t batch, unsigned int field, struct arrow_column *column)
{
	struct cursor c = {.batch = &r->batches[batch]};
	struct arrow_schema before = r->schema;

	/* skip what belongs to the columns before */
	before.nb_fields = field;
	arrow_schema_count(&before, &c.node, &c.buffer);
	return next_column(&c, &r->fields[field], column);
}

/* @return whether a text of 8 hexadecimal digits is that number */
static bool
is_crc(const char *text, uint32_t crc)
{
	char digits[9];

	snprintf(digits, sizeof(digits), "%08x", crc);
	return strcmp(text, digits) == 0;
}

int
arrow_reader_crc_is(const struct arrow_reader *r, size_t batch, uint32_t body_crc)
{
	const struct arrow_read_batch *b = &r->batches[batch];
	const uint8_t *metadata = r->data + b->offset;

	if (b->metadata_crc32c != NULL &&
		(strlen(b->metadata_crc32c) != 8 ||
			!is_crc(b->metadata_crc32c,
				arrow_metadata_crc(metadata, b->metadata_size,
					(const uint8_t *)b->metadata_crc32c - metadata))))
		return -EBADMSG;
	if (b->crc32c == NULL)
		return 0;
	return is_crc(b->crc32c, body_crc) ? 1 : -EBADMSG;
}

int
arrow_reader_crc(const struct arrow_reader *r, size_t batch)
{
	const struct arrow_read_batch *b = &r->batches[batch];

	return arrow_reader_crc_is(
		r, batch, b->crc32c != NULL ? arrow_crc32c(0, b->body, b->body_length) : 0);
}
