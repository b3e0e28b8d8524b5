/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A receiver's connection at the store: authentication, schemas, reassigned batches, grant,
 * batches, results, end. The store's lcore polls all connections.
 */
#ifndef STORE_CONNECTION_H
#define STORE_CONNECTION_H

#include "xfer/desc.h"
#include "xfer/admission.h"
#include "xfer/auth.h"
#include "xfer/qp.h"
#include "xfer/mr.h"
#include "xfer/refusal_log.h"
#include "server/audit_log.h"
#include "io/bodies.h"
#include "io/body_check.h"
#include "stream/ended.h"
#include "server/keyring_reload.h"
#include "server/run.h"
#include "server/recovery_thread.h"

#define STORE_CONNECTIONS 64
#define STORE_SLOTS	  1024 /**< maximum slots of a connection */

enum store_connection_state {
	STORE_FREE,
	STORE_PROVING,	    /**< handshake and schemas */
	STORE_RX_INVENTORY, /**< receiving REASSIGNED and HELD */
	/**
	 * waiting for an older connection to end, and for the recovery: server/recovery_thread.h
	 */
	STORE_RECOVERING,
	STORE_TX_RESULTS, /**< sending INVENTORY */
	STORE_UP,
	STORE_ENDING, /**< END was received: the remaining results are sent first */
	/** ENDED or REFUSE was sent: waiting until the receiver disconnects or a timeout */
	STORE_LEAVING,
	STORE_CLOSING, /**< draining the queue pair; slots wait for their results */
	STORE_CONNECTION_STATES
};

/** @return name of a state, e.g. `authenticating` */
const char *store_connection_state_name(enum store_connection_state state);

/** Counters of all connections of a store. All but bytes_per_s only increase. */
struct store_counters {
	uint64_t requests;
	uint64_t granted;   /**< connections that were granted slots */
	uint64_t broken;    /**< part of `granted`: without an orderly end */
	uint64_t ended;	    /**< part of `granted`: with an orderly end */
	uint64_t abandoned; /**< connections that ended before the grant, without a reason */
	uint64_t superseded;
	uint64_t refused[XFER_REASONS];
	uint64_t fault[XFER_DESC_FAULTS]; /**< descriptors by fault; [0]: valid ones */
	uint64_t bytes;			  /**< bytes of bodies with a valid descriptor */
	uint64_t durable;
	uint64_t duplicates;
	uint64_t returned;
	uint64_t reassigned_refused; /**< REASSIGNED: run ended, or no right to it */
	uint64_t keys_removed;	    /**< connections ended because their key or right was removed */
	uint64_t cuts;		    /**< number of times that reassigned batches were removed */
	uint64_t batches_truncated; /**< batches removed then */
	uint64_t body_crc_errors;   /**< bodies received with a wrong CRC */
	uint64_t bodies_unreadable; /**< bodies that could not be read to check their CRC */
	uint64_t stored_damaged;    /**< batches that are damaged in the receiver's memory */
	uint64_t bytes_per_s;	    /**< bytes of bodies in the last second */
};

/** Data shared by all connections. */
struct store_shared {
	struct rdma_dev *dev;
	uint16_t poll_group;
	struct store_keys *keys;
	uint64_t node;	 /**< identity of the store's directory */
	uint64_t memory; /**< granted bytes for bodies per connection */
	uint64_t region; /**< maximum bytes of a registration */
	uint32_t heartbeat_ms;
	uint32_t silence_ms;
	uint32_t commit_ms;
	uint8_t addr[16];
	struct admission admission;
	struct refusal_limit warnings;
	struct store_audit audit;
	unsigned int nb_free; /**< free connections */
	struct store_bodies bodies;
	struct store_check check;
	struct store_runs runs;
	struct store_counters counters;
	bool stopping;
};

/** A batch whose body is being verified. */
struct store_checked {
	struct store_check_job job;
	struct stream_batch batch;
	bool checked; /**< false: not verified, only waiting for the batches before it */
};

/** A slot. */
struct store_slot {
	bool taken;
	uint8_t table;
};

struct store_connection {
	enum store_connection_state state;
	unsigned int index;
	uint64_t order; /**< sequence number of its request among all connections */
	struct store_shared *shared;
	struct rdma_conn *conn;
	/** of this connection only: rkeys of other connections are not valid here */
	struct rdma_pd *pd;
	struct xfer_qp link;
	bool link_is_open;
	bool established; /**< may send */
	/** reason of a refusal that waits until the connection is established */
	enum xfer_reason unsent;
	int admission; /**< slot of the admission control; -1: none */
	/** claimed identity; with keys until the authentication is done */
	struct xfer_identity identity;
	uint64_t fingerprint; /**< of the key that was used; 0: not authenticated yet */
	/** counters of the identity; NULL: not authenticated yet, or no space */
	struct store_audit_counts *counts;
	struct store_ended ended;
	struct xfer_auth handshake;
	struct xfer_endpoint peer;
	struct store_run *run; /**< owned from STORE_RECOVERING on */
	unsigned int moved_table;
	struct interval_set moved[XFER_TABLES];
	struct stream_contents moved_contents[XFER_TABLES];
	bool moved_all; /**< all REASSIGNED were received; HELD follows */
	unsigned int held_table;
	struct interval_set held[XFER_TABLES]; /**< batches that the peer would release */
	struct stream_contents held_contents[XFER_TABLES];
	/** damaged batches of `held`, until they are sent again */
	struct interval_set damaged[XFER_TABLES];
	struct store_recover settle;
	unsigned int have_table;
	size_t have_at;
	uint64_t sent; /**< messages */
	uint64_t received;
	uint64_t heard; /**< time of the last message, ms */
	uint64_t said;
	uint64_t deadline; /**< of STORE_RX_INVENTORY and STORE_LEAVING */
	enum xfer_state said_state;
	uint64_t session_id;
	uint64_t batches[XFER_TABLES]; /**< durable batches of this connection */
	/* rings */
	uint8_t *memory; /**< descriptors and their copies */
	uint64_t memory_size;
	struct rdma_mr *entries_mr;
	struct xfer_mr bodies_mr[XFER_TABLES];
	struct xfer_desc *entries; /**< written by the peer */
	uint8_t *copies;	   /**< copies of metadata, XFER_BLOCK bytes each */
	uint8_t *bodies;	   /**< host or GPU memory */
	uint64_t bodies_size;
	uint64_t body_place[XFER_TABLES]; /**< bytes */
	uint32_t nb_table[XFER_TABLES];
	uint32_t nb_slots;
	struct store_slot slot[STORE_SLOTS];
	struct xfer_stream stream[XFER_TABLES];
	uint32_t pending;			 /**< slots without a result */
	struct xfer_result results[STORE_SLOTS]; /**< results to be sent */
	uint32_t nb_results;
	/* batches that are being verified, in order of arrival */
	struct store_checked *checked; /**< array with one element per slot */
	uint32_t checked_head;
	uint32_t nb_checked;
	uint32_t unchecked;	   /**< since the last sample */
	uint64_t wrong_logged;	   /**< time of the last log message about such a body, ms */
	uint64_t corrupted_logged; /**< the same, if the receiver had checked its copy */
};

/**
 * Handle a connection request: accept or reject it. *Control.*
 * @param c  a free connection; NULL: none
 */
void store_connection_request(struct store_shared *s, struct store_connection *c,
	const struct rdma_event *event, uint64_t now);

/** Whether the requesting peer was authenticated before. Its request is then handled first. */
bool store_connection_knows(
	const struct store_shared *s, const struct rdma_event *event, uint64_t now);

/** Handle an event of an accepted connection. *Control.* */
void store_connection_event(struct store_connection *c, const struct rdma_event *event);

/** Poll the connection. @return true: something was done. *Control.* */
bool store_connection_poll(struct store_connection *c, uint64_t now);

/**
 * Whether the connection is closed, except that the device has not released its queue pair or its
 * memory yet. All its batches have results, and its threads have ended. *Control.*
 */
bool store_connection_waits_for_device(const struct store_connection *c);

/** Write the batches whose bodies are verified. @return true: there were some. *Control.* */
bool store_connection_take_checked(struct store_connection *c, uint64_t now);

/** Report the result of a batch of this connection. */
void store_connection_result(struct store_connection *c, uint32_t entry, uint64_t sequence,
	enum xfer_result_status status);

/**
 * Report that a batch is durable. If it replaces a damaged one, the audit log records this.
 */
void store_connection_repaired(struct store_connection *c, unsigned int table, uint64_t sequence);

/** The keyring has changed: end the connection if its identity, key or right was removed. */
void store_connection_keys_changed(struct store_connection *c);

/** The time that admission control allows has expired. */
void store_connection_late(struct store_connection *c);

/** End the connection, and send the reason if possible. */
void store_connection_refuse(struct store_connection *c, enum xfer_reason reason);

#endif /* STORE_CONNECTION_H */
