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
 * Of files of ours (their schema names a table) a batch is known by its announcement: the metadata
 * block, which has a CRC of its own. The footer has one, too: where it is right, it tells where
 * batches are. Else, where an announcement should be and is none, the walk goes on at the next
 * block that is one of the same stream. So damage costs the batch that it hit, and no other.
 * Batches and regions that are known to be damaged are listed apart (`damage`): who goes by
 * `batches` skips exactly these. Bodies are not looked at when a file is opened.
 *
 * The first block of a file of ours has the schema twice, with a CRC: the second copy is read where
 * the first one is damaged. In a file of others `schema_fault` is set, as there is no CRC.
 *
 * A file that is mapped, and that the disk cannot read or somebody cuts short, ends the process
 * (SIGBUS). What is read through a window (recovery/window.h) is zeros there: a batch with a wrong
 * CRC.
 *
 * Work and memory are bounded by the size of a file, whatever it says: texts of metadata may not be
 * longer than the metadata twice over, and a footer lists whole blocks.
 */
#ifndef ARROW_READ_H
#define ARROW_READ_H

#include "arrow/schema.h"
#include "recovery/window.h"

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
	const char *fault; /**< what has been found to be wrong (static text); NULL: nothing */
};

/** Bytes between batches that are not a sound batch. */
struct arrow_read_damage {
	uint64_t offset;
	uint64_t length;
	size_t before;	 /**< so many of arrow_reader.batches lie in front of it */
	const char *why; /**< static text */
	bool announced;	 /**< it is one batch, which its sound announcement describes */
	struct arrow_read_batch batch; /**< if so */
};

/** Why, of a region where the announcement of a batch should be. */
#define ARROW_NO_ANNOUNCEMENT "no announcement of a batch is there"

/** Why, of a file that ends in zeros behind its last batch. */
#define ARROW_UNUSED_ROOM                                                                         \
	"it has no footer, and room behind its batches that was allocated ahead and never used: " \
	"it is being written, or was not closed"

/** Values of arrow_reader.schema_fault @{ */
#define ARROW_NO_SCHEMA	 "its schema is damaged"
#define ARROW_ONE_SCHEMA "one of the two copies of its schema is damaged" /**< recovery mends it */
/** @} */

struct arrow_reader {
	const uint8_t *data;
	uint64_t size;
	uint64_t written; /**< zeros follow from there on */
	bool mapped;
	struct arrow_window *window; /**< NULL: all of `data` can be read */
	bool own_window;	     /**< the reader's, and so is the descriptor */
	int own_fd;		     /**< + 1 */
	struct arrow_schema schema;  /**< names and texts lie in the file */
	struct arrow_field *fields;
	struct arrow_meta *meta;
	struct arrow_read_batch *batches;
	size_t nb_batches;
	struct arrow_read_damage *damage; /**< in the order of the file */
	size_t nb_damage;
	unsigned int nb_nodes;
	unsigned int nb_buffers;
	bool complete;		  /**< end of stream, and a footer that knows what was found */
	uint64_t begin;		  /**< bytes of the first block: where batches begin */
	uint64_t copy;		  /**< bytes of each of the two copies of the schema in it; 0: of
				  older files, or neither is right */
	uint64_t copy_at;	  /**< where the one is that was read */
	const char *schema_fault; /**< what is wrong with the first block; NULL: nothing */
	uint64_t end;	     /**< end of the last batch: of a complete file the trailer follows */
	uint64_t valid;	     /**< bytes up to the end of the last whole message */
	const char *problem; /**< if not complete: what ends the valid part */
};

/** Whether the schema that was read is what was written. */
static inline bool
arrow_reader_has_schema(const struct arrow_reader *r)
{
	return r->schema_fault == NULL || r->copy > 0;
}

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

/**
 * The same, told where the last bytes end that were written: room that was allocated follows, which
 * is not worth looking through.
 */
int arrow_reader_open_written(struct arrow_reader *r, const void *data, uint64_t size,
	uint64_t written, const char **problem);

/**
 * The same, read(2) piece by piece. What a batch's body and columns point to is there only after
 * arrow_reader_load().
 * @return as arrow_reader_open(); *problem says so if the disk cannot read what it has to
 */
int arrow_reader_open_read(struct arrow_reader *r, const char *path, const char **problem);

/** The same through a window, which must outlive the reader. */
int arrow_reader_open_window(struct arrow_reader *r, struct arrow_window *window, uint64_t size,
	uint64_t written, const char **problem);

/** Have bytes of the file there that are to be looked at: nothing to do where it is mapped. */
void arrow_reader_load(const struct arrow_reader *r, const void *data, uint64_t size);

/** Whether there are nothing but zeros in a part of the file. */
bool arrow_reader_is_zero(const struct arrow_reader *r, uint64_t at, uint64_t size);

void arrow_reader_close(struct arrow_reader *r);

/**
 * Whether a batch of a file of ours is announced in a place.
 * @return 1; -ENODATA: it is, and its body ends behind the file; -EBADMSG
 */
int arrow_reader_announced(const struct arrow_reader *r, uint64_t at, struct arrow_read_batch *b);

/** Add a batch, or a damage behind all batches: for who walks through a file himself. @return 0;
 * -ENOMEM @{ */
int arrow_reader_keep(struct arrow_reader *r, const struct arrow_read_batch *b);
int arrow_reader_keep_damage(struct arrow_reader *r, const struct arrow_read_damage *d);
/** @} */

/**
 * Move batches that have a `fault` from `batches` to `damage`.
 * @return 0; -ENOMEM: nothing has changed
 */
int arrow_reader_part(struct arrow_reader *r);

/**
 * Find the next announcement of a batch, at multiples of ARROW_BLOCK. Its body may end behind the
 * file: it is as long as the announcement says.
 * @param at  in: where to begin; out: where the announcement lies
 * @param b   out: the batch; its body may be read only where it lies within the file
 * @return false: there is none
 */
bool arrow_reader_next(const struct arrow_reader *r, uint64_t *at, struct arrow_read_batch *b);

/** @return value of the schema's metadata, or NULL */
const char *arrow_reader_meta(const struct arrow_reader *r, const char *key);

/** @return index of a column with this name and type (of items, for lists), or -1 */
int arrow_reader_find(
	const struct arrow_reader *r, const char *name, enum arrow_type type, enum arrow_type item);

/** @return 0; -EBADMSG: a buffer that is not inside, too short, not aligned, or not ascending */
int arrow_reader_column(const struct arrow_reader *r, size_t batch, unsigned int field,
	struct arrow_column *column);

/** The same of a batch that is damaged, whose body lies within the file. */
int arrow_read_column(const struct arrow_reader *r, const struct arrow_read_batch *b,
	unsigned int field, struct arrow_column *column);

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

/** arrow_reader_crc() of a batch that is damaged, or not listed. */
int arrow_read_crc(const struct arrow_reader *r, const struct arrow_read_batch *b);

/** Whether a batch has all that ours have, and is of the table that the schema names. */
bool arrow_read_has_identity(const struct arrow_reader *r, const struct arrow_read_batch *b);

/** Whether a batch is of the same stream as another, with a higher number; both have an identity.
 */
bool arrow_read_follows(const struct arrow_read_batch *b, const struct arrow_read_batch *before);

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
