/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * One GPU: which it is, what it can do, and its primary context around every call.
 */
#ifndef CUDA_DEVICE_H
#define CUDA_DEVICE_H

#include <stdbool.h>

#include "cuda_driver.h"

/** How a GPU is chosen: exactly one of the three, or none for ordinal 0. */
struct cuda_choice {
	int ordinal;	  /**< among the visible GPUs, or -1 */
	const char *pci;  /**< DOMAIN:BUS:DEVICE.FUNCTION, or NULL */
	const char *uuid; /**< with or without GPU- or MIG-, or NULL */
};

/** A GPU, held by a reference on its primary context. */
struct cuda_device {
	const struct cuda_symbols *cuda;
	const char *name; /**< of the DPDK device, for messages */
	CUdevice_v1 device;
	CUcontext context; /**< primary */
	char model[64];	   /**< NVIDIA H200 */
	char pci[16];	   /**< 0000:3b:00.0 */
	int numa_node;	   /**< -1: unknown */
	int processors;
	size_t memory;	     /**< bytes */
	bool rdma;	     /**< devices of the bus may write to its memory */
	bool rdma_unordered; /**< ... and a kernel sees that only after a flush */
	bool rdma_flush;     /**< ... which the host can ask for */
	bool dmabuf;	     /**< its allocations can be exported as dma-buf */
};

/**
 * Find a GPU, ask it what it can do, and retain its primary context.
 *
 * @param dev    filled; name and cuda are set by the caller
 * @param choice which one
 * @return 0, -EINVAL for a malformed choice, -ENODEV when there is no such GPU, or cuda_errno()
 */
int cuda_device_open(struct cuda_device *dev, const struct cuda_choice *choice);

/** Give the primary context back; it ends with its last holder. */
void cuda_device_close(struct cuda_device *dev);

/**
 * Make the device's context current for this thread until cuda_device_leave(); they nest. What was
 * current before is current again after it. Any thread.
 *
 * @return 0 or cuda_errno(), with a log line; no cuda_device_leave() then
 */
int cuda_device_enter(const struct cuda_device *dev);

/** The counterpart of cuda_device_enter(), on the same thread. */
void cuda_device_leave(const struct cuda_device *dev);

/**
 * Report a CUDA call that failed: device, GPU, call, CUDA's name of the error and its text.
 *
 * @param call what was called, with its arguments as the reader knows them
 * @return cuda_errno(result)
 */
int cuda_device_failed(const struct cuda_device *dev, const char *call, CUresult result);

#endif /* CUDA_DEVICE_H */
