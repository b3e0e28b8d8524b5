/* SPDX-License-Identifier: BSD-3-Clause */
/** @file The HTTP server (libmicrohttpd). openapi.json describes its interface. */
#ifndef SERVER_H
#define SERVER_H

#include <sys/socket.h>

#include "source.h"
#include "xfer/proto.h"

struct server;
struct runs;

struct server_config {
	struct sockaddr_storage address;
	bool loopback;			  /**< the address is one of this machine only */
	bool has_token;			  /**< requests need the token */
	uint8_t token[XFER_DIGEST_BYTES]; /**< SHA-256 of it */
	bool control;			  /**< commands are accepted */
	const char *certificate, *key;	  /**< PEM; NULL: no TLS */
	struct runs *runs;		  /**< finished runs; NULL: no folders */
};

/**
 * Start the server and its threads.
 * @param sources  must outlive the server
 * @return 0; -errno of bind(2) and others; -EINVAL: the certificate or the key is not valid
 */
int server_start(struct server **server, const struct server_config *config,
	struct source *const *sources, size_t nb_sources);

/** Port on which it listens, even if the address had port 0. */
uint16_t server_port(const struct server *s);

/** Notify the server that a source has a new text. Any thread. NULL is allowed. */
void server_notify(struct server *s);

/** Close connections that exceed their time. To be called every second. */
void server_tick(struct server *s);

/** Close all connections. NULL is allowed. */
void server_stop(struct server *s);

#endif /* SERVER_H */
