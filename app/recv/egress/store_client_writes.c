/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The WRITEs of a batch: its body, which is gathered from its parts in the journal, and its entry.
 */

#include <stdint.h>

#include <rte_common.h>

#include "egress/store_client_private.h"

/* The parts of a body that are still to be sent. */
struct body_rest {
	struct iovec part;	  /* the rest of the current part */
	const struct iovec *next; /* the parts after it */
	uint32_t nb_next;
};

/*
 * Take the next piece of a body: within one part and one slice of the journal, and at most `room`
 * bytes. @return false: the body ends, or there is no room
 */
static bool
take_piece(
	const struct store_client *s, struct body_rest *rest, uint64_t room, struct rdma_sge *piece)
{
	struct iovec *part = &rest->part;
	const struct rdma_mr *mr;
	uint64_t bytes;

	while (part->iov_len == 0) {
		if (rest->nb_next == 0)
			return false;
		*part = *rest->next++;
		rest->nb_next--;
	}
	if (room == 0)
		return false;
	mr = xfer_mr_at(s->config.memory, part->iov_base, &bytes);
	bytes = RTE_MIN(RTE_MIN(bytes, part->iov_len), room);
	*piece = (struct rdma_sge){(uintptr_t)part->iov_base, (uint32_t)bytes, rdma_mr_lkey(mr)};
	*part = (struct iovec){(uint8_t *)part->iov_base + bytes, part->iov_len - bytes};
	return true;
}

/* Pieces of a body that one WRITE gathers: they follow one another in the remote slot. */
struct body_write {
	struct rdma_sge piece[RDMA_SGE_MAX];
	uint16_t nb;
	uint64_t bytes; /* sum of the pieces, at most the maximum message size */
};

/* Take the pieces of the next WRITE of a body. @return false: the body ends */
static bool
take_write(const struct store_client *s, struct body_rest *rest, struct body_write *w)
{
	w->bytes = 0;
	for (w->nb = 0; w->nb < s->config.max_sge &&
		take_piece(s, rest, s->config.message_max - w->bytes, &w->piece[w->nb]);
		w->nb++)
		w->bytes += w->piece[w->nb].length;
	return w->nb > 0;
}

uint32_t
store_client_count_writes(const struct store_client *s, const struct iovec *part, uint32_t nb_parts)
{
	struct body_rest rest = {.next = part, .nb_next = nb_parts};
	struct body_write w;
	uint32_t nb = 0;

	while (take_write(s, &rest, &w))
		nb++;
	return nb;
}

uint32_t
store_client_writes_max(const struct store_client_config *c)
{
	return RTE_MAX(2 * STORE_CLIENT_WINDOW, JOURNAL_PARTS / c->max_sge + STORE_CLIENT_WINDOW);
}

int
store_client_write_body(struct store_client *s, const struct iovec *part, uint32_t nb_parts,
	const struct xfer_slot *slot)
{
	struct body_rest rest = {.next = part, .nb_next = nb_parts};
	struct body_write w;
	uint64_t at = 0;
	int ret = 0;

	while (ret == 0 && take_write(s, &rest, &w)) {
		ret = xfer_qp_write(
			&s->link, 0, w.piece, w.nb, slot->body + at, slot->body_rkey, NULL);
		at += w.bytes;
	}
	return ret;
}

int
store_client_write_entry(struct store_client *s, const struct xfer_descriptor *descriptor,
	const struct journal_batch *b, const struct xfer_slot *slot, uint32_t number,
	uint32_t writes)
{
	uint64_t room; /* a slice of the journal has whole blocks */
	const struct rdma_mr *mr = xfer_mr_at(s->config.memory, b->metadata, &room);
	const struct rdma_sge sg[] = {
		{(uintptr_t)descriptor, sizeof(*descriptor), rdma_mr_lkey(s->link.mr)},
		{(uintptr_t)b->metadata, descriptor->metadata_bytes, rdma_mr_lkey(mr)},
	};

	return xfer_qp_write(&s->link, writes, sg, 2, slot->metadata, slot->metadata_rkey, &number);
}
