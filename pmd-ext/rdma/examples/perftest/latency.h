/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PERFTEST_LATENCY_H
#define PERFTEST_LATENCY_H

/**
 * @file
 * Latency tests: one message at a time, on the first queue pair.
 *
 * READ and atomics: only the client sends; a latency is a round trip. SEND and WRITE: both sides
 * send in turn; a latency is half a round trip. A WRITE is detected by polling its last byte, which
 * counts messages.
 */

#include "perftest/report.h"
#include "perftest/traffic.h"

/**
 * @param client this side is the client
 * @param latency out; the caller frees `us`
 * @return 0; negative errno
 */
int perftest_latency_run(
	struct perftest_traffic *t, bool client, uint64_t size, struct perftest_latency *latency);

#endif
