/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_TOOL_SESSION_H
#define RDMA_TOOL_SESSION_H

/**
 * @file
 * One device, polled by one lcore. The protocols of the peer programs are implemented as sequential
 * code: functions that wait call session_poll() until the expected event has occurred.
 */

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "rdma.h"

#define SESSION_REQUESTS_MAX 64 /**< connection requests not yet handled */

struct session {
	struct rdma_dev *dev;
	struct rdma_dev_info info;
	struct rdma_pd *pd;
	struct rdma_event requests[SESSION_REQUESTS_MAX];
	unsigned int first, nb_requests;
	unsigned int idle; /**< consecutive iterations without work */
	bool sleepy;	   /**< sleep when idle: trades latency for CPU time of other processes */
	uint32_t wait_ms;  /**< time to retry while there is no listener */
	bool removed;	   /**< the device was removed */
	/**
	 * For a mode without endpoints: handles events of connections. @return true: it was handled
	 */
	bool (*on_event)(void *arg, const struct rdma_event *event);
	void *on_event_arg;
};

/** Set by SIGINT and SIGTERM; session_poll() then returns -EINTR. */
extern volatile sig_atomic_t session_stop;

/** @return 0; negative errno, printed to stderr */
int session_open(struct session *s, const char *device);

/** Print the device's counters that are not 0. */
void session_print_stats(const struct session *s);

void session_close(struct session *s);

/** A deadline for session_poll(), `ms` from now; 0: never. */
uint64_t session_deadline(unsigned int ms);

/**
 * Poll the device once.
 * @return 0; -EINTR, -ETIMEDOUT, -ENODEV: stop waiting
 */
int session_poll(struct session *s, uint64_t deadline);

/** Poll for a time, even after a signal, so that pending frames are sent. */
void session_linger(struct session *s, unsigned int ms);

/** Wait for the next connection request. @return 0; errors of session_poll() */
int session_request(struct session *s, struct rdma_event *request, uint64_t deadline);

/** Text for the errors of session_poll() and its callers. */
const char *session_error(int error);

#endif
