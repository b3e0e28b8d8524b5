/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the net_replay tests: captures, one port, pools of every kind. */
#ifndef REPLAY_FIXTURE_H
#define REPLAY_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#define LINE	   64u
#define HEADERS	   90u
#define COUNTER_AT 42u /* the 8 bytes after the UDP header hold the packet number */
#define SPLIT	   (RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT | RTE_ETH_RX_OFFLOAD_SCATTER)

extern const char *capture; /* the file that open_port() replays */

extern struct rte_mempool *roomless; /* data room = headroom: single segments by reference */
extern struct rte_mempool *zero;     /* data room 0 */
extern struct rte_mempool *headers;
extern struct rte_mempool *ordinary; /* 1,023 mbufs of 2,048 bytes */
extern struct rte_mempool *small;    /* 256 bytes */
extern struct rte_mempool *pinned;   /* 255 mbufs */

void make_frame(uint8_t *frame, uint32_t nth, uint32_t len, uint16_t port);
/* Write n packets; lengths repeat every `nb_len` packets, ports 5000, 5001, ... every 4. */
void write_capture(uint32_t n, const uint32_t *len, uint32_t nb_len, uint32_t cut);
void write_equal(uint32_t n, uint32_t len);
int open_port(const char *more);
void configure(uint16_t port, uint16_t queues, uint64_t offloads);
int split_queue(uint16_t port, uint16_t queue, struct rte_mempool *rest, uint16_t at);
/* Open a port and set up its queues, all with the same parameters, without starting it. */
uint16_t open_queues(const char *args, uint16_t nb, uint16_t nb_desc, struct rte_mempool *pool,
	uint64_t offloads);
uint16_t start_single(const char *args, struct rte_mempool *pool, uint64_t offloads);
uint16_t start_split(const char *args, struct rte_mempool *rest, uint16_t at);
void close_port(uint16_t port);
/* Receive until `max` packets are there or no more arrive. */
uint32_t receive(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint32_t max);
uint64_t xstat(uint16_t port, const char *name);
void assert_content(struct rte_mbuf *m, uint32_t nth, uint32_t len);
uint64_t counter_of(struct rte_mbuf *m);
/* All mbufs are free, and each points to its own buffer. */
void assert_pool_sound(struct rte_mempool *pool);
/* Teardown: a test that fails leaves its port open. */
int remove_port(void **state);

/*
 * Initialize EAL and pools, run the tests, and clean up.
 * @return the exit status
 */
int run_replay_tests(char *program, const struct CMUnitTest *tests, size_t nb_tests);

#endif /* REPLAY_FIXTURE_H */
