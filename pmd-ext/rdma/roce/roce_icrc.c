/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include <isa-l/crc.h>

#include "roce_icrc.h"
#include "roce_wire.h"

uint32_t
roce_icrc_bytes(uint32_t crc, const void *bytes, size_t length)
{
	return crc32_gzip_refl(crc, bytes, length);
}

uint32_t
roce_icrc_headers(const uint8_t *l3, unsigned int l3_len, unsigned int length)
{
	uint8_t b[ROCE_ICRC_HEADERS_MAX];

	memcpy(b, l3, length);
	if (l3_len == 20) {
		b[1] = 0xff; /* type of service */
		b[8] = 0xff; /* time to live */
		b[10] = 0xff;
		b[11] = 0xff; /* checksum */
	} else {
		b[0] |= 0x0f; /* traffic class, flow label */
		b[1] = 0xff;
		b[2] = 0xff;
		b[3] = 0xff;
		b[7] = 0xff; /* hop limit */
	}
	b[l3_len + 6] = 0xff; /* UDP checksum */
	b[l3_len + 7] = 0xff;
	b[l3_len + ROCE_UDP_BYTES + offsetof(struct roce_bth, ecn)] = 0xff;
	return crc32_gzip_refl(ROCE_ICRC_SEED, b, length);
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
		crc = crc32_gzip_refl(crc, rte_pktmbuf_mtod_offset(m, const uint8_t *, offset), n);
		length -= n;
	}
	return crc;
}
