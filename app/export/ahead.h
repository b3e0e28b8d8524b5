/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A thread that reads and checks the next batch while the thread of HDF5 writes images. It has one
 * task at a time. Without the thread, or while it is busy, a batch is read when it is needed.
 *
 * One thread calls all functions. Signals are blocked in the thread.
 */
#ifndef EXPORT_AHEAD_H
#define EXPORT_AHEAD_H

#include <pthread.h>
#include <stdbool.h>

/** Zero-initialized: no thread, which begins with the first task. */
struct ahead {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool has_thread;
	/** with the lock @{ */
	void (*task)(void *arg); /**< NULL: none */
	void *arg;
	bool stop;
	/** @} */
};

/**
 * Begin a task.
 * @param task  called by the thread; its result belongs to the caller after ahead_wait()
 * @return false: the thread is busy, or there is none
 */
bool ahead_start(struct ahead *a, void (*task)(void *arg), void *arg);

/** Wait until the task has ended. */
void ahead_wait(struct ahead *a);

/** Wait for the task, and end the thread. */
void ahead_close(struct ahead *a);

#endif /* EXPORT_AHEAD_H */
