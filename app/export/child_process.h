/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Reading of HDF5 files that anyone may have written. The library is known to crash, to use much
 * memory, or to loop for some damaged files, so a child process reads: its end is an error of the
 * file, and not the end of the program. It loads no plug-ins of filters.
 */
#ifndef EXPORT_CHILD_PROCESS_H
#define EXPORT_CHILD_PROCESS_H

#include <stddef.h>

#define CHILD_PROCESS_SECONDS 60		  /**< CPU time */
#define CHILD_PROCESS_BYTES   (UINT64_C(8) << 30) /**< address space beyond that of the program */

/**
 * Call a function in a child process.
 * @param state  in, out: all that the function changes; copied back if it returned
 * @return 0; -EFAULT: the child has ended early; -ENOMEM, -errno: there is none
 */
int child_process_call(void (*call)(void *state), void *state, size_t size);

#endif /* EXPORT_CHILD_PROCESS_H */
