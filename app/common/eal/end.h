/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EAL_END_H
#define EAL_END_H

#include <stdbool.h>

/**
 * @file
 * The end of a program that has begun EAL.
 */

/**
 * Have EAL's interrupt thread do nothing any more; before ports are stopped for good, in no
 * callback.
 *
 * A port of net_memif that is stopped just as its peer goes away is taken down by both threads, and
 * what it has is freed twice (DPDK 22.11). Here the thread is held in a callback of ours, between
 * two of drivers'. Links are not watched from now on.
 *
 * @return false: it was busy with a driver for seconds, and is not held
 */
bool eal_hold(void);

/**
 * Instead of rte_eal_cleanup(), as the last thing that a program does with DPDK; in no callback.
 *
 * rte_eal_cleanup() removes devices, frees the alarms and unmaps EAL's memory while EAL's interrupt
 * thread goes on to look at all of them (DPDK 22.11): a driver that has used that thread shortly
 * before, as net_memif does when it connects or closes, has the program crash at its end. So that
 * thread is held first. If it can't be, EAL is left as it is: the process ends anyway.
 */
void eal_end(void);

#endif
