/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Record batches to stores: held in the retention ring until one has them for good.
 *
 * egress_poll() is a role of one lcore, which is the only one that touches the ring, the device and
 * the senders. The thread that makes batches, and the one that begins and ends runs, ask it through
 * a mailbox and wait for the answer; that thread copies a batch to the place that it was given, so
 * the lcore does not.
 *
 * What is asked: [egress] in the settings, README.rst.
 */
#ifndef EGRESS_H
#define EGRESS_H

#include <limits.h>
#include <stdbool.h>

#include "arrow_run.h"
#include "config.h"
#include "sink/retention.h"

#define EGRESS_STORES 8

enum egress_policy {
	EGRESS_ROUND_ROBIN, /**< batch by batch over the stores that are there */
	EGRESS_PRIMARY,	    /**< the first one that is there */
};

struct egress_settings {
	const char *device; /**< rdma_dev_open(); NULL: no egress, files are written here */
	const char *stores; /**< ADDRESS[:PORT] with commas between */
	const char *key;    /**< path */
	const char *ring;   /**< path, in a tmpfs or hugetlbfs */
	uint64_t ring_bytes;
	uint64_t batch_bytes; /**< limit of a batch's body; one frame may be larger */
	uint64_t rate;	      /**< bytes of kept batches a second that the ring is to be good for */
	unsigned int policy;  /**< enum egress_policy */
	uint32_t failover_ms; /**< a store that is gone so long loses its batches to others */
	uint32_t hold_ms;     /**< a full ring holds the writer so long; then batches are refused */
	uint32_t end_ms;      /**< the end of a run waits so long; the rest stays in the ring */
};

/** Of one table. */
struct egress_stats {
	uint64_t put;	   /**< batches that entered retention, */
	uint64_t put_rows; /**< with so many rows */
	uint64_t durable;  /**< of them, */
	uint64_t rows;	   /**< with so many rows */
	uint64_t bytes;
	uint64_t refused; /**< batches, ring full */
	uint64_t refused_rows;
	uint64_t oversize; /**< batches larger than any place */
	uint64_t oversize_rows;
};

struct egress;

/** Read [egress]. */
void egress_settings_read(struct egress_settings *s, struct config *c);

/**
 * Open device and ring, adopt what the ring holds: it is sent again. Main lcore, before lcores
 * poll.
 * @return 0 or -errno (logged)
 */
int egress_create(struct egress **e, const struct egress_settings *settings, uint64_t producer);

/** A role's poll function: arg is the egress. */
int egress_poll(void *arg);

/**
 * Begin a run.
 * @param body_max  bytes of the largest body of each table
 * @param message   out, on error
 * @return 0 or -errno
 */
int egress_begin(struct egress *e, const char *name, uint64_t run, uint64_t incarnation,
	const struct arrow_tables *tables, const uint64_t body_max[ARROW_TABLES],
	char message[PATH_MAX]);

/** Hold a batch. Waits while the ring is full, up to hold_ms; what is refused then is counted. */
void egress_put(struct egress *e, const struct batch *batch);

/**
 * No more batches: wait until all that is held is durable, what was adopted too.
 * @return 0; -ETIMEDOUT: the rest is in the ring
 */
int egress_end(struct egress *e);

/** Of the run at hand, or the last one. Any thread. */
void egress_stats_get(const struct egress *e, enum arrow_table table, struct egress_stats *stats);

/** No lcore polls any more; called by the one that did or the main one. What is held stays. */
void egress_destroy(struct egress *e);

#endif /* EGRESS_H */
