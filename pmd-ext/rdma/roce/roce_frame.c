/* SPDX-License-Identifier: BSD-3-Clause */
#include <rte_memcpy.h>
#include <rte_prefetch.h>

#include "roce_frame.h"
#include "roce_icrc.h"

/** Mbufs are asked for so many ahead of their use: of four packets. */
#define SPARE_AHEAD 12

/** Who freed it wrote to it last: it has to come from that lcore's cache, to be written. */
static struct rte_mbuf *
spare_get(struct roce_lane *lane)
{
	struct rte_mbuf *m = lane->spare[--lane->nb_spare];
	const struct rte_mbuf *later;

	if (likely(lane->nb_spare >= SPARE_AHEAD)) {
		later = lane->spare[lane->nb_spare - SPARE_AHEAD];
		rte_prefetch0_write(later);
		rte_prefetch0_write(&later->next);
		rte_prefetch0_write((const char *)(later + 1) + RTE_PKTMBUF_HEADROOM);
	}
	rte_pktmbuf_reset(m);
	return m;
}

/** Payload of the packet after this one, fetched while the CRC of this one is made. */
static void
prefetch_next(const struct roce_segment *s, uint32_t offset, uint32_t length)
{
	const uint32_t n = RTE_MIN(s->length - offset, length);
	uint32_t i;

	for (i = 0; i < n; i += RTE_CACHE_LINE_SIZE)
		rte_prefetch0(s->addr + offset + i);
}

void
roce_frame_begin(struct roce_lane *lane, struct roce_frame *f, const struct roce_path *path,
	const struct roce_frame_head *head, unsigned int ext_bytes)
{
	struct rte_mbuf *m = spare_get(lane);
	uint8_t *header = rte_pktmbuf_mtod(m, uint8_t *);
	struct roce_bth *bth = (struct roce_bth *)(header + path->length);

	memcpy(header, path->header, sizeof(path->header));
	bth->opcode = head->opcode;
	bth->flags = head->solicited ? ROCE_BTH_SOLICITED : 0;
	bth->pkey = RTE_BE16(ROCE_PKEY);
	bth->ecn = 0;
	roce_put24(bth->qpn, head->qpn);
	bth->ack = head->ack ? ROCE_BTH_ACKREQ : 0;
	roce_put24(bth->psn, head->psn);
	f->m = f->last = m;
	f->path = path;
	f->bth = bth;
	f->ext = (uint8_t *)(bth + 1);
	f->headers = path->length + sizeof(*bth) + ext_bytes;
	f->payload = 0;
	m->data_len = f->headers;
	m->port = lane->port;
}

void
roce_frame_udp_port(struct roce_frame *f, uint16_t port)
{
	const rte_be16_t value = rte_cpu_to_be_16(port);

	memcpy((uint8_t *)f->bth - ROCE_UDP_BYTES, &value, sizeof(value));
}

void
roce_frame_copy(struct roce_frame *f, const void *bytes, uint32_t length)
{
	struct rte_mbuf *m = f->m;

	rte_memcpy(rte_pktmbuf_mtod_offset(m, void *, m->data_len), bytes, length);
	m->data_len += length;
	f->payload += length;
}

/** A segment of registered memory behind the others; a reference has been taken. */
static void
frame_refer(struct roce_lane *lane, struct roce_frame *f, uint8_t *addr, uint16_t length,
	struct rte_mbuf_ext_shared_info *info)
{
	struct rte_mbuf *m = spare_get(lane);

	rte_pktmbuf_attach_extbuf(m, addr, (rte_iova_t)(uintptr_t)addr, length, info);
	m->data_len = length;
	f->last->next = m;
	f->last = m;
	f->m->nb_segs++;
	f->payload += length;
}

void
roce_frame_attach(struct roce_lane *lane, struct roce_frame *f, const struct roce_segment *list,
	struct roce_cursor *at, uint32_t length, struct rte_mbuf_ext_shared_info *info)
{
	const bool copy = length <= ROCE_COPY_MAX || lane->dev->copy;
	const struct roce_segment *s;
	uint32_t n;

	while (length) {
		s = &list[at->entry];
		n = RTE_MIN(length, s->length - at->offset);
		if (n == 0) {
			at->entry++;
			at->offset = 0;
			continue;
		}
		if (copy) {
			roce_frame_copy(f, s->addr + at->offset, n);
		} else if (info) {
			rte_mbuf_ext_refcnt_update(info, 1);
			frame_refer(lane, f, s->addr + at->offset, n, info);
		} else {
			roce_mr_hold(&s->mr->lane[lane->index]);
			frame_refer(
				lane, f, s->addr + at->offset, n, &s->mr->lane[lane->index].info);
		}
		at->offset += n;
		length -= n;
		if (length == 0 && !copy)
			prefetch_next(s, at->offset, f->payload);
	}
}

void
roce_list_write(
	const struct roce_segment *list, struct roce_cursor *at, const void *bytes, uint32_t length)
{
	const uint8_t *from = bytes;
	uint32_t n;

	while (length) {
		n = RTE_MIN(length, list[at->entry].length - at->offset);
		if (n == 0) {
			at->entry++;
			at->offset = 0;
			continue;
		}
		memcpy(list[at->entry].addr + at->offset, from, n);
		at->offset += n;
		from += n;
		length -= n;
	}
}

uint32_t
roce_frame_end(struct roce_lane *lane, struct roce_frame *f)
{
	static const uint8_t zero[4];
	const uint32_t pad = -f->payload & 3, tail = pad + ROCE_ICRC_BYTES;
	struct rte_mbuf *m = f->m, *last = f->last;
	uint8_t *header = rte_pktmbuf_mtod(m, uint8_t *), *end;
	uint32_t crc;

	f->bth->flags |= pad << 4;
	roce_path_finish(f->path, header, f->headers - f->path->length + f->payload + tail);
	crc = roce_icrc_headers(
		header + f->path->l2_len, f->path->l3_len, f->headers - f->path->l2_len);
	if (f->payload)
		crc = roce_icrc_mbuf(crc, m, f->headers, f->payload);
	if (pad)
		crc = roce_icrc_bytes(crc, zero, pad);
	if (last != m) {
		last->next = spare_get(lane);
		last = last->next;
		m->nb_segs++;
		last->data_len = 0;
	}
	end = rte_pktmbuf_mtod_offset(last, uint8_t *, last->data_len);
	memset(end, 0, pad);
	end[pad] = crc;
	end[pad + 1] = crc >> 8;
	end[pad + 2] = crc >> 16;
	end[pad + 3] = crc >> 24;
	last->data_len += tail;
	m->pkt_len = f->headers + f->payload + tail;
	lane->stats[ROCE_TX_BYTES] += f->payload;
	roce_lane_tx(lane, m);
	return m->pkt_len;
}
