/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A thread that works with files, so that a polling lcore does not wait for a disk. It executes the
 * jobs that the lcore begins, one after another.
 */
#ifndef FILE_THREAD_H
#define FILE_THREAD_H

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdbool.h>

#include "mailbox.h"

#define FILE_JOBS 2 /**< maximum number of jobs of a thread */

struct file_job {
	struct mailbox mailbox; /**< from the lcore to the thread */
	/** executed by the thread. @return result of the job, not -EINPROGRESS */
	int (*work)(void *arg);
	/** from file_thread_begin() until file_thread_result() returns the result, of the thread */
	void *arg;
};

struct file_thread {
	struct file_job *job[FILE_JOBS]; /**< set before the thread starts */
	unsigned int nb_jobs;
	pthread_t thread;
	sem_t wake;
	bool started;
	bool end; /**< atomic */
};

/** Add a job. Before the thread starts. */
void file_thread_add(struct file_thread *t, struct file_job *job);

/** @return 0 or -errno of pthread_create(3) */
int file_thread_start(struct file_thread *t, const cpu_set_t *cpus);

/**
 * Begin a job that has no result outstanding. Without a thread, that is before
 * file_thread_start(), the caller executes it. The lcore only.
 */
void file_thread_begin(struct file_thread *t, struct file_job *job);

/** The lcore only. @return result of the job; -EINPROGRESS: there is none yet */
int file_thread_result(const struct file_job *job);

/** Wait until all jobs that were begun have results, and end the thread. */
void file_thread_stop(struct file_thread *t);

#endif /* FILE_THREAD_H */
