/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EAL_END_H
#define EAL_END_H

#include <stdbool.h>

/**
 * @file
 * Safe end of a program that has initialized EAL.
 */

/**
 * Block EAL's interrupt thread permanently. Call this before ports are stopped at the end of the
 * program, and not from a callback.
 *
 * If a net_memif port is stopped while its peer disconnects, both the caller and the interrupt
 * thread release its resources, which are then freed twice (DPDK 22.11). This function blocks the
 * interrupt thread in a callback, so that no driver's callback can run. Link states are no longer
 * updated.
 *
 * @return false: the callback of a driver ran for longer than 2 s, and the thread is not blocked
 */
bool eal_block_interrupts(void);

/**
 * Replacement for rte_eal_cleanup(). Call this as the last DPDK function of the program, and not
 * from a callback.
 *
 * rte_eal_cleanup() removes devices, frees alarms and unmaps EAL's memory while EAL's interrupt
 * thread still uses them (DPDK 22.11). If a driver has used that thread shortly before, as
 * net_memif does when it connects or closes, the program crashes. This function therefore blocks
 * the thread first. If that fails, it does not clean up EAL, because the process ends anyway.
 */
void eal_end(void);

#endif
