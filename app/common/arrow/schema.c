/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arrow/crc32c.h"
#include "arrow/flatbuf.h"
#include "arrow/format.h"
#include "arrow/schema.h"

static const struct {
	const char *name;
	uint8_t width;
	uint8_t type; /* enum arrow_fb_type */
	uint16_t arg; /* bits, precision or unit */
	bool is_signed;
} types[ARROW_TYPES] = {
	[ARROW_UINT8] = {"uint8", 1, ARROW_FB_INT, 8, false},
	[ARROW_UINT16] = {"uint16", 2, ARROW_FB_INT, 16, false},
	[ARROW_UINT32] = {"uint32", 4, ARROW_FB_INT, 32, false},
	[ARROW_UINT64] = {"uint64", 8, ARROW_FB_INT, 64, false},
	[ARROW_INT16] = {"int16", 2, ARROW_FB_INT, 16, true},
	[ARROW_INT64] = {"int64", 8, ARROW_FB_INT, 64, true},
	[ARROW_FLOAT32] = {"float32", 4, ARROW_FB_FLOAT, ARROW_FB_SINGLE, true},
	[ARROW_FLOAT64] = {"float64", 8, ARROW_FB_FLOAT, ARROW_FB_DOUBLE, true},
	[ARROW_TIMESTAMP_NS] = {"timestamp[ns]", 8, ARROW_FB_TIMESTAMP, ARROW_FB_NANOSECOND, true},
	[ARROW_BINARY] = {"binary", 0, ARROW_FB_BINARY, 0, false},
	[ARROW_LIST] = {"list", 0, ARROW_FB_LIST, 0, false},
	[ARROW_FIXED_LIST] = {"fixed_size_list", 0, ARROW_FB_FIXED_LIST, 0, false},
};

unsigned int
arrow_type_width(enum arrow_type type)
{
	return types[type].width;
}

const char *
arrow_type_name(enum arrow_type type)
{
	return types[type].name;
}

static bool
is_list(const struct arrow_field *f)
{
	return f->type == ARROW_LIST || f->type == ARROW_FIXED_LIST;
}

void
arrow_schema_count(const struct arrow_schema *s, unsigned int *nodes, unsigned int *buffers)
{
	unsigned int i;

	*nodes = 0;
	*buffers = 0;
	for (i = 0; i < s->nb_fields; i++) {
		*nodes += is_list(&s->fields[i]) ? 2 : 1;
		switch (s->fields[i].type) {
		case ARROW_BINARY:
			*buffers += 3; /* validity, offsets, bytes */
			break;
		case ARROW_LIST:
			*buffers += 4; /* validity, offsets; validity and data of the items */
			break;
		case ARROW_FIXED_LIST:
			*buffers += 3; /* validity; validity and data of the items */
			break;
		default:
			*buffers += 2; /* validity, data */
		}
	}
}

static int
schema_check(const struct arrow_schema *s)
{
	unsigned int i, nodes, buffers;

	for (i = 0; i < s->nb_fields; i++) {
		if (s->fields[i].type >= ARROW_TYPES)
			return -EINVAL;
		if (is_list(&s->fields[i]) && arrow_type_width(s->fields[i].item) == 0)
			return -EINVAL;
	}
	arrow_schema_count(s, &nodes, &buffers);
	return nodes > ARROW_NODES_MAX || buffers > ARROW_BUFFERS_MAX ? -EINVAL : 0;
}

static void
put_text(struct fb_writer *w, size_t ref, const char *text)
{
	fb_string(w, ref, text, strlen(text));
}

/*
 * Write custom metadata. If `chars` is not NULL, it gets the offset of each value's first
 * character.
 */
static void
put_meta(struct fb_writer *w, size_t ref, const struct arrow_meta *meta, unsigned int nb,
	size_t *chars)
{
	static const uint8_t fields[] = {4, 4}; /* KeyValue: key, value */
	size_t items, at[2], place;
	unsigned int i;

	fb_refer(w, ref, fb_vector(w, nb, 4, 4, &items));
	for (i = 0; i < nb; i++) {
		fb_refer(w, items + 4 * i, fb_table(w, fields, 2, at));
		put_text(w, at[0], meta[i].key);
		place = fb_string(w, at[1], meta[i].value, strlen(meta[i].value));
		if (chars != NULL)
			chars[i] = place;
	}
}

/* Write the table of a field's type. */
static void
put_type(struct fb_writer *w, size_t ref, enum arrow_type type, uint32_t list_size)
{
	static const uint8_t int_fields[] = {4, 1}; /* bitWidth, is_signed */
	static const uint8_t enum_fields[] = {2};   /* precision or unit */
	static const uint8_t list_fields[] = {4};   /* listSize */
	size_t at[2];

	switch (types[type].type) {
	case ARROW_FB_INT:
		fb_refer(w, ref, fb_table(w, int_fields, 2, at));
		fb_put32(w, at[0], types[type].arg);
		fb_put8(w, at[1], types[type].is_signed);
		break;
	case ARROW_FB_FLOAT:
	case ARROW_FB_TIMESTAMP:
		fb_refer(w, ref, fb_table(w, enum_fields, 1, at));
		fb_put16(w, at[0], types[type].arg);
		break;
	case ARROW_FB_FIXED_LIST:
		fb_refer(w, ref, fb_table(w, list_fields, 1, at));
		fb_put32(w, at[0], list_size);
		break;
	default:
		fb_refer(w, ref, fb_table(w, NULL, 0, NULL));
	}
}

static void
put_field(struct fb_writer *w, size_t ref, const struct arrow_field *f)
{
	/* name, nullable, type_type, type, dictionary (absent), children */
	static const uint8_t fields[] = {4, 1, 1, 4, 0, 4};
	const bool list = is_list(f);
	struct arrow_field item;
	size_t at[6], items;

	fb_refer(w, ref, fb_table(w, fields, 6, at));
	fb_put8(w, at[1], f->nullable);
	fb_put8(w, at[2], types[f->type].type);
	put_text(w, at[0], f->name);
	put_type(w, at[3], f->type, f->list_size);
	/* readers expect the vector even if there are no children */
	fb_refer(w, at[5], fb_vector(w, list ? 1 : 0, 4, 4, &items));
	if (list) {
		item = (struct arrow_field){.name = "item", .type = f->item};
		put_field(w, items, &item);
	}
}

static void
put_schema(struct fb_writer *w, size_t ref, const struct arrow_schema *s)
{
	static const uint8_t fields[] = {2, 4, 4}; /* endianness, fields, custom_metadata */
	size_t at[3], items;
	unsigned int i;

	fb_refer(w, ref, fb_table(w, fields, 3, at));
	fb_put16(w, at[0], 0); /* little */
	fb_refer(w, at[1], fb_vector(w, s->nb_fields, 4, 4, &items));
	for (i = 0; i < s->nb_fields; i++)
		put_field(w, items + 4 * i, &s->fields[i]);
	put_meta(w, at[2], s->meta, s->nb_meta, NULL);
}

/* version, header_type, header, bodyLength, custom_metadata */
static void
put_message(struct fb_writer *w, uint8_t header_type, bool with_meta, size_t *at)
{
	const uint8_t fields[] = {2, 1, 4, 8, with_meta ? 4 : 0};

	fb_refer(w, 0, fb_table(w, fields, 5, at));
	fb_put16(w, at[0], ARROW_FB_V5);
	fb_put8(w, at[1], header_type);
}

/* Concatenate `lead`, the message prefix, the flatbuffer and zeros up to ARROW_BLOCK x k bytes. */
static int
frame_message(
	struct fb_writer *w, const void *lead, size_t lead_size, uint8_t **bytes, size_t *size)
{
	const size_t used = lead_size + ARROW_PREFIX + w->len;
	const size_t total = (used + ARROW_BLOCK - 1) / ARROW_BLOCK * ARROW_BLOCK;
	const uint32_t prefix[2] = {ARROW_CONTINUATION, total - lead_size - ARROW_PREFIX};
	uint8_t *out;

	if (w->error != 0)
		return w->error;
	out = aligned_alloc(ARROW_BLOCK, total);
	if (out == NULL)
		return -ENOMEM;
	memset(out, 0, total);
	memcpy(out, lead, lead_size);
	memcpy(out + lead_size, prefix, sizeof(prefix));
	memcpy(out + lead_size + ARROW_PREFIX, w->buf, w->len);
	*bytes = out;
	*size = total;
	return 0;
}

/*
 * Store the first block twice. The message's length covers both copies, so readers see one message.
 */
static int
put_twice(const uint8_t *copy, size_t half, uint8_t **bytes, size_t *size)
{
	const uint32_t length = 2 * half - ARROW_MAGIC_ROOM - ARROW_PREFIX;
	uint8_t *out = aligned_alloc(ARROW_BLOCK, 2 * half);

	if (out == NULL)
		return -ENOMEM;
	memcpy(out, copy, half);
	memcpy(out + ARROW_MAGIC_ROOM + sizeof(uint32_t), &length, sizeof(length));
	memcpy(out + half, out, half);
	*bytes = out;
	*size = 2 * half;
	return 0;
}

int
arrow_header_build(const struct arrow_schema *s, uint8_t **bytes, size_t *size)
{
	struct fb_writer w;
	uint8_t *copy = NULL;
	size_t at[5], half;
	int ret;

	ret = schema_check(s);
	if (ret < 0)
		return ret;
	fb_init(&w);
	put_message(&w, ARROW_FB_SCHEMA, false, at);
	put_schema(&w, at[2], s);
	ret = frame_message(&w, ARROW_MAGIC "\0", ARROW_MAGIC_ROOM, &copy, &half);
	fb_free(&w);
	if (ret == 0)
		ret = put_twice(copy, half, bytes, size);
	free(copy);
	return ret;
}

/*
 * Write `digits` lower-case hexadecimal digits, most significant first, without a branch per digit.
 */
static void
put_hex(uint8_t *to, uint64_t value, unsigned int digits)
{
	uint64_t nibbles, above9;
	uint32_t half;
	unsigned int i;

	for (i = 0; i < digits; i += 8) {
		half = __builtin_bswap32(value >> (4 * (digits - 8 - i)));
		/* spread 8 nibbles over 8 bytes, in text order */
		nibbles = half;
		nibbles = (nibbles | nibbles << 16) & 0x0000FFFF0000FFFFull;
		nibbles = (nibbles | nibbles << 8) & 0x00FF00FF00FF00FFull;
		nibbles = (nibbles >> 4 & 0x000F000F000F000Full) |
			(nibbles & 0x000F000F000F000Full) << 8;
		above9 = (nibbles + 0x0606060606060606ull) >> 4 & 0x0101010101010101ull;
		nibbles += 0x3030303030303030ull + above9 * ('a' - '0' - 10);
		memcpy(to + i, &nibbles, sizeof(nibbles));
	}
}

int
arrow_trailer_build(const struct arrow_schema *s, const struct arrow_block *blocks,
	size_t nb_blocks, const char *damaged, uint8_t **bytes, size_t *size)
{
	/* version, schema, dictionaries, recordBatches, custom_metadata */
	static const uint8_t fields[] = {2, 4, 4, 4, 4};
	static const uint32_t end_of_stream[2] = {ARROW_CONTINUATION, 0};
	const struct arrow_meta meta[] = {
		{ARROW_KEY_FOOTER, "00000000"}, {ARROW_KEY_DAMAGED, damaged}};
	size_t at[5], chars[2], items, i, total, tail;
	uint32_t footer_size;
	struct fb_writer w;
	uint8_t *out;
	int ret;

	ret = schema_check(s);
	if (ret < 0)
		return ret;
	fb_init(&w);
	fb_refer(&w, 0, fb_table(&w, fields, 5, at));
	fb_put16(&w, at[0], ARROW_FB_V5);
	put_schema(&w, at[1], s);
	fb_refer(&w, at[2], fb_vector(&w, 0, 24, 8, &items));
	fb_refer(&w, at[3], fb_vector(&w, nb_blocks, 24, 8, &items));
	for (i = 0; i < nb_blocks; i++) {
		/* struct Block: int64 offset, int32 metaDataLength, 4 bytes padding, int64 */
		fb_put64(&w, items + 24 * i, blocks[i].offset);
		fb_put32(&w, items + 24 * i + 8, blocks[i].metadata);
		fb_put64(&w, items + 24 * i + 16, blocks[i].body);
	}
	put_meta(&w, at[4], meta, damaged != NULL ? 2 : 1, chars);

	/* the footer extends over the rest of the block: zeros after a flatbuffer are legal */
	tail = sizeof(footer_size) + ARROW_MAGIC_SIZE;
	total = sizeof(end_of_stream) + w.len + tail;
	total = (total + ARROW_BLOCK - 1) / ARROW_BLOCK * ARROW_BLOCK;
	footer_size = total - tail - sizeof(end_of_stream);
	ret = w.error;
	out = ret == 0 ? aligned_alloc(ARROW_BLOCK, total) : NULL;
	if (out != NULL) {
		memset(out, 0, total);
		memcpy(out, end_of_stream, sizeof(end_of_stream));
		memcpy(out + sizeof(end_of_stream), w.buf, w.len);
		memcpy(out + total - tail, &footer_size, sizeof(footer_size));
		memcpy(out + total - ARROW_MAGIC_SIZE, ARROW_MAGIC, ARROW_MAGIC_SIZE);
		put_hex(out + sizeof(end_of_stream) + chars[0], arrow_crc32c(0, out, total), 8);
		*bytes = out;
		*size = total;
	} else {
		ret = -ENOMEM;
	}
	fb_free(&w);
	return ret;
}

int
arrow_template_init(
	struct arrow_template *t, const struct arrow_schema *s, const struct arrow_identity *id)
{
	enum {
		RECEIVER_ID,
		RUN,
		INCARNATION,
		TABLE,
		SEQUENCE,
		CRC,
		METADATA,
		KEYS
	};
	static const uint8_t batch_fields[] = {8, 4, 4}; /* length, nodes, buffers */
	char number[3][17] = {{0}};
	const struct arrow_meta meta[KEYS] = {
		{ARROW_KEY_RECEIVER_ID, number[0]},
		{ARROW_KEY_RUN, number[1]},
		{ARROW_KEY_INCARNATION, number[2]},
		{ARROW_KEY_TABLE, id->table},
		{ARROW_KEY_SEQUENCE, "0000000000000000"},
		{ARROW_KEY_CRC32C, "00000000"},
		{ARROW_KEY_METADATA, "00000000"},
	};
	size_t at[5], batch[3], chars[KEYS] = {0}, nodes, buffers, used, size = 0;
	unsigned int nb_nodes, nb_buffers;
	struct fb_writer w;
	int ret;

	memset(t, 0, sizeof(*t));
	ret = schema_check(s);
	if (ret < 0)
		return ret;
	arrow_schema_count(s, &nb_nodes, &nb_buffers);
	put_hex((uint8_t *)number[0], id->receiver_id, 16);
	put_hex((uint8_t *)number[1], id->run, 16);
	put_hex((uint8_t *)number[2], id->incarnation, 16);

	fb_init(&w);
	put_message(&w, ARROW_FB_RECORD_BATCH, true, at);
	fb_refer(&w, at[2], fb_table(&w, batch_fields, 3, batch));
	fb_refer(&w, batch[1], fb_vector(&w, nb_nodes, sizeof(struct arrow_node), 8, &nodes));
	fb_refer(&w, batch[2], fb_vector(&w, nb_buffers, sizeof(struct arrow_buffer), 8, &buffers));
	put_meta(&w, at[4], meta, KEYS, chars);

	used = ARROW_PREFIX + w.len;
	ret = frame_message(&w, "", 0, &t->bytes, &size);
	fb_free(&w);
	if (ret < 0)
		return ret;
	t->size = size;
	t->used = used;
	arrow_crc_zeros_init(&t->zeros, size - used);
	t->nb_nodes = nb_nodes;
	t->nb_buffers = nb_buffers;
	t->rows = ARROW_PREFIX + batch[0];
	t->nodes = ARROW_PREFIX + nodes;
	t->buffers = ARROW_PREFIX + buffers;
	t->body_length = ARROW_PREFIX + at[3];
	t->sequence = ARROW_PREFIX + chars[SEQUENCE];
	t->crc32c = ARROW_PREFIX + chars[CRC];
	t->metadata_crc32c = ARROW_PREFIX + chars[METADATA];
	return 0;
}

void
arrow_template_free(struct arrow_template *t)
{
	free(t->bytes);
	memset(t, 0, sizeof(*t));
}

uint32_t
arrow_metadata_crc(const uint8_t *metadata, size_t size, size_t digits)
{
	uint32_t crc;

	crc = arrow_crc32c(0, metadata, digits);
	crc = arrow_crc32c(crc, "00000000", 8);
	return arrow_crc32c(crc, metadata + digits + 8, size - digits - 8);
}

void
arrow_template_patch(const struct arrow_template *t, uint8_t *metadata, const struct arrow_batch *b)
{
	uint32_t crc;

	memcpy(metadata + t->rows, &b->rows, sizeof(b->rows));
	memcpy(metadata + t->nodes, b->nodes, t->nb_nodes * sizeof(*b->nodes));
	memcpy(metadata + t->buffers, b->buffers, t->nb_buffers * sizeof(*b->buffers));
	memcpy(metadata + t->body_length, &b->body_length, sizeof(b->body_length));
	put_hex(metadata + t->sequence, b->sequence, 16);
	put_hex(metadata + t->crc32c, b->crc32c, 8);
	/* arrow_metadata_crc() in one pass */
	memcpy(metadata + t->metadata_crc32c, "00000000", 8);
	crc = arrow_crc32c(0, metadata, t->used);
	put_hex(metadata + t->metadata_crc32c, arrow_crc_zeros(&t->zeros, crc), 8);
}
