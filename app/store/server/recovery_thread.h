/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Possibly long work that precedes the grant of slots to a connection: recover and read the files
 * after a crash (with their CRC, up to 64 GiB of each), remove reassigned batches, allocate memory
 * for bodies. A thread does this work, so that the lcore can serve other connections.
 *
 * Meanwhile the thread owns the run's writers: store_run.settling. The lcore starts and ends it.
 */
#ifndef STORE_RECOVERY_THREAD_H
#define STORE_RECOVERY_THREAD_H

#include <pthread.h>

#include "interval_set.h"
#include "io/bodies.h"
#include "server/run.h"
#include "stream/content.h"

struct store_recover {
	/* input, set before the start */
	struct store_runs *runs;
	struct store_run *run; /**< all its batches must have results */
	/** of each table; must not change until the thread has ended */
	struct interval_set *moved;
	/** contents of `moved` and `held`, of each table, in the order of their numbers */
	const struct stream_contents *moved_contents;
	const struct stream_contents *held_contents;
	/**
	 * Of each table, what the receiver would release. Batches that are missing or damaged are
	 * removed from it.
	 */
	struct interval_set *held;
	struct interval_set *damaged; /**< of each table: out, the damaged batches */
	struct store_bodies *bodies;
	uint64_t bytes; /**< bytes of memory for bodies */
	/* output */
	enum xfer_reason reason; /**< XFER_REASON_NONE: success */
	uint8_t *memory;	 /**< owned by the caller, whatever the reason; NULL: none */
	int memory_error;	 /**< 0 or -errno: why `memory` is NULL */
	uint64_t cuts;		 /**< number of tables with removed batches */
	uint64_t batches_truncated;
	struct interval_set cut[XFER_TABLES]; /**< the removed batches; the caller frees them */
	char dir[PATH_MAX];		      /**< folder of the run's files */
	/* private */
	pthread_t thread;
	bool has_thread;
	bool begun;
	bool ended; /**< atomic */
};

/** Start the thread. If it cannot be created, the work is done before this returns. */
void store_recover_begin(struct store_recover *s);

/**
 * @return true, once: the work is done; false: not started, or still running. If the run could not
 *   be opened, it is removed
 */
bool store_recover_end(struct store_recover *s);

#endif /* STORE_RECOVERY_THREAD_H */
