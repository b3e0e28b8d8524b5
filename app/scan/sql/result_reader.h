/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The result of a session as record batches for sql/ipc_stream.h, with as few copies as possible.
 *
 * =================  ==============================================================================
 * column             its buffers
 * =================  ==============================================================================
 * deferred list      ranges of the mapped files (sql/lists.h), and new offsets
 * of fixed width     the vector of DuckDB, whose bytes are those of Arrow
 * others             DuckDB's conversion to Arrow, which copies them
 * =================  ==============================================================================
 *
 * Values of fixed width that are NULL are zero in the buffers: the engine leaves earlier contents
 * of its memory there, which may be of another user's result. Members of unions are left as they
 * are.
 *
 * Ranges of files are read when the caller copies them. It must then ask sql_catalog_unreadable()
 * before it passes the copy on.
 */
#ifndef SQL_RESULT_READER_H
#define SQL_RESULT_READER_H

#include "sql/ipc_stream.h"
#include "sql/session.h"

struct sql_reader;

/** Rows of a result. */
struct sql_batch {
	const struct ArrowArray *array;	 /**< NULL: the end. It begins at offset 0 */
	const struct ipc_values *values; /**< of each column, for ipc_stream_batch_values() */
	uint64_t direct;		 /**< bytes that were not copied after the engine */
	uint64_t deferred;		 /**< of these, bytes of lists in files */
};

/**
 * Begin to read the result of the executed statement. The reader must be closed before the next
 * statement, and before the session is closed.
 * @return 0; -ENOMEM; -EIO, -ENOTSUP: the error of the session says why
 */
int sql_reader_open(struct sql_reader **reader, struct sql_session *s);

void sql_reader_close(struct sql_reader *r);

/**
 * Have batches of about a size, not of a chunk of the engine each: larger chunks are split, and
 * smaller ones joined. The first batch is one chunk at most, and the next ones have at most as many
 * chunks as all before, so that the first rows come early. No effect on results with columns that
 * DuckDB converts.
 * @param bytes  maximum bytes of a body; only one row may be larger
 */
void sql_reader_batch_bytes(struct sql_reader *r, uint64_t bytes);

/** Schema: a struct whose children are the columns. It is valid until the reader is closed. */
const struct ArrowSchema *sql_reader_schema(const struct sql_reader *r);

/**
 * Read the next rows: at most 2048, or as sql_reader_batch_bytes() says. They are valid until the
 * next call.
 * @return 0; -EIO, -ECANCELED, -ENOMEM, -EOVERFLOW: the error of the session says why
 */
int sql_reader_next(struct sql_reader *r, struct sql_batch *batch);

#endif /* SQL_RESULT_READER_H */
