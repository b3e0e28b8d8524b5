/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two engines over a wire that loses, repeats, reorders, delays and corrupts frames. RC delivers
 * exactly what was posted, once and in order. UC and UD deliver complete messages or nothing, in
 * order. No byte outside the region is ever written (rig_close() checks).
 */
#include "roce_rig.h"

#include <stdio.h>

#include <rte_cycles.h>

#define MTU	      1024
#define OPS	      250
#define DEPTH	      32
#define LENGTH_MAX    20000
#define MIB	      (1U << 20)
#define SOURCE	      0		    /* constant */
#define TARGET	      MIB	    /* written by the peer */
#define ATOMIC	      (2 * MIB - 8) /* changed by the peer's atomics */
#define RECEIVES      (2 * MIB)	    /* RECEIVE_SLOTS of LENGTH_MAX bytes */
#define RECEIVE_SLOTS 32
#define LANDING	      (3 * MIB) /* READ data: READ_SLOTS of LENGTH_MAX bytes */
#define READ_SLOTS    DEPTH

static struct rig rig;

/* One operation and its expected result. */
struct op {
	uint8_t op;
	uint32_t from, to, length, imm;
	uint64_t old;	 /* atomics */
	uint8_t *answer; /* READ: a copy of the peer's data */
};

/* One direction: end `d` sends requests, the other responds. */
struct way {
	unsigned int d;
	struct op ops[OPS];
	uint8_t *model; /* model of the peer's [TARGET, TARGET + MIB) */
	unsigned int posted, completed, received, next_receive;
	unsigned int receives_posted, receives_used;
	bool after_read;
};

static struct way ways[2];

static void
post_receive(struct way *w)
{
	struct rig_end *end = &rig.end[!w->d];
	struct rdma_sge s = {
		.addr = (uintptr_t)end->memory + RECEIVES +
			w->receives_posted % RECEIVE_SLOTS * LENGTH_MAX,
		.length = LENGTH_MAX,
		.lkey = rdma_mr_lkey(end->mr),
	};
	struct rdma_recv_wr wr = {.wr_id = w->receives_posted, .sg = &s, .nb_sge = 1};

	assert_int_equal(rdma_post_recv(end->qp, &wr, 1), 1);
	w->receives_posted++;
}

/* Draw a random operation, apply it to the model, and post it. */
static void
post_one(struct way *w)
{
	static const uint8_t kinds[] = {RDMA_OP_SEND, RDMA_OP_SEND_IMM, RDMA_OP_WRITE,
		RDMA_OP_WRITE_IMM, RDMA_OP_READ, RDMA_OP_READ, RDMA_OP_READ, RDMA_OP_READ,
		RDMA_OP_CMP_SWAP, RDMA_OP_FETCH_ADD};
	struct rig_end *end = &rig.end[w->d], *peer = &rig.end[!w->d];
	struct op *op = &w->ops[w->posted];
	struct rdma_send_wr wr = {.wr_id = w->posted,
		.nb_sge = 2,
		.flags = RDMA_SEND_SIGNALED,
		.rkey = rdma_mr_rkey(peer->mr)};
	struct rdma_sge s[2];
	uint32_t cut;
	uint64_t *word;

	op->op = kinds[rig_random(&rig, RTE_DIM(kinds))];
	op->length = rig_random(&rig, 8) ? rig_random(&rig, LENGTH_MAX) : rig_random(&rig, 40);
	op->from = SOURCE + rig_random(&rig, MIB - LENGTH_MAX);
	op->to = rig_random(&rig, MIB - 4096 - LENGTH_MAX);
	op->imm = rig_random(&rig, UINT32_MAX);
	wr.op = op->op;
	wr.imm = op->imm;
	wr.remote_addr = (uintptr_t)peer->memory + TARGET + op->to;
	/*
	 * READ data is taken when the response is sent: later WRITEs must wait for it. Nothing else
	 * waits, so that many READs and atomics are outstanding.
	 */
	if (w->after_read && (op->op == RDMA_OP_WRITE || op->op == RDMA_OP_WRITE_IMM)) {
		wr.flags |= RDMA_SEND_FENCE;
		w->after_read = false;
	}
	w->after_read |= op->op == RDMA_OP_READ;
	switch (op->op) {
	case RDMA_OP_WRITE:
	case RDMA_OP_WRITE_IMM:
		memcpy(w->model + op->to, end->memory + op->from, op->length);
		break;
	case RDMA_OP_READ:
		op->answer = malloc(op->length + 1);
		memcpy(op->answer, w->model + op->to, op->length);
		op->from = LANDING + w->posted % READ_SLOTS * LENGTH_MAX;
		break;
	case RDMA_OP_CMP_SWAP:
	case RDMA_OP_FETCH_ADD:
		op->length = 8;
		op->from = LANDING + w->posted % READ_SLOTS * LENGTH_MAX;
		wr.remote_addr = (uintptr_t)peer->memory + ATOMIC;
		word = (uint64_t *)(w->model + ATOMIC - TARGET);
		op->old = *word;
		wr.swap_add = rig_random(&rig, 1000000);
		wr.compare = rig_random(&rig, 2) ? *word : *word + 1;
		if (op->op == RDMA_OP_FETCH_ADD)
			*word += wr.swap_add;
		else if (wr.compare == *word)
			*word = wr.swap_add;
	}
	cut = rig_random(&rig, op->length + 1);
	s[0] = (struct rdma_sge){(uintptr_t)end->memory + op->from, cut, rdma_mr_lkey(end->mr)};
	s[1] = s[0];
	s[1].addr += cut;
	s[1].length = op->length - cut;
	wr.sg = s;
	assert_int_equal(rdma_post_send(end->qp, &wr, 1), 1);
	w->posted++;
}

static void
check_sent(struct way *w, const struct rdma_wc *wc)
{
	const struct op *op = &w->ops[w->completed];
	const uint8_t *landed = rig.end[w->d].memory + op->from;

	if (wc->status != RDMA_WC_SUCCESS)
		fail_msg("%s", rdma_wc_status_name(wc->status));
	assert_int_equal(wc->wr_id, w->completed);
	if (op->op == RDMA_OP_READ)
		assert_memory_equal(landed, op->answer, op->length);
	if (op->op == RDMA_OP_CMP_SWAP || op->op == RDMA_OP_FETCH_ADD)
		assert_memory_equal(landed, &op->old, 8);
	free(w->ops[w->completed].answer);
	w->ops[w->completed].answer = NULL;
	w->completed++;
}

static bool
is_received(const struct op *op)
{
	return op->op == RDMA_OP_SEND || op->op == RDMA_OP_SEND_IMM || op->op == RDMA_OP_WRITE_IMM;
}

static void
check_received(struct way *w, const struct rdma_wc *wc)
{
	const uint8_t *landed =
		rig.end[!w->d].memory + RECEIVES + wc->wr_id % RECEIVE_SLOTS * LENGTH_MAX;
	const struct op *op;

	assert_int_equal(wc->status, RDMA_WC_SUCCESS);
	assert_int_equal(wc->wr_id, w->receives_used);
	w->receives_used++;
	while (!is_received(&w->ops[w->next_receive]))
		w->next_receive++;
	assert_true(w->next_receive < w->posted);
	op = &w->ops[w->next_receive++];
	assert_int_equal(wc->byte_len, op->length);
	assert_int_equal(
		wc->op, op->op == RDMA_OP_WRITE_IMM ? RDMA_WC_RECV_WRITE_IMM : RDMA_WC_RECV);
	if (op->op != RDMA_OP_SEND)
		assert_int_equal(wc->imm, op->imm);
	if (op->op != RDMA_OP_WRITE_IMM)
		assert_memory_equal(landed, rig.end[w->d].memory + op->from, op->length);
}

static void
poll_end(unsigned int end)
{
	struct rdma_wc wc;

	while (rdma_poll_cq(rig.end[end].cq, &wc, 1))
		if (wc.op == RDMA_WC_RECV || wc.op == RDMA_WC_RECV_WRITE_IMM)
			check_received(&ways[!end], &wc);
		else
			check_sent(&ways[end], &wc);
}

static void
ret(const struct rig_faults *faults, uint8_t ack_timeout)
{
	const struct rdma_qp_attr attr = {.type = RDMA_QP_RC,
		.max_recv_wr = RECEIVE_SLOTS,
		.max_send_wr = DEPTH,
		.ack_timeout = ack_timeout,
		.retry_count = 7,
		.rnr_retry = 7,
		.min_rnr_timer = 2};
	const uint64_t start = rte_rdtsc();
	unsigned int d, i;
	struct way *w;

	memset(ways, 0, sizeof(ways));
	rig_connect(&rig, &attr, MTU);
	rig.faults[0] = rig.faults[1] = *faults;
	for (d = 0; d < 2; d++) {
		ways[d].d = d;
		ways[d].model = malloc(MIB);
		for (i = 0; i < MIB; i++)
			rig.end[d].memory[SOURCE + i] = rig_random(&rig, 256);
		memcpy(ways[d].model, rig.end[!d].memory + TARGET, MIB);
	}
	while (ways[0].completed < OPS || ways[1].completed < OPS) {
		for (d = 0; d < 2; d++) {
			w = &ways[d];
			while (w->posted < OPS && w->posted - w->completed < DEPTH)
				post_one(w);
			/* sometimes late, so that the receiver is not ready */
			if (w->receives_posted - w->receives_used < RECEIVE_SLOTS &&
				rig_random(&rig, 4) == 0)
				post_receive(w);
		}
		rig_step(&rig);
		poll_end(0);
		poll_end(1);
		if (rte_rdtsc() - start > 60 * rte_get_tsc_hz())
			fail_msg("%u and %u of %u operations after 60 s", ways[0].completed,
				ways[1].completed, OPS);
	}
	memset(rig.faults, 0, sizeof(rig.faults));
	for (d = 0; d < 2; d++) {
		w = &ways[d];
		assert_memory_equal(w->model, rig.end[!d].memory + TARGET, MIB);
		while (w->next_receive < OPS && !is_received(&w->ops[w->next_receive]))
			w->next_receive++;
		assert_int_equal(w->next_receive, OPS);
		free(w->model);
	}
	print_message("%.1f s, %lu + %lu frames, %lu + %lu lost, retransmitted %lu + %lu, "
		      "time-outs %lu + %lu, ICRC %lu + %lu\n",
		(double)(rte_rdtsc() - start) / rte_get_tsc_hz(), rig.frames[0], rig.frames[1],
		rig.lost[0], rig.lost[1], rig_stat(&rig, 0, "tx_retransmits"),
		rig_stat(&rig, 1, "tx_retransmits"), rig_stat(&rig, 0, "ack_timeouts"),
		rig_stat(&rig, 1, "ack_timeouts"), rig_stat(&rig, 0, "rx_icrc_errors"),
		rig_stat(&rig, 1, "rx_icrc_errors"));
	rig_disconnect(&rig);
}

#define PERCENT 655

static void
test_rc_clean(void **state)
{
	/* an ACK timeout of 4 s: longer than any pause of this machine */
	ret(&(struct rig_faults){0}, 20);
	assert_int_equal(rig_stat(&rig, 0, "ack_timeouts") + rig_stat(&rig, 1, "ack_timeouts"), 0);
}

static void
test_rc_loss(void **state)
{
	ret(&(struct rig_faults){.lose = PERCENT}, 8);
	ret(&(struct rig_faults){.lose = 4 * PERCENT}, 8);
}

static void
test_rc_twice(void **state)
{
	ret(&(struct rig_faults){.twice = 10 * PERCENT}, 8);
}

static void
test_rc_swap(void **state)
{
	ret(&(struct rig_faults){.swap = 3 * PERCENT}, 8);
}

static void
test_rc_corrupt(void **state)
{
	ret(&(struct rig_faults){.corrupt = 2 * PERCENT}, 8);
	assert_true(rig_stat(&rig, 0, "rx_icrc_errors") > 0);
}

static void
test_rc_delay(void **state)
{
	ret(&(struct rig_faults){.delay = 2 * PERCENT}, 8);
}

static void
test_rc_all(void **state)
{
	ret(&(struct rig_faults){.lose = PERCENT,
		    .twice = PERCENT,
		    .swap = PERCENT,
		    .corrupt = PERCENT,
		    .delay = PERCENT},
		8);
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
		cmocka_unit_test(test_rc_clean),
		cmocka_unit_test(test_rc_loss),
		cmocka_unit_test(test_rc_twice),
		cmocka_unit_test(test_rc_swap),
		cmocka_unit_test(test_rc_corrupt),
		cmocka_unit_test(test_rc_delay),
		cmocka_unit_test(test_rc_all),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
