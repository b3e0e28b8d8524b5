/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Reading Arrow IPC files that may be incomplete, damaged or hostile: every place that a file
 * names is checked before it is used, and nothing is copied out of the mapping.
 *
 * It walks the messages from the front, so that `.part` files and valid prefixes are read like
 * complete ones; the footer is compared with what was found. It knows the types of
 * enum arrow_type, no compression and no dictionaries.
 *
 * A file that is cut short by somebody while it is mapped ends the process (SIGBUS).
 */
#ifndef ARROW_READ_H
#define ARROW_READ_H

#include "arrow_schema.h"

/** A record batch that was found. */
struct arrow_read_batch {
	uint64_t offset;
	uint32_t metadata_size; /**< prefix included */
	uint64_t body_length;
	uint64_t rows;
	const uint8_t *body;
	const uint8_t *nodes;	/**< struct arrow_node, at any address */
	const uint8_t *buffers; /**< struct arrow_buffer, at any address */
	const char *producer;	/**< hexadecimal texts of custom metadata; NULL where absent */
	const char *run;
	const char *incarnation;
	const char *table;
	const char *sequence;
	const char *crc32c;
	const char *metadata_crc32c;
};

struct arrow_reader {
	const uint8_t *data;
	uint64_t size;
	bool mapped;
	struct arrow_schema schema; /**< names and texts lie in the file */
	struct arrow_field *fields;
	struct arrow_meta *meta;
	struct arrow_read_batch *batches;
	size_t nb_batches;
	unsigned int nb_nodes;
	unsigned int nb_buffers;
	bool complete;	     /**< end of stream, and a footer that lists the same batches */
	uint64_t valid;	     /**< bytes up to the end of the last whole message */
	const char *problem; /**< if not complete: what ends the valid part */
};

/** A column of a batch; what it points to has been checked. */
struct arrow_column {
	const struct arrow_field *field;
	uint64_t rows;
	uint64_t null_count;
	const uint8_t *validity; /**< bit per row, 1 = valid; NULL: none is null */
	const int32_t
		*offsets; /**< lists, binary: rows + 1, ascending, within items; NULL if no rows */
	const void *data; /**< rows, items or bytes; aligned to 8 */
	uint64_t items;	  /**< values that data has */
};

/**
 * Read what a file says about itself.
 * @param problem  out, on error: what is wrong with it (static text)
 * @return 0
 *   - -errno of open(2), fstat(2), mmap(2)
 *   - -EBADMSG: not an Arrow file, or its schema is damaged or of unknown types
 *   - -ENOMEM
 */
int arrow_reader_open(struct arrow_reader *r, const char *path, const char **problem);

/** The same for bytes in memory, aligned to 8, which must outlive the reader. */
int arrow_reader_open_memory(
	struct arrow_reader *r, const void *data, uint64_t size, const char **problem);

void arrow_reader_close(struct arrow_reader *r);

/** @return value of the schema's metadata, or NULL */
const char *arrow_reader_meta(const struct arrow_reader *r, const char *key);

/** @return index of a column with this name and type (of items, for lists), or -1 */
int arrow_reader_find(
	const struct arrow_reader *r, const char *name, enum arrow_type type, enum arrow_type item);

/** @return 0; -EBADMSG: a buffer that is not inside, too short, not aligned, or not ascending */
int arrow_reader_column(const struct arrow_reader *r, size_t batch, unsigned int field,
	struct arrow_column *column);

/**
 * Check the CRC of the body, and that of the metadata if they have one.
 * @return 1 right, 0 the body has none, -EBADMSG body, metadata or a CRC is damaged
 */
int arrow_reader_crc(const struct arrow_reader *r, size_t batch);

/**
 * The same where the body is somewhere else, too.
 * @param body_crc  of the body there
 */
int arrow_reader_crc_is(const struct arrow_reader *r, size_t batch, uint32_t body_crc);

/** Items of row i: start and end within arrow_column.data. */
static inline void
arrow_column_range(const struct arrow_column *c, uint64_t row, uint64_t *start, uint64_t *end)
{
	*start = c->offsets[row];
	*end = c->offsets[row + 1];
}

static inline bool
arrow_column_is_null(const struct arrow_column *c, uint64_t row)
{
	return c->validity != NULL && !(c->validity[row / 8] >> (row % 8) & 1);
}

#endif /* ARROW_READ_H */
