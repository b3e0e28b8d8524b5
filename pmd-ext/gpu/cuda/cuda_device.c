/* SPDX-License-Identifier: BSD-3-Clause */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_common.h>

#include "cuda_device.h"

int
cuda_device_failed(const struct cuda_device *dev, const char *call, CUresult result)
{
	GPU_CUDA_LOG(ERR, "%s (%s %s): %s: %s (%s)", dev->name,
		dev->model[0] == '\0' ? "GPU" : dev->model, dev->pci, call,
		cuda_error_name(dev->cuda, result), cuda_error_text(dev->cuda, result));
	return cuda_errno(result);
}

int
cuda_device_enter(const struct cuda_device *dev)
{
	CUresult result = dev->cuda->cuCtxPushCurrent(dev->context);

	return result == CUDA_SUCCESS ? 0 : cuda_device_failed(dev, "cuCtxPushCurrent", result);
}

void
cuda_device_leave(const struct cuda_device *dev)
{
	CUcontext popped = NULL;
	CUresult result = dev->cuda->cuCtxPopCurrent(&popped);

	if (result != CUDA_SUCCESS)
		cuda_device_failed(dev, "cuCtxPopCurrent", result);
	else if (popped != dev->context)
		GPU_CUDA_LOG(ERR, "%s: context stack: popped %p, expected %p, the pushed one",
			dev->name, (void *)popped, (void *)dev->context);
}

/* Parse 32 hexadecimal digits with dashes at any place, after an optional GPU- or MIG-. */
static int
parse_uuid(const char *text, uint8_t bytes[16])
{
	unsigned int digits = 0;

	if (strncasecmp(text, "GPU-", 4) == 0 || strncasecmp(text, "MIG-", 4) == 0)
		text += 4;
	memset(bytes, 0, 16);
	for (; *text != '\0'; text++) {
		int c = tolower((unsigned char)*text);

		if (c == '-')
			continue;
		if (!isxdigit(c) || digits == 32)
			return -EINVAL;
		bytes[digits / 2] =
			(uint8_t)(bytes[digits / 2] << 4 | (c <= '9' ? c - '0' : c - 'a' + 10));
		digits++;
	}
	return digits == 32 ? 0 : -EINVAL;
}

static int
find_by_uuid(struct cuda_device *dev, const char *text, int count)
{
	uint8_t bytes[16];
	CUuuid uuid;

	if (parse_uuid(text, bytes) < 0) {
		GPU_CUDA_LOG(ERR, "%s: uuid=%s: expected 32 hexadecimal digits", dev->name, text);
		return -EINVAL;
	}
	for (int ordinal = 0; ordinal < count; ordinal++) {
		CUresult result = dev->cuda->cuDeviceGet(&dev->device, ordinal);

		if (result != CUDA_SUCCESS)
			return cuda_device_failed(dev, "cuDeviceGet", result);
		if (dev->cuda->cuDeviceGetUuid(&uuid, dev->device) == CUDA_SUCCESS &&
			memcmp(uuid.bytes, bytes, sizeof(bytes)) == 0)
			return 0;
	}
	GPU_CUDA_LOG(ERR, "%s: uuid=%s: not one of the %d visible GPUs", dev->name, text, count);
	return -ENODEV;
}

static int
find(struct cuda_device *dev, const struct cuda_choice *choice)
{
	int ordinal = RTE_MAX(choice->ordinal, 0), count = 0;
	CUresult result;

	result = dev->cuda->cuDeviceGetCount(&count);
	if (result != CUDA_SUCCESS)
		return cuda_device_failed(dev, "cuDeviceGetCount", result);
	if (choice->uuid != NULL)
		return find_by_uuid(dev, choice->uuid, count);
	if (choice->pci != NULL) {
		result = dev->cuda->cuDeviceGetByPCIBusId(&dev->device, choice->pci);
		if (result == CUDA_SUCCESS)
			return 0;
		GPU_CUDA_LOG(ERR, "%s: pci=%s: not one of the %d visible GPUs: %s", dev->name,
			choice->pci, count, cuda_error_name(dev->cuda, result));
		return -ENODEV;
	}
	if (ordinal >= count) {
		GPU_CUDA_LOG(
			ERR, "%s: device=%d: only %d GPUs are visible", dev->name, ordinal, count);
		return -ENODEV;
	}
	result = dev->cuda->cuDeviceGet(&dev->device, ordinal);
	return result == CUDA_SUCCESS ? 0 : cuda_device_failed(dev, "cuDeviceGet", result);
}

/* From sysfs, as for any device on the bus: CUDA 12.0 does not have the attribute. */
static int
numa_node(const char *pci)
{
	char path[64];
	int node = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", pci);
	file = fopen(path, "r");
	if (file == NULL)
		return -1;
	if (fscanf(file, "%d", &node) != 1)
		node = -1;
	fclose(file);
	return node;
}

/* @return 0 if the GPU does not know the attribute */
static int
attribute(const struct cuda_device *dev, CUdevice_attribute which)
{
	int value = 0;

	if (dev->cuda->cuDeviceGetAttribute(&value, which, dev->device) != CUDA_SUCCESS)
		return 0;
	return value;
}

static int
describe(struct cuda_device *dev)
{
	CUresult result;

	result = dev->cuda->cuDeviceGetName(dev->model, sizeof(dev->model), dev->device);
	if (result != CUDA_SUCCESS)
		return cuda_device_failed(dev, "cuDeviceGetName", result);
	result = dev->cuda->cuDeviceGetPCIBusId(dev->pci, sizeof(dev->pci), dev->device);
	if (result != CUDA_SUCCESS)
		return cuda_device_failed(dev, "cuDeviceGetPCIBusId", result);
	for (char *c = dev->pci; *c != '\0'; c++)
		*c = (char)tolower((unsigned char)*c); /* as in sysfs */
	result = dev->cuda->cuDeviceTotalMem(&dev->memory, dev->device);
	if (result != CUDA_SUCCESS)
		return cuda_device_failed(dev, "cuDeviceTotalMem", result);

	dev->numa_node = numa_node(dev->pci);
	dev->processors = attribute(dev, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
	dev->rdma = attribute(dev, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED) != 0;
	dev->rdma_unordered = attribute(dev, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) ==
		CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE;
	dev->rdma_flush = attribute(dev, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS) &
		CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST;
	dev->dmabuf = attribute(dev, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) != 0;
	return 0;
}

int
cuda_device_open(struct cuda_device *dev, const struct cuda_choice *choice)
{
	CUresult result;
	int ret;

	ret = find(dev, choice);
	if (ret < 0)
		return ret;
	ret = describe(dev);
	if (ret < 0)
		return ret;
	result = dev->cuda->cuDevicePrimaryCtxRetain(&dev->context, dev->device);
	if (result != CUDA_SUCCESS)
		return cuda_device_failed(dev, "cuDevicePrimaryCtxRetain", result);
	return 0;
}

void
cuda_device_close(struct cuda_device *dev)
{
	CUresult result = dev->cuda->cuDevicePrimaryCtxRelease(dev->device);

	/* during process exit, CUDA may be deinitialised before its devices are closed */
	if (result != CUDA_SUCCESS && result != CUDA_ERROR_DEINITIALIZED)
		cuda_device_failed(dev, "cuDevicePrimaryCtxRelease", result);
}
