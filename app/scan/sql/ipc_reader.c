/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrow/flatbuf.h"
#include "sql/ipc_reader.h"
#include "sql/ipc_type.h"

#define FORMAT_MAX 2048	      /* bytes of a format string */
#define FIELDS_MAX (1u << 16) /* of a schema, nested ones included: tables may be shared */
#define META_MAX   (1u << 20) /* bytes of a field's metadata */

/* The memory that arrays refer to. */
struct memory {
	uint64_t references; /* atomic */
	struct ipc_body body;
};

struct dictionary {
	int64_t id;
	const struct ArrowSchema *values; /* in the reader's schema */
	struct ArrowArray array;	  /* release is NULL: it has not come yet */
};

struct ipc_reader {
	struct ArrowSchema schema; /* release is NULL: it has not come yet */
	struct dictionary *dictionary;
	size_t nb_dictionaries;
	uint32_t nb_fields;
};

/* ------------------------------------------------------------------ schemas in memory */

struct schema_texts {
	char *format;
	char *name;
	char *metadata;
};

static void
schema_release(struct ArrowSchema *s)
{
	struct schema_texts *t = s->private_data;
	int64_t i;

	for (i = 0; s->children != NULL && i < s->n_children; i++) {
		if (s->children[i] != NULL && s->children[i]->release != NULL)
			s->children[i]->release(s->children[i]);
		free(s->children[i]);
	}
	free(s->children);
	if (s->dictionary != NULL && s->dictionary->release != NULL)
		s->dictionary->release(s->dictionary);
	free(s->dictionary);
	if (t != NULL) {
		free(t->format);
		free(t->name);
		free(t->metadata);
	}
	free(t);
	s->release = NULL;
}

/* Begin a schema, which schema_release() frees also after an error. */
static int
schema_begin(struct ArrowSchema *s, const char *format, const char *name, int64_t children)
{
	struct schema_texts *t = calloc(1, sizeof(*t));
	int64_t i;

	*s = (struct ArrowSchema){.release = schema_release, .private_data = t};
	if (t == NULL)
		return -ENOMEM;
	t->format = strdup(format);
	t->name = strdup(name);
	s->children = calloc(children + 1, sizeof(*s->children));
	if (t->format == NULL || t->name == NULL || s->children == NULL)
		return -ENOMEM;
	s->format = t->format;
	s->name = t->name;
	s->n_children = children;
	for (i = 0; i < children; i++) {
		s->children[i] = calloc(1, sizeof(**s->children));
		if (s->children[i] == NULL)
			return -ENOMEM;
	}
	return 0;
}

static size_t
metadata_size(const char *metadata)
{
	size_t at = 4;
	int32_t nb, length;

	memcpy(&nb, metadata, 4);
	for (nb *= 2; nb > 0; nb--) {
		memcpy(&length, metadata + at, 4);
		at += 4 + length;
	}
	return at;
}

static int
schema_copy(const struct ArrowSchema *from, struct ArrowSchema *to)
{
	struct schema_texts *t;
	int64_t i;
	int ret;

	ret = schema_begin(to, from->format, from->name, from->n_children);
	if (ret < 0)
		return ret;
	to->flags = from->flags;
	if (from->metadata != NULL) {
		t = to->private_data;
		t->metadata = malloc(metadata_size(from->metadata));
		if (t->metadata == NULL)
			return -ENOMEM;
		memcpy(t->metadata, from->metadata, metadata_size(from->metadata));
		to->metadata = t->metadata;
	}
	for (i = 0; i < from->n_children && ret == 0; i++)
		ret = schema_copy(from->children[i], to->children[i]);
	if (ret == 0 && from->dictionary != NULL) {
		to->dictionary = calloc(1, sizeof(*to->dictionary));
		ret = to->dictionary != NULL ? schema_copy(from->dictionary, to->dictionary)
					     : -ENOMEM;
	}
	return ret;
}

/* ------------------------------------------------------------------ schemas of messages */

/* Units of Schema.fbs, as letters of format strings. */
static int
unit_letter(const struct fb_tab *t, uint64_t absent, char *letter)
{
	uint64_t unit;

	if (fb_get_scalar(t, 0, 2, absent, &unit) < 0 || unit > 3)
		return -EBADMSG;
	*letter = "smun"[unit];
	return 0;
}

static int
int_format(const struct fb_tab *t, char *format)
{
	static const char letters[2][4] = {"CSIL", "csil"};
	uint64_t bits, sign;

	if (fb_get_scalar(t, 0, 4, 0, &bits) < 0 || fb_get_scalar(t, 1, 1, 0, &sign) < 0 ||
		sign > 1)
		return -EBADMSG;
	if (bits != 8 && bits != 16 && bits != 32 && bits != 64)
		return -ENOTSUP;
	format[0] = letters[sign][__builtin_ctz((unsigned int)bits) - 3];
	format[1] = '\0';
	return 0;
}

/* Format of a type with one enumeration. @param formats  by its values, separated by blanks */
static int
enum_format(const struct fb_tab *t, uint64_t absent, const char *formats, char *format)
{
	uint64_t value;
	size_t length;

	if (fb_get_scalar(t, 0, 2, absent, &value) < 0)
		return -EBADMSG;
	for (; value > 0 && *formats != '\0'; value--) {
		formats += strcspn(formats, " ");
		formats += *formats == ' ';
	}
	length = strcspn(formats, " ");
	if (length == 0)
		return -EBADMSG;
	memcpy(format, formats, length);
	format[length] = '\0';
	return 0;
}

static int
decimal_format(const struct fb_tab *t, char *format)
{
	uint64_t precision, scale, bits;

	if (fb_get_scalar(t, 0, 4, 0, &precision) < 0 || fb_get_scalar(t, 1, 4, 0, &scale) < 0 ||
		fb_get_scalar(t, 2, 4, 128, &bits) < 0)
		return -EBADMSG;
	if (precision > 76 || scale > 76 ||
		(bits != 32 && bits != 64 && bits != 128 && bits != 256))
		return -ENOTSUP;
	if (bits == 128)
		snprintf(format, FORMAT_MAX, "d:%u,%u", (unsigned int)precision,
			(unsigned int)scale);
	else
		snprintf(format, FORMAT_MAX, "d:%u,%u,%u", (unsigned int)precision,
			(unsigned int)scale, (unsigned int)bits);
	return 0;
}

static int
timestamp_format(const struct fb_tab *t, char *format)
{
	const char *zone;
	uint32_t length;
	char letter;

	if (unit_letter(t, 0, &letter) < 0 || fb_get_string(t, 1, &zone, &length) < 0 ||
		length > FORMAT_MAX / 2 || strlen(zone) != length)
		return -EBADMSG;
	snprintf(format, FORMAT_MAX, "ts%c:%s", letter, zone);
	return 0;
}

static int
union_format(const struct fb_tab *t, uint32_t children, char *format)
{
	struct fb_vec ids;
	uint64_t mode;
	size_t length;
	uint32_t i, id;

	if (fb_get_scalar(t, 0, 2, 0, &mode) < 0 || mode > 1 || fb_get_vector(t, 1, 4, &ids) < 0 ||
		(ids.nb != 0 && ids.nb != children) || children > 127)
		return -EBADMSG;
	length = snprintf(format, FORMAT_MAX, "+u%c:", mode == 1 ? 'd' : 's');
	for (i = 0; i < children; i++) {
		id = i;
		if (ids.nb > 0)
			memcpy(&id, fb_vec_at(&ids, i, 4), 4);
		/* the reader's check of types needs them in order, as DuckDB has them */
		if (id != i)
			return -ENOTSUP;
		length += snprintf(
			format + length, FORMAT_MAX - length, "%s%u", i > 0 ? "," : "", id);
	}
	return 0;
}

static int
size_format(const struct fb_tab *t, const char *prefix, char *format)
{
	uint64_t size;

	if (fb_get_scalar(t, 0, 4, 0, &size) < 0 || size > INT32_MAX)
		return -EBADMSG;
	snprintf(format, FORMAT_MAX, "%s%u", prefix, (unsigned int)size);
	return 0;
}

/* Make the format string of a type. */
static int
type_format(uint64_t id, const struct fb_tab *t, uint32_t children, char *format, int64_t *flags)
{
	uint64_t sorted;

	switch (id) {
	case FB_NULL:
		strcpy(format, "n");
		return 0;
	case ARROW_FB_INT:
		return int_format(t, format);
	case ARROW_FB_FLOAT:
		return enum_format(t, 0, "e f g", format);
	case ARROW_FB_BINARY:
		strcpy(format, "z");
		return 0;
	case FB_UTF8:
		strcpy(format, "u");
		return 0;
	case FB_BOOL:
		strcpy(format, "b");
		return 0;
	case FB_DECIMAL:
		return decimal_format(t, format);
	case FB_DATE:
		return enum_format(t, 1, "tdD tdm", format);
	case FB_TIME:
		return enum_format(t, 1, "tts ttm ttu ttn", format);
	case ARROW_FB_TIMESTAMP:
		return timestamp_format(t, format);
	case FB_INTERVAL:
		return enum_format(t, 0, "tiM tiD tin", format);
	case ARROW_FB_LIST:
		strcpy(format, "+l");
		return 0;
	case FB_STRUCT:
		strcpy(format, "+s");
		return 0;
	case FB_UNION:
		return union_format(t, children, format);
	case FB_FIXED_BINARY:
		return size_format(t, "w:", format);
	case ARROW_FB_FIXED_LIST:
		return size_format(t, "+w:", format);
	case FB_MAP:
		if (fb_get_scalar(t, 0, 1, 0, &sorted) < 0)
			return -EBADMSG;
		*flags |= sorted != 0 ? ARROW_FLAG_MAP_KEYS_SORTED : 0;
		strcpy(format, "+m");
		return 0;
	case FB_DURATION:
		return enum_format(t, 1, "tDs tDm tDu tDn", format);
	case FB_LARGE_BINARY:
		strcpy(format, "Z");
		return 0;
	case FB_LARGE_UTF8:
		strcpy(format, "U");
		return 0;
	case FB_LARGE_LIST:
		strcpy(format, "+L");
		return 0;
	default:
		return -ENOTSUP;
	}
}

/* Check the number of children of a format. */
static bool
has_children(const char *format, int64_t children)
{
	if (format[0] != '+')
		return children == 0;
	return format[1] == 's' || format[1] == 'u' || children == 1;
}

/* Read the metadata of a field. */
static int
read_metadata(const struct fb_vec *vec, struct ArrowSchema *s)
{
	struct schema_texts *texts = s->private_data;
	size_t size = 4, at = 4;
	struct fb_tab t;
	const char *text;
	uint32_t i, length;
	unsigned int k;
	int32_t nb = (int32_t)vec->nb;

	if (vec->nb == 0)
		return 0;
	for (i = 0; i < vec->nb; i++) {
		if (fb_vec_table(vec, i, &t) < 0)
			return -EBADMSG;
		for (k = 0; k < 2; k++) {
			if (fb_get_string(&t, k, &text, &length) < 0)
				return -EBADMSG;
			size += 4 + (size_t)length;
			if (size > META_MAX)
				return -ENOTSUP;
		}
	}
	texts->metadata = malloc(size);
	if (texts->metadata == NULL)
		return -ENOMEM;
	memcpy(texts->metadata, &nb, 4);
	for (i = 0; i < vec->nb; i++) {
		(void)fb_vec_table(vec, i, &t);
		for (k = 0; k < 2; k++) {
			(void)fb_get_string(&t, k, &text, &length);
			memcpy(texts->metadata + at, &length, 4);
			memcpy(texts->metadata + at + 4, text, length);
			at += 4 + length;
		}
	}
	s->metadata = texts->metadata;
	return 0;
}

static int read_field(
	struct ipc_reader *r, const struct fb_tab *t, struct ArrowSchema *s, unsigned int depth);

static int
read_children(struct ipc_reader *r, const struct fb_vec *children, struct ArrowSchema *s,
	unsigned int depth)
{
	struct fb_tab child;
	int64_t i;
	int ret = 0;

	for (i = 0; i < s->n_children && ret == 0; i++) {
		ret = fb_vec_table(children, i, &child);
		if (ret >= 0)
			ret = read_field(r, &child, s->children[i], depth);
	}
	return ret;
}

/* Read a dictionary's encoding: `s` is its index, and gets the values as its dictionary. */
static int
read_encoding(struct ipc_reader *r, const struct fb_tab *t, struct ArrowSchema *s)
{
	struct dictionary *d;
	uint64_t id, ordered;

	if (fb_get_scalar(t, 0, 8, 0, &id) < 0 || fb_get_scalar(t, 2, 1, 0, &ordered) < 0)
		return -EBADMSG;
	/* the writer numbers them */
	if (id != r->nb_dictionaries)
		return -ENOTSUP;
	s->flags |= ordered != 0 ? ARROW_FLAG_DICTIONARY_ORDERED : 0;
	d = realloc(r->dictionary, (r->nb_dictionaries + 1) * sizeof(*d));
	if (d == NULL)
		return -ENOMEM;
	r->dictionary = d;
	d[r->nb_dictionaries++] = (struct dictionary){.id = id, .values = s->dictionary};
	return 0;
}

static int
index_format(const struct fb_tab *encoding, char *format)
{
	struct fb_tab type;
	int ret = fb_get_table(encoding, 1, &type);

	if (ret < 0)
		return ret;
	/* without a type, it is int32 */
	if (ret == 0)
		strcpy(format, "i");
	return ret == 0 ? 0 : int_format(&type, format);
}

/* Read a field into a schema that is all zero. */
static int
read_field(struct ipc_reader *r, const struct fb_tab *t, struct ArrowSchema *s, unsigned int depth)
{
	char format[FORMAT_MAX], index[8];
	struct fb_vec children, metadata;
	struct fb_tab type, encoding;
	struct ArrowSchema *values = s;
	uint64_t nullable, id;
	const char *name;
	int64_t flags = 0;
	uint32_t length;
	int ret, encoded;

	if (depth > IPC_DEPTH_MAX || r->nb_fields++ >= FIELDS_MAX)
		return -ENOTSUP;
	encoded = fb_get_table(t, 4, &encoding);
	if (fb_get_string(t, 0, &name, &length) < 0 || strlen(name) != length ||
		fb_get_scalar(t, 1, 1, 0, &nullable) < 0 || fb_get_scalar(t, 2, 1, 0, &id) < 0 ||
		fb_get_table(t, 3, &type) != 1 || encoded < 0 ||
		fb_get_vector(t, 5, 4, &children) < 0 || fb_get_vector(t, 6, 4, &metadata) < 0)
		return -EBADMSG;
	ret = type_format(id, &type, children.nb, format, &flags);
	if (ret == 0 && !has_children(format, children.nb))
		ret = -EBADMSG;
	if (ret == 0 && encoded == 1) {
		ret = index_format(&encoding, index);
		if (ret == 0)
			ret = schema_begin(s, index, name, 0);
		if (ret == 0) {
			s->dictionary = values = calloc(1, sizeof(*values));
			ret = values != NULL ? 0 : -ENOMEM;
		}
	}
	if (ret == 0)
		ret = schema_begin(values, format, encoded == 1 ? "" : name, children.nb);
	if (ret < 0)
		return ret;
	values->flags |= flags;
	s->flags |= nullable != 0 ? ARROW_FLAG_NULLABLE : 0;
	ret = read_metadata(&metadata, s);
	if (ret == 0 && encoded == 1)
		ret = read_encoding(r, &encoding, s);
	return ret == 0 ? read_children(r, &children, values, depth + 1) : ret;
}

/* Open a message. @return type of its header; -EBADMSG */
static int
open_message(const struct fb_view *view, struct fb_tab *header, uint64_t *body)
{
	struct fb_tab message;
	uint64_t version, type;

	if (fb_get_root(view, &message) < 0 || fb_get_scalar(&message, 0, 2, 0, &version) < 0 ||
		version != ARROW_FB_V5 || fb_get_scalar(&message, 1, 1, 0, &type) < 0 ||
		fb_get_table(&message, 2, header) != 1 ||
		fb_get_scalar(&message, 3, 8, 0, body) < 0)
		return -EBADMSG;
	return (int)type;
}

int
ipc_reader_head(const void *metadata, size_t size, uint64_t *body)
{
	const struct fb_view view = {metadata, size};
	struct fb_tab header;
	int type = open_message(&view, &header, body);

	switch (type) {
	case ARROW_FB_SCHEMA:
		return *body == 0 ? IPC_SCHEMA : -EBADMSG;
	case FB_DICTIONARY_BATCH:
		return IPC_DICTIONARY;
	case ARROW_FB_RECORD_BATCH:
		return IPC_BATCH;
	default:
		return type < 0 ? type : -ENOTSUP;
	}
}

int
ipc_reader_schema(struct ipc_reader *r, const void *metadata, size_t size)
{
	const struct fb_view view = {metadata, size};
	struct fb_tab header;
	struct fb_vec fields;
	uint64_t body, endianness;
	int ret;

	if (r->schema.release != NULL || open_message(&view, &header, &body) != ARROW_FB_SCHEMA ||
		body != 0 || fb_get_scalar(&header, 0, 2, 0, &endianness) < 0 || endianness != 0 ||
		fb_get_vector(&header, 1, 4, &fields) < 0 || fields.nb > FIELDS_MAX)
		return -EBADMSG;
	ret = schema_begin(&r->schema, "+s", "", fields.nb);
	return ret == 0 ? read_children(r, &fields, &r->schema, 0) : ret;
}

int
ipc_reader_copy_schema(const struct ipc_reader *r, struct ArrowSchema *out)
{
	const int ret = schema_copy(&r->schema, out);

	if (ret < 0)
		schema_release(out);
	return ret;
}

/* ------------------------------------------------------------------ arrays in memory */

/* What an array owns, in one allocation: a batch of small columns has many of them. */
struct array_private {
	struct memory *memory;
	const void *buffer[3];
	struct ArrowArray child[]; /* n_children elements, and then the pointers to them */
};

static void
memory_release(struct memory *m)
{
	if (__atomic_sub_fetch(&m->references, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	if (m->body.release != NULL)
		m->body.release(m->body.arg);
	free(m);
}

static void
array_release(struct ArrowArray *a)
{
	struct array_private *p = a->private_data;
	int64_t i;

	for (i = 0; i < a->n_children; i++) {
		if (a->children[i]->release != NULL)
			a->children[i]->release(a->children[i]);
	}
	if (a->dictionary != NULL && a->dictionary->release != NULL)
		a->dictionary->release(a->dictionary);
	free(a->dictionary);
	if (p != NULL)
		memory_release(p->memory);
	free(p);
	a->release = NULL;
}

/* Begin an array, which array_release() frees also after an error. */
static int
array_begin(struct ArrowArray *a, struct memory *m, int64_t children)
{
	struct array_private *p =
		calloc(1, sizeof(*p) + children * (sizeof(p->child[0]) + sizeof(a->children[0])));
	int64_t i;

	*a = (struct ArrowArray){.release = array_release, .private_data = p};
	if (p == NULL)
		return -ENOMEM;
	p->memory = m;
	__atomic_add_fetch(&m->references, 1, __ATOMIC_RELAXED);
	a->buffers = p->buffer;
	a->children = (struct ArrowArray **)&p->child[children];
	a->n_children = children;
	for (i = 0; i < children; i++)
		a->children[i] = &p->child[i];
	return 0;
}

/* Make another array that refers to the same memory. */
static int
array_clone(const struct ArrowArray *from, struct ArrowArray *to)
{
	const struct array_private *p = from->private_data;
	struct array_private *q;
	int64_t i;
	int ret;

	ret = array_begin(to, p->memory, from->n_children);
	if (ret < 0)
		return ret;
	q = to->private_data;
	memcpy(q->buffer, p->buffer, sizeof(q->buffer));
	to->length = from->length;
	to->null_count = from->null_count;
	to->n_buffers = from->n_buffers;
	for (i = 0; i < from->n_children && ret == 0; i++)
		ret = array_clone(from->children[i], to->children[i]);
	return ret;
}

/* ------------------------------------------------------------------ arrays of messages */

/* A record batch that is being read. */
struct decoder {
	const struct ipc_reader *reader;
	struct memory *memory;
	struct fb_vec nodes;
	struct fb_vec buffers;
	uint32_t node, buffer; /* next ones */
};

static const uint64_t zeros[8]; /* what an empty buffer is, and offsets of no rows */

static int
next_buffer(struct decoder *d, uint64_t least, const void **bytes, uint64_t *size)
{
	const struct ipc_body *body = &d->memory->body;
	uint64_t place[2];

	if (d->buffer >= d->buffers.nb)
		return -EBADMSG;
	memcpy(place, fb_vec_at(&d->buffers, d->buffer++, sizeof(place)), sizeof(place));
	if (place[0] > body->size || place[1] > body->size - place[0] || place[0] % 8 != 0 ||
		place[1] < least)
		return -EBADMSG;
	*bytes = place[1] > 0 ? body->bytes + place[0] : (const void *)zeros;
	*size = place[1];
	return 0;
}

/* Check that offsets ascend, from 0 or more to at most `end`. */
static bool
offsets_ascend(const void *bytes, uint64_t rows, uint32_t width, uint64_t end)
{
	const int32_t *narrow = bytes;
	const int64_t *wide = bytes;
	bool good = true;
	uint64_t i;

	if (width == 4) {
		good = narrow[0] >= 0 && (uint64_t)(uint32_t)narrow[rows] <= end;
		for (i = 0; i < rows; i++)
			good &= narrow[i] <= narrow[i + 1];
	} else {
		good = wide[0] >= 0 && (uint64_t)wide[rows] <= end;
		for (i = 0; i < rows; i++)
			good &= wide[i] <= wide[i + 1];
	}
	return good;
}

/* Check that the indexes of values that are not NULL are below `nb`. */
static bool
indexes_fit(const struct ArrowArray *a, const struct ipc_type *t, uint64_t nb)
{
	const uint8_t *validity = a->buffers[0];
	uint64_t value;
	int64_t i;

	for (i = 0; i < a->length; i++) {
		if (validity != NULL && !(validity[i / 8] >> i % 8 & 1))
			continue;
		value = 0;
		memcpy(&value, (const uint8_t *)a->buffers[1] + i * t->width, t->width);
		/* a negative one is too large, too */
		if (value >= nb)
			return false;
	}
	return true;
}

static bool
union_fits(const struct ArrowArray *a, const struct ipc_type *t)
{
	const int8_t *type = a->buffers[0];
	const int32_t *offset = t->width > 0 ? a->buffers[1] : NULL;
	int64_t i, at;

	for (i = 0; i < a->length; i++) {
		at = offset != NULL ? offset[i] : i;
		if (type[i] < 0 || type[i] >= a->n_children || at < 0 ||
			at >= a->children[type[i]]->length)
			return false;
	}
	return true;
}

/* Read the buffers of an array, whose length is known to be at most INT64_MAX / 64. */
static int
decode_buffers(struct decoder *d, const struct ipc_type *t, struct ArrowArray *a, uint64_t *items)
{
	struct array_private *p = a->private_data;
	const uint64_t rows = a->length, bits = (rows + 7) / 8;
	uint64_t size;
	int ret = 0;

	*items = 0;
	if (t->layout != LAYOUT_NONE && t->layout != LAYOUT_UNION) {
		ret = next_buffer(d, a->null_count > 0 ? bits : 0, &p->buffer[0], &size);
		/* without NULLs, the bits may be missing */
		if (ret == 0 && (size < bits || size == 0))
			p->buffer[0] = NULL;
		a->n_buffers = 1;
	}
	if (ret < 0)
		return ret;
	switch (t->layout) {
	case LAYOUT_NONE:
	case LAYOUT_CHILD:
		return 0;
	case LAYOUT_BITS:
		a->n_buffers = 2;
		return next_buffer(d, bits, &p->buffer[1], &size);
	case LAYOUT_FIXED:
		a->n_buffers = 2;
		return t->width > 0 && rows > UINT64_MAX / t->width
			? -EBADMSG
			: next_buffer(d, rows * t->width, &p->buffer[1], &size);
	case LAYOUT_TEXT:
	case LAYOUT_LIST:
		a->n_buffers = t->layout == LAYOUT_TEXT ? 3 : 2;
		ret = next_buffer(d, rows > 0 ? (rows + 1) * t->width : 0, &p->buffer[1], &size);
		if (ret == 0 && size < t->width)
			p->buffer[1] = zeros;
		size = UINT64_MAX;
		if (ret == 0 && t->layout == LAYOUT_TEXT)
			ret = next_buffer(d, 0, &p->buffer[2], &size);
		if (ret == 0 && !offsets_ascend(p->buffer[1], rows, t->width, size))
			ret = -EBADMSG;
		if (ret == 0 && t->layout == LAYOUT_LIST)
			*items = t->width == 4 ? (uint64_t)((const int32_t *)p->buffer[1])[rows]
					       : (uint64_t)((const int64_t *)p->buffer[1])[rows];
		return ret;
	case LAYOUT_UNION:
		a->n_buffers = t->width > 0 ? 2 : 1;
		ret = next_buffer(d, rows, &p->buffer[0], &size);
		if (ret == 0 && t->width > 0)
			ret = next_buffer(d, rows * t->width, &p->buffer[1], &size);
		return ret;
	}
	return -EBADMSG;
}

static const struct dictionary *
find_dictionary(const struct ipc_reader *r, const struct ArrowSchema *values)
{
	size_t i;

	for (i = 0; i < r->nb_dictionaries; i++) {
		if (r->dictionary[i].values == values && r->dictionary[i].array.release != NULL)
			return &r->dictionary[i];
	}
	return NULL;
}

static int
attach_dictionary(struct decoder *d, const struct ArrowSchema *f, const struct ipc_type *t,
	struct ArrowArray *a)
{
	const struct dictionary *dictionary = find_dictionary(d->reader, f->dictionary);

	if (dictionary == NULL || !indexes_fit(a, t, dictionary->array.length))
		return -EBADMSG;
	a->dictionary = calloc(1, sizeof(*a->dictionary));
	return a->dictionary != NULL ? array_clone(&dictionary->array, a->dictionary) : -ENOMEM;
}

/* Read an array. @param least  its length is at least this @param exact  and not more */
static int
decode_array(struct decoder *d, const struct ArrowSchema *f, struct ArrowArray *a, uint64_t least,
	bool exact)
{
	uint64_t items, child = 0;
	struct ipc_type t;
	int64_t node[2], i;
	int ret;

	ret = ipc_type_read(f->format, &t);
	if (ret < 0)
		return ret;
	ret = array_begin(a, d->memory, f->n_children);
	if (ret < 0)
		return ret;
	if (d->node >= d->nodes.nb)
		return -EBADMSG;
	memcpy(node, fb_vec_at(&d->nodes, d->node++, sizeof(node)), sizeof(node));
	if (node[0] < 0 || node[0] > INT64_MAX / 64 || node[1] < 0 || node[1] > node[0] ||
		(uint64_t)node[0] < least || (exact && (uint64_t)node[0] != least))
		return -EBADMSG;
	a->length = node[0];
	a->null_count = t.layout == LAYOUT_UNION ? 0 : node[1];
	ret = decode_buffers(d, &t, a, &items);
	if (t.layout == LAYOUT_LIST)
		child = items;
	else if (t.layout == LAYOUT_CHILD && f->format[1] == 'w' && t.arg[0] > 0 &&
		(uint64_t)a->length > INT64_MAX / 64 / (uint64_t)t.arg[0])
		ret = -EBADMSG;
	else if (t.layout == LAYOUT_CHILD)
		child = f->format[1] == 'w' ? (uint64_t)a->length * t.arg[0] : (uint64_t)a->length;
	for (i = 0; i < f->n_children && ret == 0; i++)
		ret = decode_array(d, f->children[i], a->children[i], child, false);
	if (ret == 0 && t.layout == LAYOUT_UNION && !union_fits(a, &t))
		ret = -EBADMSG;
	return ret == 0 && f->dictionary != NULL ? attach_dictionary(d, f, &t, a) : ret;
}

static int
open_batch(struct decoder *d, const struct fb_tab *t, uint64_t *rows)
{
	struct fb_tab compression;

	if (fb_get_scalar(t, 0, 8, 0, rows) < 0 || *rows > INT64_MAX / 64 ||
		fb_get_vector(t, 1, 16, &d->nodes) < 0 || fb_get_vector(t, 2, 16, &d->buffers) < 0)
		return -EBADMSG;
	return fb_get_table(t, 3, &compression) == 0 ? 0 : -ENOTSUP;
}

static int
decode_batch(struct decoder *d, const struct fb_tab *t, struct ArrowArray *out)
{
	const struct ArrowSchema *schema = &d->reader->schema;
	uint64_t rows;
	int64_t i;
	int ret;

	ret = open_batch(d, t, &rows);
	if (ret == 0)
		ret = array_begin(out, d->memory, schema->n_children);
	if (ret < 0)
		return ret;
	out->length = rows;
	out->n_buffers = 1;
	for (i = 0; i < schema->n_children && ret == 0; i++)
		ret = decode_array(d, schema->children[i], out->children[i], rows, true);
	return ret;
}

static int
decode_dictionary(struct decoder *d, struct ipc_reader *r, const struct fb_tab *t)
{
	uint64_t id, delta, rows;
	struct fb_tab data;
	int ret;

	if (fb_get_scalar(t, 0, 8, 0, &id) < 0 || fb_get_table(t, 1, &data) != 1 ||
		fb_get_scalar(t, 2, 1, 0, &delta) < 0 || id >= r->nb_dictionaries ||
		r->dictionary[id].array.release != NULL)
		return -EBADMSG;
	if (delta != 0)
		return -ENOTSUP;
	ret = open_batch(d, &data, &rows);
	if (ret == 0)
		ret = decode_array(
			d, r->dictionary[id].values, &r->dictionary[id].array, rows, true);
	if (ret < 0 && r->dictionary[id].array.release != NULL)
		array_release(&r->dictionary[id].array);
	return ret;
}

int
ipc_reader_batch(struct ipc_reader *r, const void *metadata, size_t size,
	const struct ipc_body *body, struct ArrowArray *out)
{
	const struct fb_view view = {metadata, size};
	struct decoder d = {.reader = r};
	struct fb_tab header;
	uint64_t length;
	int ret;

	*out = (struct ArrowArray){0};
	d.memory = malloc(sizeof(*d.memory));
	if (d.memory == NULL) {
		if (body->release != NULL)
			body->release(body->arg);
		return -ENOMEM;
	}
	*d.memory = (struct memory){1, *body};
	ret = open_message(&view, &header, &length);
	if (ret >= 0 && (r->schema.release == NULL || length != body->size))
		ret = -EBADMSG;
	if (ret == ARROW_FB_RECORD_BATCH)
		ret = decode_batch(&d, &header, out);
	else if (ret == FB_DICTIONARY_BATCH)
		ret = decode_dictionary(&d, r, &header);
	else if (ret >= 0)
		ret = -ENOTSUP;
	/* all of the body must have been announced */
	if (ret == 0 && (d.node != d.nodes.nb || d.buffer != d.buffers.nb))
		ret = -EBADMSG;
	if (ret < 0 && out->release != NULL)
		array_release(out);
	memory_release(d.memory);
	return ret;
}

struct ipc_reader *
ipc_reader_create(void)
{
	return calloc(1, sizeof(struct ipc_reader));
}

void
ipc_reader_restart(struct ipc_reader *r)
{
	size_t i;

	for (i = 0; i < r->nb_dictionaries; i++) {
		if (r->dictionary[i].array.release != NULL)
			array_release(&r->dictionary[i].array);
	}
}

void
ipc_reader_destroy(struct ipc_reader *r)
{
	if (r == NULL)
		return;
	ipc_reader_restart(r);
	free(r->dictionary);
	if (r->schema.release != NULL)
		schema_release(&r->schema);
	free(r);
}
