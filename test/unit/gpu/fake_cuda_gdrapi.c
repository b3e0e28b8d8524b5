/* SPDX-License-Identifier: BSD-3-Clause */
/* libgdrapi.so.2 for the memory of the fake libcuda.so.1: a mapping has the same address. */
#include <errno.h>
#include <sched.h>

#include "fake_cuda.h"

struct gdr_mh {
	unsigned long h;
};

void *gdr_open(void);
int gdr_pin_buffer(void *gdr, unsigned long addr, size_t size, uint64_t token, uint32_t space,
	struct gdr_mh *handle);
int gdr_unpin_buffer(void *gdr, struct gdr_mh handle);
int gdr_map(void *gdr, struct gdr_mh handle, void **va, size_t size);
int gdr_unmap(void *gdr, struct gdr_mh handle, void *va, size_t size);

void
fake_gdrapi(void)
{
}

void *
gdr_open(void)
{
	return fake_cuda()->gdr_absent ? NULL : fake_cuda();
}

/* Begin and end of calls that change the list of handles of the real library. */
static void
enter(void)
{
	if (__atomic_fetch_add(&fake_cuda()->gdr_inside, 1, __ATOMIC_ACQ_REL) != 0)
		__atomic_fetch_add(&fake_cuda()->gdr_overlaps, 1, __ATOMIC_RELAXED);
	sched_yield();
}

static void
leave(void)
{
	__atomic_fetch_sub(&fake_cuda()->gdr_inside, 1, __ATOMIC_ACQ_REL);
}

int
gdr_pin_buffer(void *gdr, unsigned long addr, size_t size, uint64_t token, uint32_t space,
	struct gdr_mh *handle)
{
	/* whole GPU pages, so that a mapping starts at the beginning of the memory */
	if (addr % (64 << 10) != 0 || size % (64 << 10) != 0)
		return EINVAL;
	enter();
	handle->h = addr;
	fake_cuda()->pinned++;
	leave();
	return 0;
}

int
gdr_unpin_buffer(void *gdr, struct gdr_mh handle)
{
	enter();
	fake_cuda()->pinned--;
	leave();
	return 0;
}

int
gdr_map(void *gdr, struct gdr_mh handle, void **va, size_t size)
{
	if (fake_cuda()->gdr_map_error != 0)
		return fake_cuda()->gdr_map_error;
	enter();
	*va = (void *)handle.h;
	fake_cuda()->mapped++;
	leave();
	return 0;
}

int
gdr_unmap(void *gdr, struct gdr_mh handle, void *va, size_t size)
{
	if ((unsigned long)va != handle.h)
		return EINVAL;
	enter();
	fake_cuda()->mapped--;
	leave();
	return 0;
}
