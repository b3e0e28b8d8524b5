/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RoCE messages of a capture that is repeated: each packet equals one that is made with the numbers
 * of its loop.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include <pcap/pcap.h>
#include <rte_ip.h>
#include <rte_udp.h>

#include "engine/icrc.h"
#include "engine/wire.h"
#include "net_replay.h"
#include "replay_fixture.h"

#define FRAMES	 3u
#define FIRST_OF 10u /* number of the first frame */
#define STREAMS	 2u
#define TILES	 2u
#define SLOTS	 4u
#define MTU	 512u
#define TRAILER	 64u
#define PSN	 0xfffffau /* it wraps in the capture */
#define BASE	 0x10000040ull
#define RING	 0x1000000ull /* distance of streams */
#define MANY	 400u

/* What the detector sends. */
static struct {
	bool write, v6, vlan, checksum;
	uint32_t leader;
	uint32_t pixels; /* of a tile */
	uint32_t extra;	 /* bytes of other messages, 0: none */
} shape;

static struct sent {
	uint8_t frame[2048];
	uint32_t len;
} sent[MANY];
static uint32_t nb_sent;
static uint32_t psn[STREAMS];

static uint64_t
slot_bytes(void)
{
	return TILES * (shape.leader + shape.pixels + TRAILER);
}

/* Make a packet: headers, and the ICRC over them. */
static void
send_packet(uint32_t stream, enum roce_opcode op, const void *ext, uint32_t ext_bytes,
	const uint8_t *payload, uint32_t bytes)
{
	const uint32_t pad = -bytes & 3,
		       udp_bytes = 8 + 12 + ext_bytes + bytes + pad + ROCE_ICRC_BYTES;
	struct sent *s = &sent[nb_sent++];
	uint8_t *at = s->frame, *l3, *l4;
	struct rte_udp_hdr udp = {.src_port = rte_cpu_to_be_16(0xc000 + stream),
		.dst_port = RTE_BE16(ROCE_UDP_PORT),
		.dgram_len = rte_cpu_to_be_16(udp_bytes)};
	struct roce_bth bth = {
		.opcode = ROCE_UC + op, .flags = pad << 4, .pkey = RTE_BE16(ROCE_PKEY)};
	uint32_t crc;

	assert_true(nb_sent <= MANY);
	memset(s, 0, sizeof(*s));
	memset(at, 2, 12);
	at += 12;
	if (shape.vlan) {
		memcpy(at, "\x81\x00\x00\x05", 4);
		at += 4;
	}
	memcpy(at, shape.v6 ? "\x86\xdd" : "\x08\x00", 2);
	l3 = at += 2;
	if (shape.v6) {
		struct rte_ipv6_hdr ip = {.vtc_flow = RTE_BE32(6 << 28),
			.payload_len = rte_cpu_to_be_16(udp_bytes),
			.proto = IPPROTO_UDP,
			.hop_limits = 64};

		memset(&ip.src_addr, 1, 16);
		memset(&ip.dst_addr, 3, 16);
		memcpy(at, &ip, sizeof(ip));
		at += sizeof(ip);
	} else {
		struct rte_ipv4_hdr ip = {.version_ihl = RTE_IPV4_VHL_DEF,
			.total_length = rte_cpu_to_be_16(20 + udp_bytes),
			.fragment_offset = RTE_BE16(RTE_IPV4_HDR_DF_FLAG),
			.time_to_live = 64,
			.next_proto_id = IPPROTO_UDP,
			.src_addr = RTE_BE32(0x0a010101),
			.dst_addr = RTE_BE32(0x0a010201)};

		ip.hdr_checksum = rte_ipv4_cksum(&ip);
		memcpy(at, &ip, sizeof(ip));
		at += sizeof(ip);
	}
	l4 = at;
	memcpy(at, &udp, sizeof(udp));
	at += sizeof(udp);
	roce_put24(bth.qpn, 0x11 + stream);
	roce_put24(bth.psn, psn[stream]++);
	memcpy(at, &bth, sizeof(bth));
	at += sizeof(bth);
	if (ext_bytes > 0)
		memcpy(at, ext, ext_bytes);
	at += ext_bytes;
	crc = roce_icrc_headers(l3, shape.v6 ? 40 : 20, at - l3);
	if (bytes > 0)
		memcpy(at, payload, bytes);
	crc = roce_icrc_bytes(crc, at, bytes + pad);
	at += bytes + pad;
	crc = rte_cpu_to_le_32(crc);
	memcpy(at, &crc, sizeof(crc));
	s->len = at + sizeof(crc) - s->frame;
	/* the ICRC does not cover it */
	udp.dgram_cksum = rte_ipv4_udptcp_cksum((const struct rte_ipv4_hdr *)l3, l4);
	if (shape.checksum)
		memcpy(l4, &udp, sizeof(udp));
}

static void
send_message(uint32_t stream, uint64_t frame, uint32_t tile, const uint8_t *bytes, uint32_t n)
{
	struct roce_reth reth = {
		.va = rte_cpu_to_be_64(BASE + stream * RING + frame % SLOTS * slot_bytes() +
			tile * (slot_bytes() / TILES)),
		.rkey = RTE_BE32(0x1234),
		.length = rte_cpu_to_be_32(n)};
	const enum roce_opcode first = shape.write ? ROCE_WRITE_FIRST : ROCE_SEND_FIRST;

	for (uint32_t at = 0; at < n; at += MTU) {
		const bool is_first = at == 0, is_last = at + MTU >= n;
		const enum roce_opcode op = is_first && is_last
			? (shape.write ? ROCE_WRITE_ONLY : ROCE_SEND_ONLY)
			: first +
				(is_first		  ? 0
						: is_last ? 2
							  : 1);

		send_packet(stream, op, &reth, shape.write && is_first ? sizeof(reth) : 0,
			bytes + at, RTE_MIN(MTU, n - at));
	}
}

/* Make the packets of a loop, with other numbers: an independent implementation. */
static void
make_loop(uint32_t loop)
{
	uint8_t bytes[4096];

	nb_sent = 0;
	for (uint32_t f = 0; f < FRAMES; f++) {
		const uint64_t frame = FIRST_OF + loop * FRAMES + f;
		const rte_le64_t number = rte_cpu_to_le_64(frame);

		for (uint32_t tile = 0; tile < TILES; tile++) {
			for (uint32_t s = 0; s < STREAMS; s++) {
				const uint32_t n = shape.leader + shape.pixels;

				memset(bytes, 0, sizeof(bytes));
				for (uint32_t i = shape.leader; i < n; i++)
					bytes[i] = f * 64 + tile * 16 + s * 7 + i;
				if (shape.leader > 0)
					memcpy(bytes + shape.leader - 8, &number, 8);
				memcpy(bytes + n, &number, 8);
				memset(bytes + n + 8, 0x5a, 40);
				send_message(s, frame, tile, bytes, n + TRAILER);
			}
		}
		for (uint32_t s = 0; s < STREAMS; s++) {
			const struct {
				struct roce_reth reth;
				rte_be32_t imm;
			} __rte_packed event = {
				.imm = rte_cpu_to_be_32(s << 24 | (frame & 0xffffff))};

			if (shape.extra > 0)
				send_message(s, frame, 0, bytes, shape.extra);
			if (shape.write)
				send_packet(s, ROCE_WRITE_ONLY_IMM, &event, sizeof(event), NULL, 0);
			else
				send_packet(s, ROCE_SEND_ONLY_IMM, &event.imm, 4, NULL, 0);
		}
	}
}

/* Write the capture of loop 0. `lost` packets are left out, and one is damaged. */
static void
write_loop(uint32_t lost_from, uint32_t lost, uint32_t damaged)
{
	pcap_t *pcap =
		pcap_open_dead_with_tstamp_precision(DLT_EN10MB, 65535, PCAP_TSTAMP_PRECISION_NANO);
	pcap_dumper_t *dump = pcap_dump_open(pcap, capture);

	assert_non_null(dump);
	for (uint32_t s = 0; s < STREAMS; s++)
		psn[s] = PSN;
	make_loop(0);
	for (uint32_t i = 0; i < nb_sent; i++) {
		struct pcap_pkthdr header = {
			.len = sent[i].len, .caplen = sent[i].len, .ts.tv_sec = i};

		if (i == damaged)
			sent[i].frame[60] ^= 1;
		if (i < lost_from || i >= lost_from + lost)
			pcap_dump((u_char *)dump, &header, sent[i].frame);
	}
	pcap_dump_close(dump);
	pcap_close(pcap);
}

#define NONE UINT32_MAX

static void
roce_args(char *args, size_t size, uint32_t loops)
{
	if (shape.write)
		snprintf(args, size, "loops=%u,roce=%u:%u:%" PRIu64 ":%u", loops, FRAMES, SLOTS,
			slot_bytes(), shape.leader);
	else
		snprintf(args, size, "loops=%u,roce=%u:1:1:%u", loops, FRAMES, shape.leader);
}

static void
assert_packet(struct rte_mbuf *m, const struct sent *s)
{
	uint8_t bytes[2048];
	const uint8_t *have = rte_pktmbuf_read(m, 0, s->len, bytes);

	assert_int_equal(m->pkt_len, s->len);
	assert_non_null(have);
	assert_memory_equal(have, s->frame, s->len);
}

/* Receive all loops of the capture, and compare each packet with one that is made. */
static void
receive_loops(uint16_t port, uint32_t loops)
{
	struct rte_mbuf *m;

	for (uint32_t s = 0; s < STREAMS; s++)
		psn[s] = PSN;
	for (uint32_t loop = 0; loop < loops; loop++) {
		make_loop(loop);
		/* a checksum is removed */
		for (uint32_t i = 0; i < nb_sent; i++)
			memset(sent[i].frame + (shape.v6 ? 40 : 20) + (shape.vlan ? 18 : 14) + 6, 0,
				2);
		for (uint32_t i = 0; i < nb_sent; i++) {
			assert_int_equal(receive(port, 0, &m, 1), 1);
			assert_packet(m, &sent[i]);
			rte_pktmbuf_free(m);
		}
	}
	assert_int_equal(receive(port, 0, &m, 1), 0);
	assert_int_equal(xstat(port, "replay_done"), 1);
}

static void
loops_equal_new_packets(void **state)
{
	static const struct {
		bool write, v6, vlan, checksum;
		uint32_t leader, pixels, extra;
	} shapes[] = {
		{false, false, false, false, 0, 1024, 0},
		{true, false, false, true, 0, 1024, 0},
		{true, true, true, false, 64, 1024, 0},
		/* pixels and trailer in one packet */
		{true, false, false, false, 64, 320, 0},
		{false, false, false, false, 0, 64, 0},
		/* an odd number of bytes, and messages without a trailer */
		{false, false, false, false, 0, 901, 7},
	};
	char args[128];

	for (uint32_t i = 0; i < RTE_DIM(shapes); i++) {
		uint16_t port;

		memcpy(&shape, &shapes[i], sizeof(shape));
		write_loop(NONE, 0, NONE);
		roce_args(args, sizeof(args), 6);
		port = start_single(args, roomless, 0);
		receive_loops(port, 6);
		/* back to the first loop */
		assert_int_equal(rte_eth_dev_stop(port), 0);
		assert_int_equal(rte_eth_dev_start(port), 0);
		receive_loops(port, 6);
		close_port(port);
		port = start_single(args, small, RTE_ETH_RX_OFFLOAD_SCATTER);
		receive_loops(port, 6);
		close_port(port);
		port = start_split(args, roomless, 90);
		receive_loops(port, 6);
		close_port(port);
		assert_pool_sound(roomless);
	}
}

/* The same packet of two loops cannot be in use at the same time. */
static void
packet_in_use_is_waited_for(void **state)
{
	struct rte_mbuf *m[MANY], *more;
	char args[128];
	uint16_t port;

	memset(&shape, 0, sizeof(shape));
	shape.pixels = 1024;
	write_loop(NONE, 0, NONE);
	roce_args(args, sizeof(args), 2);
	port = start_single(args, roomless, 0);
	assert_int_equal(receive(port, 0, m, MANY), nb_sent);
	assert_true(xstat(port, "rx_earlier_loop_bursts") > 0);
	rte_pktmbuf_free(m[1]);
	assert_int_equal(receive(port, 0, &more, 1), 0);
	rte_pktmbuf_free(m[0]);
	assert_int_equal(receive(port, 0, m, MANY), 2);
	make_loop(1);
	assert_packet(m[1], &sent[1]);
	rte_pktmbuf_free_bulk(m, nb_sent);
	assert_int_equal(receive(port, 0, m, MANY), nb_sent - 2);
	assert_packet(m[nb_sent - 3], &sent[nb_sent - 1]);
	rte_pktmbuf_free_bulk(m, nb_sent - 2);
	assert_int_equal(xstat(port, "replay_done"), 1);
	close_port(port);
	assert_pool_sound(roomless);
}

/* Without its last packet a message is renumbered by its address. A damaged packet stays. */
static void
incomplete_messages_are_renumbered(void **state)
{
	/* stream 0, frame 0: the last packet of tile 1; the tile after it is that of stream 1 */
	const uint32_t last = 2 * 3 * STREAMS - 4, damaged = 2;
	struct sent wrong;
	struct rte_mbuf *m;
	char args[128];
	uint16_t port;

	memset(&shape, 0, sizeof(shape));
	shape.write = true;
	shape.pixels = 1024;
	write_loop(last, 1, damaged);
	wrong = sent[damaged];
	roce_args(args, sizeof(args), 4);
	port = start_single(args, ordinary, 0);
	for (uint32_t s = 0; s < STREAMS; s++)
		psn[s] = PSN;
	for (uint32_t loop = 0; loop < 4; loop++) {
		make_loop(loop);
		for (uint32_t i = 0; i < nb_sent; i++) {
			if (i == last)
				continue;
			assert_int_equal(receive(port, 0, &m, 1), 1);
			assert_packet(m, i == damaged ? &wrong : &sent[i]);
			rte_pktmbuf_free(m);
		}
	}
	close_port(port);
}

/* Packets that are no UC messages are delivered unchanged. */
static void
other_packets_stay(void **state)
{
	struct rte_mbuf *m[40];
	uint16_t port;

	write_equal(20, 300);
	port = start_single("loops=2,roce=3", ordinary, 0);
	assert_int_equal(receive(port, 0, m, 40), 40);
	for (uint32_t i = 0; i < 40; i++)
		assert_content(m[i], i % 20, 300);
	rte_pktmbuf_free_bulk(m, 40);
	close_port(port);
}

static int
place(void *arg, void *to, const void *from, size_t size)
{
	return 0;
}

static void *
allocate(void *arg, size_t size)
{
	return NULL;
}

static void
wrong_arguments_are_refused(void **state)
{
	static const char *const wrong[] = {"roce=", "roce=x", "roce=3:4", "roce=3:5:100",
		"roce=3:0:100", "roce=3:4:0", "roce=3:4:100:7", "roce=3:4:100:2000",
		"roce=3:4:100:64:1", "roce=-3", "roce=3:33554432:8", "roce=3,rewrite=42:8:le:1"};
	const struct net_replay_memory memory = {allocate, place, NULL};
	int port;

	memset(&shape, 0, sizeof(shape));
	shape.write = true;
	shape.pixels = 1024;
	write_loop(NONE, 0, NONE);
	for (uint32_t i = 0; i < RTE_DIM(wrong); i++)
		assert_int_equal(open_port(wrong[i]), -1);
	/* RDMA WRITEs need the ring */
	assert_int_equal(open_port("roce=3"), -1);
	port = open_port("roce=3:4:4096");
	assert_true(port >= 0);
	/* the ICRC would be in memory that the CPU cannot access */
	assert_int_equal(net_replay_place(port, &memory), 0);
	configure(port, 1, SPLIT);
	assert_int_equal(split_queue(port, 0, zero, 90), -ENOTSUP);
	close_port(port);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(loops_equal_new_packets, remove_port),
		cmocka_unit_test_teardown(packet_in_use_is_waited_for, remove_port),
		cmocka_unit_test_teardown(incomplete_messages_are_renumbered, remove_port),
		cmocka_unit_test_teardown(other_packets_stay, remove_port),
		cmocka_unit_test_teardown(wrong_arguments_are_refused, remove_port),
	};

	return run_replay_tests(argv[0], tests, RTE_DIM(tests));
}
