/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests a store against a hostile peer with a valid key: its entries, and its writes inside and
 * outside the memory granted. XFER_SEED repeats a run.
 */

#include <errno.h>

#include "xfer_hostile_rig.h"

#include "arrow/crc32c.h"
#include "arrow/reader.h"
#include "arrow/tables.h"

/* Entries with a valid CRC and a wrong identity, slot or sequence number are refused. */
static void
test_forged(void **state)
{
	static const enum xfer_desc_fault fault[] = {XFER_DESC_IDENTITY, XFER_DESC_IDENTITY,
		XFER_DESC_IDENTITY, XFER_DESC_IDENTITY, XFER_DESC_SLOT, XFER_DESC_SEQUENCE,
		XFER_DESC_METADATA};
	const struct store_counters *n;
	struct xfer_descriptor *d;
	struct xfer_desc *entry;
	unsigned int i;
	uint64_t before;
	struct peer *p;

	hostile_begin();
	n = hostile_counters();
	for (i = 0; i < RTE_DIM(fault); i++) {
		p = hostile_stand(i);
		entry = peer_entry(p, 0, 0, 0);
		d = &entry->descriptor;
		switch (i) {
		case 0:
			d->receiver_id = xfer_sample_identity(0).receiver_id;
			break;
		case 1:
			d->run++;
			break;
		case 2:
			d->incarnation++;
			break;
		case 3:
			/* a complete entry of the receiver */
			*entry = rig.sample.batch[0][0].entry;
			d->entry = 0;
			d->session_id = p->grant.session_id;
			break;
		case 4:
			d->session_id++;
			break;
		case 5:
			d->sequence = UINT64_MAX;
			break;
		default:
			/* the number in the metadata differs */
			d->sequence++;
		}
		xfer_sample_sign(&p->link.send, entry);
		before = n->fault[fault[i]];
		peer_write_body(p, 0, d->body_bytes);
		peer_write_entry(p, 0, 0, entry);
		hostile_is_refused(p, XFER_REASON_ENTRY);
		assert_int_equal(n->fault[fault[i]], before + 1);
		assert_int_equal(n->refused[XFER_REASON_ENTRY], i + 1);
	}
	hostile_end();
	hostile_beside_is_there_once();
}

/* Lengths larger than the memory are refused. */
static void
test_oversize(void **state)
{
	const struct store_counters *n;
	struct xfer_descriptor *d;
	struct xfer_desc *entry;
	struct xfer_status status;
	unsigned int i;
	struct peer *p;

	hostile_begin();
	n = hostile_counters();
	for (i = 0; i < 5; i++) {
		p = hostile_stand(i);
		entry = peer_entry(p, 0, 0, 0);
		d = &entry->descriptor;
		if (i == 0)
			d->body_bytes = peers.body_max[0] + XFER_BLOCK;
		else if (i == 1)
			d->body_bytes = UINT64_MAX - XFER_BLOCK + 1;
		else if (i == 2)
			d->metadata_bytes = sizeof(entry->metadata) + 1;
		else if (i == 3)
			d->metadata_bytes = UINT32_MAX;
		else
			d->rows = UINT64_MAX;
		xfer_sample_sign(&p->link.send, entry);
		peer_write_entry(p, 0, 0, entry);
		hostile_is_refused(p, XFER_REASON_ENTRY);
		assert_int_equal(n->fault[XFER_DESC_LENGTH], i + 1);
	}
	/* messages with a length too large, a length too small, and too many intervals */
	for (i = 0; i < 3; i++) {
		p = hostile_stand(8 + i);
		xfer_msg_begin(
			&status, i < 2 ? XFER_STATUS : XFER_REASSIGNED, sizeof(status), p->sent++);
		status.head.length += i == 0 ? 4096 : i == 1 ? -8 : 0;
		/* this field is at the place of REASSIGNED's number of intervals */
		status.reserved = i == 2 ? UINT32_MAX : 0;
		peer_say(p, &status, sizeof(status));
		hostile_is_refused(p, XFER_REASON_MALFORMED);
		assert_int_equal(n->refused[XFER_REASON_MALFORMED], i + 1);
	}
	hostile_end();
	hostile_beside_is_there_once();
}

/* Immediates that name no slot, or a slot in use, are refused. */
static void
test_places(void **state)
{
	const struct store_counters *n;
	const uint32_t imm[] = {UINT32_MAX, STORE_SLOTS, 1};
	struct xfer_desc *entry;
	unsigned int i;
	struct xfer_end m;
	struct peer *p;
	uint64_t good;

	hostile_begin();
	n = hostile_counters();
	for (i = 0; i < RTE_DIM(imm); i++) {
		p = hostile_stand(i);
		/* the last immediate names a slot without an entry */
		peer_write_entry(p, 0, imm[i], peer_entry(p, 0, 0, 0));
		hostile_is_refused(p, XFER_REASON_ENTRY);
		assert_int_equal(n->fault[XFER_DESC_SLOT], i < 2 ? i + 1 : 2);
		assert_int_equal(n->fault[XFER_DESC_GARBAGE], i < 2 ? 0 : 1);
	}
	/* a write before slots are granted or after END: a write without data needs no key */
	for (i = 4; i < 6; i++) {
		p = peer_call(i, NULL);
		p->mute = i == 4;
		UNTIL(i == 4 ? p->established : p->granted);
		xfer_msg_begin(&m, XFER_END, sizeof(m), p->sent++);
		if (i == 5)
			peer_say(p, &m, sizeof(m));
		peer_write_nothing(p, 0);
		hostile_is_refused(p, XFER_REASON_ORDER);
		assert_int_equal(n->refused[XFER_REASON_ORDER], i - 3);
	}
	/* a slot that is in use until its result was sent */
	p = hostile_stand(i);
	good = n->durable;
	entry = peer_entry(p, 0, 0, 0);
	peer_write_body(p, 0, entry->descriptor.body_bytes);
	peer_write_entry(p, 0, 0, entry);
	peer_write_entry(p, 0, 0, entry);
	hostile_is_refused(p, XFER_REASON_ENTRY);
	assert_int_equal(n->fault[XFER_DESC_SLOT], 3);
	/* the batch accepted before is still written */
	UNTIL(n->durable > good);
	hostile_end();
	hostile_beside_is_there_once();
}

/* The peer receives no results: the store accepts no slot again before its result was sent. */
static void
test_results_not_received(void **state)
{
	const struct store_counters *n;
	struct xfer_desc *entry;
	unsigned int i;
	struct peer *p;

	hostile_begin();
	n = hostile_counters();
	p = hostile_stand(0);
	entry = peer_entry(p, 0, 0, 0);
	peer_write_body(p, 0, entry->descriptor.body_bytes);
	peer_write_entry(p, 0, 0, entry);
	UNTIL(peer_alive(p) && p->durable == 1);
	p->deaf = true;
	for (i = 0; i < 2 * STORE_SLOTS && n->fault[XFER_DESC_SLOT] == 0; i++) {
		const uint64_t duplicates = n->duplicates;

		peer_write_entry(p, 0, 0, entry);
		UNTIL(n->duplicates > duplicates || n->fault[XFER_DESC_SLOT] > 0);
	}
	assert_int_equal(n->fault[XFER_DESC_SLOT], 1);
	assert_int_equal(n->refused[XFER_REASON_ENTRY], 1);
	assert_true(n->duplicates > 0 && n->duplicates < STORE_SLOTS);
	p->deaf = false;
	hostile_hang_up(p);
	hostile_end();
	hostile_beside_is_there_once();
}

/*
 * Writes with wrong addresses or keys, or to memory no longer granted, are refused by the device.
 */
static void
test_outside(void **state)
{
	const struct store_connection *theirs;
	const struct store_counters *n;
	struct xfer_region stale;
	struct xfer_slot to;
	struct xfer_desc before;
	uint64_t refused;
	unsigned int i;
	struct peer *p;

	hostile_begin();
	n = hostile_counters();
	for (i = 0; store_get_connection(rig.store[0], i)->state != STORE_UP; i++)
		;
	theirs = store_get_connection(rig.store[0], i);
	before = theirs->entries[theirs->nb_slots - 1];
	p = hostile_stand(0);
	stale = p->region[0];
	hostile_hang_up(p);
	UNTIL(hostile_connections() == 0);
	for (i = 0; i < 6; i++) {
		p = hostile_stand(1 + i);
		to = p->slot[0];
		switch (i) {
		case 0: /* beyond the end of the entries, where the store keeps its copies */
			to.metadata += p->nb_slots * XFER_DESC_BYTES - 8;
			break;
		case 1:
			to.metadata -= XFER_DESC_BYTES;
			break;
		case 2: /* an address whose end wraps around */
			to.metadata = UINT64_MAX - 100;
			break;
		case 3:
			to.metadata_rkey ^= 1;
			break;
		case 4:
			to.metadata = stale.addr;
			to.metadata_rkey = stale.rkey;
			break;
		default:
			/* memory granted to the receiver, with its key, which a peer could see */
			to.metadata = (uintptr_t)&theirs->entries[theirs->nb_slots - 1];
			to.metadata_rkey = rdma_mr_rkey(theirs->entries_mr);
		}
		refused = hostile_device_counter(STORE_STATION, "rx_access_refused");
		p->slot[0] = to;
		peer_write_entry(p, 0, 0, peer_entry(p, 0, 0, 0));
		UNTIL(p->link.broken);
		assert_int_equal(p->link.why, RDMA_WC_REM_ACCESS_ERR);
		assert_int_equal(
			hostile_device_counter(STORE_STATION, "rx_access_refused"), refused + 1);
		hostile_hang_up(p);
		UNTIL(hostile_connections() == 0);
		assert_int_equal(n->broken, 2 + i);
	}
	assert_memory_equal(&before, &theirs->entries[theirs->nb_slots - 1], sizeof(before));
	hostile_end();
	hostile_beside_is_there_once();
}

/* Open the only complete file of a table that the hostile peer has. */
static void
open_hostile_file(struct arrow_reader *r, unsigned int incarnation, unsigned int table)
{
	char path[PATH_MAX];
	const char *problem;

	snprintf(path, sizeof(path), "%s/store0/hostile-%016x-%016x/hostile_%016x_000001_%s.arrow",
		rig.root, PEER_RECEIVER_ID, PEER_RUN, incarnation, arrow_table_name(table));
	assert_int_equal(arrow_reader_open(r, path, &problem), 0);
	assert_true(r->complete);
}

/*
 * A slot is overwritten while it is in use: a body that no longer matches its CRC is given back,
 * and a later entry has no effect.
 */
static void
test_rewritten(void **state)
{
	struct arrow_reader r;
	struct xfer_desc *entry;
	struct xfer_end m;
	struct peer *p;

	hostile_begin();
	p = hostile_stand(0);
	/* overwrite the body right after the immediate, before the store checks it */
	entry = peer_entry(p, 0, 0, 0);
	peer_write_body(p, 0, entry->descriptor.body_bytes);
	peer_write_entry(p, 0, 0, entry);
	memset(p->link.extra + PEER_ROOM, 0x5a, XFER_BLOCK);
	peer_write_at(
		p, p->link.extra + PEER_ROOM, XFER_BLOCK, p->slot[0].body, p->slot[0].body_rkey);
	UNTIL(peer_alive(p) && hostile_counters()->returned == 1);
	assert_int_equal(hostile_counters()->body_crc_errors, 1);
	assert_int_equal(p->durable, 0);
	entry = peer_entry(p, 0, 0, 0);
	peer_write_body(p, 0, entry->descriptor.body_bytes);
	peer_write_entry(p, 0, 0, entry);
	UNTIL(peer_alive(p) && p->durable == 1);
	/* overwrite the entry with another valid one after the store has checked it */
	entry = peer_entry(p, 0, 1, 1);
	peer_write_body(p, 1, entry->descriptor.body_bytes);
	peer_write_entry(p, 1, 1, entry);
	UNTIL(peer_alive(p) && (hostile_seen(p)->slot[1].taken || p->durable == 2));
	entry = peer_entry(p, 0, 2, 1);
	peer_write_at(p, entry, XFER_DESC_BYTES, p->slot[1].metadata, p->slot[1].metadata_rkey);
	UNTIL(peer_alive(p) && p->durable == 2);
	assert_memory_equal(&hostile_seen(p)->entries[1], entry, XFER_DESC_BYTES);
	xfer_msg_begin(&m, XFER_END, sizeof(m), p->sent++);
	peer_say(p, &m, sizeof(m));
	UNTIL(peer_alive(p) && p->ended);
	open_hostile_file(&r, 0, 0);
	assert_int_equal(r.nb_batches, 2);
	assert_int_equal(arrow_reader_crc(&r, 0), 1);
	assert_int_equal(arrow_reader_crc(&r, 1), 1);
	assert_int_equal(
		strtoull(r.batches[1].sequence, NULL, 16), rig.sample.batch[0][1].batch.sequence);
	arrow_reader_close(&r);
	hostile_end();
	hostile_beside_is_there_once();
}

/*
 * A body never has the CRC that its descriptor names: it is refused each time. It is stored
 * once the descriptor says that it is damaged at the peer in just this way.
 */
static void
test_crc_never_matches(void **state)
{
	const struct store_counters *n;
	struct arrow_reader r;
	struct xfer_desc *entry;
	struct xfer_end m;
	struct peer *p;
	unsigned int i;
	uint32_t crc;

	hostile_begin();
	n = hostile_counters();
	p = hostile_stand(0);
	for (i = 0; i < 8; i++) {
		entry = peer_entry(p, 0, 0, 0);
		crc = entry->descriptor.body_crc32c;
		p->link.extra[0] ^= 1;
		if (i >= 4) {
			/* checked, and sound there; then damaged in another way */
			entry->descriptor.flags = XFER_COPY_CHECKED;
			entry->descriptor.copy_crc32c = i < 6 ? crc : crc + 1;
			xfer_sample_sign(&p->link.send, entry);
		}
		peer_write_body(p, 0, entry->descriptor.body_bytes);
		peer_write_entry(p, 0, 0, entry);
		UNTIL(peer_alive(p) && n->body_crc_errors == i + 1);
		UNTIL(peer_alive(p) && !hostile_seen(p)->slot[0].taken);
		assert_int_equal(n->returned, i + 1);
	}
	assert_int_equal(p->durable, 0);
	assert_int_equal(n->stored_damaged, 0);
	entry = peer_entry(p, 0, 0, 0);
	p->link.extra[0] ^= 1;
	entry->descriptor.flags = XFER_COPY_CHECKED;
	entry->descriptor.copy_crc32c =
		arrow_crc32c(0, p->link.extra, entry->descriptor.body_bytes);
	xfer_sample_sign(&p->link.send, entry);
	peer_write_body(p, 0, entry->descriptor.body_bytes);
	peer_write_entry(p, 0, 0, entry);
	UNTIL(peer_alive(p) && p->durable == 1);
	assert_int_equal(n->stored_damaged, 1);
	xfer_msg_begin(&m, XFER_END, sizeof(m), p->sent++);
	peer_say(p, &m, sizeof(m));
	UNTIL(peer_alive(p) && p->ended);
	open_hostile_file(&r, 0, 0);
	assert_int_equal(r.nb_batches, 1);
	assert_int_equal(arrow_reader_crc(&r, 0), -EBADMSG);
	arrow_reader_close(&r);
	hostile_end();
	hostile_beside_is_there_once();
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_forged, rig_begin_test),
		cmocka_unit_test_setup(test_oversize, rig_begin_test),
		cmocka_unit_test_setup(test_places, rig_begin_test),
		cmocka_unit_test_setup(test_results_not_received, rig_begin_test),
		cmocka_unit_test_setup(test_outside, rig_begin_test),
		cmocka_unit_test_setup(test_rewritten, rig_begin_test),
		cmocka_unit_test_setup(test_crc_never_matches, rig_begin_test),
	};

	return rig_main(tests);
}
