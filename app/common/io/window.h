/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Window: an address range for a whole file, into which parts of the file are loaded on demand with
 * read(2). Pages that the disk cannot read are zeros in memory and are marked as unreadable. With a
 * mapping of the file, a read error would end the process (SIGBUS).
 *
 * As in a mapping, each byte of the file has a fixed address. The most recently loaded 16 MiB and
 * the pages passed to arrow_window_keep() stay in memory. Other pages are returned to the kernel
 * and must be loaded again. One thread.
 */
#ifndef ARROW_WINDOW_H
#define ARROW_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

/** Maximum size of one load. Its bytes stay in memory at least until the next load. */
#define ARROW_WINDOW_AT_ONCE (UINT64_C(8) << 20)

struct arrow_window;

/** @return number of bytes read, which is less than `size` only at the end of the file; -errno */
typedef int64_t (*arrow_window_read)(void *arg, void *data, uint64_t size, uint64_t offset);

/**
 * Create a window for a file.
 * @param size  size of the file in bytes
 * @param arg   argument of `read`
 * @return 0; -ENOMEM: out of memory or address space
 */
int arrow_window_open(struct arrow_window **w, uint64_t size, arrow_window_read read, void *arg);

/** Release a window, which may be NULL. */
void arrow_window_close(struct arrow_window *w);

/** Address of the first byte of the file; NULL: the file is empty. */
const uint8_t *arrow_window_data(const struct arrow_window *w);

/** Load at most ARROW_WINDOW_AT_ONCE bytes. Bytes beyond the end of the file are ignored. */
void arrow_window_load(struct arrow_window *w, uint64_t offset, uint64_t size);

/** Keep the pages of these bytes, which must be loaded, in memory. They are not read again. */
void arrow_window_keep(struct arrow_window *w, uint64_t offset, uint64_t size);

/** Whether a load of any of these bytes failed with a read error. */
bool arrow_window_is_unreadable(const struct arrow_window *w, uint64_t offset, uint64_t size);

/** Offset of the end of the last page that could not be read; 0: none so far. */
uint64_t arrow_window_unreadable_end(const struct arrow_window *w);

/** Number of bytes read so far. */
uint64_t arrow_window_bytes_read(const struct arrow_window *w);

#endif /* ARROW_WINDOW_H */
