/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_common.h>

#include "host_memory.h"

/* Below this size a huge page would be mostly unused. */
#define HUGE_PAGE ((size_t)2 << 20)

/* Address range of a private device, without memory. A range of the same size follows for the
 * views. */
#define PRIVATE_BYTES ((size_t)1 << 40)

static size_t
page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

int
host_memory_init(struct host_memory *m, bool is_private)
{
	void *addresses;

	*m = (struct host_memory){0};
	if (!is_private)
		return 0;
	addresses = mmap(NULL, 2 * PRIVATE_BYTES, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (addresses == MAP_FAILED)
		return -ENOMEM;
	m->device = addresses;
	return 0;
}

void
host_memory_fini(struct host_memory *m)
{
	if (m->device != NULL)
		munmap(m->device, 2 * PRIVATE_BYTES);
	m->device = NULL;
}

/* Prefer a NUMA node: if the node is full, memory comes from another one. */
static void
prefer_node(void *base, size_t len, int node)
{
	unsigned long mask[16] = {0};
	const unsigned int bits = 8 * sizeof(mask[0]);

	if (node < 0 || (unsigned int)node >= RTE_DIM(mask) * bits)
		return;
	mask[node / bits] = 1ul << (node % bits);
	syscall(SYS_mbind, base, len, MPOL_PREFERRED, mask, sizeof(mask) * 8, 0);
}

/*
 * Populate device memory before it is returned. A page fault in the datapath would cost a system
 * call, and lack of memory would raise a signal there.
 */
static int
populate(uint8_t *base, size_t len)
{
#ifdef MADV_POPULATE_WRITE
	if (madvise(base, len, MADV_POPULATE_WRITE) == 0)
		return 0;
	if (errno != EINVAL) /* EINVAL: kernel before 5.14 */
		return -ENOMEM;
#endif
	for (size_t at = 0; at < len; at += page_size())
		((volatile uint8_t *)base)[at] = 0;
	return 0;
}

/* Choose the address of a mapping. Private devices never reuse an address. @return NULL: any
 * address; MAP_FAILED: no address is left */
static void *
choose_base(struct host_memory *m, size_t bytes)
{
	size_t at;

	if (m->device == NULL)
		return NULL;
	at = __atomic_fetch_add(&m->used, bytes, __ATOMIC_RELAXED);
	return at + bytes > PRIVATE_BYTES ? MAP_FAILED : m->device + PRIVATE_BYTES + at;
}

void *
host_memory_map(
	struct host_memory *m, size_t size, size_t boundary, int node, struct host_block *block)
{
	const size_t len = RTE_ALIGN_CEIL(size, page_size());
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	uint8_t *view;
	void *base;

	if (size >= HUGE_PAGE)
		boundary = RTE_MAX(boundary, HUGE_PAGE);
	/* mmap aligns to pages only: map more and return the aligned part */
	block->bytes = len + boundary - page_size();
	base = choose_base(m, block->bytes);
	if (base == MAP_FAILED)
		return NULL;
	flags |= base != NULL ? MAP_FIXED : 0;
	block->base = mmap(base, block->bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (block->base == MAP_FAILED)
		return NULL;
	view = RTE_PTR_ALIGN_CEIL((uint8_t *)block->base, boundary);
	prefer_node(view, len, node);
	if (size >= HUGE_PAGE)
		madvise(view, len, MADV_HUGEPAGE); /* a hint: if it fails, small pages are used */
	if (populate(view, len) < 0) {
		host_memory_unmap(m, block);
		return NULL;
	}
	return view - host_memory_offset(m);
}

void
host_memory_unmap(struct host_memory *m, const struct host_block *block)
{
	if (m->device == NULL)
		munmap(block->base, block->bytes);
	else /* the address range stays reserved */
		mmap(block->base, block->bytes, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

ptrdiff_t
host_memory_offset(const struct host_memory *m)
{
	return m->device != NULL ? (ptrdiff_t)PRIVATE_BYTES : 0;
}

void *
host_memory_view(const struct host_memory *m, const void *address, size_t size)
{
	const uintptr_t at = (uintptr_t)address, first = (uintptr_t)m->device;
	const uintptr_t end = first + PRIVATE_BYTES;

	if (m->device == NULL || at >= end || at + size <= first)
		return (void *)at;
	return at < first || size > end - at ? NULL : (uint8_t *)at + PRIVATE_BYTES;
}
