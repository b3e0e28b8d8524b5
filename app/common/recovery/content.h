/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * File access of recovery: reads and writes through the operations of io/file_io.h. One thread.
 */
#ifndef ARROW_CONTENT_H
#define ARROW_CONTENT_H

#include <limits.h>

#include "io/file_io.h"
#include "arrow/reader.h"

#define ARROW_CONTENT_PART (UINT64_C(1) << 20) /**< bytes to compare or copy in one step */

/** Content of a file, which is read on demand. */
struct arrow_content {
	const struct arrow_io_ops *io;
	void *handle;
	struct arrow_window *window; /**< NULL: the file is mapped, or could not be opened */
	const uint8_t *data;
	uint64_t size;
	uint64_t allocated; /**< bytes that the file system has allocated */
};

/**
 * Open the content of a file. Call arrow_content_close() even if this fails, and before the handle
 * is closed.
 * @return 0; -errno
 */
int arrow_content_open(struct arrow_content *c, const struct arrow_io_ops *io, void *handle);

void arrow_content_close(struct arrow_content *c);

/** @return a reader that only provides the bytes of the file. Do not close it. */
struct arrow_reader arrow_content_bytes(const struct arrow_content *c);

/**
 * Whether `size` bytes of a file at `at` equal those at `with`.
 * @param b     the reader that `with` points into; NULL: `with` is memory
 */
bool arrow_content_is_same(const struct arrow_reader *a, uint64_t at, const struct arrow_reader *b,
	const uint8_t *with, uint64_t size);

/** Write whole blocks at `offset`, and wait for completion. @return 0; -errno */
int arrow_content_write(const struct arrow_io_ops *io, void *handle, const uint8_t *data,
	uint64_t size, uint64_t offset);

/** Make the written data and the size of the file durable. @return 0; -errno */
int arrow_content_sync(const struct arrow_io_ops *io, void *handle);

/**
 * Build the path of a file in the folder of `part`: `DIR/`, `hidden`, the name of `part` without
 * `.part`, `what`.
 * @return 0; -ENAMETOOLONG
 */
int arrow_content_name(char path[PATH_MAX], const char *part, const char *hidden, const char *what);

#endif /* ARROW_CONTENT_H */
