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

/** Measure them alone, on the calling lcore. */
void peers_passes(struct rig *rig, struct peers_passes *passes);

/**
 * The ceiling of one core: a loop that computes the CRC of each packet's payload twice and copies
 * it to its place; from and to memory that no cache holds. @return bytes/s
 */
double peers_loop(struct rig *rig, double seconds);

/** The same passes on two cores: CRC here, CRC and copy there. @return bytes/s */
double peers_ceiling(struct rig *rig, double seconds);

/** Connect a TCP stream over loopback: the end that sends, the end that receives. */
void peers_connect_stream(int stream[2]);

/** A TCP stream over loopback, messages of `size` bytes; the same cores. @return bytes/s */
double peers_tcp(struct rig *rig, size_t size, double seconds);

#endif
