/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Datagrams to a multicast group with members in four poll groups, each of which is polled by its
 * own lcore.
 */
#include "roce_rig.h"

#include <arpa/inet.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_launch.h>
#include <rte_lcore.h>

#include "roce.h"
#include "engine/packet.h"

#define GROUP  "239.1.2.3"
#define BURST  32
#define BURSTS 40 /* more than the control pool can copy: 40 * 32 * 3 */

static struct rig rig;
static struct rte_mempool *pool;
static struct rte_mbuf *datagram; /* as sent by end 0 */
static struct {
	struct rdma_cq *cq;
	struct rdma_qp *qp;
	struct rdma_conn *conn;
} member[RIG_LANES];

static struct sockaddr_storage
group(void)
{
	struct sockaddr_storage sa = {0};
	struct sockaddr_in *in = (struct sockaddr_in *)&sa;

	in->sin_family = AF_INET;
	assert_int_equal(inet_pton(AF_INET, GROUP, &in->sin_addr), 1);
	return sa;
}

static bool catch (struct rig *r, unsigned int from, struct rte_mbuf *m)
{
	struct roce_packet pkt;

	if (from == 0 && roce_packet_parse(m, &pkt) == ROCE_PACKET_DATA) {
		rte_pktmbuf_free(datagram);
		datagram = rte_pktmbuf_copy(m, pool, 0, UINT32_MAX);
	}
	return false;
}

/* Make a datagram as end 0 sends it. */
static void
datagram_make(void)
{
	const struct sockaddr_storage sa = group();
	const struct rdma_qp_attr attr = {.type = RDMA_QP_UD,
		.send_cq = rig.end[0].cq,
		.recv_cq = rig.end[0].cq,
		.max_inline = 16};
	const struct rdma_sge s = {.addr = (uintptr_t) "hello, all of us", .length = 16};
	struct rdma_send_wr wr = {.sg = &s,
		.nb_sge = 1,
		.flags = RDMA_SEND_INLINE,
		.ud = {.remote_qpn = 0xffffff, .remote_qkey = 0x01234567}};
	struct rdma_qp *qp = rdma_qp_create(rig.end[0].pd, &attr);

	assert_non_null(qp);
	assert_int_equal(rdma_qp_connect(qp, NULL), 0);
	wr.ud.ah = rdma_ah_create(rig.end[0].pd, (const struct sockaddr *)&sa, 0, 0);
	assert_non_null(wr.ud.ah);
	assert_int_equal(rdma_post_send(qp, &wr, 1), 1);
	rig.tap = catch;
	rig_run(&rig, 1);
	rig.tap = NULL;
	assert_non_null(datagram);
	assert_int_equal(rdma_ah_destroy(wr.ud.ah), 0);
	assert_int_equal(rdma_qp_destroy(qp), 0);
}

static int
poll_group(void *arg)
{
	rdma_progress(rig.end[1].dev, (uintptr_t)arg);
	return 0;
}

/* The main lcore receives a burst, and the other lcores process its copies. */
static void
burst(const struct rte_mbuf *frame)
{
	struct rte_mbuf *m;
	uintptr_t i;

	for (i = 0; i < BURST; i++) {
		m = rte_pktmbuf_copy(frame, pool, 0, UINT32_MAX);
		assert_non_null(m);
		assert_int_equal(rte_ring_enqueue(rig.end[1].rx[0], m), 0);
	}
	poll_group(NULL);
	for (i = 1; i < RIG_LANES; i++) {
		assert_int_equal(rte_eal_remote_launch(poll_group, (void *)i, i), 0);
		assert_int_equal(rte_eal_wait_lcore(i), 0);
	}
}

/*
 * Lcores that only free copies cache few mbufs, so that enough are left for the next burst and for
 * control.
 */
static void
test_copies_come_back(void **state)
{
	unsigned int i;

	for (i = 0; i < BURSTS; i++)
		burst(datagram);
	assert_int_equal(rig_stat(&rig, 1, "rx_packets"), BURSTS * BURST);
	assert_int_equal(rig_stat(&rig, 1, "rx_handover_ring_full"), 0);
	assert_int_equal(rig_stat(&rig, 1, "rx_handed_over"), BURSTS * BURST * (RIG_LANES - 1));
	/* no receive is posted, but each member is tried */
	assert_int_equal(rig_stat(&rig, 1, "rx_no_receive_posted"), BURSTS * BURST * RIG_LANES);
}

/* ECN marks are counted once per packet; copies that fail for lack of mbufs have a counter. */
static void
test_counters(void **state)
{
	static struct rte_mbuf *taken[8192];
	struct rte_mempool *control = roce_dev(rig.end[1].dev)->pool;
	struct rte_mbuf *marked = rte_pktmbuf_copy(datagram, pool, 0, UINT32_MAX);
	unsigned int n = 0;

	assert_non_null(marked);
	*rte_pktmbuf_mtod_offset(marked, uint8_t *, 15) |= 3;
	burst(marked);
	assert_int_equal(rig_stat(&rig, 1, "rx_congestion_marks"), BURST);
	rte_pktmbuf_free(marked);
	while (n < RTE_DIM(taken) && (taken[n] = rte_pktmbuf_alloc(control)))
		n++;
	assert_in_range(n, 1, RTE_DIM(taken) - 1);
	burst(datagram);
	assert_int_equal(rig_stat(&rig, 1, "rx_no_mbuf"), BURST * (RIG_LANES - 1));
	assert_int_equal(rig_stat(&rig, 1, "rx_handover_ring_full"), 0);
	rte_pktmbuf_free_bulk(taken, n);
}

/* Packets that no member would accept are not copied. */
static void
test_junk_is_not_copied(void **state)
{
	const uint64_t copies = rig_stat(&rig, 1, "rx_handed_over");
	struct rte_mbuf *junk = rte_pktmbuf_copy(datagram, pool, 0, UINT32_MAX);
	struct roce_packet pkt;

	assert_non_null(junk);
	rte_pktmbuf_mtod(junk, uint8_t *)[junk->pkt_len - 1] ^= 1;
	burst(junk);
	assert_int_equal(rig_stat(&rig, 1, "rx_icrc_errors"), BURST);
	assert_int_equal(roce_packet_parse(junk, &pkt), ROCE_PACKET_DATA);
	((struct roce_bth *)(uintptr_t)pkt.bth)->pkey = RTE_BE16(1);
	burst(junk);
	assert_int_equal(rig_stat(&rig, 1, "rx_bad_pkey"), BURST);
	/* to a unicast address, with the multicast queue pair number */
	((struct roce_bth *)(uintptr_t)pkt.bth)->pkey = RTE_BE16(ROCE_PKEY);
	((uint8_t *)(uintptr_t)pkt.l3)[16] = 10;
	burst(junk);
	assert_int_equal(rig_stat(&rig, 1, "rx_not_for_us"), BURST);
	assert_int_equal(rig_stat(&rig, 1, "rx_handed_over"), copies);
	rte_pktmbuf_free(junk);
}

static int
setup(void **state)
{
	const char *argv[] = {"roce_spread", "--no-huge", "-m", "512", "--no-pci", "--no-shconf",
		"--lcores", "(0-3)@0", "--log-level", "lib.eal:warning"};
	const struct sockaddr_storage sa = group();
	struct rdma_qp_attr attr = {.type = RDMA_QP_UD};
	unsigned int i;

	if (rte_eal_init(RTE_DIM(argv), (char **)(uintptr_t)argv) < 0)
		return -1;
	pool = rte_pktmbuf_pool_create("datagrams", 255, 0, 0, 512, 0);
	assert_non_null(pool);
	rig.poll_groups = RIG_LANES;
	rig_open_as(&rig, "ip=10.0.0.%u/24,mtu=1024,poll_groups=4");
	datagram_make();
	for (i = 0; i < RIG_LANES; i++) {
		member[i].cq = rdma_cq_create(rig.end[1].dev, 64, i);
		attr.send_cq = attr.recv_cq = member[i].cq;
		attr.poll_group = i;
		member[i].qp = rdma_qp_create(rig.end[1].pd, &attr);
		assert_non_null(member[i].qp);
		member[i].conn =
			rdma_multicast_join(member[i].qp, (const struct sockaddr *)&sa, NULL);
		assert_non_null(member[i].conn);
	}
	return 0;
}

static int
teardown(void **state)
{
	unsigned int i;

	for (i = 0; i < RIG_LANES; i++) {
		assert_int_equal(rdma_conn_destroy(member[i].conn), 0);
		assert_int_equal(rdma_qp_destroy(member[i].qp), 0);
		assert_int_equal(rdma_cq_destroy(member[i].cq), 0);
	}
	rte_pktmbuf_free(datagram);
	rig_close(&rig);
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_copies_come_back),
		cmocka_unit_test(test_counters),
		cmocka_unit_test(test_junk_is_not_copied),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
