/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/mman.h>

#include <openssl/crypto.h>
#include <rte_errno.h>

#include "clock.h"
#include "xfer/qp.h"

#define BURST	 32
#define SEND_SGE 2 /* by default */

/* Kind of a work request, in the highest byte of its wr_id. */
enum kind {
	KIND_RECEIVE = 1,
	KIND_SEND,
	KIND_WRITE,
	KIND_READ,
};

#define ID(kind, n)   ((uint64_t)(kind) << 56 | (n))
#define KIND_OF(id)   ((id) >> 56)
#define NUMBER_OF(id) ((id) & ((UINT64_C(1) << 56) - 1))

static uint8_t *
receive_at(const struct xfer_qp *l, uint32_t i)
{
	return i < XFER_RECEIVES ? l->memory + (uint64_t)i * XFER_SEND_MAX
				 : l->more + (uint64_t)(i - XFER_RECEIVES) * XFER_SEND_MAX;
}

static uint8_t *
send_at(const struct xfer_qp *l, uint32_t i)
{
	return l->memory + (uint64_t)(XFER_RECEIVES + i) * XFER_SEND_MAX;
}

/* Post up to BURST receives. */
static void
post_receives(struct xfer_qp *l, const uint32_t number[], unsigned int n)
{
	struct rdma_recv_wr wr[BURST];
	struct rdma_sge sg[BURST];
	unsigned int i;

	for (i = 0; i < n; i++) {
		sg[i] = (struct rdma_sge){(uintptr_t)receive_at(l, number[i]), XFER_SEND_MAX,
			rdma_mr_lkey(number[i] < XFER_RECEIVES ? l->mr : l->more_mr)};
		wr[i] = (struct rdma_recv_wr){ID(KIND_RECEIVE, number[i]), &sg[i], 1};
	}
	if (n > 0 && !l->broken && rdma_post_recv(l->qp, wr, n) != n)
		xfer_qp_break(l);
}

static int
create_queues(struct xfer_qp *l)
{
	const struct xfer_qp_config *c = &l->config;
	struct rdma_qp_attr attr = {
		.type = RDMA_QP_RC,
		.poll_group = c->poll_group,
		.context = l,
		.max_send_wr = XFER_QP_SENDS + c->writes,
		.max_recv_wr = l->nb_receives,
		.max_send_sge = c->sge > 0 ? c->sge : SEND_SGE,
		.max_recv_sge = 1,
		/* 268 ms: an lcore that shares its CPU may cause longer delays than a network */
		.ack_timeout = 16,
		.retry_count = 7,
		.rnr_retry = 7,
	};
	struct rdma_qp_info info;

	l->cq = rdma_cq_create(c->dev, attr.max_send_wr + attr.max_recv_wr, c->poll_group);
	if (l->cq == NULL)
		return -rte_errno;
	attr.send_cq = l->cq;
	attr.recv_cq = l->cq;
	l->qp = rdma_qp_create(c->pd, &attr);
	if (l->qp == NULL)
		return -rte_errno;
	rdma_qp_info_get(l->qp, &info);
	l->qpn = info.qpn;
	return 0;
}

/* Map and register the memory of messages: once for each queue pair, in its protection domain. */
static int
get_memory(const struct xfer_qp *l, uint64_t size, uint8_t **memory, struct rdma_mr **mr)
{
	struct rdma_mr_attr attr = {.length = size, .access = RDMA_ACCESS_LOCAL_WRITE, .gpu = -1};
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	attr.addr = p;
	*mr = rdma_mr_reg(l->config.pd, &attr);
	if (*mr == NULL) {
		munmap(p, size);
		return -rte_errno;
	}
	*memory = p;
	return 0;
}

int
xfer_qp_open(struct xfer_qp *l, const struct xfer_qp_config *config)
{
	uint32_t i;
	int ret;

	memset(l, 0, sizeof(*l));
	l->config = *config;
	l->listened = xfer_qp_clock();
	l->nb_receives = XFER_RECEIVES + config->receives;
	l->size = (uint64_t)(XFER_RECEIVES + XFER_QP_SENDS) * XFER_SEND_MAX + config->extra;
	ret = get_memory(l, l->size, &l->memory, &l->mr);
	if (ret < 0)
		return ret;
	l->extra = send_at(l, XFER_QP_SENDS);
	ret = create_queues(l);
	if (ret < 0) {
		(void)xfer_qp_close(l);
		return ret;
	}
	for (i = 0; i < XFER_QP_SENDS; i++)
		l->free_send[l->nb_free_sends++] = i;
	for (i = 0; i < XFER_RECEIVES; i++)
		post_receives(l, &i, 1);
	return 0;
}

static uint64_t
more_size(const struct xfer_qp *l)
{
	return (uint64_t)(l->nb_receives - XFER_RECEIVES) * XFER_SEND_MAX;
}

int
xfer_qp_extend(struct xfer_qp *l)
{
	const int ret = get_memory(l, more_size(l), &l->more, &l->more_mr);
	uint32_t i;

	for (i = XFER_RECEIVES; ret == 0 && i < l->nb_receives; i++)
		post_receives(l, &i, 1);
	return ret;
}

int
xfer_qp_seal_keys(struct xfer_qp *l, const uint8_t send[XFER_MAC_BYTES],
	const uint8_t receive[XFER_MAC_BYTES])
{
	const int ret = xfer_seal_open(&l->send, send);

	l->sealed = true;
	return ret < 0 ? ret : xfer_seal_open(&l->receive, receive);
}

int
xfer_qp_seal(struct xfer_qp *l, const struct xfer_auth *h)
{
	uint8_t keys[2][XFER_MAC_BYTES];
	int ret = xfer_auth_session(h, keys);

	l->sealed = true;
	if (ret == 0)
		ret = xfer_qp_seal_keys(l, keys[h->store], keys[!h->store]);
	OPENSSL_cleanse(keys, sizeof(keys));
	return ret;
}

int
xfer_qp_close(struct xfer_qp *l)
{
	if (l->qp != NULL && rdma_qp_destroy(l->qp) < 0)
		return -EBUSY;
	l->qp = NULL;
	if (l->cq != NULL && rdma_cq_destroy(l->cq) < 0)
		return -EBUSY;
	l->cq = NULL;
	if (l->mr != NULL && rdma_mr_dereg(l->mr) < 0)
		return -EBUSY;
	l->mr = NULL;
	if (l->more_mr != NULL && rdma_mr_dereg(l->more_mr) < 0)
		return -EBUSY;
	l->more_mr = NULL;
	if (l->memory != NULL)
		munmap(l->memory, l->size);
	l->memory = NULL;
	if (l->more != NULL)
		munmap(l->more, more_size(l));
	l->more = NULL;
	xfer_seal_close(&l->send);
	xfer_seal_close(&l->receive);
	return 0;
}

void *
xfer_qp_room(struct xfer_qp *l)
{
	if (l->nb_free_sends == 0)
		return NULL;
	return send_at(l, l->free_send[l->nb_free_sends - 1]);
}

int
xfer_qp_send(struct xfer_qp *l, uint32_t size)
{
	const uint32_t i = l->free_send[l->nb_free_sends - 1];
	uint8_t *message = send_at(l, i);
	const uint32_t tag = l->sealed && l->nb_sent > 0 ? XFER_TAG_BYTES : 0;
	const struct rdma_sge sg = {(uintptr_t)message, size + tag, rdma_mr_lkey(l->mr)};
	const struct rdma_send_wr wr = {
		.wr_id = ID(KIND_SEND, i),
		.sg = &sg,
		.nb_sge = 1,
		.op = RDMA_OP_SEND,
		.flags = RDMA_SEND_SIGNALED,
	};

	if (l->broken)
		return -EPIPE;
	if ((tag > 0 &&
		    xfer_seal_make(&l->send, XFER_SEALED_MESSAGE, message, size, NULL, 0,
			    message + size) < 0) ||
		rdma_post_send(l->qp, &wr, 1) != 1) {
		xfer_qp_break(l);
		return -EPIPE;
	}
	l->nb_sent++;
	l->nb_free_sends--;
	return 0;
}

static int
post_one(struct xfer_qp *l, const struct rdma_send_wr *wr)
{
	if (l->broken)
		return -EPIPE;
	if (rdma_post_send(l->qp, wr, 1) == 1)
		return 0;
	if (rte_errno == ENOMEM)
		return -EAGAIN;
	xfer_qp_break(l);
	return -EPIPE;
}

/* @param flags  RDMA_SEND_SIGNALED: the completion is reported */
static int
post_write(struct xfer_qp *l, uint64_t wr_id, const struct rdma_sge *sg, uint16_t nb_sge,
	uint64_t remote_addr, uint32_t rkey, const uint32_t *imm, uint32_t flags)
{
	const struct rdma_send_wr wr = {
		.wr_id = ID(KIND_WRITE, wr_id),
		.sg = sg,
		.nb_sge = nb_sge,
		.op = imm != NULL ? RDMA_OP_WRITE_IMM : RDMA_OP_WRITE,
		.flags = flags,
		.imm = imm != NULL ? *imm : 0,
		.remote_addr = remote_addr,
		.rkey = rkey,
	};

	return post_one(l, &wr);
}

int
xfer_qp_write(struct xfer_qp *l, uint64_t wr_id, const struct rdma_sge *sg, uint16_t nb_sge,
	uint64_t remote_addr, uint32_t rkey, const uint32_t *imm)
{
	return post_write(
		l, wr_id, sg, nb_sge, remote_addr, rkey, imm, imm != NULL ? RDMA_SEND_SIGNALED : 0);
}

int
xfer_qp_place(struct xfer_qp *l, uint64_t wr_id, const struct rdma_sge *sg, uint16_t nb_sge,
	uint64_t remote_addr, uint32_t rkey)
{
	return post_write(l, wr_id, sg, nb_sge, remote_addr, rkey, NULL, RDMA_SEND_SIGNALED);
}

int
xfer_qp_read(struct xfer_qp *l, uint64_t wr_id, const struct rdma_sge *sg, uint64_t remote_addr,
	uint32_t rkey)
{
	const struct rdma_send_wr wr = {
		.wr_id = ID(KIND_READ, wr_id),
		.sg = sg,
		.nb_sge = 1,
		.op = RDMA_OP_READ,
		.flags = RDMA_SEND_SIGNALED,
		.remote_addr = remote_addr,
		.rkey = rkey,
	};

	return post_one(l, &wr);
}

static void
take_message(struct xfer_qp *l, const uint8_t *message, uint32_t size)
{
	const struct xfer_qp_ops *ops = l->config.ops;

	if (l->nb_received++ == 0 || !l->sealed) {
		ops->message(l->config.arg, message, size);
		return;
	}
	if (size >= XFER_TAG_BYTES &&
		xfer_seal_check(&l->receive, XFER_SEALED_MESSAGE, message, size - XFER_TAG_BYTES,
			NULL, 0, message + size - XFER_TAG_BYTES))
		ops->message(l->config.arg, message, size - XFER_TAG_BYTES);
	else
		ops->forged(l->config.arg);
}

static void
take(struct xfer_qp *l, const struct rdma_wc *wc)
{
	const struct xfer_qp_ops *ops = l->config.ops;
	const uint32_t number = NUMBER_OF(wc->wr_id);

	switch ((enum kind)KIND_OF(wc->wr_id)) {
	case KIND_RECEIVE:
		if (wc->op == RDMA_WC_RECV_WRITE_IMM && ops->written != NULL)
			ops->written(l->config.arg, wc->imm);
		else if (wc->op == RDMA_WC_RECV)
			take_message(l, receive_at(l, number), wc->byte_len);
		else
			xfer_qp_break(l);
		break;
	case KIND_SEND:
		l->free_send[l->nb_free_sends++] = number;
		break;
	case KIND_WRITE:
	case KIND_READ:
		if (ops->done != NULL)
			ops->done(l->config.arg, NUMBER_OF(wc->wr_id));
		break;
	}
}

unsigned int
xfer_qp_poll(struct xfer_qp *l)
{
	uint32_t receive[BURST];
	struct rdma_wc wc[BURST];
	unsigned int i, n, nb_receives = 0;

	if (l->cq == NULL)
		return 0;
	n = rdma_poll_cq(l->cq, wc, BURST);
	for (i = 0; i < n; i++) {
		if (wc[i].status == RDMA_WC_SUCCESS) {
			/* completions from before the error are still processed */
			take(l, &wc[i]);
			if (KIND_OF(wc[i].wr_id) == KIND_RECEIVE)
				receive[nb_receives++] = NUMBER_OF(wc[i].wr_id);
			continue;
		}
		if (!l->broken)
			l->why = wc[i].status;
		xfer_qp_break(l);
	}
	post_receives(l, receive, nb_receives);
	return n;
}

uint64_t
xfer_qp_absence(struct xfer_qp *l, uint64_t now)
{
	const uint64_t gap = now > l->listened ? now - l->listened : 0;

	l->listened = now;
	return gap > XFER_QP_AWAY_MS ? gap : 0;
}

void
xfer_qp_break(struct xfer_qp *l)
{
	if (l->broken)
		return;
	l->broken = true;
	if (l->qp != NULL)
		(void)rdma_qp_error(l->qp);
}

void
xfer_qp_address(const struct sockaddr_storage *from, uint8_t to[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	if (from->ss_family == AF_INET6) {
		memcpy(to, &((const struct sockaddr_in6 *)from)->sin6_addr, 16);
		return;
	}
	memcpy(to, mapped, sizeof(mapped));
	memcpy(to + 12, &((const struct sockaddr_in *)from)->sin_addr, 4);
}

uint64_t
xfer_qp_clock(void)
{
	return monotonic_coarse_ms();
}
