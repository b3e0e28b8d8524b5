/* SPDX-License-Identifier: BSD-3-Clause */
/** @file The commands of telemetry sockets that the server uses. */
#ifndef COMMANDS_H
#define COMMANDS_H

#include <stdbool.h>
#include <stddef.h>

enum source_kind {
	SOURCE_RECEIVER,
	SOURCE_STORE,
};

#define COMMANDS_MAX 24

/** A command without parameters, whose replies are forwarded. */
struct command {
	const char *path;
	enum source_kind kind;
	bool slow; /**< its reply changes rarely, so it is requested every tenth time */
};

/** @param nb  out: number of commands, at most COMMANDS_MAX */
const struct command *commands_of(enum source_kind kind, size_t *nb);

/** @return index of the command in commands_of(); -1: there is none of this path */
int commands_find(enum source_kind kind, const char *path);

/** @return true if a client with the token may send this command, with parameters */
bool commands_is_control(enum source_kind kind, const char *path);

#endif /* COMMANDS_H */
