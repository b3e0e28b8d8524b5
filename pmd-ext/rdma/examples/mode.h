/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_TOOL_MODE_H
#define RDMA_TOOL_MODE_H

/**
 * @file
 * A mode is a stock program whose peer this one can be.
 */

#include "options.h"
#include "session.h"
#include "target.h"

struct mode {
	const char *name;
	const char *summary; /**< for --help: whose peer it is */
	/** Options; argv[0] is the mode. Called once, before EAL. */
	enum options_result (*parse)(int argc, char **argv, struct target *target);
	/** Run, once. @return 0; negative errno, said on stderr */
	int (*run)(struct session *s, const struct target *target);
};

#endif
