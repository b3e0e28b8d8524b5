/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * `braggline-scan --serve`: answers queries of many clients over RDMA. A connection is a session
 * with its own engine and thread (remote/worker.h).
 *
 * One lcore makes all calls: it is the control lcore of the device, and owns its poll groups.
 */
#ifndef SCAN_SERVER_H
#define SCAN_SERVER_H

#include <limits.h>
#include <stdbool.h>

#include "rdma/rdma.h"
#include "remote/worker.h"

#define SCAN_SESSIONS 64 /**< maximum connections, including those that are not authenticated yet */

struct scan_server_config {
	const char *device;    /**< name for rdma_dev_open() */
	const char *keys;      /**< path of the keyring */
	uint16_t port;	       /**< 0: SCAN_PORT */
	unsigned int sessions; /**< maximum sessions, 1 to SCAN_SESSIONS (0: 16) */
	uint64_t deadline_ms;  /**< maximum time of a query (0: 600,000) */
	uint64_t idle_ms;      /**< maximum time without a query (0: 600,000) */
	/** maximum time without SCAN_FREE of a part (0: 600,000) */
	uint64_t hold_ms;
	struct scan_worker_config worker; /**< without identity */
};

struct scan_server;

/**
 * Counters; they are never reset. The lcore of the server writes them, atomic: other threads may
 * read them.
 */
struct scan_server_counters {
	uint64_t sessions;	   /**< authenticated connections */
	uint64_t sessions_current; /**< with those whose engine has not ended yet; now */
	uint64_t queries;
	uint64_t queries_current; /**< now */
	uint64_t cancelled;	  /**< by clients */
	uint64_t deadlines;	  /**< queries that took too long */
	uint64_t inline_bytes;	  /**< of messages with results */
	uint64_t pushed_bytes;	  /**< of bodies that were written to slots */
	uint64_t pulled_bytes;	  /**< of bodies that clients were told to read */
	uint64_t held_bytes;	  /**< of these, not freed yet; now */
	uint64_t lost;		  /**< connections that clients did not close */
	uint64_t refused[SCAN_REASONS];
	struct scan_work work;
};

/**
 * Open the device, and listen.
 * @param message  out, on error: what is wrong
 * @return 0; -errno
 */
int scan_server_open(struct scan_server **server, const struct scan_server_config *config,
	char message[PATH_MAX]);

/** Make progress. @return false: there was nothing to do */
bool scan_server_poll(struct scan_server *s);

/** Pause after scan_server_poll(). @param busy  what it has returned */
void scan_server_pause(struct scan_server *s, bool busy);

/** Whether the device was removed or has failed, which was logged: no client can connect again. */
bool scan_server_lost_device(const struct scan_server *s);

/** End all sessions, and notify the clients. Poll until scan_server_is_idle(). */
void scan_server_stop(struct scan_server *s);

/** Whether there is no connection. */
bool scan_server_is_idle(const struct scan_server *s);

/** Close everything. */
void scan_server_close(struct scan_server *s);

const struct scan_server_counters *scan_server_get_counters(const struct scan_server *s);

/** Get the device, for telemetry. @param info  out: what was read when it was opened */
const struct rdma_dev *scan_server_get_device(
	const struct scan_server *s, const struct rdma_dev_info **info);

#endif /* SCAN_SERVER_H */
