/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control lcore of a RoCE device. The input is a script of frames (arbitrary bytes, IP packets with
 * a correct checksum, MADs with a correct ICRC whose numbers may belong to existing connections),
 * of calls of the application, and of time that passes. In the end there must be no connections and
 * no events, and all mbufs must be free.
 */

#include "seed_corpus.h"

#include "../unit/roce/roce_cm_rig.h"

#include "net/arp.h"

#define US	0
#define THEM	1
#define PORT	7174
#define L2	14
#define CONNS	8
#define NUMBERS 16

struct script {
	const uint8_t *bytes;
	size_t size, at;
};

static struct rdma_conn *listener, *datagrams;
static struct rdma_conn *conns[CONNS];
static struct rdma_qp *qps[CONNS];
static uint32_t numbers[NUMBERS]; /* IDs and queue pair numbers that our device has sent */
static unsigned int nb_numbers;

static uint8_t
next(struct script *s)
{
	return s->at < s->size ? s->bytes[s->at++] : 0;
}

static void
check(bool fine, const char *what)
{
	if (fine)
		return;
	fprintf(stderr, "%s\n", what);
	abort();
}

/** Random input hardly ever has valid numbers, so take them from the packets that we sent. */
static void
listen_to_us(void)
{
	struct rte_mbuf *m;

	while ((m = rig_receive(THEM))) {
		const uint8_t *mad = rig_mad(m);
		struct roce_cm_msg msg;

		if (mad && roce_cm_decode(mad, &msg) == 0) {
			numbers[nb_numbers++ % NUMBERS] = msg.rep.local_id;
			if (msg.attr == ROCE_CM_REP || msg.attr == ROCE_CM_REQ)
				numbers[nb_numbers++ % NUMBERS] =
					msg.attr == ROCE_CM_REP ? msg.rep.qpn : msg.req.qpn;
		}
		rte_pktmbuf_free(m);
	}
}

static uint32_t
number(struct script *s)
{
	const uint8_t which = next(s);

	return which & 0x80 ? which & 3 : numbers[which % NUMBERS];
}

static void
arbitrary_frame(struct script *s)
{
	uint8_t frame[L2 + 255];
	const unsigned int length = L2 + next(s);
	static const uint8_t types[][2] = {{8, 0}, {8, 6}, {0x86, 0xdd}, {0x81, 0}};

	memcpy(frame, &rig[US].mac, 6);
	memcpy(frame + 6, &rig[THEM].mac, 6);
	memcpy(frame + 12, types[next(s) % RTE_DIM(types)], 2);
	for (unsigned int i = L2; i < length; i++)
		frame[i] = next(s);
	rig_send_bytes(THEM, frame, length);
}

/** IPv4 or IPv6 with a correct checksum, with ICMP, IGMP or ICMPv6. */
static void
ip_packet(struct script *s)
{
	const uint8_t kind = next(s);
	const bool v4 = kind & 1;
	const struct roce_dev *dev = roce_dev(rig[US].dev);
	struct roce_ip ip = {
		.src = v4	    ? rig[THEM].gid
			: kind & 32 ? (struct roce_gid){{0xfe, 0x80, [15] = 2}} /* a router */
				    : (struct roce_gid){{0xfd, [15] = 2}},
		.dst = v4 ? dev->ip4 : dev->ip6,
		.proto = !v4	   ? IPPROTO_ICMPV6
			: kind & 2 ? IPPROTO_IGMP
				   : IPPROTO_ICMP,
		.hop_limit = kind & 4 ? 255 : 1,
		.router_alert = kind & 8,
	};
	uint8_t frame[L2 + ROCE_IP_BYTES_MAX + 64] = {0}, payload[64] = {0};
	unsigned int length;
	rte_be16_t sum;

	if (kind & 16)
		ip.dst = v4 ? roce_gid_v4(RTE_BE32(0xe0000001))
			    : (struct roce_gid){{0xff, 0x02, [15] = 1}};
	ip.payload_len = 4 + next(s) % 60;
	for (unsigned int i = 0; i < ip.payload_len; i++)
		payload[i] = next(s);
	memset(payload + 2, 0, 2);
	sum = roce_ip_payload_cksum(&ip, payload);
	memcpy(payload + 2, &sum, 2);
	memcpy(frame, &rig[US].mac, 6);
	memcpy(frame + 6, &rig[THEM].mac, 6);
	memcpy(frame + 12, v4 ? (uint8_t[]){8, 0} : (uint8_t[]){0x86, 0xdd}, 2);
	length = L2 + roce_ip_encode(&ip, frame + L2);
	memcpy(frame + length, payload, ip.payload_len);
	rig_send_bytes(THEM, frame, length + ip.payload_len);
}

/** A CM message: its numbers may be valid, up to seven other bytes are arbitrary. */
static void
cm_message(struct script *s)
{
	const struct roce_cma cma = {
		.ip_version = 4, .src = {[12] = 10, 99, 0, 2}, .dst = {[12] = 10, 99, 0, 1}};
	struct roce_cm_msg msg = {.attr = ROCE_CM_REQ + next(s) % 9, .tid = next(s) & 3};
	uint8_t mad[ROCE_MAD_BYTES];
	uint8_t changes;

	switch (msg.attr) {
	case ROCE_CM_REQ:
		msg.req = (struct roce_cm_req){
			.local_id = number(s),
			.service_id = (uint64_t)ROCE_PORT_SPACE_TCP << 16 | PORT,
			.qpn = number(s),
			.pkey = 0xffff,
			.mtu = 3,
		};
		memcpy(msg.req.primary.local_gid, rig[THEM].gid.raw, 16);
		memcpy(msg.req.primary.remote_gid, rig[US].gid.raw, 16);
		roce_cma_encode(&cma, msg.req.private_data);
		break;
	case ROCE_CM_SIDR_REQ:
		msg.sidr_req.request_id = number(s);
		msg.sidr_req.service_id = (uint64_t)ROCE_PORT_SPACE_UDP << 16 | PORT;
		roce_cma_encode(&cma, msg.sidr_req.private_data);
		break;
	case ROCE_CM_SIDR_REP:
		msg.sidr_rep.request_id = number(s);
		break;
	default:
		msg.rep.local_id = number(s);
		msg.rep.remote_id = number(s);
		if (msg.attr == ROCE_CM_REP)
			msg.rep.qpn = number(s);
		if (msg.attr == ROCE_CM_DREQ)
			msg.dreq.qpn = number(s);
		if (msg.attr == ROCE_CM_REJ)
			msg.rej.reason = next(s) & 31;
	}
	roce_cm_encode(&msg, mad);
	for (changes = next(s) & 7; changes > 0; changes--) {
		const uint8_t at = next(s);

		mad[at] = next(s);
	}
	rig_send_mad(THEM, mad, ROCE_QKEY_CM, ROCE_QPN_CM);
}

static void
arp(struct script *s)
{
	const uint8_t kind = next(s);
	const struct roce_arp arp = {
		.op = kind & 1 ? ROCE_ARP_REQUEST : ROCE_ARP_REPLY,
		.sender_mac = {{2, 0, 0, 0, 0, next(s)}},
		.sender_ip = rte_cpu_to_be_32(0x0a630000 | next(s)),
		.target_ip = rte_cpu_to_be_32(0x0a630000 | next(s)),
	};
	uint8_t frame[L2 + ROCE_ARP_BYTES];

	memset(frame, 0xff, 6);
	memcpy(frame + 6, &arp.sender_mac, 6);
	memcpy(frame + 12, (uint8_t[]){8, 6}, 2);
	roce_arp_encode(&arp, frame + L2);
	rig_send_bytes(THEM, frame, sizeof(frame));
}

/** A call of the application for one of its connections. */
static void
application(struct script *s)
{
	const uint8_t what = next(s), i = (what >> 4) % CONNS;

	switch (what & 7) {
	case 0:
	case 1:
		if (conns[i])
			return;
		qps[i] = rig_qp(US, what & 1 ? RDMA_QP_RC : RDMA_QP_UD);
		conns[i] = rdma_conn_connect(qps[i], rig_address(THEM, PORT), NULL);
		check(conns[i] != NULL, "no connection");
		return;
	case 2:
		if (conns[i])
			rdma_conn_disconnect(conns[i]);
		return;
	case 3:
		if (!conns[i])
			return;
		check(rdma_conn_destroy(conns[i]) == 0, "connection not destroyed");
		if (qps[i])
			check(rdma_qp_destroy(qps[i]) == 0, "queue pair not destroyed");
		conns[i] = NULL;
		qps[i] = NULL;
		return;
	case 4:
		if (conns[i] && !qps[i]) {
			qps[i] = rig_qp(US, roce_conn(conns[i])->type);
			rdma_conn_accept(conns[i], qps[i], NULL);
		}
		return;
	case 5:
		if (conns[i] && !qps[i]) {
			rdma_conn_reject(conns[i], NULL, 0);
			conns[i] = NULL;
		}
		return;
	default:
		rig_jump((what >> 4) * 100 + 1, 100);
	}
}

/** Connection requests are kept for later, or rejected. */
static void
events(void)
{
	while (rig_has_event(US)) {
		const struct rdma_event *e = &rig[US].events[rig[US].taken++];
		unsigned int i;

		if (e->type != RDMA_EVENT_CONNECT_REQUEST)
			continue;
		for (i = 0; i < CONNS && conns[i]; i++)
			;
		if (i < CONNS)
			conns[i] = e->conn;
		else
			rdma_conn_reject(e->conn, NULL, 0);
	}
	rig[US].taken = rig[US].nb_events = 0;
}

static void
play(struct script *s)
{
	while (s->at < s->size) {
		switch (next(s) % 8) {
		case 0:
			arbitrary_frame(s);
			break;
		case 1:
			ip_packet(s);
			break;
		case 2:
			arp(s);
			break;
		case 3:
		case 4:
		case 5:
			cm_message(s);
			break;
		default:
			application(s);
		}
		rig_run(1);
		listen_to_us();
		events();
	}
}

/** Close everything, within the permitted time. */
static void
finish(void)
{
	for (unsigned int i = 0; i < CONNS; i++) {
		if (conns[i])
			check(rdma_conn_destroy(conns[i]) == 0, "connection not destroyed");
		if (qps[i])
			check(rdma_qp_destroy(qps[i]) == 0, "queue pair not destroyed");
		conns[i] = NULL;
		qps[i] = NULL;
	}
	for (unsigned int i = 0; i < 60; i++) {
		rig_jump(500, 500);
		listen_to_us();
		events();
		for (unsigned int k = 0; k < CONNS; k++)
			if (conns[k]) {
				rdma_conn_reject(conns[k], NULL, 0);
				conns[k] = NULL;
			}
	}
	check(roce_dev(rig[US].dev)->control->conns.nb_conns == 2, "connections left");
	check(STAILQ_EMPTY(&roce_dev(rig[US].dev)->control->events), "events left");
	check(rte_mempool_in_use_count(rig_pool) == 0, "mbufs left");
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	/* one of each kind, for libFuzzer to combine */
	static const uint8_t seeds[][40] = {
		/* passive side: REQ, accept, RTU, DREQ */
		{3, 0, 1, 0x81, 0x82, 0, 6, 0x04, 3, 4, 1, 0x81, 0, 0, 3, 5, 1, 0x81, 0, 1, 0},
		/* active side: ARP, connect, REP, disconnect, DREP */
		{2, 1, 9, 2, 1, 6, 0x01, 3, 3, 1, 0x81, 0, 0x83, 0, 6, 0x02, 3, 6, 1, 0x81, 0, 0},
		/* the same for datagrams */
		{3, 7, 1, 0x81, 0, 6, 0x04},
		{2, 1, 9, 2, 1, 6, 0x00, 3, 8, 1, 0, 0},
		/* IGMP query, echo, solicitation */
		{1, 0x1b, 4, 0x11, 10, 0, 0, 0, 0, 0, 0},
		{1, 0x01, 8, 8, 0, 0, 0, 1, 2, 3, 4},
		{1, 0x04, 20, 135},
	};

	char name[8];

	rig_init((*argv)[0]);
	rig_open(US, "ip=10.99.0.1/24,ip=fd00::1/64,qps=64");
	rig_raw(THEM, "10.99.0.2");
	listener = rdma_conn_listen(rig[US].dev, RDMA_QP_RC, PORT, 4, NULL);
	datagrams = rdma_conn_listen(rig[US].dev, RDMA_QP_UD, PORT, 4, NULL);
	check(listener && datagrams, "no listeners");
	rig_run(3000);
	seed_begin(argc, argv);
	for (size_t i = 0; i < RTE_DIM(seeds); i++) {
		snprintf(name, sizeof(name), "%zu", i);
		seed_add(name, seeds[i], sizeof(seeds[i]));
	}
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script s = {data, size, 0};

	nb_numbers = 0;
	memset(numbers, 0, sizeof(numbers));
	play(&s);
	finish();
	return 0;
}
