/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Connections that have not proved themselves yet are few and short-lived: who may try.
 *
 * The bound holds for half-open connections and for those that send slowly alike: time counts from
 * the request on, whatever comes in between. One thread.
 */
#ifndef SINK_GATE_H
#define SINK_GATE_H

#include <stdint.h>

#define SINK_GATE_PLACES      16   /**< connections that may try at a time, */
#define SINK_GATE_PER_ADDRESS 4	   /**< of one address, */
#define SINK_GATE_MS	      5000 /**< and for how long */

struct sink_gate {
	struct {
		uint8_t addr[16];
		uint64_t until; /**< 0: free */
	} place[SINK_GATE_PLACES];
	uint64_t admitted;
	uint64_t full;	  /**< sent away: all places taken */
	uint64_t address; /**< sent away: too many of this address */
	uint64_t late;	  /**< time was over */
};

/**
 * Somebody asks.
 * @param now  ms, any clock that does not go back; not 0
 * @return a place; -EBUSY: not now
 */
int sink_gate_enter(struct sink_gate *g, const uint8_t addr[16], uint64_t now);

/** It has proved itself, or is gone. */
void sink_gate_leave(struct sink_gate *g, int place);

/** A place whose time is over, once for each; its connection is to be ended. @return -1: none */
int sink_gate_expire(struct sink_gate *g, uint64_t now);

#endif /* SINK_GATE_H */
