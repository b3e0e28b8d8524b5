/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Memory registered in as many slices as it takes: adapters take regions of a limited size only
 * (rdma_dev_info.max_mr_bytes, 3.5 GiB with `verbs`), retention rings and bodies may be larger.
 * *Control* functions of rdma.h, but sink_memory_at().
 */
#ifndef SINK_MEMORY_H
#define SINK_MEMORY_H

#include "rdma/rdma.h"

struct sink_memory {
	uint8_t *addr;
	uint64_t length;
	uint64_t slice; /**< bytes of each but the last */
	uint32_t nb;
	struct rdma_mr **mr;
};

/**
 * @param most  bytes of a slice
 * @param unit  bytes that are in one slice, from the first address on
 * @return 0; -E2BIG: unit is more than that; -ENOMEM; as rdma_mr_reg(). On errors nothing is open
 */
int sink_memory_open(struct sink_memory *m, struct rdma_pd *pd, const struct rdma_mr_attr *attr,
	uint64_t most, uint64_t unit);

/** @return 0, also if it is not open; -EBUSY: not all has let go of it, to be called again */
int sink_memory_close(struct sink_memory *m);

/** Bytes of a slice. */
static inline uint64_t
sink_memory_slice_bytes(const struct sink_memory *m, uint32_t i)
{
	const uint64_t rest = m->length - i * m->slice;

	return rest < m->slice ? rest : m->slice;
}

/** The registration of an address. @param room  out: bytes from there to the slice's end */
static inline const struct rdma_mr *
sink_memory_at(const struct sink_memory *m, const void *addr, uint64_t *room)
{
	const uint64_t offset = (const uint8_t *)addr - m->addr;
	const uint32_t i = offset / m->slice;

	*room = i * m->slice + sink_memory_slice_bytes(m, i) - offset;
	return m->mr[i];
}

#endif /* SINK_MEMORY_H */
