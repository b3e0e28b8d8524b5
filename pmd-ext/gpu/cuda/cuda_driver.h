/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The CUDA driver library (libcuda), loaded when the first device is probed.
 */
#ifndef CUDA_DRIVER_H
#define CUDA_DRIVER_H

#include <rte_log.h>

#include "cuda_abi.h"

extern int gpu_cuda_logtype;

#define GPU_CUDA_LOG(level, fmt, ...) \
	rte_log(RTE_LOG_##level, gpu_cuda_logtype, "gpu_cuda: " fmt "\n", ##__VA_ARGS__)

/**
 * Load and initialise libcuda once per process. It stays loaded, because CUDA runs code at process
 * exit. Any thread. A failure is logged with its cause; later calls try again.
 *
 * @param who  name of the requesting device, for the log message
 * @param cuda where the symbols are stored; they stay valid
 * @return 0, or
 * - -ENODEV: no libcuda, or it finds no GPU
 * - -ENOTSUP: the driver is older than CUDA 12.0, or lacks a symbol
 * - cuda_errno() of cuInit()
 */
int cuda_driver_load(const char *who, const struct cuda_symbols **cuda);

/** @return the closest negative errno of a CUDA error; 0 for CUDA_SUCCESS. */
int cuda_errno(CUresult result);

/** @return the name of a CUDA error, "CUDA_ERROR_..."; never NULL. */
const char *cuda_error_name(const struct cuda_symbols *cuda, CUresult result);

/** @return CUDA's description of an error; never NULL. */
const char *cuda_error_text(const struct cuda_symbols *cuda, CUresult result);

#endif /* CUDA_DRIVER_H */
