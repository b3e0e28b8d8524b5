/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Notifies the service manager that the lcores of a process poll: once when all of them have begun,
 * and then at the interval that its watchdog requires. If an lcore no longer returns from a poll,
 * the notifications stop, and the service manager starts the process again.
 *
 * A process that ends may have to wait for a slow disk or for its peers. As long as that makes
 * progress, the service manager is asked to wait longer than it is configured to.
 *
 * A separate thread does this, because the others may wait for a file system. The thread waits
 * while the service manager does not read its messages.
 */
#ifndef WATCHDOG_H
#define WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>

struct watchdog;

struct watchdog_config {
	/** true: all lcores have polled since the last call that returned true; of the thread */
	bool (*works)(void *arg);
	/** any number that changes with the progress of the end; called by the thread */
	uint64_t (*progress)(void *arg);
	void *arg;
	const int *signalled; /**< atomic; not 0: the process ends */
};

/**
 * Start the thread, if a service manager waits for messages.
 * @param config  copied
 * @return NULL: no service manager waits, or the thread could not be started (logged)
 */
struct watchdog *watchdog_start(const struct watchdog_config *config);

/** Have the service manager show another line of status. @param w  NULL: no effect */
void watchdog_status(struct watchdog *w, const char *status);

/**
 * Tell the service manager that the process ends, for any reason. The lcores need not poll any
 * more: `works` is not called again. Requests for more time follow. @param w  NULL: no effect
 */
void watchdog_end(struct watchdog *w);

/** End the thread: what `progress` reads may be freed. @param w  NULL: no effect */
void watchdog_stop(struct watchdog *w);

#endif /* WATCHDOG_H */
