/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpudev driver for NVIDIA GPUs, on top of the installed CUDA driver library.
 *
 * It is a vdev that selects a GPU by CUDA's identifiers. Containers, MIG instances and
 * CUDA_VISIBLE_DEVICES therefore work, there is no list of PCI device ids to maintain, and EAL may
 * run with --no-pci. The device works in the GPU's primary context, which it shares with the CUDA
 * runtime of the same process. The context is current only during a call.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include <bus_vdev_driver.h>
#include <gpudev_driver.h>
#include <rte_common.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_kvargs.h>

#include "cuda_memory.h"

RTE_LOG_REGISTER_SUFFIX(gpu_cuda_logtype, cuda, NOTICE);

#define GPU_CUDA_DEVICE_ARG "device"
#define GPU_CUDA_PCI_ARG    "pci"
#define GPU_CUDA_UUID_ARG   "uuid"

static const char *const gpu_cuda_args[] = {
	GPU_CUDA_DEVICE_ARG, GPU_CUDA_PCI_ARG, GPU_CUDA_UUID_ARG, NULL};

static int
parse_ordinal(const char *key, const char *value, void *opaque)
{
	struct cuda_choice *choice = opaque;
	char *end;
	long n;

	errno = 0;
	n = value == NULL ? -1 : strtol(value, &end, 10);
	if (value == NULL || *value == '\0' || *end != '\0' || errno != 0 || n < 0 || n > INT_MAX)
		return -EINVAL;
	choice->ordinal = (int)n;
	return 0;
}

/* kvlist owns the strings that the choice points to. */
static int
parse_args(struct rte_vdev_device *vdev, struct rte_kvargs **kvlist, struct cuda_choice *choice)
{
	const char *name = rte_vdev_device_name(vdev), *args = rte_vdev_device_args(vdev);
	unsigned int chosen;

	*kvlist = NULL;
	*choice = (struct cuda_choice){.ordinal = -1};
	if (args == NULL || *args == '\0')
		return 0;
	*kvlist = rte_kvargs_parse(args, gpu_cuda_args);
	if (*kvlist == NULL)
		goto refuse;
	if (rte_kvargs_process(*kvlist, GPU_CUDA_DEVICE_ARG, parse_ordinal, choice) < 0)
		goto refuse;
	choice->pci = rte_kvargs_get(*kvlist, GPU_CUDA_PCI_ARG);
	choice->uuid = rte_kvargs_get(*kvlist, GPU_CUDA_UUID_ARG);
	chosen = rte_kvargs_count(*kvlist, GPU_CUDA_DEVICE_ARG) +
		rte_kvargs_count(*kvlist, GPU_CUDA_PCI_ARG) +
		rte_kvargs_count(*kvlist, GPU_CUDA_UUID_ARG);
	if (chosen == 1)
		return 0;
refuse:
	rte_kvargs_free(*kvlist);
	*kvlist = NULL;
	GPU_CUDA_LOG(ERR,
		"%s: arguments \"%s\": expected one of device=<number>, "
		"pci=<domain:bus:device.function> and uuid=<identifier>",
		name, args);
	return -EINVAL;
}

static int
cuda_open(const char *name, const struct cuda_choice *choice, struct cuda_device *cuda)
{
	int ret;

	*cuda = (struct cuda_device){.name = name};
	ret = cuda_driver_load(name, &cuda->cuda);
	return ret < 0 ? ret : cuda_device_open(cuda, choice);
}

static const char *
rdma_text(const struct cuda_device *cuda)
{
	if (!cuda->rdma)
		return "no";
	if (!cuda->rdma_unordered)
		return "ordered";
	return cuda->rdma_flush ? "flushed" : "unordered";
}

static int
gpu_cuda_attach(struct rte_vdev_device *vdev, const struct cuda_device *cuda)
{
	struct rte_gpu_info *info;
	struct rte_gpu *dev;

	dev = rte_gpu_allocate(cuda->name);
	if (dev == NULL)
		return -rte_errno;
	info = &dev->mpshared->info;
	dev->process_private = gpu_cuda_create(info->dev_id, cuda);
	if (dev->process_private == NULL) {
		rte_gpu_release(dev);
		return -ENOMEM;
	}
	info->numa_node = (int16_t)cuda->numa_node;
	info->context = (uintptr_t)cuda->context;
	info->processor_count = (uint32_t)cuda->processors;
	info->total_memory = cuda->memory;
	info->page_size = GPU_CUDA_PAGE;
	dev->device = &vdev->device;
	dev->ops = gpu_cuda_ops;
	rte_gpu_complete_new(dev);
	GPU_CUDA_LOG(INFO, "%s: %s %s, %zu MiB, %d multiprocessors, NUMA node %d", cuda->name,
		cuda->model, cuda->pci, cuda->memory >> 20, cuda->processors, cuda->numa_node);
	GPU_CUDA_LOG(INFO, "%s: GPUDirect RDMA %s, dma-buf %s", cuda->name, rdma_text(cuda),
		cuda->dmabuf ? "yes" : "no");
	return 0;
}

static int
gpu_cuda_probe(struct rte_vdev_device *vdev)
{
	const char *name = rte_vdev_device_name(vdev);
	struct rte_kvargs *kvlist;
	struct cuda_choice choice;
	struct cuda_device cuda;
	int ret;

	if (rte_eal_process_type() != RTE_PROC_PRIMARY) {
		GPU_CUDA_LOG(NOTICE,
			"%s: not supported in a secondary process: CUDA contexts and device "
			"pointers belong to the process that created them",
			name);
		return -ENOTSUP;
	}
	ret = parse_args(vdev, &kvlist, &choice);
	if (ret < 0)
		return ret;
	ret = cuda_open(name, &choice, &cuda);
	rte_kvargs_free(kvlist);
	if (ret < 0)
		return ret;
	ret = gpu_cuda_attach(vdev, &cuda);
	if (ret < 0)
		cuda_device_close(&cuda);
	return ret;
}

static int
gpu_cuda_remove(struct rte_vdev_device *vdev)
{
	struct rte_gpu *dev;
	int ret;

	dev = rte_gpu_get_by_name(rte_vdev_device_name(vdev));
	if (dev == NULL)
		return 0; /* already closed */
	/* refused while child contexts exist; the slot keeps its contents until it is reused */
	ret = rte_gpu_release(dev);
	if (ret < 0)
		return ret;
	return gpu_cuda_close(dev);
}

static struct rte_vdev_driver gpu_cuda_driver = {
	.probe = gpu_cuda_probe,
	.remove = gpu_cuda_remove,
};

RTE_PMD_REGISTER_VDEV(gpu_cuda, gpu_cuda_driver);
RTE_PMD_REGISTER_PARAM_STRING(gpu_cuda,
	GPU_CUDA_DEVICE_ARG "=<int> " GPU_CUDA_PCI_ARG
			    "=<domain:bus:device.function> " GPU_CUDA_UUID_ARG "=<uuid>");
