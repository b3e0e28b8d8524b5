/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * CPU mappings of device memory by GDRCopy, if its library and kernel module are installed.
 */
#ifndef GDRCOPY_H
#define GDRCOPY_H

#include <stddef.h>

/** One mapping. */
struct gdrcopy_map {
	unsigned long handle; /**< gdr_mh_t */
	void *cpu;	      /**< NULL: not mapped */
	size_t size;	      /**< bytes, a multiple of GDRCOPY_PAGE */
};

/** Granularity of pinning: the page of NVIDIA's peer-to-peer interface (GPU_PAGE_SIZE). */
#define GDRCOPY_PAGE ((size_t)64 << 10)

/**
 * Map device memory. Any thread. Only the first failure to find GDRCopy is logged.
 *
 * @param who    name of the device, for log messages
 * @param device device pointer, aligned to GDRCOPY_PAGE
 * @param size   bytes; rounded up to GDRCOPY_PAGE, and the caller must own the rounded size
 * @param map    filled; zero it before
 * @return 0, -ENOTSUP without GDRCopy, -EIO if it refuses (logged with its error)
 */
int gdrcopy_map(const char *who, unsigned long device, size_t size, struct gdrcopy_map *map);

/** Undo gdrcopy_map(). @return 0, or -EIO (logged); the mapping is released in any case. */
int gdrcopy_unmap(const char *who, struct gdrcopy_map *map);

#endif /* GDRCOPY_H */
