/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests that our requester never sends, and the responses of a responder to them. */
#include "roce_rig.h"

#include "engine/qp.h"

#define MTU  1024
#define SAID 64
#define VLAN 5

/* Packets that end 1 sent, in order */
struct said {
	uint8_t opcode, syndrome;
	uint16_t length;
	uint32_t psn;
};

static struct rig rig;
static struct said said[SAID];
static unsigned int nb_said;
static uint32_t first_psn;

/* Responses are recorded here, and dropped, as end 0 has posted no request. */
static bool
hear(struct rig *r, unsigned int from, struct rte_mbuf *m)
{
	struct roce_packet pkt;

	if (from != 1 || roce_packet_parse(m, &pkt) != ROCE_PACKET_DATA)
		return true;
	assert_true(nb_said < SAID);
	said[nb_said].opcode = pkt.opcode;
	said[nb_said].length = pkt.length;
	said[nb_said].psn = roce_psn_diff(pkt.psn, first_psn);
	said[nb_said++].syndrome =
		pkt.flags & ROCE_F_AETH ? roce_packet_aeth(&pkt)->syndrome : 0xff;
	return false;
}

static void
open_with(const struct rdma_qp_attr *more, const char *options)
{
	struct rdma_qp_attr attr = {.retry_count = 7, .rnr_retry = 7};

	if (more)
		attr = *more;
	attr.type = RDMA_QP_RC;
	rig_open(&rig, options);
	rig_connect(&rig, &attr, MTU);
	rig_run(&rig, 1);
	first_psn = ((struct roce_qp *)rig.end[1].qp)->resp.expected_psn;
	nb_said = 0;
	rig.tap = hear;
}

static void
finish(void)
{
	rig.tap = NULL;
	rig_disconnect(&rig);
	rig_close(&rig);
}

/*
 * A frame as end 0 would send it.
 * @param tci of a VLAN tag, -1: none
 */
static struct rte_mbuf *
forge(uint8_t opcode, uint32_t psn, const void *ext, unsigned int length, int tci)
{
	const struct rig_packet packet = {
		.opcode = opcode,
		.psn = roce_psn_add(first_psn, psn),
		.ext = ext,
		.length = length,
		.tci = tci >= 0 ? tci : 0,
	};

	return rig_forge(&rig, 0, &packet);
}

static void
deliver(struct rte_mbuf *m)
{
	rig_deliver(&rig, 0, m);
}

static struct roce_reth
reth(uint32_t offset, uint32_t length)
{
	return (struct roce_reth){
		.va = rte_cpu_to_be_64((uintptr_t)rig.end[1].memory + offset),
		.rkey = rte_cpu_to_be_32(rdma_mr_rkey(rig.end[1].mr)),
		.length = rte_cpu_to_be_32(length),
	};
}

static void
read_request(uint32_t psn, uint32_t length)
{
	const struct roce_reth ext = reth(0, length);

	deliver(forge(ROCE_READ_REQUEST, psn, &ext, 0, -1));
}

static void
assert_said(unsigned int i, uint8_t opcode, uint32_t psn, uint8_t syndrome)
{
	assert_true(i < nb_said);
	if (said[i].opcode != opcode || said[i].psn != psn || said[i].syndrome != syndrome)
		fail_msg("answer %u: opcode %#x, PSN %u, syndrome %#x; expected %#x, %u, %#x", i,
			said[i].opcode, said[i].psn, said[i].syndrome, opcode, psn, syndrome);
}

/*
 * A request finds no receive. Before the NAK is sent, the request is repeated and finds one. The
 * NAK must not be sent then, as the request was accepted.
 */
static void
test_ready_before_the_nak(void **state)
{
	struct rdma_sge s;
	const struct rdma_recv_wr wr = {.sg = &s, .nb_sge = 1};
	struct roce_packet pkt;
	struct rte_mbuf *m;

	open_with(NULL, ",mtu=1024");
	s = (struct rdma_sge){(uintptr_t)rig.end[1].memory, 4096, rdma_mr_lkey(rig.end[1].mr)};
	m = forge(ROCE_SEND_FIRST, 0, NULL, MTU, -1);
	assert_int_equal(roce_packet_parse(m, &pkt), ROCE_PACKET_DATA);
	roce_responder_request((struct roce_qp *)rig.end[1].qp, &pkt);
	assert_int_equal(rdma_post_recv(rig.end[1].qp, &wr, 1), 1);
	roce_responder_request((struct roce_qp *)rig.end[1].qp, &pkt);
	rte_pktmbuf_free(m);
	rig_run(&rig, 1);
	assert_int_equal(nb_said, 1);
	assert_said(0, ROCE_ACKNOWLEDGE, 0, ROCE_AETH_ACK | ROCE_AETH_CREDITS);
	finish();
}

/* A message is at most 2^31 bytes long: a longer one is an invalid request, not an access error. */
static void
test_too_long(void **state)
{
	static const struct {
		uint32_t length;
		uint8_t syndrome;
	} row[] = {{(1U << 31) + 1, ROCE_NAK_INVALID_REQUEST}, {1U << 31, ROCE_NAK_REMOTE_ACCESS}};
	struct roce_reth ext;

	for (unsigned int i = 0; i < RTE_DIM(row); i++) {
		open_with(NULL, ",mtu=1024");
		ext = reth(0, row[i].length);
		deliver(forge(ROCE_WRITE_FIRST, 0, &ext, MTU, -1));
		rig_run(&rig, 1);
		assert_int_equal(nb_said, 1);
		assert_said(0, ROCE_ACKNOWLEDGE, 0, row[i].syndrome);
		finish();
		open_with(NULL, ",mtu=1024");
		read_request(0, row[i].length);
		rig_run(&rig, 1);
		assert_int_equal(nb_said, 1);
		assert_said(0, ROCE_ACKNOWLEDGE, 0, row[i].syndrome);
		finish();
	}
}

/*
 * More concurrent READs than negotiated: the permitted ones are answered, the next one is an error.
 */
static void
test_too_many_reads(void **state)
{
	const struct rdma_qp_attr attr = {.max_rd_atom = 3, .retry_count = 7, .rnr_retry = 7};
	struct rdma_qp_info info;
	unsigned int i;

	open_with(&attr, ",mtu=1024");
	for (i = 0; i < 4; i++)
		read_request(i, 100);
	rig_run(&rig, 1);
	assert_int_equal(nb_said, 4);
	for (i = 0; i < 3; i++)
		assert_said(i, ROCE_READ_RESPONSE_ONLY, i, ROCE_AETH_ACK | ROCE_AETH_CREDITS);
	assert_said(3, ROCE_ACKNOWLEDGE, 3, ROCE_NAK_INVALID_REQUEST);
	rdma_qp_info_get(rig.end[1].qp, &info);
	assert_int_equal(info.state, RDMA_QP_ERROR);
	assert_int_equal(rig_stat(&rig, 1, "rx_invalid_requests"), 1);
	finish();
}

/*
 * An old READ is repeated, followed by a new one, which proves that the old one was answered
 * successfully.
 */
static void
test_repeat_in_the_way(void **state)
{
	const struct rdma_qp_attr attr = {.max_rd_atom = 2, .retry_count = 7, .rnr_retry = 7};

	open_with(&attr, ",mtu=1024");
	read_request(0, 3 * MTU);
	read_request(3, 100);
	rig_run(&rig, 1);
	assert_int_equal(nb_said, 4);
	read_request(0, 3 * MTU);
	read_request(3, 100);
	read_request(4, 200);
	rig_run(&rig, 1);
	assert_int_equal(nb_said, 6);
	assert_said(4, ROCE_READ_RESPONSE_ONLY, 3, ROCE_AETH_ACK | ROCE_AETH_CREDITS);
	assert_said(5, ROCE_READ_RESPONSE_ONLY, 4, ROCE_AETH_ACK | ROCE_AETH_CREDITS);
	assert_int_equal(rig_stat(&rig, 1, "rx_invalid_requests"), 0);
	/* and again, when it is no longer new */
	read_request(5, 100);
	read_request(4, 200);
	rig_run(&rig, 1);
	assert_int_equal(nb_said, 8);
	assert_said(6, ROCE_READ_RESPONSE_ONLY, 5, ROCE_AETH_ACK | ROCE_AETH_CREDITS);
	assert_said(7, ROCE_READ_RESPONSE_ONLY, 4, ROCE_AETH_ACK | ROCE_AETH_CREDITS);
	finish();
}

/* A CNP without BECN does not count as one of another sender. */
static void
test_cnp(void **state)
{
	static const uint8_t reserved[16];

	open_with(NULL, ",mtu=1024");
	deliver(forge(ROCE_CNP, 0, reserved, 0, -1));
	rig_run(&rig, 1);
	assert_int_equal(rig_stat(&rig, 1, "rx_bad_opcode"), 1);
	assert_int_equal(rig_stat(&rig, 1, "rx_bad_address"), 0);
	assert_int_equal(rig_stat(&rig, 1, "rx_cnps"), 0);
	finish();
}

/* Repeat the request for a part of a READ that was answered. */
static void
read_again(uint32_t psn, uint32_t length)
{
	const struct roce_reth ext = reth(psn * MTU, length);

	deliver(forge(ROCE_READ_REQUEST, psn, &ext, 0, -1));
}

/* Only some packets of a response were lost, and only those are requested again. */
static void
test_repeat_of_part(void **state)
{
	const uint8_t ack = ROCE_AETH_ACK | ROCE_AETH_CREDITS;
	unsigned int i;

	open_with(NULL, ",mtu=1024");
	read_request(0, 5 * MTU - 100);
	rig_run(&rig, 1);
	assert_int_equal(nb_said, 5);
	nb_said = 0;
	read_again(1, 2 * MTU);
	rig_run(&rig, 1);
	assert_int_equal(nb_said, 2);
	assert_said(0, ROCE_READ_RESPONSE_FIRST, 1, ack);
	assert_said(1, ROCE_READ_RESPONSE_LAST, 2, ack);
	nb_said = 0;
	read_again(2, 10);
	rig_run(&rig, 1);
	assert_int_equal(nb_said, 1);
	assert_said(0, ROCE_READ_RESPONSE_ONLY, 2, ack);
	assert_int_equal(said[0].length, 10);
	/*
	 * a second part, while the first is not sent yet: both are sent, with the packets between
	 * them
	 */
	nb_said = 0;
	read_again(1, MTU);
	read_again(3, 2 * MTU - 100);
	rig_run(&rig, 1);
	assert_int_equal(nb_said, 4);
	assert_said(0, ROCE_READ_RESPONSE_FIRST, 1, ack);
	for (i = 0; i < 3; i++)
		assert_int_equal(said[i].length, MTU);
	assert_said(3, ROCE_READ_RESPONSE_LAST, 4, ack);
	assert_int_equal(said[3].length, MTU - 100);
	assert_int_equal(rig_stat(&rig, 1, "rx_invalid_requests"), 0);
	/* more than there was, and zero bytes of a longer READ */
	nb_said = 0;
	read_again(1, 4 * MTU - 99);
	read_again(1, 0);
	rig_run(&rig, 1);
	assert_int_equal(nb_said, 0);
	assert_int_equal(rig_stat(&rig, 1, "rx_invalid_requests"), 2);
	/* a READ of zero bytes has one packet, also when repeated */
	read_request(5, 0);
	read_request(5, 0);
	rig_run(&rig, 1);
	read_request(5, 0);
	rig_run(&rig, 1);
	assert_int_equal(nb_said, 2);
	assert_said(1, ROCE_READ_RESPONSE_ONLY, 5, ack);
	assert_int_equal(rig_stat(&rig, 1, "rx_invalid_requests"), 2);
	finish();
}

/* A READ is answered, its region is deregistered, and then a delayed duplicate arrives. */
static void
test_repeat_of_deregistered_region(void **state)
{
	struct rdma_mr_attr attr = {
		.gpu = -1, .access = RDMA_ACCESS_REMOTE_READ, .length = 4 * MTU};
	struct rdma_qp_info info;
	struct roce_reth ext;
	struct rdma_mr *mr;

	open_with(NULL, ",mtu=1024");
	attr.addr = rig.end[1].memory;
	mr = rdma_mr_reg(rig.end[1].pd, &attr);
	assert_non_null(mr);
	ext = reth(0, 3 * MTU);
	ext.rkey = rte_cpu_to_be_32(rdma_mr_rkey(mr));
	deliver(forge(ROCE_READ_REQUEST, 0, &ext, 0, -1));
	rig_run(&rig, 1);
	assert_int_equal(nb_said, 3);
	assert_int_equal(rdma_mr_dereg(mr), 0);
	deliver(forge(ROCE_READ_REQUEST, 0, &ext, 0, -1));
	read_request(3, 100);
	rig_run(&rig, 1);
	assert_int_equal(nb_said, 4);
	assert_said(3, ROCE_READ_RESPONSE_ONLY, 3, ROCE_AETH_ACK | ROCE_AETH_CREDITS);
	assert_int_equal(rig_stat(&rig, 1, "rx_invalid_requests"), 1);
	rdma_qp_info_get(rig.end[1].qp, &info);
	assert_int_equal(info.state, RDMA_QP_RTS);
	finish();
}

/*
 * @param tci of a tag in the frame
 * @param stripped of a tag that the port removed; -1: none
 */
static void
vlan(int tci, int stripped, bool taken)
{
	const uint64_t before = rig_stat(&rig, 1, "rx_other_vlan");
	struct rte_mbuf *m = forge(ROCE_SEND_ONLY, -1, NULL, 0, tci);

	if (stripped >= 0) {
		m->ol_flags |= RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED;
		m->vlan_tci = (uint16_t)stripped;
	}
	nb_said = 0;
	deliver(m);
	rig_run(&rig, 1);
	assert_int_equal(nb_said, taken);
	assert_int_equal(rig_stat(&rig, 1, "rx_other_vlan") - before, !taken);
}

/* Only packets of our own VLAN are accepted; a priority tag counts as untagged. */
static void
test_vlan(void **state)
{
	open_with(NULL, ",mtu=1024");
	vlan(-1, -1, true);
	vlan(VLAN, -1, false);
	vlan(3 << 13, -1, true);
	vlan(-1, VLAN, false);
	vlan(-1, 3 << 13, true);
	finish();
	open_with(NULL, ",mtu=1024,vlan=5");
	vlan(-1, -1, false);
	vlan(VLAN, -1, true);
	vlan(3 << 13 | VLAN, -1, true);
	vlan(VLAN + 1, -1, false);
	vlan(3 << 13, -1, false);
	vlan(-1, VLAN, true);
	vlan(-1, VLAN + 1, false);
	finish();
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
		cmocka_unit_test(test_ready_before_the_nak),
		cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_too_many_reads),
		cmocka_unit_test(test_repeat_in_the_way),
		cmocka_unit_test(test_cnp),
		cmocka_unit_test(test_repeat_of_part),
		cmocka_unit_test(test_repeat_of_deregistered_region),
		cmocka_unit_test(test_vlan),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
