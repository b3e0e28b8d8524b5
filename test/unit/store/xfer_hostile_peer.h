/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers of a store that say and write what a receiver would not: each over a connection of its own,
 * by whoever has the key where the key is needed.. */
#ifndef XFER_HOSTILE_PEER_H
#define XFER_HOSTILE_PEER_H

#include "xfer/auth.h"
#include "xfer/qp.h"
#include "xfer/msg.h"
#include "../xfer/xfer_sample.h"

#define PEERS		 24
#define PEER_RECEIVER_ID 666
#define PEER_RUN	 13
#define PEER_PLACES	 1024	    /* that a store grants at most */
#define PEER_ROOM	 (1u << 20) /* bytes of bodies: good ones, and behind them others */

struct peer {
	struct xfer_qp link;
	bool link_is_open;
	struct rdma_conn *conn;
	struct xfer_auth handshake;
	bool mute;	  /* says nothing but what the test says */
	bool withholds;	  /* says what a receiver does, but not REASSIGNED */
	bool deaf;	  /* has room for no message */
	bool established; /* by the CM */
	bool gone;
	bool granted;
	enum xfer_reason refused; /* by REJ or REFUSE */
	uint64_t sent;
	uint64_t durable; /* results */
	uint64_t duplicates;
	bool ended;
	unsigned int written; /* entries: where the next one is staged */
	struct xfer_grant grant;
	struct xfer_region region[3];
	struct xfer_slot place[PEER_PLACES];
	uint32_t nb_places;
	struct xfer_stream stream[XFER_TABLES];
};

/* What they share. */
struct peers {
	struct rdma_dev *dev;
	struct rdma_pd *pd;
	struct sockaddr_storage store;
	const struct xfer_key *key;
	/* what the next one says that it is; peers_open() sets them to its own */
	const char *identity;
	const char *name; /* of the run */
	uint64_t receiver_id;
	uint64_t run;
	uint64_t incarnation; /* 0: its number */
	const struct xfer_sample *sample;
	uint8_t *schema[XFER_TABLES];
	uint32_t schema_bytes[XFER_TABLES];
	uint64_t body_max[XFER_TABLES];
};

extern struct peer peer[PEERS];
extern struct peers peers;

/* @param store  its IPv4 address */
void peers_open(struct rdma_dev *dev, uint32_t store, const struct xfer_key *key,
	const struct xfer_sample *sample);

/* Let all of them go on a bit. */
void peers_turn(void);

/* When all have hung up. @return false: not now, after another turn */
bool peers_close(void);

/* Ask for a connection as peer i, of an incarnation of that number; what it is to be is
 * set before the next turn. @param req  NULL: a good one */
struct peer *peer_call(unsigned int i, const struct xfer_private *req);

/* @return false: not yet, after another turn. It may have been done before */
bool peer_hang_up(struct peer *p);

/* Send a message, which may have been made in the last room of the link. */
void peer_say(struct peer *p, const void *message, size_t size);

/* Say which batches of frames it holds, and no more of that. */
void peer_holds(struct peer *p, uint64_t first, uint64_t nb);

/* As a receiver says while a store waits for its disk. @return true */
bool peer_alive(struct peer *p);

/* Batch k of the sample under the peer's own identity, as a decent receiver would announce it. */
struct xfer_desc *peer_entry(struct peer *p, unsigned int table, unsigned int k, uint32_t place);

void peer_write_at(struct peer *p, const void *from, uint64_t bytes, uint64_t addr, uint32_t rkey);

/* That of the last entry that was made. */
void peer_write_body(struct peer *p, uint32_t place, uint64_t bytes);

/* `imm` need not be the place that is written. */
void peer_write_entry(struct peer *p, uint32_t place, uint32_t imm, const struct xfer_desc *entry);

void peer_write_nothing(struct peer *p, uint32_t imm);

#endif /* XFER_HOSTILE_PEER_H */
