/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Forged packets to connected queue pairs: from another address, with a wrong ICRC, acknowledging
 * packets that were never sent, accessing memory without rights, out of order. All have the numbers
 * that the peer would use.
 */
#include "roce_rig.h"

#include "engine/qp.h"
#include "engine/mr.h"

#define MTU  1024
#define SAID 64
#define US   1 /* the end under attack */
#define PEER 0 /* the end whose packets are forged */

#define ACK (ROCE_AETH_ACK | ROCE_AETH_CREDITS)

/* Packets that end US sent, in order */
struct said {
	uint8_t opcode, syndrome;
	uint32_t psn;
};

static struct rig rig;
static struct said said[SAID];
static unsigned int nb_said;

static bool
hear(struct rig *r, unsigned int from, struct rte_mbuf *m)
{
	struct roce_packet pkt;

	if (from != US || roce_packet_parse(m, &pkt) != ROCE_PACKET_DATA)
		return true;
	if (nb_said < SAID) {
		said[nb_said].opcode = pkt.opcode;
		said[nb_said].psn = pkt.psn;
		said[nb_said].syndrome =
			pkt.flags & ROCE_F_AETH ? roce_packet_aeth(&pkt)->syndrome : 0xff;
	}
	nb_said++;
	return false;
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

static struct roce_qp *
us(void)
{
	return (struct roce_qp *)rig.end[US].qp;
}

/* Connect; no packet that US sends arrives anywhere. */
static void
begin(enum rdma_qp_type type)
{
	const struct rdma_qp_attr attr = {
		.type = type, .retry_count = 7, .rnr_retry = 7, .ack_timeout = 22};

	rig_connect(&rig, &attr, MTU);
	rig_run(&rig, 1);
	/* a round trip so long that a busy machine retransmits nothing early */
	us()->req.rtt = 60 * rte_get_tsc_hz();
	memset(rig.end[US].memory, 0xa5, RIG_MEMORY);
	nb_said = 0;
	rig.tap = hear;
}

static void
end(void)
{
	rig.tap = NULL;
	rig_disconnect(&rig);
}

/* PSN of the peer's next request. */
static uint32_t
turn(void)
{
	return us()->resp.expected_psn;
}

static void
forge(const struct rig_packet *packet)
{
	/* a pause of a busy machine is not a silence, after which any PSN begins again */
	if (us()->resp.received_at != 0)
		us()->resp.received_at = rte_rdtsc();
	rig_deliver(&rig, PEER, rig_forge(&rig, PEER, packet));
	rig_run(&rig, 1);
}

static void
receive(uint32_t length)
{
	const struct rdma_sge s = {
		(uintptr_t)rig.end[US].memory, length, rdma_mr_lkey(rig.end[US].mr)};
	const struct rdma_recv_wr wr = {.sg = &s, .nb_sge = 1};

	assert_int_equal(rdma_post_recv(rig.end[US].qp, &wr, 1), 1);
}

/* Number of completions of US, all successful. */
static unsigned int
completions(void)
{
	struct rdma_wc wc;
	unsigned int n = 0;

	while (rdma_poll_cq(rig.end[US].cq, &wc, 1))
		n += wc.status == RDMA_WC_SUCCESS;
	return n;
}

static enum rdma_qp_state
state_of_us(void)
{
	struct rdma_qp_info info;

	rdma_qp_info_get(rig.end[US].qp, &info);
	return info.state;
}

static struct roce_reth
reth_at(const void *at, uint32_t rkey, uint32_t length)
{
	return (struct roce_reth){
		.va = rte_cpu_to_be_64((uintptr_t)at),
		.rkey = rte_cpu_to_be_32(rkey),
		.length = rte_cpu_to_be_32(length),
	};
}

/* Valid extended headers of a request or response with any opcode. */
static const void *
ext_of(uint8_t opcode, uint32_t length)
{
	static union {
		struct roce_reth reth;
		struct roce_atomiceth atomic;
		struct roce_aeth aeth;
	} ext;
	const uint16_t flags = roce_opcodes[opcode].flags;
	const struct roce_reth reth =
		reth_at(rig.end[US].memory, rdma_mr_rkey(rig.end[US].mr), length);

	memset(&ext, 0, sizeof(ext));
	if (flags & ROCE_F_RETH)
		ext.reth = reth;
	else if (flags & ROCE_F_ATOMICETH)
		ext.atomic = (struct roce_atomiceth){reth.va, reth.rkey, RTE_BE64(1), 0};
	else if (flags & ROCE_F_AETH)
		ext.aeth.syndrome = ACK;
	return &ext;
}

static void
assert_memory_untouched(void)
{
	for (unsigned int i = 0; i < 4 * MTU; i++)
		assert_int_equal(rig.end[US].memory[i], 0xa5);
}

/* The packet had no effect except for a counter of its cause. */
static void
refused(const struct rig_packet *packet, const char *counter)
{
	const uint64_t before = rig_stat(&rig, US, counter);
	const uint32_t psn = turn();

	nb_said = 0;
	forge(packet);
	if (rig_stat(&rig, US, counter) != before + 1)
		fail_msg("opcode %#x: %s is %lu, expected %lu", packet->opcode, counter,
			rig_stat(&rig, US, counter), before + 1);
	assert_int_equal(nb_said, 0);
	assert_int_equal(completions(), 0);
	assert_int_equal(turn(), psn);
	assert_int_equal(state_of_us(), RDMA_QP_RTS);
	assert_memory_untouched();
}

/* Opcodes of valid next packets of the peer. */
static const uint8_t requests[] = {ROCE_SEND_ONLY, ROCE_SEND_FIRST, ROCE_WRITE_ONLY,
	ROCE_WRITE_FIRST, ROCE_READ_REQUEST, ROCE_FETCH_ADD, ROCE_COMPARE_SWAP};

/* Payload length: full packets for opcodes that begin a message of several packets. */
static uint16_t
length_of(uint8_t opcode)
{
	const uint16_t flags = roce_opcodes[opcode].flags;

	if (!(flags & (ROCE_F_SEND | ROCE_F_WRITE)))
		return 0;
	return flags & ROCE_F_LAST ? 100 : MTU;
}

/*
 * The address of a packet must be that of the connection; its UDP source port may be any, as it is
 * only for switches.
 */
static void
test_addresses(void **state)
{
	const struct roce_gid stranger = roce_gid_v4(RTE_BE32(0x0a000003));
	struct rig_packet packet;

	begin(RDMA_QP_RC);
	receive(2 * MTU);
	for (unsigned int i = 0; i < RTE_DIM(requests); i++) {
		const uint16_t length = length_of(requests[i]);

		packet = (struct rig_packet){.opcode = requests[i],
			.psn = turn(),
			.length = length,
			.ext = ext_of(requests[i], length ? length : 8),
			.src = &stranger};
		refused(&packet, "rx_bad_address");
	}
	packet = (struct rig_packet){.opcode = ROCE_CNP, .bth_ecn = ROCE_BTH_BECN};
	packet.src = &stranger;
	refused(&packet, "rx_bad_address");
	packet = (struct rig_packet){.opcode = ROCE_SEND_ONLY, .psn = turn(), .dst = &stranger};
	refused(&packet, "rx_not_for_us");
	packet = (struct rig_packet){.opcode = ROCE_SEND_ONLY, .psn = turn(), .udp_src = 4711};
	forge(&packet);
	assert_int_equal(completions(), 1);
	end();
	begin(RDMA_QP_UC);
	receive(2 * MTU);
	packet = (struct rig_packet){.opcode = ROCE_UC + ROCE_SEND_ONLY, .psn = turn()};
	packet.src = &stranger;
	refused(&packet, "rx_bad_address");
	end();
}

/* Every other reason for which a packet is not the peer's, each with its counter. */
static void
test_not_the_peers(void **state)
{
	static const struct {
		struct rig_packet packet;
		const char *counter;
	} rows[] = {
		{{.opcode = ROCE_SEND_ONLY, .icrc_off = 1}, "rx_icrc_errors"},
		{{.opcode = ROCE_SEND_ONLY, .icrc_off = 1U << 31}, "rx_icrc_errors"},
		{{.opcode = ROCE_SEND_ONLY, .pkey = 0x8001}, "rx_bad_pkey"},
		{{.opcode = ROCE_SEND_ONLY, .pkey = 0xbfff}, "rx_bad_pkey"},
		{{.opcode = ROCE_SEND_ONLY, .qpn = 0xfffffe}, "rx_unknown_qpn"},
		/* transport header version 1 */
		{{.opcode = ROCE_SEND_ONLY, .bth_flags = 1}, "rx_malformed"},
		/* a pad longer than the payload, and a length that is not a multiple of 4 */
		{{.opcode = ROCE_SEND_ONLY, .bth_flags = 3 << 4}, "rx_malformed"},
		{{.opcode = ROCE_SEND_ONLY, .length = 3}, "rx_malformed"},
		{{.opcode = ROCE_UC + ROCE_SEND_ONLY}, "rx_bad_opcode"},
		{{.opcode = ROCE_UD + ROCE_SEND_ONLY}, "rx_bad_opcode"},
		/* reliable datagrams, and an undefined transport */
		{{.opcode = 0x44}, "rx_bad_opcode"},
		{{.opcode = 0x15}, "rx_bad_opcode"},
	};

	begin(RDMA_QP_RC);
	receive(MTU);
	for (unsigned int i = 0; i < RTE_DIM(rows); i++) {
		struct rig_packet packet = rows[i].packet;

		packet.psn = turn();
		refused(&packet, rows[i].counter);
	}
	/* a limited member of the partition is accepted */
	forge(&(struct rig_packet){.opcode = ROCE_SEND_ONLY, .psn = turn(), .pkey = 0x7fff});
	assert_int_equal(completions(), 1);
	end();
}

/* A CNP slows a sender down: it is accepted only from the peer. */
static void
test_cnp(void **state)
{
	const uint64_t before = rig_stat(&rig, US, "rx_cnps");
	struct rig_packet cnp = {.opcode = ROCE_CNP, .bth_ecn = ROCE_BTH_BECN, .length = 16};

	begin(RDMA_QP_RC);
	cnp.icrc_off = 1;
	refused(&cnp, "rx_icrc_errors");
	cnp.icrc_off = 0;
	cnp.pkey = 0x8001;
	refused(&cnp, "rx_bad_pkey");
	cnp.pkey = 0;
	cnp.bth_ecn = 0;
	refused(&cnp, "rx_bad_opcode");
	assert_int_equal(rig_stat(&rig, US, "rx_cnps"), before);
	cnp.bth_ecn = ROCE_BTH_BECN;
	refused(&cnp, "rx_cnps");
	assert_int_equal(rdma_qp_error(rig.end[US].qp), 0);
	forge(&cnp);
	assert_int_equal(rig_stat(&rig, US, "rx_cnps"), before + 1);
	end();
}

/* A response of the peer to US. */
static void
answer(uint8_t opcode, uint32_t psn, uint8_t syndrome, uint16_t length)
{
	const struct roce_aeth aeth = {.syndrome = syndrome};
	uint8_t ext[ROCE_EXT_MAX] = {0};

	memcpy(ext, &aeth, sizeof(aeth));
	forge(&(struct rig_packet){.opcode = opcode, .psn = psn, .ext = ext, .length = length});
}

static void
post(enum rdma_op op, uint32_t length)
{
	const struct rdma_sge s = {
		(uintptr_t)rig.end[US].memory, length, rdma_mr_lkey(rig.end[US].mr)};
	const struct rdma_send_wr wr = {.sg = &s,
		.nb_sge = 1,
		.op = op,
		.flags = RDMA_SEND_SIGNALED,
		.remote_addr = (uintptr_t)rig.end[PEER].memory,
		.rkey = rdma_mr_rkey(rig.end[PEER].mr)};

	assert_int_equal(rdma_post_send(rig.end[US].qp, &wr, 1), 1);
	rig_run(&rig, 1);
}

/*
 * A packet that was never sent can be neither acknowledged nor refused; nor can one that was
 * already acknowledged.
 */
static void
test_window(void **state)
{
	static const uint8_t syndromes[] = {ACK, 0x00, ROCE_AETH_RNR | 1, ROCE_NAK_SEQUENCE,
		ROCE_NAK_INVALID_REQUEST, ROCE_NAK_REMOTE_ACCESS, ROCE_NAK_REMOTE_OPERATION};
	uint64_t stale = rig_stat(&rig, US, "rx_stale_responses"), malformed;
	uint32_t first;

	begin(RDMA_QP_RC);
	first = us()->req.una_psn;
	/* before the first packet was sent */
	answer(ROCE_ACKNOWLEDGE, first, ACK, 0);
	assert_int_equal(rig_stat(&rig, US, "rx_stale_responses"), ++stale);
	post(RDMA_OP_SEND, 3 * MTU);
	assert_true(nb_said >= 3);
	assert_int_equal(us()->req.max_psn, roce_psn_add(first, 3));
	for (unsigned int i = 0; i < RTE_DIM(syndromes); i++) {
		static const int32_t off[] = {3, 4, 1000, 0x7fffff, -1, -1000, -0x7fffff};

		for (unsigned int j = 0; j < RTE_DIM(off); j++) {
			answer(ROCE_ACKNOWLEDGE, roce_psn_add(first, off[j]), syndromes[i], 0);
			assert_int_equal(rig_stat(&rig, US, "rx_stale_responses"), ++stale);
			assert_int_equal(completions(), 0);
			assert_int_equal(us()->req.una_psn, first);
			assert_int_equal(us()->req.wait, ROCE_WAIT_ACK);
			assert_int_equal(state_of_us(), RDMA_QP_RTS);
		}
	}
	/* undefined kinds of responses */
	malformed = rig_stat(&rig, US, "rx_malformed");
	answer(ROCE_ACKNOWLEDGE, first, 0x40, 0);
	answer(ROCE_ACKNOWLEDGE, first, ROCE_NAK_INVALID_RD, 0);
	answer(ROCE_ACKNOWLEDGE, first, 0x80 | ACK, 0);
	assert_int_equal(rig_stat(&rig, US, "rx_malformed"), malformed + 3);
	assert_int_equal(us()->req.una_psn, first);
	/* The last acknowledged PSN counts. Credits are ignored, because none were negotiated. */
	answer(ROCE_ACKNOWLEDGE, roce_psn_add(first, 1), ROCE_AETH_ACK, 0);
	assert_int_equal(completions(), 0);
	assert_int_equal(us()->req.una_psn, roce_psn_add(first, 2));
	answer(ROCE_ACKNOWLEDGE, roce_psn_add(first, 2), ROCE_AETH_ACK | 3, 0);
	assert_int_equal(completions(), 1);
	end();
}

/* Opcode, length and order of responses must match the request; else memory stays unchanged. */
static void
test_answers(void **state)
{
	const struct roce_gid stranger = roce_gid_v4(RTE_BE32(0x0a000003));
	uint64_t stale, invalid;
	uint32_t first;

	begin(RDMA_QP_RC);
	stale = rig_stat(&rig, US, "rx_stale_responses");
	invalid = rig_stat(&rig, US, "rx_invalid_requests");
	post(RDMA_OP_READ, 2 * MTU + 100);
	first = us()->req.una_psn;
	assert_int_equal(nb_said, 1);
	assert_int_equal(said[0].opcode, ROCE_READ_REQUEST);
	refused(&(struct rig_packet){.opcode = ROCE_READ_RESPONSE_MIDDLE,
			.psn = first,
			.length = MTU,
			.src = &stranger},
		"rx_bad_address");
	/* shorter and longer than expected there */
	answer(ROCE_READ_RESPONSE_FIRST, first, ACK, MTU - 4);
	answer(ROCE_READ_RESPONSE_ONLY, first, ACK, 100);
	answer(ROCE_READ_RESPONSE_FIRST, first, ACK, MTU + 4);
	assert_int_equal(rig_stat(&rig, US, "rx_invalid_requests"), invalid + 3);
	/* an atomic's response, a NAK, a response beyond the end */
	answer(ROCE_ATOMIC_ACKNOWLEDGE, first, ACK, 0);
	assert_int_equal(rig_stat(&rig, US, "rx_stale_responses"), stale + 1);
	answer(ROCE_READ_RESPONSE_FIRST, first, ROCE_NAK_REMOTE_ACCESS, MTU);
	answer(ROCE_READ_RESPONSE_LAST, roce_psn_add(first, 3), ACK, 100);
	assert_int_equal(rig_stat(&rig, US, "rx_stale_responses"), stale + 2);
	/* an acknowledgement contains no data */
	answer(ROCE_ACKNOWLEDGE, roce_psn_add(first, 2), ACK, 0);
	assert_memory_untouched();
	assert_int_equal(completions(), 0);
	assert_int_equal(us()->req.una_psn, first);
	/* one whose predecessor is missing: placed once, and only the missing one is requested */
	answer(ROCE_READ_RESPONSE_MIDDLE, roce_psn_add(first, 1), ACK, MTU - 4);
	assert_int_equal(rig_stat(&rig, US, "rx_invalid_requests"), invalid + 4);
	assert_memory_untouched();
	nb_said = 0;
	answer(ROCE_READ_RESPONSE_MIDDLE, roce_psn_add(first, 1), ACK, MTU);
	assert_int_equal(rig.end[US].memory[MTU - 1], 0xa5);
	assert_int_equal(rig.end[US].memory[MTU], 0);
	assert_int_equal(rig.end[US].memory[2 * MTU], 0xa5);
	assert_int_equal(nb_said, 1);
	assert_int_equal(said[0].opcode, ROCE_READ_REQUEST);
	assert_int_equal(said[0].psn, first);
	assert_int_equal(us()->req.una_psn, first);
	stale = rig_stat(&rig, US, "rx_stale_responses");
	answer(ROCE_READ_RESPONSE_MIDDLE, roce_psn_add(first, 1), ACK, MTU);
	assert_int_equal(rig_stat(&rig, US, "rx_stale_responses"), stale + 1);
	answer(ROCE_READ_RESPONSE_FIRST, first, ACK, MTU);
	assert_int_equal(us()->req.una_psn, roce_psn_add(first, 2));
	/* 100 bytes remain, no more */
	answer(ROCE_READ_RESPONSE_LAST, roce_psn_add(first, 2), ACK, 104);
	assert_int_equal(rig_stat(&rig, US, "rx_invalid_requests"), invalid + 5);
	assert_int_equal(completions(), 0);
	answer(ROCE_READ_RESPONSE_LAST, roce_psn_add(first, 2), ACK, 100);
	assert_int_equal(completions(), 1);
	assert_int_equal(rig.end[US].memory[2 * MTU + 99], 0);
	assert_int_equal(rig.end[US].memory[2 * MTU + 100], 0xa5);
	end();
}

/*
 * A response of the wrong length also acknowledges the requests before its own, which were being
 * sent again: the sender continues with the next one at once.
 */
static void
test_bad_answer_acknowledges(void **state)
{
	uint32_t first;

	begin(RDMA_QP_RC);
	post(RDMA_OP_SEND, 3 * MTU);
	post(RDMA_OP_READ, 2 * MTU);
	first = us()->req.una_psn;
	/* nothing has arrived: the first packet is sent again, and the others wait for its ACK */
	roce_requester_timeout(us());
	rig_run(&rig, 1);
	assert_int_equal(us()->req.next_psn, roce_psn_add(first, 1));
	nb_said = 0;
	answer(ROCE_READ_RESPONSE_FIRST, roce_psn_add(first, 3), ACK, MTU - 4);
	assert_int_equal(completions(), 1);
	assert_int_equal(nb_said, 1);
	assert_int_equal(said[0].opcode, ROCE_READ_REQUEST);
	assert_int_equal(said[0].psn, roce_psn_add(first, 3));
	answer(ROCE_READ_RESPONSE_FIRST, roce_psn_add(first, 3), ACK, MTU);
	answer(ROCE_READ_RESPONSE_LAST, roce_psn_add(first, 4), ACK, MTU);
	assert_int_equal(completions(), 1);
	end();
}

/* A region in the middle of US's memory. */
static struct rdma_mr *
region(uint32_t offset, uint32_t length, uint32_t access)
{
	const struct rdma_mr_attr attr = {
		.addr = rig.end[US].memory + offset, .length = length, .access = access, .gpu = -1};
	struct rdma_mr *mr = rdma_mr_reg(rig.end[US].pd, &attr);

	assert_non_null(mr);
	return mr;
}

static void
assert_nak(uint32_t psn, uint8_t nak)
{
	const struct said *last = &said[RTE_MIN(nb_said, (unsigned int)SAID) - 1];

	assert_true(nb_said > 0 && nb_said <= SAID);
	assert_int_equal(last->opcode, ROCE_ACKNOWLEDGE);
	assert_int_equal(last->syndrome, nak);
	assert_int_equal(last->psn, psn);
}

/*
 * Access is revoked while a READ of many packets is being answered.
 * @param how 0: deregistered, 1: read access removed, 2: another protection domain's
 */
static void
read_right_is_removed(unsigned int how)
{
	const uint64_t before = rig_stat(&rig, US, "rx_access_refused");
	struct rdma_mr *mr = region(0, 1000 * MTU, RDMA_ACCESS_REMOTE_READ);
	struct roce_mr *inside = (struct roce_mr *)mr;
	struct roce_reth ext = reth_at(rig.end[US].memory, rdma_mr_rkey(mr), 1000 * MTU);
	const struct rdma_pd *pd = inside->pd;
	unsigned int sent;
	uint32_t first;

	begin(RDMA_QP_RC);
	first = turn();
	rig_deliver(&rig, PEER,
		rig_forge(&rig, PEER,
			&(struct rig_packet){
				.opcode = ROCE_READ_REQUEST, .psn = first, .ext = &ext}));
	while (nb_said < 2)
		rig_step(&rig);
	sent = nb_said;
	assert_true(sent < 500);
	if (how == 0)
		assert_int_equal(rdma_mr_dereg(mr), 0);
	else if (how == 1)
		inside->access = RDMA_ACCESS_REMOTE_WRITE;
	else
		inside->pd = NULL;
	rig_run(&rig, 1);
	/* the packets that were sent, and a NAK for the first one that was not */
	assert_int_equal(nb_said, sent + 1);
	if (nb_said <= SAID)
		assert_nak(roce_psn_add(first, sent), ROCE_NAK_REMOTE_ACCESS);
	assert_int_equal(rig_stat(&rig, US, "rx_access_refused"), before + 1);
	assert_int_equal(state_of_us(), RDMA_QP_ERROR);
	inside->pd = how == 2 ? pd : inside->pd;
	if (how)
		assert_int_equal(rdma_mr_dereg(mr), 0);
	end();
}

static void
test_read_right_is_removed(void **state)
{
	read_right_is_removed(0);
	read_right_is_removed(1);
	read_right_is_removed(2);
}

/* The same for a WRITE whose packets are still arriving. */
static void
write_right_is_removed(bool dereg)
{
	struct rdma_mr *mr = region(0, 3 * MTU, RDMA_ACCESS_LOCAL_WRITE | RDMA_ACCESS_REMOTE_WRITE);
	struct roce_reth ext = reth_at(rig.end[US].memory, rdma_mr_rkey(mr), 3 * MTU);

	begin(RDMA_QP_RC);
	forge(&(struct rig_packet){
		.opcode = ROCE_WRITE_FIRST, .psn = turn(), .ext = &ext, .length = MTU});
	assert_int_equal(rig.end[US].memory[MTU - 1], 0);
	if (dereg)
		assert_int_equal(rdma_mr_dereg(mr), 0);
	else
		((struct roce_mr *)mr)->access = RDMA_ACCESS_REMOTE_READ;
	forge(&(struct rig_packet){.opcode = ROCE_WRITE_MIDDLE, .psn = turn(), .length = MTU});
	assert_nak(turn(), ROCE_NAK_REMOTE_ACCESS);
	assert_int_equal(rig.end[US].memory[MTU], 0xa5);
	if (!dereg)
		assert_int_equal(rdma_mr_dereg(mr), 0);
	end();
}

static void
test_write_right_is_removed(void **state)
{
	write_right_is_removed(true);
	write_right_is_removed(false);
}

/*
 * One request on its own connection.
 * @return syndrome of the response, 0xff: none
 */
static uint8_t
request(uint8_t opcode, uint64_t va, uint32_t rkey, uint32_t length)
{
	const struct roce_reth reth = {
		rte_cpu_to_be_64(va), rte_cpu_to_be_32(rkey), rte_cpu_to_be_32(length)};
	const struct roce_atomiceth atomic = {reth.va, reth.rkey, RTE_BE64(1), 0};
	const bool write = roce_opcodes[opcode].flags & ROCE_F_WRITE;
	uint8_t said_last = 0xff;

	begin(RDMA_QP_RC);
	forge(&(struct rig_packet){.opcode = opcode,
		.psn = turn(),
		.ext = roce_opcodes[opcode].flags & ROCE_F_ATOMICETH ? (const void *)&atomic
								     : (const void *)&reth,
		.length = write ? RTE_MIN(length, (uint32_t)MTU) : 0});
	/* a WRITE that was accepted gets no response, as none was requested */
	if (nb_said)
		said_last = said[0].syndrome;
	end();
	return said_last;
}

/* Each operation needs its own access right, and no other right suffices. */
static void
test_rights(void **state)
{
	static const struct {
		uint8_t opcode;
		uint32_t right;
		uint8_t good;
	} rows[] = {
		{ROCE_WRITE_ONLY, RDMA_ACCESS_REMOTE_WRITE, 0xff},
		{ROCE_READ_REQUEST, RDMA_ACCESS_REMOTE_READ, ACK},
		{ROCE_FETCH_ADD, RDMA_ACCESS_REMOTE_ATOMIC, ACK},
		{ROCE_COMPARE_SWAP, RDMA_ACCESS_REMOTE_ATOMIC, ACK},
	};
	const uint32_t all = RDMA_ACCESS_LOCAL_WRITE | RDMA_ACCESS_REMOTE_WRITE |
		RDMA_ACCESS_REMOTE_READ | RDMA_ACCESS_REMOTE_ATOMIC;

	for (unsigned int i = 0; i < RTE_DIM(rows); i++) {
		const uint64_t va = (uintptr_t)rig.end[US].memory + 4096;
		struct rdma_mr *mr = region(4096, 64, all & ~rows[i].right);

		assert_int_equal(
			request(rows[i].opcode, va, rdma_mr_rkey(mr), 8), ROCE_NAK_REMOTE_ACCESS);
		assert_int_equal(rig.end[US].memory[4096], 0xa5);
		assert_int_equal(rdma_mr_dereg(mr), 0);
		mr = region(4096, 64, RDMA_ACCESS_LOCAL_WRITE | rows[i].right);
		assert_int_equal(request(rows[i].opcode, va, rdma_mr_rkey(mr), 8), rows[i].good);
		/* a key with one wrong bit */
		for (unsigned int bit = 0; bit < 32; bit += 31)
			assert_int_equal(
				request(rows[i].opcode, va, rdma_mr_rkey(mr) ^ 1U << bit, 8),
				ROCE_NAK_REMOTE_ACCESS);
		assert_int_equal(rdma_mr_dereg(mr), 0);
	}
}

/* First and last byte of a region, one byte beyond, and address sums that wrap around. */
static void
test_bounds(void **state)
{
	static const uint8_t opcodes[] = {ROCE_WRITE_ONLY, ROCE_READ_REQUEST};
	struct rdma_mr *mr = region(4096, 64,
		RDMA_ACCESS_LOCAL_WRITE | RDMA_ACCESS_REMOTE_WRITE | RDMA_ACCESS_REMOTE_READ |
			RDMA_ACCESS_REMOTE_ATOMIC);
	const uint64_t va = (uintptr_t)rig.end[US].memory + 4096;
	const uint32_t key = rdma_mr_rkey(mr);

	for (unsigned int i = 0; i < RTE_DIM(opcodes); i++) {
		const uint8_t good = opcodes[i] == ROCE_WRITE_ONLY ? 0xff : ACK;

		assert_int_equal(request(opcodes[i], va, key, 64), good);
		assert_int_equal(request(opcodes[i], va + 60, key, 4), good);
		assert_int_equal(request(opcodes[i], va, key, 68), ROCE_NAK_REMOTE_ACCESS);
		assert_int_equal(request(opcodes[i], va + 61, key, 4), ROCE_NAK_REMOTE_ACCESS);
		assert_int_equal(request(opcodes[i], va - 1, key, 4), ROCE_NAK_REMOTE_ACCESS);
		assert_int_equal(request(opcodes[i], va + 64, key, 4), ROCE_NAK_REMOTE_ACCESS);
		assert_int_equal(
			request(opcodes[i], UINT64_MAX - 3, key, 8), ROCE_NAK_REMOTE_ACCESS);
		assert_int_equal(request(opcodes[i], 0, key, 8), ROCE_NAK_REMOTE_ACCESS);
		/* a request of zero bytes accesses no memory */
		assert_int_equal(request(opcodes[i], 0, 0, 0), good);
	}
	/* a WRITE FIRST must be shorter than its message */
	assert_int_equal(request(ROCE_WRITE_FIRST, (uintptr_t)rig.end[US].memory,
				 rdma_mr_rkey(rig.end[US].mr), MTU),
		ROCE_NAK_INVALID_REQUEST);
	/* the first packet requests access for the whole message */
	assert_int_equal(
		request(ROCE_WRITE_FIRST, va - MTU, key, MTU + 64), ROCE_NAK_REMOTE_ACCESS);
	/* an atomic needs 8 aligned bytes within the region */
	for (unsigned int off = 1; off < 8; off++)
		assert_int_equal(
			request(ROCE_FETCH_ADD, va + off, key, 8), ROCE_NAK_INVALID_REQUEST);
	assert_int_equal(request(ROCE_COMPARE_SWAP, va + 56, key, 8), ACK);
	assert_int_equal(request(ROCE_COMPARE_SWAP, va + 64, key, 8), ROCE_NAK_REMOTE_ACCESS);
	assert_int_equal(rdma_mr_dereg(mr), 0);
}

/* Sequences of packets that form no valid message. */
static void
test_order(void **state)
{
	enum {
		SEND = ROCE_SEND_FIRST,
		WRITE = ROCE_WRITE_FIRST
	};
	/*
	 * opcodes and payload bytes, terminated by {0xff}; WRITEs announce a length of 2 * MTU +
	 * 100
	 */
	static const struct {
		uint8_t opcode;
		uint16_t length;
	} rows[][4] = {
		{{ROCE_SEND_MIDDLE, MTU}, {0xff, 0}},
		{{ROCE_SEND_LAST, 100}, {0xff, 0}},
		{{ROCE_SEND_LAST_IMM, 100}, {0xff, 0}},
		{{ROCE_WRITE_MIDDLE, MTU}, {0xff, 0}},
		{{ROCE_WRITE_LAST, 100}, {0xff, 0}},
		{{SEND, MTU}, {SEND, MTU}, {0xff, 0}},
		{{SEND, MTU}, {ROCE_SEND_ONLY, 100}, {0xff, 0}},
		{{SEND, MTU}, {WRITE, MTU}, {0xff, 0}},
		{{SEND, MTU}, {ROCE_WRITE_MIDDLE, MTU}, {0xff, 0}},
		{{SEND, MTU}, {ROCE_READ_REQUEST, 0}, {0xff, 0}},
		{{SEND, MTU}, {ROCE_FETCH_ADD, 0}, {0xff, 0}},
		{{WRITE, MTU}, {WRITE, MTU}, {0xff, 0}},
		{{WRITE, MTU}, {ROCE_SEND_MIDDLE, MTU}, {0xff, 0}},
		{{WRITE, MTU}, {ROCE_READ_REQUEST, 0}, {0xff, 0}},
		/* middle packets must be full, last packets not empty, and none too long */
		{{SEND, MTU - 4}, {0xff, 0}},
		{{SEND, MTU + 4}, {0xff, 0}},
		{{SEND, MTU}, {ROCE_SEND_MIDDLE, MTU - 4}, {0xff, 0}},
		{{SEND, MTU}, {ROCE_SEND_LAST, 0}, {0xff, 0}},
		{{SEND, MTU}, {ROCE_SEND_LAST, MTU + 4}, {0xff, 0}},
		{{ROCE_SEND_ONLY, MTU + 4}, {0xff, 0}},
		{{WRITE, MTU - 4}, {0xff, 0}},
		/* more and less data than the WRITE announced */
		{{WRITE, MTU}, {ROCE_WRITE_LAST, 100}, {0xff, 0}},
		{{WRITE, MTU}, {ROCE_WRITE_MIDDLE, MTU}, {ROCE_WRITE_MIDDLE, MTU}, {0xff, 0}},
		{{WRITE, MTU}, {ROCE_WRITE_MIDDLE, MTU}, {ROCE_WRITE_LAST, 104}, {0xff, 0}},
		{{WRITE, MTU}, {ROCE_WRITE_MIDDLE, MTU}, {ROCE_WRITE_LAST, 96}, {0xff, 0}},
		{{ROCE_WRITE_ONLY, 100}, {0xff, 0}},
		/* a READ request has no payload */
		{{ROCE_READ_REQUEST, 4}, {0xff, 0}},
		{{ROCE_FETCH_ADD, 4}, {0xff, 0}},
		/*
		 * SEND with invalidate is not supported; nor are messages longer than the receive
		 */
		{{ROCE_SEND_ONLY_INV, 0}, {0xff, 0}},
		{{SEND, MTU}, {ROCE_SEND_MIDDLE, MTU}, {ROCE_SEND_LAST, 104}, {0xff, 0}},
	};

	for (unsigned int i = 0; i < RTE_DIM(rows); i++) {
		const uint64_t before = rig_stat(&rig, US, "rx_invalid_requests");
		unsigned int j;
		uint32_t psn = 0;

		begin(RDMA_QP_RC);
		receive(2 * MTU + 100);
		for (j = 0; rows[i][j].opcode != 0xff; j++) {
			assert_int_equal(nb_said, 0);
			psn = turn();
			forge(&(struct rig_packet){.opcode = rows[i][j].opcode,
				.psn = psn,
				.ext = ext_of(rows[i][j].opcode, 2 * MTU + 100),
				.length = rows[i][j].length});
		}
		if (nb_said == 0)
			fail_msg("row %u: no message", i);
		assert_nak(psn, ROCE_NAK_INVALID_REQUEST);
		assert_int_equal(turn(), psn);
		assert_int_equal(rig_stat(&rig, US, "rx_invalid_requests"), before + 1);
		assert_int_equal(state_of_us(), RDMA_QP_ERROR);
		end();
	}
}

/*
 * Packets after a refused one in the same burst: none is accepted while the NAK waits to be sent.
 */
static void
test_behind_refusal(void **state)
{
	const uint64_t before = rig_stat(&rig, US, "rx_bad_state");
	struct rig_packet packet = {.opcode = ROCE_SEND_LAST, .length = 100};
	uint32_t psn;

	begin(RDMA_QP_RC);
	receive(100);
	psn = packet.psn = turn();
	rig_deliver(&rig, PEER, rig_forge(&rig, PEER, &packet));
	packet.opcode = ROCE_SEND_ONLY;
	rig_deliver(&rig, PEER, rig_forge(&rig, PEER, &packet));
	rig_run(&rig, 1);
	assert_int_equal(nb_said, 1);
	assert_nak(psn, ROCE_NAK_INVALID_REQUEST);
	assert_int_equal(rig_stat(&rig, US, "rx_bad_state"), before + 1);
	assert_int_equal(completions(), 0);
	assert_memory_untouched();
	end();
}

/*
 * A packet that was accepted is not accepted again, with any content; a packet ahead of the
 * expected PSN is not accepted.
 */
static void
test_duplicates(void **state)
{
	struct rig_packet packet = {.opcode = ROCE_SEND_ONLY};
	uint64_t *value = (uint64_t *)rig.end[US].memory, duplicates, gaps, invalid;
	struct roce_atomiceth atomic;
	struct roce_reth reth;

	begin(RDMA_QP_RC);
	duplicates = rig_stat(&rig, US, "rx_duplicates");
	gaps = rig_stat(&rig, US, "rx_out_of_sequence");
	invalid = rig_stat(&rig, US, "rx_invalid_requests");
	receive(100);
	receive(100);
	packet.psn = turn();
	forge(&packet);
	forge(&packet);
	assert_int_equal(completions(), 1);
	assert_int_equal(rig_stat(&rig, US, "rx_duplicates"), ++duplicates);
	assert_int_equal(nb_said, 1);
	assert_nak(packet.psn, ACK);
	/* half of all PSNs are duplicates */
	packet.psn = roce_psn_add(turn(), -0x7fffff);
	forge(&packet);
	assert_int_equal(completions(), 0);
	assert_int_equal(rig_stat(&rig, US, "rx_duplicates"), ++duplicates);
	/* a WRITE: the memory has changed since */
	packet = (struct rig_packet){.opcode = ROCE_WRITE_ONLY,
		.psn = turn(),
		.ext = ext_of(ROCE_WRITE_ONLY, 100),
		.length = 100};
	forge(&packet);
	assert_int_equal(rig.end[US].memory[99], 0);
	memset(rig.end[US].memory, 0xa5, 100);
	forge(&packet);
	assert_int_equal(rig_stat(&rig, US, "rx_duplicates"), ++duplicates);
	assert_memory_untouched();
	/* an atomic is executed once; a duplicate READ must equal the request */
	*value = 5;
	memcpy(&atomic, ext_of(ROCE_FETCH_ADD, 8), sizeof(atomic));
	packet = (struct rig_packet){.opcode = ROCE_FETCH_ADD, .psn = turn(), .ext = &atomic};
	forge(&packet);
	nb_said = 0;
	forge(&packet);
	assert_int_equal(*value, 6);
	assert_int_equal(nb_said, 1);
	assert_int_equal(said[0].opcode, ROCE_ATOMIC_ACKNOWLEDGE);
	/* nor does it get the response of a READ */
	nb_said = 0;
	packet.opcode = ROCE_READ_REQUEST;
	packet.ext = ext_of(ROCE_READ_REQUEST, 8);
	forge(&packet);
	assert_int_equal(nb_said, 0);
	memcpy(&reth, ext_of(ROCE_READ_REQUEST, 2 * MTU), sizeof(reth));
	packet = (struct rig_packet){.opcode = ROCE_READ_REQUEST, .psn = turn(), .ext = &reth};
	forge(&packet);
	nb_said = 0;
	reth.va += RTE_BE64(1);
	forge(&packet);
	reth.va -= RTE_BE64(1);
	reth.rkey ^= 1;
	forge(&packet);
	reth.rkey ^= 1;
	reth.length = RTE_BE32(2 * MTU + 1);
	forge(&packet);
	packet.opcode = ROCE_FETCH_ADD;
	packet.ext = &atomic;
	forge(&packet);
	assert_int_equal(nb_said, 0);
	assert_int_equal(*value, 6);
	assert_int_equal(rig_stat(&rig, US, "rx_invalid_requests"), invalid + 5);
	/* ahead of the expected PSN: one NAK for the gap, and nothing is accepted */
	packet = (struct rig_packet){.opcode = ROCE_SEND_ONLY, .psn = roce_psn_add(turn(), 1)};
	forge(&packet);
	forge(&packet);
	packet.psn = roce_psn_add(turn(), 0x7fffff);
	forge(&packet);
	assert_int_equal(rig_stat(&rig, US, "rx_out_of_sequence"), gaps + 3);
	assert_int_equal(completions(), 0);
	assert_int_equal(nb_said, 1);
	assert_nak(turn(), ROCE_NAK_SEQUENCE);
	assert_int_equal(state_of_us(), RDMA_QP_RTS);
	end();
}

/*
 * UC, without acknowledgements: an incomplete message is dropped completely, and the next message
 * is accepted.
 */
static void
test_unreliable(void **state)
{
	const uint64_t refusals = rig_stat(&rig, US, "rx_access_refused"),
		       duplicates = rig_stat(&rig, US, "rx_duplicates"),
		       invalid = rig_stat(&rig, US, "rx_invalid_requests"),
		       dropped = rig_stat(&rig, US, "rx_uc_dropped");
	struct rig_packet only = {.opcode = ROCE_UC + ROCE_SEND_ONLY},
			  first = {.opcode = ROCE_UC + ROCE_SEND_FIRST, .length = MTU},
			  last = {.opcode = ROCE_UC + ROCE_SEND_LAST, .length = 100}, write;
	struct roce_reth reth;

	begin(RDMA_QP_UC);
	for (unsigned int i = 0; i < 8; i++)
		receive(MTU + 100);
	/* the network duplicates or delays the packet */
	only.psn = turn();
	forge(&only);
	forge(&only);
	only.psn = roce_psn_add(turn(), -60000);
	forge(&only);
	assert_int_equal(completions(), 1);
	assert_int_equal(rig_stat(&rig, US, "rx_duplicates"), duplicates + 2);
	/* a LAST without a FIRST; a message with a missing middle; a message that is too long */
	last.psn = turn();
	forge(&last);
	first.psn = turn();
	forge(&first);
	last.psn = roce_psn_add(turn(), 1);
	forge(&last);
	first.psn = turn();
	forge(&first);
	last.length = 104;
	last.psn = turn();
	forge(&last);
	assert_int_equal(completions(), 0);
	/* a WRITE with a wrong key, whose other packets have no key */
	reth = reth_at(rig.end[US].memory, rdma_mr_rkey(rig.end[US].mr) ^ 1, 2 * MTU);
	write = (struct rig_packet){
		.opcode = ROCE_UC + ROCE_WRITE_FIRST, .psn = turn(), .ext = &reth, .length = MTU};
	memset(rig.end[US].memory, 0xa5, 4 * MTU);
	forge(&write);
	write = (struct rig_packet){
		.opcode = ROCE_UC + ROCE_WRITE_LAST_IMM, .psn = turn(), .length = MTU};
	forge(&write);
	assert_int_equal(rig_stat(&rig, US, "rx_access_refused"), refusals + 1);
	assert_memory_untouched();
	assert_int_equal(completions(), 0);
	/* no FIRST, too long; the rest of the broken message before */
	assert_int_equal(rig_stat(&rig, US, "rx_invalid_requests"), invalid + 2);
	assert_int_equal(rig_stat(&rig, US, "rx_uc_dropped"), dropped + 2);
	only.psn = turn();
	forge(&only);
	assert_int_equal(completions(), 1);
	assert_int_equal(nb_said, 0);
	assert_int_equal(state_of_us(), RDMA_QP_RTS);
	end();
}

/*
 * No receive is posted: nothing is accepted, not even a WRITE with immediate, whose data needs no
 * receive.
 */
static void
test_not_ready(void **state)
{
	static const uint8_t opcodes[] = {ROCE_SEND_ONLY, ROCE_SEND_FIRST, ROCE_WRITE_ONLY_IMM};

	for (unsigned int i = 0; i < RTE_DIM(opcodes); i++) {
		const uint16_t length = length_of(opcodes[i]);
		uint32_t psn;

		begin(RDMA_QP_RC);
		psn = turn();
		forge(&(struct rig_packet){.opcode = opcodes[i],
			.psn = psn,
			.ext = ext_of(opcodes[i], length),
			.length = length});
		assert_int_equal(nb_said, 1);
		assert_int_equal(said[0].syndrome & ROCE_AETH_KIND, ROCE_AETH_RNR);
		assert_int_equal(said[0].psn, psn);
		assert_int_equal(turn(), psn);
		assert_int_equal(completions(), 0);
		assert_memory_untouched();
		end();
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_not_the_peers),
		cmocka_unit_test(test_cnp),
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_bad_answer_acknowledges),
		cmocka_unit_test(test_read_right_is_removed),
		cmocka_unit_test(test_write_right_is_removed),
		cmocka_unit_test(test_rights),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_behind_refusal),
		cmocka_unit_test(test_duplicates),
		cmocka_unit_test(test_unreliable),
		cmocka_unit_test(test_not_ready),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
