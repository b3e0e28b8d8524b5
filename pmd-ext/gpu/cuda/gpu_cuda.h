/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Functions of gpu_cuda devices beyond rte_gpudev.
 *
 * A program that is linked with the driver calls them directly. A program that loads the driver
 * with -d finds the symbols in the loaded library:
 * dlsym(dlopen("librte_gpu_cuda.so", RTLD_NOW | RTLD_NOLOAD), ...).
 */
#ifndef GPU_CUDA_H
#define GPU_CUDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Export device memory as a dma-buf, for ibv_reg_dmabuf_mr() and other importers. A NIC can then
 * access the memory without nvidia_peermem.
 *
 * The memory may be a part of an allocation. The buffer consists of the GPU pages of 64 KiB that
 * contain it; all of them belong to the allocation, never to another one. Free the memory only
 * after the importer has released it. Any thread.
 *
 * @param dev_id a gpu_cuda device
 * @param ptr    memory of rte_gpu_mem_alloc()
 * @param size   bytes to export, within the allocated size
 * @param fd     out: file descriptor of the dma-buf; the caller closes it
 * @param offset out: bytes from the start of the dma-buf to @p ptr, less than 64 KiB
 * @return 0, otherwise a negative errno, also in rte_errno:
 * - -ENODEV: no gpu_cuda device has this id
 * - -EINVAL: not within a live allocation, size 0, or fd or offset is NULL
 * - -ENOTSUP: this GPU or its kernel driver does not support dma-buf export
 * - others: CUDA's error, logged
 */
int gpu_cuda_dmabuf_export(int16_t dev_id, const void *ptr, size_t size, int *fd, uint64_t *offset);

/**
 * Copy between any of the GPU's and the host's memory. The copy uses a stream of the driver that
 * waits for no kernel, so it works while a persistent kernel runs. The call returns when the copy
 * is complete. It waits for the bus, so do not use it in a datapath. Any thread.
 *
 * Registered host memory (rte_gpu_mem_register()) is copied at the speed of the bus, other memory
 * through CUDA's own buffers.
 *
 * @param dev_id a gpu_cuda device
 * @param to     device or host address
 * @param from   device or host address; the two do not overlap
 * @param size   bytes
 * @return 0, otherwise a negative errno, also in rte_errno:
 * - -ENODEV: no gpu_cuda device has this id
 * - others: CUDA's error, logged
 */
int gpu_cuda_copy(int16_t dev_id, void *to, const void *from, size_t size);

/**
 * Make the GPU's context current in the calling thread, for a library that requires it, such as
 * cuFile. gpu_cuda_leave() restores the previous context; the two nest.
 *
 * @param dev_id a gpu_cuda device
 * @return 0, otherwise a negative errno, also in rte_errno:
 * - -ENODEV: no gpu_cuda device has this id
 * - others: CUDA's error, logged
 */
int gpu_cuda_enter(int16_t dev_id);

/** Undo gpu_cuda_enter(), in the same thread. */
void gpu_cuda_leave(int16_t dev_id);

#ifdef __cplusplus
}
#endif

#endif /* GPU_CUDA_H */
