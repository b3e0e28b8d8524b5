/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Address space for transparent huge pages, aligned to them. A write from such memory has few
 * segments for the disk, and filling it takes few page faults. Any thread may call these functions.
 */
#ifndef HUGE_PAGES_H
#define HUGE_PAGES_H

#include <stddef.h>

#define HUGE_PAGE_SIZE ((size_t)2 << 20)

/** @return `size` rounded up to whole huge pages, bytes */
size_t huge_pages_round(size_t size);

/**
 * Map private memory at a multiple of HUGE_PAGE_SIZE. Pages are allocated on first use; small pages
 * are used if no huge page is available.
 * @param size  bytes, a multiple of HUGE_PAGE_SIZE
 * @return the memory, for munmap(2); NULL: errno of mmap(2)
 */
void *huge_pages_map(size_t size);

#endif /* HUGE_PAGES_H */
