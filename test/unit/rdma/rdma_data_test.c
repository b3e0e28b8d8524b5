/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory, completion queues and queue pairs as specified by rdma.h, for any provider. */
#include <errno.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_errno.h>

#include "rdma_rig.h"

static struct rig_end *const one = &rig.end[0], *const two = &rig.end[1];

/* Far apart in the memory of each end, as both ends may be the same */
#define FROM 0
#define TO   (RIG_BYTES / 2)

static void
expect(struct rdma_wc wc, uint64_t wr_id, enum rdma_wc_op op, const struct rdma_qp *qp)
{
	if (wc.status != RDMA_WC_SUCCESS)
		fail_msg("request %u: %s", (unsigned int)wc.wr_id, rdma_wc_status_name(wc.status));
	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.op, op);
	assert_ptr_equal(wc.qp, qp);
}

static void
expect_failed(struct rdma_wc wc, uint64_t wr_id, enum rdma_wc_status status)
{
	if (wc.status != status)
		fail_msg("request %u: %s, not %s", (unsigned int)wc.wr_id,
			rdma_wc_status_name(wc.status), rdma_wc_status_name(status));
	assert_int_equal(wc.wr_id, wr_id);
}

static uint32_t
sizes(unsigned int i)
{
	const uint32_t mtu = RTE_MIN(one->info.mtu, two->info.mtu);
	const uint32_t size[] = {
		0, 1, 3, 64, 255, mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu + 5, 65536, 1000003};

	return i < RTE_DIM(size) ? size[i] : UINT32_MAX;
}

/* ---- devices and memory --------------------------------------------------------------------- */

static void
device_reports_its_capabilities(void **state)
{
	const struct rdma_dev_info *info = &one->info;

	assert_true(info->max_qp >= 16 && info->max_cqe >= 512 && info->max_wr >= 128);
	assert_true(info->max_sge >= 2 && info->max_sge <= RDMA_SGE_MAX);
	assert_true(info->max_inline >= 64 && info->max_inline <= RDMA_INLINE_MAX);
	assert_true(info->mtu >= 256 && info->mtu <= 4096 && !(info->mtu & (info->mtu - 1)));
	assert_true(info->max_rd_atom >= 4);
	assert_true(info->addr.ss_family == AF_INET || info->addr.ss_family == AF_INET6);
}

static void
invalid_names_are_refused(void **state)
{
	static const struct {
		const char *name;
		int error;
	} wrong[] = {{"verbs:nobody0", ENODEV}, {"verbs:", EINVAL}, {"verbs:x,lid=1", EINVAL},
		{"verbs:x,gid=one", EINVAL}, {"infinite:0", EINVAL}, {"", EINVAL}};
	unsigned int i;

	for (i = 0; i < RTE_DIM(wrong); i++) {
		assert_null(rdma_dev_open(wrong[i].name));
		assert_int_equal(rte_errno, wrong[i].error);
	}
}

static void
memory_is_checked(void **state)
{
	struct rdma_mr_attr attr = {.addr = one->memory, .length = 0, .gpu = -1};

	assert_null(rdma_mr_reg(one->pd, &attr));
	assert_int_equal(rte_errno, EINVAL);
	attr.length = UINT64_MAX;
	assert_null(rdma_mr_reg(one->pd, &attr));
	assert_int_equal(rte_errno, EINVAL);
	attr.length = 4096;
	attr.access = RDMA_ACCESS_REMOTE_WRITE;
	assert_null(rdma_mr_reg(one->pd, &attr));
	assert_int_equal(rte_errno, EINVAL);
	if (one->info.max_mr_bytes < UINT64_MAX / 2) {
		attr.access = 0;
		attr.addr = (void *)(uintptr_t)4096;
		attr.length = one->info.max_mr_bytes + 1;
		assert_null(rdma_mr_reg(one->pd, &attr));
		assert_int_equal(rte_errno, E2BIG);
	}
}

static void
gpu_memory_out_of_reach_is_refused(void **state)
{
	struct rdma_mr_attr attr = {
		.addr = (void *)(UINT64_C(1) << 40), .length = 65536, .access = 0, .gpu = 0};
	struct rdma_mr *mr;

	/* software writes with the CPU, and cannot check this in advance */
	if (strcmp(one->info.provider, "verbs") != 0) {
		print_message("skipped: the provider is not verbs, whose hardware checks it\n");
		skip();
	}
	assert_null(rdma_mr_reg(one->pd, &attr));
	assert_int_equal(rte_errno, ENOTSUP);
	/* memory of gpu_host is host memory */
	attr.addr = one->memory;
	mr = rdma_mr_reg(one->pd, &attr);
	assert_non_null(mr);
	assert_int_equal(rdma_mr_dereg(mr), 0);
}

static void
objects_in_use_are_not_destroyed(void **state)
{
	struct rdma_qp *qp = rig_qp(one, RDMA_QP_RC, NULL);

	assert_int_equal(rdma_cq_destroy(one->cq), -EBUSY);
	assert_int_equal(rdma_pd_free(one->pd), -EBUSY);
	assert_int_equal(rdma_dev_close(one->dev), -EBUSY);
	assert_int_equal(rdma_qp_destroy(qp), 0);
}

static uint64_t
xstat(const struct rdma_dev *dev, const char *name)
{
	struct rdma_xstat x[256];
	const int n = rdma_xstats_get(dev, x, RTE_DIM(x));

	assert_in_range(n, 3, RTE_DIM(x));
	assert_int_equal(rdma_xstats_get(dev, x, 3), n);
	for (int i = 0; i < RTE_MIN(rdma_xstats_get(dev, x, RTE_DIM(x)), n); i++)
		if (strcmp(x[i].name, name) == 0)
			return x[i].value;
	fail_msg("no counter %s", name);
	return 0;
}

static void
registrations_are_counted(void **state)
{
	struct rdma_mr_attr attr = {
		.addr = one->memory, .length = 4096, .access = RDMA_ACCESS_LOCAL_WRITE, .gpu = -1};
	struct rdma_registrations before, after;
	struct rdma_mr *mr;

	rdma_registrations_get(one->dev, &before);
	mr = rdma_mr_reg(one->pd, &attr);
	assert_non_null(mr);
	rdma_registrations_get(one->dev, &after);
	assert_int_equal(after.regions, before.regions + 1);
	assert_int_equal(after.bytes, before.bytes + 4096);
	assert_true(after.ns > before.ns);
	/* they count what was ever registered, and not what failed */
	assert_int_equal(rdma_mr_dereg(mr), 0);
	attr.length = 0;
	assert_null(rdma_mr_reg(one->pd, &attr));
	assert_int_equal(xstat(one->dev, "mr_registrations"), after.regions);
	assert_int_equal(xstat(one->dev, "mr_registration_bytes"), after.bytes);
	assert_int_equal(xstat(one->dev, "mr_registration_us"), after.ns / 1000);
}

static void
memory_in_use_stays_registered(void **state)
{
	struct rdma_mr_attr attr = {
		.addr = one->memory, .length = 4096, .access = RDMA_ACCESS_LOCAL_WRITE, .gpu = -1};
	struct rdma_mr *mr = rdma_mr_reg(one->pd, &attr);
	struct rdma_qp *qp[2];
	struct rdma_sge sge;

	assert_non_null(mr);
	rig_pair(RDMA_QP_RC, NULL, qp);
	sge = (struct rdma_sge){(uintptr_t)one->memory, 64, rdma_mr_lkey(mr)};
	rig_recv(qp[0], 1, sge);
	assert_int_equal(rdma_mr_dereg(mr), -EBUSY);
	assert_int_equal(rdma_qp_error(qp[0]), 0);
	expect_failed(rig_wc(one), 1, RDMA_WC_WR_FLUSH_ERR);
	assert_int_equal(rdma_mr_dereg(mr), 0);
	rig_unpair(qp);
}

/* ---- reliable connections ------------------------------------------------------------------- */

static void
sends_arrive(void **state)
{
	struct rdma_qp *qp[2];
	struct rdma_sge sge;
	struct rdma_send_wr wr;
	struct rdma_wc wc;
	unsigned int i;

	rig_pair(RDMA_QP_RC, NULL, qp);
	for (i = 0; sizes(i) != UINT32_MAX; i++) {
		const uint32_t size = sizes(i);

		rig_fill(one->memory + FROM, size, i);
		memset(two->memory + TO, 0xee, size + 1);
		rig_recv(qp[1], 100 + i, rig_sge(two, TO, size));
		sge = rig_sge(one, FROM, size);
		wr = rig_wr(i & 1 ? RDMA_OP_SEND_IMM : RDMA_OP_SEND, i, &sge);
		wr.imm = 0x01020304;
		rig_send(qp[0], &wr);
		/* on one device, the two queue pairs have different completion queues */
		wc = rig_wc(two);
		expect(wc, 100 + i, RDMA_WC_RECV, qp[1]);
		assert_int_equal(wc.byte_len, size);
		assert_int_equal(wc.flags & RDMA_WC_WITH_IMM, i & 1 ? RDMA_WC_WITH_IMM : 0);
		if (i & 1)
			assert_int_equal(wc.imm, 0x01020304);
		assert_true(rig_holds(two->memory + TO, size, i));
		assert_int_equal(two->memory[TO + size], 0xee);
		expect(rig_wc(one), i, RDMA_WC_SEND, qp[0]);
	}
	rig_unpair(qp);
}

static void
writes_and_reads_land(void **state)
{
	struct rdma_qp *qp[2];
	struct rdma_send_wr wr;
	struct rdma_sge sge;
	struct rdma_wc wc;
	unsigned int i;

	rig_pair(RDMA_QP_RC, NULL, qp);
	for (i = 0; sizes(i) != UINT32_MAX; i++) {
		const uint32_t size = sizes(i);

		rig_fill(one->memory + FROM, size, i + 50);
		memset(two->memory + TO, 0xee, size + 1);
		sge = rig_sge(one, FROM, size);
		wr = rig_wr(i & 1 ? RDMA_OP_WRITE_IMM : RDMA_OP_WRITE, i, &sge);
		wr.remote_addr = (uintptr_t)two->memory + TO;
		wr.rkey = rdma_mr_rkey(two->mr);
		wr.imm = i;
		if (i & 1)
			rig_recv(qp[1], 7, rig_sge(two, 0, 0));
		rig_send(qp[0], &wr);
		expect(rig_wc(one), i, RDMA_WC_WRITE, qp[0]);
		if (i & 1) {
			wc = rig_wc(two);
			expect(wc, 7, RDMA_WC_RECV_WRITE_IMM, qp[1]);
			assert_int_equal(wc.imm, i);
			assert_int_equal(wc.byte_len, size);
		}
		assert_true(rig_holds(two->memory + TO, size, i + 50));
		assert_int_equal(two->memory[TO + size], 0xee);

		/* and back */
		memset(one->memory + FROM, 0, size);
		wr.op = RDMA_OP_READ;
		rig_send(qp[0], &wr);
		wc = rig_wc(one);
		expect(wc, i, RDMA_WC_READ, qp[0]);
		assert_true(rig_holds(one->memory + FROM, size, i + 50));
	}
	rig_unpair(qp);
}

static void
atomics_are_atomic(void **state)
{
	uint64_t *there = (uint64_t *)(two->memory + TO), *here = (uint64_t *)one->memory;
	struct rdma_sge sge = rig_sge(one, 0, 8);
	struct rdma_send_wr wr = rig_wr(RDMA_OP_FETCH_ADD, 1, &sge);
	struct rdma_qp *qp[2];

	rig_pair(RDMA_QP_RC, NULL, qp);
	*there = 40;
	wr.remote_addr = (uintptr_t)there;
	wr.rkey = rdma_mr_rkey(two->mr);
	wr.swap_add = 2;
	rig_send(qp[0], &wr);
	expect(rig_wc(one), 1, RDMA_WC_FETCH_ADD, qp[0]);
	assert_int_equal(*here, 40);
	assert_int_equal(*there, 42);

	wr.op = RDMA_OP_CMP_SWAP;
	wr.compare = 41;
	wr.swap_add = 99;
	rig_send(qp[0], &wr);
	expect(rig_wc(one), 1, RDMA_WC_CMP_SWAP, qp[0]);
	assert_int_equal(*here, 42);
	assert_int_equal(*there, 42);
	wr.compare = 42;
	rig_send(qp[0], &wr);
	expect(rig_wc(one), 1, RDMA_WC_CMP_SWAP, qp[0]);
	assert_int_equal(*there, 99);
	rig_unpair(qp);
}

static void
lists_gather_and_scatter(void **state)
{
	const struct rdma_qp_attr attr = {.max_send_sge = 2, .max_recv_sge = 2, .retry_count = 7};
	struct rdma_sge from[2] = {rig_sge(one, FROM, 1000), rig_sge(one, FROM + 5000, 3001)};
	struct rdma_sge to[2] = {rig_sge(two, TO, 3500), rig_sge(two, TO + 8000, 2000)};
	struct rdma_recv_wr recv = {.wr_id = 3, .sg = to, .nb_sge = 2};
	struct rdma_send_wr wr = rig_wr(RDMA_OP_SEND, 4, from);
	struct rdma_qp *qp[2];
	uint8_t *sent = one->memory + FROM;

	wr.nb_sge = 2;
	rig_fill(sent, 1000, 1);
	rig_fill(sent + 5000, 3001, 2);
	rig_pair(RDMA_QP_RC, &attr, qp);
	assert_int_equal(rdma_post_recv(qp[1], &recv, 1), 1);
	rig_send(qp[0], &wr);
	assert_int_equal(rig_wc(two).byte_len, 4001);
	expect(rig_wc(one), 4, RDMA_WC_SEND, qp[0]);
	assert_memory_equal(two->memory + TO, sent, 1000);
	assert_memory_equal(two->memory + TO + 1000, sent + 5000, 2500);
	assert_memory_equal(two->memory + TO + 8000, sent + 7500, 501);
	rig_unpair(qp);
}

static void
inline_bytes_are_taken_at_once(void **state)
{
	const struct rdma_qp_attr attr = {.max_inline = 64, .retry_count = 7};
	struct rdma_sge sge = {(uintptr_t)one->memory, 64, 0};
	struct rdma_send_wr wr = rig_wr(RDMA_OP_SEND, 5, &sge);
	struct rdma_qp *qp[2];

	wr.flags |= RDMA_SEND_INLINE;
	rig_pair(RDMA_QP_RC, &attr, qp);
	rig_recv(qp[1], 6, rig_sge(two, TO, 64));
	rig_fill(one->memory, 64, 9);
	rig_send(qp[0], &wr);
	memset(one->memory, 0, 64);
	expect(rig_wc(two), 6, RDMA_WC_RECV, qp[1]);
	assert_true(rig_holds(two->memory + TO, 64, 9));
	expect(rig_wc(one), 5, RDMA_WC_SEND, qp[0]);
	sge.length = 65;
	assert_int_equal(rdma_post_send(qp[0], &wr, 1), 0);
	assert_int_equal(rte_errno, EINVAL);
	rig_unpair(qp);
}

static void
unsignalled_sends_free_with_the_next_signalled(void **state)
{
	const struct rdma_qp_attr attr = {.max_send_wr = 8, .retry_count = 7};
	struct rdma_sge sge = rig_sge(one, FROM, 16);
	struct rdma_send_wr wr = rig_wr(RDMA_OP_WRITE, 0, &sge);
	struct rdma_qp_info info;
	struct rdma_qp *qp[2];
	unsigned int i, round;

	rig_pair(RDMA_QP_RC, &attr, qp);
	wr.remote_addr = (uintptr_t)two->memory + TO;
	wr.rkey = rdma_mr_rkey(two->mr);
	for (round = 0; round < 5; round++) {
		for (i = 0; i < 8; i++) {
			wr.wr_id = i;
			wr.flags = i == 7 ? RDMA_SEND_SIGNALED : 0;
			rig_send(qp[0], &wr);
		}
		assert_int_equal(rdma_post_send(qp[0], &wr, 1), 0);
		assert_int_equal(rte_errno, ENOMEM);
		rdma_qp_info_get(qp[0], &info);
		assert_int_equal(info.send_queued, 8);
		expect(rig_wc(one), 7, RDMA_WC_WRITE, qp[0]);
		rdma_qp_info_get(qp[0], &info);
		assert_int_equal(info.send_queued, 0);
	}
	rig_no_wc(one);
	rig_unpair(qp);
}

static void
posts_are_checked(void **state)
{
	struct rdma_sge sge = rig_sge(one, 0, 16), many[RDMA_SGE_MAX] = {{0}};
	struct rdma_send_wr wr = rig_wr(RDMA_OP_SEND, 0, &sge);
	struct rdma_recv_wr recv = {.sg = many, .nb_sge = 2};
	struct rdma_qp *qp[2] = {rig_qp(one, RDMA_QP_RC, NULL), NULL};
	unsigned int i;

	/* not connected: no sends, but as many receives as were requested */
	assert_int_equal(rdma_post_send(qp[0], &wr, 1), 0);
	assert_int_equal(rte_errno, ENOTCONN);
	assert_int_equal(rdma_post_recv(qp[0], &recv, 1), 0);
	assert_int_equal(rte_errno, EINVAL);
	for (i = 0; i < 128; i++)
		rig_recv(qp[0], i, sge);
	recv.nb_sge = 1;
	assert_int_equal(rdma_post_recv(qp[0], &recv, 1), 0);
	assert_int_equal(rte_errno, ENOMEM);
	assert_int_equal(rdma_qp_destroy(qp[0]), 0);

	rig_pair(RDMA_QP_RC, NULL, qp);
	wr.op = RDMA_OP_FETCH_ADD + 1;
	assert_int_equal(rdma_post_send(qp[0], &wr, 1), 0);
	assert_int_equal(rte_errno, EINVAL);
	wr.op = RDMA_OP_FETCH_ADD; /* of 16 bytes */
	assert_int_equal(rdma_post_send(qp[0], &wr, 1), 0);
	assert_int_equal(rte_errno, EINVAL);
	wr.op = RDMA_OP_SEND;
	wr.sg = many;
	wr.nb_sge = 5;
	assert_int_equal(rdma_post_send(qp[0], &wr, 1), 0);
	assert_int_equal(rte_errno, EINVAL);
	rig_unpair(qp);
}

static void
an_error_flushes_in_order(void **state)
{
	struct rdma_qp *qp[2];
	struct rdma_qp_info info;
	unsigned int i;

	rig_pair(RDMA_QP_RC, NULL, qp);
	for (i = 0; i < 20; i++)
		rig_recv(qp[1], i, rig_sge(two, TO, 64));
	assert_int_equal(rdma_qp_error(qp[1]), 0);
	for (i = 0; i < 20; i++)
		expect_failed(rig_wc(two), i, RDMA_WC_WR_FLUSH_ERR);
	rdma_qp_info_get(qp[1], &info);
	assert_int_equal(info.state, RDMA_QP_ERROR);
	assert_int_equal(info.recv_queued, 0);
	rig_unpair(qp);
}

/** One send that must fail; the following ones are flushed, and the event arrives. */
static void
send_fails(struct rdma_qp *qp[2], const struct rdma_send_wr *wr, enum rdma_wc_status status)
{
	struct rdma_send_wr next = *wr;
	struct rdma_qp_info info;

	next.wr_id = wr->wr_id + 1;
	rig_send(qp[0], wr);
	expect_failed(rig_wc(one), wr->wr_id, status);
	rig_send(qp[0], &next);
	expect_failed(rig_wc(one), next.wr_id, RDMA_WC_WR_FLUSH_ERR);
	rdma_qp_info_get(qp[0], &info);
	assert_int_equal(info.state, RDMA_QP_ERROR);
	assert_ptr_equal(rig_event(one, RDMA_EVENT_QP_ERROR).qp, qp[0]);
	rig_unpair(qp);
}

static void
what_is_not_allowed_fails(void **state)
{
	const struct rdma_qp_attr no_retry = {
		.retry_count = 1, .ack_timeout = 8, .rnr_retry = 0, .min_rnr_timer = 1};
	struct rdma_mr_attr attr = {
		.addr = two->memory, .length = 4096, .access = RDMA_ACCESS_LOCAL_WRITE, .gpu = -1};
	struct rdma_sge sge = rig_sge(one, FROM, 64);
	struct rdma_send_wr wr = rig_wr(RDMA_OP_WRITE, 10, &sge);
	struct rdma_mr *mr;
	struct rdma_qp *qp[2];

	/* past the end of the region */
	rig_pair(RDMA_QP_RC, NULL, qp);
	wr.remote_addr = (uintptr_t)two->memory + RIG_BYTES - 63;
	wr.rkey = rdma_mr_rkey(two->mr);
	send_fails(qp, &wr, RDMA_WC_REM_ACCESS_ERR);

	/* an unknown key */
	rig_pair(RDMA_QP_RC, NULL, qp);
	wr.remote_addr = (uintptr_t)two->memory;
	wr.rkey = rdma_mr_rkey(two->mr) ^ 0x5a5a5a00;
	send_fails(qp, &wr, RDMA_WC_REM_ACCESS_ERR);

	/* a region without that access right */
	mr = rdma_mr_reg(two->pd, &attr);
	assert_non_null(mr);
	rig_pair(RDMA_QP_RC, NULL, qp);
	wr.rkey = rdma_mr_rkey(mr);
	send_fails(qp, &wr, RDMA_WC_REM_ACCESS_ERR);
	assert_int_equal(rdma_mr_dereg(mr), 0);

	/* no receive is posted */
	rig_pair(RDMA_QP_RC, &no_retry, qp);
	wr.op = RDMA_OP_SEND;
	send_fails(qp, &wr, RDMA_WC_RNR_RETRY_EXC_ERR);

	/* no peer acknowledges it */
	rig_pair(RDMA_QP_RC, &no_retry, qp);
	rdma_qp_error(qp[1]);
	send_fails(qp, &wr, RDMA_WC_RETRY_EXC_ERR);

	/* an SGE outside its own region */
	rig_pair(RDMA_QP_RC, NULL, qp);
	rig_recv(qp[1], 0, rig_sge(two, TO, 64));
	sge.addr = (uintptr_t)one->memory + RIG_BYTES;
	send_fails(qp, &wr, RDMA_WC_LOC_PROT_ERR);
}

static void
a_message_too_long_fails_at_both_ends(void **state)
{
	struct rdma_sge sge = rig_sge(one, FROM, 100);
	struct rdma_send_wr wr = rig_wr(RDMA_OP_SEND, 1, &sge);
	struct rdma_qp *qp[2];
	struct rdma_wc wc;

	rig_pair(RDMA_QP_RC, NULL, qp);
	memset(two->memory + TO, 0xee, 200);
	rig_recv(qp[1], 2, rig_sge(two, TO, 99));
	rig_send(qp[0], &wr);
	wc = rig_wc(two);
	/* Linux 6.1's rdma_rxe reports an operation error, and responds accordingly */
	if (strcmp(two->info.provider, "verbs") == 0 && wc.status == RDMA_WC_LOC_QP_OP_ERR) {
		expect_failed(rig_wc(one), 1, RDMA_WC_REM_OP_ERR);
	} else {
		expect_failed(wc, 2, RDMA_WC_LOC_LEN_ERR);
		expect_failed(rig_wc(one), 1, RDMA_WC_REM_INV_REQ_ERR);
	}
	assert_int_equal(two->memory[TO + 99], 0xee);
	rig_unpair(qp);
}

/** A thread that polls while seccomp kills it for any system call except for its exit. */
static void *
poll_confined(void *arg)
{
	struct rdma_wc wc[8];
	unsigned int i, *found = arg;

	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0) {
		for (i = 0; i < 10000; i++)
			*found += rdma_poll_cq(one->cq, wc, RTE_DIM(wc));
		*found += 100;
	}
	syscall(SYS_exit, 0);
	return NULL;
}

static void
polling_makes_no_system_call(void **state)
{
	struct rdma_sge sge = rig_sge(one, FROM, 64);
	struct rdma_send_wr wr = rig_wr(RDMA_OP_WRITE, 1, &sge);
	volatile unsigned int found = 0;
	struct rdma_qp_info info;
	struct rdma_qp *qp[2];
	pthread_t thread;
	unsigned int i;

	rig_pair(RDMA_QP_RC, NULL, qp);
	wr.remote_addr = (uintptr_t)two->memory + TO;
	wr.rkey = rdma_mr_rkey(two->mr);
	for (i = 0; i < 3; i++)
		rig_send(qp[0], &wr);
	/* the last one has arrived, so they are waiting to be polled */
	rig_fill(one->memory, 64, 8);
	rig_send(qp[0], &wr);
	while (!rig_holds(two->memory + TO, 64, 8))
		rig_poll();
	for (i = 0; i < 1000; i++)
		rig_poll();
	assert_int_equal(
		pthread_create(&thread, NULL, poll_confined, (void *)(uintptr_t)&found), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(found >= 100 + 3 && found <= 100 + 4);
	rdma_qp_info_get(qp[0], &info);
	while (info.send_queued) {
		rig_wc(one);
		rdma_qp_info_get(qp[0], &info);
	}
	rig_unpair(qp);
}

/* ---- unreliable ----------------------------------------------------------------------------- */

static void
unreliable_connections_send_and_write(void **state)
{
	struct rdma_sge sge = rig_sge(one, FROM, 9000);
	struct rdma_send_wr wr = rig_wr(RDMA_OP_SEND_IMM, 1, &sge);
	struct rdma_qp *qp[2];
	struct rdma_wc wc;

	rig_fill(one->memory + FROM, 9000, 77);
	rig_pair(RDMA_QP_UC, NULL, qp);
	rig_recv(qp[1], 2, rig_sge(two, TO, 9000));
	wr.imm = 77;
	rig_send(qp[0], &wr);
	wc = rig_wc(two);
	expect(wc, 2, RDMA_WC_RECV, qp[1]);
	assert_int_equal(wc.imm, 77);
	expect(rig_wc(one), 1, RDMA_WC_SEND, qp[0]);
	assert_true(rig_holds(two->memory + TO, 9000, 77));

	wr.op = RDMA_OP_WRITE_IMM;
	wr.remote_addr = (uintptr_t)two->memory + TO + 10000;
	wr.rkey = rdma_mr_rkey(two->mr);
	rig_recv(qp[1], 3, rig_sge(two, 0, 0));
	rig_send(qp[0], &wr);
	expect(rig_wc(two), 3, RDMA_WC_RECV_WRITE_IMM, qp[1]);
	expect(rig_wc(one), 1, RDMA_WC_WRITE, qp[0]);
	assert_true(rig_holds(two->memory + TO + 10000, 9000, 77));

	wr.op = RDMA_OP_READ;
	assert_int_equal(rdma_post_send(qp[0], &wr, 1), 0);
	assert_int_equal(rte_errno, EINVAL);
	rig_unpair(qp);
}

static struct rdma_ah *
address_handle(struct rig_end *from, const struct rig_end *to)
{
	struct rdma_ah *ah = NULL;
	unsigned int i;

	for (i = 0; i < 1000000 && !ah; i++) {
		rte_errno = 0;
		ah = rdma_ah_create(from->pd, (const struct sockaddr *)&to->info.addr, 0, 0);
		if (!ah && rte_errno != EAGAIN)
			break;
		rig_poll();
	}
	assert_non_null(ah);
	return ah;
}

static void
datagrams_come_with_their_header(void **state)
{
	const uint32_t size = one->info.mtu;
	struct rdma_sge sge = rig_sge(one, FROM, size);
	struct rdma_send_wr wr = rig_wr(RDMA_OP_SEND_IMM, 1, &sge);
	struct rdma_qp_info info[2];
	struct rdma_qp *qp[2];
	struct rdma_wc wc;

	rig_pair(RDMA_QP_UD, NULL, qp);
	rdma_qp_info_get(qp[0], &info[0]);
	rdma_qp_info_get(qp[1], &info[1]);
	rig_fill(one->memory + FROM, size, 5);
	rig_recv(qp[1], 2, rig_sge(two, TO, size + RDMA_GRH_BYTES));
	wr.imm = 42;
	wr.ud.ah = address_handle(one, two);
	wr.ud.remote_qpn = info[1].qpn;
	wr.ud.remote_qkey = 0x01234567;
	rig_send(qp[0], &wr);
	wc = rig_wc(two);
	expect(wc, 2, RDMA_WC_RECV, qp[1]);
	assert_int_equal(wc.imm, 42);
	assert_int_equal(wc.byte_len, size + RDMA_GRH_BYTES);
	assert_int_equal(wc.src_qpn, info[0].qpn);
	assert_true(wc.flags & RDMA_WC_GRH);
	assert_true(rig_holds(two->memory + TO + RDMA_GRH_BYTES, size, 5));
	if (one->info.addr.ss_family == AF_INET)
		assert_int_equal(two->memory[TO + 20] >> 4, 4);
	expect(rig_wc(one), 1, RDMA_WC_SEND, qp[0]);

	/* a packet with a wrong Q_Key is dropped at its destination */
	rig_recv(qp[1], 3, rig_sge(two, TO, size + RDMA_GRH_BYTES));
	wr.ud.remote_qkey = 0x11111111;
	rig_send(qp[0], &wr);
	expect(rig_wc(one), 1, RDMA_WC_SEND, qp[0]);
	rig_no_wc(two);

	sge.length = size + 1;
	assert_int_equal(rdma_post_send(qp[0], &wr, 1), 0);
	assert_int_equal(rte_errno, EINVAL);
	assert_int_equal(rdma_ah_destroy(wr.ud.ah), 0);
	rig_unpair(qp);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest test[] = {
		cmocka_unit_test(device_reports_its_capabilities),
		cmocka_unit_test(invalid_names_are_refused),
		cmocka_unit_test(memory_is_checked),
		cmocka_unit_test(gpu_memory_out_of_reach_is_refused),
		cmocka_unit_test(objects_in_use_are_not_destroyed),
		cmocka_unit_test(registrations_are_counted),
		cmocka_unit_test(memory_in_use_stays_registered),
		cmocka_unit_test(sends_arrive),
		cmocka_unit_test(writes_and_reads_land),
		cmocka_unit_test(atomics_are_atomic),
		cmocka_unit_test(lists_gather_and_scatter),
		cmocka_unit_test(inline_bytes_are_taken_at_once),
		cmocka_unit_test(unsignalled_sends_free_with_the_next_signalled),
		cmocka_unit_test(posts_are_checked),
		cmocka_unit_test(an_error_flushes_in_order),
		cmocka_unit_test(what_is_not_allowed_fails),
		cmocka_unit_test(a_message_too_long_fails_at_both_ends),
		cmocka_unit_test(polling_makes_no_system_call),
		cmocka_unit_test(unreliable_connections_send_and_write),
		cmocka_unit_test(datagrams_come_with_their_header),
	};
	const int unable = rig_open(argc, argv);

	return unable ? unable : rig_close(cmocka_run_group_tests(test, NULL, NULL));
}
