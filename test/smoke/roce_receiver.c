/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small receiver of RoCEv2 messages with ordinary queue pairs and a registered ring. It writes
 * its card, or answers the CM, and appends each message that has arrived to a file when its frame's
 * event comes: stream, frame, message as u32, u64, bytes. A trailer that is not of the frame ends
 * the program: a slot shows no earlier frame.
 *
 * usage: roce_receiver EAL-OPTION... -- DEVICE TRANSPORT STREAMS SLOTS (CARD PEER | PORT) FILE
 * It ends when nothing comes for two seconds, and prints counters.
 */

#include <arpa/inet.h>
#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_malloc.h>

#include "ingest/card.h"
#include "rdma.h"

#define TILES	 128
#define MESSAGE	 (8192 + INGEST_TRAILER_BYTES)
#define RECEIVES 1024
#define IDLE_S	 2

struct receiver {
	struct rdma_dev *dev;
	struct rdma_pd *pd;
	struct rdma_cq *cq, *send_cq;
	struct rdma_qp *qp[INGEST_STREAMS_MAX];
	struct rdma_conn *conn[INGEST_STREAMS_MAX];
	struct rdma_conn *listener;
	struct rdma_mr *mr;
	uint8_t *memory; /* write: rings; send: buffers of receives */
	struct ingest_card card;
	FILE *out;
	uint64_t near[INGEST_STREAMS_MAX]; /* frame of the last event */
	uint64_t events, messages, old, wrong, down;
};

static uint64_t
le64(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static void
put_message(struct receiver *r, uint32_t stream, uint64_t frame, const uint8_t *message)
{
	r->messages++;
	if (fwrite(&stream, sizeof(stream), 1, r->out) != 1 ||
		fwrite(&frame, sizeof(frame), 1, r->out) != 1 ||
		fwrite(message, MESSAGE, 1, r->out) != 1)
		err(1, "write");
}

static void
post(struct receiver *r, uint32_t stream, uint64_t id)
{
	const struct rdma_sge sg = {.addr = (uintptr_t)r->memory + id * MESSAGE, .length = MESSAGE};
	struct rdma_sge with_key = sg;
	const bool send = r->card.transport == INGEST_SEND;
	const struct rdma_recv_wr wr = {.wr_id = id, .sg = &with_key, .nb_sge = send};

	with_key.lkey = rdma_mr_lkey(r->mr);
	if (rdma_post_recv(r->qp[stream], &wr, 1) != 1)
		errx(1, "post: %d", rte_errno);
}

/* The event of a frame: its slot has the tiles that came. */
static void
take_event(struct receiver *r, const struct rdma_wc *wc)
{
	const uint32_t stream = ingest_immediate_stream(wc->imm);
	const uint64_t frame = ingest_immediate_frame(wc->imm, r->near[stream]);
	const uint8_t *message;
	uint32_t tile;

	r->events++;
	r->wrong += wc->byte_len != 0;
	r->near[stream] = frame;
	for (uint32_t t = 0; r->card.transport == INGEST_WRITE && t < TILES; t++) {
		message = (const uint8_t *)(uintptr_t)ingest_address(&r->card, stream, frame, t);
		memcpy(&tile, message + 8192 + 12, sizeof(tile));
		if (le64(message + 8192) != frame)
			r->old++;
		else if (tile != t)
			r->wrong++;
		else
			put_message(r, stream, frame, message);
	}
}

static bool
take_completions(struct receiver *r)
{
	struct rdma_wc wc[32];
	const uint16_t n = rdma_poll_cq(r->cq, wc, 32);

	for (uint16_t i = 0; i < n; i++) {
		const uint32_t stream = (uint32_t)(uintptr_t)wc[i].qp_context;
		const uint8_t *message = r->memory + wc[i].wr_id * MESSAGE;

		if (wc[i].status == RDMA_WC_WR_FLUSH_ERR)
			continue;
		if (wc[i].status != RDMA_WC_SUCCESS)
			errx(1, "completion: %s", rdma_wc_status_name(wc[i].status));
		if (wc[i].flags & RDMA_WC_WITH_IMM)
			take_event(r, &wc[i]);
		else if (wc[i].byte_len == MESSAGE)
			put_message(r, stream, le64(message + 8192), message);
		else
			r->wrong++;
		post(r, stream, wc[i].wr_id);
	}
	return n > 0;
}

static void
create_qp(struct receiver *r, uint32_t stream, enum rdma_qp_type type)
{
	const struct rdma_qp_attr attr = {.type = type,
		.send_cq = r->send_cq,
		.recv_cq = r->cq,
		.max_recv_wr = RECEIVES,
		.max_mtu = (uint16_t)r->card.mtu,
		.context = (void *)(uintptr_t)stream};
	struct rdma_qp_info info;

	r->qp[stream] = rdma_qp_create(r->pd, &attr);
	if (r->qp[stream] == NULL)
		errx(1, "queue pair: %d", rte_errno);
	rdma_qp_info_get(r->qp[stream], &info);
	r->card.stream[stream].qpn = info.qpn;
	r->card.stream[stream].psn = 0xFFFF00 + stream;
	for (uint32_t i = 0; i < RECEIVES; i++)
		post(r, stream, (uint64_t)stream * RECEIVES + i);
}

/* Answer a request of the CM, or note an end. */
static void
take_cm(struct receiver *r)
{
	struct rdma_event e[8];
	const uint16_t n = rdma_poll_cm(r->dev, e, 8);
	uint8_t data[INGEST_PRIVATE_BYTES];
	const struct rdma_conn_attr attr = {.private_data = data, .private_len = sizeof(data)};
	struct ingest_request request;
	uint32_t stream;

	for (uint16_t i = 0; i < n; i++) {
		r->down += e[i].type == RDMA_EVENT_DISCONNECTED;
		if (e[i].type != RDMA_EVENT_CONNECT_REQUEST)
			continue;
		if (ingest_request_decode(&request, e[i].private_data, e[i].private_len) != 0 ||
			request.transport != r->card.transport ||
			request.stream >= r->card.streams || r->conn[request.stream] != NULL) {
			rdma_conn_reject(e[i].conn, NULL, 0);
			continue;
		}
		stream = request.stream;
		ingest_card_to_private(&r->card, stream, data);
		if (rdma_conn_accept(e[i].conn, r->qp[stream], &attr) != 0)
			errx(1, "accept");
		r->conn[stream] = e[i].conn;
	}
}

static bool
poll(struct receiver *r)
{
	const bool work = rdma_progress(r->dev, 0) > 0;
	static unsigned int turn;

	if (turn++ % 64 == 0)
		take_cm(r);
	return take_completions(r) || work;
}

static void
connect_all(struct receiver *r, const char *ip)
{
	struct rdma_qp_peer peer = {.qpn = 2, .mtu = (uint16_t)r->card.mtu};
	struct sockaddr_in *in = (struct sockaddr_in *)&peer.addr;
	int ret;

	in->sin_family = AF_INET;
	if (inet_pton(AF_INET, ip, &in->sin_addr) != 1)
		errx(1, "peer");
	for (uint32_t s = 0; s < r->card.streams; s++) {
		peer.psn = r->card.stream[s].psn;
		do {
			ret = rdma_qp_connect(r->qp[s], &peer);
			poll(r);
		} while (ret == -EAGAIN || ret == -EHOSTUNREACH);
		if (ret != 0)
			errx(1, "connect: %d", ret);
	}
}

static void
setup(struct receiver *r, const char *device)
{
	const size_t send = (size_t)r->card.streams * RECEIVES * MESSAGE;
	const size_t ring = (size_t)r->card.slots * r->card.slot_bytes * r->card.streams;
	const bool write = r->card.transport == INGEST_WRITE;
	struct rdma_mr_attr mr = {.length = write ? ring : send,
		.access = RDMA_ACCESS_LOCAL_WRITE | RDMA_ACCESS_REMOTE_WRITE,
		.gpu = -1};

	r->dev = rdma_dev_open(device);
	if (r->dev == NULL)
		errx(1, "device");
	r->pd = rdma_pd_alloc(r->dev);
	r->cq = rdma_cq_create(r->dev, r->card.streams * RECEIVES, 0);
	r->send_cq = rdma_cq_create(r->dev, 256, 0);
	r->memory = rte_zmalloc("ring", mr.length, 4096);
	mr.addr = r->memory;
	r->mr = r->memory != NULL ? rdma_mr_reg(r->pd, &mr) : NULL;
	if (r->mr == NULL)
		errx(1, "memory");
	for (uint32_t s = 0; s < r->card.streams; s++) {
		r->card.stream[s].rkey = rdma_mr_rkey(r->mr);
		r->card.stream[s].base =
			(uintptr_t)r->memory + s * r->card.slots * r->card.slot_bytes;
	}
}

int
main(int argc, char **argv)
{
	static struct receiver r;
	const int used = rte_eal_init(argc, argv);
	char **arg = argv + used + 1, message[256];
	const bool by_card = argc - used == 8;
	const char *type = getenv("SERVICE");
	uint64_t last, end;
	struct rdma_dev_info info;
	struct rdma_xstat x[128];
	int n;

	if (used < 0 || (!by_card && argc - used != 7))
		errx(2, "usage");
	r.card = (struct ingest_card){
		.transport = strcmp(arg[1], "send") == 0 ? INGEST_SEND : INGEST_WRITE,
		.streams = (uint32_t)atoi(arg[2]),
		.tile_bytes = 8192,
		.trailer_bytes = INGEST_TRAILER_BYTES,
		.tiles = TILES,
		.slots = (uint32_t)atoi(arg[3]),
		.slot_bytes = (uint64_t)TILES * MESSAGE,
	};
	r.out = fopen(arg[by_card ? 6 : 5], "wb");
	if (r.out == NULL)
		err(1, "%s", arg[by_card ? 6 : 5]);
	setup(&r, arg[0]);
	rdma_dev_info_get(r.dev, &info);
	r.card.mtu = info.mtu;
	for (uint32_t s = 0; s < r.card.streams; s++) {
		create_qp(&r, s, type != NULL ? RDMA_QP_RC : RDMA_QP_UC);
		inet_ntop(AF_INET, &((struct sockaddr_in *)&info.addr)->sin_addr,
			r.card.stream[s].ip, INGEST_ADDRESS_LEN);
	}
	if (ingest_card_check(&r.card, message, sizeof(message)) != 0)
		errx(1, "%s", message);
	if (by_card) {
		if (ingest_card_write(&r.card, arg[4]) != 0)
			errx(1, "card");
		connect_all(&r, arg[5]);
	} else {
		r.listener = rdma_conn_listen(r.dev, type != NULL ? RDMA_QP_RC : RDMA_QP_UC,
			(uint16_t)atoi(arg[4]), INGEST_STREAMS_MAX, NULL);
		if (r.listener == NULL)
			errx(1, "listen");
	}
	printf("ready\n");
	fflush(stdout);
	end = rte_get_timer_cycles() + 60 * rte_get_timer_hz();
	last = end;
	while (rte_get_timer_cycles() < end) {
		const uint64_t before = r.events + r.messages;

		poll(&r);
		if (r.events + r.messages != before)
			last = rte_get_timer_cycles();
		else if (last != end && rte_get_timer_cycles() - last > IDLE_S * rte_get_timer_hz())
			break;
	}
	if (fclose(r.out) != 0)
		err(1, "close");
	printf("events = %" PRIu64 "\nmessages = %" PRIu64 "\nold = %" PRIu64 "\nwrong = %" PRIu64
	       "\ndown = %" PRIu64 "\n",
		r.events, r.messages, r.old, r.wrong, r.down);
	n = rdma_xstats_get(r.dev, x, 128);
	for (int i = 0; i < n; i++)
		if (strncmp(x[i].name, "rx_", 3) == 0 && x[i].value != 0)
			printf("%s = %" PRIu64 "\n", x[i].name, x[i].value);
	return 0;
}
