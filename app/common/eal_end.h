/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EAL_END_H
#define EAL_END_H

/**
 * @file
 * The end of a program that has begun EAL.
 */

/**
 * Instead of rte_eal_cleanup(), as the last thing that a program does with DPDK; in no callback.
 *
 * rte_eal_cleanup() removes devices, frees the alarms and unmaps EAL's memory while EAL's interrupt
 * thread goes on to look at all of them (DPDK 22.11): a driver that has used that thread shortly
 * before, as net_memif does when it connects or closes, has the program crash at its end. Here that
 * thread is held in a callback of ours first, and for good. If it can't be, as it is busy with a
 * driver, EAL is left as it is: the process ends anyway.
 */
void eal_end(void);

#endif
