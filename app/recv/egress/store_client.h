/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A receiver's connection to one store for one run: makes it, makes it again when it breaks, sends
 * batches out of the journal, and writes down there what became of them.
 *
 * Which batch goes to which store is the owner's decision: it offers batches that it has assigned
 * to this store in the journal (journal_assign()). Those that the ring
 * says are this store's are found by the sender itself whenever a connection stands.
 *
 * One lcore, which polls the device's lane and CM as well.
 */
#ifndef STORE_CLIENT_H
#define STORE_CLIENT_H

#include "rdma/rdma.h"
#include "journal/journal.h"
#include "xfer/auth_key.h"
#include "xfer/mr.h"
#include "egress/store_set.h"

#define XFER_BACK_OFF_MS     100  /**< between connections, doubled each time, */
#define XFER_BACK_OFF_MAX_MS 1000 /**< up to this: a store that is back has batches within 2 s */
#define XFER_AUTH_MS	     5000
#define XFER_FORBIDDEN_MS    10000 /**< after a refusal that only a change at the store can lift */
#define XFER_STUCK_MS	     5000  /**< batches without a result for so long are told of */

enum store_client_state {
	STORE_CLIENT_DOWN,	 /**< until the time of the next try */
	STORE_CLIENT_CONNECTING, /**< REQ */
	STORE_CLIENT_PROVING,	 /**< handshake, schemas */
	STORE_CLIENT_WAITING,	 /**< MOVED is out: for HAVE and GRANT */
	STORE_CLIENT_UP,
	STORE_CLIENT_ENDING, /**< END is out */
	STORE_CLIENT_ENDED,  /**< the store has completed its files */
	STORE_CLIENT_STATES
};

/** @return `down`, `connecting`, ... */
const char *store_client_state_name(enum store_client_state state);

struct store_client_config {
	struct rdma_dev *dev;
	struct rdma_pd *pd;
	uint16_t lane;
	struct store_set *stores; /**< all of them, */
	unsigned int at;	  /**< and which one this is */
	struct journal *journal;
	const struct xfer_mr *memory; /**< the journal: journal_memory() */
	uint64_t message_max;	      /**< bytes of a WRITE (rdma_dev_info.max_msg_bytes) */
	unsigned int run;	      /**< index in the ring */
	uint64_t producer;
	const char *identity; /**< of the store's keyring: who this is */
	struct xfer_key *key; /**< of it */
	const char *key_path; /**< read again for each connection; NULL: the key stays */
	enum xfer_role role;
	uint32_t commit_ms; /**< a store that syncs later is warned of; 0: never */
	/** A batch is durable (XFER_DURABLE, XFER_DOUBLE: released by now) or was given back. */
	void (*result)(void *arg, uint32_t batch, enum xfer_result_status status);
	void *arg;
};

/** All only grow but those that say so. */
struct store_client_stats {
	uint64_t sent;	  /**< batches, each time */
	uint64_t bytes;	  /**< of their entries and bodies */
	uint64_t durable; /**< by RESULTS */
	uint64_t found;	  /**< by HAVE: durable before, and not known to be */
	uint64_t doubles;
	uint64_t again;	      /**< given back */
	uint64_t connections; /**< that stood */
	uint64_t broken;      /**< that stood and broke */
	uint64_t refused;     /**< tries that the store refused */
	uint64_t unreachable; /**< tries that nobody answered */
	uint64_t malformed;   /**< messages of a store that are not what they should be */
	uint64_t late;	      /**< tries that did not stand in time */
	uint64_t stuck;	      /**< times that no result came for XFER_STUCK_MS */
	uint32_t places;      /**< of this connection */
	uint32_t credits;     /**< of them free, now */
	uint32_t waiting;     /**< batches that wait for one, now */
	uint32_t state;	      /**< enum store_client_state, now */
	uint32_t store_state; /**< enum xfer_state, as the store said last */
	uint32_t reason;      /**< enum xfer_reason of the last refusal */
	uint64_t identity;    /**< of the store; 0: not known yet */
};

struct store_client;

/** *Control.* @return 0; -ENOMEM; -EINVAL: no such run */
int store_client_open(struct store_client **s, const struct store_client_config *config);

/** Batches of this store may be sent: assigned to it in the ring, oldest first. @return -ENOMEM */
int store_client_offer(struct store_client *s, uint32_t batch);

/** The run is complete: END when nothing of it is held any more, by whatever store. */
void store_client_finish(struct store_client *s);

/** Connect again, as its store has to hear of what went elsewhere. @return false: not ended */
bool store_client_again(struct store_client *s);

/** An event of the CM with rdma_conn_context() this sender. *Control.* */
void store_client_event(struct store_client *s, const struct rdma_event *event);

/** Let things go on. @return something was done: for the owner's idle policy. *Control.* */
bool store_client_poll(struct store_client *s);

/** Whether its batches may be moved to another store: only while there is no connection. */
bool store_client_is_down(const struct store_client *s);

/** Whether what is offered now goes now: connected, and the store is good. */
bool store_client_takes(const struct store_client *s);

/** Since when, ms of xfer_qp_clock(), it has not taken anything; 0: it does. While the store
 * settles, since it was connected to. */
uint64_t store_client_idle_since(const struct store_client *s);

/** End the connection of a store that takes nothing: its batches may be moved then. *Control.* */
void store_client_give_up(struct store_client *s);

void store_client_stats_get(const struct store_client *s, struct store_client_stats *stats);

/** End the connection and free it. Batches stay in the ring. *Control.* @return 0; -EBUSY: again */
int store_client_close(struct store_client *s);

#endif /* STORE_CLIENT_H */
