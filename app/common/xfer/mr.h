/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Memory registered in one or more slices. Adapters limit the size of a memory region
 * (rdma_dev_info.max_mr_bytes, 3.5 GiB with `verbs`), and journals and bodies may be larger. All
 * functions except xfer_mr_at() are *control* functions as in rdma.h.
 */
#ifndef XFER_MR_H
#define XFER_MR_H

#include "rdma/rdma.h"

struct xfer_mr {
	uint8_t *addr;
	uint64_t length;
	uint64_t slice; /**< size of each slice but the last, bytes */
	uint32_t nb;
	struct rdma_mr **mr;
};

/**
 * Register memory.
 * @param most  maximum size of a slice, bytes
 * @param unit size of an object that must not span two slices, bytes; objects begin at the first
 *   address
 * @return 0; -E2BIG: `unit` is larger than `most`; -ENOMEM; or an error of rdma_mr_reg(). On errors
 *   nothing stays registered
 */
int xfer_mr_open(struct xfer_mr *m, struct rdma_pd *pd, const struct rdma_mr_attr *attr,
	uint64_t most, uint64_t unit);

/**
 * Deregister the memory. @return 0, even if nothing is registered; -EBUSY: still in use, call again
 */
int xfer_mr_close(struct xfer_mr *m);

/** Size of a slice in bytes. */
static inline uint64_t
xfer_mr_slice_bytes(const struct xfer_mr *m, uint32_t i)
{
	const uint64_t rest = m->length - i * m->slice;

	return rest < m->slice ? rest : m->slice;
}

/** Memory region of an address. @param room  out: bytes from the address to the end of its slice */
static inline const struct rdma_mr *
xfer_mr_at(const struct xfer_mr *m, const void *addr, uint64_t *room)
{
	const uint64_t offset = (const uint8_t *)addr - m->addr;
	const uint32_t i = offset / m->slice;

	*room = i * m->slice + xfer_mr_slice_bytes(m, i) - offset;
	return m->mr[i];
}

#endif /* XFER_MR_H */
