/* SPDX-License-Identifier: BSD-3-Clause */

#include "wire/roce_packets.h"

#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/icrc.h"
#include "engine/path.h"
#include "engine/wire.h"
#include "wire/messages.h"

#define HOP_LIMIT 64

struct roce_stream {
	struct roce_path path;
	uint32_t qpn;
	uint32_t psn; /* PSN of the next packet */
};

struct roce_packets {
	const struct ingest_card *card;
	struct roce_stream stream[INGEST_STREAMS_MAX];
};

static_assert(ROCE_PACKET_BYTES_MAX ==
		14 + 20 + 8 + sizeof(struct roce_bth) + sizeof(struct roce_reth) + 4096 +
			ROCE_ICRC_BYTES,
	"largest packet");

static int
stream_init(struct roce_stream *s, uint32_t index, const struct ingest_card *card,
	const struct jungfrau_wire *wire)
{
	const struct ingest_stream *to = &card->stream[index];
	struct roce_path_attr attr = {
		.src = roce_gid_v4(htonl(wire->source_ip + index)),
		.udp_src = roce_path_udp_port(to->qpn),
		.hop_limit = HOP_LIMIT,
	};
	struct in_addr ip;
	uint32_t low;

	if (inet_pton(AF_INET, to->ip, &ip) != 1) {
		warnx("--pcap: found [stream %u] ip = %s in the card, expected an IPv4 address, as "
		      "--source-ip",
			index, to->ip);
		return -EINVAL;
	}
	attr.dst = roce_gid_v4(ip.s_addr);
	memcpy(attr.dst_mac.addr_bytes, wire->destination_mac, sizeof(wire->destination_mac));
	memcpy(attr.src_mac.addr_bytes, wire->source_mac, sizeof(wire->source_mac));
	/* the last three bytes are free for the vendor to assign: count in them */
	low = roce_get24(attr.src_mac.addr_bytes + 3) + index;
	roce_put24(attr.src_mac.addr_bytes + 3, low & 0xffffff);
	roce_path_make(&s->path, &attr);
	s->qpn = to->qpn;
	s->psn = to->psn;
	return 0;
}

int
roce_packets_create(const struct ingest_card *card, const struct jungfrau_wire *wire,
	struct roce_packets **packets)
{
	struct roce_packets *p = calloc(1, sizeof(*p));
	int ret = 0;

	if (p == NULL)
		return -ENOMEM;
	p->card = card;
	for (uint32_t s = 0; ret == 0 && s < card->streams; s++)
		ret = stream_init(&p->stream[s], s, card, wire);
	if (ret != 0) {
		roce_packets_destroy(p);
		return ret;
	}
	*packets = p;
	return 0;
}

void
roce_packets_destroy(struct roce_packets *packets)
{
	free(packets);
}

uint32_t
roce_packets_count(const struct roce_packets *packets, const struct roce_message *message)
{
	return message->pixels == NULL ? 1 : message_packets(packets->card);
}

static uint8_t
opcode_of(const struct roce_packets *p, const struct roce_message *message, uint32_t index)
{
	const uint8_t first =
		p->card->transport == INGEST_WRITE ? ROCE_WRITE_FIRST : ROCE_SEND_FIRST;

	if (message->pixels == NULL)
		return ROCE_UC + first + (ROCE_SEND_ONLY_IMM - ROCE_SEND_FIRST);
	if (index == 0)
		return ROCE_UC + first;
	if (index + 1 == message_packets(p->card))
		return ROCE_UC + first + (ROCE_SEND_LAST - ROCE_SEND_FIRST);
	return ROCE_UC + first + (ROCE_SEND_MIDDLE - ROCE_SEND_FIRST);
}

/* Write the bytes [from, from + length) of a message: leader, pixels, trailer. */
static void
put_payload(const struct roce_packets *p, const struct roce_message *message, uint8_t *out,
	uint32_t from, uint32_t length)
{
	const struct {
		const uint8_t *data;
		uint32_t bytes;
	} part[] = {
		{message->ends->leader, p->card->leader_bytes},
		{message->pixels, JUNGFRAU_PAYLOAD_BYTES},
		{message->ends->trailer, INGEST_TRAILER_BYTES},
	};

	for (uint32_t i = 0; i < RTE_DIM(part) && length > 0; i++) {
		const uint32_t skip = RTE_MIN(from, part[i].bytes);
		const uint32_t n = RTE_MIN(part[i].bytes - skip, length);

		memcpy(out, part[i].data + skip, n);
		out += n;
		from -= skip;
		length -= n;
	}
}

static uint8_t *
put_extended(const struct roce_packets *p, const struct roce_message *message, uint16_t flags,
	uint8_t *out)
{
	struct roce_reth reth = {0};
	const uint32_t immediate = htonl(message->immediate);

	if (flags & ROCE_F_RETH) {
		if (message->pixels != NULL) {
			reth.va = rte_cpu_to_be_64(message->address);
			reth.rkey = rte_cpu_to_be_32(p->card->stream[message->stream].rkey);
			reth.length = rte_cpu_to_be_32((uint32_t)ingest_message_bytes(p->card));
		}
		memcpy(out, &reth, sizeof(reth));
		out += sizeof(reth);
	}
	if (flags & ROCE_F_IMM) {
		memcpy(out, &immediate, sizeof(immediate));
		out += sizeof(immediate);
	}
	return out;
}

uint32_t
roce_packets_make(const struct roce_packets *packets, const struct roce_message *message,
	uint32_t index, uint8_t out[ROCE_PACKET_BYTES_MAX])
{
	const struct roce_stream *s = &packets->stream[message->stream];
	const uint32_t mtu = packets->card->mtu, from = index * mtu;
	const uint32_t bytes = (uint32_t)ingest_message_bytes(packets->card);
	const uint32_t length = message->pixels == NULL ? 0 : RTE_MIN(mtu, bytes - from);
	struct roce_bth bth = {
		.opcode = opcode_of(packets, message, index), .pkey = RTE_BE16(ROCE_PKEY)};
	uint8_t *l3 = out + s->path.l2_len, *end = out + s->path.length;
	uint32_t headers, crc;

	memcpy(out, s->path.header, s->path.length);
	roce_put24(bth.qpn, s->qpn);
	roce_put24(bth.psn, roce_psn_add(s->psn, index));
	memcpy(end, &bth, sizeof(bth));
	end = put_extended(packets, message, roce_opcodes[bth.opcode].flags, end + sizeof(bth));
	headers = (uint32_t)(end - l3);
	if (length > 0)
		put_payload(packets, message, end, from, length);
	end += length; /* a multiple of 4: no pad */
	roce_path_finish(&s->path, out, (uint16_t)(end - out - s->path.length + ROCE_ICRC_BYTES));
	crc = roce_icrc_headers(l3, s->path.l3_len, headers);
	crc = rte_cpu_to_le_32(roce_icrc_bytes(crc, end - length, length));
	memcpy(end, &crc, sizeof(crc));
	return (uint32_t)(end - out) + ROCE_ICRC_BYTES;
}

void
roce_packets_done(struct roce_packets *packets, const struct roce_message *message)
{
	struct roce_stream *s = &packets->stream[message->stream];

	s->psn = roce_psn_add(s->psn, roce_packets_count(packets, message));
}
