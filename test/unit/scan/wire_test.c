/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of queries over RDMA: what is accepted and refused; the authentication of both ends. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "remote/proof.h"

static union {
	struct scan_msg head;
	struct scan_auth_request auth;
	struct scan_grant grant;
	struct scan_query query;
	struct scan_credit credit;
	struct scan_data data;
	struct scan_refuse refuse;
	struct scan_free free;
	uint8_t bytes[SCAN_MSG_MAX];
} m;

static enum scan_reason
check(enum scan_role from)
{
	return scan_msg_check(&m, m.head.length, from, 7);
}

static void
begin(enum scan_type type, size_t size)
{
	memset(&m, 0xee, sizeof(m));
	scan_msg_begin(&m, type, size, 7);
}

static void
grants(void **state)
{
	begin(SCAN_GRANT, sizeof(m.grant));
	m.grant.addr = 4096;
	m.grant.slot_bytes = 1 << 20;
	m.grant.nb = SCAN_SLOTS_MAX;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_NONE);
	assert_int_equal(check(SCAN_SERVER), SCAN_REASON_ORDER);
	m.head.number = 8;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_ORDER);
	m.head.number = 7;
	m.grant.nb++;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
	m.grant.nb = 0;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
	m.grant.nb = 1;
	m.grant.addr = UINT64_MAX - 63;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
	m.grant.addr = 32;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
	m.grant.addr = 64;
	m.grant.slot_bytes += 8;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
	m.grant.slot_bytes = 1 << 20;
	m.head.flags = SCAN_MORE;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
	m.head.flags = 0;
	assert_int_equal(
		scan_msg_check(&m, m.head.length - 1, SCAN_CLIENT, 7), SCAN_REASON_MALFORMED);
}

/* A client that reads bodies grants nothing but the size of parts. */
static void
grants_of_readers_are_checked(void **state)
{
	begin(SCAN_GRANT, sizeof(m.grant));
	m.head.flags = SCAN_PULL;
	m.grant.slot_bytes = SCAN_SLOT_MIN;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_NONE);
	m.grant.slot_bytes = SCAN_SLOT_MIN - SCAN_ALIGN;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
	m.grant.slot_bytes = SCAN_SLOT_MAX;
	m.grant.nb = 1;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
	m.grant.nb = 0;
	m.grant.addr = 64;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
	m.grant.addr = 0;
	m.grant.rkey = 1;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
	m.grant.rkey = 0;
	m.head.flags |= SCAN_MORE;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
}

static void
free_messages_are_checked(void **state)
{
	begin(SCAN_FREE, sizeof(m.free) + 16);
	m.free.nb = 2;
	m.free.addr[0] = 64;
	m.free.addr[1] = UINT64_MAX - 63;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_NONE);
	assert_int_equal(check(SCAN_SERVER), SCAN_REASON_ORDER);
	m.free.addr[1]++;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
	m.free.addr[1] = 0;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
	m.free.addr[1] = 64;
	m.free.reserved = 1;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
	m.free.reserved = 0;
	m.free.nb = 3;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
	m.free.nb = UINT32_MAX;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
	begin(SCAN_FREE, sizeof(m.free));
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
	begin(SCAN_FREE, sizeof(m.free) + (SCAN_PARTS + 1) * 8);
	memset(m.free.addr, 0x40, (SCAN_PARTS + 1) * 8);
	m.free.nb = SCAN_PARTS + 1;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
}

static void
queries(void **state)
{
	begin(SCAN_QUERY, sizeof(m.query) + 8);
	m.query.total = 8;
	memcpy(m.query.bytes, "SELECT 1", 8);
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_NONE);
	/* the flag and the sizes must agree */
	m.head.flags = SCAN_MORE;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
	m.query.total = 9;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_NONE);
	m.query.offset = 2;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
	m.query.offset = UINT32_MAX;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
	m.query.offset = 0;
	m.query.total = SCAN_SQL_MAX + 1;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
	m.query.total = SCAN_SQL_MAX;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_NONE);
	m.query.form = SCAN_FORMS;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
	m.query.form = 0;
	m.query.bytes[3] = '\0';
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
}

static void
credits(void **state)
{
	begin(SCAN_CREDIT, sizeof(m.credit) + 4);
	m.credit.nb = 1;
	m.credit.slot[0] = SCAN_SLOTS_MAX - 1;
	m.credit.messages = SCAN_WINDOW;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_NONE);
	m.credit.messages++;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
	m.credit.messages = 0;
	m.credit.slot[0]++;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
	m.credit.slot[0] = 0;
	m.credit.nb = UINT32_MAX;
	assert_int_equal(check(SCAN_CLIENT), SCAN_REASON_MALFORMED);
}

static void
put(enum scan_kind kind, uint32_t length, uint64_t total, uint64_t offset, bool fits)
{
	static uint8_t bytes[SCAN_MSG_MAX];
	const struct scan_record r = {
		.kind = kind, .length = length, .total = total, .offset = offset};

	memset(bytes, kind, sizeof(bytes));
	assert_int_equal(scan_record_put(&m.data, &r, kind == SCAN_PUSHED ? NULL : bytes), fits);
}

static void
records(void **state)
{
	static const uint8_t kinds[] = {SCAN_COLUMNS, SCAN_METADATA, SCAN_PUSHED, SCAN_END};
	struct scan_record r;
	const uint8_t *bytes;
	size_t at = sizeof(m.data), i;

	begin(SCAN_DATA, sizeof(m.data));
	assert_int_equal(check(SCAN_SERVER), SCAN_REASON_MALFORMED);
	put(SCAN_COLUMNS, 5, 5, 0, true);
	put(SCAN_METADATA, 9, 100, 91, true);
	put(SCAN_PUSHED, 1 << 20, UINT64_C(1) << 40, 4096, true);
	put(SCAN_END, 0, 0, 0, true);
	assert_int_equal(check(SCAN_SERVER), SCAN_REASON_NONE);
	for (i = 0; (bytes = scan_record_next(&m.data, &at, &r)) != NULL; i++) {
		assert_true(i < sizeof(kinds));
		assert_int_equal(r.kind, kinds[i]);
		assert_true(i > 1 || bytes[r.length - 1] == r.kind);
	}
	assert_int_equal(i, sizeof(kinds));
	m.data.nb++;
	assert_int_equal(check(SCAN_SERVER), SCAN_REASON_MALFORMED);
	/* one record fills a message, and not more */
	begin(SCAN_DATA, sizeof(m.data));
	put(SCAN_BODY, SCAN_RECORD_PART + 1, 1 << 20, 0, false);
	put(SCAN_BODY, SCAN_RECORD_PART, 1 << 20, 0, true);
	assert_int_equal(m.head.length, SCAN_MSG_MAX);
	assert_int_equal(check(SCAN_SERVER), SCAN_REASON_NONE);
	put(SCAN_END, 0, 0, 0, false);
}

static void
pulled_records(void **state)
{
	static const struct {
		struct scan_pulled at;
		uint32_t length;
		uint64_t total;
		enum scan_reason reason;
	} cases[] = {
		{{64, 7, 0}, 1 << 20, 1 << 21, SCAN_REASON_NONE},
		{{UINT64_MAX - 127, 7, 0}, 127, 127, SCAN_REASON_NONE},
		{{UINT64_MAX - 127, 7, 0}, 128, 128, SCAN_REASON_MALFORMED},
		{{0, 7, 0}, 64, 64, SCAN_REASON_MALFORMED},
		{{72, 7, 0}, 64, 64, SCAN_REASON_MALFORMED},
		{{64, 7, 1}, 64, 64, SCAN_REASON_MALFORMED},
		{{64, 7, 0}, 0, 64, SCAN_REASON_MALFORMED},
		{{64, 7, 0}, 65, 64, SCAN_REASON_MALFORMED},
		{{64, 7, 0}, 64, SCAN_BODY_MAX + 1, SCAN_REASON_MALFORMED},
	};
	struct scan_record r = {.kind = SCAN_PULLED};
	const uint8_t *bytes;
	size_t at, i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		begin(SCAN_DATA, sizeof(m.data));
		r.length = cases[i].length;
		r.total = cases[i].total;
		assert_true(scan_record_put(&m.data, &r, &cases[i].at));
		/* the address follows, and not the bytes of the part */
		assert_int_equal(m.head.length, sizeof(m.data) + sizeof(r) + sizeof(cases[i].at));
		put(SCAN_END, 0, 0, 0, true);
		assert_int_equal(check(SCAN_SERVER), cases[i].reason);
		at = sizeof(m.data);
		bytes = scan_record_next(&m.data, &at, &r);
		assert_memory_equal(bytes, &cases[i].at, sizeof(cases[i].at));
		assert_non_null(scan_record_next(&m.data, &at, &r));
		assert_int_equal(r.kind, SCAN_END);
		r.kind = SCAN_PULLED;
	}
	/* the address is beyond the end of the message */
	begin(SCAN_DATA, sizeof(m.data));
	r.length = r.total = 64;
	assert_true(scan_record_put(&m.data, &r, &cases[0].at));
	m.head.length -= 8;
	assert_int_equal(check(SCAN_SERVER), SCAN_REASON_MALFORMED);
}

/* A schema can be kept if it is in one record; a reference to one has no bytes. */
static void
schemas(void **state)
{
	static const struct {
		struct scan_record r;
		enum scan_reason reason;
	} cases[] = {
		{{.kind = SCAN_METADATA, .length = 8, .total = 8, .slot = 1}, SCAN_REASON_NONE},
		{{.kind = SCAN_METADATA, .length = 8, .total = 8, .slot = SCAN_SCHEMAS},
			SCAN_REASON_NONE},
		{{.kind = SCAN_METADATA, .length = 8, .total = 8, .slot = SCAN_SCHEMAS + 1},
			SCAN_REASON_MALFORMED},
		{{.kind = SCAN_METADATA, .length = 8, .total = 16, .slot = 1},
			SCAN_REASON_MALFORMED},
		{{.kind = SCAN_METADATA, .length = 8, .total = 8, .slot = 1, .sequence = 1},
			SCAN_REASON_MALFORMED},
		{{.kind = SCAN_BODY, .length = 8, .total = 8, .slot = 1}, SCAN_REASON_MALFORMED},
		{{.kind = SCAN_SCHEMA, .slot = 1}, SCAN_REASON_NONE},
		{{.kind = SCAN_SCHEMA, .slot = SCAN_SCHEMAS}, SCAN_REASON_NONE},
		{{.kind = SCAN_SCHEMA}, SCAN_REASON_MALFORMED},
		{{.kind = SCAN_SCHEMA, .slot = SCAN_SCHEMAS + 1}, SCAN_REASON_MALFORMED},
		{{.kind = SCAN_SCHEMA, .slot = UINT32_MAX}, SCAN_REASON_MALFORMED},
		{{.kind = SCAN_SCHEMA, .slot = 1, .sequence = 1}, SCAN_REASON_MALFORMED},
		{{.kind = SCAN_SCHEMA, .slot = 1, .length = 8, .total = 8}, SCAN_REASON_MALFORMED},
		{{.kind = SCAN_SCHEMA, .slot = 1, .total = 8}, SCAN_REASON_MALFORMED},
		{{.kind = SCAN_SCHEMA, .slot = 1, .offset = 8}, SCAN_REASON_MALFORMED},
	};
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		begin(SCAN_DATA, sizeof(m.data));
		assert_true(scan_record_put(&m.data, &cases[i].r, "a schema"));
		assert_int_equal(check(SCAN_SERVER), cases[i].reason);
	}
}

static void
wrong_records(void **state)
{
	static const struct {
		enum scan_kind kind;
		uint32_t length;
		uint64_t total, offset;
	} wrong[] = {
		{SCAN_BODY, 0, 0, 0},
		{SCAN_BODY, 8, 7, 0},
		{SCAN_BODY, 8, 16, 9},
		{SCAN_BODY, 8, 16, UINT64_MAX - 3},
		{SCAN_BODY, 8, SCAN_BODY_MAX + 1, 0},
		{SCAN_METADATA, 8, SCAN_METADATA_MAX + 1, 0},
		{SCAN_PUSHED, 0, 8, 0},
		{SCAN_PUSHED, 9, 8, 0},
		{SCAN_END, 0, 1, 1},
		{SCAN_ERROR, 4, 4, 0},
		{SCAN_ERROR, 40, 40, 0}, /* its SQLSTATE is no text */
		{SCAN_KINDS, 0, 0, 0},
	};
	struct scan_record r;
	size_t i;

	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		begin(SCAN_DATA, sizeof(m.data));
		put(wrong[i].kind, wrong[i].length, wrong[i].total, wrong[i].offset, true);
		assert_int_equal(check(SCAN_SERVER), SCAN_REASON_MALFORMED);
	}
	/* a record that ends beyond the message */
	begin(SCAN_DATA, sizeof(m.data));
	put(SCAN_BODY, 8, 16, 0, true);
	memcpy(&r, &m.data + 1, sizeof(r));
	r.length = 16;
	memcpy(&m.data + 1, &r, sizeof(r));
	assert_int_equal(check(SCAN_SERVER), SCAN_REASON_MALFORMED);
	r.length = 8;
	r.slot = 1;
	memcpy(&m.data + 1, &r, sizeof(r));
	assert_int_equal(check(SCAN_SERVER), SCAN_REASON_MALFORMED);
}

/* ---- authentication -------------------------------------------------------------------------- */

static struct xfer_key key;
static struct xfer_identity identity;
static const struct xfer_endpoint ends[2] = {{{1}, 11, 0}, {{2}, 22, 0}};

static int
make_identity(void **state)
{
	memset(&identity, 0, sizeof(identity));
	strcpy(identity.name, "ana");
	identity.id = xfer_identity_id("ana");
	identity.rights = XFER_RIGHT_READ;
	key.size = 32;
	memset(key.bytes, 'k', key.size);
	identity.key[0] = key;
	identity.key[1].size = 32;
	memset(identity.key[1].bytes, 'n', 32);
	return 0;
}

/* Both ends up to AUTH. */
static void
call(struct scan_proof *client, struct scan_proof *server)
{
	assert_int_equal(scan_proof_call(client, "ana", &key), SCAN_REASON_NONE);
	assert_int_equal(
		scan_proof_hear(server, &client->call, sizeof(client->call)), SCAN_REASON_NONE);
	assert_int_equal(scan_proof_claim(client, &server->answer, sizeof(server->answer), &ends[0],
				 &ends[1]),
		SCAN_REASON_NONE);
	assert_int_equal(scan_msg_check(&client->request, sizeof(client->request), SCAN_CLIENT, 0),
		SCAN_REASON_NONE);
}

static enum scan_reason
prove(struct scan_proof *server, const struct scan_auth_request *request,
	struct scan_answer *answer)
{
	return scan_proof_check(server, request, &identity, &ends[0], &ends[1], answer);
}

static void
valid_proofs_are_accepted(void **state)
{
	uint8_t a[2][XFER_MAC_BYTES], b[2][XFER_MAC_BYTES];
	struct scan_proof client, server;
	struct scan_answer answer;

	call(&client, &server);
	assert_int_equal(prove(&server, &client.request, &answer), SCAN_REASON_NONE);
	assert_int_equal(scan_proof_accept(&client, &answer), SCAN_REASON_NONE);
	assert_int_equal(scan_proof_session(&client, a), 0);
	assert_int_equal(scan_proof_session(&server, b), 0);
	assert_memory_equal(a, b, sizeof(a));
	assert_memory_not_equal(a[0], a[1], sizeof(a[0]));
	answer.mac[31] ^= 1;
	assert_int_equal(scan_proof_accept(&client, &answer), SCAN_REASON_KEY);
}

/* Every changed bit of the request is noticed, and so is a replay. */
static void
changed_requests_are_refused(void **state)
{
	struct scan_proof client, server, again;
	struct scan_auth_request request;
	struct scan_answer answer;
	size_t i;

	call(&client, &server);
	for (i = sizeof(struct scan_msg); i < sizeof(request); i++) {
		request = client.request;
		((uint8_t *)&request)[i] ^= 1 << i % 8;
		server.key = NULL;
		assert_int_equal(prove(&server, &request, &answer), SCAN_REASON_KEY);
	}
	server.key = NULL;
	assert_int_equal(
		scan_proof_check(&server, &client.request, &identity, &ends[1], &ends[1], &answer),
		SCAN_REASON_KEY);
	assert_int_equal(
		scan_proof_hear(&again, &client.call, sizeof(client.call)), SCAN_REASON_NONE);
	assert_int_equal(prove(&again, &client.request, &answer), SCAN_REASON_KEY);
	identity.rights = XFER_RIGHT_WRITE;
	server.key = NULL;
	assert_int_equal(prove(&server, &client.request, &answer), SCAN_REASON_RIGHTS);
	assert_int_equal(scan_proof_call(&client, "no/name", &key), SCAN_REASON_MALFORMED);
}

static void
malformed_calls_are_refused(void **state)
{
	struct scan_proof client, server;

	assert_int_equal(scan_proof_call(&client, "ana", &key), SCAN_REASON_NONE);
	assert_int_equal(scan_proof_hear(&server, &client.call, sizeof(client.call) - 1),
		SCAN_REASON_MALFORMED);
	client.call.version++;
	assert_int_equal(
		scan_proof_hear(&server, &client.call, sizeof(client.call)), SCAN_REASON_VERSION);
	client.call.version--;
	client.call.role = SCAN_SERVER;
	assert_int_equal(
		scan_proof_hear(&server, &client.call, sizeof(client.call)), SCAN_REASON_MALFORMED);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(grants),
		cmocka_unit_test(grants_of_readers_are_checked),
		cmocka_unit_test(free_messages_are_checked),
		cmocka_unit_test(pulled_records),
		cmocka_unit_test(queries),
		cmocka_unit_test(credits),
		cmocka_unit_test(records),
		cmocka_unit_test(schemas),
		cmocka_unit_test(wrong_records),
		cmocka_unit_test_setup(valid_proofs_are_accepted, make_identity),
		cmocka_unit_test_setup(changed_requests_are_refused, make_identity),
		cmocka_unit_test_setup(malformed_calls_are_refused, make_identity),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
