/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Memory registered in as many slices as it takes: adapters take regions of a limited size only
 * (rdma_dev_info.max_mr_bytes, 3.5 GiB with `verbs`), journals and bodies may be larger.
 * *Control* functions of rdma.h, but xfer_mr_at().
 */
#ifndef XFER_MR_H
#define XFER_MR_H

#include "rdma/rdma.h"

struct xfer_mr {
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
int xfer_mr_open(struct xfer_mr *m, struct rdma_pd *pd, const struct rdma_mr_attr *attr,
	uint64_t most, uint64_t unit);

/** @return 0, also if it is not open; -EBUSY: not all has let go of it, to be called again */
int xfer_mr_close(struct xfer_mr *m);

/** Bytes of a slice. */
static inline uint64_t
xfer_mr_slice_bytes(const struct xfer_mr *m, uint32_t i)
{
	const uint64_t rest = m->length - i * m->slice;

	return rest < m->slice ? rest : m->slice;
}

/** The registration of an address. @param room  out: bytes from there to the slice's end */
static inline const struct rdma_mr *
xfer_mr_at(const struct xfer_mr *m, const void *addr, uint64_t *room)
{
	const uint64_t offset = (const uint8_t *)addr - m->addr;
	const uint32_t i = offset / m->slice;

	*room = i * m->slice + xfer_mr_slice_bytes(m, i) - offset;
	return m->mr[i];
}

#endif /* XFER_MR_H */
