/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Codecs of control messages: each frame of a Linux kernel is decoded and encoded to the same
 * bytes, and malformed frames are refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <pcap.h>
#include <rte_eal.h>
#include <rte_ip.h>

#include "net/arp.h"
#include "mcast/group.h"
#include "net/icmp.h"
#include "cm/mad.h"
#include "net/nd.h"

#define ETHER 14
#define UDP   8
#define BTH   12
#define DETH  8

static const char *const captures[] = {
	"rxe-cm-udaddy-mckey.pcap", "rxe-perftest-rping.pcap", "rxe-rping.pcap", "rxe-write.pcap"};

/** A frame of a capture. */
struct frame {
	const uint8_t *data;
	unsigned int length;
};

/** Number of frames of each kind that were tested. */
static struct {
	unsigned int arp, cm[16], cma, rej, group, solicit, echo;
} seen;

static const uint8_t *
cm_mad(const struct frame *f)
{
	const uint8_t *ip = f->data + ETHER;
	const uint8_t *bth = ip + 20 + UDP;

	if (f->length < ETHER + 20 + UDP + BTH + DETH + ROCE_MAD_BYTES + ROCE_ICRC_BYTES ||
		f->data[12] != 0x08 || f->data[13] != 0x00 || ip[9] != IPPROTO_UDP ||
		ip[20 + 2] != 0x12 || ip[20 + 3] != 0xb7 || bth[0] != ROCE_UD + ROCE_SEND_ONLY ||
		roce_get24(bth + 5) != ROCE_QPN_CM)
		return NULL;
	return bth + BTH + DETH;
}

static void
frame_cm(const uint8_t *mad)
{
	uint8_t again[ROCE_MAD_BYTES], cma[ROCE_CMA_BYTES];
	struct roce_cm_msg msg;
	struct roce_cma header;
	const uint8_t *private_data = NULL;

	memset(again, 0xa5, sizeof(again));
	assert_int_equal(roce_cm_decode(mad, &msg), 0);
	roce_cm_encode(&msg, again);
	assert_memory_equal(again, mad, ROCE_MAD_BYTES);
	seen.cm[msg.attr - ROCE_CM_REQ]++;
	if (msg.attr == ROCE_CM_REQ) {
		private_data = msg.req.private_data;
		assert_int_equal(msg.req.pkey, 0xffff);
		assert_int_equal(msg.req.service_id >> 16, ROCE_PORT_SPACE_TCP);
		assert_int_equal(msg.req.primary.hop_limit, 64);
		assert_in_range(msg.req.mtu, 1, 5);
	} else if (msg.attr == ROCE_CM_SIDR_REQ) {
		private_data = msg.sidr_req.private_data;
		assert_int_equal(msg.sidr_req.service_id >> 16, ROCE_PORT_SPACE_UDP);
	} else if (msg.attr == ROCE_CM_SIDR_REP) {
		assert_int_equal(msg.sidr_rep.status, ROCE_SIDR_SUCCESS);
		assert_int_equal(msg.sidr_rep.qkey, ROCE_RDMA_UDP_QKEY);
	}
	if (private_data) {
		assert_int_equal(roce_cma_decode(private_data, &header), 0);
		assert_int_equal(header.ip_version, 4);
		assert_int_equal(header.src[12], 10);
		roce_cma_encode(&header, cma);
		assert_memory_equal(cma, private_data, ROCE_CMA_BYTES);
		seen.cma++;
	}
}

static void
frame_arp(const struct frame *f)
{
	uint8_t again[ROCE_ARP_BYTES];
	struct roce_arp arp;

	assert_int_equal(roce_arp_decode(f->data + ETHER, f->length - ETHER, &arp), 0);
	roce_arp_encode(&arp, again);
	assert_memory_equal(again, f->data + ETHER, sizeof(again));
	seen.arp++;
}

/** IGMP, MLD, neighbor discovery: header and payload byte for byte. */
static void
frame_ip(const struct frame *f)
{
	const uint8_t *l3 = f->data + ETHER;
	uint8_t again[ROCE_IP_BYTES_MAX + ROCE_ND_BYTES_MAX];
	const uint8_t version = f->data[12] == 0x08 ? 4 : 6;
	unsigned int header, length;
	struct roce_group_msg msg;
	struct roce_ip ip, out;
	struct roce_nd nd;
	int ret = roce_ip_decode(l3, f->length - ETHER, version, &ip);

	assert_true(ret > 0);
	header = ret;
	if (ip.proto == IPPROTO_UDP || ip.proto == IPPROTO_TCP || ip.proto == IPPROTO_ICMP)
		return;
	if (roce_group_decode(&ip, l3 + header, &msg) == 0) {
		assert_int_equal(msg.type, ROCE_GROUP_REPORT);
		out = (struct roce_ip){.src = ip.src, .id = ip.id};
		length = roce_group_encode(&msg, &out, again + header);
		seen.group++;
	} else if (ip.proto == IPPROTO_ICMPV6 && l3[header] == ROCE_ND_SOLICIT) {
		assert_int_equal(roce_nd_decode(&ip, l3 + header, &nd), 0);
		out = ip;
		length = roce_nd_encode(&nd, &out, again + header);
		seen.solicit++;
	} else {
		return;
	}
	assert_int_equal(roce_ip_encode(&out, again), header);
	assert_int_equal(header + length, f->length - ETHER);
	assert_memory_equal(again, l3, header + length);
}

static struct rte_mempool *pool;

static struct rte_mbuf *
frame_mbuf(const uint8_t *data, unsigned int length)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool);

	assert_non_null(m);
	memcpy(rte_pktmbuf_append(m, length), data, length);
	m->l2_len = ETHER;
	return m;
}

/** The reply to a request equals the kernel's reply, except for its IP header. */
static void
echo_check(const struct frame *request, const struct frame *reply)
{
	struct rte_mbuf *m = frame_mbuf(request->data, request->length);
	struct rte_ether_addr mac;
	struct roce_ip ip;
	const uint8_t *out = rte_pktmbuf_mtod(m, uint8_t *);
	struct rte_ipv4_hdr h;

	memcpy(&mac, request->data, sizeof(mac));
	m->l3_len = roce_ip_decode(out + ETHER, request->length - ETHER, 4, &ip);
	assert_int_equal(m->l3_len, 20);
	assert_int_equal(roce_icmp_echo(m, &ip, &mac), 0);
	assert_int_equal(m->pkt_len, reply->length);
	assert_memory_equal(out, reply->data, ETHER);
	assert_memory_equal(out + ETHER + 12, reply->data + ETHER + 12, reply->length - ETHER - 12);
	memcpy(&h, out + ETHER, sizeof(h));
	assert_int_equal(rte_raw_cksum(&h, sizeof(h)), 0xffff);
	/* a reply is no request, nor is a corrupted request */
	m->l3_len = roce_ip_decode(out + ETHER, m->data_len - ETHER, 4, &ip);
	assert_int_equal(roce_icmp_echo(m, &ip, &mac), -ENOTSUP);
	rte_pktmbuf_mtod(m, uint8_t *)[ETHER + 30] ^= 1;
	assert_int_equal(roce_icmp_echo(m, &ip, &mac), -EPROTO);
	rte_pktmbuf_free(m);
	seen.echo++;
}

static void
test_captures(void **state)
{
	const char *data = getenv("BRAGGLINE_DATA");
	char path[512], error[PCAP_ERRBUF_SIZE];
	uint8_t request[256];
	struct frame asked = {request, 0};

	snprintf(path, sizeof(path), "%s/roce/%s", data ? data : ".", captures[0]);
	if (access(path, R_OK) != 0) {
		print_message("no captures: %s; BRAGGLINE_DATA names their directory\n", path);
		skip();
	}
	memset(&seen, 0, sizeof(seen));
	for (size_t i = 0; i < RTE_DIM(captures); i++) {
		struct pcap_pkthdr *h;
		struct frame f;
		pcap_t *p;

		snprintf(path, sizeof(path), "%s/roce/%s", data, captures[i]);
		p = pcap_open_offline(path, error);
		assert_non_null(p);
		while (pcap_next_ex(p, &h, &f.data) == 1) {
			f.length = h->caplen;
			if (cm_mad(&f)) {
				frame_cm(cm_mad(&f));
				continue;
			}
			if (f.data[12] == 0x08 && f.data[13] == 0x06)
				frame_arp(&f);
			else
				frame_ip(&f);
			if (f.data[12] != 0x08 || f.data[23] != IPPROTO_ICMP)
				continue;
			if (f.data[34] == 8) {
				memcpy(request, f.data, f.length);
				asked.length = f.length;
			} else if (f.data[34] == 0 && asked.length) {
				echo_check(&asked, &f);
				asked.length = 0;
			}
		}
		pcap_close(p);
	}
	print_message("ARP %u, groups %u, solicitations %u, echoes %u, RDMA CM headers %u\n",
		seen.arp, seen.group, seen.solicit, seen.echo, seen.cma);
	for (unsigned int a = ROCE_CM_REQ; a <= ROCE_CM_SIDR_REP; a++) {
		print_message("%s %u\n", roce_cm_attr_name(a), seen.cm[a - ROCE_CM_REQ]);
		/* the captures contain neither */
		if (a != ROCE_CM_MRA && a != ROCE_CM_REJ)
			assert_true(seen.cm[a - ROCE_CM_REQ] > 0);
	}
	assert_true(seen.arp >= 10);
	assert_true(seen.group >= 20);
	assert_true(seen.solicit >= 4);
	assert_true(seen.echo >= 1);
}

static uint64_t
random64(void)
{
	return (uint64_t)mrand48() << 32 ^ (uint64_t)mrand48();
}

static void
seed(void)
{
	const char *given = getenv("ROCE_SEED");
	const long value = given ? atol(given) : (long)time(NULL);

	print_message("ROCE_SEED=%ld\n", value);
	srand48(value);
}

/**
 * Random MADs: a MAD that is decoded and encoded again decodes to the same message; reserved bits
 * are zero.
 */
static void
test_cm_random(void **state)
{
	seed();
	for (unsigned int i = 0; i < 20000; i++) {
		uint8_t mad[ROCE_MAD_BYTES], once[ROCE_MAD_BYTES], twice[ROCE_MAD_BYTES];
		struct roce_cm_msg a, b;

		for (unsigned int at = 0; at < sizeof(mad); at += 8) {
			const uint64_t r = random64();

			memcpy(mad + at, &r, 8);
		}
		memcpy(mad, (const uint8_t[]){1, ROCE_MAD_CLASS_CM, 2, 3}, 4);
		mad[16] = 0;
		mad[17] = ROCE_CM_REQ + i % 10;
		memset(&a, 0, sizeof(a));
		memset(&b, 0, sizeof(b));
		if (i % 10 == 9) {
			assert_int_equal(roce_cm_decode(mad, &a), -ENOTSUP);
			continue;
		}
		assert_int_equal(roce_cm_decode(mad, &a), 0);
		roce_cm_encode(&a, once);
		assert_int_equal(roce_cm_decode(once, &b), 0);
		assert_memory_equal(&a, &b, sizeof(a));
		roce_cm_encode(&b, twice);
		assert_memory_equal(once, twice, sizeof(once));
		/* only reserved bits were dropped */
		for (unsigned int at = 0; at < sizeof(mad); at++)
			assert_int_equal(once[at] & ~mad[at], 0);
	}
}

static void
test_cm_hostile(void **state)
{
	uint8_t mad[ROCE_MAD_BYTES] = {1, ROCE_MAD_CLASS_CM, 2, 3};
	struct roce_cm_msg msg;
	struct roce_cma cma;
	uint8_t header[ROCE_CMA_BYTES] = {0, 0x40};

	mad[17] = ROCE_CM_REQ;
	assert_int_equal(roce_cm_decode(mad, &msg), 0);
	for (unsigned int i = 0; i < 4; i++) {
		mad[i] ^= 0x80;
		assert_int_equal(roce_cm_decode(mad, &msg), -EPROTO);
		mad[i] ^= 0x80;
	}
	mad[17] = 0x0f;
	assert_int_equal(roce_cm_decode(mad, &msg), -ENOTSUP);
	mad[16] = 0xff;
	assert_int_equal(roce_cm_decode(mad, &msg), -ENOTSUP);
	assert_int_equal(roce_cma_decode(header, &cma), 0);
	header[1] = 0x60;
	assert_int_equal(roce_cma_decode(header, &cma), 0);
	header[1] = 0x50;
	assert_int_equal(roce_cma_decode(header, &cma), -EPROTO);
	header[1] = 0x40;
	header[0] = 1;
	assert_int_equal(roce_cma_decode(header, &cma), -EPROTO);
}

/** A REJ as in figure of IBTA 12.6.7; the captures contain none. */
static void
test_cm_rej(void **state)
{
	struct roce_cm_msg msg = {
		.attr = ROCE_CM_REJ,
		.tid = 0x1122334455667788,
		.rej = {.local_id = 0xa1a2a3a4,
			.remote_id = 0xb1b2b3b4,
			.answered = ROCE_CM_ANSWERS_REP,
			.info_len = 3,
			.reason = ROCE_REJ_CONSUMER},
	};
	static const uint8_t want[] = {1, 7, 2, 3, 0, 0, 0, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66,
		0x77, 0x88, 0, 0x12, 0, 0, 0, 0, 0, 0, 0xa1, 0xa2, 0xa3, 0xa4, 0xb1, 0xb2, 0xb3,
		0xb4, 0x40, 0x06, 0, 28, 0};
	uint8_t mad[ROCE_MAD_BYTES];

	msg.rej.private_data[0] = 0xee;
	roce_cm_encode(&msg, mad);
	assert_memory_equal(mad, want, sizeof(want));
	assert_int_equal(mad[24 + 84], 0xee);
	assert_string_equal(roce_cm_reason_name(8), "no listener");
	assert_string_equal(roce_cm_attr_name(0x99), "unknown message");
}

static void
test_arp_hostile(void **state)
{
	struct roce_arp arp = {.op = ROCE_ARP_REQUEST, .sender_ip = RTE_BE32(0x0a000001)};
	uint8_t wire[ROCE_ARP_BYTES];

	roce_arp_encode(&arp, wire);
	assert_int_equal(roce_arp_decode(wire, sizeof(wire), &arp), 0);
	assert_int_equal(roce_arp_decode(wire, sizeof(wire) - 1, &arp), -EPROTO);
	for (unsigned int i = 0; i < 8; i++) {
		wire[i] ^= 0x40;
		assert_int_equal(roce_arp_decode(wire, sizeof(wire), &arp), -EPROTO);
		wire[i] ^= 0x40;
	}
	wire[7] = 3;
	assert_int_equal(roce_arp_decode(wire, sizeof(wire), &arp), -EPROTO);
}

/**
 * Every truncation and every flipped bit of an IP packet: it is refused, or its length is right.
 */
static void
test_ip_hostile(void **state)
{
	for (int v6 = 0; v6 < 2; v6++) {
		struct roce_group_msg msg = {
			.type = ROCE_GROUP_REPORT,
			.record = ROCE_GROUP_JOINS,
			.group = v6 ? (struct roce_gid){{0xff, 0x12, [15] = 9}}
				    : roce_gid_v4(RTE_BE32(0xef010203)),
		};
		struct roce_ip ip = {.src = v6 ? (struct roce_gid){{0xfe, 0x80, [15] = 1}}
					       : roce_gid_v4(RTE_BE32(0x0a000001))};
		const unsigned int header = v6 ? 48 : 24;
		uint8_t wire[ROCE_IP_BYTES_MAX + ROCE_GROUP_BYTES_MAX];
		const unsigned int length = header + roce_group_encode(&msg, &ip, wire + header);
		struct roce_group_msg back;
		struct roce_ip other;

		assert_int_equal(roce_ip_encode(&ip, wire), header);
		assert_int_equal(roce_ip_decode(wire, length, v6 ? 6 : 4, &other), header);
		assert_int_equal(roce_ip_decode(wire, length, v6 ? 4 : 6, &other), -EPROTO);
		assert_int_equal(roce_group_decode(&other, wire + header, &back), 0);
		assert_memory_equal(&back.group, &msg.group, sizeof(msg.group));
		assert_int_equal(back.record, ROCE_GROUP_JOINS);
		for (unsigned int n = 0; n < length; n++) {
			/* exact size, so that a sanitizer detects reads past the end */
			uint8_t *cut = malloc(n ? n : 1);

			memcpy(cut, wire, n);
			assert_int_equal(roce_ip_decode(cut, n, v6 ? 6 : 4, &other), -EPROTO);
			free(cut);
		}
		for (unsigned int bit = 0; bit < length * 8; bit++) {
			int ret;

			wire[bit / 8] ^= 1 << bit % 8;
			ret = roce_ip_decode(wire, length, v6 ? 6 : 4, &other);
			if (ret > 0) {
				assert_true(ret + other.payload_len <= length);
				/*
				 * only fields that no checksum covers may differ: in IPv6 class,
				 * flow label, and hop limit
				 */
				ret = roce_group_decode(&other, wire + ret, &back);
				if (!v6)
					assert_int_equal(ret, -EPROTO);
			}
			wire[bit / 8] ^= 1 << bit % 8;
		}
	}
}

static void
test_queries(void **state)
{
	static const struct {
		uint8_t bytes[12];
		unsigned int length;
		uint8_t version;
		uint32_t response_ms;
	} igmp[] = {
		{{0x11, 100}, 8, 2, 10000}, {{0x11, 0}, 8, 2, 10000}, /* version 1 */
		{{0x11, 5}, 8, 2, 500}, {{0x11, 100}, 12, 3, 10000}, {{0x11, 0x80}, 12, 3, 12800},
		{{0x11, 0xff}, 12, 3, 3174400}, /* 31 << 10, tenths */
	};

	for (size_t i = 0; i < RTE_DIM(igmp); i++) {
		struct roce_ip ip = {.src = roce_gid_v4(RTE_BE32(0x0a0000fe)),
			.proto = IPPROTO_IGMP,
			.payload_len = igmp[i].length};
		struct roce_group_msg msg;
		uint8_t payload[12];
		rte_be16_t sum;

		memcpy(payload, igmp[i].bytes, sizeof(payload));
		sum = roce_ip_payload_cksum(&ip, payload);
		memcpy(payload + 2, &sum, sizeof(sum));
		assert_int_equal(roce_group_decode(&ip, payload, &msg), 0);
		assert_int_equal(msg.type, ROCE_GROUP_QUERY);
		assert_int_equal(msg.version, igmp[i].version);
		assert_int_equal(msg.response_ms, igmp[i].response_ms);
		assert_true(roce_gid_is_none(&msg.group));
		ip.payload_len = 9;
		payload[8] = 0;
		assert_int_equal(roce_group_decode(&ip, payload, &msg), -EPROTO);
	}
}

static void
test_nd_hostile(void **state)
{
	struct roce_nd nd = {.type = ROCE_ND_SOLICIT,
		.target = {{0xfe, 0x80, [15] = 7}},
		.has_mac = true,
		.mac = {{2, 0, 0, 0, 0, 7}}};
	struct roce_ip ip = {.src = {{0xfe, 0x80, [15] = 1}},
		.dst = roce_nd_group(&nd.target),
		.proto = IPPROTO_ICMPV6,
		.hop_limit = ROCE_ND_HOP_LIMIT};
	uint8_t payload[ROCE_ND_BYTES_MAX];
	struct roce_nd back;
	rte_be16_t sum;

	assert_int_equal(roce_nd_encode(&nd, &ip, payload), 32);
	assert_int_equal(roce_nd_decode(&ip, payload, &back), 0);
	assert_true(back.has_mac && rte_is_same_ether_addr(&back.mac, &nd.mac));
	/* forwarded by a router */
	ip.hop_limit = 254;
	assert_int_equal(roce_nd_decode(&ip, payload, &back), -EPROTO);
	ip.hop_limit = ROCE_ND_HOP_LIMIT;
	/* options that are empty, or extend past the end */
	for (unsigned int units = 0; units < 256; units++) {
		payload[25] = units;
		memset(payload + 2, 0, 2);
		sum = roce_ip_payload_cksum(&ip, payload);
		memcpy(payload + 2, &sum, sizeof(sum));
		assert_int_equal(roce_nd_decode(&ip, payload, &back), units == 1 ? 0 : -EPROTO);
	}
}

int
main(int argc, char **argv)
{
	char *eal[] = {argv[0], (char[]){"--no-huge"}, (char[]){"--no-shconf"},
		(char[]){"--no-pci"}, (char[]){"-m"}, (char[]){"64"}, (char[]){"--no-telemetry"}};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_captures),
		cmocka_unit_test(test_cm_random),
		cmocka_unit_test(test_cm_hostile),
		cmocka_unit_test(test_cm_rej),
		cmocka_unit_test(test_arp_hostile),
		cmocka_unit_test(test_ip_hostile),
		cmocka_unit_test(test_queries),
		cmocka_unit_test(test_nd_hostile),
	};
	int failed;

	if (rte_eal_init(RTE_DIM(eal), eal) < 0)
		return 1;
	pool = rte_pktmbuf_pool_create("roce_codec", 31, 0, 0, 2048, SOCKET_ID_ANY);
	if (!pool)
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	rte_mempool_free(pool);
	rte_eal_cleanup();
	return failed;
}
