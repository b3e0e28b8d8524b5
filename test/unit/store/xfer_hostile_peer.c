/* SPDX-License-Identifier: BSD-3-Clause */
/* The hostile peers of a store: connections over the device, handshake, messages and writes. */

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_debug.h>

#include "arrow/tables.h"
#include "xfer_hostile_peer.h"

#define ENTRIES	 4 /* entries that a peer may have in flight */
#define ALIVE_MS 200

struct peer peer[PEERS];
struct peers peers;

void
peer_say(struct peer *p, const void *message, size_t size)
{
	void *room = xfer_qp_room(&p->link);

	RTE_VERIFY(room != NULL);
	memmove(room, message, size);
	(void)xfer_qp_send(&p->link, size);
}

bool
peer_alive(struct peer *p)
{
	static uint64_t said;
	struct xfer_status status = {0};

	if (xfer_qp_clock() < said + ALIVE_MS || p->link.nb_free_sends == 0)
		return true;
	said = xfer_qp_clock();
	xfer_msg_begin(&status, XFER_STATUS, sizeof(status), p->sent++);
	peer_say(p, &status, sizeof(status));
	return true;
}

static void
on_message(void *arg, const void *message, uint32_t size)
{
	const struct xfer_msg *m = message;
	const struct xfer_results *results = message;
	struct peer *p = arg;
	uint32_t i;

	switch ((enum xfer_type)m->type) {
	case XFER_REFUSE:
		p->refused = ((const struct xfer_refuse *)message)->reason;
		return;
	case XFER_GRANT:
		memcpy(&p->grant, message, sizeof(p->grant));
		memcpy(p->region, ((const struct xfer_grant *)message)->region, sizeof(p->region));
		RTE_VERIFY(xfer_grant_slots(message, peers.body_max, p->slot, &p->nb_slots) == 0);
		for (i = 0; i < XFER_TABLES; i++) {
			p->stream[i].session_id = p->grant.session_id;
			p->stream[i].body_max = UINT64_MAX;
		}
		p->granted = true;
		return;
	case XFER_RESULTS:
		for (i = 0; i < results->nb; i++) {
			p->durable += results->result[i].status == XFER_DURABLE;
			p->duplicates += results->result[i].status == XFER_DUPLICATE;
		}
		return;
	case XFER_ENDED:
		p->ended = true;
		return;
	default:
		if (p->handshake.state < XFER_AUTH_DONE)
			(void)xfer_auth_receive(&p->handshake, message, size);
	}
}

static void
on_forged(void *arg)
{
	RTE_VERIFY(!"the store's codes are right");
}

static const struct xfer_qp_ops link_ops = {.message = on_message, .forged = on_forged};

static void
on_event(struct peer *p, const struct rdma_event *event)
{
	struct xfer_endpoint self = {.qpn = p->link.qpn}, store = {.qpn = event->remote_qpn};
	struct rdma_dev_info info;
	struct xfer_reject reject;

	switch (event->type) {
	case RDMA_EVENT_ESTABLISHED:
		p->established = true;
		rdma_dev_info_get(peers.dev, &info);
		xfer_qp_address(&info.addr, self.addr);
		xfer_qp_address(&peers.store, store.addr);
		RTE_VERIFY(xfer_auth_open(&p->handshake, event->private_data, event->private_len,
				   &self, &store) == XFER_REASON_NONE);
		RTE_VERIFY(xfer_qp_seal(&p->link, &p->handshake) == 0);
		break;
	case RDMA_EVENT_REJECTED:
		memcpy(&reject, event->private_data, sizeof(reject));
		p->refused = reject.reason;
		p->gone = true;
		break;
	case RDMA_EVENT_UNREACHABLE:
	case RDMA_EVENT_DISCONNECTED:
	case RDMA_EVENT_QP_ERROR:
		p->gone = true;
		break;
	default:
		break;
	}
}

/* Make the metadata of batch k of the sample under the peer's own identity. */
static void
make_metadata(const struct peer *p, unsigned int table, unsigned int k, uint8_t *metadata)
{
	const struct xfer_sample_batch *from = &peers.sample->batch[table][k];
	const struct arrow_template *t = &p->stream[table].template;
	struct arrow_node nodes[ARROW_NODES_MAX];
	struct arrow_buffer buffers[ARROW_BUFFERS_MAX];
	const struct arrow_batch batch = {(int64_t)from->batch.rows, nodes, buffers,
		(int64_t)from->batch.body_bytes, from->batch.sequence, from->batch.body_crc32c};

	memcpy(nodes, from->metadata + t->nodes, t->nb_nodes * sizeof(nodes[0]));
	memcpy(buffers, from->metadata + t->buffers, t->nb_buffers * sizeof(buffers[0]));
	memcpy(metadata, t->bytes, XFER_BLOCK);
	arrow_template_patch(t, metadata, &batch);
}

void
peer_lists(struct peer *p, enum xfer_type type, uint16_t flags, unsigned int table, uint64_t first,
	uint64_t nb)
{
	static struct {
		struct xfer_list m;
		struct xfer_listed at[XFER_LIST_MAX];
	} m;
	uint8_t metadata[XFER_BLOCK];
	uint64_t i;

	RTE_VERIFY(nb <= XFER_LIST_MAX);
	xfer_msg_begin(&m, type, sizeof(m.m) + nb * sizeof(m.at[0]), p->sent++);
	m.m.head.flags = flags;
	m.m.table = table;
	m.m.nb = nb;
	for (i = 0; i < nb; i++) {
		m.at[i].sequence = first + i;
		if (first + i >= peers.sample->nb[table])
			continue;
		make_metadata(p, table, first + i, metadata);
		m.at[i].body_crc32c = peers.sample->batch[table][first + i].batch.body_crc32c;
		m.at[i].metadata_crc32c = arrow_crc32c(0, metadata, XFER_BLOCK);
	}
	peer_say(p, &m, m.m.head.length);
}

void
peer_holds(struct peer *p, uint64_t first, uint64_t nb)
{
	peer_lists(p, XFER_HELD, 0, 0, first, nb);
}

/* Send what a correct receiver sends, up to the grant. */
static void
go_on(struct peer *p)
{
	void *room;
	size_t size;

	while (p->handshake.state != XFER_AUTH_DONE && (room = xfer_qp_room(&p->link)) != NULL) {
		size = xfer_auth_send(&p->handshake, room);
		if (size == 0)
			return;
		(void)xfer_qp_send(&p->link, size);
		if (p->handshake.state == XFER_AUTH_DONE) {
			p->sent = p->handshake.sent;
			if (p->withholds)
				return;
			peer_lists(p, XFER_REASSIGNED, 0, 0, 0, 0);
			peer_holds(p, 0, 0);
		}
	}
}

struct peer *
peer_call(unsigned int i, const struct xfer_private *req)
{
	const struct xfer_qp_config config = {
		.dev = peers.dev,
		.pd = peers.pd,
		.writes = 64,
		.extra = 2 * PEER_ROOM + ENTRIES * XFER_DESC_BYTES,
		.ops = &link_ops,
		.arg = &peer[i],
	};
	struct xfer_offer offer = {.role = XFER_ROLE_RECEIVER,
		.identity = peers.identity,
		.receiver_id = peers.receiver_id,
		.run = peers.run,
		.incarnation = peers.incarnation != 0 ? peers.incarnation : i,
		.name = peers.name};
	struct peer *p = &peer[i];
	struct rdma_conn_attr attr = {
		.private_data = &p->handshake.receiver,
		.private_len = sizeof(p->handshake.receiver),
		.context = p,
		.timeout_ms = 3000,
	};
	struct arrow_identity id = {offer.receiver_id, offer.run, offer.incarnation, NULL};
	unsigned int k;

	memset(p, 0, sizeof(*p));
	for (k = 0; k < XFER_TABLES; k++) {
		offer.table[k].schema = peers.schema[k];
		offer.table[k].schema_bytes = peers.schema_bytes[k];
		offer.table[k].body_max = peers.body_max[k];
		id.table = arrow_table_name(k);
		RTE_VERIFY(xfer_stream_init(&p->stream[k], k, &peers.sample->tables.schema[k], &id,
				   0, &p->link.send, UINT64_MAX) == 0);
	}
	RTE_VERIFY(xfer_qp_open(&p->link, &config) == 0);
	p->link_is_open = true;
	RTE_VERIFY(xfer_auth_call(&p->handshake, peers.key, &offer, UINT64_MAX) == 0);
	if (req != NULL)
		p->handshake.receiver = *req;
	p->conn = rdma_conn_connect(p->link.qp, (const struct sockaddr *)&peers.store, &attr);
	RTE_VERIFY(p->conn != NULL);
	return p;
}

bool
peer_hang_up(struct peer *p)
{
	unsigned int i;

	if (p->conn != NULL)
		(void)rdma_conn_destroy(p->conn);
	p->conn = NULL;
	if (p->link_is_open) {
		xfer_qp_break(&p->link);
		if (xfer_qp_close(&p->link) < 0)
			return false;
	}
	p->link_is_open = false;
	xfer_auth_end(&p->handshake);
	for (i = 0; i < XFER_TABLES; i++)
		xfer_stream_free(&p->stream[i]);
	return true;
}

void
peers_turn(void)
{
	struct rdma_event event[4];
	struct rdma_wc wc[8];
	unsigned int i, n;

	(void)rdma_progress(peers.dev, 0);
	n = rdma_poll_cm(peers.dev, event, 4);
	for (i = 0; i < n; i++) {
		if (event[i].conn != NULL && rdma_conn_context(event[i].conn) != NULL)
			on_event(rdma_conn_context(event[i].conn), &event[i]);
	}
	for (i = 0; i < PEERS; i++) {
		if (!peer[i].link_is_open)
			continue;
		if (peer[i].deaf) {
			/* receives are never posted again */
			while (rdma_poll_cq(peer[i].link.cq, wc, RTE_DIM(wc)) > 0)
				;
			continue;
		}
		(void)xfer_qp_poll(&peer[i].link);
		if (peer[i].established && !peer[i].mute && !peer[i].link.broken)
			go_on(&peer[i]);
	}
}

void
peers_open(struct rdma_dev *dev, uint32_t store, const struct xfer_key *key,
	const struct xfer_sample *sample)
{
	struct sockaddr_in *to = (struct sockaddr_in *)&peers.store;
	unsigned int i, k;
	size_t size;

	memset(peer, 0, sizeof(peer));
	memset(&peers, 0, sizeof(peers));
	peers.dev = dev;
	peers.pd = rdma_pd_alloc(dev);
	peers.key = key;
	peers.identity = "hostile";
	peers.name = "hostile";
	peers.receiver_id = PEER_RECEIVER_ID;
	peers.run = PEER_RUN;
	peers.sample = sample;
	to->sin_family = AF_INET;
	to->sin_port = htons(XFER_PORT);
	to->sin_addr.s_addr = htonl(store);
	for (i = 0; i < XFER_TABLES; i++) {
		RTE_VERIFY(arrow_header_build(&sample->tables.schema[i], &peers.schema[i], &size) ==
			0);
		peers.schema_bytes[i] = size;
		for (k = 0; k < sample->nb[i]; k++)
			peers.body_max[i] =
				RTE_MAX(peers.body_max[i], sample->batch[i][k].batch.body_bytes);
		RTE_VERIFY(peers.body_max[i] <= PEER_ROOM);
	}
}

bool
peers_close(void)
{
	unsigned int i;

	if (rdma_pd_free(peers.pd) < 0)
		return false;
	for (i = 0; i < XFER_TABLES; i++)
		free(peers.schema[i]);
	return true;
}

struct xfer_desc *
peer_entry(struct peer *p, unsigned int table, unsigned int k, uint32_t slot)
{
	const struct xfer_sample_batch *from = &peers.sample->batch[table][k];
	struct xfer_desc *entry = (struct xfer_desc *)(p->link.extra + 2 * PEER_ROOM +
		p->written % ENTRIES * XFER_DESC_BYTES);
	struct xfer_batch b = from->batch;
	uint8_t metadata[XFER_BLOCK];

	make_metadata(p, table, k, metadata);
	b.entry = slot;
	RTE_VERIFY(xfer_sample_entry(&p->stream[table], &b, metadata, entry) == 0);
	memcpy(p->link.extra, from->body, from->batch.body_bytes);
	return entry;
}

void
peer_write_at(struct peer *p, const void *from, uint64_t bytes, uint64_t addr, uint32_t rkey)
{
	const struct rdma_sge sg = {(uintptr_t)from, (uint32_t)bytes, rdma_mr_lkey(p->link.mr)};

	(void)xfer_qp_write(&p->link, 0, &sg, 1, addr, rkey, NULL);
}

void
peer_write_body(struct peer *p, uint32_t slot, uint64_t bytes)
{
	peer_write_at(p, p->link.extra, bytes, p->slot[slot].body, p->slot[slot].body_rkey);
}

void
peer_write_entry(struct peer *p, uint32_t slot, uint32_t imm, const struct xfer_desc *entry)
{
	const struct rdma_sge sg = {(uintptr_t)entry, XFER_DESC_BYTES, rdma_mr_lkey(p->link.mr)};

	(void)xfer_qp_write(
		&p->link, 0, &sg, 1, p->slot[slot].metadata, p->slot[slot].metadata_rkey, &imm);
	p->written++;
}

void
peer_write_nothing(struct peer *p, uint32_t imm)
{
	const struct rdma_sge sg = {(uintptr_t)p->link.extra, 0, rdma_mr_lkey(p->link.mr)};

	(void)xfer_qp_write(&p->link, 0, &sg, 1, 0, 0, &imm);
}
