/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * What telemetry says of a store: a copy of its counters, connections, streams and identities.
 *
 * The lcore that serves changes those without a lock, so no other thread reads them. A thread that
 * wants a copy asks for one; the lcore makes it in its next turn. The lcore never waits: a copy
 * that is being read is made later. Nobody asks: no copy is made.
 */
#ifndef STORE_VIEW_H
#define STORE_VIEW_H

#include "server/connection.h"

#define STORE_VIEW_WAIT_MS 200 /**< for a new copy; then the last one is what there is */

/** A connection. */
struct store_connection_view {
	unsigned int index;
	enum store_connection_state state;
	uint32_t places;
	uint32_t pending; /**< of them, without a result */
	uint32_t results; /**< that are to be sent */
	uint64_t batches[XFER_TABLES];
};

/** Requests of peers that had not proved themselves: struct admission. */
struct store_gate_view {
	uint64_t admitted;
	uint64_t admitted_known;
	uint64_t full;
	uint64_t crowded;
	uint64_t evicted;
};

/** Runs: struct store_runs. */
struct store_runs_counts {
	uint64_t opened;
	uint64_t ended;
	uint64_t idle;
	uint64_t refused;
};

/** All of it, at one moment. */
struct store_values {
	uint64_t made; /**< ms of xfer_qp_clock() */
	struct store_counters counters;
	struct store_gate_view gate;
	uint64_t warnings_suppressed;
	struct store_runs_counts runs;
	struct store_connection_view connection[STORE_CONNECTIONS];
	unsigned int nb_connections;
	struct {
		unsigned int run; /**< number among the store's runs */
		unsigned int table;
		struct store_stream_view view;
	} stream[STORE_RUNS * XFER_TABLES];
	unsigned int nb_streams;
	uint64_t latency[ARROW_LATENCY_BUCKETS]; /**< store_runs_latency() */
	struct store_audit_counts identity[STORE_AUDITED];
	unsigned int nb_identities;
};

struct store_view;

/** @return NULL: no memory */
struct store_view *store_view_open(void);

/** Nobody uses it any more. */
void store_view_close(struct store_view *v);

/**
 * Make a copy if one is wanted. The serving lcore; does not wait.
 * @param connection  STORE_CONNECTIONS of them
 * @return whether it was made
 */
bool store_view_poll(struct store_view *v, const struct store_shared *s,
	const struct store_connection *connection, uint64_t now);

/**
 * Ask for a copy and wait for it, at most STORE_VIEW_WAIT_MS. Any thread but the serving lcore.
 * @return as it was when this was called or later; an older one if the lcore did not come to it.
 *   To be given back by store_view_put(): until then none is made
 */
const struct store_values *store_view_get(struct store_view *v);

void store_view_put(struct store_view *v);

#endif /* STORE_VIEW_H */
