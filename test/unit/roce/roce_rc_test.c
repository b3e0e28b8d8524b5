/* SPDX-License-Identifier: BSD-3-Clause */
/* RC between two engines: every operation, sizes around the MTU, access rights, errors. */
#include "roce_rig.h"

#include <errno.h>
#include <stdio.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_ether.h>
#include <rte_ip.h>

#include "engine/icrc.h"
#include "engine/wire.h"

static struct rig rig;

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

static void
connect_rc(const struct rdma_qp_attr *more)
{
	struct rdma_qp_attr attr = {.type = RDMA_QP_RC, .retry_count = 0xff, .rnr_retry = 0xff};

	if (more) {
		attr = *more;
		attr.type = RDMA_QP_RC;
	}
	rig_connect(&rig, &attr, 1024);
}

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
post(struct rdma_send_wr *wr)
{
	wr->flags |= RDMA_SEND_SIGNALED;
	assert_int_equal(rdma_post_send(rig.end[0].qp, wr, 1), 1);
}

static void
receive(uint32_t offset, uint32_t length)
{
	struct rdma_sge s = sge(1, offset, length);
	struct rdma_recv_wr wr = {.wr_id = 77, .sg = &s, .nb_sge = 1};

	assert_int_equal(rdma_post_recv(rig.end[1].qp, &wr, 1), 1);
}

static struct rdma_wc
wait_for(unsigned int end, enum rdma_wc_status status)
{
	struct rdma_wc wc;

	assert_int_equal(rig_wait(&rig, end, &wc, 5000), 1);
	assert_int_equal(wc.status, status);
	assert_ptr_equal(wc.qp, rig.end[end].qp);
	return wc;
}

static const uint32_t sizes[] = {0, 1, 2, 3, 4, 63, 255, 256, 257, 1023, 1024, 1025, 2047, 2048,
	2049, 65535, 65536, 1000001};

static void
test_write(void **state)
{
	uint8_t *from = rig.end[0].memory, *to = rig.end[1].memory + 1048576 + 3;
	unsigned int i;

	connect_rc(NULL);
	for (i = 0; i < RTE_DIM(sizes); i++) {
		struct rdma_sge s = sge(0, 5, sizes[i]);
		struct rdma_send_wr wr = {.wr_id = i,
			.sg = &s,
			.nb_sge = 1,
			.op = RDMA_OP_WRITE,
			.remote_addr = (uintptr_t)to,
			.rkey = rdma_mr_rkey(rig.end[1].mr)};
		struct rdma_wc wc;

		fill(from, sizes[i] + 10);
		memset(to - 3, 0x5a, sizes[i] + 6);
		post(&wr);
		wc = wait_for(0, RDMA_WC_SUCCESS);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.op, RDMA_WC_WRITE);
		assert_memory_equal(to, from + 5, sizes[i]);
		assert_int_equal(to[-1], 0x5a);
		assert_int_equal(to[sizes[i]], 0x5a);
	}
	rig_disconnect(&rig);
}

static void
test_write_imm(void **state)
{
	unsigned int i;

	connect_rc(NULL);
	for (i = 0; i < RTE_DIM(sizes); i++) {
		struct rdma_sge s = sge(0, 5, sizes[i]);
		struct rdma_send_wr wr = {.sg = &s,
			.nb_sge = 1,
			.op = RDMA_OP_WRITE_IMM,
			.imm = 0x01020304 + i,
			.remote_addr = (uintptr_t)rig.end[1].memory,
			.rkey = rdma_mr_rkey(rig.end[1].mr)};
		struct rdma_wc wc;

		fill(rig.end[0].memory, sizes[i] + 10);
		receive(0, 0);
		post(&wr);
		wait_for(0, RDMA_WC_SUCCESS);
		wc = wait_for(1, RDMA_WC_SUCCESS);
		assert_int_equal(wc.op, RDMA_WC_RECV_WRITE_IMM);
		assert_int_equal(wc.flags, RDMA_WC_WITH_IMM);
		assert_int_equal(wc.imm, 0x01020304 + i);
		assert_int_equal(wc.byte_len, sizes[i]);
		assert_memory_equal(rig.end[1].memory, rig.end[0].memory + 5, sizes[i]);
	}
	rig_disconnect(&rig);
}

static void
test_send_lists(void **state)
{
	const struct rdma_qp_attr attr = {
		.max_send_sge = 5, .max_recv_sge = 3, .retry_count = 7, .rnr_retry = 7};
	unsigned int i, j;

	connect_rc(&attr);
	for (i = 0; i < RTE_DIM(sizes); i++) {
		const uint32_t n = sizes[i], a = rig_random(&rig, n + 1),
			       b = rig_random(&rig, n - a + 1), c = rig_random(&rig, n + 1);
		struct rdma_sge s[5] = {sge(0, 0, a), sge(0, 0, 0), sge(0, a, b), sge(0, 0, 0),
			sge(0, a + b, n - a - b)};
		struct rdma_sge r[3] = {sge(1, 0, c), sge(1, c, 0), sge(1, c, n - c + 10)};
		struct rdma_send_wr wr = {.sg = s,
			.nb_sge = 5,
			.op = i & 1 ? RDMA_OP_SEND_IMM : RDMA_OP_SEND,
			.imm = 0xfffefdfc};
		struct rdma_recv_wr rr = {.wr_id = 5, .sg = r, .nb_sge = 3};
		struct rdma_wc wc;

		fill(rig.end[0].memory, n);
		assert_int_equal(rdma_post_recv(rig.end[1].qp, &rr, 1), 1);
		post(&wr);
		wait_for(0, RDMA_WC_SUCCESS);
		wc = wait_for(1, RDMA_WC_SUCCESS);
		assert_int_equal(wc.op, RDMA_WC_RECV);
		assert_int_equal(wc.wr_id, 5);
		assert_int_equal(wc.byte_len, n);
		assert_int_equal(wc.flags, i & 1 ? RDMA_WC_WITH_IMM : 0);
		if (i & 1)
			assert_int_equal(wc.imm, 0xfffefdfc);
		for (j = 0; j < n; j++)
			if (rig.end[1].memory[j] != rig.end[0].memory[j])
				fail_msg("byte %u of %u differs", j, n);
	}
	rig_disconnect(&rig);
}

/*
 * The payload of a packet of test_write_list(), of which the memory of end 0 holds all bytes: it is
 * not copied, and the ICRC of its pieces is that of the bytes in one piece.
 */
static struct {
	uint32_t packets, mbufs;
} gathered;

static bool
look_at_list(struct rig *r, unsigned int from, struct rte_mbuf *m)
{
	const unsigned int l2 = sizeof(struct rte_ether_hdr), l3 = sizeof(struct rte_ipv4_hdr);
	uint8_t frame[2048];
	const struct rte_mbuf *s;
	uint32_t crc, n, mbufs = 0;
	const uint8_t *at;

	if (from != 0 || m->pkt_len < 600)
		return true;
	for (s = m->next; s->next != NULL; s = s->next, mbufs++) {
		at = rte_pktmbuf_mtod(s, const uint8_t *);
		assert_in_range((uintptr_t)at, (uintptr_t)r->end[0].memory,
			(uintptr_t)r->end[0].memory + RIG_MEMORY - 1);
	}
	assert_true(mbufs <= RDMA_SGE_MAX);
	assert_true(m->pkt_len <= sizeof(frame));
	assert_in_range(s->data_len, ROCE_ICRC_BYTES, ROCE_ICRC_BYTES + 3);
	for (s = m, n = 0; s != NULL; n += s->data_len, s = s->next)
		memcpy(frame + n, rte_pktmbuf_mtod(s, const void *), s->data_len);
	n -= ROCE_ICRC_BYTES;
	crc = roce_icrc_headers(frame + l2, l3, m->data_len - l2);
	crc = roce_icrc_bytes(crc, frame + m->data_len, n - m->data_len);
	assert_memory_equal(frame + n, &crc, ROCE_ICRC_BYTES);
	gathered.packets++;
	gathered.mbufs += mbufs;
	return true;
}

/*
 * A WRITE of as many entries as possible, of odd lengths at odd addresses in any order: it is
 * gathered into packets without a copy, also when they are lost and sent again.
 */
static void
test_write_list(void **state)
{
	static const uint32_t lengths[RDMA_SGE_MAX] = {
		1, 3, 501, 5, 499, 7, 1023, 4097, 1, 1025, 9, 2051, 11, 513, 33331, 13};
	const struct rdma_qp_attr attr = {
		.max_send_sge = RDMA_SGE_MAX, .retry_count = 7, .ack_timeout = 8};
	uint8_t *to = rig.end[1].memory + 1048576 + 3;
	uint32_t at = 1, bytes, i, turn;
	struct rdma_sge s[RDMA_SGE_MAX];
	struct rdma_send_wr wr = {.sg = s,
		.nb_sge = RDMA_SGE_MAX,
		.op = RDMA_OP_WRITE,
		.remote_addr = (uintptr_t)to,
		.rkey = rdma_mr_rkey(rig.end[1].mr)};

	for (i = RDMA_SGE_MAX; i-- > 0; at += lengths[i] + 2)
		s[i] = sge(0, at | 1, lengths[i]);
	connect_rc(&attr);
	rig.tap = look_at_list;
	memset(&gathered, 0, sizeof(gathered));
	for (turn = 0; turn < 20; turn++) {
		rig.faults[0].lose = turn > 0 ? 65536 / 20 : 0;
		fill(rig.end[0].memory, at + 2);
		memset(to - 3, 0x5a, at + 6);
		post(&wr);
		wait_for(0, RDMA_WC_SUCCESS);
		for (i = 0, bytes = 0; i < RDMA_SGE_MAX; bytes += lengths[i++])
			assert_memory_equal(
				to + bytes, (const void *)(uintptr_t)s[i].addr, s[i].length);
		assert_int_equal(to[-1], 0x5a);
		assert_int_equal(to[bytes], 0x5a);
	}
	rig.faults[0].lose = 0;
	rig.tap = NULL;
	assert_int_equal(rig_stat(&rig, 1, "rx_icrc_errors"), 0);
	/* in each turn packets of more than one entry */
	assert_true(gathered.packets >= turn * (bytes / 1024));
	assert_true(gathered.mbufs >= gathered.packets + turn * 8);
	rig_disconnect(&rig);
}

static void
test_read(void **state)
{
	unsigned int i;

	connect_rc(NULL);
	for (i = 0; i < RTE_DIM(sizes); i++) {
		struct rdma_sge s = sge(0, 7, sizes[i]);
		struct rdma_send_wr wr = {.sg = &s,
			.nb_sge = 1,
			.op = RDMA_OP_READ,
			.remote_addr = (uintptr_t)rig.end[1].memory + 1,
			.rkey = rdma_mr_rkey(rig.end[1].mr)};
		struct rdma_wc wc;

		fill(rig.end[1].memory, sizes[i] + 1);
		memset(rig.end[0].memory, 0x5a, sizes[i] + 14);
		post(&wr);
		wc = wait_for(0, RDMA_WC_SUCCESS);
		assert_int_equal(wc.op, RDMA_WC_READ);
		assert_int_equal(wc.byte_len, sizes[i]);
		assert_memory_equal(rig.end[0].memory + 7, rig.end[1].memory + 1, sizes[i]);
		assert_int_equal(rig.end[0].memory[6], 0x5a);
		assert_int_equal(rig.end[0].memory[7 + sizes[i]], 0x5a);
	}
	rig_disconnect(&rig);
}

static void
test_atomics(void **state)
{
	struct rdma_sge s = sge(0, 8, 8);
	struct rdma_send_wr wr = {.sg = &s,
		.nb_sge = 1,
		.op = RDMA_OP_FETCH_ADD,
		.remote_addr = (uintptr_t)rig.end[1].memory,
		.rkey = rdma_mr_rkey(rig.end[1].mr),
		.swap_add = 5};
	uint64_t *remote = (uint64_t *)rig.end[1].memory;
	uint64_t *local = (uint64_t *)(rig.end[0].memory + 8);

	connect_rc(NULL);
	*remote = 0xfffffffffffffffe;
	post(&wr);
	assert_int_equal(wait_for(0, RDMA_WC_SUCCESS).op, RDMA_WC_FETCH_ADD);
	assert_int_equal(*local, 0xfffffffffffffffe);
	assert_int_equal(*remote, 3);
	wr.op = RDMA_OP_CMP_SWAP;
	wr.compare = 4;
	wr.swap_add = 9;
	post(&wr);
	assert_int_equal(wait_for(0, RDMA_WC_SUCCESS).op, RDMA_WC_CMP_SWAP);
	assert_int_equal(*local, 3);
	assert_int_equal(*remote, 3);
	wr.compare = 3;
	post(&wr);
	wait_for(0, RDMA_WC_SUCCESS);
	assert_int_equal(*local, 3);
	assert_int_equal(*remote, 9);
	wr.remote_addr += 4;
	post(&wr);
	wait_for(0, RDMA_WC_REM_INV_REQ_ERR);
	rig_disconnect(&rig);
}

static void
test_inline(void **state)
{
	const struct rdma_qp_attr attr = {.max_inline = 200, .retry_count = 7, .rnr_retry = 7};
	uint8_t bytes[200];
	struct rdma_sge s[2] = {{(uintptr_t)bytes, 150, 0}, {(uintptr_t)bytes + 150, 50, 0}};
	struct rdma_send_wr wr = {
		.sg = s, .nb_sge = 2, .op = RDMA_OP_SEND, .flags = RDMA_SEND_INLINE};
	uint8_t kept[200];

	connect_rc(&attr);
	fill(bytes, sizeof(bytes));
	memcpy(kept, bytes, sizeof(bytes));
	receive(0, 200);
	post(&wr);
	memset(bytes, 0, sizeof(bytes));
	wait_for(0, RDMA_WC_SUCCESS);
	wait_for(1, RDMA_WC_SUCCESS);
	assert_memory_equal(rig.end[1].memory, kept, sizeof(kept));
	s[1].length = 51;
	assert_int_equal(rdma_post_send(rig.end[0].qp, &wr, 1), 0);
	assert_int_equal(rte_errno, EINVAL);
	rig_disconnect(&rig);
}

/* Many requests at once, few signalled: they complete in order, and a full queue is reported. */
static void
test_queue(void **state)
{
	const struct rdma_qp_attr attr = {
		.max_send_wr = 40, .max_recv_wr = 50, .retry_count = 7, .rnr_retry = 7};
	struct rdma_sge s = sge(0, 0, 3000);
	struct rdma_send_wr wr = {.sg = &s, .nb_sge = 1, .op = RDMA_OP_SEND};
	struct rdma_wc wc;
	unsigned int i;

	connect_rc(&attr);
	for (i = 0; i < 40; i++)
		receive(3000 * i, 3000);
	fill(rig.end[0].memory, 3000);
	for (i = 0; i < 40; i++) {
		wr.wr_id = i;
		wr.flags = i % 8 == 7 ? RDMA_SEND_SIGNALED : 0;
		assert_int_equal(rdma_post_send(rig.end[0].qp, &wr, 1), 1);
	}
	assert_int_equal(rdma_post_send(rig.end[0].qp, &wr, 1), 0);
	assert_int_equal(rte_errno, ENOMEM);
	for (i = 0; i < 5; i++)
		assert_int_equal(wait_for(0, RDMA_WC_SUCCESS).wr_id, 8 * i + 7);
	assert_int_equal(rig_wait(&rig, 0, &wc, 2), 0);
	for (i = 0; i < 40; i++) {
		wait_for(1, RDMA_WC_SUCCESS);
		assert_memory_equal(rig.end[1].memory + 3000 * i, rig.end[0].memory, 3000);
	}
	rig_disconnect(&rig);
}

/*
 * A request is refused after a valid unsignalled one. An acknowledgement must be requested for the
 * valid one, because no later packet requests it.
 */
static void
test_refused_behind(void **state)
{
	const struct rdma_qp_attr attr = {.retry_count = 0, .rnr_retry = 7, .ack_timeout = 20};
	const uint64_t before = rig_stat(&rig, 0, "ack_timeouts");
	struct rdma_sge good = sge(0, 0, 100), bad = good;
	const struct rdma_send_wr wr[] = {
		{.wr_id = 1, .sg = &good, .nb_sge = 1},
		{.wr_id = 2, .sg = &bad, .nb_sge = 1},
	};

	bad.lkey ^= 0x80000000;
	connect_rc(&attr);
	receive(0, 100);
	assert_int_equal(rdma_post_send(rig.end[0].qp, wr, 2), 2);
	assert_int_equal(wait_for(0, RDMA_WC_LOC_PROT_ERR).wr_id, 2);
	assert_int_equal(rig_stat(&rig, 0, "ack_timeouts"), before);
	wait_for(1, RDMA_WC_SUCCESS);
	rig_disconnect(&rig);
}

/* Refused requests and their error codes: both ends get them, and nothing is written. */
static void
refuse(struct rdma_send_wr *wr, enum rdma_wc_status status, const char *counter)
{
	const uint64_t before = rig_stat(&rig, 1, counter);
	struct rdma_qp_info info;
	uint8_t *kept = malloc(RIG_MEMORY);

	connect_rc(NULL);
	memcpy(kept, rig.end[1].memory, RIG_MEMORY);
	receive(0, 100);
	post(wr);
	post(wr);
	wait_for(0, status);
	wait_for(0, RDMA_WC_WR_FLUSH_ERR);
	rdma_qp_info_get(rig.end[0].qp, &info);
	assert_int_equal(info.state, RDMA_QP_ERROR);
	assert_int_equal(rdma_post_send(rig.end[0].qp, wr, 1), 1);
	wait_for(0, RDMA_WC_WR_FLUSH_ERR);
	wait_for(1, RDMA_WC_WR_FLUSH_ERR);
	assert_int_equal(rig_stat(&rig, 1, counter), before + 1);
	assert_memory_equal(kept, rig.end[1].memory, RIG_MEMORY);
	free(kept);
	rig_disconnect(&rig);
}

static void
test_rights(void **state)
{
	struct rdma_sge s = sge(0, 0, 100);
	struct rdma_send_wr wr = {.sg = &s,
		.nb_sge = 1,
		.op = RDMA_OP_WRITE,
		.remote_addr = (uintptr_t)rig.end[1].memory,
		.rkey = rdma_mr_rkey(rig.end[1].mr) ^ 0x80000000};
	static uint8_t other[4096];
	struct rdma_mr_attr attr = {.addr = other,
		.length = sizeof(other),
		.gpu = -1,
		.access = RDMA_ACCESS_LOCAL_WRITE};
	struct rdma_mr *mr;
	struct rdma_pd *pd;

	refuse(&wr, RDMA_WC_REM_ACCESS_ERR, "rx_access_refused");
	wr.rkey ^= 0x80000000;
	wr.remote_addr = (uintptr_t)rig.end[1].memory + RIG_MEMORY - 99;
	refuse(&wr, RDMA_WC_REM_ACCESS_ERR, "rx_access_refused");
	wr.remote_addr = (uintptr_t)rig.end[1].memory - 1;
	refuse(&wr, RDMA_WC_REM_ACCESS_ERR, "rx_access_refused");
	wr.remote_addr = UINT64_MAX - 50;
	refuse(&wr, RDMA_WC_REM_ACCESS_ERR, "rx_access_refused");
	wr.op = RDMA_OP_READ;
	wr.remote_addr = (uintptr_t)rig.end[1].memory + RIG_MEMORY - 99;
	refuse(&wr, RDMA_WC_REM_ACCESS_ERR, "rx_access_refused");
	/* no access right */
	mr = rdma_mr_reg(rig.end[1].pd, &attr);
	wr.remote_addr = (uintptr_t)other;
	wr.rkey = rdma_mr_rkey(mr);
	refuse(&wr, RDMA_WC_REM_ACCESS_ERR, "rx_access_refused");
	wr.op = RDMA_OP_WRITE;
	refuse(&wr, RDMA_WC_REM_ACCESS_ERR, "rx_access_refused");
	assert_int_equal(rdma_mr_dereg(mr), 0);
	/* deregistered */
	refuse(&wr, RDMA_WC_REM_ACCESS_ERR, "rx_access_refused");
	/* another protection domain */
	pd = rdma_pd_alloc(rig.end[1].dev);
	attr.access |= RDMA_ACCESS_REMOTE_WRITE;
	mr = rdma_mr_reg(pd, &attr);
	wr.rkey = rdma_mr_rkey(mr);
	refuse(&wr, RDMA_WC_REM_ACCESS_ERR, "rx_access_refused");
	assert_int_equal(rdma_mr_dereg(mr), 0);
	assert_int_equal(rdma_pd_free(pd), 0);
}

static void
test_local_protection(void **state)
{
	struct rdma_sge s = sge(0, RIG_MEMORY - 10, 11);
	struct rdma_send_wr wr = {.sg = &s, .nb_sge = 1, .op = RDMA_OP_SEND};

	connect_rc(NULL);
	post(&wr);
	wait_for(0, RDMA_WC_LOC_PROT_ERR);
	rig_disconnect(&rig);
}

static void
test_too_long(void **state)
{
	struct rdma_sge s = sge(0, 0, 3000);
	struct rdma_send_wr wr = {.sg = &s, .nb_sge = 1, .op = RDMA_OP_SEND};

	connect_rc(NULL);
	receive(0, 2999);
	post(&wr);
	wait_for(0, RDMA_WC_REM_INV_REQ_ERR);
	wait_for(1, RDMA_WC_LOC_LEN_ERR);
	rig_disconnect(&rig);
}

/* No receive is posted: the sender retries without flooding until there is one. */
static void
test_not_ready(void **state)
{
	const struct rdma_qp_attr attr = {.rnr_retry = 7, .retry_count = 7, .min_rnr_timer = 12};
	struct rdma_sge s = sge(0, 0, 5000);
	struct rdma_send_wr wr = {.sg = &s, .nb_sge = 1, .op = RDMA_OP_SEND};
	struct rdma_wc wc;

	connect_rc(&attr);
	fill(rig.end[0].memory, 5000);
	post(&wr);
	assert_int_equal(rig_wait(&rig, 0, &wc, 20), 0);
	assert_true(rig_stat(&rig, 0, "rx_nak_rnr") > 0);
	receive(0, 5000);
	wait_for(0, RDMA_WC_SUCCESS);
	wait_for(1, RDMA_WC_SUCCESS);
	assert_memory_equal(rig.end[1].memory, rig.end[0].memory, 5000);
	rig_disconnect(&rig);
}

/*
 * A receiver with two receives, which posts the next one after some work, and a sender with 64
 * waiting requests: at most three packets are sent for each that is accepted. rdma_rxe sends 44.
 */
static void
storm(uint32_t length)
{
	const struct rdma_qp_attr attr = {.rnr_retry = 7,
		.retry_count = 7,
		.min_rnr_timer = 12,
		.max_recv_wr = 2,
		.max_send_wr = 64,
		.ack_timeout = 20};
	const uint32_t packets = (length + 1023) / 1024;
	struct rdma_sge s = sge(0, 0, length);
	struct rdma_send_wr wr = {
		.sg = &s, .nb_sge = 1, .op = RDMA_OP_SEND, .flags = RDMA_SEND_SIGNALED};
	unsigned int posted = 0, done = 0;
	uint64_t frames, due = 0, wait = 0;
	struct rdma_wc wc;

	connect_rc(&attr);
	receive(0, length);
	receive(length, length);
	frames = rig.frames[0];
	while (done < 200) {
		while (posted < 200 && rdma_post_send(rig.end[0].qp, &wr, 1) == 1)
			posted++;
		rig_step(&rig);
		while (rdma_poll_cq(rig.end[0].cq, &wc, 1))
			assert_int_equal(wc.status, RDMA_WC_SUCCESS);
		if (wait == 0 && rdma_poll_cq(rig.end[1].cq, &wc, 1)) {
			assert_int_equal(wc.status, RDMA_WC_SUCCESS);
			done++;
			wait = 1;
			due = rte_rdtsc() + rte_get_tsc_hz() / 1000000 * rig_random(&rig, 500);
		}
		if (wait && rte_rdtsc() > due) {
			receive(0, length);
			wait = 0;
		}
	}
	frames = rig.frames[0] - frames;
	print_message("%u bytes: %.2f frames for each packet taken\n", length,
		(double)frames / (200 * packets));
	assert_true(frames <= 3 * 200 * packets);
	rig_disconnect(&rig);
}

static void
test_storm(void **state)
{
	storm(64);
	storm(5000);
}

static void
test_not_ready_ends(void **state)
{
	const struct rdma_qp_attr attr = {.rnr_retry = 2, .retry_count = 7, .min_rnr_timer = 1};
	struct rdma_sge s = sge(0, 0, 50);
	struct rdma_send_wr wr = {.sg = &s, .nb_sge = 1, .op = RDMA_OP_SEND};

	connect_rc(&attr);
	post(&wr);
	wait_for(0, RDMA_WC_RNR_RETRY_EXC_ERR);
	rig_disconnect(&rig);
}

static void
test_no_response(void **state)
{
	const struct rdma_qp_attr attr = {.rnr_retry = 7, .retry_count = 3, .ack_timeout = 6};
	struct rdma_sge s = sge(0, 0, 50);
	struct rdma_send_wr wr = {.sg = &s, .nb_sge = 1, .op = RDMA_OP_SEND};
	uint64_t sent;

	connect_rc(&attr);
	rig.faults[0].lose = 65536;
	sent = rig.frames[0];
	post(&wr);
	wait_for(0, RDMA_WC_RETRY_EXC_ERR);
	assert_int_equal(rig.frames[0] - sent, 4);
	rig.faults[0].lose = 0;
	rig_disconnect(&rig);
}

static struct rte_mbuf *first_answer;
static bool withheld;

/* Keep a copy of the first response that passes, and drop the others while they are withheld. */
static bool
withhold(struct rig *r, unsigned int from, struct rte_mbuf *m)
{
	static struct rte_mempool *pool;

	if (from == 0)
		return true;
	if (!pool)
		pool = rte_pktmbuf_pool_create("answers", 255, 0, 0, 2048, 0);
	if (first_answer)
		return !withheld;
	first_answer = rte_pktmbuf_copy(m, pool, 0, UINT32_MAX);
	assert_non_null(first_answer);
	return true;
}

/*
 * A READ was requested twice, and its responses are repeated for longer than all timeouts. The peer
 * is alive, and the next READ must wait for its turn.
 */
static void
test_answered_twice(void **state)
{
	const struct rdma_qp_attr attr = {.rnr_retry = 7, .retry_count = 2, .ack_timeout = 12};
	struct rdma_sge s = sge(0, 0, 100);
	struct rdma_send_wr wr = {.sg = &s,
		.nb_sge = 1,
		.op = RDMA_OP_READ,
		.remote_addr = (uintptr_t)rig.end[1].memory,
		.rkey = rdma_mr_rkey(rig.end[1].mr)};
	const uint64_t end = rte_rdtsc() + rte_get_tsc_hz() / 10; /* longer than 3 x 17 ms */
	struct rdma_wc wc;

	connect_rc(&attr);
	rig.tap = withhold;
	post(&wr);
	wait_for(0, RDMA_WC_SUCCESS);
	assert_non_null(first_answer);
	withheld = true;
	post(&wr);
	while (rte_rdtsc() < end) {
		if (rte_ring_empty(rig.end[0].rx[0])) {
			rte_mbuf_refcnt_update(first_answer, 1);
			assert_int_equal(rte_ring_enqueue(rig.end[0].rx[0], first_answer), 0);
		}
		assert_int_equal(rig_wait(&rig, 0, &wc, 0), 0);
	}
	withheld = false;
	wait_for(0, RDMA_WC_SUCCESS);
	rig.tap = NULL;
	rig_run(&rig, 1);
	rte_pktmbuf_free(first_answer);
	rig_disconnect(&rig);
}

/* A region that a posted receive refers to cannot be deregistered. */
static void
test_busy(void **state)
{
	static uint8_t memory[4096];
	struct rdma_mr_attr attr = {.addr = memory,
		.length = sizeof(memory),
		.gpu = -1,
		.access = RDMA_ACCESS_LOCAL_WRITE};
	struct rdma_mr *mr = rdma_mr_reg(rig.end[0].pd, &attr);
	struct rdma_sge s = {(uintptr_t)memory, 100, rdma_mr_lkey(mr)};
	struct rdma_recv_wr rr = {.sg = &s, .nb_sge = 1};

	connect_rc(NULL);
	assert_int_equal(rdma_post_recv(rig.end[0].qp, &rr, 1), 1);
	assert_int_equal(rdma_mr_dereg(mr), -EBUSY);
	assert_int_equal(rdma_qp_error(rig.end[0].qp), 0);
	wait_for(0, RDMA_WC_WR_FLUSH_ERR);
	assert_int_equal(rdma_mr_dereg(mr), 0);
	rig_disconnect(&rig);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write),
		cmocka_unit_test(test_write_imm),
		cmocka_unit_test(test_send_lists),
		cmocka_unit_test(test_write_list),
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_atomics),
		cmocka_unit_test(test_inline),
		cmocka_unit_test(test_queue),
		cmocka_unit_test(test_refused_behind),
		cmocka_unit_test(test_rights),
		cmocka_unit_test(test_local_protection),
		cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_not_ready),
		cmocka_unit_test(test_storm),
		cmocka_unit_test(test_not_ready_ends),
		cmocka_unit_test(test_no_response),
		cmocka_unit_test(test_answered_twice),
		cmocka_unit_test(test_busy),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
