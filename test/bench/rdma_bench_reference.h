/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_BENCH_REFERENCE_H
#define RDMA_BENCH_REFERENCE_H

/**
 * @file Messages by reference compared with messages by copy, in the responder's cycles.
 */

#include "rdma_bench_rig.h"

/**
 * Print the table.
 * @param seconds of a round; a short one is a test, with few destinations
 */
void reference_bench(struct rig *rig, unsigned int rounds, double seconds);

#endif
