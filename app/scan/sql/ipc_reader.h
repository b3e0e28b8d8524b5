/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Reads messages of an Arrow IPC stream into structures of the Arrow C data interface, without
 * trust: the inverse of sql/ipc_stream.h, with the same types. Everything that a consumer relies on
 * is checked: sizes and alignment of buffers, order and range of offsets, of indexes of
 * dictionaries and of types of unions, lengths of children.
 *
 * Dictionaries come once, before the first record batch. Arrays refer to the dictionaries, which
 * therefore live until the last array is released.
 *
 * One thread at a time per reader; arrays may be released by any thread.
 *
 * Sources: Arrow's Columnar.rst, CDataInterface.rst, Message.fbs, Schema.fbs.
 */
#ifndef SQL_IPC_READER_H
#define SQL_IPC_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sql/arrow_c.h"

struct ipc_reader;

/** A body in memory. */
struct ipc_body {
	const uint8_t *bytes; /**< aligned to at least 8 */
	uint64_t size;
	void (*release)(void *arg); /**< the bytes are no longer needed; any thread */
	void *arg;
};

struct ipc_reader *ipc_reader_create(void);

void ipc_reader_destroy(struct ipc_reader *r);

/** What a message is. */
enum ipc_message {
	IPC_SCHEMA,
	IPC_DICTIONARY,
	IPC_BATCH,
};

/**
 * Read the head of a message.
 * @param body  out: bytes of its body
 * @return enum ipc_message; -EBADMSG; -ENOTSUP: another message
 */
int ipc_reader_head(const void *metadata, size_t size, uint64_t *body);

/** Read the schema, once. @return 0; -EBADMSG; -ENOTSUP: a type is not supported; -ENOMEM */
int ipc_reader_schema(struct ipc_reader *r, const void *metadata, size_t size);

/** End a stream: forget its dictionaries. Another one with the same schema may begin. */
void ipc_reader_restart(struct ipc_reader *r);

/** Copy the schema. @return 0; -ENOMEM */
int ipc_reader_copy_schema(const struct ipc_reader *r, struct ArrowSchema *out);

/**
 * Read a dictionary batch or a record batch. The body is released by this function on an error, and
 * with the last array that refers to it otherwise.
 * @param out  out: an array, if it is a record batch; otherwise its `release` is NULL
 * @return 0; -EBADMSG; -ENOTSUP; -ENOMEM
 */
int ipc_reader_batch(struct ipc_reader *r, const void *metadata, size_t size,
	const struct ipc_body *body, struct ArrowArray *out);

#endif /* SQL_IPC_READER_H */
