/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The memory operations of one gpu_cuda device, and its registry of live pointers.
 */
#ifndef CUDA_MEMORY_H
#define CUDA_MEMORY_H

#include <gpudev_driver.h>

#include "cuda_device.h"

/*
 * Page of NVIDIA's peer-to-peer interface (GPUDirect RDMA, "Pinning GPU memory"): what a NIC, a
 * dma-buf or GDRCopy reaches comes in these, so an allocation shares none with another.
 */
#define GPU_CUDA_PAGE ((size_t)64 << 10)

struct gpu_cuda;

/** The nine operations; they read process_private, a struct gpu_cuda, and refuse NULL. */
extern const struct rte_gpu_ops gpu_cuda_ops;

/**
 * @param dev_id of DPDK, for the name of the registry
 * @param cuda   an open device; taken over when this succeeds
 * @return what process_private points to, or NULL (logged): no memory
 */
struct gpu_cuda *gpu_cuda_create(int16_t dev_id, const struct cuda_device *cuda);

/** Give back all that the program left, with a warning that counts it, and close the device. */
int gpu_cuda_close(struct rte_gpu *dev);

#endif /* CUDA_MEMORY_H */
