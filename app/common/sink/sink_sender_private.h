/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SINK_SENDER_PRIVATE_H
#define SINK_SENDER_PRIVATE_H

/**
 * @file
 * What the parts of a sender share: sink_sender.c (the connection and its states),
 * sink_sender_inventory.c (what went elsewhere, what the store has) and sink_sender_batches.c
 * (batches into places of the store's, and their results).
 */

#include <rte_log.h>

#include "interval_set.h"
#include "sink_entry.h"
#include "sink_handshake.h"
#include "sink_link.h"
#include "sink_message.h"
#include "sink_sender.h"

extern int sink_sender_logtype;

#define SENDER_LOG(level, s, fmt, ...)                                             \
	rte_log(RTE_LOG_##level, sink_sender_logtype, "sink: store %s: " fmt "\n", \
		sink_sender_name(s), ##__VA_ARGS__)

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

struct sink_sender {
	struct sink_sender_config config;
	struct retention_run run;
	enum sink_sender_state state;
	struct sink_handshake handshake;
	struct sink_link link;
	struct rdma_conn *conn;
	bool link_is_open;
	bool closing; /* the link is to be closed */
	bool proved;  /* who the store is: sink_stores_prove() */
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
	struct interval_set moved[SINK_TABLES];
	unsigned int told; /* sets: `moved` of each table, then `mine` */
	size_t told_at;	   /* intervals of the next one */
	bool all_told;
	bool said_how;			       /* the store, how it is */
	struct interval_set mine[SINK_TABLES]; /* HELD, and what HAVE may be about: when it began */
	struct interval_set have[SINK_TABLES]; /* and what of it the store has */
	unsigned int have_table;
	uint64_t have_next; /* of this table, the lowest number that has not been spoken of */
	bool have_all;
	uint64_t settles_since; /* ms: it is known who it is */
	uint64_t waiting_since; /* ms: the first HAVE; 0: none yet */
	struct sink_place *place;
	struct used *used;
	uint32_t nb_places;
	uint32_t *free_place[SINK_TABLES];
	uint32_t nb_free[SINK_TABLES];
	uint32_t free_stage[WINDOW];
	uint32_t nb_free_stages;
	uint32_t writes;      /* on their way */
	uint64_t progress_at; /* ms: a result came, or nothing waited for one */
	uint64_t bad_since;   /* ms: the store has not been good; 0: it is */
	bool stuck;	      /* and that was said */
	bool slow;	  /* it takes longer to sync than was reckoned with, and that was said */
	bool key_mistake; /* its file cannot be read, and that was said */
	bool forbidden;	  /* the store refuses it for good, and that was said */
	bool lonely;	  /* no connection for SINK_STUCK_MS was said */
	struct sink_stream stream[SINK_TABLES];
	struct queue queue[SINK_TABLES];
	uint64_t here[RETENTION_BATCHES / 64]; /* bits of batches in a queue or a place */
	struct sink_sender_stats stats;
};

static inline const char *
sink_sender_name(const struct sink_sender *s)
{
	return s->config.stores->at[s->config.at].name;
}

/** The number of its store in the ring; it may change while there is no connection. */
static inline unsigned int
sink_sender_number(const struct sink_sender *s)
{
	return (unsigned int)s->config.stores->at[s->config.at].number;
}

/* ---- sink_sender_inventory.c ----------------------------------------------------------------- */

/** What may be there: went elsewhere, or is held. A connection is proved. @return 0; -ENOMEM */
int sink_sender_collect(struct sink_sender *s);

/** Tell some of it: MOVED, then HELD. */
void sink_sender_tell(struct sink_sender *s);

/** The store tells some of what it has. */
enum sink_reason sink_sender_take_have(struct sink_sender *s, const struct sink_intervals *m);

/** All of that is known: it need not be held. */
void sink_sender_release_found(struct sink_sender *s);

/* ---- sink_sender_watch.c --------------------------------------------------------------------- */

/** Of a connection that is up: whether results come. */
void sink_sender_watch_results(struct sink_sender *s, uint64_t now);

/** Whether there is one. */
void sink_sender_watch_connection(struct sink_sender *s, uint64_t now);

/* ---- sink_sender_batches.c ------------------------------------------------------------------- */

/** Whether a batch of the ring is this sender's. */
bool sink_sender_owns(const struct sink_sender *s, const struct retention_batch *b);

/** Queue all that the ring says is this store's, oldest first. @return 0; -ENOMEM */
int sink_sender_fill_queues(struct sink_sender *s);

/** A batch is durable: the ring and the owner are told. */
void sink_sender_release(struct sink_sender *s, uint32_t batch, enum sink_result_status status);

/** The store's places, all of them free. */
enum sink_reason sink_sender_take_places(struct sink_sender *s, const struct sink_grant *m);

enum sink_reason sink_sender_take_results(struct sink_sender *s, const struct sink_results *m);

/** The next batch of a table into a place of the store's. @return whether one went */
bool sink_sender_send_batch(struct sink_sender *s, unsigned int table);

/** Batches that wait here and are another's by now, up to one that is not. */
void sink_sender_forget_moved(struct sink_sender *s);

/** Whether of a connection that is up no batch waits, and none is without its result. */
bool sink_sender_is_idle(const struct sink_sender *s);

#endif /* SINK_SENDER_PRIVATE_H */
