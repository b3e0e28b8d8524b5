/* SPDX-License-Identifier: BSD-3-Clause */
/** @file Command line of braggline-view. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "bounds.h"
#include "source.h"

#define OPTIONS_MESSAGE_LEN 512

struct options {
	bool help, version;
	struct source_config source[LIMIT_SOURCES];
	size_t nb_sources;
	const char *runs[LIMIT_RUN_FOLDERS];
	size_t nb_runs;
	struct sockaddr_storage address;
	const char *listen; /**< its text */
	bool loopback;
	const char *token_file; /**< NULL: none */
	bool control;
	const char *certificate, *key; /**< paths; NULL: no TLS */
	unsigned int interval_ms;
	int nice;
};

/**
 * Parse the command line.
 * @param message  out: the option, found, expected
 * @return 0; -EINVAL
 */
int options_parse(struct options *o, int argc, char **argv, char message[OPTIONS_MESSAGE_LEN]);

/** Print the help. */
void options_help(void);

/**
 * Parse ADDRESS:PORT with a numeric address; IPv6 in brackets.
 * @param loopback  out: only this machine can reach the address
 * @return 0; -EINVAL
 */
int options_address(const char *text, struct sockaddr_storage *address, bool *loopback);

#endif /* OPTIONS_H */
