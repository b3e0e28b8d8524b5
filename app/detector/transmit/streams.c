/* SPDX-License-Identifier: BSD-3-Clause */

#include "transmit/streams.h"

#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_malloc.h>

#include "rdma.h"
#include "transmit/address.h"
#include "transmit/credits.h"
#include "transmit/packet_loss.h"
#include "whole_number.h"
#include "wire/messages.h"

/* Maximum packets of a message: with the smallest path MTU. */
#define PACKETS_MAX \
	((INGEST_LEADER_BYTES + JUNGFRAU_PAYLOAD_BYTES + INGEST_TRAILER_BYTES + 255) / 256)

#define DEPTH 256 /* requests in a send queue: two frames of a stream */

#define COMPLETIONS 32
#define EVENTS	    8

#define CM_US		1000 /* time between two polls of the CM */
#define RETRY_MS	100  /* delay until a receiver that does not listen yet is tried again */
#define LINGER_MS	300  /* for a peer to empty a shared ring before the port is stopped */
#define END_MS		1000 /* to wait for the end of a connection or a queue pair */
#define REJ_NO_LISTENER 8    /* invalid service id (IBTA 12.6.7.2) */
#define HEADERS_BYTES	(14 + 20 + 8 + 12 + 4)

enum stream_state {
	STREAM_IDLE,	   /* not connected yet */
	STREAM_CONNECTING, /* the CM has sent a REQ */
	STREAM_UP,
	STREAM_REFUSED, /* REJ, or no answer: status says why */
	STREAM_DOWN	/* the receiver has disconnected, or the queue pair is in error */
};

struct stream {
	struct rdma_qp *qp;
	struct rdma_conn *conn; /* with --connect */
	enum stream_state state;
	int status;
	uint32_t remote_qpn;
	uint16_t private_len;
	uint8_t private_data[RDMA_PRIVATE_MAX];
	struct message_ends *ends; /* [DEPTH], by request modulo DEPTH */
	uint64_t posted;	   /* requests */
	uint64_t completed;	   /* requests */
	uint64_t packets;	   /* RoCE packets of the posted requests */
	struct transmit_credit credit;
};

struct transmit_streams {
	const struct detector_options *options;
	struct ingest_card card;
	struct sockaddr_storage to; /* with --connect */
	struct rdma_dev_info info;
	struct rdma_dev *dev;
	struct rdma_pd *pd;
	struct rdma_cq *cq;
	struct rdma_mr *ends_mr;
	struct message_ends *ends;
	struct rdma_mr *credits_mr; /* --credits */
	uint64_t *credits;	    /* [nb_streams] words that the receiver writes */
	struct rdma_mr **frame;	    /* [nb_frames], regions of the frames */
	uint32_t nb_frames;
	uint32_t nb_streams;
	uint32_t mtu; /* path MTU of all queue pairs, bytes; 0: not all are connected */
	struct packet_loss *loss;
	uint64_t next_cm; /* TSC */
	bool failed;
	bool ending; /* this side has disconnected */
	struct stream stream[INGEST_STREAMS_MAX];
};

static int
failed(const struct transmit_streams *s, const char *what)
{
	const int error = rte_errno != 0 ? rte_errno : EINVAL;

	warnx("--device %s: cannot %s: %s", s->options->device_name, what, rte_strerror(error));
	return -error;
}

/* ---- open ----------------------------------------------------------------------------------- */

/* Parse ADDRESS:PORT; an IPv6 address may be in brackets. */
static int
parse_connect(const char *text, struct sockaddr_storage *addr)
{
	const char *colon = strrchr(text, ':');
	char ip[INGEST_ADDRESS_LEN + 2], *start = ip;
	uint64_t port;

	if (colon != NULL && (size_t)(colon - text) < sizeof(ip)) {
		snprintf(ip, sizeof(ip), "%.*s", (int)(colon - text), text);
		if (ip[0] == '[' && ip[strlen(ip) - 1] == ']') {
			ip[strlen(ip) - 1] = '\0';
			start++;
		}
		if (whole_number(colon + 1, 1, UINT16_MAX, &port) &&
			transmit_address_parse(start, (uint16_t)port, addr) == 0)
			return 0;
	}
	warnx("--connect: found '%s', expected ADDRESS:PORT, as in 10.0.0.1:7471", text);
	return -EINVAL;
}

/* Whether single RoCE packets are to be lost, or PSNs used up by lost messages. */
static bool
loses_packets(const struct fault_options *faults)
{
	bool loses = faults->loss != 0.0 || faults->burst_loss != 0.0;

	for (unsigned int i = 0; i < FAULT_DROPS; i++)
		loses |= faults->drop[i] != 0.0;
	return loses;
}

static int
open_loss(struct transmit_streams *s)
{
	const struct fault_options *faults = &s->options->faults;
	const bool inside =
		faults->drop[0] != 0.0 || faults->drop[1] != 0.0 || faults->drop[2] != 0.0;

	/* an adapter loses messages and events by not sending them: without a gap of the PSNs */
	if (!loses_packets(faults) || (strcmp(s->info.provider, "roce") != 0 && !inside))
		return 0;
	return packet_loss_create(
		s->options->device_name, s->nb_streams, DEPTH * PACKETS_MAX, &s->loss);
}

static int
create_queue_pairs(struct transmit_streams *s)
{
	struct rdma_qp_attr attr = {
		.type = s->options->reliable ? RDMA_QP_RC : RDMA_QP_UC,
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.max_send_wr = DEPTH,
		.max_recv_wr = 1,
		.max_send_sge = 3, /* leader, pixels, trailer */
		/* a completion shows that leader and trailer may be used again */
		.signal_all = true,
		.retry_count = 0xff,
		.rnr_retry = 0xff,
	};

	if (s->card.mtu != 0)
		attr.max_mtu = (uint16_t)s->card.mtu;
	for (uint32_t i = 0; i < s->nb_streams; i++) {
		attr.context = &s->stream[i];
		s->stream[i].qp = rdma_qp_create(s->pd, &attr);
		if (s->stream[i].qp == NULL)
			return failed(s, "create a queue pair");
		s->stream[i].ends = s->ends + (size_t)i * DEPTH;
	}
	return 0;
}

static int
create_credits(struct transmit_streams *s)
{
	struct rdma_mr_attr attr = {.length = s->nb_streams * sizeof(*s->credits),
		.access = RDMA_ACCESS_LOCAL_WRITE | RDMA_ACCESS_REMOTE_WRITE,
		.gpu = -1};

	s->credits = rte_malloc("detector_credits", attr.length, RTE_CACHE_LINE_SIZE);
	if (s->credits == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->nb_streams; i++) {
		s->credits[i] = TRANSMIT_CREDIT_NONE;
		s->stream[i].credit.word = &s->credits[i];
	}
	attr.addr = s->credits;
	s->credits_mr = rdma_mr_reg(s->pd, &attr);
	return s->credits_mr != NULL ? 0 : failed(s, "register credits");
}

static int
open_device(struct transmit_streams *s)
{
	const size_t bytes = (size_t)s->nb_streams * DEPTH * sizeof(*s->ends);

	rte_errno = 0;
	s->dev = rdma_dev_open(s->options->device_name);
	if (s->dev == NULL)
		return failed(s, "open it");
	rdma_dev_info_get(s->dev, &s->info);
	if (s->card.mtu > s->info.mtu) {
		warnx("--device %s: found a path MTU of at most %u, expected the %u of the card; "
		      "increase the port's MTU",
			s->options->device_name, s->info.mtu, s->card.mtu);
		return -EINVAL;
	}
	s->pd = rdma_pd_alloc(s->dev);
	if (s->pd == NULL)
		return failed(s, "allocate a protection domain");
	s->cq = rdma_cq_create(s->dev, s->nb_streams * DEPTH, 0);
	if (s->cq == NULL)
		return failed(s, "create a completion queue");
	s->ends = rte_zmalloc("detector_ends", bytes, RTE_CACHE_LINE_SIZE);
	if (s->ends == NULL)
		return -ENOMEM;
	s->ends_mr = rdma_mr_reg(
		s->pd, &(struct rdma_mr_attr){.addr = s->ends, .length = bytes, .gpu = -1});
	if (s->ends_mr == NULL)
		return failed(s, "register leaders and trailers");
	if (s->options->credits) {
		const int ret = create_credits(s);

		if (ret != 0)
			return ret;
	}
	return create_queue_pairs(s);
}

int
transmit_streams_open(const struct detector_options *options, struct transmit_streams **streams)
{
	struct transmit_streams *s = calloc(1, sizeof(*s));
	int ret = 0;

	if (s == NULL)
		return -ENOMEM;
	s->options = options;
	s->nb_streams = options->wire.modules * options->wire.interfaces;
	if (options->card_path != NULL)
		ret = message_card_read(
			&s->card, options->card_path, options->transport, &options->wire);
	else
		ret = parse_connect(options->connect, &s->to);
	if (ret == 0)
		ret = open_device(s);
	if (ret == 0)
		ret = open_loss(s);
	if (ret != 0) {
		transmit_streams_close(s);
		return ret;
	}
	*streams = s;
	return 0;
}

/* Once, before the first frame, and directly: the model has made the frames in its own memory. */
int
transmit_streams_register(struct transmit_streams *s, const struct transmit_frames *frames)
{
	struct rdma_mr_attr attr = {
		.length = (uint64_t)frames->nb_payloads * JUNGFRAU_PAYLOAD_BYTES, .gpu = -1};

	s->frame = calloc(frames->nb_frames, sizeof(*s->frame));
	if (s->frame == NULL)
		return -ENOMEM;
	s->nb_frames = frames->nb_frames;
	for (uint32_t i = 0; i < frames->nb_frames; i++) {
		attr.addr = frames->frame[i].raw;
		s->frame[i] = rdma_mr_reg(s->pd, &attr);
		if (s->frame[i] == NULL)
			return failed(s, "register a frame; reduce --distinct");
	}
	return 0;
}

/* ---- connect -------------------------------------------------------------------------------- */

static uint64_t
deadline_after_ms(uint32_t ms)
{
	return rte_get_timer_cycles() + rte_get_timer_hz() / 1000 * ms;
}

/* Poll once. @return 0: continue; -EINTR: stop; -ENODEV: failed; -ETIMEDOUT: `end` has passed */
static int
poll_until(struct transmit_streams *s, uint64_t end, const volatile sig_atomic_t *stop)
{
	transmit_streams_poll(s);
	if (stop != NULL && *stop != 0)
		return -EINTR;
	if (s->failed)
		return -ENODEV;
	return rte_get_timer_cycles() >= end ? -ETIMEDOUT : 0;
}

/* Poll for some time, even after an error or a signal. */
static void
poll_for_ms(struct transmit_streams *s, uint32_t ms)
{
	const uint64_t end = deadline_after_ms(ms);

	do
		transmit_streams_poll(s);
	while (rte_get_timer_cycles() < end);
}

static int
connect_by_card(
	struct transmit_streams *s, uint32_t i, uint64_t end, const volatile sig_atomic_t *stop)
{
	const struct ingest_stream *to = &s->card.stream[i];
	struct rdma_qp_peer peer = {
		.qpn = to->qpn, .local_psn = to->psn, .mtu = (uint16_t)s->card.mtu};
	int ret, wait = 0;

	transmit_address_parse(to->ip, 0, &peer.addr); /* the card was checked */
	do {
		ret = rdma_qp_connect(s->stream[i].qp, &peer);
		if (ret != -EAGAIN && ret != -EHOSTUNREACH)
			break;
		wait = poll_until(s, end, stop);
	} while (wait == 0);
	if (wait == -EINTR)
		return wait;
	if (ret != 0) {
		warnx("stream %u: cannot reach %s of the card: %s; check the address and the link "
		      "(--link-wait)",
			i, to->ip, rte_strerror(-ret));
		return ret == -EAGAIN ? -ETIMEDOUT : ret;
	}
	s->stream[i].state = STREAM_UP;
	s->stream[i].remote_qpn = to->qpn;
	if (s->loss != NULL)
		packet_loss_stream(s->loss, i, &peer.addr, to->qpn);
	return 0;
}

/* Add the part of the card from a REP of the receiver. */
static int
take_part(struct transmit_streams *s, uint32_t i)
{
	const struct ingest_card before = s->card;
	const struct stream *stream = &s->stream[i];
	struct ingest_card *card = &s->card;

	if (ingest_card_from_private(card, i, stream->private_data, stream->private_len) != 0) {
		warnx("stream %u: the receiver at %s accepts the connection without a valid card; "
		      "is it braggline-recv with [detector] transport?",
			i, s->options->connect);
		return -EINVAL;
	}
	if (i > 0 &&
		(before.streams != card->streams || before.tiles != card->tiles ||
			before.slots != card->slots || before.slot_bytes != card->slot_bytes)) {
		warnx("stream %u: its card differs from that of stream 0, expected one receiver",
			i);
		return -EINVAL;
	}
	return message_card_check(
		card, s->options->connect, s->options->transport, &s->options->wire);
}

static int
request(struct transmit_streams *s, uint32_t i)
{
	struct ingest_request request = {.stream = i, .transport = s->options->transport};
	uint8_t data[INGEST_REQUEST_BYTES];
	const struct rdma_conn_attr attr = {
		.private_data = data, .private_len = sizeof(data), .context = &s->stream[i]};

	if (s->credits != NULL) {
		request.credit_address = (uintptr_t)&s->credits[i];
		request.credit_rkey = rdma_mr_rkey(s->credits_mr);
	}
	ingest_request_encode(&request, data);
	s->stream[i].state = STREAM_CONNECTING;
	s->stream[i].conn =
		rdma_conn_connect(s->stream[i].qp, (const struct sockaddr *)&s->to, &attr);
	return s->stream[i].conn == NULL ? failed(s, "connect") : 0;
}

static void
refused(const struct transmit_streams *s, uint32_t i)
{
	const int status = s->stream[i].status;
	char why[64];

	if (status < 0)
		snprintf(why, sizeof(why), "%s", rte_strerror(-status));
	else
		snprintf(why, sizeof(why), "rejected with reason %d%s", status,
			status == REJ_NO_LISTENER ? ", no listener" : "");
	warnx("stream %u: %s does not accept the connection: %s; check the receiver and --connect",
		i, s->options->connect, why);
}

static int
connect_by_cm(
	struct transmit_streams *s, uint32_t i, uint64_t end, const volatile sig_atomic_t *stop)
{
	struct stream *stream = &s->stream[i];
	struct rdma_qp_info info;
	int ret;

	for (;;) {
		ret = request(s, i);
		while (ret == 0 && stream->state == STREAM_CONNECTING)
			ret = poll_until(s, UINT64_MAX, stop);
		if (ret != 0 || stream->state == STREAM_UP)
			break;
		/* try again: the receiver may not listen yet */
		rdma_conn_destroy(stream->conn);
		stream->conn = NULL;
		poll_for_ms(s, RETRY_MS);
		ret = poll_until(s, end, stop);
		if (ret == 0)
			continue;
		if (ret == -ETIMEDOUT)
			refused(s, i);
		return ret;
	}
	if (ret != 0)
		return ret;
	rdma_qp_info_get(stream->qp, &info);
	if (s->loss != NULL)
		packet_loss_stream(s->loss, i, &s->to, stream->remote_qpn);
	ret = take_part(s, i);
	s->card.mtu = info.mtu; /* as the two ends have agreed */
	stream->credit.slots = s->card.slots;
	return ret;
}

int
transmit_streams_connect(
	struct transmit_streams *s, uint32_t seconds, const volatile sig_atomic_t *stop)
{
	const uint64_t end = rte_get_timer_cycles() + seconds * rte_get_timer_hz();
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < s->nb_streams; i++)
		ret = s->options->connect != NULL ? connect_by_cm(s, i, end, stop)
						  : connect_by_card(s, i, end, stop);
	if (ret == 0)
		s->mtu = s->card.mtu;
	return ret;
}

const struct ingest_card *
transmit_streams_card(const struct transmit_streams *s)
{
	return &s->card;
}

/* ---- poll ----------------------------------------------------------------------------------- */

static uint32_t
stream_index(const struct transmit_streams *s, const struct stream *stream)
{
	return (uint32_t)(stream - s->stream);
}

static void
stream_down(struct transmit_streams *s, struct stream *stream, const char *why)
{
	if (!s->ending && stream->state != STREAM_DOWN)
		warnx("stream %u: %s; the run ends", stream_index(s, stream), why);
	stream->state = STREAM_DOWN;
	s->failed = true;
}

static void
take_event(struct transmit_streams *s, const struct rdma_event *event)
{
	struct stream *stream = event->conn != NULL ? rdma_conn_context(event->conn) : NULL;

	/* an event without a connection is an error of a queue pair */
	for (uint32_t i = 0; stream == NULL && event->qp != NULL && i < s->nb_streams; i++)
		if (s->stream[i].qp == event->qp)
			stream = &s->stream[i];
	switch (event->type) {
	case RDMA_EVENT_DEVICE_REMOVED:
		warnx("--device %s: it was removed", s->options->device_name);
		s->failed = true;
		return;
	case RDMA_EVENT_ESTABLISHED:
		if (stream == NULL)
			return;
		stream->state = STREAM_UP;
		stream->remote_qpn = event->remote_qpn;
		stream->private_len = event->private_len;
		memcpy(stream->private_data, event->private_data, event->private_len);
		return;
	case RDMA_EVENT_REJECTED:
	case RDMA_EVENT_UNREACHABLE:
		if (stream == NULL)
			return;
		stream->state = STREAM_REFUSED;
		stream->status = event->status;
		return;
	case RDMA_EVENT_DISCONNECTED:
		if (stream != NULL)
			stream_down(s, stream, "the receiver has disconnected");
		return;
	case RDMA_EVENT_QP_ERROR:
		if (stream != NULL)
			stream_down(s, stream, "its queue pair is in error");
		return;
	default:
		return;
	}
}

static void
poll_cm(struct transmit_streams *s)
{
	struct rdma_event event[EVENTS];
	const uint64_t now = rte_get_timer_cycles();
	uint16_t n;

	if ((int64_t)(now - s->next_cm) < 0)
		return;
	s->next_cm = now + rte_get_timer_hz() / 1000000 * CM_US;
	n = rdma_poll_cm(s->dev, event, EVENTS);
	for (uint16_t i = 0; i < n; i++)
		take_event(s, &event[i]);
}

bool
transmit_streams_poll(struct transmit_streams *s)
{
	struct rdma_wc wc[COMPLETIONS];
	unsigned int work = 0;
	uint16_t n;

	for (uint16_t g = 0; g < s->info.nb_poll_groups; g++)
		work += rdma_progress(s->dev, g);
	n = rdma_poll_cq(s->cq, wc, COMPLETIONS);
	for (uint16_t i = 0; i < n; i++) {
		struct stream *stream = wc[i].qp_context;

		if (wc[i].status != RDMA_WC_SUCCESS)
			stream_down(s, stream, rdma_wc_status_name(wc[i].status));
		else
			stream->completed = wc[i].wr_id;
	}
	poll_cm(s);
	return work + n > 0;
}

bool
transmit_streams_failed(const struct transmit_streams *s)
{
	return s->failed;
}

bool
transmit_streams_idle(const struct transmit_streams *s)
{
	for (uint32_t i = 0; i < s->nb_streams; i++)
		if (s->stream[i].completed != s->stream[i].posted)
			return false;
	return true;
}

uint64_t
transmit_streams_packets(const struct transmit_streams *s)
{
	struct rdma_xstat x[128];
	const int n = rdma_xstats_get(s->dev, x, RTE_DIM(x));

	for (int i = 0; i < RTE_MIN(n, (int)RTE_DIM(x)); i++)
		if (strcmp(x[i].name, "tx_packets") == 0)
			return x[i].value;
	return 0;
}

/* ---- post ----------------------------------------------------------------------------------- */

bool
transmit_streams_credit(
	struct transmit_streams *s, uint32_t stream, uint64_t pulse, uint64_t number)
{
	return transmit_credit_take(&s->stream[stream].credit, pulse, number);
}

bool
transmit_streams_event_again(struct transmit_streams *s, uint32_t stream)
{
	const struct transmit_credit *credit = &s->stream[stream].credit;
	const struct transmit_message event = {.stream = stream,
		.immediate = ingest_immediate(stream, credit->next - 1),
		.dropped = TRANSMIT_DROP_NONE};

	if (credit->pulse == 0 || transmit_streams_ends(s, stream) == NULL)
		return false;
	transmit_streams_post(s, &event);
	return true;
}

struct message_ends *
transmit_streams_ends(struct transmit_streams *s, uint32_t stream)
{
	struct stream *to = &s->stream[stream];

	return to->posted - to->completed < DEPTH ? &to->ends[to->posted % DEPTH] : NULL;
}

static void
mark_lost(struct transmit_streams *s, const struct transmit_message *message, uint32_t packets)
{
	const uint64_t first = s->stream[message->stream].packets;

	if (message->dropped == TRANSMIT_DROP_ALL) {
		for (uint32_t i = 0; i < packets; i++)
			packet_loss_mark(s->loss, message->stream, first + i);
	} else if (message->dropped < packets) {
		packet_loss_mark(s->loss, message->stream, first + message->dropped);
	}
}

/* Bytes of the packets of a message that are not dropped, without the frame check sequence. */
static uint32_t
wire_bytes(
	const struct transmit_streams *s, const struct transmit_message *message, uint32_t packets)
{
	const bool write = s->options->transport == INGEST_WRITE;
	const uint32_t l3 = s->info.addr.ss_family == AF_INET6 ? 20 : 0; /* more than IPv4 */
	const uint32_t header = HEADERS_BYTES + l3, reth = write ? 16 : 0;
	const uint32_t bytes = (uint32_t)ingest_message_bytes(&s->card);
	const uint32_t last = bytes - (packets - 1) * s->mtu;

	if (message->dropped == TRANSMIT_DROP_ALL)
		return 0;
	if (message->pixels == NULL)
		return header + reth + 4;
	if (message->dropped == 0)
		return (packets - 1) * header + bytes - s->mtu;
	if (message->dropped == packets - 1)
		return (packets - 1) * header + reth + bytes - last;
	if (message->dropped < packets)
		return (packets - 1) * header + reth + bytes - s->mtu;
	return packets * header + reth + bytes;
}

uint32_t
transmit_streams_post(struct transmit_streams *s, const struct transmit_message *message)
{
	const bool write = s->options->transport == INGEST_WRITE, event = message->pixels == NULL;
	const uint32_t packets = event ? 1 : message_packets(&s->card);
	struct stream *to = &s->stream[message->stream];
	const struct message_ends *ends = &to->ends[to->posted % DEPTH];
	const struct rdma_sge sg[3] = {
		{.addr = (uintptr_t)ends->leader,
			.length = s->card.leader_bytes,
			.lkey = rdma_mr_lkey(s->ends_mr)},
		{.addr = (uintptr_t)message->pixels,
			.length = JUNGFRAU_PAYLOAD_BYTES,
			.lkey = event ? 0 : rdma_mr_lkey(s->frame[message->frame])},
		{.addr = (uintptr_t)ends->trailer,
			.length = INGEST_TRAILER_BYTES,
			.lkey = rdma_mr_lkey(s->ends_mr)},
	};
	const uint32_t from = s->card.leader_bytes == 0;
	struct rdma_send_wr wr = {
		.wr_id = to->posted + 1,
		.sg = sg + from,
		.nb_sge = event ? 0 : RTE_DIM(sg) - from,
		.imm = message->immediate,
	};

	if (event)
		wr.op = write ? RDMA_OP_WRITE_IMM : RDMA_OP_SEND_IMM;
	else
		wr.op = write ? RDMA_OP_WRITE : RDMA_OP_SEND;
	if (write && !event) {
		wr.remote_addr = message->address;
		wr.rkey = s->card.stream[message->stream].rkey;
	}
	if (s->loss != NULL)
		mark_lost(s, message, packets);
	else if (message->dropped == TRANSMIT_DROP_ALL)
		return 0;
	if (rdma_post_send(to->qp, &wr, 1) != 1) {
		stream_down(s, to, rte_strerror(rte_errno));
		return 0;
	}
	to->posted++;
	to->packets += packets;
	return wire_bytes(s, message, packets);
}

/* ---- close ---------------------------------------------------------------------------------- */

static void
disconnect(struct transmit_streams *s)
{
	const uint64_t end = deadline_after_ms(END_MS);
	bool up;

	s->ending = true;
	for (uint32_t i = 0; i < s->nb_streams; i++)
		if (s->stream[i].conn != NULL && s->stream[i].state == STREAM_UP)
			rdma_conn_disconnect(s->stream[i].conn);
	do {
		transmit_streams_poll(s);
		up = false;
		for (uint32_t i = 0; i < s->nb_streams; i++)
			up |= s->stream[i].conn != NULL && s->stream[i].state == STREAM_UP;
	} while (up && rte_get_timer_cycles() < end);
	for (uint32_t i = 0; i < s->nb_streams; i++)
		if (s->stream[i].conn != NULL)
			rdma_conn_destroy(s->stream[i].conn);
}

/* Deregister a region when no request refers to it. */
static void
deregister(struct transmit_streams *s, struct rdma_mr *mr)
{
	const uint64_t end = deadline_after_ms(END_MS);

	while (mr != NULL && rdma_mr_dereg(mr) == -EBUSY && rte_get_timer_cycles() < end)
		transmit_streams_poll(s);
}

static void
destroy_objects(struct transmit_streams *s)
{
	const uint64_t end = deadline_after_ms(END_MS);

	for (uint32_t i = 0; i < s->nb_streams; i++)
		while (s->stream[i].qp != NULL && rdma_qp_destroy(s->stream[i].qp) == -EBUSY &&
			rte_get_timer_cycles() < end)
			transmit_streams_poll(s);
	for (uint32_t i = 0; i < s->nb_frames; i++)
		deregister(s, s->frame[i]);
	deregister(s, s->ends_mr);
	deregister(s, s->credits_mr);
	if (s->cq != NULL)
		rdma_cq_destroy(s->cq);
	if (s->pd != NULL)
		rdma_pd_free(s->pd);
}

void
transmit_streams_close(struct transmit_streams *s)
{
	if (s == NULL)
		return;
	if (s->cq != NULL)
		disconnect(s);
	if (s->mtu != 0)
		poll_for_ms(s, LINGER_MS);
	if (s->dev != NULL) {
		destroy_objects(s);
		packet_loss_destroy(s->loss);
		rdma_dev_close(s->dev);
	}
	rte_free(s->ends);
	rte_free(s->credits);
	free(s->frame);
	free(s);
}
