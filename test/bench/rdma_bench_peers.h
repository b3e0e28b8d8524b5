/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_BENCH_PEERS_H
#define RDMA_BENCH_PEERS_H

/**
 * @file
 * What the software engine is held against, on the same two cores: the passes over the bytes that
 * it can't do without, and the kernel's TCP.
 */

#include "rdma_bench_rig.h"

/** Time of the passes over one packet's payload, cycles. */
struct peers_passes {
	double crc, copy;
};

/**
 * The ceiling: one core computes the CRC of each packet's payload, the other one computes it again
 * and copies the payload to its place; from and to memory that no cache holds.
 *
 * @param passes out, may be NULL: of the second core alone
 * @return bytes/s
 */
double peers_ceiling(struct rig *rig, double seconds, struct peers_passes *passes);

/** A TCP stream over loopback, messages of `size` bytes; the same cores. @return bytes/s */
double peers_tcp(struct rig *rig, size_t size, double seconds);

#endif
