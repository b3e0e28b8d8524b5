/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Device memory mapped for the CPU by GDRCopy, where its library and kernel module are installed.
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
 * Map device memory. Any thread. The first failure to find GDRCopy is logged, later ones are not.
 *
 * @param who    name of the device, for messages
 * @param device device pointer, aligned to GDRCOPY_PAGE
 * @param size   bytes; rounded up to GDRCOPY_PAGE, which must still be the caller's memory
 * @param map    filled; zero it before
 * @return 0, -ENOTSUP without GDRCopy, -EIO when it refuses (logged with its error)
 */
int gdrcopy_map(const char *who, unsigned long device, size_t size, struct gdrcopy_map *map);

/** Undo gdrcopy_map(). @return 0, or -EIO (logged); the mapping is given up in any case. */
int gdrcopy_unmap(const char *who, struct gdrcopy_map *map);

#endif /* GDRCOPY_H */
