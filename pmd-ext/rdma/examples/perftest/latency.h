/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PERFTEST_LATENCY_H
#define PERFTEST_LATENCY_H

/**
 * @file
 * One message at a time, on the first queue pair.
 *
 * READ and atomics: the client alone; a latency is a round trip. SEND and WRITE: both ends send in
 * turn; a latency is half a round trip. A WRITE is noticed by its last byte, which counts messages.
 */

#include "perftest/report.h"
#include "perftest/traffic.h"

/**
 * @param client this end is the client
 * @param latency out; `us` is to be freed by the caller
 * @return 0; negative errno
 */
int perftest_latency_run(
	struct perftest_traffic *t, bool client, uint64_t size, struct perftest_latency *latency);

#endif
