/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Builds Arrow IPC metadata: schema message, record-batch template, footer.
 *
 * The metadata of a record batch have the same size for any number of rows. They are laid out once
 * as a template; for each batch only numbers at known offsets change. arrow_template_patch() writes
 * these without allocation, for the file writer and for RDMA.
 *
 * Layout of a file (README.rst has the tables of bytes):
 *   - `ARROW1\0\0` and the schema message together take ARROW_BLOCK x k bytes.
 *   - Each record batch has metadata (prefix, flatbuffer, padding) of ARROW_BLOCK x k bytes, with k
 *     = 1 for the tables of this program, and a body that is a multiple of ARROW_BLOCK. All of them
 *     start at multiples of ARROW_BLOCK, as direct I/O and GPUDirect Storage require.
 *   - The end-of-stream mark, the footer and `ARROW1` together take ARROW_BLOCK x k bytes. The part
 *     before the end is a valid stream up to any message boundary.
 *
 * Sources: Arrow's Message.fbs, Schema.fbs, File.fbs (format 1.x, metadata version V5).
 */
#ifndef ARROW_SCHEMA_H
#define ARROW_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arrow/crc32c.h"
#include "io/file_io.h"

#define ARROW_MAGIC	  "ARROW1"
#define ARROW_MAGIC_SIZE  6
#define ARROW_NODES_MAX	  64  /**< maximum field nodes of a schema */
#define ARROW_BUFFERS_MAX 128 /**< maximum buffers of a schema */

/** Types of the tables. The items of ARROW_LIST and ARROW_FIXED_LIST have a plain type. */
enum arrow_type {
	ARROW_UINT8,
	ARROW_UINT16,
	ARROW_UINT32,
	ARROW_UINT64,
	ARROW_INT16,
	ARROW_INT64,
	ARROW_FLOAT32,
	ARROW_FLOAT64,
	ARROW_TIMESTAMP_NS, /**< int64, ns since 1970 without leap seconds, no time zone */
	ARROW_BINARY,
	ARROW_LIST,
	ARROW_FIXED_LIST,
	ARROW_TYPES
};

/** @return size of a value of a plain type, bytes; 0: another type */
unsigned int arrow_type_width(enum arrow_type type);

/** @return name of a type as in the documentation, e.g. "uint64" */
const char *arrow_type_name(enum arrow_type type);

/** One column. */
struct arrow_field {
	const char *name;
	enum arrow_type type;
	enum arrow_type
		/** lists: type of the items, whose field is called "item" and is not nullable */
		item;
	uint32_t list_size; /**< ARROW_FIXED_LIST: number of items per row */
	bool nullable;
};

/** Key and value of custom metadata. */
struct arrow_meta {
	const char *key;
	const char *value;
};

struct arrow_schema {
	const struct arrow_field *fields;
	unsigned int nb_fields;
	const struct arrow_meta *meta;
	unsigned int nb_meta;
};

/** Field node of a column; for a list, that of its items follows. */
struct arrow_node {
	int64_t length;
	int64_t null_count;
};

/**
 * Offset and length of a buffer in the body. Order: validity, offsets, data, then those of the
 * items.
 */
struct arrow_buffer {
	int64_t offset;
	int64_t length;
};

/** The stream that a table belongs to. */
struct arrow_identity {
	uint64_t receiver_id;
	uint64_t run;
	uint64_t incarnation; /**< random number of this start of the receiver */
	const char *table;    /**< `frames` or `images` */
};

/** Return true if two streams are tables of the same start of a receiver. */
static inline bool
arrow_same_run(const struct arrow_identity *a, const struct arrow_identity *b)
{
	return a->receiver_id == b->receiver_id && a->run == b->run &&
		a->incarnation == b->incarnation;
}

/** Keys of a batch's custom metadata. Numbers are lower-case hexadecimal of fixed width. */
#define ARROW_KEY_RECEIVER_ID "braggline.receiver_id" /**< 16 digits */
#define ARROW_KEY_RUN	      "braggline.run"	      /**< 16 digits */
#define ARROW_KEY_INCARNATION "braggline.incarnation" /**< 16 digits */
#define ARROW_KEY_TABLE	      "braggline.table"
#define ARROW_KEY_SEQUENCE    "braggline.sequence" /**< 16 digits */
#define ARROW_KEY_CRC32C      "braggline.crc32c"   /**< 8 digits, arrow_crc32c() of the body */
/** 8 digits, CRC of the metadata with prefix, with `0` for these digits */
#define ARROW_KEY_METADATA "braggline.metadata_crc32c"

/**
 * Key of the footer's custom metadata: damaged regions between the batches that the footer lists,
 * as `OFFSET:LENGTH:SEQUENCE`, separated by commas. Offset and length are decimal. The sequence
 * number is written as in the batch, or as `-` if no announcement has it.
 */
#define ARROW_KEY_DAMAGED "braggline.damaged"
/**
 * Key of the footer's custom metadata: 8 digits, CRC-32C of the last block from the end-of-stream
 * mark on, with `0` for these digits.
 */
#define ARROW_KEY_FOOTER "braggline.footer_crc32c"

/** The values that differ between batches. */
struct arrow_batch {
	int64_t rows;
	const struct arrow_node *nodes;	    /**< array of arrow_template.nb_nodes */
	const struct arrow_buffer *buffers; /**< array of arrow_template.nb_buffers */
	int64_t body_length;		    /**< a multiple of ARROW_BLOCK */
	uint64_t sequence;		    /**< number of the batch in its stream, from 0 */
	uint32_t crc32c;		    /**< of the body as it is in the file */
};

/** Metadata of a record batch with prefix, and the offsets of its numbers. */
struct arrow_template {
	uint8_t *bytes;
	uint32_t size; /**< a multiple of ARROW_BLOCK */
	uint32_t used; /**< used bytes; zeros follow */
	uint16_t nb_nodes;
	uint16_t nb_buffers;
	uint32_t rows; /**< offsets of the numbers in `bytes` */
	uint32_t nodes;
	uint32_t buffers;
	uint32_t body_length;
	uint32_t sequence;
	uint32_t crc32c;
	uint32_t metadata_crc32c;
	struct arrow_crc_zeros zeros; /**< for the zeros after the used bytes */
};

/** A record batch of a file, as listed in the footer. */
struct arrow_block {
	uint64_t offset;
	uint32_t metadata; /**< bytes, including the prefix */
	uint64_t body;
};

/** Count the field nodes and buffers of a schema. */
void arrow_schema_count(const struct arrow_schema *s, unsigned int *nodes, unsigned int *buffers);

/**
 * Build the first block of a file: magic and schema message, twice. The message's length covers
 * both copies; readers ignore what follows a flatbuffer.
 * @param bytes  out: to be freed with free()
 * @param size   out: size of both copies, a multiple of 2 x ARROW_BLOCK
 * @return 0; -ENOMEM; -EINVAL: a column of an unknown type
 */
int arrow_header_build(const struct arrow_schema *s, uint8_t **bytes, size_t *size);

/**
 * Build the last block of a file: end of stream, footer, magic.
 * @param damaged  value of ARROW_KEY_DAMAGED; NULL: none
 * @return as arrow_header_build()
 */
int arrow_trailer_build(const struct arrow_schema *s, const struct arrow_block *blocks,
	size_t nb_blocks, const char *damaged, uint8_t **bytes, size_t *size);

/**
 * Lay out the metadata of the record batches of a table.
 * @return 0; -ENOMEM; -EINVAL: a column of an unknown type, or too many columns
 */
int arrow_template_init(
	struct arrow_template *t, const struct arrow_schema *s, const struct arrow_identity *id);

void arrow_template_free(struct arrow_template *t);

/** CRC of metadata that hold their own CRC as 8 digits at offset `digits`. */
uint32_t arrow_metadata_crc(const uint8_t *metadata, size_t size, size_t digits);

/**
 * Write the numbers of a batch. No allocation, no lock; any thread that owns `metadata`.
 * @param metadata  arrow_template.size bytes, initialized from arrow_template.bytes
 */
void arrow_template_patch(
	const struct arrow_template *t, uint8_t *metadata, const struct arrow_batch *b);

#endif /* ARROW_SCHEMA_H */
