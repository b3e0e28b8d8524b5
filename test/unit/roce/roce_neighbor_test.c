/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Neighbors, echo and multicast groups of a RoCE device, against a simulated station: address
 * resolution, lifetime of entries, and reactions to missing and forged replies.
 */
#include "roce_cm_rig.h"

#include <arpa/inet.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_ethdev.h>

#include "engine/qp.h"
#include "net/arp.h"
#include "mcast/group.h"
#include "net/nd.h"

#define US    0
#define THEM  1
#define L2    14
#define QUIET 3000 /* ms until a device has sent its announcements */

static const struct rte_ether_addr everybody = {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};

static void
drain(void)
{
	struct rte_mbuf *m;

	while ((m = rig_receive(THEM)))
		rte_pktmbuf_free(m);
}

static void
open_us(const char *args, const char *them)
{
	rig_open(US, args);
	rig_raw(THEM, them);
	rig_run(QUIET);
	drain();
}

/* ---- frames ---------------------------------------------------------------------------------- */

static void
ether_put(uint8_t *frame, const struct rte_ether_addr *dst, uint16_t type)
{
	memcpy(frame, dst, 6);
	memcpy(frame + 6, &rig[THEM].mac, 6);
	frame[12] = type >> 8;
	frame[13] = type;
}

static void
send_arp(const struct roce_arp *arp, const struct rte_ether_addr *dst)
{
	uint8_t frame[L2 + ROCE_ARP_BYTES];

	ether_put(frame, dst, RTE_ETHER_TYPE_ARP);
	roce_arp_encode(arp, frame + L2);
	rig_send_bytes(THEM, frame, sizeof(frame));
}

/* The next ARP packet within this time. Returns the milliseconds that passed, -1: none */
static int
receive_arp(struct roce_arp *arp, struct rte_ether_addr *dst, int ms)
{
	for (int waited = 0; waited <= ms; waited++) {
		struct rte_mbuf *m;

		while ((m = rig_receive(THEM))) {
			const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
			const bool found = frame[12] == 0x08 && frame[13] == 0x06 &&
				roce_arp_decode(frame + L2, m->data_len - L2, arp) == 0;

			memcpy(dst, frame, 6);
			rte_pktmbuf_free(m);
			if (found)
				return waited;
		}
		rig_run(1);
	}
	return -1;
}

static void
answer_arp(const struct roce_arp *request)
{
	const struct roce_arp reply = {
		.op = ROCE_ARP_REPLY,
		.sender_mac = rig[THEM].mac,
		.sender_ip = request->target_ip,
		.target_mac = request->sender_mac,
		.target_ip = request->sender_ip,
	};

	send_arp(&reply, &request->sender_mac);
	rig_run(2);
}

/* The next IP packet of a protocol, in l3. Returns the header's length, 0: none */
static unsigned int
receive_ip(struct roce_ip *ip, uint8_t proto, uint8_t l3[256], struct rte_ether_addr *dst, int ms)
{
	do {
		struct rte_mbuf *m;

		while ((m = rig_receive(THEM))) {
			const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
			const int header = frame[13] == 0x06
				? -1
				: roce_ip_decode(frame + L2, m->data_len - L2,
					  frame[12] == 0x08 ? 4 : 6, ip);

			memcpy(l3, frame + L2, RTE_MIN(m->data_len - L2, 256));
			memcpy(dst, frame, 6);
			rte_pktmbuf_free(m);
			if (header > 0 && ip->proto == proto)
				return header;
		}
		rig_run(1);
	} while (ms-- > 0);
	return 0;
}

/* Send a packet to us; the payload's checksum is set */
static void
send_ip(const struct rte_ether_addr *dst, const struct roce_ip *ip, const uint8_t *payload)
{
	uint8_t frame[L2 + ROCE_IP_BYTES_MAX + 1024];
	unsigned int length = L2;

	ether_put(frame, dst, roce_gid_is_v4(&ip->src) ? RTE_ETHER_TYPE_IPV4 : RTE_ETHER_TYPE_IPV6);
	length += roce_ip_encode(ip, frame + L2);
	memcpy(frame + length, payload, ip->payload_len);
	rig_send_bytes(THEM, frame, length + ip->payload_len);
	rig_run(2);
}

static int
resolve(const struct roce_gid *gid)
{
	struct rte_ether_addr mac;
	const int ret = roce_control_resolve(roce_dev(rig[US].dev), gid, &mac);

	if (ret == 0)
		assert_memory_equal(&mac, &rig[THEM].mac, 6);
	return ret;
}

/* ---- ARP ------------------------------------------------------------------------------------- */

static void
test_life_of_an_entry(void **state)
{
	struct rte_ether_addr dst;
	struct roce_arp arp;

	open_us("ip=10.99.0.1/24", "10.99.0.2");
	assert_int_equal(resolve(&rig[THEM].gid), -EAGAIN);
	assert_in_range(receive_arp(&arp, &dst, 10), 0, 1);
	assert_memory_equal(&dst, &everybody, 6);
	assert_int_equal(arp.op, ROCE_ARP_REQUEST);
	assert_int_equal(arp.target_ip, roce_gid_to_v4(&rig[THEM].gid));
	assert_int_equal(arp.sender_ip, roce_gid_to_v4(&rig[US].gid));
	/* more requesters do not cause more ARP requests */
	for (unsigned int i = 0; i < 100; i++)
		assert_int_equal(resolve(&rig[THEM].gid), -EAGAIN);
	assert_in_range(receive_arp(&arp, &dst, 300), 200, 260);
	answer_arp(&arp);
	assert_int_equal(resolve(&rig[THEM].gid), 0);

	/* valid for 30 s without a probe */
	rig_run(29000);
	assert_int_equal(resolve(&rig[THEM].gid), 0);
	assert_int_equal(receive_arp(&arp, &dst, 10), -1);
	rig_run(2000);
	/* then probed while it is used */
	assert_int_equal(resolve(&rig[THEM].gid), 0);
	assert_in_range(receive_arp(&arp, &dst, 10), 0, 1);
	assert_memory_equal(&dst, &rig[THEM].mac, 6);
	answer_arp(&arp);
	rig_run(5000);
	assert_int_equal(receive_arp(&arp, &dst, 10), -1);
	/* after three unanswered probes: removed, resolved by broadcast, then unreachable */
	rig_run(30000);
	assert_int_equal(resolve(&rig[THEM].gid), 0);
	rig_run(2500);
	assert_int_equal(resolve(&rig[THEM].gid), 0);
	rig_run(1000);
	drain();
	assert_int_equal(resolve(&rig[THEM].gid), -EAGAIN);
	for (unsigned int i = 0; i < 12; i++) {
		assert_true(receive_arp(&arp, &dst, 300) >= 0);
		assert_memory_equal(&dst, &everybody, 6);
	}
	rig_run(300);
	assert_int_equal(receive_arp(&arp, &dst, 300), -1);
	assert_int_equal(resolve(&rig[THEM].gid), -EHOSTUNREACH);
	assert_int_equal(rig_stat(US, "neighbors_failed"), 1);
	/* and may be resolved again a little later */
	rig_run(1500);
	assert_int_equal(resolve(&rig[THEM].gid), -EAGAIN);
	drain();
	rig_close();
}

static void
test_arp_questions(void **state)
{
	struct roce_arp arp,
		question = {
			.op = ROCE_ARP_REQUEST,
			.sender_mac = {{0x52, 0x54, 0, 0, 0, 0x0b}},
			.sender_ip = RTE_BE32(0x0a630002),
			.target_ip = RTE_BE32(0x0a630001),
		};
	struct rte_ether_addr dst;

	open_us("ip=10.99.0.1/24", "10.99.0.2");
	send_arp(&question, &everybody);
	assert_true(receive_arp(&arp, &dst, 5) >= 0);
	assert_int_equal(arp.op, ROCE_ARP_REPLY);
	assert_int_equal(arp.sender_ip, question.target_ip);
	assert_memory_equal(&arp.sender_mac, &rig[US].mac, 6);
	assert_memory_equal(&dst, &rig[THEM].mac, 6);
	/*
	 * a station that resolves our address will be contacted soon, so its address is learned; it
	 * is probed
	 */
	assert_int_equal(resolve(&rig[THEM].gid), 0);
	assert_true(receive_arp(&arp, &dst, 5) >= 0);
	answer_arp(&arp);
	drain();
	/* a probe has no sender address */
	question.sender_ip = 0;
	send_arp(&question, &everybody);
	assert_true(receive_arp(&arp, &dst, 5) >= 0);
	assert_int_equal(roce_dev(rig[US].dev)->control->neighbors.nb_entries, 1);
	/* not for us; with an invalid MAC address */
	question.sender_ip = RTE_BE32(0x0a630003);
	question.target_ip = RTE_BE32(0x0a630004);
	send_arp(&question, &everybody);
	question.target_ip = RTE_BE32(0x0a630001);
	question.sender_mac = everybody;
	send_arp(&question, &everybody);
	assert_int_equal(receive_arp(&arp, &dst, 20), -1);
	assert_int_equal(rig_stat(US, "control_malformed"), 1);
	assert_int_equal(roce_dev(rig[US].dev)->control->neighbors.nb_entries, 1);
	drain();
	rig_close();
}

static void
test_conflict(void **state)
{
	struct roce_arp arp,
		claim = {
			.op = ROCE_ARP_REPLY,
			.sender_mac = {{0x52, 0x54, 0, 0, 0, 0x0c}},
			.sender_ip = RTE_BE32(0x0a630001),
			.target_ip = RTE_BE32(0x0a630001),
		};
	struct rte_ether_addr dst;
	struct rdma_event *e;

	open_us("ip=10.99.0.1/24", "10.99.0.2");
	send_arp(&claim, &everybody);
	e = rig_event(US, RDMA_EVENT_ADDR_CONFLICT, 10);
	assert_int_equal(e->status, -EADDRINUSE);
	assert_null(e->conn);
	assert_int_equal(((struct sockaddr_in *)&e->peer)->sin_addr.s_addr, claim.sender_ip);
	/* our address is defended by a rate-limited broadcast */
	assert_true(receive_arp(&arp, &dst, 5) >= 0);
	assert_memory_equal(&dst, &everybody, 6);
	assert_int_equal(arp.sender_ip, arp.target_ip);
	assert_memory_equal(&arp.sender_mac, &rig[US].mac, 6);
	for (unsigned int i = 0; i < 50; i++) {
		send_arp(&claim, &everybody);
		rig_run(10);
	}
	assert_false(rig_has_event(US));
	assert_int_equal(receive_arp(&arp, &dst, 5), -1);
	assert_int_equal(rig_stat(US, "addr_conflicts"), 51);
	rig_run(10000);
	send_arp(&claim, &everybody);
	rig_event(US, RDMA_EVENT_ADDR_CONFLICT, 10);
	/* some networks reflect our own frames: this is no conflict */
	claim.sender_mac = rig[US].mac;
	send_arp(&claim, &everybody);
	rig_run(10);
	assert_int_equal(rig_stat(US, "addr_conflicts"), 52);
	drain();
	rig_close();
}

/* Two probes before two announcements, so that a station that uses the address can object. */
static void
test_announcement(void **state)
{
	struct rte_ether_addr dst;
	struct roce_arp arp;

	rig_open(US, "ip=10.99.0.1/24");
	rig_raw(THEM, "10.99.0.2");
	for (unsigned int i = 0; i < 4; i++) {
		assert_true(receive_arp(&arp, &dst, 600) >= 0);
		assert_int_equal(arp.sender_ip, i < 2 ? 0 : roce_gid_to_v4(&rig[US].gid));
		assert_int_equal(arp.target_ip, roce_gid_to_v4(&rig[US].gid));
		assert_memory_equal(&dst, &everybody, 6);
	}
	assert_int_equal(receive_arp(&arp, &dst, 5000), -1);
	/* the link was down: repeat them */
	assert_int_equal(rte_eth_dev_set_link_down(rig[US].port), 0);
	assert_int_equal(receive_arp(&arp, &dst, 5000), -1);
	assert_int_equal(rte_eth_dev_set_link_up(rig[US].port), 0);
	for (unsigned int i = 0; i < 4; i++) {
		assert_true(receive_arp(&arp, &dst, 1100) >= 0);
		assert_int_equal(arp.sender_ip, i < 2 ? 0 : roce_gid_to_v4(&rig[US].gid));
	}
	assert_int_equal(receive_arp(&arp, &dst, 5000), -1);
	rig_close();
}

/*
 * Other stations fill only a part of the cache, so that there is room for addresses that we
 * resolve.
 */
static void
test_flood(void **state)
{
	struct roce_arp question = {
		.op = ROCE_ARP_REQUEST,
		.sender_mac = {{0x52, 0x54, 0, 0, 0, 0x0b}},
		.target_ip = RTE_BE32(0x0a000001),
	};
	struct roce_neighbors *all;
	struct rte_ether_addr dst;
	struct roce_arp arp;

	open_us("ip=10.0.0.1/8", "10.99.0.2");
	all = &roce_dev(rig[US].dev)->control->neighbors;
	for (uint32_t i = 0; i < 20000; i++) {
		question.sender_ip = rte_cpu_to_be_32(0x0a010000 + i);
		send_arp(&question, &everybody);
		if (i % 100 == 99) {
			rig_run(1);
			drain();
		}
	}
	assert_int_equal(all->nb_entries, ROCE_NEIGHBORS_MAX * 3 / 4);
	assert_true(rig_stat(US, "neighbors_full") > 19000);
	for (uint32_t i = 0; i < ROCE_NEIGHBORS_MAX; i++) {
		const struct roce_gid gid = roce_gid_v4(rte_cpu_to_be_32(0x0a020000 + i));

		assert_int_equal(resolve(&gid), -EAGAIN);
		if (i % 100 == 99) {
			rig_run(1);
			drain();
		}
	}
	assert_int_equal(all->nb_entries, ROCE_NEIGHBORS_MAX);
	/* the cache is full of our own requests: one more has to wait */
	assert_int_equal(resolve(&rig[THEM].gid), -EHOSTUNREACH);
	for (unsigned int i = 0; i < 60; i++) {
		rig_run(100);
		drain();
	}
	assert_int_equal(all->nb_entries, 0);
	assert_int_equal(resolve(&rig[THEM].gid), -EAGAIN);
	assert_true(receive_arp(&arp, &dst, 5) >= 0);
	drain();
	rig_close();
}

/* Another station takes an address over: its claim is disputed, and only that station answers. */
static void
take_over(const struct rte_ether_addr *mac)
{
	struct roce_arp question,
		claim = {
			.op = ROCE_ARP_REQUEST,
			.sender_mac = *mac,
			.sender_ip = RTE_BE32(0x0a630002),
			.target_ip = RTE_BE32(0x0a630002),
		};
	struct rte_ether_addr dst;

	drain();
	send_arp(&claim, &everybody);
	assert_in_range(receive_arp(&question, &dst, 5), 0, 2);
	assert_memory_equal(&dst, &everybody, 6);
	assert_int_equal(question.op, ROCE_ARP_REQUEST);
	assert_int_equal(question.target_ip, claim.sender_ip);
	claim.op = ROCE_ARP_REPLY;
	claim.target_ip = RTE_BE32(0x0a630001);
	send_arp(&claim, &rig[US].mac);
	rig_run(600);
	drain();
}

/* A station gets another MAC address: its connections use it. */
static void
test_moved(void **state)
{
	const struct rte_ether_addr mac = {{0x52, 0x54, 0, 0, 0, 0x77}};
	struct roce_cm_msg msg, rep;
	struct rdma_conn *conn;
	struct rdma_qp *qp;

	open_us("ip=10.99.0.1/24", "10.99.0.2");
	rig_known(THEM);
	qp = rig_qp(US, RDMA_QP_RC);
	conn = rdma_conn_connect(qp, rig_address(THEM, 4000), NULL);
	assert_true(rig_receive_cm(THEM, &msg, 10));
	rep = (struct roce_cm_msg){.attr = ROCE_CM_REP,
		.tid = msg.tid,
		.rep = {.local_id = 8, .remote_id = msg.req.local_id, .qpn = 80}};
	rig_send_cm(THEM, &rep);
	rig_event(US, RDMA_EVENT_ESTABLISHED, 10);
	take_over(&mac);
	assert_int_equal(rig_stat(US, "neighbors_moved"), 1);
	assert_memory_equal(&roce_conn(conn)->mac, &mac, 6);
	/* a frame of the queue pair, and one of the CM */
	const struct rdma_send_wr wr = {.op = RDMA_OP_SEND};
	assert_int_equal(rdma_post_send(qp, &wr, 1), 1);
	rig_run(2);
	assert_int_equal(rdma_conn_disconnect(conn), 0);
	rig_run(2);
	for (unsigned int i = 0; i < 2; i++) {
		struct rte_mbuf *m = rig_receive(THEM);

		assert_non_null(m);
		assert_memory_equal(rte_pktmbuf_mtod(m, void *), &mac, 6);
		rte_pktmbuf_free(m);
	}
	assert_int_equal(rdma_conn_destroy(conn), 0);
	assert_int_equal(rdma_qp_destroy(qp), 0);
	for (unsigned int i = 0; i < 20; i++) {
		rig_run(1000);
		drain();
	}
	rig_close();
}

/* The next frame other than ARP goes to this MAC address */
static void
assert_goes_to(const struct rte_ether_addr *mac)
{
	struct rte_mbuf *m;
	bool data;

	do {
		m = rig_receive(THEM);
		assert_non_null(m);
		data = rte_pktmbuf_mtod(m, const uint8_t *)[13] != 0x06;
		if (data)
			assert_memory_equal(rte_pktmbuf_mtod(m, void *), mac, 6);
		rte_pktmbuf_free(m);
	} while (!data);
}

/*
 * The same for queue pairs connected by hand and for address handles, even if the application has
 * not resolved the station for hours: an entry is kept while it is used.
 */
static void
test_used_entry_is_kept(void **state)
{
	const struct roce_arp reply = {
		.op = ROCE_ARP_REPLY,
		.sender_mac = {{0x52, 0x54, 0, 0, 0, 0x0b}},
		.sender_ip = RTE_BE32(0x0a630002),
		.target_ip = RTE_BE32(0x0a630001),
	};
	struct rdma_qp_peer to = {.qpn = 80, .mtu = 1024, .rd_atom = 1};
	struct roce_arp arp = {
		.op = ROCE_ARP_REQUEST,
		.sender_mac = {{0x52, 0x54, 0, 0, 0, 0x77}},
		.sender_ip = RTE_BE32(0x0a630002),
		.target_ip = RTE_BE32(0x0a630002),
	};
	/* tshark would look for EoIB in datagrams, and reports empty ones as malformed */
	static uint8_t text[64];
	const struct rdma_mr_attr text_attr = {.addr = text, .length = sizeof(text), .gpu = -1};
	struct rdma_sge sge = {.addr = (uintptr_t)text, .length = sizeof(text)};
	struct rdma_send_wr write = {.op = RDMA_OP_WRITE};
	struct rdma_send_wr datagram = {.op = RDMA_OP_SEND, .sg = &sge, .nb_sge = 1};
	struct rdma_mr *mr;
	struct rdma_qp *rc, *ud;

	open_us("ip=10.99.0.1/24", "10.99.0.2");
	rig_known(THEM);
	mr = rdma_mr_reg(rig[US].pd, &text_attr);
	assert_non_null(mr);
	sge.lkey = rdma_mr_lkey(mr);
	rc = rig_qp(US, RDMA_QP_RC);
	ud = rig_qp(US, RDMA_QP_UD);
	memcpy(&to.addr, rig_address(THEM, 0), sizeof(struct sockaddr_in));
	assert_int_equal(rdma_qp_connect(rc, &to), 0);
	assert_int_equal(rdma_qp_connect(ud, NULL), 0);
	/* nothing is acknowledged: a pause of a busy machine starts no retransmission */
	((struct roce_qp *)rc)->req.rtt = 60 * rte_get_tsc_hz();
	((struct roce_qp *)rc)->req.ack_cycles = 60 * rte_get_tsc_hz();
	datagram.ud.ah = rdma_ah_create(rig[US].pd, rig_address(THEM, 0), 0, 0);
	datagram.ud.remote_qpn = 81;
	assert_non_null(datagram.ud.ah);
	send_arp(&reply, &rig[US].mac);
	for (unsigned int hours = 0; hours < 2; hours++) {
		rig_jump(3600000, 60000);
		drain();
		arp.sender_mac.addr_bytes[5]++;
		take_over(&arp.sender_mac);
		assert_int_equal(rig_stat(US, "neighbors_moved"), hours + 1);
		assert_int_equal(rdma_post_send(ud, &datagram, 1), 1);
		rig_run(1);
		assert_goes_to(&arp.sender_mac);
		assert_int_equal(rdma_post_send(rc, &write, 1), 1);
		rig_run(1);
		assert_goes_to(&arp.sender_mac);
	}
	drain();
	rig_run(1);
	assert_int_equal(rdma_qp_destroy(rc), 0);
	assert_int_equal(rdma_qp_destroy(ud), 0);
	assert_int_equal(rdma_mr_dereg(mr), 0);
	/* no packet is sent there any more */
	assert_int_equal(rdma_ah_destroy(datagram.ud.ah), 0);
	rig_jump(3600000, 60000);
	drain();
	arp.sender_mac.addr_bytes[5]++;
	send_arp(&arp, &everybody);
	rig_run(2);
	assert_int_equal(rig_stat(US, "neighbors_moved"), 2);
	drain();
	rig_close();
}

/* Whether the device has a route to an address, and what is wrong. */
static int
check_route(int family, const char *address, char why[RDMA_ROUTE_TEXT])
{
	struct sockaddr_storage dst = {.ss_family = family};

	why[0] = '\0';
	assert_int_equal(inet_pton(family, address,
				 family == AF_INET ? (void *)&((struct sockaddr_in *)&dst)->sin_addr
						   : &((struct sockaddr_in6 *)&dst)->sin6_addr),
		1);
	return rdma_dev_route_check(rig[US].dev, (const struct sockaddr *)&dst, why);
}

/* A wrong configuration is found before anything is sent. */
static void
test_route_check(void **state)
{
	char why[RDMA_ROUTE_TEXT];

	open_us("ip=10.99.0.1/24", "10.99.0.254");
	assert_int_equal(check_route(AF_INET, "10.99.0.7", why), 0);
	assert_int_equal(check_route(AF_INET, "10.98.0.7", why), -EHOSTUNREACH);
	assert_string_equal(
		why, "10.98.0.7 is not in 10.99.0.1/24 of the device, and gateway= is not set");
	assert_int_equal(check_route(AF_INET6, "2001::8", why), -EAFNOSUPPORT);
	assert_string_equal(why, "2001::8: the device has no ip= of this family");
	rig_close();
	open_us("ip=10.99.0.1/24,ip=fd00::1/64,gateway=10.99.0.254", "10.99.0.254");
	assert_int_equal(check_route(AF_INET, "10.98.0.7", why), 0);
	assert_int_equal(check_route(AF_INET6, "fe80::8", why), 0);
	assert_int_equal(check_route(AF_INET6, "2001::8", why), -EHOSTUNREACH);
	assert_string_equal(
		why, "2001::8 is not in fd00::1/64 of the device, and gateway= is not set");
	drain();
	rig_close();
}

/* Off-link destinations use the gateway's address; without a gateway they are unreachable. */
static void
test_routes(void **state)
{
	const struct roce_gid far4 = roce_gid_v4(RTE_BE32(0x08080808));
	const struct roce_gid far6 = {{0x20, 0x01, [15] = 8}};
	const struct roce_gid link6 = {{0xfe, 0x80, [15] = 8}};
	const struct roce_gid near4 = roce_gid_v4(RTE_BE32(0x0a6300ff));
	const struct roce_gid *hop;

	open_us("ip=10.99.0.1/24,ip=fd00::1/64,gateway=10.99.0.254", "10.99.0.254");
	hop = roce_neighbor_next_hop(roce_dev(rig[US].dev), &far4);
	assert_memory_equal(hop, &rig[THEM].gid, 16);
	assert_ptr_equal(roce_neighbor_next_hop(roce_dev(rig[US].dev), &near4), &near4);
	assert_null(roce_neighbor_next_hop(roce_dev(rig[US].dev), &far6));
	assert_ptr_equal(roce_neighbor_next_hop(roce_dev(rig[US].dev), &link6), &link6);
	assert_int_equal(resolve(&far6), -EHOSTUNREACH);
	rig_known(THEM);
	assert_int_equal(resolve(&far4), 0);
	drain();
	rig_close();
}

static void
test_address_handle(void **state)
{
	struct sockaddr_in group = {.sin_family = AF_INET, .sin_addr.s_addr = RTE_BE32(0xef010203)};
	struct sockaddr_in far = {.sin_family = AF_INET, .sin_addr.s_addr = RTE_BE32(0x08080808)};
	const uint8_t group_mac[] = {0x01, 0x00, 0x5e, 0x01, 0x02, 0x03};
	struct rdma_ah *ah;

	open_us("ip=10.99.0.1/24", "10.99.0.2");
	assert_null(rdma_ah_create(rig[US].pd, rig_address(THEM, 0), 0, 0));
	assert_int_equal(rte_errno, EAGAIN);
	rig_known(THEM);
	ah = rdma_ah_create(rig[US].pd, rig_address(THEM, 0), 4, 9);
	assert_non_null(ah);
	assert_memory_equal(((struct roce_ah *)ah)->paths[0].header, &rig[THEM].mac, 6);
	assert_int_equal(((struct roce_ah *)ah)->paths[0].header[L2 + 1], 4);
	assert_int_equal(((struct roce_ah *)ah)->paths[0].header[L2 + 8], 9);
	assert_int_equal(rdma_pd_free(rig[US].pd), -EBUSY);
	assert_int_equal(rdma_ah_destroy(ah), 0);
	ah = rdma_ah_create(rig[US].pd, (struct sockaddr *)&group, 0, 0);
	assert_non_null(ah);
	assert_memory_equal(((struct roce_ah *)ah)->paths[0].header, group_mac, 6);
	assert_int_equal(rdma_ah_destroy(ah), 0);
	assert_null(rdma_ah_create(rig[US].pd, (struct sockaddr *)&far, 0, 0));
	assert_int_equal(rte_errno, EHOSTUNREACH);
	drain();
	rig_close();
}

/* ---- neighbor discovery ---------------------------------------------------------------------- */

static void
send_nd(const struct roce_nd *nd, const struct roce_gid *src, const struct roce_gid *dst)
{
	struct roce_ip ip = {
		.src = *src, .dst = *dst, .proto = IPPROTO_ICMPV6, .hop_limit = ROCE_ND_HOP_LIMIT};
	uint8_t payload[ROCE_ND_BYTES_MAX];

	roce_nd_encode(nd, &ip, payload);
	send_ip(&rig[US].mac, &ip, payload);
}

static bool
receive_nd(struct roce_nd *nd, struct roce_ip *ip, struct rte_ether_addr *dst, int ms)
{
	uint8_t l3[256];
	unsigned int header;

	while ((header = receive_ip(ip, IPPROTO_ICMPV6, l3, dst, ms)))
		if (l3[header] == ROCE_ND_SOLICIT || l3[header] == ROCE_ND_ADVERT) {
			assert_int_equal(roce_nd_decode(ip, l3 + header, nd), 0);
			return true;
		}
	return false;
}

static void
test_nd(void **state)
{
	const struct roce_gid none = {{0}}, all = {{0xff, 0x02, [15] = 1}};
	struct rte_ether_addr dst, want;
	struct roce_gid group;
	struct roce_nd nd, out;
	struct roce_ip ip;

	open_us("ip=fd00::1/64", "fd00::2");
	assert_int_equal(resolve(&rig[THEM].gid), -EAGAIN);
	assert_true(receive_nd(&nd, &ip, &dst, 5));
	assert_int_equal(nd.type, ROCE_ND_SOLICIT);
	assert_memory_equal(&nd.target, &rig[THEM].gid, 16);
	group = roce_nd_group(&rig[THEM].gid);
	assert_memory_equal(&ip.dst, &group, 16);
	want = roce_gid_multicast_mac(&group);
	assert_memory_equal(&dst, &want, 6);
	assert_true(nd.has_mac);
	out = (struct roce_nd){.type = ROCE_ND_ADVERT,
		.flags = ROCE_ND_SOLICITED | ROCE_ND_OVERRIDE,
		.target = rig[THEM].gid,
		.has_mac = true,
		.mac = rig[THEM].mac};
	send_nd(&out, &rig[THEM].gid, &rig[US].gid);
	assert_int_equal(resolve(&rig[THEM].gid), 0);

	/* in reply to a solicitation */
	out = (struct roce_nd){.type = ROCE_ND_SOLICIT,
		.target = rig[US].gid,
		.has_mac = true,
		.mac = rig[THEM].mac};
	group = roce_nd_group(&rig[US].gid);
	send_nd(&out, &rig[THEM].gid, &group);
	assert_true(receive_nd(&nd, &ip, &dst, 5));
	assert_int_equal(nd.type, ROCE_ND_ADVERT);
	assert_int_equal(nd.flags, ROCE_ND_SOLICITED | ROCE_ND_OVERRIDE);
	assert_memory_equal(&nd.mac, &rig[US].mac, 6);
	assert_memory_equal(&ip.dst, &rig[THEM].gid, 16);
	/* a solicitation for our own address (DAD): the advertisement goes to all nodes */
	out.has_mac = false;
	send_nd(&out, &none, &group);
	assert_true(receive_nd(&nd, &ip, &dst, 5));
	assert_int_equal(nd.flags, ROCE_ND_OVERRIDE);
	assert_memory_equal(&ip.dst, &all, 16);
	/* another station uses the address */
	out = (struct roce_nd){.type = ROCE_ND_ADVERT,
		.flags = ROCE_ND_OVERRIDE,
		.target = rig[US].gid,
		.has_mac = true,
		.mac = rig[THEM].mac};
	send_nd(&out, &rig[THEM].gid, &all);
	rig_event(US, RDMA_EVENT_ADDR_CONFLICT, 5);
	/* an answer to nobody in particular */
	out.flags |= ROCE_ND_SOLICITED;
	out.target = rig[THEM].gid;
	send_nd(&out, &rig[THEM].gid, &all);
	assert_int_equal(rig_stat(US, "control_malformed"), 1);
	/* without the override flag, existing entries do not change */
	out = (struct roce_nd){.type = ROCE_ND_ADVERT,
		.target = rig[THEM].gid,
		.has_mac = true,
		.mac = {{2, 0, 0, 0, 0, 9}}};
	send_nd(&out, &rig[THEM].gid, &all);
	assert_int_equal(resolve(&rig[THEM].gid), 0);
	drain();
	rig_close();
}

/*
 * Solicitations without a link-layer address make us resolve the sender, but only a limited number
 * of them.
 */
static void
test_nd_flood(void **state)
{
	struct roce_nd solicit = {.type = ROCE_ND_SOLICIT};
	struct roce_gid group, stranger;
	struct roce_neighbors *all;

	open_us("ip=fd00::1/64", "fd00::2");
	all = &roce_dev(rig[US].dev)->control->neighbors;
	solicit.target = rig[US].gid;
	group = roce_nd_group(&rig[US].gid);
	stranger = rig[THEM].gid;
	for (uint32_t i = 0; i < 1200; i++) {
		stranger.raw[13] = 1 + i / 256;
		stranger.raw[14] = i;
		send_nd(&solicit, &stranger, &group);
		drain();
	}
	assert_in_range(all->nb_entries, 1, ROCE_NEIGHBORS_MAX * 3 / 4);
	assert_true(rig_stat(US, "neighbors_full") > 0);
	/* there is room for an address that we resolve */
	assert_int_equal(resolve(&rig[THEM].gid), -EAGAIN);
	drain();
	rig_close();
}

/* ---- claims ---------------------------------------------------------------------------------- */

/* THEM's address belongs to this MAC address, says somebody. @param answer  to a question of us */
static void
send_claim(const struct rte_ether_addr *mac, bool answer)
{
	const struct roce_gid all = {{0xff, 0x02, [15] = 1}};
	const struct roce_arp arp = {
		.op = answer ? ROCE_ARP_REPLY : ROCE_ARP_REQUEST,
		.sender_mac = *mac,
		.sender_ip = roce_gid_to_v4(&rig[THEM].gid),
		.target_ip = roce_gid_to_v4(&rig[answer ? US : THEM].gid),
	};
	const struct roce_nd nd = {
		.type = ROCE_ND_ADVERT,
		.flags = ROCE_ND_OVERRIDE | (answer ? ROCE_ND_SOLICITED : 0),
		.target = rig[THEM].gid,
		.has_mac = true,
		.mac = *mac,
	};

	if (roce_gid_is_v4(&rig[THEM].gid))
		send_arp(&arp, answer ? &rig[US].mac : &everybody);
	else
		send_nd(&nd, &rig[THEM].gid, answer ? &rig[US].gid : &all);
	rig_run(2);
}

/* The next question to all about THEM's address. Returns the milliseconds that passed, -1: none */
static int
receive_question(int ms)
{
	const struct roce_gid group = roce_nd_group(&rig[THEM].gid);
	struct rte_ether_addr dst;
	struct roce_arp arp;
	struct roce_nd nd;
	struct roce_ip ip;

	/* a call with 0 ms runs for one if there is nothing */
	for (int waited = 0; waited <= ms; waited++) {
		if (roce_gid_is_v4(&rig[THEM].gid)) {
			if (receive_arp(&arp, &dst, 0) < 0)
				continue;
			assert_memory_equal(&dst, &everybody, 6);
			assert_int_equal(arp.op, ROCE_ARP_REQUEST);
			assert_int_equal(arp.target_ip, roce_gid_to_v4(&rig[THEM].gid));
		} else {
			if (!receive_nd(&nd, &ip, &dst, 0))
				continue;
			assert_int_equal(nd.type, ROCE_ND_SOLICIT);
			assert_memory_equal(&ip.dst, &group, 16);
			assert_memory_equal(&nd.target, &rig[THEM].gid, 16);
		}
		return waited;
	}
	return -1;
}

/* The MAC address that the packets of a queue pair have, and the number of its changes */
static void
assert_in_use(const struct rdma_qp *qp, const struct rte_ether_addr *mac, uint64_t changes)
{
	struct roce_path path = ((const struct roce_qp *)qp)->path;

	assert_memory_equal(roce_path_mac(&path), mac, 6);
	assert_int_equal(rig_stat(US, "neighbors_moved"), changes);
}

/* One frame, which anybody can send, does not redirect the packets of a queue pair. */
static void
disputes(const char *args, const char *them)
{
	const struct rte_ether_addr next = {{0x52, 0x54, 0, 0, 0, 0x77}};
	struct rte_ether_addr forger = {{0x52, 0x54, 0, 0, 1, 0x66}};
	struct rdma_qp_peer to = {.qpn = 80, .mtu = 1024, .rd_atom = 1};
	const struct rte_ether_addr *owner = &rig[THEM].mac;
	struct rdma_qp *qp;

	open_us(args, them);
	assert_int_equal(resolve(&rig[THEM].gid), -EAGAIN);
	assert_in_range(receive_question(5), 0, 1);
	send_claim(owner, true);
	qp = rig_qp(US, RDMA_QP_RC);
	memcpy(&to.addr, rig_address(THEM, 0), sizeof(struct sockaddr_in6));
	assert_int_equal(rdma_qp_connect(qp, &to), 0);
	rig_run(2);

	/* all are asked, and the owner answers after the forger */
	send_claim(&forger, false);
	assert_int_equal(resolve(&rig[THEM].gid), 0);
	assert_in_range(receive_question(5), 0, 1);
	send_claim(&forger, true);
	assert_in_use(qp, owner, 0);
	send_claim(owner, true);
	assert_in_use(qp, owner, 0);
	/* a flood causes no further question for a second */
	for (unsigned int i = 0; i < 100; i++) {
		forger.addr_bytes[5] = i;
		send_claim(&forger, i % 2);
		assert_int_equal(receive_question(2), -1);
	}
	assert_in_use(qp, owner, 0);
	assert_int_equal(rig_stat(US, "neighbors_disputed"), 102);
	/* the owner loses the first one */
	assert_in_range(receive_question(1000), 200, 600);
	send_claim(&forger, true);
	assert_in_range(receive_question(300), 200, 260);
	send_claim(&forger, true);
	assert_in_use(qp, owner, 0);
	send_claim(owner, true);
	assert_int_equal(receive_question(1200), -1);
	assert_in_use(qp, owner, 0);

	/* the owner is gone, and the station that has its address now answers once */
	send_claim(&next, false);
	assert_in_range(receive_question(5), 0, 1);
	assert_in_range(receive_question(300), 200, 260);
	send_claim(&next, true);
	assert_in_use(qp, owner, 0);
	assert_int_equal(receive_question(300), -1);
	assert_in_use(qp, &next, 1);

	/* it does not answer, and nobody else does: the address in use stays */
	rig_run(1100);
	send_claim(&forger, false);
	assert_in_range(receive_question(5), 0, 1);
	assert_in_range(receive_question(300), 200, 260);
	assert_int_equal(receive_question(300), -1);
	assert_in_use(qp, &next, 1);
	/* what is sent before the question, or to all, is no answer to it */
	send_claim(&forger, false);
	send_claim(&forger, true);
	assert_in_range(receive_question(1100), 600, 1000);
	send_claim(&forger, false);
	assert_in_range(receive_question(300), 200, 260);
	assert_int_equal(receive_question(300), -1);
	assert_in_use(qp, &next, 1);
	assert_int_equal(rdma_qp_destroy(qp), 0);
	drain();
	rig_close();
}

/* A peer that a queue pair uses may have no entry. A request does not bring a wrong one. */
static void
test_dispute_of_no_entry(void **state)
{
	const struct rte_ether_addr forger = {{0x52, 0x54, 0, 0, 1, 0x66}};
	struct rdma_qp_peer to = {.qpn = 80, .mtu = 1024, .rd_atom = 1};
	const struct rte_ether_addr *owner = &rig[THEM].mac;
	const struct roce_neighbors *all;
	struct roce_arp question = {
		.op = ROCE_ARP_REQUEST,
		.sender_mac = forger,
	};
	struct rdma_qp *qp;

	open_us("ip=10.99.0.1/24", "10.99.0.2");
	all = &roce_dev(rig[US].dev)->control->neighbors;
	rig_known(THEM);
	qp = rig_qp(US, RDMA_QP_RC);
	memcpy(&to.addr, rig_address(THEM, 0), sizeof(struct sockaddr_in));
	assert_int_equal(rdma_qp_connect(qp, &to), 0);
	/* it does not answer probes */
	assert_int_equal(resolve(&rig[THEM].gid), 0);
	rig_run(5000);
	assert_int_equal(all->nb_entries, 0);
	drain();
	question.sender_ip = roce_gid_to_v4(&rig[THEM].gid);
	question.target_ip = roce_gid_to_v4(&rig[US].gid);
	send_arp(&question, &everybody);
	rig_run(2);
	assert_int_equal(all->nb_entries, 1);
	assert_in_use(qp, owner, 0);
	assert_int_equal(rig_stat(US, "neighbors_disputed"), 1);
	send_claim(owner, true);
	rig_run(600);
	assert_in_use(qp, owner, 0);
	assert_int_equal(resolve(&rig[THEM].gid), 0);
	assert_int_equal(rdma_qp_destroy(qp), 0);
	drain();
	rig_close();
}

static void
test_disputes(void **state)
{
	disputes("ip=10.99.0.1/24", "10.99.0.2");
	disputes("ip=fd00::1/64", "fd00::2");
}

/* ---- echo ------------------------------------------------------------------------------------ */

static void
echo(const char *args, const char *them, uint8_t proto, uint8_t request, uint8_t reply)
{
	uint8_t payload[64] = {request, 0, 0, 0, 0x12, 0x34, 0, 1}, l3[256];
	struct rte_ether_addr dst, mac;
	struct roce_ip ip, back;
	unsigned int header;
	rte_be16_t sum;
	uint64_t limited;

	open_us(args, them);
	for (unsigned int i = 8; i < sizeof(payload); i++)
		payload[i] = i;
	ip = (struct roce_ip){.src = rig[THEM].gid,
		.dst = rig[US].gid,
		.proto = proto,
		.hop_limit = 3,
		.payload_len = sizeof(payload)};
	sum = roce_ip_payload_cksum(&ip, payload);
	memcpy(payload + 2, &sum, 2);
	send_ip(&rig[US].mac, &ip, payload);
	header = receive_ip(&back, proto, l3, &dst, 5);
	assert_true(header > 0);
	assert_int_equal(l3[header], reply);
	assert_int_equal(back.hop_limit, 64);
	assert_int_equal(back.payload_len, sizeof(payload));
	assert_int_equal(roce_ip_payload_cksum(&back, l3 + header), 0);
	assert_memory_equal(l3 + header + 4, payload + 4, sizeof(payload) - 4);
	assert_memory_equal(&dst, &rig[THEM].mac, 6);
	/* corrupted */
	payload[20] ^= 1;
	send_ip(&rig[US].mac, &ip, payload);
	assert_int_equal(receive_ip(&back, proto, l3, &dst, 5), 0);
	assert_int_equal(rig_stat(US, "control_malformed"), 1);
	payload[20] ^= 1;
	/* the reply would go to all stations */
	mac = rig[THEM].mac;
	rig[THEM].mac = everybody;
	send_ip(&rig[US].mac, &ip, payload);
	rig[THEM].mac = mac;
	assert_int_equal(receive_ip(&back, proto, l3, &dst, 5), 0);
	assert_int_equal(rig_stat(US, "control_malformed"), 2);
	/* to another station, as promiscuous ports receive it */
	ip.dst.raw[15] = 77;
	send_ip(&rig[US].mac, &ip, payload);
	assert_int_equal(receive_ip(&back, proto, l3, &dst, 5), 0);
	/* a flood: at most a thousand replies a second */
	ip.dst = rig[US].gid;
	for (unsigned int i = 0; i < 5000; i++) {
		uint8_t frame[L2 + 40 + 64];

		ether_put(frame, &rig[US].mac, proto == IPPROTO_ICMP ? 0x0800 : 0x86dd);
		header = roce_ip_encode(&ip, frame + L2);
		memcpy(frame + L2 + header, payload, sizeof(payload));
		rig_send_bytes(THEM, frame, L2 + header + sizeof(payload));
		if (i % 100 == 99) {
			rig_run(1);
			drain();
		}
	}
	limited = rig_stat(US, "echo_limited");
	assert_in_range(limited, 2900, 4100);
	assert_int_equal(rig_stat(US, "echo_replies") + limited, 5001);
	drain();
	rig_close();
}

static void
test_echo(void **state)
{
	echo("ip=10.99.0.1/24", "10.99.0.2", IPPROTO_ICMP, 8, 0);
	echo("ip=fd00::1/64", "fd00::2", IPPROTO_ICMPV6, 128, 129);
}

/* The reply has the VLAN tag of the device, also if the port strips the tag of the request. */
static void
echo_tagged(bool stripped)
{
	static const uint8_t tagged[] = {0x81, 0x00, 0x60, 0x07, 0x08, 0x00};
	uint8_t payload[8] = {8, 0, 0, 0, 0x12, 0x34, 0, 1};
	struct rte_mbuf *m = rte_pktmbuf_alloc(rig_pool);
	uint8_t frame[L2 + 4 + 20 + sizeof(payload)];
	struct roce_ip ip, back;
	unsigned int l2 = L2;
	rte_be16_t sum;

	assert_non_null(m);
	open_us("ip=10.99.0.1/24,vlan=7:3", "10.99.0.2");
	ip = (struct roce_ip){.src = rig[THEM].gid,
		.dst = rig[US].gid,
		.proto = IPPROTO_ICMP,
		.hop_limit = 64,
		.payload_len = sizeof(payload)};
	sum = roce_ip_payload_cksum(&ip, payload);
	memcpy(payload + 2, &sum, 2);
	ether_put(frame, &rig[US].mac, RTE_ETHER_TYPE_IPV4);
	if (stripped) {
		m->ol_flags |= RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED;
		m->vlan_tci = 3 << 13 | 7;
	} else {
		memcpy(frame + 12, tagged, sizeof(tagged));
		l2 += 4;
	}
	assert_int_equal(roce_ip_encode(&ip, frame + l2), 20);
	memcpy(frame + l2 + 20, payload, sizeof(payload));
	memcpy(rte_pktmbuf_append(m, l2 + 20 + sizeof(payload)), frame, l2 + 20 + sizeof(payload));
	rig_send(THEM, m);
	rig_run(2);
	m = rig_receive(THEM);
	assert_non_null(m);
	assert_int_equal(m->pkt_len, sizeof(frame));
	memcpy(frame, rte_pktmbuf_mtod(m, void *), sizeof(frame));
	rte_pktmbuf_free(m);
	assert_memory_equal(frame, &rig[THEM].mac, 6);
	assert_memory_equal(frame + 6, &rig[US].mac, 6);
	assert_memory_equal(frame + 12, tagged, sizeof(tagged));
	assert_int_equal(roce_ip_decode(frame + L2 + 4, 20 + sizeof(payload), 4, &back), 20);
	assert_memory_equal(&back.dst, &rig[THEM].gid, 16);
	assert_int_equal(frame[L2 + 4 + 20], 0);
	rig_close();
}

static void
test_echo_vlan(void **state)
{
	echo_tagged(false);
	echo_tagged(true);
}

/* ---- groups ---------------------------------------------------------------------------------- */

static bool
receive_report(struct roce_group_msg *msg, struct roce_ip *ip, uint8_t proto, int ms)
{
	struct rte_ether_addr dst, want;
	uint8_t l3[256];
	unsigned int header;

	while ((header = receive_ip(ip, proto, l3, &dst, ms)))
		if (roce_group_decode(ip, l3 + header, msg) == 0) {
			assert_true(ip->router_alert);
			assert_int_equal(ip->hop_limit, 1);
			if (proto == IPPROTO_ICMPV6)
				assert_true(roce_gid_is_link_local(&ip->src));
			want = roce_gid_multicast_mac(&ip->dst);
			assert_memory_equal(&dst, &want, 6);
			return true;
		}
	return false;
}

/* General query, or query of a group; old: IGMPv2, MLDv1 */
static void
send_query_from(
	const struct roce_gid *src, const struct roce_gid *group, bool old, unsigned int seconds)
{
	const bool v4 = roce_gid_is_v4(src);
	struct roce_ip ip = {.src = *src,
		.proto = v4 ? IPPROTO_IGMP : IPPROTO_ICMPV6,
		.hop_limit = 1,
		.router_alert = true};
	struct rte_ether_addr mac;
	uint8_t payload[28] = {0};
	rte_be16_t sum;

	if (v4) {
		ip.dst = roce_gid_v4(RTE_BE32(0xe0000001));
		ip.payload_len = old ? 8 : 12;
		payload[0] = 0x11;
		payload[1] = seconds * 10;
		if (group)
			memcpy(payload + 4, group->raw + 12, 4);
	} else {
		ip.dst = (struct roce_gid){{0xff, 0x02, [15] = 1}};
		ip.payload_len = old ? 24 : 28;
		payload[0] = 130;
		payload[4] = seconds * 1000 >> 8;
		payload[5] = seconds * 1000;
		if (group)
			memcpy(payload + 8, group->raw, 16);
	}
	sum = roce_ip_payload_cksum(&ip, payload);
	memcpy(payload + 2, &sum, 2);
	mac = roce_gid_multicast_mac(&ip.dst);
	send_ip(&mac, &ip, payload);
}

static void
send_query(const struct roce_gid *group, bool old, unsigned int seconds)
{
	const struct roce_gid router6 = {{0xfe, 0x80, [15] = 2}};

	send_query_from(
		roce_gid_is_v4(&rig[US].gid) ? &rig[THEM].gid : &router6, group, old, seconds);
}

static void
groups(const char *args, const char *them, const struct roce_gid *group)
{
	const bool v4 = roce_gid_is_v4(group);
	const uint8_t proto = v4 ? IPPROTO_IGMP : IPPROTO_ICMPV6;
	struct rdma_conn *member[2];
	struct sockaddr_storage sa;
	struct roce_group_msg msg;
	struct rdma_event *e;
	struct rdma_qp *qp[2];
	struct roce_ip ip;

	open_us(args, them);
	for (unsigned int i = 0; i < 2; i++)
		qp[i] = rig_qp(US, RDMA_QP_UD);
	roce_gid_to_sockaddr(&rig[THEM].gid, 0, &sa);
	assert_null(rdma_multicast_join(qp[0], (struct sockaddr *)&sa, NULL));
	assert_int_equal(rte_errno, EINVAL);
	roce_gid_to_sockaddr(group, 0, &sa);
	member[0] = rdma_multicast_join(qp[0], (struct sockaddr *)&sa, &sa);
	assert_non_null(member[0]);
	assert_ptr_equal(rdma_conn_context(member[0]), &sa);
	e = rig_event(US, RDMA_EVENT_MULTICAST_JOINED, 5);
	assert_int_equal(e->remote_qpn, 0xffffff);
	assert_int_equal(e->remote_qkey, 0x01234567);
	assert_non_null(e->ah);
	/* reported twice; a second queue pair does not add a report */
	for (unsigned int i = 0; i < 2; i++) {
		assert_true(receive_report(&msg, &ip, proto, 1100));
		assert_int_equal(msg.type, ROCE_GROUP_REPORT);
		assert_int_equal(msg.record, ROCE_GROUP_JOINS);
		assert_memory_equal(&msg.group, group, 16);
	}
	member[1] = rdma_multicast_join(qp[1], (struct sockaddr *)&sa, NULL);
	assert_non_null(member[1]);
	assert_false(receive_report(&msg, &ip, proto, 2000));
	/* after a query each group is reported within the given time */
	send_query(NULL, false, 2);
	assert_true(receive_report(&msg, &ip, proto, 2100));
	if (!v4 &&
		memcmp(&msg.group, group, 16) != 0) /* the solicited-node group is reported, too */
		assert_true(receive_report(&msg, &ip, proto, 2100));
	assert_int_equal(msg.record, ROCE_GROUP_IS_MEMBER);
	receive_report(&msg, &ip, proto, 2100);
	send_query(group, false, 1);
	assert_true(receive_report(&msg, &ip, proto, 1100));
	assert_memory_equal(&msg.group, group, 16);
	send_query(&rig[THEM].gid, false, 1);
	assert_false(receive_report(&msg, &ip, proto, 2100));
	/* an old querier gets reports of its version */
	send_query(group, true, 1);
	assert_true(receive_report(&msg, &ip, proto, 1100));
	assert_int_equal(msg.type, ROCE_GROUP_OLD_REPORT);
	assert_memory_equal(&ip.dst, group, 16);
	assert_int_equal(rdma_conn_destroy(member[0]), 0);
	assert_false(receive_report(&msg, &ip, proto, 100));
	assert_int_equal(rdma_conn_destroy(member[1]), 0);
	assert_true(receive_report(&msg, &ip, proto, 10));
	assert_int_equal(msg.type, ROCE_GROUP_OLD_LEAVE);
	/* long after the last old query */
	for (unsigned int i = 0; i < 300; i++) {
		rig_run(1000);
		drain();
	}
	member[0] = rdma_multicast_join(qp[0], (struct sockaddr *)&sa, NULL);
	assert_true(receive_report(&msg, &ip, proto, 10));
	assert_int_equal(msg.type, ROCE_GROUP_REPORT);
	assert_int_equal(rdma_conn_destroy(member[0]), 0);
	assert_true(receive_report(&msg, &ip, proto, 10));
	assert_int_equal(msg.record, ROCE_GROUP_LEAVES);
	send_query(group, false, 1);
	while (receive_report(&msg, &ip, proto, 1500))
		assert_int_equal(msg.record, ROCE_GROUP_LEAVES);
	for (unsigned int i = 0; i < 2; i++)
		assert_int_equal(rdma_qp_destroy(qp[i]), 0);
	drain();
	rig_run(10);
	rig_close();
}

static void
test_groups(void **state)
{
	const struct roce_gid group4 = roce_gid_v4(RTE_BE32(0xef010203));
	const struct roce_gid group6 = {{0xff, 0x12, [13] = 1, [14] = 2, [15] = 3}};

	groups("ip=10.99.0.1/24", "10.99.0.2", &group4);
	groups("ip=fd00::1/64", "fd00::2", &group6);
}

/* A querier that repeats its queries does not delay the report. */
static void
test_group_queries(void **state)
{
	const struct roce_gid group = roce_gid_v4(RTE_BE32(0xef010203));
	struct roce_memberships *all;
	struct sockaddr_storage sa;
	struct roce_group_msg msg;
	struct rdma_conn *member;
	uint64_t due, first = 0;
	struct rdma_qp *qp;
	struct roce_ip ip;

	open_us("ip=10.99.0.1/24", "10.99.0.2");
	qp = rig_qp(US, RDMA_QP_UD);
	roce_gid_to_sockaddr(&group, 0, &sa);
	member = rdma_multicast_join(qp, (struct sockaddr *)&sa, NULL);
	assert_non_null(member);
	rig_run(2000);
	drain();
	all = &roce_dev(rig[US].dev)->control->memberships;
	for (unsigned int i = 0; i < 40; i++) {
		send_query(NULL, false, 12);
		due = 0;
		for (uint32_t j = 0; j < all->nb_entries; j++)
			if (roce_gid_equal(&all->entries[j].group, &group))
				due = all->entries[j].timer.timer.deadline;
		if (due == 0)
			break; /* reported meanwhile */
		assert_true(first == 0 || due <= first);
		first = due;
	}
	assert_true(receive_report(&msg, &ip, IPPROTO_IGMP, 12100));
	assert_int_equal(rdma_conn_destroy(member), 0);
	assert_int_equal(rdma_qp_destroy(qp), 0);
	rig_run(2000);
	drain();
	rig_close();
}

/* The source of a device's MLD messages. @param own NULL: formed from the MAC address */
static void
mld_source(const char *args, const struct roce_gid *own)
{
	struct roce_gid want = {{0xfe, 0x80, [11] = 0xff, [12] = 0xfe}};
	const struct roce_gid group = {{0xff, 0x12, [15] = 3}}, global = {{0xfd, [15] = 2}};
	struct sockaddr_storage sa;
	struct roce_group_msg msg;
	struct rdma_conn *member;
	struct rdma_qp *qp;
	struct roce_ip ip;

	open_us(args, "fe80::2");
	memcpy(want.raw + 8, rig[US].mac.addr_bytes, 3);
	memcpy(want.raw + 13, rig[US].mac.addr_bytes + 3, 3);
	want.raw[8] ^= 2;
	if (own)
		want = *own;
	qp = rig_qp(US, RDMA_QP_UD);
	roce_gid_to_sockaddr(&group, 0, &sa);
	member = rdma_multicast_join(qp, (struct sockaddr *)&sa, NULL);
	assert_non_null(member);
	for (unsigned int i = 0; i < 2; i++) {
		assert_true(receive_report(&msg, &ip, IPPROTO_ICMPV6, 1100));
		assert_memory_equal(&ip.src, &want, 16);
	}
	/* a forged query is not answered, and does not select its version */
	send_query_from(&global, NULL, true, 1);
	assert_false(receive_report(&msg, &ip, IPPROTO_ICMPV6, 1100));
	assert_int_equal(rig_stat(US, "control_malformed"), 1);
	send_query(NULL, false, 1);
	assert_true(receive_report(&msg, &ip, IPPROTO_ICMPV6, 1100));
	assert_int_equal(msg.type, ROCE_GROUP_REPORT);
	assert_memory_equal(&ip.src, &want, 16);
	assert_int_equal(rdma_conn_destroy(member), 0);
	assert_int_equal(rdma_qp_destroy(qp), 0);
	rig_run(2000);
	drain();
	rig_close();
}

static void
test_mld_source(void **state)
{
	const struct roce_gid own = {{0xfe, 0x80, [15] = 1}};

	mld_source("ip=fd00::1/64", NULL);
	mld_source("ip=fe80::1/64", &own);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_life_of_an_entry),
		cmocka_unit_test(test_arp_questions),
		cmocka_unit_test(test_conflict),
		cmocka_unit_test(test_announcement),
		cmocka_unit_test(test_flood),
		cmocka_unit_test(test_moved),
		cmocka_unit_test(test_used_entry_is_kept),
		cmocka_unit_test(test_routes),
		cmocka_unit_test(test_route_check),
		cmocka_unit_test(test_address_handle),
		cmocka_unit_test(test_nd),
		cmocka_unit_test(test_nd_flood),
		cmocka_unit_test(test_disputes),
		cmocka_unit_test(test_dispute_of_no_entry),
		cmocka_unit_test(test_echo),
		cmocka_unit_test(test_echo_vlan),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_group_queries),
		cmocka_unit_test(test_mld_source),
	};
	int failed;

	rig_init(argv[0]);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	rig_exit();
	return failed;
}
