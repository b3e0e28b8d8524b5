/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Client of DPDK's telemetry socket (rte_telemetry, "dpdk_telemetry.v2"): a SEQPACKET socket, one
 * command a message, JSON replies. One thread per connection.
 */
#ifndef TELEMETRY_SOCKET_H
#define TELEMETRY_SOCKET_H

#include <stddef.h>
#include <stdint.h>

struct telemetry_socket {
	int fd;	     /**< -1: not connected */
	int cancel;  /**< descriptor that becomes readable to end all waits */
	int64_t pid; /**< of the process, from its greeting */
	size_t size; /**< size of the largest reply, bytes */
};

/**
 * Connect.
 * @param cancel      descriptor, such as an eventfd, that ends all waiting when it is readable
 * @param timeout_ms  of the connection and the greeting
 * @param why         out: what failed
 * @return 0; -ECANCELED; -errno; -EPROTO: it is no telemetry socket. s->fd is then -1
 */
int telemetry_socket_connect(
	struct telemetry_socket *s, const char *path, int cancel, int timeout_ms, const char **why);

/** Close. Further calls do nothing. */
void telemetry_socket_close(struct telemetry_socket *s);

/**
 * Send a command and wait for its reply: an object with the command, without its parameters, as its
 * only key.
 * @param timeout_ms  of both
 * @param reply       out: the text of the socket, with a 0 at the end, to be freed
 * @return 0; -ECONNRESET: the process has ended; -ETIMEDOUT; -ECANCELED; -EPROTO: it is no reply to
 *         this command; -ENOMEM; -errno. After an error the connection must be closed: a reply may
 *         still come
 */
int telemetry_socket_query(
	struct telemetry_socket *s, const char *command, int timeout_ms, char **reply);

#endif /* TELEMETRY_SOCKET_H */
