/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_BENCH_PEERS_H
#define RDMA_BENCH_PEERS_H

/**
 * @file Peers of the software engine on the same two cores: the mandatory passes over the bytes,
 * and the kernel's TCP.
 */

#include "rdma_bench_rig.h"

/** Cycles of the passes over one packet's payload. */
struct peers_passes {
	double crc, copy;
};

/** Measure the passes alone, on the calling lcore. */
void peers_passes(struct rig *rig, struct peers_passes *passes);

/**
 * The ceiling of one core: a loop that computes the CRC of each packet's payload twice and copies
 * it to its destination, between uncached memory. @return bytes/s
 */
double peers_loop(struct rig *rig, double seconds);

/** The same passes on two cores: one computes the CRC, the other CRC and copy. @return bytes/s */
double peers_ceiling(struct rig *rig, double seconds);

/** Connect a TCP stream over loopback: [0] sends, [1] receives. */
void peers_connect_stream(int stream[2]);

/** A TCP stream over loopback with messages of `size` bytes on the same cores. @return bytes/s */
double peers_tcp(struct rig *rig, size_t size, double seconds);

#endif
