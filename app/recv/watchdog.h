/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Notifies the service manager that the lcores poll: once when all of them have begun, and then at
 * the interval that its watchdog requires. If an lcore no longer returns from a poll, the
 * notifications stop, and the service manager restarts the receiver, which adopts the journal.
 *
 * A receiver that ends may have to wait for a slow disk, or for stores for [egress] end_ms. As long
 * as that makes progress, the service manager is asked to wait longer than it is configured to.
 *
 * A separate thread does this. The service thread may wait for a file system while a client's
 * command arms a run. The thread that sends messages waits while the service manager is busy.
 */
#ifndef WATCHDOG_H
#define WATCHDOG_H

#include <sched.h>
#include <stdint.h>

struct lcores;
struct watchdog;

/** The end of the process. */
struct watchdog_end {
	const int *signalled; /**< atomic; not 0: the process ends */
	/** any number that changes with the progress of the end; called by the thread */
	uint64_t (*progress)(void *arg);
	void *arg;
};

/**
 * Start the thread, if a service manager waits for messages.
 * @param cpus  CPUs of the thread
 * @param end   copied
 * @return NULL: no service manager waits, or the thread could not be started (logged)
 */
struct watchdog *watchdog_start(
	const struct lcores *lcores, const cpu_set_t *cpus, const struct watchdog_end *end);

/** Have the service manager show another line of status. @param w  NULL: no effect */
void watchdog_status(struct watchdog *w, const char *status);

/** Tell the service manager that the process ends, and end the thread. @param w  NULL: no effect */
void watchdog_stop(struct watchdog *w);

#endif /* WATCHDOG_H */
