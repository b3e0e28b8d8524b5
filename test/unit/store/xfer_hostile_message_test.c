/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests a store against a hostile peer: messages that are invalid, out of order, or never end.
 * XFER_SEED repeats a run.
 */

#include "xfer_hostile_rig.h"

/*
 * Invalid messages, and messages that are not allowed in the state of the connection, are refused.
 */
static void
test_messages(void **state)
{
	static const struct {
		uint16_t type;
		uint32_t size;
		bool again; /* with the sequence number of the message before */
		enum xfer_reason reason;
	} wrong[] = {
		{0, 16, false, XFER_REASON_MALFORMED},
		{XFER_TYPES, 16, false, XFER_REASON_MALFORMED},
		{UINT16_MAX, 16, false, XFER_REASON_MALFORMED},
		{XFER_STATUS, 15, false, XFER_REASON_MALFORMED},
		{XFER_STATUS, 1, false, XFER_REASON_MALFORMED},
		{XFER_STATUS, sizeof(struct xfer_status), true, XFER_REASON_ORDER},
		{XFER_ANSWER, sizeof(struct xfer_answer), false, XFER_REASON_ORDER},
		{XFER_INVENTORY, sizeof(struct xfer_intervals), false, XFER_REASON_ORDER},
		{XFER_REASSIGNED, sizeof(struct xfer_list), false, XFER_REASON_ORDER},
		{XFER_HELD, sizeof(struct xfer_list), false, XFER_REASON_ORDER},
		{XFER_ENDED, sizeof(struct xfer_end), false, XFER_REASON_ORDER},
		{XFER_AUTH, sizeof(struct xfer_auth_request), false, XFER_REASON_ORDER},
	};
	union {
		struct xfer_msg head;
		struct xfer_auth_request request;
		uint8_t bytes[XFER_MSG_MAX];
	} m;
	uint64_t before;
	unsigned int i, up;
	struct peer *p;

	hostile_begin();
	for (i = 0; i < 2 * RTE_DIM(wrong); i++) {
		/* with a session, and before authentication */
		up = i % 2;
		p = peer_call(i % PEERS, NULL);
		p->mute = !up;
		UNTIL(up ? p->granted : p->established);
		memset(&m, 0, sizeof(m));
		if (wrong[i / 2].type == XFER_AUTH)
			m.request = p->handshake.request;
		m.head.type = wrong[i / 2].type;
		m.head.length = wrong[i / 2].size;
		m.head.number = p->sent - (up && wrong[i / 2].again);
		/*
		 * the first message cannot repeat a number, and an authentication request would be
		 * valid here
		 */
		if (!up && (wrong[i / 2].again || wrong[i / 2].type == XFER_AUTH))
			m.head.number++;
		before = hostile_counters()->refused[wrong[i / 2].reason];
		peer_say(p, &m, wrong[i / 2].size);
		hostile_is_refused(p, wrong[i / 2].reason);
		assert_int_equal(hostile_counters()->refused[wrong[i / 2].reason], before + 1);
	}
	hostile_end();
	hostile_beside_is_there_once();
}

/* List batches until the store refuses them, or more than it may accept. */
static void
list_for_ever(struct peer *p, enum xfer_type type)
{
	uint64_t next;

	for (next = 1; p->refused == XFER_REASON_NONE && next < 2ull * XFER_REASSIGNED_MAX;
		next += XFER_LIST_MAX) {
		peer_lists(p, type, XFER_MORE, 0, next, XFER_LIST_MAX);
		UNTIL(p->link.nb_free_sends > 0 || p->refused != XFER_REASON_NONE);
	}
}

/* From here on the peer is one that has no key, but sees and sends packets of the connection. */
static void
lose_key(struct peer *p)
{
	static const uint8_t other[XFER_MAC_BYTES] = {7};

	xfer_seal_close(&p->link.send);
	assert_int_equal(xfer_seal_open(&p->link.send, other), 0);
}

/* A message or descriptor without the right code ends the connection, and is not used. */
static void
test_inserted(void **state)
{
	const struct store_counters *n;
	const struct store_run *run;
	struct xfer_desc *entry;
	struct xfer_end end;
	struct peer *p;

	hostile_begin();
	n = hostile_counters();
	p = peer_call(0, NULL);
	UNTIL(p->granted);
	run = hostile_seen(p)->run;
	xfer_msg_begin(&end, XFER_END, sizeof(end), p->sent++);
	lose_key(p);
	peer_say(p, &end, sizeof(end));
	hostile_is_refused(p, XFER_REASON_MAC);
	assert_int_equal(n->refused[XFER_REASON_MAC], 1);
	assert_int_equal(n->ended, 0);
	assert_false(run->ended);
	/* the list of batches that the store truncates */
	p = peer_call(1, NULL);
	p->withholds = true;
	UNTIL(p->handshake.state == XFER_AUTH_DONE);
	lose_key(p);
	peer_lists(p, XFER_REASSIGNED, 0, 0, 0, 1);
	hostile_is_refused(p, XFER_REASON_MAC);
	/* a batch */
	p = peer_call(2, NULL);
	UNTIL(p->granted);
	lose_key(p);
	entry = peer_entry(p, 0, 0, 0);
	peer_write_body(p, 0, entry->descriptor.body_bytes);
	peer_write_entry(p, 0, 0, entry);
	hostile_is_refused(p, XFER_REASON_ENTRY);
	assert_int_equal(n->fault[XFER_DESC_MAC], 1);
	hostile_end();
	hostile_beside_is_there_once();
}

/* A peer with a valid key that never finishes its REASSIGNED or HELD messages is refused. */
static void
test_endless_messages(void **state)
{
	struct xfer_status status;
	struct peer *p;
	unsigned int i;

	hostile_begin();
	/* only heartbeats */
	p = peer_call(0, NULL);
	p->withholds = true;
	UNTIL(p->handshake.state == XFER_AUTH_DONE);
	for (i = 0; i < 6 && p->refused == XFER_REASON_NONE; i++) {
		xfer_msg_begin(&status, XFER_STATUS, sizeof(status), p->sent++);
		peer_say(p, &status, sizeof(status));
		hostile_passed_ms += ADMISSION_MS / 5;
		UNTIL(p->link.nb_free_sends == XFER_QP_SENDS);
	}
	hostile_is_refused(p, XFER_REASON_LATE);
	assert_int_equal(hostile_counters()->refused[XFER_REASON_LATE], 1);
	/* in descending order */
	p = peer_call(1, NULL);
	p->withholds = true;
	UNTIL(p->handshake.state == XFER_AUTH_DONE);
	for (i = 0; i < 2; i++)
		peer_lists(p, XFER_REASSIGNED, XFER_MORE, 0, 100 - i, 1);
	hostile_is_refused(p, XFER_REASON_MALFORMED);
	/* more batches than allowed */
	p = peer_call(2, NULL);
	p->withholds = true;
	UNTIL(p->handshake.state == XFER_AUTH_DONE);
	list_for_ever(p, XFER_REASSIGNED);
	hostile_is_refused(p, XFER_REASON_MALFORMED);
	assert_int_equal(hostile_counters()->refused[XFER_REASON_MALFORMED], 2);
	/* HELD before REASSIGNED, and more batches held than allowed */
	p = peer_call(3, NULL);
	p->withholds = true;
	UNTIL(p->handshake.state == XFER_AUTH_DONE);
	peer_holds(p, 0, 1);
	hostile_is_refused(p, XFER_REASON_ORDER);
	p = peer_call(4, NULL);
	p->withholds = true;
	UNTIL(p->handshake.state == XFER_AUTH_DONE);
	peer_lists(p, XFER_REASSIGNED, 0, 0, 0, 0);
	list_for_ever(p, XFER_HELD);
	hostile_is_refused(p, XFER_REASON_MALFORMED);
	hostile_end();
	hostile_beside_is_there_once();
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_messages, rig_begin_test),
		cmocka_unit_test_setup(test_inserted, rig_begin_test),
		cmocka_unit_test_setup(test_endless_messages, rig_begin_test),
	};

	return rig_main(tests);
}
