/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Notifies the service manager that the lcores poll: once when all of them have begun, and then at
 * the interval that its watchdog requires. If an lcore no longer returns from a poll, the
 * notifications stop, and the service manager restarts the receiver, which adopts the journal.
 *
 * A separate thread does this. The service thread may wait for a file system while a client's
 * command arms a run. The thread that sends messages waits while the service manager is busy.
 */
#ifndef WATCHDOG_H
#define WATCHDOG_H

#include <sched.h>

struct lcores;
struct watchdog;

/**
 * Start the thread, if a service manager waits for messages.
 * @param cpus  CPUs of the thread
 * @return NULL: no service manager waits, or the thread could not be started (logged)
 */
struct watchdog *watchdog_start(const struct lcores *lcores, const cpu_set_t *cpus);

/** Have the service manager show another line of status. @param w  NULL: no effect */
void watchdog_status(struct watchdog *w, const char *status);

/** Tell the service manager that the process ends, and end the thread. @param w  NULL: no effect */
void watchdog_stop(struct watchdog *w);

#endif /* WATCHDOG_H */
