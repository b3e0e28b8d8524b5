/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The store client, in three parts: batches to remote slots and their results; reassigned batches
 * and the store's inventory; the connection and its states.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_errno.h>

#include "arrow/tables.h"
#include "backoff.h"
#include "egress/store_client.h"
#include "fail_point.h"
#include "interval_set.h"
#include "log.h"
#include "stream/content.h"
#include "xfer/auth.h"
#include "xfer/desc.h"
#include "xfer/msg.h"
#include "xfer/qp.h"

LOG_REGISTER("xfer", "xfer");

#define CLIENT_LOG(level, s, fmt, ...) \
	LOG_AT(RTE_LOG_##level, "store %s: " fmt "\n", store_client_name(s), ##__VA_ARGS__)

#define WINDOW	 256 /* maximum number of batches in flight */
#define STAGE	 128 /* bytes of a descriptor in flight, in its own cache lines */
#define NO_BATCH UINT32_MAX

/* FIFO of batches. */
struct queue {
	uint32_t *at;
	uint32_t head;
	uint32_t nb;
	uint32_t room; /* a power of two */
};

/* The use of a remote slot. */
struct slot_use {
	uint32_t batch; /* NO_BATCH: free */
	uint32_t stage;
};

struct store_client {
	struct store_client_config config;
	struct journal_run run;
	enum store_client_state state;
	struct xfer_auth handshake;
	struct xfer_qp link;
	struct rdma_conn *conn;
	bool link_is_open;
	bool closing; /* the connection is to be closed */
	bool proved;  /* the store's identity is proved: store_set_prove() */
	bool finish;
	struct backoff backoff; /* ms */
	uint64_t down_since;
	/* State of this connection. Times are in ms of xfer_qp_clock(). */
	uint64_t messages_sent;
	uint64_t messages_received;
	uint64_t last_received_at;
	uint64_t last_sent_at;
	uint64_t heartbeat_ms; /* send at least once in this time */
	uint64_t silence_ms;   /* without a message for this time, the store is gone */
	struct stream_contents reassigned[XFER_TABLES];
	/* lists sent completely: REASSIGNED of each table, then HELD of each table */
	unsigned int lists_sent;
	size_t list_at; /* number of batches of the current list already sent */
	bool all_lists_sent;
	bool state_reported; /* by the store */
	/* batches that INVENTORY may report, as of the start of the exchange */
	struct interval_set held[XFER_TABLES];
	struct stream_contents held_contents[XFER_TABLES]; /* the same batches, as sent */
	struct interval_set inventory[XFER_TABLES];	   /* of these: the store has them */
	unsigned int inventory_table;
	uint64_t inventory_next; /* lowest number of this table not reported yet */
	bool inventory_complete;
	uint64_t recovering_since; /* ms: when the store's identity was known */
	uint64_t waiting_since;	   /* ms: first INVENTORY; 0: none yet */
	struct xfer_slot *slot;
	struct slot_use *slot_use;
	uint32_t nb_slots;
	uint32_t *free_slot[XFER_TABLES];
	uint32_t nb_free[XFER_TABLES];
	uint32_t free_stage[WINDOW];
	uint32_t nb_free_stages;
	uint32_t writes; /* WRITE requests in flight, for bodies and for descriptors */
	/* ms: the last result, or the last time that no batch waited for one */
	uint64_t progress_at;
	uint64_t bad_since; /* ms: since when the store is not in a good state; 0: it is */
	bool stuck;	    /* missing results were logged */
	bool slow;	    /* the store syncs more slowly than expected, which was logged */
	uint64_t reading;   /* of the key, for the next connection; 0: not asked for */
	enum xfer_reason refused_for; /* the last reason to close a connection */
	uint32_t refusals;	      /* ... in a row, since the last connection */
	bool forbidden;	  /* the store refuses this receiver permanently, which was logged */
	bool down_logged; /* it was logged that there was no connection for XFER_DOWN_MS */
	struct xfer_stream stream[XFER_TABLES];
	struct queue queue[XFER_TABLES];
	/* Bit masks of batches. */
	uint64_t pending[JOURNAL_BATCHES / 64]; /* in a queue or a remote slot, never in two */
	/* the last body arrived with a wrong CRC: the copy is checked when it is sent again */
	uint64_t suspect[JOURNAL_BATCHES / 64];
	/* of these: the body arrived with a wrong CRC after such a check */
	uint64_t corrupted[JOURNAL_BATCHES / 64];
	uint32_t nb_corrupted;
	uint64_t corrupted_since;  /* ms: since when there are any; 0: none */
	uint64_t resend_at;	   /* ms: when some of them are sent again */
	uint32_t resend_next;	   /* the batch with which they begin */
	uint64_t corrupted_logged; /* ms: 0: never */
	struct store_client_stats stats;
};

static void refuse(struct store_client *s, enum xfer_reason reason);

static const char *
store_client_name(const struct store_client *s)
{
	return s->config.stores->at[s->config.at].name;
}

/* Return the number of its store in the journal. It may change while there is no connection. */
static unsigned int
store_client_number(const struct store_client *s)
{
	return (unsigned int)s->config.stores->at[s->config.at].number;
}

/* ---- batches to remote slots, and their results ---- */

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
queue_put(struct store_client *s, struct queue *q, uint32_t batch)
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
		*q = (struct queue){at, 0, q->nb, room};
	}
	q->at[(q->head + q->nb++) & (q->room - 1)] = batch;
	mask_add(s->pending, batch);
	return 0;
}

/* Remove the first batch, which was sent or no longer belongs to this store. */
static void
queue_drop(struct queue *q)
{
	q->head = (q->head + 1) & (q->room - 1);
	q->nb--;
}

/* Return true if a batch of the journal belongs to this store client. */
static bool
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

/* Queue all batches that the journal assigns to this store, oldest first. @return 0; -ENOMEM */
static int
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

/* Release a durable batch in the journal and inform the owner. */
static void
store_client_release(struct store_client *s, uint32_t batch, enum xfer_result_status status)
{
	journal_release(s->config.journal, batch);
	if (s->config.result != NULL)
		s->config.result(s->config.arg, batch, status);
}

/* Accept the store's grant of remote slots, all of them free. */
static enum xfer_reason
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
		s->slot_use[i].batch = NO_BATCH;
		s->free_slot[s->slot[i].table][s->nb_free[s->slot[i].table]++] = i;
	}
	for (s->nb_free_stages = 0; s->nb_free_stages < WINDOW; s->nb_free_stages++)
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

/*
 * Queue some corrupted batches again: their next slot, or the path meanwhile, may be sound. Only a
 * few at a time: each costs a check of the copy and the link, and most will arrive wrong again.
 */
static void
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

static enum xfer_reason
store_client_take_results(struct store_client *s, const struct xfer_results *m)
{
	const struct xfer_result *result;
	struct journal_batch b;
	struct slot_use *use;
	uint32_t i, batch;

	for (i = 0; i < m->nb; i++) {
		result = &m->result[i];
		if (result->entry >= s->nb_slots)
			return XFER_REASON_MALFORMED;
		use = &s->slot_use[result->entry];
		batch = use->batch;
		if (batch == NO_BATCH || !journal_get(s->config.journal, batch, &b) ||
			b.sequence != result->sequence || b.table != result->table)
			return XFER_REASON_ORDER;
		s->progress_at = s->last_received_at;
		FAIL_POINT("recv.result");
		use->batch = NO_BATCH;
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

static uint32_t
count_writes(const struct store_client *s, const struct iovec *part, uint32_t nb_parts)
{
	struct body_rest rest = {.next = part, .nb_next = nb_parts};
	struct body_write w;
	uint32_t nb = 0;

	while (take_write(s, &rest, &w))
		nb++;
	return nb;
}

/*
 * Maximum number of WRITEs in flight. A body of the most parts fits: most of its WRITEs gather as
 * many parts as the device can, and some are shorter.
 */
static uint32_t
most_writes(const struct store_client_config *c)
{
	return RTE_MAX(2 * WINDOW, JOURNAL_PARTS / c->max_sge + WINDOW);
}

static int
write_body(struct store_client *s, const struct iovec *part, uint32_t nb_parts,
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

/*
 * Write the descriptor, followed by the metadata from the journal. It is the last of `writes`
 * requests.
 */
static int
write_entry(struct store_client *s, const struct xfer_descriptor *descriptor,
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
	refuse(s, XFER_REASON_STOPPING);
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

/* Send the next batch of a table to a remote slot. @return true if one was sent */
static bool
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
	writes = count_writes(s, part, nb_parts) + 1;
	if (s->writes + writes > most_writes(&s->config))
		return false;
	number = s->free_slot[table][s->nb_free[table] - 1];
	stage = s->free_stage[s->nb_free_stages - 1];
	slot = &s->slot[number];
	descriptor = (struct xfer_descriptor *)(s->link.extra + stage * STAGE);
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
	if (write_body(s, part, nb_parts, slot) < 0)
		goto lost;
	FAIL_POINT("recv.body");
	if (write_entry(s, descriptor, &b, slot, number, writes) < 0)
		goto lost;
	FAIL_POINT("recv.imm");
	queue_drop(&s->queue[table]);
	s->writes += writes;
	s->nb_free[table]--;
	s->nb_free_stages--;
	s->slot_use[number] = (struct slot_use){index, stage};
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

/* Remove queued batches that have been reassigned meanwhile, up to the first one that has not. */
static void
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

/* Return true if no batch of an established connection waits to be sent or for its result. */
static bool
store_client_is_idle(const struct store_client *s)
{
	return s->queue[0].nb == 0 && s->queue[1].nb == 0 &&
		s->nb_free[0] + s->nb_free[1] == s->nb_slots;
}

/* ---- reassigned batches and the inventory ---- */

static_assert(JOURNAL_BATCHES <= XFER_REASSIGNED_MAX, "REASSIGNED and HELD can name all");

static uint64_t
content_of(const struct journal_batch *b)
{
	return stream_content_make(b->body_crc32c, b->metadata_crc32c);
}

/*
 * Collect the batches that REASSIGNED and HELD report: reassigned or held ones. Called when the
 * store has proved its identity. Reads the bodies of those that are reassigned and still held.
 * @return 0; -ENOMEM
 */
static int
store_client_collect(struct store_client *s)
{
	struct journal *r = s->config.journal;
	const unsigned int number = store_client_number(s);
	struct journal_batch b;
	uint32_t i, at = 0;

	for (i = journal_next(r, 0); i != UINT32_MAX; i = journal_next(r, i + 1)) {
		if (!journal_get(r, i, &b) || b.run != s->config.run || b.owner == number ||
			(b.given & 1u << number) == 0)
			continue;
		/* it is damaged here: the copy of this store may be the only sound one */
		if (b.held && !journal_is_sound(r, i)) {
			journal_keep_copies(r, i);
			continue;
		}
		(void)journal_check(r, i);
		if (stream_contents_append(&s->reassigned[b.table], b.sequence, content_of(&b)) < 0)
			return -ENOMEM;
	}
	/*
	 * In journal order, because there may be many. Batches that are damaged here are included:
	 * the store may have sound copies.
	 */
	while ((i = journal_walk(r, &at)) != UINT32_MAX) {
		if (!journal_get(r, i, &b) || !store_client_owns(s, &b))
			continue;
		if (interval_set_add(&s->held[b.table], b.sequence, b.sequence) < 0 ||
			stream_contents_append(
				&s->held_contents[b.table], b.sequence, content_of(&b)) < 0)
			return -ENOMEM;
	}
	for (i = 0; i < XFER_TABLES; i++) {
		stream_contents_sort(&s->reassigned[i]);
		stream_contents_sort(&s->held_contents[i]);
	}
	return 0;
}

/* Send a part of REASSIGNED, then of HELD. */
static void
send_list(struct store_client *s)
{
	const bool held = s->lists_sent >= XFER_TABLES;
	const unsigned int table = s->lists_sent % XFER_TABLES;
	const struct stream_contents *set = held ? &s->held_contents[table] : &s->reassigned[table];
	struct xfer_list *m = xfer_qp_room(&s->link);
	size_t nb, i;

	if (m == NULL)
		return;
	nb = set->nb - s->list_at;
	if (nb > XFER_LIST_MAX)
		nb = XFER_LIST_MAX;
	xfer_msg_begin(m, held ? XFER_HELD : XFER_REASSIGNED,
		sizeof(*m) + nb * sizeof(m->listed[0]), s->messages_sent++);
	m->table = table;
	m->nb = nb;
	for (i = 0; i < nb; i++) {
		const struct stream_content *c = &set->at[s->list_at + i];

		m->listed[i] = (struct xfer_listed){
			c->sequence, (uint32_t)(c->crc >> 32), (uint32_t)c->crc};
	}
	s->list_at += nb;
	if (s->list_at == set->nb) {
		s->list_at = 0;
		s->lists_sent++;
	}
	/* the last message of each kind has no XFER_MORE */
	m->head.flags = s->lists_sent / XFER_TABLES == held ? XFER_MORE : 0;
	s->all_lists_sent = s->lists_sent == 2 * XFER_TABLES;
	(void)xfer_qp_send(&s->link, m->head.length);
	FAIL_POINT("recv.reassigned");
}

/* Only batches held here are recorded, because a store could report any number of others. */
static enum xfer_reason
store_client_take_inventory(struct store_client *s, const struct xfer_intervals *m)
{
	const struct interval_set *held = &s->held[m->table];
	uint32_t i;

	/*
	 * INVENTORY is valid only after REASSIGNED and HELD were sent completely; the store reads
	 * them first.
	 */
	if (!s->all_lists_sent || s->inventory_complete || m->table < s->inventory_table)
		return XFER_REASON_ORDER;
	if (s->waiting_since == 0)
		s->waiting_since = s->last_received_at;
	if (m->table > s->inventory_table)
		s->inventory_next = 0;
	s->inventory_table = m->table;
	/* ascending across messages, too */
	if (m->nb > 0 && s->inventory_next > 0 && m->interval[0].first <= s->inventory_next)
		return XFER_REASON_MALFORMED;
	for (i = 0; i < m->nb; i++) {
		if (interval_set_add_common(&s->inventory[m->table], held, m->interval[i].first,
			    m->interval[i].last) < 0)
			return XFER_REASON_FAILED;
		s->inventory_next = m->interval[i].last + 1;
	}
	s->inventory_complete = (m->head.flags & XFER_MORE) == 0;
	return XFER_REASON_NONE;
}

/* Called when the inventory is complete: release the batches that the store has. */
static void
store_client_release_found(struct store_client *s)
{
	struct journal *r = s->config.journal;
	struct journal_batch b;
	uint32_t batch, at = 0;

	/*
	 * Release in the order of the store's files. If the process dies in between, a batch that
	 * is still held may be reassigned later. The store then truncates its file at that batch,
	 * so all later ones must still be held.
	 */
	while ((batch = journal_walk(r, &at)) != UINT32_MAX) {
		if (!journal_get(r, batch, &b) || !store_client_owns(s, &b) ||
			!interval_set_has(&s->inventory[b.table], b.sequence))
			continue;
		s->stats.found++;
		/* the store has read its copy; another store may remove its own copy */
		journal_prove(r, batch);
		store_client_release(s, batch, XFER_DURABLE);
	}
	FAIL_POINT("recv.inventory");
	journal_confirm(r, s->config.run, store_client_number(s));
}

/* ---- states ---- */

#define CONNECT_MS 3000
#define WAITING_MS (4 * XFER_AUTH_MS)
/*
 * Interval of heartbeats while the store recovers. GRANT, which has that of the store, comes
 * later. A store whose process died does not acknowledge them, and the connection breaks after
 * about 2 s.
 */
#define WAITING_HEARTBEAT_MS 500

const char *
store_client_state_name(enum store_client_state state)
{
	static const char *const names[STORE_CLIENT_STATES] = {
		[STORE_CLIENT_DOWN] = "down",
		[STORE_CLIENT_CONNECTING] = "connecting",
		[STORE_CLIENT_AUTHENTICATING] = "authenticating",
		[STORE_CLIENT_WAITING] = "waiting",
		[STORE_CLIENT_UP] = "up",
		[STORE_CLIENT_ENDING] = "ending",
		[STORE_CLIENT_ENDED] = "ended",
	};

	return names[state];
}

static void
enter(struct store_client *s, enum store_client_state state)
{
	if (s->state != state)
		CLIENT_LOG(DEBUG, s, "%s -> %s", store_client_state_name(s->state),
			store_client_state_name(state));
	s->state = state;
}

/* ---- connections ---- */

static void
forget_connection(struct store_client *s)
{
	unsigned int i;

	for (i = 0; i < XFER_TABLES; i++) {
		stream_contents_free(&s->reassigned[i]);
		stream_contents_free(&s->held_contents[i]);
		interval_set_free(&s->held[i]);
		interval_set_free(&s->inventory[i]);
		free(s->free_slot[i]);
		s->free_slot[i] = NULL;
		s->nb_free[i] = 0;
		s->queue[i].nb = 0;
	}
	free(s->slot);
	free(s->slot_use);
	s->slot = NULL;
	s->slot_use = NULL;
	s->nb_slots = 0;
	s->writes = 0;
	xfer_auth_end(&s->handshake);
}

/* Tell the store set that this connection no longer needs the store's identity. */
static void
leave_store(struct store_client *s)
{
	if (s->proved)
		store_set_leave(s->config.stores, s->config.at);
	s->proved = false;
}

/* Drain the queue pair, then free its memory. @return true if all is freed */
static bool
close_link(struct store_client *s)
{
	if (s->conn != NULL) {
		(void)rdma_conn_destroy(s->conn);
		s->conn = NULL;
	}
	if (s->link_is_open) {
		if (xfer_qp_close(&s->link) < 0)
			return false;
		s->link_is_open = false;
	}
	s->closing = false;
	return true;
}

/* Enter the state without a connection, and retry later. */
static void
go_down(struct store_client *s, const char *why)
{
	const uint64_t now = xfer_qp_clock();

	s->stats.failure = why;
	if (s->state == STORE_CLIENT_UP || s->state == STORE_CLIENT_ENDING)
		s->stats.broken++;
	backoff_extend(&s->backoff, now, XFER_BACK_OFF_MS, XFER_BACK_OFF_MAX_MS);
	if (s->down_since == 0)
		s->down_since = now;
	if (s->link_is_open)
		xfer_qp_break(&s->link);
	s->closing = true;
	leave_store(s);
	forget_connection(s);
	/*
	 * The next poll closes the connection, because this may be called from one of its
	 * callbacks.
	 */
	enter(s, STORE_CLIENT_DOWN);
}

/* Send the reason if that is still possible, and close the connection. */
static void
refuse(struct store_client *s, enum xfer_reason reason)
{
	struct xfer_refuse *m = s->link.broken ? NULL : xfer_qp_room(&s->link);
	bool logged;

	s->refusals = reason == s->refused_for ? s->refusals + 1 : 1;
	s->refused_for = reason;
	/*
	 * The store may refuse for days: the first, second, fourth time and so on are logged. A
	 * wrong store that stays at the address, and a permanent refusal, are logged elsewhere.
	 */
	logged = (s->refusals & (s->refusals - 1)) == 0 && reason != XFER_REASON_STORE &&
		!s->forbidden;
	LOG_AT(logged ? RTE_LOG_WARNING : RTE_LOG_DEBUG, "store %s: closing the connection: %s\n",
		store_client_name(s), xfer_reason_name(reason));
	if (logged && reason == XFER_REASON_KEY)
		CLIENT_LOG(ERR, s,
			"it does not know identity %s, or has another key for it; check [egress] "
			"identity and key%s%s, and [receiver %s] of the store's keyring",
			s->config.identity, s->config.key_file != NULL ? " = " : "",
			s->config.key_file != NULL ? s->config.key_file->path : "",
			s->config.identity);
	s->stats.malformed += reason == XFER_REASON_MALFORMED || reason == XFER_REASON_ORDER;
	s->stats.late += reason == XFER_REASON_LATE;
	if (m != NULL && s->state > STORE_CLIENT_CONNECTING) {
		xfer_msg_begin(m, XFER_REFUSE, sizeof(*m),
			s->state == STORE_CLIENT_AUTHENTICATING ? s->handshake.sent
								: s->messages_sent);
		m->reason = reason;
		(void)xfer_qp_send(&s->link, sizeof(*m));
	}
	go_down(s, xfer_reason_name(reason));
}

/*
 * Handle a refusal that the next attempt cannot change. Batches that the store may have stay in
 * doubt in the journal.
 */
static void
forbidden(struct store_client *s, enum xfer_reason reason)
{
	if (reason == XFER_REASON_ENDED && !s->forbidden)
		CLIENT_LOG(ERR, s,
			"run %s has ended at this store, which accepts no changes to it. Batches "
			"that were also sent to another store may be stored twice: run "
			"braggline-store reconcile on the directories of both stores",
			s->run.name);
	else if (reason == XFER_REASON_DIFFERS && !s->forbidden)
		CLIENT_LOG(ERR, s,
			"it has a batch of run %s with the number of one that this receiver has, "
			"and other bytes (its log names the batch). Neither is given up: the "
			"batches of this receiver stay in the journal, or go to another store. "
			"Someone may have used this receiver's key: see the audit log of the "
			"store, and braggline-store verify",
			s->run.name);
	else if (reason == XFER_REASON_NAME && !s->forbidden)
		CLIENT_LOG(ERR, s,
			"it has run %016" PRIx64 ", incarnation %016" PRIx64 " of this receiver "
			"under another name than %s; see its log",
			s->run.run, s->run.incarnation, s->run.name);
	else if (reason == XFER_REASON_RIGHTS && !s->forbidden)
		CLIENT_LOG(ERR, s,
			"identity %s lacks the rights for receiver %" PRIu64 ", run %s; change "
			"its section in the store's keyring",
			s->config.identity, s->config.receiver_id, s->run.name);
	s->forbidden = true;
	s->backoff.retry_at = xfer_qp_clock() + XFER_FORBIDDEN_MS;
}

static void on_message(void *arg, const void *message, uint32_t size);

static void
on_forged(void *arg)
{
	struct store_client *s = arg;

	if (s->state != STORE_CLIENT_DOWN && s->state != STORE_CLIENT_ENDED)
		refuse(s, XFER_REASON_MAC);
}

/* WRITE requests of a descriptor and its body have completed. */
static void
on_done(void *arg, uint64_t writes)
{
	struct store_client *s = arg;

	s->writes -= RTE_MIN(s->writes, writes);
}

static const struct xfer_qp_ops link_ops = {
	.message = on_message, .forged = on_forged, .done = on_done};

/* Have the key read again for the next connection. @return false: that has not ended yet */
static bool
has_key(struct store_client *s, uint64_t now)
{
	struct key_file *file = s->config.key_file;

	if (file == NULL)
		return true;
	if (s->reading == 0)
		s->reading = key_file_ask(file);
	if (!key_file_is_ready(file, s->reading, now))
		return false;
	s->reading = 0;
	return true;
}

static void
begin_connection(struct store_client *s)
{
	const struct xfer_qp_config link = {
		.dev = s->config.dev,
		.pd = s->config.pd,
		.poll_group = s->config.poll_group,
		.writes = most_writes(&s->config),
		.extra = WINDOW * STAGE,
		.sge = s->config.max_sge,
		.ops = &link_ops,
		.arg = s,
	};
	struct xfer_offer offer = {
		.role = s->config.role,
		.identity = s->config.identity,
		.receiver_id = s->config.receiver_id,
		.run = s->run.run,
		.incarnation = s->run.incarnation,
		.name = s->run.name,
	};
	struct rdma_conn_attr attr = {
		.private_data = &s->handshake.receiver,
		.private_len = sizeof(s->handshake.receiver),
		.context = s,
		.timeout_ms = CONNECT_MS,
	};
	const struct sockaddr *to = (const struct sockaddr *)&s->config.stores->at[s->config.at].to;
	const uint64_t deadline = xfer_qp_clock() + XFER_AUTH_MS;
	unsigned int i;
	int ret;

	for (i = 0; i < XFER_TABLES; i++) {
		offer.table[i].schema = s->run.schema[i];
		offer.table[i].schema_bytes = s->run.schema_bytes[i];
		offer.table[i].body_max = s->run.body_max[i];
	}
	ret = xfer_qp_open(&s->link, &link);
	if (ret < 0) {
		CLIENT_LOG(ERR, s, "cannot create a queue pair: %s", rte_strerror(-ret));
		go_down(s, "no queue pair");
		return;
	}
	s->link_is_open = true;
	if (xfer_auth_call(&s->handshake, s->config.key, &offer, deadline) != XFER_REASON_NONE) {
		CLIENT_LOG(ERR, s, "handshake failed: %s", xfer_reason_name(s->handshake.reason));
		go_down(s, xfer_reason_name(s->handshake.reason));
		return;
	}
	s->conn = rdma_conn_connect(s->link.qp, to, &attr);
	if (s->conn == NULL) {
		CLIENT_LOG(ERR, s, "cannot connect: %s", rte_strerror(rte_errno));
		go_down(s, "cannot connect");
		return;
	}
	enter(s, STORE_CLIENT_CONNECTING);
}

static void
established(struct store_client *s, const struct rdma_event *event)
{
	struct xfer_endpoint receiver = {.qpn = s->link.qpn}, store = {.qpn = event->remote_qpn};
	struct rdma_dev_info info;

	if (s->state != STORE_CLIENT_CONNECTING)
		return;
	rdma_dev_info_get(s->config.dev, &info);
	xfer_qp_address(&info.addr, receiver.addr);
	xfer_qp_address(&s->config.stores->at[s->config.at].to, store.addr);
	enter(s, STORE_CLIENT_AUTHENTICATING);
	/* the CM pads the private data with zeros */
	if (xfer_auth_open(&s->handshake, event->private_data, event->private_len, &receiver,
		    &store) != XFER_REASON_NONE)
		refuse(s, s->handshake.reason);
	else if (xfer_qp_seal(&s->link, &s->handshake) < 0)
		refuse(s, XFER_REASON_FAILED);
}

static void
rejected(struct store_client *s, const struct rdma_event *event)
{
	struct xfer_reject reject = {0};

	s->stats.refused++;
	if (event->private_len >= sizeof(reject))
		memcpy(&reject, event->private_data, sizeof(reject));
	if (reject.magic == XFER_MAGIC && reject.reason < XFER_REASONS) {
		s->stats.reason = reject.reason;
		CLIENT_LOG(WARNING, s, "connection refused: %s", xfer_reason_name(reject.reason));
		go_down(s, xfer_reason_name(reject.reason));
	} else {
		CLIENT_LOG(INFO, s, "nothing listens at this address (%d)", event->status);
		go_down(s, "no store listens at this address and port");
	}
}

void
store_client_event(struct store_client *s, const struct rdma_event *event)
{
	if (event->conn != s->conn)
		return;
	switch (event->type) {
	case RDMA_EVENT_ESTABLISHED:
		established(s, event);
		break;
	case RDMA_EVENT_REJECTED:
		rejected(s, event);
		break;
	case RDMA_EVENT_UNREACHABLE:
		s->stats.unreachable++;
		CLIENT_LOG(INFO, s, "no answer");
		go_down(s, "no answer from this address");
		break;
	case RDMA_EVENT_DISCONNECTED:
	case RDMA_EVENT_QP_ERROR:
		/* process messages that arrived before */
		(void)xfer_qp_poll(&s->link);
		if (s->state == STORE_CLIENT_ENDED) {
			s->closing = true;
		} else if (s->conn != NULL) {
			/* a store that rejects the authentication closes without a message */
			s->stats.refused += s->state == STORE_CLIENT_AUTHENTICATING;
			CLIENT_LOG(WARNING, s, "connection lost while %s",
				store_client_state_name(s->state));
			go_down(s, "connection lost");
		}
		break;
	default:
		break;
	}
}

/* ---- messages of the store ---- */

static enum xfer_reason
take_grant(struct store_client *s, const struct xfer_grant *m)
{
	enum xfer_reason reason;
	unsigned int i;

	if (!s->inventory_complete)
		return XFER_REASON_ORDER;
	store_client_release_found(s);
	reason = store_client_take_slots(s, m);
	if (reason != XFER_REASON_NONE)
		return reason;
	for (i = 0; i < XFER_TABLES; i++) {
		s->stream[i].identity = (struct arrow_identity){
			s->config.receiver_id, s->run.run, s->run.incarnation, NULL};
		s->stream[i].session_id = m->session_id;
		s->stream[i].seal = &s->link.send;
		s->stream[i].body_max = s->run.body_max[i];
		s->stream[i].table = i;
	}
	s->heartbeat_ms = m->heartbeat_ms;
	s->silence_ms = m->silence_ms;
	s->backoff.delay = 0;
	s->down_since = 0;
	s->refusals = 0;
	/* unless the store has reported another state */
	if (!s->state_reported)
		s->stats.store_state = XFER_STATE_GOOD;
	if (s->stats.store_state == XFER_STATE_GOOD)
		s->bad_since = 0;
	else if (s->bad_since == 0)
		s->bad_since = s->last_received_at;
	s->progress_at = s->last_received_at;
	s->stuck = false;
	s->stats.connections++;
	enter(s, STORE_CLIENT_UP);
	LOG_AT(s->down_logged ? RTE_LOG_WARNING : RTE_LOG_INFO,
		"store %s: connected, %u slots, %" PRIu64 " batches found in the store\n",
		store_client_name(s), s->nb_slots, s->stats.found);
	s->down_logged = false;
	if (s->config.commit_ms > 0 && m->commit_ms > s->config.commit_ms && !s->slow)
		CLIENT_LOG(WARNING, s,
			"[files] sync_ms there is %u ms, the journal was sized for %u ms: it may "
			"be too small, raise [egress] journal_mib",
			m->commit_ms, s->config.commit_ms);
	s->slow = m->commit_ms > s->config.commit_ms;
	return store_client_fill_queues(s) < 0 ? XFER_REASON_FAILED : XFER_REASON_NONE;
}

static enum xfer_reason
take_session_message(struct store_client *s, const struct xfer_msg *m)
{
	const struct xfer_status *status = (const struct xfer_status *)m;
	const bool waiting = s->state == STORE_CLIENT_WAITING;
	const bool up = s->state == STORE_CLIENT_UP || s->state == STORE_CLIENT_ENDING;

	switch ((enum xfer_type)m->type) {
	case XFER_INVENTORY:
		return waiting ? store_client_take_inventory(s, (const struct xfer_intervals *)m)
			       : XFER_REASON_ORDER;
	case XFER_GRANT:
		return waiting ? take_grant(s, (const struct xfer_grant *)m) : XFER_REASON_ORDER;
	case XFER_RESULTS:
		return up ? store_client_take_results(s, (const struct xfer_results *)m)
			  : XFER_REASON_ORDER;
	case XFER_STATUS:
		/* the store reports its state later */
		if (status->state == XFER_STATE_RECOVERING)
			return waiting && !s->inventory_complete ? XFER_REASON_NONE
								 : XFER_REASON_ORDER;
		if (status->state != s->stats.store_state)
			CLIENT_LOG(WARNING, s, "state of the store: %s",
				xfer_state_name(status->state));
		s->stats.store_state = status->state;
		s->state_reported = true;
		if (status->state == XFER_STATE_GOOD)
			s->bad_since = 0;
		else if (s->bad_since == 0)
			s->bad_since = s->last_received_at;
		return XFER_REASON_NONE;
	case XFER_ENDED:
		if (s->state != STORE_CLIENT_ENDING)
			return XFER_REASON_ORDER;
		enter(s, STORE_CLIENT_ENDED);
		leave_store(s);
		(void)rdma_conn_disconnect(s->conn);
		s->closing = true;
		return XFER_REASON_NONE;
	case XFER_REFUSE:
		s->stats.reason = ((const struct xfer_refuse *)m)->reason;
		return s->stats.reason;
	default:
		return XFER_REASON_ORDER;
	}
}

static void
on_message(void *arg, const void *message, uint32_t size)
{
	struct store_client *s = arg;
	enum xfer_reason reason;

	s->last_received_at = s->link.listened;
	/* the connection was closed: ignore later messages */
	if (s->state == STORE_CLIENT_DOWN || s->state == STORE_CLIENT_ENDED)
		return;
	if (s->state <= STORE_CLIENT_AUTHENTICATING) {
		if (xfer_auth_receive(&s->handshake, message, size) != XFER_REASON_NONE) {
			s->stats.refused++;
			s->stats.reason = s->handshake.reason;
			refuse(s, s->handshake.reason);
			if (s->stats.reason == XFER_REASON_RIGHTS)
				forbidden(s, s->stats.reason);
		}
		return;
	}
	reason = xfer_msg_check(message, size, XFER_ROLE_STORE, s->messages_received++);
	if (reason == XFER_REASON_NONE)
		reason = take_session_message(s, message);
	if (reason != XFER_REASON_NONE)
		refuse(s, reason);
	if (reason == XFER_REASON_ENDED || reason == XFER_REASON_RIGHTS ||
		reason == XFER_REASON_DIFFERS || reason == XFER_REASON_NAME)
		forbidden(s, reason);
}

/* Log a connected store that returns no results for batches that it was sent. */
static void
store_client_watch_results(struct store_client *s, uint64_t now)
{
	if (store_client_is_idle(s) || s->stats.store_state != XFER_STATE_GOOD) {
		s->progress_at = now;
	} else if (now >= s->progress_at + XFER_STUCK_MS && !s->stuck) {
		s->stuck = true;
		s->stats.stuck++;
		CLIENT_LOG(WARNING, s,
			"no result for %" PRIu64 " ms: %u of %u slots wait for a result, %u "
			"WRITEs in progress, %u batches queued",
			now - s->progress_at, s->nb_slots - s->nb_free[0] - s->nb_free[1],
			s->nb_slots, s->writes, s->queue[0].nb + s->queue[1].nb);
	} else if (now < s->progress_at + XFER_STUCK_MS && s->stuck) {
		s->stuck = false;
		CLIENT_LOG(WARNING, s, "results arrive again");
	}
}

/* Log once that batches accumulate for a store that is not connected. */
static void
store_client_watch_connection(struct store_client *s, uint64_t now)
{
	/* the first attempt takes longer if the store recovers */
	const uint64_t time = s->stats.failure != NULL ? XFER_DOWN_MS : XFER_STUCK_MS;

	if (s->down_logged || s->down_since == 0 || now < s->down_since + time)
		return;
	/* refuse() has logged what to check: the store runs, at this address */
	if (s->stats.failure == xfer_reason_name(XFER_REASON_KEY))
		return;
	s->down_logged = true;
	CLIENT_LOG(WARNING, s,
		"no connection for %" PRIu64 " ms: %s; state %s, %" PRIu64 " attempts refused, "
		"%" PRIu64
		" not answered; retrying. Check [egress] stores, and that the store runs",
		now - s->down_since,
		s->stats.failure != NULL ? s->stats.failure : "the first attempt goes on",
		store_client_state_name(s->state), s->stats.refused, s->stats.unreachable);
}

/* ---- pending work ---- */

static void
send_status(struct store_client *s)
{
	struct xfer_status *m = xfer_qp_room(&s->link);

	if (m == NULL)
		return;
	xfer_msg_begin(m, XFER_STATUS, sizeof(*m), s->messages_sent++);
	(void)xfer_qp_send(&s->link, sizeof(*m));
	s->last_sent_at = xfer_qp_clock();
}

/*
 * Whether batches came to be in doubt during this connection: this store kept its copies, because
 * those in the journal are damaged, and then another store proved to have sound copies.
 */
static bool
store_client_has_doubts(const struct store_client *s)
{
	const unsigned int number = store_client_number(s);
	struct journal_stats stats;
	struct journal_batch b;
	uint32_t i;

	journal_stats_get(s->config.journal, &stats);
	if (stats.in_doubt == 0)
		return false;
	for (i = journal_next(s->config.journal, 0); i != UINT32_MAX;
		i = journal_next(s->config.journal, i + 1)) {
		if (journal_get(s->config.journal, i, &b) && b.run == s->config.run && !b.held &&
			b.owner != number && (b.given & 1u << number) != 0)
			return true;
	}
	return false;
}

static void
send_end(struct store_client *s)
{
	struct journal_run run;
	struct xfer_end *m;
	unsigned int i;

	/* a batch of another store, or an unassigned one, may be assigned to this store */
	if (!journal_run_get(s->config.journal, s->config.run, &run) || run.held > 0)
		return;
	/* after END it accepts no changes */
	if (store_client_has_doubts(s)) {
		CLIENT_LOG(WARNING, s,
			"another store has sound copies of batches that this store may have: "
			"connecting again to say so");
		refuse(s, XFER_REASON_STOPPING);
		return;
	}
	m = xfer_qp_room(&s->link);
	if (m == NULL)
		return;
	xfer_msg_begin(m, XFER_END, sizeof(*m), s->messages_sent++);
	for (i = 0; i < XFER_TABLES; i++)
		m->batches[i] = run.batches[i];
	(void)xfer_qp_send(&s->link, sizeof(*m));
	enter(s, STORE_CLIENT_ENDING);
	FAIL_POINT("recv.end");
}

static bool
work_up(struct store_client *s, uint64_t now)
{
	bool busy = false;

	if (now > s->last_received_at + s->silence_ms) {
		CLIENT_LOG(WARNING, s, "no message for %" PRIu64 " ms", now - s->last_received_at);
		refuse(s, XFER_REASON_SILENT);
		return true;
	}
	if (now >= s->last_sent_at + s->heartbeat_ms)
		send_status(s);
	store_client_watch_results(s, now);
	if (s->state != STORE_CLIENT_UP)
		return false;
	store_client_resend_corrupted(s, now);
	/* `frames` first: its batches are few and small */
	while (s->stats.store_state == XFER_STATE_GOOD &&
		(store_client_send_batch(s, 0) || store_client_send_batch(s, 1)))
		busy = true;
	/* the connection may have been closed */
	if (!s->finish || s->state != STORE_CLIENT_UP)
		return busy;
	store_client_drop_reassigned(s);
	if (store_client_is_idle(s))
		send_end(s);
	return busy;
}

/* Check the identity of the store. @return true if it can be used */
static bool
check_identity(struct store_client *s)
{
	const uint64_t identity = s->handshake.answer.node;

	s->proved = store_set_prove(s->config.stores, s->config.at, identity) == 0;
	if (!s->proved) {
		refuse(s, XFER_REASON_STORE);
		return false;
	}
	s->stats.identity = identity;
	return true;
}

static bool
work_authenticating(struct store_client *s, uint64_t now)
{
	void *room;
	size_t size;

	if (xfer_auth_late(&s->handshake, now)) {
		refuse(s, XFER_REASON_LATE);
		return true;
	}
	while ((room = xfer_qp_room(&s->link)) != NULL) {
		size = xfer_auth_send(&s->handshake, room);
		if (size == 0)
			break;
		(void)xfer_qp_send(&s->link, size);
	}
	if (s->handshake.state != XFER_AUTH_DONE)
		return false;
	s->messages_sent = s->handshake.sent;
	s->messages_received = s->handshake.received;
	/* before sending anything that is meant for one store only */
	if (!check_identity(s))
		return true;
	s->lists_sent = 0;
	s->list_at = 0;
	s->all_lists_sent = false;
	s->inventory_complete = false;
	s->inventory_table = 0;
	s->inventory_next = 0;
	s->waiting_since = 0;
	s->recovering_since = now;
	s->last_sent_at = now;
	s->state_reported = false;
	if (store_client_collect(s) < 0) {
		refuse(s, XFER_REASON_FAILED);
		return true;
	}
	/*
	 * From here on no batch may be reassigned from this store, because REASSIGNED is being
	 * sent.
	 */
	enter(s, STORE_CLIENT_WAITING);
	return true;
}

bool
store_client_poll(struct store_client *s)
{
	const uint64_t now = xfer_qp_clock();
	uint64_t away;
	bool busy = false;

	store_client_watch_connection(s, now);
	if (s->closing && !close_link(s))
		return true;
	if (s->link_is_open) {
		away = xfer_qp_absence(&s->link, now);
		s->last_received_at += away;
		s->progress_at += away;
		if (s->waiting_since != 0)
			s->waiting_since += away;
		busy = xfer_qp_poll(&s->link) > 0;
		if (s->link_is_open && s->link.broken && !s->closing &&
			s->state != STORE_CLIENT_ENDED) {
			CLIENT_LOG(
				INFO, s, "connection broken: %s", rdma_wc_status_name(s->link.why));
			go_down(s, "connection lost");
			return true;
		}
	}
	switch (s->state) {
	case STORE_CLIENT_DOWN:
		if (!s->closing && now >= s->backoff.retry_at && has_key(s, now))
			begin_connection(s);
		break;
	case STORE_CLIENT_AUTHENTICATING:
		return work_authenticating(s, now) || busy;
	case STORE_CLIENT_WAITING:
		while (!s->all_lists_sent && xfer_qp_room(&s->link) != NULL)
			send_list(s);
		if (s->all_lists_sent && now >= s->last_sent_at + WAITING_HEARTBEAT_MS)
			send_status(s);
		/*
		 * The store recovers first, which takes as long as a sync or an outage. Once it has
		 * begun with INVENTORY, the exchange is finite.
		 */
		if (now > s->last_received_at + WAITING_MS ||
			(s->waiting_since != 0 && now > s->waiting_since + WAITING_MS))
			refuse(s, XFER_REASON_LATE);
		break;
	case STORE_CLIENT_UP:
	case STORE_CLIENT_ENDING:
		return work_up(s, now) || busy;
	default:
		break;
	}
	return busy;
}

/* ---- other functions ---- */

int
store_client_open(struct store_client **sender, const struct store_client_config *config)
{
	struct store_client *s;

	if (config->max_sge < 2 || config->max_sge > RDMA_SGE_MAX)
		return -EINVAL;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return -ENOMEM;
	s->config = *config;
	s->down_since = xfer_qp_clock();
	if (!journal_run_get(config->journal, config->run, &s->run)) {
		free(s);
		return -EINVAL;
	}
	*sender = s;
	return 0;
}

void
store_client_finish(struct store_client *s)
{
	s->finish = true;
}

bool
store_client_again(struct store_client *s)
{
	if (s->state != STORE_CLIENT_ENDED)
		return false;
	s->down_since = s->backoff.retry_at = xfer_qp_clock();
	s->stats.failure = NULL;
	s->backoff.delay = 0;
	s->closing = s->link_is_open;
	forget_connection(s);
	enter(s, STORE_CLIENT_DOWN);
	return true;
}

bool
store_client_is_down(const struct store_client *s)
{
	return s->state <= STORE_CLIENT_AUTHENTICATING;
}

bool
store_client_takes(const struct store_client *s)
{
	return s->state == STORE_CLIENT_UP && s->stats.store_state == XFER_STATE_GOOD;
}

uint64_t
store_client_idle_since(const struct store_client *s)
{
	/* the store allocates memory and reads files, which takes some time */
	if (s->state == STORE_CLIENT_WAITING)
		return s->recovering_since;
	/* both continue without a connection */
	if (s->bad_since != 0)
		return s->bad_since;
	return s->corrupted_since != 0 ? s->corrupted_since : s->down_since;
}

void
store_client_give_up(struct store_client *s)
{
	if (s->state <= STORE_CLIENT_CONNECTING || s->state >= STORE_CLIENT_ENDED)
		return;
	refuse(s, XFER_REASON_STOPPING);
	/* the store answers; retry after a delay */
	s->backoff.retry_at = xfer_qp_clock() + XFER_BACK_OFF_MAX_MS;
}

void
store_client_stats_get(const struct store_client *s, struct store_client_stats *stats)
{
	*stats = s->stats;
	stats->state = s->state;
	stats->slots = s->nb_slots;
	stats->credits = s->nb_free[0] + s->nb_free[1];
	stats->waiting = s->queue[0].nb + s->queue[1].nb;
}

int
store_client_close(struct store_client *s)
{
	unsigned int i;

	leave_store(s);
	/* if polled again, it only closes */
	s->state = STORE_CLIENT_ENDED;
	if (s->link_is_open && !s->closing) {
		xfer_qp_break(&s->link);
		s->closing = true;
	}
	if (s->link_is_open && !close_link(s))
		return -EBUSY;
	forget_connection(s);
	for (i = 0; i < XFER_TABLES; i++)
		free(s->queue[i].at);
	free(s);
	return 0;
}
