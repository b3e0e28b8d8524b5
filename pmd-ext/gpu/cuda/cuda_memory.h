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
 * Page of NVIDIA's peer-to-peer interface (GPUDirect RDMA, "Pinning GPU memory"). NICs, dma-bufs
 * and GDRCopy access memory in units of this page, so allocations never share one.
 */
#define GPU_CUDA_PAGE ((size_t)64 << 10)

struct gpu_cuda;

/**
 * The nine gpudev operations. They use process_private, a struct gpu_cuda, and fail if it is NULL.
 */
extern const struct rte_gpu_ops gpu_cuda_ops;

/**
 * @param dev_id DPDK's device id, for the name of the registry
 * @param cuda   an open device; owned by the result on success
 * @return value for process_private, or NULL (logged): no memory
 */
struct gpu_cuda *gpu_cuda_create(int16_t dev_id, const struct cuda_device *cuda);

/** Free everything that the program has not freed, log a warning with the count, and close the
 * device. */
int gpu_cuda_close(struct rte_gpu *dev);

#endif /* CUDA_MEMORY_H */
