/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_gpudev.h>

#include "io/body_memory.h"
#include "gpu_cuda.h"
#include "gpu_host.h"
#include "io/huge_pages.h"
#include "rdma/rdma_pages.h"

#define GPU_PAGE (64ull << 10) /* granularity of CUDA's pinned memory and of BAR windows */

static int
alloc_host(uint64_t size, uint8_t **memory)
{
	enum rdma_pages_kind kind = RDMA_PAGES_HUGETLB;

	*memory = rdma_pages_map(&size, -1, &kind);
	if (*memory == NULL)
		return -ENOMEM;
	/* by this thread only: the CPUs of other lcores are busy */
	(void)rdma_pages_prefault(*memory, size, 1);
	return 0;
}

int
body_memory_alloc(int16_t gpu, uint64_t size, uint8_t **memory)
{
	size = huge_pages_round(size);
	if (gpu < 0)
		return alloc_host(size, memory);
	*memory = rte_gpu_mem_alloc(gpu, size, GPU_PAGE);
	return *memory != NULL ? 0 : -rte_errno;
}

void
body_memory_free(int16_t gpu, uint8_t *memory, uint64_t size)
{
	if (gpu < 0)
		rdma_pages_unmap(memory, huge_pages_round(size));
	else
		(void)rte_gpu_mem_free(gpu, memory);
}

int
body_memory_copy(int16_t gpu, void *to, const void *from, size_t size)
{
	int ret;

	if (gpu < 0) {
		memcpy(to, from, size);
		return 0;
	}
	/* gpudev has no copy function; the drivers have */
	ret = gpu_host_copy(gpu, to, from, size);
	return ret == -ENODEV ? gpu_cuda_copy(gpu, to, from, size) : ret;
}

int
body_memory_flush(int16_t gpu)
{
	return gpu >= 0 ? rte_gpu_wmb(gpu) : 0;
}

bool
body_memory_is_host(int16_t gpu)
{
	ptrdiff_t offset;

	return gpu < 0 || (gpu_host_view(gpu, &offset) == 0 && offset == 0);
}

int16_t
body_memory_gpu(const char *name)
{
	struct rte_gpu_info info;
	int16_t id;

	RTE_GPU_FOREACH(id)
	{
		if (rte_gpu_info_get(id, &info) < 0)
			continue;
		if (name != NULL ? strcmp(name, info.name) == 0 : !body_memory_is_host(id))
			return id;
	}
	return -1;
}

const char *
body_memory_name(int16_t gpu)
{
	static __thread struct rte_gpu_info info;

	return gpu < 0 || rte_gpu_info_get(gpu, &info) < 0 ? "host" : info.name;
}
