/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Memory that bodies of batches lie in: the host's, in huge pages where there are some, or a GPU's.
 * Any thread.
 */
#ifndef BODY_MEMORY_H
#define BODY_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * For a program without EAL: begin it with a GPU and nothing else, until eal_end().
 * @param device  as --vdev wants it: `gpu_cuda0,device=0`
 * @param gpu     out: gpudev
 * @return 0; -ENODEV: it is no GPU; -errno of EAL; what is wrong has been logged
 */
int body_memory_begin(const char *device, int16_t *gpu);

/**
 * Take memory that is resident, at a multiple of 4096.
 * @param gpu   gpudev; -1: the host's
 * @param size  bytes, rounded up to what pages need
 * @return 0 or -ENOMEM, -ENODEV
 */
int body_memory_alloc(int16_t gpu, uint64_t size, uint8_t **memory);

/** @param size  as it was asked for */
void body_memory_free(int16_t gpu, uint8_t *memory, uint64_t size);

/** Copy within or between both. @return 0 or -errno */
int body_memory_copy(int16_t gpu, void *to, const void *from, size_t size);

/**
 * What other devices have written into a GPU's memory before is there for all after this.
 * @return 0 or -errno: it is not
 */
int body_memory_flush(int16_t gpu);

/**
 * @return a gpudev whose memory is not the CPU's, or -1: the first one, or the one of that name.
 *   With `name`, also one whose memory is the CPU's
 */
int16_t body_memory_gpu(const char *name);

/** Whether system calls can read and write memory of a gpudev. */
bool body_memory_is_host(int16_t gpu);

/** @return name of a gpudev, for people; `host` for -1 */
const char *body_memory_name(int16_t gpu);

#endif /* BODY_MEMORY_H */
