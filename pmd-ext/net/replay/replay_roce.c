/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rewrites the numbers of RoCEv2 messages that change from loop to loop: the PSN, the frame number
 * in trailer and leader, the address of an RDMA WRITE, the immediate of an event, and the ICRC over
 * them.
 *
 * A CRC is linear: the change of the ICRC is the sum of the changes of all words. That of a word
 * depends on the word's change and on its distance from the end, and not on the bytes that stay. A
 * capture has few distances: a table is computed for each. So no other byte is read, neither pixels
 * nor headers. A CRC over headers that were just written would wait for all stores before it.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_malloc.h>
#include <rte_prefetch.h>

#include "engine/icrc.h"
#include "engine/packet.h"
#include "engine/wire.h"
#include "replay.h"

#define QPS_MAX	    256u
#define LAYOUTS_MAX 64u
#define TABLES_MAX  128u
#define PSN_LATE    65536 /* a sender whose PSN goes back by more than this has restarted */

/* Number of packets whose changed cache lines are prefetched ahead. */
#define AHEAD 8u

#define IMMEDIATE_FRAME 0xFFFFFFu /* bits of the immediate data that hold the frame number */

/*
 * Changes of the CRC by a change of four bytes at one distance from the end of the packet. Each of
 * the four bytes has a table, indexed by the change.
 */
struct crc_table {
	uint32_t bytes; /* distance from the first of the four bytes to the ICRC */
	uint32_t of[4][256];
};

/* A field that is rewritten. */
struct field {
	uint16_t offset;  /* offset in the frame; 0: the packet has no such field */
	uint8_t table[2]; /* indices of the CRC tables of bytes 0 to 3 and 4 to 7 */
};

/* Offsets of the fields that are rewritten in a packet. Packets of one kind share a layout. */
struct layout {
	uint16_t icrc; /* offset of the ICRC in the frame */
	struct field psn, address, immediate, leader, trailer;
};

/* State of a packet. Only the lcore that polls the packet's queue reads and writes it. */
struct renumbered {
	uint64_t loop;	   /* loop of the numbers that the packet has now */
	uint32_t psn_step; /* PSNs that the queue pair uses in a loop */
	uint32_t slot;	   /* slot that the address names now */
	uint8_t layout;	   /* index of the layout; NO_LAYOUT: the packet is not rewritten */
};
static_assert(sizeof(struct renumbered) == 24, "README.rst");

#define NO_LAYOUT UINT8_MAX

struct replay_roce {
	struct replay_roce_args args;
	const struct replay_packet *packets; /* all packets of the capture */
	uint32_t nb_layouts, nb_tables;
	struct layout layouts[LAYOUTS_MAX];
	struct crc_table tables[TABLES_MAX];
	struct renumbered state[]; /* indexed as the packets of the file */
};

/* ---- rewriting ---- */

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

/* Compute the change of the CRC from the change of four bytes, as a little-endian number. */
static uint32_t
crc_change(const struct replay_roce *roce, uint8_t table, uint32_t change)
{
	const struct crc_table *t = &roce->tables[table];

	return t->of[0][change & 0xff] ^ t->of[1][change >> 8 & 0xff] ^
		t->of[2][change >> 16 & 0xff] ^ t->of[3][change >> 24];
}

/* Store a field of four bytes. @return change of the CRC */
static uint32_t
store32(const struct replay_roce *roce, const struct field *f, uint8_t *frame, uint32_t old,
	uint32_t value)
{
	put32(frame + f->offset, value);
	return crc_change(roce, f->table[0], rte_le_to_cpu_32(old ^ value));
}

static uint32_t
store64(const struct replay_roce *roce, const struct field *f, uint8_t *frame, uint64_t old,
	uint64_t value)
{
	const uint64_t change = rte_le_to_cpu_64(old ^ value);

	put64(frame + f->offset, value);
	return crc_change(roce, f->table[0], (uint32_t)change) ^
		crc_change(roce, f->table[1], (uint32_t)(change >> 32));
}

/* Add to a big-endian field; only the bits of `mask` change. @return change of the CRC */
static uint32_t
add32(const struct replay_roce *roce, const struct field *f, uint8_t *frame, uint32_t mask,
	uint32_t add)
{
	const uint32_t old = get32(frame + f->offset), value = rte_be_to_cpu_32(old);

	return store32(
		roce, f, frame, old, rte_cpu_to_be_32((value & ~mask) | ((value + add) & mask)));
}

/* Add to a little-endian frame number. @return change of the CRC */
static uint32_t
add_frames(const struct replay_roce *roce, const struct field *f, uint8_t *frame, uint64_t frames)
{
	const uint64_t old = get64(frame + f->offset);

	return store64(roce, f, frame, old, rte_cpu_to_le_64(rte_le_to_cpu_64(old) + frames));
}

/* Move an address to the slot of a later frame. @return change of the CRC */
static uint32_t
move_address(const struct replay_roce *roce, const struct field *f, struct renumbered *n,
	uint8_t *frame, uint64_t frames)
{
	const uint32_t slot = (n->slot + (uint32_t)frames) & (roce->args.slots - 1);
	const uint64_t distance = ((uint64_t)slot - (uint64_t)n->slot) * roce->args.slot_bytes;
	const uint64_t old = get64(frame + f->offset);

	n->slot = slot;
	return store64(roce, f, frame, old, rte_cpu_to_be_64(rte_be_to_cpu_64(old) + distance));
}

/* Advance all numbers of a packet by a number of loops, which may be negative (modulo 2^64). */
static void
advance(const struct replay_roce *roce, struct renumbered *n, uint8_t *frame, uint64_t loops)
{
	const struct layout *l = &roce->layouts[n->layout];
	const uint64_t frames = loops * roce->args.step;
	uint32_t change;

	change = add32(roce, &l->psn, frame, ROCE_PSN_MASK, (uint32_t)loops * n->psn_step);
	if (l->address.offset != 0)
		change ^= move_address(roce, &l->address, n, frame, frames);
	if (l->immediate.offset != 0)
		change ^= add32(roce, &l->immediate, frame, IMMEDIATE_FRAME, (uint32_t)frames);
	if (l->leader.offset != 0)
		change ^= add_frames(roce, &l->leader, frame, frames);
	if (l->trailer.offset != 0)
		change ^= add_frames(roce, &l->trailer, frame, frames);
	put32(frame + l->icrc, get32(frame + l->icrc) ^ rte_cpu_to_le_32(change));
}

/* Prefetch the cache lines that advance() writes. */
static void
prefetch(const struct replay_roce *roce, const struct replay_packet *packet)
{
	const struct renumbered *n = &roce->state[packet - roce->packets];

	if (n->layout == NO_LAYOUT)
		return;
	rte_prefetch0_write(packet->data + roce->layouts[n->layout].psn.offset);
	rte_prefetch0_write(packet->data + roce->layouts[n->layout].icrc);
}

uint32_t
replay_roce_renumber(
	struct replay_roce *roce, struct replay_packet *const *packets, uint32_t nb, uint64_t loop)
{
	for (uint32_t i = 0; i < RTE_MIN(nb, AHEAD); i++)
		prefetch(roce, packets[i]);
	for (uint32_t i = 0; i < nb; i++) {
		struct renumbered *n = &roce->state[packets[i] - roce->packets];

		if (i + AHEAD < nb)
			prefetch(roce, packets[i + AHEAD]);
		if (n->layout == NO_LAYOUT || n->loop == loop)
			continue;
		if (rte_mbuf_ext_refcnt_read(&packets[i]->shared) != 1)
			return i;
		/* pairs with the last reader's release of its reference */
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		advance(roce, n, packets[i]->data, loop - n->loop);
		n->loop = loop;
	}
	return nb;
}

/* ---- loading ---- */

/* Find or compute the table for a distance from the ICRC. @return its index; -E2BIG */
static int
find_table(struct replay_roce *roce, uint32_t bytes)
{
	static const uint8_t zeros[UINT16_MAX];
	struct crc_table *t = &roce->tables[roce->nb_tables];
	uint32_t of_zero;

	for (uint32_t i = 0; i < roce->nb_tables; i++)
		if (roce->tables[i].bytes == bytes)
			return (int)i;
	if (roce->nb_tables == TABLES_MAX)
		return -E2BIG;
	t->bytes = bytes;
	of_zero = roce_icrc_bytes(0, zeros, bytes);
	for (uint32_t byte = 0; byte < 4; byte++) {
		for (uint32_t value = 1; value < 256; value++) {
			const uint32_t lowest = value & -value;

			/* the CRC is linear: XOR the results of the lowest bit and of the rest */
			t->of[byte][value] = value == lowest
				? roce_icrc_bytes(value << 8 * byte, zeros, bytes) ^ of_zero
				: t->of[byte][lowest] ^ t->of[byte][value ^ lowest];
		}
	}
	return (int)roce->nb_tables++;
}

/* Set the tables of a field of `words` x 4 bytes. @return 0; -E2BIG */
static int
find_tables(struct replay_roce *roce, const struct layout *l, struct field *f, uint32_t words)
{
	for (uint32_t i = 0; i < words && f->offset != 0; i++) {
		const int table = find_table(roce, l->icrc - f->offset - 4 * i);

		if (table < 0)
			return table;
		f->table[i] = (uint8_t)table;
	}
	return 0;
}

/*
 * Set the tables of a layout, and add it to the list unless it is there. @return its index; -E2BIG
 */
static int
find_layout(struct replay_roce *roce, struct layout *l)
{
	int ret;

	ret = find_tables(roce, l, &l->psn, 1);
	if (ret == 0)
		ret = find_tables(roce, l, &l->address, 2);
	if (ret == 0)
		ret = find_tables(roce, l, &l->immediate, 1);
	if (ret == 0)
		ret = find_tables(roce, l, &l->leader, 2);
	if (ret == 0)
		ret = find_tables(roce, l, &l->trailer, 2);
	if (ret != 0)
		return ret;
	for (uint32_t i = 0; i < roce->nb_layouts; i++)
		if (memcmp(&roce->layouts[i], l, sizeof(*l)) == 0)
			return (int)i;
	if (roce->nb_layouts == LAYOUTS_MAX)
		return -E2BIG;
	roce->layouts[roce->nb_layouts] = *l;
	return (int)roce->nb_layouts++;
}

/* State of a queue pair while the capture is read. */
struct queue_pair {
	uint8_t dst[16];
	uint32_t qpn;
	uint32_t psns;	  /* PSNs that a loop uses, including those of lost packets */
	uint32_t psn;	  /* PSN of the last packet */
	uint32_t highest; /* highest PSN so far */
	/* first packet of the current RDMA WRITE; NULL: none, or a packet of it is lost */
	struct renumbered *first;
	uint64_t address; /* destination of the current RDMA WRITE */
	bool has_base;
	uint64_t base; /* lowest address that complete messages have in slot 0 */
};

struct loader {
	struct replay_roce *roce;
	const char *name;
	uint32_t nb_qps;
	uint32_t damaged;   /* RoCE packets that are not renumbered */
	uint32_t addresses; /* RDMA WRITEs */
	struct queue_pair qps[QPS_MAX];
	/*
	 * the current packet; its headers are copied, because those in the arena may be unaligned
	 */
	struct rte_mbuf m[2];
	uint8_t headers[ROCE_HEADER_MAX] __rte_aligned(16);
};

/* Find or add the queue pair of a packet. @return NULL: more than QPS_MAX */
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

/*
 * Count the PSNs that are used up to this one. If the PSN goes far back, the detector has
 * restarted.
 */
static void
count_psn(struct queue_pair *qp, uint32_t psn)
{
	const int32_t ahead = roce_psn_diff(psn, qp->highest);

	if (ahead > 0)
		qp->psns += (uint32_t)ahead;
	if (ahead > 0 || ahead < -PSN_LATE)
		qp->highest = psn;
}

/*
 * Reads a packet of the capture as the RoCE provider does, and checks its ICRC.
 * @return false: the packet is not renumbered
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

/* Remove the UDP checksum, which would differ in every loop. 0 means no checksum. */
static void
remove_checksum(struct replay_packet *packet, const struct roce_packet *pkt)
{
	if ((packet->checksums & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_BAD)
		return;
	memset(packet->data + pkt->l2_len + pkt->l3_len + 6, 0, 2);
	packet->checksums &= ~(uint32_t)RTE_MBUF_F_RX_L4_CKSUM_MASK;
}

/* End of a message: the frame number in its trailer determines the slot of its address. */
static void
end_message(struct loader *l, struct queue_pair *qp, uint64_t frame)
{
	const struct replay_roce_args *args = &l->roce->args;
	const uint32_t slot = (uint32_t)frame & (args->slots - 1);

	if (qp->first == NULL)
		return;
	qp->first->slot = slot;
	if (!qp->has_base || qp->address - slot * args->slot_bytes < qp->base)
		qp->base = qp->address - slot * args->slot_bytes;
	qp->has_base = true;
	qp->first = NULL;
}

#define SLOT_UNKNOWN UINT32_MAX

/* Find the fields of a packet that are rewritten. */
static struct layout
make_layout(const struct replay_roce_args *args, const struct roce_packet *pkt)
{
	const uint32_t bth = pkt->l2_len + pkt->l3_len + ROCE_UDP_BYTES;
	struct layout l = {.icrc = pkt->payload + pkt->length + pkt->pad,
		.psn.offset = bth + offsetof(struct roce_bth, ack)};

	if (pkt->length == 0) {
		if (pkt->flags & ROCE_F_IMM)
			l.immediate.offset = pkt->payload - sizeof(uint32_t);
		return l;
	}
	if ((pkt->flags & ROCE_F_FIRST) && (pkt->flags & ROCE_F_WRITE))
		l.address.offset = bth + sizeof(struct roce_bth);
	if ((pkt->flags & ROCE_F_FIRST) && args->leader != 0 && pkt->length >= args->leader)
		l.leader.offset = pkt->payload + args->leader - sizeof(uint64_t);
	if ((pkt->flags & ROCE_F_LAST) && pkt->length >= REPLAY_ROCE_TRAILER)
		l.trailer.offset = pkt->payload + pkt->length - REPLAY_ROCE_TRAILER;
	return l;
}

/* Report that the capture exceeds a limit. @return -E2BIG */
static int
report_limit(const struct loader *l, const char *what, uint32_t most)
{
	REPLAY_LOG(ERR, "%s: roce=...: more than %u %s, expected the messages of a detector",
		l->name, most, what);
	return -E2BIG;
}

/* Process a packet. Packets are passed in the order of the capture. */
static int
load_packet(struct loader *l, struct replay_packet *packet)
{
	struct renumbered *n = &l->roce->state[packet - l->roce->packets];
	struct layout layout;
	struct roce_packet pkt;
	struct queue_pair *qp;
	bool follows;
	int ret;

	n->layout = NO_LAYOUT;
	if (!read_packet(l, packet, &pkt))
		return 0;
	qp = find_qp(l, &pkt);
	if (qp == NULL)
		return report_limit(l, "queue pairs", QPS_MAX);
	remove_checksum(packet, &pkt);
	layout = make_layout(&l->roce->args, &pkt);
	ret = find_layout(l->roce, &layout);
	if (ret < 0)
		return report_limit(l, "kinds of packets", LAYOUTS_MAX);
	n->layout = (uint8_t)ret;
	n->psn_step = (uint32_t)(qp - l->qps); /* index of the queue pair until finish_packet() */
	count_psn(qp, pkt.psn);
	follows = roce_psn_diff(pkt.psn, qp->psn) == 1;
	qp->psn = pkt.psn;
	if ((pkt.flags & ROCE_F_FIRST) || !follows)
		qp->first = NULL;
	if (layout.address.offset != 0) {
		qp->first = n;
		n->slot = SLOT_UNKNOWN;
		qp->address = rte_be_to_cpu_64(roce_packet_reth(&pkt)->va);
		l->addresses++;
	}
	if (layout.trailer.offset != 0)
		end_message(l, qp, rte_le_to_cpu_64(get64(packet->data + layout.trailer.offset)));
	return 0;
}

/* Complete the state of a packet, after all packets of the capture were processed. */
static int
finish_packet(struct loader *l, struct renumbered *n, const uint8_t *frame)
{
	const struct replay_roce_args *args = &l->roce->args;
	const struct queue_pair *qp = &l->qps[n->psn_step];
	struct layout layout;
	uint64_t va;
	int ret;

	if (n->layout == NO_LAYOUT)
		return 0;
	n->psn_step = qp->psns;
	layout = l->roce->layouts[n->layout];
	if (layout.address.offset == 0 || n->slot != SLOT_UNKNOWN)
		return 0;
	/* the message has no trailer: compute the slot from its address, if the base is known */
	va = rte_be_to_cpu_64(get64(frame + layout.address.offset));
	if (qp->has_base && va >= qp->base) {
		n->slot = (uint32_t)((va - qp->base) / args->slot_bytes) & (args->slots - 1);
		return 0;
	}
	layout.address = (struct field){0};
	ret = find_layout(l->roce, &layout);
	if (ret < 0)
		return report_limit(l, "kinds of packets", LAYOUTS_MAX);
	n->layout = (uint8_t)ret;
	return 0;
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
	for (uint32_t i = 0; i < capture->nb_packets && ret == 0; i++)
		ret = finish_packet(l, &l->roce->state[i], capture->packets[i].data);
	if (l->nb_qps == 0)
		REPLAY_LOG(WARNING, "%s: roce=...: the capture has no UC packets", l->name);
	if (l->damaged > 0)
		REPLAY_LOG(WARNING,
			"%s: %u RoCE packets are damaged or truncated, and are not renumbered",
			l->name, l->damaged);
	return ret;
}

int
replay_roce_load(struct replay_roce **out, const struct replay_capture *capture,
	const struct replay_roce_args *args, const char *name, int socket)
{
	const size_t bytes = sizeof(**out) + (size_t)capture->nb_packets * sizeof((*out)->state[0]);
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
