/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Memory for bodies of batches: host memory, in huge pages if available, or GPU memory. Any thread
 * may call these functions.
 */
#ifndef BODY_MEMORY_H
#define BODY_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Allocate resident memory, aligned to 4096.
 * @param gpu   gpudev; -1: host memory
 * @param size  bytes, rounded up to whole pages
 * @return 0; -ENOMEM; -ENODEV
 */
int body_memory_alloc(int16_t gpu, uint64_t size, uint8_t **memory);

/** @param size  as passed to body_memory_alloc() */
void body_memory_free(int16_t gpu, uint8_t *memory, uint64_t size);

/** Copy within or between host and GPU memory. @return 0 or -errno */
int body_memory_copy(int16_t gpu, void *to, const void *from, size_t size);

/**
 * Make earlier writes of other devices to GPU memory visible to all later accesses.
 * @return 0; -errno: not done
 */
int body_memory_flush(int16_t gpu);

/**
 * Find a gpudev whose memory is not CPU memory.
 * @param name  name of the gpudev, whose memory may then also be CPU memory; NULL: the first one
 * @return gpudev; -1: none
 */
int16_t body_memory_gpu(const char *name);

/** Whether system calls can read and write memory of a gpudev. */
bool body_memory_is_host(int16_t gpu);

/** @return name of a gpudev for messages; `host` for -1 */
const char *body_memory_name(int16_t gpu);

#endif /* BODY_MEMORY_H */
