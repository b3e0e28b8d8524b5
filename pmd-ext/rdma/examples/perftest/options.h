/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PERFTEST_OPTIONS_H
#define PERFTEST_OPTIONS_H

/**
 * @file
 * Options of the perftest modes, with the same letters as in perftest.
 */

#include <stdbool.h>
#include <stdint.h>

#include "options.h"
#include "rdma.h"
#include "session.h"
#include "target.h"

enum perftest_verb {
	PERFTEST_WRITE,
	PERFTEST_READ,
	PERFTEST_SEND,
	PERFTEST_ATOMIC,
};

struct perftest_options {
	enum perftest_verb verb;
	bool latency;
	enum rdma_qp_type type;
	bool fetch_add; /**< atomics: fetch and add; else compare and swap */

	uint64_t size;	     /**< bytes (65536; 2 for latency, 8 for atomics) */
	uint64_t iterations; /**< per queue pair; 0: 1000 or 5000 */
	uint32_t duration;   /**< s, instead of iterations; 0: none */
	bool all;	     /**< sizes from 2 to 2^23 */
	uint16_t mtu;	     /**< 0: the device's MTU */
	uint32_t qps;
	uint32_t tx_depth, rx_depth; /**< 0: 128 (1 for latency), 512 */
	uint32_t cq_mod;
	uint8_t out_reads; /**< 0: the device's limit */
	uint16_t inline_size;
	uint8_t timeout, retries, tos;
	bool no_peak, gbits, trust_icrc;
	const char *connection, *atomic; /* as given on the command line */
	const char *device;
	uint16_t port;
};

/** Parse the options; fills in the other fields and `target`. */
enum options_result perftest_options_parse(
	int argc, char **argv, struct perftest_options *o, struct target *target);

/** READs and atomics in flight. */
uint8_t perftest_out_reads(const struct perftest_options *o, const struct session *s);

/** The largest message of a run. */
uint64_t perftest_size_max(const struct perftest_options *o);

#endif
