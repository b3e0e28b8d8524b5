/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_TOOL_SESSION_H
#define RDMA_TOOL_SESSION_H

/**
 * @file
 * One device, polled by one lcore. The protocols of the stock tools are conversations, so they are
 * written as such: whoever waits takes turns of the session until what it waits for has come.
 */

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "rdma.h"

#define SESSION_REQUESTS_MAX 64 /**< connection requests not yet looked at */

struct session {
	struct rdma_dev *dev;
	struct rdma_dev_info info;
	struct rdma_pd *pd;
	struct rdma_event requests[SESSION_REQUESTS_MAX];
	unsigned int first, nb_requests;
	unsigned int idle; /**< turns in a row without work */
	bool sleepy;	   /**< sleep when idle: latency for a CPU that others need */
	uint32_t wait_ms;  /**< to try again while nobody listens */
	bool removed;	   /**< the device is gone */
};

/** Set by SIGINT and SIGTERM; turns return -EINTR from then on. */
extern volatile sig_atomic_t session_stop;

/** @return 0; negative errno, said on stderr */
int session_open(struct session *s, const char *device);

/** Print the device's counters that are not 0. */
void session_print_stats(const struct session *s);

void session_close(struct session *s);

/** A time that session_poll() knows, `ms` from now; 0: never. */
uint64_t session_deadline(unsigned int ms);

/**
 * Do the device's work once.
 * @return 0; -EINTR, -ETIMEDOUT, -ENODEV: stop waiting
 */
int session_poll(struct session *s, uint64_t deadline);

/** Take turns for a time, whatever signals say: what is left to send goes out. */
void session_linger(struct session *s, unsigned int ms);

/** The next connection request. @return 0; as session_poll() */
int session_request(struct session *s, struct rdma_event *request, uint64_t deadline);

/** Text for what session_poll() and its callers return. */
const char *session_error(int error);

#endif
