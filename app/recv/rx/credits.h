/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The credit of a RoCE stream in memory: tells its detector which slots of the ring are free
 * (ingest/card.h). The RX role of the stream computes it, because this role takes the events and
 * returns the tiles. It writes the credit by RDMA WRITE on the stream's queue pair, and never
 * waits.
 */
#ifndef RX_CREDITS_H
#define RX_CREDITS_H

#include <stdbool.h>
#include <stdint.h>

#include "frames/frame_use.h"

struct rdma_qp;

/** Sends that a credit needs of its queue pair, and bytes of one. */
#define RX_CREDIT_SENDS 2
#define RX_CREDIT_BYTES 8

/** By stream. Written by the RX role, except by rx_credit_begin(). */
struct rx_credit {
	uint64_t address; /**< in the detector's memory; 0: it has asked for no credits */
	uint32_t rkey;
	bool known;	  /**< no frame of an earlier connection is in use */
	bool busy;	  /**< a write has not completed */
	bool written;	  /**< `value` was written at least once */
	uint64_t free;	  /**< the slots of frames below are free */
	uint64_t value;	  /**< last value that was written */
	uint64_t next_at; /**< TSC when it is written again */
};

/** A queue pair was created. *Control.* @param address  0: no credits */
void rx_credit_begin(struct rx_credit *c, uint64_t address, uint32_t rkey);

/**
 * Advance `free` by a few frames.
 * @param last  frame + 1 of the stream's last event, 0: none
 */
void rx_credit_advance(struct rx_credit *c, const struct frame_use *use, uint64_t last);

/** Write the credit if it has changed, or if that is long ago. @return whether it was written */
bool rx_credit_write(struct rx_credit *c, struct rdma_qp *qp, uint64_t now);

/** A send of the queue pair has completed. */
static inline void
rx_credit_done(struct rx_credit *c)
{
	c->busy = false;
}

#endif
