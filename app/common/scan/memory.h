/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Memory of batches and messages. Some freed buffers are kept and reused, because the first touch
 * of new pages takes longer than the copy into them, especially on virtual machines. A program that
 * knows its future need touches these pages in advance. Any thread.
 */
#ifndef SCAN_MEMORY_H
#define SCAN_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/** Freed buffers that are kept: number, and bytes of all: two of the largest batches. @{ */
#define SCAN_MEMORY_SPARES    24
#define SCAN_MEMORY_SPARE_MAX ((size_t)640 << 20)
/** @} */

/** @return at least `size` bytes, aligned to 64; NULL: out of memory */
void *scan_memory_get(size_t size);

/** @return usable size of a buffer */
size_t scan_memory_size(const void *data);

/** Free a buffer, which may be NULL. */
void scan_memory_put(void *data);

/**
 * Keep buffers for later calls of scan_memory_get(), whose pages scan_memory_touch() touches.
 * @param nb  buffers of `size` bytes, less those that are kept already and those without room
 */
void scan_memory_reserve(size_t size, unsigned int nb);

/** Touch the next few pages of buffers that are kept. @return false: all were touched */
bool scan_memory_touch(void);

/** Free all buffers that are kept. */
void scan_memory_trim(void);

#endif /* SCAN_MEMORY_H */
