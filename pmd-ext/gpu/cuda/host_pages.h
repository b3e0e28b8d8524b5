/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Host memory that GPUs can access, counted by page.
 *
 * DPDK registers small blocks that share pages. CUDA locks whole pages and refuses to register a
 * page twice. CUDA is therefore given disjoint ranges of pages, each with a count of its blocks,
 * kept in one ordered tree per process. A range is registered for all GPUs (PORTABLE), regardless
 * of the device that requested it.
 */
#ifndef HOST_PAGES_H
#define HOST_PAGES_H

#include "cuda_device.h"

/**
 * Make a block accessible to a GPU at its host address. Pages that are already registered are
 * counted; the gaps between them are registered. Any thread; O(log n) per range in the block.
 *
 * @param ptr  block, of any alignment
 * @param size bytes, more than 0
 * @return 0, or an error that is logged and changes nothing:
 * - -EINVAL: the block wraps around the end of the address space
 * - -EEXIST: some of its pages were registered with CUDA by other code
 * - -ENOTSUP: host and GPU address of the memory differ
 * - cuda_errno() of cuMemHostRegister(), -ENOMEM
 */
int host_pages_get(const struct cuda_device *dev, void *ptr, size_t size);

/**
 * Undo one host_pages_get() of the same block. Pages that contain no other block are unregistered.
 *
 * @return 0, or cuda_errno() of a cuMemHostUnregister(); the block is released in any case
 */
int host_pages_put(const struct cuda_device *dev, void *ptr, size_t size);

#endif /* HOST_PAGES_H */
