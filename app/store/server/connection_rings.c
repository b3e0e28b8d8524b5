/* SPDX-License-Identifier: BSD-3-Clause */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "arrow/tables.h"
#include "fail_point.h"
#include "io/body_memory.h"
#include "xfer/msg.h"
#include "server/connection_rings.h"

#define WRONG_MS 1000 /* minimum interval of log messages about wrong bodies */

/* Whether the queue of a file's writer has room for a body: the lcore never waits for the disk. */
static bool
fits_file(struct store_connection *c, unsigned int table)
{
	const uint32_t slice = c->shared->runs.files.slices.slice;
	const uint64_t bytes = c->handshake.request.table[table].body_max + XFER_BLOCK;

	if (bytes <= ARROW_SLICE_PUT_MAX(slice > 0 ? slice : ARROW_SLICE_SIZE))
		return true;
	CONN_LOG(ERR, c,
		"bodies of %" PRIu64 " bytes (%s) need [files] slice_kib = %" PRIu64 " or more",
		bytes - XFER_BLOCK, arrow_table_name(table),
		(bytes / ARROW_SLICE_PUT_MAX(1) + XFER_BLOCK) / XFER_BLOCK * XFER_BLOCK >> 10);
	return false;
}

bool
store_connection_plan_rings(struct store_connection *c)
{
	const struct xfer_table *t = c->handshake.request.table;
	uint64_t bytes = c->shared->memory, nb;
	unsigned int i;

	c->nb_slots = 0;
	for (i = 0; i < XFER_TABLES; i++) {
		if (!fits_file(c, i))
			return false;
		c->body_place[i] = t[i].body_max;
		/* an eighth for frames, which are small; the rest is for images */
		nb = (i == 0 ? bytes / 8 : bytes) / c->body_place[i];
		if (nb > STORE_SLOTS / (i == 0 ? 4 : 2))
			nb = STORE_SLOTS / (i == 0 ? 4 : 2);
		if (nb < 2) {
			CONN_LOG(ERR, c,
				"bodies of %" PRIu64 " bytes (%s) need more than the %" PRIu64 " "
				"MiB of [store] memory_mib",
				c->body_place[i], arrow_table_name(i), c->shared->memory >> 20);
			return false;
		}
		c->nb_table[i] = nb;
		c->nb_slots += nb;
		bytes -= nb * c->body_place[i];
	}
	c->bodies_size = c->shared->memory - bytes;
	return true;
}

static uint8_t *
body_at(const struct store_connection *c, uint32_t entry)
{
	const uint64_t frames = c->nb_table[0] * c->body_place[0];

	return entry < c->nb_table[0]
		? c->bodies + entry * c->body_place[0]
		: c->bodies + frames + (entry - c->nb_table[0]) * c->body_place[1];
}

/*
 * Register the descriptors, and the bodies of each table in slices of whole slots. Once for each
 * connection, and directly: a pool belongs to one protection domain, and each connection has its
 * own, so that no receiver can write to the memory of another one.
 */
static bool
register_rings(struct store_connection *c)
{
	struct rdma_mr_attr attr = {
		.addr = c->entries,
		.length = (uint64_t)c->nb_slots * XFER_DESC_BYTES,
		.access = RDMA_ACCESS_LOCAL_WRITE | RDMA_ACCESS_REMOTE_WRITE,
		.gpu = -1,
	};
	uint32_t regions = 1;
	unsigned int i;
	int ret;

	c->entries_mr = rdma_mr_reg(c->pd, &attr);
	if (c->entries_mr == NULL)
		return false;
	attr.addr = c->bodies;
	attr.gpu = store_bodies_rdma_gpu(&c->shared->bodies);
	for (i = 0; i < XFER_TABLES; i++) {
		attr.length = c->nb_table[i] * c->body_place[i];
		ret = xfer_mr_open(
			&c->bodies_mr[i], c->pd, &attr, c->shared->region, c->body_place[i]);
		if (ret < 0) {
			CONN_LOG(ERR, c, "cannot register %" PRIu64 " bytes of bodies (%s): %s",
				attr.length, arrow_table_name(i), strerror(-ret));
			return false;
		}
		regions += c->bodies_mr[i].nb;
		attr.addr = (uint8_t *)attr.addr + attr.length;
	}
	if (regions <= XFER_REGIONS_MAX)
		return true;
	CONN_LOG(ERR, c,
		"%u memory regions of at most %" PRIu64 " bytes are required, a grant "
		"has room for %d",
		regions, c->shared->region, XFER_REGIONS_MAX);
	return false;
}

enum xfer_reason
store_connection_open_rings(struct store_connection *c)
{
	const uint64_t entries = (uint64_t)c->nb_slots * XFER_DESC_BYTES;
	void *memory;
	uint32_t i;

	c->memory_size = 2 * entries;
	memory = mmap(NULL, c->memory_size, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory == MAP_FAILED)
		return XFER_REASON_FAILED;
	c->memory = memory;
	c->entries = memory;
	c->copies = c->memory + entries;
	c->checked = calloc(c->nb_slots, sizeof(*c->checked));
	if (c->checked == NULL)
		return XFER_REASON_FAILED;
	if (!register_rings(c) || xfer_random(&c->session_id, sizeof(c->session_id)) < 0)
		return XFER_REASON_FAILED;
	for (i = 0; i < c->nb_slots; i++)
		c->slot[i] = (struct store_slot){false, i >= c->nb_table[0]};
	for (i = 0; i < XFER_TABLES; i++) {
		const struct arrow_identity identity = {
			c->run->receiver_id, c->run->run, c->run->incarnation, arrow_table_name(i)};

		if (xfer_stream_init(&c->stream[i], i, &c->run->reader[i].schema, &identity,
			    c->session_id, &c->link.receive, c->body_place[i]) < 0)
			return XFER_REASON_SCHEMA;
	}
	return XFER_REASON_NONE;
}

bool
store_connection_grant(struct store_connection *c)
{
	struct xfer_grant *m = xfer_qp_room(&c->link);
	const struct xfer_mr *bodies;
	uint32_t first = 0, nb, slice;
	unsigned int i;

	if (m == NULL)
		return false;
	nb = 1 + c->bodies_mr[0].nb + c->bodies_mr[1].nb;
	xfer_msg_begin(m, XFER_GRANT, sizeof(*m) + nb * sizeof(m->region[0]), c->sent++);
	m->session_id = c->session_id;
	m->heartbeat_ms = c->shared->heartbeat_ms;
	m->silence_ms = c->shared->silence_ms;
	m->commit_ms = c->shared->commit_ms;
	m->region[m->nb++] = (struct xfer_region){(uintptr_t)c->entries, XFER_DESC_BYTES,
		rdma_mr_rkey(c->entries_mr), 0, c->nb_slots, XFER_REGION_METADATA, 0, 0};
	for (i = 0; i < XFER_TABLES; i++) {
		bodies = &c->bodies_mr[i];
		for (slice = 0; slice < bodies->nb; slice++) {
			nb = xfer_mr_slice_bytes(bodies, slice) / c->body_place[i];
			m->region[m->nb++] = (struct xfer_region){
				(uintptr_t)bodies->addr + slice * bodies->slice, c->body_place[i],
				rdma_mr_rkey(bodies->mr[slice]), first, nb, XFER_REGION_BODY, i, 0};
			first += nb;
		}
	}
	return xfer_qp_send(&c->link, m->head.length) == 0;
}

/* Whether to verify the CRC of a body. If the receiver checked its copy, the last one was wrong. */
static bool
is_to_check(struct store_connection *c, const struct xfer_batch *b)
{
	switch (c->shared->check.mode) {
	case STORE_CHECK_ALL:
		return true;
	case STORE_CHECK_SAMPLED:
		return c->unchecked++ % STORE_CHECK_SAMPLE == 0 ||
			(b->flags & XFER_COPY_CHECKED) != 0;
	default:
		return false;
	}
}

/* Batches are written in order of arrival, since the sequence numbers of a file must ascend. */
static void
check(struct store_connection *c, uint8_t table, const struct stream_batch *b)
{
	const bool checked = is_to_check(c, &b->xfer);
	struct store_checked *k;

	if (!checked && c->nb_checked == 0) {
		stream_writer_append(c->run->writer[table], b);
		return;
	}
	/* the array has an element for each slot */
	k = &c->checked[(c->checked_head + c->nb_checked++) % c->nb_slots];
	k->batch = *b;
	k->checked = checked;
	k->job = (struct store_check_job){
		.body = b->body, .bytes = b->xfer.body_bytes, .done = !checked};
	if (checked)
		store_check_begin(&c->shared->check, &k->job);
}

static const char *
table_name(const struct store_connection *c, const struct store_checked *k)
{
	return arrow_table_name(c->slot[(uint32_t)k->batch.tag].table);
}

/* Limit the messages: a faulty path may damage many bodies. @param said  time of the last one */
static bool
may_log(uint64_t *said, uint64_t now)
{
	if (*said != 0 && now < *said + WRONG_MS)
		return false;
	*said = now;
	return true;
}

/*
 * Handle a body that differs from the one in the receiver's memory. It is never stored, even if it
 * arrives repeatedly: the receiver would release a good copy.
 * @return false: it does not differ
 */
static bool
is_wrong(struct store_connection *c, const struct store_checked *k, uint64_t now)
{
	const struct xfer_batch *b = &k->batch.xfer;
	const bool copy_checked = (b->flags & XFER_COPY_CHECKED) != 0;
	struct store_counters *n = &c->shared->counters;

	if (!k->checked || k->job.crc == xfer_batch_sent_crc(b))
		return false;
	n->body_crc_errors++;
	/* the reason is known only for a checked copy, so others must not suppress its message */
	if (may_log(copy_checked ? &c->corrupted_logged : &c->wrong_logged, now))
		CONN_LOG(ERR, c,
			"batch %" PRIu64 " of %s of receiver %" PRIu64 " (frames %" PRIu64
			" to %" PRIu64 ") arrived with CRC-32C %08x, expected %08x%s; requesting "
			"it again; %" PRIu64 " such bodies of all connections so far",
			b->sequence, table_name(c, k), c->run->receiver_id, b->first, b->last,
			k->job.crc, xfer_batch_sent_crc(b),
			copy_checked ? ": the receiver has checked its copy, so the network path "
				       "or the memory of this store corrupts it"
				     : "",
			n->body_crc_errors);
	return true;
}

/* Count a batch that is damaged in the receiver's memory, so that no better copy exists. */
static void
note_damaged(struct store_connection *c, const struct store_checked *k)
{
	const struct xfer_batch *b = &k->batch.xfer;

	if (xfer_batch_sent_crc(b) == b->body_crc32c)
		return;
	c->shared->counters.stored_damaged++;
	CONN_LOG(ERR, c,
		"batch %" PRIu64 " of %s of receiver %" PRIu64 " (frames %" PRIu64 " to %" PRIu64
		") is damaged in the memory of the receiver, which has checked it: CRC-32C %08x, "
		"expected %08x; it is stored unless this store has a sound copy, and "
		"braggline-store verify reports a stored one",
		b->sequence, table_name(c, k), c->run->receiver_id, b->first, b->last,
		b->copy_crc32c, b->body_crc32c);
}

/*
 * Handle a body that could not be read, so that its CRC is unknown. For the receiver it is one with
 * a wrong CRC: it sends a batch again at most once a second, and moves it to another store.
 */
static bool
is_unreadable(struct store_connection *c, const struct store_checked *k, uint64_t now)
{
	if (!k->checked || k->job.error == 0)
		return false;
	c->shared->counters.bodies_unreadable++;
	if (may_log(&c->wrong_logged, now))
		CONN_LOG(ERR, c,
			"batch %" PRIu64 " of %s: cannot read its body in the memory of this "
			"store: %s; requesting it again; %" PRIu64 " such bodies of all "
			"connections so far",
			k->batch.xfer.sequence, table_name(c, k), strerror(-k->job.error),
			c->shared->counters.bodies_unreadable);
	return true;
}

bool
store_connection_take_checked(struct store_connection *c, uint64_t now)
{
	const bool busy =
		c->nb_checked > 0 && store_check_is_done(&c->checked[c->checked_head].job);
	const struct store_checked *k;
	uint32_t entry;

	while (c->nb_checked > 0) {
		k = &c->checked[c->checked_head];
		if (!store_check_is_done(&k->job))
			break;
		entry = (uint32_t)k->batch.tag;
		c->checked_head = (c->checked_head + 1) % c->nb_slots;
		c->nb_checked--;
		if (is_unreadable(c, k, now) || is_wrong(c, k, now)) {
			store_connection_result(c, entry, k->batch.xfer.sequence, XFER_WRONG_CRC);
			continue;
		}
		note_damaged(c, k);
		stream_writer_append(c->run->writer[c->slot[entry].table], &k->batch);
	}
	return busy;
}

/* A descriptor was written: copy it, check it, and accept the batch. */
void
store_connection_written(void *arg, uint32_t index)
{
	struct store_connection *c = arg;
	struct store_counters *n = &c->shared->counters;
	enum xfer_desc_fault fault = XFER_DESC_SLOT;
	struct stream_batch b = {.tag = (uint64_t)c->index << 32 | index};
	const int16_t gpu = store_bodies_rdma_gpu(&c->shared->bodies);
	uint8_t table;
	int ret;

	c->heard = c->link.listened;
	if (c->state != STORE_UP || c->run->ended) {
		/* the receiver has no slots yet, or has sent END */
		store_connection_refuse(
			c, c->state == STORE_UP ? XFER_REASON_ENDED : XFER_REASON_ORDER);
		return;
	}
	if (index < c->nb_slots && !c->slot[index].taken) {
		table = c->slot[index].table;
		b.metadata = c->copies + (uint64_t)index * XFER_BLOCK;
		b.body = body_at(c, index);
		fault = xfer_desc_check(&c->stream[table], &c->entries[index], index, &b.xfer,
			c->copies + (uint64_t)index * XFER_BLOCK);
	}
	n->fault[fault]++;
	if (fault != XFER_DESC_GOOD) {
		CONN_LOG(WARNING, c, "descriptor %u refused: %s", index,
			xfer_desc_fault_name(fault));
		store_connection_refuse(c, XFER_REASON_ENTRY);
		return;
	}
	/* make the NIC's writes visible on the GPU before anything reads them */
	ret = body_memory_flush(gpu);
	if (ret != 0) {
		CONN_LOG(ERR, c, "descriptor %u: %s cannot order the writes to its memory: %s",
			index, body_memory_name(gpu), strerror(-ret));
		store_connection_refuse(c, XFER_REASON_FAILED);
		return;
	}
	n->bytes += b.xfer.body_bytes;
	if (c->counts != NULL)
		c->counts->bytes += b.xfer.body_bytes;
	c->slot[index].taken = true;
	c->pending++;
	FAIL_POINT("store.taken");
	check(c, table, &b);
}

void
store_connection_result(struct store_connection *c, uint32_t entry, uint64_t sequence,
	enum xfer_result_status status)
{
	struct store_counters *n = &c->shared->counters;

	c->pending--;
	switch (status) {
	case XFER_DURABLE:
		n->durable++;
		if (c->counts != NULL)
			c->counts->durable++;
		c->batches[c->slot[entry].table]++;
		store_connection_repaired(c, c->slot[entry].table, sequence);
		break;
	case XFER_DUPLICATE:
		n->duplicates++;
		break;
	default:
		n->returned++;
	}
	/*
	 * Results of a closed connection are dropped; the next connection gets an inventory. A slot
	 * is in use until its result is sent, so there is at most one result per slot.
	 */
	if (c->state == STORE_UP || c->state == STORE_ENDING)
		c->results[c->nb_results++] =
			(struct xfer_result){sequence, entry, c->slot[entry].table, status, 0};
}

/* @return false: something is still in use */
static bool
close_registrations(struct store_connection *c)
{
	if (c->entries_mr != NULL && rdma_mr_dereg(c->entries_mr) < 0)
		return false;
	c->entries_mr = NULL;
	return xfer_mr_close(&c->bodies_mr[0]) == 0 && xfer_mr_close(&c->bodies_mr[1]) == 0;
}

bool
store_connection_close_rings(struct store_connection *c)
{
	if (!close_registrations(c) || c->pending > 0)
		return false;
	if (c->bodies != NULL)
		store_bodies_give(&c->shared->bodies, c->bodies, c->bodies_size);
	c->bodies = NULL;
	if (c->memory != NULL)
		munmap(c->memory, c->memory_size);
	c->memory = NULL;
	free(c->checked);
	c->checked = NULL;
	return true;
}
