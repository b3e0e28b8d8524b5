/* SPDX-License-Identifier: BSD-3-Clause */
/* Fields that grow from loop to loop. */
#ifndef REPLAY_REWRITE_H
#define REPLAY_REWRITE_H

#include <string.h>

#include <rte_byteorder.h>
#include <rte_mbuf.h>

#include "replay.h"

/* A copy of constant size is one instruction; fields have these sizes, nearly always. */
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
 * Adds the steps of `loop` rounds to the fields that lie inside the first `len` bytes. The captured
 * value is read from the capture: reading back what was just copied would wait for the stores.
 */
static inline void
rewrite_fields(const struct replay_devargs *args, uint8_t *frame, const uint8_t *captured,
	uint32_t len, uint64_t loop)
{
	for (uint32_t i = 0; i < args->nb_rewrites; i++) {
		const struct replay_rewrite *field = &args->rewrites[i];
		const uint32_t spare = 64 - 8 * field->length;
		const uint64_t add = loop * field->step;
		const uint32_t off = field->offset;
		uint64_t value = 0;

		if (unlikely(off + field->length > len))
			continue;
		if (likely(off + 8 <= len))
			memcpy(&value, captured + off, 8);
		else
			memcpy(&value, captured + off, field->length);
		if (field->big_endian) {
			/* the field is the upper bytes; what is added does not reach those below */
			value = rte_cpu_to_be_64(rte_be_to_cpu_64(value) + (add << spare));
		} else {
			value = rte_cpu_to_le_64(rte_le_to_cpu_64(value) + add);
		}
		store_field(frame + off, value, field->length);
	}
}

/* The same for a frame in several segments: out of the chain, and back. */
static inline void
rewrite_chain(const struct replay_devargs *args, struct rte_mbuf *head, uint64_t loop)
{
	for (uint32_t i = 0; i < args->nb_rewrites; i++) {
		struct replay_devargs one = {.nb_rewrites = 1, .rewrites = {args->rewrites[i]}};
		struct replay_rewrite *field = &one.rewrites[0];
		uint8_t bytes[8], *at[8];
		uint32_t off = field->offset;
		struct rte_mbuf *m = head;

		if (off + field->length > head->pkt_len)
			continue;
		field->offset = 0;
		for (uint32_t b = 0; b < field->length; b++, off++) {
			for (; off >= m->data_len; m = m->next)
				off -= m->data_len;
			at[b] = rte_pktmbuf_mtod_offset(m, uint8_t *, off);
			bytes[b] = *at[b];
		}
		rewrite_fields(&one, bytes, bytes, field->length, loop);
		for (uint32_t b = 0; b < field->length; b++)
			*at[b] = bytes[b];
	}
}

#endif /* REPLAY_REWRITE_H */
