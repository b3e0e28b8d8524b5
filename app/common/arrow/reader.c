/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrow/crc32c.h"
#include "arrow/flatbuf.h"
#include "arrow/format.h"
#include "arrow/names.h"
#include "arrow/reader.h"
#include "arrow/tables.h"
#include "io/direct_io.h"
#include "io/own_file.h"

#define META_MAX       4096
#define BATCH_META_MAX 64 /* maximum entries of a batch's metadata; files of this program have 7 */
#define BLOCK_SIZE     24
#define CRC_PART       (UINT64_C(1) << 20)  /* bytes loaded at once */
#define SCHEMA_MAX     (UINT64_C(16) << 20) /* maximum size of a schema that is not mapped, bytes */

/* Maximum size of a copy of this program's schema, bytes; a journal holds less. */
#define COPY_MAX (UINT64_C(1) << 20)

/* Maximum size of a footer beyond its batches (its schema), bytes. */
#define FOOTER_MORE (UINT64_C(1) << 20)

/*
 * Maximum size of metadata of this program's batches, from ARROW_NODES_MAX and ARROW_BUFFERS_MAX.
 */
#define ANNOUNCEMENT_MAX (16 * ARROW_BLOCK)

/* A message whose metadata and body are inside the file. */
struct message {
	struct fb_view view;
	struct fb_tab table;
	uint64_t type;
	uint64_t body_length;
	uint32_t metadata_size; /* including the prefix */
};

void
arrow_reader_load(const struct arrow_reader *r, const void *data, uint64_t size)
{
	if (r->window != NULL)
		arrow_window_load(r->window, (const uint8_t *)data - r->data, size);
}

/* Load bytes, and keep them loaded while the reader exists. */
static void
load_and_keep(const struct arrow_reader *r, uint64_t at, uint64_t size)
{
	const uint64_t end = at + size;
	uint64_t part;

	for (; r->window != NULL && at < end; at += part) {
		part = end - at < ARROW_WINDOW_AT_ONCE ? end - at : ARROW_WINDOW_AT_ONCE;
		arrow_window_load(r->window, at, part);
		arrow_window_keep(r->window, at, part);
	}
}

static int
find_plain_type(const struct fb_tab *t, uint64_t type, enum arrow_type *found)
{
	uint64_t arg = 0, flag = 0;

	switch (type) {
	case ARROW_FB_INT:
		if (fb_get_scalar(t, 0, 4, 0, &arg) < 0 || fb_get_scalar(t, 1, 1, 0, &flag) < 0)
			return -EBADMSG;
		if (flag && (arg == 16 || arg == 64)) {
			*found = arg == 16 ? ARROW_INT16 : ARROW_INT64;
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

/* Read name, nullability, type table and children of a field. */
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

/*
 * @param left  remaining limit of text bytes: entries may share a string, but not a long one many
 *   times
 */
static int
read_meta(const struct fb_vec *vec, uint32_t i, struct arrow_meta *meta, uint64_t *left)
{
	struct fb_tab t;
	uint32_t key, value;

	if (fb_vec_table(vec, i, &t) < 0 || fb_get_string(&t, 0, &meta->key, &key) < 0 ||
		fb_get_string(&t, 1, &meta->value, &value) < 0)
		return -EBADMSG;
	if ((uint64_t)key + value > *left)
		return -EBADMSG;
	*left -= (uint64_t)key + value;
	/* sectors that a crash has lost are zeros */
	return strlen(meta->key) != key || strlen(meta->value) != value ? -EBADMSG : 0;
}

static int
read_schema(struct arrow_reader *r, const struct fb_tab *t, const char **problem)
{
	struct fb_vec fields, meta;
	struct fb_tab field;
	uint64_t endianness, left = 2 * t->view->len;
	uint32_t i;

	*problem = ARROW_NO_SCHEMA;
	if (fb_get_scalar(t, 0, 2, 0, &endianness) < 0 || endianness != 0 ||
		fb_get_vector(t, 1, 4, &fields) < 0 || fb_get_vector(t, 2, 4, &meta) < 0 ||
		fields.nb > ARROW_NODES_MAX || meta.nb > META_MAX)
		return -EBADMSG;
	r->fields = calloc(fields.nb + 1, sizeof(*r->fields));
	r->meta = calloc(meta.nb + 1, sizeof(*r->meta));
	if (r->fields == NULL || r->meta == NULL)
		return -ENOMEM;
	for (i = 0; i < meta.nb; i++) {
		if (read_meta(&meta, i, &r->meta[i], &left) < 0)
			return -EBADMSG;
	}
	for (i = 0; i < fields.nb; i++) {
		if (fb_vec_table(&fields, i, &field) < 0)
			return -EBADMSG;
		if (read_field(&field, &r->fields[i]) < 0) {
			*problem = "its schema has a column type that no braggline table uses";
			return -EBADMSG;
		}
	}
	r->schema = (struct arrow_schema){r->fields, fields.nb, r->meta, meta.nb};
	arrow_schema_count(&r->schema, &r->nb_nodes, &r->nb_buffers);
	return 0;
}

/*
 * @return 1: a message; 0: end of the stream; -EBADMSG: neither; -ENODATA: a message whose body
 *   ends beyond the end of the file. `at` is a multiple of 8.
 */
static int
read_message(const struct arrow_reader *r, uint64_t at, struct message *m, const char **problem)
{
	const uint64_t most = at < ARROW_BLOCK ? SCHEMA_MAX : ANNOUNCEMENT_MAX;
	uint64_t version;
	uint32_t prefix[2];

	*problem = "it ends within a message";
	if (r->size - at < ARROW_PREFIX)
		return -EBADMSG;
	arrow_reader_load(r, r->data + at, ARROW_PREFIX);
	memcpy(prefix, r->data + at, sizeof(prefix));
	*problem = "no Arrow message at this position";
	if (prefix[0] != ARROW_CONTINUATION || prefix[1] % 8 != 0 || prefix[1] > INT32_MAX)
		return -EBADMSG;
	if (prefix[1] == 0)
		return 0;
	*problem = "it ends within a message";
	if (prefix[1] > r->size - at - ARROW_PREFIX)
		return -EBADMSG;
	m->metadata_size = ARROW_PREFIX + prefix[1];
	*problem = "the metadata of a message are too long";
	if (r->window != NULL && m->metadata_size > most)
		return -EBADMSG;
	arrow_reader_load(r, r->data + at, m->metadata_size);
	m->view = (struct fb_view){r->data + at + ARROW_PREFIX, prefix[1]};
	*problem = "the metadata of a message are damaged";
	if (fb_get_root(&m->view, &m->table) < 0)
		return -EBADMSG;
	if (fb_get_scalar(&m->table, 0, 2, 0, &version) < 0 || version != ARROW_FB_V5 ||
		fb_get_scalar(&m->table, 1, 1, 0, &m->type) < 0 ||
		fb_get_scalar(&m->table, 3, 8, 0, &m->body_length) < 0 || m->body_length % 8 != 0)
		return -EBADMSG;
	*problem = "it ends within the body of a message";
	return m->body_length > r->size - at - m->metadata_size ? -ENODATA : 1;
}

/* Read a batch's identity from its custom metadata. Unknown keys are ignored. */
static int
read_identity(const struct fb_tab *message, struct arrow_read_batch *b)
{
	const struct {
		const char *key;
		const char **value;
	} known[] = {
		{ARROW_KEY_RECEIVER_ID, &b->receiver_id},
		{ARROW_KEY_RUN, &b->run},
		{ARROW_KEY_INCARNATION, &b->incarnation},
		{ARROW_KEY_TABLE, &b->table},
		{ARROW_KEY_SEQUENCE, &b->sequence},
		{ARROW_KEY_CRC32C, &b->crc32c},
		{ARROW_KEY_METADATA, &b->metadata_crc32c},
	};
	uint64_t left = 2 * message->view->len;
	struct arrow_meta meta;
	struct fb_vec vec;
	unsigned int k;
	uint32_t i;

	if (fb_get_vector(message, 4, 4, &vec) < 0 || vec.nb > BATCH_META_MAX)
		return -EBADMSG;
	for (i = 0; i < vec.nb; i++) {
		if (read_meta(&vec, i, &meta, &left) < 0)
			return -EBADMSG;
		for (k = 0; k < sizeof(known) / sizeof(known[0]); k++) {
			if (strcmp(meta.key, known[k].key) == 0)
				*known[k].value = meta.value;
		}
	}
	return 0;
}

static int
read_batch(const struct arrow_reader *r, uint64_t at, const struct message *m,
	struct arrow_read_batch *b)
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

int
arrow_reader_keep(struct arrow_reader *r, const struct arrow_read_batch *b)
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
	load_and_keep(r, b->offset, b->metadata_size);
	return 0;
}

int
arrow_reader_keep_damage(struct arrow_reader *r, const struct arrow_read_damage *d)
{
	struct arrow_read_damage *more;
	size_t n = r->nb_damage;

	if ((n & (n - 1)) == 0) {
		more = realloc(r->damage, (n == 0 ? 1 : 2 * n) * sizeof(*more));
		if (more == NULL)
			return -ENOMEM;
		r->damage = more;
	}
	r->damage[n] = *d;
	r->damage[n].before = r->nb_batches;
	r->nb_damage++;
	if (d->announced)
		load_and_keep(r, d->batch.offset, d->batch.metadata_size);
	return 0;
}

static int
keep_region(struct arrow_reader *r, uint64_t offset, uint64_t end)
{
	const struct arrow_read_damage d = {
		.offset = offset,
		.length = end - offset,
		.why = ARROW_NO_ANNOUNCEMENT,
	};

	return arrow_reader_keep_damage(r, &d);
}

static uint64_t
batch_bytes(const struct arrow_read_batch *b)
{
	return b->metadata_size + b->body_length;
}

/* @return true: `text` is exactly this number of hexadecimal digits */
static bool
is_hex(const char *text, size_t digits)
{
	return text != NULL && strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

static bool
is_number(const char *hex, uint64_t number)
{
	return strtoull(hex, NULL, 16) == number;
}

void
arrow_reader_only(struct arrow_reader *r, const char *path)
{
	if (!arrow_name_stream(path, &r->only))
		r->only.table = NULL;
}

bool
arrow_read_has_identity(const struct arrow_reader *r, const struct arrow_read_batch *b)
{
	const char *table = arrow_reader_meta(r, ARROW_META_TABLE);
	const struct arrow_identity *only = &r->only;

	if (!is_hex(b->receiver_id, 16) || !is_hex(b->run, 16) || !is_hex(b->incarnation, 16) ||
		!is_hex(b->sequence, 16) || !is_hex(b->crc32c, 8) ||
		!is_hex(b->metadata_crc32c, 8) || b->table == NULL || table == NULL ||
		strcmp(b->table, table) != 0)
		return false;
	return only->table == NULL ||
		(strcmp(b->table, only->table) == 0 &&
			is_number(b->receiver_id, only->receiver_id) &&
			is_number(b->run, only->run) &&
			is_number(b->incarnation, only->incarnation));
}

static bool
is_same_stream(const struct arrow_read_batch *a, const struct arrow_read_batch *b)
{
	return strcmp(a->receiver_id, b->receiver_id) == 0 && strcmp(a->run, b->run) == 0 &&
		strcmp(a->incarnation, b->incarnation) == 0;
}

bool
arrow_read_follows(const struct arrow_read_batch *b, const struct arrow_read_batch *before)
{
	/* sequence numbers have a fixed width, so the order of strings is that of numbers */
	return is_same_stream(b, before) && strcmp(b->sequence, before->sequence) > 0;
}

/* @return true: `text` is 8 hexadecimal digits that equal `crc` */
static bool
is_crc(const char *text, uint32_t crc)
{
	char digits[9];

	snprintf(digits, sizeof(digits), "%08x", crc);
	return strcmp(text, digits) == 0;
}

static bool
metadata_are_right(const struct arrow_reader *r, const struct arrow_read_batch *b)
{
	const uint8_t *metadata = r->data + b->offset;

	return strlen(b->metadata_crc32c) == 8 &&
		is_crc(b->metadata_crc32c,
			arrow_metadata_crc(metadata, b->metadata_size,
				(const uint8_t *)b->metadata_crc32c - metadata));
}

int
arrow_reader_announced(const struct arrow_reader *r, uint64_t at, struct arrow_read_batch *b)
{
	const char *problem;
	struct message m;
	int ret;

	ret = read_message(r, at, &m, &problem);
	if ((ret != 1 && ret != -ENODATA) || m.metadata_size > ANNOUNCEMENT_MAX)
		return -EBADMSG;
	if (read_batch(r, at, &m, b) < 0 || b->metadata_size % ARROW_BLOCK != 0 ||
		b->body_length % ARROW_BLOCK != 0 || !arrow_read_has_identity(r, b) ||
		!metadata_are_right(r, b))
		return -EBADMSG;
	return ret;
}

bool
arrow_reader_next(const struct arrow_reader *r, uint64_t *at, struct arrow_read_batch *b)
{
	static const uint32_t continuation = ARROW_CONTINUATION;
	uint64_t p = (*at + ARROW_BLOCK - 1) / ARROW_BLOCK * ARROW_BLOCK;
	int ret;

	for (; p < r->written && r->written - p >= ARROW_PREFIX; p += ARROW_BLOCK) {
		arrow_reader_load(r, r->data + p, ARROW_PREFIX);
		if (memcmp(r->data + p, &continuation, sizeof(continuation)) != 0)
			continue;
		ret = arrow_reader_announced(r, p, b);
		if (ret == 1 || ret == -ENODATA) {
			*at = p;
			return true;
		}
	}
	return false;
}

/* The end of a file. */
struct footer {
	struct fb_view view;
	struct fb_vec blocks;
	const char *damaged; /* value of ARROW_KEY_DAMAGED, or NULL */
	const char *crc32c;  /* value of ARROW_KEY_FOOTER, or NULL */
	uint64_t trailer;    /* offset of the trailer, which begins with the end of the stream */
};

static struct arrow_block
footer_block(const struct footer *f, uint32_t i)
{
	const uint8_t *b = fb_vec_at(&f->blocks, i, BLOCK_SIZE);
	struct arrow_block block;

	memcpy(&block.offset, b, sizeof(block.offset));
	memcpy(&block.metadata, b + 8, sizeof(block.metadata));
	memcpy(&block.body, b + 16, sizeof(block.body));
	return block;
}

static bool
read_footer(const struct arrow_reader *r, struct footer *f)
{
	const uint64_t tail = sizeof(uint32_t) + ARROW_MAGIC_SIZE;
	struct arrow_meta meta;
	uint64_t left;
	struct fb_vec vec;
	struct fb_tab root;
	uint32_t len, i;

	if (r->size - r->begin < ARROW_PREFIX + tail)
		return false;
	arrow_reader_load(r, r->data + r->size - tail, tail);
	if (memcmp(r->data + r->size - ARROW_MAGIC_SIZE, ARROW_MAGIC, ARROW_MAGIC_SIZE) != 0)
		return false;
	memcpy(&len, r->data + r->size - tail, sizeof(len));
	if (len > r->size - r->begin - ARROW_PREFIX - tail)
		return false;
	/* an entry has 24 bytes and represents two blocks or more; so does an entry of damage */
	if (r->window != NULL && len > FOOTER_MORE + 2 * r->begin + r->size / 64)
		return false;
	load_and_keep(r, r->size - tail - len - ARROW_PREFIX, ARROW_PREFIX + len + tail);
	left = 2 * (uint64_t)len;
	f->view = (struct fb_view){r->data + r->size - tail - len, len};
	f->trailer = r->size - tail - len - ARROW_PREFIX;
	f->damaged = NULL;
	f->crc32c = NULL;
	if (fb_get_root(&f->view, &root) < 0 ||
		fb_get_vector(&root, 3, BLOCK_SIZE, &f->blocks) < 0 ||
		fb_get_vector(&root, 4, 4, &vec) < 0)
		return false;
	for (i = 0; i < vec.nb; i++) {
		if (read_meta(&vec, i, &meta, &left) < 0)
			return false;
		if (strcmp(meta.key, ARROW_KEY_DAMAGED) == 0)
			f->damaged = meta.value;
		else if (strcmp(meta.key, ARROW_KEY_FOOTER) == 0)
			f->crc32c = meta.value;
	}
	return true;
}

/* Whether this is the intact end of a file of this program. */
static bool
footer_is_right(const struct arrow_reader *r, const struct footer *f)
{
	const uint8_t *trailer = r->data + f->trailer;

	return f->trailer % ARROW_BLOCK == 0 && f->crc32c != NULL && strlen(f->crc32c) == 8 &&
		is_crc(f->crc32c,
			arrow_metadata_crc(trailer, r->size - f->trailer,
				(const uint8_t *)f->crc32c - trailer));
}

/* Whether the footer of another program's file lists the batches found. */
static bool
footer_agrees(const struct arrow_reader *r, const struct footer *f)
{
	const struct arrow_read_batch *b = r->batches;
	struct arrow_block block;
	uint32_t i;

	if (f->blocks.nb != r->nb_batches)
		return false;
	for (i = 0; i < f->blocks.nb; i++, b++) {
		block = footer_block(f, i);
		if (block.offset != b->offset || block.metadata != b->metadata_size ||
			block.body != b->body_length)
			return false;
	}
	return true;
}

/* Get the next entry of ARROW_KEY_DAMAGED. @return false: none */
static bool
next_mark(const char **text, struct arrow_block *mark, bool *announced)
{
	char *after;

	if (*text == NULL || **text == '\0')
		return false;
	*mark = (struct arrow_block){.offset = strtoull(*text, &after, 10)};
	mark->body = *after == ':' ? strtoull(after + 1, &after, 10) : 0;
	*announced = strncmp(after, ":-", 2) != 0;
	*text = strchr(after, ',');
	if (*text != NULL)
		(*text)++;
	return true;
}

/* Add a batch that the footer lists, or a region that it marks as damaged. */
static int
take_block(struct arrow_reader *r, const struct arrow_block *block, bool marked, bool announced)
{
	const uint64_t size = block->metadata + block->body;
	struct arrow_read_damage d = {block->offset, size, 0, ARROW_NO_ANNOUNCEMENT, false, {0}};

	/* without an announcement, the disk may be unable to read the region */
	if (announced && arrow_reader_announced(r, block->offset, &d.batch) == 1 &&
		batch_bytes(&d.batch) == size) {
		if (!marked)
			return arrow_reader_keep(r, &d.batch);
		d.announced = true;
		d.why = "it was already damaged when the file was recovered";
	}
	return arrow_reader_keep_damage(r, &d);
}

/* Take the batches, intact or damaged, from the valid footer of a file of this program. */
static int
go_by_footer(struct arrow_reader *r, const struct footer *f)
{
	struct arrow_block block = {0}, mark = {0}, *next;
	const char *text = f->damaged;
	bool announced = true, marked = next_mark(&text, &mark, &announced);
	uint64_t at = r->begin;
	uint32_t i = 0;
	int ret = 0;

	while (ret == 0 && (i < f->blocks.nb || marked)) {
		if (i < f->blocks.nb)
			block = footer_block(f, i);
		next = i < f->blocks.nb && (!marked || block.offset < mark.offset) ? &block : &mark;
		if (next->offset != at || next->metadata > f->trailer - at ||
			next->body > f->trailer - at - next->metadata ||
			next->metadata % ARROW_BLOCK != 0 || next->body % ARROW_BLOCK != 0 ||
			next->metadata + next->body == 0)
			break;
		at += next->metadata + next->body;
		ret = take_block(r, next, next == &mark, next != &mark || announced);
		if (next == &mark)
			marked = next_mark(&text, &mark, &announced);
		else
			i++;
	}
	r->end = r->valid = at;
	r->complete = ret == 0 && at == f->trailer && i == f->blocks.nb && !marked;
	if (r->complete)
		r->valid = at + ARROW_PREFIX;
	else
		r->problem = "its footer is damaged";
	return ret;
}

/* Find the next batch of the same stream after a damaged region. */
static bool
find_again(const struct arrow_reader *r, uint64_t at, struct arrow_read_batch *b)
{
	const struct arrow_read_batch *last =
		r->nb_batches > 0 ? &r->batches[r->nb_batches - 1] : NULL;

	for (; arrow_reader_next(r, &at, b); at += ARROW_BLOCK) {
		/* bytes of a body may look like an announcement */
		if (batch_bytes(b) <= r->size - at && (last == NULL || is_same_stream(b, last)))
			return true;
	}
	return false;
}

bool
arrow_reader_is_zero(const struct arrow_reader *r, uint64_t at, uint64_t size)
{
	static const uint8_t zeros[16 * ARROW_BLOCK];
	uint64_t end = at + size, part;

	if (end > r->written)
		end = r->written;
	for (; at < end; at += part) {
		part = end - at < sizeof(zeros) ? end - at : sizeof(zeros);
		arrow_reader_load(r, r->data + at, part);
		if (memcmp(r->data + at, zeros, part) != 0)
			return false;
	}
	return true;
}

/* Walk through an incomplete file of this program, from announcement to announcement. */
static int
walk_ours(struct arrow_reader *r)
{
	struct arrow_read_batch b;
	struct message m;
	uint64_t at;
	int ret;

	for (at = r->begin; at < r->size; at = b.offset + batch_bytes(&b)) {
		if (arrow_reader_announced(r, at, &b) != 1) {
			if (!find_again(r, at + ARROW_BLOCK, &b))
				break;
			ret = keep_region(r, at, b.offset);
			if (ret < 0)
				return ret;
		}
		ret = arrow_reader_keep(r, &b);
		if (ret < 0)
			return ret;
	}
	r->end = at;
	r->valid = at;
	if (at == r->size) {
		r->problem = "it has no footer: it is still being written, or was not closed";
		return 0;
	}
	if (arrow_reader_is_zero(r, at, r->size - at)) {
		r->problem = ARROW_UNUSED_ROOM;
		return 0;
	}
	ret = read_message(r, at, &m, &r->problem);
	if (ret == 0) {
		r->valid = at + ARROW_PREFIX;
		r->problem = "its footer is missing or damaged";
	} else if (ret == 1) {
		r->problem = "the metadata of a message are damaged";
	}
	return 0;
}

/* Walk through the messages of another program's file. */
static int
walk_others(struct arrow_reader *r)
{
	struct arrow_read_batch batch;
	uint64_t at = r->begin;
	struct footer f;
	struct message m;
	int ret;

	for (;;) {
		r->valid = r->end = at;
		ret = read_message(r, at, &m, &r->problem);
		if (ret <= 0)
			break;
		if (read_batch(r, at, &m, &batch) < 0) {
			r->problem = "the metadata of a message are damaged";
			break;
		}
		ret = arrow_reader_keep(r, &batch);
		if (ret < 0)
			return ret;
		at += m.metadata_size + m.body_length;
	}
	if (at == r->size) {
		r->problem = "it has no footer: it is still being written, or was not closed";
	} else if (ret == 0) {
		r->valid = at + ARROW_PREFIX;
		r->complete = read_footer(r, &f) && f.trailer >= at && footer_agrees(r, &f);
		r->problem = r->complete ? NULL : "its footer is missing or damaged";
	}
	return 0;
}

int
arrow_reader_part(struct arrow_reader *r)
{
	struct arrow_read_damage *all;
	size_t faults = 0, i, k = 0, sound = 0, n = 0;
	const struct arrow_read_batch *b;

	for (i = 0; i < r->nb_batches; i++)
		faults += r->batches[i].fault != NULL;
	if (faults == 0)
		return 0;
	/* twice the number: keep_damage() grows by powers of two */
	all = malloc(2 * (r->nb_damage + faults) * sizeof(*all));
	if (all == NULL)
		return -ENOMEM;
	for (i = 0; i < r->nb_batches; i++) {
		b = &r->batches[i];
		for (; k < r->nb_damage && r->damage[k].offset < b->offset; k++) {
			all[n] = r->damage[k];
			all[n++].before = sound;
		}
		if (b->fault == NULL) {
			r->batches[sound++] = *b;
			continue;
		}
		all[n++] = (struct arrow_read_damage){
			.offset = b->offset,
			.length = batch_bytes(b),
			.before = sound,
			.why = b->fault,
			.announced = true,
			.batch = *b,
		};
	}
	for (; k < r->nb_damage; k++) {
		all[n] = r->damage[k];
		all[n++].before = sound;
	}
	free(r->damage);
	r->damage = all;
	r->nb_damage = n;
	r->nb_batches = sound;
	return 0;
}

/* Whether the CRC of the copy of the schema that was read, `size` bytes, is correct. */
static bool
copy_is_right(const struct arrow_reader *r, uint64_t size)
{
	const char *digits = arrow_reader_meta(r, ARROW_META_HEADER);
	const uint8_t *copy = r->data + r->copy_at;
	uint64_t at;

	/* without its metadata, the copy would pass as a schema that has no CRC */
	if (digits == NULL || strlen(digits) != 8)
		return false;
	/* texts are in the file */
	at = (const uint8_t *)digits - copy;
	return at <= size - 8 && is_crc(digits, arrow_metadata_crc(copy, size, at));
}

static void
forget_schema(struct arrow_reader *r)
{
	free(r->fields);
	free(r->meta);
	r->fields = NULL;
	r->meta = NULL;
	r->schema = (struct arrow_schema){0};
}

/* Read the schema at the beginning of a file. What is wrong is recorded as its fault. */
static int
read_first(struct arrow_reader *r, const char **problem)
{
	struct message m;
	struct fb_tab t;
	int ret;

	*problem = "it does not begin with ARROW1: not an Arrow IPC file";
	if (r->size < ARROW_MAGIC_ROOM || memcmp(r->data, ARROW_MAGIC "\0", ARROW_MAGIC_ROOM) != 0)
		return -EBADMSG;
	ret = read_message(r, ARROW_MAGIC_ROOM, &m, problem);
	if (ret <= 0)
		return -EBADMSG;
	*problem = "its first message is not a schema";
	if (m.type != ARROW_FB_SCHEMA || m.body_length != 0 || fb_get_table(&m.table, 2, &t) != 1)
		return -EBADMSG;
	r->begin = ARROW_MAGIC_ROOM + m.metadata_size;
	load_and_keep(r, 0, r->begin);
	ret = read_schema(r, &t, problem);
	if (ret < 0)
		return ret;
	r->copy = r->copy_at = 0;
	r->schema_fault = ARROW_NO_SCHEMA;
	if (r->begin % (2 * ARROW_BLOCK) == 0 && copy_is_right(r, r->begin / 2)) {
		r->copy = r->begin / 2;
		r->schema_fault =
			memcmp(r->data, r->data + r->copy, r->copy) == 0 ? NULL : ARROW_ONE_SCHEMA;
	} else if (copy_is_right(r, r->begin)) {
		/* an older file has one copy only */
		r->schema_fault = NULL;
	}
	return 0;
}

/* Whether the second copy of a schema begins at an offset. Both copies have the same length. */
static bool
is_second(const struct arrow_reader *r, uint64_t at)
{
	const uint32_t prefix[2] = {ARROW_CONTINUATION, 2 * at - ARROW_MAGIC_ROOM - ARROW_PREFIX};

	if (r->size < 2 * at)
		return false;
	arrow_reader_load(r, r->data + at, ARROW_MAGIC_ROOM + ARROW_PREFIX);
	return memcmp(r->data + at, ARROW_MAGIC "\0", ARROW_MAGIC_ROOM) == 0 &&
		memcmp(r->data + at + ARROW_MAGIC_ROOM, prefix, sizeof(prefix)) == 0;
}

/*
 * Read the second copy of the schema, because the first one is damaged. @return 0; -EBADMSG: there
 * is none; -ENOMEM
 */
static int
read_second(struct arrow_reader *r)
{
	const uint64_t lead = ARROW_MAGIC_ROOM + ARROW_PREFIX;
	struct fb_tab message, t;
	const char *problem;
	struct fb_view view;
	uint64_t at, type;
	int ret;

	for (at = ARROW_BLOCK; at <= COPY_MAX && at < r->size; at += ARROW_BLOCK) {
		if (!is_second(r, at))
			continue;
		load_and_keep(r, 0, 2 * at);
		view = (struct fb_view){r->data + at + lead, at - lead};
		if (fb_get_root(&view, &message) < 0 ||
			fb_get_scalar(&message, 1, 1, 0, &type) < 0 || type != ARROW_FB_SCHEMA ||
			fb_get_table(&message, 2, &t) != 1)
			continue;
		ret = read_schema(r, &t, &problem);
		if (ret == -ENOMEM)
			return ret;
		r->copy_at = at;
		if (ret == 0 && copy_is_right(r, at)) {
			r->begin = 2 * at;
			r->copy = at;
			r->schema_fault = ARROW_ONE_SCHEMA;
			return 0;
		}
		forget_schema(r);
	}
	return -EBADMSG;
}

/* @return as arrow_reader_open() */
static int
read_header(struct arrow_reader *r, const char **problem)
{
	struct arrow_reader second = *r;
	int ret, rc_second;

	load_and_keep(r, 0, ARROW_MAGIC_ROOM);
	ret = read_first(r, problem);
	if (ret == -ENOMEM || (ret == 0 && arrow_reader_has_schema(r)))
		return ret;
	rc_second = read_second(&second);
	if (rc_second == -EBADMSG)
		return ret;
	forget_schema(r);
	*r = second;
	return rc_second;
}

/* Read a file whose bytes are in memory or accessible through a window, as set in `r`. */
static int
read_all(struct arrow_reader *r, const char **problem)
{
	struct footer f;
	int ret;

	ret = read_header(r, problem);
	if (ret < 0)
		goto fail;
	if (arrow_reader_meta(r, ARROW_META_TABLE) == NULL || r->begin % ARROW_BLOCK != 0)
		ret = walk_others(r);
	else if (read_footer(r, &f) && footer_is_right(r, &f))
		ret = go_by_footer(r, &f);
	else
		ret = walk_ours(r);
	if (ret < 0)
		goto fail;
	return 0;

fail:
	arrow_reader_close(r);
	return ret;
}

int
arrow_reader_open_written(struct arrow_reader *r, const void *data, uint64_t size, uint64_t written,
	const char **problem)
{
	*r = (struct arrow_reader){.data = data, .size = size, .written = written};
	return read_all(r, problem);
}

int
arrow_reader_open_window(struct arrow_reader *r, struct arrow_window *window, uint64_t size,
	uint64_t written, const char **problem)
{
	*r = (struct arrow_reader){
		.data = arrow_window_data(window),
		.size = size,
		.written = written,
		.window = window,
	};
	return read_all(r, problem);
}

int
arrow_reader_open_memory(
	struct arrow_reader *r, const void *data, uint64_t size, const char **problem)
{
	return arrow_reader_open_written(r, data, size, size, problem);
}

/* Open a file for reading. @return its descriptor; -errno */
static int
open_path(const char *path, uint64_t *size, const char **problem)
{
	struct stat st;
	int fd, ret;

	fd = own_file_open_named(path, O_RDONLY, 0);
	if (fd < 0 || fstat(fd, &st) < 0) {
		ret = fd < 0 ? fd : -errno;
		*problem = own_file_error(ret);
		goto fail;
	}
	*size = st.st_size;
	if (st.st_size > 0)
		return fd;
	ret = -EBADMSG;
	*problem = "it is empty";
fail:
	if (fd >= 0)
		close(fd);
	return ret;
}

int
arrow_reader_map(struct arrow_mapping *m, const char *path, const char **problem)
{
	uint64_t size = 0;
	int fd, ret = 0;

	fd = open_path(path, &size, problem);
	if (fd < 0)
		return fd;
	*m = (struct arrow_mapping){.size = size, .written = direct_io_written(fd, size)};
	m->data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (m->data == MAP_FAILED) {
		ret = -errno;
		*problem = strerror(errno);
	}
	close(fd);
	return ret;
}

int
arrow_reader_open_mapped(
	struct arrow_reader *r, const struct arrow_mapping *m, const char **problem)
{
	const int ret = arrow_reader_open_written(r, m->data, m->size, m->written, problem);

	r->mapped = ret == 0;
	return ret;
}

int
arrow_reader_open(struct arrow_reader *r, const char *path, const char **problem)
{
	struct arrow_mapping map;
	int ret;

	memset(r, 0, sizeof(*r));
	ret = arrow_reader_map(&map, path, problem);
	if (ret < 0)
		return ret;
	ret = arrow_reader_open_mapped(r, &map, problem);
	if (ret < 0)
		munmap(map.data, map.size);
	return ret;
}

static int64_t
read_path(void *arg, void *data, uint64_t size, uint64_t offset)
{
	return direct_io_read((int)(intptr_t)arg, data, size, offset);
}

int
arrow_reader_open_read(struct arrow_reader *r, const char *path, const char **problem)
{
	struct arrow_window *window;
	uint64_t size = 0;
	int fd, ret;

	memset(r, 0, sizeof(*r));
	fd = open_path(path, &size, problem);
	if (fd < 0)
		return fd;
	*problem = "not enough memory to read it";
	ret = arrow_window_open(&window, size, read_path, (void *)(intptr_t)fd);
	if (ret < 0)
		goto fail;
	ret = arrow_reader_open_window(r, window, size, direct_io_written(fd, size), problem);
	if (ret < 0) {
		/* the first block is required */
		if (arrow_window_unreadable_end(window) > 0)
			*problem = "read error of the disk";
		arrow_window_close(window);
		goto fail;
	}
	r->own_window = true;
	r->own_fd = fd + 1;
	arrow_reader_only(r, path);
	return 0;

fail:
	close(fd);
	return ret;
}

void
arrow_reader_close(struct arrow_reader *r)
{
	if (r->mapped)
		munmap((void *)(uintptr_t)r->data, r->size);
	if (r->own_window)
		arrow_window_close(r->window);
	if (r->own_fd > 0)
		close(r->own_fd - 1);
	free(r->fields);
	free(r->meta);
	free(r->batches);
	free(r->damage);
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

/* Position in the buffers and nodes of a batch, which are read in order. */
struct cursor {
	const struct arrow_reader *reader;
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

/* Get the next buffer, which must have at least nb x width bytes. */
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
	arrow_reader_load(c->reader, col->offsets, sizeof(int32_t));
	if (col->offsets[0] < 0)
		return -EBADMSG;
	for (i = 0; i < col->rows; i++) {
		if (i % ARROW_BLOCK == 0)
			arrow_reader_load(
				c->reader, col->offsets + i, (ARROW_BLOCK + 1) * sizeof(int32_t));
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

/* The offsets must have been checked. */
static uint64_t
last_offset(const struct cursor *c, const struct arrow_column *col)
{
	if (col->rows == 0)
		return 0;
	arrow_reader_load(c->reader, col->offsets + col->rows, sizeof(int32_t));
	return (uint64_t)col->offsets[col->rows];
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
		col->items = last_offset(c, col);
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
	return last_offset(c, col) > col->items ? -EBADMSG : 0;
}

int
arrow_read_column(const struct arrow_reader *r, const struct arrow_read_batch *b,
	unsigned int field, struct arrow_column *column)
{
	struct cursor c = {.reader = r, .batch = b};
	struct arrow_schema before = r->schema;

	/* skip the buffers and nodes of the columns before */
	before.nb_fields = field;
	arrow_schema_count(&before, &c.node, &c.buffer);
	return next_column(&c, &r->fields[field], column);
}

int
arrow_reader_column(
	const struct arrow_reader *r, size_t batch, unsigned int field, struct arrow_column *column)
{
	return arrow_read_column(r, &r->batches[batch], field, column);
}

static int
crc_is(const struct arrow_reader *r, const struct arrow_read_batch *b, uint32_t body_crc)
{
	if (b->metadata_crc32c != NULL && !metadata_are_right(r, b))
		return -EBADMSG;
	if (b->crc32c == NULL)
		return 0;
	return is_crc(b->crc32c, body_crc) ? 1 : -EBADMSG;
}

int
arrow_reader_crc_is(const struct arrow_reader *r, size_t batch, uint32_t body_crc)
{
	return crc_is(r, &r->batches[batch], body_crc);
}

int
arrow_read_crc(const struct arrow_reader *r, const struct arrow_read_batch *b)
{
	uint64_t at, part;
	uint32_t crc = 0;

	if (b->crc32c == NULL)
		return crc_is(r, b, 0);
	for (at = 0; at < b->body_length; at += part) {
		part = b->body_length - at < CRC_PART ? b->body_length - at : CRC_PART;
		arrow_reader_load(r, b->body + at, part);
		crc = arrow_crc32c(crc, b->body + at, part);
	}
	return crc_is(r, b, crc);
}

int
arrow_reader_crc(const struct arrow_reader *r, size_t batch)
{
	return arrow_read_crc(r, &r->batches[batch]);
}
