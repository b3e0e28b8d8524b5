/* SPDX-License-Identifier: BSD-3-Clause */

#include <stdint.h>
#include <sys/mman.h>

#include "io/huge_pages.h"

size_t
huge_pages_round(size_t size)
{
	return (size + HUGE_PAGE_SIZE - 1) & ~(HUGE_PAGE_SIZE - 1);
}

void *
huge_pages_map(size_t size)
{
	size_t before;
	uint8_t *base;
	void *space;

	/*
	 * the address of mmap(2) is arbitrary: unmap the parts before the first boundary and after
	 * the end
	 */
	space = mmap(NULL, size + HUGE_PAGE_SIZE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (space == MAP_FAILED)
		return NULL;
	before = huge_pages_round((uintptr_t)space) - (uintptr_t)space;
	base = (uint8_t *)space + before;
	if (before > 0)
		(void)munmap(space, before);
	(void)munmap(base + size, HUGE_PAGE_SIZE - before);
	/* only a hint, so the result is ignored */
	(void)madvise(base, size, MADV_HUGEPAGE);
	return base;
}
