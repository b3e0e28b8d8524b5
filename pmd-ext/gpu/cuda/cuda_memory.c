/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <rte_atomic.h>
#include <rte_common.h>
#include <rte_errno.h>
#include <rte_hash.h>
#include <rte_jhash.h>

#include "cuda_memory.h"
#include "gdrcopy.h"
#include "gpu_cuda.h"
#include "host_pages.h"

/* Maximum number of live pointers, as in gpu_host: 3 MiB of the EAL heap. */
#define GPU_CUDA_POINTERS_MAX (1u << 16)

enum gpu_cuda_kind {
	GPU_CUDA_ALLOCATED,
	GPU_CUDA_REGISTERED,
};

struct gpu_cuda_region {
	enum gpu_cuda_kind kind;
	size_t size;		/* requested bytes */
	CUdeviceptr_v2 base;	/* CUDA's allocation, at or below the returned pointer */
	struct gdrcopy_map map; /* live CPU mapping of an allocation */
};

struct gpu_cuda {
	struct cuda_device cuda;
	/* protects regions and their entries; GDRCopy may sleep while it is held */
	pthread_mutex_t lock;
	struct rte_hash *regions; /* returned pointer -> struct gpu_cuda_region */
	bool flush_refused;	  /* a flush was refused, and this was logged */
	CUstream copies;	  /* a stream that waits for no other stream */
};

/* Call with the lock held. */
static struct gpu_cuda_region *
region_find(struct gpu_cuda *gpu, const void *ptr, enum gpu_cuda_kind kind)
{
	struct gpu_cuda_region *region;
	void *data;

	if (rte_hash_lookup_data(gpu->regions, &ptr, &data) < 0)
		return NULL;
	region = data;
	return region->kind == kind ? region : NULL;
}

/* True if the memory is within an allocation. Call with the lock held. */
static bool
is_allocated(struct gpu_cuda *gpu, const void *ptr, size_t size)
{
	uint32_t next = 0;
	const void *key;
	void *data;

	while (rte_hash_iterate(gpu->regions, &key, &data, &next) >= 0) {
		const struct gpu_cuda_region *region = data;
		/* of memory below the region: larger than any size */
		const size_t at = (uintptr_t)ptr - *(const uintptr_t *)key;

		if (region->kind == GPU_CUDA_ALLOCATED && at < region->size)
			return size <= region->size - at;
	}
	return false;
}

/* Takes ownership of the region on success. */
static int
region_add(struct gpu_cuda *gpu, void *ptr, struct gpu_cuda_region *region)
{
	int ret;

	pthread_mutex_lock(&gpu->lock);
	if (rte_hash_lookup(gpu->regions, &ptr) >= 0)
		ret = -EEXIST;
	else
		ret = rte_hash_add_key_data(gpu->regions, &ptr, region);
	pthread_mutex_unlock(&gpu->lock);

	if (ret == -EEXIST)
		GPU_CUDA_LOG(ERR, "%s: %p is already allocated or registered", gpu->cuda.name, ptr);
	else if (ret == -ENOSPC)
		GPU_CUDA_LOG(ERR,
			"%s: cannot register %p: %u pointers are allocated or registered, the "
			"limit is %u",
			gpu->cuda.name, ptr, GPU_CUDA_POINTERS_MAX, GPU_CUDA_POINTERS_MAX);
	return ret == -ENOSPC ? -ENOMEM : ret;
}

/* Remove a region from the registry; the caller owns it. @return NULL if ptr is not of this kind */
static struct gpu_cuda_region *
region_take(struct gpu_cuda *gpu, const void *ptr, enum gpu_cuda_kind kind)
{
	struct gpu_cuda_region *region;

	pthread_mutex_lock(&gpu->lock);
	region = region_find(gpu, ptr, kind);
	if (region != NULL)
		rte_hash_del_key(gpu->regions, &ptr);
	pthread_mutex_unlock(&gpu->lock);
	return region;
}

/* Return the memory to CUDA, of either kind. A live CPU mapping is removed first. */
static int
region_end(struct gpu_cuda *gpu, void *ptr, struct gpu_cuda_region *region)
{
	struct cuda_device *cuda = &gpu->cuda;
	CUresult result;
	char call[64];
	int ret;

	if (region->kind == GPU_CUDA_REGISTERED) {
		ret = host_pages_put(cuda, ptr, region->size);
		goto free_region;
	}
	if (region->map.cpu != NULL)
		gdrcopy_unmap(cuda->name, &region->map);
	ret = cuda_device_enter(cuda);
	if (ret < 0)
		goto free_region;
	result = cuda->cuda->cuMemFree(region->base);
	if (result != CUDA_SUCCESS) {
		snprintf(call, sizeof(call), "cuMemFree(0x%llx)", region->base);
		ret = cuda_device_failed(cuda, call, result);
	}
	cuda_device_leave(cuda);

free_region:
	free(region);
	return ret;
}

static int
gpu_cuda_info_get(struct rte_gpu *dev, struct rte_gpu_info *info)
{
	*info = dev->mpshared->info;
	return 0;
}

/*
 * CUDA aligns large allocations to 2 MiB, and small ones to 512 bytes in blocks that they share.
 * Try the plain size first: only a misaligned allocation is repeated with padding. *ptr is the
 * aligned part, in whole GPU pages.
 */
static CUresult
alloc_aligned(const struct cuda_symbols *cuda, size_t len, size_t boundary, CUdeviceptr_v2 *base,
	CUdeviceptr_v2 *ptr)
{
	CUresult result;

	result = cuda->cuMemAlloc(base, len);
	if (result == CUDA_SUCCESS && *base % boundary != 0) {
		cuda->cuMemFree(*base);
		result = cuda->cuMemAlloc(base, len + boundary);
	}
	if (result == CUDA_SUCCESS)
		*ptr = RTE_ALIGN_CEIL(*base, (CUdeviceptr_v2)boundary);
	return result;
}

/*
 * Prepare memory for NICs. With SYNC_MEMOPS, CUDA's own synchronous copies to and from it are
 * complete when they return, so that no DMA can overtake them. The memory is zeroed, as in
 * gpu_host.
 */
static int
mem_prepare(const struct cuda_device *cuda, CUdeviceptr_v2 base, CUdeviceptr_v2 ptr, size_t len)
{
	const unsigned int on = 1;
	CUresult result;

	result = cuda->cuda->cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, base);
	if (result != CUDA_SUCCESS)
		return cuda_device_failed(cuda, "cuPointerSetAttribute(SYNC_MEMOPS)", result);
	result = cuda->cuda->cuMemsetD8(ptr, 0, len);
	if (result != CUDA_SUCCESS)
		return cuda_device_failed(cuda, "cuMemsetD8", result);
	return 0;
}

static int
gpu_cuda_mem_alloc(struct rte_gpu *dev, size_t size, unsigned int align, void **ptr)
{
	const size_t boundary = RTE_MAX((size_t)align, GPU_CUDA_PAGE);
	struct gpu_cuda *gpu = dev->process_private;
	struct gpu_cuda_region *region;
	CUdeviceptr_v2 device = 0;
	CUresult result;
	char call[64];
	size_t len;
	int ret;

	if (gpu == NULL)
		return -ENODEV;
	if (size > gpu->cuda.memory) {
		GPU_CUDA_LOG(ERR, "%s (%s %s): %zu bytes requested, the GPU has %zu",
			gpu->cuda.name, gpu->cuda.model, gpu->cuda.pci, size, gpu->cuda.memory);
		return -E2BIG;
	}
	region = calloc(1, sizeof(*region));
	if (region == NULL)
		return -ENOMEM;
	region->kind = GPU_CUDA_ALLOCATED;
	region->size = size;
	len = RTE_ALIGN_CEIL(size, GPU_CUDA_PAGE);
	ret = cuda_device_enter(&gpu->cuda);
	if (ret < 0)
		goto free_region;
	result = alloc_aligned(gpu->cuda.cuda, len, boundary, &region->base, &device);
	if (result != CUDA_SUCCESS) {
		snprintf(call, sizeof(call), "cuMemAlloc(%zu)", len);
		ret = cuda_device_failed(&gpu->cuda, call, result);
		goto leave;
	}
	ret = mem_prepare(&gpu->cuda, region->base, device, len);
	if (ret < 0)
		goto free_memory;
	ret = region_add(gpu, (void *)(uintptr_t)device, region);
	if (ret < 0)
		goto free_memory;
	cuda_device_leave(&gpu->cuda);
	*ptr = (void *)(uintptr_t)device;
	return 0;

free_memory:
	gpu->cuda.cuda->cuMemFree(region->base);
leave:
	cuda_device_leave(&gpu->cuda);
free_region:
	free(region);
	return ret;
}

static int
gpu_cuda_mem_free(struct rte_gpu *dev, void *ptr)
{
	struct gpu_cuda *gpu = dev->process_private;
	struct gpu_cuda_region *region;

	if (gpu == NULL)
		return -ENODEV;
	region = region_take(gpu, ptr, GPU_CUDA_ALLOCATED);
	return region == NULL ? -EINVAL : region_end(gpu, ptr, region);
}

static int
gpu_cuda_mem_register(struct rte_gpu *dev, size_t size, void *ptr)
{
	struct gpu_cuda *gpu = dev->process_private;
	struct gpu_cuda_region *region;
	int ret;

	if (gpu == NULL)
		return -ENODEV;
	region = calloc(1, sizeof(*region));
	if (region == NULL)
		return -ENOMEM;
	region->kind = GPU_CUDA_REGISTERED;
	region->size = size;
	ret = host_pages_get(&gpu->cuda, ptr, size);
	if (ret < 0)
		goto free_region;
	ret = region_add(gpu, ptr, region);
	if (ret < 0) {
		host_pages_put(&gpu->cuda, ptr, size);
		goto free_region;
	}
	return 0;

free_region:
	free(region);
	return ret;
}

static int
gpu_cuda_mem_unregister(struct rte_gpu *dev, void *ptr)
{
	struct gpu_cuda *gpu = dev->process_private;
	struct gpu_cuda_region *region;

	if (gpu == NULL)
		return -ENODEV;
	region = region_take(gpu, ptr, GPU_CUDA_REGISTERED);
	return region == NULL ? -EINVAL : region_end(gpu, ptr, region);
}

static int
gpu_cuda_mem_cpu_map(struct rte_gpu *dev, size_t size, void *ptr_in, void **ptr_out)
{
	struct gpu_cuda *gpu = dev->process_private;
	struct gpu_cuda_region *region;
	int ret = 0;

	if (gpu == NULL)
		return -ENODEV;
	pthread_mutex_lock(&gpu->lock);
	region = region_find(gpu, ptr_in, GPU_CUDA_ALLOCATED);
	if (region == NULL || size > region->size)
		ret = -EINVAL;
	else if (region->map.cpu == NULL)
		ret = gdrcopy_map(gpu->cuda.name, (uintptr_t)ptr_in, size, &region->map);
	else if (size > region->map.size)
		ret = -EBUSY; /* partly mapped; unmap it first */
	if (ret == 0)
		*ptr_out = region->map.cpu;
	pthread_mutex_unlock(&gpu->lock);
	return ret;
}

static int
gpu_cuda_mem_cpu_unmap(struct rte_gpu *dev, void *ptr)
{
	struct gpu_cuda *gpu = dev->process_private;
	struct gpu_cuda_region *region;
	int ret = -EINVAL;

	if (gpu == NULL)
		return -ENODEV;
	pthread_mutex_lock(&gpu->lock);
	/* rte_gpu_comm_destroy_list() distinguishes mapped from registered memory by this error */
	region = region_find(gpu, ptr, GPU_CUDA_ALLOCATED);
	if (region != NULL && region->map.cpu != NULL)
		ret = gdrcopy_unmap(gpu->cuda.name, &region->map);
	pthread_mutex_unlock(&gpu->lock);
	return ret;
}

static int
gpu_cuda_wmb(struct rte_gpu *dev)
{
	struct gpu_cuda *gpu = dev->process_private;
	CUresult result;
	int ret;

	if (gpu == NULL)
		return -ENODEV;
	/* order the CPU's writes to registered memory or through a write-combining map */
	rte_wmb();
	if (!gpu->cuda.rdma || !gpu->cuda.rdma_unordered)
		return 0;
	if (!gpu->cuda.rdma_flush) {
		if (!__atomic_exchange_n(&gpu->flush_refused, true, __ATOMIC_RELAXED))
			GPU_CUDA_LOG(ERR,
				"%s (%s %s): the GPU neither orders nor flushes writes of other "
				"devices to its memory",
				gpu->cuda.name, gpu->cuda.model, gpu->cuda.pci);
		return -ENOTSUP;
	}
	ret = cuda_device_enter(&gpu->cuda);
	if (ret < 0)
		return ret;
	result = gpu->cuda.cuda->cuFlushGPUDirectRDMAWrites(
		CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
		CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
	cuda_device_leave(&gpu->cuda);
	if (result != CUDA_SUCCESS)
		return cuda_device_failed(&gpu->cuda, "cuFlushGPUDirectRDMAWrites", result);
	return 0;
}

static void
stream_destroy(struct gpu_cuda *gpu)
{
	const struct cuda_symbols *cuda = gpu->cuda.cuda;

	/* during process exit, CUDA and its streams may be destroyed before the devices */
	if (cuda->cuCtxPushCurrent(gpu->cuda.context) != CUDA_SUCCESS)
		return;
	cuda->cuStreamDestroy(gpu->copies);
	cuda_device_leave(&gpu->cuda);
}

/* Frees what the program has not freed: the primary context may stay in use in this process. */
int
gpu_cuda_close(struct rte_gpu *dev)
{
	struct gpu_cuda *gpu = dev->process_private;
	unsigned int allocated = 0, registered = 0;
	uint32_t next = 0;
	size_t bytes = 0;
	const void *key;
	void *data;

	if (gpu == NULL)
		return 0;
	while (rte_hash_iterate(gpu->regions, &key, &data, &next) >= 0) {
		struct gpu_cuda_region *region = data;

		if (region->kind == GPU_CUDA_ALLOCATED) {
			allocated++;
			bytes += region->size;
		} else {
			registered++;
		}
		region_end(gpu, *(void *const *)key, region);
	}
	if (allocated + registered != 0)
		GPU_CUDA_LOG(WARNING,
			"%s: closed with %u allocations (%zu bytes) not freed and %u "
			"registrations not removed",
			gpu->cuda.name, allocated, bytes, registered);
	rte_hash_free(gpu->regions);
	stream_destroy(gpu);
	cuda_device_close(&gpu->cuda);
	pthread_mutex_destroy(&gpu->lock);
	free(gpu);
	dev->process_private = NULL;
	return 0;
}

const struct rte_gpu_ops gpu_cuda_ops = {
	.dev_info_get = gpu_cuda_info_get,
	.dev_close = gpu_cuda_close,
	.mem_alloc = gpu_cuda_mem_alloc,
	.mem_free = gpu_cuda_mem_free,
	.mem_register = gpu_cuda_mem_register,
	.mem_unregister = gpu_cuda_mem_unregister,
	.mem_cpu_map = gpu_cuda_mem_cpu_map,
	.mem_cpu_unmap = gpu_cuda_mem_cpu_unmap,
	.wmb = gpu_cuda_wmb,
};

static struct gpu_cuda *
gpu_cuda_of(int16_t dev_id)
{
	struct rte_gpu_info info;
	struct rte_gpu *dev;

	if (!rte_gpu_is_valid(dev_id) || rte_gpu_info_get(dev_id, &info) < 0)
		return NULL;
	dev = rte_gpu_get_by_name(info.name);
	if (dev == NULL || dev->ops.dev_close != gpu_cuda_close)
		return NULL;
	return dev->process_private;
}

/* Call with the device's lock held, so that the memory is not freed meanwhile. */
static int
dmabuf_export(struct gpu_cuda *gpu, const void *ptr, size_t size, int *fd, uint64_t *offset)
{
	/* allocations start at a GPU page */
	const uintptr_t start = RTE_ALIGN_FLOOR((uintptr_t)ptr, GPU_CUDA_PAGE);
	const struct cuda_device *cuda = &gpu->cuda;
	CUresult result;
	char call[96];
	int ret;

	if (size == 0 || !is_allocated(gpu, ptr, size))
		return -EINVAL;
	if (!cuda->dmabuf) {
		GPU_CUDA_LOG(ERR,
			"%s (%s %s): no dma-buf export (CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED is "
			"0)",
			cuda->name, cuda->model, cuda->pci);
		return -ENOTSUP;
	}
	*offset = (uintptr_t)ptr - start;
	size = RTE_ALIGN_CEIL(*offset + size, GPU_CUDA_PAGE);
	ret = cuda_device_enter(cuda);
	if (ret < 0)
		return ret;
	result = cuda->cuda->cuMemGetHandleForAddressRange(
		fd, start, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
	if (result != CUDA_SUCCESS) {
		snprintf(call, sizeof(call), "cuMemGetHandleForAddressRange(0x%" PRIxPTR ", %zu)",
			start, size);
		ret = cuda_device_failed(cuda, call, result);
	}
	cuda_device_leave(cuda);
	return ret;
}

__attribute__((visibility("default"))) int
gpu_cuda_dmabuf_export(int16_t dev_id, const void *ptr, size_t size, int *fd, uint64_t *offset)
{
	struct gpu_cuda *gpu = gpu_cuda_of(dev_id);
	int ret;

	if (gpu == NULL) {
		ret = -ENODEV;
	} else if (fd == NULL || offset == NULL) {
		ret = -EINVAL;
	} else {
		pthread_mutex_lock(&gpu->lock);
		ret = dmabuf_export(gpu, ptr, size, fd, offset);
		pthread_mutex_unlock(&gpu->lock);
	}
	if (ret < 0)
		rte_errno = -ret;
	return ret;
}

static int
copy(const struct gpu_cuda *gpu, void *to, const void *from, size_t size)
{
	const struct cuda_device *cuda = &gpu->cuda;
	CUresult result;
	char call[96];
	int ret;

	ret = cuda_device_enter(cuda);
	if (ret < 0)
		return ret;
	result = cuda->cuda->cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, size, gpu->copies);
	if (result == CUDA_SUCCESS)
		result = cuda->cuda->cuStreamSynchronize(gpu->copies);
	if (result != CUDA_SUCCESS) {
		snprintf(call, sizeof(call), "cuMemcpyAsync(%p, %p, %zu)", to, from, size);
		ret = cuda_device_failed(cuda, call, result);
	}
	cuda_device_leave(cuda);
	return ret;
}

__attribute__((visibility("default"))) int
gpu_cuda_copy(int16_t dev_id, void *to, const void *from, size_t size)
{
	const struct gpu_cuda *gpu = gpu_cuda_of(dev_id);
	const int ret = gpu == NULL ? -ENODEV : copy(gpu, to, from, size);

	if (ret < 0)
		rte_errno = -ret;
	return ret;
}

static int
stream_create(struct gpu_cuda *gpu)
{
	CUresult result;
	int ret;

	ret = cuda_device_enter(&gpu->cuda);
	if (ret < 0)
		return ret;
	result = gpu->cuda.cuda->cuStreamCreate(&gpu->copies, CU_STREAM_NON_BLOCKING);
	if (result != CUDA_SUCCESS)
		ret = cuda_device_failed(&gpu->cuda, "cuStreamCreate", result);
	cuda_device_leave(&gpu->cuda);
	return ret;
}

static int
registry_create(struct gpu_cuda *gpu, int16_t dev_id)
{
	char name[RTE_HASH_NAMESIZE];
	struct rte_hash_parameters params = {
		.name = name,
		.entries = GPU_CUDA_POINTERS_MAX,
		.key_len = sizeof(void *),
		.hash_func = rte_jhash,
		.socket_id = SOCKET_ID_ANY,
		/* guarantees room for all entries, even if hashes of their addresses collide */
		.extra_flag = RTE_HASH_EXTRA_FLAGS_EXT_TABLE,
	};

	/* hash names are shared by all processes */
	snprintf(name, sizeof(name), "gpu_cuda%d_%d", dev_id, (int)getpid());
	gpu->regions = rte_hash_create(&params);
	if (gpu->regions == NULL) {
		GPU_CUDA_LOG(ERR,
			"%s: cannot allocate a registry of %u pointers in EAL memory: %s; give "
			"EAL more with -m",
			gpu->cuda.name, GPU_CUDA_POINTERS_MAX, rte_strerror(rte_errno));
		return -ENOMEM;
	}
	return 0;
}

struct gpu_cuda *
gpu_cuda_create(int16_t dev_id, const struct cuda_device *cuda)
{
	struct gpu_cuda *gpu;

	gpu = calloc(1, sizeof(*gpu));
	if (gpu == NULL)
		return NULL;
	gpu->cuda = *cuda;
	if (stream_create(gpu) < 0) {
		free(gpu);
		return NULL;
	}
	if (registry_create(gpu, dev_id) < 0) {
		stream_destroy(gpu);
		free(gpu);
		return NULL;
	}
	pthread_mutex_init(&gpu->lock, NULL);
	return gpu;
}

__attribute__((visibility("default"))) int
gpu_cuda_enter(int16_t dev_id)
{
	const struct gpu_cuda *gpu = gpu_cuda_of(dev_id);
	int ret = gpu != NULL ? cuda_device_enter(&gpu->cuda) : -ENODEV;

	if (ret < 0)
		rte_errno = -ret;
	return ret;
}

__attribute__((visibility("default"))) void
gpu_cuda_leave(int16_t dev_id)
{
	const struct gpu_cuda *gpu = gpu_cuda_of(dev_id);

	if (gpu != NULL)
		cuda_device_leave(&gpu->cuda);
}
