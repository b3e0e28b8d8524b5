/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "arrow/crc32c.h"
#include "arrow/region.h"
#include "io/huge_pages.h"

/* fits into an L2 cache together with its source */
#define SLICE	   (64 * 1024)
#define PAGE	   4096
#define HUGE_LEAST (16 * HUGE_PAGE_SIZE) /* smaller regions use small pages */

static size_t
round_up(size_t n, size_t align)
{
	return (n + align - 1) & ~(align - 1);
}

int
batch_region_init(struct batch_region *r, size_t most)
{
	void *base;

	memset(r, 0, sizeof(*r));
	/* one more page: batch_region_finish() may append zeros to the last one */
	most = round_up(most, PAGE) + PAGE;
	if (most >= HUGE_LEAST) {
		most = huge_pages_round(most);
		base = huge_pages_map(most);
	} else {
		base = mmap(NULL, most, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	}
	if (base == NULL || base == MAP_FAILED)
		return -errno;
	r->base = base;
	r->reserved = most;
	return 0;
}

void
batch_region_free(struct batch_region *r)
{
	if (r->base != NULL)
		munmap(r->base, r->reserved);
	memset(r, 0, sizeof(*r));
}

uint8_t *
batch_region_grow(struct batch_region *r, size_t size)
{
	uint8_t *end = r->base + r->used;

	if (size > r->reserved - r->used)
		abort(); /* a wrong bound in the cutting rule; input cannot cause this */
	r->used += size;
	return end;
}

static void
sum_up(struct batch_region *r)
{
	r->crc = arrow_crc32c(r->crc, r->base + r->summed, r->used - r->summed);
	r->summed = r->used;
}

void
batch_region_shrink(struct batch_region *r, size_t unused)
{
	r->used -= unused;
	sum_up(r);
}

void
batch_region_append(struct batch_region *r, const void *data, size_t size)
{
	memcpy(batch_region_grow(r, size), data, size);
}

void
batch_region_append_large(struct batch_region *r, const void *data, size_t size)
{
	const uint8_t *from = data;
	size_t part;

	for (; size > 0; size -= part, from += part) {
		part = size < SLICE ? size : SLICE;
		batch_region_append(r, from, part);
		sum_up(r);
	}
}

size_t
batch_region_finish(struct batch_region *r, size_t before, size_t align)
{
	const size_t size = before + r->used, gap = round_up(size, align) - size;

	/* `used` is the length that readers see, without the zeros */
	memset(batch_region_grow(r, gap), 0, gap);
	sum_up(r);
	r->used -= gap;
	return r->used + gap;
}

void
batch_region_reset(struct batch_region *r)
{
	size_t keep;

	if (r->used > r->peak)
		r->peak = r->used;
	if (r->summed > r->committed)
		r->committed = r->summed;
	if (++r->batches == BATCH_REGION_WINDOW) {
		keep = huge_pages_round(r->peak);
		if (keep < r->committed) {
			(void)madvise(
				r->base + keep, round_up(r->committed, PAGE) - keep, MADV_DONTNEED);
			r->committed = keep;
		}
		r->batches = 0;
		r->peak = 0;
	}
	r->used = 0;
	r->summed = 0;
	r->crc = 0;
}
