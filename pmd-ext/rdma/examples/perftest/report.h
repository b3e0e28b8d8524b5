/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PERFTEST_REPORT_H
#define PERFTEST_REPORT_H

/**
 * @file
 * Output of the perftest modes, in perftest's columns, so that two outputs can be compared by eye
 * or with diff.
 */

#include "perftest/options.h"
#include "perftest/wire.h"
#include "session.h"

/** Latencies of one message size. */
struct perftest_latency {
	uint64_t size, iterations, samples;
	double *us; /**< samples; sorted by perftest_print_latency() */
};

void perftest_print_waiting(void);

/** Print the block before the addresses. */
void perftest_print_setup(
	const struct perftest_options *o, const struct session *s, uint16_t mtu, bool client);

/** Print the address of one side of a flow. @param side "local" or "remote" */
void perftest_print_dest(const char *side, const struct perftest_dest *dest);

/** Print the names of the columns. */
void perftest_print_header(const struct perftest_options *o);
void perftest_print_report(const struct perftest_options *o, const struct perftest_report *report);
void perftest_print_latency(const struct perftest_options *o, struct perftest_latency *latency);
void perftest_print_line(void);

#endif
