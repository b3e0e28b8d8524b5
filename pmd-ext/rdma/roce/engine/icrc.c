/* SPDX-License-Identifier: BSD-3-Clause */
/* The invariant CRC, with ISA-L. */
#include <string.h>

#include "engine/icrc.h"
#include "engine/wire.h"
#include "isal_crc.h"

uint32_t
roce_icrc_bytes(uint32_t crc, const void *bytes, size_t length)
{
	return isal_crc32(crc, bytes, length);
}

#define CHUNK 16

/* The unit of the CRC's first loads. Store and load it as a whole: a load that spans several
 * narrower stores waits until these stores and all earlier ones have left the store queue, also
 * those of the previous frame, which may wait for memory. */
typedef uint64_t chunk __attribute__((vector_size(CHUNK)));

#define CHUNKS ((ROCE_ICRC_ONES + ROCE_ICRC_HEADERS_MAX + CHUNK - 1) / CHUNK)

/* Ones that replace the local route header, then ones for the fields that routers may change. */
static const union {
	uint8_t bytes[CHUNKS * CHUNK];
	chunk chunks[CHUNKS];
} mask4 = {.bytes = {[0 ... 7] = 0xff,
		   [8 + 1] = 0xff,	       /* type of service */
		   [8 + 8] = 0xff,	       /* time to live */
		   [8 + 10 ... 8 + 11] = 0xff, /* checksum */
		   [8 + 26 ... 8 + 27] = 0xff, /* UDP checksum */
		   [8 + 32] = 0xff}},	       /* BTH: FECN, BECN, reserved */
	mask6 = {.bytes = {[0 ... 7] = 0xff,
			 [8 + 0] = 0x0f,
			 [8 + 1 ... 8 + 3] = 0xff, /* traffic class, flow label */
			 [8 + 7] = 0xff,	   /* hop limit */
			 [8 + 46 ... 8 + 47] = 0xff,
			 [8 + 52] = 0xff}};

uint32_t
roce_icrc_headers(const uint8_t *l3, unsigned int l3_len, unsigned int length)
{
	const chunk *mask = l3_len == 20 ? mask4.chunks : mask6.chunks;
	unsigned int i, at = CHUNK - ROCE_ICRC_ONES;
	chunk b[CHUNKS], c;
	uint64_t first;

	memcpy(&first, l3, sizeof(first));
	b[0] = (chunk){0, first} | mask[0];
	for (i = 1; at + CHUNK <= length; i++, at += CHUNK) {
		memcpy(&c, l3 + at, CHUNK);
		b[i] = c | mask[i];
	}
	if (at < length) {
		c = (chunk){0, 0};
		memcpy(&c, l3 + at, length - at);
		b[i] = c | mask[i];
	}
	return isal_crc32(0, b, ROCE_ICRC_ONES + length);
}

uint32_t
roce_icrc_mbuf(uint32_t crc, const struct rte_mbuf *m, uint32_t offset, uint32_t length)
{
	uint32_t n;

	while (offset >= m->data_len && m->next) {
		offset -= m->data_len;
		m = m->next;
	}
	for (; length; m = m->next, offset = 0) {
		n = RTE_MIN(length, m->data_len - offset);
		crc = isal_crc32(crc, rte_pktmbuf_mtod_offset(m, const void *, offset), n);
		length -= n;
	}
	return crc;
}
