/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Host memory that GPUs may reach, counted by page.
 *
 * DPDK registers small blocks that share pages; CUDA locks whole pages and refuses a page twice.
 * So CUDA is given disjoint ranges of pages, each with a count of the blocks in it, kept in one
 * ordered tree per process: a range is registered for all GPUs (PORTABLE), whichever device asked.
 */
#ifndef HOST_PAGES_H
#define HOST_PAGES_H

#include "cuda_device.h"

/**
 * Make a block reachable for a GPU at its host address. Pages that are reachable already are
 * counted, the gaps between them registered. Any thread; O(log n) per range in the block.
 *
 * @param ptr  block, aligned to nothing
 * @param size bytes, more than 0
 * @return 0, or with a log line and nothing changed
 *   - -EINVAL: the block wraps around the end of memory
 *   - -EEXIST: some of its pages were registered with CUDA by someone else
 *   - -ENOTSUP: the GPU sees the memory at another address than the host
 *   - cuda_errno() of cuMemHostRegister(), -ENOMEM
 */
int host_pages_get(const struct cuda_device *dev, void *ptr, size_t size);

/**
 * Undo one host_pages_get() of the same block; pages that no block is left in are unregistered.
 *
 * @return 0, or cuda_errno() of a cuMemHostUnregister(); the block is given up in any case
 */
int host_pages_put(const struct cuda_device *dev, void *ptr, size_t size);

#endif /* HOST_PAGES_H */
