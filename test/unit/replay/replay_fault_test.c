/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Faults of net_replay: they do not depend on how the queue delivers packets, and all are counted.
 */
#include <stdio.h>

#include <rte_flow.h>

#include "replay_fixture.h"

#define PACKETS 500u
#define LOOPS	3u
#define MOST	(PACKETS * LOOPS * 2)

#define FAULTS                                                                                 \
	"loops=3,seed=7,loss=0.05,burst_loss=0.01:8,reorder=0.3:16,duplicate=0.1,corrupt=0.1," \
	"truncate=0.1"

static const uint32_t lengths[] = {1000, 60, 300, 2000, 91};

/* Properties of each received packet. */
struct received {
	uint32_t n;
	uint32_t len[MOST];
	uint32_t sum[MOST];
};

static uint32_t
checksum(const struct rte_mbuf *m)
{
	uint32_t sum = 2166136261u; /* FNV-1a */

	for (; m != NULL; m = m->next)
		for (uint32_t i = 0; i < m->data_len; i++)
			sum = (sum ^ *rte_pktmbuf_mtod_offset(m, const uint8_t *, i)) * 16777619u;
	return sum;
}

static void
receive_all(uint16_t port, uint32_t burst, struct received *r)
{
	struct rte_mbuf *m[64];

	r->n = 0;
	while (!xstat(port, "replay_done")) {
		const uint32_t n = rte_eth_rx_burst(port, 0, m, (uint16_t)burst);

		for (uint32_t i = 0; i < n; i++) {
			rte_mbuf_sanity_check(m[i], 1);
			assert_true(r->n < MOST);
			r->len[r->n] = m[i]->pkt_len;
			r->sum[r->n++] = checksum(m[i]);
		}
		rte_pktmbuf_free_bulk(m, n);
	}
}

static void
assert_same(const struct received *a, const struct received *b)
{
	assert_int_equal(a->n, b->n);
	assert_memory_equal(a->len, b->len, a->n * sizeof(a->len[0]));
	assert_memory_equal(a->sum, b->sum, a->n * sizeof(a->sum[0]));
}

static void
faults_do_not_depend_on_queues(void **state)
{
	static struct received first, other;
	struct rte_mempool *few = rte_pktmbuf_pool_create("few", 3, 0, 0, 0, SOCKET_ID_ANY);
	uint64_t lost, burst_lost, duplicated;
	uint16_t port;

	assert_non_null(few);
	write_capture(PACKETS, lengths, RTE_DIM(lengths), UINT32_MAX);
	port = start_single(FAULTS, roomless, 0);
	receive_all(port, 32, &first);
	lost = xstat(port, "rx_fault_lost_packets");
	burst_lost = xstat(port, "rx_fault_burst_lost_packets");
	duplicated = xstat(port, "rx_fault_duplicated_packets");
	assert_int_equal(first.n, PACKETS * LOOPS - lost - burst_lost + duplicated);
	assert_in_range(lost, 30, 130); /* 75 expected on average */
	assert_in_range(burst_lost, 1, 60);
	assert_in_range(duplicated, 80, 220);
	assert_in_range(xstat(port, "rx_fault_corrupted_packets"), 80, 240);
	assert_in_range(xstat(port, "rx_fault_truncated_packets"), 80, 240);
	assert_in_range(xstat(port, "rx_fault_reordered_packets"), 200, 700);
	assert_int_equal(xstat(port, "replay_references_outstanding"), 0);
	close_port(port);
	assert_pool_sound(roomless);

	port = start_single(FAULTS, small, RTE_ETH_RX_OFFLOAD_SCATTER);
	receive_all(port, 64, &other);
	close_port(port);
	assert_pool_sound(small);
	assert_same(&first, &other);

	port = start_split(FAULTS, zero, 90);
	receive_all(port, 7, &other);
	close_port(port);
	assert_pool_sound(zero);
	assert_pool_sound(headers);
	assert_same(&first, &other);

	/*
	 * there are too few mbufs, so that the queue stops at any packet, also between two
	 * duplicates
	 */
	port = start_split(FAULTS, few, 90);
	receive_all(port, 64, &other);
	assert_int_equal(xstat(port, "rx_fault_lost_packets"), lost);
	assert_int_equal(xstat(port, "rx_fault_duplicated_packets"), duplicated);
	close_port(port);
	assert_pool_sound(few);
	assert_same(&first, &other);

	port = start_single(FAULTS ",rate=1000000", ordinary, 0);
	receive_all(port, 1, &other);
	close_port(port);
	assert_same(&first, &other);
	rte_mempool_free(few);
}

/* Each queue delivers its packets in the common order, and none is delivered twice. */
static void
queues_share_one_order(void **state)
{
	static struct received whole, part;
	struct rte_flow_attr in = {.ingress = 1};
	const uint16_t queues[] = {0, 1, 2};
	struct rte_flow_action_rss rss = {.queue_num = RTE_DIM(queues), .queue = queues};
	struct rte_flow_item any[] = {
		{.type = RTE_FLOW_ITEM_TYPE_ETH}, {.type = RTE_FLOW_ITEM_TYPE_END}};
	struct rte_flow_action spread[] = {
		{RTE_FLOW_ACTION_TYPE_RSS, &rss}, {.type = RTE_FLOW_ACTION_TYPE_END}};
	static const char *const counted[] = {"rx_fault_lost_packets",
		"rx_fault_burst_lost_packets", "rx_fault_reordered_packets",
		"rx_fault_duplicated_packets", "rx_fault_corrupted_packets",
		"rx_fault_truncated_packets"};
	uint64_t counts[RTE_DIM(counted)];
	struct rte_flow_error error;
	uint32_t total = 0, used = 0;
	int port;

	write_capture(PACKETS, lengths, RTE_DIM(lengths), UINT32_MAX);
	port = start_single(FAULTS, roomless, 0);
	receive_all((uint16_t)port, 32, &whole);
	for (uint32_t i = 0; i < RTE_DIM(counted); i++)
		counts[i] = xstat((uint16_t)port, counted[i]);
	close_port((uint16_t)port);

	port = open_queues(FAULTS, 3, 64, roomless, 0);
	assert_non_null(rte_flow_create((uint16_t)port, &in, any, spread, &error));
	assert_int_equal(rte_eth_dev_start((uint16_t)port), 0);
	for (uint16_t q = 0; q < 3; q++) {
		struct rte_mbuf *m[17];
		uint32_t n, at = 0;

		part.n = 0;
		while ((n = receive((uint16_t)port, q, m, RTE_DIM(m))) != 0) {
			for (uint32_t i = 0; i < n; i++) {
				part.len[part.n] = m[i]->pkt_len;
				part.sum[part.n++] = checksum(m[i]);
			}
			rte_pktmbuf_free_bulk(m, n);
		}
		used += part.n != 0;
		total += part.n;
		for (uint32_t i = 0; i < part.n; i++, at++) {
			while (at < whole.n &&
				(whole.sum[at] != part.sum[i] || whole.len[at] != part.len[i]))
				at++;
			assert_true(at < whole.n);
		}
	}
	assert_int_equal(total, whole.n);
	assert_true(used > 1);
	for (uint32_t i = 0; i < RTE_DIM(counted); i++)
		assert_int_equal(xstat((uint16_t)port, counted[i]), counts[i]);
	close_port((uint16_t)port);
	assert_pool_sound(roomless);
}

static void
another_seed_gives_other_faults(void **state)
{
	static struct received first, other;
	uint16_t port;

	write_capture(PACKETS, lengths, RTE_DIM(lengths), UINT32_MAX);
	port = start_single("loss=0.5,seed=1", roomless, 0);
	receive_all(port, 32, &first);
	close_port(port);
	port = start_single("loss=0.5,seed=2", roomless, 0);
	receive_all(port, 32, &other);
	close_port(port);
	assert_true(first.n != other.n || memcmp(first.sum, other.sum, sizeof(first.sum)) != 0);
}

static void
each_fault_alone_does_what_it_says(void **state)
{
	struct rte_mbuf *m[PACKETS * 2];
	uint32_t seen[PACKETS] = {0}, n, changed = 0, moved = 0;
	static uint8_t want[200];
	uint16_t port;

	write_equal(PACKETS, 200);
	port = start_single("loss=1", roomless, 0);
	assert_int_equal(receive(port, 0, m, PACKETS), 0);
	assert_int_equal(xstat(port, "rx_fault_lost_packets"), PACKETS);
	close_port(port);

	port = start_single("duplicate=1", roomless, 0);
	assert_int_equal(receive(port, 0, m, PACKETS * 2), PACKETS * 2);
	for (uint32_t i = 0; i < PACKETS * 2; i++)
		assert_content(m[i], i / 2, 200);
	rte_pktmbuf_free_bulk(m, PACKETS * 2);
	close_port(port);

	/* runs of ten that begin at multiples of ten */
	port = start_single("burst_loss=0.3:10", roomless, 0);
	n = receive(port, 0, m, PACKETS);
	assert_true(n > 0 && n < PACKETS && n % 10 == 0);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(counter_of(m[i]) % 10, i % 10);
	rte_pktmbuf_free_bulk(m, n);
	close_port(port);

	/* all packets arrive, none further from its position than the window */
	port = start_single("reorder=1:32", roomless, 0);
	assert_int_equal(receive(port, 0, m, PACKETS), PACKETS);
	for (uint32_t i = 0; i < PACKETS; i++) {
		const uint64_t nth = counter_of(m[i]);

		assert_int_equal(nth / 32, i / 32);
		assert_int_equal(seen[nth]++, 0);
		moved += nth != i;
	}
	assert_int_equal(xstat(port, "rx_fault_reordered_packets"), moved);
	assert_true(moved > PACKETS / 2);
	rte_pktmbuf_free_bulk(m, PACKETS);
	close_port(port);

	port = start_split("truncate=1", zero, 90);
	assert_int_equal(receive(port, 0, m, PACKETS), PACKETS);
	for (uint32_t i = 0; i < PACKETS; i++) {
		uint8_t bytes[200];

		assert_in_range(m[i]->pkt_len, 1, 199);
		/* only complete headers are reported as headers */
		assert_int_equal((m[i]->packet_type & RTE_PTYPE_L2_MASK) == RTE_PTYPE_L2_ETHER,
			m[i]->pkt_len >= 14);
		assert_int_equal(
			RTE_ETH_IS_IPV4_HDR(m[i]->packet_type) != 0, m[i]->pkt_len >= 14 + 20);
		assert_int_equal((m[i]->packet_type & RTE_PTYPE_L4_MASK) == RTE_PTYPE_L4_UDP,
			m[i]->pkt_len >= 14 + 20 + 8);
		make_frame(want, i, 200, (uint16_t)(5000 + i % 4));
		assert_memory_equal(
			rte_pktmbuf_read(m[i], 0, m[i]->pkt_len, bytes), want, m[i]->pkt_len);
	}
	rte_pktmbuf_free_bulk(m, PACKETS);
	close_port(port);

	/* at most eight bits, in a copy: in the next loop the packet is as captured */
	port = start_split("corrupt=0.5,loops=2", zero, 90);
	for (uint32_t i = 0; i < PACKETS * 2; i++) {
		uint8_t bytes[200];
		const uint8_t *have;
		uint32_t bits = 0;

		assert_int_equal(receive(port, 0, m, 1), 1);
		make_frame(want, i % PACKETS, 200, (uint16_t)(5000 + i % 4));
		have = rte_pktmbuf_read(m[0], 0, 200, bytes);
		for (uint32_t b = 0; b < 200; b++)
			bits += (uint32_t)__builtin_popcount(have[b] ^ want[b]);
		assert_in_range(bits, 0, 8);
		changed += bits != 0;
		rte_pktmbuf_free(m[0]);
	}
	assert_int_equal(xstat(port, "rx_fault_corrupted_packets"), changed);
	assert_in_range(changed, PACKETS * 3 / 4, PACKETS * 5 / 4);
	close_port(port);
	assert_pool_sound(zero);
	assert_pool_sound(headers);
}

static void
changed_copies_outlive_the_port(void **state)
{
	struct rte_mbuf *m[10];
	uint16_t port;

	write_equal(10, 200);
	port = start_single("corrupt=1", roomless, 0);
	assert_int_equal(receive(port, 0, m, 10), 10);
	close_port(port);
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(m[i]->pkt_len, 200);
	assert_true(checksum(m[0]) != checksum(m[1]));
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(rte_pktmbuf_mtod_offset(m[i], uintptr_t, HEADERS) % LINE, 0);
	rte_pktmbuf_free_bulk(m, 10);
	assert_pool_sound(roomless);
}

/*
 * Whole frames with split payloads: a corrupted one has the usual alignment, also the longest one.
 */
static void
changed_copies_are_aligned(void **state)
{
	static const uint32_t len[] = {65535, 1000, 91};
	struct rte_mbuf *m[9];
	uint16_t port;

	write_capture(9, len, RTE_DIM(len), UINT32_MAX);
	for (uint32_t split = 0; split < 2; split++) {
		port = split ? start_split("corrupt=1", zero, 70)
			     : start_single("corrupt=1,align_at=70", roomless, 0);
		assert_int_equal(receive(port, 0, m, 9), 9);
		for (uint32_t i = 0; i < 9; i++) {
			const uintptr_t at = split ? rte_pktmbuf_mtod(m[i]->next, uintptr_t)
						   : rte_pktmbuf_mtod_offset(m[i], uintptr_t, 70);

			assert_int_equal(at % LINE, 0);
			assert_int_equal(m[i]->pkt_len, len[i % 3]);
		}
		rte_pktmbuf_free_bulk(m, 9);
		close_port(port);
	}
	assert_pool_sound(roomless);
	assert_pool_sound(zero);
	assert_pool_sound(headers);
}

/* The port waits for spare buffers as it does for mbufs, and counts this. */
static void
changed_copies_are_limited(void **state)
{
	struct rte_mbuf *m[300];
	uint16_t port;

	write_equal(300, 200);
	port = start_single("corrupt=1", roomless, 0);
	assert_int_equal(receive(port, 0, m, 300), 255);
	assert_true(xstat(port, "rx_no_spare_bursts") > 0);
	assert_int_equal(xstat(port, "rx_no_mbuf_bursts"), 0);
	rte_pktmbuf_free_bulk(m, 255);
	assert_int_equal(receive(port, 0, m, 300), 45);
	rte_pktmbuf_free_bulk(m, 45);
	assert_int_equal(xstat(port, "rx_fault_corrupted_packets"), 300);
	close_port(port);
	assert_pool_sound(roomless);
}

static void
wrong_faults_are_refused(void **state)
{
	static const char *const wrong[] = {"loss=1.1", "loss=-0.1", "loss=", "loss=0.1:3",
		"burst_loss=0.1", "burst_loss=0.1:0", "burst_loss=0.1:65536", "reorder=0.1:1",
		"reorder=0.1:257", "reorder=0.1", "duplicate=x", "corrupt=nan", "truncate=0.1x",
		"seed=x", "loss=0.1,loss=0.2", "timestamp=now"};

	write_equal(4, 200);
	for (uint32_t i = 0; i < RTE_DIM(wrong); i++)
		assert_int_equal(open_port(wrong[i]), -1);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(faults_do_not_depend_on_queues, remove_port),
		cmocka_unit_test_teardown(queues_share_one_order, remove_port),
		cmocka_unit_test_teardown(another_seed_gives_other_faults, remove_port),
		cmocka_unit_test_teardown(each_fault_alone_does_what_it_says, remove_port),
		cmocka_unit_test_teardown(changed_copies_outlive_the_port, remove_port),
		cmocka_unit_test_teardown(changed_copies_are_aligned, remove_port),
		cmocka_unit_test_teardown(changed_copies_are_limited, remove_port),
		cmocka_unit_test_teardown(wrong_faults_are_refused, remove_port),
	};

	return run_replay_tests(argv[0], tests, RTE_DIM(tests));
}
