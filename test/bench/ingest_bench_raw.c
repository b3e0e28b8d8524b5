/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An ethdev port whose packets are entered by reference into a table of addresses, as by the RX
 * roles of the receiver. The wire is a ring: both ends must be in one process.
 */

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_prefetch.h>
#include <rte_ring.h>

#include "bench_alone.h"
#include "ingest_bench.h"

#define BURST	32
#define SLOTS	1024
#define MBUFS	4095
#define HEADERS 42 /* Ethernet, IPv4, UDP; then the packet's number */

static struct rte_mempool *pool;

static uint16_t
open_end(const char *name, struct rte_ring *rx, struct rte_ring *tx)
{
	const struct rte_eth_conf conf = {0};
	int port = rte_eth_from_rings(name, &rx, 1, &tx, 1, 0);

	if (port < 0 || rte_eth_dev_configure((uint16_t)port, 1, 1, &conf) != 0 ||
		rte_eth_rx_queue_setup((uint16_t)port, 0, SLOTS, 0, NULL, pool) != 0 ||
		rte_eth_tx_queue_setup((uint16_t)port, 0, SLOTS, 0, NULL) != 0 ||
		rte_eth_dev_start((uint16_t)port) != 0)
		ingest_fail("port %s: %s", name, rte_strerror(rte_errno));
	return (uint16_t)port;
}

void
ingest_raw_open(struct ingest_host *sender, struct ingest_host *receiver)
{
	struct rte_ring *there, *back;

	pool = rte_pktmbuf_pool_create("raw", MBUFS, 256, 0,
		RTE_PKTMBUF_HEADROOM + HEADERS + INGEST_PACKET_MAX, SOCKET_ID_ANY);
	there = rte_ring_create("raw there", SLOTS, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	back = rte_ring_create("raw back", SLOTS, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	if (pool == NULL || there == NULL || back == NULL)
		ingest_fail("RAW: no memory: give EAL more (-m)");
	sender->raw_port = open_end("raw_sender", back, there);
	receiver->raw_port = open_end("raw_receiver", there, back);
}

void
ingest_raw_send(struct ingest_host *h, const struct ingest_trial *t)
{
	const uint64_t length = (uint64_t)(t->seconds * (double)rte_get_tsc_hz());
	struct ingest_sent sent = {0};
	struct rte_mbuf *m[BURST];
	uint64_t begin, number = 0;
	uint16_t done;
	char ready;

	if (!ingest_get(h->channel, &ready, sizeof(ready), NULL, NULL))
		ingest_fail("the receiver has gone");
	bench_alone_begin();
	begin = rte_rdtsc();
	while (rte_rdtsc() - begin < length) {
		if (ingest_due(t, begin) <= number || rte_pktmbuf_alloc_bulk(pool, m, BURST) != 0)
			continue;
		for (unsigned int i = 0; i < BURST; i++) {
			m[i]->data_len = (uint16_t)(HEADERS + t->payload);
			m[i]->pkt_len = m[i]->data_len;
			memset(rte_pktmbuf_mtod(m[i], void *), 0, HEADERS);
			memcpy(rte_pktmbuf_mtod_offset(m[i], void *, HEADERS), &number,
				sizeof(number));
			number++;
		}
		for (done = 0; done < BURST;)
			done += rte_eth_tx_burst(
				h->raw_port, 0, m + done, (uint16_t)(BURST - done));
		sent.messages += BURST;
	}
	sent.seconds = (double)(rte_rdtsc() - begin) / (double)rte_get_tsc_hz();
	bench_alone_end();
	ingest_put(h->channel, &sent, sizeof(sent));
}

/* Enter a burst into the table. */
static void
place(struct rte_mbuf **m, uint16_t n, uint32_t addresses, void **table)
{
	uint64_t number;

	for (uint16_t i = 0; i < n; i++)
		rte_prefetch0(rte_pktmbuf_mtod(m[i], const void *));
	for (uint16_t i = 0; i < n; i++) {
		memcpy(&number, rte_pktmbuf_mtod_offset(m[i], void *, HEADERS), sizeof(number));
		table[number % addresses] = rte_pktmbuf_mtod_offset(m[i], void *, HEADERS);
	}
	rte_pktmbuf_free_bulk(m, n);
}

void
ingest_raw_receive(struct ingest_host *h, const struct ingest_trial *t, struct ingest_outcome *out)
{
	uint64_t first = 0, last = 0, busy = 0, before, idle = 0;
	void **table = (void **)h->ring[t->pages].memory;
	struct ingest_sent sent = {0};
	struct rte_mbuf *m[BURST];
	const char ready = 1;
	bool finished = false;
	uint16_t n;

	ingest_put(h->channel, &ready, sizeof(ready));
	for (;;) {
		before = rte_rdtsc();
		n = rte_eth_rx_burst(h->raw_port, 0, m, BURST);
		if (n == 0) {
			/* the ring is empty, after the sender has said that it has finished */
			if (finished)
				break;
			finished = ++idle % 64 == 0 && ingest_is_ready(h->channel);
			continue;
		}
		place(m, n, t->addresses, table);
		last = rte_rdtsc();
		busy += last - before;
		if (first == 0)
			first = before;
		out->received += n;
	}
	ingest_get(h->channel, &sent, sizeof(sent), NULL, NULL);
	out->sent = sent.messages;
	if (out->received == 0)
		return;
	out->rate = (double)out->received * (double)rte_get_tsc_hz() / (double)(last - first);
	out->cycles = (double)busy / (double)out->received;
	out->busy = (double)busy / (double)(last - first);
}
