/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of rx_bench share: a replay, RX roles that poll it, and what a builder does. */
#ifndef RX_BENCH_H
#define RX_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_mempool.h>

#include "rx/rx.h"

#define RX_BENCH_LANES 2

struct rx_bench {
	uint32_t modules;
	uint32_t frames; /* of the capture */
	uint32_t slots;
	double seconds; /* of a window */
	uint32_t rounds;
	bool alone; /* nobody else has the CPUs */
	bool huge;  /* pages */
	uint16_t port;
	uint32_t nb_rx; /* in use: RX roles, queues, lcores */
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

/* A net_replay of `frames` frames with further arguments, and its pools; once each. */
void rx_bench_open_port(struct rx_bench *b, const char *more);
void rx_bench_close_port(struct rx_bench *b);

/* From the first packet of the capture on, to so many RX roles; `descriptors` a queue. */
void rx_bench_start(struct rx_bench *b, uint32_t nb_rx, uint16_t descriptors, bool roles);

/* Gives all back, and fails when mbufs are missing. */
void rx_bench_stop(struct rx_bench *b, bool roles);

/* What a builder does without gangs: what is closed is given back. @return was there anything? */
bool rx_bench_build(struct rx_bench *b);

/* Bursts of 1,024 packets that nobody may hold up: rows of the table. */
void rx_bench_bursts(struct rx_bench *b);

#endif /* RX_BENCH_H */
