/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Batches on their way to a store: the queue of each table, remote slots, results, and batches
 * that arrive with a wrong CRC.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>

#include "arrow/tables.h"
#include "egress/store_client_private.h"
#include "fail_point.h"

LOG_REGISTER("xfer", "xfer");

static bool
mask_has(const uint64_t *mask, uint32_t batch)
{
	return (mask[batch / 64] & UINT64_C(1) << batch % 64) != 0;
}

static void
mask_add(uint64_t *mask, uint32_t batch)
{
	mask[batch / 64] |= UINT64_C(1) << batch % 64;
}

static void
mask_remove(uint64_t *mask, uint32_t batch)
{
	mask[batch / 64] &= ~(UINT64_C(1) << batch % 64);
}

static int
queue_put(struct store_client *s, struct store_client_queue *q, uint32_t batch)
{
	uint32_t room, *at, i;

	/* a batch that was reassigned and returned to this store may still be queued here */
	if (mask_has(s->pending, batch))
		return 0;
	if (q->nb == q->room) {
		room = q->room > 0 ? 2 * q->room : 64;
		at = malloc(room * sizeof(*at));
		if (at == NULL)
			return -ENOMEM;
		for (i = 0; i < q->nb; i++)
			at[i] = q->at[(q->head + i) & (q->room - 1)];
		free(q->at);
		*q = (struct store_client_queue){at, 0, q->nb, room};
	}
	q->at[(q->head + q->nb++) & (q->room - 1)] = batch;
	mask_add(s->pending, batch);
	return 0;
}

/* Remove the first batch, which was sent or no longer belongs to this store. */
static void
queue_drop(struct store_client_queue *q)
{
	q->head = (q->head + 1) & (q->room - 1);
	q->nb--;
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
	int ret = 0;

	for (i = 0; i < XFER_TABLES; i++)
		s->queue[i].nb = 0;
	/* `suspect` stays: a batch that arrived wrong before is checked on every connection */
	memset(s->pending, 0, sizeof(s->pending));
	memset(s->corrupted, 0, sizeof(s->corrupted));
	s->nb_corrupted = 0;
	s->corrupted_since = 0;
	while (ret == 0 && (batch = journal_walk(s->config.journal, &at)) != UINT32_MAX) {
		if (journal_get(s->config.journal, batch, &b) && store_client_owns(s, &b))
			ret = queue_put(s, &s->queue[b.table], batch);
	}
	return ret;
}

void
store_client_release(struct store_client *s, uint32_t batch, enum xfer_result_status status)
{
	journal_release(s->config.journal, batch);
	if (s->config.result != NULL)
		s->config.result(s->config.arg, batch, status);
}

enum xfer_reason
store_client_take_slots(struct store_client *s, const struct xfer_grant *m)
{
	enum xfer_reason reason;
	uint32_t i;

	s->slot = calloc(XFER_DESCS_MAX, sizeof(*s->slot));
	if (s->slot == NULL)
		return XFER_REASON_FAILED;
	reason = xfer_grant_slots(m, s->run.body_max, s->slot, &s->nb_slots);
	if (reason != XFER_REASON_NONE)
		return reason;
	s->slot_use = malloc(s->nb_slots * sizeof(*s->slot_use));
	for (i = 0; i < XFER_TABLES; i++)
		s->free_slot[i] = malloc(s->nb_slots * sizeof(uint32_t));
	if (s->slot_use == NULL || s->free_slot[0] == NULL || s->free_slot[1] == NULL)
		return XFER_REASON_FAILED;
	/* low numbers first */
	for (i = s->nb_slots; i-- > 0;) {
		s->slot_use[i].batch = STORE_CLIENT_NO_BATCH;
		s->free_slot[s->slot[i].table][s->nb_free[s->slot[i].table]++] = i;
	}
	for (s->nb_free_stages = 0; s->nb_free_stages < STORE_CLIENT_WINDOW; s->nb_free_stages++)
		s->free_stage[s->nb_free_stages] = s->nb_free_stages;
	return XFER_REASON_NONE;
}

/*
 * Handle a body that arrived with a wrong CRC. The batch is sent again at once, after a check of
 * the copy in the journal. If it arrives with a wrong CRC again, the network path or the memory of
 * the store corrupts it. It then waits, so that it does not take the link from other batches.
 * @return 0; -ENOMEM
 */
static int
store_client_take_corrupted(struct store_client *s, uint32_t batch, const struct journal_batch *b)
{
	s->stats.wrong_crc++;
	if (!mask_has(s->suspect, batch)) {
		mask_add(s->suspect, batch);
		return queue_put(s, &s->queue[b->table], batch);
	}
	s->stats.corrupted++;
	if (mask_has(s->corrupted, batch))
		return 0;
	mask_add(s->corrupted, batch);
	if (s->nb_corrupted++ > 0)
		return 0;
	s->corrupted_since = s->last_received_at;
	s->resend_at = s->last_received_at + XFER_CORRUPTED_MS;
	if (s->config.failover_ms > 0)
		s->resend_at =
			RTE_MIN(s->resend_at, s->last_received_at + s->config.failover_ms / 2);
	if (s->corrupted_logged != 0 &&
		s->last_received_at < s->corrupted_logged + XFER_CORRUPTED_LOG_MS)
		return 0;
	s->corrupted_logged = s->last_received_at;
	CLIENT_LOG(WARNING, s,
		"batch %" PRIu64 " of %s (frames %" PRIu64 " to %" PRIu64 ") arrived with a wrong "
		"CRC-32C repeatedly, although the copy here is correct: the network path or the "
		"memory of the store corrupts it. It and others like it stay in the journal until "
		"a store has them; sending some of them again every %u ms",
		b->sequence, arrow_table_name(b->table), b->first, b->last, XFER_CORRUPTED_MS);
	return 0;
}

/* Forget that a batch arrived with a wrong CRC: the store has it, or it left the journal. */
static void
store_client_arrived(struct store_client *s, uint32_t batch)
{
	mask_remove(s->suspect, batch);
	if (!mask_has(s->corrupted, batch))
		return;
	mask_remove(s->corrupted, batch);
	/* others may arrive, too */
	s->resend_at = RTE_MIN(
		s->resend_at, s->last_received_at + XFER_CORRUPTED_MS / XFER_CORRUPTED_BATCHES);
	if (--s->nb_corrupted == 0)
		s->corrupted_since = 0;
}

void
store_client_resend_corrupted(struct store_client *s, uint64_t now)
{
	struct journal_batch b;
	unsigned int nb = 0;
	uint32_t batch, i;

	if (s->nb_corrupted == 0 || now < s->resend_at)
		return;
	s->resend_at = now + XFER_CORRUPTED_MS;
	for (i = 0; i < JOURNAL_BATCHES && nb < XFER_CORRUPTED_BATCHES; i++) {
		batch = s->resend_next;
		s->resend_next = (batch + 1) % JOURNAL_BATCHES;
		/* without memory for the queue, again in the next round */
		if (mask_has(s->corrupted, batch) && journal_get(s->config.journal, batch, &b))
			nb += queue_put(s, &s->queue[b.table], batch) == 0;
	}
}

/* Make a slot free. @param last  use it after all others: its memory may be faulty */
static void
store_client_free_slot(struct store_client *s, uint32_t slot, unsigned int table, bool last)
{
	uint32_t *at = s->free_slot[table], nb = s->nb_free[table]++;

	if (last)
		memmove(at + 1, at, nb * sizeof(*at));
	at[last ? 0 : nb] = slot;
}

enum xfer_reason
store_client_take_results(struct store_client *s, const struct xfer_results *m)
{
	const struct xfer_result *result;
	struct journal_batch b;
	struct store_client_slot *use;
	uint32_t i, batch;

	for (i = 0; i < m->nb; i++) {
		result = &m->result[i];
		if (result->entry >= s->nb_slots)
			return XFER_REASON_MALFORMED;
		use = &s->slot_use[result->entry];
		batch = use->batch;
		if (batch == STORE_CLIENT_NO_BATCH || !journal_get(s->config.journal, batch, &b) ||
			b.sequence != result->sequence || b.table != result->table)
			return XFER_REASON_ORDER;
		s->progress_at = s->last_received_at;
		FAIL_POINT("recv.result");
		use->batch = STORE_CLIENT_NO_BATCH;
		mask_remove(s->pending, batch);
		s->free_stage[s->nb_free_stages++] = use->stage;
		store_client_free_slot(s, result->entry, b.table, result->status == XFER_WRONG_CRC);
		if (result->status == XFER_WRONG_CRC) {
			s->stats.returned++;
			if (store_client_take_corrupted(s, batch, &b) < 0)
				return XFER_REASON_FAILED;
			continue;
		}
		if (result->status == XFER_RETRY) {
			s->stats.returned++;
			if (s->config.result != NULL)
				s->config.result(s->config.arg, batch, XFER_RETRY);
			continue;
		}
		s->forbidden = false;
		s->stats.durable += result->status == XFER_DURABLE;
		s->stats.duplicates += result->status == XFER_DUPLICATE;
		store_client_arrived(s, batch);
		store_client_release(s, batch, result->status);
	}
	return XFER_REASON_NONE;
}

/*
 * Check the copy of a batch whose last body arrived with a wrong CRC, or that another store may
 * have. If it is damaged, the other store keeps its copy, which may be good.
 */
static void
store_client_check_copy(struct store_client *s, uint32_t index, const struct journal_batch *b,
	struct xfer_batch *batch)
{
	batch->flags = XFER_COPY_CHECKED;
	batch->copy_crc32c = journal_body_crc32c(b);
	if (batch->copy_crc32c == b->body_crc32c)
		return;
	journal_keep_copies(s->config.journal, index);
	s->stats.sent_damaged++;
	CLIENT_LOG(ERR, s,
		"batch %" PRIu64 " of %s (frames %" PRIu64 " to %" PRIu64 ") is damaged in the "
		"memory of this receiver: CRC-32C %08x, expected %08x; sending it as it is, in "
		"case that no store has a sound copy",
		b->sequence, arrow_table_name(b->table), b->first, b->last, batch->copy_crc32c,
		b->body_crc32c);
}

/* Connect again: HELD then has the batch, and the store reads its copy. */
static void
store_client_ask_for_copy(struct store_client *s, const struct journal_batch *b)
{
	CLIENT_LOG(WARNING, s,
		"batch %" PRIu64 " of %s (frames %" PRIu64 " to %" PRIu64 ") is damaged in the "
		"memory of this receiver, and this store may have a sound copy: connecting again "
		"to find out",
		b->sequence, arrow_table_name(b->table), b->first, b->last);
	store_client_refuse(s, XFER_REASON_STOPPING);
}

/*
 * Whether the store may have a sound copy of a batch that is damaged here, and was not asked for it
 * on this connection: when it was established, the batch belonged to another store.
 */
static bool
store_client_must_ask(const struct store_client *s, uint32_t index, const struct journal_batch *b)
{
	return b->copies_stay && (b->given & 1u << b->owner) != 0 && !mask_has(s->suspect, index) &&
		!interval_set_has(&s->held[b->table], b->sequence);
}

bool
store_client_send_batch(struct store_client *s, unsigned int table)
{
	const struct xfer_slot *slot;
	struct journal_batch b;
	struct xfer_batch batch;
	struct xfer_descriptor *descriptor;
	struct iovec part[JOURNAL_PARTS];
	uint32_t index, number, stage, writes, nb_parts;
	int ret;

	if (s->queue[table].nb == 0 || s->nb_free[table] == 0 || s->nb_free_stages == 0)
		return false;
	/* The batch stays the first one until it is sent, because no other event would retry it. */
	index = s->queue[table].at[s->queue[table].head];
	if (!journal_get(s->config.journal, index, &b) || !store_client_owns(s, &b) ||
		(!store_client_must_ask(s, index, &b) &&
			!journal_check(s->config.journal, index))) {
		queue_drop(&s->queue[table]);
		store_client_arrived(s, index);
		mask_remove(s->pending, index);
		return true;
	}
	if (store_client_must_ask(s, index, &b)) {
		store_client_ask_for_copy(s, &b);
		return false;
	}
	nb_parts = journal_parts(&b, part);
	writes = store_client_count_writes(s, part, nb_parts) + 1;
	if (s->writes + writes > store_client_writes_max(&s->config))
		return false;
	number = s->free_slot[table][s->nb_free[table] - 1];
	stage = s->free_stage[s->nb_free_stages - 1];
	slot = &s->slot[number];
	descriptor = (struct xfer_descriptor *)(s->link.extra + stage * STORE_CLIENT_STAGE);
	batch = (struct xfer_batch){b.sequence, b.rows, b.first, b.last, b.received, b.body_bytes,
		b.body_crc32c, number, 0, 0};
	/* this store owns it */
	if (mask_has(s->suspect, index) || (b.given & ~(1u << b.owner)) != 0)
		store_client_check_copy(s, index, &b, &batch);
	ret = xfer_desc_fill(&s->stream[table], &batch, b.metadata, descriptor);
	if (ret == -EIO)
		goto lost;
	if (ret < 0) {
		CLIENT_LOG(ERR, s,
			"batch %" PRIu64 " of %" PRIu64 " bytes does not fit into a slot",
			b.sequence, b.body_bytes);
		queue_drop(&s->queue[table]);
		mask_remove(s->pending, index);
		return true;
	}
	journal_give(s->config.journal, index);
	if (store_client_write_body(s, part, nb_parts, slot) < 0)
		goto lost;
	FAIL_POINT("recv.body");
	if (store_client_write_entry(s, descriptor, &b, slot, number, writes) < 0)
		goto lost;
	FAIL_POINT("recv.imm");
	queue_drop(&s->queue[table]);
	s->writes += writes;
	s->nb_free[table]--;
	s->nb_free_stages--;
	s->slot_use[number] = (struct store_client_slot){index, stage};
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
store_client_drop_reassigned(struct store_client *s)
{
	struct journal_batch b;
	uint32_t index, i;

	for (i = 0; i < XFER_TABLES; i++) {
		while (s->queue[i].nb > 0) {
			index = s->queue[i].at[s->queue[i].head];
			if (journal_get(s->config.journal, index, &b) && store_client_owns(s, &b))
				break;
			queue_drop(&s->queue[i]);
			mask_remove(s->pending, index);
		}
	}
}
