/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Arrow IPC metadata as bytes: schema message, record-batch template, footer.
 *
 * The metadata of a record batch has the same size for any number of rows, so it is laid out once
 * as a template; per batch only numbers at known places change. arrow_template_patch() does that
 * without allocation, for the file writer as for RDMA egress.
 *
 * Layout of a file (README.rst has the byte tables):
 *   - `ARROW1\0\0` and the schema message together are ARROW_BLOCK x k bytes;
 *   - each record batch: metadata (prefix, flatbuffer, padding) ARROW_BLOCK x k bytes, k = 1 for
 *     our tables, then a body that is a multiple of ARROW_BLOCK: all of them start at multiples of
 *     ARROW_BLOCK, as direct I/O and GPUDirect Storage want it;
 *   - end-of-stream mark, footer, `ARROW1`: ARROW_BLOCK x k bytes too.
 * What comes before the end is a valid stream at any message boundary.
 *
 * Sources: Arrow's Message.fbs, Schema.fbs, File.fbs (format 1.x, metadata version V5).
 */
#ifndef ARROW_SCHEMA_H
#define ARROW_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arrow/crc32c.h"

#define ARROW_BLOCK	  4096 /**< alignment of messages and bodies in a file */
#define ARROW_MAGIC	  "ARROW1"
#define ARROW_MAGIC_SIZE  6
#define ARROW_NODES_MAX	  64  /**< field nodes of a schema */
#define ARROW_BUFFERS_MAX 128 /**< buffers of a schema */

/** Types that the tables use. ARROW_LIST and ARROW_FIXED_LIST have items of a plain type. */
enum arrow_type {
	ARROW_UINT8,
	ARROW_UINT16,
	ARROW_UINT32,
	ARROW_UINT64,
	ARROW_INT16,
	ARROW_FLOAT32,
	ARROW_FLOAT64,
	ARROW_TIMESTAMP_NS, /**< int64 ns since 1970 without leap seconds, no zone */
	ARROW_BINARY,
	ARROW_LIST,
	ARROW_FIXED_LIST,
	ARROW_TYPES
};

/** @return bytes of one value of a plain type; 0 for the others */
unsigned int arrow_type_width(enum arrow_type type);

/** @return name as documentation writes it, such as "uint64" */
const char *arrow_type_name(enum arrow_type type);

/** One column. */
struct arrow_field {
	const char *name;
	enum arrow_type type;
	enum arrow_type
		item;	    /**< lists: type of the items; these are called "item", not nullable */
	uint32_t list_size; /**< ARROW_FIXED_LIST: items of a row */
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

/** Field node: of a column, and of its items if it is a list, in this order. */
struct arrow_node {
	int64_t length;
	int64_t null_count;
};

/** Place of a buffer within the body. Order: validity, offsets, data; then those of the items. */
struct arrow_buffer {
	int64_t offset;
	int64_t length;
};

/** What is known of a table before its first batch: whose stream it is. */
struct arrow_identity {
	uint64_t producer;
	uint64_t run;
	uint64_t incarnation; /**< random number of a receiver's start */
	const char *table;    /**< `frames` or `images` */
};

/** Keys of a batch's custom metadata; numbers are lower-case hexadecimal of fixed width. */
#define ARROW_KEY_PRODUCER    "braggline.producer"    /**< 16 digits */
#define ARROW_KEY_RUN	      "braggline.run"	      /**< 16 digits */
#define ARROW_KEY_INCARNATION "braggline.incarnation" /**< 16 digits */
#define ARROW_KEY_TABLE	      "braggline.table"
#define ARROW_KEY_SEQUENCE    "braggline.sequence" /**< 16 digits */
#define ARROW_KEY_CRC32C      "braggline.crc32c"   /**< 8 digits, arrow_crc32c() of the body */
/** 8 digits, of the metadata with prefix, counting these digits as `0` */
#define ARROW_KEY_METADATA "braggline.metadata_crc32c"

/**
 * Key of the footer's custom metadata: what lies between the batches that the footer lists and is
 * damaged, as `OFFSET:LENGTH:SEQUENCE`, separated by commas. Offset and length in decimal, the
 * sequence number as in the batch, or `-` where no announcement tells it.
 */
#define ARROW_KEY_DAMAGED "braggline.damaged"
/** Key of the footer's custom metadata: 8 digits, CRC-32C of the last block from the end of the
 * stream on, counting these digits as `0`. */
#define ARROW_KEY_FOOTER "braggline.footer_crc32c"

/** What changes from batch to batch. */
struct arrow_batch {
	int64_t rows;
	const struct arrow_node *nodes;	    /**< arrow_template.nb_nodes of them */
	const struct arrow_buffer *buffers; /**< arrow_template.nb_buffers of them */
	int64_t body_length;		    /**< a multiple of ARROW_BLOCK */
	uint64_t sequence;		    /**< number of the batch in its stream, from 0 */
	uint32_t crc32c;		    /**< of the body as it lies in the file */
};

/** Metadata of a record batch, prefix included, and where its numbers are. */
struct arrow_template {
	uint8_t *bytes;
	uint32_t size; /**< a multiple of ARROW_BLOCK */
	uint32_t used; /**< of them; zeros follow */
	uint16_t nb_nodes;
	uint16_t nb_buffers;
	uint32_t rows; /**< places of the numbers, from the start of bytes */
	uint32_t nodes;
	uint32_t buffers;
	uint32_t body_length;
	uint32_t sequence;
	uint32_t crc32c;
	uint32_t metadata_crc32c;
	struct arrow_crc_zeros zeros; /**< those */
};

/** A record batch within a file, as the footer lists it. */
struct arrow_block {
	uint64_t offset;
	uint32_t metadata; /**< bytes, prefix included */
	uint64_t body;
};

/** Count the field nodes and buffers that a schema needs. */
void arrow_schema_count(const struct arrow_schema *s, unsigned int *nodes, unsigned int *buffers);

/**
 * First block of a file: magic and schema message, and all of it a second time. The message is as
 * long as both; what follows a flatbuffer is nothing to readers.
 * @param bytes  out: to be freed with free()
 * @param size   out: of both copies, a multiple of 2 x ARROW_BLOCK
 * @return 0; -ENOMEM; -EINVAL: a column that Arrow does not know
 */
int arrow_header_build(const struct arrow_schema *s, uint8_t **bytes, size_t *size);

/**
 * Last block of a file: end of stream, footer, magic.
 * @param damaged  value of ARROW_KEY_DAMAGED; NULL: nothing is
 * @return as arrow_header_build()
 */
int arrow_trailer_build(const struct arrow_schema *s, const struct arrow_block *blocks,
	size_t nb_blocks, const char *damaged, uint8_t **bytes, size_t *size);

/**
 * Lay out the metadata of the record batches of a table.
 * @return 0; -ENOMEM; -EINVAL: a column that Arrow does not know, or too many of them
 */
int arrow_template_init(
	struct arrow_template *t, const struct arrow_schema *s, const struct arrow_identity *id);

void arrow_template_free(struct arrow_template *t);

/** CRC that metadata have whose 8 digits of their own CRC are at `digits`. */
uint32_t arrow_metadata_crc(const uint8_t *metadata, size_t size, size_t digits);

/**
 * Write the numbers of one batch. No allocation, no lock; any thread that owns `metadata`.
 * @param metadata  arrow_template.size bytes that were copied from arrow_template.bytes before
 */
void arrow_template_patch(
	const struct arrow_template *t, uint8_t *metadata, const struct arrow_batch *b);

#endif /* ARROW_SCHEMA_H */
