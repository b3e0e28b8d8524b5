/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Devices on several kinds of ports: IPv6, VLAN, poll groups, ports started by the application,
 * shared queues, arguments.
 */
#include "roce_rig.h"

#include <errno.h>
#include <stdio.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ip.h>

#include <ethdev_driver.h>

#include "rdma_roce.h"
#include "ring_port.h"

static struct rig rig;

/* Properties of the frames. */
static unsigned int seen_v6, seen_vlan, segments;

static bool
look(struct rig *r, unsigned int from, struct rte_mbuf *m)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	unsigned int at = 12;

	if (frame[at] == 0x81 && frame[at + 1] == 0x00) {
		assert_int_equal(frame[at + 2] << 8 | frame[at + 3], 3 << 13 | 100);
		seen_vlan++;
		at += 4;
	}
	seen_v6 += frame[at] == 0x86 && frame[at + 1] == 0xdd;
	segments = RTE_MAX(segments, m->nb_segs);
	return true;
}

static void
one_way(enum rdma_op op, uint32_t length)
{
	uint8_t *mine = rig.end[0].memory, *theirs = rig.end[1].memory;
	struct rdma_sge s = {(uintptr_t)mine, length, rdma_mr_lkey(rig.end[0].mr)};
	struct rdma_sge r = {(uintptr_t)theirs, length, rdma_mr_lkey(rig.end[1].mr)};
	struct rdma_send_wr wr = {.sg = &s,
		.nb_sge = 1,
		.op = op,
		.flags = RDMA_SEND_SIGNALED,
		.remote_addr = (uintptr_t)theirs,
		.rkey = rdma_mr_rkey(rig.end[1].mr)};
	struct rdma_recv_wr rr = {.sg = &r, .nb_sge = 1};
	struct rdma_wc wc;
	uint32_t i;

	for (i = 0; i < length; i++) {
		mine[i] = rig_random(&rig, 256);
		theirs[i] = rig_random(&rig, 256);
	}
	if (op == RDMA_OP_SEND)
		assert_int_equal(rdma_post_recv(rig.end[1].qp, &rr, 1), 1);
	assert_int_equal(rdma_post_send(rig.end[0].qp, &wr, 1), 1);
	assert_int_equal(rig_wait(&rig, 0, &wc, 5000), 1);
	assert_int_equal(wc.status, RDMA_WC_SUCCESS);
	if (op == RDMA_OP_SEND)
		assert_int_equal(rig_wait(&rig, 1, &wc, 5000), 1);
	assert_memory_equal(mine, theirs, length);
}

static void
traffic(uint16_t mtu)
{
	static const uint32_t sizes[] = {1, 100, 4096, 100001};
	const struct rdma_qp_attr attr = {.type = RDMA_QP_RC, .retry_count = 7, .rnr_retry = 7};
	unsigned int i;

	rig.tap = look;
	seen_v6 = seen_vlan = segments = 0;
	rig_connect(&rig, &attr, mtu);
	for (i = 0; i < RTE_DIM(sizes); i++) {
		one_way(RDMA_OP_WRITE, sizes[i]);
		one_way(RDMA_OP_SEND, sizes[i]);
		one_way(RDMA_OP_READ, sizes[i]);
	}
	rig_disconnect(&rig);
}

static void
with(unsigned int poll_groups, uint16_t pg, bool started, const char *options)
{
	rig.poll_groups = poll_groups;
	rig.poll_group = pg;
	rig.started = started;
	rig_open_as(&rig, options);
}

static void
test_ipv6(void **state)
{
	with(1, 0, false, "ip=fd00::%u/64,mtu=2048");
	traffic(2048);
	assert_true(seen_v6 > 150);
	assert_int_equal(rig_stat(&rig, 1, "rx_icrc_errors"), 0);
	rig_close(&rig);
}

static void
test_vlan(void **state)
{
	with(1, 0, false, "ip=10.0.0.%u/24,mtu=512,vlan=100:3");
	traffic(256);
	assert_true(seen_vlan > 300);
	rig_close(&rig);
}

static void
test_ipv6_vlan(void **state)
{
	with(1, 0, false, "ip=fd00::%u/64,mtu=4096,vlan=100:3");
	traffic(4096);
	assert_true(seen_vlan > 30 && seen_v6 > 30);
	rig_close(&rig);
}

/* RSS distributes packets to any queue: each is passed to the poll group of its queue pair. */
static void
test_poll_groups(void **state)
{
	with(3, 2, false, "ip=10.0.0.%u/24,mtu=1024,poll_groups=3");
	traffic(1024);
	assert_true(rig_stat(&rig, 1, "rx_handed_over") > 80);
	rig_close(&rig);
}

static void
test_handover(void **state)
{
	with(2, 1, false, "ip=10.0.0.%u/24,mtu=1024,poll_groups=2,handover=1");
	rig.first_queue = true;
	traffic(1024);
	assert_true(rig_stat(&rig, 1, "rx_handed_over") > 200);
	rig_close(&rig);
}

/* A port that the application has started without multi-segment support: payload is copied. */
static void
test_copy(void **state)
{
	with(1, 0, true, "ip=10.0.0.%u/24,mtu=4096");
	traffic(4096);
	assert_int_equal(segments, 1);
	rig_close(&rig);
}

/* Another poller has the queue: our packets are taken, others stay in order. */
static void
test_shared(void **state)
{
	const struct rdma_qp_attr attr = {.type = RDMA_QP_RC, .retry_count = 7, .rnr_retry = 7};
	uint8_t *mine, *theirs;
	struct rdma_sge s;
	struct rdma_send_wr wr = {
		.sg = &s, .nb_sge = 1, .op = RDMA_OP_WRITE, .flags = RDMA_SEND_SIGNALED};
	struct rte_mbuf *m[32], *foreign;
	struct rte_mempool *pool;
	struct rdma_wc wc;
	unsigned int i, n, strangers = 0, turns = 0;
	uint16_t port, kept;

	with(1, 0, false, "ip=10.0.0.%u/24,mtu=1024");
	rig_connect(&rig, &attr, 1024);
	mine = rig.end[0].memory;
	theirs = rig.end[1].memory;
	s = (struct rdma_sge){(uintptr_t)mine, 50000, rdma_mr_lkey(rig.end[0].mr)};
	wr.remote_addr = (uintptr_t)theirs;
	wr.rkey = rdma_mr_rkey(rig.end[1].mr);
	pool = rte_pktmbuf_pool_create("strangers", 1023, 0, 0, 256, 0);
	assert_non_null(pool);
	for (i = 0; i < 50000; i++)
		mine[i] = rig_random(&rig, 256);
	assert_int_equal(rte_eth_dev_get_port_by_name("net_ring_rig1", &port), 0);
	assert_int_equal(rdma_post_send(rig.end[0].qp, &wr, 1), 1);
	while (!rdma_poll_cq(rig.end[0].cq, &wc, 1)) {
		assert_true(turns++ < 100000);
		rdma_progress(rig.end[0].dev, 0);
		/* the wire, with frames of another application in between, and the poller */
		n = rte_ring_dequeue_burst(rig.end[0].tx[0], (void **)m, 16, NULL);
		for (i = 0; i < n; i++) {
			foreign = rte_pktmbuf_alloc(pool);
			assert_non_null(foreign);
			memset(rte_pktmbuf_append(foreign, 60), 0, 60);
			*rte_pktmbuf_mtod_offset(foreign, uint16_t *, 12) = RTE_BE16(0x0800);
			*rte_pktmbuf_mtod_offset(foreign, uint32_t *, 48) = strangers + i;
			rte_ring_enqueue(rig.end[1].rx[0], m[i]);
			rte_ring_enqueue(rig.end[1].rx[0], foreign);
		}
		n = rte_eth_rx_burst(port, 0, m, 32);
		kept = rdma_roce_rx(rig.end[1].dev, 0, m, n);
		for (i = 0; i < kept; i++)
			assert_int_equal(
				*rte_pktmbuf_mtod_offset(m[i], uint32_t *, 48), strangers++);
		rte_pktmbuf_free_bulk(m, kept);
		rdma_progress(rig.end[1].dev, 0);
		n = rte_ring_dequeue_burst(rig.end[1].tx[0], (void **)m, 32, NULL);
		for (i = 0; i < n; i++)
			rte_ring_enqueue(rig.end[0].rx[0], m[i]);
	}
	assert_int_equal(wc.status, RDMA_WC_SUCCESS);
	assert_memory_equal(mine, theirs, 50000);
	assert_true(strangers >= 49);
	rte_mempool_free(pool);
	rig_disconnect(&rig);
	rig_close(&rig);
}

static void
test_arguments(void **state)
{
	static const struct {
		const char *name;
		int error;
	} bad[] = {
		{"roce:", EINVAL},
		{"roce:port=nosuch,ip=10.0.0.1/24", ENODEV},
		{"roce:port=net_ring_rig0", EINVAL},
		{"roce:port=net_ring_rig0,ip=10.0.0.1", EINVAL},
		{"roce:port=net_ring_rig0,ip=10.0.0.1/33", EINVAL},
		{"roce:port=net_ring_rig0,ip=10.0.0.1/24,ip=10.0.0.2/24", EINVAL},
		{"roce:port=net_ring_rig0,ip=224.0.0.1/24", EINVAL},
		{"roce:port=net_ring_rig0,ip=10.0.0.1/24,mtu=1000", EINVAL},
		{"roce:port=net_ring_rig0,ip=10.0.0.1/24,poll_groups=0", EINVAL},
		{"roce:port=net_ring_rig0,ip=10.0.0.1/24,colour=red", EINVAL},
		{"roce:port=net_ring_rig0,ip=10.0.0.1/24,vlan=5000", EINVAL},
		{"roce:port=net_ring_rig0,ip=10.0.0.1/24,cc=cubic", EINVAL},
		{"roce:port=net_ring_rig0,ip=10.0.0.7/24", EBUSY},
		{"rose:port=net_ring_rig0,ip=10.0.0.1/24", EINVAL},
	};
	unsigned int i;

	with(1, 0, false, "ip=10.0.0.%u/24,mtu=1024");
	for (i = 0; i < RTE_DIM(bad); i++) {
		assert_null(rdma_dev_open(bad[i].name));
		if (rte_errno != bad[i].error)
			fail_msg("%s: %s, expected %s", bad[i].name, rte_strerror(rte_errno),
				rte_strerror(bad[i].error));
	}
	rig_close(&rig);
}

/* A port that the provider configures reports that its device was unplugged, if the driver can. */
static void
test_removal_events(void **state)
{
	struct rte_eth_conf conf;
	struct rte_ring *rx, *tx;
	struct rdma_dev *dev;
	uint16_t port;

	port = ring_port_make("removable", 64, 1, &rx, &tx);
	for (int flagged = 0; flagged < 2; flagged++) {
		if (flagged)
			rte_eth_devices[port].data->dev_flags |= RTE_ETH_DEV_INTR_RMV;
		dev = rdma_dev_open("roce:port=net_ring_removable,ip=10.0.0.1/24");
		assert_non_null(dev);
		assert_int_equal(rte_eth_dev_conf_get(port, &conf), 0);
		assert_int_equal(conf.intr_conf.rmv, flagged);
		assert_int_equal(rdma_dev_close(dev), 0);
	}
	assert_int_equal(rte_eth_dev_close(port), 0);
	rte_ring_free(rx);
	rte_ring_free(tx);
}

static int
setup(void **state)
{
	rig_eal();
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ipv6),
		cmocka_unit_test(test_vlan),
		cmocka_unit_test(test_ipv6_vlan),
		cmocka_unit_test(test_poll_groups),
		cmocka_unit_test(test_handover),
		cmocka_unit_test(test_copy),
		cmocka_unit_test(test_shared),
		cmocka_unit_test(test_arguments),
		cmocka_unit_test(test_removal_events),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
