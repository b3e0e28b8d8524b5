/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_FAKE_H
#define RDMA_FAKE_H

/**
 * @file `fake:`, a provider of rdma.h that registers in a list only, for tests of code above
 * registrations. It is available when linked.
 */

#include <stdbool.h>
#include <stdint.h>

#include "rdma.h"

/** Registrations, in the order of their keys: lkey is the index, rkey is lkey + 1000. */
struct rdma_fake_mr {
	struct rdma_mr_attr attr;
	bool live;
	bool busy; /**< deregistration fails with -EBUSY */
};

extern struct rdma_fake {
	uint64_t max_mr_bytes;
	uint32_t max_mr;
	int fail; /**< errno of the next registrations */
	uint32_t nb, live;
	uint64_t live_bytes;
	bool parallel_seen; /**< two registrations ran in parallel */
	struct rdma_fake_mr mr[1 << 20];
} rdma_fake;

/** Reset to the initial state. */
void rdma_fake_reset(void);

#endif
