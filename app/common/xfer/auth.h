/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * How a receiver and a store prove to each other that they have the key of the receiver's identity:
 * a state machine of each end, of bytes in and bytes out, without transport, clock or threads.
 *
 *     receiver                                  store
 *     xfer_auth_call()   -- REQ -->        xfer_auth_answer()
 *     xfer_auth_open()   <-- REP --        xfer_auth_open()
 *     xfer_auth_send()   -- PROOF -->      xfer_auth_receive()
 *     xfer_auth_receive() <-- ANSWER --    xfer_auth_send()
 *     xfer_auth_send()   -- SCHEMA... -->  xfer_auth_receive()
 *     XFER_AUTH_DONE                       XFER_AUTH_DONE
 *
 * A proof is the HMAC of all that was said: private data of REQ and REP with the nonces of both,
 * both ends' addresses and queue pairs, role, identity, run, incarnation, sizes and fingerprints of
 * schemas. The answer is that of the same under another label, and the proof. So neither can be
 * replayed, sent back, or carried over to another connection. A store's handshake allocates nothing
 * before the proof.
 *
 * One thread at a time per handshake.
 */
#ifndef XFER_AUTH_H
#define XFER_AUTH_H

#include <stdbool.h>

#include "xfer/identity.h"
#include "xfer/proto.h"

enum xfer_auth_state {
	XFER_AUTH_NEW,
	XFER_AUTH_CALLED,  /**< receiver: REQ made */
	XFER_AUTH_HEARD,   /**< store: REQ good, REP made */
	XFER_AUTH_PROVING, /**< receiver: proof to be sent, answer awaited; store: proof
				   awaited */
	XFER_AUTH_SCHEMAS, /**< the peer has the key; schemas go over */
	XFER_AUTH_DONE,
	XFER_AUTH_FAILED, /**< reason says why */
};

/** A receiver's part; what is pointed to outlives the handshake. */
struct xfer_offer {
	enum xfer_role role;
	const char *identity; /**< whose key it is */
	uint64_t producer;
	uint64_t run;
	uint64_t incarnation;
	const char *name; /**< of the run */
	struct {
		const uint8_t *schema; /**< arrow_header_build() */
		uint32_t schema_bytes;
		uint64_t body_max; /**< bytes of the largest body, a multiple of XFER_BLOCK */
	} table[XFER_TABLES];
};

struct xfer_auth {
	enum xfer_auth_state state;
	enum xfer_reason reason;
	bool told; /**< reason is what the peer has said */
	bool store;
	bool answer_due;
	const struct xfer_key *key; /**< receiver: its own; store: that of the proof, then */
	const struct xfer_identity *identity; /**< store: who says that it is */
	uint64_t deadline;		      /**< of the whole, in the caller's clock */
	struct xfer_private receiver;	      /**< of REQ */
	struct xfer_private answer;	      /**< of REP */
	struct xfer_proof proof;	      /**< as sent, or as it came and was found right */
	struct xfer_endpoint end[2];	      /**< receiver's, store's: as this side knows them */
	uint8_t *schema[XFER_TABLES];	      /**< store: table[].schema_bytes of the proof */
	const uint8_t *offer[XFER_TABLES];    /**< receiver */
	uint32_t table;			      /**< whose schema goes over, */
	uint32_t offset;		      /**< and where it is */
	uint64_t sent;			      /**< messages: the number of the next one */
	uint64_t received;
};

/**
 * Begin as receiver.
 * @return XFER_REASON_NONE: h->receiver is the private data of the REQ
 *   - XFER_REASON_MALFORMED: an offer that no store would take (name, sizes)
 *   - XFER_REASON_FAILED: no random numbers, no digest
 */
enum xfer_reason xfer_auth_call(struct xfer_auth *h, const struct xfer_key *key,
	const struct xfer_offer *offer, uint64_t deadline);

/** The identity of a REQ that xfer_auth_answer() may yet find malformed. @return 0: none */
uint64_t xfer_auth_identity(const void *req, size_t size);

/**
 * Begin as store.
 * @param identity  of the REQ's xfer_auth_identity(); for one that nobody has, one with random
 *                  keys, so that it fails at the proof as a wrong key does. It outlives the
 *                  handshake.
 * @param req  private data of the request
 * @return XFER_REASON_NONE: h->answer is the private data of the REP; else that of the REJ
 */
enum xfer_reason xfer_auth_answer(struct xfer_auth *h, const struct xfer_identity *identity,
	uint64_t store, const void *req, size_t size, uint64_t deadline);

/**
 * The connection stands.
 * @param rep       receiver: private data of the REP; store: NULL
 * @param receiver  both ends as this side knows them
 */
enum xfer_reason xfer_auth_open(struct xfer_auth *h, const void *rep, size_t size,
	const struct xfer_endpoint *receiver, const struct xfer_endpoint *store);

/**
 * The next message to be sent.
 * @param message  XFER_MSG_MAX bytes, aligned to 8
 * @return its bytes; 0: none now
 */
size_t xfer_auth_send(struct xfer_auth *h, void *message);

/**
 * A message has come.
 * @param message  a copy that nobody else can write, aligned to 8
 * @return XFER_REASON_NONE, or why the connection must end: state is FAILED
 */
enum xfer_reason xfer_auth_receive(struct xfer_auth *h, const void *message, size_t size);

/** Let time pass: one that is not done by its deadline has failed. @return whether it has */
bool xfer_auth_late(struct xfer_auth *h, uint64_t now);

/** Free schemas; forgets what was said. */
void xfer_auth_end(struct xfer_auth *h);

#endif /* XFER_AUTH_H */
