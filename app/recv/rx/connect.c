/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connection requests of RoCE detectors, through the CM. A request names the stream. The stream's
 * queue pair is accepted, and the answer has its part of the card. When a connection ends, or its
 * detector connects again, the stream gets a new queue pair: earlier packets are then not accepted.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_random.h>

#include <rdma.h>

#include "log.h"
#include "rx/messages.h"
#include "rx/multicast.h"
#include "rx/ring.h"
#include "settings.h"

LOG_REGISTER("ingest", "ingest");

#define EVENTS		8  /* CM events of a call */
#define REFUSAL_SECONDS 60 /* a refusal that is repeated is logged again after this time */
#define BACKLOG		64 /* unanswered requests: one for each stream */

int
rx_connect_listen(struct rx_messages *m, uint32_t device)
{
	const uint16_t port = m->settings->ingest.service;

	m->listeners[device] =
		rdma_conn_listen(m->devices[device], RDMA_QP_UC, port, BACKLOG, NULL);
	if (m->listeners[device] != NULL)
		return 0;
	LOG(ERR, "cannot listen on [ingest] service = %u: %s\n", port, rte_strerror(rte_errno));
	return -rte_errno;
}

static const char *
name_peer(const struct rdma_event *e, char text[RDMA_ADDRESS_LEN])
{
	return rdma_address_text((const struct sockaddr *)&e->peer, text);
}

/**
 * Return true if this address may send the stream. Every address may if no source is configured.
 */
static bool
is_source(const struct rx_messages *m, uint32_t stream, const struct rdma_event *e)
{
	const struct sockaddr_in *four = (const struct sockaddr_in *)&e->peer;
	rte_be32_t address;

	if (!rx_messages_source(m, stream, &address))
		return true;
	return e->peer.ss_family == AF_INET && four->sin_addr.s_addr == address;
}

/** End a stream's connection, if it has one, and give it a new queue pair. */
static int
renew(struct rx_messages *m, struct rx_message_stream *st)
{
	int ret;

	/* also after an error: the next request then tries again */
	st->fresh = false;
	if (st->conn != NULL)
		rdma_conn_destroy(st->conn);
	st->conn = NULL;
	if (m->ring != NULL)
		rx_ring_detach(m->ring, st->stream);
	if (st->qp != NULL) {
		ret = rdma_qp_destroy(st->qp);
		if (ret != 0) {
			LOG(ERR, "stream %u: cannot replace its queue pair: %s\n", st->stream,
				rte_strerror(-ret));
			return ret;
		}
	}
	st->qp = NULL;
	if (m->settings->ingest.rkey == 0 && m->ring == NULL)
		m->card.stream[st->stream].rkey = (uint32_t)rte_rand();
	return rx_messages_open_stream(m, st->stream);
}

/** Return true if this refusal was logged recently. */
static bool
is_repeated(struct rx_messages *m, const char *why, const struct rdma_event *e)
{
	const uint64_t now = rte_rdtsc();
	char last[RDMA_ADDRESS_LEN], peer[RDMA_ADDRESS_LEN];
	const struct rdma_event before = {.peer = m->refusal.peer};
	const bool repeated = why == m->refusal.why &&
		now - m->refusal.at < REFUSAL_SECONDS * rte_get_tsc_hz() &&
		strcmp(name_peer(&before, last), name_peer(e, peer)) == 0;

	if (!repeated) {
		m->refusal.why = why;
		m->refusal.peer = e->peer;
		m->refusal.at = now;
	}
	return repeated;
}

/** Answer a request. */
static void
take_request(struct rx_messages *m, uint32_t device, const struct rdma_event *e)
{
	uint8_t answer[INGEST_PRIVATE_BYTES];
	const struct rdma_conn_attr attr = {
		.private_data = answer, .private_len = sizeof(answer), .context = m};
	struct ingest_request request;
	char from[RDMA_ADDRESS_LEN];
	const char *why = NULL;
	struct rx_message_stream *st;
	uint32_t stream = 0;
	int ret;

	if (ingest_request_decode(&request, e->private_data, e->private_len) != 0)
		why = "it is not a detector's request";
	else if ((stream = request.stream) >= m->card.streams ||
		m->streams[stream].device != device)
		why = "this port has no such stream: see [port N] streams";
	else if (request.transport != m->card.transport)
		why = "the detector has another transport: see [detector] transport";
	else if (request.credit_address != 0 && m->ring == NULL)
		why = "credits need [ingest] delivery = memory, which needs qpn and rkey = auto";
	else if (!is_source(m, stream, e))
		why = "its address is not [detector] source of the stream";
	if (why != NULL) {
		if (!is_repeated(m, why, e))
			LOG(WARNING, "connection of %s refused: %s\n", name_peer(e, from), why);
		rdma_conn_reject(e->conn, NULL, 0);
		return;
	}
	st = &m->streams[stream];
	ret = st->fresh ? 0 : renew(m, st);
	if (ret == 0) {
		st->fresh = false;
		if (m->ring != NULL)
			rx_ring_credit(
				m->ring, stream, request.credit_address, request.credit_rkey);
		ingest_card_to_private(&m->card, stream, answer);
		ret = rdma_conn_accept(e->conn, st->qp, &attr);
	}
	if (ret != 0) {
		LOG(ERR, "stream %u: cannot accept the connection of %s: %s\n", stream,
			name_peer(e, from), rte_strerror(-ret));
		rdma_conn_reject(e->conn, NULL, 0);
		return;
	}
	st->conn = e->conn;
	LOG(NOTICE, "stream %u: connected by %s\n", stream, name_peer(e, from));
}

/** A connection has ended: its stream may be connected again. */
static void
end_connection(struct rx_messages *m, const struct rdma_event *e)
{
	for (uint32_t s = 0; s < m->card.streams; s++) {
		struct rx_message_stream *st = &m->streams[s];

		if (st->conn == NULL || st->conn != e->conn)
			continue;
		LOG(INFO, "stream %u: the detector has disconnected\n", s);
		renew(m, st);
		return;
	}
}

int
rx_connect_poll(void *messages)
{
	struct rx_messages *m = messages;
	struct rdma_event event[EVENTS];
	int all = 0;

	if (m->multicast != NULL)
		return rx_multicast_control(m->multicast);
	for (uint32_t i = 0; i < m->nb_devices; i++) {
		const uint16_t n = rdma_poll_cm(m->devices[i], event, EVENTS);

		for (uint16_t k = 0; k < n; k++) {
			rx_messages_watch(m, i, &event[k]);
			if (event[k].type == RDMA_EVENT_CONNECT_REQUEST)
				take_request(m, i, &event[k]);
			else if (event[k].type == RDMA_EVENT_DISCONNECTED ||
				event[k].type == RDMA_EVENT_QP_ERROR)
				end_connection(m, &event[k]);
		}
		all += n;
	}
	return all;
}
