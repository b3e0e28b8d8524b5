/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control part of software RoCE: the input is a script of what a station sends to it - messages
 * of the CM that nearly fit, ARP, ICMP, IGMP, arbitrary frames - of what its own program asks for,
 * and of time that goes by. Whatever comes, all objects can be given back in the end.
 */
#include "seed_corpus.h"

#include <sanitizer/lsan_interface.h>

#include "../unit/roce_cm_rig.h"

#define CONNS  8
#define QPS    8
#define GROUP  "239.1.2.3"
#define SCRIPT 600 /* bytes of an input that are looked at */
/* Inputs that a device is kept for: to open one takes ten times longer than most of them. What a
 * crash needs may lie in the ones before it: ROCE_FUZZ_FRESH=1 tells. */
#define INPUTS 16

struct script {
	const uint8_t *bytes;
	size_t size, at;
};

/* What the station has heard of the device, to be taken up in its own messages. */
static uint32_t heard_id, heard_qpn;
static uint64_t heard_tid;
static struct rdma_conn *conns[CONNS], *requests[CONNS];
static struct rdma_qp *qps[QPS];

static uint8_t
next(struct script *s)
{
	return s->at < s->size ? s->bytes[s->at++] : 0;
}

static void
listen_in(const struct rte_mbuf *m)
{
	const uint8_t *mad = rig_mad(m);
	struct roce_cm_msg msg;

	if (!mad || roce_cm_decode(mad, &msg) < 0)
		return;
	heard_tid = msg.tid;
	heard_id = msg.rep.local_id; /* the first field of all */
	if (msg.attr == ROCE_CM_REP || msg.attr == ROCE_CM_REQ)
		heard_qpn = msg.attr == ROCE_CM_REP ? msg.rep.qpn : msg.req.qpn;
}

static void
fill_req(struct script *s, struct roce_cm_msg *msg)
{
	struct roce_cma cma = {.ip_version = 4, .port = 1234};
	uint8_t choice = next(s);

	msg->req = (struct roce_cm_req){
		.local_id = 0x1000 + (choice & 3),
		.service_id = (uint64_t)(choice & 0x20 ? ROCE_PORT_SPACE_UDP : ROCE_PORT_SPACE_TCP)
				<< 16 |
			(choice & 0x10 ? 9 : 7),
		.qpn = 0x20 + (choice >> 6),
		.responder_resources = 4,
		.initiator_depth = 4,
		.transport = choice >> 2 & 1,
		.psn = 77,
		.local_timeout = 10,
		.remote_timeout = 10,
		.retry_count = 7,
		.rnr_retry = 7,
		.pkey = 0xffff,
		.mtu = choice & 8 ? 3 : next(s),
		.cm_retries = 2,
		.primary = {.local_lid = 0xffff, .remote_lid = 0xffff, .hop_limit = 64},
	};
	memcpy(msg->req.primary.local_gid, rig[1].gid.raw, 16);
	memcpy(msg->req.primary.remote_gid, rig[0].gid.raw, 16);
	memcpy(cma.src + 12, rig[1].gid.raw + 12, 4);
	memcpy(cma.dst + 12, rig[0].gid.raw + 12, 4);
	roce_cma_encode(&cma, msg->req.private_data);
}

static void
send_cm(struct script *s)
{
	struct roce_cm_msg msg = {.attr = ROCE_CM_REQ + next(s) % 9, .tid = heard_tid};
	uint8_t mad[ROCE_MAD_BYTES], changes;

	switch (msg.attr) {
	case ROCE_CM_REQ:
		msg.tid = next(s);
		fill_req(s, &msg);
		break;
	case ROCE_CM_SIDR_REQ:
		fill_req(s, &msg);
		msg.sidr_req = (struct roce_sidr_req){.request_id = msg.req.local_id,
			.pkey = 0xffff,
			.service_id = (uint64_t)ROCE_PORT_SPACE_UDP << 16 | 7};
		break;
	case ROCE_CM_SIDR_REP:
		msg.sidr_rep = (struct roce_sidr_rep){
			.request_id = heard_id, .qpn = 0x33, .qkey = 0x01234567};
		break;
	case ROCE_CM_REP:
		msg.rep = (struct roce_cm_rep){.local_id = 0x1000 + (next(s) & 3),
			.remote_id = heard_id,
			.qpn = 0x44,
			.psn = 5,
			.responder_resources = 1,
			.initiator_depth = 1,
			.rnr_retry = 7};
		break;
	default:
		/* all others begin with both numbers; a DREQ names our queue pair, too */
		msg.dreq = (struct roce_cm_dreq){.local_id = 0x1000 + (next(s) & 3),
			.remote_id = heard_id,
			.qpn = heard_qpn};
	}
	roce_cm_encode(&msg, mad);
	for (changes = next(s) & 3; changes; changes--)
		mad[next(s)] = next(s);
	rig_send_mad(1, mad, ROCE_QKEY_CM, ROCE_QPN_CM);
}

static uint16_t
checksum(const uint8_t *b, unsigned int length)
{
	uint32_t sum = 0;

	for (unsigned int i = 0; i < length; i++)
		sum += i & 1 ? b[i] : b[i] << 8;
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t) ~(sum + (sum >> 16));
}

/* ICMP and IGMP with the checksums that they need to be looked at, or bytes as they are. */
static void
send_ip(struct script *s)
{
	uint8_t frame[14 + 20 + 64] = {0}, *ip = frame + 14, *body = ip + 20;
	uint8_t kind = next(s), length = next(s) % 64, i;
	uint16_t sum;

	memcpy(frame, &rig[0].mac, 6);
	memcpy(frame + 6, &rig[1].mac, 6);
	frame[12] = 8;
	ip[0] = 0x45;
	ip[3] = 20 + length;
	ip[8] = kind & 1 ? 1 : 64;
	ip[9] = kind & 2 ? IPPROTO_IGMP : IPPROTO_ICMP;
	memcpy(ip + 12, rig[1].gid.raw + 12, 4);
	memcpy(ip + 16, rig[0].gid.raw + 12, 4);
	if (kind & 4)
		memcpy(ip + 16, "\xe0\0\0\1", 4);
	if (kind & 8)
		memcpy(ip + 16, "\xef\1\2\3", 4);
	for (i = 0; i < length; i++)
		body[i] = next(s);
	if (length >= 4 && !(kind & 16)) {
		body[2] = body[3] = 0;
		sum = checksum(body, length);
		body[2] = sum >> 8;
		body[3] = sum;
	}
	sum = checksum(ip, 20);
	ip[10] = sum >> 8;
	ip[11] = sum;
	rig_send_bytes(1, frame, 14 + 20 + length);
}

/* A frame of a type that is looked at, with a body of any bytes; ARP begins as it should. */
static void
send_frame(struct script *s)
{
	static const uint16_t types[] = {0x0806, 0x0806, 0x0800, 0x86dd, 0x8100, 0x8915, 0, 0x0806};
	uint8_t frame[14 + 128], kind = next(s), length = next(s) % 128, i;

	memset(frame, 0, sizeof(frame));
	memcpy(frame, kind & 8 ? (const void *)"\xff\xff\xff\xff\xff\xff" : &rig[0].mac, 6);
	memcpy(frame + 6, &rig[1].mac, 6);
	frame[12] = types[kind & 7] >> 8;
	frame[13] = types[kind & 7];
	for (i = 0; i < length; i++)
		frame[14 + i] = next(s);
	if (types[kind & 7] == 0x0806 && !(kind & 16))
		memcpy(frame + 14, "\0\1\10\0\6\4\0", 7);
	rig_send_bytes(1, frame, 14 + length);
}

static struct rdma_qp *
take_qp(uint8_t choice)
{
	struct rdma_qp **qp = &qps[choice % QPS];

	/* a queue pair that had a connection is not taken again */
	if (*qp && rdma_qp_destroy(*qp) < 0)
		return NULL;
	return *qp = rig_qp(0, choice % 3);
}

static struct rdma_conn **
free_conn(void)
{
	for (unsigned int i = 0; i < CONNS; i++)
		if (!conns[i])
			return &conns[i];
	return NULL;
}

static void
call_api(struct script *s)
{
	uint8_t what = next(s), which = next(s) % CONNS;
	const struct rdma_conn_attr attr = {.timeout_ms = 200, .cm_retries = 2};
	struct rdma_conn **conn = free_conn(), *request = requests[which];
	struct sockaddr_in group = {.sin_family = AF_INET};
	struct rdma_qp *qp;

	switch (what & 7) {
	case 0 ... 1:
		qp = conn ? take_qp(what >> 3) : NULL;
		if (qp)
			*conn = rdma_conn_connect(qp, rig_address(1, 7), &attr);
		return;
	case 2 ... 3:
		qp = conn && request ? take_qp(what >> 3) : NULL;
		if (!qp)
			return;
		requests[which] = NULL;
		*conn = request;
		if (rdma_conn_accept(request, qp, &attr) < 0) {
			rdma_conn_destroy(request);
			*conn = NULL;
		}
		return;
	case 4:
		if (request)
			rdma_conn_reject(request, "no", 2);
		requests[which] = NULL;
		return;
	case 5:
		if (conns[which])
			rdma_conn_disconnect(conns[which]);
		return;
	case 6:
		if (conns[which])
			rdma_conn_destroy(conns[which]);
		conns[which] = NULL;
		return;
	default:
		inet_pton(AF_INET, GROUP, &group.sin_addr);
		qp = conn ? take_qp(2) : NULL;
		if (qp)
			*conn = rdma_multicast_join(qp, (struct sockaddr *)&group, NULL);
	}
}

static void
take_events(void)
{
	while (rig_has_event(0)) {
		struct rdma_event *event = &rig[0].events[rig[0].taken++];
		unsigned int i = 0;

		if (event->type != RDMA_EVENT_CONNECT_REQUEST)
			continue;
		while (i < CONNS && requests[i])
			i++;
		if (i < CONNS)
			requests[i] = event->conn;
		else
			rdma_conn_reject(event->conn, NULL, 0);
	}
	rig[0].taken = rig[0].nb_events = 0;
}

static void
play(struct script *s)
{
	struct rte_mbuf *m;

	while (s->at < s->size) {
		const uint8_t op = next(s);

		switch (op & 7) {
		case 0 ... 2:
			send_cm(s);
			break;
		case 3:
			send_ip(s);
			break;
		case 4:
			send_frame(s);
			break;
		case 5:
			call_api(s);
			break;
		default:
			rig_run(op & 0x80 ? op & 0x7f : 1);
		}
		rig_run(1);
		take_events();
		while ((m = rig_receive(1)))
			rte_pktmbuf_free(m);
	}
}

static struct rdma_conn *listener[2];

static void
finish(void)
{
	struct rte_mbuf *m;

	for (unsigned int i = 0; i < CONNS; i++) {
		if (requests[i])
			rdma_conn_reject(requests[i], NULL, 0);
		if (conns[i])
			rdma_conn_destroy(conns[i]);
		requests[i] = conns[i] = NULL;
	}
	rig_run(2);
	take_events();
	for (unsigned int i = 0; i < CONNS; i++) {
		if (requests[i])
			rdma_conn_reject(requests[i], NULL, 0);
		requests[i] = NULL;
	}
	for (unsigned int i = 0; i < QPS; i++) {
		if (qps[i] && rdma_qp_destroy(qps[i]) < 0)
			abort();
		qps[i] = NULL;
	}
	while ((m = rig_receive(1)))
		rte_pktmbuf_free(m);
}

/* A device lies in EAL's memory, where the search for leaks does not look for pointers. */
static void
open_device(void)
{
	__lsan_disable();
	rig_open(0, "ip=10.0.0.1/24,qps=32,mrs=8");
	__lsan_enable();
	rig_raw(1, "10.0.0.2");
	rig_wire.tap = listen_in;
	rig_known(1);
	listener[0] = rdma_conn_listen(rig[0].dev, RDMA_QP_RC, 7, 4, NULL);
	listener[1] = rdma_conn_listen(rig[0].dev, RDMA_QP_UD, 7, 4, NULL);
	if (!listener[0] || !listener[1])
		abort();
}

static void
close_device(void)
{
	rdma_conn_destroy(listener[0]);
	rdma_conn_destroy(listener[1]);
	rig_close();
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	/* REQ, time, accept, RTU, DREQ; connect, ARP, REP, DREQ; SIDR; groups */
	static const uint8_t passive[] = {0, 0, 1, 8, 0, 6, 5, 2, 0, 6, 0, 4, 0, 0, 6, 0, 5, 0, 0},
			     active[] = {5, 0, 0, 0x86, 0, 3, 0, 0, 0x86, 0, 4, 0, 0, 5, 5, 0, 6},
			     sidr[] = {0, 7, 8, 0, 0, 6, 5, 0x12, 0, 6, 5, 0x10, 0, 6, 0, 8, 0, 6},
			     group[] = {5, 7, 0, 0xff, 3, 6, 8, 0x11, 10, 0, 0, 0xef, 1, 2, 3, 0xff,
				     5, 6, 0, 0xff};
	uint8_t all[SCRIPT];
	size_t size = 0;

	rig_init((*argv)[0]);
	seed_begin(argc, argv);
	seed_add("passive", passive, sizeof(passive));
	seed_add("active", active, sizeof(active));
	seed_add("sidr", sidr, sizeof(sidr));
	seed_add("group", group, sizeof(group));
	/* all after one another: short seeds keep libFuzzer from long inputs */
	memcpy(all + size, passive, sizeof(passive));
	size += sizeof(passive);
	memcpy(all + size, active, sizeof(active));
	size += sizeof(active);
	memcpy(all + size, sidr, sizeof(sidr));
	size += sizeof(sidr);
	memcpy(all + size, group, sizeof(group));
	size += sizeof(group);
	seed_add("all", all, size);
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script s = {.bytes = data, .size = RTE_MIN(size, (size_t)SCRIPT)};
	static unsigned int inputs;

	heard_id = heard_qpn = 0;
	heard_tid = 0;
	if (!inputs)
		open_device();
	play(&s);
	finish();
	if (++inputs == INPUTS || getenv("ROCE_FUZZ_FRESH")) {
		close_device();
		inputs = 0;
	}
	return 0;
}
