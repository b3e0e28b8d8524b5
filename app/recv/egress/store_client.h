/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A receiver's connection to one store for one run. It connects, reconnects after a failure, sends
 * batches from the journal, and records their results in the journal.
 *
 * The owner decides which batch goes to which store: it offers batches that it has assigned to this
 * store in the journal (journal_assign()). When a connection is established, the store client
 * itself finds all batches that the journal assigns to its store.
 *
 * One lcore, which also polls the device's poll group and CM.
 */
#ifndef STORE_CLIENT_H
#define STORE_CLIENT_H

#include "rdma/rdma.h"
#include "egress/key_file.h"
#include "journal/journal.h"
#include "xfer/mr.h"
#include "egress/store_set.h"

#define XFER_BACK_OFF_MS 100 /**< first delay between connection attempts, doubled each time */
/** maximum delay: a store that returns gets batches within 2 s */
#define XFER_BACK_OFF_MAX_MS 1000
#define XFER_AUTH_MS	     5000
/** delay after a refusal that only a change at the store can resolve */
#define XFER_FORBIDDEN_MS 10000
/**
 * interval at which XFER_CORRUPTED_BATCHES of the batches that were corrupted in transit are sent
 * again; the first time after half of `failover_ms`, if that is less
 */
#define XFER_CORRUPTED_MS      1000
#define XFER_CORRUPTED_BATCHES 16
#define XFER_CORRUPTED_LOG_MS  10000 /**< minimum interval of log messages about these */
#define XFER_DOWN_MS	       1000  /**< no connection for this time is logged */
#define XFER_STUCK_MS	       5000  /**< batches without a result for this time are logged */

enum store_client_state {
	STORE_CLIENT_DOWN,	     /**< waits for the next attempt */
	STORE_CLIENT_CONNECTING,     /**< has sent REQ */
	STORE_CLIENT_AUTHENTICATING, /**< in the handshake, then sending schemas */
	STORE_CLIENT_WAITING,	     /**< has sent REASSIGNED and waits for INVENTORY and GRANT */
	STORE_CLIENT_UP,
	STORE_CLIENT_ENDING, /**< has sent END */
	STORE_CLIENT_ENDED,  /**< the store has completed its files */
	STORE_CLIENT_STATES
};

/** @return `down`, `connecting`, ... */
const char *store_client_state_name(enum store_client_state state);

struct store_client_config {
	struct rdma_dev *dev;
	struct rdma_pd *pd;
	uint16_t poll_group;
	struct store_set *stores; /**< all stores */
	unsigned int at;	  /**< index of this store */
	struct journal *journal;
	const struct xfer_mr *memory; /**< the journal: journal_memory() */
	uint64_t message_max;	      /**< maximum bytes of a WRITE (rdma_dev_info.max_msg_bytes) */
	/**
	 * maximum number of pieces that a WRITE gathers, from 2 on (rdma_dev_info.max_sge). A body
	 * is sent from the parts that it has in the journal, without a copy
	 */
	uint16_t max_sge;
	unsigned int run; /**< index in the journal */
	uint64_t receiver_id;
	const char *identity;	    /**< this receiver's name in the store's keyring */
	const struct xfer_key *key; /**< key of that name */
	/** its file, which is read again for each connection; NULL: the key does not change */
	struct key_file *key_file;
	enum xfer_role role;
	uint32_t commit_ms; /**< a store that takes longer to sync is logged; 0: never */
	/**
	 * The connection to the store may be closed when the store has had corrupted batches for
	 * this time; 0: never. They are sent again before that, because they may arrive correctly
	 * in another slot.
	 */
	uint32_t failover_ms;
	/**
	 * Called when a batch is durable (XFER_DURABLE, XFER_DUPLICATE: already released) or was
	 * returned (XFER_RETRY). The store client itself sends corrupted batches again.
	 */
	void (*result)(void *arg, uint32_t batch, enum xfer_result_status status);
	void *arg;
};

/** All values only grow, except those marked as current. */
struct store_client_stats {
	uint64_t sent;	  /**< batches sent, including repetitions */
	uint64_t bytes;	  /**< bytes of their descriptors and bodies */
	uint64_t durable; /**< batches durable, by RESULTS */
	/** batches that INVENTORY reported as durable and that were not known to be */
	uint64_t found;
	uint64_t duplicates;
	uint64_t returned;  /**< batches returned by the store */
	uint64_t wrong_crc; /**< of these: the body arrived with a wrong CRC */
	/** of these: the copy in the journal was checked just before, so it was corrupted later */
	uint64_t corrupted;
	/** damaged batches of the journal that were sent; their descriptors say so */
	uint64_t sent_damaged;
	uint64_t connections; /**< connections established */
	uint64_t broken;      /**< established connections that broke */
	uint64_t refused;     /**< attempts refused by the store */
	uint64_t unreachable; /**< attempts without an answer */
	uint64_t malformed;   /**< invalid messages from the store */
	uint64_t late;	      /**< attempts that were not established in time */
	uint64_t stuck;	      /**< how often no result came for XFER_STUCK_MS */
	uint32_t slots;	      /**< remote slots of this connection */
	uint32_t credits;     /**< free remote slots; current */
	uint32_t waiting;     /**< batches that wait for a slot; current */
	uint32_t state;	      /**< enum store_client_state; current */
	uint32_t store_state; /**< enum xfer_state that the store reported last */
	uint32_t reason;      /**< enum xfer_reason of the last refusal */
	const char *failure;  /**< why there was no connection the last time; NULL: never */
	uint64_t identity;    /**< of the store; 0: not known yet */
};

struct store_client;

/** *Control.* @return 0; -ENOMEM; -EINVAL: no such run, or `max_sge` is out of range */
int store_client_open(struct store_client **s, const struct store_client_config *config);

/**
 * Queue a batch for this store. It must be assigned to the store in the journal; offer the oldest
 * first. @return 0; -ENOMEM
 */
int store_client_offer(struct store_client *s, uint32_t batch);

/** Mark the run as complete. END is sent when the journal holds no batch of it. */
void store_client_finish(struct store_client *s);

/** Connect again to inform the store of batches that were reassigned. @return false: not ended */
bool store_client_again(struct store_client *s);

/** Handle an event of the CM whose rdma_conn_context() is this store client. *Control.* */
void store_client_event(struct store_client *s, const struct rdma_event *event);

/** Make progress. @return true if any work was done, for the owner's idle policy. *Control.* */
bool store_client_poll(struct store_client *s);

/** Return true if its batches may be reassigned: only while there is no connection. */
bool store_client_is_down(const struct store_client *s);

/** Return true if an offered batch is sent now: connected, and the store is in a good state. */
bool store_client_takes(const struct store_client *s);

/**
 * Return the time, in ms of xfer_qp_clock(), since when the store has accepted nothing, or has had
 * batches that it cannot accept because they are corrupted in transit; 0: it accepts all batches.
 * While the store recovers, this is the time of the connection.
 */
uint64_t store_client_idle_since(const struct store_client *s);

/**
 * Close the connection to a store that does not accept all batches. Its batches may then be
 * reassigned. *Control.*
 */
void store_client_give_up(struct store_client *s);

void store_client_stats_get(const struct store_client *s, struct store_client_stats *stats);

/**
 * Close the connection and free it. Batches stay in the journal. *Control.*
 * @return 0; -EBUSY: call again
 */
int store_client_close(struct store_client *s);

#endif /* STORE_CLIENT_H */
