/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PERFTEST_CONTROL_H
#define PERFTEST_CONTROL_H

/**
 * @file
 * The first connection of a perftest run. Over it, both sides exchange the parameters of the
 * measured queue pairs and synchronise. perftest/wire.h describes the messages.
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

/**
 * Connect, or accept the next request of a listener.
 * @return 0; negative errno, printed to stderr
 */
int perftest_control_open(
	struct perftest_control *c, struct session *s, const struct target *target);

void perftest_control_close(struct perftest_control *c);

/**
 * Exchange versions and buffer sizes, and agree on an MTU that both support.
 * @return 0; negative errno, printed to stderr; the same holds for the other functions
 */
int perftest_control_hello(struct perftest_control *c, uint16_t *mtu);

/** Exchange destinations. Also used as a barrier, for which `theirs` may be NULL. */
int perftest_control_dest(
	struct perftest_control *c, const struct perftest_dest *ours, struct perftest_dest *theirs);

/** Exchange reports. */
int perftest_control_report(struct perftest_control *c, const struct perftest_report *ours,
	struct perftest_report *theirs);

#endif
