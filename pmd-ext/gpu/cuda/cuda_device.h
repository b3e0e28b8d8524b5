/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * One GPU: identity, capabilities, and its primary context for calls.
 */
#ifndef CUDA_DEVICE_H
#define CUDA_DEVICE_H

#include <stdbool.h>

#include "cuda_driver.h"

/** Selection of a GPU: exactly one of the three, or none for ordinal 0. */
struct cuda_choice {
	int ordinal;	  /**< index among the visible GPUs, or -1 */
	const char *pci;  /**< DOMAIN:BUS:DEVICE.FUNCTION, or NULL */
	const char *uuid; /**< with or without the prefix GPU- or MIG-, or NULL */
};

/** A GPU, with a reference on its primary context. */
struct cuda_device {
	const struct cuda_symbols *cuda;
	const char *name; /**< name of the DPDK device, for log messages */
	CUdevice_v1 device;
	CUcontext context; /**< primary context */
	char model[64];	   /**< for example NVIDIA H200 */
	char pci[16];	   /**< for example 0000:3b:00.0 */
	int numa_node;	   /**< -1: unknown */
	int processors;
	size_t memory;	     /**< bytes */
	bool rdma;	     /**< devices on the bus can write to its memory */
	bool rdma_unordered; /**< a kernel sees these writes only after a flush */
	bool rdma_flush;     /**< the host can request that flush */
	bool dmabuf;	     /**< allocations can be exported as dma-buf */
};

/**
 * Find a GPU, query its capabilities, and retain its primary context.
 *
 * @param dev    filled; name and cuda are set by the caller
 * @param choice which GPU
 * @return 0, -EINVAL for a malformed choice, -ENODEV if there is no such GPU, or cuda_errno()
 */
int cuda_device_open(struct cuda_device *dev, const struct cuda_choice *choice);

/** Release the primary context. CUDA destroys it with the last reference. */
void cuda_device_close(struct cuda_device *dev);

/**
 * Make the device's context current for this thread until cuda_device_leave(). Calls nest; the
 * previous context is restored. Any thread.
 *
 * @return 0, or cuda_errno() with a log message; then do not call cuda_device_leave()
 */
int cuda_device_enter(const struct cuda_device *dev);

/** The counterpart of cuda_device_enter(), in the same thread. */
void cuda_device_leave(const struct cuda_device *dev);

/**
 * Log a failed CUDA call: device, GPU, call, CUDA's name of the error and its text.
 *
 * @param call the call, with its arguments in readable form
 * @return cuda_errno(result)
 */
int cuda_device_failed(const struct cuda_device *dev, const char *call, CUresult result);

#endif /* CUDA_DEVICE_H */
