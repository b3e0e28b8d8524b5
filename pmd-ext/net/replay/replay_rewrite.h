/* SPDX-License-Identifier: BSD-3-Clause */
/* Fields that change from loop to loop. */
#ifndef REPLAY_REWRITE_H
#define REPLAY_REWRITE_H

#include <string.h>

#include <rte_byteorder.h>
#include <rte_mbuf.h>

#include "replay.h"

/* A copy of constant size is one instruction. Nearly all fields have one of these sizes. */
static inline void
store_field(uint8_t *to, uint64_t value, uint32_t length)
{
	switch (length) {
	case 8:
		memcpy(to, &value, 8);
		break;
	case 4:
		memcpy(to, &value, 4);
		break;
	default:
		memcpy(to, &value, length);
		break;
	}
}

/*
 * Value of a field in loop `loop`, as stored in memory: its first `length` bytes are valid. The
 * captured value is read from the capture, of which `room` bytes are available. Reading back the
 * copied value would wait for the stores.
 */
static inline uint64_t
rewritten(const struct replay_rewrite *field, const uint8_t *captured, uint32_t room, uint64_t loop)
{
	const uint32_t spare = 64 - 8 * field->length;
	const uint64_t add = loop * field->step;
	uint64_t value = 0;

	if (likely(room >= 8))
		memcpy(&value, captured, 8);
	else
		memcpy(&value, captured, field->length);
	/* a big-endian field is in the upper bytes; the addition does not affect the lower ones */
	if (field->big_endian)
		return rte_cpu_to_be_64(rte_be_to_cpu_64(value) + (add << spare));
	return rte_cpu_to_le_64(rte_le_to_cpu_64(value) + add);
}

/* Adds the steps of `loop` loops to the fields inside the first `len` bytes. */
static inline void
rewrite_fields(const struct replay_devargs *args, uint8_t *frame, const uint8_t *captured,
	uint32_t len, uint64_t loop)
{
	for (uint32_t i = 0; i < args->nb_rewrites; i++) {
		const struct replay_rewrite *field = &args->rewrites[i];
		const uint32_t off = field->offset;

		if (unlikely(off + field->length > len))
			continue;
		store_field(frame + off, rewritten(field, captured + off, len - off, loop),
			field->length);
	}
}

/* Rewrites the fields that are wholly or partly after the first segment. */
static inline void
rewrite_rest(const struct replay_devargs *args, struct rte_mbuf *head, const uint8_t *captured,
	uint64_t loop)
{
	for (uint32_t i = 0; i < args->nb_rewrites; i++) {
		const struct replay_rewrite *field = &args->rewrites[i];
		uint32_t off = field->offset;
		struct rte_mbuf *m = head;
		uint8_t bytes[8];
		uint64_t value;

		if (off + field->length <= head->data_len || off + field->length > head->pkt_len)
			continue;
		value = rewritten(field, captured + off, head->pkt_len - off, loop);
		memcpy(bytes, &value, sizeof(bytes));
		for (uint32_t b = 0; b < field->length; b++, off++) {
			for (; off >= m->data_len; m = m->next)
				off -= m->data_len;
			*rte_pktmbuf_mtod_offset(m, uint8_t *, off) = bytes[b];
		}
	}
}

#endif /* REPLAY_REWRITE_H */
