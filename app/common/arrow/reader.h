/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Reads Arrow IPC files that may be incomplete, damaged or malicious. Every offset in a file is
 * checked before use, and nothing is copied out of the mapping.
 *
 * The reader walks through the messages from the front, so `.part` files and valid prefixes are
 * read like complete files. The footer is compared with the messages that were found. The reader
 * supports the types of enum arrow_type, but neither compression nor dictionaries.
 *
 * Files of this program (their schema names a table): a batch is recognized by its announcement,
 * which is the metadata block with its own CRC. The footer also has a CRC. If the footer is valid,
 * it locates the batches. Otherwise, if an announcement is missing, the reader continues at the
 * next block that announces a batch of the same stream. Damage therefore loses only the batch in
 * which it occurs. Batches and regions that are known to be damaged are listed in `damage` and not
 * in `batches`. Opening a file does not read the bodies.
 *
 * The first block of such a file has the schema twice, with a CRC. The second copy is read if the
 * first is damaged. In other files there is no CRC, and `schema_fault` is set.
 *
 * If the disk cannot read a mapped file, or another process truncates it, the process is killed by
 * SIGBUS. Data that is read through a window (io/window.h) is zero in these cases: the CRC of
 * the batch is then wrong.
 *
 * The size of a file bounds time and memory, whatever the file contains: metadata texts must not be
 * longer than twice the metadata, and a footer lists whole blocks.
 */
#ifndef ARROW_READER_H
#define ARROW_READER_H

#include "arrow/schema.h"
#include "io/window.h"

/** A record batch of a file. */
struct arrow_read_batch {
	uint64_t offset;
	uint32_t metadata_size; /**< including the prefix */
	uint64_t body_length;
	uint64_t rows;
	const uint8_t *body;
	const uint8_t *nodes;	 /**< struct arrow_node, unaligned */
	const uint8_t *buffers;	 /**< struct arrow_buffer, unaligned */
	const char *receiver_id; /**< hexadecimal strings of the custom metadata; NULL: absent */
	const char *run;
	const char *incarnation;
	const char *table;
	const char *sequence;
	const char *crc32c;
	const char *metadata_crc32c;
	/** what is wrong with the batch (static string); NULL: no fault found */
	const char *fault;
};

/** Bytes between batches that are not a valid batch. */
struct arrow_read_damage {
	uint64_t offset;
	uint64_t length;
	size_t before;		       /**< number of entries of arrow_reader.batches before it */
	const char *why;	       /**< static string */
	bool announced;		       /**< the bytes are one batch, whose announcement is valid */
	struct arrow_read_batch batch; /**< valid if `announced` */
};

/** `why` of a region that should start with an announcement of a batch. */
#define ARROW_NO_ANNOUNCEMENT "no valid batch announcement at this position"

/** `problem` of a file that ends in zeros after its last batch. */
#define ARROW_UNUSED_ROOM                                                                   \
	"it has no footer, and unused preallocated space follows its batches: it is still " \
	"being written, or was not closed"

/** Values of arrow_reader.schema_fault. @{ */
#define ARROW_NO_SCHEMA "its schema is damaged"
/** recovery repairs it */
#define ARROW_ONE_SCHEMA "one of the two copies of its schema is damaged"
/** @} */

struct arrow_reader {
	const uint8_t *data;
	uint64_t size;
	uint64_t written; /**< from this offset on, the file is zeros */
	bool mapped;
	struct arrow_window *window; /**< NULL: all of `data` is readable */
	bool own_window;	     /**< the reader owns the window and the descriptor */
	int own_fd;		     /**< descriptor + 1 */
	struct arrow_schema schema;  /**< its names and texts are in the file */
	struct arrow_field *fields;
	struct arrow_meta *meta;
	struct arrow_read_batch *batches;
	size_t nb_batches;
	struct arrow_read_damage *damage; /**< in file order */
	size_t nb_damage;
	unsigned int nb_nodes;
	unsigned int nb_buffers;
	/** the file has an end of stream, and a footer that matches the batches found */
	bool complete;
	uint64_t begin; /**< size of the first block, where the batches begin */
	/**
	 * size of each of the two copies of the schema in the first block; 0: an older file, or
	 * neither copy is valid
	 */
	uint64_t copy;
	uint64_t copy_at;	  /**< offset of the copy that was read */
	const char *schema_fault; /**< what is wrong with the first block; NULL: nothing */
	uint64_t end;	     /**< end of the last batch; in a complete file, the trailer follows */
	uint64_t valid;	     /**< end of the last complete message */
	const char *problem; /**< if not complete: what ends the valid part */
	/**
	 * The stream whose batches the file may have; table NULL: any. The body of a damaged batch
	 * may contain valid batches of another stream, which a receiver has put there.
	 */
	struct arrow_identity only;
};

/** Whether the schema that was read is verified. */
static inline bool
arrow_reader_has_schema(const struct arrow_reader *r)
{
	return r->schema_fault == NULL || r->copy > 0;
}

/** A column of a batch. What it points to was checked. */
struct arrow_column {
	const struct arrow_field *field;
	uint64_t rows;
	uint64_t null_count;
	const uint8_t *validity; /**< one bit per row, 1 = valid; NULL: no row is null */
	const int32_t
		/** lists and binary: rows + 1 ascending offsets within the items; NULL: no rows */
		*offsets;
	const void *data; /**< rows, items or bytes; aligned to 8 */
	uint64_t items;	  /**< number of values in `data` */
};

/**
 * Open a file and read its structure.
 * @param problem  out, on error: what is wrong with the file (static string)
 * @return 0
 *   - -errno of open(2), fstat(2), mmap(2)
 *   - -EBADMSG: not an Arrow file, or its schema is damaged or has unknown types
 *   - -ENOMEM
 */
int arrow_reader_open(struct arrow_reader *r, const char *path, const char **problem);

/** Bytes of a mapped file. */
struct arrow_mapping {
	void *data;
	uint64_t size;
	uint64_t written; /**< bytes beyond are allocated, but not written */
};

/** Map a file for arrow_reader_open_mapped(). @return as arrow_reader_open() */
int arrow_reader_map(struct arrow_mapping *m, const char *path, const char **problem);

/**
 * As arrow_reader_open(), for a file that is mapped. On success the reader owns the mapping, else
 * the caller unmaps it.
 */
int arrow_reader_open_mapped(
	struct arrow_reader *r, const struct arrow_mapping *m, const char **problem);

/**
 * As arrow_reader_open(), for bytes in memory. They are aligned to 8 and must outlive the reader.
 */
int arrow_reader_open_memory(
	struct arrow_reader *r, const void *data, uint64_t size, const char **problem);

/**
 * As arrow_reader_open_memory(), for a file whose bytes beyond `written` are allocated but not
 * written. These bytes are not searched.
 */
int arrow_reader_open_written(struct arrow_reader *r, const void *data, uint64_t size,
	uint64_t written, const char **problem);

/**
 * As arrow_reader_open(), with read(2) instead of a mapping. The bodies and columns of batches are
 * accessible only after arrow_reader_load().
 * @return as arrow_reader_open(). *problem also reports that the disk cannot read required data
 */
int arrow_reader_open_read(struct arrow_reader *r, const char *path, const char **problem);

/** As arrow_reader_open_read(), through a window, which must outlive the reader. */
int arrow_reader_open_window(struct arrow_reader *r, struct arrow_window *window, uint64_t size,
	uint64_t written, const char **problem);

/** Load bytes of the file before they are read. Does nothing if the file is mapped. */
void arrow_reader_load(const struct arrow_reader *r, const void *data, uint64_t size);

/** Whether a part of the file is all zeros. */
bool arrow_reader_is_zero(const struct arrow_reader *r, uint64_t at, uint64_t size);

void arrow_reader_close(struct arrow_reader *r);

/**
 * Read the announcement of a batch of this program at an offset.
 * @return 1: found; -ENODATA: found, but its body ends beyond the end of the file; -EBADMSG: none
 */
int arrow_reader_announced(const struct arrow_reader *r, uint64_t at, struct arrow_read_batch *b);

/**
 * Append a batch, or a damaged region after all batches, for a caller that walks through the file
 * itself. @return 0; -ENOMEM @{
 */
int arrow_reader_keep(struct arrow_reader *r, const struct arrow_read_batch *b);
int arrow_reader_keep_damage(struct arrow_reader *r, const struct arrow_read_damage *d);
/** @} */

/**
 * Move the batches that have a `fault` from `batches` to `damage`.
 * @return 0; -ENOMEM: nothing has changed
 */
int arrow_reader_part(struct arrow_reader *r);

/**
 * Find the next announcement of a batch, at multiples of ARROW_BLOCK. The length of its body is
 * taken from the announcement, so the body may end beyond the end of the file.
 * @param at  in: where to begin; out: offset of the announcement
 * @param b   out: the batch; read its body only where it is inside the file
 * @return false: none
 */
bool arrow_reader_next(const struct arrow_reader *r, uint64_t *at, struct arrow_read_batch *b);

/** @return value of a key of the schema's metadata; NULL: absent */
const char *arrow_reader_meta(const struct arrow_reader *r, const char *key);

/** @return index of the column with this name and type (for lists, type of the items); -1: none */
int arrow_reader_find(
	const struct arrow_reader *r, const char *name, enum arrow_type type, enum arrow_type item);

/** @return 0; -EBADMSG: a buffer is outside the body, too short, unaligned, or not ascending */
int arrow_reader_column(const struct arrow_reader *r, size_t batch, unsigned int field,
	struct arrow_column *column);

/** As arrow_reader_column(), for a damaged batch whose body is inside the file. */
int arrow_read_column(const struct arrow_reader *r, const struct arrow_read_batch *b,
	unsigned int field, struct arrow_column *column);

/**
 * Check the CRC of the body, and that of the metadata if present.
 * @return 1: correct; 0: the body has no CRC; -EBADMSG: the body, the metadata or a CRC is damaged
 */
int arrow_reader_crc(const struct arrow_reader *r, size_t batch);

/** As arrow_reader_crc(), if the body is not in the file. @param body_crc  CRC of the body */
int arrow_reader_crc_is(const struct arrow_reader *r, size_t batch, uint32_t body_crc);

/** As arrow_reader_crc(), for a batch that is damaged or not listed. */
int arrow_read_crc(const struct arrow_reader *r, const struct arrow_read_batch *b);

/**
 * Accept only batches of the stream that the file's name gives (arrow_name_stream()). A file of
 * another name may have any. arrow_reader_open_read() has done so.
 */
void arrow_reader_only(struct arrow_reader *r, const char *path);

/**
 * Whether a batch has all identity keys of this program, and belongs to the table of the schema and
 * to the stream of the file.
 */
bool arrow_read_has_identity(const struct arrow_reader *r, const struct arrow_read_batch *b);

/**
 * Whether batch `b` belongs to the same stream as `before` and has a higher sequence number. Both
 * must have an identity.
 */
bool arrow_read_follows(const struct arrow_read_batch *b, const struct arrow_read_batch *before);

/** Get the items of row i: their start and end in arrow_column.data. */
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

#endif /* ARROW_READER_H */
