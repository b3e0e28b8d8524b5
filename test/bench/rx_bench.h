/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the parts of rx_bench: a replay, RX roles that poll it, and a minimal builder. */
#ifndef RX_BENCH_H
#define RX_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_mempool.h>

#include "rx/rx.h"
#include "rx/sources.h"

#define RX_BENCH_LANES 2

struct rx_bench {
	uint32_t modules;
	uint32_t frames; /* of the capture */
	uint32_t slots;
	double seconds; /* of a window */
	uint32_t rounds;
	bool alone; /* no other program uses the CPUs */
	bool huge;  /* huge pages */
	uint16_t port;
	uint32_t nb_rx; /* number of RX roles, queues and lcores in use */
	struct rte_mempool *headers;
	struct rte_mempool *pixels;
	struct detector detector;
	struct rx_streams *streams;
	struct sources sources;
	struct frame_table *table;
	struct rx *rx[RX_BENCH_LANES];
	bool stop;
	uint64_t frames_closed;
	uint64_t frames_complete;
};

void rx_bench_fail(const char *what, const char *why) __attribute__((noreturn));

/* Create a net_replay of `frames` frames with further arguments, and its pools; call it once. */
void rx_bench_open_port(struct rx_bench *b, const char *more);
void rx_bench_close_port(struct rx_bench *b);

/*
 * Start at the first packet of the capture with this number of RX roles; `descriptors` per queue.
 */
void rx_bench_start(struct rx_bench *b, uint32_t nb_rx, uint16_t descriptors, bool roles);

/* Free everything, and fail if mbufs are missing. */
void rx_bench_stop(struct rx_bench *b, bool roles);

/* The work of a builder without gangs: free closed frames. @return whether there was one */
bool rx_bench_build(struct rx_bench *b);

/* Bursts of 1,024 packets that cannot be delayed: rows of the table. */
void rx_bench_bursts(struct rx_bench *b);

#endif /* RX_BENCH_H */
