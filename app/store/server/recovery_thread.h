/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * What is done before a connection is granted places, and takes as long as the disk and the kernel
 * want: files of a crash are recovered and read (their CRC, up to 64 GiB of each), what went
 * elsewhere is cut off, memory for bodies is got. A thread does it; the lcore serves others.
 *
 * Meanwhile the run's writers are the thread's: store_run.settling. Begun and ended by the lcore.
 */
#ifndef STORE_SETTLE_H
#define STORE_SETTLE_H

#include <pthread.h>

#include "interval_set.h"
#include "io/bodies.h"
#include "server/run.h"

struct store_settle {
	/* set before it begins */
	struct store_runs *runs;
	struct store_run *run;	    /**< all that was taken has its result */
	struct interval_set *moved; /**< of each table; is left alone until it has ended */
	/** of each table, that the receiver would release: those that are not there, or damaged,
	 * are taken out */
	struct interval_set *held;
	struct interval_set *rotten; /**< of each table: gets the damaged ones */
	struct store_bodies *bodies;
	uint64_t bytes; /**< of bodies */
	/* set by it */
	enum xfer_reason reason; /**< XFER_REASON_NONE: all went well */
	uint8_t *memory;	 /**< whatever the reason, the caller's; NULL: none */
	int memory_error;	 /**< 0 or -errno: why there is none */
	uint64_t cuts;		 /**< tables of which something went */
	uint64_t batches_cut;
	struct interval_set cut[XFER_TABLES]; /**< which; the caller frees them */
	char dir[PATH_MAX];		      /**< of whose files */
	/* its own */
	pthread_t thread;
	bool has_thread;
	bool begun;
	bool ended; /**< atomic */
};

/** Begin; without a thread it is done when this returns. */
void store_settle_begin(struct store_settle *s);

/**
 * @return false: it was not begun, or goes on. true: once, when it has ended; a run that could not
 *   be opened is forgotten
 */
bool store_settle_end(struct store_settle *s);

#endif /* STORE_SETTLE_H */
