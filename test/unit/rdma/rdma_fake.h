/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_FAKE_H
#define RDMA_FAKE_H

/**
 * @file
 * A provider of rdma.h that registers in a list only, for tests of what stands upon registrations:
 * `fake:`. Linked in, it is there.
 */

#include <stdbool.h>
#include <stdint.h>

#include "rdma.h"

/** What was registered, in the order of keys: lkey is the index, rkey is that + 1000. */
struct rdma_fake_mr {
	struct rdma_mr_attr attr;
	bool live;
	bool busy; /**< deregistering it is -EBUSY */
};

extern struct rdma_fake {
	uint64_t max_mr_bytes;
	uint32_t max_mr;
	int fail; /**< errno of the next registrations */
	/** these fail with EFAULT: memory that is not mapped */
	uint64_t hole_start, hole_end;
	uint32_t nb, live;
	uint64_t live_bytes;
	bool parallel_seen; /**< two registrations at a time */
	struct rdma_fake_mr mr[1 << 20];
} rdma_fake;

/** Forgets all, back to what a new one is. */
void rdma_fake_reset(void);

#endif
