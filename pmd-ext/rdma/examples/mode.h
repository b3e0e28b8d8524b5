/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_TOOL_MODE_H
#define RDMA_TOOL_MODE_H

/**
 * @file
 * A mode: the peer of a program of librdmacm or perftest, or a separate program.
 */

#include "options.h"
#include "session.h"
#include "target.h"

struct mode {
	const char *name;
	const char *summary; /**< for --help: the program whose peer the mode is */
	const char *purpose; /**< of a mode that is the peer of no other program; else NULL */
	/** Parse the options; argv[0] is the mode. Called once, before EAL. */
	enum options_result (*parse)(int argc, char **argv, struct target *target);
	/** Run once. @return 0; negative errno, printed to stderr */
	int (*run)(struct session *s, const struct target *target);
};

#endif
