/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PERFTEST_H
#define PERFTEST_H

/**
 * @file
 * Modes that speak to perftest's programs: write_bw to ib_write_bw -R and so on, and to each other.
 */

#include "mode.h"

extern const struct mode perftest_write_bw, perftest_read_bw, perftest_send_bw, perftest_atomic_bw;
extern const struct mode perftest_write_lat, perftest_read_lat, perftest_send_lat,
	perftest_atomic_lat;

#endif
