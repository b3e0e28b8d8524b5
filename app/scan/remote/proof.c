/* SPDX-License-Identifier: BSD-3-Clause */

#include <string.h>

#include "remote/proof.h"

/* Labels of MACs. With their terminating zeros none is a prefix of another. */
static const char client_label[] = "braggline query 1, client";
static const char server_label[] = "braggline query 1, server";
static const char *const session_labels[] = {
	"braggline query session, client", "braggline query session, server"};

/* Compute a MAC of the handshake. All but the client's proof also cover that proof. */
static int
make_mac(const struct scan_proof *p, const struct xfer_key *key, const char *label,
	uint8_t mac[XFER_MAC_BYTES])
{
	const bool proof = label == client_label;
	const struct xfer_part parts[] = {
		{label, strlen(label) + 1},
		{&p->call, sizeof(p->call)},
		{&p->answer, sizeof(p->answer)},
		{&p->request,
			offsetof(struct scan_auth_request, mac) + (proof ? 0 : XFER_MAC_BYTES)},
	};

	return xfer_key_mac(key, parts, sizeof(parts) / sizeof(parts[0]), mac);
}

enum scan_reason
scan_proof_call(struct scan_proof *p, const char *identity, const struct xfer_key *key)
{
	memset(p, 0, sizeof(*p));
	p->key = key;
	p->call = (struct scan_private){
		.magic = SCAN_MAGIC,
		.version = SCAN_VERSION,
		.role = SCAN_CLIENT,
		.identity = xfer_identity_id(identity),
	};
	scan_msg_begin(&p->request, SCAN_AUTH, sizeof(p->request), 0);
	/* a name that is too long stays without a terminator, and is refused below */
	memcpy(p->request.identity, identity, strnlen(identity, sizeof(p->request.identity)));
	if (p->call.identity == 0 || xfer_random(p->call.nonce, XFER_NONCE_BYTES) < 0)
		return SCAN_REASON_FAILED;
	return scan_msg_check(&p->request, sizeof(p->request), SCAN_CLIENT, 0);
}

enum scan_reason
scan_proof_hear(struct scan_proof *p, const void *req, size_t size)
{
	const enum scan_reason reason = scan_private_check(req, size, SCAN_CLIENT);

	memset(p, 0, sizeof(*p));
	if (reason != SCAN_REASON_NONE)
		return reason;
	memcpy(&p->call, req, sizeof(p->call));
	p->answer = (struct scan_private){
		.magic = SCAN_MAGIC, .version = SCAN_VERSION, .role = SCAN_SERVER};
	return xfer_random(p->answer.nonce, XFER_NONCE_BYTES) < 0 ? SCAN_REASON_FAILED
								  : SCAN_REASON_NONE;
}

enum scan_reason
scan_proof_claim(struct scan_proof *p, const void *rep, size_t size,
	const struct xfer_endpoint *client, const struct xfer_endpoint *server)
{
	const enum scan_reason reason = scan_private_check(rep, size, SCAN_SERVER);

	if (reason != SCAN_REASON_NONE)
		return reason;
	memcpy(&p->answer, rep, sizeof(p->answer));
	p->request.client = *client;
	p->request.server = *server;
	return make_mac(p, p->key, client_label, p->request.mac) < 0 ? SCAN_REASON_FAILED
								     : SCAN_REASON_NONE;
}

/* Find the key that a proof was made with. All keys are tried, for constant time. */
static enum scan_reason
find_key(struct scan_proof *p, const struct xfer_identity *identity)
{
	uint8_t mac[XFER_MAC_BYTES];
	unsigned int i;

	for (i = 0; i < XFER_IDENTITY_KEYS; i++) {
		if (make_mac(p, &identity->key[i], client_label, mac) < 0)
			return SCAN_REASON_FAILED;
		if (xfer_mac_equal(mac, p->request.mac))
			p->key = &identity->key[i];
	}
	return p->key != NULL ? SCAN_REASON_NONE : SCAN_REASON_KEY;
}

enum scan_reason
scan_proof_check(struct scan_proof *p, const struct scan_auth_request *m,
	const struct xfer_identity *identity, const struct xfer_endpoint *client,
	const struct xfer_endpoint *server, struct scan_answer *answer)
{
	enum scan_reason reason;

	p->request = *m;
	reason = find_key(p, identity);
	if (reason != SCAN_REASON_NONE)
		return reason;
	if (memcmp(&m->client, client, sizeof(*client)) != 0 ||
		memcmp(&m->server, server, sizeof(*server)) != 0 ||
		strcmp(m->identity, identity->name) != 0)
		return SCAN_REASON_KEY;
	if ((identity->rights & XFER_RIGHT_READ) == 0)
		return SCAN_REASON_RIGHTS;
	scan_msg_begin(answer, SCAN_ANSWER, sizeof(*answer), 0);
	return make_mac(p, p->key, server_label, answer->mac) < 0 ? SCAN_REASON_FAILED
								  : SCAN_REASON_NONE;
}

enum scan_reason
scan_proof_accept(struct scan_proof *p, const struct scan_answer *m)
{
	uint8_t mac[XFER_MAC_BYTES];

	if (make_mac(p, p->key, server_label, mac) < 0)
		return SCAN_REASON_FAILED;
	return xfer_mac_equal(mac, m->mac) ? SCAN_REASON_NONE : SCAN_REASON_KEY;
}

int
scan_proof_session(const struct scan_proof *p, uint8_t keys[2][XFER_MAC_BYTES])
{
	const int ret = make_mac(p, p->key, session_labels[0], keys[0]);

	return ret < 0 ? ret : make_mac(p, p->key, session_labels[1], keys[1]);
}
