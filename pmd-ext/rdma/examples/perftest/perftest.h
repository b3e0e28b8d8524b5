/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PERFTEST_H
#define PERFTEST_H

/**
 * @file
 * Peers of perftest's programs: write_bw of ib_write_bw -R and so on. Two instances of a mode can
 * also run against each other.
 */

#include "mode.h"

extern const struct mode perftest_write_bw, perftest_read_bw, perftest_send_bw, perftest_atomic_bw;
extern const struct mode perftest_write_lat, perftest_read_lat, perftest_send_lat,
	perftest_atomic_lat;

#endif
