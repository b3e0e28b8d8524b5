/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Functions of gpu_host devices beyond rte_gpudev.
 *
 * A program that is linked with the driver calls them directly. A program that loads the driver
 * with -d finds the symbols in the loaded library:
 * dlsym(dlopen("librte_gpu_host.so", RTLD_NOW | RTLD_NOLOAD), ...).
 */
#ifndef GPU_HOST_H
#define GPU_HOST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Copy between any of the device's and the CPU's memory. Any thread.
 *
 * @param dev_id a gpu_host device
 * @param to     in an allocation of the device, or memory that the CPU can write
 * @param from   likewise; the two do not overlap
 * @param size   bytes
 * @return 0, otherwise a negative errno, also in rte_errno:
 * - -ENODEV: no gpu_host device has this id
 * - -EINVAL: a range starts in the memory of a private device and ends beyond it
 */
int gpu_host_copy(int16_t dev_id, void *to, const void *from, size_t size);

/**
 * Offset from a device address to its view, at which code that emulates the GPU accesses the memory
 * of a private device. Constant as long as the device exists. Any thread.
 *
 * @param offset 0 for a device that is not private
 * @return 0 or -ENODEV, also in rte_errno
 */
int gpu_host_view(int16_t dev_id, ptrdiff_t *offset);

#ifdef __cplusplus
}
#endif

#endif /* GPU_HOST_H */
