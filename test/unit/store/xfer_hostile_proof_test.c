/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests a store against hostile peers that are not authenticated. XFER_SEED repeats a run. */

#include "xfer_hostile_rig.h"

/* Messages recorded on an earlier connection are refused. */
static void
test_replayed(void **state)
{
	struct xfer_private req;
	struct xfer_auth_request request;
	struct peer *p;
	uint64_t granted;

	hostile_begin();
	p = hostile_stand(0);
	req = p->handshake.receiver;
	request = p->handshake.request;
	hostile_hang_up(p);
	UNTIL(hostile_connections() == 0);
	granted = hostile_counters()->granted;
	p = peer_call(1, &req);
	p->mute = true;
	UNTIL(p->established);
	peer_say(p, &request, sizeof(request));
	hostile_is_refused(p, XFER_REASON_KEY);
	assert_int_equal(hostile_counters()->refused[XFER_REASON_KEY], 1);
	/* with the endpoints of this connection, and the old MAC */
	p = peer_call(2, &req);
	p->mute = true;
	UNTIL(p->established);
	request.receiver = p->handshake.request.receiver;
	request.store = p->handshake.request.store;
	peer_say(p, &request, sizeof(request));
	hostile_is_refused(p, XFER_REASON_KEY);
	assert_int_equal(hostile_counters()->refused[XFER_REASON_KEY], 2);
	assert_int_equal(hostile_counters()->granted, granted);
	hostile_end();
	hostile_beside_is_there_once();
}

/* A reason given by a peer that is not authenticated is not counted as a reason of the store. */
static void
test_abandoned(void **state)
{
	struct xfer_refuse m;
	struct rdma_sge sg;
	const struct rdma_send_wr wr = {.sg = &sg, .nb_sge = 1, .op = RDMA_OP_SEND};
	struct peer *p;

	hostile_begin();
	p = peer_call(0, NULL);
	p->mute = true;
	UNTIL(p->established);
	xfer_msg_begin(&m, XFER_REFUSE, sizeof(m), 0);
	m.reason = XFER_REASON_QUOTA;
	peer_say(p, &m, sizeof(m));
	UNTIL(hostile_counters()->abandoned == 1);
	assert_int_equal(hostile_counters()->refused[XFER_REASON_QUOTA], 0);
	hostile_hang_up(p);
	UNTIL(hostile_connections() == 0);
	/* a message larger than the store's receives: the queue pair fails */
	p = peer_call(1, NULL);
	p->mute = true;
	UNTIL(p->established);
	sg = (struct rdma_sge){
		(uintptr_t)p->link.extra, XFER_SEND_MAX + 1, rdma_mr_lkey(p->link.mr)};
	assert_int_equal(rdma_post_send(p->link.qp, &wr, 1), 1);
	UNTIL(p->link.broken);
	assert_int_equal(p->link.why, RDMA_WC_REM_INV_REQ_ERR);
	hostile_hang_up(p);
	UNTIL(hostile_connections() == 0);
	assert_int_equal(hostile_counters()->abandoned, 2);
	hostile_end();
	hostile_beside_is_there_once();
}

static struct store_connection *early; /* its event that it is established is kept back */
static struct rdma_event kept_event;

void __real_store_connection_event(struct store_connection *c, const struct rdma_event *event);
void __wrap_store_connection_event(struct store_connection *c, const struct rdma_event *event);

void
__wrap_store_connection_event(struct store_connection *c, const struct rdma_event *event)
{
	if (c == early && event->type == RDMA_EVENT_ESTABLISHED)
		kept_event = *event;
	else
		__real_store_connection_event(c, event);
}

/*
 * The store refuses a peer before the event that the connection is established: the peer learns the
 * reason after the event.
 */
static void
test_refused_early(void **state)
{
	struct xfer_status m = {0};
	struct peer *p;

	hostile_begin();
	/* the store closes the connection 100 ms after the refusal */
	hostile_stop_clock();
	p = peer_call(0, NULL);
	p->mute = true;
	UNTIL(hostile_connections() == 1);
	early = (struct store_connection *)(uintptr_t)hostile_seen(p);
	UNTIL(p->established && kept_event.conn != NULL);
	/* the first message is not the one that proves the identity */
	xfer_msg_begin(&m, XFER_STATUS, sizeof(m), 0);
	peer_say(p, &m, sizeof(m));
	UNTIL(early->state == STORE_LEAVING);
	assert_int_equal(hostile_counters()->refused[XFER_REASON_ORDER], 1);
	for (unsigned int i = 0; i < 1000; i++)
		rig_turn();
	assert_int_equal(p->refused, XFER_REASON_NONE);
	__real_store_connection_event(early, &kept_event);
	early = NULL;
	UNTIL(p->refused == XFER_REASON_ORDER);
	hostile_start_clock();
	hostile_is_refused(p, XFER_REASON_ORDER);
	hostile_end();
	hostile_beside_is_there_once();
}

static void
say_proof(struct peer *p)
{
	uint8_t request[XFER_MSG_MAX] __attribute__((aligned(8)));

	peer_say(p, request, xfer_auth_send(&p->handshake, request));
}

/* Send one byte of a schema with the MORE flag. */
static void
say_some_schema(struct peer *p)
{
	uint64_t room[8] = {0};
	struct xfer_schema *m = (struct xfer_schema *)room;

	xfer_msg_begin(m, XFER_SCHEMA, sizeof(*m) + 1, p->handshake.sent++);
	m->head.flags = XFER_MORE;
	m->offset = p->handshake.offset++;
	m->bytes[0] = peers.schema[0][m->offset];
	peer_say(p, m, sizeof(*m) + 1);
}

/* Connections that are half open or slow are limited in number and time. */
static void
test_half_open(void **state)
{
	const struct store_counters *n;
	struct peer *p;
	unsigned int i;

	hostile_begin();
	n = hostile_counters();
	/* a peer that does not receive the reply */
	p = peer_call(0, NULL);
	UNTIL(hostile_connections() == 1);
	rig.station[HOSTILE_STATION].out = true;
	hostile_passed_ms += ADMISSION_MS;
	UNTIL(hostile_connections() == 0);
	assert_int_equal(n->refused[XFER_REASON_LATE], 1);
	hostile_hang_up(p);
	rig.station[HOSTILE_STATION].out = false;
	/* one sends the request only, one sends its schema byte by byte, the others nothing */
	hostile_stop_clock();
	for (i = 1; i <= ADMISSION_PER_ADDRESS; i++) {
		p = peer_call(i, NULL);
		p->mute = true;
		UNTIL(p->established);
		if (i == 2 || i == 3)
			say_proof(p);
	}
	UNTIL(peer[3].handshake.state == XFER_AUTH_SCHEMAS);
	p = peer_call(i, NULL);
	UNTIL(p->gone);
	assert_int_equal(p->refused, XFER_REASON_BUSY);
	hostile_hang_up(p);
	assert_int_equal(hostile_connections(), ADMISSION_PER_ADDRESS);
	assert_int_equal(n->refused[XFER_REASON_BUSY], 1);
	for (i = 0; i < 4; i++) {
		say_some_schema(&peer[3]);
		/* less than the time for authentication in four steps */
		hostile_passed_ms += ADMISSION_MS / 10;
		UNTIL(hostile_seen(&peer[3])->handshake.offset == i + 1);
	}
	assert_int_equal(hostile_connections(), ADMISSION_PER_ADDRESS);
	hostile_passed_ms += ADMISSION_MS * 6 / 10;
	hostile_start_clock();
	for (i = 1; i <= ADMISSION_PER_ADDRESS; i++) {
		UNTIL(peer[i].refused == XFER_REASON_LATE);
		hostile_hang_up(&peer[i]);
	}
	assert_int_equal(n->refused[XFER_REASON_LATE], 1 + ADMISSION_PER_ADDRESS);
	UNTIL(hostile_connections() == 0);
	(void)hostile_stand(8);
	hostile_end();
	hostile_beside_is_there_once();
}

static unsigned int
turned_away(void)
{
	unsigned int i, n = 0;

	for (i = 0; i < PEERS; i++)
		n += peer[i].refused == XFER_REASON_BUSY;
	return n;
}

/* During a flood of requests with forged identities a receiver at another address can connect. */
static void
test_flood(void **state)
{
	struct xfer_private req = {XFER_MAGIC, XFER_VERSION, XFER_ROLE_RECEIVER, 0, 0, {0}, 0};
	const struct store_counters *n;
	unsigned int i;

	hostile_begin();
	n = hostile_counters();
	for (i = 0; i < PEERS; i++) {
		req.node = sample_random(&rig.sample.sample);
		peer_call(i, &req)->mute = true;
	}
	UNTIL(n->requests >= 1 + PEERS);
	rig_close_sender(0);
	rig_open_sender(0);
	UNTIL(rig_stats_of(0).state == STORE_CLIENT_UP);
	UNTIL(turned_away() == PEERS - ADMISSION_PER_ADDRESS);
	/* a request sent again, as by a slow machine, is refused again */
	assert_true(n->refused[XFER_REASON_BUSY] >= PEERS - ADMISSION_PER_ADDRESS);
	assert_int_equal(n->requests - n->refused[XFER_REASON_BUSY], 2 + ADMISSION_PER_ADDRESS);
	hostile_passed_ms += ADMISSION_MS;
	hostile_end();
	assert_true(hostile_kept == rig_fewest());
	hostile_beside_is_there_once();
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_replayed, rig_begin_test),
		cmocka_unit_test_setup(test_abandoned, rig_begin_test),
		cmocka_unit_test_setup(test_refused_early, rig_begin_test),
		cmocka_unit_test_setup(test_half_open, rig_begin_test),
		cmocka_unit_test_setup(test_flood, rig_begin_test),
	};

	return rig_main(tests);
}
