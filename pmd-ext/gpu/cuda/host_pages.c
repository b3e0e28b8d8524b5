/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <rte_common.h>

#include "host_pages.h"

/* One cuMemHostRegister(): pages [start, end). */
struct host_range {
	uintptr_t start;
	uintptr_t end;
	unsigned int blocks; /* number of blocks that are in it, wholly or in part */
	CUdevice_v1 device;  /* its primary context registered the range, and is retained for it */
	CUcontext context;
};

/* A tsearch() tree of disjoint ranges: ranges that overlap compare equal. */
static void *ranges;
static pthread_mutex_t ranges_lock = PTHREAD_MUTEX_INITIALIZER;

static int
range_compare(const void *a, const void *b)
{
	const struct host_range *left = a, *right = b;

	if (left->end <= right->start)
		return -1;
	return left->start >= right->end;
}

/* The lowest range that overlaps [start, end), or NULL. */
static struct host_range *
range_first(uintptr_t start, uintptr_t end)
{
	struct host_range wanted = {.start = start, .end = end}, *lowest = NULL;
	struct host_range **node;

	while (wanted.start < wanted.end &&
		(node = tfind(&wanted, &ranges, range_compare)) != NULL) {
		lowest = *node;
		wanted.end = lowest->start; /* look for a lower one */
	}
	return lowest;
}

/* Retained with a separate reference: a range may outlive the device that first asked for it. */
static int
context_hold(const struct cuda_device *dev, struct host_range *range)
{
	CUresult result = dev->cuda->cuDevicePrimaryCtxRetain(&range->context, dev->device);

	range->device = dev->device;
	return result == CUDA_SUCCESS ? 0
				      : cuda_device_failed(dev, "cuDevicePrimaryCtxRetain", result);
}

static int
range_unlock(const struct cuda_device *dev, const struct host_range *range)
{
	struct cuda_device owner = *dev;
	char call[80];
	CUresult result;
	int ret;

	owner.context = range->context;
	owner.device = range->device;
	ret = cuda_device_enter(&owner);
	if (ret == 0) {
		result = owner.cuda->cuMemHostUnregister((void *)range->start);
		if (result != CUDA_SUCCESS) {
			snprintf(call, sizeof(call), "cuMemHostUnregister(%p)",
				(void *)range->start);
			ret = cuda_device_failed(dev, call, result);
		}
		cuda_device_leave(&owner);
	}
	cuda_device_close(&owner);
	return ret;
}

static int
range_create(const struct cuda_device *dev, uintptr_t start, uintptr_t end)
{
	struct host_range *range;
	char call[96];
	CUresult result;
	int ret;

	range = calloc(1, sizeof(*range));
	if (range == NULL)
		return -ENOMEM;
	range->start = start;
	range->end = end;
	range->blocks = 1;
	ret = context_hold(dev, range);
	if (ret < 0)
		goto free_range;
	result = dev->cuda->cuMemHostRegister((void *)start, end - start,
		CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
	if (result != CUDA_SUCCESS) {
		snprintf(call, sizeof(call), "cuMemHostRegister(%p, %zu)", (void *)start,
			(size_t)(end - start));
		ret = cuda_device_failed(dev, call, result);
		dev->cuda->cuDevicePrimaryCtxRelease(range->device);
		goto free_range;
	}
	if (tsearch(range, &ranges, range_compare) == NULL) {
		range_unlock(dev, range);
		ret = -ENOMEM;
		goto free_range;
	}
	return 0;

free_range:
	free(range);
	return ret;
}

/* Remove one block from every range between start and end. */
static int
blocks_drop(const struct cuda_device *dev, uintptr_t start, uintptr_t end)
{
	struct host_range *range;
	int ret = 0, first = 0;

	while (start < end && (range = range_first(start, end)) != NULL) {
		start = range->end;
		if (--range->blocks > 0)
			continue;
		tdelete(range, &ranges, range_compare);
		ret = range_unlock(dev, range);
		if (first == 0)
			first = ret;
		free(range);
	}
	return first;
}

/* DPDK and the kernels use registered memory at one address: host and GPU address must be equal. */
static int
address_check(const struct cuda_device *dev, uintptr_t at)
{
	CUdeviceptr_v2 device = 0;
	CUresult result;
	char call[64];

	result = dev->cuda->cuMemHostGetDevicePointer(&device, (void *)at, 0);
	if (result != CUDA_SUCCESS) {
		snprintf(call, sizeof(call), "cuMemHostGetDevicePointer(%p)", (void *)at);
		return cuda_device_failed(dev, call, result);
	}
	if (device != at) {
		GPU_CUDA_LOG(ERR,
			"%s (%s %s): host memory at %p has address 0x%llx on the GPU, expected "
			"the same address",
			dev->name, dev->model, dev->pci, (void *)at, device);
		return -ENOTSUP;
	}
	return 0;
}

static int
page_bounds(const void *ptr, size_t size, uintptr_t *start, uintptr_t *end)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	if (size == 0 || (uintptr_t)ptr + size < size || (uintptr_t)ptr + size > UINTPTR_MAX - page)
		return -EINVAL;
	*start = RTE_ALIGN_FLOOR((uintptr_t)ptr, page);
	*end = RTE_ALIGN_CEIL((uintptr_t)ptr + size, page);
	return 0;
}

int
host_pages_get(const struct cuda_device *dev, void *ptr, size_t size)
{
	uintptr_t start, end, at, stop;
	struct host_range *range;
	int ret;

	ret = page_bounds(ptr, size, &start, &end);
	if (ret < 0) {
		GPU_CUDA_LOG(
			ERR, "%s: %zu bytes at %p are not a block of memory", dev->name, size, ptr);
		return ret;
	}
	ret = cuda_device_enter(dev);
	if (ret < 0)
		return ret;
	pthread_mutex_lock(&ranges_lock);
	for (at = start; at < end; at = stop) {
		range = range_first(at, end);
		if (range != NULL && range->start <= at) {
			range->blocks++;
			stop = range->end;
		} else {
			stop = range == NULL ? end : range->start;
			ret = range_create(dev, at, stop);
			if (ret < 0)
				break;
		}
		ret = address_check(dev, at);
		if (ret < 0) {
			at = stop;
			break;
		}
	}
	if (ret < 0)
		blocks_drop(dev, start, RTE_MIN(at, end));
	pthread_mutex_unlock(&ranges_lock);
	cuda_device_leave(dev);
	return ret;
}

int
host_pages_put(const struct cuda_device *dev, void *ptr, size_t size)
{
	uintptr_t start, end;
	int ret;

	ret = page_bounds(ptr, size, &start, &end);
	if (ret < 0)
		return ret;
	pthread_mutex_lock(&ranges_lock);
	ret = blocks_drop(dev, start, end);
	pthread_mutex_unlock(&ranges_lock);
	return ret;
}
