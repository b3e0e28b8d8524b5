/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hostile peers of a store, which send and write what a receiver would not. Each has its own
 * connection, and a key where the test needs one.
 */
#ifndef XFER_HOSTILE_PEER_H
#define XFER_HOSTILE_PEER_H

#include "xfer/auth.h"
#include "xfer/qp.h"
#include "xfer/msg.h"
#include "../xfer/xfer_sample.h"

#define PEERS		 24
#define PEER_RECEIVER_ID 666
#define PEER_RUN	 13
#define PEER_SLOTS	 1024	    /* slots, the largest number that a store grants */
#define PEER_ROOM	 (1u << 20) /* bytes of bodies: valid ones, followed by others */

struct peer {
	struct xfer_qp link;
	bool link_is_open;
	struct rdma_conn *conn;
	struct xfer_auth handshake;
	bool mute;	  /* sends only what the test sends */
	bool withholds;	  /* sends what a receiver sends, except REASSIGNED */
	bool deaf;	  /* posts no receives */
	bool established; /* connection established */
	bool gone;
	bool granted;
	enum xfer_reason refused; /* reason of a REJ or REFUSE */
	uint64_t sent;
	uint64_t durable; /* results received */
	uint64_t duplicates;
	bool ended;
	unsigned int written; /* number of entries written: selects where the next one is staged */
	struct xfer_grant grant;
	struct xfer_region region[3];
	struct xfer_slot slot[PEER_SLOTS];
	uint32_t nb_slots;
	struct xfer_stream stream[XFER_TABLES];
};

/* Common to all peers. */
struct peers {
	struct rdma_dev *dev;
	struct rdma_pd *pd;
	struct sockaddr_storage store;
	const struct xfer_key *key;
	/* identity of the next peer; set by peers_open() and changed by tests */
	const char *identity;
	const char *name; /* name of the run */
	uint64_t receiver_id;
	uint64_t run;
	uint64_t incarnation; /* 0: the peer's number */
	const struct xfer_sample *sample;
	uint8_t *schema[XFER_TABLES];
	uint32_t schema_bytes[XFER_TABLES];
	uint64_t body_max[XFER_TABLES];
};

extern struct peer peer[PEERS];
extern struct peers peers;

/* @param store  IPv4 address of the store */
void peers_open(struct rdma_dev *dev, uint32_t store, const struct xfer_key *key,
	const struct xfer_sample *sample);

/* Poll all peers once. */
void peers_turn(void);

/* Close the peers after all of them hung up. @return false: call again after the next turn */
bool peers_close(void);

/*
 * Connect as peer i, with incarnation i. Set its fields before the next turn. @param req  private
 * data of the request; NULL: valid data
 */
struct peer *peer_call(unsigned int i, const struct xfer_private *req);

/* Disconnect; may be called repeatedly. @return false: call again after the next turn */
bool peer_hang_up(struct peer *p);

/* Send a message. It may have been built in the buffer that the link returned last. */
void peer_say(struct peer *p, const void *message, size_t size);

/*
 * Send a list of batches, `nb` of a table from `first` on, with the CRCs that peer_entry() gives
 * them.
 */
void peer_lists(struct peer *p, enum xfer_type type, uint16_t flags, unsigned int table,
	uint64_t first, uint64_t nb);

/* Send HELD with `nb` batches of `frames` from `first` on. */
void peer_holds(struct peer *p, uint64_t first, uint64_t nb);

/* Send a heartbeat, as a receiver does while a store waits for its disk. @return true */
bool peer_alive(struct peer *p);

/*
 * Make the entry of batch k of the sample under the peer's own identity, as a correct receiver
 * would.
 */
struct xfer_desc *peer_entry(struct peer *p, unsigned int table, unsigned int k, uint32_t slot);

void peer_write_at(struct peer *p, const void *from, uint64_t bytes, uint64_t addr, uint32_t rkey);

/* Write the body of the entry made last. */
void peer_write_body(struct peer *p, uint32_t slot, uint64_t bytes);

/* Write an entry to a slot. `imm` may name another slot. */
void peer_write_entry(struct peer *p, uint32_t slot, uint32_t imm, const struct xfer_desc *entry);

void peer_write_nothing(struct peer *p, uint32_t imm);

#endif /* XFER_HOSTILE_PEER_H */
