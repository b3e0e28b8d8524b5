/* SPDX-License-Identifier: BSD-3-Clause */

#include <stdlib.h>
#include <string.h>

#include "xfer/auth.h"
#include "xfer/msg.h"

/* Labels of MACs. With their terminating zeros none is a prefix of another. */
static const char receiver_label[] = "braggline sink 1, receiver";
static const char store_label[] = "braggline sink 1, store";
static const char *const session_labels[] = {
	"braggline session, receiver", "braggline session, store"};

static enum xfer_reason
fail(struct xfer_auth *h, enum xfer_reason reason)
{
	h->state = XFER_AUTH_FAILED;
	h->reason = reason;
	return reason;
}

/* Compute a MAC of the handshake. All but the receiver's proof also cover that proof. */
static int
make_mac(const struct xfer_auth *h, const struct xfer_key *key, const char *label,
	uint8_t mac[XFER_MAC_BYTES])
{
	const bool proof = label == receiver_label;
	const size_t said = offsetof(struct xfer_auth_request, mac) + (proof ? 0 : XFER_MAC_BYTES);
	const struct xfer_part parts[] = {
		{label, strlen(label) + 1},
		{&h->receiver, sizeof(h->receiver)},
		{&h->answer, sizeof(h->answer)},
		{&h->request, said},
	};

	return xfer_key_mac(key, parts, sizeof(parts) / sizeof(parts[0]), mac);
}

static enum xfer_reason
make_auth(struct xfer_auth *h, const struct xfer_offer *offer)
{
	struct xfer_auth_request *p = &h->request;
	struct xfer_table *t;
	unsigned int i;

	xfer_msg_begin(p, XFER_AUTH, sizeof(*p), 0);
	p->run = offer->run;
	p->incarnation = offer->incarnation;
	/* a name that is too long stays without a terminator, and is refused below */
	memcpy(p->name, offer->name, strnlen(offer->name, sizeof(p->name)));
	memcpy(p->identity, offer->identity, strnlen(offer->identity, sizeof(p->identity)));
	for (i = 0; i < XFER_TABLES; i++) {
		t = &p->table[i];
		t->body_max = offer->table[i].body_max;
		t->schema_bytes = offer->table[i].schema_bytes;
		h->offer[i] = offer->table[i].schema;
		if (xfer_digest(offer->table[i].schema, t->schema_bytes, t->fingerprint) < 0)
			return XFER_REASON_FAILED;
	}
	/* check it as the store does */
	return xfer_msg_check(p, sizeof(*p), XFER_ROLE_RECEIVER, 0);
}

enum xfer_reason
xfer_auth_call(struct xfer_auth *h, const struct xfer_key *key, const struct xfer_offer *offer,
	uint64_t deadline)
{
	enum xfer_reason reason;

	memset(h, 0, sizeof(*h));
	h->key = key;
	h->deadline = deadline;
	h->receiver = (struct xfer_private){
		.magic = XFER_MAGIC,
		.version = XFER_VERSION,
		.role = offer->role,
		.node = offer->receiver_id,
		.identity = xfer_identity_id(offer->identity),
	};
	reason = make_auth(h, offer);
	if (reason == XFER_REASON_NONE && xfer_random(h->receiver.nonce, XFER_NONCE_BYTES) < 0)
		reason = XFER_REASON_FAILED;
	if (reason == XFER_REASON_NONE)
		reason = xfer_private_check(&h->receiver, sizeof(h->receiver), XFER_ROLE_RECEIVER);
	if (reason != XFER_REASON_NONE)
		return fail(h, reason);
	h->state = XFER_AUTH_CALLED;
	return XFER_REASON_NONE;
}

uint64_t
xfer_auth_identity(const void *req, size_t size)
{
	struct xfer_private p;

	if (size < sizeof(p))
		return 0;
	memcpy(&p, req, sizeof(p));
	return p.identity;
}

enum xfer_reason
xfer_auth_answer(struct xfer_auth *h, const struct xfer_identity *identity, uint64_t store,
	const void *req, size_t size, uint64_t deadline)
{
	enum xfer_reason reason;

	memset(h, 0, sizeof(*h));
	h->store = true;
	h->identity = identity;
	h->deadline = deadline;
	reason = xfer_private_check(req, size, XFER_ROLE_RECEIVER);
	if (reason != XFER_REASON_NONE)
		return fail(h, reason);
	memcpy(&h->receiver, req, sizeof(h->receiver));
	h->answer = (struct xfer_private){
		.magic = XFER_MAGIC,
		.version = XFER_VERSION,
		.role = XFER_ROLE_STORE,
		.node = store,
	};
	if (xfer_random(h->answer.nonce, XFER_NONCE_BYTES) < 0)
		return fail(h, XFER_REASON_FAILED);
	h->state = XFER_AUTH_HEARD;
	return XFER_REASON_NONE;
}

enum xfer_reason
xfer_auth_open(struct xfer_auth *h, const void *rep, size_t size,
	const struct xfer_endpoint *receiver, const struct xfer_endpoint *store)
{
	enum xfer_reason reason = XFER_REASON_NONE;

	if (h->state != (h->store ? XFER_AUTH_HEARD : XFER_AUTH_CALLED))
		return fail(h, XFER_REASON_ORDER);
	h->end[0] = *receiver;
	h->end[1] = *store;
	h->state = XFER_AUTH_PROVING;
	if (h->store)
		return XFER_REASON_NONE;
	reason = xfer_private_check(rep, size, XFER_ROLE_STORE);
	if (reason != XFER_REASON_NONE)
		return fail(h, reason);
	memcpy(&h->answer, rep, sizeof(h->answer));
	h->request.receiver = *receiver;
	h->request.store = *store;
	if (make_mac(h, h->key, receiver_label, h->request.mac) < 0)
		return fail(h, XFER_REASON_FAILED);
	h->answer_due = true;
	return XFER_REASON_NONE;
}

static size_t
send_answer(struct xfer_auth *h, struct xfer_answer *m)
{
	xfer_msg_begin(m, XFER_ANSWER, sizeof(*m), h->sent);
	if (make_mac(h, h->key, store_label, m->mac) < 0) {
		fail(h, XFER_REASON_FAILED);
		return 0;
	}
	return sizeof(*m);
}

/* Build the next part of the schemas. */
static size_t
send_schema(struct xfer_auth *h, struct xfer_schema *m)
{
	const uint32_t all = h->request.table[h->table].schema_bytes;
	const uint32_t left = all - h->offset;
	const uint32_t part = left < XFER_SCHEMA_PART ? left : XFER_SCHEMA_PART;

	xfer_msg_begin(m, XFER_SCHEMA, sizeof(*m) + part, h->sent);
	m->table = h->table;
	m->offset = h->offset;
	memcpy(m->bytes, h->offer[h->table] + h->offset, part);
	h->offset += part;
	if (h->offset == all) {
		h->offset = 0;
		h->table++;
	}
	if (h->table == XFER_TABLES)
		h->state = XFER_AUTH_DONE;
	else
		m->head.flags = XFER_MORE;
	return m->head.length;
}

size_t
xfer_auth_send(struct xfer_auth *h, void *message)
{
	size_t size = 0;

	if (h->answer_due && h->state != XFER_AUTH_FAILED) {
		h->answer_due = false;
		if (h->store) {
			size = send_answer(h, message);
		} else {
			memcpy(message, &h->request, sizeof(h->request));
			size = sizeof(h->request);
		}
	} else if (!h->store && h->state == XFER_AUTH_SCHEMAS) {
		size = send_schema(h, message);
	}
	h->sent += size > 0;
	return size;
}

static bool
endpoint_equal(const struct xfer_endpoint *a, const struct xfer_endpoint *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

/* Find the key that the proof was made with. All keys are tried, for constant time. */
static enum xfer_reason
find_key(struct xfer_auth *h, const struct xfer_auth_request *m)
{
	uint8_t mac[XFER_MAC_BYTES];
	unsigned int i;

	for (i = 0; i < XFER_IDENTITY_KEYS; i++) {
		if (make_mac(h, &h->identity->key[i], receiver_label, mac) < 0)
			return XFER_REASON_FAILED;
		if (xfer_mac_equal(mac, m->mac))
			h->key = &h->identity->key[i];
	}
	return h->key != NULL ? XFER_REASON_NONE : XFER_REASON_KEY;
}

static enum xfer_reason
take_auth(struct xfer_auth *h, const struct xfer_auth_request *m)
{
	enum xfer_reason reason;
	unsigned int i;

	h->request = *m;
	reason = find_key(h, m);
	if (reason != XFER_REASON_NONE)
		return fail(h, reason);
	if (!endpoint_equal(&m->receiver, &h->end[0]) || !endpoint_equal(&m->store, &h->end[1]) ||
		strcmp(m->identity, h->identity->name) != 0)
		return fail(h, XFER_REASON_KEY);
	if (!xfer_identity_may(h->identity,
		    h->receiver.role == XFER_ROLE_IMPORT ? XFER_RIGHT_IMPORT : XFER_RIGHT_WRITE,
		    h->receiver.node, m->name))
		return fail(h, XFER_REASON_RIGHTS);
	for (i = 0; i < XFER_TABLES; i++) {
		h->schema[i] = malloc(m->table[i].schema_bytes);
		if (h->schema[i] == NULL)
			return fail(h, XFER_REASON_FAILED);
	}
	h->answer_due = true;
	h->state = XFER_AUTH_SCHEMAS;
	return XFER_REASON_NONE;
}

static enum xfer_reason
take_answer(struct xfer_auth *h, const struct xfer_answer *m)
{
	uint8_t mac[XFER_MAC_BYTES];

	if (make_mac(h, h->key, store_label, mac) < 0)
		return fail(h, XFER_REASON_FAILED);
	if (!xfer_mac_equal(mac, m->mac))
		return fail(h, XFER_REASON_KEY);
	h->state = XFER_AUTH_SCHEMAS;
	return XFER_REASON_NONE;
}

static enum xfer_reason
take_schema(struct xfer_auth *h, const struct xfer_schema *m)
{
	const struct xfer_table *t = &h->request.table[h->table];
	const uint32_t part = m->head.length - sizeof(*m);
	uint8_t digest[XFER_DIGEST_BYTES];

	if (m->table != h->table || m->offset != h->offset)
		return fail(h, XFER_REASON_ORDER);
	if (part > t->schema_bytes - h->offset)
		return fail(h, XFER_REASON_SCHEMA);
	memcpy(h->schema[h->table] + h->offset, m->bytes, part);
	h->offset += part;
	if (h->offset == t->schema_bytes) {
		if (xfer_digest(h->schema[h->table], t->schema_bytes, digest) < 0)
			return fail(h, XFER_REASON_FAILED);
		if (!xfer_mac_equal(digest, t->fingerprint))
			return fail(h, XFER_REASON_SCHEMA);
		h->offset = 0;
		h->table++;
	}
	/* the flag and the sizes must agree: the peer must send exactly what it announced */
	if (((m->head.flags & XFER_MORE) == 0) != (h->table == XFER_TABLES))
		return fail(h, XFER_REASON_ORDER);
	if (h->table == XFER_TABLES)
		h->state = XFER_AUTH_DONE;
	return XFER_REASON_NONE;
}

enum xfer_reason
xfer_auth_receive(struct xfer_auth *h, const void *message, size_t size)
{
	const enum xfer_role from = h->store ? XFER_ROLE_RECEIVER : XFER_ROLE_STORE;
	const struct xfer_msg *m = message;
	enum xfer_reason reason;

	if (h->state == XFER_AUTH_FAILED)
		return h->reason;
	reason = xfer_msg_check(message, size, from, h->received);
	if (reason != XFER_REASON_NONE)
		return fail(h, reason);
	h->received++;
	h->told = m->type == XFER_REFUSE;
	if (h->told)
		return fail(h, ((const struct xfer_refuse *)message)->reason);
	if (h->store && h->state == XFER_AUTH_PROVING && m->type == XFER_AUTH)
		return take_auth(h, message);
	if (!h->store && h->state == XFER_AUTH_PROVING && !h->answer_due && m->type == XFER_ANSWER)
		return take_answer(h, message);
	if (h->store && h->state == XFER_AUTH_SCHEMAS && m->type == XFER_SCHEMA)
		return take_schema(h, message);
	return fail(h, XFER_REASON_ORDER);
}

int
xfer_auth_session(const struct xfer_auth *h, uint8_t keys[2][XFER_MAC_BYTES])
{
	int ret = make_mac(h, h->key, session_labels[0], keys[0]);

	return ret < 0 ? ret : make_mac(h, h->key, session_labels[1], keys[1]);
}

bool
xfer_auth_late(struct xfer_auth *h, uint64_t now)
{
	if (h->state != XFER_AUTH_DONE && h->state != XFER_AUTH_FAILED && now >= h->deadline)
		fail(h, XFER_REASON_LATE);
	return h->state == XFER_AUTH_FAILED;
}

void
xfer_auth_end(struct xfer_auth *h)
{
	unsigned int i;

	for (i = 0; i < XFER_TABLES; i++)
		free(h->schema[i]);
	memset(h, 0, sizeof(*h));
}
