/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_errno.h>

#include "xfer/mr.h"

int
xfer_mr_open(struct xfer_mr *m, struct rdma_pd *pd, const struct rdma_mr_attr *attr, uint64_t most,
	uint64_t unit)
{
	struct rdma_mr_attr slice = *attr;
	uint32_t i;
	int ret;

	memset(m, 0, sizeof(*m));
	if (unit > most)
		return -E2BIG;
	m->addr = attr->addr;
	m->length = attr->length;
	m->slice = attr->length <= most ? attr->length : most / unit * unit;
	m->nb = (attr->length + m->slice - 1) / m->slice;
	m->mr = calloc(m->nb, sizeof(*m->mr));
	if (m->mr == NULL)
		return -ENOMEM;
	for (i = 0; i < m->nb; i++) {
		slice.addr = m->addr + i * m->slice;
		slice.length = xfer_mr_slice_bytes(m, i);
		m->mr[i] = rdma_mr_reg(pd, &slice);
		if (m->mr[i] == NULL) {
			ret = -rte_errno;
			/* the memory is not in use yet, so this cannot fail with -EBUSY */
			(void)xfer_mr_close(m);
			return ret;
		}
	}
	return 0;
}

int
xfer_mr_close(struct xfer_mr *m)
{
	for (; m->nb > 0; m->nb--) {
		struct rdma_mr *last = m->mr[m->nb - 1];

		if (last != NULL && rdma_mr_dereg(last) < 0)
			return -EBUSY;
	}
	free(m->mr);
	m->mr = NULL;
	return 0;
}
