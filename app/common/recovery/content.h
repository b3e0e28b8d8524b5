/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * What recovery reads of files and writes to them, by the operations of io/file_io.h. One thread.
 */
#ifndef ARROW_CONTENT_H
#define ARROW_CONTENT_H

#include <limits.h>

#include "io/file_io.h"
#include "arrow/reader.h"

#define ARROW_CONTENT_PART (UINT64_C(1) << 20) /**< bytes that are looked at at once */

/** What a file has, read as it is asked for. */
struct arrow_content {
	const struct arrow_io_ops *io;
	void *handle;
	struct arrow_window *window; /**< NULL: it is mapped, or there is nothing */
	const uint8_t *data;
	uint64_t size;
	uint64_t allocated; /**< bytes, by the file system */
};

/** To be closed whatever it returns, before the handle is. @return 0; -errno */
int arrow_content_open(struct arrow_content *c, const struct arrow_io_ops *io, void *handle);

void arrow_content_close(struct arrow_content *c);

/** @return a reader that only has bytes, and is not to be closed */
struct arrow_reader arrow_content_bytes(const struct arrow_content *c);

/**
 * Whether two files have the same bytes somewhere.
 * @param with  where, in `b`; or in memory, if that is NULL
 */
bool arrow_content_is_same(const struct arrow_reader *a, uint64_t at, const struct arrow_reader *b,
	const uint8_t *with, uint64_t size);

/** Write everything at `offset`, whole blocks, and wait for it. */
int arrow_content_write(const struct arrow_io_ops *io, void *handle, const uint8_t *data,
	uint64_t size, uint64_t offset);

/** Make durable what was written, and the size. */
int arrow_content_sync(const struct arrow_io_ops *io, void *handle);

/** Name of a file beside another: `DIR/`, `hidden`, the other's name without `.part`, `what`.
 * @return 0; -ENAMETOOLONG */
int arrow_content_name(char path[PATH_MAX], const char *part, const char *hidden, const char *what);

#endif /* ARROW_CONTENT_H */
