/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The priority of threads that draw for viewers. They have the lowest priority, except while a
 * control thread waits for them. On Linux, setpriority(2) affects one thread, not the process.
 *
 * Errors are ignored, because without CAP_SYS_NICE the priority of a thread cannot be raised again.
 */
#ifndef THREAD_PRIORITY_H
#define THREAD_PRIORITY_H

#include <sys/resource.h>
#include <unistd.h>

#define THREAD_PRIORITY_LOWEST 19

/** Give a thread the lowest priority. @param tid  its gettid() */
static inline void
thread_priority_lower(pid_t tid)
{
	setpriority(PRIO_PROCESS, tid, THREAD_PRIORITY_LOWEST);
}

/** Give a thread the priority of the caller, which waits for it. */
static inline void
thread_priority_raise(pid_t tid)
{
	setpriority(PRIO_PROCESS, tid, getpriority(PRIO_PROCESS, gettid()));
}

#endif /* THREAD_PRIORITY_H */
