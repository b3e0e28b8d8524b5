/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * CPUs of threads that are no lcores: a thread inherits the CPU of the lcore that makes it, and
 * would take turns there with what polls.
 */
#ifndef PROCESS_CPUS_H
#define PROCESS_CPUS_H

/** Let this thread run where the process may, and no lcore does; anywhere, if lcores are. */
void process_cpus_take(void);

#endif /* PROCESS_CPUS_H */
