/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * What gpu_host devices can do beyond rte_gpudev.
 *
 * A program that links the driver calls this directly. One that loads it with -d finds the symbols
 * in the loaded library: dlsym(dlopen("librte_gpu_host.so", RTLD_NOW | RTLD_NOLOAD), ...).
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
 *   - -ENODEV: no gpu_host device has this id
 *   - -EINVAL: a range that begins in the memory of a private device and ends beyond it
 */
int gpu_host_copy(int16_t dev_id, void *to, const void *from, size_t size);

/**
 * What plays the GPU's part finds the memory of a private device this far from its device address.
 * Constant for as long as the device is there. Any thread.
 *
 * @param offset 0 for a device that is not private
 * @return 0 or -ENODEV, also in rte_errno
 */
int gpu_host_view(int16_t dev_id, ptrdiff_t *offset);

#ifdef __cplusplus
}
#endif

#endif /* GPU_HOST_H */
