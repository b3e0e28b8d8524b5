/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A receiver's connection as the store has it: proof, schemas, what went elsewhere, grant, batches,
 * results, end. The store's lcore polls all of them.
 */
#ifndef STORE_CONNECTION_H
#define STORE_CONNECTION_H

#include "xfer/desc.h"
#include "server/admission.h"
#include "xfer/auth.h"
#include "xfer/qp.h"
#include "xfer/mr.h"
#include "server/audit_log.h"
#include "io/bodies.h"
#include "io/body_check.h"
#include "stream/ended.h"
#include "server/keyring_reload.h"
#include "server/run.h"
#include "server/recovery_thread.h"

#define STORE_CONNECTIONS 64
#define STORE_PLACES	  1024 /**< of a connection, at most */

enum store_connection_state {
	STORE_FREE,
	STORE_PROVING,	/**< handshake, schemas */
	STORE_HEARING,	/**< MOVED */
	STORE_SETTLING, /**< an older connection ends; server/recovery_thread.h */
	STORE_TELLING,	/**< HAVE */
	STORE_UP,
	STORE_ENDING,  /**< END has come: results first */
	STORE_LEAVING, /**< ENDED or REFUSE is out: the receiver disconnects, or time does */
	STORE_CLOSING, /**< the queue pair drains; places wait for their results */
	STORE_CONNECTION_STATES
};

/** @return `proving`, ... */
const char *store_connection_state_name(enum store_connection_state state);

/** Counters of all connections of a store; all but bytes_per_s only grow. */
struct store_counters {
	uint64_t requests;
	uint64_t stood;	    /**< connections that were granted places */
	uint64_t broken;    /**< of them, without an orderly end */
	uint64_t ended;	    /**< of them, with one */
	uint64_t abandoned; /**< that went before they stood, and nobody said why */
	uint64_t superseded;
	uint64_t refused[XFER_REASONS];
	uint64_t fault[XFER_DESC_FAULTS]; /**< entries, by what was wrong; [0]: good ones */
	uint64_t bytes;			  /**< of bodies of good entries */
	uint64_t durable;
	uint64_t doubles;
	uint64_t again;
	uint64_t moved_refused;	  /**< MOVEDs of runs that have ended, or without the right */
	uint64_t keys_removed;	  /**< connections ended, as their keys or rights went */
	uint64_t cuts;		  /**< times that batches went, because they are elsewhere */
	uint64_t batches_cut;	  /**< those */
	uint64_t body_crc_errors; /**< bodies that arrived with a wrong CRC */
	uint64_t stored_damaged;  /**< batches that were stored although: io/body_check.h */
	uint64_t bytes_per_s;	  /**< of bodies, in the last second */
};

/** What all connections have in common. */
struct store_shared {
	struct rdma_dev *dev;
	uint16_t lane;
	struct store_keys *keys;
	uint64_t node;	 /**< who this is: the identity of the directory */
	uint64_t memory; /**< bytes of bodies that a connection is granted */
	uint64_t region; /**< bytes of one registration, at most */
	uint32_t heartbeat_ms;
	uint32_t silence_ms;
	uint32_t commit_ms;
	uint8_t addr[16];
	struct admission gate;
	struct store_warnings warnings;
	struct store_audit audit;
	unsigned int nb_free; /**< connections */
	struct store_bodies bodies;
	struct store_check check;
	struct store_runs runs;
	struct store_counters counters;
	bool stopping;
};

/** A batch whose body is looked at. */
struct store_checked {
	struct store_check_job job;
	struct stream_batch batch;
	bool checked; /**< false: it waits for those before it only */
};

/** A place of the rings. */
struct store_place {
	bool taken;
	uint8_t table;
};

struct store_connection {
	enum store_connection_state state;
	unsigned int index;
	uint64_t order; /**< of its request among all of them */
	struct store_shared *shared;
	struct rdma_conn *conn;
	struct rdma_pd *pd; /**< its own: an rkey of another connection's is worth nothing here */
	struct xfer_qp link;
	bool link_is_open;
	bool established;	       /**< may send */
	int gate;		       /**< place there; -1: none */
	struct xfer_identity identity; /**< that the peer says it is; keys until it has proved it */
	uint64_t fingerprint;	       /**< of the key of the proof; 0: none yet */
	struct store_audit_counts *counts; /**< of the identity; NULL: no proof yet, or no room */
	struct store_ended ended;
	struct xfer_auth handshake;
	struct xfer_endpoint peer;
	struct store_run *run; /**< that is its own, from STORE_SETTLING on */
	unsigned int moved_table;
	struct interval_set moved[XFER_TABLES];
	bool moved_all; /**< HELD follows */
	unsigned int held_table;
	struct interval_set held[XFER_TABLES];	 /**< that the peer would release */
	struct interval_set rotten[XFER_TABLES]; /**< of these, damaged: until they come again */
	struct store_settle settle;
	unsigned int have_table;
	size_t have_at;
	uint64_t sent; /**< messages */
	uint64_t received;
	uint64_t heard; /**< ms */
	uint64_t said;
	uint64_t deadline; /**< of STORE_HEARING, STORE_LEAVING */
	enum xfer_state said_state;
	uint64_t session_id;
	uint64_t batches[XFER_TABLES]; /**< durable, of this connection */
	/* rings */
	uint8_t *memory; /**< entries, their copies */
	uint64_t memory_size;
	struct rdma_mr *entries_mr;
	struct xfer_mr bodies_mr[XFER_TABLES];
	struct xfer_desc *entries; /**< that the peer writes */
	uint8_t *copies;	   /**< of metadata: XFER_BLOCK each */
	uint8_t *bodies;	   /**< of the host or of a GPU */
	uint64_t bodies_size;
	uint64_t body_place[XFER_TABLES]; /**< bytes */
	uint32_t nb_table[XFER_TABLES];
	uint32_t nb_places;
	struct store_place place[STORE_PLACES];
	struct xfer_stream stream[XFER_TABLES];
	uint32_t pending;			  /**< places without a result */
	struct xfer_result results[STORE_PLACES]; /**< that are to be sent */
	uint32_t nb_results;
	/* batches that are being checked, in the order in which they came */
	struct store_checked *checked; /**< as many as there are places */
	uint32_t checked_head;
	uint32_t nb_checked;
	uint32_t unchecked; /**< since the last sample */
	struct store_wrongs wrongs;
	uint64_t wrong_said; /**< ms: when the last one was logged */
};

/**
 * Somebody asks: answer, and accept or reject. *Control.*
 * @param c  a free one; NULL: there is none
 */
void store_connection_request(struct store_shared *s, struct store_connection *c,
	const struct rdma_event *event, uint64_t now);

/** Whether who asks has proved itself before: it is answered first. */
bool store_connection_knows(
	const struct store_shared *s, const struct rdma_event *event, uint64_t now);

/** An event of a connection that was accepted. *Control.* */
void store_connection_event(struct store_connection *c, const struct rdma_event *event);

/** Let it go on. @return something was done. *Control.* */
bool store_connection_poll(struct store_connection *c, uint64_t now);

/** Write the batches whose bodies have been checked. @return there were some. *Control.* */
bool store_connection_take_checked(struct store_connection *c, uint64_t now);

/** A batch of this connection has its result. */
void store_connection_result(struct store_connection *c, uint32_t entry, uint64_t sequence,
	enum xfer_result_status status);

/** A batch is durable: if a damaged one was there before, that goes into the audit log. */
void store_connection_repaired(struct store_connection *c, unsigned int table, uint64_t sequence);

/** The keyring has changed: end it if its identity, key or rights went. */
void store_connection_keys_changed(struct store_connection *c);

/** The gate has no time left for it. */
void store_connection_late(struct store_connection *c);

/** End it: say why, if that can still be said. */
void store_connection_refuse(struct store_connection *c, enum xfer_reason reason);

#endif /* STORE_CONNECTION_H */
