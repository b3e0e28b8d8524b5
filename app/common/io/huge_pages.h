/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Address space that the kernel is to fill with transparent huge pages, from its first byte on: a
 * write of it is few segments for the disk, and few faults. Any thread.
 */
#ifndef HUGE_PAGES_H
#define HUGE_PAGES_H

#include <stddef.h>

#define HUGE_PAGE_SIZE ((size_t)2 << 20)

/** @return bytes that `size` takes in whole huge pages */
size_t huge_pages_round(size_t size);

/**
 * Map private memory at a multiple of HUGE_PAGE_SIZE. Pages are taken when they are touched first;
 * small ones where there are no others.
 * @param size  bytes, of whole huge pages
 * @return the memory, for munmap(2); NULL: errno of mmap(2)
 */
void *huge_pages_map(size_t size);

#endif /* HUGE_PAGES_H */
