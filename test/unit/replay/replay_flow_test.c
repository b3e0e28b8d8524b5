/* SPDX-License-Identifier: BSD-3-Clause */
/* Flow rules of net_replay, and queues that are polled in parallel. */
#include <pthread.h>
#include <sched.h>

#include <rte_cycles.h>
#include <rte_flow.h>
#include <rte_malloc.h>

#include "replay.h"
#include "replay_fixture.h"

static struct rte_flow *
udp_rule(uint16_t port, uint16_t udp_port, uint16_t mask, uint16_t queue, uint32_t priority)
{
	struct rte_flow_attr attr = {.ingress = 1, .priority = priority};
	struct rte_flow_item_udp spec = {.hdr.dst_port = rte_cpu_to_be_16(udp_port)};
	struct rte_flow_item_udp bits = {.hdr.dst_port = rte_cpu_to_be_16(mask)};
	struct rte_flow_item pattern[] = {
		{.type = RTE_FLOW_ITEM_TYPE_ETH},
		{.type = RTE_FLOW_ITEM_TYPE_IPV4},
		{.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &spec, .mask = &bits},
		{.type = RTE_FLOW_ITEM_TYPE_END},
	};
	struct rte_flow_action_queue to = {.index = queue};
	struct rte_flow_action actions[] = {
		{.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &to},
		{.type = RTE_FLOW_ACTION_TYPE_END},
	};
	struct rte_flow_error error;

	if (rte_flow_validate(port, &attr, pattern, actions, &error) != 0)
		return NULL;
	return rte_flow_create(port, &attr, pattern, actions, &error);
}

static struct rte_flow *
address_rule(uint16_t port, uint32_t address, uint16_t queue)
{
	struct rte_flow_attr attr = {.ingress = 1};
	struct rte_flow_item_ipv4 spec = {.hdr.dst_addr = rte_cpu_to_be_32(address)};
	struct rte_flow_item_ipv4 mask = {.hdr.dst_addr = RTE_BE32(UINT32_MAX)};
	struct rte_flow_item pattern[] = {
		{.type = RTE_FLOW_ITEM_TYPE_IPV4, .spec = &spec, .mask = &mask},
		{.type = RTE_FLOW_ITEM_TYPE_END},
	};
	struct rte_flow_action_queue to = {.index = queue};
	struct rte_flow_action actions[] = {
		{.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &to},
		{.type = RTE_FLOW_ACTION_TYPE_END},
	};
	struct rte_flow_error error;

	return rte_flow_create(port, &attr, pattern, actions, &error);
}

/* Receive on three queues; each packet must arrive at queue_of(i % 4). */
static void
assert_steered(uint16_t port, const uint16_t queue_of[4])
{
	static struct rte_mbuf *m[400];
	struct rte_eth_stats stats;
	uint32_t total = 0;

	assert_int_equal(rte_eth_stats_reset(port), 0);
	assert_int_equal(rte_eth_dev_stop(port), 0);
	assert_int_equal(rte_eth_dev_start(port), 0);
	for (uint16_t q = 0; q < 3; q++) {
		uint32_t n = receive(port, q, m, 400), last = 0;

		assert_int_equal(rte_eth_stats_get(port, &stats), 0);
		assert_int_equal(stats.q_ipackets[q], n);
		for (uint32_t i = 0; i < n; i++) {
			uint32_t nth = (uint32_t)counter_of(m[i]);

			assert_int_equal(queue_of[nth % 4], q);
			assert_true(i == 0 || nth > last); /* in order */
			last = nth;
		}
		rte_pktmbuf_free_bulk(m, n);
		total += n;
	}
	assert_int_equal(total, 400);
	assert_int_equal(xstat(port, "replay_done"), 1);
}

static void
flow_rules_choose_the_queue(void **state)
{
	struct rte_flow *odd, *first;
	struct rte_flow_error error;
	int port;

	write_equal(400, 200);
	port = open_queues("queues=3", 3, 64, roomless, 0);
	/* before the start */
	odd = udp_rule((uint16_t)port, 5001, 0x0001, 1, 1);
	assert_non_null(odd);
	assert_int_equal(rte_eth_dev_start((uint16_t)port), 0);
	assert_steered((uint16_t)port, (uint16_t[]){0, 1, 0, 1});
	/* rules with a smaller priority number match first; created after the start */
	first = udp_rule((uint16_t)port, 5003, 0xffff, 2, 0);
	assert_non_null(first);
	assert_steered((uint16_t)port, (uint16_t[]){0, 1, 0, 2});
	/* the older of two equal rules matches */
	assert_non_null(address_rule((uint16_t)port, RTE_IPV4(10, 0, 1, 3), 1));
	assert_non_null(address_rule((uint16_t)port, RTE_IPV4(10, 0, 1, 2), 2));
	assert_steered((uint16_t)port, (uint16_t[]){0, 1, 2, 2});
	assert_int_equal(rte_flow_destroy((uint16_t)port, first, &error), 0);
	assert_steered((uint16_t)port, (uint16_t[]){0, 1, 2, 1});
	assert_int_not_equal(rte_flow_destroy((uint16_t)port, first, &error), 0);
	assert_int_equal(rte_flow_flush((uint16_t)port, &error), 0);
	assert_steered((uint16_t)port, (uint16_t[]){0, 0, 0, 0});
	close_port((uint16_t)port);
	assert_pool_sound(roomless);
}

struct poller {
	pthread_t thread;
	uint16_t port, queue;
	uint64_t packets;
	struct rte_mbuf *last; /* freed by another thread */
	bool stop;
};

/* Free all but one packet of each burst; the main thread frees that one later. */
static void *
poll_queue(void *arg)
{
	struct poller *poller = arg;
	struct rte_mbuf *m[32], *none;
	cpu_set_t all;

	/* EAL has pinned the main thread, and threads inherit this */
	memset(&all, 0xff, sizeof(all));
	pthread_setaffinity_np(pthread_self(), sizeof(all), &all);
	while (!__atomic_load_n(&poller->stop, __ATOMIC_ACQUIRE)) {
		uint16_t n = rte_eth_rx_burst(poller->port, poller->queue, m, RTE_DIM(m));

		none = NULL;
		if (n == 0)
			sched_yield();
		else if (__atomic_compare_exchange_n(&poller->last, &none, m[n - 1], false,
				 __ATOMIC_RELEASE, __ATOMIC_RELAXED))
			rte_pktmbuf_free_bulk(m, n - 1u);
		else
			rte_pktmbuf_free_bulk(m, n);
		__atomic_store_n(&poller->packets, poller->packets + n, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void
queues_are_polled_by_threads_of_their_own(void **state)
{
	struct poller pollers[3] = {0};
	struct rte_flow_error error;
	uint64_t total = 0;
	int port;

	write_equal(400, 200);
	for (uint32_t changing = 0; changing < 2; changing++) {
		port = open_port(changing ? "loops=0" : "loops=250");
		assert_true(port >= 0);
		configure((uint16_t)port, 3, SPLIT);
		for (uint16_t q = 0; q < 3; q++)
			assert_int_equal(split_queue((uint16_t)port, q, zero, 90), 0);
		assert_int_equal(rte_eth_dev_start((uint16_t)port), 0);
		assert_non_null(udp_rule((uint16_t)port, 5001, 0xffff, 1, 0));
		assert_non_null(udp_rule((uint16_t)port, 5002, 0xffff, 2, 0));
		for (uint16_t q = 0; q < 3; q++) {
			pollers[q] = (struct poller){.port = (uint16_t)port, .queue = q};
			pthread_create(&pollers[q].thread, NULL, poll_queue, &pollers[q]);
		}
		for (uint32_t round = 0;
			changing ? round < 300 : !xstat((uint16_t)port, "replay_done"); round++) {
			struct rte_flow *rule = NULL;

			if (changing)
				rule = udp_rule((uint16_t)port, 5000, 0xfffc, round % 3, round % 2);
			for (uint16_t q = 0; q < 3; q++)
				rte_pktmbuf_free(__atomic_exchange_n(
					&pollers[q].last, NULL, __ATOMIC_ACQUIRE));
			if (rule != NULL)
				assert_int_equal(rte_flow_destroy((uint16_t)port, rule, &error), 0);
			rte_delay_us_sleep(50);
		}
		for (uint16_t q = 0; q < 3; q++) {
			__atomic_store_n(&pollers[q].stop, true, __ATOMIC_RELEASE);
			pthread_join(pollers[q].thread, NULL);
			rte_pktmbuf_free(pollers[q].last);
			total += pollers[q].packets;
			if (!changing)
				assert_int_equal(pollers[q].packets, (q == 0 ? 200u : 100u) * 250u);
		}
		assert_int_equal(xstat((uint16_t)port, "rx_by_reference_packets"), total);
		assert_int_equal(xstat((uint16_t)port, "replay_references_outstanding"), 0);
		total = 0;
		close_port((uint16_t)port);
		assert_pool_sound(zero);
		assert_pool_sound(headers);
	}
}

static uint64_t
hits(uint16_t port, struct rte_flow *flow, uint64_t *bytes, bool reset)
{
	struct rte_flow_action what[] = {
		{.type = RTE_FLOW_ACTION_TYPE_COUNT}, {.type = RTE_FLOW_ACTION_TYPE_END}};
	struct rte_flow_query_count count = {.reset = reset};
	struct rte_flow_error error;

	assert_int_equal(rte_flow_query(port, flow, what, &count, &error), 0);
	assert_true(count.hits_set && count.bytes_set);
	*bytes = count.bytes;
	return count.hits;
}

/* UDP destination ports 5000 to 5003 in round-robin order, with addresses 10.0.1.0 to .3. */
static void
rules_drop_count_and_spread(void **state)
{
	struct rte_flow_attr in = {.ingress = 1}, later = {.ingress = 1, .priority = 1};
	struct rte_flow_item_udp spec = {.hdr.dst_port = RTE_BE16(5001)};
	struct rte_flow_item_udp mask = {.hdr.dst_port = RTE_BE16(0xffff)};
	struct rte_flow_item one[] = {
		{.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &spec, .mask = &mask},
		{.type = RTE_FLOW_ITEM_TYPE_END}};
	struct rte_flow_item udp[] = {
		{.type = RTE_FLOW_ITEM_TYPE_UDP}, {.type = RTE_FLOW_ITEM_TYPE_END}};
	const uint16_t queues[] = {2, 0, 1};
	struct rte_flow_action_rss rss = {.types = RTE_ETH_RSS_NONFRAG_IPV4_UDP,
		.queue_num = RTE_DIM(queues),
		.queue = queues};
	struct rte_flow_action stop = {.type = RTE_FLOW_ACTION_TYPE_END};
	struct rte_flow_action count = {.type = RTE_FLOW_ACTION_TYPE_COUNT};
	struct rte_flow_action drop[] = {{.type = RTE_FLOW_ACTION_TYPE_DROP}, count, stop};
	struct rte_flow_action spread[] = {count, {RTE_FLOW_ACTION_TYPE_RSS, &rss}, stop};
	struct rte_flow *dropping, *spreading;
	struct rte_flow_error error;
	uint32_t queue_of[4] = {9, 9, 9, 9}, seen[3] = {0};
	struct rte_mbuf *m[100];
	uint64_t bytes;
	int port;

	write_equal(400, 200);
	port = open_queues("queues=3", 3, 64, roomless, 0);
	spreading = rte_flow_create((uint16_t)port, &later, udp, spread, &error);
	assert_non_null(spreading);
	assert_int_equal(rte_eth_dev_start((uint16_t)port), 0);
	/* first with all four ports, then without the second one */
	for (uint32_t got = 0; got < 400;)
		for (uint16_t q = 0; q < 3; q++) {
			const uint32_t n = rte_eth_rx_burst((uint16_t)port, q, m, 32);

			for (uint32_t i = 0; i < n; i++) {
				const uint32_t stream = counter_of(m[i]) % 4;

				assert_true(queue_of[stream] == 9 || queue_of[stream] == q);
				queue_of[stream] = q;
			}
			rte_pktmbuf_free_bulk(m, n);
			seen[q] += n;
			got += n;
			assert_int_equal(hits((uint16_t)port, spreading, &bytes, false), got);
			assert_int_equal(bytes, got * 200u);
		}
	/* Toeplitz with Microsoft's key distributes the four tuples to more than one queue */
	assert_true((seen[0] != 0) + (seen[1] != 0) + (seen[2] != 0) > 1);
	assert_int_equal(hits((uint16_t)port, spreading, &bytes, true), 400);
	assert_int_equal(hits((uint16_t)port, spreading, &bytes, false), 0);
	assert_int_equal(rte_eth_dev_stop((uint16_t)port), 0);
	dropping = rte_flow_create((uint16_t)port, &in, one, drop, &error);
	assert_non_null(dropping);
	assert_int_equal(rte_eth_dev_start((uint16_t)port), 0);
	while (!xstat((uint16_t)port, "replay_done"))
		for (uint16_t q = 0; q < 3; q++) {
			const uint32_t n = rte_eth_rx_burst((uint16_t)port, q, m, 32);

			for (uint32_t i = 0; i < n; i++)
				assert_int_not_equal(counter_of(m[i]) % 4, 1);
			rte_pktmbuf_free_bulk(m, n);
		}
	assert_int_equal(hits((uint16_t)port, dropping, &bytes, false), 100);
	assert_int_equal(bytes, 100 * 200);
	assert_int_equal(hits((uint16_t)port, spreading, &bytes, false), 300);
	assert_int_equal(xstat((uint16_t)port, "rx_flow_dropped_packets"), 100);
	assert_int_equal(rte_flow_destroy((uint16_t)port, dropping, &error), 0);
	assert_int_equal(xstat((uint16_t)port, "rx_flow_dropped_packets"), 100);
	assert_int_equal(rte_eth_xstats_reset((uint16_t)port), 0);
	assert_int_equal(xstat((uint16_t)port, "rx_flow_dropped_packets"), 0);
	/* a restart replays from the beginning, and rules continue counting */
	assert_int_equal(rte_eth_dev_stop((uint16_t)port), 0);
	assert_int_equal(rte_eth_dev_start((uint16_t)port), 0);
	assert_int_equal(hits((uint16_t)port, spreading, &bytes, false), 300);
	close_port((uint16_t)port);
	assert_pool_sound(roomless);
}

/* The counters of a rule are kept when queues are set up again. */
static void
counts_outlive_queues(void **state)
{
	struct rte_flow_attr in = {.ingress = 1}, later = {.ingress = 1, .priority = 1};
	struct rte_flow_item_udp spec = {.hdr.dst_port = RTE_BE16(5001)};
	struct rte_flow_item_udp mask = {.hdr.dst_port = RTE_BE16(0xffff)};
	struct rte_flow_item one[] = {
		{.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &spec, .mask = &mask},
		{.type = RTE_FLOW_ITEM_TYPE_END}};
	struct rte_flow_item udp[] = {
		{.type = RTE_FLOW_ITEM_TYPE_UDP}, {.type = RTE_FLOW_ITEM_TYPE_END}};
	struct rte_flow_action_queue zeroth = {.index = 0};
	struct rte_flow_action stop = {.type = RTE_FLOW_ACTION_TYPE_END};
	struct rte_flow_action count = {.type = RTE_FLOW_ACTION_TYPE_COUNT};
	struct rte_flow_action drop[] = {{.type = RTE_FLOW_ACTION_TYPE_DROP}, count, stop};
	struct rte_flow_action take[] = {count, {RTE_FLOW_ACTION_TYPE_QUEUE, &zeroth}, stop};
	struct rte_flow *dropping, *taking;
	struct rte_flow_error error;
	struct rte_mbuf *m[512];
	uint64_t bytes;
	uint16_t port;

	write_equal(400, 200);
	port = start_single("", roomless, 0);
	dropping = rte_flow_create(port, &in, one, drop, &error);
	taking = rte_flow_create(port, &later, udp, take, &error);
	assert_true(dropping != NULL && taking != NULL);
	for (uint32_t round = 0; round < 2; round++) {
		/* the second time the counters are reset before the queue is released */
		assert_int_equal(receive(port, 0, m, RTE_DIM(m)), 300);
		rte_pktmbuf_free_bulk(m, 300);
		assert_int_equal(hits(port, taking, &bytes, round == 1), 300 * (round + 1));
		if (round == 1)
			assert_int_equal(rte_eth_xstats_reset(port), 0);
		assert_int_equal(rte_eth_dev_stop(port), 0);
		assert_int_equal(rte_eth_rx_queue_setup(port, 0, 64, 0, NULL, roomless), 0);
		for (uint32_t started = 0; started < 2; started++) {
			const uint64_t seen = round == 0 ? 300 : 0;

			assert_int_equal(hits(port, taking, &bytes, false), seen);
			assert_int_equal(bytes, seen * 200);
			assert_int_equal(xstat(port, "rx_flow_dropped_packets"), seen / 3);
			if (!started)
				assert_int_equal(rte_eth_dev_start(port), 0);
		}
		assert_int_equal(hits(port, dropping, &bytes, false), 100 * (round + 1));
	}
	close_port(port);
	assert_pool_sound(roomless);
}

/*
 * A rule drops all packets, so no queue has any to deliver: the port is done. The rule can be
 * destroyed.
 */
static void
a_rule_may_drop_everything(void **state)
{
	struct rte_flow_attr in = {.ingress = 1};
	struct rte_flow_item any[] = {
		{.type = RTE_FLOW_ITEM_TYPE_ETH}, {.type = RTE_FLOW_ITEM_TYPE_END}};
	struct rte_flow_action drop[] = {{.type = RTE_FLOW_ACTION_TYPE_DROP},
		{.type = RTE_FLOW_ACTION_TYPE_COUNT}, {.type = RTE_FLOW_ACTION_TYPE_END}};
	struct rte_eth_dev_info info;
	struct rte_flow_error error;
	struct rte_eth_link link;
	struct rte_mbuf *m[128];
	struct rte_flow *flow;
	uint64_t bytes;
	uint16_t port;

	write_equal(120, 200);
	port = start_single("", roomless, 0);
	assert_int_equal(rte_eth_dev_info_get(port, &info), 0);
	assert_true((info.dev_capa & RTE_ETH_DEV_CAPA_FLOW_RULE_KEEP) != 0);
	flow = rte_flow_create(port, &in, any, drop, &error);
	assert_non_null(flow);
	assert_int_equal(receive(port, 0, m, 128), 0);
	assert_int_equal(xstat(port, "replay_done"), 1);
	assert_int_equal(xstat(port, "rx_flow_dropped_packets"), 0);
	assert_int_equal(hits(port, flow, &bytes, false), 0);
	assert_int_equal(rte_eth_link_get_nowait(port, &link), 0);
	assert_int_equal(link.link_status, RTE_ETH_LINK_DOWN);
	/* the rule is kept, as dev_capa states */
	assert_int_equal(rte_eth_dev_stop(port), 0);
	assert_int_equal(rte_eth_dev_start(port), 0);
	assert_int_equal(receive(port, 0, m, 128), 0);
	assert_int_equal(rte_flow_destroy(port, flow, &error), 0);
	assert_int_equal(receive(port, 0, m, 128), 120);
	rte_pktmbuf_free_bulk(m, 120);
	close_port(port);
}

/*
 * A bounded ring holds the waiting packets of its queue, and rules change which packets these are.
 */
static void
rings_follow_the_rules(void **state)
{
	const uint64_t every = 4 * rte_get_tsc_hz();
	struct rte_flow_error error;
	struct replay_rxq *rxq;
	struct rte_eth_stats stats;
	struct rte_mbuf *m[128];
	struct rte_flow *odd;
	uint16_t port;

	write_equal(120, 200);
	port = open_queues(
		"queues=2,loops=2,burst=120:4000000000,overrun=drop", 2, 128, roomless, 0);
	assert_int_equal(rte_eth_dev_start(port), 0);
	/*
	 * 118 packets wait; then half of them belong to another queue, and this queue does not
	 * deliver them
	 */
	assert_int_equal(rte_eth_rx_burst(port, 0, m, 2), 2);
	rte_pktmbuf_free_bulk(m, 2);
	odd = udp_rule(port, 5001, 0x0001, 1, 0);
	assert_non_null(odd);
	assert_int_equal(receive(port, 0, m, 128), 59);
	rte_pktmbuf_free_bulk(m, 59);
	assert_int_equal(rte_flow_destroy(port, odd, &error), 0);
	/* the next burst has room */
	rxq = rte_eth_devices[port].data->rx_queues[0];
	rxq->clock -= every;
	assert_int_equal(receive(port, 0, m, 128), 120);
	rte_pktmbuf_free_bulk(m, 120);
	assert_int_equal(rte_eth_stats_get(port, &stats), 0);
	assert_int_equal(stats.imissed, 0);
	assert_int_equal(xstat(port, "rx_most_waiting_packets"), 120);
	close_port(port);
	assert_pool_sound(roomless);
}

static void
give_odd_ports_away(uint16_t port)
{
	assert_non_null(udp_rule(port, 5001, 0x0001, 1, 0));
}

/* A rule that is created during faults takes only its own packets from queue 0. */
static void
faults_keep_their_place_when_rules_change(void **state)
{
	struct rte_mbuf *m[256];
	uint8_t seen[120] = {0};
	uint32_t n;
	int port;

	write_equal(120, 200);
	/* the first of two duplicates is delivered when the second one gets another queue */
	port = open_queues("queues=2,duplicate=1", 2, 128, roomless, 0);
	assert_int_equal(rte_eth_dev_start((uint16_t)port), 0);
	assert_int_equal(rte_eth_rx_burst((uint16_t)port, 0, m, 11), 11);
	assert_int_equal(counter_of(m[10]), 5);
	rte_pktmbuf_free_bulk(m, 11);
	give_odd_ports_away((uint16_t)port);
	n = receive((uint16_t)port, 0, m, RTE_DIM(m));
	assert_int_equal(n, 2 * 57);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(counter_of(m[i]), 6 + i / 2 * 2);
	rte_pktmbuf_free_bulk(m, n);
	close_port((uint16_t)port);

	/* during a sequence of reordered packets */
	port = open_queues("queues=2,reorder=1:32", 2, 128, roomless, 0);
	assert_int_equal(rte_eth_dev_start((uint16_t)port), 0);
	n = rte_eth_rx_burst((uint16_t)port, 0, m, 43);
	assert_int_equal(n, 43);
	for (uint32_t i = 0; i < n; i++)
		seen[counter_of(m[i])]++;
	rte_pktmbuf_free_bulk(m, n);
	give_odd_ports_away((uint16_t)port);
	n = receive((uint16_t)port, 0, m, RTE_DIM(m));
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(counter_of(m[i]) % 2, 0);
		seen[counter_of(m[i])]++;
	}
	rte_pktmbuf_free_bulk(m, n);
	for (uint32_t i = 0; i < 120; i += 2)
		assert_int_equal(seen[i], 1);
	close_port((uint16_t)port);
	assert_pool_sound(roomless);
}

/* Counters never decrease when they are read while the queue changes to the next loop. */
static void
counts_never_go_back(void **state)
{
	struct rte_flow_attr in = {.ingress = 1};
	struct rte_flow_item_udp spec = {.hdr.dst_port = RTE_BE16(5001)};
	struct rte_flow_item_udp mask = {.hdr.dst_port = RTE_BE16(0xffff)};
	struct rte_flow_item one[] = {
		{.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &spec, .mask = &mask},
		{.type = RTE_FLOW_ITEM_TYPE_END}};
	struct rte_flow_action drop[] = {{.type = RTE_FLOW_ACTION_TYPE_DROP},
		{.type = RTE_FLOW_ACTION_TYPE_COUNT}, {.type = RTE_FLOW_ACTION_TYPE_END}};
	struct poller poller = {0};
	struct rte_flow_error error;
	uint64_t seen = 0, dropped = 0;
	struct rte_flow *flow;

	write_equal(64, 200);
	poller.port = start_single("loops=0", roomless, 0);
	flow = rte_flow_create(poller.port, &in, one, drop, &error);
	assert_non_null(flow);
	pthread_create(&poller.thread, NULL, poll_queue, &poller);
	for (uint32_t i = 0; i < 50000; i++) {
		uint64_t bytes;
		const uint64_t now = hits(poller.port, flow, &bytes, false);

		assert_true(now >= seen);
		seen = now;
		if (i % 64 == 0) {
			const uint64_t total = xstat(poller.port, "rx_flow_dropped_packets");

			assert_true(total >= dropped && total >= now);
			dropped = total;
		}
		if (i % 4096 == 0) {
			assert_int_equal(rte_eth_xstats_reset(poller.port), 0);
			hits(poller.port, flow, &bytes, true);
			seen = dropped = 0;
		}
		rte_pktmbuf_free(__atomic_exchange_n(&poller.last, NULL, __ATOMIC_ACQUIRE));
	}
	__atomic_store_n(&poller.stop, true, __ATOMIC_RELEASE);
	pthread_join(poller.thread, NULL);
	rte_pktmbuf_free(poller.last);
	close_port(poller.port);
	assert_pool_sound(roomless);
}

static struct rte_flow *
item_rule(uint16_t port, enum rte_flow_item_type type, const void *spec, const void *mask,
	uint16_t queue)
{
	struct rte_flow_attr attr = {.ingress = 1};
	struct rte_flow_item pattern[] = {
		{.type = type, .spec = spec, .mask = mask}, {.type = RTE_FLOW_ITEM_TYPE_END}};
	struct rte_flow_action_queue to = {.index = queue};
	struct rte_flow_action actions[] = {
		{RTE_FLOW_ACTION_TYPE_QUEUE, &to}, {.type = RTE_FLOW_ACTION_TYPE_END}};
	struct rte_flow_error error;

	return rte_flow_create(port, &attr, pattern, actions, &error);
}

/* Destination MACs end in the packet's number; the source is 10.0.0.1, port 4000. */
static void
masks_choose_bits(void **state)
{
	struct rte_flow_item_eth last = {.hdr.dst_addr.addr_bytes = {[5] = 0xf3}};
	struct rte_flow_item_eth two = {.hdr.dst_addr.addr_bytes = {[5] = 3}};
	struct rte_flow_item_eth type = {.hdr.ether_type = RTE_BE16(0x86dd)};
	struct rte_flow_item_eth all_type = {.hdr.ether_type = RTE_BE16(0xffff)};
	struct rte_flow_item_ipv4 from = {.hdr.src_addr = RTE_BE32(RTE_IPV4(10, 9, 9, 9))};
	struct rte_flow_item_ipv4 other = {.hdr.src_addr = RTE_BE32(RTE_IPV4(11, 0, 0, 1))};
	struct rte_flow_item_ipv4 net = {.hdr.src_addr = RTE_BE32(0xff000000)};
	struct rte_flow_item_udp spec = {.hdr.src_port = RTE_BE16(4001)};
	struct rte_flow_item_udp mask = {.hdr.src_port = RTE_BE16(0xfffe)};
	struct rte_flow_item_udp whole = {.hdr.src_port = RTE_BE16(0xffff)};
	struct rte_flow_error error;
	int port;

	write_equal(400, 200);
	port = open_queues("queues=3", 3, 64, roomless, 0);
	assert_int_equal(rte_eth_dev_start((uint16_t)port), 0);
	assert_non_null(item_rule((uint16_t)port, RTE_FLOW_ITEM_TYPE_ETH, &type, &all_type, 1));
	assert_steered((uint16_t)port, (uint16_t[]){0, 0, 0, 0});
	assert_non_null(item_rule((uint16_t)port, RTE_FLOW_ITEM_TYPE_ETH, &last, &two, 2));
	assert_steered((uint16_t)port, (uint16_t[]){0, 0, 0, 2});
	assert_non_null(item_rule((uint16_t)port, RTE_FLOW_ITEM_TYPE_IPV4, &other, &net, 1));
	assert_steered((uint16_t)port, (uint16_t[]){0, 0, 0, 2});
	assert_non_null(item_rule((uint16_t)port, RTE_FLOW_ITEM_TYPE_IPV4, &from, &net, 1));
	assert_steered((uint16_t)port, (uint16_t[]){1, 1, 1, 2});
	assert_int_equal(rte_flow_flush((uint16_t)port, &error), 0);
	assert_non_null(item_rule((uint16_t)port, RTE_FLOW_ITEM_TYPE_UDP, &spec, &whole, 1));
	assert_steered((uint16_t)port, (uint16_t[]){0, 0, 0, 0});
	assert_non_null(item_rule((uint16_t)port, RTE_FLOW_ITEM_TYPE_UDP, &spec, &mask, 2));
	assert_steered((uint16_t)port, (uint16_t[]){2, 2, 2, 2});
	close_port((uint16_t)port);
	assert_pool_sound(roomless);
}

/* The vectors of Microsoft's "Verifying the RSS hash calculation", IPv4. */
static void
rss_is_toeplitz(void **state)
{
	static const struct {
		uint32_t from, to;
		uint16_t from_port, to_port;
		uint32_t addresses, ports; /* hash over the addresses, and with the ports */
	} vectors[] = {
		{RTE_IPV4(66, 9, 149, 187), RTE_IPV4(161, 142, 100, 80), 2794, 1766, 0x323e8fc2,
			0x51ccc178},
		{RTE_IPV4(199, 92, 111, 2), RTE_IPV4(65, 69, 140, 83), 14230, 4739, 0xd718262a,
			0xc626b0ea},
		{RTE_IPV4(24, 19, 198, 95), RTE_IPV4(12, 22, 207, 184), 12898, 38024, 0xd2d0a5de,
			0x5c2b394a},
	};
	static uint16_t queues[65521]; /* a prime size: the queue number reveals the hash */
	static const uint8_t zeros[REPLAY_RSS_KEY];
	struct rte_flow_attr in = {.ingress = 1};
	struct rte_flow_item any[] = {
		{.type = RTE_FLOW_ITEM_TYPE_ETH}, {.type = RTE_FLOW_ITEM_TYPE_END}};
	struct rte_flow_action_rss rss = {.queue_num = 1, .queue = queues};
	struct rte_flow_action spread[] = {
		{RTE_FLOW_ACTION_TYPE_RSS, &rss}, {.type = RTE_FLOW_ACTION_TYPE_END}};
	struct rte_flow_error error;
	uint16_t port;

	for (uint32_t i = 0; i < RTE_DIM(queues); i++)
		queues[i] = (uint16_t)i;
	write_equal(4, 200);
	port = start_single("", roomless, 0);
	for (uint32_t k = 0; k < 3; k++) {
		struct rte_flow flow;

		rss.types = k == 0 ? RTE_ETH_RSS_IPV4 : 0;
		rss.key = k == 2 ? zeros : NULL;
		rss.key_len = k == 2 ? REPLAY_RSS_KEY : 0;
		assert_int_equal(
			replay_rule_parse(&rte_eth_devices[port], &in, any, spread, &flow, &error),
			0);
		rte_free(flow.queues);
		flow.queues = queues;
		flow.nb_queues = RTE_DIM(queues);
		for (uint32_t i = 0; i < RTE_DIM(vectors); i++) {
			struct replay_packet packet = {
				.ptype = RTE_PTYPE_L2_ETHER | RTE_PTYPE_L3_IPV4 | RTE_PTYPE_L4_UDP,
				.src_addr = rte_cpu_to_be_32(vectors[i].from),
				.dst_addr = rte_cpu_to_be_32(vectors[i].to),
				.src_port = rte_cpu_to_be_16(vectors[i].from_port),
				.dst_port = rte_cpu_to_be_16(vectors[i].to_port)};
			const uint32_t hash[] = {vectors[i].addresses, vectors[i].ports, 0};

			assert_int_equal(
				replay_rule_queue(&flow, &packet), hash[k] % RTE_DIM(queues));
			/* a fragment has no ports */
			packet.ptype = RTE_PTYPE_L2_ETHER | RTE_PTYPE_L3_IPV4 | RTE_PTYPE_L4_FRAG;
			assert_int_equal(replay_rule_queue(&flow, &packet),
				hash[k == 2 ? 2 : 0] % RTE_DIM(queues));
		}
	}
	close_port(port);
}

static void
unknown_flow_rules_are_refused(void **state)
{
	struct rte_flow_attr in = {.ingress = 1}, out = {.egress = 1},
			     group = {.ingress = 1, .group = 1};
	struct rte_flow_item_ipv4 ttl = {.hdr.time_to_live = 1};
	struct rte_flow_item_udp ports = {0}, range = {.hdr.dst_port = RTE_BE16(9)};
	struct rte_flow_item end = {.type = RTE_FLOW_ITEM_TYPE_END};
	struct rte_flow_item any[] = {{.type = RTE_FLOW_ITEM_TYPE_ETH}, end};
	struct rte_flow_item bad[][3] = {
		{{.type = RTE_FLOW_ITEM_TYPE_TCP}, end},
		{{.type = RTE_FLOW_ITEM_TYPE_UDP}, {.type = RTE_FLOW_ITEM_TYPE_IPV4}, end},
		{{.type = RTE_FLOW_ITEM_TYPE_IPV4, .spec = &ttl, .mask = &ttl}, end},
		{{.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &ports, .last = &range}, end},
		{{.type = RTE_FLOW_ITEM_TYPE_UDP, .last = &ports}, end},
		{{.type = RTE_FLOW_ITEM_TYPE_UDP, .mask = &ports}, end},
	};
	struct rte_flow_action_queue zeroth = {.index = 0}, second = {.index = 1};
	struct rte_flow_action_rss none = {0},
				   tcp = {.types = RTE_ETH_RSS_TCP,
					   .queue_num = 1,
					   .queue = &zeroth.index},
				   beyond = {.queue_num = 1, .queue = &second.index},
				   keyless = {.queue_num = 1,
					   .queue = &zeroth.index,
					   .key_len = REPLAY_RSS_KEY},
				   queueless = {.queue_num = 1},
				   ipv6 = {.types = RTE_ETH_RSS_IPV6 | RTE_ETH_RSS_NONFRAG_IPV6_UDP,
					   .queue_num = 1,
					   .queue = &zeroth.index};
	struct rte_flow_action stop = {.type = RTE_FLOW_ACTION_TYPE_END};
	struct rte_flow_action queue[] = {{RTE_FLOW_ACTION_TYPE_QUEUE, &zeroth}, stop};
	struct rte_flow_action wrong[][3] = {
		{{RTE_FLOW_ACTION_TYPE_QUEUE, &second}, stop},
		{{RTE_FLOW_ACTION_TYPE_JUMP, NULL}, stop},
		{{RTE_FLOW_ACTION_TYPE_DROP, NULL}, {RTE_FLOW_ACTION_TYPE_QUEUE, &zeroth}, stop},
		{{RTE_FLOW_ACTION_TYPE_COUNT, NULL}, stop},
		{{RTE_FLOW_ACTION_TYPE_RSS, &none}, stop},
		{{RTE_FLOW_ACTION_TYPE_RSS, &tcp}, stop},
		{{RTE_FLOW_ACTION_TYPE_RSS, &beyond}, stop},
		{{RTE_FLOW_ACTION_TYPE_RSS, &keyless}, stop},
		{{RTE_FLOW_ACTION_TYPE_RSS, &queueless}, stop},
		{{RTE_FLOW_ACTION_TYPE_RSS, &ipv6}, stop},
		{{RTE_FLOW_ACTION_TYPE_QUEUE, &zeroth}, {RTE_FLOW_ACTION_TYPE_QUEUE, &zeroth},
			stop},
		{stop},
	};
	/*
	 * valid ranges: an upper limit of zero or the same value, or a difference that the mask
	 * excludes
	 */
	struct rte_flow_item_udp source = {.hdr.src_port = RTE_BE16(9)};
	struct rte_flow_item_udp dst_mask = {.hdr.dst_port = RTE_BE16(0xffff)};
	struct rte_flow_item good[][2] = {
		{{.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &range, .last = &ports}, end},
		{{.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &range, .last = &range}, end},
		{{.type = RTE_FLOW_ITEM_TYPE_UDP,
			 .spec = &ports,
			 .last = &source,
			 .mask = &dst_mask},
			end},
	};
	struct rte_flow_error error;
	struct replay_dev *replay;
	uint16_t port;

	write_equal(4, 200);
	port = start_single("", roomless, 0);
	assert_int_equal(rte_flow_validate(port, &in, any, queue, &error), 0);
	for (uint32_t i = 0; i < RTE_DIM(good); i++)
		assert_int_equal(rte_flow_validate(port, &in, good[i], queue, &error), 0);
	/* validation fails if creation would fail in the current state */
	replay = rte_eth_devices[port].data->dev_private;
	replay->can_pause = false;
	assert_int_equal(rte_flow_validate(port, &in, any, queue, &error), -EBUSY);
	assert_null(rte_flow_create(port, &in, any, queue, &error));
	replay->can_pause = true;
	assert_int_not_equal(rte_flow_validate(port, &out, any, queue, &error), 0);
	assert_non_null(error.message);
	assert_int_not_equal(rte_flow_validate(port, &group, any, queue, &error), 0);
	for (uint32_t i = 0; i < RTE_DIM(bad); i++) {
		error.message = NULL;
		assert_int_not_equal(rte_flow_validate(port, &in, bad[i], queue, &error), 0);
		assert_non_null(error.message);
	}
	for (uint32_t i = 0; i < RTE_DIM(wrong); i++) {
		error.message = NULL;
		assert_null(rte_flow_create(port, &in, any, wrong[i], &error));
		assert_non_null(error.message);
	}
	close_port(port);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(flow_rules_choose_the_queue, remove_port),
		cmocka_unit_test_teardown(queues_are_polled_by_threads_of_their_own, remove_port),
		cmocka_unit_test_teardown(rules_drop_count_and_spread, remove_port),
		cmocka_unit_test_teardown(counts_outlive_queues, remove_port),
		cmocka_unit_test_teardown(a_rule_may_drop_everything, remove_port),
		cmocka_unit_test_teardown(rings_follow_the_rules, remove_port),
		cmocka_unit_test_teardown(faults_keep_their_place_when_rules_change, remove_port),
		cmocka_unit_test_teardown(counts_never_go_back, remove_port),
		cmocka_unit_test_teardown(masks_choose_bits, remove_port),
		cmocka_unit_test_teardown(rss_is_toeplitz, remove_port),
		cmocka_unit_test_teardown(unknown_flow_rules_are_refused, remove_port),
	};

	return run_replay_tests(argv[0], tests, RTE_DIM(tests));
}
