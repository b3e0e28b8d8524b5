/* SPDX-License-Identifier: BSD-3-Clause */

#include <stdlib.h>
#include <string.h>

#include "sink_handshake.h"
#include "sink_message.h"

static const char receiver_label[] = "braggline sink 1, receiver";
static const char store_label[] = "braggline sink 1, store";

static enum sink_reason
fail(struct sink_handshake *h, enum sink_reason reason)
{
	h->state = SINK_HANDSHAKE_FAILED;
	h->reason = reason;
	return reason;
}

/* The MAC of all that was said; a store's has the receiver's in it. */
static int
make_mac(const struct sink_handshake *h, const struct sink_key *key, bool store,
	uint8_t mac[SINK_MAC_BYTES])
{
	const char *label = store ? store_label : receiver_label;
	const size_t said = offsetof(struct sink_proof, mac) + (store ? SINK_MAC_BYTES : 0);
	const struct sink_part parts[] = {
		/* with its zero: no label begins another */
		{label, strlen(label) + 1},
		{&h->receiver, sizeof(h->receiver)},
		{&h->answer, sizeof(h->answer)},
		{&h->proof, said},
	};

	return sink_key_mac(key, parts, sizeof(parts) / sizeof(parts[0]), mac);
}

static enum sink_reason
make_proof(struct sink_handshake *h, const struct sink_offer *offer)
{
	struct sink_proof *p = &h->proof;
	struct sink_table *t;
	unsigned int i;

	sink_message_begin(p, SINK_PROOF, sizeof(*p), 0);
	p->run = offer->run;
	p->incarnation = offer->incarnation;
	/* one that is too long has no end, and is none */
	memcpy(p->name, offer->name, strnlen(offer->name, sizeof(p->name)));
	memcpy(p->identity, offer->identity, strnlen(offer->identity, sizeof(p->identity)));
	for (i = 0; i < SINK_TABLES; i++) {
		t = &p->table[i];
		t->body_max = offer->table[i].body_max;
		t->schema_bytes = offer->table[i].schema_bytes;
		h->offer[i] = offer->table[i].schema;
		if (sink_digest(offer->table[i].schema, t->schema_bytes, t->fingerprint) < 0)
			return SINK_REASON_FAILED;
	}
	/* what a store would find */
	return sink_message_check(p, sizeof(*p), SINK_ROLE_RECEIVER, 0);
}

enum sink_reason
sink_handshake_call(struct sink_handshake *h, const struct sink_key *key,
	const struct sink_offer *offer, uint64_t deadline)
{
	enum sink_reason reason;

	memset(h, 0, sizeof(*h));
	h->key = key;
	h->deadline = deadline;
	h->receiver = (struct sink_private){
		.magic = SINK_MAGIC,
		.version = SINK_VERSION,
		.role = offer->role,
		.node = offer->producer,
		.identity = sink_identity_id(offer->identity),
	};
	reason = make_proof(h, offer);
	if (reason == SINK_REASON_NONE && sink_random(h->receiver.nonce, SINK_NONCE_BYTES) < 0)
		reason = SINK_REASON_FAILED;
	if (reason == SINK_REASON_NONE)
		reason = sink_private_check(&h->receiver, sizeof(h->receiver), SINK_ROLE_RECEIVER);
	if (reason != SINK_REASON_NONE)
		return fail(h, reason);
	h->state = SINK_HANDSHAKE_CALLED;
	return SINK_REASON_NONE;
}

uint64_t
sink_handshake_identity(const void *req, size_t size)
{
	struct sink_private p;

	if (size < sizeof(p))
		return 0;
	memcpy(&p, req, sizeof(p));
	return p.identity;
}

enum sink_reason
sink_handshake_answer(struct sink_handshake *h, const struct sink_identity *identity,
	uint64_t store, const void *req, size_t size, uint64_t deadline)
{
	enum sink_reason reason;

	memset(h, 0, sizeof(*h));
	h->store = true;
	h->identity = identity;
	h->deadline = deadline;
	reason = sink_private_check(req, size, SINK_ROLE_RECEIVER);
	if (reason != SINK_REASON_NONE)
		return fail(h, reason);
	memcpy(&h->receiver, req, sizeof(h->receiver));
	h->answer = (struct sink_private){
		.magic = SINK_MAGIC,
		.version = SINK_VERSION,
		.role = SINK_ROLE_STORE,
		.node = store,
	};
	if (sink_random(h->answer.nonce, SINK_NONCE_BYTES) < 0)
		return fail(h, SINK_REASON_FAILED);
	h->state = SINK_HANDSHAKE_HEARD;
	return SINK_REASON_NONE;
}

enum sink_reason
sink_handshake_open(struct sink_handshake *h, const void *rep, size_t size,
	const struct sink_endpoint *receiver, const struct sink_endpoint *store)
{
	enum sink_reason reason = SINK_REASON_NONE;

	if (h->state != (h->store ? SINK_HANDSHAKE_HEARD : SINK_HANDSHAKE_CALLED))
		return fail(h, SINK_REASON_ORDER);
	h->end[0] = *receiver;
	h->end[1] = *store;
	h->state = SINK_HANDSHAKE_PROVING;
	if (h->store)
		return SINK_REASON_NONE;
	reason = sink_private_check(rep, size, SINK_ROLE_STORE);
	if (reason != SINK_REASON_NONE)
		return fail(h, reason);
	memcpy(&h->answer, rep, sizeof(h->answer));
	h->proof.receiver = *receiver;
	h->proof.store = *store;
	if (make_mac(h, h->key, false, h->proof.mac) < 0)
		return fail(h, SINK_REASON_FAILED);
	h->answer_due = true;
	return SINK_REASON_NONE;
}

static size_t
send_answer(struct sink_handshake *h, struct sink_answer *m)
{
	sink_message_begin(m, SINK_ANSWER, sizeof(*m), h->sent);
	if (make_mac(h, h->key, true, m->mac) < 0) {
		fail(h, SINK_REASON_FAILED);
		return 0;
	}
	return sizeof(*m);
}

/* The next part of the schemas. */
static size_t
send_schema(struct sink_handshake *h, struct sink_schema *m)
{
	const uint32_t all = h->proof.table[h->table].schema_bytes;
	const uint32_t left = all - h->offset;
	const uint32_t part = left < SINK_SCHEMA_PART ? left : SINK_SCHEMA_PART;

	sink_message_begin(m, SINK_SCHEMA, sizeof(*m) + part, h->sent);
	m->table = h->table;
	m->offset = h->offset;
	memcpy(m->bytes, h->offer[h->table] + h->offset, part);
	h->offset += part;
	if (h->offset == all) {
		h->offset = 0;
		h->table++;
	}
	if (h->table == SINK_TABLES)
		h->state = SINK_HANDSHAKE_DONE;
	else
		m->head.flags = SINK_MORE;
	return m->head.length;
}

size_t
sink_handshake_send(struct sink_handshake *h, void *message)
{
	size_t size = 0;

	if (h->answer_due && h->state != SINK_HANDSHAKE_FAILED) {
		h->answer_due = false;
		if (h->store) {
			size = send_answer(h, message);
		} else {
			memcpy(message, &h->proof, sizeof(h->proof));
			size = sizeof(h->proof);
		}
	} else if (!h->store && h->state == SINK_HANDSHAKE_SCHEMAS) {
		size = send_schema(h, message);
	}
	h->sent += size > 0;
	return size;
}

static bool
endpoint_equal(const struct sink_endpoint *a, const struct sink_endpoint *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

/* The key that the proof was made with. All are tried, so that the time tells nothing. */
static enum sink_reason
find_key(struct sink_handshake *h, const struct sink_proof *m)
{
	uint8_t mac[SINK_MAC_BYTES];
	unsigned int i;

	for (i = 0; i < SINK_IDENTITY_KEYS; i++) {
		if (make_mac(h, &h->identity->key[i], false, mac) < 0)
			return SINK_REASON_FAILED;
		if (sink_mac_equal(mac, m->mac))
			h->key = &h->identity->key[i];
	}
	return h->key != NULL ? SINK_REASON_NONE : SINK_REASON_KEY;
}

static enum sink_reason
take_proof(struct sink_handshake *h, const struct sink_proof *m)
{
	enum sink_reason reason;
	unsigned int i;

	h->proof = *m;
	reason = find_key(h, m);
	if (reason != SINK_REASON_NONE)
		return fail(h, reason);
	if (!endpoint_equal(&m->receiver, &h->end[0]) || !endpoint_equal(&m->store, &h->end[1]) ||
		strcmp(m->identity, h->identity->name) != 0)
		return fail(h, SINK_REASON_KEY);
	if (!sink_identity_may(h->identity,
		    h->receiver.role == SINK_ROLE_IMPORT ? SINK_RIGHT_IMPORT : SINK_RIGHT_WRITE,
		    h->receiver.node, m->name))
		return fail(h, SINK_REASON_RIGHTS);
	for (i = 0; i < SINK_TABLES; i++) {
		h->schema[i] = malloc(m->table[i].schema_bytes);
		if (h->schema[i] == NULL)
			return fail(h, SINK_REASON_FAILED);
	}
	h->answer_due = true;
	h->state = SINK_HANDSHAKE_SCHEMAS;
	return SINK_REASON_NONE;
}

static enum sink_reason
take_answer(struct sink_handshake *h, const struct sink_answer *m)
{
	uint8_t mac[SINK_MAC_BYTES];

	if (make_mac(h, h->key, true, mac) < 0)
		return fail(h, SINK_REASON_FAILED);
	if (!sink_mac_equal(mac, m->mac))
		return fail(h, SINK_REASON_KEY);
	h->state = SINK_HANDSHAKE_SCHEMAS;
	return SINK_REASON_NONE;
}

static enum sink_reason
take_schema(struct sink_handshake *h, const struct sink_schema *m)
{
	const struct sink_table *t = &h->proof.table[h->table];
	const uint32_t part = m->head.length - sizeof(*m);
	uint8_t digest[SINK_DIGEST_BYTES];

	if (m->table != h->table || m->offset != h->offset)
		return fail(h, SINK_REASON_ORDER);
	if (part > t->schema_bytes - h->offset)
		return fail(h, SINK_REASON_SCHEMA);
	memcpy(h->schema[h->table] + h->offset, m->bytes, part);
	h->offset += part;
	if (h->offset == t->schema_bytes) {
		if (sink_digest(h->schema[h->table], t->schema_bytes, digest) < 0)
			return fail(h, SINK_REASON_FAILED);
		if (!sink_mac_equal(digest, t->fingerprint))
			return fail(h, SINK_REASON_SCHEMA);
		h->offset = 0;
		h->table++;
	}
	/* both count: who sends less or more than announced has not understood */
	if (((m->head.flags & SINK_MORE) == 0) != (h->table == SINK_TABLES))
		return fail(h, SINK_REASON_ORDER);
	if (h->table == SINK_TABLES)
		h->state = SINK_HANDSHAKE_DONE;
	return SINK_REASON_NONE;
}

enum sink_reason
sink_handshake_receive(struct sink_handshake *h, const void *message, size_t size)
{
	const enum sink_role from = h->store ? SINK_ROLE_RECEIVER : SINK_ROLE_STORE;
	const struct sink_message *m = message;
	enum sink_reason reason;

	if (h->state == SINK_HANDSHAKE_FAILED)
		return h->reason;
	reason = sink_message_check(message, size, from, h->received);
	if (reason != SINK_REASON_NONE)
		return fail(h, reason);
	h->received++;
	h->told = m->type == SINK_REFUSE;
	if (h->told)
		return fail(h, ((const struct sink_refuse *)message)->reason);
	if (h->store && h->state == SINK_HANDSHAKE_PROVING && m->type == SINK_PROOF)
		return take_proof(h, message);
	if (!h->store && h->state == SINK_HANDSHAKE_PROVING && !h->answer_due &&
		m->type == SINK_ANSWER)
		return take_answer(h, message);
	if (h->store && h->state == SINK_HANDSHAKE_SCHEMAS && m->type == SINK_SCHEMA)
		return take_schema(h, message);
	return fail(h, SINK_REASON_ORDER);
}

bool
sink_handshake_late(struct sink_handshake *h, uint64_t now)
{
	if (h->state != SINK_HANDSHAKE_DONE && h->state != SINK_HANDSHAKE_FAILED &&
		now >= h->deadline)
		fail(h, SINK_REASON_LATE);
	return h->state == SINK_HANDSHAKE_FAILED;
}

void
sink_handshake_end(struct sink_handshake *h)
{
	unsigned int i;

	for (i = 0; i < SINK_TABLES; i++)
		free(h->schema[i]);
	memset(h, 0, sizeof(*h));
}
