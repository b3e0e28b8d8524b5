/* SPDX-License-Identifier: BSD-3-Clause */
/* Static rate limit, congestion marks, CNPs, and reduction and recovery of a rate. */
#include "roce_rig.h"

#include <stdio.h>

#include <rte_cycles.h>

#include "engine/icrc.h"
#include "engine/packet.h"
#include "engine/rate.h"

static struct rig rig;

/* ---- the arithmetic alone, in simulated time ---------------------- */

#define HZ 1000000000ULL

/*
 * Send packets of 4 KiB for this time.
 * @return bytes/s
 */
static double
drive(struct roce_rate *r, uint64_t *now, uint64_t ns)
{
	const uint64_t end = *now + ns;
	uint64_t bytes = 0;

	for (; *now < end; *now += 100)
		while (roce_rate_allows(r, *now)) {
			roce_rate_sent(r, *now, 4200);
			bytes += 4200;
			if (r->cost == 0)
				break;
		}
	return (double)bytes * HZ / ns;
}

static void
test_static(void **state)
{
	static const uint32_t mbps[] = {1, 100, 10000, 40000};
	struct roce_rate r;
	uint64_t now = HZ;
	unsigned int i;
	double got;

	for (i = 0; i < RTE_DIM(mbps); i++) {
		roce_rate_init(&r, mbps[i], 100000, HZ);
		got = drive(&r, &now, HZ / 2);
		if (got * 8 < mbps[i] * 0.9e6 || got * 8 > mbps[i] * 1.1e6 + 16 * 4200)
			fail_msg("%.3f Mb/s, expected %u", got * 8e-6, mbps[i]);
	}
	roce_rate_init(&r, 0, 100000, HZ);
	assert_true(roce_rate_allows(&r, now));
	assert_true(roce_rate_get(&r) == 0);
}

static void
test_cut(void **state)
{
	struct roce_rate r;
	uint64_t now = HZ;
	double first, later;
	unsigned int i;

	roce_rate_init(&r, 0, 10000, HZ);
	roce_rate_cut(&r, now);
	/* alpha is 1 initially: half of the line rate */
	assert_true(roce_rate_get(&r) * 8 > 4.9e9 && roce_rate_get(&r) * 8 < 5.1e9);
	first = drive(&r, &now, 200000);
	assert_true(first * 8 < 6e9);
	for (i = 0; i < 20; i++) {
		roce_rate_cut(&r, now);
		now += 50000;
	}
	assert_true(roce_rate_get(&r) * 8 < 1e7);
	assert_true(roce_rate_get(&r) * 8 >= 1e6);
	/*
	 * fast recovery, then additive, then hyper increase: the line rate is reached, and there is
	 * no limit
	 */
	later = drive(&r, &now, 3 * HZ);
	assert_true(later > 0);
	for (i = 0; i < 40 && roce_rate_get(&r) != 0; i++)
		drive(&r, &now, HZ);
	assert_true(roce_rate_get(&r) == 0);
}

/* ---- on the wire ---------------------- */

static unsigned int ect, cnps;
static bool mark;

/* A switch that marks ECN-capable packets, and a counter of CNPs. */
static bool
congested(struct rig *r, unsigned int from, struct rte_mbuf *m)
{
	struct roce_packet pkt;
	uint8_t *tos = rte_pktmbuf_mtod_offset(m, uint8_t *, 15);

	if (roce_packet_parse(m, &pkt) != ROCE_PACKET_DATA)
		return true;
	if (from == 1 && pkt.opcode == ROCE_CNP) {
		assert_true(roce_packet_check(&pkt));
		assert_int_equal(pkt.bth->ecn, ROCE_BTH_BECN);
		assert_int_equal(pkt.length, 16);
		assert_int_equal(pkt.psn, 0);
		cnps++;
	}
	if (from == 0 && pkt.ecn == 2) {
		ect++;
		if (mark)
			*tos |= 3;
	}
	return true;
}

/*
 * Send messages of 64 KiB.
 * @return seconds
 */
static double
messages(unsigned int n, uint32_t rate_mbps, uint8_t ack_timeout)
{
	const struct rdma_qp_attr attr = {.type = RDMA_QP_RC,
		.retry_count = 7,
		.rnr_retry = 7,
		.rate_mbps = rate_mbps,
		.ack_timeout = ack_timeout};
	struct rdma_sge s = {(uintptr_t)rig.end[0].memory, 65536, rdma_mr_lkey(rig.end[0].mr)};
	struct rdma_send_wr wr = {.sg = &s,
		.nb_sge = 1,
		.op = RDMA_OP_WRITE,
		.flags = RDMA_SEND_SIGNALED,
		.remote_addr = (uintptr_t)rig.end[1].memory,
		.rkey = rdma_mr_rkey(rig.end[1].mr)};
	struct rdma_qp_info info;
	struct rdma_wc wc;
	unsigned int i;
	uint64_t start;

	ect = cnps = 0;
	rig.tap = congested;
	rig_connect(&rig, &attr, 1024);
	start = rte_rdtsc();
	for (i = 0; i < n; i++)
		assert_int_equal(rdma_post_send(rig.end[0].qp, &wr, 1), 1);
	for (i = 0; i < n; i++) {
		assert_int_equal(rig_wait(&rig, 0, &wc, 20000), 1);
		assert_int_equal(wc.status, RDMA_WC_SUCCESS);
	}
	/* no packet is lost */
	rdma_qp_info_get(rig.end[0].qp, &info);
	assert_int_equal(info.retransmits, 0);
	rig_disconnect(&rig);
	return (double)(rte_rdtsc() - start) / rte_get_tsc_hz();
}

/* @return seconds for 2 MiB */
static double
two_megabytes(uint32_t rate_mbps)
{
	return messages(32, rate_mbps, 20);
}

static void
test_limit(void **state)
{
	double seconds;

	mark = false;
	seconds = two_megabytes(200);
	/* 2 MiB and headers at 200 Mb/s take 90 ms; a busy machine only takes longer */
	assert_true(seconds > 0.080);
	assert_int_equal(cnps, 0);
	assert_int_equal(rig_stat(&rig, 0, "tx_probes"), 0);
}

/* An acknowledgement is requested every 14 ms: until then none can be awaited. */
static void
test_slow(void **state)
{
	const uint64_t timeouts = rig_stat(&rig, 0, "ack_timeouts");

	mark = false;
	messages(2, 20, 8);
	assert_int_equal(rig_stat(&rig, 0, "ack_timeouts"), timeouts);
}

static void
test_marks(void **state)
{
	mark = false;
	two_megabytes(0);
	assert_true(ect > 2000);
	assert_int_equal(rig_stat(&rig, 1, "tx_cnps"), 0);
	mark = true;
	two_megabytes(0);
	assert_true(cnps > 0);
	assert_int_equal(rig_stat(&rig, 1, "tx_cnps"), cnps);
	assert_int_equal(rig_stat(&rig, 0, "rx_cnps"), cnps);
	assert_true(rig_stat(&rig, 1, "rx_congestion_marks") >= cnps);
	print_message(
		"%u notifications, %lu marks\n", cnps, rig_stat(&rig, 1, "rx_congestion_marks"));
}

static int
setup(void **state)
{
	rig_eal();
	rig_open(&rig, ",mtu=1024,cc=dcqcn");
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
		cmocka_unit_test(test_static),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_slow),
		cmocka_unit_test(test_marks),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
