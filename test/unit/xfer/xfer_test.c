/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests the messages, keys and mutual authentication of the transfer protocol. XFER_SEED repeats a
 * run.
 */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "xfer/admission.h"
#include "xfer/auth.h"
#include "xfer/msg.h"

#define SCHEMA_0 4096
#define SCHEMA_1 12288

static uint64_t seed;
static uint8_t schema[XFER_TABLES][SCHEMA_1];

/* Both ends of a handshake, and the message between them. */
struct pair {
	struct xfer_key key;	       /* the receiver's key */
	struct xfer_identity identity; /* the receiver's identity as the store knows it */
	struct xfer_offer offer;
	struct xfer_endpoint receiver;
	struct xfer_endpoint store;
	struct xfer_auth r;
	struct xfer_auth s;
	uint8_t message[XFER_MSG_MAX] __attribute__((aligned(8)));
};

static uint32_t
random_number(void)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return seed >> 33;
}

static void
pair_init(struct pair *p)
{
	unsigned int i, k;

	memset(p, 0, sizeof(*p));
	for (i = 0; i < XFER_TABLES; i++) {
		for (k = 0; k < SCHEMA_1; k++)
			schema[i][k] = random_number();
	}
	p->key.size = 40;
	for (i = 0; i < p->key.size; i++)
		p->key.bytes[i] = random_number();
	p->identity = (struct xfer_identity){
		.name = "recv-1",
		.key = {p->key, {.size = 32, .bytes = {1}}},
		.receiver_id = {{3, 7}},
		.nb_receiver_ids = 1,
		.run = {"lyso_*"},
		.nb_runs = 1,
		.rights = XFER_RIGHT_WRITE,
	};
	p->offer = (struct xfer_offer){
		.role = XFER_ROLE_RECEIVER,
		.identity = "recv-1",
		.receiver_id = 7,
		.run = 8,
		.incarnation = 9,
		.name = "lyso_1",
		.table = {{schema[0], SCHEMA_0, 8192}, {schema[1], SCHEMA_1, 1 << 20}},
	};
	p->receiver = (struct xfer_endpoint){.addr = {1}, .qpn = 17};
	p->store = (struct xfer_endpoint){.addr = {2}, .qpn = 18};
}

static void
pair_free(struct pair *p)
{
	xfer_auth_end(&p->r);
	xfer_auth_end(&p->s);
}

/* Connect both ends, up to the first message. */
static void
connect_pair(struct pair *p)
{
	assert_int_equal(xfer_auth_call(&p->r, &p->key, &p->offer, 100), 0);
	assert_int_equal(xfer_auth_answer(&p->s, &p->identity, 3, &p->r.receiver,
				 sizeof(p->r.receiver), 100),
		0);
	assert_int_equal(
		xfer_auth_open(&p->r, &p->s.answer, sizeof(p->s.answer), &p->receiver, &p->store),
		0);
	assert_int_equal(xfer_auth_open(&p->s, NULL, 0, &p->receiver, &p->store), 0);
}

/* Pass one message on, in either direction. @return false if neither end has one */
static bool
step(struct pair *p)
{
	size_t size;

	size = xfer_auth_send(&p->r, p->message);
	if (size > 0) {
		(void)xfer_auth_receive(&p->s, p->message, size);
		return true;
	}
	size = xfer_auth_send(&p->s, p->message);
	if (size > 0)
		(void)xfer_auth_receive(&p->r, p->message, size);
	return size > 0;
}

static void
test_agree(void **state)
{
	struct pair p;
	unsigned int i, messages = 0;

	pair_init(&p);
	connect_pair(&p);
	while (step(&p))
		messages++;
	/* authentication request, answer, and schemas of two and four parts */
	assert_int_equal(messages, 2 + 2 + 4);
	assert_int_equal(p.r.state, XFER_AUTH_DONE);
	assert_int_equal(p.s.state, XFER_AUTH_DONE);
	assert_int_equal(p.r.sent, p.s.received);
	assert_int_equal(p.s.sent, p.r.received);
	for (i = 0; i < XFER_TABLES; i++)
		assert_memory_equal(p.s.schema[i], schema[i], i == 0 ? SCHEMA_0 : SCHEMA_1);
	assert_string_equal(p.s.request.name, "lyso_1");
	assert_int_equal(p.s.request.incarnation, 9);
	assert_int_equal(p.s.receiver.node, 7);
	assert_int_equal(p.r.answer.node, 3);
	pair_free(&p);
}

/* Both ends have the same keys, one for each direction, and each session has other ones. */
static void
test_session_keys(void **state)
{
	uint8_t keys[2][2][XFER_MAC_BYTES], before[XFER_MAC_BYTES] = {0};
	struct pair p;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		pair_init(&p);
		connect_pair(&p);
		/* the receiver has them before the store has replied */
		assert_int_equal(xfer_auth_session(&p.r, keys[0]), 0);
		assert_true(step(&p));
		assert_int_equal(xfer_auth_session(&p.s, keys[1]), 0);
		assert_memory_equal(keys[0], keys[1], sizeof(keys[0]));
		assert_memory_not_equal(keys[0][0], keys[0][1], XFER_MAC_BYTES);
		assert_memory_not_equal(keys[0][0], before, XFER_MAC_BYTES);
		memcpy(before, keys[0][0], sizeof(before));
		pair_free(&p);
	}
}

static void
test_wrong_key(void **state)
{
	struct pair p;

	pair_init(&p);
	p.identity.key[0].bytes[39] ^= 1;
	connect_pair(&p);
	assert_true(step(&p));
	assert_int_equal(p.s.reason, XFER_REASON_KEY);
	assert_null(p.s.schema[0]);
	/* the receiver sends no further message */
	assert_false(step(&p));
	pair_free(&p);
}

/* A store without the key cannot answer an authentication request. */
static void
test_wrong_store(void **state)
{
	struct xfer_answer answer;
	struct pair p;

	pair_init(&p);
	connect_pair(&p);
	assert_int_equal(xfer_auth_send(&p.r, p.message), sizeof(struct xfer_auth_request));
	xfer_msg_begin(&answer, XFER_ANSWER, sizeof(answer), 0);
	/* the best answer it can make: the MAC of the request itself */
	memcpy(answer.mac, ((struct xfer_auth_request *)p.message)->mac, XFER_MAC_BYTES);
	assert_int_equal(xfer_auth_receive(&p.r, &answer, sizeof(answer)), XFER_REASON_KEY);
	pair_free(&p);
}

/* Messages recorded on one connection are refused on another. */
static void
test_replay(void **state)
{
	uint8_t proof[XFER_MSG_MAX] __attribute__((aligned(8)));
	struct xfer_auth again;
	struct xfer_private req;
	struct pair p;
	size_t size;

	pair_init(&p);
	connect_pair(&p);
	req = p.r.receiver;
	size = xfer_auth_send(&p.r, proof);
	assert_int_equal(xfer_auth_receive(&p.s, proof, size), XFER_REASON_NONE);
	assert_int_equal(xfer_auth_answer(&again, &p.identity, 3, &req, sizeof(req), 100), 0);
	/* even with the same queue pairs */
	assert_int_equal(xfer_auth_open(&again, NULL, 0, &p.receiver, &p.store), 0);
	assert_int_equal(xfer_auth_receive(&again, proof, size), XFER_REASON_KEY);
	xfer_auth_end(&again);
	pair_free(&p);
}

/*
 * A man in the middle who forwards all messages is refused: the endpoints in the request are not
 * his own.
 */
static void
test_between(void **state)
{
	const struct xfer_endpoint other = {.addr = {1}, .qpn = 99};
	struct pair p;

	pair_init(&p);
	assert_int_equal(xfer_auth_call(&p.r, &p.key, &p.offer, 100), 0);
	assert_int_equal(
		xfer_auth_answer(&p.s, &p.identity, 3, &p.r.receiver, sizeof(p.r.receiver), 100),
		0);
	assert_int_equal(
		xfer_auth_open(&p.r, &p.s.answer, sizeof(p.s.answer), &p.receiver, &other), 0);
	assert_int_equal(xfer_auth_open(&p.s, NULL, 0, &other, &p.store), 0);
	assert_true(step(&p));
	assert_int_equal(p.s.reason, XFER_REASON_KEY);
	pair_free(&p);
}

/*
 * An authentication request covers both endpoints: with another one at either end it is refused,
 * although its sender has the key.
 */
static void
test_proof_of_other_end(void **state)
{
	const struct xfer_endpoint other = {.addr = {7}, .qpn = 99};
	struct pair p;
	int end;

	for (end = 0; end < 2; end++) {
		pair_init(&p);
		assert_int_equal(xfer_auth_call(&p.r, &p.key, &p.offer, 100), 0);
		assert_int_equal(xfer_auth_answer(&p.s, &p.identity, 3, &p.r.receiver,
					 sizeof(p.r.receiver), 100),
			0);
		assert_int_equal(
			xfer_auth_open(&p.r, &p.s.answer, sizeof(p.s.answer),
				end == 0 ? &other : &p.receiver, end == 1 ? &other : &p.store),
			0);
		assert_int_equal(xfer_auth_open(&p.s, NULL, 0, &p.receiver, &p.store), 0);
		assert_true(step(&p));
		assert_int_equal(p.s.reason, XFER_REASON_KEY);
		pair_free(&p);
	}
}

/* A key authenticates one identity, with the rights of that identity only. */
static void
test_rights(void **state)
{
	static const struct {
		const char *identity, *name;
		uint64_t receiver_id;
		enum xfer_role role;
		uint8_t rights;
		enum xfer_reason reason;
	} tries[] = {
		{"recv-1", "lyso_1", 3, XFER_ROLE_RECEIVER, XFER_RIGHT_WRITE, 0},
		{"recv-1", "lyso_1", 7, XFER_ROLE_RECEIVER, XFER_RIGHT_WRITE, 0},
		{"recv-1", "lyso_1", 8, XFER_ROLE_RECEIVER, XFER_RIGHT_WRITE, XFER_REASON_RIGHTS},
		{"recv-1", "lyso_1", 2, XFER_ROLE_RECEIVER, XFER_RIGHT_WRITE, XFER_REASON_RIGHTS},
		{"recv-1", "lys_1", 7, XFER_ROLE_RECEIVER, XFER_RIGHT_WRITE, XFER_REASON_RIGHTS},
		{"recv-1", "lyso_1", 7, XFER_ROLE_IMPORT, XFER_RIGHT_WRITE, XFER_REASON_RIGHTS},
		{"recv-1", "lyso_1", 7, XFER_ROLE_IMPORT, XFER_RIGHT_IMPORT, 0},
		{"recv-1", "lyso_1", 7, XFER_ROLE_RECEIVER, (uint8_t)~XFER_RIGHT_WRITE,
			XFER_REASON_RIGHTS},
		/* the key of another identity */
		{"recv-2", "lyso_1", 7, XFER_ROLE_RECEIVER, XFER_RIGHT_WRITE, XFER_REASON_KEY},
	};
	struct pair p;
	unsigned int i;

	for (i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
		pair_init(&p);
		p.offer.identity = tries[i].identity;
		p.offer.name = tries[i].name;
		p.offer.receiver_id = tries[i].receiver_id;
		p.offer.role = tries[i].role;
		p.identity.rights = tries[i].rights;
		connect_pair(&p);
		assert_true(step(&p));
		assert_int_equal(p.s.reason, tries[i].reason);
		if (tries[i].reason != 0)
			assert_null(p.s.schema[0]);
		pair_free(&p);
	}
}

/* While a key is being replaced both keys are accepted; the answer uses the key of the request. */
static void
test_next_key(void **state)
{
	struct pair p;

	pair_init(&p);
	p.identity.key[1] = p.key;
	p.identity.key[0].bytes[0] ^= 1;
	connect_pair(&p);
	while (step(&p))
		;
	assert_int_equal(p.r.state, XFER_AUTH_DONE);
	assert_int_equal(p.s.state, XFER_AUTH_DONE);
	assert_ptr_equal(p.s.key, &p.identity.key[1]);
	pair_free(&p);
}

/* Any bit that is changed in transit is detected. */
static void
test_changed(void **state)
{
	struct xfer_private req, rep;
	struct pair p;
	size_t size, bit;
	int round;

	for (round = 0; round < 400; round++) {
		pair_init(&p);
		assert_int_equal(xfer_auth_call(&p.r, &p.key, &p.offer, 100), 0);
		req = p.r.receiver;
		if (round % 3 == 0) {
			bit = random_number() % (sizeof(req) * 8);
			((uint8_t *)&req)[bit / 8] ^= 1 << bit % 8;
		}
		if (xfer_auth_answer(&p.s, &p.identity, 3, &req, sizeof(req), 100) != 0) {
			pair_free(&p);
			continue;
		}
		rep = p.s.answer;
		if (round % 3 == 1) {
			bit = random_number() % (sizeof(rep) * 8);
			((uint8_t *)&rep)[bit / 8] ^= 1 << bit % 8;
		}
		if (xfer_auth_open(&p.r, &rep, sizeof(rep), &p.receiver, &p.store) != 0) {
			pair_free(&p);
			continue;
		}
		assert_int_equal(xfer_auth_open(&p.s, NULL, 0, &p.receiver, &p.store), 0);
		size = xfer_auth_send(&p.r, p.message);
		if (round % 3 == 2) {
			bit = random_number() % (size * 8);
			p.message[bit / 8] ^= 1 << bit % 8;
		}
		assert_int_not_equal(xfer_auth_receive(&p.s, p.message, size), 0);
		assert_int_equal(p.s.state, XFER_AUTH_FAILED);
		pair_free(&p);
	}
}

static void
test_another_schema(void **state)
{
	struct xfer_schema *m;
	struct pair p;
	size_t size = 0;

	pair_init(&p);
	connect_pair(&p);
	assert_true(step(&p));
	assert_true(step(&p));
	size = xfer_auth_send(&p.r, p.message);
	m = (struct xfer_schema *)p.message;
	assert_int_equal(m->head.type, XFER_SCHEMA);
	m->bytes[100] ^= 1;
	assert_int_equal(xfer_auth_receive(&p.s, p.message, size), 0);
	size = xfer_auth_send(&p.r, p.message);
	assert_int_equal(xfer_auth_receive(&p.s, p.message, size), XFER_REASON_SCHEMA);
	pair_free(&p);
}

/* A schema longer than announced is rejected. */
static void
test_long_schema(void **state)
{
	struct xfer_schema *m;
	struct pair p;
	size_t size;

	pair_init(&p);
	connect_pair(&p);
	assert_true(step(&p));
	assert_true(step(&p));
	assert_true(step(&p));
	size = xfer_auth_send(&p.r, p.message);
	assert_true(size < XFER_MSG_MAX);
	m = (struct xfer_schema *)p.message;
	m->head.length = XFER_MSG_MAX;
	assert_int_equal(xfer_auth_receive(&p.s, p.message, XFER_MSG_MAX), XFER_REASON_SCHEMA);
	pair_free(&p);
}

static void
test_order(void **state)
{
	struct xfer_status status;
	struct pair p;

	pair_init(&p);
	connect_pair(&p);
	/* well formed, but unexpected in this state */
	xfer_msg_begin(&status, XFER_STATUS, sizeof(status), 0);
	assert_int_equal(xfer_auth_receive(&p.s, &status, sizeof(status)), XFER_REASON_ORDER);
	/* reserved fields must be zero */
	assert_int_equal(
		xfer_msg_check(&status, sizeof(status), XFER_ROLE_STORE, 0), XFER_REASON_NONE);
	status.reserved2 = 1;
	assert_int_equal(
		xfer_msg_check(&status, sizeof(status), XFER_ROLE_STORE, 0), XFER_REASON_MALFORMED);
	/* an answer before the authentication request was sent is rejected */
	xfer_msg_begin(p.message, XFER_ANSWER, sizeof(struct xfer_answer), 0);
	assert_int_equal(
		xfer_auth_receive(&p.r, p.message, sizeof(struct xfer_answer)), XFER_REASON_ORDER);
	/* the error is final */
	assert_int_equal(xfer_auth_send(&p.r, p.message), 0);
	pair_free(&p);
}

/* A peer that sends slowly is disconnected when its time is over. */
static void
test_slow(void **state)
{
	struct pair p;
	uint64_t now;
	bool late = false;

	pair_init(&p);
	connect_pair(&p);
	for (now = 20; !late; now += 20) {
		(void)step(&p);
		late = xfer_auth_late(&p.s, now);
		assert_true(now <= 100);
	}
	assert_int_equal(now - 20, 100);
	assert_int_equal(p.s.reason, XFER_REASON_LATE);
	pair_free(&p);
}

static void
test_offers(void **state)
{
	static const char *const bad[] = {"", ".hidden", "a/b", "a b", "\xc3\xa4",
		"0123456789012345678901234567890123456789012345678901234567890123"};
	struct pair p;
	unsigned int i;

	pair_init(&p);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		p.offer.name = bad[i];
		assert_int_equal(xfer_auth_call(&p.r, &p.key, &p.offer, 1), XFER_REASON_MALFORMED);
		p.offer.name = "lyso_1";
		p.offer.identity = bad[i];
		assert_int_equal(xfer_auth_call(&p.r, &p.key, &p.offer, 1), XFER_REASON_MALFORMED);
		p.offer.identity = "recv-1";
	}
	p.offer.name = "A-9_.z";
	assert_int_equal(xfer_auth_call(&p.r, &p.key, &p.offer, 1), XFER_REASON_NONE);
	p.offer.table[0].body_max = 4097;
	assert_int_equal(xfer_auth_call(&p.r, &p.key, &p.offer, 1), XFER_REASON_MALFORMED);
	p.offer.table[0].body_max = XFER_BODY_MAX + 4096;
	assert_int_equal(xfer_auth_call(&p.r, &p.key, &p.offer, 1), XFER_REASON_MALFORMED);
	pair_free(&p);
}

static void
test_private(void **state)
{
	uint8_t bytes[64] = {0};
	struct xfer_private *p = (struct xfer_private *)bytes;

	*p = (struct xfer_private){XFER_MAGIC, XFER_VERSION, XFER_ROLE_IMPORT, 0, 1, {0}, 0};
	assert_int_equal(xfer_private_check(bytes, 56, XFER_ROLE_RECEIVER), 0);
	assert_int_equal(xfer_private_check(bytes, 55, XFER_ROLE_RECEIVER), XFER_REASON_MALFORMED);
	assert_int_equal(xfer_private_check(bytes, 56, XFER_ROLE_STORE), XFER_REASON_MALFORMED);
	bytes[63] = 1;
	assert_int_equal(xfer_private_check(bytes, 64, XFER_ROLE_RECEIVER), XFER_REASON_MALFORMED);
	/* a store sends no identity here */
	p->role = XFER_ROLE_STORE;
	assert_int_equal(xfer_private_check(bytes, 56, XFER_ROLE_STORE), 0);
	p->identity = 1;
	assert_int_equal(xfer_private_check(bytes, 56, XFER_ROLE_STORE), XFER_REASON_MALFORMED);
	p->version++;
	assert_int_equal(xfer_private_check(bytes, 56, XFER_ROLE_RECEIVER), XFER_REASON_VERSION);
}

/*
 * ---- messages of an established session -------------------------------------------------------
 */

static union {
	uint8_t bytes[XFER_MSG_MAX];
	struct xfer_intervals intervals;
	struct xfer_list list;
	struct xfer_grant grant;
	struct xfer_results results;
} m __attribute__((aligned(8)));

static enum xfer_reason
check_intervals(uint32_t nb)
{
	const size_t size = sizeof(m.intervals) + nb * sizeof(m.intervals.interval[0]);

	m.intervals.head.length = size;
	m.intervals.nb = nb;
	return xfer_msg_check(&m, size, XFER_ROLE_STORE, 0);
}

static void
test_intervals(void **state)
{
	xfer_msg_begin(&m, XFER_INVENTORY, sizeof(m), 0);
	m.intervals.table = 1;
	m.intervals.interval[0] = (struct xfer_interval){0, 3};
	m.intervals.interval[1] = (struct xfer_interval){5, 5};
	assert_int_equal(check_intervals(2), 0);
	assert_int_equal(check_intervals(0), 0);
	m.intervals.interval[1].first = 4; /* adjacent to the first interval */
	assert_int_equal(check_intervals(2), XFER_REASON_MALFORMED);
	m.intervals.interval[1] = (struct xfer_interval){9, 8};
	assert_int_equal(check_intervals(2), XFER_REASON_MALFORMED);
	m.intervals.interval[1] = (struct xfer_interval){9, UINT64_MAX};
	assert_int_equal(check_intervals(2), XFER_REASON_MALFORMED);
	m.intervals.interval[1].last--;
	assert_int_equal(check_intervals(2), 0);
	/* nb does not match the length */
	m.intervals.nb = 1;
	assert_int_equal(xfer_msg_check(&m, m.intervals.head.length, XFER_ROLE_STORE, 0),
		XFER_REASON_MALFORMED);
	m.intervals.nb = UINT32_MAX / 16 + 2;
	assert_int_equal(xfer_msg_check(&m, m.intervals.head.length, XFER_ROLE_STORE, 0),
		XFER_REASON_MALFORMED);
	m.intervals.table = 2;
	assert_int_equal(check_intervals(1), XFER_REASON_MALFORMED);
	m.intervals.table = 0;
	m.intervals.head.flags = 2;
	assert_int_equal(check_intervals(1), XFER_REASON_MALFORMED);
	m.intervals.head.flags = XFER_MORE;
	assert_int_equal(check_intervals(1), 0);
	/* a message of the other role; another sequence number */
	assert_int_equal(xfer_msg_check(&m, m.intervals.head.length, XFER_ROLE_RECEIVER, 0),
		XFER_REASON_ORDER);
	assert_int_equal(
		xfer_msg_check(&m, m.intervals.head.length, XFER_ROLE_STORE, 1), XFER_REASON_ORDER);
}

static enum xfer_reason
check_list(uint32_t nb)
{
	const size_t size = sizeof(m.list) + nb * sizeof(m.list.listed[0]);

	m.list.head.length = size;
	m.list.nb = nb;
	return xfer_msg_check(&m, size, XFER_ROLE_RECEIVER, 0);
}

static void
test_list(void **state)
{
	static const enum xfer_type types[] = {XFER_REASSIGNED, XFER_HELD};
	unsigned int i;

	for (i = 0; i < 2; i++) {
		xfer_msg_begin(&m, types[i], sizeof(m), 0);
		m.list.table = 1;
		m.list.listed[0] = (struct xfer_listed){3, 1, 2};
		m.list.listed[1] = (struct xfer_listed){4, 1, 2};
		assert_int_equal(check_list(2), 0);
		assert_int_equal(check_list(0), 0);
		m.list.listed[1].sequence = 3;
		assert_int_equal(check_list(2), XFER_REASON_MALFORMED);
		m.list.listed[1].sequence = UINT64_MAX;
		assert_int_equal(check_list(2), XFER_REASON_MALFORMED);
		m.list.listed[1].sequence--;
		assert_int_equal(check_list(2), 0);
		m.list.nb = 1;
		assert_int_equal(xfer_msg_check(&m, m.list.head.length, XFER_ROLE_RECEIVER, 0),
			XFER_REASON_MALFORMED);
		m.list.table = 2;
		assert_int_equal(check_list(1), XFER_REASON_MALFORMED);
		m.list.table = 0;
		m.list.head.flags = XFER_MORE;
		assert_int_equal(check_list(1), 0);
		assert_int_equal(xfer_msg_check(&m, m.list.head.length, XFER_ROLE_STORE, 0),
			XFER_REASON_ORDER);
	}
}

static void
test_results(void **state)
{
	const size_t size = sizeof(m.results) + sizeof(m.results.result[0]);

	xfer_msg_begin(&m, XFER_RESULTS, sizeof(m), 5);
	m.results.head.length = size;
	m.results.nb = 1;
	m.results.result[0] = (struct xfer_result){9, 3, 1, XFER_RETRY, 0};
	assert_int_equal(xfer_msg_check(&m, size, XFER_ROLE_STORE, 5), 0);
	m.results.result[0].status = XFER_STATUSES;
	assert_int_equal(xfer_msg_check(&m, size, XFER_ROLE_STORE, 5), XFER_REASON_MALFORMED);
	m.results.result[0].status = XFER_DURABLE;
	m.results.result[0].entry = XFER_DESCS_MAX;
	assert_int_equal(xfer_msg_check(&m, size, XFER_ROLE_STORE, 5), XFER_REASON_MALFORMED);
	assert_int_equal(xfer_msg_check(&m, size - 8, XFER_ROLE_STORE, 5), XFER_REASON_MALFORMED);
	assert_int_equal(xfer_msg_check(&m, 8, XFER_ROLE_STORE, 5), XFER_REASON_MALFORMED);
}

static enum xfer_reason
check_grant(uint32_t nb)
{
	const size_t size = sizeof(m.grant) + nb * sizeof(m.grant.region[0]);

	m.grant.head.length = size;
	m.grant.nb = nb;
	return xfer_msg_check(&m, size, XFER_ROLE_STORE, 0);
}

static void
good_grant(void)
{
	xfer_msg_begin(&m, XFER_GRANT, sizeof(m), 0);
	m.grant.heartbeat_ms = 100;
	m.grant.silence_ms = 300;
	m.grant.commit_ms = 50;
	m.grant.region[0] =
		(struct xfer_region){0x10000, 4096, 1, 0, 6, XFER_REGION_METADATA, 0, 0};
	m.grant.region[1] = (struct xfer_region){0x100000, 8192, 2, 0, 2, XFER_REGION_BODY, 0, 0};
	m.grant.region[2] = (struct xfer_region){0x200000, 65536, 3, 2, 3, XFER_REGION_BODY, 1, 0};
	m.grant.region[3] = (struct xfer_region){0x900000, 65536, 4, 5, 1, XFER_REGION_BODY, 1, 0};
}

static void
test_grant(void **state)
{
	static struct xfer_slot place[XFER_DESCS_MAX];
	const uint64_t fits[] = {8192, 65536}, large[] = {8192, 69632};
	uint32_t nb;

	good_grant();
	assert_int_equal(check_grant(4), 0);
	assert_int_equal(xfer_grant_slots(&m.grant, fits, place, &nb), 0);
	assert_int_equal(nb, 6);
	assert_int_equal(place[1].body, 0x102000);
	assert_int_equal(place[4].body, 0x220000);
	assert_int_equal(place[4].table, 1);
	assert_int_equal(place[5].body_rkey, 4);
	assert_int_equal(place[5].metadata, 0x15000);
	assert_int_equal(place[5].metadata_rkey, 1);
	/* a body of the largest size does not fit */
	assert_int_equal(xfer_grant_slots(&m.grant, large, place, &nb), XFER_REASON_BODY);
	/*
	 * a slot without a body, one with two bodies, one that is there twice, one that is missing
	 */
	assert_int_equal(check_grant(3), 0);
	assert_int_equal(xfer_grant_slots(&m.grant, fits, place, &nb), XFER_REASON_MALFORMED);
	m.grant.region[3].nb = 2;
	assert_int_equal(check_grant(4), 0);
	assert_int_equal(xfer_grant_slots(&m.grant, fits, place, &nb), XFER_REASON_MALFORMED);
	m.grant.region[3].nb = 1;
	m.grant.region[3].first = 4;
	assert_int_equal(xfer_grant_slots(&m.grant, fits, place, &nb), XFER_REASON_MALFORMED);
	m.grant.region[3].first = 5;
	m.grant.region[0].first = 1;
	assert_int_equal(xfer_grant_slots(&m.grant, fits, place, &nb), XFER_REASON_MALFORMED);
}

static void
test_bad_grants(void **state)
{
	good_grant();
	m.grant.region[1].addr = UINT64_MAX - 8192;
	assert_int_equal(check_grant(4), XFER_REASON_MALFORMED);
	good_grant();
	m.grant.region[1].first = UINT32_MAX;
	assert_int_equal(check_grant(4), XFER_REASON_MALFORMED);
	good_grant();
	m.grant.region[1].nb = XFER_DESCS_MAX + 1;
	assert_int_equal(check_grant(4), XFER_REASON_MALFORMED);
	good_grant();
	m.grant.region[0].slot_bytes = 8192;
	assert_int_equal(check_grant(4), XFER_REASON_MALFORMED);
	good_grant();
	m.grant.region[1].table = 2;
	assert_int_equal(check_grant(4), XFER_REASON_MALFORMED);
	good_grant();
	m.grant.silence_ms = 100;
	assert_int_equal(check_grant(4), XFER_REASON_MALFORMED);
	good_grant();
	assert_int_equal(check_grant(0), XFER_REASON_MALFORMED);
}

/*
 * ---- admission and the key --------------------------------------------------------------------
 */

static struct admission_peer
peer_at(uint8_t net, uint8_t host, uint64_t identity)
{
	return (struct admission_peer){{[10] = 0xff, [11] = 0xff, 10, 0, net, host}, identity};
}

static void
test_gate(void **state)
{
	struct admission_peer peer = peer_at(1, 1, 0);
	struct admission g = {0};
	int place[ADMISSION_PLACES], i;
	void *evicted;

	for (i = 0; i < ADMISSION_PER_ADDRESS; i++) {
		place[i] = admission_enter(&g, &peer, &place[i], 10, &evicted);
		assert_true(place[i] >= 0 && evicted == NULL);
	}
	/* neither one address nor one network gets all slots */
	assert_int_equal(admission_enter(&g, &peer, &g, 10, &evicted), -EBUSY);
	for (; i < ADMISSION_PER_PREFIX; i++) {
		peer = peer_at(1, 100 + i, 0);
		place[i] = admission_enter(&g, &peer, &place[i], 10, &evicted);
		assert_true(place[i] >= 0);
	}
	peer = peer_at(1, 99, 0);
	assert_int_equal(admission_enter(&g, &peer, &g, 10, &evicted), -EBUSY);
	assert_int_equal(g.crowded, 2);
	for (; i < ADMISSION_UNKNOWN; i++) {
		peer = peer_at(100 + i, 1, 0);
		place[i] = admission_enter(&g, &peer, &place[i], 11, &evicted);
		assert_true(place[i] >= 0);
	}
	peer = peer_at(200, 1, 0);
	assert_int_equal(admission_enter(&g, &peer, &g, 12, &evicted), -EBUSY);
	assert_int_equal(g.full, 1);
	admission_leave(&g, place[3]);
	assert_int_equal(admission_enter(&g, &peer, &place[3], 12, &evicted), place[3]);
	assert_null(evicted);
	/* full: the oldest one of the most crowded network is evicted once it is old enough */
	peer = peer_at(201, 1, 0);
	assert_int_equal(admission_enter(&g, &peer, &g, 9 + ADMISSION_MIN_MS, &evicted), -EBUSY);
	assert_int_equal(admission_enter(&g, &peer, &g, 10 + ADMISSION_MIN_MS, &evicted), place[0]);
	assert_ptr_equal(evicted, &place[0]);
	assert_int_equal(g.evicted, 1);
	/*
	 * with all slots in use, authentication may take ADMISSION_MIN_MS, which count from the
	 * request
	 */
	assert_null(admission_expire(&g, 9 + ADMISSION_MIN_MS));
	assert_non_null(admission_expire(&g, 10 + ADMISSION_MIN_MS));
	for (i = 1; admission_expire(&g, 12 + ADMISSION_MS) != NULL; i++)
		;
	assert_int_equal(i, ADMISSION_UNKNOWN);
	assert_int_equal(g.late, ADMISSION_UNKNOWN);
}

/*
 * A peer that was authenticated before a restart is known for the rest of its time, and is the
 * first one forgotten when the table is full.
 */
static void
test_gate_started_again(void **state)
{
	const struct admission_peer old = peer_at(1, 1, 1), young = peer_at(2, 1, 2);
	struct admission_peer more = peer_at(3, 1, 3);
	struct admission g = {0};
	void *evicted;
	unsigned int i;
	int place;

	/* the clock of this process began after they were authenticated */
	admission_remember(&g, &old, 10, ADMISSION_REMEMBER_MS - 100);
	admission_remember(&g, &young, 10, 5);
	assert_int_equal(g.version, 0);
	assert_true(admission_knows(&g, &old, 109));
	assert_false(admission_knows(&g, &old, 110));
	assert_true(admission_knows(&g, &young, 110));
	/*
	 * entries of this process are younger; the version changes when a pair is new or was saved
	 * long ago
	 */
	for (i = 0; i < ADMISSION_REMEMBERED - 1; i++) {
		more.identity = 3 + i;
		place = admission_enter(&g, &more, &g, 20, &evicted);
		assert_true(place >= 0);
		admission_proved(&g, place, 20);
		assert_int_equal(g.version, i + 1);
	}
	assert_false(admission_knows(&g, &old, 20));
	assert_true(admission_knows(&g, &young, 20));
	place = admission_enter(&g, &more, &g, 20 + ADMISSION_KEEP_MS, &evicted);
	admission_proved(&g, place, 20 + ADMISSION_KEEP_MS);
	assert_int_equal(g.version, i);
	place = admission_enter(&g, &more, &g, 21 + 2 * ADMISSION_KEEP_MS, &evicted);
	admission_proved(&g, place, 21 + 2 * ADMISSION_KEEP_MS);
	assert_int_equal(g.version, i + 1);
}

/* During a flood of forged requests a peer that was authenticated before is admitted at once. */
static void
test_gate_flood(void **state)
{
	const struct admission_peer receiver = peer_at(1, 1, 42);
	struct admission_peer peer;
	struct admission g = {0};
	unsigned int i, taken = 0;
	void *evicted;
	uint64_t now;
	int place;

	place = admission_enter(&g, &receiver, &g, 1, &evicted);
	admission_proved(&g, place, 1);
	for (now = 2; now < 20000; now++) {
		while (admission_expire(&g, now) != NULL)
			;
		/*
		 * one with the receiver's identity from another address, and one from the
		 * receiver's address
		 */
		peer = peer_at(random_number(), random_number() % 200 + 50, 42);
		taken += admission_enter(&g, &peer, &peer, now, &evicted) >= 0;
		peer = peer_at(1, 1, random_number() | 1ull << 40);
		taken += admission_enter(&g, &peer, &peer, now, &evicted) >= 0;
		if (now % 100 != 0)
			continue;
		place = admission_enter(&g, &receiver, &g, now, &evicted);
		assert_true(place >= ADMISSION_UNKNOWN);
		assert_null(evicted);
		admission_leave(&g, place);
	}
	assert_true(taken > 0);
	/* with the receiver's identity and address: a slot is free again after ADMISSION_MIN_MS */
	for (i = 0; i < ADMISSION_PER_KNOWN; i++)
		assert_true(admission_enter(&g, &receiver, &peer, now, &evicted) >= 0);
	assert_int_equal(admission_enter(&g, &receiver, &g, now, &evicted), -EBUSY);
	place = admission_enter(&g, &receiver, &g, now + ADMISSION_MIN_MS, &evicted);
	assert_true(place >= 0 && evicted == &peer);
	/* the receiver is forgotten after ADMISSION_REMEMBER_MS */
	assert_true(admission_knows(&g, &receiver, ADMISSION_REMEMBER_MS));
	assert_false(admission_knows(&g, &receiver, 1 + ADMISSION_REMEMBER_MS));
}

/* When the table is full, a new peer replaces the one that was not seen for the longest time. */
static void
test_gate_remembers(void **state)
{
	struct admission_peer peer;
	struct admission g = {0};
	unsigned int i;
	void *evicted;

	for (i = 0; i <= ADMISSION_REMEMBERED; i++) {
		peer = peer_at(1, 1, i);
		admission_proved(&g, admission_enter(&g, &peer, &g, 1 + i, &evicted), 1 + i);
	}
	for (i = 0; i <= ADMISSION_REMEMBERED; i++) {
		peer = peer_at(1, 1, i);
		assert_int_equal(admission_knows(&g, &peer, 1000), i > 0);
	}
}

/* An IPv6 /64 counts as one network, and is not mixed up with IPv4 networks. */
static void
test_gate_prefix(void **state)
{
	struct admission_peer peer = {{0x20, 1}, 0};
	struct admission g = {0};
	void *evicted;
	unsigned int i;

	for (i = 0; i < ADMISSION_PER_PREFIX; i++) {
		peer.addr[15] = i;
		assert_true(admission_enter(&g, &peer, &g, 1, &evicted) >= 0);
	}
	peer.addr[8] = 1;
	assert_int_equal(admission_enter(&g, &peer, &g, 1, &evicted), -EBUSY);
	peer.addr[7] = 1;
	assert_true(admission_enter(&g, &peer, &g, 1, &evicted) >= 0);
	peer = peer_at(1, 1, 0);
	assert_true(admission_enter(&g, &peer, &g, 1, &evicted) >= 0);
}

static void
write_file(const char *path, size_t size, mode_t mode)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	while (size-- > 0)
		fputc('k', f);
	fclose(f);
	assert_int_equal(chmod(path, mode), 0);
}

static void
test_key(void **state)
{
	char dir[] = "/tmp/braggline-xfer-XXXXXX", path[64], link[64], message[PATH_MAX];
	struct xfer_key key;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/key", dir);
	snprintf(link, sizeof(link), "%s/link", dir);
	assert_int_equal(xfer_key_read(&key, path, message), -ENOENT);
	write_file(path, 32, 0600);
	assert_int_equal(xfer_key_read(&key, path, message), 0);
	assert_int_equal(key.size, 32);
	assert_int_equal(key.bytes[31], 'k');
	xfer_key_forget(&key);
	assert_int_equal(key.size + key.bytes[0], 0);
	assert_int_equal(symlink(path, link), 0);
	assert_int_equal(xfer_key_read(&key, link, message), -ELOOP);
	assert_non_null(strstr(message, "a symbolic link"));
	assert_int_equal(xfer_key_read(&key, dir, message), -EINVAL);
	write_file(path, 32, 0640);
	assert_int_equal(xfer_key_read(&key, path, message), -EACCES);
	assert_non_null(strstr(message, "640"));
	write_file(path, 32, 0602);
	assert_int_equal(xfer_key_read(&key, path, message), -EACCES);
	write_file(path, 31, 0400);
	assert_int_equal(xfer_key_read(&key, path, message), -EINVAL);
	unlink(path);
	write_file(path, XFER_KEY_MAX + 1, 0400);
	assert_int_equal(xfer_key_read(&key, path, message), -EINVAL);
	if (geteuid() == 0) {
		assert_int_equal(chown(path, 12345, 0), 0);
		assert_int_equal(xfer_key_read(&key, path, message), -EACCES);
		assert_non_null(strstr(message, "12345"));
	}
	unlink(path);
	unlink(link);
	rmdir(dir);
}

/* RFC 4231, test case 2; FIPS 180-2, "abc" */
static void
test_numbers(void **state)
{
	static const uint8_t mac_wanted[] = {0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a,
		0x04, 0x24, 0x26, 0x08, 0x95, 0x75, 0xc7, 0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27, 0x39,
		0x83, 0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43};
	const struct xfer_part parts[] = {{"what do ya want ", 16}, {"", 0}, {"for nothing?", 12}};
	struct xfer_key key = {.bytes = "Jefe", .size = 4};
	uint8_t mac[XFER_MAC_BYTES];

	assert_int_equal(xfer_key_mac(&key, parts, 3, mac), 0);
	assert_memory_equal(mac, mac_wanted, XFER_MAC_BYTES);
	assert_true(xfer_mac_equal(mac, mac_wanted));
	mac[31] ^= 0x80;
	assert_false(xfer_mac_equal(mac, mac_wanted));
	assert_int_equal(xfer_digest("abc", 3, mac), 0);
	assert_int_equal(mac[0], 0xba);
	assert_int_equal(mac[31], 0xad);
}

int
main(void)
{
	const char *text = getenv("XFER_SEED");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_agree),
		cmocka_unit_test(test_session_keys),
		cmocka_unit_test(test_wrong_key),
		cmocka_unit_test(test_wrong_store),
		cmocka_unit_test(test_replay),
		cmocka_unit_test(test_between),
		cmocka_unit_test(test_proof_of_other_end),
		cmocka_unit_test(test_rights),
		cmocka_unit_test(test_next_key),
		cmocka_unit_test(test_changed),
		cmocka_unit_test(test_another_schema),
		cmocka_unit_test(test_long_schema),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_slow),
		cmocka_unit_test(test_offers),
		cmocka_unit_test(test_private),
		cmocka_unit_test(test_intervals),
		cmocka_unit_test(test_list),
		cmocka_unit_test(test_results),
		cmocka_unit_test(test_grant),
		cmocka_unit_test(test_bad_grants),
		cmocka_unit_test(test_gate),
		cmocka_unit_test(test_gate_started_again),
		cmocka_unit_test(test_gate_flood),
		cmocka_unit_test(test_gate_remembers),
		cmocka_unit_test(test_gate_prefix),
		cmocka_unit_test(test_key),
		cmocka_unit_test(test_numbers),
	};

	seed = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)getpid();
	printf("XFER_SEED=%llu\n", (unsigned long long)seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
