/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A receiver's connection to one store for one run: makes it, makes it again when it breaks, sends
 * batches out of the retention ring, and writes down there what became of them.
 *
 * Which batch goes to which store is the owner's decision: it offers batches that it has assigned
 * to this store in the retention ring (retention_assign()). Those that the ring
 * says are this store's are found by the sender itself whenever a connection stands.
 *
 * One lcore, which polls the device's lane and CM as well.
 */
#ifndef SINK_SENDER_H
#define SINK_SENDER_H

#include "rdma/rdma.h"
#include "retention.h"
#include "sink_key.h"
#include "sink_memory.h"
#include "sink_stores.h"

#define SINK_BACK_OFF_MS     100  /**< between connections, doubled each time, */
#define SINK_BACK_OFF_MAX_MS 1000 /**< up to this: a store that is back has batches within 2 s */
#define SINK_HANDSHAKE_MS    5000
#define SINK_FORBIDDEN_MS    10000 /**< after a refusal that only a change at the store can lift */
#define SINK_STUCK_MS	     5000  /**< batches without a result for so long are told of */

enum sink_sender_state {
	SINK_SENDER_DOWN,	/**< until the time of the next try */
	SINK_SENDER_CONNECTING, /**< REQ */
	SINK_SENDER_PROVING,	/**< handshake, schemas */
	SINK_SENDER_WAITING,	/**< MOVED is out: for HAVE and GRANT */
	SINK_SENDER_UP,
	SINK_SENDER_ENDING, /**< END is out */
	SINK_SENDER_ENDED,  /**< the store has completed its files */
	SINK_SENDER_STATES
};

/** @return `down`, `connecting`, ... */
const char *sink_sender_state_name(enum sink_sender_state state);

struct sink_sender_config {
	struct rdma_dev *dev;
	struct rdma_pd *pd;
	uint16_t lane;
	struct sink_stores *stores; /**< all of them, */
	unsigned int at;	    /**< and which one this is */
	struct retention *retention;
	const struct sink_memory *memory; /**< the retention ring: retention_memory() */
	uint64_t message_max;		  /**< bytes of a WRITE (rdma_dev_info.max_msg_bytes) */
	unsigned int run;		  /**< index in the ring */
	uint64_t producer;
	const char *identity; /**< of the store's keyring: who this is */
	struct sink_key *key; /**< of it */
	const char *key_path; /**< read again for each connection; NULL: the key stays */
	enum sink_role role;
	uint32_t commit_ms; /**< a store that syncs later is warned of; 0: never */
	/** A batch is durable (SINK_DURABLE, SINK_DOUBLE: released by now) or was given back. */
	void (*result)(void *arg, uint32_t batch, enum sink_result_status status);
	void *arg;
};

/** All only grow but those that say so. */
struct sink_sender_stats {
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
	uint64_t stuck;	      /**< times that no result came for SINK_STUCK_MS */
	uint32_t places;      /**< of this connection */
	uint32_t credits;     /**< of them free, now */
	uint32_t waiting;     /**< batches that wait for one, now */
	uint32_t state;	      /**< enum sink_sender_state, now */
	uint32_t store_state; /**< enum sink_state, as the store said last */
	uint32_t reason;      /**< enum sink_reason of the last refusal */
	uint64_t identity;    /**< of the store; 0: not known yet */
};

struct sink_sender;

/** *Control.* @return 0; -ENOMEM; -EINVAL: no such run */
int sink_sender_open(struct sink_sender **s, const struct sink_sender_config *config);

/** Batches of this store may be sent: assigned to it in the ring, oldest first. @return -ENOMEM */
int sink_sender_offer(struct sink_sender *s, uint32_t batch);

/** The run is complete: END when nothing of it is held any more, by whatever store. */
void sink_sender_finish(struct sink_sender *s);

/** Connect again, as its store has to hear of what went elsewhere. @return false: not ended */
bool sink_sender_again(struct sink_sender *s);

/** An event of the CM with rdma_conn_context() this sender. *Control.* */
void sink_sender_event(struct sink_sender *s, const struct rdma_event *event);

/** Let things go on. @return something was done: for the owner's idle policy. *Control.* */
bool sink_sender_poll(struct sink_sender *s);

/** Whether its batches may be moved to another store: only while there is no connection. */
bool sink_sender_is_down(const struct sink_sender *s);

/** Whether what is offered now goes now: connected, and the store is good. */
bool sink_sender_takes(const struct sink_sender *s);

/** Since when, ms of sink_link_clock(), it has not taken anything; 0: it does. While the store
 * settles, since it was connected to. */
uint64_t sink_sender_idle_since(const struct sink_sender *s);

/** End the connection of a store that takes nothing: its batches may be moved then. *Control.* */
void sink_sender_give_up(struct sink_sender *s);

void sink_sender_stats_get(const struct sink_sender *s, struct sink_sender_stats *stats);

/** End the connection and free it. Batches stay in the ring. *Control.* @return 0; -EBUSY: again */
int sink_sender_close(struct sink_sender *s);

#endif /* SINK_SENDER_H */
