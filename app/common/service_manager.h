/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Messages to the service manager that has started this process: sd_notify(3) of libsystemd.
 * Without libsystemd, or if no service manager waits for messages (NOTIFY_SOCKET is not set), the
 * functions do nothing.
 *
 * Any thread may call these functions. They send a datagram, and wait while the service manager
 * does not read: a thread that must not wait must not call them.
 */
#ifndef SERVICE_MANAGER_H
#define SERVICE_MANAGER_H

#include <stdbool.h>
#include <stdint.h>

/** Return true if a service manager waits for messages. */
bool service_manager_waits(void);

/**
 * The interval within which service_manager_alive() must be called: half of WatchdogSec=.
 * @return microseconds; 0: there is no watchdog for this process
 */
uint64_t service_manager_interval_us(void);

/** The process does its work from now on (READY=1). */
void service_manager_ready(void);

/** Change the line that `systemctl status` shows. */
void service_manager_status(const char *status);

/** The process works as intended (WATCHDOG=1). */
void service_manager_alive(void);

/**
 * Call service_manager_alive() when it is due: at least once a second, and more often if the
 * interval demands it. For polling loops, in each turn.
 * @param next  in, out: time of the next call, kept by the loop; initially 0
 * @param now   milliseconds of any clock
 */
void service_manager_beat(uint64_t *next, uint64_t now);

/**
 * The process needs more time to end (EXTEND_TIMEOUT_USEC): after TimeoutStopSec= it is not killed
 * if another call, or its end, follows within this time.
 */
void service_manager_extend(uint64_t us);

/** The process has begun to end (STOPPING=1). The watchdog no longer applies. */
void service_manager_stopping(void);

#endif /* SERVICE_MANAGER_H */
