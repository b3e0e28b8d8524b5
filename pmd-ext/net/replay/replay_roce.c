/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Numbers of RoCEv2 messages that change from loop to loop: the PSN, the frame number in trailer and
 * leader, the address of an RDMA WRITE, the immediate of an event, and the ICRC over them.
 *
 * A CRC is linear: the change of the ICRC depends on the change of the bytes, and not on the bytes
 * that stay. So pixels are not read. Their number decides how a change before them continues in the
 * ICRC, and a capture has few different numbers: a table is computed for each.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_malloc.h>

#include "engine/icrc.h"
#include "engine/packet.h"
#include "engine/wire.h"
#include "replay.h"

#define QPS_MAX	   256u
#define PSN_LATE   65536 /* a PSN further behind is that of a restarted sender */
#define TABLES_MAX 8u
/* Fewer bytes are read: that is as fast as a table. */
#define SHORT	 128u
#define NO_TABLE UINT8_MAX

#define IMMEDIATE_FRAME 0xFFFFFFu /* bits of an immediate that are the frame's */

enum {
	RENUMBER_PSN = 1 << 0,
	RENUMBER_ADDRESS = 1 << 1,
	RENUMBER_IMMEDIATE = 1 << 2,
	RENUMBER_LEADER = 1 << 3,
	RENUMBER_TRAILER = 1 << 4,
};

/* Only the lcore that polls the packet's queue reads and writes it. */
struct numbered {
	uint64_t loop;	   /* whose numbers the packet has */
	uint32_t psn_step; /* packets of the queue pair in a loop */
	uint32_t slot;	   /* of the address */
	uint16_t payload;  /* offset in the frame */
	uint16_t length;   /* of the payload, without pad */
	uint8_t l3;	   /* offset of the IP header */
	uint8_t l3_len;
	uint8_t pad;
	uint8_t fields; /* RENUMBER_*; 0: the packet is not changed */
	uint8_t table;	/* NO_TABLE: the whole packet is read */
};
static_assert(sizeof(struct numbered) == 32, "two packets, one line");

/* How a change of the CRC continues over `bytes` bytes that stay. */
struct continuation {
	uint32_t bytes;
	uint32_t of[4][256]; /* of each byte of the CRC */
};

struct replay_roce {
	struct replay_roce_args args;
	const struct replay_packet *packets; /* of the capture */
	uint32_t nb_tables;
	struct continuation tables[TABLES_MAX];
	struct numbered numbered[];
};

/* ---- fields ---- */

static uint64_t
get64(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static void
put64(uint8_t *at, uint64_t value)
{
	memcpy(at, &value, sizeof(value));
}

static uint32_t
get32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static void
put32(uint8_t *at, uint32_t value)
{
	memcpy(at, &value, sizeof(value));
}

static struct roce_bth *
bth_of(const struct numbered *n, uint8_t *frame)
{
	return (struct roce_bth *)(frame + n->l3 + n->l3_len + ROCE_UDP_BYTES);
}

/* The RETH follows the BTH; an immediate is the last header. */
static struct roce_reth *
reth_of(const struct numbered *n, uint8_t *frame)
{
	return (struct roce_reth *)(bth_of(n, frame) + 1);
}

static uint8_t *
trailer_of(const struct numbered *n, uint8_t *frame)
{
	return frame + n->payload + n->length - REPLAY_ROCE_TRAILER;
}

static uint8_t *
leader_of(const struct replay_roce *roce, const struct numbered *n, uint8_t *frame)
{
	return frame + n->payload + roce->args.leader - sizeof(uint64_t);
}

static void
add64(uint8_t *at, uint64_t frames)
{
	put64(at, rte_cpu_to_le_64(rte_le_to_cpu_64(get64(at)) + frames));
}

/* Advance all numbers of a packet by a number of loops, modulo 2^64: the negative of it goes back. */
static void
advance(const struct replay_roce *roce, struct numbered *n, uint8_t *frame, uint64_t loops)
{
	const uint64_t frames = loops * roce->args.step;
	struct roce_bth *bth = bth_of(n, frame);
	struct roce_reth *reth = reth_of(n, frame);

	roce_put24(bth->psn, roce_get24(bth->psn) + (uint32_t)loops * n->psn_step);
	if (n->fields & RENUMBER_ADDRESS) {
		const uint32_t slot = (n->slot + (uint32_t)frames) & (roce->args.slots - 1);
		const uint64_t distance =
			((uint64_t)slot - (uint64_t)n->slot) * roce->args.slot_bytes;

		reth->va = rte_cpu_to_be_64(rte_be_to_cpu_64(reth->va) + distance);
		n->slot = slot;
	}
	if (n->fields & RENUMBER_IMMEDIATE) {
		uint8_t *at = frame + n->payload - sizeof(uint32_t);
		const uint32_t imm = rte_be_to_cpu_32(get32(at));

		put32(at,
			rte_cpu_to_be_32((imm & ~IMMEDIATE_FRAME) |
				((imm + (uint32_t)frames) & IMMEDIATE_FRAME)));
	}
	if (n->fields & RENUMBER_LEADER)
		add64(leader_of(roce, n, frame), frames);
	if (n->fields & RENUMBER_TRAILER)
		add64(trailer_of(n, frame), frames);
}

/* ---- ICRC ---- */

/* CRC up to the last byte of headers and leader that may change. */
static uint32_t
crc_before(const struct replay_roce *roce, const struct numbered *n, const uint8_t *frame)
{
	const uint32_t crc = roce_icrc_headers(frame + n->l3, n->l3_len, n->payload - n->l3);

	if ((n->fields & RENUMBER_LEADER) == 0)
		return crc;
	return roce_icrc_bytes(crc, frame + n->payload, roce->args.leader);
}

static uint32_t
bytes_after(const struct replay_roce *roce, const struct numbered *n)
{
	return n->length + n->pad - (n->fields & RENUMBER_LEADER ? roce->args.leader : 0);
}

static uint32_t
continue_change(const struct continuation *t, uint32_t difference)
{
	return t->of[0][difference & 0xff] ^ t->of[1][difference >> 8 & 0xff] ^
		t->of[2][difference >> 16 & 0xff] ^ t->of[3][difference >> 24];
}

static uint32_t
crc_trailer(const struct numbered *n, uint8_t *frame)
{
	if ((n->fields & RENUMBER_TRAILER) == 0)
		return 0;
	return roce_icrc_bytes(0, trailer_of(n, frame), REPLAY_ROCE_TRAILER + n->pad);
}

static void
change_packet(struct replay_roce *roce, struct numbered *n, uint8_t *frame, uint64_t loops)
{
	uint8_t *icrc = frame + n->payload + n->length + n->pad;
	uint32_t before, trailer;

	if (n->table == NO_TABLE) {
		advance(roce, n, frame, loops);
		put32(icrc,
			rte_cpu_to_le_32(roce_icrc_bytes(crc_before(roce, n, frame),
				icrc - bytes_after(roce, n), bytes_after(roce, n))));
		return;
	}
	before = crc_before(roce, n, frame);
	trailer = crc_trailer(n, frame);
	advance(roce, n, frame, loops);
	before ^= crc_before(roce, n, frame);
	trailer ^= crc_trailer(n, frame);
	put32(icrc,
		get32(icrc) ^
			rte_cpu_to_le_32(
				continue_change(&roce->tables[n->table], before) ^ trailer));
}

uint32_t
replay_roce_renumber(struct replay_roce *roce, struct replay_packet *const *packets, uint32_t nb,
	uint64_t loop)
{
	for (uint32_t i = 0; i < nb; i++) {
		struct numbered *n = &roce->numbered[packets[i] - roce->packets];

		if (n->fields == 0 || n->loop == loop)
			continue;
		if (rte_mbuf_ext_refcnt_read(&packets[i]->shared) != 1)
			return i;
		/* the last reader has finished before these writes */
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		change_packet(roce, n, packets[i]->data, loop - n->loop);
		n->loop = loop;
	}
	return nb;
}

/* ---- load ---- */

/* Table of a number of bytes, NO_TABLE if these are read. */
static uint8_t
find_table(struct replay_roce *roce, uint32_t bytes)
{
	static const uint8_t zeros[UINT16_MAX];
	struct continuation *t = &roce->tables[roce->nb_tables];
	uint32_t of_zero;

	if (bytes <= SHORT)
		return NO_TABLE;
	for (uint32_t i = 0; i < roce->nb_tables; i++)
		if (roce->tables[i].bytes == bytes)
			return (uint8_t)i;
	if (roce->nb_tables == TABLES_MAX)
		return NO_TABLE;
	t->bytes = bytes;
	of_zero = roce_icrc_bytes(0, zeros, bytes);
	for (uint32_t byte = 0; byte < 4; byte++) {
		for (uint32_t value = 1; value < 256; value++) {
			const uint32_t lowest = value & -value;

			/* a sum of two smaller changes */
			t->of[byte][value] = value == lowest
				? roce_icrc_bytes(value << 8 * byte, zeros, bytes) ^ of_zero
				: t->of[byte][lowest] ^ t->of[byte][value ^ lowest];
		}
	}
	return (uint8_t)roce->nb_tables++;
}

/* A queue pair of the capture. */
struct queue_pair {
	uint8_t dst[16];
	uint32_t qpn;
	uint32_t packets;	/* numbers that a loop uses */
	uint32_t psn;		/* of the last packet */
	uint32_t highest;	/* PSN */
	struct numbered *first; /* of the message that is being read; NULL: none, or one is lost */
	uint64_t address;	/* of it; 0: it is no RDMA WRITE */
	bool has_base;
	uint64_t base; /* lowest address in slot 0 of complete messages */
};

struct loader {
	struct replay_roce *roce;
	const char *name;
	uint32_t nb_qps;
	uint32_t damaged; /* packets that are not renumbered */
	uint32_t addresses;
	struct queue_pair qps[QPS_MAX];
	/* The packet that is read: its headers are aligned, which those in the arena need not be. */
	struct rte_mbuf m[2];
	uint8_t headers[ROCE_HEADER_MAX] __rte_aligned(16);
};

/* @return NULL: there are too many */
static struct queue_pair *
find_qp(struct loader *l, const struct roce_packet *pkt)
{
	const struct roce_gid dst = roce_packet_dst(pkt);
	struct queue_pair *qp;

	for (uint32_t i = 0; i < l->nb_qps; i++)
		if (l->qps[i].qpn == pkt->qpn && memcmp(l->qps[i].dst, &dst, sizeof(dst)) == 0)
			return &l->qps[i];
	if (l->nb_qps == QPS_MAX)
		return NULL;
	qp = &l->qps[l->nb_qps++];
	*qp = (struct queue_pair){.qpn = pkt->qpn};
	qp->psn = qp->highest = roce_psn_add(pkt->psn, ROCE_PSN_MASK);
	memcpy(qp->dst, &dst, sizeof(dst));
	return qp;
}

/* Lost packets have numbers, too. One that is far behind is that of a restarted detector. */
static void
count_psn(struct queue_pair *qp, uint32_t psn)
{
	const int32_t ahead = roce_psn_diff(psn, qp->highest);

	if (ahead > 0)
		qp->packets += (uint32_t)ahead;
	if (ahead > 0 || ahead < -PSN_LATE)
		qp->highest = psn;
}

/*
 * Reads a packet of the capture as the RoCE provider does, and checks its ICRC.
 * @return false: it is none of the packets that are renumbered
 */
static bool
read_packet(struct loader *l, const struct replay_packet *packet, struct roce_packet *pkt)
{
	struct rte_mbuf *m = l->m;
	const uint16_t headers = RTE_MIN(packet->len, ROCE_HEADER_MAX);

	memcpy(l->headers, packet->data, headers);
	m[1] = (struct rte_mbuf){
		.buf_addr = packet->data + headers, .data_len = packet->len - headers};
	m[0] = (struct rte_mbuf){.buf_addr = l->headers,
		.data_len = headers,
		.pkt_len = packet->len,
		.nb_segs = 2,
		.next = &m[1]};
	switch (roce_packet_parse(m, pkt)) {
	case ROCE_PACKET_DATA:
		break;
	case ROCE_PACKET_MALFORMED:
		l->damaged += (packet->ptype & RTE_PTYPE_L4_MASK) == RTE_PTYPE_L4_UDP &&
			packet->dst_port == RTE_BE16(ROCE_UDP_PORT);
		return false;
	default:
		return false;
	}
	if ((pkt->opcode & ~ROCE_OPERATION) != ROCE_UC)
		return false;
	if (!roce_packet_check(pkt)) {
		l->damaged++;
		return false;
	}
	return true;
}

/* Every loop changes the UDP checksum: 0 means that there is none. */
static void
remove_checksum(struct replay_packet *packet, const struct roce_packet *pkt)
{
	if ((packet->checksums & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_BAD)
		return;
	memset(packet->data + pkt->l2_len + pkt->l3_len + 6, 0, 2);
	packet->checksums &= ~(uint32_t)RTE_MBUF_F_RX_L4_CKSUM_MASK;
}

/* A message is complete: its trailer tells the slot of its address. */
static void
end_message(struct loader *l, struct queue_pair *qp, struct numbered *n, uint8_t *frame)
{
	const struct replay_roce_args *args = &l->roce->args;
	const uint64_t number = rte_le_to_cpu_64(get64(trailer_of(n, frame)));
	const uint32_t slot = (uint32_t)number & (args->slots - 1);

	n->fields |= RENUMBER_TRAILER;
	if (qp->first == NULL || (qp->first->fields & RENUMBER_ADDRESS) == 0)
		return;
	qp->first->slot = slot;
	if (!qp->has_base || qp->address - slot * args->slot_bytes < qp->base)
		qp->base = qp->address - slot * args->slot_bytes;
	qp->has_base = true;
	qp->first = NULL;
}

#define SLOT_UNKNOWN UINT32_MAX

/* Finds the fields of a packet, in the order of the capture. */
static int
load_packet(struct loader *l, struct replay_packet *packet)
{
	struct numbered *n = &l->roce->numbered[packet - l->roce->packets];
	const struct replay_roce_args *args = &l->roce->args;
	struct roce_packet pkt;
	struct queue_pair *qp;
	bool follows;

	if (!read_packet(l, packet, &pkt))
		return 0;
	qp = find_qp(l, &pkt);
	if (qp == NULL) {
		REPLAY_LOG(ERR, "%s: roce=...: more than %u queue pairs", l->name, QPS_MAX);
		return -E2BIG;
	}
	remove_checksum(packet, &pkt);
	n->l3 = pkt.l2_len;
	n->l3_len = pkt.l3_len;
	n->payload = (uint16_t)pkt.payload;
	n->length = pkt.length;
	n->pad = pkt.pad;
	n->fields = RENUMBER_PSN;
	n->psn_step = (uint32_t)(qp - l->qps); /* until all packets are counted */
	count_psn(qp, pkt.psn);
	follows = roce_psn_diff(pkt.psn, qp->psn) == 1;
	qp->psn = pkt.psn;
	if (pkt.flags & ROCE_F_IMM)
		n->fields |= pkt.length == 0 ? RENUMBER_IMMEDIATE : 0;
	if (pkt.length == 0)
		return 0;
	if (pkt.flags & ROCE_F_FIRST) {
		qp->first = n;
		if (args->leader != 0 && pkt.length >= args->leader)
			n->fields |= RENUMBER_LEADER;
		if (pkt.flags & ROCE_F_WRITE) {
			n->fields |= RENUMBER_ADDRESS;
			n->slot = SLOT_UNKNOWN;
			qp->address = rte_be_to_cpu_64(roce_packet_reth(&pkt)->va);
			l->addresses++;
		}
	} else if (!follows) {
		qp->first = NULL;
	}
	if ((pkt.flags & ROCE_F_LAST) && pkt.length >= REPLAY_ROCE_TRAILER)
		end_message(l, qp, n, packet->data);
	return 0;
}

/* All packets were read. */
static void
finish_packet(struct loader *l, struct numbered *n, uint8_t *frame)
{
	const struct replay_roce_args *args = &l->roce->args;
	const struct queue_pair *qp = &l->qps[n->psn_step];

	if (n->fields == 0)
		return;
	n->psn_step = qp->packets;
	if ((n->fields & RENUMBER_ADDRESS) && n->slot == SLOT_UNKNOWN) {
		/* the message is incomplete: its address tells the slot, if the base is known */
		const uint64_t va = rte_be_to_cpu_64(reth_of(n, frame)->va);

		if (!qp->has_base || va < qp->base)
			n->fields &= ~RENUMBER_ADDRESS;
		else
			n->slot = (uint32_t)((va - qp->base) / args->slot_bytes) &
				(args->slots - 1);
	}
	n->table = find_table(l->roce, bytes_after(l->roce, n));
}

static int
load_packets(struct loader *l, const struct replay_capture *capture)
{
	int ret = 0;

	for (uint32_t i = 0; i < capture->nb_packets && ret == 0; i++)
		ret = load_packet(l, replay_capture_packet(capture, i));
	if (ret != 0)
		return ret;
	if (l->addresses > 0 && l->roce->args.slots == 0) {
		REPLAY_LOG(ERR,
			"%s: roce=%" PRIu64 ": the capture has RDMA WRITEs, expected "
			"roce=STEP:SLOTS:SLOT_BYTES",
			l->name, l->roce->args.step);
		return -EINVAL;
	}
	for (uint32_t i = 0; i < capture->nb_packets; i++)
		finish_packet(l, &l->roce->numbered[i], capture->packets[i].data);
	if (l->nb_qps == 0)
		REPLAY_LOG(WARNING, "%s: roce=...: the capture has no UC packets", l->name);
	if (l->damaged > 0)
		REPLAY_LOG(WARNING,
			"%s: %u RoCE packets are damaged or truncated, and are not renumbered",
			l->name, l->damaged);
	return 0;
}

int
replay_roce_load(struct replay_roce **out, const struct replay_capture *capture,
	const struct replay_roce_args *args, const char *name, int socket)
{
	const size_t bytes =
		sizeof(**out) + (size_t)capture->nb_packets * sizeof((*out)->numbered[0]);
	struct replay_roce *roce =
		rte_zmalloc_socket("replay_roce", bytes, RTE_CACHE_LINE_SIZE, socket);
	struct loader *l = rte_zmalloc("replay_roce_loader", sizeof(*l), 0);
	int ret = -ENOMEM;

	if (roce == NULL || l == NULL) {
		REPLAY_LOG(ERR, "%s: cannot allocate %zu bytes of EAL memory for roce=...", name,
			bytes);
	} else {
		roce->args = *args;
		roce->packets = capture->packets;
		*l = (struct loader){.roce = roce, .name = name};
		ret = load_packets(l, capture);
	}
	rte_free(l);
	if (ret != 0) {
		rte_free(roce);
		return ret;
	}
	*out = roce;
	return 0;
}

void
replay_roce_free(struct replay_roce *roce)
{
	rte_free(roce);
}
