/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A receiver of a stream, over fake queue pairs. The input is a script: the card, packets to the
 * group, what READs return, failures, and calls of the application. Packets are delivered in order,
 * with right lengths, and no buffer is lost or used twice.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_eal.h>

#include "rdma_stream_wire.h"

#define SLOTS	16
#define BUFFERS 64
#define REPAIR	32
#define PAYLOAD 96
#define POSTED	256
#define HELD	32
#define RUN	0x1234567890abcdefULL

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t *input;
static size_t input_size;

/* Fake objects: only their addresses count. */
static char fake_cq[2], fake_conn[RDMA_STREAM_CONNS_MAX + 1], fake_mr;
static struct fake_qp {
	bool used, ud;
	void *context;
} fake_qp[RDMA_STREAM_CONNS_MAX + 1];
static unsigned int nb_cqs, nb_conns;

/* Requests in flight: receives of the group, and sends of all connections. */
static struct rdma_sge recv_sge[POSTED];
static uint64_t recv_id[POSTED];
static unsigned int nb_recv;
static struct {
	struct rdma_sge sge[RDMA_SGE_MAX];
	struct fake_qp *qp;
	uint64_t id, remote;
	uint16_t nb;
	uint8_t op;
} sent[POSTED];
static unsigned int nb_sent;
static struct rdma_sge answer_sge;
static uint64_t answer_id;
static struct fake_qp *answer_qp;
static uint64_t base; /* sequence that packets are close to */

static uint8_t
next(void)
{
	if (!input_size)
		return 0;
	input_size--;
	return *input++;
}

static void
check(bool fine)
{
	if (!fine)
		abort();
}

int __wrap_rdma_dev_info_get(const struct rdma_dev *dev, struct rdma_dev_info *info);
struct rdma_mr *__wrap_rdma_mr_reg(struct rdma_pd *pd, const struct rdma_mr_attr *attr);
int __wrap_rdma_mr_dereg(struct rdma_mr *mr);
uint32_t __wrap_rdma_mr_lkey(const struct rdma_mr *mr);
struct rdma_cq *__wrap_rdma_cq_create(struct rdma_dev *dev, uint32_t depth, uint16_t pg);
int __wrap_rdma_cq_destroy(struct rdma_cq *cq);
uint16_t __wrap_rdma_poll_cq(struct rdma_cq *cq, struct rdma_wc *wc, uint16_t n);
struct rdma_qp *__wrap_rdma_qp_create(struct rdma_pd *pd, const struct rdma_qp_attr *attr);
int __wrap_rdma_qp_destroy(struct rdma_qp *qp);
int __wrap_rdma_qp_error(struct rdma_qp *qp);
int __wrap_rdma_qp_info_get(const struct rdma_qp *qp, struct rdma_qp_info *info);
uint16_t __wrap_rdma_post_send(struct rdma_qp *qp, const struct rdma_send_wr *wr, uint16_t n);
uint16_t __wrap_rdma_post_recv(struct rdma_qp *qp, const struct rdma_recv_wr *wr, uint16_t n);
struct rdma_conn *__wrap_rdma_conn_connect(
	struct rdma_qp *qp, const struct sockaddr *dst, const struct rdma_conn_attr *attr);
int __wrap_rdma_conn_destroy(struct rdma_conn *conn);
struct rdma_conn *__wrap_rdma_multicast_join(
	struct rdma_qp *qp, const struct sockaddr *group, void *context);

int
__wrap_rdma_dev_info_get(const struct rdma_dev *dev, struct rdma_dev_info *info)
{
	*info = (struct rdma_dev_info){
		.mtu = 1024, .max_wr = POSTED, .max_sge = RDMA_SGE_MAX, .numa_node = -1};
	return 0;
}

struct rdma_mr *
__wrap_rdma_mr_reg(struct rdma_pd *pd, const struct rdma_mr_attr *attr)
{
	return (struct rdma_mr *)&fake_mr;
}

int
__wrap_rdma_mr_dereg(struct rdma_mr *mr)
{
	return 0;
}

uint32_t
__wrap_rdma_mr_lkey(const struct rdma_mr *mr)
{
	return 1;
}

struct rdma_cq *
__wrap_rdma_cq_create(struct rdma_dev *dev, uint32_t depth, uint16_t pg)
{
	return (struct rdma_cq *)&fake_cq[nb_cqs++ % 2];
}

int
__wrap_rdma_cq_destroy(struct rdma_cq *cq)
{
	return 0;
}

struct rdma_qp *
__wrap_rdma_qp_create(struct rdma_pd *pd, const struct rdma_qp_attr *attr)
{
	for (unsigned int i = 0; i < RTE_DIM(fake_qp); i++)
		if (!fake_qp[i].used) {
			fake_qp[i] =
				(struct fake_qp){true, attr->type == RDMA_QP_UD, attr->context};
			return (struct rdma_qp *)&fake_qp[i];
		}
	return NULL;
}

int
__wrap_rdma_qp_destroy(struct rdma_qp *qp)
{
	struct fake_qp *f = (struct fake_qp *)qp;

	f->used = false;
	for (unsigned int i = 0; i < nb_sent;)
		if (sent[i].qp == f)
			sent[i] = sent[--nb_sent];
		else
			i++;
	if (answer_qp == f)
		answer_qp = NULL;
	return 0;
}

int
__wrap_rdma_qp_error(struct rdma_qp *qp)
{
	return 0;
}

int
__wrap_rdma_qp_info_get(const struct rdma_qp *qp, struct rdma_qp_info *info)
{
	*info = (struct rdma_qp_info){.state = RDMA_QP_RTS, .qpn = 5};
	return 0;
}

struct rdma_conn *
__wrap_rdma_conn_connect(
	struct rdma_qp *qp, const struct sockaddr *dst, const struct rdma_conn_attr *attr)
{
	return (struct rdma_conn *)&fake_conn[(struct fake_qp *)qp - fake_qp];
}

int
__wrap_rdma_conn_destroy(struct rdma_conn *conn)
{
	return 0;
}

struct rdma_conn *
__wrap_rdma_multicast_join(struct rdma_qp *qp, const struct sockaddr *group, void *context)
{
	return (struct rdma_conn *)&nb_conns;
}

uint16_t
__wrap_rdma_post_recv(struct rdma_qp *qp, const struct rdma_recv_wr *wr, uint16_t n)
{
	struct fake_qp *f = (struct fake_qp *)qp;
	uint16_t i;

	if (!f->ud) {
		answer_sge = wr->sg[0];
		answer_id = wr->wr_id;
		answer_qp = f;
		return 1;
	}
	for (i = 0; i < n && nb_recv < POSTED; i++) {
		/* each buffer is posted once */
		for (unsigned int k = 0; k < nb_recv; k++)
			check(recv_id[k] != wr[i].wr_id);
		check(wr[i].wr_id < BUFFERS);
		recv_sge[nb_recv] = wr[i].sg[0];
		recv_id[nb_recv++] = wr[i].wr_id;
	}
	return i;
}

uint16_t
__wrap_rdma_post_send(struct rdma_qp *qp, const struct rdma_send_wr *wr, uint16_t n)
{
	if (nb_sent == POSTED || next() == 0xff)
		return 0;
	sent[nb_sent].qp = (struct fake_qp *)qp;
	check(sent[nb_sent].qp->used);
	sent[nb_sent].id = wr->wr_id;
	sent[nb_sent].op = wr->op;
	sent[nb_sent].nb = wr->nb_sge;
	sent[nb_sent].remote = wr->remote_addr;
	memcpy(sent[nb_sent].sge, wr->sg, wr->nb_sge * sizeof(wr->sg[0]));
	nb_sent++;
	return 1;
}

/* A header that is right, but for what the script changes. @return its length with the payload */
static uint32_t
header_make(void *to, uint64_t sequence, uint32_t room)
{
	uint8_t packet[sizeof(struct stream_header) + PAYLOAD] = {0};
	struct stream_header *h = (struct stream_header *)packet;
	const uint8_t change = next();

	h->sequence = sequence;
	h->run = RUN;
	h->length = next() % (PAYLOAD + 1);
	h->crc = stream_crc(h, h + 1);
	if (change & 1)
		packet[next() % sizeof(*h)] = next();
	if (change & 2)
		h->sequence = STREAM_INVALID;
	if (change & 4)
		h->sequence += SLOTS;
	memcpy(to, packet, RTE_MIN(room, sizeof(packet)));
	return sizeof(*h) + RTE_MIN(h->length, (uint32_t)PAYLOAD);
}

static void
packet_complete(struct rdma_wc *wc)
{
	const unsigned int i = next() % nb_recv;
	uint8_t *grh = (uint8_t *)(uintptr_t)recv_sge[i].addr;
	const uint64_t sequence = base + (int8_t)next();
	uint32_t length;

	memset(grh, 0, RDMA_GRH_BYTES);
	grh[32] = 10;
	grh[35] = 1;
	length = RDMA_GRH_BYTES +
		header_make(grh + RDMA_GRH_BYTES, sequence, recv_sge[i].length - RDMA_GRH_BYTES);
	*wc = (struct rdma_wc){.wr_id = recv_id[i],
		.byte_len = next() == 0xff ? next() % 100 : length,
		.imm = next() == 0xff ? next() : (uint32_t)sequence,
		.src_qpn = next() == 0xff ? 6 : 5,
		.op = RDMA_WC_RECV,
		.flags = RDMA_WC_GRH | RDMA_WC_WITH_IMM};
	if (next() == 0xff)
		wc->status = RDMA_WC_WR_FLUSH_ERR;
	recv_sge[i] = recv_sge[--nb_recv];
	recv_id[i] = recv_id[nb_recv];
}

static void
send_complete(struct rdma_wc *wc)
{
	const unsigned int i = next() % nb_sent;

	*wc = (struct rdma_wc){.wr_id = sent[i].id, .qp_context = sent[i].qp->context};
	if (next() > 0xf0)
		wc->status = RDMA_WC_RETRY_EXC_ERR;
	if (sent[i].op == RDMA_OP_READ && sent[i].remote == 0) {
		struct stream_head *head = (struct stream_head *)(uintptr_t)sent[i].sge[0].addr;

		memset(head, 0, sizeof(*head));
		head->head = base + (int8_t)next();
		head->sent = head->head - next() % 4;
		head->run = next() == 0xff ? 0 : RUN;
		head->end = next() == 0xff ? head->head : STREAM_NONE;
	} else if (sent[i].op == RDMA_OP_READ) {
		/* the sequence that belongs into the slot, close to the others */
		uint64_t slot = (sent[i].remote - 4096) / RTE_ALIGN_CEIL(PAYLOAD + 32, 64);

		for (uint16_t k = 0; k < sent[i].nb; k++)
			header_make((void *)(uintptr_t)sent[i].sge[k].addr,
				(base & ~(uint64_t)(SLOTS - 1)) + slot + k, sent[i].sge[k].length);
	}
	sent[i] = sent[--nb_sent];
}

static void
card_complete(struct rdma_wc *wc)
{
	struct stream_card *card = (struct stream_card *)(uintptr_t)answer_sge.addr;

	*card = (struct stream_card){.type = STREAM_ANSWER,
		.policy = next() % 2,
		.run = RUN,
		.start = base,
		.slot_addr = 4096,
		.tail_addr = 1 << 20,
		.slots = SLOTS,
		.slot_bytes = RTE_ALIGN_CEIL(PAYLOAD + 32, 64),
		.payload_max = PAYLOAD,
		.silence_ms = next(),
		.ud_qpn = 5};
	if (next() == 0xff)
		((uint8_t *)card)[next() % sizeof(*card)] = next();
	*wc = (struct rdma_wc){.wr_id = answer_id,
		.byte_len = next() == 0xff ? next() : sizeof(*card),
		.qp_context = answer_qp->context,
		.op = RDMA_WC_RECV};
	answer_qp = NULL;
}

uint16_t
__wrap_rdma_poll_cq(struct rdma_cq *cq, struct rdma_wc *wc, uint16_t n)
{
	const bool group = (char *)cq == &fake_cq[0];
	uint16_t got = 0;

	while (got < n && input_size && next() % 4) {
		if (group && nb_recv)
			packet_complete(&wc[got++]);
		else if (!group && answer_qp && nb_sent)
			card_complete(&wc[got++]);
		else if (!group && nb_sent)
			send_complete(&wc[got++]);
		else
			break;
	}
	return got;
}

/* ---- the application ------------------------------------------------------------------------- */

static struct rdma_stream_packet held[HELD];
static unsigned int nb_held;
static uint64_t expected;
static bool begun;

static void
packets_take(struct rdma_stream_receiver *r)
{
	struct rdma_stream_packet packet[8];
	uint16_t n = rdma_stream_receive(r, packet, RTE_DIM(packet));

	for (uint16_t i = 0; i < n; i++) {
		check(packet[i].length <= PAYLOAD);
		check(!begun || packet[i].sequence >= expected);
		begun = true;
		expected = packet[i].sequence + 1;
		if (nb_held < HELD && next() % 2)
			held[nb_held++] = packet[i];
		else
			rdma_stream_release(r, &packet[i], 1);
	}
	if (next() % 4 == 0) {
		rdma_stream_release(r, held, nb_held);
		nb_held = 0;
	}
}

static void
event_make(struct rdma_stream_receiver *r)
{
	static const enum rdma_event_type types[] = {
		RDMA_EVENT_ESTABLISHED, RDMA_EVENT_REJECTED, RDMA_EVENT_DISCONNECTED};
	const struct stream_reply reply = {.magic = STREAM_MAGIC, .run = RUN};
	const uint8_t type = next();
	struct rdma_event event = {.type = types[type < 0xf0 ? 0 : 1 + type % 2],
		.status = next() == 0xff ? 28 : 1,
		.conn = (struct rdma_conn *)&fake_conn[next() % RTE_DIM(fake_conn)],
		.private_len = sizeof(reply)};

	memcpy(event.private_data, &reply, sizeof(reply));
	rdma_stream_receiver_event(r, &event);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *eal[] = {"fuzz", "--no-huge", "-m", "64", "--no-pci", "--no-shconf",
		"--no-telemetry", "--log-level", "braggline.rdma:emerg", "--log-level",
		"lib.eal:error"};

	return rte_eal_init(RTE_DIM(eal), (char **)(uintptr_t)eal) < 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr = {RTE_BE32(0x0a000001)}};
	struct rdma_stream_receiver_attr attr = {.dev = (void *)&fake_mr,
		.pd = (void *)&fake_mr,
		.group = (const struct sockaddr *)&address,
		.sender = (const struct sockaddr *)&address,
		.payload_max = PAYLOAD,
		.buffers = BUFFERS,
		.repair_buffers = REPAIR,
		.reads = 2,
		.quiet_us = 1};
	struct rdma_stream_receiver *r;

	input = data;
	input_size = size;
	memset(fake_qp, 0, sizeof(fake_qp));
	nb_recv = nb_sent = nb_cqs = nb_held = 0;
	answer_qp = NULL;
	begun = false;
	attr.repair = next() % 3;
	base = next() % 2 ? 0 : UINT32_MAX - 8ULL;
	r = rdma_stream_receiver_create(&attr);
	check(r != NULL);
	while (input_size) {
		const uint8_t what = next();

		rdma_stream_receiver_control(r);
		if (what % 8 == 0)
			event_make(r);
		else if (what % 8 == 1)
			base += what >> 3;
		packets_take(r);
	}
	check(rdma_stream_receiver_destroy(r) == 0);
	return 0;
}
