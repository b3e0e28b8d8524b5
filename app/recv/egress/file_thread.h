/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A thread that works with files, so that a polling lcore does not wait for a disk. It has one
 * job, which the lcore begins again and again. Each job has a thread of its own, so that no job
 * waits for the disk of another one.
 */
#ifndef FILE_THREAD_H
#define FILE_THREAD_H

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdbool.h>

#include "mailbox.h"

struct file_thread {
	/** executed by the thread. @return result of the job, not -EINPROGRESS */
	int (*work)(void *arg);
	/** from file_thread_begin() until file_thread_result() returns the result, of the thread */
	void *arg;
	struct mailbox mailbox; /**< from the lcore to the thread */
	pthread_t thread;
	sem_t wake;
	bool started;
	bool end; /**< atomic */
};

/**
 * Start the thread; `work` and `arg` are set.
 * @param name  of the thread, at most 15 bytes
 * @return 0 or -errno of pthread_create(3)
 */
int file_thread_start(struct file_thread *t, const char *name, const cpu_set_t *cpus);

/**
 * Begin the job, which has no result outstanding. Without a thread, that is before
 * file_thread_start(), the caller executes it. The lcore only.
 */
void file_thread_begin(struct file_thread *t);

/** The lcore only. @return result of the job; -EINPROGRESS: there is none yet */
int file_thread_result(const struct file_thread *t);

/**
 * Wait until a job that was begun has its result, and end the thread.
 * @param limit_s  longest wait; 0: no limit
 * @return false: the job has not ended. `t` and `arg` must stay allocated until the process ends
 */
bool file_thread_stop(struct file_thread *t, unsigned int limit_s);

#endif /* FILE_THREAD_H */
