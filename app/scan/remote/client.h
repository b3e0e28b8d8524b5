/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Client of `braggline-scan --serve`: queries whose results are Arrow C streams.
 *
 * The caller has started EAL. Each client has a service thread that runs the RDMA device, so the
 * calling threads need not be lcores and need not poll. The thread is registered with DPDK
 * (rte_thread_register(3)) and is the control lcore of the device, see rdma.h.
 *
 * Threads. A client is used by one thread at a time, and a stream too, except for
 * scan_client_cancel(). Arrays may be released by any thread, also after the stream, but before
 * scan_client_close().
 *
 * Memory. The client registers a ring of slots once. The server writes bodies to free slots; with
 * `pull`, the service thread reads them from the memory of the server instead, and the server has
 * no access to the client. Buffers of an array whose body fits into a slot refer to the slot, which
 * is free again when the array is released. If fewer than two slots are free, and for larger
 * bodies, the bytes are copied, so that arrays that are kept do not stop the query.
 */
#ifndef SCAN_CLIENT_H
#define SCAN_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "remote/wire.h"
#include "sql/arrow_c.h"

struct scan_client;

struct scan_client_config {
	const char *device;   /**< name for rdma_dev_open() */
	const char *server;   /**< IP address, or IPv4:PORT, or [IPv6]:PORT */
	const char *identity; /**< name of the user in the server's keyring */
	const char *key;      /**< path of the key file: xfer_key_read() */
	uint32_t slots;	      /**< number of slots (0: 16) */
	uint32_t slot_bytes;  /**< bytes of a slot (0: 1 MiB) */
	/** of the connection (0: 10,000); a release waits 1.5 times as long for a query's end */
	uint32_t timeout_ms;
	bool pull; /**< read bodies from the server's memory, by READ */
	/** atomic; another thread sets it to end scan_client_open(). NULL: it cannot be ended */
	const bool *give_up;
};

/** The last error of a client. */
struct scan_client_error {
	char sqlstate[SCAN_SQLSTATE + 1];
	char text[SCAN_ERROR_TEXT];
};

/**
 * Connect to a server, and wait until both ends are authenticated.
 *
 * SQLSTATEs: 08001: no connection; 28000: the server does not accept the identity or the key;
 * 53300: too many connections; 57014: cancelled by the caller; HY000, HY001: others.
 *
 * @param error  out, on error
 * @return 0
 *   - -EINVAL: an address, a key file or a limit is wrong
 *   - -EACCES: refused
 *   - -ENODEV: the device cannot be opened
 *   - -EHOSTUNREACH, -EAFNOSUPPORT: the device has no route to the server
 *   - -ECANCELED: `give_up` was set
 *   - -ETIMEDOUT, -ECONNREFUSED, -EAGAIN (too many connections), -ENOMEM
 */
int scan_client_open(struct scan_client **client, const struct scan_client_config *config,
	struct scan_client_error *error);

/** Close the connection and free everything. Streams and arrays must have been released. */
void scan_client_close(struct scan_client *c);

/**
 * Begin a query. It returns without waiting for the result. A stream before it must have been
 * released.
 *
 * get_schema() waits for the schema, get_next() for the next record batch. They return 0 or an
 * errno value, and get_last_error() has the text:
 *
 *   - EINVAL: the statement is wrong, or is not allowed
 *   - EIO: the query failed; batches before it are not the whole result
 *   - ECANCELED: by scan_client_cancel()
 *   - ETIMEDOUT: the server's deadline
 *   - EPIPE: the connection has ended
 *   - ENOMEM
 *   - ENOTSUP: the result has a type that the client does not support
 *   - EBADMSG: the server sent something that is not a result. The connection ends
 *
 * Releasing a stream cancels its query, if it has not ended, and waits for the end. Unless the
 * connection has ended, it can then be used for the next query. If the query does not end in time,
 * the connection ends.
 *
 * @param form    of the columns
 * @param stream  out
 * @return 0; -EINVAL: empty or longer than SCAN_SQL_MAX; -EBUSY: a stream exists; -EPIPE; -ENOMEM
 */
int scan_client_query(struct scan_client *c, const char *sql, enum scan_form form,
	struct ArrowArrayStream *stream);

/** Types of the columns before a conversion: enum duckdb_type. Valid after get_schema() returned 0.
 * @param nb  out: number of columns */
const uint32_t *scan_client_columns(const struct scan_client *c, uint64_t *nb);

/** Cancel the query of the present stream. Any thread, also while another one waits in get_next().
 */
void scan_client_cancel(struct scan_client *c);

/** SQLSTATE of the last error of a stream, such as 57014 for a cancelled query. */
const char *scan_client_sqlstate(const struct scan_client *c);

/**
 * Whether the server has ended the connection because there was no query for long, just before it
 * received the last one: this query was not executed. It can be repeated on a new connection.
 */
bool scan_client_was_idle(struct scan_client *c);

/** Counters of the data that a client has received so far. */
struct scan_client_counters {
	uint64_t batches;
	uint64_t inline_bytes; /**< of bodies that came in messages */
	uint64_t pushed_bytes; /**< of bodies that the server wrote to slots */
	uint64_t pulled_bytes; /**< of bodies that were read to slots */
	uint64_t copied_bytes; /**< of both, copied out of slots */
};

void scan_client_counters(const struct scan_client *c, struct scan_client_counters *counters);

/**
 * @return number of damaged batches, incomplete files and unreadable folders that the tables of the
 *   session left out, as of the end of the last result; 0: it has all rows
 */
uint64_t scan_client_left_out(const struct scan_client *c);

#endif /* SCAN_CLIENT_H */
