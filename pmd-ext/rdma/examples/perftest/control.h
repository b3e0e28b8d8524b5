/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PERFTEST_CONTROL_H
#define PERFTEST_CONTROL_H

/**
 * @file
 * The first connection of a perftest run: both ends tell each other what the measured queue pairs
 * need, and wait for each other. perftest/wire.h has the messages.
 */

#include "buffer.h"
#include "endpoint.h"
#include "perftest/wire.h"
#include "target.h"

struct perftest_control {
	struct endpoint e;
	struct buffer buffer;
	bool client;
	char peer_version[PERFTEST_VERSION_BYTES + 1];
};

/** Connect, or take the next request of a listener. @return 0; negative errno, said on stderr */
int perftest_control_open(
	struct perftest_control *c, struct session *s, const struct target *target);

void perftest_control_close(struct perftest_control *c);

/**
 * Versions, buffers, and the MTU that both have.
 * @return 0; negative errno, said on stderr; so the others
 */
int perftest_control_hello(struct perftest_control *c, uint16_t *mtu);

/** Destinations; also a barrier, for which `theirs` may be NULL. */
int perftest_control_dest(
	struct perftest_control *c, const struct perftest_dest *ours, struct perftest_dest *theirs);

/** Reports. */
int perftest_control_report(struct perftest_control *c, const struct perftest_report *ours,
	struct perftest_report *theirs);

#endif
