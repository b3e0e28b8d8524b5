/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>

#include "fail_point.h"
#include "egress/store_client_private.h"

/* Return true if a batch is in a queue or a remote slot. It must not be in two. */
static bool
is_here(const struct store_client *s, uint32_t batch)
{
	return (s->here[batch / 64] & UINT64_C(1) << batch % 64) != 0;
}

static void
is_gone(struct store_client *s, uint32_t batch)
{
	s->here[batch / 64] &= ~(UINT64_C(1) << batch % 64);
}

static int
queue_put(struct store_client *s, struct queue *q, uint32_t batch)
{
	uint32_t room, *at, i;

	/* a batch that was reassigned to and fro may still be queued here */
	if (is_here(s, batch))
		return 0;
	if (q->nb == q->room) {
		room = q->room > 0 ? 2 * q->room : 64;
		at = malloc(room * sizeof(*at));
		if (at == NULL)
			return -ENOMEM;
		for (i = 0; i < q->nb; i++)
			at[i] = q->at[(q->head + i) & (q->room - 1)];
		free(q->at);
		*q = (struct queue){at, 0, q->nb, room};
	}
	q->at[(q->head + q->nb++) & (q->room - 1)] = batch;
	s->here[batch / 64] |= UINT64_C(1) << batch % 64;
	return 0;
}

/* Remove the first batch, which was sent or no longer belongs to this store. */
static void
queue_drop(struct queue *q)
{
	q->head = (q->head + 1) & (q->room - 1);
	q->nb--;
}

bool
store_client_owns(const struct store_client *s, const struct journal_batch *b)
{
	return b->held && b->run == s->config.run && b->owner == store_client_number(s);
}

int
store_client_offer(struct store_client *s, uint32_t batch)
{
	struct journal_batch b;

	/* without a connection, the batch is found in the journal when one is established */
	if (s->state != STORE_CLIENT_UP || !journal_get(s->config.journal, batch, &b))
		return 0;
	return queue_put(s, &s->queue[b.table], batch);
}

int
store_client_fill_queues(struct store_client *s)
{
	struct journal_batch b;
	uint32_t batch, at = 0, i;
	int rc = 0;

	for (i = 0; i < XFER_TABLES; i++)
		s->queue[i].nb = 0;
	memset(s->here, 0, sizeof(s->here));
	while (rc == 0 && (batch = journal_walk(s->config.journal, &at)) != UINT32_MAX) {
		if (journal_get(s->config.journal, batch, &b) && store_client_owns(s, &b))
			rc = queue_put(s, &s->queue[b.table], batch);
	}
	return rc;
}

void
store_client_release(struct store_client *s, uint32_t batch, enum xfer_result_status status)
{
	journal_release(s->config.journal, batch);
	if (s->config.result != NULL)
		s->config.result(s->config.arg, batch, status);
}

enum xfer_reason
store_client_take_places(struct store_client *s, const struct xfer_grant *m)
{
	enum xfer_reason reason;
	uint32_t i;

	s->place = calloc(XFER_DESCS_MAX, sizeof(*s->place));
	if (s->place == NULL)
		return XFER_REASON_FAILED;
	reason = xfer_grant_slots(m, s->run.body_max, s->place, &s->nb_places);
	if (reason != XFER_REASON_NONE)
		return reason;
	s->used = malloc(s->nb_places * sizeof(*s->used));
	for (i = 0; i < XFER_TABLES; i++)
		s->free_place[i] = malloc(s->nb_places * sizeof(uint32_t));
	if (s->used == NULL || s->free_place[0] == NULL || s->free_place[1] == NULL)
		return XFER_REASON_FAILED;
	/* low numbers first */
	for (i = s->nb_places; i-- > 0;) {
		s->used[i].batch = NO_BATCH;
		s->free_place[s->place[i].table][s->nb_free[s->place[i].table]++] = i;
	}
	for (s->nb_free_stages = 0; s->nb_free_stages < WINDOW; s->nb_free_stages++)
		s->free_stage[s->nb_free_stages] = s->nb_free_stages;
	return XFER_REASON_NONE;
}

enum xfer_reason
store_client_take_results(struct store_client *s, const struct xfer_results *m)
{
	const struct xfer_result *result;
	struct journal_batch b;
	struct used *used;
	uint32_t i, batch;

	for (i = 0; i < m->nb; i++) {
		result = &m->result[i];
		if (result->entry >= s->nb_places)
			return XFER_REASON_MALFORMED;
		used = &s->used[result->entry];
		batch = used->batch;
		if (batch == NO_BATCH || !journal_get(s->config.journal, batch, &b) ||
			b.sequence != result->sequence || b.table != result->table)
			return XFER_REASON_ORDER;
		s->progress_at = s->heard;
		FAIL_POINT("recv.result");
		used->batch = NO_BATCH;
		is_gone(s, batch);
		s->free_stage[s->nb_free_stages++] = used->stage;
		s->free_place[b.table][s->nb_free[b.table]++] = result->entry;
		if (result->status == XFER_RETRY) {
			s->stats.returned++;
			if (s->config.result != NULL)
				s->config.result(s->config.arg, batch, XFER_RETRY);
			continue;
		}
		s->forbidden = false;
		s->stats.durable += result->status == XFER_DURABLE;
		s->stats.duplicates += result->status == XFER_DUPLICATE;
		store_client_release(s, batch, result->status);
	}
	return XFER_REASON_NONE;
}

/*
 * Return the size of the next piece of a body: within one slice of the journal, and at most the
 * maximum message size.
 */
static uint64_t
piece_of(const struct store_client *s, const struct journal_batch *b, uint64_t at,
	const struct rdma_mr **mr)
{
	uint64_t bytes;

	*mr = xfer_mr_at(s->config.memory, b->body + at, &bytes);
	return RTE_MIN(RTE_MIN(bytes, b->body_bytes - at), s->config.message_max);
}

static uint32_t
count_pieces(const struct store_client *s, const struct journal_batch *b)
{
	const struct rdma_mr *mr;
	uint32_t nb = 0;
	uint64_t at;

	for (at = 0; at < b->body_bytes; at += piece_of(s, b, at, &mr))
		nb++;
	return nb;
}

static int
write_body(struct store_client *s, const struct journal_batch *b, const struct xfer_slot *place)
{
	const struct rdma_mr *mr;
	uint64_t at = 0;
	int rc = 0;

	while (at < b->body_bytes && rc == 0) {
		const uint64_t bytes = piece_of(s, b, at, &mr);
		const struct rdma_sge sg = {
			(uintptr_t)b->body + at, (uint32_t)bytes, rdma_mr_lkey(mr)};

		rc = xfer_qp_write(&s->link, 0, &sg, 1, place->body + at, place->body_rkey, NULL);
		at += bytes;
	}
	return rc;
}

/*
 * Write the descriptor, followed by the metadata from the journal. It is the last of `writes`
 * requests.
 */
static int
write_entry(struct store_client *s, const struct xfer_descriptor *descriptor,
	const struct journal_batch *b, const struct xfer_slot *place, uint32_t number,
	uint32_t writes)
{
	uint64_t room; /* a slice of the journal has whole blocks */
	const struct rdma_mr *mr = xfer_mr_at(s->config.memory, b->metadata, &room);
	const struct rdma_sge sg[] = {
		{(uintptr_t)descriptor, sizeof(*descriptor), rdma_mr_lkey(s->link.mr)},
		{(uintptr_t)b->metadata, descriptor->metadata_bytes, rdma_mr_lkey(mr)},
	};

	return xfer_qp_write(
		&s->link, writes, sg, 2, place->metadata, place->metadata_rkey, &number);
}

bool
store_client_send_batch(struct store_client *s, unsigned int table)
{
	const struct xfer_slot *place;
	struct journal_batch b;
	struct xfer_batch batch;
	struct xfer_descriptor *descriptor;
	uint32_t index, number, stage, writes;

	if (s->queue[table].nb == 0 || s->nb_free[table] == 0 || s->nb_free_stages == 0)
		return false;
	/* It stays the first one until it is sent, because no other event would retry it. */
	index = s->queue[table].at[s->queue[table].head];
	if (!journal_get(s->config.journal, index, &b) || !store_client_owns(s, &b)) {
		queue_drop(&s->queue[table]);
		is_gone(s, index);
		return true;
	}
	writes = count_pieces(s, &b) + 1;
	if (s->writes + writes > WRITES)
		return false;
	number = s->free_place[table][s->nb_free[table] - 1];
	stage = s->free_stage[s->nb_free_stages - 1];
	place = &s->place[number];
	descriptor = (struct xfer_descriptor *)(s->link.extra + stage * STAGE);
	batch = (struct xfer_batch){b.sequence, b.rows, b.first, b.last, b.received, b.body_bytes,
		b.body_crc32c, number};
	if (xfer_desc_fill(&s->stream[table], &batch, b.metadata, descriptor) < 0) {
		CLIENT_LOG(ERR, s,
			"batch %" PRIu64 " of %" PRIu64 " bytes does not fit into a slot",
			b.sequence, b.body_bytes);
		queue_drop(&s->queue[table]);
		is_gone(s, index);
		return true;
	}
	journal_give(s->config.journal, index);
	if (write_body(s, &b, place) < 0)
		goto lost;
	FAIL_POINT("recv.body");
	if (write_entry(s, descriptor, &b, place, number, writes) < 0)
		goto lost;
	FAIL_POINT("recv.imm");
	queue_drop(&s->queue[table]);
	s->writes += writes;
	s->nb_free[table]--;
	s->nb_free_stages--;
	s->used[number] = (struct used){index, stage};
	s->stats.sent++;
	s->stats.bytes += b.body_bytes + sizeof(*descriptor) + descriptor->metadata_bytes;
	return true;

lost:
	/*
	 * A body was written at least partly and is never announced: this connection loses the
	 * remote slot.
	 */
	xfer_qp_break(&s->link);
	return false;
}

void
store_client_forget_moved(struct store_client *s)
{
	struct journal_batch b;
	uint32_t index, i;

	for (i = 0; i < XFER_TABLES; i++) {
		while (s->queue[i].nb > 0) {
			index = s->queue[i].at[s->queue[i].head];
			if (journal_get(s->config.journal, index, &b) && store_client_owns(s, &b))
				break;
			queue_drop(&s->queue[i]);
			is_gone(s, index);
		}
	}
}

bool
store_client_is_idle(const struct store_client *s)
{
	return s->queue[0].nb == 0 && s->queue[1].nb == 0 &&
		s->nb_free[0] + s->nb_free[1] == s->nb_places;
}
