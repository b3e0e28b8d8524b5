/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A copy of a store's counters, connections, streams and identities, for telemetry.
 *
 * The serving lcore changes the originals without a lock, so no other thread may read them. A
 * thread requests a copy, and the lcore makes it in its next iteration. The lcore never waits:
 * while a copy is being read, the next one is delayed. Without a request no copy is made.
 */
#ifndef STORE_VIEW_H
#define STORE_VIEW_H

#include "server/connection.h"

#define STORE_VIEW_WAIT_MS 200 /**< maximum wait for a new copy; after that, the last one is used */

/** A connection. */
struct store_connection_view {
	unsigned int index;
	enum store_connection_state state;
	uint32_t slots;
	uint32_t pending; /**< slots of them without a result */
	uint32_t results; /**< results to be sent */
	uint64_t batches[XFER_TABLES];
};

/** Requests of unauthenticated peers: struct admission. */
struct store_admission_view {
	uint64_t admitted;
	uint64_t admitted_known;
	uint64_t full;
	uint64_t crowded;
	uint64_t evicted;
};

/** Counters of runs: struct store_runs. */
struct store_runs_counts {
	uint64_t opened;
	uint64_t ended;
	uint64_t idle;
	uint64_t refused;
};

/** All values at one moment. */
struct store_values {
	uint64_t made; /**< time of the copy: xfer_qp_clock(), ms */
	struct store_counters counters;
	struct store_admission_view admission;
	uint64_t warnings_suppressed;
	struct store_runs_counts runs;
	struct store_connection_view connection[STORE_CONNECTIONS];
	unsigned int nb_connections;
	struct {
		unsigned int run; /**< index of the run */
		unsigned int table;
		struct store_stream_view view;
	} stream[STORE_RUNS * XFER_TABLES];
	unsigned int nb_streams;
	struct histogram latency; /**< store_runs_latency() */
	struct store_audit_counts identity[STORE_AUDITED];
	unsigned int nb_identities;
};

struct store_view;

/** @return NULL: out of memory */
struct store_view *store_view_open(void);

/** Free the view. No thread may use it any more. */
void store_view_close(struct store_view *v);

/**
 * Make a copy if one was requested. Called by the serving lcore; does not wait.
 * @param connection  array of STORE_CONNECTIONS
 * @return true: a copy was made
 */
bool store_view_poll(struct store_view *v, const struct store_shared *s,
	const struct store_connection *connection, uint64_t now);

/**
 * Request a copy and wait for it, at most STORE_VIEW_WAIT_MS. Any thread except the serving lcore.
 * @return a copy made during this call, or an older one if the lcore did not respond. Give it back
 *   with store_view_put(): until then, no other copy is made
 */
const struct store_values *store_view_get(struct store_view *v);

void store_view_put(struct store_view *v);

#endif /* STORE_VIEW_H */
