/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_prefetch.h>
#include <rte_ring.h>

#include "isal_crc.h"
#include "port/pools.h"
#include "recv_feed.h"

#define BURST	      64
#define SLOTS	      1024 /* of the ring: descriptors of an adapter */
#define FILL_SECONDS  10
#define WINDOW_CHECKS 64 /* packets between two looks at the clock */

static struct {
	uint16_t replay;
	struct rte_mempool *pool;
	struct rte_ring *ring; /* to the receiver */
	struct rte_ring *back; /* what it sends */
	bool stop;
} feed;

static int
fail(const char *what, int error)
{
	fprintf(stderr, "recv_feed: %s: %s\n", what, rte_strerror(error));
	return -error;
}

static int
start_replay(const char *device)
{
	const struct rte_eth_conf conf = {0};
	int ret;

	ret = rte_eth_dev_get_port_by_name(device, &feed.replay);
	if (ret == 0)
		ret = rte_eth_dev_configure(feed.replay, 1, 0, &conf);
	if (ret == 0)
		ret = rte_eth_rx_queue_setup(feed.replay, 0, SLOTS, SOCKET_ID_ANY, NULL, feed.pool);
	if (ret == 0)
		ret = rte_eth_dev_start(feed.replay);
	return ret == 0 ? 0 : fail(device, -ret);
}

int
recv_feed_open(const char *device, uint32_t packets)
{
	/* a packet by reference is delivered again when its mbuf was freed */
	const uint32_t mbufs = packets + SLOTS + rte_lcore_count() * 2 * PORT_MEMPOOL_CACHE;
	int ret;

	/*
	 * Last in, first out, so that few mbufs are in use. One lcore allocates and the other one
	 * frees: each mbuf passes through the pool, which made the elements of a lock-free stack
	 * pass from core to core, too.
	 */
	feed.pool = rte_pktmbuf_pool_create_by_ops(
		"feed", mbufs, PORT_MEMPOOL_CACHE, 0, RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY, "stack");
	feed.ring = rte_ring_create("feed", SLOTS, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	feed.back =
		rte_ring_create("feed back", SLOTS, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	if (feed.pool == NULL || feed.ring == NULL || feed.back == NULL)
		return fail("pool and rings", rte_errno);
	ret = start_replay(device);
	if (ret != 0)
		return ret;
	/* the driver adds "net_ring_" */
	if (rte_eth_from_rings("feed", &feed.ring, 1, &feed.back, 1, SOCKET_ID_ANY) < 0)
		return fail(RECV_FEED_PORT, rte_errno);
	return 0;
}

/* Free what the receiver has sent. */
static void
drop_sent(void)
{
	struct rte_mbuf *m[BURST];
	const uint32_t n = rte_ring_sc_dequeue_burst(feed.back, (void **)m, BURST, NULL);

	rte_pktmbuf_free_bulk(m, n);
}

int
recv_feed_run(void *arg)
{
	struct rte_mbuf *m[BURST];
	uint32_t n, sent;

	(void)arg;
	__atomic_store_n(&feed.stop, false, __ATOMIC_RELAXED);
	while (!__atomic_load_n(&feed.stop, __ATOMIC_RELAXED)) {
		n = rte_eth_rx_burst(feed.replay, 0, m, BURST);
		for (sent = 0; sent < n && !__atomic_load_n(&feed.stop, __ATOMIC_RELAXED);)
			sent += rte_ring_sp_enqueue_burst(
				feed.ring, (void **)&m[sent], n - sent, NULL);
		rte_pktmbuf_free_bulk(&m[sent], n - sent);
		drop_sent();
	}
	return 0;
}

void
recv_feed_stop(void)
{
	__atomic_store_n(&feed.stop, true, __ATOMIC_RELAXED);
}

/* @return packets/s that are taken and freed */
static double
measure_ring(double seconds)
{
	const uint64_t begin = rte_rdtsc(), end = begin + (uint64_t)(seconds * rte_get_tsc_hz());
	struct rte_mbuf *m[BURST];
	uint64_t packets = 0;
	uint32_t n;

	while (rte_rdtsc() < end) {
		n = rte_ring_sc_dequeue_burst(feed.ring, (void **)m, BURST, NULL);
		rte_pktmbuf_free_bulk(m, n);
		packets += n;
	}
	return (double)packets * rte_get_tsc_hz() / (rte_rdtsc() - begin);
}

static void
prefetch(const struct rte_mbuf *m)
{
	for (uint32_t i = 0; i < m->data_len; i += RTE_CACHE_LINE_SIZE)
		rte_prefetch0(rte_pktmbuf_mtod_offset(m, const void *, i));
}

/*
 * @param ahead  fetch the next packet first, as the engine does: faster or slower, as the CPU is
 * @return packets/s whose CRC is computed
 */
static double
measure_crc(struct rte_mbuf *const *m, uint32_t n, bool ahead, double seconds)
{
	const uint64_t begin = rte_rdtsc(), end = begin + (uint64_t)(seconds * rte_get_tsc_hz());
	uint64_t packets = 0;
	uint32_t crc = 0, at = 0;

	do {
		const struct rte_mbuf *p = m[at];

		at = at + 1 < n ? at + 1 : 0;
		if (ahead)
			prefetch(m[at]);
		crc += isal_crc32(0, rte_pktmbuf_mtod(p, const void *), p->data_len);
		packets++;
	} while (packets % WINDOW_CHECKS != 0 || rte_rdtsc() < end);
	/* the result is used */
	__asm__ volatile("" : : "r"(crc));
	return (double)packets * rte_get_tsc_hz() / (rte_rdtsc() - begin);
}

int
recv_feed_measure(uint32_t packets, double seconds, struct recv_feed_ceilings *c)
{
	struct rte_mbuf **m = rte_malloc("feed", packets * sizeof(*m), 0);
	const uint64_t end = rte_rdtsc() + FILL_SECONDS * rte_get_tsc_hz();
	uint32_t n = 0;

	if (m == NULL)
		return -ENOMEM;
	c->ring = measure_ring(seconds / 2);
	/* one loop: the replay waits until they are freed */
	while (n < packets && rte_rdtsc() < end)
		n += rte_ring_sc_dequeue_burst(feed.ring, (void **)&m[n], packets - n, NULL);
	if (n == packets)
		c->crc = RTE_MAX(measure_crc(m, n, false, seconds / 4),
			measure_crc(m, n, true, seconds / 4));
	rte_pktmbuf_free_bulk(m, n);
	rte_free(m);
	return n == packets ? 0 : -ETIMEDOUT;
}

uint32_t
recv_feed_close(void)
{
	struct rte_mbuf *m[BURST];
	uint32_t n;

	if (feed.ring != NULL)
		while ((n = rte_ring_sc_dequeue_burst(feed.ring, (void **)m, BURST, NULL)) > 0)
			rte_pktmbuf_free_bulk(m, n);
	if (feed.back != NULL)
		drop_sent();
	return feed.pool == NULL ? 0 : rte_mempool_in_use_count(feed.pool);
}
