/* SPDX-License-Identifier: BSD-3-Clause */
/* Payloads in memory that the CPU cannot access: net_replay_place(). */
#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>

#include <rte_errno.h>

#include "net_replay.h"
#include "replay_fixture.h"

#define FAR_BYTES ((size_t)8 << 20)

/* Addresses at which any access ends the process, and the memory that stands for their content. */
static uint8_t *far;
static unsigned int allocations, copies;
static int fail_copies;
static bool no_room;

static void *
far_alloc(void *arg, size_t size)
{
	assert_ptr_equal(arg, &far);
	allocations++;
	return no_room || size > FAR_BYTES ? NULL : far;
}

static uint8_t *
view_of(const void *at)
{
	assert_true((const uint8_t *)at >= far && (const uint8_t *)at < far + FAR_BYTES);
	return (uint8_t *)(uintptr_t)at + FAR_BYTES;
}

static int
far_copy(void *arg, void *to, const void *from, size_t size)
{
	assert_ptr_equal(arg, &far);
	if (fail_copies > 0) {
		fail_copies--;
		return -EIO;
	}
	copies++;
	memcpy(view_of(to), from, size);
	return 0;
}

static const struct net_replay_memory memory = {far_alloc, far_copy, &far};

static int
begin(void **state)
{
	allocations = copies = 0;
	fail_copies = 0;
	no_room = false;
	memset(far + FAR_BYTES, 0, FAR_BYTES);
	return 0;
}

/* The packet's headers are in host memory, its payload in the inaccessible memory. */
static void
assert_split(struct rte_mbuf *m, uint32_t nth, uint32_t len, uint32_t at)
{
	static uint8_t want[65535];

	make_frame(want, nth, len, (uint16_t)(5000 + nth % 4));
	assert_int_equal(m->pkt_len, len);
	assert_int_equal(m->data_len, at);
	assert_memory_equal(rte_pktmbuf_mtod(m, void *), want, at);
	assert_int_equal(m->nb_segs, 2);
	assert_int_equal(m->next->data_len, len - at);
	assert_memory_equal(view_of(rte_pktmbuf_mtod(m->next, void *)), want + at, len - at);
	assert_int_equal(rte_pktmbuf_mtod(m->next, uintptr_t) % LINE, 0);
}

static uint16_t
open_placed(const char *args)
{
	const int port = open_port(args);

	assert_true(port >= 0);
	assert_int_equal(net_replay_place((uint16_t)port, &memory), 0);
	configure((uint16_t)port, 1, SPLIT);
	return (uint16_t)port;
}

static void
references_go_into_the_twin(void **state)
{
	static const uint32_t len[] = {8240, 1000, 60, 65535};
	struct rte_eth_burst_mode mode;
	struct rte_mbuf *m[80];
	uint16_t port;

	write_capture(40, len, RTE_DIM(len), UINT32_MAX);
	port = open_placed("loops=2");
	assert_int_equal(split_queue(port, 0, zero, HEADERS), 0);
	assert_int_equal(rte_eth_dev_start(port), 0);
	assert_int_equal(rte_eth_rx_burst_mode_get(port, 0, &mode), 0);
	assert_non_null(strstr(mode.info, "placed"));
	assert_int_equal(receive(port, 0, m, 80), 80);
	for (uint32_t i = 0; i < 80; i++) {
		if (len[i % 4] <= HEADERS)
			assert_content(m[i], i % 40, len[i % 4]);
		else
			assert_split(m[i], i % 40, len[i % 4], HEADERS);
	}
	assert_int_equal(allocations, 1);
	assert_int_equal(copies, 1); /* one copy for all packets and both loops */
	rte_pktmbuf_free_bulk(m, 80);

	/* a second start finds it in place; one with another split position has it copied again */
	assert_int_equal(net_replay_place(port, &memory), -EBUSY);
	assert_int_equal(rte_eth_dev_stop(port), 0);
	assert_int_equal(net_replay_place(port, &memory), -EBUSY);
	assert_int_equal(rte_eth_dev_start(port), 0);
	assert_int_equal(copies, 1);
	assert_int_equal(rte_eth_dev_stop(port), 0);
	assert_int_equal(split_queue(port, 0, roomless, 64), 0);
	assert_int_equal(rte_eth_dev_start(port), 0);
	assert_int_equal(allocations, 1);
	assert_int_equal(copies, 2);
	assert_int_equal(receive(port, 0, m, 8), 8);
	assert_split(m[0], 0, 8240, 64);
	assert_split(m[7], 7, 65535, 64);
	rte_pktmbuf_free_bulk(m, 8);
	close_port(port);
	assert_pool_sound(zero);
	assert_pool_sound(roomless);
	assert_pool_sound(headers);
}

static void
rewritten_headers_are_private(void **state)
{
	struct rte_mbuf *m[30];
	uint16_t port;

	write_equal(10, 1000);
	port = open_placed("loops=3,rewrite=42:8:le:10");
	assert_int_equal(split_queue(port, 0, zero, HEADERS), 0);
	assert_int_equal(rte_eth_dev_start(port), 0);
	assert_int_equal(receive(port, 0, m, 30), 30);
	for (uint32_t i = 0; i < 30; i++)
		assert_int_equal(counter_of(m[i]), i);
	rte_pktmbuf_free_bulk(m, 30);
	close_port(port);
}

/* A mempool in inaccessible memory, as for a NIC. */
static struct rte_mempool *
make_far_pool(void)
{
	struct rte_pktmbuf_extmem ext = {
		.buf_ptr = far, .buf_iova = RTE_BAD_IOVA, .buf_len = 255 * 2048, .elt_size = 2048};

	return rte_pktmbuf_pool_create_extbuf("far", 255, 0, 0, 2048, 0, &ext, 1);
}

static void
a_pool_in_far_memory_is_filled(void **state)
{
	struct rte_mempool *pool = make_far_pool();
	struct rte_mbuf *m[300];
	uint16_t port;

	assert_non_null(pool);
	write_equal(300, 1500);
	port = open_placed("");
	assert_int_equal(split_queue(port, 0, pool, HEADERS), 0);
	assert_int_equal(rte_eth_dev_start(port), 0);
	fail_copies = 3; /* is repeated */
	assert_int_equal(receive(port, 0, m, 300), 255);
	assert_int_equal(xstat(port, "rx_copy_failed_bursts"), 3);
	assert_int_equal(fail_copies, 0);
	assert_int_equal(allocations, 0);
	assert_int_equal(copies, 255);
	for (uint32_t i = 0; i < 255; i++) {
		assert_split(m[i], i, 1500, HEADERS);
		assert_int_equal(m[i]->next->ol_flags, RTE_MBUF_F_EXTERNAL);
	}
	rte_pktmbuf_free_bulk(m, 255);
	assert_int_equal(receive(port, 0, m, 300), 45);
	assert_split(m[44], 299, 1500, HEADERS);
	rte_pktmbuf_free_bulk(m, 45);
	close_port(port);
	assert_int_equal(rte_mempool_avail_count(pool), 255);
	rte_mempool_free(pool);
	assert_pool_sound(headers);
}

static void
mistakes_are_refused(void **state)
{
	struct rte_mbuf *m[10];
	const struct net_replay_memory half = {.alloc = far_alloc};
	struct rte_mempool *pool;
	int port;

	assert_int_equal(net_replay_place(RTE_MAX_ETHPORTS - 1, &memory), -ENODEV);
	assert_int_equal(rte_errno, ENODEV);
	write_equal(10, 1000);
	port = open_port("");
	assert_true(port >= 0);
	assert_int_equal(net_replay_place((uint16_t)port, NULL), -EINVAL);
	assert_int_equal(net_replay_place((uint16_t)port, &half), -EINVAL);
	/* too late for a queue that is set up and would not use it; allowed without that queue */
	configure((uint16_t)port, 2, SPLIT);
	assert_int_equal(split_queue((uint16_t)port, 1, zero, HEADERS), 0);
	assert_int_equal(net_replay_place((uint16_t)port, &memory), -EBUSY);
	assert_int_equal(rte_errno, EBUSY);
	configure((uint16_t)port, 1, SPLIT);
	assert_int_equal(net_replay_place((uint16_t)port, &memory), 0);
	remove_port(NULL);

	/* a field that would have to be rewritten in inaccessible memory */
	pool = make_far_pool();
	assert_non_null(pool);
	port = open_placed("rewrite=100:4:le:1");
	assert_int_equal(split_queue((uint16_t)port, 0, pool, HEADERS), -ENOTSUP);
	remove_port(NULL);
	rte_mempool_free(pool);

	/*
	 * bits to be flipped in inaccessible memory; allowed for a queue whose frames are all in
	 * host memory
	 */
	pool = make_far_pool();
	assert_non_null(pool);
	port = open_placed("corrupt=1");
	assert_int_equal(split_queue((uint16_t)port, 0, pool, HEADERS), -ENOTSUP);
	assert_int_equal(split_queue((uint16_t)port, 0, zero, HEADERS), -ENOTSUP);
	configure((uint16_t)port, 1, 0);
	assert_int_equal(rte_eth_rx_queue_setup((uint16_t)port, 0, 64, 0, NULL, roomless), 0);
	assert_int_equal(rte_eth_dev_start((uint16_t)port), 0);
	assert_int_equal(receive((uint16_t)port, 0, m, 10), 10);
	rte_pktmbuf_free_bulk(m, 10);
	remove_port(NULL);
	rte_mempool_free(pool);

	for (int i = 0; i < 2; i++) {
		no_room = i == 0;
		fail_copies = 1;
		port = open_placed("");
		assert_int_equal(split_queue((uint16_t)port, 0, zero, HEADERS), 0);
		assert_int_equal(rte_eth_dev_start((uint16_t)port), i == 0 ? -ENOMEM : -EIO);
		remove_port(NULL);
	}
}

static int
end(void **state)
{
	return remove_port(state);
}

#define PLACED(test) cmocka_unit_test_setup_teardown(test, begin, end)

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		PLACED(references_go_into_the_twin),
		PLACED(rewritten_headers_are_private),
		PLACED(a_pool_in_far_memory_is_filled),
		PLACED(mistakes_are_refused),
	};

	far = mmap(NULL, 2 * FAR_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (far == MAP_FAILED || mprotect(far + FAR_BYTES, FAR_BYTES, PROT_READ | PROT_WRITE) != 0)
		return 1;
	return run_replay_tests(argv[0], tests, RTE_DIM(tests));
}
