/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Mutual authentication of a client and a query server with the key of the user's identity. It
 * is that of stores (xfer/auth.h) with other messages and labels. No transport, clock or threads.
 *
 *     client                                 server
 *     scan_proof_call()   -- REQ -->    scan_proof_hear()
 *     scan_proof_claim()  <-- REP --
 *                         -- AUTH -->   scan_proof_check()
 *     scan_proof_accept() <-- ANSWER --
 *
 * AUTH carries an HMAC of the private data of REQ and REP with the nonces of both ends, of the
 * addresses and queue pairs of both ends, and of the identity. ANSWER carries an HMAC of the same
 * data and of the first proof, under another label. Keys of the session, one for each direction,
 * are HMACs of the same data under further labels.
 *
 * One thread at a time.
 */
#ifndef SCAN_PROOF_H
#define SCAN_PROOF_H

#include "remote/wire.h"
#include "xfer/identity.h"

struct scan_proof {
	struct scan_private call;   /**< private data of the REQ */
	struct scan_private answer; /**< private data of the REP */
	struct scan_auth_request request;
	const struct xfer_key *key;
};

/** Client: build the private data of the REQ, p->call. @param key  must outlive the proof */
enum scan_reason scan_proof_call(
	struct scan_proof *p, const char *identity, const struct xfer_key *key);

/** Server: check the private data of a REQ, and build that of the REP, p->answer. */
enum scan_reason scan_proof_hear(struct scan_proof *p, const void *req, size_t size);

/** Client: check the private data of the REP, and build AUTH, p->request. */
enum scan_reason scan_proof_claim(struct scan_proof *p, const void *rep, size_t size,
	const struct xfer_endpoint *client, const struct xfer_endpoint *server);

/**
 * Server: check AUTH, and build ANSWER.
 * @param m         checked by scan_msg_check()
 * @param identity  that of the REQ; its keys must outlive the proof
 * @param client, server  ends as the server knows them
 */
enum scan_reason scan_proof_check(struct scan_proof *p, const struct scan_auth_request *m,
	const struct xfer_identity *identity, const struct xfer_endpoint *client,
	const struct xfer_endpoint *server, struct scan_answer *answer);

/** Client: check ANSWER. */
enum scan_reason scan_proof_accept(struct scan_proof *p, const struct scan_answer *m);

/**
 * Get the keys of codes.
 * @param keys  out: of what the client sends; of what the server sends
 * @return 0; -ENOMEM; -EIO (libcrypto)
 */
int scan_proof_session(const struct scan_proof *p, uint8_t keys[2][XFER_MAC_BYTES]);

#endif /* SCAN_PROOF_H */
