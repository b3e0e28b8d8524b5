/* SPDX-License-Identifier: BSD-3-Clause */
/* Determines which slots of a stream's ring are free, and reports them by RDMA WRITE. */

#include <rte_byteorder.h>
#include <rte_common.h>
#include <rte_cycles.h>

#include <rdma.h>

#include "rx/credits.h"

/** A lost credit delays the detector by this time. */
#define AGAIN_MS 5
/** Frames that are checked in a call: a ring may have 65,536 slots. */
#define STEPS 64

void
rx_credit_begin(struct rx_credit *c, uint64_t address, uint32_t rkey)
{
	*c = (struct rx_credit){.rkey = rkey};
	__atomic_store_n(&c->address, address, __ATOMIC_RELAXED);
}

void
rx_credit_advance(struct rx_credit *c, const struct frame_use *use, uint64_t last)
{
	/* earlier frames have lost their slots to later ones */
	const uint64_t low = last - RTE_MIN(last, use->mask + 1);

	if (!c->known) {
		if (use->count != 0)
			return;
		c->known = true;
		c->free = last;
	}
	/* the numbers of the stream have gone back, or skipped some */
	if (c->free < low || c->free > last)
		c->free = low;
	for (uint32_t i = 0; i < STEPS && c->free < last && !frame_use_has(use, c->free); i++)
		c->free++;
}

bool
rx_credit_write(struct rx_credit *c, struct rdma_qp *qp, uint64_t now)
{
	rte_le64_t word = rte_cpu_to_le_64(c->free);
	const struct rdma_sge sge = {.addr = (uintptr_t)&word, .length = RX_CREDIT_BYTES};
	const struct rdma_send_wr wr = {.sg = &sge,
		.nb_sge = 1,
		.op = RDMA_OP_WRITE,
		/* the completion shows that the send queue has room */
		.flags = RDMA_SEND_INLINE | RDMA_SEND_SIGNALED,
		.remote_addr = c->address,
		.rkey = c->rkey};

	if (!c->known || c->busy ||
		(c->written && c->free == c->value && (int64_t)(now - c->next_at) < 0))
		return false;
	c->next_at = now + rte_get_tsc_hz() / 1000 * AGAIN_MS;
	/* the queue pair may not be connected yet, or no longer */
	if (rdma_post_send(qp, &wr, 1) != 1)
		return false;
	c->busy = true;
	c->written = true;
	c->value = c->free;
	return true;
}
