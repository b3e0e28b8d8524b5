/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens RoCE devices on the ports, creates and connects the queue pairs of the streams. */

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_random.h>
#include <rte_udp.h>

#include <rdma.h>
#include <rdma_roce.h>

#include "log.h"
#include "port/port.h"
#include "rx/messages.h"
#include "rx/multicast.h"
#include "rx/ring.h"
#include "settings.h"

LOG_REGISTER("ingest", "ingest");

/** Address of slot 0 of stream 0. Addresses of messages by reference are only identifiers. */
#define FIRST_BASE (UINT64_C(1) << 40)

void
rx_messages_describe(struct ingest_card *card, const struct settings *s)
{
	const struct detector *d = &s->detector;

	card->transport = s->ingest.transport;
	card->streams = d->streams;
	card->mtu = s->ingest.mtu;
	card->tile_bytes = d->ops->pixel_bytes;
	card->trailer_bytes = INGEST_TRAILER_BYTES;
	/* gangs read the ring while the sender may write to it */
	card->leader_bytes = settings_in_memory(s) ? INGEST_LEADER_BYTES : 0;
	card->tiles = d->stream_packets;
	card->slots = card->transport == INGEST_SEND ? 1 : s->ingest.slots;
	card->slot_bytes = card->tiles * ingest_message_bytes(card);
}

/** The headers that replace those of a stream's packets. */
static void
make_headers(struct rx_messages *m, uint32_t stream)
{
	struct rte_ether_hdr *ether = (struct rte_ether_hdr *)m->headers[stream];
	struct rte_ipv4_hdr ip = {.version_ihl = RTE_IPV4_VHL_DEF,
				    .time_to_live = 64,
				    .next_proto_id = IPPROTO_UDP},
			    mask;
	const struct source_filter *f = &m->settings->sources.filter[stream];
	const uint16_t length = sizeof(struct rte_udp_hdr) + m->card.tile_bytes +
		m->settings->detector.ops->header_bytes;
	struct rte_udp_hdr udp = {.dst_port = rte_cpu_to_be_16(m->settings->udp_port + stream),
		.dgram_len = rte_cpu_to_be_16(length)};

	memcpy(m->headers[stream], &f->value[0], sizeof(f->value[0]));
	memcpy(m->headers[stream] + sizeof(f->value[0]), &f->value[1], sizeof(uint32_t));
	ether->ether_type = RTE_BE16(RTE_ETHER_TYPE_IPV4);
	source_filter_ipv4(f, &ip, &mask);
	ip.total_length = rte_cpu_to_be_16(sizeof(ip) + length);
	memcpy(ether + 1, &ip, sizeof(ip));
	udp.src_port = f->port;
	memcpy(m->headers[stream] + sizeof(*ether) + sizeof(ip), &udp, sizeof(udp));
}

bool
rx_messages_source(const struct rx_messages *m, uint32_t stream, rte_be32_t *address)
{
	struct rte_ipv4_hdr spec, mask;

	source_filter_ipv4(&m->settings->sources.filter[stream], &spec, &mask);
	*address = spec.src_addr;
	return mask.src_addr != 0;
}

void
rx_messages_name_device(const struct port_settings *port, uint16_t id, uint32_t mtu,
	uint32_t queues, bool replay, char name[])
{
	if (port->adapter)
		snprintf(name, RDMA_NAME_MAX, "%s", port->rdma);
	else
		snprintf(name, RDMA_NAME_MAX, "roce:port=%u,%s,mtu=%u,queue=0,poll_groups=%u%s", id,
			port->rdma, mtu, queues, replay ? ",steer=no" : "");
}

static int
open_device(struct rx_messages *m, struct port *port)
{
	char name[RDMA_NAME_MAX];
	struct rdma_dev *dev;

	rx_messages_name_device(
		port->settings, port->id, m->card.mtu, port->nb_queues, port->replay, name);
	dev = rdma_dev_open(name);
	if (dev == NULL)
		return -rte_errno;
	port->dev = dev;
	m->devices[m->nb_devices++] = dev;
	return 0;
}

/** Connect a queue pair that is configured by hand. */
static int
connect_by_hand(struct rx_messages *m, uint32_t stream)
{
	struct rdma_qp_peer peer = {.mtu = m->card.mtu};
	struct sockaddr_in *four = (struct sockaddr_in *)&peer.addr;
	int ret;

	if (rx_messages_source(m, stream, &four->sin_addr.s_addr))
		four->sin_family = AF_INET;
	ret = rdma_qp_connect(m->streams[stream].qp, &peer);
	if (ret != 0)
		LOG(ERR, "stream %u: cannot connect its queue pair: %s%s\n", stream,
			rte_strerror(-ret),
			peer.addr.ss_family == AF_UNSPEC
				? "; set [detector] source, or [ingest] service"
				: "");
	return ret;
}

int
rx_messages_open_stream(struct rx_messages *m, uint32_t stream)
{
	const struct ingest_settings *s = &m->settings->ingest;
	struct rx_message_stream *st = &m->streams[stream];
	struct ingest_stream *of = &m->card.stream[stream];
	struct rdma_roce_reference reference = {
		.base = of->base,
		.length =
			m->card.transport == INGEST_WRITE ? m->card.slots * m->card.slot_bytes : 0,
		.rkey = of->rkey,
		.max_bytes = ingest_message_bytes(&m->card),
		.qpn = s->qpn != 0 ? s->qpn + stream : 0,
	};
	struct rdma_qp_attr attr = {.type = RDMA_QP_UC,
		.poll_group = st->poll_group,
		.send_cq = st->cq,
		.recv_cq = st->cq,
		.context = st,
		.max_mtu = m->card.mtu,
		.trust_icrc = !s->check_icrc,
		.receive_only = true};
	struct rdma_qp_info info;
	int ret = 0;

	if (m->ring != NULL)
		rx_ring_describe(m->ring, stream, &attr);
	else
		attr.reference = &reference;
	st->qp = rdma_qp_create(st->pd, &attr);
	if (st->qp == NULL)
		return -rte_errno;
	rdma_qp_info_get(st->qp, &info);
	of->qpn = info.qpn;
	of->psn = 0;
	if (m->ring != NULL)
		ret = rx_ring_attach(m->ring, stream);
	if (ret == 0 && s->service == 0)
		ret = connect_by_hand(m, stream);
	st->fresh = ret == 0;
	return ret;
}

/** Own address of a device, as text. */
static void
name_address(struct rdma_dev *dev, char text[RDMA_ADDRESS_LEN])
{
	struct rdma_dev_info info;

	rdma_dev_info_get(dev, &info);
	rdma_address_text((const struct sockaddr *)&info.addr, text);
}

/** Assign a stream to its device and poll group, and enter its known values in the card. */
static int
assign_stream(struct rx_messages *m, const struct port *port, uint32_t device, uint32_t stream,
	uint8_t owner)
{
	const struct ingest_settings *s = &m->settings->ingest;
	struct rx_message_stream *st = &m->streams[stream];
	struct ingest_stream *of = &m->card.stream[stream];
	uint32_t q;

	name_address(m->devices[device], of->ip);
	of->rkey = s->rkey != 0 ? s->rkey : (uint32_t)rte_rand();
	of->base = FIRST_BASE + (uint64_t)stream * m->card.slots * m->card.slot_bytes;
	make_headers(m, stream);
	st->stream = stream;
	st->device = device;
	st->pd = rdma_pd_alloc(m->devices[device]);
	if (st->pd == NULL)
		return -ENOMEM;
	for (q = 0; q < port->nb_queues && port->queue_rx[q] != owner; q++)
		;
	if (q == port->nb_queues) {
		LOG(ERR,
			"%s: %u queues, expected one for each RX lcore that has streams of it: set "
			"[lcores] rx_lcores lower\n",
			port->name, port->nb_queues);
		return -ENOTSUP;
	}
	st->poll_group = q;
	return 0;
}

static int
open_devices(struct rx_messages *m, struct port *ports, const uint8_t *owner)
{
	const struct settings *s = m->settings;
	int ret = 0;

	for (uint32_t i = 0; i < s->nb_ports && ret == 0; i++) {
		ret = open_device(m, &ports[i]);
		if (ret == 0 && s->ingest.service != 0 && m->card.transport != INGEST_MULTICAST)
			ret = rx_connect_listen(m, i);
		for (uint32_t k = 0; ret == 0 && k < s->ports[i].nb_streams; k++) {
			const uint32_t stream = s->ports[i].streams[k];

			ret = assign_stream(m, &ports[i], i, stream, owner[stream]);
		}
	}
	return ret;
}

/** Create the queue pairs, and before them the memory that they write. */
static int
open_streams(struct rx_messages *m, struct memory *memory)
{
	int ret = 0;

	if (settings_in_memory(m->settings)) {
		m->ring = rx_ring_create(m, memory);
		if (m->ring == NULL)
			return -rte_errno;
	}
	if (m->card.transport == INGEST_MULTICAST) {
		m->multicast = rx_multicast_create(m);
		return m->multicast != NULL ? 0 : -rte_errno;
	}
	for (uint32_t i = 0; i < m->card.streams && ret == 0; i++) {
		struct rx_message_stream *st = &m->streams[i];

		if (m->ring == NULL) {
			st->cq = rdma_cq_create(m->devices[st->device], 1, st->poll_group);
			if (st->cq == NULL)
				return -rte_errno;
		}
		ret = rx_messages_open_stream(m, i);
	}
	return ret;
}

static int
publish_card(const struct rx_messages *m)
{
	const struct ingest_settings *s = &m->settings->ingest;
	int ret;

	if (m->multicast != NULL)
		return 0;
	if (s->card == NULL) {
		if (s->service == 0)
			LOG(NOTICE,
				"no [ingest] card: the detector must know queue pair numbers%s\n",
				m->card.transport == INGEST_WRITE ? ", keys and addresses" : "");
		return 0;
	}
	ret = ingest_card_write(&m->card, s->card);
	if (ret != 0)
		LOG(ERR, "cannot write [ingest] card = %s: %s\n", s->card, rte_strerror(-ret));
	else
		LOG(NOTICE, "card of %u streams in %s\n", m->card.streams, s->card);
	return ret;
}

struct rx_messages *
rx_messages_create(
	const struct settings *s, struct port *ports, const uint8_t *owner, struct memory *memory)
{
	struct rx_messages *m = rte_zmalloc("rx_messages", sizeof(*m), RTE_CACHE_LINE_SIZE);
	int ret;

	if (m == NULL)
		return NULL;
	m->settings = s;
	rx_messages_describe(&m->card, s);
	ret = open_devices(m, ports, owner);
	if (ret == 0)
		ret = open_streams(m, memory);
	if (ret == 0)
		ret = publish_card(m);
	if (ret == 0)
		return m;
	rx_messages_destroy(m);
	rte_errno = -ret;
	return NULL;
}

void
rx_messages_watch(struct rx_messages *m, uint32_t device, const struct rdma_event *event)
{
	if (event->type == RDMA_EVENT_DEVICE_REMOVED)
		__atomic_store_n(&m->lost, device + 1, __ATOMIC_RELAXED);
}

bool
rx_messages_lost(const struct rx_messages *m, char *name, size_t size)
{
	const uint32_t lost = __atomic_load_n(&m->lost, __ATOMIC_RELAXED);
	struct rdma_dev_info info;

	if (lost == 0)
		return false;
	rdma_dev_info_get(m->devices[lost - 1], &info);
	rte_strscpy(name, info.name, size);
	return true;
}

void
rx_messages_destroy(struct rx_messages *m)
{
	if (m == NULL)
		return;
	for (uint32_t s = 0; s < m->card.streams; s++) {
		struct rx_message_stream *st = &m->streams[s];

		if (st->conn != NULL)
			rdma_conn_destroy(st->conn);
		if (st->qp != NULL)
			rdma_qp_destroy(st->qp);
		if (st->cq != NULL)
			rdma_cq_destroy(st->cq);
	}
	rx_multicast_destroy(m->multicast);
	rx_ring_destroy(m->ring);
	for (uint32_t s = 0; s < m->card.streams; s++)
		if (m->streams[s].pd != NULL)
			rdma_pd_free(m->streams[s].pd);
	for (uint32_t i = 0; i < m->nb_devices; i++) {
		if (m->listeners[i] != NULL)
			rdma_conn_destroy(m->listeners[i]);
		rdma_dev_close(m->devices[i]);
	}
	rte_free(m);
}
