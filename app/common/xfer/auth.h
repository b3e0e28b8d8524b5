/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Mutual authentication of a receiver and a store with the key of the receiver's identity. Each end
 * is a state machine over messages, without transport, clock or threads.
 *
 *     receiver                                  store
 *     xfer_auth_call()   -- REQ -->        xfer_auth_answer()
 *     xfer_auth_open()   <-- REP --        xfer_auth_open()
 *     xfer_auth_send()   -- AUTH -->      xfer_auth_receive()
 *     xfer_auth_receive() <-- ANSWER --    xfer_auth_send()
 *     xfer_auth_send()   -- SCHEMA... -->  xfer_auth_receive()
 *     XFER_AUTH_DONE                       XFER_AUTH_DONE
 *
 * AUTH carries an HMAC of the whole exchange: the private data of REQ and REP with the nonces of
 * both ends, the addresses and queue pairs of both ends, role, identity, run, incarnation, and the
 * sizes and fingerprints of the schemas. ANSWER carries an HMAC of the same data and of the proof,
 * under another label. Neither can be replayed, reflected or moved to another connection. A store
 * allocates nothing for a handshake before it has verified the proof.
 *
 * Keys of the session, one for each direction, are HMACs of the same data under further labels.
 * All messages after AUTH and ANSWER, and all descriptors, have a MAC made with them (seal.h).
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
	XFER_AUTH_CALLED, /**< receiver: REQ built */
	XFER_AUTH_HEARD,  /**< store: REQ accepted, REP built */
	/** receiver: AUTH to be sent, then ANSWER expected; store: AUTH expected */
	XFER_AUTH_PROVING,
	XFER_AUTH_SCHEMAS, /**< the peer has the key; the schemas are transferred */
	XFER_AUTH_DONE,
	XFER_AUTH_FAILED, /**< `reason` is set */
};

/** The receiver's parameters. What it points to must outlive the handshake. */
struct xfer_offer {
	enum xfer_role role;
	const char *identity; /**< name of the identity whose key is used */
	uint64_t receiver_id;
	uint64_t run;
	uint64_t incarnation;
	const char *name; /**< name of the run */
	struct {
		const uint8_t *schema; /**< built by arrow_header_build() */
		uint32_t schema_bytes;
		uint64_t body_max; /**< size of the largest body, bytes; a multiple of XFER_BLOCK */
	} table[XFER_TABLES];
};

struct xfer_auth {
	enum xfer_auth_state state;
	enum xfer_reason reason;
	bool told; /**< `reason` was received from the peer */
	bool store;
	bool answer_due;
	/** receiver: its key; store: after AUTH, the key that it was made with */
	const struct xfer_key *key;
	const struct xfer_identity *identity; /**< store: the identity that the receiver claims */
	uint64_t deadline;		      /**< of the whole handshake, in the caller's clock */
	struct xfer_private receiver;	      /**< private data of the REQ */
	struct xfer_private answer;	      /**< private data of the REP */
	struct xfer_auth_request request;     /**< as sent, or as received and verified */
	struct xfer_endpoint end[2];	      /**< receiver, store: as this side knows them */
	/** store: table[].schema_bytes bytes of each table */
	uint8_t *schema[XFER_TABLES];
	const uint8_t *offer[XFER_TABLES]; /**< receiver: schemas to be sent */
	uint32_t table;			   /**< table whose schema is being transferred */
	uint32_t offset;		   /**< bytes of it that are done */
	uint64_t sent;			   /**< numbers of the next messages */
	uint64_t received;
};

/**
 * Start a handshake as the receiver.
 * @return XFER_REASON_NONE: h->receiver is the private data for the REQ
 *   - XFER_REASON_MALFORMED: the store would refuse the offer (name, sizes)
 *   - XFER_REASON_FAILED: libcrypto provided no random numbers or no digest
 */
enum xfer_reason xfer_auth_call(struct xfer_auth *h, const struct xfer_key *key,
	const struct xfer_offer *offer, uint64_t deadline);

/**
 * Read the identity from the private data of a REQ. xfer_auth_answer() may still find it malformed.
 * @return 0: none
 */
uint64_t xfer_auth_identity(const void *req, size_t size);

/**
 * Start a handshake as the store.
 * @param identity  the identity named by xfer_auth_identity() of the REQ. If no such identity
 *   exists, pass one with random keys: the handshake then fails at AUTH, as with a wrong key. It
 *   must outlive the handshake.
 * @param req  private data of the request
 * @return XFER_REASON_NONE: h->answer is the private data for the REP; otherwise the reason for the
 *   REJ
 */
enum xfer_reason xfer_auth_answer(struct xfer_auth *h, const struct xfer_identity *identity,
	uint64_t store, const void *req, size_t size, uint64_t deadline);

/**
 * Continue after the connection is established.
 * @param rep       receiver: private data of the REP; store: NULL
 * @param receiver  the receiver's end, as this side knows it
 * @param store     the store's end, as this side knows it
 */
enum xfer_reason xfer_auth_open(struct xfer_auth *h, const void *rep, size_t size,
	const struct xfer_endpoint *receiver, const struct xfer_endpoint *store);

/**
 * Build the next message to be sent.
 * @param message  XFER_MSG_MAX bytes, aligned to 8
 * @return its size in bytes; 0: nothing to send now
 */
size_t xfer_auth_send(struct xfer_auth *h, void *message);

/**
 * Process a received message.
 * @param message  a private copy that the peer cannot change, aligned to 8
 * @return XFER_REASON_NONE; otherwise the reason to end the connection, and the state is
 *   XFER_AUTH_FAILED
 */
enum xfer_reason xfer_auth_receive(struct xfer_auth *h, const void *message, size_t size);

/**
 * Get the keys of the MACs that follow the handshake. The receiver may call this after
 * xfer_auth_open(), the store once `key` is set.
 * @param keys  out: of what the receiver sends; of what the store sends
 * @return 0; -ENOMEM; -EIO (libcrypto)
 */
int xfer_auth_session(const struct xfer_auth *h, uint8_t keys[2][XFER_MAC_BYTES]);

/** Fail a handshake that is not done by its deadline. @return true: the handshake has failed */
bool xfer_auth_late(struct xfer_auth *h, uint64_t now);

/** Free the schemas and clear the state. */
void xfer_auth_end(struct xfer_auth *h);

#endif /* XFER_AUTH_H */
