/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * How a receiver and a store prove to each other that they have the key of the receiver's identity:
 * a state machine of each end, of bytes in and bytes out, without transport, clock or threads.
 *
 *     receiver                                  store
 *     sink_handshake_call()   -- REQ -->        sink_handshake_answer()
 *     sink_handshake_open()   <-- REP --        sink_handshake_open()
 *     sink_handshake_send()   -- PROOF -->      sink_handshake_receive()
 *     sink_handshake_receive() <-- ANSWER --    sink_handshake_send()
 *     sink_handshake_send()   -- SCHEMA... -->  sink_handshake_receive()
 *     SINK_HANDSHAKE_DONE                       SINK_HANDSHAKE_DONE
 *
 * A proof is the HMAC of all that was said: private data of REQ and REP with the nonces of both,
 * both ends' addresses and queue pairs, role, identity, run, incarnation, sizes and fingerprints of
 * schemas. The answer is that of the same under another label, and the proof. So neither can be
 * replayed, sent back, or carried over to another connection. A store's handshake allocates nothing
 * before the proof.
 *
 * One thread at a time per handshake.
 */
#ifndef SINK_HANDSHAKE_H
#define SINK_HANDSHAKE_H

#include <stdbool.h>

#include "sink_identity.h"
#include "sink_wire.h"

enum sink_handshake_state {
	SINK_HANDSHAKE_NEW,
	SINK_HANDSHAKE_CALLED,	/**< receiver: REQ made */
	SINK_HANDSHAKE_HEARD,	/**< store: REQ good, REP made */
	SINK_HANDSHAKE_PROVING, /**< receiver: proof to be sent, answer awaited; store: proof
				   awaited */
	SINK_HANDSHAKE_SCHEMAS, /**< the peer has the key; schemas go over */
	SINK_HANDSHAKE_DONE,
	SINK_HANDSHAKE_FAILED, /**< reason says why */
};

/** A receiver's part; what is pointed to outlives the handshake. */
struct sink_offer {
	enum sink_role role;
	const char *identity; /**< whose key it is */
	uint64_t producer;
	uint64_t run;
	uint64_t incarnation;
	const char *name; /**< of the run */
	struct {
		const uint8_t *schema; /**< arrow_header_build() */
		uint32_t schema_bytes;
		uint64_t body_max; /**< bytes of the largest body, a multiple of SINK_BLOCK */
	} table[SINK_TABLES];
};

struct sink_handshake {
	enum sink_handshake_state state;
	enum sink_reason reason;
	bool told; /**< reason is what the peer has said */
	bool store;
	bool answer_due;
	const struct sink_key *key; /**< receiver: its own; store: that of the proof, then */
	const struct sink_identity *identity; /**< store: who says that it is */
	uint64_t deadline;		      /**< of the whole, in the caller's clock */
	struct sink_private receiver;	      /**< of REQ */
	struct sink_private answer;	      /**< of REP */
	struct sink_proof proof;	      /**< as sent, or as it came and was found right */
	struct sink_endpoint end[2];	      /**< receiver's, store's: as this side knows them */
	uint8_t *schema[SINK_TABLES];	      /**< store: table[].schema_bytes of the proof */
	const uint8_t *offer[SINK_TABLES];    /**< receiver */
	uint32_t table;			      /**< whose schema goes over, */
	uint32_t offset;		      /**< and where it is */
	uint64_t sent;			      /**< messages: the number of the next one */
	uint64_t received;
};

/**
 * Begin as receiver.
 * @return SINK_REASON_NONE: h->receiver is the private data of the REQ
 *   - SINK_REASON_MALFORMED: an offer that no store would take (name, sizes)
 *   - SINK_REASON_FAILED: no random numbers, no digest
 */
enum sink_reason sink_handshake_call(struct sink_handshake *h, const struct sink_key *key,
	const struct sink_offer *offer, uint64_t deadline);

/** The identity of a REQ that sink_handshake_answer() may yet find malformed. @return 0: none */
uint64_t sink_handshake_identity(const void *req, size_t size);

/**
 * Begin as store.
 * @param identity  of the REQ's sink_handshake_identity(); for one that nobody has, one with random
 *                  keys, so that it fails at the proof as a wrong key does. It outlives the
 *                  handshake.
 * @param req  private data of the request
 * @return SINK_REASON_NONE: h->answer is the private data of the REP; else that of the REJ
 */
enum sink_reason sink_handshake_answer(struct sink_handshake *h,
	const struct sink_identity *identity, uint64_t store, const void *req, size_t size,
	uint64_t deadline);

/**
 * The connection stands.
 * @param rep       receiver: private data of the REP; store: NULL
 * @param receiver  both ends as this side knows them
 */
enum sink_reason sink_handshake_open(struct sink_handshake *h, const void *rep, size_t size,
	const struct sink_endpoint *receiver, const struct sink_endpoint *store);

/**
 * The next message to be sent.
 * @param message  SINK_MESSAGE_MAX bytes, aligned to 8
 * @return its bytes; 0: none now
 */
size_t sink_handshake_send(struct sink_handshake *h, void *message);

/**
 * A message has come.
 * @param message  a copy that nobody else can write, aligned to 8
 * @return SINK_REASON_NONE, or why the connection must end: state is FAILED
 */
enum sink_reason sink_handshake_receive(struct sink_handshake *h, const void *message, size_t size);

/** Let time pass: one that is not done by its deadline has failed. @return whether it has */
bool sink_handshake_late(struct sink_handshake *h, uint64_t now);

/** Free schemas; forgets what was said. */
void sink_handshake_end(struct sink_handshake *h);

#endif /* SINK_HANDSHAKE_H */
