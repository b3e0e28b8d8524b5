/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A thread that reads and checks the next batch while the thread of HDF5 writes images. It has one
 * task at a time. Without the thread, or while it is busy, a batch is read when it is needed.
 *
 * One thread calls all functions. Signals are blocked in the thread.
 */
#ifndef EXPORT_READ_AHEAD_H
#define EXPORT_READ_AHEAD_H

#include <pthread.h>
#include <stdbool.h>

/** Zero-initialized: no thread, which begins with the first task. */
struct read_ahead {
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
 * @param task  called by the thread; its result belongs to the caller after read_ahead_wait()
 * @return false: the thread is busy, or there is none
 */
bool read_ahead_start(struct read_ahead *a, void (*task)(void *arg), void *arg);

/** Wait until the task has ended. */
void read_ahead_wait(struct read_ahead *a);

/** Wait for the task, and end the thread. */
void read_ahead_close(struct read_ahead *a);

#endif /* EXPORT_READ_AHEAD_H */
