/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef STORE_CLIENT_PRIVATE_H
#define STORE_CLIENT_PRIVATE_H

/**
 * @file
 * The store client from inside, and the functions that its parts share. The parts are
 *  - store_client.c: its work in each state, and the functions for its owner,
 *  - store_client_connection.c: the connection,
 *  - store_client_messages.c: messages to the store and from it,
 *  - store_client_inventory.c: which batches were reassigned, and which the store has,
 *  - store_client_batches.c: batches to remote slots, and their results,
 *  - store_client_writes.c: the WRITEs of a batch.
 *
 * The lcore of store_client.h calls all functions. A function that returns an enum xfer_reason
 * returns XFER_REASON_NONE, or the reason to close the connection.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "backoff.h"
#include "egress/store_client.h"
#include "interval_set.h"
#include "log.h"
#include "stream/content.h"
#include "xfer/auth.h"
#include "xfer/desc.h"
#include "xfer/msg.h"
#include "xfer/qp.h"

/** Log a message about the store. The source file registers `xfer` with LOG_REGISTER(). */
#define CLIENT_LOG(level, s, fmt, ...) \
	LOG_AT(RTE_LOG_##level, "store %s: " fmt "\n", store_client_name(s), ##__VA_ARGS__)

#define STORE_CLIENT_WINDOW   256 /**< maximum number of batches in flight */
#define STORE_CLIENT_STAGE    128 /**< bytes of a descriptor in flight, in its own cache lines */
#define STORE_CLIENT_NO_BATCH UINT32_MAX

/**
 * Interval of heartbeats while the store recovers. GRANT, which has that of the store, comes
 * later. A store whose process died does not acknowledge them, and the connection breaks after
 * about 2 s.
 */
#define STORE_CLIENT_HEARTBEAT_MS 500

/** FIFO of batches. */
struct store_client_queue {
	uint32_t *at;
	uint32_t head;
	uint32_t nb;
	uint32_t room; /**< a power of two */
};

/** The use of a remote slot. */
struct store_client_slot {
	uint32_t batch; /**< STORE_CLIENT_NO_BATCH: free */
	uint32_t stage;
};

struct store_client {
	struct store_client_config config;
	struct journal_run run;
	enum store_client_state state;
	struct xfer_auth handshake;
	struct xfer_qp link;
	struct rdma_conn *conn;
	bool link_is_open;
	bool closing; /**< the connection is to be closed */
	bool proved;  /**< the store's identity is proved: store_set_prove() */
	bool finish;
	struct backoff backoff; /**< ms */
	uint64_t down_since;
	/** State of this connection. Times are in ms of xfer_qp_clock(). */
	uint64_t messages_sent;
	uint64_t messages_received;
	uint64_t last_received_at;
	uint64_t last_sent_at;
	uint64_t heartbeat_ms; /**< send at least once in this time */
	uint64_t silence_ms;   /**< without a message for this time, the store is gone */
	struct stream_contents reassigned[XFER_TABLES];
	/** lists sent completely: REASSIGNED of each table, then HELD of each table */
	unsigned int lists_sent;
	size_t list_at; /**< number of batches of the current list already sent */
	bool all_lists_sent;
	bool state_reported; /**< by the store */
	/** batches that INVENTORY may report, as of the start of the exchange */
	struct interval_set held[XFER_TABLES];
	struct stream_contents held_contents[XFER_TABLES]; /**< the same batches, as sent */
	struct interval_set inventory[XFER_TABLES];	   /**< of these: the store has them */
	unsigned int inventory_table;
	uint64_t inventory_next; /**< lowest number of this table not reported yet */
	bool inventory_complete;
	uint64_t recovering_since; /**< ms: when the store's identity was known */
	uint64_t waiting_since;	   /**< ms: first INVENTORY; 0: none yet */
	struct xfer_slot *slot;
	struct store_client_slot *slot_use;
	uint32_t nb_slots;
	uint32_t *free_slot[XFER_TABLES];
	uint32_t nb_free[XFER_TABLES];
	uint32_t free_stage[STORE_CLIENT_WINDOW];
	uint32_t nb_free_stages;
	uint32_t writes; /**< WRITE requests in flight, for bodies and for descriptors */
	/** ms: the last result, or the last time that no batch waited for one */
	uint64_t progress_at;
	uint64_t bad_since; /**< ms: since when the store is not in a good state; 0: it is */
	bool stuck;	    /**< missing results were logged */
	bool slow;	    /**< the store syncs more slowly than expected, which was logged */
	uint64_t reading;   /**< of the key, for the next connection; 0: not asked for */
	enum xfer_reason refused_for; /**< the last reason to close a connection */
	uint32_t refusals;	      /**< ... in a row, since the last connection */
	bool forbidden;	  /**< the store refuses this receiver permanently, which was logged */
	bool down_logged; /**< it was logged that there was no connection for XFER_DOWN_MS */
	struct xfer_stream stream[XFER_TABLES];
	struct store_client_queue queue[XFER_TABLES];
	/** Bit masks of batches. */
	uint64_t pending[JOURNAL_BATCHES / 64]; /**< in a queue or a remote slot, never in two */
	/** the last body arrived with a wrong CRC: the copy is checked when it is sent again */
	uint64_t suspect[JOURNAL_BATCHES / 64];
	/** of these: the body arrived with a wrong CRC after such a check */
	uint64_t corrupted[JOURNAL_BATCHES / 64];
	uint32_t nb_corrupted;
	uint64_t corrupted_since;  /**< ms: since when there are any; 0: none */
	uint64_t resend_at;	   /**< ms: when some of them are sent again */
	uint32_t resend_next;	   /**< the batch with which they begin */
	uint64_t corrupted_logged; /**< ms: 0: never */
	struct store_client_stats stats;
};

static inline const char *
store_client_name(const struct store_client *s)
{
	return s->config.stores->at[s->config.at].name;
}

/** Return the number of its store in the journal. It may change while there is no connection. */
static inline unsigned int
store_client_number(const struct store_client *s)
{
	return (unsigned int)s->config.stores->at[s->config.at].number;
}

/** Return true if a batch of the journal belongs to this store client. */
static inline bool
store_client_owns(const struct store_client *s, const struct journal_batch *b)
{
	return b->held && b->run == s->config.run && b->owner == store_client_number(s);
}

/** Return true if no batch of an established connection waits to be sent or for its result. */
static inline bool
store_client_is_idle(const struct store_client *s)
{
	return s->queue[0].nb == 0 && s->queue[1].nb == 0 &&
		s->nb_free[0] + s->nb_free[1] == s->nb_slots;
}

/* ---- store_client_connection.c ---- */

void store_client_enter(struct store_client *s, enum store_client_state state);

/**
 * Have the key read again for the next connection.
 * @param now  ms
 * @return false: that has not ended yet
 */
bool store_client_has_key(struct store_client *s, uint64_t now);

/** Begin an attempt to connect. If it fails at once, the state stays STORE_CLIENT_DOWN. */
void store_client_connect(struct store_client *s);

/** Send the reason if that is still possible, and close the connection. */
void store_client_refuse(struct store_client *s, enum xfer_reason reason);

/**
 * Handle a refusal that the next attempt cannot change, after store_client_refuse(). Batches that
 * the store may have stay in doubt in the journal.
 */
void store_client_forbid(struct store_client *s, enum xfer_reason reason);

/** Enter the state without a connection, and retry later. @param why  as in the statistics */
void store_client_go_down(struct store_client *s, const char *why);

/** Tell the store set that this connection no longer needs the store's identity. */
void store_client_leave(struct store_client *s);

/** Drain the queue pair, then free its memory. @return true if all is freed */
bool store_client_close_link(struct store_client *s);

/** Free what belongs to one connection, except the queue pair. */
void store_client_forget_connection(struct store_client *s);

/* ---- store_client_messages.c ---- */

/** Send a heartbeat. */
void store_client_send_status(struct store_client *s);

/**
 * Send END, unless the journal still holds a batch of the run. If another store has proved to have
 * a batch that this store may have, too, connect again instead, to tell this store first.
 */
void store_client_send_end(struct store_client *s);

/** A message of the store has arrived: xfer_qp_ops.message. */
void store_client_on_message(void *arg, const void *message, uint32_t size);

/* ---- store_client_inventory.c ---- */

/**
 * Collect the batches that REASSIGNED and HELD report: reassigned or held ones. Called when the
 * store has proved its identity. Reads the bodies of those that are reassigned and still held.
 * @return 0; -ENOMEM
 */
int store_client_collect(struct store_client *s);

/** Send a part of REASSIGNED, then of HELD. */
void store_client_send_list(struct store_client *s);

/**
 * Take a part of INVENTORY. Only batches held here are recorded, because a store could report any
 * number of others.
 */
enum xfer_reason store_client_take_inventory(
	struct store_client *s, const struct xfer_intervals *m);

/** Called when the inventory is complete: release the batches that the store has. */
void store_client_release_found(struct store_client *s);

/* ---- store_client_batches.c ---- */

/** Accept the store's grant of remote slots, all of them free. */
enum xfer_reason store_client_take_slots(struct store_client *s, const struct xfer_grant *m);

/** Queue all batches that the journal assigns to this store, oldest first. @return 0; -ENOMEM */
int store_client_fill_queues(struct store_client *s);

/** Send the next batch of a table to a remote slot. @return true if one was sent */
bool store_client_send_batch(struct store_client *s, unsigned int table);

/** Take results of batches, and free their slots. */
enum xfer_reason store_client_take_results(struct store_client *s, const struct xfer_results *m);

/**
 * Queue some corrupted batches again, if it is time: their next slot, or the path meanwhile, may be
 * sound. Only a few at a time: each costs a check of the copy and the link, and most will arrive
 * wrong again.
 * @param now  ms
 */
void store_client_resend_corrupted(struct store_client *s, uint64_t now);

/** Remove queued batches that have been reassigned meanwhile, up to the first one that has not. */
void store_client_drop_reassigned(struct store_client *s);

/** Release a durable batch in the journal and inform the owner. */
void store_client_release(struct store_client *s, uint32_t batch, enum xfer_result_status status);

/* ---- store_client_writes.c ---- */

/**
 * Maximum number of WRITEs in flight. A body of the most parts fits: most of its WRITEs gather as
 * many parts as the device can, and some are shorter.
 */
uint32_t store_client_writes_max(const struct store_client_config *c);

/** @return number of WRITEs of a body; its parts are in the journal */
uint32_t store_client_count_writes(
	const struct store_client *s, const struct iovec *part, uint32_t nb_parts);

/** Write a body to a remote slot. @return 0 or -errno of xfer_qp_write() */
int store_client_write_body(struct store_client *s, const struct iovec *part, uint32_t nb_parts,
	const struct xfer_slot *slot);

/**
 * Write the descriptor, followed by the metadata from the journal, and announce the batch.
 * @param descriptor  in a stage of the queue pair
 * @param number  of the slot
 * @param writes  requests of the batch, of which this is the last one
 * @return 0 or -errno of xfer_qp_write()
 */
int store_client_write_entry(struct store_client *s, const struct xfer_descriptor *descriptor,
	const struct journal_batch *b, const struct xfer_slot *slot, uint32_t number,
	uint32_t writes);

#endif /* STORE_CLIENT_PRIVATE_H */
