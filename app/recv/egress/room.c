/* SPDX-License-Identifier: BSD-3-Clause */

#include <assert.h>
#include <string.h>

#include <rte_common.h>

#include "egress/room.h"

uint8_t *
room_open(struct journal *journal, uint64_t body_max)
{
	return journal_reserve(journal, JOURNAL_TABLE_MAX + body_max);
}

uint8_t *
room_rows(uint8_t *room)
{
	return room + 2 * XFER_BLOCK;
}

/* Bytes of the body that are in output slots. */
static uint64_t
referred_bytes(const struct batch *b)
{
	uint64_t bytes = 0;

	for (unsigned int i = 0; i < b->nb_references; i++)
		bytes += b->body[i].iov_len;
	return bytes;
}

uint64_t
room_size(const struct batch *b)
{
	if (b->nb_references == 0)
		return b->body_length;
	return XFER_BLOCK + RTE_ALIGN_CEIL(b->body_length - referred_bytes(b), XFER_BLOCK);
}

/* Fill the room of a batch that begins in output slots. */
static void
fill_references(struct journal *journal, struct journal_batch *to, const struct batch *b)
{
	struct journal_reference reference[JOURNAL_REFERENCES];
	uint64_t slot_bytes;
	uint32_t slots;
	const uint8_t *area = journal_area(journal, &slot_bytes, &slots);

	for (unsigned int i = 0; i < b->nb_references; i++)
		reference[i] = (struct journal_reference){
			.slot = b->slots[i],
			.offset = (const uint8_t *)b->body[i].iov_base -
				(area + b->slots[i] * slot_bytes),
			.bytes = b->body[i].iov_len,
		};
	to->rest_bytes = b->body_length - referred_bytes(b);
	journal_refer(journal, to, reference, b->nb_references);
}

void
room_fill(struct journal *journal, uint8_t *room, struct journal_batch *to, const struct batch *b)
{
	/* the block after the metadata is that of the references */
	uint8_t *at = room + (b->nb_references > 0 ? 2 : 1) * XFER_BLOCK;
	unsigned int i;

	memcpy(room, b->metadata, b->metadata_size);
	for (i = b->nb_references; i < b->nb_body; at += b->body[i++].iov_len)
		memcpy(at, b->body[i].iov_base, b->body[i].iov_len);
	if (b->nb_references > 0)
		fill_references(journal, to, b);
	else
		journal_fill(journal, to);
}

/* Whether a part of a batch was built in the room. @param rows  of the room */
static bool
is_in_room(const struct batch *b, const struct iovec *part, const uint8_t *rows)
{
	const uint8_t *at = part->iov_base;

	return at >= rows && at < rows + b->body_length;
}

/* The other parts of the batch are copied after those that were built in the room. */
void
room_complete(
	struct journal *journal, uint8_t *room, struct journal_batch *to, const struct batch *b)
{
	static_assert((int)BATCH_PLACE_PARTS <= (int)JOURNAL_PARTS, "the journal takes all parts");
	struct journal_piece piece[JOURNAL_PARTS];
	uint8_t *const rows = room_rows(room);
	uint64_t end = 0, at;
	uint32_t i, n = 0;

	memcpy(room, b->metadata, b->metadata_size);
	for (i = 0; i < b->nb_body; i++)
		end += is_in_room(b, &b->body[i], rows) ? b->body[i].iov_len : 0;
	for (i = 0; i < b->nb_body; i++) {
		const struct iovec *part = &b->body[i];

		at = end;
		if (is_in_room(b, part, rows)) {
			at = (uint8_t *)part->iov_base - rows;
		} else {
			memcpy(rows + end, part->iov_base, part->iov_len);
			end += part->iov_len;
		}
		if (n > 0 && piece[n - 1].at + piece[n - 1].bytes == at)
			piece[n - 1].bytes += part->iov_len;
		else
			piece[n++] = (struct journal_piece){at, part->iov_len};
	}
	journal_scatter(journal, to, piece, n);
}
