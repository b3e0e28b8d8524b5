/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * CPU affinity of threads that are not lcores. A new thread inherits the CPU of the lcore that
 * creates it, and would compete with the polling loop there.
 */
#ifndef PROCESS_CPUS_H
#define PROCESS_CPUS_H

#include <sched.h>

/**
 * Bind this thread to the CPUs that the process may use and that no lcore uses. If lcores use all
 * of them, bind it to all CPUs of the process.
 */
void process_cpus_take(void);

/** Get the CPUs that the process may use and that no lcore uses. @param others  out */
void process_cpus_others(cpu_set_t *others);

#endif /* PROCESS_CPUS_H */
