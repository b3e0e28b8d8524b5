/* SPDX-License-Identifier: BSD-3-Clause */
/* Builds frames and writes them to mbufs. */
#include <rte_memcpy.h>
#include <rte_prefetch.h>

#include "engine/frame.h"
#include "engine/icrc.h"

/**
 * Get a spare mbuf and prefetch a later one for writing. The lcore that freed an mbuf wrote to it
 * last, so its cache lines are in the cache of that lcore.
 */
static struct rte_mbuf *
spare_get(struct roce_poll_group *pg)
{
	struct rte_mbuf *m = pg->spare[--pg->nb_spare];
	const struct rte_mbuf *later;

	if (likely(pg->nb_spare >= ROCE_SPARE_AHEAD)) {
		later = pg->spare[pg->nb_spare - ROCE_SPARE_AHEAD];
		rte_prefetch0_write(later);
		rte_prefetch0_write(&later->next);
		rte_prefetch0_write((const char *)(later + 1) + RTE_PKTMBUF_HEADROOM);
	}
	rte_pktmbuf_reset(m);
	return m;
}

void
roce_frame_begin(struct roce_frame *f, const struct roce_path *path,
	const struct roce_frame_head *head, unsigned int ext_bytes)
{
	struct roce_bth *bth = (struct roce_bth *)(f->header + path->length);

	memcpy(f->header, path->header, sizeof(path->header));
	bth->opcode = head->opcode;
	bth->flags = head->solicited ? ROCE_BTH_SOLICITED : 0;
	bth->pkey = RTE_BE16(ROCE_PKEY);
	bth->ecn = 0;
	roce_put24(bth->qpn, head->qpn);
	bth->ack = head->ack ? ROCE_BTH_ACKREQ : 0;
	roce_put24(bth->psn, head->psn);
	f->path = path;
	f->bth = bth;
	f->ext = (uint8_t *)(bth + 1);
	f->headers = path->length + sizeof(*bth) + ext_bytes;
	f->payload = 0;
	f->copy = false;
	f->nb_parts = 0;
	f->next_length = 0;
}

void
roce_frame_udp_port(struct roce_frame *f, uint16_t port)
{
	const rte_be16_t value = rte_cpu_to_be_16(port);

	memcpy((uint8_t *)f->bth - ROCE_UDP_BYTES, &value, sizeof(value));
}

void
roce_frame_attach(struct roce_poll_group *pg, struct roce_frame *f, const struct roce_segment *list,
	struct roce_cursor *at, uint32_t length, struct rte_mbuf_ext_shared_info *info)
{
	const bool copy = length <= ROCE_COPY_MAX || pg->dev->copy || f->copy;
	const struct roce_segment *s;
	struct roce_part *part;
	uint32_t n;

	while (length) {
		s = &list[at->entry];
		n = RTE_MIN(length, s->length - at->offset);
		if (n == 0) {
			at->entry++;
			at->offset = 0;
			continue;
		}
		part = &f->part[f->nb_parts++];
		part->addr = s->addr + at->offset;
		part->length = n;
		part->info = NULL;
		if (!copy && info) {
			rte_mbuf_ext_refcnt_update(info, 1);
			part->info = info;
		} else if (!copy) {
			roce_mr_hold(&s->mr->poll_group[pg->index]);
			part->info = &s->mr->poll_group[pg->index].info;
		}
		f->payload += n;
		at->offset += n;
		length -= n;
		if (length == 0 && !copy) {
			f->next = s->addr + at->offset;
			f->next_length = RTE_MIN(s->length - at->offset, f->payload);
		}
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

/** Write headers and payload to mbufs. @param last out: last mbuf of the chain @return the first */
static struct rte_mbuf *
chain(struct roce_poll_group *pg, const struct roce_frame *f, struct rte_mbuf **last)
{
	struct rte_mbuf *m = spare_get(pg), *to = m;
	uint8_t *out = rte_pktmbuf_mtod(m, uint8_t *);
	const struct roce_part *part;
	unsigned int i;

	/* Copy whole cache lines. Most headers fit into one. */
	rte_mov64(out, f->header);
	if (f->headers > 64)
		rte_mov64(out + 64, f->header + 64);
	m->data_len = f->headers;
	m->port = pg->port;
	for (i = 0; i < f->nb_parts; i++) {
		part = &f->part[i];
		if (!part->info) {
			rte_memcpy(rte_pktmbuf_mtod_offset(m, void *, m->data_len), part->addr,
				part->length);
			m->data_len += part->length;
			continue;
		}
		to->next = spare_get(pg);
		to = to->next;
		rte_pktmbuf_attach_extbuf(to, part->addr, (rte_iova_t)(uintptr_t)part->addr,
			part->length, part->info);
		to->data_len = part->length;
		m->nb_segs++;
	}
	if (to != m) {
		to->next = spare_get(pg);
		to = to->next;
		m->nb_segs++;
	}
	*last = to;
	return m;
}

/**
 * Prefetch the payload of the next packet while this one is processed: one half before the CRC is
 * computed, the other half after it. The whole payload at once exceeds the number of outstanding
 * loads of a core, and the CRC would wait for them.
 */
static void
prefetch_next(const struct roce_frame *f, uint32_t from, uint32_t to)
{
	uint32_t i;

	for (i = from; i < to; i += RTE_CACHE_LINE_SIZE)
		rte_prefetch0(f->next + i);
}

uint32_t
roce_frame_end(struct roce_poll_group *pg, struct roce_frame *f)
{
	static const uint8_t zero[4];
	const uint32_t pad = -f->payload & 3, tail = pad + ROCE_ICRC_BYTES;
	const uint32_t half = RTE_ALIGN(f->next_length / 2, RTE_CACHE_LINE_SIZE);
	struct rte_mbuf *m, *last;
	unsigned int i;
	uint32_t crc;
	uint8_t *end;

	f->bth->flags |= pad << 4;
	roce_path_finish(f->path, f->header, f->headers - f->path->length + f->payload + tail);
	crc = roce_icrc_headers(
		f->header + f->path->l2_len, f->path->l3_len, f->headers - f->path->l2_len);
	m = chain(pg, f, &last);
	prefetch_next(f, 0, half);
	for (i = 0; i < f->nb_parts; i++)
		crc = roce_icrc_bytes(crc, f->part[i].addr, f->part[i].length);
	prefetch_next(f, half, f->next_length);
	if (pad)
		crc = roce_icrc_bytes(crc, zero, pad);
	end = rte_pktmbuf_mtod_offset(last, uint8_t *, last->data_len);
	memset(end, 0, pad);
	end[pad] = crc;
	end[pad + 1] = crc >> 8;
	end[pad + 2] = crc >> 16;
	end[pad + 3] = crc >> 24;
	last->data_len += tail;
	m->pkt_len = f->headers + f->payload + tail;
	roce_count_n(pg, ROCE_TX_BYTES, f->payload);
	roce_poll_group_tx(pg, m);
	return m->pkt_len;
}
