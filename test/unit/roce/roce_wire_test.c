/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Headers and ICRCs of every frame that the kernel's rdma_rxe sent in the captures: decoded, and
 * encoded again from the fields, byte for byte.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <pcap/pcap.h>
#include <rte_eal.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_udp.h>

#include "engine/icrc.h"
#include "engine/packet.h"

#define FRAME_MAX 9000

static struct rte_mempool *pool;

static int
setup(void **state)
{
	const char *argv[] = {
		"wire", "--no-huge", "-m", "64", "--no-pci", "--no-shconf", "-l", "0"};

	assert_true(rte_eal_init(RTE_DIM(argv), (char **)(uintptr_t)argv) >= 0);
	pool = rte_pktmbuf_pool_create("wire", 63, 0, 0, RTE_PKTMBUF_HEADROOM + FRAME_MAX, 0);
	assert_non_null(pool);
	return 0;
}

/* A frame as a chain of mbufs, split at `cut` and `cut2`. */
static struct rte_mbuf *
chain(const uint8_t *frame, uint32_t length, uint32_t cut, uint32_t cut2)
{
	const uint32_t at[4] = {
		0, RTE_MIN(cut, length), RTE_MIN(RTE_MAX(cut, cut2), length), length};
	struct rte_mbuf *head = NULL, *m;
	unsigned int i;

	for (i = 0; i < 3; i++) {
		m = rte_pktmbuf_alloc(pool);
		assert_non_null(m);
		memcpy(rte_pktmbuf_append(m, at[i + 1] - at[i]), frame + at[i], at[i + 1] - at[i]);
		if (!head)
			head = m;
		else
			assert_int_equal(rte_pktmbuf_chain(head, m), 0);
	}
	return head;
}

/* Encode from the decoded fields and the path alone. */
static void
encode(const struct roce_packet *pkt, const uint8_t *frame, uint8_t *out, uint32_t length)
{
	const struct rte_ether_hdr *eth = (const struct rte_ether_hdr *)frame;
	const struct rte_ipv4_hdr *ip4 = (const struct rte_ipv4_hdr *)pkt->l3;
	const struct rte_udp_hdr *udp = (const struct rte_udp_hdr *)(pkt->l3 + pkt->l3_len);
	struct roce_path_attr attr = {
		.src_mac = eth->src_addr,
		.dst_mac = eth->dst_addr,
		.src = roce_packet_src(pkt),
		.dst = roce_packet_dst(pkt),
		.udp_src = rte_be_to_cpu_16(udp->src_port),
		.traffic_class = ip4->type_of_service,
		.hop_limit = ip4->time_to_live,
	};
	const uint8_t ext = roce_opcodes[pkt->opcode].ext_bytes;
	struct rte_ipv4_hdr *out4;
	struct roce_path path;
	struct roce_bth *bth;
	uint8_t *at;
	uint32_t crc;

	memset(out, 0, length);
	roce_path_make(&path, &attr);
	memcpy(out, path.header, path.length);
	roce_path_finish(&path, out, sizeof(*bth) + ext + pkt->length + pkt->pad + ROCE_ICRC_BYTES);
	bth = (struct roce_bth *)(out + path.length);
	bth->opcode = pkt->opcode;
	bth->flags = (pkt->bth->flags & (ROCE_BTH_SOLICITED | ROCE_BTH_MIGREQ)) | pkt->pad << 4;
	bth->pkey = RTE_BE16(ROCE_PKEY);
	roce_put24(bth->qpn, pkt->qpn);
	bth->ack = pkt->bth->ack & ROCE_BTH_ACKREQ;
	roce_put24(bth->psn, pkt->psn);
	at = (uint8_t *)(bth + 1);
	if (pkt->flags & ROCE_F_DETH) {
		const struct roce_deth *in = (const struct roce_deth *)pkt->ext;
		struct roce_deth *deth = (struct roce_deth *)at;

		deth->qkey = rte_cpu_to_be_32(rte_be_to_cpu_32(in->qkey));
		roce_put24(deth->qpn, roce_get24(in->qpn));
		at += sizeof(*deth);
	}
	if (pkt->flags & ROCE_F_RETH) {
		const struct roce_reth *in = roce_packet_reth(pkt);

		memcpy(at, &(struct roce_reth){in->va, in->rkey, in->length}, sizeof(*in));
		at += sizeof(*in);
	}
	if (pkt->flags & ROCE_F_ATOMICETH) {
		const struct roce_atomiceth *in = (const struct roce_atomiceth *)pkt->ext;

		memcpy(at, &(struct roce_atomiceth){in->va, in->rkey, in->swap_add, in->compare},
			sizeof(*in));
		at += sizeof(*in);
	}
	if (pkt->flags & ROCE_F_AETH) {
		const struct roce_aeth *in = roce_packet_aeth(pkt);
		struct roce_aeth *aeth = (struct roce_aeth *)at;

		aeth->syndrome = in->syndrome;
		roce_put24(aeth->msn, roce_get24(in->msn));
		at += sizeof(*aeth);
	}
	if (pkt->flags & ROCE_F_ATOMICACK) {
		memcpy(at, pkt->ext + sizeof(struct roce_aeth), sizeof(struct roce_atomicack));
		at += sizeof(struct roce_atomicack);
	}
	if (pkt->flags & ROCE_F_IMM) {
		const rte_be32_t imm = rte_cpu_to_be_32(roce_packet_imm(pkt));

		memcpy(at, &imm, sizeof(imm));
		at += sizeof(imm);
	}
	roce_packet_copy(pkt, 0, at, pkt->length, false);
	at += pkt->length + pkt->pad;
	/* fields that are always zero in our own frames */
	out4 = (struct rte_ipv4_hdr *)(out + path.l2_len);
	out4->packet_id = ip4->packet_id;
	out4->hdr_checksum = 0;
	out4->hdr_checksum = rte_ipv4_cksum(out4);
	crc = roce_icrc_headers(
		out + path.l2_len, path.l3_len, path.length - path.l2_len + sizeof(*bth) + ext);
	crc = roce_icrc_bytes(crc, out + path.length + sizeof(*bth) + ext, pkt->length + pkt->pad);
	crc = rte_cpu_to_le_32(crc);
	memcpy(at, &crc, sizeof(crc));
	at += sizeof(crc);
	assert_int_equal(at - out, length);
}

struct tally {
	unsigned int data, control, opcode[256];
};

static void
one_frame(const uint8_t *frame, uint32_t length, struct tally *tally)
{
	static const uint32_t cuts[][2] = {{9000, 9000}, {14, 34}, {20, 60}, {54, 55}, {42, 70}};
	uint8_t out[FRAME_MAX], broken[FRAME_MAX];
	struct roce_packet pkt;
	struct rte_mbuf *m;
	unsigned int i;

	for (i = 0; i < RTE_DIM(cuts); i++) {
		m = chain(frame, length, cuts[i][0], cuts[i][1]);
		if (roce_packet_parse(m, &pkt) != ROCE_PACKET_DATA) {
			assert_int_equal(i, 0);
			tally->control++;
			rte_pktmbuf_free(m);
			return;
		}
		assert_true(roce_packet_check(&pkt));
		encode(&pkt, frame, out, length);
		assert_memory_equal(out, frame, length);
		rte_pktmbuf_free(m);
	}
	tally->data++;
	tally->opcode[pkt.opcode]++;
	/* any bit that is not masked changes the ICRC */
	for (i = 0; i < 8; i++) {
		const uint32_t at = 14 + (tally->data * 8 + i) * 7919 % (length - 14);

		memcpy(broken, frame, length);
		broken[at] ^= 1 << i;
		m = chain(broken, length, 60, 61);
		if (roce_packet_parse(m, &pkt) == ROCE_PACKET_DATA && roce_packet_check(&pkt) &&
			at != 14 + 1 && at != 14 + 8 && at != 14 + 10 && at != 14 + 11 &&
			at != 14 + 20 + 6 && at != 14 + 20 + 7 && at != 14 + 28 + 4)
			fail_msg("bit %u of byte %u was flipped and not detected", i, at);
		rte_pktmbuf_free(m);
	}
}

static void
replay(const char *name, struct tally *tally)
{
	const char *dir = getenv("BRAGGLINE_DATA");
	char path[4096], error[PCAP_ERRBUF_SIZE];
	struct pcap_pkthdr *h;
	const uint8_t *frame;
	pcap_t *p;

	snprintf(path, sizeof(path), "%s/roce/%s", dir ? dir : ".", name);
	p = pcap_open_offline(path, error);
	if (!p) {
		print_message("skipped: %s\n", error);
		skip();
	}
	while (pcap_next_ex(p, &h, &frame) == 1)
		if (h->caplen == h->len)
			one_frame(frame, h->len, tally);
	pcap_close(p);
	print_message("%s: %u RoCE frames, %u others\n", name, tally->data, tally->control);
}

static void
test_rping(void **state)
{
	struct tally t = {0};

	replay("rxe-rping.pcap", &t);
	assert_true(t.data > 20);
	assert_true(t.opcode[ROCE_UD + ROCE_SEND_ONLY] >= 3);
	assert_true(t.opcode[ROCE_READ_REQUEST] > 0);
}

static void
test_perftest(void **state)
{
	struct tally t = {0};

	replay("rxe-perftest-rping.pcap", &t);
	assert_true(t.data > 100);
	assert_true(t.opcode[ROCE_COMPARE_SWAP] + t.opcode[ROCE_FETCH_ADD] > 0);
	assert_true(t.opcode[ROCE_WRITE_FIRST] > 0);
}

static void
test_write(void **state)
{
	struct tally t = {0};

	replay("rxe-write.pcap", &t);
	assert_true(t.data > 100);
}

static void
test_datagrams(void **state)
{
	struct tally t = {0};

	replay("rxe-cm-udaddy-mckey.pcap", &t);
	assert_true(t.data > 20);
	assert_true(t.opcode[ROCE_UD + ROCE_SEND_ONLY] > 10);
}

/* The standard check value: CRC-32 of the input that the CRC catalogue calls "check". */
static void
test_crc(void **state)
{
	assert_int_equal(roce_icrc_bytes(0, "123456789", 9), 0xcbf43926);
}

/*
 * Headers of one packet with either IP version, from the IP header on, and CRC-32 of zlib of a copy
 * with ones where IBTA A17.3.3 requires them. scapy agrees: with IPv4 by its ICRC, with IPv6 by its
 * fields.
 */
static const struct {
	unsigned int l3_len, length;
	uint32_t icrc;
	uint8_t bytes[80];
} vectors[] = {
	{20, 40, 0x947aae31,
		{0x45, 0x6a, 0x00, 0x3c, 0x12, 0x34, 0x40, 0x00, 0x3f, 0x11, 0xbe, 0xef, 10, 0, 0,
			1, 10, 0, 0, 2, 0xc0, 0x11, 0x12, 0xb7, 0x00, 0x28, 0x12, 0x34, 0x04, 0x40,
			0xff, 0xff, 0x40, 0, 0, 0x11, 0x80, 0x00, 0xab, 0xcd}},
	{40, 60, 0xe2494ed4,
		{0x6a, 0x21, 0x23, 0x45, 0x00, 0x28, 0x11, 0x3f, 0xfd, [23] = 1, 0xfd, [39] = 2,
			0xc0, 0x11, 0x12, 0xb7, 0x00, 0x28, 0x12, 0x34, 0x04, 0x40, 0xff, 0xff,
			0x40, 0, 0, 0x11, 0x80, 0x00, 0xab, 0xcd}},
};

static uint32_t
icrc_of(const uint8_t *headers, unsigned int i)
{
	return roce_icrc_bytes(roce_icrc_headers(headers, vectors[i].l3_len, vectors[i].length),
		"0123456789abcdef", 16);
}

/* May a router change that bit? */
static bool
is_masked(unsigned int i, unsigned int at, uint8_t bit)
{
	if (at == vectors[i].l3_len + 6 || at == vectors[i].l3_len + 7)
		return true; /* UDP checksum */
	if (at == vectors[i].l3_len + 8 + 4)
		return true; /* FECN, BECN, reserved */
	if (vectors[i].l3_len == 20)
		return at == 1 || at == 8 || at == 10 || at == 11;
	return (at == 0 && bit < 0x10) || (at >= 1 && at <= 3) || at == 7;
}

/* For every bit of the headers: either the ICRC covers it, or a router may change it. */
static void
test_mask(void **state)
{
	uint8_t headers[80];

	for (unsigned int i = 0; i < RTE_DIM(vectors); i++) {
		assert_int_equal(icrc_of(vectors[i].bytes, i), vectors[i].icrc);
		for (unsigned int b = 0; b < vectors[i].length * 8; b++) {
			memcpy(headers, vectors[i].bytes, sizeof(headers));
			headers[b / 8] ^= 1 << b % 8;
			if ((icrc_of(headers, i) == vectors[i].icrc) !=
				is_masked(i, b / 8, 1 << b % 8))
				fail_msg("IP header of %u: bit %u of byte %u", vectors[i].l3_len,
					b % 8, b / 8);
		}
	}
}

/* An IPv6 address with the bytes of an IPv4 GID is not that IPv4 address. */
static void
test_gid_type(void **state)
{
	const struct roce_gid v4[] = {
		roce_gid_v4(RTE_BE32(0x0a000001)), roce_gid_v4(RTE_BE32(0x0a000002))};
	const struct roce_gid v6[] = {{{0xfd, [15] = 1}}, {{0xfd, [15] = 2}}};
	const struct roce_gid alike[] = {
		{{0xfd, [12] = 10, [15] = 1}}, {{0xfd, [12] = 10, [15] = 2}}};
	uint8_t l3[40];
	const struct roce_packet pkt4 = {.l3 = vectors[0].bytes, .l3_len = 20};
	const struct roce_packet pkt6 = {.l3 = vectors[1].bytes, .l3_len = 40};
	const struct roce_packet mapped = {.l3 = l3, .l3_len = 40};

	memcpy(l3, vectors[1].bytes, sizeof(l3));
	memcpy(l3 + 8, v4, sizeof(v4));
	assert_true(roce_packet_from(&pkt4, &v4[0]) && roce_packet_to(&pkt4, &v4[1]));
	assert_false(roce_packet_from(&pkt4, &v4[1]) || roce_packet_to(&pkt4, &v4[0]));
	assert_true(roce_packet_from(&pkt6, &v6[0]) && roce_packet_to(&pkt6, &v6[1]));
	assert_false(roce_packet_from(&pkt6, &v6[1]) || roce_packet_to(&pkt6, &v6[0]));
	assert_false(roce_packet_from(&pkt4, &v6[0]) || roce_packet_from(&pkt6, &v4[0]));
	assert_false(roce_packet_from(&mapped, &v4[0]));
	/* nor is an IPv6 GID that ends like an IPv4 address */
	assert_false(roce_packet_from(&pkt4, &alike[0]) || roce_packet_to(&pkt4, &alike[1]));
}

static void
test_serial(void **state)
{
	assert_int_equal(roce_psn_diff(0, 0xffffff), 1);
	assert_int_equal(roce_psn_diff(0xffffff, 0), -1);
	assert_int_equal(roce_psn_diff(0x7fffff, 0), 0x7fffff);
	assert_int_equal(roce_psn_diff(0x800000, 0), -0x800000);
	assert_int_equal(roce_psn_add(0xffffff, 1), 0);
	assert_int_equal(roce_psn_add(0, -1), 0xffffff);
}

/* Truncated or corrupted packets: no byte beyond the end is read. */
static void
test_hostile(void **state)
{
	uint8_t frame[256];
	struct roce_packet pkt;
	uint32_t seed = 1, i, j, n;
	struct rte_mbuf *m;

	for (i = 0; i < 200000; i++) {
		for (j = 0; j < sizeof(frame); j++)
			frame[j] = (seed = seed * 1664525 + 1013904223) >> 24;
		n = 1 + (seed >> 8) % sizeof(frame);
		/* valid enough to pass the first checks */
		frame[12] = seed & 0x100 ? 0x08 : seed & 0x200 ? 0x86 : 0x81;
		frame[13] = seed & 0x100 ? 0x00 : seed & 0x200 ? 0xdd : 0x00;
		frame[14] = seed & 0x100 ? 0x45 : 0x60;
		frame[16] = 0;
		frame[17] = n > 14 ? n - 14 : 0;
		frame[20] = 0x40;
		frame[21] = 0;
		frame[23] = 17;
		frame[36] = 0x12;
		frame[37] = 0xb7;
		frame[38] = 0;
		frame[39] = n > 34 ? n - 34 : 0;
		m = chain(frame, n, seed >> 4 & 0x3f, seed >> 10 & 0xff);
		if (roce_packet_parse(m, &pkt) == ROCE_PACKET_DATA) {
			assert_true(pkt.payload + pkt.length + pkt.pad + ROCE_ICRC_BYTES <= n);
			roce_packet_check(&pkt);
			roce_packet_copy(&pkt, 0, frame, pkt.length, true);
		}
		rte_pktmbuf_free(m);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crc),
		cmocka_unit_test(test_mask),
		cmocka_unit_test(test_gid_type),
		cmocka_unit_test(test_serial),
		cmocka_unit_test(test_rping),
		cmocka_unit_test(test_perftest),
		cmocka_unit_test(test_write),
		cmocka_unit_test(test_datagrams),
		cmocka_unit_test(test_hostile),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
