/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A run that a receiver has ended is closed to all peers for good: a file `.ended-INCARNATION` in
 * its directory says so, which is durable before the receiver hears ENDED.
 */
#ifndef STORE_ENDED_H
#define STORE_ENDED_H

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define STORE_ENDED ".ended-" /**< its name begins so */

/** Whether the run of a directory has ended. @return 0: no; 1: yes; -errno */
int store_ended_read(const char *dir, uint64_t incarnation);

/** Write that down. Blocks for a sync. @return 0; -errno */
int store_ended_write(const char *dir, uint64_t incarnation);

/** The same by a thread, as a disk may take long. */
struct store_ended {
	char dir[PATH_MAX];
	uint64_t incarnation;
	pthread_t thread;
	bool has_thread;
	bool begun;
	bool over; /**< atomic */
	int error; /**< 0 or -errno, once it is over */
};

void store_ended_begin(struct store_ended *e, const char *dir, uint64_t incarnation);

/** @return false: it goes on, or was not begun. true: once, `error` says how it went */
bool store_ended_end(struct store_ended *e);

#endif /* STORE_ENDED_H */
