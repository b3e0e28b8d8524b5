/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Marks runs that a receiver has ended. Such a run is closed to all peers permanently. The mark is
 * a file `.ended-INCARNATION` in the run's directory. It is made durable before ENDED is sent to
 * the receiver.
 */
#ifndef STORE_ENDED_H
#define STORE_ENDED_H

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define STORE_ENDED ".ended-" /**< prefix of the file's name */

/** Whether the run of a directory has ended. @return 0: no; 1: yes; -errno */
int store_ended_read(const char *dir, uint64_t incarnation);

/** Mark a run as ended. Blocks for a sync. @return 0; -errno */
int store_ended_write(const char *dir, uint64_t incarnation);

/** As store_ended_write(), in a thread, since the disk may be slow. */
struct store_ended {
	char dir[PATH_MAX];
	uint64_t incarnation;
	pthread_t thread;
	bool has_thread;
	bool begun;
	bool over; /**< atomic */
	int error; /**< 0 or -errno, valid once `over` is set */
};

void store_ended_begin(struct store_ended *e, const char *dir, uint64_t incarnation);

/**
 * @return true, once: the thread has finished, and `error` has its result; false: still running, or
 *   not started
 */
bool store_ended_end(struct store_ended *e);

#endif /* STORE_ENDED_H */
