/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * UC and UD between two engines: messages are delivered completely or not at all, in order; address
 * headers; access rights.
 */
#include "roce_rig.h"

#include <errno.h>
#include <stdio.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_ip.h>

#define MTU	1024
#define PERCENT 655

static struct rig rig;

static struct rdma_sge
sge(unsigned int end, uint32_t offset, uint32_t length)
{
	return (struct rdma_sge){
		.addr = (uintptr_t)rig.end[end].memory + offset,
		.length = length,
		.lkey = rdma_mr_lkey(rig.end[end].mr),
	};
}

static void
fill(uint8_t *at, uint32_t n)
{
	while (n--)
		*at++ = rig_random(&rig, 256);
}

static void
receive(uint64_t id, uint32_t offset, uint32_t length)
{
	struct rdma_sge s = sge(1, offset, length);
	struct rdma_recv_wr wr = {.wr_id = id, .sg = &s, .nb_sge = 1};

	assert_int_equal(rdma_post_recv(rig.end[1].qp, &wr, 1), 1);
}

static struct rdma_wc
wait_for(unsigned int end, enum rdma_wc_status status)
{
	struct rdma_wc wc;

	assert_int_equal(rig_wait(&rig, end, &wc, 5000), 1);
	assert_int_equal(wc.status, status);
	return wc;
}

static void
test_uc(void **state)
{
	static const uint32_t sizes[] = {0, 1, 255, 257, 1024, 1025, 4096, 300001};
	const struct rdma_qp_attr attr = {.type = RDMA_QP_UC};
	unsigned int i, op;

	rig_connect(&rig, &attr, MTU);
	for (i = 0; i < RTE_DIM(sizes); i++)
		for (op = RDMA_OP_SEND; op <= RDMA_OP_WRITE_IMM; op++) {
			struct rdma_sge s = sge(0, 1, sizes[i]);
			struct rdma_send_wr wr = {.sg = &s,
				.nb_sge = 1,
				.op = op,
				.flags = RDMA_SEND_SIGNALED,
				.imm = 99,
				.remote_addr = (uintptr_t)rig.end[1].memory,
				.rkey = rdma_mr_rkey(rig.end[1].mr)};

			fill(rig.end[0].memory, sizes[i] + 1);
			memset(rig.end[1].memory, 0x5a, sizes[i] + 1);
			if (op != RDMA_OP_WRITE)
				receive(1, 0, sizes[i]);
			assert_int_equal(rdma_post_send(rig.end[0].qp, &wr, 1), 1);
			wait_for(0, RDMA_WC_SUCCESS);
			if (op != RDMA_OP_WRITE)
				assert_int_equal(wait_for(1, RDMA_WC_SUCCESS).byte_len, sizes[i]);
			rig_run(&rig, 0);
			assert_memory_equal(rig.end[1].memory, rig.end[0].memory + 1, sizes[i]);
			assert_int_equal(rig.end[1].memory[sizes[i]], 0x5a);
		}
	rig_disconnect(&rig);
}

/* Operations that UC does not support. */
static void
test_uc_refused(void **state)
{
	const struct rdma_qp_attr attr = {.type = RDMA_QP_UC};
	struct rdma_sge s = sge(0, 0, 8);
	struct rdma_send_wr wr = {.sg = &s, .nb_sge = 1, .op = RDMA_OP_READ};

	rig_connect(&rig, &attr, MTU);
	assert_int_equal(rdma_post_send(rig.end[0].qp, &wr, 1), 0);
	assert_int_equal(rte_errno, EINVAL);
	wr.op = RDMA_OP_FETCH_ADD;
	assert_int_equal(rdma_post_send(rig.end[0].qp, &wr, 1), 0);
	rig_disconnect(&rig);
}

/*
 * Messages of 1 to 5 packets with losses: a message that lost a packet is dropped completely, the
 * next one is delivered. A WRITE without access right is dropped, and the queue pair stays
 * connected.
 */
static void
test_uc_loss(void **state)
{
	const struct rdma_qp_attr attr = {.type = RDMA_QP_UC, .max_recv_wr = 64};
	unsigned int i, sent = 0, got = 0, last = 0;
	struct rdma_wc wc;

	rig_connect(&rig, &attr, MTU);
	rig.faults[0] = (struct rig_faults){
		.lose = 5 * PERCENT, .swap = 2 * PERCENT, .twice = 2 * PERCENT, .corrupt = PERCENT};
	for (i = 0; i < 32; i++)
		receive(i, i * 8192, 8192);
	while (sent < 1000) {
		uint32_t *message = (uint32_t *)(rig.end[0].memory + sent % 16 * 8192);
		const uint32_t words = 1 + rig_random(&rig, 5 * MTU / 4 - 1);
		struct rdma_sge s = sge(0, sent % 16 * 8192, 4 * words);
		struct rdma_send_wr wr = {.wr_id = sent,
			.sg = &s,
			.nb_sge = 1,
			.op = RDMA_OP_SEND_IMM,
			.imm = ++sent,
			.flags = RDMA_SEND_SIGNALED};

		for (i = 0; i < words; i++)
			message[i] = sent * 65536 + i;
		assert_int_equal(rdma_post_send(rig.end[0].qp, &wr, 1), 1);
		assert_int_equal(wait_for(0, RDMA_WC_SUCCESS).wr_id, sent - 1);
		while (rdma_poll_cq(rig.end[1].cq, &wc, 1)) {
			const uint32_t *landed =
				(const uint32_t *)(rig.end[1].memory + wc.wr_id % 32 * 8192);

			assert_int_equal(wc.status, RDMA_WC_SUCCESS);
			assert_true(wc.imm > last);
			last = wc.imm;
			got++;
			for (i = 0; i < wc.byte_len / 4; i++)
				if (landed[i] != wc.imm * 65536 + i)
					fail_msg("message %u, word %u is %u", wc.imm, i, landed[i]);
			receive(wc.wr_id + 32, wc.wr_id % 32 * 8192, 8192);
		}
	}
	print_message("%u of %u messages came\n", got, sent);
	assert_true(got > 500 && got < sent);
	memset(rig.faults, 0, sizeof(rig.faults));
	rig_disconnect(&rig);
}

/* A refused request after a valid one completes, too, and puts the queue pair into error state. */
static void
test_uc_refused_behind(void **state)
{
	const struct rdma_qp_attr attr = {.type = RDMA_QP_UC};
	struct rdma_sge good = sge(0, 0, 100), bad = good;
	const struct rdma_send_wr wr[] = {
		{.wr_id = 1, .sg = &good, .nb_sge = 1, .flags = RDMA_SEND_SIGNALED},
		{.wr_id = 2, .sg = &bad, .nb_sge = 1, .flags = RDMA_SEND_SIGNALED},
	};

	bad.lkey ^= 0x80000000;
	rig_connect(&rig, &attr, MTU);
	assert_int_equal(rdma_post_send(rig.end[0].qp, wr, 2), 2);
	assert_int_equal(wait_for(0, RDMA_WC_SUCCESS).wr_id, 1);
	assert_int_equal(wait_for(0, RDMA_WC_LOC_PROT_ERR).wr_id, 2);
	rig_disconnect(&rig);
}

static struct rdma_ah *
handle(void)
{
	const uint64_t deadline = rte_rdtsc() + 10 * rte_get_tsc_hz();
	struct rdma_event event;
	struct rdma_ah *ah;

	while (!(ah = rdma_ah_create(
			 rig.end[0].pd, (struct sockaddr *)&rig.end[1].addr, 0x40, 0)) &&
		rte_errno == EAGAIN && rte_rdtsc() < deadline) {
		rig_step(&rig);
		rdma_poll_cm(rig.end[0].dev, &event, 1);
		rdma_poll_cm(rig.end[1].dev, &event, 1);
	}
	assert_non_null(ah);
	return ah;
}

static void
test_ud(void **state)
{
	static const uint32_t sizes[] = {0, 1, 3, 100, 256, 257, 1000, 1024};
	const struct rdma_qp_attr attr = {.type = RDMA_QP_UD, .qkey = 0x11223344};
	struct rdma_qp_info from, to;
	struct rdma_ah *ah;
	unsigned int i;

	rig_connect(&rig, &attr, MTU);
	ah = handle();
	rdma_qp_info_get(rig.end[0].qp, &from);
	rdma_qp_info_get(rig.end[1].qp, &to);
	for (i = 0; i < RTE_DIM(sizes); i++) {
		struct rdma_sge s = sge(0, 1, sizes[i]);
		struct rdma_send_wr wr = {.sg = &s,
			.nb_sge = 1,
			.op = i & 1 ? RDMA_OP_SEND_IMM : RDMA_OP_SEND,
			.imm = 0x01020304,
			.flags = RDMA_SEND_SIGNALED,
			.ud = {.ah = ah, .remote_qpn = to.qpn, .remote_qkey = 0x11223344}};
		const struct rte_ipv4_hdr *ip4 =
			(const struct rte_ipv4_hdr *)(rig.end[1].memory + 20);
		struct rdma_wc wc;

		fill(rig.end[0].memory, sizes[i] + 1);
		memset(rig.end[1].memory, 0x5a, 2000);
		receive(1, 0, 40 + sizes[i]);
		assert_int_equal(rdma_post_send(rig.end[0].qp, &wr, 1), 1);
		wait_for(0, RDMA_WC_SUCCESS);
		wc = wait_for(1, RDMA_WC_SUCCESS);
		assert_int_equal(wc.byte_len, 40 + sizes[i]);
		assert_int_equal(wc.src_qpn, from.qpn);
		assert_int_equal(wc.flags, RDMA_WC_GRH | (i & 1 ? RDMA_WC_WITH_IMM : 0));
		if (i & 1)
			assert_int_equal(wc.imm, 0x01020304);
		assert_int_equal(ip4->version_ihl, 0x45);
		assert_int_equal(ip4->src_addr, RTE_BE32(RTE_IPV4(10, 0, 0, 1)));
		assert_int_equal(ip4->dst_addr, RTE_BE32(RTE_IPV4(10, 0, 0, 2)));
		assert_int_equal(ip4->type_of_service, 0x40);
		assert_memory_equal(rig.end[1].memory + 40, rig.end[0].memory + 1, sizes[i]);
		assert_int_equal(rig.end[1].memory[40 + sizes[i]], 0x5a);
	}
	assert_int_equal(rdma_ah_destroy(ah), 0);
	rig_disconnect(&rig);
}

static bool
mark(struct rig *r, unsigned int from, struct rte_mbuf *m)
{
	if (from == 0)
		*rte_pktmbuf_mtod_offset(m, uint8_t *, 15) |= 3;
	return true;
}

/* Congestion marks of datagrams are counted, and no CNP is sent. */
static void
test_ud_marked(void **state)
{
	const struct rdma_qp_attr attr = {.type = RDMA_QP_UD};
	const uint64_t marks = rig_stat(&rig, 1, "rx_congestion_marks");
	struct rdma_sge s = sge(0, 0, 100);
	struct rdma_send_wr wr = {.sg = &s, .nb_sge = 1, .flags = RDMA_SEND_SIGNALED};
	struct rdma_qp_info to;

	rig_connect(&rig, &attr, MTU);
	wr.ud.ah = handle();
	rdma_qp_info_get(rig.end[1].qp, &to);
	wr.ud.remote_qpn = to.qpn;
	wr.ud.remote_qkey = 0x01234567;
	receive(1, 0, 140);
	rig.tap = mark;
	assert_int_equal(rdma_post_send(rig.end[0].qp, &wr, 1), 1);
	wait_for(0, RDMA_WC_SUCCESS);
	wait_for(1, RDMA_WC_SUCCESS);
	rig.tap = NULL;
	assert_int_equal(rig_stat(&rig, 1, "rx_congestion_marks"), marks + 1);
	assert_int_equal(rig_stat(&rig, 1, "tx_cnps"), 0);
	assert_int_equal(rdma_ah_destroy(wr.ud.ah), 0);
	rig_disconnect(&rig);
}

/* A datagram that is not accepted is dropped and counted, and uses no receive. */
static void
test_ud_dropped(void **state)
{
	const struct rdma_qp_attr attr = {.type = RDMA_QP_UD};
	struct rdma_sge s = sge(0, 0, 100);
	struct rdma_send_wr wr = {.sg = &s, .nb_sge = 1, .flags = RDMA_SEND_SIGNALED};
	uint64_t qkey = rig_stat(&rig, 1, "rx_bad_qkey"), qpn = rig_stat(&rig, 1, "rx_unknown_qpn");
	uint64_t none = rig_stat(&rig, 1, "rx_no_receive_posted");
	uint64_t longer = rig_stat(&rig, 1, "rx_ud_too_long");
	struct rdma_qp_info to;
	struct rdma_ah *ah;

	rig_connect(&rig, &attr, MTU);
	ah = handle();
	rdma_qp_info_get(rig.end[1].qp, &to);
	wr.ud.ah = ah;
	wr.ud.remote_qpn = to.qpn;
	wr.ud.remote_qkey = 0x01234567;
	assert_int_equal(rdma_post_send(rig.end[0].qp, &wr, 1), 1);
	wait_for(0, RDMA_WC_SUCCESS);
	rig_run(&rig, 1);
	assert_int_equal(rig_stat(&rig, 1, "rx_no_receive_posted"), none + 1);
	receive(1, 0, 139);
	assert_int_equal(rdma_post_send(rig.end[0].qp, &wr, 1), 1);
	wait_for(0, RDMA_WC_SUCCESS);
	rig_run(&rig, 1);
	assert_int_equal(rig_stat(&rig, 1, "rx_ud_too_long"), longer + 1);
	wr.ud.remote_qkey = 1;
	assert_int_equal(rdma_post_send(rig.end[0].qp, &wr, 1), 1);
	wait_for(0, RDMA_WC_SUCCESS);
	rig_run(&rig, 1);
	assert_int_equal(rig_stat(&rig, 1, "rx_bad_qkey"), qkey + 1);
	wr.ud.remote_qkey = 0x01234567;
	wr.ud.remote_qpn ^= 0x800000;
	assert_int_equal(rdma_post_send(rig.end[0].qp, &wr, 1), 1);
	wait_for(0, RDMA_WC_SUCCESS);
	rig_run(&rig, 1);
	assert_int_equal(rig_stat(&rig, 1, "rx_unknown_qpn"), qpn + 1);
	wr.ud.remote_qpn = to.qpn;
	s.length = 99;
	assert_int_equal(rdma_post_send(rig.end[0].qp, &wr, 1), 1);
	wait_for(0, RDMA_WC_SUCCESS);
	assert_int_equal(wait_for(1, RDMA_WC_SUCCESS).byte_len, 139);
	s.length = MTU + 1;
	assert_int_equal(rdma_post_send(rig.end[0].qp, &wr, 1), 0);
	assert_int_equal(rte_errno, EINVAL);
	assert_int_equal(rdma_ah_destroy(ah), 0);
	rig_disconnect(&rig);
}

/*
 * A controlled Q_Key, with the top bit set, cannot be requested by an application; in a send
 * request it is replaced by the queue pair's own Q_Key.
 */
static void
test_ud_controlled(void **state)
{
	struct rdma_qp_attr attr = {.type = RDMA_QP_UD, .qkey = 0x80010000};
	struct rdma_sge s = sge(0, 0, 8);
	struct rdma_send_wr wr = {.sg = &s, .nb_sge = 1, .flags = RDMA_SEND_SIGNALED};
	const uint64_t qkey = rig_stat(&rig, 1, "rx_bad_qkey");
	struct rdma_qp_info to;

	attr.send_cq = attr.recv_cq = rig.end[0].cq;
	assert_null(rdma_qp_create(rig.end[0].pd, &attr));
	assert_int_equal(rte_errno, EINVAL);
	attr.qkey = 0x11223344;
	rig_connect(&rig, &attr, MTU);
	rdma_qp_info_get(rig.end[1].qp, &to);
	wr.ud.ah = handle();
	wr.ud.remote_qpn = to.qpn;
	wr.ud.remote_qkey = 0x80010000;
	receive(1, 0, 48);
	assert_int_equal(rdma_post_send(rig.end[0].qp, &wr, 1), 1);
	wait_for(0, RDMA_WC_SUCCESS);
	assert_int_equal(wait_for(1, RDMA_WC_SUCCESS).byte_len, 48);
	assert_int_equal(rig_stat(&rig, 1, "rx_bad_qkey"), qkey);
	assert_int_equal(rdma_ah_destroy(wr.ud.ah), 0);
	rig_disconnect(&rig);
}

/* An address handle of another protection domain or device cannot be used. */
static void
test_ud_foreign_handle(void **state)
{
	const struct rdma_qp_attr attr = {.type = RDMA_QP_UD};
	struct rdma_send_wr wr = {.ud = {.remote_qpn = 5}};
	struct rdma_pd *own = rig.end[0].pd, *other = rdma_pd_alloc(rig.end[0].dev);

	assert_non_null(other);
	rig_connect(&rig, &attr, MTU);
	rig.end[0].pd = other;
	wr.ud.ah = handle();
	rig.end[0].pd = own;
	assert_int_equal(rdma_post_send(rig.end[0].qp, &wr, 1), 0);
	assert_int_equal(rte_errno, EINVAL);
	assert_int_equal(rdma_ah_destroy(wr.ud.ah), 0);
	assert_int_equal(rdma_pd_free(other), 0);
	rig_disconnect(&rig);
}

/* Memory belongs to the application again only after the port has freed the frames. */
static void
test_uc_memory(void **state)
{
	const struct rdma_qp_attr attr = {.type = RDMA_QP_UC};
	struct rdma_sge s = sge(0, 0, 1000);
	struct rdma_send_wr wr = {
		.sg = &s, .nb_sge = 1, .op = RDMA_OP_SEND, .flags = RDMA_SEND_SIGNALED};
	struct rte_mbuf *m = NULL;
	struct rdma_wc wc;

	rig_connect(&rig, &attr, MTU);
	assert_int_equal(rdma_post_send(rig.end[0].qp, &wr, 1), 1);
	/* the frame stays in the ring that is the port's wire */
	rdma_progress(rig.end[0].dev, 0);
	rdma_progress(rig.end[0].dev, 0);
	assert_int_equal(rdma_poll_cq(rig.end[0].cq, &wc, 1), 0);
	assert_int_equal(rdma_qp_error(rig.end[0].qp), 0);
	assert_int_equal(rdma_poll_cq(rig.end[0].cq, &wc, 1), 0);
	assert_int_equal(rte_ring_dequeue(rig.end[0].tx[0], (void **)&m), 0);
	rte_pktmbuf_free(m);
	wait_for(0, RDMA_WC_WR_FLUSH_ERR);
	rig_disconnect(&rig);
}

static int
setup(void **state)
{
	rig_eal();
	rig_open(&rig, ",mtu=1024");
	return 0;
}

static int
teardown(void **state)
{
	rig_close(&rig);
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_uc),
		cmocka_unit_test(test_uc_refused),
		cmocka_unit_test(test_uc_refused_behind),
		cmocka_unit_test(test_uc_loss),
		cmocka_unit_test(test_uc_memory),
		cmocka_unit_test(test_ud),
		cmocka_unit_test(test_ud_marked),
		cmocka_unit_test(test_ud_dropped),
		cmocka_unit_test(test_ud_controlled),
		cmocka_unit_test(test_ud_foreign_handle),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
