/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef STORE_CLIENT_PRIVATE_H
#define STORE_CLIENT_PRIVATE_H

/**
 * @file
 * What the parts of a sender share: store_client.c (the connection and its states),
 * store_client_inventory.c (what went elsewhere, what the store has) and store_client_batches.c
 * (batches into places of the store's, and their results).
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

#define WINDOW	 256	      /* batches on their way, at most */
#define WRITES	 (2 * WINDOW) /* of bodies' pieces and of entries */
#define STAGE	 128	      /* bytes of a descriptor on its way, in cache lines of its own */
#define NO_BATCH UINT32_MAX

/* Batches in a row. */
struct queue {
	uint32_t *at;
	uint32_t head;
	uint32_t nb;
	uint32_t room; /* a power of two */
};

/* A place of the store's that is in use. */
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
	bool closing; /* the link is to be closed */
	bool proved;  /* who the store is: store_set_prove() */
	bool finish;
	uint64_t retry_at; /* ms */
	uint64_t back_off;
	uint64_t down_since;
	/* of this connection */
	uint64_t sent; /* messages */
	uint64_t received;
	uint64_t heard; /* ms */
	uint64_t said;
	uint64_t heartbeat;
	uint64_t silence;
	struct interval_set moved[XFER_TABLES];
	unsigned int told; /* sets: `moved` of each table, then `mine` */
	size_t told_at;	   /* intervals of the next one */
	bool all_told;
	bool said_how;			       /* the store, how it is */
	struct interval_set mine[XFER_TABLES]; /* HELD, and what HAVE may be about: when it began */
	struct interval_set have[XFER_TABLES]; /* and what of it the store has */
	unsigned int have_table;
	uint64_t have_next; /* of this table, the lowest number that has not been spoken of */
	bool have_all;
	uint64_t settles_since; /* ms: it is known who it is */
	uint64_t waiting_since; /* ms: the first HAVE; 0: none yet */
	struct xfer_slot *place;
	struct used *used;
	uint32_t nb_places;
	uint32_t *free_place[XFER_TABLES];
	uint32_t nb_free[XFER_TABLES];
	uint32_t free_stage[WINDOW];
	uint32_t nb_free_stages;
	uint32_t writes;      /* on their way */
	uint64_t progress_at; /* ms: a result came, or nothing waited for one */
	uint64_t bad_since;   /* ms: the store has not been good; 0: it is */
	bool stuck;	      /* and that was said */
	bool slow;	  /* it takes longer to sync than was reckoned with, and that was said */
	bool key_mistake; /* its file cannot be read, and that was said */
	bool forbidden;	  /* the store refuses it for good, and that was said */
	bool lonely;	  /* no connection for XFER_STUCK_MS was said */
	struct xfer_stream stream[XFER_TABLES];
	struct queue queue[XFER_TABLES];
	uint64_t here[JOURNAL_BATCHES / 64]; /* bits of batches in a queue or a place */
	struct store_client_stats stats;
};

static inline const char *
store_client_name(const struct store_client *s)
{
	return s->config.stores->at[s->config.at].name;
}

/** The number of its store in the ring; it may change while there is no connection. */
static inline unsigned int
store_client_number(const struct store_client *s)
{
	return (unsigned int)s->config.stores->at[s->config.at].number;
}

/*
 * ---- store_client_inventory.c -----------------------------------------------------------------
 */

/** What may be there: went elsewhere, or is held. A connection is proved. @return 0; -ENOMEM */
int store_client_collect(struct store_client *s);

/** Tell some of it: MOVED, then HELD. */
void store_client_tell(struct store_client *s);

/** The store tells some of what it has. */
enum xfer_reason store_client_take_have(struct store_client *s, const struct xfer_intervals *m);

/** All of that is known: it need not be held. */
void store_client_release_found(struct store_client *s);

/*
 * ---- store_client_watch.c ---------------------------------------------------------------------
 */

/** Of a connection that is up: whether results come. */
void store_client_watch_results(struct store_client *s, uint64_t now);

/** Whether there is one. */
void store_client_watch_connection(struct store_client *s, uint64_t now);

/*
 * ---- store_client_batches.c -------------------------------------------------------------------
 */

/** Whether a batch of the ring is this sender's. */
bool store_client_owns(const struct store_client *s, const struct journal_batch *b);

/** Queue all that the ring says is this store's, oldest first. @return 0; -ENOMEM */
int store_client_fill_queues(struct store_client *s);

/** A batch is durable: the ring and the owner are told. */
void store_client_release(struct store_client *s, uint32_t batch, enum xfer_result_status status);

/** The store's places, all of them free. */
enum xfer_reason store_client_take_places(struct store_client *s, const struct xfer_grant *m);

enum xfer_reason store_client_take_results(struct store_client *s, const struct xfer_results *m);

/** The next batch of a table into a place of the store's. @return whether one went */
bool store_client_send_batch(struct store_client *s, unsigned int table);

/** Batches that wait here and are another's by now, up to one that is not. */
void store_client_forget_moved(struct store_client *s);

/** Whether of a connection that is up no batch waits, and none is without its result. */
bool store_client_is_idle(const struct store_client *s);

#endif /* STORE_CLIENT_PRIVATE_H */
