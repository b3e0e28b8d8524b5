/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The pause of a polling loop that has nothing to do.
 *
 * A loop with a CPU of its own polls on for POLL_PAUSE_TURNS: its latency is the least one. If
 * other threads run on the same CPU, such as the engine that makes what the loop waits for, they
 * need the time: the loop then sleeps for POLL_PAUSE_SHORT_US at a time. It notices them by the
 * time that it did not run.
 */
#ifndef POLL_PAUSE_H
#define POLL_PAUSE_H

#include <stdbool.h>
#include <stdint.h>

#define POLL_PAUSE_SHORT_US 20	   /**< sleep while something is expected */
#define POLL_PAUSE_LONG_US  50	   /**< sleep while nothing is expected */
#define POLL_PAUSE_TURNS    1000   /**< turns without work before a loop sleeps */
#define POLL_PAUSE_SPIN	    8	   /**< as POLL_PAUSE_TURNS, if the CPU is shared */
#define POLL_PAUSE_AWAY_US  200	   /**< a longer time between two turns: others had the CPU */
#define POLL_PAUSE_KEEP_US  100000 /**< time for which the CPU is taken as shared then */

/** State of a loop, of its thread. Begin with zeros. */
struct poll_pause {
	unsigned int idle;     /**< turns without work */
	uint64_t last;	       /**< end of the last pause, us; 0: there was work since */
	uint64_t shared_until; /**< us */
	bool precise;	       /**< the thread's timer slack is set */
};

/**
 * Pause after a turn of the loop.
 * @param busy      the turn had work: there is no pause
 * @param expected  something is expected soon, such as the answer to a query
 */
void poll_pause(struct poll_pause *p, bool busy, bool expected);

#endif /* POLL_PAUSE_H */
