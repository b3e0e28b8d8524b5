/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The engine of a session of `braggline-scan --serve`: a thread that executes the session's queries
 * and turns their results into messages and into bodies in registered memory. It is no lcore.
 *
 * The lcore of the server gives it statements and the client's credits, and takes its output with
 * scan_worker_peek(). A thread whose client gives no credit waits, and so does its query. Functions
 * are for the lcore of the server, which they do not block, except where noted.
 */
#ifndef SCAN_WORKER_H
#define SCAN_WORKER_H

#include <stdbool.h>

#include "remote/wire.h"
#include "sql/duckdb_api.h"
#include "sql/map_guard.h"
#include "xfer/identity.h"

#define SCAN_STAGE  (1u << 20) /**< bytes of the largest part of a body */
#define SCAN_STAGES SCAN_PARTS /**< parts of bodies in registered memory */
#define SCAN_PIECES 512	       /**< maximum pieces of a part */
#define SCAN_FILES  16	       /**< maximum files of a session whose mappings are registered */

struct poll_pause;
struct rdma_mr;
struct scan_worker;

/** Counters of the engines of a server; written by their threads, atomic. Never reset. */
struct scan_work {
	uint64_t deferred;	 /**< queries with deferred lists */
	uint64_t failed;	 /**< queries that ended with an error, cancelled ones too */
	uint64_t batches;	 /**< record batches */
	uint64_t result_bytes;	 /**< of bodies */
	uint64_t deferred_bytes; /**< of these, of deferred lists */
	uint64_t copied_bytes;	 /**< that the CPU copied after the engines to make these bodies */
	uint64_t gathered_bytes; /**< of bodies, that the device reads from mapped files */
};

struct scan_worker_config {
	const struct duckdb_api *api;
	const char *const *path; /**< directories and files of runs */
	unsigned int nb_paths;
	unsigned int threads;		      /**< of the engine */
	const char *memory;		      /**< limit of the engine's buffers, such as "1GB" */
	const struct xfer_identity *identity; /**< whose runs are the tables; it is copied */
	struct scan_work *work;		      /**< it must outlive the threads */
	bool gather;		  /**< the lcore registers mapped files (scan_worker_files()) */
	struct poll_pause *pause; /**< of the lcore; it is woken for outputs. NULL: none */
	uint64_t deadline_ms;	  /**< after which the server ends a query, for its error */
};

/** Create a session's engine. It is opened by the first query. @return NULL: errno is set */
struct scan_worker *scan_worker_create(const struct scan_worker_config *config);

/** End the query and the thread. */
void scan_worker_stop(struct scan_worker *w);

/** Destroy a stopped engine. @return false: its thread has not ended yet, call again */
bool scan_worker_destroy(struct scan_worker *w);

/** Memory of the bodies. */
struct scan_worker_memory {
	uint32_t slots;	     /**< of the client; 0: it reads bodies from the stage */
	uint32_t part_bytes; /**< maximum bytes of a part */
	uint8_t *stage;	     /**< SCAN_STAGES parts of `part_bytes` bytes each, all of them free */
	uint32_t rkey;	     /**< of the stage, if there are no slots */
};

/** Set the memory of the bodies, once, before the first query. */
void scan_worker_grant(struct scan_worker *w, const struct scan_worker_memory *memory);

/** Begin a query. @param sql  allocated; the function takes it @return false: one is executed */
bool scan_worker_query(struct scan_worker *w, uint32_t cursor, enum scan_form form, char *sql);

/** Why a query is ended. */
enum scan_end {
	SCAN_END_NOT,
	SCAN_END_CANCELLED, /**< by the client */
	SCAN_END_DEADLINE,
	SCAN_END_UNREADABLE, /**< the bytes written for it are not those of a file */
};

/**
 * End a query, if it is executed. Call it again until the query has ended: see
 * sql_session_cancel().
 * @param cursor  of the query
 * @return whether this call is the first one for a query that is executed
 */
bool scan_worker_cancel(struct scan_worker *w, uint32_t cursor, enum scan_end why);

/** Accept the credit of the client. @return false: messages or slots that were not sent to it */
bool scan_worker_credit(struct scan_worker *w, const struct scan_credit *m);

/** State of the present query. */
struct scan_worker_state {
	bool running;
	uint32_t cursor;   /**< of the last query */
	enum scan_end end; /**< it is being ended */
};

void scan_worker_state_get(struct scan_worker *w, struct scan_worker_state *state);

/** What an engine does. */
enum scan_activity {
	SCAN_IDLE,    /**< there is no query */
	SCAN_WAITS,   /**< for the client or the lcore */
	SCAN_WORKS,   /**< on CPUs that no lcore has */
	SCAN_COMPETES /**< it works, and may run on the CPU of the lcore */
};

enum scan_activity scan_worker_activity(const struct scan_worker *w);

/** A mapped file that the lcore registers for a session's engine. */
struct scan_mapping {
	const uint8_t *data;
	uint64_t size;
	const struct map_guard *guard;
	struct rdma_mr *mr; /**< of the lcore; NULL: not registered */
};

/** Consecutive bytes of a part. */
struct scan_piece {
	const uint8_t *bytes;
	uint32_t length;
	uint32_t file; /**< index of its struct scan_mapping; SCAN_FILES: the stage */
};

/** When the steps of a query were done, TSC. */
struct scan_times {
	uint64_t received; /**< by the lcore */
	uint64_t begun;	   /**< by the engine's thread */
	uint64_t executed; /**< the statement was analysed, planned and started; 0: it was not */
	uint64_t ended;	   /**< all rows were read and queued, or there was an error */
};

/**
 * Something to be sent: a message, and perhaps a part of a body that it announces.
 *
 * A part with pieces of files is placed first. Its message and its immediate follow when all its
 * bytes have been read and scan_worker_is_readable() says that they are those of the files.
 */
struct scan_output {
	const struct scan_data *message;
	uint32_t length; /**< of the part; 0: none */
	uint32_t slot;	 /**< SCAN_SLOTS_MAX: none, the client reads the part */
	uint32_t stage;
	uint32_t sequence;
	const struct scan_piece *piece; /**< of a part with pieces of files */
	uint32_t nb_pieces;		/**< 0: all of the part is in the stage */
	bool last;			/**< of its query */
	struct scan_times times;	/**< of the last one */
};

/**
 * Get an output. It stays valid until scan_worker_taken() has been called for it.
 * @param ahead  0: the next one; 1: the one after it
 * @return false: none
 */
bool scan_worker_peek(struct scan_worker *w, uint32_t ahead, struct scan_output *out);

/**
 * Whether the next output may be sent, whose part with pieces of files was placed. If not, the
 * query is ended, and its outputs up to the error must be dropped.
 */
bool scan_worker_is_readable(struct scan_worker *w, const struct scan_output *out);

/** Whether the next output must be dropped: see scan_worker_is_readable(). */
bool scan_worker_must_drop(struct scan_worker *w);

/** Drop the next output, whose part is no longer being placed. */
void scan_worker_drop(struct scan_worker *w);

/** The next output was posted. */
void scan_worker_taken(struct scan_worker *w);

/** The part in a stage was written to a slot, or the client has freed it. */
void scan_worker_written(struct scan_worker *w, uint32_t stage);

/**
 * Register files for the engine, or end their registration. The engine waits for it.
 * @param reg    sets `mr`, which stays NULL if the file cannot be registered
 * @param dereg  clears `mr` @return false: still in use, it is called again later
 */
void scan_worker_files(struct scan_worker *w, void (*reg)(void *arg, struct scan_mapping *file),
	bool (*dereg)(void *arg, struct scan_mapping *file), void *arg);

/** Registration of a file of a part; only of its lcore. */
const struct scan_mapping *scan_worker_file(const struct scan_worker *w, uint32_t file);

#endif /* SCAN_WORKER_H */
