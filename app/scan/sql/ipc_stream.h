/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Writes arrays of the Arrow C data interface as an Arrow IPC stream: schema, dictionaries, record
 * batches, end of stream; or as messages for another transport. All types that DuckDB's results
 * have are supported, with their field metadata: null, bool, integers, floating point, decimal,
 * (large) utf8 and binary, fixed-size binary, date, time, timestamp, duration, interval, (large)
 * list, fixed-size list, struct, map, union, and dictionaries of them.
 *
 * Body buffers start at multiples of 64 bytes. No compression. An array must begin at offset 0.
 *
 * Sources: Arrow's Columnar.rst (IPC streaming format), CDataInterface.rst, Message.fbs,
 * Schema.fbs.
 */
#ifndef SQL_IPC_STREAM_H
#define SQL_IPC_STREAM_H

#include <stdbool.h>
#include <stdio.h>

#include "sql/arrow_c.h"

/** A buffer of a body, or a piece of it. Its padding to IPC_ALIGN is not in memory. */
struct ipc_buffer {
	const void *bytes;
	uint64_t size;
	bool joined;  /**< the next element is the rest of the same buffer: no padding is between */
	bool in_file; /**< bytes of a mapped file: they stay in place after the batch */
};

/** Values of a column of lists, binary, or of fixed width that are in several places. */
struct ipc_values {
	bool is_set; /**< false: they are where the array says */
	const struct ipc_buffer *piece;
	size_t nb;
	uint64_t size; /**< of all pieces, bytes */
};

#define IPC_ALIGN 64 /**< alignment of buffers in a body */

/** Takes the messages of a stream. */
struct ipc_sink {
	/**
	 * @param metadata  flatbuffer `Message`, padded to a multiple of 8
	 * @param buffer    of the body, for ipc_body_copy(); not valid after the call
	 * @param nb        number of elements; 0: no body
	 * @param body      bytes of the body, with padding
	 * @return 0; -errno
	 */
	int (*message)(void *arg, const void *metadata, size_t size,
		const struct ipc_buffer *buffer, size_t nb, uint64_t body);
	void *arg;
};

struct ipc_stream {
	FILE *out; /**< NULL: `sink` */
	struct ipc_sink sink;
	const struct ArrowSchema *schema;
	int64_t nb_dictionaries;
	uint64_t bytes; /**< written so far */
	bool started;	/**< the dictionaries are written */
};

/**
 * Begin a stream: write the schema.
 * @param schema  a struct, whose children are the columns; it must outlive the stream
 * @return 0; -ENOTSUP: a type is not supported; -EINVAL: the schema is wrong; -ENOMEM; -errno
 */
int ipc_stream_begin(struct ipc_stream *s, FILE *out, const struct ArrowSchema *schema);

/** As ipc_stream_begin(), for messages. There is no end: do not call ipc_stream_end(). */
int ipc_stream_begin_messages(
	struct ipc_stream *s, const struct ipc_sink *sink, const struct ArrowSchema *schema);

/**
 * Write a record batch, and before the first one the dictionaries. Later batches must have the same
 * dictionaries, as those of ENUM columns do.
 * @return 0; -ENOTSUP, -EINVAL: not an array of the schema; -ENOMEM; -errno
 */
int ipc_stream_batch(struct ipc_stream *s, const struct ArrowArray *array);

/**
 * As ipc_stream_batch(), with other values of some columns. A column with such values is a list of
 * items of fixed width, binary, or of fixed width; the buffer of its values in the array is not
 * read.
 * @param values  of each column; NULL: all are in the array
 */
int ipc_stream_batch_values(
	struct ipc_stream *s, const struct ArrowArray *array, const struct ipc_values *values);

/**
 * Copy a part of a packed body, as ipc_sink.message() gets it.
 * @param offset  of the part; offset + length is at most the size of the body
 */
void ipc_body_copy(
	void *to, const struct ipc_buffer *buffer, size_t nb, uint64_t offset, uint64_t length);

/** Write the end of the stream. @return 0; -errno */
int ipc_stream_end(struct ipc_stream *s);

#endif /* SQL_IPC_STREAM_H */
