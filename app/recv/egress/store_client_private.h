/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef STORE_CLIENT_PRIVATE_H
#define STORE_CLIENT_PRIVATE_H

/**
 * @file
 * Internal interface of the store client: store_client.c (the connection and its states),
 * store_client_sync.c (reassigned batches and the store's inventory) and store_client_tx.c (batches
 * to remote slots, and their results).
 */

#include <rte_log.h>

#include "interval_set.h"
#include "xfer/desc.h"
#include "xfer/auth.h"
#include "xfer/qp.h"
#include "xfer/msg.h"
#include "egress/store_client.h"

extern int store_client_logtype;

#define CLIENT_LOG(level, s, fmt, ...)                                              \
	rte_log(RTE_LOG_##level, store_client_logtype, "xfer: store %s: " fmt "\n", \
		store_client_name(s), ##__VA_ARGS__)

#define WINDOW	 256	      /* maximum number of batches in flight */
#define WRITES	 (2 * WINDOW) /* WRITE requests for pieces of bodies and for descriptors */
#define STAGE	 128	      /* bytes of a descriptor in flight, in its own cache lines */
#define NO_BATCH UINT32_MAX

/* FIFO of batches. */
struct queue {
	uint32_t *at;
	uint32_t head;
	uint32_t nb;
	uint32_t room; /* a power of two */
};

/* A remote slot in use. */
struct used {
	uint32_t batch; /* NO_BATCH: free */
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
	bool closing; /* the connection is to be closed */
	bool proved;  /* the store's identity is proved: store_set_prove() */
	bool finish;
	uint64_t retry_at; /* ms */
	uint64_t back_off;
	uint64_t down_since;
	/* State of this connection. */
	uint64_t sent; /* messages sent */
	uint64_t received;
	uint64_t heard; /* ms */
	uint64_t said;
	uint64_t heartbeat;
	uint64_t silence;
	struct interval_set moved[XFER_TABLES];
	unsigned int told; /* progress of REASSIGNED and HELD: `moved` of each table, then `mine` */
	size_t logged_at;  /* intervals of the current one already sent */
	bool all_sent;
	bool said_how; /* the store has reported its state */
	/* sent as HELD: batches that INVENTORY may report, as of the start of the exchange */
	struct interval_set mine[XFER_TABLES];
	struct interval_set have[XFER_TABLES]; /* the part of it that the store has */
	unsigned int have_table;
	uint64_t have_next; /* lowest number of this table not reported yet */
	bool have_all;
	uint64_t recovering_since; /* ms: when the store's identity was known */
	uint64_t waiting_since;	   /* ms: first INVENTORY; 0: none yet */
	struct xfer_slot *place;
	struct used *used;
	uint32_t nb_places;
	uint32_t *free_place[XFER_TABLES];
	uint32_t nb_free[XFER_TABLES];
	uint32_t free_stage[WINDOW];
	uint32_t nb_free_stages;
	uint32_t writes; /* WRITE requests in flight */
	/* ms: the last result, or the last time that no batch waited for one */
	uint64_t progress_at;
	uint64_t bad_since; /* ms: since when the store is not in a good state; 0: it is */
	bool stuck;	    /* missing results were logged */
	bool slow;	    /* the store syncs more slowly than expected, which was logged */
	bool key_mistake;   /* the key file cannot be read, which was logged */
	bool forbidden;	    /* the store refuses this receiver for good, which was logged */
	bool unpaired;	    /* it was logged that there was no connection for XFER_STUCK_MS */
	struct xfer_stream stream[XFER_TABLES];
	struct queue queue[XFER_TABLES];
	uint64_t here[JOURNAL_BATCHES / 64]; /* bit mask of batches in a queue or a remote slot */
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

/* ---- store_client_sync.c ---- */

/**
 * Collect the batches that REASSIGNED and HELD report: reassigned or held ones. Called when the
 * store has proved its identity. @return 0; -ENOMEM
 */
int store_client_collect(struct store_client *s);

/** Send a part of REASSIGNED, then of HELD. */
void store_client_tell(struct store_client *s);

/** Process a part of the store's inventory (INVENTORY). */
enum xfer_reason store_client_take_inventory(
	struct store_client *s, const struct xfer_intervals *m);

/** Called when the inventory is complete: release the batches that the store has. */
void store_client_release_found(struct store_client *s);

/* ---- store_client.c ---- */

/** Check that an established connection returns results. */
void store_client_watch_results(struct store_client *s, uint64_t now);

/** Check that there is a connection. */
void store_client_watch_connection(struct store_client *s, uint64_t now);

/* ---- store_client_tx.c ---- */

/** Return true if a batch of the journal belongs to this store client. */
bool store_client_owns(const struct store_client *s, const struct journal_batch *b);

/** Queue all batches that the journal assigns to this store, oldest first. @return 0; -ENOMEM */
int store_client_fill_queues(struct store_client *s);

/** Release a durable batch in the journal and inform the owner. */
void store_client_release(struct store_client *s, uint32_t batch, enum xfer_result_status status);

/** Accept the store's grant of remote slots, all of them free. */
enum xfer_reason store_client_take_places(struct store_client *s, const struct xfer_grant *m);

enum xfer_reason store_client_take_results(struct store_client *s, const struct xfer_results *m);

/** Send the next batch of a table to a remote slot. @return true if one was sent */
bool store_client_send_batch(struct store_client *s, unsigned int table);

/** Remove queued batches that have been reassigned meanwhile, up to the first one that has not. */
void store_client_forget_moved(struct store_client *s);

/** Return true if no batch of an established connection waits to be sent or for its result. */
bool store_client_is_idle(const struct store_client *s);

#endif /* STORE_CLIENT_PRIVATE_H */
