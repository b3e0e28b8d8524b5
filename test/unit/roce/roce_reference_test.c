/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages by reference: the payload is that of the sender, in as many segments as there are
 * packets; losses, duplicates and refusals are counted by queue pair; no mbuf is leaked.
 */
#include "roce_rig.h"

#include <errno.h>

#include <rte_cycles.h>
#include <rte_errno.h>

#include "engine/qp.h"
#include "engine/reference.h"
#include "rdma_roce.h"

#define MTU	1024
#define BASE	0x7000000000000000ULL /* not an address of this process */
#define PLACES	(1U << 20)
#define RKEY	0xfeedbeef
#define QPN	0x77
#define PSN	0xfffffd /* wraps in the first message of four packets */
#define CONTEXT ((void *)(uintptr_t)0x1234)
#define EVENT	0x00abcdef
#define PERCENT 655

enum wire {
	AS_SENT, /* headers, payload, ICRC */
	ONE_SEGMENT,
	SPLIT_HEADERS, /* after all headers */
	SPLIT_54,      /* after the BTH: an extended header is in the second segment */
	SPLIT_PAYLOAD, /* in the middle of the payload, with an empty segment */
	SPLIT_ALL,     /* every 20 bytes */
	WIRES,
};

static struct rig rig;
static struct rte_mempool *pool;
static struct rdma_roce_reference reference;
static enum wire wire;
static uint64_t lose; /* bit n: the n-th packet from now on is lost */
static bool twice;    /* every packet arrives twice */
static unsigned int nb_packets;

/* ---- the wire ---- */

static struct rte_mbuf *
part(struct rte_mbuf *whole, struct rte_mbuf *m, uint32_t from, uint32_t length)
{
	struct rte_mbuf *copy =
		length ? rte_pktmbuf_copy(m, pool, from, length) : rte_pktmbuf_alloc(pool);

	assert_non_null(copy);
	if (!whole)
		return copy;
	assert_int_equal(rte_pktmbuf_chain(whole, copy), 0);
	return whole;
}

static struct rte_mbuf *
remake(struct rte_mbuf *m, const struct roce_packet *pkt)
{
	uint32_t at[128], last = m->pkt_len, from = 0, n = 0, i;
	struct rte_mbuf *whole = NULL;

	switch (wire) {
	case SPLIT_HEADERS:
		at[n++] = pkt->payload;
		break;
	case SPLIT_54:
		at[n++] = 54;
		break;
	case SPLIT_PAYLOAD:
		at[n++] = pkt->payload + pkt->length / 2;
		at[n++] = pkt->payload + pkt->length / 2;
		break;
	case SPLIT_ALL:
		while (n * 20 + 20 < last) {
			at[n] = n * 20 + 20;
			n++;
		}
		break;
	default:
		break;
	}
	at[n++] = last;
	for (i = 0; i < n; i++) {
		whole = part(whole, m, from, at[i] - from);
		from = at[i];
	}
	return whole;
}

static bool
tap(struct rig *r, unsigned int from, struct rte_mbuf *m)
{
	struct roce_packet pkt;
	unsigned int number;

	if (from != 0 || roce_packet_parse(m, &pkt) != ROCE_PACKET_DATA)
		return true;
	number = nb_packets++;
	if (number < 64 && lose >> number & 1)
		return false;
	if (twice)
		rig_deliver(r, 0, remake(m, &pkt));
	if (wire == AS_SENT)
		return true;
	rig_deliver(r, 0, remake(m, &pkt));
	return false;
}

/* ---- queue pairs ---- */

static struct rdma_qp *
create(unsigned int end, const struct rdma_roce_reference *by)
{
	const struct rdma_qp_attr attr = {.type = RDMA_QP_UC,
		.send_cq = rig.end[end].cq,
		.recv_cq = rig.end[end].cq,
		.context = CONTEXT,
		.receive_only = by != NULL,
		.reference = by};

	return rdma_qp_create(rig.end[end].pd, &attr);
}

static void
connect_sender(uint32_t psn)
{
	struct rdma_qp_peer peer = {
		.addr = rig.end[1].addr, .qpn = QPN, .local_psn = psn, .mtu = MTU};
	struct rdma_event event;
	int ret;

	rig.end[0].qp = create(0, NULL);
	assert_non_null(rig.end[0].qp);
	while ((ret = rdma_qp_connect(rig.end[0].qp, &peer)) == -EAGAIN) {
		rig_step(&rig);
		rdma_poll_cm(rig.end[0].dev, &event, 1);
		rdma_poll_cm(rig.end[1].dev, &event, 1);
	}
	assert_int_equal(ret, 0);
}

static enum rdma_qp_state
state_of(unsigned int end)
{
	struct rdma_qp_info info;

	rdma_qp_info_get(rig.end[end].qp, &info);
	return info.state;
}

static void
begin(void)
{
	struct rdma_qp_peer peer = {.psn = PSN, .mtu = MTU};

	reference = (struct rdma_roce_reference){.base = BASE,
		.length = PLACES,
		.rkey = RKEY,
		.max_bytes = RDMA_ROCE_MESSAGE_MAX,
		.qpn = QPN};
	wire = ONE_SEGMENT;
	lose = nb_packets = 0;
	twice = false;
	memset(rig.faults, 0, sizeof(rig.faults));
	rig.end[1].qp = create(1, &reference);
	assert_non_null(rig.end[1].qp);
	memset(&reference, 0xff, sizeof(reference)); /* it was copied */
	assert_int_equal(rdma_qp_connect(rig.end[1].qp, &peer), 0);
	assert_int_equal(state_of(1), RDMA_QP_RTR);
	rig.tap = NULL;
	connect_sender(PSN);
	rig.tap = tap;
}

static void
finish(void)
{
	rig_run(&rig, 1);
	rig.tap = NULL;
	rig_disconnect(&rig);
	assert_int_equal(rte_mempool_in_use_count(pool), 0);
	assert_int_equal(rig_stat(&rig, 1, "rx_uc_in_progress"), 0);
}

static struct rdma_roce_uc_info
info_of(unsigned int end)
{
	struct rdma_roce_uc_info info;

	assert_int_equal(rdma_roce_uc_info_get(rig.end[end].qp, &info), 0);
	return info;
}

/* ---- messages ---- */

static uint8_t *
source(uint32_t offset)
{
	return rig.end[0].memory + offset;
}

static void
post(enum rdma_op op, uint32_t offset, uint32_t length, uint64_t addr, uint32_t imm)
{
	const struct rdma_sge sge = {
		(uintptr_t)source(offset), length, rdma_mr_lkey(rig.end[0].mr)};
	const struct rdma_send_wr wr = {.sg = &sge,
		.nb_sge = 1,
		.op = op,
		.flags = RDMA_SEND_SIGNALED,
		.imm = imm,
		.remote_addr = addr,
		.rkey = RKEY};
	struct rdma_wc wc;

	while (rdma_poll_cq(rig.end[0].cq, &wc, 1))
		;
	assert_int_equal(rdma_post_send(rig.end[0].qp, &wr, 1), 1);
}

/* Frees the message's payload, after a comparison with the sender's. @return segments */
static unsigned int
compare(const struct rdma_roce_message *message, uint32_t offset)
{
	struct rte_mbuf *m = message->m, *segment;
	uint32_t bytes = 0, n = 0;

	if (!m) {
		assert_int_equal(message->length, 0);
		return 0;
	}
	assert_int_equal(m->pkt_len, message->length);
	for (segment = m; segment; segment = segment->next) {
		assert_true(segment->data_len > 0);
		assert_memory_equal(rte_pktmbuf_mtod(segment, void *), source(offset) + bytes,
			segment->data_len);
		bytes += segment->data_len;
		n++;
	}
	assert_int_equal(bytes, message->length);
	assert_int_equal(m->nb_segs, n);
	rte_pktmbuf_free(m);
	return n;
}

static struct rdma_roce_message
expect(void)
{
	const uint64_t deadline = rte_rdtsc() + 5 * rte_get_tsc_hz();
	struct rdma_roce_message message;

	while (rdma_roce_poll_messages(rig.end[1].dev, 0, &message, 1) == 0) {
		assert_true(rte_rdtsc() < deadline);
		rig_step(&rig);
	}
	return message;
}

static void
expect_none(void)
{
	struct rdma_roce_message message;

	rig_run(&rig, 2);
	assert_int_equal(rdma_roce_poll_messages(rig.end[1].dev, 0, &message, 1), 0);
}

/* A SEND that must be delivered: the queue pair is in order again. */
static void
expect_next(void)
{
	struct rdma_roce_message message;

	post(RDMA_OP_SEND_IMM, 64, 3 * MTU, 0, 77);
	message = expect();
	assert_int_equal(message.imm, 77);
	assert_int_equal(message.length, 3 * MTU);
	compare(&message, 64);
}

/* ---- tests ---- */

/* All operations and sizes, over all kinds of mbuf chains. */
static void
test_messages(void **state)
{
	static const uint32_t sizes[] = {
		0, 1, 3, 64, 300, MTU - 1, MTU, MTU + 1, 2 * MTU + 64, RDMA_ROCE_MESSAGE_MAX};
	const uint64_t before = rig_stat(&rig, 1, "rx_message_bytes");
	struct rdma_roce_message message;
	unsigned int i, op, segments, total = 0;
	uint64_t bytes = 0;

	begin();
	for (wire = 0; wire < WIRES; wire++)
		for (i = 0; i < RTE_DIM(sizes); i++)
			for (op = RDMA_OP_SEND; op <= RDMA_OP_WRITE_IMM; op++) {
				const bool write = op >= RDMA_OP_WRITE;
				const bool imm = op == RDMA_OP_SEND_IMM || op == RDMA_OP_WRITE_IMM;
				const uint64_t addr = BASE + PLACES - sizes[i];

				post(op, i, sizes[i], addr, EVENT + i);
				message = expect();
				assert_ptr_equal(message.qp_context, CONTEXT);
				assert_int_equal(
					message.op, write ? RDMA_WC_RECV_WRITE_IMM : RDMA_WC_RECV);
				assert_int_equal(message.flags, imm ? RDMA_WC_WITH_IMM : 0);
				assert_int_equal(message.imm, imm ? EVENT + i : 0);
				assert_int_equal(message.addr, write ? addr : 0);
				assert_int_equal(message.length, sizes[i]);
				segments = compare(&message, i);
				if (wire != SPLIT_PAYLOAD && wire != SPLIT_ALL)
					assert_int_equal(segments, (sizes[i] + MTU - 1) / MTU);
				bytes += sizes[i];
				total++;
			}
	assert_int_equal(rig_stat(&rig, 1, "rx_message_bytes"), before + bytes);
	assert_int_equal(info_of(1).messages, total);
	assert_int_equal(info_of(1).gaps + info_of(1).dropped + info_of(1).refused, 0);
	finish();
}

/* Each packet of a message of four packets is lost, then an event, then several packets. */
static void
test_loss(void **state)
{
	static const uint64_t losses[] = {1, 2, 4, 8, 3, 6, 9, 15};
	const uint64_t dropped = rig_stat(&rig, 1, "rx_uc_dropped");
	struct rdma_roce_uc_info info, want = {0};
	struct rdma_roce_message message;
	unsigned int i, op, bit;

	begin();
	for (op = RDMA_OP_SEND; op <= RDMA_OP_WRITE_IMM; op++)
		for (i = 0; i < RTE_DIM(losses); i++) {
			wire = (op + i) % WIRES;
			nb_packets = 0;
			lose = losses[i];
			post(op, 0, 3 * MTU + 64, BASE, 1);
			expect_none();
			assert_int_equal(
				rig_stat(&rig, 1, "rx_uc_in_progress"), losses[i] == 8 ? 3 : 0);
			lose = 0;
			expect_next();
			want.messages++;
			for (bit = 0; bit < 4; bit++)
				if (losses[i] >> bit & 1)
					want.lost++;
				else
					want.dropped++;
			/* packets that are next to each other are one gap; 9 are two */
			want.gaps += losses[i] == 9 ? 2 : 1;
		}
	/* the event of a WRITE that arrived */
	wire = ONE_SEGMENT;
	nb_packets = 0;
	lose = 8;
	post(RDMA_OP_WRITE, 0, 2 * MTU + 64, BASE, 0);
	message = expect();
	assert_int_equal(compare(&message, 0), 3);
	post(RDMA_OP_WRITE_IMM, 0, 0, 0, EVENT);
	expect_none();
	expect_next();
	want.messages += 2;
	want.lost++;
	want.gaps++;
	info = info_of(1);
	assert_memory_equal(&info, &want, sizeof(info));
	assert_int_equal(rig_stat(&rig, 1, "rx_uc_dropped"), dropped + want.dropped);
	/* what is not complete when the queue pair is destroyed */
	nb_packets = 0;
	lose = 8;
	post(RDMA_OP_SEND, 0, 3 * MTU + 64, 0, 0);
	expect_none();
	finish();
	assert_int_equal(rig_stat(&rig, 1, "rx_uc_dropped"), dropped + want.dropped + 3);
}

static void
test_duplicates(void **state)
{
	struct rdma_roce_message message;
	unsigned int i;

	begin();
	twice = true;
	for (i = 0; i < 20; i++) {
		wire = i % WIRES;
		post(RDMA_OP_WRITE_IMM, i, 2 * MTU + 64, BASE + i, i);
		message = expect();
		assert_int_equal(message.imm, i);
		compare(&message, i);
		expect_none();
	}
	assert_int_equal(info_of(1).duplicates, 20 * 3);
	assert_int_equal(info_of(1).messages, 20);
	assert_int_equal(info_of(1).gaps, 0);
	finish();
}

/* Set the time of the receiver's latest packet: a test must not depend on the machine's speed */
static void
last_packet_at(uint64_t tsc)
{
	((struct roce_qp *)rig.end[1].qp)->resp.received_at = tsc;
}

#define LONG_AGO 1 /* TSC */

/* The sender ends within a message, and begins again with another PSN. */
static void
test_restart(void **state)
{
	static const int32_t differences[] = {1, 1000, 1 << 22, -65537, -(1 << 22)};
	uint32_t psn = PSN;
	struct rdma_roce_message message;
	unsigned int i;

	begin();
	for (i = 0; i < RTE_DIM(differences); i++) {
		nb_packets = 0;
		lose = 8; /* LAST */
		post(RDMA_OP_WRITE, 0, 3 * MTU + 64, BASE, 0);
		expect_none();
		lose = 0;
		psn = roce_psn_add(psn, 3 + differences[i]);
		rig.tap = NULL;
		assert_int_equal(rdma_qp_destroy(rig.end[0].qp), 0);
		connect_sender(psn);
		rig.tap = tap;
		last_packet_at(rte_rdtsc());
		post(RDMA_OP_WRITE_IMM, 5, 2 * MTU, BASE, i);
		message = expect();
		assert_int_equal(message.imm, i);
		compare(&message, 5);
		psn = roce_psn_add(psn, 2);
		assert_int_equal(info_of(1).dropped, 3 * (i + 1));
		assert_int_equal(info_of(1).messages, i + 1);
	}
	/* the loss is unknown where the new PSN is behind */
	assert_int_equal(info_of(1).lost, 1 + 1000 + (1 << 22));
	assert_int_equal(info_of(1).gaps, RTE_DIM(differences));
	/* a little behind: packets are duplicates until they are too far behind */
	rig.tap = NULL;
	assert_int_equal(rdma_qp_destroy(rig.end[0].qp), 0);
	connect_sender(roce_psn_add(psn, -1000));
	rig.tap = tap;
	for (i = 0; i < 256 / 4; i++) {
		post(RDMA_OP_SEND, 0, 3 * MTU + 64, 0, 0);
		rig_step(&rig);
	}
	expect_none();
	assert_int_equal(info_of(1).duplicates, 256);
	expect_next();
	assert_int_equal(info_of(1).gaps, RTE_DIM(differences) + 1);
	finish();
}

/* The first packet of all, and the first one after a silence, may have any PSN. */
static void
test_any_first_psn(void **state)
{
	struct rdma_roce_message message;

	begin();
	for (uint32_t i = 0; i < 3; i++) {
		rig.tap = NULL;
		assert_int_equal(rdma_qp_destroy(rig.end[0].qp), 0);
		connect_sender(roce_psn_add(PSN, -100 * (int32_t)(i + 1)));
		rig.tap = tap;
		post(RDMA_OP_WRITE_IMM, 5, 2 * MTU, BASE, i);
		message = expect();
		assert_int_equal(message.imm, i);
		compare(&message, 5);
		last_packet_at(LONG_AGO);
	}
	assert_int_equal(info_of(1).duplicates, 0);
	assert_int_equal(info_of(1).messages, 3);
	finish();
}

/* The same ahead of the expected PSN: packets near it were lost, far ahead no loss is known. */
static void
test_loss_after_silence(void **state)
{
	static const int32_t differences[] = {5000000, 65537, 65536, 1};
	uint32_t psn = PSN;

	begin();
	for (uint32_t i = 0; i < RTE_DIM(differences); i++) {
		struct rdma_roce_message message;

		rig.tap = NULL;
		assert_int_equal(rdma_qp_destroy(rig.end[0].qp), 0);
		psn = roce_psn_add(psn, differences[i]);
		connect_sender(psn);
		rig.tap = tap;
		post(RDMA_OP_WRITE_IMM, 5, 2 * MTU, BASE, i);
		message = expect();
		compare(&message, 5);
		psn = roce_psn_add(psn, 2);
		last_packet_at(LONG_AGO);
	}
	assert_int_equal(info_of(1).messages, RTE_DIM(differences));
	assert_int_equal(info_of(1).gaps, RTE_DIM(differences));
	assert_int_equal(info_of(1).lost, 65536 + 1);
	finish();
}

static struct roce_reth
reth(uint64_t va, uint32_t rkey, uint32_t length)
{
	return (struct roce_reth){.va = rte_cpu_to_be_64(va),
		.rkey = rte_cpu_to_be_32(rkey),
		.length = rte_cpu_to_be_32(length)};
}

/* A packet by hand, with the PSN that is expected next. */
static void
forge(uint8_t opcode, const struct roce_reth *ext, uint16_t length)
{
	const struct roce_qp *qp = (const struct roce_qp *)rig.end[1].qp;
	const struct rig_packet packet = {.opcode = ROCE_UC + opcode,
		.psn = qp->resp.expected_psn,
		.ext = ext,
		.length = length};

	rig_deliver(&rig, 0, rig_forge(&rig, 0, &packet));
	rig_run(&rig, 0);
}

/* The sender's next PSN is that which the receiver expects. */
static void
align(void)
{
	struct roce_requester *r = &((struct roce_qp *)rig.end[0].qp)->req;

	r->next_psn = r->una_psn = r->max_psn =
		((const struct roce_qp *)rig.end[1].qp)->resp.expected_psn;
}

static void
test_refused(void **state)
{
	const struct {
		struct roce_reth reth;
		const char *counter;
	} refused[] = {
		{reth(BASE, RKEY ^ 1, 4), "rx_access_refused"},
		{reth(BASE - 1, RKEY, 4), "rx_access_refused"},
		{reth(BASE + PLACES - 3, RKEY, 4), "rx_access_refused"},
		{reth(BASE + PLACES, RKEY, 4), "rx_access_refused"},
		{reth(UINT64_MAX - 1, RKEY, 4), "rx_access_refused"},
		{reth(0, RKEY, 4), "rx_access_refused"},
		{reth(BASE, RKEY, RDMA_ROCE_MESSAGE_MAX + 1), "rx_invalid_requests"},
		{reth(BASE, RKEY, UINT32_MAX), "rx_invalid_requests"},
		{reth(BASE, RKEY, 8), "rx_invalid_requests"},
		{reth(BASE, RKEY, 3), "rx_invalid_requests"},
		{reth(BASE, RKEY, 0), "rx_invalid_requests"},
	};
	const struct roce_reth good = reth(BASE, RKEY, 2 * MTU), event = reth(0, 0, 0);
	struct rdma_roce_message message;
	uint64_t before;
	unsigned int i;

	begin();
	for (i = 0; i < RTE_DIM(refused); i++) {
		before = rig_stat(&rig, 1, refused[i].counter);
		forge(ROCE_WRITE_ONLY, &refused[i].reth, 4);
		assert_int_equal(rig_stat(&rig, 1, refused[i].counter), before + 1);
	}
	assert_int_equal(info_of(1).refused, i);
	assert_int_equal(info_of(1).dropped, i);
	/* the key of a message without bytes is arbitrary */
	forge(ROCE_WRITE_ONLY, &event, 0);
	message = expect();
	assert_null(message.m);
	/* rest of a message without its beginning; MIDDLE of a wrong length; LAST of another
	 * operation; LAST that is too short */
	before = rig_stat(&rig, 1, "rx_invalid_requests");
	forge(ROCE_SEND_MIDDLE, NULL, MTU);
	forge(ROCE_SEND_LAST, NULL, 8);
	forge(ROCE_WRITE_FIRST, &good, MTU);
	forge(ROCE_WRITE_MIDDLE, NULL, MTU - 4);
	forge(ROCE_WRITE_FIRST, &good, MTU);
	forge(ROCE_SEND_LAST, NULL, MTU);
	forge(ROCE_WRITE_FIRST, &good, MTU);
	forge(ROCE_WRITE_LAST, NULL, MTU - 4);
	forge(ROCE_WRITE_FIRST, &good, MTU);
	forge(ROCE_WRITE_MIDDLE, NULL, MTU);
	assert_int_equal(rig_stat(&rig, 1, "rx_invalid_requests"), before + 5);
	expect_none();
	/* a message that a FIRST ends */
	forge(ROCE_SEND_FIRST, NULL, MTU);
	forge(ROCE_SEND_FIRST, NULL, MTU);
	forge(ROCE_SEND_LAST, NULL, 4);
	message = expect();
	assert_int_equal(message.length, MTU + 4);
	rte_pktmbuf_free(message.m);
	expect_none();
	assert_int_equal(info_of(1).refused, i + 5);
	assert_int_equal(info_of(1).messages, 2);
	assert_int_equal(info_of(1).dropped, i + 11);
	align();
	expect_next();
	finish();
}

/* SEND of more than max_bytes; WRITEs where none is allowed */
static void
test_limits(void **state)
{
	const struct rdma_qp_peer peer = {.psn = 0, .mtu = MTU};
	struct rdma_roce_message message;

	begin();
	assert_int_equal(rdma_qp_destroy(rig.end[1].qp), 0);
	reference = (struct rdma_roce_reference){
		.base = BASE, .rkey = RKEY, .max_bytes = 2 * MTU, .qpn = QPN};
	rig.end[1].qp = create(1, &reference);
	assert_int_equal(rdma_qp_connect(rig.end[1].qp, &peer), 0);
	align();
	post(RDMA_OP_SEND, 0, 2 * MTU + 1, 0, 0);
	post(RDMA_OP_WRITE_IMM, 0, 2 * MTU + 1, BASE, 0);
	post(RDMA_OP_WRITE_IMM, 0, 1, BASE, 0);
	expect_none();
	assert_int_equal(info_of(1).refused, 3);
	post(RDMA_OP_WRITE_IMM, 0, 0, BASE, EVENT);
	message = expect();
	assert_int_equal(message.imm, EVENT);
	post(RDMA_OP_SEND, 3, 2 * MTU, 0, 0);
	message = expect();
	assert_int_equal(compare(&message, 3), 2);
	finish();
}

/* The application does not take messages: nothing is received, and nothing is lost. */
static void
test_ring_full(void **state)
{
	const uint64_t pauses = rig_stat(&rig, 1, "rx_message_ring_pauses"),
		       full = rig_stat(&rig, 1, "rx_message_ring_full");
	struct rdma_roce_message message[64];
	unsigned int i, got = 0, sent = 0;
	struct roce_packet pkt;
	struct rte_mbuf *m, *copy;
	uint16_t n;

	begin();
	while (sent < 2000) {
		post(RDMA_OP_WRITE_IMM, 0, sent % 2 * 8, BASE, sent);
		sent++;
		rig_step(&rig);
	}
	rig_run(&rig, 2);
	assert_true(rig_stat(&rig, 1, "rx_message_ring_pauses") > pauses);
	assert_true(info_of(1).messages > ROCE_MESSAGES - ROCE_BURST);
	assert_true(info_of(1).messages <= ROCE_MESSAGES);
	/* packets that the application received itself */
	rig.tap = NULL;
	while (info_of(1).messages < ROCE_MESSAGES + 1 &&
		rig_stat(&rig, 1, "rx_message_ring_full") == full) {
		assert_int_equal(rte_ring_dequeue(rig.end[1].rx[0], (void **)&m), 0);
		assert_int_equal(rdma_roce_rx(rig.end[1].dev, 0, &m, 1), 0);
	}
	assert_int_equal(info_of(1).messages, ROCE_MESSAGES);
	assert_int_equal(rig_stat(&rig, 1, "rx_message_ring_full"), full + 1);
	assert_int_equal(info_of(1).dropped, 1);
	rig.tap = tap;
	while (got < sent) {
		n = rdma_roce_poll_messages(rig.end[1].dev, 0, message, RTE_DIM(message));
		for (i = 0; i < n; i++) {
			/* the one that was dropped */
			got += got == ROCE_MESSAGES;
			assert_int_equal(message[i].imm, got);
			assert_int_equal(message[i].length, got % 2 * 8);
			compare(&message[i], 0);
			got++;
		}
		rig_step(&rig);
	}
	assert_int_equal(info_of(1).gaps, 0);
	/* a packet that rdma_roce_rx() takes, of several segments */
	rig.tap = NULL;
	post(RDMA_OP_SEND, 0, 512, 0, 0);
	rdma_progress(rig.end[0].dev, 0);
	assert_int_equal(rte_ring_dequeue(rig.end[0].tx[0], (void **)&m), 0);
	assert_int_equal(roce_packet_parse(m, &pkt), ROCE_PACKET_DATA);
	wire = SPLIT_ALL;
	copy = remake(m, &pkt);
	rte_pktmbuf_free(m);
	assert_int_equal(rdma_roce_rx(rig.end[1].dev, 0, &copy, 1), 0);
	message[0] = expect();
	compare(&message[0], 0);
	finish();
}

/* Queue pairs that end with complete messages that were not taken, and with one that is begun. */
static void
test_end(void **state)
{
	struct rdma_roce_message message;
	struct rdma_qp *other;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		begin();
		post(RDMA_OP_SEND, 0, 3 * MTU, 0, 0);
		post(RDMA_OP_SEND, 0, 64, 0, 0);
		rig_run(&rig, 1);
		nb_packets = 0;
		lose = 8;
		post(RDMA_OP_SEND, 0, 4 * MTU, 0, 0);
		rig_run(&rig, 1);
		assert_int_equal(rte_mempool_in_use_count(pool), 3 + 1 + 3);
		if (i == 1) {
			assert_int_equal(rdma_qp_error(rig.end[1].qp), 0);
			assert_int_equal(rte_mempool_in_use_count(pool), 3 + 1);
			message = expect();
			compare(&message, 0);
			message = expect();
			compare(&message, 0);
			post(RDMA_OP_SEND, 0, 64, 0, 0);
			expect_none();
		}
		finish();
	}
	/* messages of other queue pairs stay */
	begin();
	post(RDMA_OP_SEND, 0, 64, 0, 0);
	rig_run(&rig, 1);
	reference = (struct rdma_roce_reference){.max_bytes = 1};
	other = create(1, &reference);
	assert_int_equal(rdma_qp_destroy(other), 0);
	message = expect();
	compare(&message, 0);
	finish();
}

/* Without address resolution; accepted sources; no answers. */
static void
test_receive_only(void **state)
{
	const struct roce_gid mine = roce_gid_v4(RTE_BE32(0x0a000001)),
			      strange = roce_gid_v4(RTE_BE32(0xc0a80001));
	struct rdma_qp_peer peer = {.psn = PSN, .mtu = MTU};
	struct rig_packet packet = {
		.opcode = ROCE_UC + ROCE_SEND_ONLY, .psn = PSN, .length = 8, .src = &strange};
	const uint64_t refused = rig_stat(&rig, 1, "rx_bad_address");
	const struct rdma_recv_wr recv = {.nb_sge = 0};
	const struct rdma_send_wr send = {.nb_sge = 0, .op = RDMA_OP_SEND};
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = {{{0xfd, [15] = 1}}}};
	struct rdma_roce_message message;
	struct rte_mbuf *m;
	uint64_t frames;

	begin();
	frames = rig.frames[1];
	/* any source; a congestion mark is not answered, because there is no path */
	m = rig_forge(&rig, 0, &packet);
	rte_pktmbuf_mtod(m, uint8_t *)[14 + 1] |= 3;
	rig_deliver(&rig, 0, m);
	message = expect();
	assert_int_equal(message.length, 8);
	rte_pktmbuf_free(message.m);
	packet.psn = roce_psn_add(PSN, 1);
	packet.src = &mine;
	rig_deliver(&rig, 0, rig_forge(&rig, 0, &packet));
	message = expect();
	rte_pktmbuf_free(message.m);
	assert_int_equal(rdma_post_recv(rig.end[1].qp, &recv, 1), 0);
	assert_int_equal(rte_errno, EINVAL);
	assert_int_equal(rdma_post_send(rig.end[1].qp, &send, 1), 0);
	assert_int_equal(rte_errno, ENOTCONN);
	assert_int_equal(rdma_qp_destroy(rig.end[1].qp), 0);
	/* one source */
	reference = (struct rdma_roce_reference){.max_bytes = MTU, .qpn = QPN};
	rig.end[1].qp = create(1, &reference);
	assert_non_null(rig.end[1].qp);
	memcpy(&peer.addr, &six, sizeof(six));
	assert_int_equal(rdma_qp_connect(rig.end[1].qp, &peer), -EHOSTUNREACH);
	peer.addr.ss_family = AF_UNIX;
	assert_int_equal(rdma_qp_connect(rig.end[1].qp, &peer), -EINVAL);
	roce_gid_to_sockaddr(&strange, 0, &peer.addr);
	peer.mtu = 1000;
	assert_int_equal(rdma_qp_connect(rig.end[1].qp, &peer), -EINVAL);
	peer.mtu = MTU;
	assert_int_equal(rdma_qp_connect(rig.end[1].qp, &peer), 0);
	packet.psn = PSN;
	rig_deliver(&rig, 0, rig_forge(&rig, 0, &packet));
	expect_none();
	assert_int_equal(rig_stat(&rig, 1, "rx_bad_address"), refused + 1);
	packet.src = &strange;
	rig_deliver(&rig, 0, rig_forge(&rig, 0, &packet));
	message = expect();
	rte_pktmbuf_free(message.m);
	assert_int_equal(rig.frames[1], frames);
	finish();
}

static void
test_attributes(void **state)
{
	struct rdma_roce_reference by = {.max_bytes = 1};
	struct rdma_qp_attr attr = {.type = RDMA_QP_RC,
		.send_cq = rig.end[1].cq,
		.recv_cq = rig.end[1].cq,
		.reference = &by};
	struct rdma_roce_uc_info info;
	struct rdma_qp *qp;

	assert_null(rdma_qp_create(rig.end[1].pd, &attr));
	assert_int_equal(rte_errno, EINVAL);
	attr.type = RDMA_QP_UD;
	assert_null(rdma_qp_create(rig.end[1].pd, &attr));
	assert_int_equal(rte_errno, EINVAL);
	by.max_bytes = 0;
	assert_null(create(1, &by));
	assert_int_equal(rte_errno, EINVAL);
	by.max_bytes = RDMA_ROCE_MESSAGE_MAX + 1;
	assert_null(create(1, &by));
	by = (struct rdma_roce_reference){.max_bytes = 1, .base = 8, .length = UINT64_MAX - 7};
	assert_null(create(1, &by));
	assert_int_equal(rte_errno, EINVAL);
	by = (struct rdma_roce_reference){.max_bytes = 1, .qpn = 1};
	assert_null(create(1, &by));
	assert_int_equal(rte_errno, EINVAL);
	by.qpn = 4096;
	assert_null(create(1, &by));
	assert_int_equal(rte_errno, EINVAL);
	by.qpn = 4095;
	qp = create(1, &by);
	assert_non_null(qp);
	assert_null(create(1, &by));
	assert_int_equal(rte_errno, EBUSY);
	assert_int_equal(rdma_qp_destroy(qp), 0);
	by.qpn = 0;
	qp = create(1, &by);
	assert_non_null(qp);
	assert_int_equal(rdma_qp_destroy(qp), 0);
	attr.type = RDMA_QP_RC;
	attr.reference = NULL;
	qp = rdma_qp_create(rig.end[1].pd, &attr);
	assert_int_equal(rdma_roce_uc_info_get(qp, &info), -EINVAL);
	assert_int_equal(rdma_qp_destroy(qp), 0);
}

/* Corrupt packets are lost packets, unless the link is trusted. */
static void
test_icrc(void **state)
{
	const uint64_t errors = rig_stat(&rig, 1, "rx_icrc_errors");
	struct rig_packet packet = {
		.opcode = ROCE_UC + ROCE_SEND_ONLY, .psn = PSN, .length = 8, .icrc_off = 1};
	struct rdma_roce_message message;

	begin();
	rig_deliver(&rig, 0, rig_forge(&rig, 0, &packet));
	expect_none();
	assert_int_equal(rig_stat(&rig, 1, "rx_icrc_errors"), errors + 1);
	((struct roce_qp *)rig.end[1].qp)->trust = true;
	rig_deliver(&rig, 0, rig_forge(&rig, 0, &packet));
	message = expect();
	rte_pktmbuf_free(message.m);
	finish();
}

/*
 * A wire with all faults: each message is delivered at most once, in order and with its payload,
 * and each packet has one outcome.
 */
static void
test_bad_wire(void **state)
{
	struct rdma_roce_uc_info info;
	struct rdma_roce_message message[16];
	unsigned int i, sent = 0, got = 0, last = 0;
	uint16_t n;

	begin();
	rig.tap = NULL;
	rig.faults[0] = (struct rig_faults){.lose = 3 * PERCENT,
		.swap = 2 * PERCENT,
		.twice = 2 * PERCENT,
		.corrupt = PERCENT,
		.delay = PERCENT};
	while (sent < 4000) {
		sent++;
		post(sent % 2 ? RDMA_OP_SEND_IMM : RDMA_OP_WRITE_IMM, sent % 999,
			rig_random(&rig, 5 * MTU), BASE, sent);
		rig_step(&rig);
		rig_step(&rig);
		n = rdma_roce_poll_messages(rig.end[1].dev, 0, message, RTE_DIM(message));
		for (i = 0; i < n; i++) {
			assert_true(message[i].imm > last && message[i].imm <= sent);
			last = message[i].imm;
			compare(&message[i], last % 999);
			got++;
		}
	}
	info = info_of(1);
	print_message("%u of %u messages; %lu gaps, %lu packets lost, %lu dropped, %lu twice\n",
		got, sent, info.gaps, info.lost, info.dropped, info.duplicates);
	assert_int_equal(info.messages, got);
	assert_int_equal(info.refused, 0);
	assert_true(got > sent / 2 && got < sent);
	assert_true(info.gaps > 50 && info.lost >= info.gaps && info.dropped > 50);
	memset(rig.faults, 0, sizeof(rig.faults));
	rig_run(&rig, 5);
	/* ends a message whose last packet was lost, and which holds frames of the sender */
	post(RDMA_OP_SEND_IMM, 0, MTU, BASE, sent + 1);
	rig_run(&rig, 5);
	while (rdma_roce_poll_messages(rig.end[1].dev, 0, message, 1))
		rte_pktmbuf_free(message[0].m);
	finish();
}

/* The same counters of a queue pair whose messages are copied. */
static void
test_copied(void **state)
{
	const struct rdma_qp_attr attr = {.type = RDMA_QP_UC, .max_recv_wr = 8};
	struct rdma_roce_uc_info info;
	struct rdma_sge sge = {(uintptr_t)rig.end[1].memory, 3 * MTU, rdma_mr_lkey(rig.end[1].mr)};
	const struct rdma_recv_wr recv = {.sg = &sge, .nb_sge = 1};
	unsigned int i;

	wire = ONE_SEGMENT;
	twice = false;
	rig_connect(&rig, &attr, MTU);
	rig.tap = tap;
	for (i = 0; i < 4; i++) {
		assert_int_equal(rdma_post_recv(rig.end[1].qp, &recv, 1), 1);
		nb_packets = 0;
		lose = i == 3 ? 0 : 1 << i;
		post(RDMA_OP_SEND, 0, 3 * MTU, 0, 0);
		rig_run(&rig, 1);
	}
	/* a wrong key; then no receive is posted for the fourth message */
	post(RDMA_OP_WRITE, 0, 2 * MTU, (uintptr_t)rig.end[1].memory, 0);
	for (i = 0; i < 4; i++)
		post(RDMA_OP_SEND, 0, 2 * MTU, 0, 0);
	rig_run(&rig, 1);
	twice = true;
	post(RDMA_OP_SEND, 0, 1, 0, 0);
	rig_run(&rig, 1);
	info = info_of(1);
	assert_int_equal(info.messages, 4);
	assert_int_equal(info.gaps, 3);
	assert_int_equal(info.lost, 3);
	assert_int_equal(info.dropped, 3 * 2 + 2 + 2 + 1);
	assert_int_equal(info.refused, 1);
	assert_int_equal(info.duplicates, 1);
	lose = 0;
	finish();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_messages),
		cmocka_unit_test(test_loss),
		cmocka_unit_test(test_duplicates),
		cmocka_unit_test(test_restart),
		cmocka_unit_test(test_any_first_psn),
		cmocka_unit_test(test_loss_after_silence),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_ring_full),
		cmocka_unit_test(test_end),
		cmocka_unit_test(test_receive_only),
		cmocka_unit_test(test_attributes),
		cmocka_unit_test(test_icrc),
		cmocka_unit_test(test_bad_wire),
		cmocka_unit_test(test_copied),
	};
	int failed;

	rig_eal();
	pool = rte_pktmbuf_pool_create("reference", 8191, 0, 0, RTE_PKTMBUF_HEADROOM + 1200, 0);
	rig_open(&rig, ",mtu=1024");
	for (uint32_t i = 0; i < RIG_MEMORY; i++)
		rig.end[0].memory[i] = rig_random(&rig, 256);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	rig_close(&rig);
	return failed;
}
